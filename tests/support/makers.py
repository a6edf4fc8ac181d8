"""Makers, which give the same rows to every engine: one maker for every kind of source.

A maker takes rows, the physical type of every column and a folder, and returns a Source. To run the contract tests on
another engine, add its makers to MAKERS; nothing else changes.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.data.engines import Engine, Source, open_engine
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.sql import Compiler
from countveil.query.schema import Schema
from tests.support.naive import Row, precise

ARROW = {
    **{f"int{n}": getattr(pa, f"int{n}")() for n in (8, 16, 32, 64)},
    **{f"uint{n}": getattr(pa, f"uint{n}")() for n in (8, 16, 32, 64)},
    "huge": pa.decimal128(38, 0),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(38, 10),
    "decimal37": pa.decimal128(38, 37),
    "decimal38": pa.decimal128(38, 38),
    "text": pa.string(),
    "category": pa.dictionary(pa.int32(), pa.string()),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "seconds": pa.timestamp("s"),
    "micros": pa.timestamp("us"),
    "nanos": pa.timestamp("ns"),
    "zoned": pa.timestamp("us", "UTC"),
    "zoned-nanos": pa.timestamp("ns", "UTC"),
}
DUCKDB = {"huge": "HUGEINT", "uint64": "UBIGINT", "nanos": "TIMESTAMP_NS", "seconds": "TIMESTAMP_S"}
Types = dict[str, str]


def arrow(rows: list[Row], types: Types) -> pa.Table:
    return pa.table(
        {name: pa.array([held(row[name], kind) for row in rows], ARROW[kind]) for name, kind in types.items()}
    )


def held(value: Any, kind: str) -> Any:
    """A value as a column of this type holds it: most hold no nanoseconds."""
    return value.floor("us") if isinstance(value, pd.Timestamp) and "nanos" not in kind else value


def csv_field(value: Any) -> str:
    """A value as the text of a CSV field; a missing value is an empty field, and an empty text is quoted."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, float):
        return f"{int(value)}.0" if math.isfinite(value) and value == int(value) else repr(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.tzinfo is None else value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def csv_text(rows: list[Row], types: Types, end: str = "\n") -> str:
    lines = [",".join(csv_field(name) for name in types)]
    lines += [",".join(csv_field(row[name]) for name in types) for row in rows]
    return end.join(lines) + end


def csv_file(rows: list[Row], types: Types, folder: Path) -> Source:
    (folder / "rows.csv").write_bytes(csv_text(precise(rows), types).encode())
    return Source("rows.csv", directory=folder)


def parquet_file(rows: list[Row], types: Types, folder: Path) -> Source:
    pq.write_table(arrow(rows, types), folder / "rows.parquet")
    return Source("rows.parquet", directory=folder)


def parquet_files(rows: list[Row], types: Types, folder: Path) -> Source:
    """Three files that match one pattern; some of them may be empty."""
    third = -(-len(rows) // 3)
    for i in range(3):
        pq.write_table(arrow(rows[i * third : (i + 1) * third], types), folder / f"part-{i}.parquet")
    return Source("part-*.parquet", directory=folder)


def duckdb_table(rows: list[Row], types: Types, folder: Path) -> Source:
    with duckdb.connect(folder / "rows.duckdb") as connection:
        connection.register("given", arrow(rows, types))
        shown = []
        for name, kind in types.items():
            quoted = '"' + name.replace('"', '""') + '"'
            shown.append(f"CAST({quoted} AS {DUCKDB[kind]}) AS {quoted}" if kind in DUCKDB else quoted)
        connection.execute(f"CREATE TABLE people AS SELECT {', '.join(shown)} FROM given")
    return Source("rows.duckdb", table="people", directory=folder)


def pyarrow_frame(rows: list[Row], types: Types, folder: Path) -> Source:
    return Source(frame=arrow(rows, types))


def polars_frame(rows: list[Row], types: Types, folder: Path) -> Source:
    return Source(frame=pl.from_arrow(arrow(rows, types)))


def pandas_frame(rows: list[Row], types: Types, folder: Path) -> Source:
    return Source(frame=arrow(rows, types).to_pandas(types_mapper=lambda kind: pd.ArrowDtype(kind)))


def pandas_objects(rows: list[Row], types: Types, folder: Path) -> Source:
    """Columns of Python objects, with numpy's floats of 32 bits."""

    def object_of(value: Any, kind: str) -> Any:
        return np.float32(value) if kind == "float32" and value is not None else value

    columns = {
        name: pd.Series([object_of(row[name], kind) for row in rows], dtype=object) for name, kind in types.items()
    }
    return Source(frame=pd.DataFrame(columns))


SPARK = {
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "huge",
    "category": "text",
    "nanos": "micros",
    "zoned-nanos": "zoned",
}
POSTGRES = {
    **dict.fromkeys(["int8", "int16", "uint8"], "smallint"),
    **dict.fromkeys(["int32", "uint16"], "integer"),
    **dict.fromkeys(["int64", "uint32"], "bigint"),
    **dict.fromkeys(["uint64", "huge"], "numeric(38, 0)"),
    **dict.fromkeys(["text", "category"], "text"),
    **dict.fromkeys(["seconds", "micros", "nanos"], "timestamp"),
    **dict.fromkeys(["zoned", "zoned-nanos"], "timestamptz"),
    "float32": "real",
    "float64": "double precision",
    "decimal": "numeric(38, 10)",
    "decimal37": "numeric(38, 37)",
    "decimal38": "numeric(38, 38)",
    "bool": "boolean",
    "date": "date",
}


def postgres_table(rows: list[Row], types: Types, folder: Path) -> Source:
    """A table on a server that the tests start, read by a role that can do nothing else."""
    import psycopg

    from tests.support.servers import postgres

    server = postgres()
    table = f"rows_{uuid.uuid4().hex}"
    quoted = ['"' + name.replace('"', '""') + '"' for name in types]
    columns = ", ".join(f"{name} {POSTGRES[kind]}" for name, kind in zip(quoted, types.values(), strict=True))
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(f"CREATE UNLOGGED TABLE {table} ({columns})")
        connection.execute(f"GRANT SELECT ON {table} TO reader")
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row([held(row[name], POSTGRES[kind]) for name, kind in types.items()])
    return Source(server.url, table=table)


def spark_frame(rows: list[Row], types: Types, folder: Path) -> Source:
    """A DataFrame of a session that the tests start."""
    from tests.support.servers import spark

    session = spark()
    table = arrow(rows, {name: SPARK.get(kind, kind) for name, kind in types.items()})
    return Source(frame=session.createDataFrame(table))


def spark_parquet(rows: list[Row], types: Types, folder: Path) -> Source:
    """A Parquet file that Spark reads; it reads no nanoseconds, and seconds would be written as milliseconds."""
    from tests.support.servers import spark

    spark()
    micros = {"nanos": "micros", "seconds": "micros", "zoned-nanos": "zoned"}
    return parquet_file(rows, {name: micros.get(kind, kind) for name, kind in types.items()}, folder)


MAKERS: dict[str, Callable[[list[Row], Types, Path], Source]] = {
    "csv": csv_file,
    "parquet": parquet_file,
    "parquet-glob": parquet_files,
    "csv-not-held": csv_file,
    "parquet-not-held": parquet_file,
    "duckdb": duckdb_table,
    "pyarrow": pyarrow_frame,
    "polars": polars_frame,
    "pandas": pandas_frame,
    "pandas-objects": pandas_objects,
    "postgres": postgres_table,
    "spark": spark_frame,
    "spark-parquet": spark_parquet,
}
FRAMES = {"pyarrow", "polars", "pandas", "pandas-objects"}
ENGINE = {"spark-parquet": "spark"}
"""The engine of makers whose sources are not read by the usual engine for their kind."""


class NotHeld(DuckDBEngine):
    """An engine that treats every file as too large to be held in memory."""

    copies = False


def opened(name: str, rows: list[Row], types: Types, folder: Path, schema: Schema) -> Engine:
    """The engine of a maker's source."""
    source = replace(MAKERS[name](rows, types, folder), engine=ENGINE.get(name))
    return NotHeld(source, schema) if name.endswith("-not-held") else open_engine(source, schema)


@contextmanager
def constant_hash(engine: Engine, constant: str = "(CAST({salt} AS BIGINT) & 0)") -> Iterator[None]:
    """A constant in place of the engine's hash: of too many cells of a person it keeps those with the lowest numbers.

    `constant` may be another expression of u, cell and {salt}.
    """
    make_compiler = engine.compiler

    def make_double() -> Compiler:
        compiler = make_compiler()
        setattr(compiler, "hash", lambda unit, salt: constant.format(salt=salt))  # noqa: B010
        return compiler

    setattr(engine, "compiler", make_double)  # noqa: B010
    try:
        yield
    finally:
        delattr(engine, "compiler")


MARKERS = {"postgres": "postgres", "spark": "spark", "spark-parquet": "spark"}
"""What makers need beyond Python packages."""


def choices(names: Iterable[str] = MAKERS) -> list[Any]:
    """Makers as parameters of a test, marked with what they need."""
    return [
        pytest.param(name, marks=[getattr(pytest.mark, MARKERS[name])] if name in MARKERS else []) for name in names
    ]


SLOW = {"spark", "spark-parquet"}
"""Makers that are tried on fewer examples."""
