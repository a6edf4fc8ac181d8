"""Counting on DuckDB: CSV, Parquet, DuckDB tables, and frames in memory.

The connection can read its own source and nothing else: paths are allowed one by one, external access is switched off,
variables of the process are out of reach, a database is opened read-only, and the settings are locked before the first
question.

CSV is RFC 4180 (see `csv_files`). It is read as text without looking at the data, from first byte to last by one
thread: where a record ends must not depend on how a file is cut up for several. A record that is shorter than the
header or longer than 2 MB is skipped, and so is one with a field that is asked about and not in UTF-8; fields beyond
the header's are ignored. All files of a source have the same columns of the same types.

Small files are read once: to open a file, read its header and plan the scan costs more than to count a few thousand
rows. Their declared columns are copied to a table in memory, with the types of the file, only if that changes no count.
So a CSV file is copied only if it is UTF-8 throughout, and all its fields are: otherwise what is skipped depends on the
columns of the question, and must not depend on the size of the file, or on the record of somebody else.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from countveil.engines import csv_files
from countveil.engines.engine import UNREADABLE, SqlEngine
from countveil.engines.source import Source, check_alike
from countveil.engines.sql import OUTSIDE, Dialect, Family, Statement
from countveil.errors import DataError, EngineError, shortened
from countveil.schema import Kind, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"], "integer"),
    **dict.fromkeys(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"], "integer"),
    "UHUGEINT": "decimal",  # compared with a BIGINT it overflows
    "DOUBLE": "float",
    "FLOAT": "single",
    **dict.fromkeys(["VARCHAR", "UUID", '"NULL"'], "text"),
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"], "timestamp"),
    "BOOLEAN": "boolean",
    "DATE": "date",
}
DATABASE = "countveil_source"
COPY = "countveil_copy"
"""The table of a small source's rows in memory."""
MAX_BYTES = 16 << 20
"""Of all files of a small source together."""
MAX_ROWS = 500_000
"""Of Parquet files, which say how many there are: a few bytes of theirs can stand for many rows."""
MAX_TEXT = 64 << 20
"""Bytes of text in Parquet files."""


class DuckDBDialect(Dialect):
    """DuckDB's spelling."""

    def characters(self, raw: str) -> str:
        return f'(CAST({raw} AS VARCHAR) COLLATE "binary")'

    def matches(self, expression: str, pattern: str) -> str:
        return f"regexp_matches({expression}, '{pattern}')"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        return f"{expression} IN (SELECT unnest(CAST({parameter} AS {self.types[kind]}[])))"


