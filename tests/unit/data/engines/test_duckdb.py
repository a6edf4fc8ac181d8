"""The DuckDB engine: its locked connection, threads, spilling, scratch space, broken files, unusual frames."""

from __future__ import annotations

import csv
import datetime
import gc
import gzip
import io
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
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
from hypothesis import given, strategies as st

from countveil.data.engines import Engine, Source, duckdb as engine_module, open_engine
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.sql import Statement
from countveil.errors import CountveilError, DataError, EngineError, ParameterError
from countveil.query import ask
from countveil.query.derived import parse_columns
from countveil.query.schema import Column, Schema
from tests.support.effort import examples
from tests.support.makers import NotHeld

X = Column("x", "integer", low=0, high=9)
WORD = Column("w", "text", ("a", "b", ""))
SCHEMA = Schema("people", (X,))
BOTH = Schema("people", (X, WORD))


def counted(
    source: Source, schema: Schema = SCHEMA, sql: str = "SELECT x, count(*) FROM people GROUP BY x"
) -> list[int]:
    engine = open_engine(source, schema)
    try:
        return engine.count(ask(schema, sql), salt=b"s").tolist()
    finally:
        engine.close()


def total(source: Source, schema: Schema = BOTH) -> int:
    return counted(source, schema, "SELECT count(*) FROM people")[0]


def csv_of(tmp_path: Path, data: bytes, name: str = "rows.csv") -> Source:
    (tmp_path / name).write_bytes(data)
    return Source(name, directory=tmp_path)


# -- the connection ----------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Source:
    with duckdb.connect(tmp_path / "rows.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT i % 10 AS x FROM range(1000) AS r(i)")
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.people AS SELECT 1 AS x")
    return Source("rows.duckdb", table="people", directory=tmp_path)


def test_two_engines_can_read_one_database_at_once(database: Source) -> None:
    first, second = open_engine(database, SCHEMA), open_engine(database, SCHEMA)
    question = ask(SCHEMA, "SELECT x, count(*) FROM people GROUP BY x")
    for engine in (first, second, first):
        assert engine.count(question, salt=b"").tolist() == [100] * 10
    first.close()
    assert second.count(question, salt=b"").tolist() == [100] * 10
    second.close()
    with duckdb.connect(database.directory / "rows.duckdb") as connection:  # nothing holds the file any more
        connection.execute("INSERT INTO people VALUES (1)")


def test_a_table_of_a_named_schema_is_counted(database: Source) -> None:
    assert total(Source("rows.duckdb", table="other.people", directory=database.directory), SCHEMA) == 1


@pytest.mark.parametrize("table", [None, "nobody", "a.b.c", 'p"; DROP TABLE people; --'])
def test_a_missing_table_is_refused(database: Source, table: str | None) -> None:
    with pytest.raises(EngineError):
        open_engine(Source("rows.duckdb", table=table, directory=database.directory), SCHEMA)


FORBIDDEN = [
    "SELECT * FROM read_csv('{other}')",
    "SELECT * FROM '{other}'",
    "SELECT * FROM read_text('{other}')",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "ATTACH '{folder}/new.duckdb' AS new",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET memory_limit = '1TB'",
    "SELECT * FROM SCHEMA",
    "SELECT getenv('HOME')",
]


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "frame"])
@pytest.mark.parametrize("sql", FORBIDDEN)
def test_an_engine_can_reach_nothing_but_its_source(
    kind: str, sql: str, copies: bool, tmp_path: Path, database: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DuckDBEngine, "copies", copies)
    other = tmp_path / "other.csv"
    other.write_text("x\n1\n")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "rows.parquet")
    sources = {
        "csv": csv_of(tmp_path, b"x\n1\n"),
        "parquet": Source("rows.parquet", directory=tmp_path),
        "duckdb": database,
        "frame": Source(frame=pa.table({"x": [1]})),
    }
    engine = DuckDBEngine(sources[kind], SCHEMA)
    with pytest.raises(EngineError, match=r"^the source could not be read"):
        engine.run(Statement(sql.format(other=other, folder=tmp_path), {}))
    assert engine.count(ask(SCHEMA, "SELECT count(*) FROM people"), salt=b"").sum() >= 1
    engine.close()


def test_an_engine_cannot_change_its_database(database: Source) -> None:
    engine = DuckDBEngine(database, SCHEMA)
    with pytest.raises(EngineError):
        engine.run(Statement(f"INSERT INTO {engine.relation} VALUES (1)", {}))
    engine.close()


def test_closing_an_engine_removes_its_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = open_engine(Source(frame=pa.table({"x": [1]})), SCHEMA)
    assert len(list(tmp_path.iterdir())) == 1
    engine.close()
    engine.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(EngineError):
        engine.count(ask(SCHEMA, "SELECT count(*) FROM people"), salt=b"")
    with pytest.raises(DataError):
        open_engine(Source(frame=pa.table({"y": [1]})), SCHEMA)
    with pytest.raises(EngineError):
        open_engine(Source("nothing.csv"), SCHEMA)
    assert not list(tmp_path.iterdir())
    forgotten = open_engine(Source(frame=pa.table({"x": [1]})), SCHEMA)
    assert len(list(tmp_path.iterdir())) == 1
    del forgotten
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_eight_threads_get_exact_counts_from_one_engine(tmp_path: Path, database: Source) -> None:
    table = pa.table({"x": [i % 10 for i in range(1000)]})
    pq.write_table(table, tmp_path / "rows.parquet")
    for source in (
        database,
        Source("rows.parquet", directory=tmp_path),
        Source(frame=table),
        Source(frame=table.to_pandas()),
    ):
        engine = open_engine(source, SCHEMA)

        def ask_one(n: int, engine: Engine = engine) -> bool:
            question = ask(SCHEMA, f"SELECT x, count(*) FROM people WHERE x <> {n % 10} GROUP BY x")
            return engine.count(question, salt=b"").tolist() == [100 * (i != n % 10) for i in range(10)]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask_one, range(80)))
        engine.close()


