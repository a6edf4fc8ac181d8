"""`countveil release` on real files: what it keeps, adds and refuses, and that it never leaves half a table."""

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
from countveil import cli, tables
from countveil.cli.output import short
from countveil.sampling.draw import Sampler

ADDED = ["margin_95", "certain_low", "certain_high"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module", params=["signed", "remap"])
def mechanism_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def signed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved("signed", tmp_path_factory)


def _saved(kind: str, folders: pytest.TempPathFactory) -> Path:
    """Signed: one law for all counts. Remap: small counts have laws of their own, and nothing is negative."""
    design = {"policy": "signed"} if kind == "signed" else {"method": "remap"}
    path = folders.mktemp("mechanism") / f"{kind}.json"
    cv.design(epsilon="0.5", delta="1e-4", **design).save(path)  # type: ignore[arg-type]
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with its own error handling, in this process."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["countveil", "release", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        text = capsys.readouterr()
        return Done(int(stopped.value.code or 0), text.out, text.err)

    return run


def environment(*first: Path) -> dict[str, str]:
    """For a new process that finds the countveil of this one, and before it what is in `first`."""
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
    """Within the worst error; the margins are functions of y alone, and hold."""
    n, y = np.array(n, dtype=np.int64), np.array(y, dtype=np.int64)
    assert np.abs(y - n).max() <= mechanism.certificate.worst_error
    assert set(map(int, margin)) == {mechanism.margin_95}
    least, most = mechanism.bounds(y)
    assert np.array_equal(np.array(low, dtype=np.int64), least)
    assert np.array_equal(np.array(high, dtype=np.int64), most)
    assert (least <= n).all()
    assert (n <= most).all()


# What is kept and what is added

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


def test_csv(mechanism_file: Path, tmp_path: Path, run: Run) -> None:
    rows = [[text, n, f"note {text}"] for n in (0, 1, 2, 7, 40, 10**12) for text in AWKWARD]
    write_csv(tmp_path / "in.csv", ["place, name", "n", "note"], rows)
    done = run(tmp_path / "in.csv", "--column", "n", "-m", mechanism_file, "-o", tmp_path / "out.csv")
    assert done.code == 0
    assert done.out == ""
    header, found = read_csv(tmp_path / "out.csv")
    assert header == ["place, name", "n", "note", *ADDED]
    assert [[row[0], row[2]] for row in found] == [[row[0], row[2]] for row in rows]
    columns = list(zip(*found, strict=True))
    check_noise(cv.Mechanism.load(mechanism_file), [row[1] for row in rows], columns[1], *columns[3:])
    assert [int(y) for y in columns[1]] != [row[1] for row in rows]
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "out.csv"]


def test_parquet(mechanism_file: Path, tmp_path: Path, run: Run) -> None:
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
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == [*table.column_names, *ADDED]
    for name in others:
        assert found[name].to_pylist() == table[name].to_pylist()
        assert found.schema.field(name).type == table.schema.field(name).type
    assert found.schema.field("n").type == pa.int64()
    assert not found.schema.metadata, "metadata may hold true totals"
    mechanism = cv.Mechanism.load(mechanism_file)
    check_noise(mechanism, counts, *(found[name].to_numpy() for name in ["n", *ADDED]))
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.uint8(), pa.uint64(), pa.int32()], ids=str)
def test_parquet_types_that_can_hold_counts(kind: pa.DataType, signed_file: Path, tmp_path: Path, run: Run) -> None:
    pq.write_table(pa.table({"n": pa.array([0, 5, 200], kind)}), tmp_path / "in.parquet")
    done = run(tmp_path / "in.parquet", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.parquet")
    assert done.code == 0, done.err
    found = pq.read_table(tmp_path / "out.parquet")
    check_noise(cv.Mechanism.load(signed_file), [0, 5, 200], *(found[name].to_numpy() for name in ["n", *ADDED]))


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["unix", "dos"])
def test_csv_keeps_line_ends_and_byte_order_mark(
    start: bytes, end: bytes, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "in.csv").write_bytes(start + end.join([b"n,a", b'+12,"x\ry"', b"007,z"]))
    done = run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.csv")
    assert done.code == 0, done.err
    written = (tmp_path / "out.csv").read_bytes()
    head, first, second, nothing = written.split(end)
    assert head == start + b"n,a,margin_95,certain_low,certain_high"
    assert b',"x\ry",' in first
    assert b",z," in second
    assert nothing == b""


