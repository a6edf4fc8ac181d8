"""Tables drawn in the driver and by Spark's workers: the law, the labels, the files and the record of them."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from countveil import answers, releases
from countveil.curator import Curator
from countveil.engines import Source, open_engine, spark_release
from countveil.engines import spark as engine_module
from countveil.engines.duckdb import DuckDBEngine
from countveil.engines.engine import SqlEngine
from countveil.engines.labels import count_name, labels_of
from countveil.engines.spark import SparkEngine
from countveil.engines.spark_storage import store
from countveil.errors import DataError, EngineError, LedgerError, MissingExtraError, ParameterError, RequestError
from countveil.ledger.sqlite import SqliteLedger
from countveil.query import ask
from countveil.sampling.entropy import Key
from countveil.schema import Column, Schema
from tests.support.curated import QUICK, charged, config_text, with_plan, written
from tests.support.servers import spark

KEYS = 20_000
COLUMNS = f"half = [false, true]\nage = {{ min = 0, max = {KEYS - 1} }}\n"
ASKED: dict[str, Any] = {"dataset": "people", "by": ["half", "age"]}
DAY = datetime.date(2020, 2, 28)
KINDS = (
    Column("word", "text", ("a", "ü")),
    Column("yes", "boolean", (True, False)),
    Column("number", "integer", (7, -(2**63))),
    Column("day", "date", (DAY, datetime.date(1900, 1, 1))),
    Column("days", "date", low=DAY.toordinal(), high=DAY.toordinal() + 2),
    Column("weeks", "date", low=DAY.toordinal(), high=DAY.toordinal() + 9, step=7),
    Column("range", "integer", low=-1, high=1),
    Column("bins", "integer", low=0, high=25, step=10),
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Rows of one half: every even age three times; everything else is empty."""
    write_ages(tmp_path / "people.parquet")
    return configured(tmp_path)


def write_ages(path: Path, times: int = 3) -> None:
    ages = np.repeat(np.arange(0, KEYS, 2), times)
    pq.write_table(pa.table({"half": np.ones(len(ages), bool), "age": ages}), path)


def configured(folder: Path, engine: str = "spark") -> Path:
    more = f'engine = "{engine}"'
    path = written(folder, config_text(source="people.parquet", unit="row", columns=COLUMNS, budget=QUICK, more=more))
    with_plan(path)
    if engine == "spark":
        spark()
    return path