class Small(DuckDBEngine):
    settings = {"memory_limit": "40MB", "threads": "2"}  # noqa: RUF012


@pytest.mark.slow
def test_a_count_that_exceeds_memory_spills_to_disk(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT i % 10 AS x, i % 1500000 AS id FROM range(3000000) AS r(i)) "
            f"TO '{tmp_path}/rows.parquet' (FORMAT parquet)"
        )
    schema = Schema("people", (X,), unit="id", rows_per_person=2)
    engine = Small(Source("rows.parquet", directory=tmp_path), schema)
    question = ask(schema, "SELECT x, count(*) FROM people GROUP BY x")
    spilled: set[str] = set()
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(engine.count, question, salt=b"s")
        while not counting.done():
            spilled |= set(os.listdir(engine._scratch))
            time.sleep(0.01)
        counts = counting.result()
    assert spilled
    assert counts.tolist() == [300_000] * 10  # everybody is in one cell, twice
    engine.close()


# -- CSV ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"x,w\n1,a\n2,b\n", 2),
        (b"x,w\n1,a\n2,b", 2),
        (b"x,w\r\n1,a\r\n2,b\r\n", 2),
        (b"x,w\r\n1,a\n2,b\r\n3,\n", 3),
        (b"x,w\n1,a\r\n2,b\n3,\r\n", 3),
        (b"\xef\xbb\xbfx,w\n1,a\n", 1),
        (b"x,w\n", 0),
        (b"x,w", 0),
        (b"x,w\n1\n2,b\n\n3,a\n", 2),
        (b"x,w\n1,a,z,z\n2,b\n", 2),
        (b"x,w\n1,\xff\n2,b\n", 2),
        (b"x,w\n1,\x00\n2,b\n", 2),
        (b"x,w\n1," + b"a" * 3_000_000 + b"\n2,b\n", 1),
        (b"x,w,\xc3\xa9\n1,a,\n", 1),
    ],
)
def test_the_readable_rows_of_csv_with_broken_records_are_counted(tmp_path: Path, data: bytes, rows: int) -> None:
    assert total(csv_of(tmp_path, data)) == rows
    assert total(csv_of(tmp_path, gzip.compress(data), "rows.csv.gz")) == rows


@pytest.mark.parametrize("end", [b"\0" * 512, b"\0", b"more"], ids=["zeros", "a zero", "more"])
def test_bytes_after_the_end_of_a_gzip_file_are_refused_at_opening(end: bytes, tmp_path: Path) -> None:
    packed = gzip.compress(b"x,w\n1,a\n" + b"2,b\n" * 9999)
    with pytest.raises(
        EngineError, match=r"rows\.csv\.gz could not be read as gzip up to its last byte; compress it again"
    ):
        DuckDBEngine(csv_of(tmp_path, packed + end, "rows.csv.gz"), BOTH)
    assert total(csv_of(tmp_path, packed + gzip.compress(b"3,c\n"), "rows.csv.gz")) == 10_001


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tsv"])
def test_the_format_of_a_linked_file_follows_from_the_name_of_the_link(name: str, tmp_path: Path) -> None:
    """The linked file is stored under a name without an ending."""
    (tmp_path / "blobs").mkdir()
    content = {"a.csv.gz": gzip.compress(b"x,w\n1,a\n"), "a.tsv": b"x\tw\n1\ta\n"}[name]
    (tmp_path / "blobs" / "ab12").write_bytes(content)
    (tmp_path / name).symlink_to(tmp_path / "blobs" / "ab12")
    for location in (name, name.replace("a.", "*.")):
        assert total(Source(location, directory=tmp_path)) == 1


def test_a_field_that_is_not_utf_8_is_in_no_cell(tmp_path: Path) -> None:
    source = csv_of(tmp_path, b'x,w\n1,\xff\n2,b\n3,"\xff"\n4,\n')
    assert counted(source, BOTH, "SELECT w, count(*) FROM people GROUP BY w") == [0, 1, 0]
    assert counted(source, BOTH, "SELECT count(*) FROM people WHERE w IS NULL") == [1]


def test_a_field_that_is_not_utf_8_skips_no_record_of_a_question_with_many_bands_that_does_not_read_it(
    tmp_path: Path,
) -> None:
    bands = {"from": "x", "bands": [i * 10**6 for i in range(100)]}
    schema = Schema("people", (*parse_columns({"band": bands}, "columns"), WORD))
    source = csv_of(tmp_path, b"x,w\n5,\xff\n5000001,b\n")
    counts = counted(source, schema, "SELECT band, count(*) FROM people GROUP BY band")
    assert [i for i, n in enumerate(counts) if n] == [0, 5]


@pytest.mark.parametrize("data", [b"", b"\n", b"x,w,x\n1,a,1\n", b"x,w,W\n1,a,1\n", b"x,w,\n1,a,1\n"])
def test_a_header_with_a_missing_or_repeated_column_name_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match=r"the header of .* needs a different name for every column"):
        total(csv_of(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"x,\xff\n1,a\n", "rows.csv"),
        (b"x,w\n1,a\n", "rows.csv.gz"),
        (gzip.compress(b"x,w\n" * 9999, mtime=0)[:20], "rows.csv.gz"),
        (gzip.compress(b"x,w\n", mtime=0)[:-12] + b"\xff" * 12, "rows.csv.gz"),
        (b"", "rows.csv.gz"),
    ],
)
def test_an_unreadable_header_is_refused(tmp_path: Path, data: bytes, name: str) -> None:
    with pytest.raises((EngineError, DataError), match=r"^source: the header of"):
        total(csv_of(tmp_path, data, name))


