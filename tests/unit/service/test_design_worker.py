"""The helper that designs: who waits for it, in which order, and who is sent away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from countveil.service.work import EACH, WAITING, BusyError, Stop, TooLongError, Workshop


class Line:
    """A workshop whose helper is busy until it may go on; `order` is who had it."""

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
        with self.shop._turn(client, stop):
            self.go.wait()
            self.order.append(client)


@pytest.fixture
def line() -> Iterator[Line]:
    with ThreadPoolExecutor(2 * WAITING) as pool:
        found = Line(pool)
        yield found
        found.go.set()


def test_one_client_does_not_keep_others_from_the_helper(line: Line) -> None:
    for _ in range(EACH):
        line.join("eve")
    with pytest.raises(BusyError):
        line.join("eve")
    line.join("ann")
    line.join("ann")
    line.join("bob")
    line.go.set()
    while line.shop._queue:
        time.sleep(0.001)
    assert line.order == ["nobody", "eve", "ann", "bob", "eve", "ann", *["eve"] * (EACH - 2)]


def test_the_line_has_an_end(line: Line) -> None:
    for i in range(WAITING - 1):
        line.join(f"{i}")
    with pytest.raises(BusyError):
        line.join("one more")


def test_who_no_longer_waits_leaves_the_line(line: Line) -> None:
    stop = Stop()
    line.join("ann", stop)
    stop.given = True
    while len(line.shop._queue) > 1:
        time.sleep(0.001)
    with pytest.raises(TooLongError), line.shop._turn("ann", stop):
        pass
    line.join("ann")


def test_who_waits_too_long_is_sent_away(line: Line) -> None:
    line.shop._seconds = 0.0
    with pytest.raises(BusyError), line.shop._turn("ann", None):
        pass
    assert len(line.shop._queue) == 1