class DuckDBEngine(SqlEngine):
    """Counts on one source through a locked connection of its own."""

    dialect = DuckDBDialect()

    settings: Mapping[str, Any] = {}
    copies = True
    """Small files are copied to memory."""
    _frame: Any = None

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._columns: dict[str, Family] | None = None
        self._idle: list[duckdb.DuckDBPyConnection] = []
        if source.scheme == "frame":
            from countveil.engines.frames import arrow_table  # which needs pyarrow

            self._frame = arrow_table(source.frame, schema)
        self.garbled = {"frame": OUTSIDE, "parquet": "?"}.get(source.scheme)
        self._scratch = tempfile.mkdtemp(prefix="countveil-")
        self._tidy = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._connection = duckdb.connect(
            ":memory:", config={**self.settings, "python_enable_replacements": "false", "temp_directory": self._scratch}
        )
        try:
            paths = [] if self._frame is not None else _plain(source.paths(), self._scratch)
            self.relation = _relation(source, paths, self._connection)
            if schema is not None:
                self.check(schema)
                if source.scheme == "parquet":
                    self._try_times(schema)
                if self.copies and self._copy(source, paths, schema):
                    self.relation, paths = COPY, []
            _lock(paths, self._connection)
        except duckdb.Error:
            self.close()
            raise EngineError(f"source: {shortened(source.location, 100)} could not be opened") from None
        except BaseException:
            self.close()
            raise

    def columns(self) -> Mapping[str, Family]:
        if self._frame is not None and not self._frame.num_columns:
            return {}
        if self._columns is None:
            found = self.run(Statement(f"DESCRIBE SELECT * FROM {self.relation}", {}))
            described = zip(found["column_name"], found["column_type"], strict=True)
            self._columns = {str(name): _family(str(kind)) for name, kind in described}
        return self._columns

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        """Guarantee: one SELECT and nothing else. The lock keeps other files out of reach, this keeps the source."""
        try:
            parsed = _one_select(statement.sql)
            cursor = self._cursor()
            found = cursor.execute(parsed, dict(statement.values)).fetchnumpy()
            self._idle.append(cursor)
            return found
        except Exception:  # whatever goes wrong, its words can quote the data
            raise EngineError(UNREADABLE) from None

    def _copy(self, source: Source, paths: list[str], schema: Schema) -> bool:
        """Copy the declared columns of a small source to a table of ours; False if it is not small."""
        declared = {schema.unit, *(column.name for column in schema.columns)}
        names = [name for name in self.columns() if name in declared]
        if not names or not self._is_small(source, paths, names):
            return False
        self._connection.execute("SET threads = 1")  # threads that wait for so few rows cost more than they bring
        columns = ", ".join(map(self.dialect.name, names))
        self._connection.execute(f"CREATE TABLE {COPY} AS SELECT {columns} FROM {self.relation}")
        return True

    def _is_small(self, source: Source, paths: list[str], names: list[str]) -> bool:
        """Whether some columns of a source fit into memory, and copying them changes no count."""
        if source.scheme not in ("csv", "parquet") or sum(map(os.path.getsize, paths)) > MAX_BYTES:
            return False
        if source.scheme == "csv":
            return not csv_files.is_packed(source) and all(_is_utf8(path) for path in paths)
        ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {self.relation}").fetchall()
        if rows > MAX_ROWS:
            return False
        texts = [self.dialect.characters(self.dialect.name(name)) for name in names if self.columns()[name] == "text"]
        lengths = " + ".join(f"strlen(coalesce({text}, ''))" for text in texts) or "0"
        ((text,),) = self._connection.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {self.relation}").fetchall()
        return int(text) <= MAX_TEXT  # a dictionary of a file has each text once, memory as often as it occurs

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own, so that threads can ask at once; one that is idle, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            cursor = self._connection.cursor()
            if self._frame is not None:
                cursor.register("frame", self._frame)
            return cursor

    def _try_times(self, schema: Schema) -> None:
        """Read the time stamps of Parquet files once: DuckDB fails on one that overflows its own, so it fails here.

        At opening a fault says that the files are broken; in an answer it would say which rows a question reads.
        """
        times = [column for column in schema.columns if self.columns()[column.name] == "timestamp"]
        for column in times:
            read = self.dialect.read(column, "timestamp", self.dialect.name(column.name))
            self.run(Statement(f"SELECT count({read}) FROM {self.relation}", {}))

    def close(self) -> None:
        for cursor in self._idle:
            cursor.close()
        self._idle.clear()
        self._connection.close()
        self._tidy()


@lru_cache(maxsize=1024)
def _one_select(sql: str) -> duckdb.Statement:
    """The statement, parsed once: values are bound, so that questions of one shape have one text. What is not one
    SELECT is refused."""
    found = duckdb.extract_statements(sql)
    if [statement.type for statement in found] != [duckdb.StatementType.SELECT]:
        raise EngineError(UNREADABLE)
    return found[0]


def _is_utf8(path: str) -> bool:
    try:
        Path(path).read_bytes().decode()
    except ValueError:
        return False
    return True


def _family(kind: str) -> Family:
    if kind.startswith("DECIMAL"):
        return "integer" if kind.endswith(",0)") else "decimal"
    if kind.endswith("WITH TIME ZONE") or kind.startswith("TIMESTAMPTZ"):
        return "zoned"
    return "text" if kind.startswith("ENUM") else FAMILIES.get(kind, "other")


def _plain(paths: list[str], scratch: str) -> list[str]:
    """Paths without wildcards in their names, which DuckDB would look up: such a file gets a link of a plain name."""
    plain = []
    for i, path in enumerate(paths):
        if glob.has_magic(path):
            link = os.path.join(scratch, f"{i}-{re.sub(r'[*?[]', '-', os.path.basename(path))}")
            os.symlink(path, link)
            path = link
        plain.append(path)
    return plain


