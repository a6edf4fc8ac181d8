"""Tables drawn in the driver and by Spark's workers: their law, labels, files and ledger records."""

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

from countveil.curator import parquet_results, results
from countveil.curator.curator import Curator
from countveil.data.cell_labels import count_name, labels_of
from countveil.data.engines import Source, open_engine, spark as engine_module, spark_release
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.engine import SqlEngine
from countveil.data.engines.spark import SparkEngine
from countveil.data.engines.spark_storage import store
from countveil.errors import DataError, EngineError, LedgerError, MissingExtraError, ParameterError, RequestError
from countveil.ledger.sqlite import SqliteLedger
from countveil.query import ask
from countveil.query.schema import Column, Schema
from countveil.sampling.randomness import NoiseKey
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
    """A configuration and its data: in one half, every even age three times; all other cells are empty."""
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
    monkeypatch.setattr(parquet_results, "COLLECTED", 10 if way == "workers" else 10**9)
    return way


def true_counts() -> np.ndarray:
    counts = np.zeros(2 * KEYS, dtype=np.int64)
    counts[KEYS::2] = 3
    return counts


def check_law(found: np.ndarray, mechanism: Any) -> None:
    """Check that every cell is released, none is negative or beyond the bound, and that the noise follows the certified
    law.
    """
    counts = true_counts()
    assert len(found) == len(counts)
    assert found.min() >= 0
    assert np.abs(found - counts).max() <= mechanism.certificate.worst_error
    for n in (0, 3):
        law, seen = mechanism.law(n), Counter((found[counts == n] - n).tolist())
        total = sum(seen.values())
        expected = {z: total * weight / law.total for z, weight in law.items() if weight}
        assert set(seen) <= set(expected)
        usual = [z for z in expected if expected[z] >= 5]
        observed = [*(seen[z] for z in usual), total - sum(seen[z] for z in usual)]
        means = [*(expected[z] for z in usual), total - sum(expected[z] for z in usual)]
        pairs = [(o, m) for o, m in zip(observed, means, strict=True) if m > 1e-3]
        statistic = sum((o - m) ** 2 / m for o, m in pairs)
        assert stats.chi2.sf(statistic, len(pairs) - 1) > 1e-9


def test_noise_drawn_by_the_driver_or_by_workers_has_the_certified_law_in_every_cell(
    way: str, config: Path, tmp_path: Path
) -> None:
    with Curator.open(config) as curator:
        assert curator.dry_run(to_parquet=True, **ASKED).cost == 1
        table = curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        found = table.frame.toArrow()
        assert (table.drawn, table.replayed, table.cells) == (way, False, 2 * KEYS)
        assert found.column_names == ["half", "age", "count"]
        assert found["half"].to_pylist() == [False] * KEYS + [True] * KEYS
        assert found["age"].to_pylist() == [*range(KEYS)] * 2
        check_law(found["count"].to_numpy(), table.intervals.mechanism)
        assert b"rows; every row is one person" in b"".join(pq.read_metadata(table.files[0]).metadata.values())
        with pytest.raises(AssertionError):
            check_law(true_counts(), table.intervals.mechanism)
        assert table.frame.toArrow() == found  # evaluated again: read again, not drawn again
        again = curator.count_to_parquet(
            "SELECT age, half, count(*) AS c FROM people GROUP BY half, age", output=tmp_path / "out"
        )
        assert again.replayed
        assert (again.path, again.files, again.receipt) == (table.path, table.files, table.receipt)
        assert again.frame.columns == ["age", "half", "c"]
        assert again.frame.toArrow()["c"].to_pylist() == found["count"].to_pylist()
    assert charged(config) == 1
    assert os.listdir(tmp_path / "out") == [table.path.name]


