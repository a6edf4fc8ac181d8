"""For two datasets that differ by one person, everything that is visible is equal, except for the noisy counts.

Compared are status, message, columns, the order of rows, intervals as functions of y, log lines, receipts and ledger
entries, for a corpus of fuzzed questions, valid and invalid. The person's values are hostile: of the wrong type,
numbers that overflow, records of the wrong length.
"""

from __future__ import annotations

import datetime
import logging
import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import CountveilError, DataError
from countveil.ledger.restoration import restore
from countveil.query import ask
from countveil.query.schema import Column, Kind, Schema
from tests.support.curated import MANY, config_text, with_plan, written
from tests.support.neighbours import (
    ALL,
    AWKWARD_ROWS,
    AWKWARD_VALUES,
    COLUMNS,
    NAMES,
    ORDINARY,
    PERSON,
    Row,
    corpus,
    crowd,
    csv_file,
    parquet_file,
    question,
)

# Everything but the noisy counts


def mask(text: str) -> str:
    return re.sub(r"charge=[0-9a-f]+", "charge=", text)


class Seen:
    """Everything visible about one dataset to a person who does not have the true counts."""

    def __init__(
        self,
        folder: Path,
        source: str,
        questions: tuple[str, ...],
        caplog: pytest.LogCaptureFixture,
        frame: object = None,
    ) -> None:
        self.shapes: list[Any] = []
        self.intervals: dict[int, tuple[int, int]] = {}
        self.released: list[list[int]] = []
        path = written(folder, config_text(source=source, columns=COLUMNS, budget=MANY))
        with_plan(path)
        frames = None if frame is None else {"people": frame}
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "countveil"), Curator.open(path, sources=frames) as curator:
            for sql in questions:
                self.shapes.append(self.ask(curator, sql))
            for entry in curator.ledger.entries():
                body = {
                    k: v
                    for k, v in entry.body.items()
                    if k not in ("ledger", "nonce", "check", "keyed_fingerprint", "id", "charge", "sha256")
                }
                self.shapes.append((entry.seq, entry.kind, body))
            self.shapes.append(curator.budget())
        self.shapes += [mask(record.getMessage()) for record in caplog.records]
        caplog.clear()

    def ask(self, curator: Curator, sql: str) -> Any:
        try:
            dry = curator.dry_run(sql)
            table = curator.count(sql)
        except CountveilError as error:
            return type(error), error.exit_code, str(error)
        self.released.append(table.released.tolist())
        labels = []
        for row in table.rows:
            *label, y, low, high = row
            labels.append(label)
            assert self.intervals.setdefault(y, (low, high)) == (low, high)
        receipt = {k: v for k, v in asdict(table.receipt).items() if k not in ("id", "time")}
        return dry, table.columns, labels, receipt, table.replayed, table.total().margin_95


def compare(
    folder: Path,
    make: Callable[[Path, bool], str],
    questions: tuple[str, ...],
    caplog: Any,
    frames: Mapping[str, object] | None = None,
) -> tuple[Seen, Seen]:
    both = []
    for name in ("without", "with"):
        (folder / name).mkdir()
        frame = (frames or {}).get(name)
        both.append(Seen(folder / name, make(folder / name, name == "with"), questions, caplog, frame))
    for a, b in zip(both[0].shapes, both[1].shapes, strict=True):
        assert a == b
    for y in set(both[0].intervals) & set(both[1].intervals):
        assert both[0].intervals[y] == both[1].intervals[y]
    return both[0], both[1]


def valid(count: int) -> tuple[str, ...]:
    """A table by every column, the total, and some fuzzed questions; all of them are valid."""
    whole = tuple(f"SELECT {c}, count(*) FROM people GROUP BY {c}" for c in NAMES[1:])
    rng = random.Random(3)
    return (*whole, "SELECT count(*) FROM people", *(question(rng) for _ in range(count)))


@pytest.mark.slow
def test_the_corpus_is_large_and_mixed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = compare(
        tmp_path, lambda folder, more: csv_file(folder, AWKWARD_ROWS["another type"] if more else b""), corpus(), caplog
    )
    assert len(corpus()) >= 200
    assert 60 <= len(first.released) <= len(corpus()) - 60
    assert first.released != second.released  # fresh noise: the datasets were really counted twice


