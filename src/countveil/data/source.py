"""Where the rows are: a file, files, a table of a database, or a frame in memory. Says nothing about their values.

A `Snapshot` is a source as it was seen: what is counted, kept open and paid for is a snapshot, never a bare source.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from countveil.errors import DataError, EngineError, shortened
from countveil.schema import Schema

if TYPE_CHECKING:
    from countveil.ledger.records import Keyed

RECENT = 2 * 10**9
"""Nanoseconds; some file systems count in seconds."""
Trace = tuple[int, ...]
"""What shows that a file was touched: its size, times and inode."""
Type = TypeVar("Type")
CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True)
class Source:
    """A place to count: `location` is a path, a glob or an address; `table` names a table in it; `frame` is in memory.

    `directory` is what relative paths start from: the folder of the configuration file.
    """

    location: str = ""
    table: str | None = None
    delimiter: str | None = None
    frame: object = None
    directory: Path = Path()
    listed: tuple[str, ...] = ()
    """The files, where they are settled: whatever the location has come to mean since."""
    schema: Schema | None = None
    """What may be asked, where it is known: of rows that are stored before they are counted, nothing else is."""
    stored: object = None
    """Rows of Spark's that were stored; see `spark_storage`."""
    allow_spark_ui: bool = False
    """Whoever sees the windows of the Spark session may see the data."""

    @property
    def scheme(self) -> str:
        """frame, csv, parquet, duckdb, spark, or what stands before :// in an address."""
        if self.frame is not None:
            return "spark" if type(self.frame).__module__.startswith("pyspark.") else "frame"
        head, mark, _ = self.location.partition("://")
        if mark:
            return head.lower()
        lowered = self.location.lower()
        if lowered.endswith(CSV_ENDINGS):
            return "csv"
        if lowered.endswith(DUCKDB_ENDINGS):
            return "duckdb"
        return "parquet" if lowered.endswith((".parquet", ".parq", ".pq")) or "*" in lowered else "unknown"

    @property
    def files(self) -> bool:
        """Whether the rows are in files that can be listed."""
        return self.frame is None and "://" not in self.location

    @property
    def file_table(self) -> str:
        """The table that is counted where files have tables: one text for one table, however it is written."""
        if self.scheme != "duckdb":
            return ""
        return (self.table or "").encode().lower().decode().removeprefix("main.")  # DuckDB folds ASCII and no more

    @property
    def unused(self) -> tuple[str, str] | None:
        """A setting that means nothing for this source, and why: it would look like other data than it is."""
        if self.frame is not None:
            return None
        if self.table is not None and self.scheme in ("csv", "parquet", "spark"):
            return "table", f"a {self.scheme} source has no tables to choose from; remove table"
        if self.delimiter is not None and self.scheme in ("parquet", "duckdb", "spark", "postgresql", "postgres"):
            return "delimiter", f"only CSV files have one, and this is a {self.scheme} source; remove delimiter"
        return None

    @property
    def shown(self) -> str:
        """The location for messages: never with a password, or whatever else an address carries."""
        head, mark, rest = self.location.partition("://")
        if not mark:
            return shortened(self.location, 100)
        host = rest.rpartition("@")[2].partition("?")[0]
        return shortened(f"{head}://{host}", 100)

    def partitions(self) -> list[tuple[str, ...]]:
        """For each file the folders `key=value` that are columns of its rows.

        They are where a glob of Parquet files goes through at least one, and then those above the glob are too;
        elsewhere such folders are only names.
        """
        paths = self.paths()
        if self.scheme != "parquet":
            return [()] * len(paths)
        pattern = (self.directory / Path(self.location).expanduser()).resolve()
        fixed = len(list(takewhile(lambda part: not glob.has_magic(part), pattern.parts)))
        folders = [Path(path).parts[:-1] for path in paths]
        if not any("=" in part for parts in folders for part in parts[fixed:]):
            return [()] * len(paths)
        return [tuple(part for part in parts if "=" in part) for parts in folders]

    def paths(self) -> list[str]:
        """The files meant, a glob opened here and not by an engine, in a fixed order."""
        if self.listed:
            return list(self.listed)
        pattern = os.path.join(self.directory, os.path.expanduser(self.location))
        if glob.has_magic(pattern) and not os.path.exists(pattern):
            found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        else:
            found = [pattern] if os.path.isfile(pattern) else []
        if not found:
            raise EngineError(f"source: {shortened(self.location, 100)} matches no file; check the path")
        return [os.path.realpath(path) for path in found]


@dataclass(frozen=True)
class Snapshot:
    """A source as it was seen: with its files settled, what shows that one was touched, and the keyed hash of it all.

    `certain` says that nothing was written so recently that a second write could leave the same traces.
    """

    source: Source
    fingerprint: Keyed
    traces: tuple[Trace, ...]
    certain: bool
    fingerprint_again: Callable[[], Keyed] = field(repr=False, compare=False)
    """Read what the source holds now."""

    @property
    def state(self) -> tuple[object, ...]:
        """Equal for snapshots between which nothing was written; where that is not certain, equal to no other."""
        return (self.fingerprint, *self.source.listed, *self.traces, *([] if self.certain else [object()]))

    def is_current(self) -> bool:
        """Whether the source is still what was seen: no file was touched, and where traces cannot tell that for
        certain, or there are none, it holds the same when it is read again."""
        if tuple(map(read_trace, content_files(self.source))) != self.traces:
            return False
        return (self.certain and bool(self.traces)) or self.fingerprint_again() == self.fingerprint


def check_alike(paths: list[str], columns_of: Callable[[str], dict[str, Type]]) -> dict[str, Type]:
    """The columns of files, which all have the same of the same types: to cast the values of one can fail."""
    first = columns_of(paths[0])
    for path in paths[1:]:
        if columns_of(path) != first:
            raise DataError(
                f"source: {shortened(path, 100)} has other columns or types than {shortened(paths[0], 100)}"
            )
    return first


def content_files(source: Source) -> list[str]:
    """The files whose bytes are the content of a source with settled files: a database may have a log beside it."""
    logs = [f"{path}.wal" for path in source.listed] if source.scheme == "duckdb" else []
    return [*source.listed, *filter(os.path.isfile, logs)]


def read_trace(path: str) -> Trace:
    """The trace of a file as it is now."""
    try:
        found = os.stat(path)
    except OSError:
        raise EngineError("source: a file is gone") from None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def is_recent(trace: Trace) -> bool:
    """Written so recently that a second write could have left the same times."""
    return time.time_ns() - max(trace[1:3]) < RECENT
