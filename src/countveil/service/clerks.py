"""Counts that wait at the same time are answered together, by one thread: their charges in one transaction, then the
counting of each, then their answers in one transaction.

Threads that do one count each spend more on taking turns than on counting. What takes long has a thread of its own, and
a clerk that is held up all the same is joined by another.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

from countveil.ledger.steps import Changing, Done, Steps, alone, together

T = TypeVar("T")
AT_ONCE = 32
"""Counts that a clerk takes at once."""
GATHERING = 0.002
"""Seconds that a clerk who was busy waits for others to come."""
LONG = 0.5
"""Seconds that counts wait for a clerk before another comes."""
MOST = 40
"""Clerks that there are at most."""


class Job(NamedTuple):
    """A work, and who waits for it."""

    steps: Steps[Any]
    future: asyncio.Future[Done]


class Clerks:
    """The clerks of one event loop."""

    def __init__(self, ledger: Changing) -> None:
        self._ledger, self._loop = ledger, asyncio.get_running_loop()
        self._line: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock, self._clerks = threading.Lock(), 0
        self._taken, self._watched = 0.0, False
        self._come()

    async def value(self, steps: Steps[T]) -> T:
        """The value of a work."""
        job = Job(steps, self._loop.create_future())
        self._line.put(job)
        if not self._watched:
            self._watched = True
            self._loop.call_later(LONG, self._watch)
        done = await job.future
        if done.slow:
            return await run_in_threadpool(alone, self._ledger, steps)
        if done.error is not None:
            raise done.error
        value: T = done.value
        return value

    def close(self) -> None:
        """The clerks end when they have nothing to do."""
        for _ in range(MOST):
            self._line.put(None)

    def _watch(self) -> None:
        """Another clerk, if nobody came for what waits."""
        self._watched = not self._line.empty()
        if self._watched:
            self._loop.call_later(LONG, self._watch)
            if time.monotonic() - self._taken > LONG and self._clerks < MOST:
                with suppress(RuntimeError):  # the system has no thread left; perhaps later
                    self._come()

    def _come(self) -> None:
        with self._lock:
            threading.Thread(target=self._work, daemon=True).start()
            self._clerks += 1

    def _work(self) -> None:
        several = False
        while (first := self._line.get()) is not None:
            since = self._taken = time.monotonic()
            if several:  # who got their answers together will ask again together
                time.sleep(GATHERING)
            several = self._serve([first, *self._waiting()]) > 1
            del first
            if time.monotonic() - since > LONG and self._leave():
                return

    def _serve(self, jobs: list[Job]) -> int:
        """Work on some side by side; how many they were."""
        try:
            for done in together(self._ledger, [job.steps for job in jobs]):
                self._tell(jobs, done)
        except BaseException as error:  # of the thread, not of a work
            fault = RuntimeError(type(error).__name__)
            self._tell(jobs, [Done(number, error=fault) for number in range(len(jobs))])
        return len(jobs)

    def _leave(self) -> bool:
        """A clerk who was held up leaves the line to the one who came meanwhile, if one did."""
        with self._lock:
            leaves = self._clerks > 1
            self._clerks -= leaves
            return leaves

    def _waiting(self) -> list[Job]:
        """What else is in line."""
        jobs: list[Job] = []
        with suppress(queue.Empty):
            while len(jobs) < AT_ONCE - 1:
                job = self._line.get_nowait()
                if job is None:
                    self._line.put(None)
                    break
                jobs.append(job)
        return jobs

    def _tell(self, jobs: list[Job], done: list[Done]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(_settle, [(jobs[each.number].future, each) for each in done])


def _settle(found: list[tuple[asyncio.Future[Done], Done]]) -> None:
    for future, done in found:
        if not future.done():  # nobody may be waiting any more
            future.set_result(done)
