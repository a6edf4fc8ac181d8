"""Changes that wait at the same time are made together: one transaction, one sync, one move of the anchor for all.

A thread puts its change in line and then waits for the ledger. Whoever gets the ledger first makes all that are in
line; the others find theirs done. Nobody waits longer than alone, and the more wait, the less each costs.
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

    def __init__(self, name: str, change: Callable[[], T]) -> None:
        self.name, self._change, self.done = name, change, False
        self._found: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Make the change, alone in its transaction."""
        self._found = [self._change()]

    def run_among(self, statement: Callable[[str], object]) -> None:
        """Make the change among others in one transaction; if it is refused, it alone is undone."""
        statement("SAVEPOINT one")
        try:
            self.run()
        except LedgerError:
            raise  # not a refusal but a fault, and then of the whole transaction
        except CountveilError as error:
            self._error = error
            statement("ROLLBACK TO SAVEPOINT one")
        statement("RELEASE SAVEPOINT one")

    def fail(self, error: BaseException) -> None:
        """The transaction failed, so this did not happen, whatever came of it inside."""
        if self._error is None:
            lost = LedgerError("the ledger could not be written; nothing was answered")
            self._error = error if isinstance(error, Exception) else lost

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found[0]


class Group:
    """The line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Waiting[Any]] = deque()

    def join(self, name: str, change: Callable[[], T]) -> Waiting[T]:
        mine = Waiting(name, change)
        with self._lock:
            self._line.append(mine)
        return mine

    def take(self) -> list[Waiting[Any]]:
        """The first in line, all of them up to MOST."""
        with self._lock:
            return [self._line.popleft() for _ in range(min(MOST, len(self._line)))]

    def forget(self) -> None:
        """Nobody is in line: after a fork the threads that were are the parent's."""
        self._lock = threading.Lock()
        self._line.clear()
