"""Group commit: changes that wait at the same time share one transaction, one sync and one move of the anchor.

A thread puts its change in the queue. If there is no leader, the thread becomes the leader. A leader makes all queued
changes, up to MOST, in one transaction, and wakes the other threads with their outcomes. If changes are still in the
queue, the thread of the first one becomes the next leader. The more changes are queued, the less each one costs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from countveil.errors import CountveilError, LedgerError

T = TypeVar("T")
MOST = 128
"""The largest number of changes in one transaction."""
FAILED = "the ledger could not be written; nothing was answered"


class QueuedChange(Generic[T]):
    """One change in the queue, and its outcome. If `anchored`, the anchor must move before the caller goes on."""

    def __init__(self, name: str, make: Callable[[], T], anchored: bool = True) -> None:
        self.name, self._make, self.anchored = name, make, anchored
        self.done = self.leads = False
        self._wake = threading.Lock()
        self._wake.acquire()  # `wake` releases it
        self._result: list[T] = []
        self._error: Exception | None = None

    def make(self) -> None:
        """Make the change and keep its result; an error is raised at once."""
        self._result = [self._make()]

    def make_among(self, written: Callable[[], int]) -> None:
        """Make the change as one of several in a transaction. If it is refused before it has written, the other changes
        are still made.

        `written` returns the number of writing statements so far. A change that is refused after it has written cannot
        be undone alone, so the whole transaction fails.
        """
        before = written()
        try:
            self.make()
        except LedgerError:
            raise  # a fault of the ledger fails the whole transaction
        except CountveilError as error:
            if written() != before:
                raise LedgerError(FAILED) from error
            self._error = error

    def fail(self, error: BaseException) -> None:
        """Record that the transaction failed or never began, so that the change was not made.

        A change that was refused gets this error in place of its refusal. It may have been refused because another
        change of the same transaction spent the last answer; as nothing was spent now, it may succeed when it is tried
        again.
        """
        self._error = error if isinstance(error, Exception) else LedgerError(FAILED)

    def wake(self) -> None:
        """Wake the thread that waits for this change, because the change is done or because its thread is now the
        leader."""
        self._wake.release()

    def wait(self) -> None:
        """Sleep until the change is done or this thread is the leader."""
        while not (self.done or self.leads):
            self._wake.acquire()

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class CommitQueue:
    """The queue of changes. While changes are queued, exactly one thread is the leader.

    The leader's own change is in the queue, or has just been made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[QueuedChange[Any]] = deque()
        self._led = False

    def join(self, mine: QueuedChange[Any]) -> None:
        """Put a change in the queue. Its thread becomes the leader if there is none."""
        with self._lock:
            self._queue.append(mine)
            if not self._led:
                mine.leads = self._led = True  # in this order, so that an interrupt in between leaves a leader

    def take(self) -> list[QueuedChange[Any]]:
        """Take the first changes out of the queue, at most MOST."""
        with self._lock:
            return [self._queue.popleft() for _ in range(min(MOST, len(self._queue)))]

    def leave(self, mine: QueuedChange[Any]) -> None:
        """Remove a change from the queue, whether it was made or not. If its thread is the leader, appoint the next
        leader."""
        if mine.done and not mine.leads:
            return
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
            if mine.leads:
                mine.leads, self._led = False, bool(self._queue)
                if self._queue:
                    self._queue[0].leads = True
                    self._queue[0].wake()

    def forget(self) -> None:
        """Empty the queue in the child process after a fork: the threads that wait in the queue exist only in the
        parent."""
        self._lock = threading.Lock()
        self._queue.clear()
        self._led = False
