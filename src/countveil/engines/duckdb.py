"""Counting on DuckDB: CSV, Parquet, DuckDB tables, and frames in memory.

The connection can read its own source and nothing else: paths are allowed one by one, external access is switched off,
variables of the process are out of reach, a database is opened read-only, and the settings are locked before the first
question. CSV is read as text without looking at the data; a line that is not a record of the header's width is skipped.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb

from countveil.engines.dialect import Dialect, Family
from countveil.engines.source import Source
from countveil.engines.sql_engine import SqlEngine
from countveil.engines.statement import Statement
from countveil.errors import DataError, EngineError, ParameterError, shortened
from countveil.schema import Kind, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"], "integer"),
    **dict.fromkeys(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"], "integer"),
    **dict.fromkeys(["FLOAT", "DOUBLE"], "float"),
    **dict.fromkeys(["VARCHAR", "UUID"], "text"),
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"], "timestamp"),
    "TIMESTAMP WITH TIME ZONE": "zoned",
    "BOOLEAN": "boolean",
    "DATE": "date",
}
TYPES: dict[Kind, str] = {"text": "VARCHAR", "integer": "BIGINT", "boolean": "BOOLEAN", "date": "DATE"}
UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"


class DuckDBDialect(Dialect):
    """DuckDB's spelling."""

    def matches(self, expression: str, pattern: str) -> str:
        return f"regexp_matches({expression}, '{pattern}')"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        return f"{expression} IN (SELECT unnest(CAST({parameter} AS {TYPES[kind]}[])))"

    def listed(self, parameter: str, kind: Kind) -> str:
        values = f"CAST({parameter} AS {TYPES[kind]}[])"
        return f"(SELECT unnest({values}) AS v, generate_subscripts({values}, 1) - 1 AS i)"


class DuckDBEngine(SqlEngine):
    """Counts on one source through a locked connection of its own."""

    dialect = DuckDBDialect()

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._scratch = tempfile.mkdtemp(prefix="countveil-")
        self._columns: dict[str, Family] | None = None
        try:
            self._frame = _arrow(source.frame) if source.scheme == "frame" else None
            self._connection = _open(source, self._scratch)
            self.relation = _relation(source)
            _lock(source, self._connection)
        except duckdb.Error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise EngineError(f"source: {shortened(source.location, 100)} could not be opened") from None
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        if schema is not None:
            self.check(schema)

    def columns(self) -> Mapping[str, Family]:
        if self._columns is None:
            found = self.run(Statement(f"DESCRIBE SELECT * FROM {self.relation}", {}))
            described = zip(found["column_name"], found["column_type"], strict=True)
            self._columns = {str(name): _family(str(kind)) for name, kind in described}
        return self._columns

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        cursor = self._connection.cursor()  # a connection of its own, so that threads can ask at once
        try:
            if self._frame is not None:
                cursor.register("frame", self._frame)
            return cursor.execute(statement.sql, dict(statement.values)).fetchnumpy()
        except duckdb.Error:
            raise EngineError(UNREADABLE) from None
        finally:
            cursor.close()

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _family(kind: str) -> Family:
    if kind.startswith("DECIMAL"):
        return "decimal"
    return "text" if kind.startswith("ENUM") else FAMILIES.get(kind, "other")


def _open(source: Source, scratch: str) -> duckdb.DuckDBPyConnection:
    config: dict[str, Any] = {"python_enable_replacements": "false", "temp_directory": scratch}
    if source.scheme == "duckdb":
        return duckdb.connect(source.paths()[0], read_only=True, config=config)
    return duckdb.connect(":memory:", config=config)


def _lock(source: Source, connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing but the source can be read from here on, and no setting can be changed back."""
    if source.scheme in ("csv", "parquet"):
        connection.execute(f"SET allowed_paths = [{', '.join(_text(path) for path in source.paths())}]")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _relation(source: Source) -> str:
    """The source in a FROM clause."""
    if source.scheme == "frame":
        return "frame"
    if source.scheme == "duckdb":
        if not source.table:
            raise EngineError(f'source: {shortened(source.location, 100)} needs table = "..."')
        return ".".join(DuckDBEngine.dialect.name(part) for part in source.table.split("."))
    paths = source.paths()
    files = f"[{', '.join(_text(path) for path in paths)}]"
    return f"read_parquet({files})" if source.scheme == "parquet" else _csv(paths, files, source)


def _csv(paths: list[str], files: str, source: Source) -> str:
    """CSV as text columns named by the header; nothing is guessed from the rows."""
    delimiter = source.delimiter or ("\t" if paths[0].lower().endswith((".tsv", ".tsv.gz")) else ",")
    headers = {path: _header(path, delimiter) for path in paths}
    header = headers[paths[0]]
    for path, other in headers.items():
        if other != header:
            raise DataError(f"source: {shortened(path, 100)} has another header than {shortened(paths[0], 100)}")
    if not header or len(set(header)) != len(header) or not all(header):
        raise DataError(f"source: the header of {shortened(paths[0], 100)} needs a different name for every column")
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in header)
    return (
        f"read_csv({files}, auto_detect = false, header = true, delim = {_text(delimiter)}, "
        f"quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false, ignore_errors = true, "
        f"columns = {{{columns}}})"
    )


def _header(path: str, delimiter: str) -> list[str]:
    opened = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file, delimiter=delimiter), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise EngineError(f"source: the header of {shortened(path, 100)} could not be read as UTF-8 text") from None


def _arrow(frame: Any) -> object:
    """A frame of pandas, polars or pyarrow as an Arrow table, so that all three are read the same way."""
    import narwhals as nw

    try:
        eager = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise ParameterError("source", type(frame).__name__, "a pandas, polars or pyarrow frame, or a path") from None
    return eager.to_arrow()


def _text(text: str) -> str:
    """A text literal for the few places where SQL takes no parameter: paths and names that the curator declared."""
    return "'" + text.replace("'", "''") + "'"
