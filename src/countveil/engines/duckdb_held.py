"""Small sources are read once: their declared columns are kept in DuckDB's memory for as long as the engine is open.

To open a file, read its header and plan the scan costs more than to count a few thousand rows, and CSV is read afresh
for every question otherwise. Where every row counts, even to plan a statement takes longer than to count: such rows are
kept as points too, and no statement is needed. A source is held only if that changes no count:

- its types are those of the file, and values are read from them by the same expressions as in a statement; only where a
  value stands in the list of its column is looked up once;
- a CSV file is held only if it is UTF-8 throughout, so that all its fields are: otherwise what is skipped depends on
  the columns of the question, and must not depend on the size of the file, or on the record of somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from countveil.engines.csv_files import is_packed
from countveil.engines.points import NULL, OUTSIDE, PointRows
from countveil.engines.source import Source
from countveil.engines.statement import INLINE, Compiler
from countveil.schema import Column, Kind, Schema

TYPES: dict[Kind, str] = {"text": "VARCHAR", "integer": "BIGINT", "boolean": "BOOLEAN", "date": "DATE"}
MAX_BYTES = 16 << 20
"""Of all files together."""
MAX_ROWS = 500_000
"""Of Parquet files, which say how many there are: a few bytes of theirs can stand for many rows."""
QUICK_ROWS = 20_000
"""Rows of which people's cells are bounded in about ten milliseconds."""
MAX_TEXT = 64 << 20
"""Bytes of text in Parquet files."""
MAX_POINTS = 128 << 20
"""Bytes of points."""
READ = 32
"""Columns that are read as points in one statement: to plan many takes long."""
JOINED = 16
"""Columns with long lists that are looked up in one statement: to plan many joins takes long."""
NAME = "countveil_held"


def hold(
    connection: Any, source: Source, paths: list[str], compiler: Compiler, columns: list[str], schema: Schema
) -> dict[Column, str] | None:
    """Read some columns of a small source into a table of `NAME`, and beside each listed one the index of its value;
    the names of these, or None if the source is not small, or not to be held."""
    if not _small(connection, source, paths, compiler.relation, columns):
        return None
    connection.execute("SET threads = 1")  # threads that wait for so few rows cost more than they bring
    listed = [column for column in schema.columns if column.listed]
    stored = {column: f"\x1f{i}" for i, column in enumerate(listed)}  # no declared name has such a letter
    long = [column for column in listed if len(column.values) > INLINE]
    found = [compiler.read(column) if column in long else _place(compiler, column) for column in listed]
    kept = [f"{each} AS {compiler.dialect.name(stored[column])}" for each, column in zip(found, listed, strict=True)]
    statement = compiler.statement(f"SELECT {', '.join([*columns, *kept])} FROM {compiler.relation}")
    connection.execute(f"CREATE TABLE {NAME} AS {statement.sql}", dict(statement.values))
    for at in range(0, len(long), JOINED):
        _look_up(connection, compiler, {column: stored[column] for column in long[at : at + JOINED]})
    return stored


def _place(compiler: Compiler, column: Column) -> str:
    """The index of a value in a short list."""
    values = f"CAST({compiler.bind(list(column.values))} AS {TYPES[column.kind]}[])"
    return f"CAST(list_position({values}, {compiler.read(column)}) - 1 AS INTEGER)"


def _look_up(connection: Any, compiler: Compiler, stored: Mapping[Column, str]) -> None:
    """Put the index in the place of the value in some columns of the table, NULL for a value that is not listed."""
    compiler, indexes, joins = Compiler(compiler.dialect, NAME, compiler.families), [], []  # with values of its own
    for i, (column, stored_name) in enumerate(stored.items()):
        value = compiler.dialect.name(stored_name)
        indexes.append(f"CAST(d{i}.i AS INTEGER) AS {value}")
        joins.append(f"LEFT JOIN {compiler.listing(column)} AS d{i} ON source.{value} = d{i}.v")
    shown = f"SELECT source.* REPLACE ({', '.join(indexes)})"
    statement = compiler.statement(f"{shown} FROM {NAME} AS source {' '.join(joins)}")
    connection.execute(f"CREATE TABLE {NAME}_next AS {statement.sql}", dict(statement.values))
    connection.execute(f"DROP TABLE {NAME}")
    connection.execute(f"ALTER TABLE {NAME}_next RENAME TO {NAME}")


def quick(connection: Any) -> bool:
    """The table is so small that no question takes long."""
    return _rows(connection, NAME) <= QUICK_ROWS


def _rows(connection: Any, relation: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0])


def points(connection: Any, compiling: Callable[[], Compiler], schema: Schema) -> PointRows | None:
    """The rows of the table as points, read by statements of `compiling`; None if they would take too much memory. The
    table stays for questions about other columns than the schema's."""
    rows = _rows(connection, NAME)
    widths = {column: _width(column) for column in schema.columns}
    if rows * sum(widths.values()) > MAX_POINTS:
        return None
    offsets: dict[Column, Any] = {}
    for at in range(0, len(schema.columns), READ):
        compiler, shown, batch = compiling(), [], schema.columns[at : at + READ]
        for i, column in enumerate(batch):
            absent = f"CASE WHEN {compiler.missing(column)} THEN {NULL} ELSE {OUTSIDE} END"
            shown.append(f"CAST(coalesce({compiler.above(column)}, {absent}) AS INT{widths[column]}) AS c{i}")
        statement = compiler.statement(f"SELECT {', '.join(shown)} FROM {NAME}")
        found = connection.execute(statement.sql, dict(statement.values)).fetchnumpy()
        offsets |= {column: found[f"c{i}"] for i, column in enumerate(batch)}
    return PointRows(rows, offsets)


def _width(column: Column) -> int:
    """Bytes that hold every offset of a column."""
    return next(width for width in (1, 2, 4, 8) if column.last - column.first < 1 << 8 * width - 1)


def _small(connection: Any, source: Source, paths: list[str], relation: str, columns: list[str]) -> bool:
    if source.scheme not in ("csv", "parquet") or sum(map(os.path.getsize, paths)) > MAX_BYTES:
        return False
    if source.scheme == "parquet":
        return _rows(connection, relation) <= MAX_ROWS and _text_of(connection, relation, columns) <= MAX_TEXT
    return not is_packed(source) and all(_is_text(path) for path in paths)


def _text_of(connection: Any, relation: str, columns: list[str]) -> int:
    """The bytes of all text: a dictionary of a file has each once, memory as often as it occurs."""
    described = connection.execute(f"DESCRIBE SELECT {', '.join(columns)} FROM {relation}").fetchall()
    texts = [name for name, (_, kind, *_) in zip(columns, described, strict=True) if kind == "VARCHAR"]
    if not texts:
        return 0
    total = " + ".join(f"coalesce(sum(strlen({name})), 0)" for name in texts)
    return int(connection.execute(f"SELECT {total} FROM {relation}").fetchone()[0])


def _is_text(path: str) -> bool:
    try:
        Path(path).read_bytes().decode()
    except ValueError:
        return False
    return True
