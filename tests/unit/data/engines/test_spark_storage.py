"""Rows of Spark frames and tables are stored first: no question evaluates a frame, and views are refused."""

from __future__ import annotations

import datetime
import gc
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.data.engines import Source, open_engine, spark_storage
from countveil.data.engines.spark import SparkEngine
from countveil.errors import ConfigError, DataError, EngineError
from countveil.query import ask
from countveil.query.schema import Column, Schema
from tests.support.curated import QUICK, charged, config_text, with_plan, written
from tests.support.servers import spark

COLUMNS = "y = { min = 1, max = 100 }\nx = { min = 0, max = 3 }\n"
ONE = Schema("people", (Column("x", "integer", low=0, high=9),))
DAYS = Schema("people", (Column("d", "date", low=1, high=datetime.date(1600, 1, 1).toordinal()),))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    spark()
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def table() -> Iterator[str]:
    session = spark()
    name = "stored_rows"
    yield name
    session.sql(f"DROP TABLE IF EXISTS {name}")


def configured(folder: Path, source: str = "spark://none", columns: str = COLUMNS, unit: str = "row") -> Path:
    path = written(folder, config_text(source=source, unit=unit, columns=columns, budget=QUICK))
    with_plan(path)
    return path


def joined(*more: tuple[int, int, int]) -> Any:
    """A frame whose rows with d = 0 are removed by a join."""
    session = spark()
    rows = [(i, 1 + i % 5, i % 4) for i in range(40)]
    session.createDataFrame([*rows, *more], "id INT, d INT, x INT").createOrReplaceTempView("base")
    session.range(40).createOrReplaceTempView("other")
    return (
        session.sql("SELECT id, d, x FROM base")
        .join(session.table("other"), "id")
        .selectExpr("id", "100 DIV d AS y", "x")
    )


@pytest.mark.parametrize("more", [(), ((777, 0, 1),)], ids=["without", "with person 777"])
def test_a_question_never_fails_on_a_row_that_the_frame_filters_out(more: Any, tmp_path: Path, temporary: Path) -> None:
    with Curator.open(configured(tmp_path), sources={"people": joined(*more)}) as curator:
        found = curator.count("SELECT x, count(*) FROM people WHERE y >= 1 AND y <= 50 GROUP BY x")
        assert found.released.size == 4
    assert charged(tmp_path / "countveil.toml") == 1


