"""Is this still the same data? The content of a source as one hash, keyed with the ledger's secret.

Files are hashed whole, a DuckDB file together with its write-ahead log. A file whose size, times and inode are as
before, and which was not written just now, is not read again. A file that changed without any trace would be taken for
the old one: a stale replay, never a leak.

What was found of each source is kept in a file beside the ledger, and all of it keyed: neither hashes of the data nor
the sizes of files are in it. A hash that is not keyed stays in this process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.durable_files import replace_private
from countveil.engines import ENGINES, Source, WatchedEngine, open_engine
from countveil.errors import EngineError, shortened
from countveil.ledger.secret import Keyed

if TYPE_CHECKING:
    from countveil.engines.spark_storage import Storage

RECENT = 2 * 10**9
"""Nanoseconds; some file systems count in seconds."""


@dataclass(frozen=True)
class Look:
    """A source as it was found: its files, their traces, and the keyed hash of what it holds."""

    source: Source
    paths: tuple[str, ...]
    traces: tuple[tuple[int, ...], ...]
    sure: bool
    """Nothing was written so recently that a second write could leave the same traces."""
    fingerprint: Keyed

    @property
    def state(self) -> tuple[object, ...]:
        """Equal for looks between which nothing was written; where that is not sure, equal to no other."""
        return (self.fingerprint, *self.paths, *self.traces, *([] if self.sure else [object()]))

    def still(self) -> bool:
        """Nothing was written to its files since, for sure; False where there are none to tell it."""
        return self.sure and bool(self.traces) and self.holds()

    def holds(self) -> bool:
        """Nothing was written since."""
        return tuple(tuple(traces(path)) for path in _files(self.source, list(self.paths))) == self.traces


class Fingerprints:
    """Keyed hashes of sources, remembered in a file."""

    def __init__(
        self, keyed: Callable[[str], Keyed], cache: Path | None = None, old: Callable[[], Set[str]] = frozenset
    ) -> None:
        """`old` gives the hashes that the ledger has of data that was asked before it had a secret."""
        self._keyed, self._cache, self._old = keyed, cache, functools.cache(old)
        self._known: dict[str, list[Any]] = {}
        """By path: the traces and the hash of a file."""
        self._kept: dict[Keyed, list[Keyed]] = {}
        """By source, all keyed: its traces and its fingerprint."""
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, str | None], WatchedEngine] = {}
        self._storage: Storage | None = None
        if cache is not None:
            with suppress(OSError):
                self._kept = self._load(cache)

    def _load(self, cache: Path) -> dict[Keyed, list[Keyed]]:
        """What the cache says. One of another ledger, or of a version that did not key it, is removed."""
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found = json.loads(cache.read_bytes())
            if found["check"] == self._check():
                return {Keyed(name): [state, fingerprint] for name, (state, fingerprint) in found["sources"].items()}
        cache.unlink()
        return {}

    def _check(self) -> Keyed:
        return self._keyed("a cache of fingerprints")

    def of(self, source: Source) -> Keyed:
        """The keyed hash of what a source holds now."""
        return self.look(source).fingerprint

    def look(self, source: Source) -> Look:
        """What a source holds now, and what would show that it does no longer."""
        if source.scheme == "spark":
            return self._look_at_stored(source)
        if not source.files:
            return Look(source, (), (), True, self._keyed(self._of_others(source)))
        return self.glance(source) or self._study(source)

    def glance(self, source: Source) -> Look | None:
        """As `look`, if it can be told without reading anything."""
        if not source.files:
            return None
        paths = source.paths()
        files = _files(source, paths)
        seen = [traces(path) for path in files]
        known = [self._remembered(path, trace) for path, trace in zip(files, seen, strict=True)]
        if None not in known:
            return _look(source, paths, seen, True, self._join(source, paths, list(map(str, known))))
        if any(map(_fresh, seen)):
            return None
        kept = self._kept.get(self._name(source, paths, files))
        return _look(source, paths, seen, True, kept[1]) if kept and kept[0] == self._state(seen) else None

    def _study(self, source: Source) -> Look:
        """Read the files that are not remembered."""
        paths = source.paths()
        files = _files(source, paths)
        with self._lock:  # so that two threads do not read the same file
            seen = [traces(path) for path in files]
            sure = not any(map(_fresh, seen))  # before anything is read: so no younger than what is found
            found = self._join(source, paths, [self._read(path) for path in files])
            if all(self._remembered(path, trace) for path, trace in zip(files, seen, strict=True)):
                self._keep(self._name(source, paths, files), [self._state(seen), found])
        return _look(source, paths, seen, sure, found)

    def _join(self, source: Source, paths: list[str], hashes: list[str]) -> Keyed:
        """The fingerprint of a source from the hashes of its files: the same for any order of files with rows.

        Where folders are columns, their values follow after a dot: they make another version, of the same people.

        Before ledgers had a secret, the order of several files counted, and the values that their folders give did not.
        Data that was asked then keeps its fingerprint: another would be a second budget for the same people.
        """
        before, folders = _joined(source, hashes), source.partitions(paths)
        if source.scheme == "duckdb" or before in self._old():  # a file and its log have an order
            return self._keyed(before)
        content = self._keyed(_joined(source, sorted(hashes)))
        if not any(folders):
            return content
        placed = sorted(zip(hashes, folders, strict=True))
        return Keyed(f"{content}.{self._keyed(json.dumps(placed))}")

    def _name(self, source: Source, paths: list[str], files: list[str]) -> Keyed:
        return self._keyed(json.dumps([source.table, source.partitions(paths), *files]))

    def _state(self, seen: list[list[int]]) -> Keyed:
        return self._keyed(json.dumps(seen))

    def _look_at_stored(self, source: Source) -> Look:
        """Rows of Spark's are stored before they are counted: their files are looked at, which nobody else writes."""
        from countveil.engines.spark_storage import Storage

        with self._lock:
            self._storage = storage = self._storage or Storage()
        rows = storage.rows(source)
        seen = tuple(tuple(traces(path)) for path in rows.paths)
        return Look(replace(source, stored=rows), rows.paths, seen, True, self._keyed(rows.fingerprint))

    def _of_others(self, source: Source) -> str:
        if source.scheme == "frame":
            return frame_hash(source.frame)
        return self._of_server(source)

    def _of_server(self, source: Source) -> str:
        """What a server says of its table, through a connection that is kept."""
        where = (source.location, source.table)
        with self._lock:
            engine = self._servers.get(where)
            if engine is None:
                if source.scheme not in ENGINES:  # an address may hold a password, so it is not repeated
                    raise EngineError(f"source: no engine for {shortened(source.scheme, 20)}:// is installed")
                opened = open_engine(source)
                if not isinstance(opened, WatchedEngine):
                    raise EngineError("source: this engine cannot tell whether its data has changed")
                engine = self._servers[where] = opened
        return engine.fingerprint()

    def close(self) -> None:
        """Let servers go, and stored rows."""
        with self._lock:
            if self._storage is not None:
                self._storage.close()
            for engine in self._servers.values():
                engine.close()
            self._servers.clear()

    def _remembered(self, path: str, trace: list[int]) -> str | None:
        """The hash of a file that was not touched since it was read; None if it was, or may have been."""
        known = self._known.get(path)
        return str(known[-1]) if isinstance(known, list) and known[:-1] == trace and not _fresh(trace) else None

    def _read(self, path: str) -> str:
        """The hash of a file, which is read unless it is remembered."""
        trace = traces(path)
        known, fresh = self._remembered(path, trace), _fresh(trace)
        if known is None:
            known = _file_hash(path)
            if not fresh:  # another write within the same tick would leave no trace: it is read again later
                self._known[path] = [*trace, known]
        return known

    def _keep(self, name: Keyed, found: list[Keyed]) -> None:
        if self._kept.get(name) == found:
            return
        self._kept[name] = found
        if self._cache is not None:
            with suppress(OSError):
                replace_private(
                    self._cache, json.dumps({"check": self._check(), "sources": self._kept}, indent=1).encode()
                )