def test_driver_and_workers_draw_the_same_numbers_from_one_key(config: Path, tmp_path: Path) -> None:
    """Although the source changes before the draw: the counts are on disk, in a private folder that is removed
    afterwards.
    """
    with Curator.open(config) as curator:
        question = curator.question(**ASKED)
        mechanism = curator.mechanism("people")
        document = curator.mechanism("people").to_text()
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
            salt=b"s",
            mechanism=document,
            unchanged=unchanged,
            around=changed,
            noise=NoiseKey(bytes(32)),
        )
        assert modes == [0o700]
        assert len(private) == 1
        assert not private[0].exists()
        files = sorted(str(path) for path in (tmp_path / "table").glob("part-*"))
        found = engine.read_release(files, {"y": count_name(question)}).toArrow()["y"].to_numpy()
        assert (found == mechanism.sampler.release(true_counts(), NoiseKey(bytes(32)))).all()


def test_nothing_is_drawn_if_written_counts_are_not_all_read_back(config: Path, tmp_path: Path) -> None:
    """As on a cluster where every worker writes to its own disk."""
    with Curator.open(config) as curator:
        question = curator.question(**ASKED)
        document = curator.mechanism("people").to_text()
        engine = SparkEngine(Source(str(tmp_path / "people.parquet")), question.schema)

        def lost() -> None:
            next(tmp_path.glob("counts-*/counts/part-*")).unlink()

        with pytest.raises(EngineError, match="could not be read back; use an output folder that all machines see"):
            spark_release.write(
                engine, question, tmp_path / "table", salt=b"s", mechanism=document, unchanged=lost, around=never
            )
        assert not [*tmp_path.glob("table*"), *tmp_path.glob("counts-*")]


def never(draw: spark_release.Draw) -> spark_release.Draw:
    raise AssertionError("drawn")


