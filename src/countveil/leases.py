"""Engines in use: opened once for a state of the data, shared by threads, closed when the last question is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from countveil.engines import Engine, GuestEngine, QuickEngine, open_engine
from countveil.errors import EngineError
from countveil.fingerprints import Look
from countveil.schema import Schema


@dataclass
class _Lease:
    state: tuple[object, ...]
    engine: Engine
    users: int = 0

    def __post_init__(self) -> None:
        self._guest = self.engine if isinstance(self.engine, GuestEngine) else None

    def fits(self, state: tuple[object, ...]) -> bool:
        """The engine can answer about this state."""
        return self.state == state and (self._guest is None or self._guest.alive())


def opened_on(look: Look, schema: Schema, engine: str | None) -> Engine:
    """An engine on the content that was looked at: what it reads while it is opened, it may keep."""
    opened = open_engine(replace(look.source, listed=look.paths), schema, engine)
    try:
        if not look.holds():
            raise EngineError("source: it was written while it was opened; nothing was charged; ask again")
    except BaseException:
        opened.close()
        raise
    return opened


class Leases:
    """The open engines of a curator, by dataset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, _Lease] = {}
        self._retired: list[_Lease] = []

    def quick(self, dataset: str) -> bool:
        """The engine of a dataset is open, and no question takes it long."""
        lease = self._current.get(dataset)  # without the lock, which whoever opens a large source holds
        return lease is not None and isinstance(lease.engine, QuickEngine) and lease.engine.quick()

    @contextmanager
    def held(
        self, dataset: str, state: tuple[object, ...], opened: Callable[[], Engine], *, keep: bool = False
    ) -> Iterator[Engine]:
        """The engine of a dataset in this state. One of an older state goes when its last user is done.

        An engine that is to be kept has a user for good: what it made is read later.
        """
        lease = self._taken(dataset, state, opened)
        try:
            yield lease.engine
        finally:
            with self._lock:
                lease.users -= 0 if keep else 1
                gone = self._finished()
            for each in gone:
                each.engine.close()

    def _taken(self, dataset: str, state: tuple[object, ...], opened: Callable[[], Engine]) -> _Lease:
        with self._lock:
            known = self._current.get(dataset)
            if known is None or not known.fits(state):
                if known is not None:
                    del self._current[dataset]
                    self._retired.append(known)
                known = self._current[dataset] = _Lease(state, opened())
            known.users += 1
            gone = self._finished()
        for each in gone:
            each.engine.close()
        return known

    def _finished(self) -> list[_Lease]:
        gone = [lease for lease in self._retired if lease.users == 0]
        self._retired = [lease for lease in self._retired if lease.users > 0]
        return gone

    def close(self) -> None:
        with self._lock:
            for lease in (*self._current.values(), *self._retired):
                lease.engine.close()
            self._current.clear()
            self._retired.clear()