@pytest.fixture(params=["driver", "workers"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return chosen(request.param, monkeypatch)


def chosen(way: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(releases, "COLLECTED", 10 if way == "workers" else 10**9)
    return way


def true_counts() -> np.ndarray:
    counts = np.zeros(2 * KEYS, dtype=np.int64)
    counts[KEYS::2] = 3
    return counts


def check_law(found: np.ndarray, mechanism: Any) -> None:
    """Every cell is there, none is negative or off by more than the bound, and both laws are the certified ones."""
    counts = true_counts()
    assert len(found) == len(counts)
    assert found.min() >= 0
    assert np.abs(found - counts).max() <= mechanism.certificate.worst_error
    for n in (0, 3):
        law, seen = mechanism.column(n), Counter((found[counts == n] - n).tolist())
        total = sum(seen.values())
        expected = {z: total * weight / law.total for z, weight in law.items() if weight}
        assert set(seen) <= set(expected)
        usual = [z for z in expected if expected[z] >= 5]
        observed = [*(seen[z] for z in usual), total - sum(seen[z] for z in usual)]
        means = [*(expected[z] for z in usual), total - sum(expected[z] for z in usual)]
        pairs = [(o, m) for o, m in zip(observed, means, strict=True) if m > 1e-3]
        statistic = sum((o - m) ** 2 / m for o, m in pairs)
        assert stats.chi2.sf(statistic, len(pairs) - 1) > 1e-9


def test_both_ways_have_the_law_all_cells_and_labels(way: str, config: Path, tmp_path: Path) -> None:
    with Curator.open(config) as curator:
        assert curator.dry_run(release=True, **ASKED).cost == 1
        table = curator.release(output=tmp_path / "out", **ASKED)
        found = table.frame.toArrow()
        assert (table.drawn, table.replayed, table.cells) == (way, False, 2 * KEYS)
        assert found.column_names == ["half", "age", "count"]
        assert found["half"].to_pylist() == [False] * KEYS + [True] * KEYS
        assert found["age"].to_pylist() == [*range(KEYS)] * 2
        check_law(found["count"].to_numpy(), table.intervals.mechanism)
        with pytest.raises(AssertionError):
            check_law(true_counts(), table.intervals.mechanism)
        assert table.frame.toArrow() == found  # evaluated again: read again, not drawn again
        again = curator.release(
            "SELECT age, half, count(*) AS c FROM people GROUP BY half, age", output=tmp_path / "out"
        )
        assert again.replayed
        assert (again.path, again.files, again.receipt) == (table.path, table.files, table.receipt)
        assert again.frame.columns == ["age", "half", "c"]
        assert again.frame.toArrow()["c"].to_pylist() == found["count"].to_pylist()
    assert charged(config) == 1
    assert os.listdir(tmp_path / "out") == [table.path.name]


def test_one_key_gives_the_same_numbers_both_ways_whatever_the_source_becomes(config: Path, tmp_path: Path) -> None:
    """The counts are on disk, in a private folder, before anything is drawn; then they are gone."""
    with Curator.open(config) as curator:
        question = curator.question(**ASKED)
        mechanism = curator._plans.of(curator.config.dataset("people"))[1].mechanism
        document = curator._plans.of(curator.config.dataset("people"))[0].document
        engine = SparkEngine(Source(str(tmp_path / "people.parquet")), question.schema)
        private = []

        def changed(draw: spark_release.Draw) -> spark_release.Draw:
            write_ages(tmp_path / "people.parquet", times=500)
            private.extend(tmp_path.glob("counts-*"))
            return draw

        modes = []

        def unchanged() -> None:
            modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.glob("counts-*"))

        spark_release.write(
            engine,
            question,
            tmp_path / "table",
            key=b"k",
            mechanism=document,
            unchanged=unchanged,
            around=changed,
            noise=Key(bytes(32)),
        )
        assert modes == [0o700]
        assert len(private) == 1
        assert not private[0].exists()
        files = sorted(str(path) for path in (tmp_path / "table").glob("part-*"))
        found = engine.read_release(files, {"y": count_name(question)}).toArrow()["y"].to_numpy()
        assert (found == mechanism.sampler.release(true_counts(), Key(bytes(32)))).all()


def test_counts_that_are_not_all_read_back_are_not_drawn_from(config: Path, tmp_path: Path) -> None:
    """As where every worker has a disk of its own: what is read back is not what was written."""
    with Curator.open(config) as curator:
        question = curator.question(**ASKED)
        document = curator._plans.of(curator.config.dataset("people"))[0].document
        engine = SparkEngine(Source(str(tmp_path / "people.parquet")), question.schema)

        def lost() -> None:
            next(tmp_path.glob("counts-*/counts/part-*")).unlink()

        with pytest.raises(EngineError, match="could not be read back: do all machines see the output folder"):
            spark_release.write(
                engine, question, tmp_path / "table", key=b"k", mechanism=document, unchanged=lost, around=never
            )
        assert not [*tmp_path.glob("table*"), *tmp_path.glob("counts-*")]


def never(draw: spark_release.Draw) -> spark_release.Draw:
    raise AssertionError("drawn")


def test_nothing_is_written_elsewhere_than_to_the_output(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Wildcards in its name are only a name."""
    chosen("workers", monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    output = tmp_path / "o{1}[2]*"
    with Curator.open(config) as curator:
        table = curator.release(output=output, **ASKED)
        assert (table.drawn, table.frame.count()) == ("workers", 2 * KEYS)
    assert os.listdir(output) == [table.path.name]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_what_cannot_be_counts_is_not_quoted(engine: str, way: str, tmp_path: Path, monkeypatch: Any) -> None:
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    for counting in (SqlEngine, DuckDBEngine):
        monkeypatch.setattr(counting, "count", lambda self, question, key: np.full(question.cells, -123456))
    wrong = "SELECT 0L AS cell, -123456L AS n"
    monkeypatch.setattr(SparkEngine, "counted", lambda self, question, key: self.session.sql(wrong))
    with Curator.open(config) as curator, pytest.raises(EngineError) as raised:
        curator.release(output=tmp_path / "out", **ASKED)
    assert str(raised.value) == "the engine returned what cannot be counts; the charge is kept"
    assert os.listdir(tmp_path / "out") == []
    assert charged(config) == 1


def test_a_disk_that_fails_after_the_charge(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(releases, "_hidden", lambda folder: Path("/proc/nothing/table"))
            with pytest.raises(EngineError, match="could not be written: is the disk full"):
                curator.release(output=tmp_path / "out", **ASKED)
        table = curator.release(output=tmp_path / "out", **ASKED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(releases, "settled_hash", broken)
            with pytest.raises(EngineError, match="files of the release could not be read"):
                curator.release(output=tmp_path / "out", **ASKED)
        curator.count(dataset="people", by="half")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pyarrow.parquet.ParquetWriter.write_table", broken)
            with pytest.raises(EngineError, match="could not be written"):
                curator.release(output=tmp_path / "out", dataset="people", by="half")
    assert os.listdir(tmp_path / "out") == [table.path.name]
    assert charged(config) == 2


def broken(*given: object) -> None:
    raise OSError(5, "of the disk")


def test_a_source_that_changes_while_it_is_counted(way: str, config: Path, tmp_path: Path) -> None:
    with Curator.open(config) as curator:
        source = tmp_path / "people.parquet"
        name = "counted" if way == "workers" else "count"
        real = getattr(SparkEngine, name)

        def meddled(self: SparkEngine, *given: Any, **more: Any) -> Any:
            found = real(self, *given, **more)
            if way == "workers":
                found = found.localCheckpoint()
            write_ages(source, times=4)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SparkEngine, name, meddled)
            with pytest.raises(EngineError, match="changed while it was counted; the charge is kept"):
                curator.release(output=tmp_path / "out", **ASKED)
        assert os.listdir(tmp_path / "out") == []
        assert len(list(curator.ledger.charges())) == 1


def test_files_that_are_gone_or_changed_are_refused(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    with Curator.open(config) as curator:
        table = curator.release(output=tmp_path / "out", **ASKED)
        (file,) = map(Path, table.files)
        with pytest.raises(RequestError, match=r"not in .*elsewhere; give the folder they were written to"):
            curator.release(output=tmp_path / "elsewhere", **ASKED)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9] + b"x" + whole[-8:])
        with pytest.raises(RequestError, match="was changed since it was released"):
            curator.release(output=tmp_path / "out", **ASKED)
        file.unlink()
        with pytest.raises(RequestError, match="is gone"):
            curator.release(output=tmp_path / "out", **ASKED)
        file.write_bytes(whole)
        shutil.move(tmp_path / "out", tmp_path / "moved")
        assert curator.release(output=tmp_path / "moved", **ASKED).replayed
        with pytest.raises(RequestError, match="answered by the files of release-"):
            curator.count(**ASKED)
    assert charged(config) == 1


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_what_was_collected_can_be_written_out(engine: str, tmp_path: Path) -> None:
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    with Curator.open(config) as curator:
        table = curator.count(**ASKED)
        files = curator.release(output=tmp_path / "out", **ASKED)
        assert files.replayed
        frame = files.frame if engine == "duckdb" else files.frame.toArrow()
        assert frame["count"].to_pylist() == table.released.tolist()
        fresh = curator.release(output=tmp_path / "out", dataset="people", by="half", where="age < 10")
        assert fresh.drawn == "driver"
        frame = fresh.frame if engine == "duckdb" else fresh.frame.toArrow()
        assert frame["half"].to_pylist() == [False, True]
    assert charged(config) == 2


def test_a_crash_before_the_record_is_never_handed_out(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    out = tmp_path / "out"
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteLedger, "record", failing)
            with pytest.raises(LedgerError):
                curator.release(output=out, **ASKED)
        (orphan,) = out.iterdir()
        assert orphan.name.startswith(".release-")
        assert orphan.stat().st_mode & 0o777 == 0o700
        table = curator.release(output=out, **ASKED)
        assert not table.replayed
        assert orphan.name.removeprefix(".") != table.path.name
        assert orphan.exists()
        drawn = pq.read_table(orphan / "table")
        assert drawn["count"].to_pylist() != table.frame.toArrow()["count"].to_pylist()
    assert charged(config) == 1


def failing(*given: object) -> None:
    raise LedgerError("the disk is full")


def test_a_crash_after_the_record_is_completed(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("countveil.curator.opened", failing)
            with pytest.raises(LedgerError):
                curator.release(output=tmp_path / "out", **ASKED)
        (hidden,) = (tmp_path / "out").iterdir()
        drawn = pq.read_table(hidden / "table")["count"].to_pylist()
        table = curator.release(output=tmp_path / "out", **ASKED)
        assert table.replayed
        assert table.frame.toArrow()["count"].to_pylist() == drawn
        assert os.listdir(tmp_path / "out") == [table.path.name]


def test_two_that_bring_the_same_files_out(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    real, out = os.rename, tmp_path / "out"

    def second(*given: Any) -> None:
        real(*given)
        real(*given)  # as the slower one of two

    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("countveil.curator.opened", failing)
            with pytest.raises(LedgerError):
                curator.release(output=out, **ASKED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.rename", second)
            table = curator.release(output=out, **ASKED)
        assert table.replayed
        for _ in range(20):
            (out / f".{table.path.name}").mkdir()
            real(table.path, out / f".{table.path.name}" / "table")
            with ThreadPoolExecutor(8) as pool:
                found = [pool.submit(curator.release, output=out, **ASKED) for _ in range(8)]
            assert {each.result().path for each in found} == {table.path}
    assert os.listdir(out) == [table.path.name]


def test_whoever_records_first_answers_for_both(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    real, tables = SqliteLedger.record, []
    with Curator.open(config) as curator, Curator.open(config) as other:

        def second(self: SqliteLedger, *given: Any) -> Any:
            monkeypatch.setattr(SqliteLedger, "record", real)
            tables.append(other.release(output=tmp_path / "out", **ASKED))
            return real(self, *given)

        monkeypatch.setattr(SqliteLedger, "record", second)
        tables.append(curator.release(output=tmp_path / "out", **ASKED))
    assert tables[0].files == tables[1].files
    assert os.listdir(tmp_path / "out") == [tables[0].path.name]
    assert charged(config) == 1


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_tables_that_cannot_be_collected(engine: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(answers, "MOST_COLLECTED", 2 * KEYS - 1)
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    with Curator.open(config) as curator:
        with pytest.raises(RequestError, match="40,000 cells is too large to collect"):
            curator.count(**ASKED)
        if engine == "duckdb":
            with pytest.raises(RequestError, match="too large to collect"):
                curator.release(output=tmp_path / "out", **ASKED)
    assert charged(config) == 0


@pytest.mark.smoke
def test_a_dataframe_as_the_source_and_new_data_as_a_new_version(config: Path, tmp_path: Path) -> None:
    frame = spark().read.parquet(str(tmp_path / "people.parquet"))
    question: dict[str, Any] = {"dataset": "people", "by": "half"}
    with Curator.open(config, sources={"people": frame}) as curator:
        first = curator.count(**question)
        assert curator.count(**question).replayed
    with Curator.open(config, sources={"people": frame.orderBy("age")}) as curator:
        assert curator.count(**question).replayed
    with Curator.open(config, sources={"people": frame.limit(5)}) as curator:
        other = curator.count(**question)
    assert (first.receipt.version, other.receipt.version, other.replayed) == (1, 2, False)
    worst = first.mechanism.certificate.worst_error
    assert abs(int(first.released[1]) - 3 * KEYS // 2) <= worst


def hash_of(source: Source) -> str:
    return store(source).fingerprint


def test_the_hash_of_a_dataframe_sees_every_value() -> None:
    rows = [(1, "a"), (1, "a"), (2, None)]
    hashes = {
        hash_of(Source(frame=spark().createDataFrame(each, "a INT, b STRING")))
        for each in (rows, rows[1:], [*rows, (2, None)], [(1, "a"), (2, "a"), (1, None)], [])
    }
    assert len(hashes) == 5
    assert hash_of(Source(frame=spark().createDataFrame(rows[::-1], "a INT, b STRING"))) in hashes
    with pytest.raises(EngineError, match="spark://no_such_table is no table that Spark knows; check its name"):
        hash_of(Source("spark://no_such_table"))


def test_the_hash_of_a_dataframe_sees_where_values_are_missing() -> None:
    kinds = "a INT, b INT"
    hashes = {
        hash_of(Source(frame=spark().createDataFrame(rows, kinds)))
        for rows in ([(1, None)], [(None, 1)], [(1, 1)], [(None, None)], [(0, None)], [(1, 0)])
    }
    assert len(hashes) == 6


def test_columns_that_cannot_be_declared_do_no_harm(config: Path, tmp_path: Path) -> None:
    odd = "map('k', id) AS m, parse_json('[1]') AS v, array(map(1, 2)) AS a, INTERVAL 1 DAY AS i"
    frame = spark().sql(f"SELECT id AS age, TRUE AS half, {odd} FROM range(3)")
    with Curator.open(config, sources={"people": frame}) as curator:
        assert curator.count(dataset="people", by="half").released.size == 2
    assert hash_of(Source(frame=frame.select("m"))) != hash_of(Source(frame=frame.limit(2).select("m")))


# -- which files -------------------------------------------------------------------------------------------------------

ONE = Schema("people", (Column("x", "integer", low=0, high=9),))


def counts_of(path: Path, engine: str, schema: Schema = ONE, by: str = "x") -> list[int]:
    spark()
    opened = open_engine(Source(str(path)), schema, engine)
    try:
        return opened.count(ask(schema, by=[by]), key=b"k").tolist()
    finally:
        opened.close()


def write_x(path: Path, *values: Any) -> Path:
    pq.write_table(pa.table({"x": list(values)}), path)
    return path


@pytest.mark.parametrize(
    ("name", "decoy"),
    [
        ("d{1}.parquet", "d1.parquet"),
        ("br[1].parquet", "br1.parquet"),
        ("st*r.parquet", "star.parquet"),
        ("back\\s.parquet", "backs.parquet"),
        ("a b%20#,é.parquet", "a b .parquet"),
    ],
)
def test_names_are_no_wildcards(name: str, decoy: str, tmp_path: Path) -> None:
    write_x(tmp_path / decoy, 7, 7, 7)
    write_x(tmp_path / name, 1)
    assert counts_of(tmp_path / name, "spark") == [0, 1, *[0] * 8]


@pytest.mark.parametrize("name", ["_b.parquet", "co:lon.parquet"])
def test_files_that_spark_would_pass_over(name: str, tmp_path: Path) -> None:
    write_ages(tmp_path / "people.parquet")
    write_ages(tmp_path / name)
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("people.parquet", "*.parquet"))
    with Curator.open(path) as curator, pytest.raises(DataError, match=f"Spark reads no file that is called '?{name}"):
        curator.count(**ASKED)
    assert charged(path) == 0


def test_files_of_other_columns_or_no_parquet(tmp_path: Path) -> None:
    write_x(tmp_path / "a.parquet", 1)
    for other in (pa.table({"y": [1]}), pa.table({"x": ["1"]}), pa.table({"x": [1], "y": [1]})):
        pq.write_table(other, tmp_path / "b.parquet")
        for engine in ("duckdb", "spark"):
            with pytest.raises(DataError, match="has other columns or types than"):
                counts_of(tmp_path / "*.parquet", engine)
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(EngineError, match="could not be read as a Parquet file"):
        counts_of(tmp_path / "*.parquet", "spark")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([Decimal(1)], pa.decimal256(50, 0)),
        pa.array([1], pa.time64("us")),
    ],
    ids=str,
)
def test_types_that_spark_does_not_read(column: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": column}), tmp_path / "x.parquet")
    with pytest.raises(EngineError, match="could not be opened by Spark; it reads no time stamps in nanoseconds"):
        counts_of(tmp_path / "x.parquet", "spark")


def test_time_stamps_of_96_bits_are_refused_as_days(tmp_path: Path) -> None:
    times = pa.table({"x": pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    schema = Schema("people", (Column("x", "date", low=DAY.toordinal(), high=DAY.toordinal() + 2),))
    with pytest.raises(DataError, match="times with a zone have no date of their own"):
        counts_of(tmp_path / "x.parquet", "spark", schema)


@pytest.mark.parametrize("extreme", [[], [9223372036854776]], ids=["without", "with a far one"])
def test_time_stamps_in_milliseconds_are_refused_whatever_they_are(extreme: list[int], tmp_path: Path) -> None:
    """Spark fails on one that has no microseconds, in the questions that read it."""
    times = pa.array([0, *extreme], pa.timestamp("ms"))
    pq.write_table(pa.table({"x": [1] * len(times), "day": times}), tmp_path / "x.parquet")
    days = Column("day", "date", low=DAY.toordinal(), high=DAY.toordinal() + 2)
    with pytest.raises(
        DataError, match=r"column day: Spark fails on time stamps in milliseconds .* or count with DuckDB"
    ):
        counts_of(tmp_path / "x.parquet", "spark", Schema("people", (*ONE.columns, days)))
    assert counts_of(tmp_path / "x.parquet", "spark") == [0, len(times), *[0] * 8], "columns that nobody asks about"


def test_people_without_readable_names_are_the_same_on_both_engines(tmp_path: Path) -> None:
    names = pa.array([b"a\xff", b"a\xfe", b"who?", b"\xef\xbf\xbd", b"b", b"b", None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    pq.write_table(pa.table({"who": text, "x": [1, 1, 1, 2, 3, 3, 4]}), tmp_path / "x.parquet")
    schema = Schema("people", ONE.columns, unit="who", rows_per_person=2)
    for engine in ("duckdb", "spark"):
        assert counts_of(tmp_path / "x.parquet", engine, schema) == [0, 0, 1, 2, *[0] * 6]


def test_floats_name_people_and_codes_below_the_limit_of_their_precision(tmp_path: Path) -> None:
    ids = [2.0**53, 2.0**53 + 2, 2.0**53 - 1, 1.5, float("inf"), float("nan"), None, 7.0, 7.0, -0.0]
    table = {"person": pa.array(ids, pa.float64()), "x": [5.0] * 10, "y": pa.array([5] * 10, pa.float32())}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    source = Source("rows.parquet", directory=tmp_path)
    declared = Column("x", "text", ("5", "5.0")), Column("y", "text", ("5",))
    for name in ("duckdb", "spark"):
        schema = Schema("people", declared, "person")
        engine = open_engine(source, schema, name)
        found = [engine.count(ask(schema, dataset="people", by=by), key=b"").tolist() for by in ((), "x", "y")]
        engine.close()
        assert found == [[3], [3, 0], [3]], name
        with pytest.raises(DataError, match="people are identified by integers or text, not single values"):
            open_engine(source, Schema("people", declared[:1], "y"), name)


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.name)
def test_labels_are_those_of_collected_tables(column: Column) -> None:
    before, after = Column("before", "text", ("x", "y")), Column("z", "integer", low=0, high=2)
    question = ask(Schema("people", (before, column, after)), by=["before", column.name, "z"])
    found = [labels.lookup()(np.arange(question.cells)).to_pylist() for labels in labels_of(question)]
    expected = [(b, k, z) for b in "xy" for k in column.key_labels() for z in range(3)]
    assert list(zip(*found, strict=True)) == expected


def test_the_counts_have_a_name_of_their_own() -> None:
    schema = Schema("people", (Column("COUNT", "integer", low=0, high=2),))
    assert count_name(ask(schema, by=["COUNT"])) == "count_released"
    assert count_name(ask(schema)) == "count"


@pytest.mark.parametrize("output", ["", 3, None, "a\x00b", "/proc/nothing/here", "/proc", "/sys"])
def test_outputs_that_are_no_folder(output: object, config: Path) -> None:
    with Curator.open(config) as curator, pytest.raises(ParameterError, match="output: got"):
        curator.release(output=output, **ASKED)  # type: ignore[arg-type]
    assert charged(config) == 0


def test_cells_out_of_order_are_drawn_with_their_own_bits(config: Path) -> None:
    with Curator.open(config) as curator:
        mechanism = curator._plans.of(curator.config.dataset("people"))[1].mechanism
    cells = np.array([5, 6, 7, 100, 3, 4, 2**40])
    counts = np.array([0, 1, 2, 3, 4, 5, 6])
    found = spark_release.drawn(mechanism, cells, counts, Key(bytes(32)))
    alone = [mechanism.sampler.release(counts[i : i + 1], Key(bytes(32)), first=int(c))[0] for i, c in enumerate(cells)]
    assert found.tolist() == alone
    assert spark_release.drawn(mechanism, cells[:0], counts[:0], Key()).tolist() == []


def test_an_incomplete_table_is_refused(tmp_path: Path) -> None:
    question = ask(Schema("people", KINDS), by=["range"])
    releases.write_counts(question, np.array([1, 2]), tmp_path / "table")
    with pytest.raises(EngineError, match="incomplete"):
        releases.sealed(tmp_path / "table", "table", question, "workers", "count")


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'countveil[spark]'")
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="Java 17"):
        engine_module.session()


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"countveil\[spark\]\""):
        engine_module.session()


WRONG = """
import os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.argv[1]
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pathlib import Path
from countveil import releases
from countveil.curator import Curator
releases.COLLECTED = 10
try:
    Curator.open(sys.argv[2]).release(dataset="people", by=["half", "age"], output=sys.argv[3])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_workers_with_another_python(config: Path, tmp_path: Path) -> None:
    """A Python that is not there; the message says what to set, and the charge can be answered later."""
    words = [sys.executable, "-c", WRONG, str(tmp_path / "no" / "python"), str(config), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.startswith("EngineError the Spark workers run another Python"), done.stdout + done.stderr[-2000:]
    assert "PYSPARK_PYTHON" in done.stdout
    assert os.listdir(tmp_path / "out") == []
    assert charged(config) == 1