def _joined(source: Source, hashes: Sequence[str]) -> str:
    """The hash of a source from those of its files."""
    return hashlib.sha256("".join([source.file_table, *hashes]).encode("utf-8", "surrogateescape")).hexdigest()


def _look(source: Source, paths: list[str], seen: Sequence[Sequence[int]], sure: bool, fingerprint: Keyed) -> Look:
    return Look(source, tuple(paths), tuple(map(tuple, seen)), sure, fingerprint)


def _files(source: Source, paths: list[str]) -> list[str]:
    """The files whose content is the content of a source."""
    logs = [f"{path}.wal" for path in paths] if source.scheme == "duckdb" else []
    return paths + [path for path in logs if os.path.isfile(path)]


def _fresh(trace: Sequence[int]) -> bool:
    """Written so recently that a second write could have left the same times."""
    return time.time_ns() - max(trace[1:3]) < RECENT


def traces(path: str) -> list[int]:
    """What shows that a file was touched."""
    try:
        found = os.stat(path)
    except OSError:
        raise EngineError("source: a file is gone") from None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _file_hash(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise EngineError("source: a file could not be read") from None


def frame_hash(frame: Any) -> str:
    """The hash of a frame's columns and values."""
    import pyarrow as pa

    from countveil.engines.frames import arrow_table

    table = arrow_table(frame)
    sink = _Hashing()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.hash.hexdigest()


class _Hashing:
    """A file that keeps nothing but the hash of what is written."""

    closed = False

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, content: Any) -> int:
        self.hash.update(content)
        return memoryview(content).nbytes

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
