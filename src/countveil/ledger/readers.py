"""Connections that only read: as many as there are threads that read at once, none of which waits for another.

A connection that is idle is used again. They do not survive a fork: before one, all are closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from countveil.errors import LedgerError


class Closable(Protocol):
    """A connection of any database."""

    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)


class Readers(Generic[C]):
    """The connections of one ledger in one process."""

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._lock, self._closed, self._parting, self._out = threading.Condition(), False, False, 0
        self._idle: list[C] = []

    @contextmanager
    def one(self) -> Iterator[C]:
        """A connection that no other thread has."""
        with self._lock:
            self._lock.wait_for(lambda: not self._parting)
            if self._closed:
                raise LedgerError("the ledger is closed")
            self._out += 1
            mine = self._idle.pop() if self._idle else None
        try:
            mine = mine or self._connect()
            yield mine
        finally:
            with self._lock:
                self._out -= 1
                if mine is not None and self._closed:
                    mine.close()
                elif mine is not None:
                    self._idle.append(mine)
                self._lock.notify_all()

    def close(self) -> None:
        """Close all that are idle; the others close when they are done."""
        with self._lock:
            self._closed = True
            self._let_go()

    def part(self) -> None:
        """Before a fork: let nobody begin to read, wait for those who do, and close all."""
        self._lock.acquire()
        self._parting = True
        self._lock.wait_for(lambda: self._out == 0)
        self._let_go()

    def rejoin(self) -> None:
        """After a fork, on both sides."""
        self._parting = False
        self._lock.notify_all()
        self._lock.release()

    def _let_go(self) -> None:
        while self._idle:
            self._idle.pop().close()
