"""Where the rows are: a file, files, a table of a database, or a frame in memory. Says nothing about their values."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from countveil.errors import EngineError, shortened
from countveil.schema import Schema

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

    def partitions(self, paths: list[str]) -> list[tuple[str, ...]]:
        """For each file the folders `key=value` that are columns of its rows.

        They are where a glob of Parquet files goes through at least one, and then those above the glob are too;
        elsewhere such folders are only names.
        """
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
