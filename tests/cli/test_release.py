"""`countveil release` on real files: the columns it keeps and adds, its refusals, and that no partial file remains."""

from __future__ import annotations

import csv
import datetime
import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import countveil as cv
from countveil import cli
from countveil.cli.output import clip
from countveil.release import table_files
from countveil.sampling.sampler import Sampler

ADDED = ["margin_95", "certain_low", "certain_high"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module", params=["signed", "remap"])
def mechanism_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _save_mechanism(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def signed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _save_mechanism("signed", tmp_path_factory)


def _save_mechanism(kind: str, folders: pytest.TempPathFactory) -> Path:
    """Signed: one law for all counts. Remap: a law for each small count, and no negative result."""
    design = {"policy": "signed"} if kind == "signed" else {"method": "remap"}
    path = folders.mktemp("mechanism") / f"{kind}.json"
    cv.design(epsilon="0.5", delta="1e-4", **design).save(path)  # type: ignore[arg-type]
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with its error handling in this process."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["countveil", "release", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        text = capsys.readouterr()
        return Done(int(stopped.value.code or 0), text.out, text.err)

    return run


def environment(*first: Path) -> dict[str, str]:
    """Variables for a new process, with `first` before this countveil on the import path."""
    folders = [*first, Path(cv.__file__).parents[1]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header, rows


def check_noise(mechanism: cv.Mechanism, n: Any, y: Any, margin: Any, low: Any, high: Any) -> None:
    """The noise is within the worst error; the margins depend on y alone and contain the count."""
    n, y = np.array(n, dtype=np.int64), np.array(y, dtype=np.int64)
    assert np.abs(y - n).max() <= mechanism.certificate.worst_error
    assert set(map(int, margin)) == {mechanism.margin_95}
    least, most = mechanism.bounds(y)
    assert np.array_equal(np.array(low, dtype=np.int64), least)
    assert np.array_equal(np.array(high, dtype=np.int64), most)
    assert (least <= n).all()
    assert (n <= most).all()


# Columns kept and added

AWKWARD = [
    "plain",
    "a,b",
    'say "no"',
    "two\nlines",
    "car\rriage",
    "dos\r\nlines",
    "Žižkov 東京 🎈",
    " padded ",
    "",
    "007",
    "'",
]


def test_csv_keeps_other_columns_and_adds_margins(mechanism_file: Path, tmp_path: Path, run: Run) -> None:
    rows = [[text, n, f"note {text}"] for n in (0, 1, 2, 7, 40, 10**12) for text in AWKWARD]
    write_csv(tmp_path / "in.csv", ["place, name", "n", "note"], rows)
    done = run(tmp_path / "in.csv", "--column", "n", "-m", mechanism_file, "-o", tmp_path / "out.csv")
    assert done.code == 0
    assert done.out == ""
    header, out_rows = read_csv(tmp_path / "out.csv")
    assert header == ["place, name", "n", "note", *ADDED]
    assert [[row[0], row[2]] for row in out_rows] == [[row[0], row[2]] for row in rows]
    columns = list(zip(*out_rows, strict=True))
    check_noise(cv.Mechanism.load(mechanism_file), [row[1] for row in rows], columns[1], *columns[3:])
    assert [int(y) for y in columns[1]] != [row[1] for row in rows]
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "out.csv"]


def test_parquet_keeps_other_columns_and_drops_metadata(mechanism_file: Path, tmp_path: Path, run: Run) -> None:
    size = 300
    counts = np.arange(size) % 50
    zone = pa.timestamp("us", tz="Europe/Prague")
    others = {
        "name": pa.array([AWKWARD[i % len(AWKWARD)] for i in range(size)]),
        "level": pa.array([["low", "high", None][i % 3] for i in range(size)]).dictionary_encode(),
        "when": pa.array([datetime.datetime(2024, 1, 1 + i % 28) for i in range(size)], type=zone),
        "share": pa.array([None if i % 7 == 0 else i / 7 for i in range(size)]),
        "list": pa.array([[i, None] if i % 2 else None for i in range(size)]),
    }
    secret = {"total": str(counts.sum())}
    table = pa.table({"name": others["name"], "n": pa.array(counts, pa.int16()), **others}).replace_schema_metadata(
        secret
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=70)
    done = run(tmp_path / "in.parquet", "--column", "n", "-m", mechanism_file, "-o", tmp_path / "out.parquet")
    assert done.code == 0, done.err
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.column_names == [*table.column_names, *ADDED]
    for name in others:
        assert out[name].to_pylist() == table[name].to_pylist()
        assert out.schema.field(name).type == table.schema.field(name).type
    assert out.schema.field("n").type == pa.int64()
    assert not out.schema.metadata, "metadata may hold true totals"
    mechanism = cv.Mechanism.load(mechanism_file)
    check_noise(mechanism, counts, *(out[name].to_numpy() for name in ["n", *ADDED]))
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.uint8(), pa.uint64(), pa.int32()], ids=str)
def test_parquet_columns_of_every_numeric_type_are_released(
    kind: pa.DataType, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    pq.write_table(pa.table({"n": pa.array([0, 5, 200], kind)}), tmp_path / "in.parquet")
    done = run(tmp_path / "in.parquet", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.parquet")
    assert done.code == 0, done.err
    out = pq.read_table(tmp_path / "out.parquet")
    check_noise(cv.Mechanism.load(signed_file), [0, 5, 200], *(out[name].to_numpy() for name in ["n", *ADDED]))


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["unix", "dos"])
def test_csv_keeps_line_ends_and_byte_order_mark(
    start: bytes, end: bytes, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "in.csv").write_bytes(start + end.join([b"n,a", b'+12,"x\ry"', b"007,z"]))
    done = run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.csv")
    assert done.code == 0, done.err
    content = (tmp_path / "out.csv").read_bytes()
    head, first, second, nothing = content.split(end)
    assert head == start + b"n,a,margin_95,certain_low,certain_high"
    assert b',"x\ry",' in first
    assert b",z," in second
    assert nothing == b""


def test_a_table_without_rows_is_released(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("n\n")
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "in.parquet")
    for kind in ("csv", "parquet"):
        out = tmp_path / f"out.{kind}"
        assert run(tmp_path / f"in.{kind}", "--column", "n", "-m", signed_file, "-o", out).code == 0
    assert (tmp_path / "out.csv").read_text() == f"n,{','.join(ADDED)}\n"
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["n", *ADDED]


def test_the_option_null_as_zero_counts_missing_values_as_0(signed_file: Path, tmp_path: Path, run: Run) -> None:
    mechanism = cv.Mechanism.load(signed_file)
    write_csv(tmp_path / "in.csv", ["a", "n"], [["x", ""], ["y", "9"], ["z", ""]])
    options = ("--column", "n", "-m", signed_file, "--null-as-zero")
    assert run(tmp_path / "in.csv", *options, "-o", tmp_path / "out.csv").code == 0
    columns = list(zip(*read_csv(tmp_path / "out.csv")[1], strict=True))
    check_noise(mechanism, [0, 9, 0], *columns[1:])
    for kind in (pa.int64(), pa.float64()):
        pq.write_table(pa.table({"n": pa.array([None, 9, None], kind)}), tmp_path / "in.parquet")
        assert run(tmp_path / "in.parquet", *options, "-o", tmp_path / "out.parquet").code == 0
        out = pq.read_table(tmp_path / "out.parquet")
        check_noise(mechanism, [0, 9, 0], *(out[name].to_numpy() for name in ["n", *ADDED]))


def test_the_summary_states_the_guarantee_and_its_conditions(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_csv(tmp_path / "in.csv", ["n"], [[5], [6]])
    done = run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.csv", "--json")
    mechanism = cv.Mechanism.load(signed_file)
    assert json.loads(done.out) == {
        "schema_version": 1,
        "output": str(tmp_path / "out.csv"),
        "rows": 2,
        "columns": ["n"],
        "unchanged_columns": [],
        "disjoint": False,
        "mechanism_hash": mechanism.hash,
        "epsilon": "0.5",
        "delta": mechanism.describe()["delta"],
        "per_column": {"epsilon": "0.5", "delta": mechanism.describe()["delta"]},
        "sensitivity": 1,
        "margin_95": mechanism.margin_95,
    }
    for words in ("released 2 counts", "epsilon 0.5, delta ", "adds at most 1", "spends privacy again"):
        assert words in done.err
    assert "no other column is published unchanged" in done.err


# Several columns

FEW = {"region": ["N", "S", "W"], "F": [0, 7, 40], "M": [3, 10**6, 1], "T": [3, 10**6 + 7, 41]}


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    if path.suffix == ".csv":
        write_csv(path, list(columns), list(zip(*columns.values(), strict=True)))
    else:
        pq.write_table(pa.table(columns), path)


def read_table(path: Path) -> dict[str, list[Any]]:
    if path.suffix == ".parquet":
        return dict(pq.read_table(path).to_pydict())
    header, rows = read_csv(path)
    return {name: list(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_chosen_column_gets_noise_and_margins_of_its_own(
    kind: str, mechanism_file: Path, tmp_path: Path, run: Run
) -> None:
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    columns = {name: values * 200 for name, values in FEW.items()}
    write_table(source, columns)
    done = run(source, "--column", "M", "--column", "F", "-m", mechanism_file, "-o", target)
    assert done.code == 0, done.err
    out = read_table(target)
    added = [f"{name}_{added}" for name in ("M", "F") for added in ADDED]
    assert list(out) == ["region", "F", "M", "T", *added]
    assert out["region"] == columns["region"]
    assert list(map(int, out["T"])) == columns["T"]
    for name in ("F", "M"):
        margins = [out[f"{name}_{added}"] for added in ADDED]
        check_noise(cv.Mechanism.load(mechanism_file), columns[name], out[name], *margins)
        assert list(map(int, out[name])) != columns[name]


def test_columns_do_not_share_noise(signed_file: Path, tmp_path: Path) -> None:
    """Both columns have the same counts: with shared noise, their results would be equal in every row."""
    write_table(tmp_path / "in.csv", {"F": [100] * 500, "M": [100] * 500})
    table_files.release_table(cv.Mechanism.load(signed_file), tmp_path / "in.csv", ("F", "M"), tmp_path / "out.csv")
    out = read_table(tmp_path / "out.csv")
    assert sum(f != m for f, m in zip(out["F"], out["M"], strict=True)) > 200


@pytest.mark.parametrize("file", ["signed", "remap"])
def test_the_guarantee_of_several_columns_is_that_of_their_composition(
    file: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, run: Run
) -> None:
    """Epsilon is above that of one column, at most that of basic composition, and at most 2 % above the least one."""
    mechanism_file = _save_mechanism(file, tmp_path_factory)
    mechanism = cv.Mechanism.load(mechanism_file)
    write_table(tmp_path / "in.csv", FEW)
    options = ("--column", "F", "--column", "M", "--column", "T")
    done = run(tmp_path / "in.csv", *options, "-m", mechanism_file, "-o", tmp_path / "out.csv", "--json")
    summary = json.loads(done.out)
    assert summary["columns"] == ["F", "M", "T"]
    assert summary["unchanged_columns"] == ["region"]
    assert summary["per_column"] == {"epsilon": "0.5", "delta": mechanism.describe()["delta"]}
    epsilon, delta = Fraction(summary["epsilon"]), Fraction(summary["delta"])
    assert Fraction("0.5") < epsilon <= Fraction("1.5")
    assert 3 * mechanism.delta <= delta <= 3 * mechanism.delta * (1 + Fraction(1, 10**12))
    composition = cv.compose(mechanism, 3, fine=True)
    assert composition.upper(float(epsilon)) <= float(delta) * (1 + 1e-9)
    assert composition.lower(float(epsilon) * 0.98) > float(delta)
    assert "released 3 counts of each of the 3 columns F, M, T to " in done.err
    assert "1 other column is published unchanged: region" in done.err
    assert f"guarantee of all columns together: epsilon {clip(summary['epsilon'], 6, 'up')}, delta " in done.err


def test_disjoint_columns_together_have_the_guarantee_of_one_column(
    signed_file: Path, tmp_path: Path, run: Run
) -> None:
    write_table(tmp_path / "in.csv", FEW)
    options = ("--column", "F", "--column", "M", "--disjoint")
    done = run(tmp_path / "in.csv", *options, "-m", signed_file, "-o", tmp_path / "out.csv", "--json")
    summary = json.loads(done.out)
    assert {"epsilon": summary["epsilon"], "delta": summary["delta"]} == summary["per_column"]
    assert summary["disjoint"] is True
    assert summary["unchanged_columns"] == ["region", "T"]
    assert "2 other columns are published unchanged: region, T" in done.err
    assert "guarantee: epsilon 0.5, delta " in done.err
    assert "counted in one row of one of the columns" in done.err


def test_the_python_function_states_the_guarantee_of_composed_and_of_disjoint_columns(
    signed_file: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "in.csv", FEW)
    mechanism = cv.Mechanism.load(signed_file)
    arguments = (mechanism, tmp_path / "in.csv", ["F", "M"], tmp_path / "out.csv")
    both, apart = table_files.release_table(*arguments), table_files.release_table(*arguments, disjoint=True)
    assert (both.rows, both.columns, both.unchanged) == (3, ("F", "M"), ("region", "T"))
    assert (apart.epsilon, apart.delta) == (mechanism.epsilon, mechanism.delta)
    assert mechanism.epsilon < both.epsilon <= 2 * mechanism.epsilon
    assert both.delta == 2 * mechanism.delta
    with pytest.raises(cv.ParameterError, match="column: got none"):
        table_files.release_table(mechanism, tmp_path / "in.csv", [], tmp_path / "out.csv")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["F", "F"], "column: got F more than once, allowed is each column once"),
        (["F", "X"], "column: got X, allowed is a column of the table: region, F, M, T"),
        (["F", "region"], "region"),
        (["F", "--disjoint"], "disjoint: got one column, allowed is two columns or more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_columns_that_are_unknown_or_repeated_or_text_are_refused(
    kind: str, names: list[str], words: str, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    write_table(source, FEW)
    options = [word for name in names for word in (["--column", name] if name[0] != "-" else [name])]
    done = run(source, *options, "-m", signed_file, "-o", target)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_table_separated_by_semicolons_is_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("region;n\nNorth;3\n")
    done = run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "a CSV table must be separated by commas" in done.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_message_for_a_bad_count_names_its_column_and_row(
    kind: str, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    write_table(tmp_path / f"in.{kind}", {**FEW, "M": [3, -4, 1]})
    out = tmp_path / f"out.{kind}"
    done = run(tmp_path / f"in.{kind}", "--column", "F", "--column", "M", "-m", signed_file, "-o", out)
    assert done.code == 2
    assert "count of M in row 2: got -4" in done.err
    assert not out.exists()


def test_a_table_that_has_an_added_column_already_is_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_table(tmp_path / "in.csv", {**FEW, "M_certain_low": [0, 0, 0], "margin_95": [1, 1, 1]})
    arguments = (tmp_path / "in.csv", "-m", signed_file, "-o", tmp_path / "out.csv", "--column", "F")
    assert "a table with the column margin_95" in run(*arguments).err
    assert "a table with the column M_certain_low" in run(*arguments, "--column", "M").err
    assert run(*arguments, "--column", "T").code == 0


# Batches

BATCHED = 1000


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_row_has_noise_of_its_own(
    kind: str, signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One noise key for the file, and each cell number once: a repeated key or number would repeat noise."""
    monkeypatch.setattr(table_files, "CSV_BATCH", BATCHED)
    monkeypatch.setattr(table_files, "PARQUET_BATCH", BATCHED)
    calls: list[tuple[object, int, int]] = []
    real = Sampler.release

    def recording_release(sampler: Sampler, counts: Any, key: Any, first: int = 0) -> Any:
        calls.append((key, first, len(counts)))
        return real(sampler, counts, key, first=first)

    monkeypatch.setattr(Sampler, "release", recording_release)
    size = 5 * BATCHED + 300
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    if kind == "csv":
        write_csv(source, ["n"], [[100]] * size)
    else:
        pq.write_table(pa.table({"n": [100] * size}), source, row_group_size=1700)
    steps: list[tuple[int, int]] = []
    done = table_files.release_table(
        cv.Mechanism.load(signed_file), source, "n", target, progress=lambda done, total: steps.append((done, total))
    )
    assert done.rows == size
    assert len({id(key) for key, _, _ in calls}) == 1
    cells = [cell for _, first, length in calls for cell in range(first, first + length)]
    assert cells == list(range(size))
    assert len(calls) >= 6
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    if kind == "csv":
        noisy = np.array([int(row[0]) for row in read_csv(target)[1]])
    else:
        noisy = pq.read_table(target)["n"].to_numpy()
    parts = noisy[: 5 * BATCHED].reshape(5, BATCHED)
    for i in range(5):
        for j in range(i):
            assert (parts[i] != parts[j]).mean() > 0.3


def test_two_releases_of_one_table_differ(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_csv(tmp_path / "in.csv", ["n"], [[100]] * 500)
    for name in ("one.csv", "two.csv"):
        assert run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / name).code == 0
    assert (tmp_path / "one.csv").read_bytes() != (tmp_path / "two.csv").read_bytes()


@pytest.mark.slow  # a process for every command
def test_a_large_csv_is_streamed(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory in use depends on the batch, not on the file."""
    monkeypatch.setattr(table_files, "CSV_BATCH", 5_000)
    source = tmp_path / "in.csv"
    size = 250_000
    source.write_text("place,n\n" + "".join(f"place {'x' * 60} {i},{i % 90}\n" for i in range(size)))
    mechanism = cv.Mechanism.load(signed_file)
    mechanism.release(np.arange(9))  # builds the guide tables before memory is measured
    tracemalloc.start()
    try:
        assert table_files.release_table(mechanism, source, "n", tmp_path / "out.csv").rows == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert source.stat().st_size > 18_000_000
    assert peak < 6_000_000


def test_a_large_parquet_is_streamed(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that pyarrow has allocated after each batch does not grow with the rows."""
    monkeypatch.setattr(table_files, "PARQUET_BATCH", 20_000)
    size, source = 50_000, tmp_path / "in.parquet"
    noise = np.random.default_rng(1)
    with pq.ParquetWriter(source, pa.schema([("a", pa.int64()), ("n", pa.int64())])) as writer:
        for _ in range(60):
            writer.write_table(pa.table({"a": noise.integers(0, 2**60, size), "n": noise.integers(0, 900, size)}))
    assert source.stat().st_size > 25_000_000
    before, allocated = pa.total_allocated_bytes(), []
    table_files.release_table(
        cv.Mechanism.load(signed_file),
        source,
        "n",
        tmp_path / "out.parquet",
        progress=lambda done, total: allocated.append(pa.total_allocated_bytes() - before),
    )
    assert len(allocated) >= 100
    assert max(allocated) < 12_000_000


# Refusals

CSV_REFUSALS = {
    "negative": (b"a,n\nx,1\ny,-3\n", "count in row 2: got -3, allowed is whole numbers from 0 to "),
    "fractional": (b"a,n\nx,2.5\n", "count in row 1: got 2.5, "),
    "written as float": (b"a,n\nx,12.0\n", "count in row 1: got 12.0, "),
    "exponent": (b"a,n\nx,1e3\n", "plain digits, such as 12 or +12"),
    "text": (b"a,n\nx,1\ny,2\nz,many\n", "count in row 3: got many, "),
    "underscore": (b"a,n\nx,1_000\n", "count in row 1: got 1_000, "),
    "padded": (b"a,n\nx, 7\n", "count in row 1: got 7, "),
    "other digits": ("a,n\nx,１２\n".encode(), "count in row 1: got １２, "),
    "two signs": (b"a,n\nx,++1\n", "count in row 1: got ++1, "),
    "NaN": (b"a,n\nx,nan\n", "count in row 1: got nan, "),
    "word NULL": (b"a,n\nx,NULL\n", "count in row 1: got NULL, "),
    "control characters": (b"a,n\nx,\x1b[31m\n", "count in row 1: got ?[31m, "),
    "empty": (b"a,n\nx,1\ny,\n", "count in row 2: got an empty field, "),
    "empty, how to go on": (b"a,n\nx,\n", "--null-as-zero counts it as 0"),
    "2^63": (b"a,n\nx,9223372036854775808\n", "count in row 1: got 9223372036854775808, "),
    "2^63 - 1": (b"a,n\nx,9223372036854775807\n", "count in row 1: got 9223372036854775807, "),
    "2^64": (b"a,n\nx,18446744073709551616\n", "count in row 1: got 18446744073709551616, "),
    "5,000 digits": (b"a,n\nx," + b"9" * 5000 + b"\n", "count in row 1: got 99999"),
    "too few fields": (b"a,n\nx,1\n2\n", "row 2: got 1 field, allowed is 2 fields, as in the header"),
    "too many fields": (b"a,n\nx,1,2\n", "row 1: got 3 fields, allowed is 2 fields, as in the header"),
    "empty line": (b"a,n\nx,1\n\ny,2\n", "row 2: got an empty line, "),
    "missing column": (b"a,b c\nx,1\n", "column: got n, allowed is a column of the table: a, b c"),
    "another separator": (b"a;n\nx;1\n", "column: got n, allowed is a column of the table: a;n"),
    "column twice": (b"n,n\n1,2\n", "table: got more than one column n, "),
    "other column twice": (b"a,n,a\n1,2,3\n", "table: got more than one column a, "),
    "column taken": (b"margin_95,n\n1,2\n", "table: got a table with the column margin_95, "),
    "empty file": (b"", "a file with a header line"),
    "empty header": (b"\na,n\nx,1\n", "a file with a header line"),
    "undecodable": (b"a,n\nx,1\nPra\x8e,2\n", "row 2: got bytes that are not UTF-8, "),
    "undecodable count": (b"a,n\nx,1\ny,\xff2\n", "count in row 2: got "),
    "undecodable header": (b"a\xff,n\nx,1\n", "header: got bytes that are not UTF-8, "),
    "UTF-16": ("a,n\nx,1\n".encode("utf-16"), "header: got bytes that are not UTF-8, "),
    "open quote": (b'a,n\nx,1\n"y,2\n', "row 2: got unexpected end of data, "),
    "text after a quote": (b'a,n\n"x"y,1\n', "row 1: got "),
    "open quote in the header": (b'a,"n\nx,1\n', "header: got unexpected end of data, "),
}


def check_refusal(
    run: Run, folder: Path, source: Path, mechanism: Path, words: str, output: Path, *options: str
) -> None:
    """Check for exit code 2, one line, and an unchanged folder."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = run(source, "--column", "n", "-m", mechanism, "-o", output, *options)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("countveil: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert len(done.err) < 400
    assert words in done.err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("case", CSV_REFUSALS)
def test_a_bad_csv_file_is_refused(case: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    content, words = CSV_REFUSALS[case]
    (tmp_path / "in.csv").write_bytes(content)
    check_refusal(run, tmp_path, tmp_path / "in.csv", signed_file, words, tmp_path / "out.csv")


def column(values: Sequence[object], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"a": pa.array(range(len(values))), "n": pa.array(values, kind)})


PARQUET_REFUSALS = {
    "negative": (column([1, -3]), "count in row 2: got -3, "),
    "fractional": (column([1.0, 2.0, 2.5]), "count in row 3: got 2.5, "),
    "negative float": (column([-1.0]), "count in row 1: got -1.0, "),
    "NULL": (column([1, 2, None]), "count in row 3: got NULL, "),
    "NULL, how to go on": (column([None, 1.0]), "--null-as-zero counts it as 0"),
    "NaN": (column([1.0, float("nan")]), "count in row 2: got NaN, "),
    "infinite": (column([float("inf")]), "count in row 1: got inf, "),
    "2^63": (column([1, 2**63], pa.uint64()), "count in row 2: got 9223372036854775808, "),
    "2^63 - 1": (column([2**63 - 1]), "count in row 1: got 9223372036854775807, "),
    "beyond exact floats": (column([1e300]), "count in row 1: got 1e+300, "),
    "decimal": (column([Decimal("1.00")]), "column: got n of type decimal128(3, 2), "),
    "bool": (column([True]), "column: got n of type bool, "),
    "string": (column(["1"]), "column: got n of type string, "),
    "date": (column([datetime.date(2024, 1, 1)]), "column: got n of type date32[day], "),
    "nothing but NULL": (column([None]), "column: got n of type null, "),
    "missing column": (pa.table({"a": [1], "b": [2]}), "column: got n, allowed is a column of the table: a, b"),
    "column twice": (pa.Table.from_arrays([pa.array([1])] * 2, ["n", "n"]), "more than one column n, "),
    "column taken": (pa.table({"n": [1], "certain_low": [2]}), "a table with the column certain_low, "),
}


@pytest.mark.parametrize("case", PARQUET_REFUSALS)
def test_a_bad_parquet_column_is_refused(case: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    table, words = PARQUET_REFUSALS[case]
    pq.write_table(table, tmp_path / "in.parquet")
    check_refusal(run, tmp_path, tmp_path / "in.parquet", signed_file, words, tmp_path / "out.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"a,n\nx,1\n", b"PAR1" + bytes(100) + b"PAR1"], ids=["empty", "CSV", "broken"]
)
def test_a_file_that_is_not_parquet_is_refused(content: bytes, signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.parquet").write_bytes(content)
    words = "allowed is a Parquet file that can be read ("
    check_refusal(run, tmp_path, tmp_path / "in.parquet", signed_file, words, tmp_path / "out.parquet")


def test_a_parquet_file_with_broken_pages_is_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    pq.write_table(column(list(range(5000))), tmp_path / "in.parquet", use_dictionary=False, write_page_checksum=True)
    content = bytearray((tmp_path / "in.parquet").read_bytes())
    content[len(content) // 4] ^= 1
    (tmp_path / "in.parquet").write_bytes(content)
    check_refusal(run, tmp_path, tmp_path / "in.parquet", signed_file, "can be read (", tmp_path / "out.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_row_number_in_a_message_counts_across_batches(
    kind: str, signed_file: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "CSV_BATCH", 100)
    monkeypatch.setattr(table_files, "PARQUET_BATCH", 100)
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    for wrong, words in ((-1, "count in row 778: got -1, "), (None, "count in row 778: got ")):
        values = [1] * 777 + [wrong] + [1] * 50
        if kind == "csv":
            write_csv(source, ["a", "n"], [["x", "" if n is None else n] for n in values])
        else:
            pq.write_table(column(values), source)
        check_refusal(run, tmp_path, source, signed_file, words, target)
    if kind == "csv":
        lines = [b"a,n", *[b"x,1"] * 777]
        source.write_bytes(b"\n".join([*lines, b"\xe9,1"]))
        check_refusal(run, tmp_path, source, signed_file, "row 778: got bytes that are not UTF-8", target)
        source.write_bytes(b"\n".join([*lines, b"x"]))
        check_refusal(run, tmp_path, source, signed_file, "row 778: got 1 field", target)
        source.write_bytes(b"\n".join([*lines, b'"x']))
        check_refusal(run, tmp_path, source, signed_file, "row 778: got unexpected end of data", target)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_largest_count_is_released_and_a_larger_one_refused(
    kind: str, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    """The certain range of the largest count fits into 64 bits; a larger count could overflow and is refused."""
    mechanism = cv.Mechanism.load(signed_file)
    largest = 2**63 - 1 - 2 * mechanism.certificate.worst_error
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    for n in (largest + 1, largest):
        if kind == "csv":
            write_csv(source, ["a", "n"], [["x", 1], ["y", n]])
        else:
            pq.write_table(column([1, n]), source)
        if n > largest:
            words = f"count in row 2: got {n}, allowed is whole numbers from 0 to {largest}"
            check_refusal(run, tmp_path, source, signed_file, words, target)
    assert run(source, "--column", "n", "-m", signed_file, "-o", target).code == 0
    if kind == "csv":
        columns = list(zip(*read_csv(target)[1], strict=True))[1:]
    else:
        columns = [tuple(pq.read_table(target)[name].to_pylist()) for name in ["n", *ADDED]]
    check_noise(mechanism, [1, largest], *columns)


def test_the_option_null_as_zero_still_refuses_other_bad_counts(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,\ny,-1\n")
    pq.write_table(column([None, float("nan")]), tmp_path / "in.parquet")
    for kind, words in (("csv", "count in row 2: got -1, "), ("parquet", "count in row 2: got NaN, ")):
        source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
        check_refusal(run, tmp_path, source, signed_file, words, target, "--null-as-zero")


def test_paths_that_cannot_be_read_or_written_are_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    (tmp_path / "in.txt").write_text("a,n\nx,1\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "in.csv")
    cases = [
        ("in.csv", "in.csv", "a file other than the table"),
        ("in.csv", "link.csv", "a file other than the table"),
        ("link.csv", "in.csv", "a file other than the table"),
        ("in.csv", "missing/out.csv", "a path that can be written (No such file or directory)"),
        ("in.csv", "in.txt/out.csv", "a path that can be written (Not a directory)"),
        ("in.csv", "folder.csv", "a path that can be written (this is a folder)"),
        ("in.csv", f"{'x' * 300}.csv", "a path that can be written (File name too long)"),
        ("in.csv", "out.xlsx", "a name that ends in .csv or .parquet"),
        ("in.csv", "out", "a name that ends in .csv or .parquet"),
        ("in.txt", "out.csv", "table: got "),
        ("in.csv", "out.parquet", "the format of the table, a name that ends in .csv"),
        ("none.csv", "out.csv", "the path of a CSV or Parquet file (there is no such file)"),
        ("none.parquet", "out.parquet", "the path of a CSV or Parquet file (there is no such file)"),
        ("folder.csv", "out.csv", "the path of a CSV or Parquet file (this is not a file)"),
    ]
    for source, target, words in cases:
        check_refusal(run, tmp_path, tmp_path / source, signed_file, words, tmp_path / target)
    assert not list((tmp_path / "folder.csv").iterdir())
    check_refusal(
        run, tmp_path, tmp_path / "in.csv", tmp_path / "no.json", "no.json: cannot be read", tmp_path / "out.csv"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_files_without_permission_are_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    check_refusal(run, tmp_path, tmp_path / "in.csv", signed_file, "Permission denied", closed / "out.csv")


def test_missing_options_are_refused_in_one_line(run: Run) -> None:
    for words in ((), ("in.csv",), ("in.csv", "--column", "n"), ("in.csv", "--column", "n", "-m", "m.json")):
        done = run(*words)
        assert done.code == 2
        assert done.err.count("\n") == 1


def test_a_full_disk_is_reported_for_the_output(
    signed_file: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    words = "a path that can be written (No space left on device)"
    check_refusal(run, tmp_path, tmp_path / "in.csv", signed_file, words, tmp_path / "out.csv")


def test_without_pyarrow_csv_is_released_and_parquet_is_refused(signed_file: Path, tmp_path: Path) -> None:
    """Parquet exits with 6 and says what to install; CSV does not need pyarrow."""
    (tmp_path / "shim").mkdir()
    (tmp_path / "shim" / "pyarrow.py").write_text("raise ImportError('not here')\n")
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    pq.write_table(column([1]), tmp_path / "in.parquet")
    for kind, code in (("parquet", 6), ("csv", 0)):
        words = ["release", f"in.{kind}", "--column", "n", "-m", str(signed_file), "-o", f"out.{kind}"]
        done = subprocess.run(
            [sys.executable, "-m", "countveil", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=environment(tmp_path / "shim"),
        )
        assert done.returncode == code, done.stderr
        if code:
            line = 'countveil: pyarrow is not installed; run: pip install "countveil[parquet]"\n'
            assert done.stderr == line
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "in.parquet", "out.csv", "shim"]


# No partial output


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("failure", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("planted"), 1), (MemoryError(), 1)], ids=repr
)
def test_an_interrupted_release_leaves_the_old_file(
    kind: str,
    failure: BaseException,
    code: int,
    signed_file: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_files, "CSV_BATCH", 100)
    monkeypatch.setattr(table_files, "PARQUET_BATCH", 100)
    real = Sampler.release
    parts: list[str] = []

    def failing(sampler: Sampler, counts: Any, key: Any, first: int = 0) -> Any:
        if first >= 300:
            parts.extend(path.name for path in tmp_path.iterdir() if path.suffix == ".part")
            raise failure
        return real(sampler, counts, key, first=first)

    monkeypatch.setattr(Sampler, "release", failing)
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    if kind == "csv":
        write_csv(source, ["n"], [[100]] * 1000)
    else:
        pq.write_table(pa.table({"n": [100] * 1000}), source)
    for old in (None, b"the old table"):
        if old:
            target.write_bytes(old)
        done = run(source, "--column", "n", "-m", signed_file, "-o", target)
        assert done.code == code
        assert len(done.err.split("\n")) <= 3
        assert done.err.strip().startswith("countveil: ")
        assert sorted(os.listdir(tmp_path)) == ([source.name, target.name] if old else [source.name])
        assert not old or target.read_bytes() == old
    assert len(parts) == 2, "the failure occurred while a partial file existed"


def test_no_true_count_reaches_the_disk(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise moves every count by 1,000,000, so no field of the output may be a true count."""
    monkeypatch.setattr(table_files, "CSV_BATCH", 10)
    monkeypatch.setattr(Sampler, "release", lambda sampler, counts, key, first=0: counts + 10**6)
    parts: list[bytes] = []
    real = os.replace

    def recording_replace(part: Path, target: Path) -> None:
        parts.append(Path(part).read_bytes())
        real(part, target)

    monkeypatch.setattr(os, "replace", recording_replace)
    secrets = [str(770_000 + i) for i in range(100)]
    write_csv(tmp_path / "in.csv", ["n"], [[n] for n in secrets])
    table_files.release_table(cv.Mechanism.load(signed_file), tmp_path / "in.csv", "n", tmp_path / "out.csv")
    header, rows = read_csv(tmp_path / "out.csv")
    assert len(parts) == 1
    assert not any(field in secrets for row in rows for field in row)
    assert header == ["n", *ADDED]


def test_an_interrupt_leaves_no_file_and_exits_with_130(signed_file: Path, tmp_path: Path) -> None:
    """The command receives a real SIGINT while it writes."""
    with (tmp_path / "in.csv").open("w") as file:
        file.write("n\n")
        file.writelines("7\n" for _ in range(2_000_000))
    command = [sys.executable, "-m", "countveil", "release", "in.csv", "--column", "n", "-m", str(signed_file)]
    with subprocess.Popen(
        [*command, "-o", "out.csv"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        while process.poll() is None and not any(p.stat().st_size > 100_000 for p in tmp_path.glob(".out.csv.*")):
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.strip() == "countveil: stopped"
    assert os.listdir(tmp_path) == ["in.csv"]