def test_a_frame_is_evaluated_once_into_a_private_folder(tmp_path: Path, temporary: Path) -> None:
    marks = str(tmp_path / "marks")
    os.mkdir(marks)

    def mark(x: int) -> int:
        import uuid

        open(os.path.join(marks, uuid.uuid4().hex), "w").close()
        return x

    session = spark()
    session.udf.register("mark", mark, "int")
    frame = session.sql("SELECT mark(CAST(id AS INT)) % 4 AS x, 1 + id AS y, 'hidden' AS z, id AS who FROM range(3)")
    path = configured(tmp_path, unit="who")
    with Curator.open(path, sources={"people": frame}) as curator:
        curator.dry_run("SELECT x, count(*) FROM people GROUP BY x")
        curator.count("SELECT x, count(*) FROM people GROUP BY x")
        curator.count("SELECT y, count(*) FROM people WHERE x = 1 GROUP BY y")
        assert curator.count("SELECT x, count(*) FROM people GROUP BY x").replayed
        (folder,) = temporary.glob("countveil-rows-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        stored = pq.read_table(folder / "rows")
        assert stored.column_names == ["c0", "c1", "c2", "h"]  # x, y, who and the hash of the row; no z
        assert "hidden" not in str(stored.to_pylist())
        assert len(os.listdir(marks)) == 3
        shutil.rmtree(folder)  # as a program that cleans up temporary files does
        assert curator.count("SELECT x, count(*) FROM people GROUP BY x").replayed
        assert len(os.listdir(marks)) == 6
    assert os.listdir(temporary) == []
    assert charged(path) == 2


def test_a_frame_that_fails_is_refused_for_every_question(tmp_path: Path, temporary: Path) -> None:
    """It is refused before the charge, with a fixed message, and no file stays on the disk."""
    frame = spark().sql("SELECT 100 DIV (id - 5) AS y, id % 4 AS x FROM range(9)")
    said = set()
    path = configured(tmp_path)
    with Curator.open(path, sources={"people": frame}) as curator:
        for condition in ("x = 1", "x = 2 AND y = 3", "y >= 90"):
            with pytest.raises(EngineError) as raised:
                curator.count(f"SELECT count(*) FROM people WHERE {condition}")
            said.add(str(raised.value))
            raised = None  # type: ignore[assignment]
    assert said == {
        "source: Spark could not evaluate and store the frame, so it cannot be counted; nothing was charged; "
        "the curator can see why with: frame.write.parquet(...)"
    }
    assert charged(path) == 0
    assert os.listdir(temporary) == []


def test_columns_are_checked_before_anything_is_stored(temporary: Path) -> None:
    frame = spark().sql("SELECT 1 DIV 0 AS y, map(1, 2) AS x")
    with pytest.raises(DataError, match="declared integer, but the source holds other values"):
        SparkEngine(Source(frame=frame), ONE)
    with pytest.raises(DataError, match="column x is declared, but the source has no column of that name"):
        SparkEngine(Source(frame=frame.select("y")), ONE)
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("again", ["x", "X"])
def test_two_columns_with_one_name_are_refused_before_anything_is_stored_or_charged(
    again: str, tmp_path: Path, temporary: Path
) -> None:
    frame = spark().range(3).selectExpr("id AS y", "id AS x", f"id AS {again}")
    path = configured(tmp_path)
    with (
        Curator.open(path, sources={"people": frame}) as curator,
        pytest.raises(DataError, match="two column names are equal"),
    ):
        curator.count(by="y")
    assert charged(path) == 0
    assert os.listdir(temporary) == []


def test_stored_rows_are_deleted_with_their_engine_or_object(temporary: Path) -> None:
    engine = SparkEngine(Source(frame=spark().range(3).selectExpr("id AS x")), ONE)
    assert engine.count(ask(ONE, by=["x"]), salt=b"s").tolist() == [1, 1, 1, *[0] * 7]
    assert len(os.listdir(temporary)) == 1
    engine.close()
    assert os.listdir(temporary) == []
    rows = spark_storage.store(Source(frame=spark().range(3)))
    assert len(os.listdir(temporary)) == 1
    child = os.fork()
    if not child:  # a fork has the object, but not the folder
        rows.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(os.listdir(temporary)) == 1
    del rows
    gc.collect()
    assert os.listdir(temporary) == []


def test_rows_that_are_not_all_read_back_are_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster where every worker writes to its own disk."""

    class Elsewhere(spark_storage.StoredRows):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.paths = self.paths[:1]

    monkeypatch.setattr(spark_storage, "StoredRows", Elsewhere)
    with pytest.raises(EngineError, match="could not be read back; set TMPDIR to a folder that all machines"):
        spark_storage.store(Source(frame=spark().range(9).repartition(3)))
    assert os.listdir(temporary) == []


# -- tables of the catalogue -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["TEMP VIEW", "GLOBAL TEMP VIEW", "VIEW"])
def test_views_of_the_catalogue_are_refused(kind: str, tmp_path: Path, temporary: Path) -> None:
    session, name = spark(), "seen_rows"
    session.sql(f"CREATE {kind} {name} AS SELECT 1 AS x, 2 AS y")
    full = f"global_temp.{name}" if "GLOBAL" in kind else name
    try:
        path = configured(tmp_path, f"spark://{full}")
        with Curator.open(path) as curator, pytest.raises(DataError) as raised:
            curator.count("SELECT x, count(*) FROM people GROUP BY x")
    finally:
        session.sql(f"DROP VIEW {full}")
    assert str(raised.value) == (
        f"source: spark://{full} is a view, which is evaluated while it is counted; store it as a table, or give it as "
        "a DataFrame, which is stored first"
    )
    assert charged(path) == 0
    assert os.listdir(temporary) == []


def test_tables_of_other_formats_are_refused(table: str, temporary: Path) -> None:
    spark().sql(f"CREATE TABLE {table} USING csv AS SELECT 1 AS x")
    with pytest.raises(DataError, match="is not a table of Parquet files; store it as one, or give it as a DataFrame"):
        SparkEngine(Source(f"spark://{table}"), ONE)


def test_a_table_is_stored_again_when_its_files_have_changed(
    table: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the user's session has cached it and another program writes it."""

    def stored() -> list[str]:
        gc.collect()  # folders that are no longer used go with the objects that hold them
        return os.listdir(temporary)

    session = spark()
    session.sql(f"CREATE TABLE {table} USING parquet PARTITIONED BY (x) AS SELECT 7 AS y, id % 4 AS x FROM range(8)")
    file = Path(session.table(table).inputFiles()[0].removeprefix("file://"))
    session.table(table).cache().count()
    asked = "SELECT x, count(*) FROM people GROUP BY x"
    path = configured(tmp_path, f"spark://{table}")
    monkeypatch.setattr("countveil.data.source.RECENT", 10**15)
    try:
        with Curator.open(path) as curator:
            first = curator.count(asked)
            before = stored()
            assert curator.count(asked).replayed
            assert stored() != before  # written just now: a second write could leave the same trace
            monkeypatch.setattr("countveil.data.source.RECENT", 0)
            curator.count(asked)
            before = stored()
            assert curator.count(asked).replayed
            assert stored() == before
            pq.write_table(pa.table({"y": pa.array([7] * 50, pa.int32())}), file.with_name("part-more.parquet"))
            again = curator.count(asked)
            assert (first.receipt.version, again.receipt.version, again.replayed) == (1, 2, False)
            assert again.released.sum() - first.released.sum() > 25
            assert len(stored()) == 1
    finally:
        session.catalog.uncacheTable(table)
    assert stored() == []


def test_table_columns_of_every_kind_are_read_as_spark_reads_them(table: str) -> None:
    """For example, the blanks that pad a CHAR are part of its value."""
    spark().sql(
        f"CREATE TABLE {table} (c CHAR(3), v VARCHAR(3), d DATE, n TIMESTAMP_NTZ, m DECIMAL(38, 2)) USING parquet"
    )
    spark().sql(
        f"INSERT INTO {table} VALUES ('a', 'a', DATE'0001-01-01', TIMESTAMP_NTZ'1500-02-28 23:59:59.999999', 7.00)"
    )
    columns = (
        Column("c", "text", ("a", "a  ")),
        Column("v", "text", ("a", "a  ")),
        Column("d", "date", low=1, high=2),
        Column("n", "date", (datetime.date(1500, 2, 28), datetime.date(1500, 3, 1))),
        Column("m", "integer", (6, 7)),
    )
    schema = Schema("people", columns)
    engine = SparkEngine(Source(f"spark://{table}"), schema)
    found = [engine.count(ask(schema, by=[column.name]), salt=b"s").tolist() for column in columns]
    engine.close()
    assert found == [[0, 1], [1, 0], [1, 0], [1, 0], [0, 1]]


# -- settings of the user's --------------------------------------------------------------------------------------------


def test_the_cache_of_the_users_session_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    cached = spark().read.parquet(str(path)).cache()
    assert cached.count() == 2
    pq.write_table(pa.table({"x": [3, 3, 3]}), path)
    engine = open_engine(Source(str(path), engine="spark"), ONE)
    try:
        assert engine.count(ask(ONE, by=["x"]), salt=b"s").tolist() == [0, 0, 0, 3, *[0] * 6]
    finally:
        engine.close()
        cached.unpersist()


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_the_users_calendar_setting_does_not_change_old_dates(mode: str, tmp_path: Path) -> None:
    """In files that another program wrote, in a table of these files, and in a frame."""
    path, user, day = tmp_path / "d" / "d.parquet", spark(), "DATE '1500-03-01'"
    path.parent.mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {day} AS d) TO '{path}' (FORMAT parquet)")
    modes = [
        f"spark.sql.parquet.{kind}RebaseModeIn{way}" for kind in ("datetime", "int96") for way in ("Read", "Write")
    ]
    for key in modes:
        user.conf.set(key, mode)
    try:
        user.sql(f"CREATE TABLE old_days (d DATE) USING parquet LOCATION '{path.parent}'")
        for source in (
            Source(str(path), engine="spark"),
            Source("spark://old_days"),
            Source(frame=user.sql(f"SELECT {day} AS d")),
        ):
            engine = open_engine(source, DAYS)
            found = engine.count(ask(DAYS, by=["d"]), salt=b"s")
            engine.close()
            assert found.nonzero()[0].tolist() == [datetime.date(1500, 3, 1).toordinal() - 1]
    finally:
        user.sql("DROP TABLE IF EXISTS old_days")
        for key in modes:
            user.conf.unset(key)