def test_tables_without_rows(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("n\n")
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "in.parquet")
    for kind in ("csv", "parquet"):
        out = tmp_path / f"out.{kind}"
        assert run(tmp_path / f"in.{kind}", "--column", "n", "-m", signed_file, "-o", out).code == 0
    assert (tmp_path / "out.csv").read_text() == f"n,{','.join(ADDED)}\n"
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["n", *ADDED]


def test_null_as_zero(signed_file: Path, tmp_path: Path, run: Run) -> None:
    mechanism = cv.Mechanism.load(signed_file)
    write_csv(tmp_path / "in.csv", ["a", "n"], [["x", ""], ["y", "9"], ["z", ""]])
    options = ("--column", "n", "-m", signed_file, "--null-as-zero")
    assert run(tmp_path / "in.csv", *options, "-o", tmp_path / "out.csv").code == 0
    columns = list(zip(*read_csv(tmp_path / "out.csv")[1], strict=True))
    check_noise(mechanism, [0, 9, 0], *columns[1:])
    for kind in (pa.int64(), pa.float64()):
        pq.write_table(pa.table({"n": pa.array([None, 9, None], kind)}), tmp_path / "in.parquet")
        assert run(tmp_path / "in.parquet", *options, "-o", tmp_path / "out.parquet").code == 0
        found = pq.read_table(tmp_path / "out.parquet")
        check_noise(mechanism, [0, 9, 0], *(found[name].to_numpy() for name in ["n", *ADDED]))


def test_what_is_said(signed_file: Path, tmp_path: Path, run: Run) -> None:
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
def test_every_named_column_is_noised_with_margins_of_its_own(
    kind: str, mechanism_file: Path, tmp_path: Path, run: Run
) -> None:
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    columns = {name: values * 200 for name, values in FEW.items()}
    write_table(source, columns)
    done = run(source, "--column", "M", "--column", "F", "-m", mechanism_file, "-o", target)
    assert done.code == 0, done.err
    found = read_table(target)
    added = [f"{name}_{added}" for name in ("M", "F") for added in ADDED]
    assert list(found) == ["region", "F", "M", "T", *added]
    assert found["region"] == columns["region"]
    assert list(map(int, found["T"])) == columns["T"]
    for name in ("F", "M"):
        margins = [found[f"{name}_{added}"] for added in ADDED]
        check_noise(cv.Mechanism.load(mechanism_file), columns[name], found[name], *margins)
        assert list(map(int, found[name])) != columns[name]


def test_columns_do_not_share_noise(signed_file: Path, tmp_path: Path) -> None:
    """The same counts in both columns: a difference of 0 everywhere would show the noise of one in the other."""
    write_table(tmp_path / "in.csv", {"F": [100] * 500, "M": [100] * 500})
    tables.release_table(cv.Mechanism.load(signed_file), tmp_path / "in.csv", ("F", "M"), tmp_path / "out.csv")
    found = read_table(tmp_path / "out.csv")
    assert sum(f != m for f, m in zip(found["F"], found["M"], strict=True)) > 200


@pytest.mark.parametrize("file", ["signed", "remap"])
def test_the_guarantee_of_several_columns_is_composed(
    file: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, run: Run
) -> None:
    """Between what one column has and what basic composition adds up; an attack on all three needs most of it."""
    saved = _saved(file, tmp_path_factory)
    mechanism = cv.Mechanism.load(saved)
    write_table(tmp_path / "in.csv", FEW)
    named = ("--column", "F", "--column", "M", "--column", "T")
    done = run(tmp_path / "in.csv", *named, "-m", saved, "-o", tmp_path / "out.csv", "--json")
    said = json.loads(done.out)
    assert said["columns"] == ["F", "M", "T"]
    assert said["unchanged_columns"] == ["region"]
    assert said["per_column"] == {"epsilon": "0.5", "delta": mechanism.describe()["delta"]}
    epsilon, delta = Fraction(said["epsilon"]), Fraction(said["delta"])
    assert Fraction("0.5") < epsilon <= Fraction("1.5")
    assert 3 * mechanism.delta <= delta <= 3 * mechanism.delta * (1 + Fraction(1, 10**12))
    composition = cv.compose(mechanism, 3, fine=True)
    assert composition.upper(float(epsilon)) <= float(delta) * (1 + 1e-9)
    assert composition.lower(float(epsilon) * 0.98) > float(delta)
    assert "released 3 counts of each of the 3 columns F, M, T to " in done.err
    assert "1 other column is published unchanged: region" in done.err
    assert f"guarantee of all columns together: epsilon {short(said['epsilon'], 6, 'up')}, delta " in done.err