@pytest.mark.slow  # large files
@examples(300)
@given(data=st.lists(st.sampled_from(["a", "1", ",", '"', '""', "\n", "\r\n", "\r", " ", "é", "\udcff", "\x00"])))
def test_no_bytes_in_a_csv_file_make_a_question_fail(tmp_path_factory: pytest.TempPathFactory, data: list[str]) -> None:
    """Bytes that are not RFC 4180 are refused when the file is opened, whatever is asked."""
    folder = tmp_path_factory.getbasetemp()
    content = b"x,w\n" + "".join(data).encode("utf-8", "surrogateescape")
    source = csv_of(folder, content, "fuzz.csv")
    try:
        engine = DuckDBEngine(source, BOTH)
    except DataError:
        return
    engine.count(ask(BOTH, "SELECT w, count(*) FROM people GROUP BY w"), salt=b"")
    engine.close()


@pytest.mark.slow
def test_the_ends_of_csv_records_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    """Fields that look like the start of other records, in a file of several buffers."""
    odd = ["a", "b", "", '\n1,a\n"', 'x\n2,b\n3,"a', "\r\n", '","', 'a"\nb"']
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["x", "w"])
    writer.writerows([i % 11, odd[i * i % 97 % len(odd)]] for i in range(2_500_000))
    expected = [0] * 3
    for i in range(2_500_000):
        if (word := odd[i * i % 97 % len(odd)]) in ("a", "b", "") and i % 11 < 10:
            expected[["a", "b", ""].index(word)] += 1
    source = csv_of(tmp_path, text.getvalue().encode())
    sql = "SELECT w, count(*) FROM people WHERE x IS NOT NULL GROUP BY w"
    assert counted(source, BOTH, sql) == expected


def test_a_file_name_with_wildcards_means_that_file(tmp_path: Path) -> None:
    for name in ("a[1].csv", "a1.csv", "b*.csv", "b?.csv", "bx.csv", "c'd.csv"):
        csv_of(tmp_path, b"x,w\n1,a\n", name)
    for name in ("a[1].csv", "b*.csv", "b?.csv", "c'd.csv"):  # a name that exists means itself
        assert total(Source(name, directory=tmp_path)) == 1
    assert total(Source("*.csv", directory=tmp_path)) == 6
    csv_of(tmp_path, b"w,x\na,1\n", "z.csv")
    with pytest.raises(DataError, match="different header"):
        total(Source("*.csv", directory=tmp_path))


def test_a_configured_delimiter_separates_fields_and_invalid_ones_are_refused(tmp_path: Path) -> None:
    csv_of(tmp_path, b"x\tw\n1\ta\n", "rows.tsv")
    csv_of(tmp_path, b"x;w\n1;a\n", "semi.csv")
    assert total(Source("rows.tsv", directory=tmp_path)) == 1
    assert total(Source("semi.csv", directory=tmp_path, delimiter=";")) == 1
    for wrong in ("||", '"', "\n", "é"):
        with pytest.raises(ParameterError, match="delimiter"):
            total(Source("semi.csv", directory=tmp_path, delimiter=wrong))


# -- Parquet -----------------------------------------------------------------------------------------------------------


def test_files_of_one_source_whose_column_types_differ_are_refused(tmp_path: Path) -> None:
    """Whether reading the second file as the type of the first fails would depend on its values."""
    pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    for values in ([1], [2**40]):
        pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), tmp_path / "b.parquet")
        with pytest.raises(DataError, match="other columns or types"):
            total(Source("*.parquet", directory=tmp_path), SCHEMA)


def broken_text() -> pa.Array:
    raw = pa.array([b"a", b"\xff\xfe", b"b", None], pa.binary())
    return pa.Array.from_buffers(pa.string(), 4, raw.buffers())


