"""Counting on DuckDB: CSV and Parquet files, DuckDB tables, and frames in memory.

The connection can read its own source and nothing else: each path is allowed individually, external access is switched
off, Python variables of the process cannot be read, a database is opened read-only, and the settings are locked before
the first question.

CSV follows RFC 4180 (see `csv_files`). All columns are read as text, so that no type is guessed from the data. One
thread reads from the first byte to the last, because where a record ends must not depend on how a file is split among
threads. Three kinds of records are skipped: shorter than the header, longer than 2 MB, or not UTF-8 in a field that the
question reads. Fields beyond the header's are ignored. All files of a source have the same columns of the same types.

Small files are read once, because opening a file, reading its header and planning the scan cost more than counting a
few thousand rows. Their declared columns are copied, with the types of the file, to a table in memory, but only if the
copy changes no count. So a CSV file is copied only if all of it is UTF-8. In any other file, a field that is not UTF-8
makes DuckDB skip the record, but only if the question reads this field. A copy would read all fields and skip more
records; and whether a file is small enough to be copied depends on the records of other people.
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

from countveil.data import csv_files
from countveil.data.engines.duckdb_sql import LOCAL_NANOSECONDS, NANOSECONDS, DuckDBDialect, family_of, scales_of
from countveil.data.engines.engine import UNREADABLE, SqlEngine
from countveil.data.engines.families import OUTSIDE, Family
from countveil.data.engines.sql import Statement
from countveil.data.engines.steps import compare, read_value
from countveil.data.source import Source, check_alike
from countveil.errors import DataError, EngineError, shorten
from countveil.query.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DATABASE = "countveil_source"
COPY = "countveil_copy"
"""The name of the table in memory to which a small source is copied."""
MAX_BYTES = 16 << 20
"""The largest total size, in bytes, of files that are copied to memory."""
MAX_ROWS = 500_000
"""The most rows of a Parquet source that is copied to memory: a few compressed bytes can represent many rows."""
MAX_TEXT = 64 << 20
"""The most text, in bytes without compression, of a Parquet source that is copied to memory."""


class DuckDBEngine(SqlEngine):
    """Counts on one source with DuckDB, through a locked connection of its own."""

    dialect = DuckDBDialect()

    settings: Mapping[str, Any] = {}
    copies = True
    """Whether small files are copied to memory."""
    _frame: Any = None

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._columns: dict[str, Family] | None = None
        self._kinds: dict[str, str] = {}
        self._idle: list[duckdb.DuckDBPyConnection] = []
        if source.scheme == "frame":
            from countveil.data.frames import arrow_table  # which needs pyarrow

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
                self._read_times(schema)
                self.check(schema)
                self._try_values(schema, source.scheme == "parquet")
                if self.copies and self._copy(source, paths, schema):
                    self.relation, paths = COPY, []
            _lock(paths, self._connection)
        except duckdb.Error:
            self.close()
            raise EngineError(f"source: {shorten(source.location, 100)} could not be opened") from None
        except BaseException:
            self.close()
            raise

    def _read_times(self, schema: Schema) -> None:
        """Read nanoseconds, and text where periods of a zone need it, as times that can be compared."""
        columns = self.columns()
        converted = []
        for column in schema.sources:
            kind, name = self._kinds.get(column.name), self.dialect.name(column.name)
            if column.kind == "instant" and (kind == NANOSECONDS or columns.get(column.name) == "text"):
                converted.append(f"{self.dialect.read_instant(name, kind)} AS {name}")
            elif kind == LOCAL_NANOSECONDS:
                converted.append(f"{self.dialect.read_local(name)} AS {name}")
        if not converted:
            return
        self.relation = f"(SELECT * REPLACE ({', '.join(converted)}) FROM {self.relation})"
        self._columns = None

    def columns(self) -> Mapping[str, Family]:
        if self._frame is not None and not self._frame.num_columns:
            return {}
        if self._columns is None:
            result = self.run(Statement(f"DESCRIBE SELECT * FROM {self.relation}", {}))
            described = zip(result["column_name"], result["column_type"], strict=True)
            self._kinds = {str(name): str(kind) for name, kind in described}
            self._columns = {name: family_of(kind) for name, kind in self._kinds.items()}
        return self._columns

    def scales(self) -> Mapping[str, int]:
        self.columns()
        return scales_of(self._kinds)

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        """Run a statement and return its columns.

        Guarantee: exactly one SELECT runs and nothing else, so the source cannot be written. The locked settings
        protect all other files.
        """
        try:
            parsed = _one_select(statement.sql)
            cursor = self._cursor()
            columns = cursor.execute(parsed, dict(statement.values)).fetchnumpy()
            self._idle.append(cursor)
            return columns
        except Exception:  # any message of DuckDB can quote the data
            raise EngineError(UNREADABLE) from None

    def _copy(self, source: Source, paths: list[str], schema: Schema) -> bool:
        """Copy the declared columns of a small source to memory; return False, without copying, if the source is not
        small."""
        declared = {schema.unit, *(column.name for column in schema.sources)}
        names = [name for name in self.columns() if name in declared]
        if not names or not self._is_small(source, paths, names):
            return False
        self._connection.execute("SET threads = 1")  # for so few rows, starting threads costs more than it saves
        columns = ", ".join(map(self.dialect.name, names))
        self._connection.execute(f"CREATE TABLE {COPY} AS SELECT {columns} FROM {self.relation}")
        return True

    def _is_small(self, source: Source, paths: list[str], names: list[str]) -> bool:
        """Whether these columns fit into memory and a copy of them gives the same counts."""
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
        return int(text) <= MAX_TEXT  # a dictionary page stores a text once, memory stores it for each row

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """Take an idle connection, or make a new one. Each running statement has its own, so that threads can run at
        once."""
        try:
            return self._idle.pop()
        except IndexError:
            cursor = self._connection.cursor()
            if self._frame is not None:
                cursor.register("frame", self._frame)
            return cursor

    def _try_values(self, schema: Schema, parquet: bool) -> None:
        """Compare no value of each source of bins or periods, and read all time stamps of Parquet files once.

        DuckDB does not compare some types, and fails on a time stamp of a Parquet file that is out of its range. A
        failure now says that the source cannot be counted. A failure in a question would come after the charge, and
        reveal something about the rows that the question reads.
        """
        for column in schema.sources:
            compiler = self.compiler()
            if column.cuts:
                test = compare(compiler, column, read_value(compiler, column), "<", 1)
                self.run(compiler.statement(f"SELECT count({test}) FROM {self.relation} WHERE FALSE"))
            family, raw = self.columns()[column.name], compiler.raw(column.name)
            if parquet and family in ("timestamp", "zoned"):
                read = compiler.read(column) if family == "timestamp" else raw
                self.run(Statement(f"SELECT count({read}) FROM {self.relation}", {}))

    def close(self) -> None:
        for cursor in self._idle:
            cursor.close()
        self._idle.clear()
        self._connection.close()
        self._tidy()


@lru_cache(maxsize=1024)
def _one_select(sql: str) -> duckdb.Statement:
    """Parse a statement and refuse anything but one SELECT.

    The result is cached: because values are bound, questions that differ only in values have the same text.
    """
    statements = duckdb.extract_statements(sql)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise EngineError(UNREADABLE)
    return statements[0]


def _is_utf8(path: str) -> bool:
    try:
        Path(path).read_bytes().decode()
    except ValueError:
        return False
    return True


def _plain(paths: list[str], scratch: str) -> list[str]:
    """Paths without wildcards, which DuckDB would expand: a file whose path has wildcards gets a symbolic link."""
    plain = []
    for i, path in enumerate(paths):
        if glob.has_magic(path):
            link = os.path.join(scratch, f"{i}-{re.sub(r'[*?[]', '-', os.path.basename(path))}")
            os.symlink(path, link)
            path = link
        plain.append(path)
    return plain


def _lock(paths: list[str], connection: duckdb.DuckDBPyConnection) -> None:
    """Restrict the connection to the files of the source and lock its settings."""
    if paths:
        connection.execute(f"SET allowed_paths = {_files(paths)}")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _relation(source: Source, paths: list[str], connection: duckdb.DuckDBPyConnection) -> str:
    """The source as it is written in a FROM clause."""
    if source.scheme == "frame":
        return "frame"
    if source.scheme == "duckdb":
        return _attach(source, paths[0], connection)
    return _parquet(paths, source, connection) if source.scheme == "parquet" else _csv(paths, source)


def _attach(source: Source, path: str, connection: duckdb.DuckDBPyConnection) -> str:
    """Attach a database file read-only and return its table as it is written in a FROM clause.

    The file is attached, not opened, because DuckDB shares a database that is opened twice in one process.
    """
    if not source.table:
        raise EngineError(f'source: {shorten(source.location, 100)} needs table = "..."')
    connection.execute(f"ATTACH {_text(path)} AS {DATABASE} (TYPE duckdb, READ_ONLY)")
    schema, dot, table = source.table.rpartition(".")
    place = [schema if dot else "main", table]
    _check_stored(connection, place, source.table)
    return ".".join([DATABASE, *map(DuckDBEngine.dialect.name, place)])


def _check_stored(connection: duckdb.DuckDBPyConnection, place: list[str], shown: str) -> None:
    """Refuse a view or a computed column.

    Both are evaluated for the rows that a question selects and could fail on one of them, so a failure would reveal
    something about a person. Stored rows can be read for every question.
    """
    where = f"WHERE database_name = '{DATABASE}' AND lower(schema_name) = lower(?)"
    views = f"SELECT 1 FROM duckdb_views() {where} AND lower(view_name) = lower(?)"
    computed = f"SELECT column_name FROM duckdb_columns() {where} AND lower(table_name) = lower(?) AND is_generated"
    words = ""
    if connection.execute(views, place).fetchone() is not None:
        words = f"{shorten(shown, 100)} is a view, which is evaluated while it is counted"
    elif (column := connection.execute(computed, place).fetchone()) is not None:
        words = f"column {shorten(column[0], 60)} of {shorten(shown, 60)} is computed while it is counted"
    if words:
        raise DataError(f"source: {words}; store it: CREATE TABLE ... AS SELECT * FROM it")


def _parquet(paths: list[str], source: Source, connection: duckdb.DuckDBPyConnection) -> str:
    """SQL that reads these Parquet files in a FROM clause. All must have the same columns of the same types.

    Otherwise the values of one file would be cast to the type of another, which can fail. Folders named key=value are
    columns or only names; see `Source.partitions`.
    """
    keys = {part.partition("=")[0] for parts in source.partitions() for part in parts}

    def columns_of(path: str) -> dict[str, str]:
        described = connection.execute(f"DESCRIBE SELECT * FROM {_read_parquet([path], False)}").fetchall()
        return {name: kind for name, kind, *_ in described}

    both = sorted({name.casefold() for name in check_alike(paths, columns_of)} & {key.casefold() for key in keys})
    if both:
        raise DataError(
            f"source: column {shorten(both[0], 60)} is in the files and in the names of their folders; rename one"
        )
    return _read_parquet(paths, bool(keys))


def _read_parquet(paths: list[str], partitioned: bool) -> str:
    """SQL that reads these Parquet files.

    The statistics in a Parquet file ignore NaN: without `can_have_nan`, DuckDB may skip row groups that contain NaN.
    """
    options = f"hive_partitioning = {str(partitioned).lower()}, utf8_validation = 'replace', can_have_nan = true"
    options += ", hive_types_autocast = false" if partitioned else ""
    return f"read_parquet({_files(paths)}, {options})"


def _csv(paths: list[str], source: Source) -> str:
    """SQL that reads CSV files as text columns with the names in the header; nothing is guessed from the rows.

    The files follow RFC 4180, except that LF alone may end a record. `new_line` is set to CRLF: DuckDB then accepts LF
    too, and does not take CRLF for two line ends in a file with one column.
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
    """A quoted text literal, for paths and names from the configuration where SQL accepts no parameter."""
    return "'" + text.replace("'", "''") + "'"


def _files(paths: list[str]) -> str:
    return f"[{', '.join(_text(path) for path in paths)}]"