def test_disjoint_columns_have_the_guarantee_of_one(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_table(tmp_path / "in.csv", FEW)
    named = ("--column", "F", "--column", "M", "--disjoint")
    done = run(tmp_path / "in.csv", *named, "-m", signed_file, "-o", tmp_path / "out.csv", "--json")
    said = json.loads(done.out)
    assert {"epsilon": said["epsilon"], "delta": said["delta"]} == said["per_column"]
    assert said["disjoint"] is True
    assert said["unchanged_columns"] == ["region", "T"]
    assert "2 other columns are published unchanged: region, T" in done.err
    assert "guarantee: epsilon 0.5, delta " in done.err
    assert "counted in one row of one of the columns" in done.err


def test_python_states_the_same_guarantee(signed_file: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "in.csv", FEW)
    mechanism = cv.Mechanism.load(signed_file)
    ask = (mechanism, tmp_path / "in.csv", ["F", "M"], tmp_path / "out.csv")
    both, apart = tables.release_table(*ask), tables.release_table(*ask, disjoint=True)
    assert (both.rows, both.columns, both.unchanged) == (3, ("F", "M"), ("region", "T"))
    assert (apart.epsilon, apart.delta) == (mechanism.epsilon, mechanism.delta)
    assert mechanism.epsilon < both.epsilon <= 2 * mechanism.epsilon
    assert both.delta == 2 * mechanism.delta
    with pytest.raises(cv.ParameterError, match="column: got none"):
        tables.release_table(mechanism, tmp_path / "in.csv", [], tmp_path / "out.csv")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("named", "words"),
    [
        (["F", "F"], "column: got F twice, allowed is each column once"),
        (["F", "X"], "column: got X, allowed is a column of the table: region, F, M, T"),
        (["F", "region"], "region"),
        (["F", "--disjoint"], "disjoint: got one column, allowed is two columns or more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_columns_that_are_refused(
    kind: str, named: list[str], words: str, signed_file: Path, tmp_path: Path, run: Run
) -> None:
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    write_table(source, FEW)
    options = [word for name in named for word in (["--column", name] if name[0] != "-" else [name])]
    done = run(source, *options, "-m", signed_file, "-o", target)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_table_separated_by_semicolons_is_told_so(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("region;n\nNorth;3\n")
    done = run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "a CSV table is separated by commas" in done.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_bad_counts_are_named_with_their_column(kind: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_table(tmp_path / f"in.{kind}", {**FEW, "M": [3, -4, 1]})
    out = tmp_path / f"out.{kind}"
    done = run(tmp_path / f"in.{kind}", "--column", "F", "--column", "M", "-m", signed_file, "-o", out)
    assert done.code == 2
    assert "count of M in row 2: got -4" in done.err
    assert not out.exists()


def test_names_of_added_columns_that_are_taken(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_table(tmp_path / "in.csv", {**FEW, "M_certain_low": [0, 0, 0], "margin_95": [1, 1, 1]})
    ask = (tmp_path / "in.csv", "-m", signed_file, "-o", tmp_path / "out.csv", "--column", "F")
    assert "a table with the column margin_95" in run(*ask).err
    assert "a table with the column M_certain_low" in run(*ask, "--column", "M").err
    assert run(*ask, "--column", "T").code == 0


# Batches

BATCHED = 1000


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_row_has_noise_of_its_own(
    kind: str, signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for the file; cells in order, none twice. With a key or an offset repeated, batches would repeat."""
    monkeypatch.setattr(tables, "CSV_BATCH", BATCHED)
    monkeypatch.setattr(tables, "PARQUET_BATCH", BATCHED)
    seen: list[tuple[object, int, int]] = []
    real = Sampler.release

    def watched(sampler: Sampler, counts: Any, key: Any, first: int = 0) -> Any:
        seen.append((key, first, len(counts)))
        return real(sampler, counts, key, first=first)

    monkeypatch.setattr(Sampler, "release", watched)
    size = 5 * BATCHED + 300
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    if kind == "csv":
        write_csv(source, ["n"], [[100]] * size)
    else:
        pq.write_table(pa.table({"n": [100] * size}), source, row_group_size=1700)
    steps: list[tuple[int, int]] = []
    done = tables.release_table(
        cv.Mechanism.load(signed_file), source, "n", target, progress=lambda done, total: steps.append((done, total))
    )
    assert done.rows == size
    assert len({id(key) for key, _, _ in seen}) == 1
    cells = [cell for _, first, length in seen for cell in range(first, first + length)]
    assert cells == list(range(size))
    assert len(seen) >= 6
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


def test_two_releases_differ(signed_file: Path, tmp_path: Path, run: Run) -> None:
    write_csv(tmp_path / "in.csv", ["n"], [[100]] * 500)
    for name in ("one.csv", "two.csv"):
        assert run(tmp_path / "in.csv", "--column", "n", "-m", signed_file, "-o", tmp_path / name).code == 0
    assert (tmp_path / "one.csv").read_bytes() != (tmp_path / "two.csv").read_bytes()


@pytest.mark.slow  # a process for every command
def test_a_large_csv_is_streamed(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is that of a batch, not of the file."""
    monkeypatch.setattr(tables, "CSV_BATCH", 5_000)
    source = tmp_path / "in.csv"
    size = 250_000
    source.write_text("place,n\n" + "".join(f"place {'x' * 60} {i},{i % 90}\n" for i in range(size)))
    mechanism = cv.Mechanism.load(signed_file)
    mechanism.release(np.arange(9))  # guide tables are built
    tracemalloc.start()
    try:
        assert tables.release_table(mechanism, source, "n", tmp_path / "out.csv").rows == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert source.stat().st_size > 18_000_000
    assert peak < 6_000_000


def test_a_large_parquet_is_streamed(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyarrow holds after each batch does not grow with the rows."""
    monkeypatch.setattr(tables, "PARQUET_BATCH", 20_000)
    size, source = 50_000, tmp_path / "in.parquet"
    noise = np.random.default_rng(1)
    with pq.ParquetWriter(source, pa.schema([("a", pa.int64()), ("n", pa.int64())])) as writer:
        for _ in range(60):
            writer.write_table(pa.table({"a": noise.integers(0, 2**60, size), "n": noise.integers(0, 900, size)}))
    assert source.stat().st_size > 25_000_000
    before, held = pa.total_allocated_bytes(), []
    tables.release_table(
        cv.Mechanism.load(signed_file),
        source,
        "n",
        tmp_path / "out.parquet",
        progress=lambda done, total: held.append(pa.total_allocated_bytes() - before),
    )
    assert len(held) >= 100
    assert max(held) < 12_000_000


# What is refused

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
    "too few fields": (b"a,n\nx,1\n2\n", "row 2: got 1 field, allowed is 2 as in the header"),
    "too many fields": (b"a,n\nx,1,2\n", "row 1: got 3 fields, allowed is 2 as in the header"),
    "empty line": (b"a,n\nx,1\n\ny,2\n", "row 2: got an empty line, "),
    "missing column": (b"a,b c\nx,1\n", "column: got n, allowed is a column of the table: a, b c"),
    "another separator": (b"a;n\nx;1\n", "column: got n, allowed is a column of the table: a;n"),
    "column twice": (b"n,n\n1,2\n", "table: got more than one column n, "),
    "other column twice": (b"a,n,a\n1,2,3\n", "table: got more than one column a, "),
    "column taken": (b"margin_95,n\n1,2\n", "table: got a table with the column margin_95, "),
    "empty file": (b"", "a file with a header line"),
    "empty header": (b"\na,n\nx,1\n", "a file with a header line"),
    "undecodable": (b"a,n\nx,1\nPra\x8e,2\n", "row 2: got bytes that are no UTF-8, "),
    "undecodable count": (b"a,n\nx,1\ny,\xff2\n", "count in row 2: got "),
    "undecodable header": (b"a\xff,n\nx,1\n", "header: got bytes that are no UTF-8, "),
    "UTF-16": ("a,n\nx,1\n".encode("utf-16"), "header: got bytes that are no UTF-8, "),
    "open quote": (b'a,n\nx,1\n"y,2\n', "row 2: got unexpected end of data, "),
    "text after a quote": (b'a,n\n"x"y,1\n', "row 1: got "),
    "open quote in the header": (b'a,"n\nx,1\n', "header: got unexpected end of data, "),
}


def refused(run: Run, folder: Path, source: Path, mechanism: Path, words: str, output: Path, *options: str) -> None:
    """Exit code 2, one line, and the folder as it was before."""
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
def test_csv_that_is_refused(case: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    content, words = CSV_REFUSALS[case]
    (tmp_path / "in.csv").write_bytes(content)
    refused(run, tmp_path, tmp_path / "in.csv", signed_file, words, tmp_path / "out.csv")


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
def test_parquet_that_is_refused(case: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    table, words = PARQUET_REFUSALS[case]
    pq.write_table(table, tmp_path / "in.parquet")
    refused(run, tmp_path, tmp_path / "in.parquet", signed_file, words, tmp_path / "out.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"a,n\nx,1\n", b"PAR1" + bytes(100) + b"PAR1"], ids=["empty", "CSV", "broken"]
)
def test_what_is_no_parquet(content: bytes, signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.parquet").write_bytes(content)
    words = "allowed is a Parquet file that can be read ("
    refused(run, tmp_path, tmp_path / "in.parquet", signed_file, words, tmp_path / "out.parquet")


def test_parquet_with_broken_pages(signed_file: Path, tmp_path: Path, run: Run) -> None:
    pq.write_table(column(list(range(5000))), tmp_path / "in.parquet", use_dictionary=False, write_page_checksum=True)
    content = bytearray((tmp_path / "in.parquet").read_bytes())
    content[len(content) // 4] ^= 1
    (tmp_path / "in.parquet").write_bytes(content)
    refused(run, tmp_path, tmp_path / "in.parquet", signed_file, "can be read (", tmp_path / "out.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_are_counted_across_batches(
    kind: str, signed_file: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CSV_BATCH", 100)
    monkeypatch.setattr(tables, "PARQUET_BATCH", 100)
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    for wrong, words in ((-1, "count in row 778: got -1, "), (None, "count in row 778: got ")):
        values = [1] * 777 + [wrong] + [1] * 50
        if kind == "csv":
            write_csv(source, ["a", "n"], [["x", "" if n is None else n] for n in values])
        else:
            pq.write_table(column(values), source)
        refused(run, tmp_path, source, signed_file, words, target)
    if kind == "csv":
        lines = [b"a,n", *[b"x,1"] * 777]
        source.write_bytes(b"\n".join([*lines, b"\xe9,1"]))
        refused(run, tmp_path, source, signed_file, "row 778: got bytes that are no UTF-8", target)
        source.write_bytes(b"\n".join([*lines, b"x"]))
        refused(run, tmp_path, source, signed_file, "row 778: got 1 field", target)
        source.write_bytes(b"\n".join([*lines, b'"x']))
        refused(run, tmp_path, source, signed_file, "row 778: got unexpected end of data", target)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_largest_count(kind: str, signed_file: Path, tmp_path: Path, run: Run) -> None:
    """Its certain range just fits into 64 bits; one more could overflow, and is refused."""
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
            refused(run, tmp_path, source, signed_file, words, target)
    assert run(source, "--column", "n", "-m", signed_file, "-o", target).code == 0
    if kind == "csv":
        columns = list(zip(*read_csv(target)[1], strict=True))[1:]
    else:
        columns = [tuple(pq.read_table(target)[name].to_pylist()) for name in ["n", *ADDED]]
    check_noise(mechanism, [1, largest], *columns)


def test_null_as_zero_forgives_nothing_else(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,\ny,-1\n")
    pq.write_table(column([None, float("nan")]), tmp_path / "in.parquet")
    for kind, words in (("csv", "count in row 2: got -1, "), ("parquet", "count in row 2: got NaN, ")):
        source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
        refused(run, tmp_path, source, signed_file, words, target, "--null-as-zero")


def test_paths_that_are_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    (tmp_path / "in.txt").write_text("a,n\nx,1\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "in.csv")
    cases = [
        ("in.csv", "in.csv", "another file than the table"),
        ("in.csv", "link.csv", "another file than the table"),
        ("link.csv", "in.csv", "another file than the table"),
        ("in.csv", "missing/out.csv", "a path that can be written (No such file or directory)"),
        ("in.csv", "in.txt/out.csv", "a path that can be written (Not a directory)"),
        ("in.csv", "folder.csv", "a path that can be written (this is a folder)"),
        ("in.csv", f"{'x' * 300}.csv", "a path that can be written (File name too long)"),
        ("in.csv", "out.xlsx", "a name that ends in .csv or .parquet"),
        ("in.csv", "out", "a name that ends in .csv or .parquet"),
        ("in.txt", "out.csv", "table: got "),
        ("in.csv", "out.parquet", "the format of the table, a name that ends in .csv"),
        ("none.csv", "out.csv", "the path of a CSV or Parquet file (there is none)"),
        ("none.parquet", "out.parquet", "the path of a CSV or Parquet file (there is none)"),
        ("folder.csv", "out.csv", "the path of a CSV or Parquet file (it is no file)"),
    ]
    for source, target, words in cases:
        refused(run, tmp_path, tmp_path / source, signed_file, words, tmp_path / target)
    assert not list((tmp_path / "folder.csv").iterdir())
    refused(run, tmp_path, tmp_path / "in.csv", tmp_path / "no.json", "no.json: cannot be read", tmp_path / "out.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_files_without_permission_are_refused(signed_file: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    refused(run, tmp_path, tmp_path / "in.csv", signed_file, "Permission denied", closed / "out.csv")


def test_options_that_are_missing(run: Run) -> None:
    for words in ((), ("in.csv",), ("in.csv", "--column", "n"), ("in.csv", "--column", "n", "-m", "m.json")):
        done = run(*words)
        assert done.code == 2
        assert done.err.count("\n") == 1


def test_a_full_disk_is_a_failure_of_the_output(
    signed_file: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "in.csv").write_text("a,n\nx,1\n")
    words = "a path that can be written (No space left on device)"
    refused(run, tmp_path, tmp_path / "in.csv", signed_file, words, tmp_path / "out.csv")


def test_without_pyarrow(signed_file: Path, tmp_path: Path) -> None:
    """Exit code 6 and what to run; CSV does not need it."""
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


# Complete or not at all


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
    monkeypatch.setattr(tables, "CSV_BATCH", 100)
    monkeypatch.setattr(tables, "PARQUET_BATCH", 100)
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
    assert len(parts) == 2, "the failure came while a part was written"


def test_no_true_count_reaches_the_disk(signed_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that the noise moves by 1,000,000 at the least: then no byte of output may be of a true count."""
    monkeypatch.setattr(tables, "CSV_BATCH", 10)
    monkeypatch.setattr(Sampler, "release", lambda sampler, counts, key, first=0: counts + 10**6)
    written: list[bytes] = []
    real = os.replace

    def watched(part: Path, target: Path) -> None:
        written.append(Path(part).read_bytes())
        real(part, target)

    monkeypatch.setattr(os, "replace", watched)
    secrets = [str(770_000 + i) for i in range(100)]
    write_csv(tmp_path / "in.csv", ["n"], [[n] for n in secrets])
    tables.release_table(cv.Mechanism.load(signed_file), tmp_path / "in.csv", "n", tmp_path / "out.csv")
    header, rows = read_csv(tmp_path / "out.csv")
    assert len(written) == 1
    assert not any(field in secrets for row in rows for field in row)
    assert header == ["n", *ADDED]


def test_control_c(signed_file: Path, tmp_path: Path) -> None:
    """The real signal to the real command, while it writes."""
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