def test_text_that_is_not_unicode_is_outside_the_domain(tmp_path: Path) -> None:
    table = pa.table({"w": broken_text(), "x": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "rows.parquet")
    split = pa.table({"w": broken_text().dictionary_encode(), "x": [1, 2, 3, 4]})
    for source in (Source("rows.parquet", directory=tmp_path), Source(frame=table), Source(frame=split)):
        assert counted(source, BOTH, "SELECT w, count(*) FROM people GROUP BY w") == [1, 1, 0]
        assert counted(source, BOTH, "SELECT count(*) FROM people WHERE w IS NULL") == [1]
        number = Schema("people", (Column("w", "integer", low=0, high=9),))
        assert counted(source, number, "SELECT count(*) FROM people WHERE w >= 0") == [0]
        truth = Schema("people", (Column("w", "boolean", (False, True)),))
        assert counted(source, truth, "SELECT w, count(*) FROM people GROUP BY w") == [0, 0]


def test_folders_of_partitions_are_read_as_columns(tmp_path: Path) -> None:
    for value in ("1", "2", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / f"x={value}"
        folder.mkdir()
        pq.write_table(pa.table({"w": ["a", "b"]}), folder / "rows.parquet")
    assert counted(Source("*/*.parquet", directory=tmp_path), BOTH) == [0, 2, 2, 0, 0, 0, 0, 0, 0, 0]


def test_a_file_that_is_not_parquet_is_refused_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 secret value 12345 PAR1")
    with pytest.raises(EngineError, match="could not be opened") as failed:
        total(Source("rows.parquet", directory=tmp_path), SCHEMA)
    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


# -- frames ------------------------------------------------------------------------------------------------------------


class Strange:
    def __eq__(self, other: object) -> bool:
        raise ValueError("secret")

    __hash__ = None  # type: ignore[assignment]


def test_columns_of_python_objects_are_read_value_by_value() -> None:
    moment = datetime.datetime(2026, 1, 31, 12)
    values = [
        "1",
        1,
        1.0,
        True,
        None,
        float("nan"),
        pd.NA,
        pd.NaT,
        b"1",
        "\ud800",
        Strange(),
        [1],
        10**5000,
        moment,
        1j,
    ]
    values += [np.int8(1), np.float32(1), np.bool_(True), float("inf"), "2", datetime.date(2026, 1, 31)]
    values += [moment.replace(tzinfo=datetime.UTC)]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    assert counted(Source(frame=frame)) == [0, 8, 1, 0, 0, 0, 0, 0, 0, 0]  # True is the number 1
    assert counted(Source(frame=frame), sql="SELECT count(*) FROM people WHERE x IS NULL") == [4]
    days = Schema("people", (Column("x", "date", (datetime.date(2026, 1, 31),)),))
    assert counted(Source(frame=frame), days) == [2]
    polars = pl.DataFrame({"x": pl.Series([object(), "1", None], dtype=pl.Object)})
    assert counted(Source(frame=polars))[1] == 1


ODD = [np.array([1, 2]), np.array(["1"]), pd.Series([1, 2]), pd.DataFrame({"x": [1]}), Strange(), Decimal("sNaN")]
ODD += [np.timedelta64(1, "ns"), np.timedelta64(1, "D"), np.timedelta64(1, "h"), np.timedelta64("NaT")]
ODD += [np.datetime64("NaT"), pd.Timedelta(1), "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_odd_value_changes_no_other_and_is_in_no_domain(odd: object) -> None:
    """A length of time is a whole number to numpy, arrays have no truth value, a signaling NaN cannot be compared."""
    now = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    frame = pd.DataFrame({"x": pd.Series([1, 1, odd], dtype=object), "t": pd.Series([now, now, odd], dtype=object)})
    assert counted(Source(frame=frame)) == [0, 2, *[0] * 8]
    assert bins(Source(frame=frame), ["0", "5"], "10") == [2, 0]
    years = {"year": {"from": "t", "by": "year", "min": "2026", "max": "2026", "zone": "UTC"}}
    instants = Schema("people", parse_columns(years, "columns"))
    assert counted(Source(frame=frame), instants, "SELECT year, count(*) FROM people GROUP BY year") == [2]
    if not isinstance(odd, str):  # a text identifies a person
        people = pd.DataFrame({"person": pd.Series([1, 2, odd], dtype=object), "x": [1, 1, 1]})
        assert total(Source(frame=people), Schema("people", (X,), "person")) == 2


def test_types_of_object_columns_do_not_depend_on_values() -> None:
    for values in ([], [None], ["a"], [1], [1, "a"], [datetime.date(2026, 1, 31)]):
        engine = open_engine(Source(frame=pd.DataFrame({"x": pd.Series(values, dtype=object)})), SCHEMA)
        assert dict(engine.columns()) == {"x": "text"}
        engine.close()


def test_pandas_integers_with_missing_values_are_read_as_integers() -> None:
    frame = pd.DataFrame({"x": [1, None, 3, 3]})
    assert frame["x"].dtype == "float64"
    assert counted(Source(frame=frame)) == [0, 1, 0, 2, 0, 0, 0, 0, 0, 0]


def test_categories_and_enumerations_of_frames_are_read_as_their_values() -> None:
    for frame in (
        pd.DataFrame({"w": pd.Categorical(["a", "b", None, "a"], categories=["b", "a", "c"]), "x": [1, 2, 3, 4]}),
        pl.DataFrame({"w": pl.Series(["a", "b", None, "a"], dtype=pl.Categorical), "x": [1, 2, 3, 4]}),
        pl.DataFrame({"w": pl.Series(["a", "b", None, "a"], dtype=pl.Enum(["b", "a"])), "x": [1, 2, 3, 4]}),
    ):
        assert counted(Source(frame=frame), BOTH, "SELECT w, count(*) FROM people GROUP BY w") == [2, 1, 0]
    numbers = pd.DataFrame({"x": pd.Categorical([1, 2, None, 1])})
    assert counted(Source(frame=numbers))[:3] == [0, 2, 1]


def test_enumerations_and_huge_integers_of_a_database_are_counted(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "rows.db") as connection:
        connection.execute("CREATE TYPE word AS ENUM ('b', 'a', 'z')")
        connection.execute("CREATE TABLE t (w word, x UHUGEINT)")
        connection.execute("INSERT INTO t VALUES ('a', 1), ('b', 340282366920938463463374607431768211455), (NULL, 0)")
    source = Source("rows.db", table="t", directory=tmp_path)
    assert counted(source, BOTH, "SELECT w, count(*) FROM people GROUP BY w") == [1, 1, 0]
    assert counted(source, BOTH)[:2] == [1, 1]
    below = Schema("people", (Column("x", "integer", low=-5, high=5),))
    assert counted(source, below, "SELECT count(*) FROM people WHERE x >= -5") == [2]


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        (pa.timestamp("us", "UTC"), "zoned"),
        (pa.timestamp("ns", "Europe/Berlin"), "zoned"),
        (pa.list_(pa.int8()), "other"),
    ],
)
def test_a_column_of_a_type_that_cannot_be_declared_is_refused(kind: pa.DataType, family: str, tmp_path: Path) -> None:
    table = pa.table({"x": pa.nulls(2, kind)})
    day = Schema("people", (Column("x", "date", low=1, high=9),))
    pq.write_table(table, tmp_path / "rows.parquet")
    for source in (Source(frame=table), Source(frame=pl.from_arrow(table)), Source("rows.parquet", directory=tmp_path)):
        with pytest.raises(DataError, match=f"column x: declared date, but the source holds {family} values"):
            counted(source, day)


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.decimal128(5, -2), pa.float16(), pa.time32("s"), pa.binary(), pa.duration("s")]
)
def test_frames_with_columns_of_unusual_arrow_types_are_read(kind: pa.DataType) -> None:
    assert sum(counted(Source(frame=pa.table({"y": pa.nulls(2, kind), "x": [1, 2]})))) == 2
    assert sum(counted(Source(frame=pa.table({"x": pa.nulls(2, kind)})))) == 0