def _lock(paths: list[str], connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing but the source can be read from here on, and no setting can be changed back."""
    if paths:
        connection.execute(f"SET allowed_paths = {_files(paths)}")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _relation(source: Source, paths: list[str], connection: duckdb.DuckDBPyConnection) -> str:
    """The source in a FROM clause."""
    if source.scheme == "frame":
        return "frame"
    if source.scheme == "duckdb":
        return _attached(source, paths[0], connection)
    return _parquet(paths, source, connection) if source.scheme == "parquet" else _csv(paths, source)


def _attached(source: Source, path: str, connection: duckdb.DuckDBPyConnection) -> str:
    """A table of a database file. Attached, and not opened, because engines in one process would share an open one."""
    if not source.table:
        raise EngineError(f'source: {shortened(source.location, 100)} needs table = "..."')
    connection.execute(f"ATTACH {_text(path)} AS {DATABASE} (TYPE duckdb, READ_ONLY)")
    schema, dot, table = source.table.rpartition(".")
    place = [schema if dot else "main", table]
    _check_stored(connection, place, source.table)
    return ".".join([DATABASE, *map(DuckDBEngine.dialect.name, place)])


def _check_stored(connection: duckdb.DuckDBPyConnection, place: list[str], shown: str) -> None:
    """Rows that are stored can be read whatever is asked. A view or a computed column is evaluated for the rows that a
    question selects, and could fail for some of them: whether it does would say something about a person."""
    where = f"WHERE database_name = '{DATABASE}' AND lower(schema_name) = lower(?)"
    views = f"SELECT 1 FROM duckdb_views() {where} AND lower(view_name) = lower(?)"
    computed = f"SELECT column_name FROM duckdb_columns() {where} AND lower(table_name) = lower(?) AND is_generated"
    words = ""
    if connection.execute(views, place).fetchone() is not None:
        words = f"{shortened(shown, 100)} is a view, which is evaluated while it is counted"
    elif (column := connection.execute(computed, place).fetchone()) is not None:
        words = f"column {shortened(column[0], 60)} of {shortened(shown, 60)} is computed while it is counted"
    if words:
        raise DataError(f"source: {words}; store it: CREATE TABLE ... AS SELECT * FROM it")


def _parquet(paths: list[str], source: Source, connection: duckdb.DuckDBPyConnection) -> str:
    """Parquet files with the same columns: to cast the values of one file to the type of another can fail.

    Folders called key=value below the fixed part of a glob are columns; elsewhere they are only names.
    """
    keys = {part.partition("=")[0] for parts in source.partitions() for part in parts}

    def columns_of(path: str) -> dict[str, str]:
        described = connection.execute(f"DESCRIBE SELECT * FROM {_read_parquet([path], False)}").fetchall()
        return {name: kind for name, kind, *_ in described}

    both = sorted({name.casefold() for name in check_alike(paths, columns_of)} & {key.casefold() for key in keys})
    if both:
        raise DataError(f"source: column {shortened(both[0], 60)} is in the files and in the names of their folders")
    return _read_parquet(paths, bool(keys))


def _read_parquet(paths: list[str], partitioned: bool) -> str:
    """Statistics of a file say nothing about NaN: without `can_have_nan` DuckDB skips row groups that have some."""
    options = f"hive_partitioning = {str(partitioned).lower()}, utf8_validation = 'replace', can_have_nan = true"
    options += ", hive_types_autocast = false" if partitioned else ""
    return f"read_parquet({_files(paths)}, {options})"


def _csv(paths: list[str], source: Source) -> str:
    """CSV as text columns named by the header; nothing is guessed from the rows.

    Files are RFC 4180 here, but for line ends: with `new_line` of CRLF, DuckDB takes both kinds as they come, and in a
    file of one column does not take the two bytes for two ends of records.
    """
    delimiter, packed = csv_files.delimiter_of(source), csv_files.is_packed(source)
    header = csv_files.read_header(paths, source, delimiter)
    for path in paths:
        csv_files.check_file(path, delimiter, packed)
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in header)
    return (
        f"read_csv({_files(paths)}, auto_detect = false, header = true, delim = {_text(delimiter)}, "
        f"quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false, ignore_errors = true, "
        f"strict_mode = false, new_line = '\\r\\n', compression = '{'gzip' if packed else 'none'}', "
        f"parallel = false, hive_partitioning = false, columns = {{{columns}}})"
    )


def _text(text: str) -> str:
    """A text literal for the few places where SQL takes no parameter: paths and names that the curator declared."""
    return "'" + text.replace("'", "''") + "'"


def _files(paths: list[str]) -> str:
    return f"[{', '.join(_text(path) for path in paths)}]"
