"""Small sources are read once: their declared columns are kept in DuckDB's memory for as long as the engine is open.

To open a file, read its header and plan the scan costs more than to count a few thousand rows, and CSV is read afresh
for every question otherwise. A source is held only if that changes no count:

- its types are those of the file, so that values are read as before, question by question;
- a CSV file that is not UTF-8 throughout is not held: which of its records can be read depends on the columns asked
  about, and must not depend on the size of the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from countveil.engines.source import Source

MAX_BYTES = 16 << 20
"""Of all files together."""
MAX_ROWS = 500_000
"""Of Parquet files, which say how many there are: a few bytes of theirs can stand for many rows."""
MAX_TEXT = 64 << 20
"""Bytes of text in Parquet files."""
NAME = "countveil_held"


def hold(connection: Any, source: Source, paths: list[str], relation: str, columns: list[str]) -> bool:
    """Read some columns of a small source into a table of `NAME`; False if it is not small, or not to be held."""
    if not _small(connection, source, paths, relation, columns):
        return False
    connection.execute("SET threads = 1")  # threads that wait for so few rows cost more than they bring
    connection.execute(f"CREATE TABLE {NAME} AS SELECT {', '.join(columns)} FROM {relation}")
    return True


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