def test_a_column_of_type_null_is_missing_in_every_row(tmp_path: Path) -> None:
    table = pa.table({"x": pa.nulls(3)})
    pq.write_table(table, tmp_path / "rows.parquet")
    for source in (
        Source(frame=table),
        Source(frame=pl.DataFrame({"x": [None] * 3})),
        Source("rows.parquet", directory=tmp_path),
    ):
        for column in (
            X,
            Column("x", "text", ("a",)),
            Column("x", "boolean", (False, True)),
            Column("x", "date", low=1, high=9),
        ):
            schema = Schema("people", (column,))
            assert sum(counted(source, schema)) == 0
            assert counted(source, schema, "SELECT count(*) FROM people WHERE x IS NULL") == [3]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_stamps_beyond_the_range_of_dates_are_outside_the_domain(unit: str) -> None:
    day = Schema("people", (Column("x", "date", low=1, high=datetime.date.max.toordinal(), step=1_000_000),))
    table = pa.table({"x": pa.array([2**62, -(2**62), 0, 2**63 - 1, -(2**63) + 1], pa.timestamp(unit))})
    assert sum(counted(Source(frame=table), day)) >= 1
    assert counted(Source(frame=table), day, "SELECT count(*) FROM people WHERE x IS NULL") == [0]


def test_parquet_times_that_overflow_are_refused_at_opening(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0, 2**62], pa.timestamp("ms"))}), tmp_path / "rows.parquet")
    source = Source("rows.parquet", directory=tmp_path)
    with pytest.raises(EngineError, match="the source could not be read"):
        open_engine(source, Schema("people", (Column("x", "date", low=1, high=9),)))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_with_a_zone_are_rounded_down_and_never_fail(unit: str, tmp_path: Path) -> None:
    """The last nanosecond of 1969 is no part of 1970, and infinity and times that overflow are in no year."""
    years = {"from": "x", "by": "year", "min": "1969", "max": "1970", "zone": "UTC"}
    schema = Schema("people", parse_columns({"year": years}, "columns"))
    ends = [2**62, -(2**62), 2**63 - 1, -(2**63) + 1]
    table = pa.table({"x": pa.array([-1, 0, 1, None, *ends], pa.timestamp(unit, "Europe/Berlin"))})
    path, dictionary = tmp_path / "rows.parquet", pa.table({"x": table["x"].dictionary_encode()})
    sources = [Source(frame=table), Source(frame=dictionary), Source(frame=pl.from_arrow(table)), Source(str(path))]
    if unit in ("us", "ns"):  # files with times that overflow are refused
        pq.write_table(table, path)
    for source in sources[: 4 if unit in ("us", "ns") else 2]:
        engine = DuckDBEngine(source, schema)
        assert engine.count(ask(schema, by="year"), salt=b"").tolist() == [1, 2], source
        assert engine.count(ask(schema, where="year IS NULL"), salt=b"").tolist() == [1]
        engine.close()


def bins(source: Source, edges: list[str], most: str | None = None) -> list[int]:
    declared = {"bin": {"from": "x", "bins": edges, **({"max": most} if most else {})}}
    schema = Schema("people", parse_columns(declared, "columns"))
    return counted(source, schema, "SELECT bin, count(*) FROM people GROUP BY bin")


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32()])
def test_narrow_floats_are_in_the_bins_of_the_64_bit_floats_that_they_equal(kind: Any, tmp_path: Path) -> None:
    """0.1 with 16 bits is 0.0999755859375, and 0.7 with 32 bits is 0.699999988079071."""
    narrow = pa.array([0.1, 0.7, 0.25, float("nan"), float("inf"), None]).cast(kind)
    table = pa.table({"x": narrow})
    pq.write_table(table, tmp_path / "rows.parquet")
    wide = [value for value in narrow.to_pylist() if value is not None]
    expected = [sum(0 <= v < 0.1 for v in wide), sum(0.1 <= v < 0.7 for v in wide), sum(v >= 0.7 for v in wide)]
    frames = [
        table,
        table.to_pandas(),
        pl.from_arrow(table),
        pd.DataFrame({"x": table["x"].to_pandas().astype(object)}),
    ]
    for source in [*(Source(frame=frame) for frame in frames), Source("rows.parquet", directory=tmp_path)]:
        assert bins(source, ["0", "0.1", "0.7"]) == expected


LONG = np.longdouble(0.3)


@pytest.mark.parametrize(
    "frame",
    [
        pa.table({"x": pa.array([Decimal("0.30"), Decimal("0.29"), Decimal(7), None], pa.decimal256(40, 2))}),
        pa.table({"x": pa.array([Decimal("0.30"), Decimal("0.29"), Decimal(7), None], pa.decimal256(38, 2))}),
        pd.DataFrame({"x": np.array([LONG, np.longdouble("0.29"), 7, "nan"], np.longdouble)}),
        pd.DataFrame({"x": np.array([0.3, 0.29, 7 + 0j, float("nan")], np.complex128)}),
    ],
    ids=["decimal256 of 40 digits", "decimal256 of 38 digits", "longdouble", "complex"],
)
def test_wide_numbers_of_frames_are_in_the_bins_of_their_values(frame: Any) -> None:
    assert bins(Source(frame=frame), ["0", "0.3", "7"]) == [1, 1, 1]


def test_a_time_without_a_date_is_refused_at_opening(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "rows.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT '10:00:00+01'::TIMETZ AS x")
    years = {"from": "x", "by": "year", "min": "1969", "max": "1970", "zone": "UTC"}
    schema = Schema("people", parse_columns({"year": years}, "columns"))
    with pytest.raises(DataError, match="column x: declared instant, but the source holds other values"):
        open_engine(Source("rows.duckdb", table="people", directory=tmp_path), schema)