@pytest.mark.slow  # asks hundreds of questions of two datasets
@pytest.mark.parametrize("person", sorted(AWKWARD_ROWS))
def test_one_more_record_in_a_csv_file_is_not_visible(
    person: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = compare(
        tmp_path, lambda folder, more: csv_file(folder, AWKWARD_ROWS[person] if more else b""), valid(2), caplog
    )
    assert len(first.released) == len(valid(2))


@pytest.mark.slow  # asks hundreds of questions of two datasets
@pytest.mark.parametrize("person", sorted(AWKWARD_VALUES))
def test_one_more_person_in_a_parquet_file_is_not_visible(
    person: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values, kinds = AWKWARD_VALUES[person]
    first, _ = compare(
        tmp_path,
        lambda folder, more: parquet_file(folder, {**PERSON, **values} if more else None, **kinds),
        valid(2),
        caplog,
    )
    assert len(first.released) == len(valid(2))


@pytest.mark.parametrize("person", sorted(AWKWARD_ROWS))
def test_one_more_record_changes_at_most_one_cell_by_one(person: str, tmp_path: Path) -> None:
    """No record changes how the rows of other people are counted."""
    config = load(written(tmp_path, config_text(columns=COLUMNS)), {}).dataset("people")
    counts = []
    for extra in (b"", AWKWARD_ROWS[person]):
        csv_file(tmp_path, extra)
        engine = DuckDBEngine(config.source, config.schema)
        counts.append([engine.count(ask(config.schema, sql), salt=b"salt") for sql in valid(30)])
        engine.close()
    for without, with_ in zip(*counts, strict=True):
        assert abs(with_ - without).sum() <= 1
    if "rows" in person or person == "ordinary":
        assert any((a != b).any() for a, b in zip(*counts, strict=True))


def visible_entries(curator: Curator) -> list[Any]:
    """The budget and every ledger entry, without their random fields."""
    drawn = ("ledger", "nonce", "check", "keyed_fingerprint", "id", "charge", "sha256", "anchor", "after")
    kept = [
        (entry.seq, entry.kind, {k: v for k, v in entry.body.items() if k not in drawn})
        for entry in curator.ledger.entries()
    ]
    return [curator.budget(), *kept]


def restored_history(folder: Path, knows: bool) -> list[Any]:
    """Everything visible of a ledger that lost history, and of a new plan on it."""
    path = written(folder, config_text(columns=COLUMNS))
    with_plan(path)
    loaded, questions = load(path, {}), valid(0)

    def asked(*chosen: str) -> list[Any]:
        seen = []
        with Curator.open(path) as curator:
            for sql in chosen:
                try:
                    dry, table = curator.dry_run(sql), curator.count(sql)
                    receipt = {k: v for k, v in asdict(table.receipt).items() if k not in ("id", "time")}
                    seen.append((asdict(dry), receipt, table.replayed, table.total().margin_95))
                except CountveilError as error:
                    seen.append((type(error), str(error)))
            return seen + visible_entries(curator)

    shapes = asked(*questions[:2])
    with Curator.open(path) as curator:
        curator.ledger.backup(folder / "old")  # type: ignore[attr-defined]
    shapes += asked(questions[2])
    if not knows:
        loaded.anchor.unlink()
    shapes.append(restore(folder / "old", loaded.ledger, loaded.anchor, accept_loss=True))
    shapes += asked(*questions[:4])
    before = path.read_text()
    path.write_text(before.replace('epsilon = "10"', 'epsilon = "2"'))
    with Curator.open(path) as curator:
        try:
            shapes.append(asdict(curator.replan_budget("people", "after a loss")))
        except CountveilError as error:
            shapes.append((type(error), str(error)))
            path.write_text(before)
    return shapes + asked(*questions[:4])


@pytest.mark.slow  # asks hundreds of questions of two datasets
@pytest.mark.parametrize("knows", [True, False])
def test_a_restored_ledger_and_a_new_plan_do_not_depend_on_the_person(knows: bool, tmp_path: Path) -> None:
    both = []
    for name, extra in (("without", b""), ("with", AWKWARD_ROWS["another type"])):
        (tmp_path / name).mkdir()
        csv_file(tmp_path / name, extra)
        both.append(restored_history(tmp_path / name, knows))
    assert both[0] == both[1]
    words = str(both[0])
    assert ("unknown" in words) != knows
    assert ("plan 2 of this pool" in words) == knows


@pytest.mark.slow  # asks hundreds of questions of two datasets
def test_whether_a_file_has_one_person_or_none_is_not_visible(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def only(folder: Path, more: bool) -> str:
        (folder / "people.csv").write_bytes(",".join(NAMES).encode() + b"\n" + (ORDINARY if more else b""))
        return "people.csv"

    compare(tmp_path, only, valid(2), caplog)


def test_the_comparison_detects_a_different_header(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A header is part of the schema, so a different one must make the comparison fail."""

    def other(folder: Path, more: bool) -> str:
        csv_file(folder, b"")
        if more:
            text = (folder / "people.csv").read_text()
            (folder / "people.csv").write_text(text.replace("region", "place", 1))
        return "people.csv"

    with pytest.raises(AssertionError):
        compare(tmp_path, other, ("SELECT count(*) FROM people",), caplog)


# Frames: the values of a column determine its type

ZIPS = 'zip = ["101", "102", "103"]\n'
FRAMES: dict[str, Callable[[list[Row]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": partial(pl.DataFrame, infer_schema_length=None),
    "pyarrow": pa.Table.from_pylist,
}
IDS: dict[str, Callable[[int], Any]] = {
    "integers": lambda i: i + 1,
    "large integers": lambda i: 2**53 - 1 - i,
    "larger integers": lambda i: 2**53 + 1 + i,
    "integers on both sides of 2^53": lambda i: 2**53 - 30 + i,
    "floats": lambda i: float(i + 1),
    "text": lambda i: f"p{i}",
    "digits": lambda i: str(i),
    "UUIDs as text": lambda i: str(uuid.UUID(int=i)),
    "decimals": lambda i: Decimal(i),
}
UNUSABLE_IDS: dict[str, Callable[[int], Any]] = {
    "dates": lambda i: datetime.date(2026, 1, 1) + datetime.timedelta(days=i),
    "time stamps": lambda i: datetime.datetime(2026, 1, 1, 12) + datetime.timedelta(days=i),
    "fractions": lambda i: i + 0.5,
    "floats of 2^53 and more": lambda i: 2.0**53 + 2 * i,
}


def identifies_person(value: Any) -> bool:
    """Whether an id in a frame identifies a person: not an integer that a float cannot represent."""
    return not isinstance(value, int) or abs(value) < 2**53


def inhabitants(name: Callable[[int], Any]) -> list[Row]:
    """People without missing values, so that every column has the type of its values."""
    rng = random.Random(11)
    rows = [{**row, "person": name(i), "zip": rng.choice([101, 102, 103])} for i, row in enumerate(crowd())]
    return [{**row, "region": row["region"] or "East", "ok": bool(row["ok"])} for row in rows]


def counts_of(frame: Any, schema: Schema) -> list[int]:
    engine = DuckDBEngine(Source(frame=frame), schema)
    names = [column.name for column in schema.columns]
    asked = [f"SELECT {name}, count(*) FROM people GROUP BY {name}" for name in names]
    asked.append(f"SELECT count(*) FROM people WHERE {' OR '.join(f'{name} IS NULL' for name in names)}")
    try:
        return [n for sql in [*asked, ALL] for n in engine.count(ask(schema, sql), salt=b"salt").tolist()]
    finally:
        engine.close()


@pytest.fixture(scope="module")
def frame_schema(tmp_path_factory: pytest.TempPathFactory) -> Schema:
    text = config_text(columns=COLUMNS + ZIPS)
    return load(written(tmp_path_factory.mktemp("frames"), text), {}).dataset("people").schema


@pytest.mark.parametrize("library", sorted(FRAMES))
@pytest.mark.parametrize("ids", [*IDS, *UNUSABLE_IDS])
def test_a_row_with_a_missing_value_changes_the_counts_by_that_row_alone(
    ids: str, library: str, frame_schema: Schema
) -> None:
    name, make = {**IDS, **UNUSABLE_IDS}[ids], FRAMES[library]
    rows = inhabitants(name)
    without = counts_of(make(rows), frame_schema)
    named = sum(map(identifies_person, [row["person"] for row in rows]))
    assert without[-1] == (named if ids in IDS else 0)
    for missing in [*NAMES, "zip", ""] if ids == "integers" else ["person", "zip"]:
        extra = {**rows[7], "person": name(60), **({missing: None} if missing else dict.fromkeys(rows[7]))}
        with_one, alone = (counts_of(make(people), frame_schema) for people in ([*rows, extra], [extra]))
        assert [a - b for a, b in zip(with_one, without, strict=True)] == alone, missing
        counted = ids in IDS and missing not in ("person", "")
        assert alone[-1] == int(counted and identifies_person(name(60))), missing


@pytest.mark.parametrize("library", sorted(FRAMES))
@pytest.mark.parametrize("column", [*NAMES[1:], "zip"])
def test_the_only_value_of_a_column_does_not_change_how_other_rows_are_counted(
    column: str, library: str, frame_schema: Schema
) -> None:
    make, rows = FRAMES[library], [{**row, column: None} for row in inhabitants(IDS["integers"])]
    without = counts_of(make(rows), frame_schema)
    values = [True, 12, 12.5, "West", datetime.datetime(2026, 1, 2, 3)]
    for value in values:
        counts = counts_of(make([*rows, {**rows[7], "person": 61, column: value}]), frame_schema)
        assert counts[-1] - without[-1] == 1, value
        assert all(0 <= a - b <= 1 for a, b in zip(counts, without, strict=True)), value


@pytest.mark.slow  # asks hundreds of questions of two datasets
@pytest.mark.parametrize("library", sorted(FRAMES))
@pytest.mark.parametrize("missing", ["person", "ok"])
def test_a_missing_value_in_a_frame_is_not_visible(
    missing: str, library: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = inhabitants(IDS["integers"])
    frames = {
        name: FRAMES[library](people)
        for name, people in (("without", rows), ("with", [*rows, {**rows[7], "person": 61, missing: None}]))
    }
    compare(tmp_path, lambda folder, more: "people.csv", valid(0)[:3], caplog, frames)


BREAKING = {
    "never closed": b'1000,"West,44,true,2026-02-02,12\n',
    "inside": b'1000,We"st,44,true,2026-02-02,"12\n',
    "after": b'1000,"We"st,44,true,2026-02-02,12\n',
    "carriage return": b"1000,We\rst,44,true,2026-02-02,12\n",
    "huge": b'1000,"' + b"1,West,44\n" * 300_000 + b'",44,true,2026-02-02,12\n',
}


@pytest.mark.parametrize("record", sorted(BREAKING))
def test_a_file_with_a_record_that_could_break_others_is_refused_for_every_question(
    record: str, tmp_path: Path
) -> None:
    """The record would swallow the records of other people after it, so every question is refused, with one message;
    also a question that was answered before the record was added."""
    csv_file(tmp_path, b"")
    path = written(tmp_path, config_text(columns=COLUMNS, budget=MANY))
    with_plan(path)
    with Curator.open(path) as curator:
        for sql in valid(1):
            curator.count(sql)
        before = len(list(curator.ledger.charges()))
        csv_file(tmp_path, BREAKING[record])
        messages = set()
        for sql in valid(2):
            with pytest.raises(DataError, match=r"people\.csv is not CSV by RFC 4180, line 32: ") as refused:
                curator.count(sql)
            messages.add(str(refused.value))
        assert len(messages) == 1
        assert len(list(curator.ledger.charges())) == before
        csv_file(tmp_path, b"")
        assert all(curator.count(sql).replayed for sql in valid(1))


BOUNDARY = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1]
FAR_VALUES: dict[str, tuple[object, ...]] = {
    "integer": tuple(BOUNDARY),
    "text": tuple(map(str, BOUNDARY)),
}


@pytest.mark.parametrize("library", sorted(FRAMES))
@pytest.mark.parametrize("kind", sorted(FAR_VALUES))
def test_integers_beyond_floats_do_not_change_the_counts_of_others(kind: Kind, library: str) -> None:
    """A row that turns its integer column into floats or objects does not change how other rows are counted."""
    schema = Schema("people", (Column("x", kind, FAR_VALUES[kind]),))  # type: ignore[arg-type]
    make = FRAMES[library]
    rows = [{"x": value} for value in BOUNDARY for _ in range(4)]
    without = counts_of(make(rows), schema)
    assert without[:5] == [4, 0, 0, 0, 0]
    others = [None, 1, 2**64] if library == "pandas" else [None, 1]
    for other in [*others, *([1.5, "x", Decimal(3)] if library == "pandas" else [])]:
        counts = counts_of(make([*rows, {"x": other}]), schema)
        assert [a - b for a, b in zip(counts[:-2], without[:-2], strict=True)] == [0] * 5, other
        assert counts[-2] - without[-2] == int(other is None), other


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]", "category of Int64", "category", "object", "str"])
def test_integers_from_2_to_the_53_are_read_only_as_text_whatever_the_type(kind: str) -> None:
    """They are outside also in columns that keep their digits, because one more row can turn these into floats."""
    schema = Schema("people", (Column("x", "integer", tuple(BOUNDARY)),), "person")
    for extra in ([], [None]):
        values = pd.Series([*BOUNDARY, *extra], dtype="Int64" if "Int64" in kind else "object")
        column = values.astype({"category of Int64": "category"}.get(kind, kind))
        counts = counts_of(pd.DataFrame({"x": column, "person": column}), schema)
        assert counts[:5] == ([1] * 5 if kind == "str" else [1, 0, 0, 0, 0])


CLOCK, SPAN = datetime.time(1, 2, 3), datetime.timedelta(1)
COMPLEX, PERIOD = complex(5), pd.Period("2026-01")
ODD: dict[str, dict[str, list[Any]]] = {
    "pandas": {"complex": [COMPLEX, 1j], "spans": [SPAN], "periods": [PERIOD], "intervals": [pd.Interval(0, 1)]},
    "polars": {"binary": [b"5", b"\xff"], "times": [CLOCK], "spans": [SPAN], "128 bits": [2**70, 5]},
    "pyarrow": {
        "binary": [b"5", b"\xff"],
        "times": [CLOCK],
        "spans": [SPAN],
        "76 digits": [Decimal(5), Decimal(10**50)],
    },
}
COMMON: dict[str, list[Any]] = {"nothing": [None], "integers": [5, 7], "decimals": [Decimal(5), Decimal(10**20)]}


@pytest.mark.parametrize(("library", "odd"), [(library, odd) for library in ODD for odd in ODD[library]])
@pytest.mark.parametrize("unit", ["row", "x"])
def test_a_row_that_gives_a_column_an_odd_type_changes_counts_by_at_most_one(library: str, odd: str, unit: str) -> None:
    """The frame opens whatever the types of its values are, and the other rows are counted as before."""
    make, values = FRAMES[library], ODD[library][odd]
    for kind, domain in (("integer", (5, 7)), ("text", ("5", "100000000000000000000"))):
        named = Column("g", "text", ("a",))
        schema = Schema("people", (Column("x", kind, domain), named), unit)  # type: ignore[arg-type]
        for common in COMMON.values():
            rows = [{"x": value, "g": "a"} for value in common]
            without = counts_of(make(rows), schema)
            for extra in values:
                try:
                    frame = make([*rows, {"x": extra, "g": "a"}])
                except (TypeError, pa.ArrowException, pl.exceptions.PolarsError, OverflowError):
                    continue  # the library has no column type for both values
                more = [a - b for a, b in zip(counts_of(frame, schema), without, strict=True)]
                assert all(0 <= n <= 1 for n in more), (kind, common, extra)
        assert counts_of(make([{"x": value, "g": "a"} for value in values]), schema)[-1] <= len(values)


def test_values_of_odd_types_are_read_one_by_one() -> None:
    schema = Schema("people", (Column("x", "integer", (5, 7)),))
    frames: list[Any] = [
        pa.table({"x": pa.array([b"5", b"7", b"\xff", None], kind)})
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    ]
    frames += [pa.table({"x": pa.array([b"5", b"7", b"\xff", None], pa.binary(1))})]
    frames += [pa.table({"x": pa.array([b"5", b"7", b"\xff", None]).dictionary_encode()})]
    frames += [pa.table({"x": pa.array([Decimal(5), Decimal(7), Decimal("7.5"), None], pa.decimal256(60, 2))})]
    frames += [pl.DataFrame({"x": pl.Series([5, 7, 2**70, None], dtype=pl.Int128)})]
    frames += [pd.DataFrame({"x": [complex(5), complex(7), 1j, None]})]
    for frame in frames:
        assert counts_of(frame, schema) == [1, 1, 1, 4], frame
    for kind in (pa.time32("s"), pa.time64("ns"), pa.duration("ns")):
        times = pa.array([5, None], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        assert counts_of(pa.table({"x": times}), schema) == [0, 0, 1, 2]
