"""Where the rows are: a file, files, a table of a database, or a frame in memory. Nothing here reads values of rows.

A `Snapshot` is the state of a source at one time. Engines are opened, and questions charged and counted, on a snapshot,
never on a source alone.
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

from countveil.errors import DataError, EngineError, shorten
from countveil.query.schema import Schema

if TYPE_CHECKING:
    from countveil.ledger.records import Keyed

RECENT = 2 * 10**9
"""How many nanoseconds apart two writes may be and still leave the same times: some file systems count in seconds."""
Trace = tuple[int, ...]
"""The size, times and inode of a file. A write to the file changes its trace."""
Type = TypeVar("Type")
CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True)
class Source:
    """Where the rows of a dataset are: `location` is a path, a glob or an address; or `frame` is a frame in memory.

    `table` names a table at the location. Relative paths start from `directory`, the folder of the configuration file.
    """

    location: str = ""
    table: str | None = None
    delimiter: str | None = None
    frame: object = None
    directory: Path = Path()
    listed: tuple[str, ...] = ()
    """The files of a snapshot. They stay the same even if the location later matches other files."""
    schema: Schema | None = None
    """The declared columns, if known: when Spark stores rows, only these columns are stored."""
    stored: object = None
    """The stored rows of a Spark source; see `spark_storage`."""
    engine: str | None = None
    """The name of the engine that reads the source, if it is not the usual one for sources of this kind."""
    allow_spark_ui: bool = False
    """Whether counting is allowed if readers of the Spark session's UI or event log can see row counts."""

    @property
    def scheme(self) -> str:
        """What kind of source this is: frame, csv, parquet, duckdb, spark, unknown, or the scheme of an address."""
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
        """The name of the counted table of a DuckDB file, in one spelling for all equivalent ones; empty for other
        sources."""
        if self.scheme != "duckdb":
            return ""
        return (self.table or "").encode().lower().decode().removeprefix("main.")  # DuckDB ignores case in ASCII only

    @property
    def useless_setting(self) -> tuple[str, str] | None:
        """A setting that makes no sense for this source, and why; None if there is none.

        Such a setting would make the same data look like different data.
        """
        if self.frame is not None:
            return None
        if self.table is not None and self.scheme in ("csv", "parquet", "spark"):
            return "table", f"a {self.scheme} source has no tables to choose from; remove table"
        if self.delimiter is not None and self.scheme in ("parquet", "duckdb", "spark", "postgresql", "postgres"):
            return "delimiter", f"only CSV files have a delimiter, and this is a {self.scheme} source; remove delimiter"
        return None

    @property
    def display_name(self) -> str:
        """The location as shown in messages, without the user, password and options of an address."""
        head, mark, rest = self.location.partition("://")
        if not mark:
            return shorten(self.location, 100)
        host = rest.rpartition("@")[2].partition("?")[0]
        return shorten(f"{head}://{host}", 100)

    def partitions(self) -> list[tuple[str, ...]]:
        """For each file, those folders `name=value` in its path that are columns of its rows.

        Such folders are columns if the glob of a Parquet source matches at least one of them. Then folders above the
        glob are columns too. Otherwise they are only names.
        """
        paths = self.paths()
        if self.scheme != "parquet":
            return [()] * len(paths)
        pattern = Path(self.directory, os.path.expanduser(self.location)).resolve()
        fixed = len(list(takewhile(lambda part: not glob.has_magic(part), pattern.parts)))
        folders = [Path(path).parts[:-1] for path in paths]
        if not any("=" in part for parts in folders for part in parts[fixed:]):
            return [()] * len(paths)
        return [tuple(part for part in parts if "=" in part) for parts in folders]

    def paths(self) -> list[str]:
        """The files of the source in a fixed order. A glob is expanded here, never by an engine."""
        if self.listed:
            return list(self.listed)
        pattern = os.path.join(self.directory, os.path.expanduser(self.location))
        if glob.has_magic(pattern) and not os.path.exists(pattern):
            files = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        else:
            files = [pattern] if os.path.isfile(pattern) else []
        if not files:
            raise EngineError(f"source: {shorten(self.location, 100)} matches no file; check the path")
        return [os.path.realpath(path) for path in files]


@dataclass(frozen=True)
class Snapshot:
    """The state of a source at one time: its list of files, their traces, and the keyed hash of the content.

    `certain` is False if a file was written so recently that a second write could leave the same trace.
    """

    source: Source
    fingerprint: Keyed
    traces: tuple[Trace, ...]
    certain: bool
    fingerprint_again: Callable[[], Keyed] = field(repr=False, compare=False)
    """A function that computes the fingerprint of the present content."""

    @property
    def state(self) -> tuple[object, ...]:
        """A value to compare: equal for two snapshots if nothing was written in between.

        If that is not certain, the value is equal to no other.
        """
        return (self.fingerprint, *self.source.listed, *self.traces, *([] if self.certain else [object()]))

    def is_current(self) -> bool:
        """Whether the source is still as in this snapshot.

        The traces of its files must be the same. If there are none, or they are not certain, the content is read again
        and its fingerprint must be the same.
        """
        if tuple(map(read_trace, content_files(self.source))) != self.traces:
            return False
        return (self.certain and bool(self.traces)) or self.fingerprint_again() == self.fingerprint


def check_alike(paths: list[str], columns_of: Callable[[str], dict[str, Type]]) -> dict[str, Type]:
    """The columns that all files have. Files with other columns or types are refused, because casts can fail."""
    first = columns_of(paths[0])
    for path in paths[1:]:
        if columns_of(path) != first:
            raise DataError(f"source: {shorten(path, 100)} has other columns or types than {shorten(paths[0], 100)}")
    return first


def content_files(source: Source) -> list[str]:
    """The files whose bytes are the content of a snapshot: the listed files, and the write-ahead logs of DuckDB."""
    logs = [f"{path}.wal" for path in source.listed] if source.scheme == "duckdb" else []
    return [*source.listed, *filter(os.path.isfile, logs)]


def read_trace(path: str) -> Trace:
    """The trace (size, times, inode) that a file has now."""
    try:
        status = os.stat(path)
    except OSError:
        raise EngineError("source: a file no longer exists; restore it, or change the source") from None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_recent(trace: Trace) -> bool:
    """Whether a file was written so recently that a second write could leave the same times."""
    return time.time_ns() - max(trace[1:3]) < RECENT
