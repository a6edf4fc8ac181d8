"""Snapshots that detect changed data: each contains a hash of the source's content, keyed with the ledger's secret.

Files are hashed as a whole, a DuckDB file together with its write-ahead log. A file is not read again if its size,
times and inode are unchanged, unless it was written just before it was hashed. A file that changed without any trace
would be taken for the unchanged file: the result is a stale replay, never a leak.

A file beside the ledger caches the fingerprints. Everything in that file is keyed, so it reveals neither hashes of the
data nor sizes of files. Hashes that are not keyed never leave this process.
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

from countveil.data.engines import ENGINES, Engine, Snapshot, Source, open_engine
from countveil.data.source import Trace, content_files, is_recent, read_trace
from countveil.errors import EngineError, shorten
from countveil.files.durable_files import replace_private
from countveil.ledger.records import Keyed

if TYPE_CHECKING:
    from countveil.data.engines.spark_storage import Storage


class Fingerprints:
    """Takes snapshots of sources. The keyed hashes of files are cached in a file."""

    def __init__(
        self, keyed: Callable[[str], Keyed], cache: Path | None = None, old: Callable[[], Set[str]] = frozenset
    ) -> None:
        """`keyed` makes keyed hashes; `cache` is the file for them.

        `old` returns the hashes of data that the ledger recorded before it had a secret.
        """
        self._keyed, self._cache, self._old = keyed, cache, functools.cache(old)
        self._hashes: dict[tuple[str, Trace], str] = {}
        """Hashes of files by path and trace. They are not keyed, so they never leave this process."""
        self._entries: dict[Keyed, list[Keyed]] = {}
        """For the keyed name of each source: the keyed traces of its files, and its fingerprint."""
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, str | None, str | None], Engine] = {}
        self._storage: Storage | None = None
        if cache is not None:
            with suppress(OSError):
                self._entries = self._load(cache)

    def _load(self, cache: Path) -> dict[Keyed, list[Keyed]]:
        """Read the cache file. Delete a cache of another ledger, or of a version that did not key its content."""
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            entries = json.loads(cache.read_bytes())
            if entries["check"] == self._check():
                return {Keyed(name): [state, fingerprint] for name, (state, fingerprint) in entries["sources"].items()}
        cache.unlink()
        return {}

    def _check(self) -> Keyed:
        return self._keyed("a cache of fingerprints")

    def look(self, source: Source) -> Snapshot:
        """Take a snapshot of the present content of a source."""
        if source.files:
            return self._look_at_files(source)
        if source.scheme == "spark":
            return self._look_at_spark(source)
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
        certain = not any(map(is_recent, traces))  # before reading: a slow read must not make a write look old
        name = self._keyed(json.dumps([source.table, source.partitions(), *files]))
        state = self._keyed(json.dumps(traces)) if certain else None
        fingerprint = self._recall(name, state)
        if fingerprint is None:
            with self._lock:  # only one thread reads a file
                fingerprint = self._recall(name, state) or self._read(source, files, traces, name, state)
        return self._snapshot(source, fingerprint, traces, certain)

    def _recall(self, name: Keyed, state: Keyed | None) -> Keyed | None:
        """The cached fingerprint of files; None if they were written since the fingerprint was computed, or may have
        been."""
        entry = self._entries.get(name)
        return entry[1] if entry is not None and entry[0] == state else None

    def _read(
        self, source: Source, files: list[str], traces: tuple[Trace, ...], name: Keyed, state: Keyed | None
    ) -> Keyed:
        """Compute the fingerprint of files. Cache it, unless a later write could leave the same traces."""
        states = list(zip(files, traces, strict=True))
        hashes = [self._hashes.get((path, trace)) or _file_hash(path) for path, trace in states]
        fingerprint = self._join(source, hashes)
        if state is not None and tuple(map(read_trace, files)) == traces:
            self._hashes.update(zip(states, hashes, strict=True))
            self._entries[name] = [state, fingerprint]
            if self._cache is not None:
                text = json.dumps({"check": self._check(), "sources": self._entries}, indent=1)
                with suppress(OSError):
                    replace_private(self._cache, text.encode())
        return fingerprint

    def _join(self, source: Source, hashes: list[str]) -> Keyed:
        """Combine the hashes of a source's files into its fingerprint, which does not depend on their order.

        If folder names are columns, a dot and a hash of their values follow. If only these values change, the
        fingerprint belongs to another version of the data, but its first part still shows that the people are the same.

        Before ledgers had a secret, fingerprints depended on the order of files, and not on folder names. Data that
        was recorded then keeps its fingerprint: with a new one, the same people would get a second budget.
        """
        ordered = _join_hashes(source, hashes)
        if source.scheme == "duckdb" or ordered in self._old():  # a database comes before its log
            return self._keyed(ordered)
        content, folders = self._keyed(_join_hashes(source, sorted(hashes))), source.partitions()
        if not any(folders):
            return content
        pairs = sorted(zip(hashes, folders, strict=True))
        return Keyed(f"{content}.{self._keyed(json.dumps(pairs))}")

    # -- Spark and servers -------------------------------------------------------------------------------------------

    def _look_at_spark(self, source: Source) -> Snapshot:
        """Store Spark's rows in files that no other program writes, and take a snapshot of these files."""
        from countveil.data.engines.spark_storage import Storage

        with self._lock:
            self._storage = storage = self._storage or Storage()
        rows = storage.rows(source)
        source = replace(source, stored=rows, listed=rows.paths)
        return self._snapshot(source, self._keyed(rows.fingerprint), tuple(map(read_trace, rows.paths)))

    def _ask_server(self, source: Source) -> str:
        """The fingerprint that a server computes for its table. The connection to the server stays open."""
        where = (source.location, source.table, source.engine)
        with self._lock:
            engine = self._servers.get(where)
            if engine is None:
                if source.engine is None and source.scheme not in ENGINES:
                    # the message omits the address: it may have a password
                    raise EngineError(f"source: no engine for {shorten(source.scheme, 20)}:// is installed")
                engine = self._servers[where] = open_engine(source)
        return engine.fingerprint()

    def close(self) -> None:
        """Close the connections to servers and delete stored rows."""
        with self._lock:
            if self._storage is not None:
                self._storage.close()
            for engine in self._servers.values():
                engine.close()
            self._servers.clear()


def _join_hashes(source: Source, hashes: Sequence[str]) -> str:
    """One hash of a source, from the hashes of its files."""
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

    from countveil.data.frames import content_table

    table = content_table(frame)
    sink = _HashSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.hash.hexdigest()


class _HashSink(io.RawIOBase):
    """A file object that computes the hash of the bytes that are written to it, and keeps nothing else."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.hash.update(content)
        return memoryview(content).nbytes