def test_nothing_is_written_outside_the_output_folder(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Even if its name contains wildcards."""
    chosen("workers", monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    output = tmp_path / "o{1}[2]*"
    with Curator.open(config) as curator:
        table = curator.count_to_parquet(output=output, **ASKED)
        assert (table.drawn, table.frame.count()) == ("workers", 2 * KEYS)
    assert os.listdir(output) == [table.path.name]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_impossible_counts_are_refused_and_not_quoted(engine: str, way: str, tmp_path: Path, monkeypatch: Any) -> None:
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    for counting in (SqlEngine, DuckDBEngine):
        monkeypatch.setattr(counting, "count", lambda self, question, salt: np.full(question.cells, -123456))
    wrong = "SELECT 0L AS cell, -123456L AS n"
    monkeypatch.setattr(SparkEngine, "count_cells", lambda self, question, salt: self.session.sql(wrong))
    with Curator.open(config) as curator, pytest.raises(EngineError) as raised:
        curator.count_to_parquet(output=tmp_path / "out", **ASKED)
    assert str(raised.value) == "the engine returned values that cannot be counts; the charge is kept"
    assert os.listdir(tmp_path / "out") == []
    assert charged(config) == 1


def test_a_disk_that_fails_after_the_charge_is_reported_and_the_retry_is_free(
    config: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet_results, "_hidden_folder", lambda folder: Path("/proc/nothing/table"))
            with pytest.raises(EngineError, match="could not be written: is the disk full"):
                curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        table = curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet_results, "sync_and_hash", broken)
            with pytest.raises(EngineError, match="files of the answer could not be read"):
                curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        curator.count(dataset="people", by="half")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pyarrow.parquet.ParquetWriter.write_table", broken)
            with pytest.raises(EngineError, match="could not be written"):
                curator.count_to_parquet(output=tmp_path / "out", dataset="people", by="half")
    assert os.listdir(tmp_path / "out") == [table.path.name]
    assert charged(config) == 2


def broken(*given: object) -> None:
    raise OSError(5, "of the disk")


def test_a_source_that_changes_while_it_is_counted_gets_no_answer(way: str, config: Path, tmp_path: Path) -> None:
    with Curator.open(config) as curator:
        source = tmp_path / "people.parquet"
        name = "count_cells" if way == "workers" else "count"
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
                curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        assert os.listdir(tmp_path / "out") == []
        assert len(list(curator.ledger.charges())) == 1


def test_missing_or_changed_files_of_an_answer_are_refused(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    with Curator.open(config) as curator:
        table = curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        (file,) = map(Path, table.files)
        with pytest.raises(RequestError, match=r"not in .*elsewhere; give the folder they were written to"):
            curator.count_to_parquet(output=tmp_path / "elsewhere", **ASKED)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9] + b"x" + whole[-8:])
        with pytest.raises(RequestError, match="is missing or changed"):
            curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        file.unlink()
        with pytest.raises(RequestError, match="is missing or changed"):
            curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        file.write_bytes(whole)
        shutil.move(tmp_path / "out", tmp_path / "moved")
        assert curator.count_to_parquet(output=tmp_path / "moved", **ASKED).replayed
        with pytest.raises(RequestError, match="in the Parquet files of release-"):
            curator.count(**ASKED)
    assert charged(config) == 1


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_an_answer_in_memory_can_be_written_to_files_later(engine: str, tmp_path: Path) -> None:
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    with Curator.open(config) as curator:
        table = curator.count(**ASKED)
        files = curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        assert files.replayed
        frame = files.frame if engine == "duckdb" else files.frame.toArrow()
        assert frame["count"].to_pylist() == table.released.tolist()
        fresh = curator.count_to_parquet(output=tmp_path / "out", dataset="people", by="half", where="age < 10")
        assert fresh.drawn == "driver"
        frame = fresh.frame if engine == "duckdb" else fresh.frame.toArrow()
        assert frame["half"].to_pylist() == [False, True]
    assert charged(config) == 2


def test_files_left_by_a_crash_before_they_were_recorded_are_never_returned(
    config: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    chosen("driver", monkeypatch)
    out = tmp_path / "out"
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteLedger, "record", failing)
            with pytest.raises(LedgerError):
                curator.count_to_parquet(output=out, **ASKED)
        (orphan,) = out.iterdir()
        assert orphan.name.startswith(".release-")
        assert orphan.stat().st_mode & 0o777 == 0o700
        table = curator.count_to_parquet(output=out, **ASKED)
        assert not table.replayed
        assert orphan.name.removeprefix(".") != table.path.name
        assert orphan.exists()
        drawn = pq.read_table(orphan / "table")
        assert drawn["count"].to_pylist() != table.frame.toArrow()["count"].to_pylist()
    assert charged(config) == 1


def failing(*given: object) -> None:
    raise LedgerError("the disk is full")


def test_files_left_by_a_crash_after_they_were_recorded_are_returned(
    config: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    chosen("driver", monkeypatch)
    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("countveil.curator.curator.open_recorded", failing)
            with pytest.raises(LedgerError):
                curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        (hidden,) = (tmp_path / "out").iterdir()
        drawn = pq.read_table(hidden / "table")["count"].to_pylist()
        table = curator.count_to_parquet(output=tmp_path / "out", **ASKED)
        assert table.replayed
        assert table.frame.toArrow()["count"].to_pylist() == drawn
        assert os.listdir(tmp_path / "out") == [table.path.name]


def test_two_processes_can_move_the_same_recorded_files_at_once(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    chosen("driver", monkeypatch)
    real, out = os.rename, tmp_path / "out"

    def second(*given: Any) -> None:
        real(*given)
        real(*given)  # as the slower one of two processes does

    with Curator.open(config) as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("countveil.curator.curator.open_recorded", failing)
            with pytest.raises(LedgerError):
                curator.count_to_parquet(output=out, **ASKED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.rename", second)
            table = curator.count_to_parquet(output=out, **ASKED)
        assert table.replayed
        for _ in range(20):
            (out / f".{table.path.name}").mkdir()
            real(table.path, out / f".{table.path.name}" / "table")
            with ThreadPoolExecutor(8) as pool:
                found = [pool.submit(curator.count_to_parquet, output=out, **ASKED) for _ in range(8)]
            assert {each.result().path for each in found} == {table.path}
    assert os.listdir(out) == [table.path.name]


def test_two_curators_that_ask_at_once_both_return_the_files_recorded_first(
    config: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    chosen("driver", monkeypatch)
    real, tables = SqliteLedger.record, []
    with Curator.open(config) as curator, Curator.open(config) as other:

        def second(self: SqliteLedger, *given: Any) -> Any:
            monkeypatch.setattr(SqliteLedger, "record", real)
            tables.append(other.count_to_parquet(output=tmp_path / "out", **ASKED))
            return real(self, *given)

        monkeypatch.setattr(SqliteLedger, "record", second)
        tables.append(curator.count_to_parquet(output=tmp_path / "out", **ASKED))
    assert tables[0].files == tables[1].files
    assert os.listdir(tmp_path / "out") == [tables[0].path.name]
    assert charged(config) == 1


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_table_that_is_too_large_to_collect_is_refused_without_a_charge(
    engine: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(results, "MOST_COLLECTED", 2 * KEYS - 1)
    write_ages(tmp_path / "people.parquet")
    config = configured(tmp_path, engine)
    with Curator.open(config) as curator:
        with pytest.raises(RequestError, match="40,000 cells is too large to collect"):
            curator.count(**ASKED)
        if engine == "duckdb":
            with pytest.raises(RequestError, match="too large to collect"):
                curator.count_to_parquet(output=tmp_path / "out", **ASKED)
    assert charged(config) == 0


@pytest.mark.smoke
def test_a_changed_dataframe_is_a_new_version(config: Path, tmp_path: Path) -> None:
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


def test_every_value_changes_the_hash_of_a_dataframe() -> None:
    rows = [(1, "a"), (1, "a"), (2, None)]
    hashes = {
        hash_of(Source(frame=spark().createDataFrame(each, "a INT, b STRING")))
        for each in (rows, rows[1:], [*rows, (2, None)], [(1, "a"), (2, "a"), (1, None)], [])
    }
    assert len(hashes) == 5
    assert hash_of(Source(frame=spark().createDataFrame(rows[::-1], "a INT, b STRING"))) in hashes
    with pytest.raises(EngineError, match="Spark has no table spark://no_such_table; check its name"):
        hash_of(Source("spark://no_such_table"))


def test_the_position_of_a_missing_value_changes_the_hash_of_a_dataframe() -> None:
    kinds = "a INT, b INT"
    hashes = {
        hash_of(Source(frame=spark().createDataFrame(rows, kinds)))
        for rows in ([(1, None)], [(None, 1)], [(1, 1)], [(None, None)], [(0, None)], [(1, 0)])
    }
    assert len(hashes) == 6


def test_columns_of_undeclarable_types_change_no_count(config: Path, tmp_path: Path) -> None:
    odd = "map('k', id) AS m, parse_json('[1]') AS v, array(map(1, 2)) AS a, INTERVAL 1 DAY AS i"
    frame = spark().sql(f"SELECT id AS age, TRUE AS half, {odd} FROM range(3)")
    with Curator.open(config, sources={"people": frame}) as curator:
        assert curator.count(dataset="people", by="half").released.size == 2
    assert hash_of(Source(frame=frame.select("m"))) != hash_of(Source(frame=frame.limit(2).select("m")))


# -- which files -------------------------------------------------------------------------------------------------------

ONE = Schema("people", (Column("x", "integer", low=0, high=9),))


def counts_of(path: Path, engine: str, schema: Schema = ONE, by: str = "x") -> list[int]:
    spark()
    opened = open_engine(Source(str(path), engine=engine), schema)
    try:
        return opened.count(ask(schema, by=[by]), salt=b"s").tolist()
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
def test_wildcards_in_file_names_are_escaped(name: str, decoy: str, tmp_path: Path) -> None:
    write_x(tmp_path / decoy, 7, 7, 7)
    write_x(tmp_path / name, 1)
    assert counts_of(tmp_path / name, "spark") == [0, 1, *[0] * 8]


@pytest.mark.parametrize("name", ["_b.parquet", "co:lon.parquet"])
def test_files_that_spark_would_skip_are_refused(name: str, tmp_path: Path) -> None:
    write_ages(tmp_path / "people.parquet")
    write_ages(tmp_path / name)
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("people.parquet", "*.parquet"))
    with (
        Curator.open(path) as curator,
        pytest.raises(DataError, match=f"Spark does not read a file with the name '?{name}"),
    ):
        curator.count(**ASKED)
    assert charged(path) == 0


def test_files_of_one_source_with_different_columns_or_formats_are_refused(tmp_path: Path) -> None:
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
def test_files_with_types_that_spark_cannot_read_are_refused(column: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": column}), tmp_path / "x.parquet")
    with pytest.raises(EngineError, match="could not be opened by Spark; Spark cannot read time stamps in nanoseconds"):
        counts_of(tmp_path / "x.parquet", "spark")


def test_time_stamps_of_96_bits_are_refused_as_days(tmp_path: Path) -> None:
    times = pa.table({"x": pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    schema = Schema("people", (Column("x", "date", low=DAY.toordinal(), high=DAY.toordinal() + 2),))
    with pytest.raises(DataError, match="the date of a time with a zone depends on the zone"):
        counts_of(tmp_path / "x.parquet", "spark", schema)


@pytest.mark.parametrize("extreme", [[], [9223372036854776]], ids=["without", "with a far one"])
def test_time_stamps_in_milliseconds_are_refused_whatever_their_values(extreme: list[int], tmp_path: Path) -> None:
    """Spark fails on a value that overflows in microseconds, but only in questions that read its column."""
    times = pa.array([0, *extreme], pa.timestamp("ms"))
    pq.write_table(pa.table({"x": [1] * len(times), "day": times}), tmp_path / "x.parquet")
    days = Column("day", "date", low=DAY.toordinal(), high=DAY.toordinal() + 2)
    with pytest.raises(
        DataError, match=r"column day: Spark fails on time stamps in milliseconds .* or count with DuckDB"
    ):
        counts_of(tmp_path / "x.parquet", "spark", Schema("people", (*ONE.columns, days)))
    assert counts_of(tmp_path / "x.parquet", "spark") == [0, len(times), *[0] * 8], "columns that nobody asks about"


def test_duckdb_and_spark_ignore_the_same_unreadable_ids(tmp_path: Path) -> None:
    names = pa.array([b"a\xff", b"a\xfe", b"who?", b"\xef\xbf\xbd", b"b", b"b", None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    pq.write_table(pa.table({"who": text, "x": [1, 1, 1, 2, 3, 3, 4]}), tmp_path / "x.parquet")
    schema = Schema("people", ONE.columns, unit="who", rows_per_person=2)
    for engine in ("duckdb", "spark"):
        assert counts_of(tmp_path / "x.parquet", engine, schema) == [0, 0, 1, 2, *[0] * 6]


def test_floats_are_accepted_as_ids_and_codes_only_while_they_are_exact_integers(tmp_path: Path) -> None:
    ids = [2.0**53, 2.0**53 + 2, 2.0**53 - 1, 1.5, float("inf"), float("nan"), None, 7.0, 7.0, -0.0]
    table = {"person": pa.array(ids, pa.float64()), "x": [5.0] * 10, "y": pa.array([5] * 10, pa.float32())}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    declared = Column("x", "text", ("5", "5.0")), Column("y", "text", ("5",))
    for name in ("duckdb", "spark"):
        schema = Schema("people", declared, "person")
        source = Source("rows.parquet", directory=tmp_path, engine=name)
        engine = open_engine(source, schema)
        found = [engine.count(ask(schema, dataset="people", by=by), salt=b"").tolist() for by in ((), "x", "y")]
        engine.close()
        assert found == [[3], [3, 0], [3]], name
        with pytest.raises(DataError, match="people are identified by integers or text, not single values"):
            open_engine(source, Schema("people", declared[:1], "y"))


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.name)
def test_labels_in_files_equal_those_of_collected_tables(column: Column) -> None:
    before, after = Column("before", "text", ("x", "y")), Column("z", "integer", low=0, high=2)
    question = ask(Schema("people", (before, column, after)), by=["before", column.name, "z"])
    found = [labels.lookup()(np.arange(question.cells)).to_pylist() for labels in labels_of(question)]
    expected = [(b, k, z) for b in "xy" for k in column.key_labels() for z in range(3)]
    assert list(zip(*found, strict=True)) == expected


def test_the_column_of_counts_differs_in_name_from_group_columns() -> None:
    schema = Schema("people", (Column("COUNT", "integer", low=0, high=2),))
    assert count_name(ask(schema, by=["COUNT"])) == "count_released"
    assert count_name(ask(schema)) == "count"


@pytest.mark.parametrize("output", ["", 3, None, "a\x00b", "/proc/nothing/here", "/proc", "/sys"])
def test_an_output_that_is_not_a_folder_is_refused(output: object, config: Path) -> None:
    with Curator.open(config) as curator, pytest.raises(ParameterError, match="output: got"):
        curator.count_to_parquet(output=output, **ASKED)  # type: ignore[arg-type]
    assert charged(config) == 0


def test_the_noise_of_a_cell_does_not_depend_on_the_order_of_cells(config: Path) -> None:
    with Curator.open(config) as curator:
        mechanism = curator.mechanism("people")
    cells = np.array([5, 6, 7, 100, 3, 4, 2**40])
    counts = np.array([0, 1, 2, 3, 4, 5, 6])
    found = spark_release.draw_cells(mechanism, cells, counts, NoiseKey(bytes(32)))
    alone = [
        mechanism.sampler.release(counts[i : i + 1], NoiseKey(bytes(32)), first=int(c))[0] for i, c in enumerate(cells)
    ]
    assert found.tolist() == alone
    assert spark_release.draw_cells(mechanism, cells[:0], counts[:0], NoiseKey()).tolist() == []


def test_an_incomplete_table_in_files_is_refused(tmp_path: Path) -> None:
    question = ask(Schema("people", KINDS), by=["range"])
    parquet_results.write_counts(question, np.array([1, 2]), tmp_path / "table")
    with pytest.raises(EngineError, match="incomplete"):
        parquet_results.make_manifest(tmp_path / "table", "table", question, "workers", "count")


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'countveil[spark]'")
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="Java 17"):
        engine_module.session()


def test_without_pyspark_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"countveil\[spark\]\""):
        engine_module.session()


WRONG = """
import os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.argv[1]
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pathlib import Path
from countveil.curator import parquet_results
from countveil.curator.curator import Curator
parquet_results.COLLECTED = 10
try:
    Curator.open(sys.argv[2]).count_to_parquet(dataset="people", by=["half", "age"], output=sys.argv[3])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_workers_with_another_python_are_reported_with_the_setting_to_change(config: Path, tmp_path: Path) -> None:
    """The configured Python does not exist. The charge is kept and can be answered later."""
    words = [sys.executable, "-c", WRONG, str(tmp_path / "no" / "python"), str(config), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.startswith("EngineError the Spark workers run another Python"), done.stdout + done.stderr[-2000:]
    assert "PYSPARK_PYTHON" in done.stdout
    assert os.listdir(tmp_path / "out") == []
    assert charged(config) == 1
