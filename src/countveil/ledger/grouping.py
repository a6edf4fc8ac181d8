"""Changes that wait at the same time are made together: one transaction, one sync, one move of the anchor for all.

A thread puts its change in line. If nobody leads, it does: it makes all that are in line, up to MOST, in one
transaction, tells the others what came of theirs, and passes the lead to the first of those that came meanwhile. The
others sleep until they are told; they do not queue for the ledger. Nobody waits longer than alone, and the more wait,
the less each costs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from countveil.errors import CountveilError, LedgerError

T = TypeVar("T")
MOST = 128
"""Changes of one transaction."""


class Waiting(Generic[T]):
    """One change in line, and what came of it."""

    def __init__(self, name: str, change: Callable[[], T], anchored: bool = True) -> None:
        self.name, self._change, self.anchored = name, change, anchored
        self.done = self.leads = False
        self._bell = threading.Lock()
        self._bell.acquire()  # whoever rings it releases it
        self._found: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Make the change, alone in its transaction."""
        self._found = [self._change()]

    def run_among(self, written: Callable[[], int]) -> None:
        """Make the change among others in one transaction; if it is refused, before it has written, the others go on.

        A change that could not be undone alone, because it was refused after it had written, is a fault of all.
        """
        before = written()
        try:
            self.run()
        except LedgerError:
            raise  # not a refusal but a fault, and then of the whole transaction
        except CountveilError as error:
            if written() != before:
                raise LedgerError("the ledger could not be written; nothing was answered") from error
            self._error = error

    def fail(self, error: BaseException) -> None:
        """The transaction failed, or never began, so this did not happen, whatever came of it inside.

        Nor does a refusal stand: it may rest on what another change of the transaction would have spent.
        """
        lost = LedgerError("the ledger could not be written; nothing was answered")
        self._error = error if isinstance(error, Exception) else lost

    def ring(self) -> None:
        """It is done, or it leads now; once for either."""
        self._bell.release()

    def wait(self) -> None:
        """Until it is done or it leads."""
        while not (self.done or self.leads):
            self._bell.acquire()

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found[0]


class Group:
    """The line. While it is not empty, one of those in it leads, or one whose change was just made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Waiting[Any]] = deque()
        self._led = False

    def join(self, name: str, change: Callable[[], T], anchored: bool = True) -> Waiting[T]:
        """Stand in line; the first in it leads."""
        mine = Waiting(name, change, anchored)
        with self._lock:
            self._line.append(mine)
            if not self._led:
                self._led = mine.leads = True
        return mine

    def take(self) -> list[Waiting[Any]]:
        """The first in line, all of them up to MOST."""
        with self._lock:
            return [self._line.popleft() for _ in range(min(MOST, len(self._line)))]

    def leave(self, *mine: Waiting[Any]) -> None:
        """Whatever came of them, they are no longer in line, and none of them leads."""
        if all(each.done and not each.leads for each in mine):
            return
        with self._lock:
            led = any(each.leads for each in mine)
            for each in mine:
                each.leads = False
                if each in self._line:
                    self._line.remove(each)
            if led:
                self._led = bool(self._line)
                if self._line:
                    self._line[0].leads = True
                    self._line[0].ring()

    def forget(self) -> None:
        """Nobody is in line: after a fork the threads that were are the parent's."""
        self._lock = threading.Lock()
        self._line.clear()
        self._led = False
