"""The queue of the design helper: its order, and which tasks are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from countveil.service.design_worker import EACH, WAITING, BusyError, Stop, TooLongError, Workshop


class Queue:
    """A workshop whose helper is busy until `go` is set; `order` lists the clients in the order they were served."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.shop, self.order, self._pool, self.go = Workshop(), list[str](), pool, threading.Event()
        self.join("nobody")

    def join(self, client: str, stop: Stop | None = None) -> None:
        before = len(self.shop._queue)
        work = self._pool.submit(self._take, client, stop)
        while len(self.shop._queue) == before:
            if work.done():
                work.result()
            time.sleep(0.001)

    def _take(self, client: str, stop: Stop | None) -> None:
        with self.shop._take_turn(client, stop):
            self.go.wait()
            self.order.append(client)


@pytest.fixture
def queue() -> Iterator[Queue]:
    with ThreadPoolExecutor(2 * WAITING) as pool:
        waiting = Queue(pool)
        yield waiting
        waiting.go.set()


def test_one_client_does_not_block_the_helper_for_others(queue: Queue) -> None:
    for _ in range(EACH):
        queue.join("eve")
    with pytest.raises(BusyError):
        queue.join("eve")
    queue.join("ann")
    queue.join("ann")
    queue.join("bob")
    queue.go.set()
    while queue.shop._queue:
        time.sleep(0.001)
    assert queue.order == ["nobody", "eve", "ann", "bob", "eve", "ann", *["eve"] * (EACH - 2)]


def test_a_full_queue_refuses_tasks(queue: Queue) -> None:
    for i in range(WAITING - 1):
        queue.join(f"{i}")
    with pytest.raises(BusyError):
        queue.join("one more")


def test_a_cancelled_task_leaves_the_queue(queue: Queue) -> None:
    stop = Stop()
    queue.join("ann", stop)
    stop.given = True
    while len(queue.shop._queue) > 1:
        time.sleep(0.001)
    with pytest.raises(TooLongError), queue.shop._take_turn("ann", stop):
        pass
    queue.join("ann")


def test_a_task_that_waits_too_long_is_refused(queue: Queue) -> None:
    queue.shop._seconds = 0.0
    with pytest.raises(BusyError), queue.shop._take_turn("ann", None):
        pass
    assert len(queue.shop._queue) == 1