@pytest.mark.parametrize("frame", [5, [1, 2], {"x": [1]}, pl.LazyFrame({"x": [1]}), np.array([1])])
def test_an_object_that_is_not_a_frame_is_refused(frame: Any) -> None:
    with pytest.raises(ParameterError, match="a pandas, polars or pyarrow frame"):
        open_engine(Source(frame=frame), SCHEMA)


@pytest.mark.parametrize("names", [["x", "x"], [0, "x"], ["", "x"]])
def test_a_frame_with_repeated_or_empty_or_numeric_column_names_is_refused(names: list[Any]) -> None:
    with pytest.raises(DataError, match="a different name, as text"):
        open_engine(Source(frame=pd.DataFrame([[1, 2]], columns=names)), SCHEMA)


def test_undeclared_columns_change_no_count() -> None:
    frame = pd.DataFrame({"x": [1, 2], "X": [1, 2], "odd": [Strange(), {}], "": [1, 2]}).rename(columns={"": "y"})
    assert sum(counted(Source(frame=frame))) == 2


# -- finding engines ---------------------------------------------------------------------------------------------------


def test_the_engine_of_a_source_is_found_by_scheme_or_by_name(tmp_path: Path) -> None:
    engine = open_engine(csv_of(tmp_path, b"x\n1\n"))
    assert isinstance(engine, Engine)
    engine.close()
    with pytest.raises(EngineError, match="countveil cannot read"):
        open_engine(Source("rows.txt"))
    with pytest.raises(EngineError, match=r"is not installed; installed engines: .*duckdb"):
        open_engine(Source("rows.csv", engine="abacus"))
    with pytest.raises(CountveilError):
        open_engine(Source("postgresql://host/db", table="t"))


def test_a_collation_never_lets_one_row_equal_several_values(tmp_path: Path) -> None:
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE t (region VARCHAR COLLATE NOCASE, word VARCHAR COLLATE NOACCENT)")
        database.execute("INSERT INTO t VALUES ('north', 'é'), ('NORTH', 'e')")
    schema = Schema(
        "people", (Column("region", "text", ("north", "North", "NORTH")), Column("word", "text", ("e", "é")))
    )
    source = Source(str(path), table="t")
    assert counted(source, schema, "SELECT region, count(*) FROM people GROUP BY region") == [1, 0, 1]
    assert counted(source, schema, "SELECT word, count(*) FROM people GROUP BY word") == [1, 1]
    assert counted(source, schema, "SELECT count(*) FROM people WHERE region = 'North'") == [0]
    people = Schema("people", schema.columns, "region")
    assert counted(source, people, "SELECT count(*) FROM people") == [2]


@pytest.mark.parametrize(
    ("making", "words"),
    [
        ("CREATE VIEW t AS SELECT CAST(x AS INTEGER) AS x FROM raw", "T is a view"),
        ("CREATE TABLE t (y VARCHAR, x INTEGER GENERATED ALWAYS AS (CAST(y AS INTEGER)))", "column x of T is computed"),
    ],
)
def test_views_and_computed_columns_are_refused(making: str, words: str, tmp_path: Path) -> None:
    """They could fail for some rows only, and a failure would reveal which rows a question reads."""
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE raw AS SELECT 'x' AS x")
        database.execute(making)
    schema = Schema("people", (Column("x", "integer", low=0, high=9),))
    with pytest.raises(DataError, match=words) as refused:
        DuckDBEngine(Source(str(path), table="T"), schema)
    assert "CREATE TABLE" in str(refused.value)


def test_a_folder_name_is_a_column_only_if_a_glob_matches_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "w=b"
    folder.mkdir()
    pq.write_table(pa.table({"w": ["a", "a", "b"], "x": [1, 1, 1]}), folder / "rows.parquet")
    asked = "SELECT w, count(*) FROM people GROUP BY w"
    for location in ("w=b/rows.parquet", "w=b/*.parquet"):
        assert counted(Source(location, directory=tmp_path), BOTH, asked)[:2] == [2, 1]
    with pytest.raises(DataError, match="column w is in the files and in the names of their folders"):
        counted(Source("*/*.parquet", directory=tmp_path), BOTH, asked)


def test_uuids_identify_people(tmp_path: Path) -> None:
    with duckdb.connect() as database:
        rows = "SELECT uuid() AS id, i % 2 AS x FROM range(4) AS t(i)"
        database.execute(f"COPY ({rows}) TO '{tmp_path / 'rows.parquet'}'")
        database.execute(f"ATTACH '{tmp_path / 'rows.duckdb'}' AS kept")
        database.execute(f"CREATE TABLE kept.t AS {rows}")
    schema = Schema("people", (Column("x", "integer", low=0, high=1),), "id")
    for source in (Source(str(tmp_path / "rows.parquet")), Source(str(tmp_path / "rows.duckdb"), table="t")):
        assert counted(source, schema, "SELECT x, count(*) FROM people GROUP BY x") == [2, 2]


@pytest.mark.parametrize(
    ("value", "read"),
    [("1E+9999999", [0]), ("sNaN", [0]), ("NaN", [0]), ("-Infinity", [0]), ("5.0", [1]), ("5.5", [0]), ("5E-400", [0])],
)
def test_decimals_in_a_frame_never_fail(value: str, read: list[int]) -> None:
    frame = pd.DataFrame({"x": pd.Series([Decimal(value), 7], dtype=object)})
    schema = Schema("people", (Column("x", "integer", low=0, high=9),))
    source = Source(frame=frame)
    assert counted(source, schema, "SELECT count(*) FROM people WHERE x = 5") == read
    assert counted(source, schema, "SELECT count(*) FROM people WHERE x = 7") == [1]
    assert counted(source, schema, "SELECT count(*) FROM people WHERE x IS NULL") == [int("NaN" in value)]


PEOPLE = Schema("people", (X,), "person")
FLOAT_IDS = [2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**53 - 1, 1.5, float("inf"), float("nan"), 2.0**24, 7.0, -0.0]


