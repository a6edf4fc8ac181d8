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
import io
import json
import threading
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.durable_files import replace_private
from countveil.engines import ENGINES, Engine, Snapshot, Source, open_engine
from countveil.engines.source import Trace, content_files, is_recent, read_trace
from countveil.errors import EngineError, shortened
from countveil.ledger.records import Keyed

if TYPE_CHECKING:
    from countveil.engines.spark_storage import Storage


class Fingerprints:
    """Takes snapshots of sources; the keyed hashes of those that are files are remembered in a file."""

    def __init__(
        self, keyed: Callable[[str], Keyed], cache: Path | None = None, old: Callable[[], Set[str]] = frozenset
    ) -> None:
        """`old` gives the hashes that the ledger has of data that was asked before it had a secret."""
        self._keyed, self._cache, self._old = keyed, cache, functools.cache(old)
        self._hashes: dict[tuple[str, Trace], str] = {}
        """Of files, by path and trace; not keyed, so they stay in this process."""
        self._kept: dict[Keyed, list[Keyed]] = {}
        """By source, all keyed: its traces and its fingerprint."""
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, str | None], Engine] = {}
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

    def look(self, source: Source) -> Snapshot:
        """A snapshot of what a source holds now."""
        if source.files:
            return self._look_at_files(source)
        if source.scheme == "spark":
            return self._look_at_stored(source)
        content = frame_hash(source.frame) if source.scheme == "frame" else self._ask_server(source)
        return self._snapshot(source, self._keyed(content))

    def _snapshot(
        self, source: Source, fingerprint: Keyed, traces: tuple[Trace, ...] = (), certain: bool = True
    ) -> Snapshot:
        return Snapshot(source, fingerprint, traces, certain, lambda: self.look(source).fingerprint)

    # -- files -------------------------------------------------------------------------------------------------------

    def _look_at_files(self, source: Source) -> Snapshot:
        source = replace(source, listed=tuple(source.paths()))
        files = content_files(source)
        traces = tuple(map(read_trace, files))
        certain = not any(map(is_recent, traces))  # before anything is read: so no younger than what is found
        name = self._keyed(json.dumps([source.table, source.partitions(), *files]))
        state = self._keyed(json.dumps(traces)) if certain else None
        fingerprint = self._recall(name, state)
        if fingerprint is None:
            with self._lock:  # so that two threads do not read the same file
                fingerprint = self._recall(name, state) or self._read(source, files, traces, name, state)
        return self._snapshot(source, fingerprint, traces, certain)

    def _recall(self, name: Keyed, state: Keyed | None) -> Keyed | None:
        """The fingerprint of files that were not touched since they were read; None if they were, or may have been."""
        kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == state else None

    def _read(
        self, source: Source, files: list[str], traces: tuple[Trace, ...], name: Keyed, state: Keyed | None
    ) -> Keyed:
        """The fingerprint of files, which are remembered unless another write may leave no trace."""
        seen = list(zip(files, traces, strict=True))
        hashes = [self._hashes.get((path, trace)) or _file_hash(path) for path, trace in seen]
        fingerprint = self._join(source, hashes)
        if state is not None and tuple(map(read_trace, files)) == traces:
            self._hashes.update(zip(seen, hashes, strict=True))
            self._kept[name] = [state, fingerprint]
            if self._cache is not None:
                kept = json.dumps({"check": self._check(), "sources": self._kept}, indent=1)
                with suppress(OSError):
                    replace_private(self._cache, kept.encode())
        return fingerprint

    def _join(self, source: Source, hashes: list[str]) -> Keyed:
        """The fingerprint of a source from the hashes of its files: the same for any order of files with rows.

        Where folders are columns, their values follow after a dot: they make another version, of the same people.

        Before ledgers had a secret, the order of several files counted, and the values that their folders give did not.
        Data that was asked then keeps its fingerprint: another would be a second budget for the same people.
        """
        before = _joined(source, hashes)
        if source.scheme == "duckdb" or before in self._old():  # a file and its log have an order
            return self._keyed(before)
        content, folders = self._keyed(_joined(source, sorted(hashes))), source.partitions()
        if not any(folders):
            return content
        placed = sorted(zip(hashes, folders, strict=True))
        return Keyed(f"{content}.{self._keyed(json.dumps(placed))}")

    # -- Spark and servers -------------------------------------------------------------------------------------------

    def _look_at_stored(self, source: Source) -> Snapshot:
        """Rows of Spark's are stored before they are counted: their files are looked at, which nobody else writes."""
        from countveil.engines.spark_storage import Storage

        with self._lock:
            self._storage = storage = self._storage or Storage()
        rows = storage.rows(source)
        source = replace(source, stored=rows, listed=rows.paths)
        return self._snapshot(source, self._keyed(rows.fingerprint), tuple(map(read_trace, rows.paths)))

    def _ask_server(self, source: Source) -> str:
        """What a server says of its table, through a connection that is kept."""
        where = (source.location, source.table)
        with self._lock:
            engine = self._servers.get(where)
            if engine is None:
                if source.scheme not in ENGINES:  # an address may hold a password, so it is not repeated
                    raise EngineError(f"source: no engine for {shortened(source.scheme, 20)}:// is installed")
                engine = self._servers[where] = open_engine(source)
        return engine.fingerprint()

    def close(self) -> None:
        """Let servers go, and stored rows."""
        with self._lock:
            if self._storage is not None:
                self._storage.close()
            for engine in self._servers.values():
                engine.close()
            self._servers.clear()


def _joined(source: Source, hashes: Sequence[str]) -> str:
    """The hash of a source from those of its files."""
    return hashlib.sha256("".join([source.file_table, *hashes]).encode("utf-8", "surrogateescape")).hexdigest()


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


class _Hashing(io.RawIOBase):
    """A file that keeps nothing but the hash of what is written."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.hash.update(content)
        return memoryview(content).nbytes