def test_a_frame_is_evaluated_with_the_users_settings(tmp_path: Path) -> None:
    """Its expressions are evaluated with the user's settings."""
    user = spark().newSession()
    user.conf.set("spark.sql.ansi.enabled", "false")
    user.conf.set("spark.sql.caseSensitive", "true")
    engine = SparkEngine(Source(frame=user.sql("SELECT CAST('no number' AS INT) AS X, 1 DIV 0 AS y, 3 AS x")), ONE)
    assert engine.count(ask(ONE, by=["x"]), salt=b"s").tolist() == [0, 0, 0, 1, *[0] * 6]
    engine.close()


# -- the configuration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "more", "words"),
    [
        ("people.parquet", "allow_spark_ui = true", "is only for datasets that Spark counts"),
        ("people.csv", "allow_spark_ui = false", "is only for datasets that Spark counts"),
        ("spark://people", 'allow_spark_ui = "yes"', "allowed is true or false"),
        ("spark://people", "allow_spark = true", "unknown key"),
    ],
)
def test_allow_spark_ui_is_refused_for_other_engines(source: str, more: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        load(written(tmp_path, config_text(source=source, more=more)))


def test_allow_spark_ui_is_passed_to_the_source(tmp_path: Path) -> None:
    for source, more in (("spark://people", ""), ("people.parquet", 'engine = "spark"\n')):
        config = load(written(tmp_path, config_text(source=source, more=f"{more}allow_spark_ui = true")))
        assert config.dataset("people").source.allow_spark_ui
