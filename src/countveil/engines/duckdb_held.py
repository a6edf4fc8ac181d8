"""Small sources are read once: their declared columns are kept in DuckDB's memory for as long as the engine is open.

To open a file, read its header and plan the scan costs more than to count a few thousand rows, and CSV is read afresh
for every question otherwise. Nor does it pay then to let DuckDB put groups into cells: to plan that takes longer than
to count. A source is held only if that changes no count:

- its types are those of the file, so that conditions read values as before, question by question; only where a value
  stands in the list of its column is looked up once, and that is what rows are grouped by;
- a CSV file that is not UTF-8 throughout is not held: which of its records can be read depends on the columns asked
  about, and must not depend on the size of the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.engines.source import Source
from countveil.engines.statement import Compiler
from countveil.query import Question
from countveil.schema import Column, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_BYTES = 16 << 20
"""Of all files together."""
MAX_ROWS = 500_000
"""Of Parquet files, which say how many there are: a few bytes of theirs can stand for many rows."""
MAX_TEXT = 64 << 20
"""Bytes of text in Parquet files."""
NAME = "countveil_held"


def hold(
    connection: Any, source: Source, paths: list[str], compiler: Compiler, columns: list[str], schema: Schema
) -> dict[Column, str] | None:
    """Read some columns of a small source into a table of `NAME`, and beside each listed one the index of its value;
    the names of these, or None if the source is not small, or not to be held."""
    if not _small(connection, source, paths, compiler.relation, columns):
        return None
    connection.execute("SET threads = 1")  # threads that wait for so few rows cost more than they bring
    name, listed = compiler.dialect.name, [column for column in schema.columns if column.listed]
    stored = {column: f"\x1f{i}" for i, column in enumerate(listed)}  # no declared name has such a letter
    read = [f"{compiler.read(column)} AS {name(stored[column])}" for column in listed]
    shown, joins = [f"source.{column}" for column in columns], []
    for i, column in enumerate(listed):
        value = name(stored[column])
        shown.append(f"CAST(d{i}.i AS INTEGER) AS {value}")
        joins.append(f" LEFT JOIN {compiler.listing(column)} AS d{i} ON source.{value} = d{i}.v")
    inner = f"SELECT {', '.join([*columns, *read])} FROM {compiler.relation}"
    statement = compiler.statement(f"SELECT {', '.join(shown)} FROM ({inner}) AS source{''.join(joins)}")
    connection.execute(f"CREATE TABLE {NAME} AS {statement.sql}", dict(statement.values))
    return stored


def placed(question: Question, groups: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """The count of every cell, from the indexes of the keys of every group and its rows; the last column runs fastest.

    A group with a key outside of its column, which comes masked, is in no cell.
    """
    import numpy as np

    cells, known = np.zeros(len(groups["n"]), dtype=np.int64), np.ones(len(groups["n"]), dtype=np.bool_)
    for i, column in enumerate(question.by):
        key = groups[f"k{i}"]
        if isinstance(key, np.ma.MaskedArray):
            known &= ~np.ma.getmaskarray(key)
            key = key.filled(0)
        cells = cells * column.keys + key.astype(np.int64)
    counts = np.zeros(question.cells, dtype=np.int64)
    counts[cells[known]] = groups["n"][known]
    return counts


def _small(connection: Any, source: Source, paths: list[str], relation: str, columns: list[str]) -> bool:
    if source.scheme not in ("csv", "parquet") or sum(map(os.path.getsize, paths)) > MAX_BYTES:
        return False
    if source.scheme == "parquet":
        rows = int(connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0])
        return rows <= MAX_ROWS and _text_of(connection, relation, columns) <= MAX_TEXT
    return not any(path.lower().endswith(".gz") for path in paths) and all(_is_text(path) for path in paths)


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