@pytest.mark.parametrize("way", ["pandas", "polars", "pyarrow", "objects", "parquet", "duckdb"])
def test_floats_identify_people_only_below_their_limit_of_precision(way: str, tmp_path: Path) -> None:
    """Two people with ids of 2^53 and more could have the same float."""
    table = pa.table({"person": pa.array(FLOAT_IDS, pa.float64()), "x": pa.array([1] * len(FLOAT_IDS))})
    pq.write_table(table, tmp_path / "rows.parquet")
    with duckdb.connect(tmp_path / "rows.duckdb") as database:
        database.execute(f"CREATE TABLE rows AS FROM '{tmp_path / 'rows.parquet'}'")
    frame = table.to_pandas()
    source = {
        "pandas": Source(frame=frame),
        "polars": Source(frame=pl.from_arrow(table)),
        "pyarrow": Source(frame=table),
        "objects": Source(frame=frame.assign(person=frame["person"].astype(object))),
        "parquet": Source("rows.parquet", directory=tmp_path),
        "duckdb": Source("rows.duckdb", table="rows", directory=tmp_path),
    }[way]
    assert total(source, PEOPLE) == 4


def test_narrow_floats_identify_people_in_frames_only(tmp_path: Path) -> None:
    """In a frame one more row can widen them, so they are read as the 64-bit floats that they equal."""
    table = pa.table({"person": pa.array([2.0**24, 5.0, 5.5, 2.0**53]).cast(pa.float32()), "x": [1] * 4})
    assert total(Source(frame=table), PEOPLE) == 2
    assert total(Source(frame=table.to_pandas()), PEOPLE) == 2
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="people are identified by integers or text, not single values"):
        total(Source("rows.parquet", directory=tmp_path), PEOPLE)


# -- small files are read once -----------------------------------------------------------------------------------------


def copied(source: Source, schema: Schema = BOTH) -> bool:
    engine = DuckDBEngine(source, schema)
    try:
        return engine.relation == engine_module.COPY
    finally:
        engine.close()


def test_only_small_files_are_copied_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [1, 2], "w": ["a", "b"], "unasked": [[1], [2]]})
    pq.write_table(table, tmp_path / "rows.parquet")
    parquet, rows = Source("rows.parquet", directory=tmp_path), csv_of(tmp_path, b"x,w,unasked\n1,a,2\n")
    assert copied(parquet)
    assert copied(rows)
    assert not copied(Source(frame=table))
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    assert copied(Source("empty.parquet", directory=tmp_path), SCHEMA)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"x,w\n1,a\n"))
    assert not copied(Source("rows.csv.gz", directory=tmp_path)), "nobody knows how large it is"
    monkeypatch.setattr(engine_module, "MAX_ROWS", 1)
    assert not copied(parquet)
    assert copied(rows)
    monkeypatch.setattr(engine_module, "MAX_BYTES", 10)
    assert not copied(rows)


def test_a_file_copied_to_memory_is_not_read_again(tmp_path: Path) -> None:
    source = csv_of(tmp_path, b"x,w\n1,a\n1,b\n")
    engine = DuckDBEngine(source, BOTH)
    (tmp_path / "rows.csv").unlink()
    assert engine.count(ask(BOTH, "SELECT count(*) FROM people WHERE x = 1"), salt=b"").tolist() == [2]
    with pytest.raises(EngineError, match=r"^the source could not be read"):
        engine.run(Statement(f"DELETE FROM {engine_module.COPY}", {}))
    assert engine.count(ask(BOTH, "SELECT count(*) FROM people WHERE x = 1"), salt=b"").tolist() == [2]
    engine.close()


@pytest.mark.parametrize("unit", ["row", "u"])
def test_columns_of_a_file_copied_to_memory_may_have_the_names_that_generated_sql_uses(
    tmp_path: Path, unit: str
) -> None:
    names = ["i", "v", "source", "d0", "k0", "n", "cell", "u", "counted", "placed"]
    rows = [[f"{name}{j % 2}" for name in names[:7]] + [str(j), "", "else"] for j in range(6)]
    source = csv_of(tmp_path, "\n".join(",".join(row) for row in [names, *rows]).encode() + b"\n")
    listed = tuple(Column(name, "text", (f"{name}1", f"{name}0")) for name in names[:7])
    schema = Schema("people", (*listed, Column("counted", "text", ("x",)), Column("placed", "text", ("y",))), unit)
    assert copied(source, schema)
    for name in names[:7]:
        assert counted(source, schema, f'SELECT "{name}", count(*) FROM people GROUP BY "{name}"') == [3, 3]
    assert counted(source, schema, "SELECT i, v, count(*) FROM people WHERE n = 'n1' GROUP BY i, v") == [3, 0, 0, 0]
    assert counted(source, schema, "SELECT i, counted, count(*) FROM people GROUP BY i, counted") == [0, 0]
    assert counted(source, schema, "SELECT placed, count(*) FROM people GROUP BY placed") == [0]


def test_a_file_copied_to_memory_is_grouped_by_the_columns_of_the_question(tmp_path: Path) -> None:
    """With listed dates, values outside the domain and another order; also for a schema that the engine was not opened
    with.
    """
    days = ["2024-02-29", "", "9999-12-31", "2024-02-29", "2023-02-29", "2024-03-01"]
    source = csv_of(tmp_path, "\n".join(["x,d", *(f"{i},{day}" for i, day in enumerate(days))]).encode() + b"\n")
    dates = tuple(datetime.date.fromisoformat(day) for day in ("2024-03-01", "9999-12-31", "2024-02-29"))
    first = Schema("people", (Column("x", "integer", low=0, high=9), Column("d", "date", dates)))
    other = Schema("people", (Column("x", "integer", (4, 0, 3)), Column("d", "date", dates[::-1])))
    engine = DuckDBEngine(source, first)
    by_d, by_both = ("SELECT d, count(*) FROM people GROUP BY d", "SELECT x, d, count(*) FROM people GROUP BY x, d")
    assert engine.count(ask(first, by_d), salt=b"").tolist() == [1, 1, 2]
    assert engine.count(ask(other, by_d), salt=b"").tolist() == [2, 1, 1]
    assert engine.count(ask(other, by_both), salt=b"").tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0]
    by_x = engine.count(ask(first, by_both), salt=b"").reshape(10, 3)
    assert by_x.sum() == 4
    assert [by_x[0, 2], by_x[3, 2], by_x[2, 1], by_x[5, 0]] == [1, 1, 1, 1]
    engine.close()


@pytest.mark.slow  # large files
def test_a_record_that_is_not_text_is_treated_alike_in_small_and_large_files(tmp_path: Path) -> None:
    """A field that is not UTF-8 hides its record only from questions about its column."""
    broken = b"x,w\n1,a\n2,\xff\n3,b\n"
    small, large = csv_of(tmp_path, broken), csv_of(tmp_path, broken + b"4,a\n" * 5_000_000, "large.csv")
    assert not copied(small)
    by_x = "SELECT x, count(*) FROM people WHERE x <= 3 GROUP BY x"
    by_w = "SELECT w, count(*) FROM people WHERE x <= 3 GROUP BY w"
    for sql in (by_x, by_w):
        assert counted(small, BOTH, sql) == counted(large, BOTH, sql)


@pytest.mark.parametrize("record", ['"é","a"', '"é"" é",a', '"a\né",a', '"Zoë\r\n","a"', "é,a"])
def test_an_unreadable_record_does_not_change_how_quotes_in_others_are_counted(tmp_path: Path, record: str) -> None:
    """A file with a record that is not UTF-8 is not copied; the counts of the other records stay the same."""
    schema = Schema("people", (Column("w", "text", ("a", "b")), Column("p", "text", ("a", "b"))))
    people = f"w,p\n{(record + chr(10)) * 100}b,b\n".encode()
    without, with_one = csv_of(tmp_path, people), csv_of(tmp_path, people + b"\xff,b\n", "one.csv")
    assert (copied(without, schema), copied(with_one, schema)) == (True, False)
    for by, expected in (("w", [0, 1]), ("p", [100, 1])):
        sql = f"SELECT {by}, count(*) FROM people GROUP BY {by}"
        assert counted(without, schema, sql) == expected
        assert counted(with_one, schema, sql) == [expected[0], expected[1] + (by == "p")]


@pytest.mark.slow  # large files
def test_a_file_with_many_listed_columns_is_counted_after_it_was_copied_to_memory(tmp_path: Path) -> None:
    long = tuple(str(i) for i in range(40))
    columns = tuple(Column(f"c{i}", "text", long if i % 4 == 0 else ("1", "0")) for i in range(120))
    rows = [",".join(str((i + j) % 3) for i in range(120)) for j in range(9)]
    source = csv_of(tmp_path, "\n".join([",".join(c.name for c in columns), *rows]).encode() + b"\n")
    schema = Schema("people", columns)
    assert copied(source, schema)
    for i in (0, 1, 3, 64, 68, 119):
        found = counted(source, schema, f"SELECT c{i}, count(*) FROM people GROUP BY c{i}")
        assert found == ([3, 3, 3] + [0] * 37 if i % 4 == 0 else [3, 3])


def test_questions_that_differ_only_in_values_have_one_statement_text() -> None:
    table = pa.table({"x": [1, 2, 3], "w": ["a", "b", "c"]})
    engine = DuckDBEngine(Source(frame=table), BOTH)
    texts = {
        engine.compiler().count(ask(BOTH, f"SELECT count(*) FROM people WHERE x = {i}"), "k").sql for i in range(9)
    }
    assert len(texts) == 1
    engine.close()


def test_a_file_whose_repeated_text_would_fill_memory_is_not_copied(tmp_path: Path) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["a" * 8192])
    pq.write_table(pa.table({"x": [1] * 20_000, "w": words}), tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").stat().st_size < 1 << 20
    assert not copied(Source("rows.parquet", directory=tmp_path))


@pytest.mark.parametrize("last", [126, 127, 128, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**62 - 1])
@pytest.mark.parametrize("low", [0, -(2**62)])
def test_values_at_both_ends_of_a_domain_are_counted_exactly(tmp_path: Path, low: int, last: int) -> None:
    """Also the values next to the ends, and NULL, at the limits of every integer type; copied to memory or not."""
    high = low + last
    values = [low, low + 1, high - 1, high, high, low - 1, high + 1, None]
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), tmp_path / "rows.parquet")
    source = Source("rows.parquet", directory=tmp_path)
    schema = Schema("people", (Column("x", "integer", low=low, high=high, step=max(1, last // 2)),))
    whole = Schema("people", (Column("x", "integer", low=low, high=high, step=last + 1),))
    expected = {
        f"x = {high}": 2,
        f"x >= {low}": 5,
        f"x < {high}": 3,
        f"x <> {low}": 4,
        "x IS NULL": 1,
        "x IS NOT NULL": 5,
        f"x IN ({low}, {high - 1}, {high})": 4,
        f"x IS NULL OR x = {low} OR x = {high}": 4,
    }
    for kind in (DuckDBEngine, NotHeld):
        engine = kind(source, schema)
        found = {
            where: engine.count(ask(schema, f"SELECT count(*) FROM people WHERE {where}"), salt=b"")[0]
            for where in expected
        }
        assert found == expected
        grouped = engine.count(ask(schema, "SELECT x, count(*) FROM people GROUP BY x"), salt=b"")
        assert (grouped[0], grouped.sum()) == (2, 5)
        engine.close()
        engine = kind(source, whole)
        assert engine.count(ask(whole, "SELECT x, count(*) FROM people GROUP BY x"), salt=b"").tolist() == [5]
        engine.close()
