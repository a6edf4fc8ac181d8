"""The contract of derived columns: every engine counts like a naive reading in Python, written from the rules."""

from __future__ import annotations

import datetime
import itertools
import math
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from countveil.data.engines import Engine
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.duckdb_sql import DuckDBDialect
from countveil.data.engines.sql import Dialect
from countveil.errors import DataError
from countveil.query import Question, ask
from countveil.query.derived import parse_columns
from countveil.query.public_tables import PublicTable, read_public_table
from countveil.query.schema import Schema
from tests.support.makers import FRAMES, MAKERS, Types, choices, csv_field, opened
from tests.support.naive import OUTSIDE, Row, nearest_float, precise

Label = Callable[[Any], Any]
"""The label of a raw value: None if it is missing, OUTSIDE if it has none."""
Tree = tuple[Any, ...]
UTC = datetime.UTC
DAY = datetime.timedelta(1)
GEOGRAPHY = b"""\
district,municipality,county
d1,m1,east
d2,m1,east
"d,3",m2,east
d4,m3,west
d5,m3,west
"""


def public_file(path: str, key: str) -> PublicTable:
    return read_public_table(GEOGRAPHY, path, key)


@pytest.fixture(params=choices())
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A function make_engine(rows, physical types, schema); `make_engine.as_text` says that values come as text."""
    engines: list[Engine] = []

    def make_engine(rows: list[Row], types: Types, schema: Schema) -> Engine:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        engines.append(opened(request.param, rows, types, folder, schema))
        return engines[-1]

    make_engine.name = request.param  # type: ignore[attr-defined]
    make_engine.as_text = "csv" in request.param  # type: ignore[attr-defined]
    make_engine.frame = request.param in FRAMES  # type: ignore[attr-defined]
    yield make_engine
    for engine in engines:
        engine.close()


def holds(tree: Tree, labels: dict[str, Any]) -> bool | None:
    """SQL's logic on labels: true, false or unknown."""
    op, *args = tree
    if op in ("and", "or"):
        truths = [holds(part, labels) for part in args]
        decisive = op == "or"
        return decisive if decisive in truths else (None if None in truths else not decisive)
    if op == "not":
        truth = holds(args[0], labels)
        return None if truth is None else not truth
    label = labels[args[0]]
    if label is OUTSIDE:
        return None
    if op == "null":
        return label is None
    return None if label is None else label in args[1]


def write(tree: Tree) -> str:
    op, *args = tree
    if op in ("and", "or"):
        return "(" + f" {op} ".join(write(part) for part in args) + ")"
    if op == "not":
        return f"NOT {write(args[0])}"
    if op == "null":
        return f'"{args[0]}" IS NULL'
    return f'"{args[0]}" IN ({", ".join(repr(label) for label in args[1])})'


def random_tree(rng: random.Random, values: dict[str, list[str]], depth: int = 2) -> Tree:
    if depth and rng.random() < 0.6:
        op = rng.choice(["and", "or", "not"])
        return (op, *(random_tree(rng, values, depth - 1) for _ in range(1 if op == "not" else 2)))
    name = rng.choice(list(values))
    if rng.random() < 0.2:
        return ("null", name)
    return ("in", name, tuple(rng.sample(values[name], rng.randint(1, len(values[name])))))


def cells_of(question: Question) -> list[tuple[Any, ...]]:
    """The labels of every cell, in the order of the columns of the question."""
    places = itertools.product(*(range(axis.size) for axis in question.axes))
    labels = {column.name: (i, axis.labels(column)) for i, axis in enumerate(question.axes) for column in axis.columns}
    return [tuple(labels[c.name][1][place[labels[c.name][0]]] for c in question.by) for place in places]


def compare(
    make: Any,
    types: Types,
    rows: list[Row],
    declared: dict[str, Any],
    naive: dict[str, tuple[str, Label]],
    by: list[list[str]],
    **terms: Any,
) -> Engine:
    """Compare counts by columns, alone and with random conditions; `naive` has the source and label of each column."""
    schema = Schema("people", parse_columns(declared, "columns", public_file), **terms)
    engine = make(rows, types, schema)
    rows = [{name: nearest_float(value) for name, value in row.items()} for row in rows] if make.frame else rows
    labelled = [{name: label(row[source]) for name, (source, label) in naive.items()} for row in rows]
    values = {column.name: [str(value) for value in column.values] for column in schema.columns if column.source}
    rng = random.Random(len(rows))
    for columns in by:
        for tree in (None, *(random_tree(rng, values) for _ in range(2))):
            names = ", ".join(f'"{name}"' for name in columns)
            text = f"SELECT {names}{',' * bool(names)} count(*) FROM people"
            text += f" WHERE {write(tree)}" if tree else ""
            question = ask(schema, text + (f" GROUP BY {names}" if names else ""))
            expected = Counter(
                tuple(labels[column.name] for column in question.by)
                for labels in labelled
                if (tree is None or holds(tree, labels) is True)
                and not any(labels[name] is None or labels[name] is OUTSIDE for name in columns)
            )
            counts = engine.count(question, salt=b"salt").tolist()
            cells = cells_of(question)
            assert set(expected) <= set(cells), text
            assert {cell: n for cell, n in zip(cells, counts, strict=True) if n} == dict(expected), text
            again = ask(schema, question.text)
            assert (again.sha256, again.where) == (question.sha256, question.where), text
    return engine


# -- bins of fractions -------------------------------------------------------------------------------------------------

INF, NAN = math.inf, math.nan
NUMBER = re.compile(r"[+-]?(\d{1,200}(\.\d{0,200})?|\.\d{1,200})(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)

DECIMAL = re.compile(r"-?\d{1,19}(\.\d{1,19})?", re.ASCII)


def bin_of(value: Any, edges: list[Any], labels: list[str], below: bool, closed: bool) -> Any:
    """The label of a value that can be compared with the edges."""
    place = sum(value >= edge for edge in edges)
    if closed and place == len(edges):
        return OUTSIDE
    if place == 0:
        return labels[0] if below else OUTSIDE
    return labels[place - (not below)]


def number_label(kind: str, as_text: bool, edges: list[str], labels: list[str], below: bool, closed: bool) -> Label:
    def label(raw: Any) -> Any:
        if raw is None or (isinstance(raw, float) and math.isnan(raw)):
            return None
        if kind == "text" or as_text:
            raw = precise([{"x": raw}])[0]["x"]  # as the file has it
            text = (raw if isinstance(raw, str) else csv_field(raw)).strip(" ")
            if not NUMBER.fullmatch(text):
                return OUTSIDE
            if DECIMAL.fullmatch(text):
                return bin_of(Fraction(text), list(map(Fraction, edges)), labels, below, closed)
            return bin_of(float(text), list(map(float, edges)), labels, below, closed)
        if isinstance(raw, float):
            return bin_of(raw, list(map(float, edges)), labels, below, closed)
        return bin_of(Fraction(raw), list(map(Fraction, edges)), labels, below, closed)

    return label


OPEN = ["under 0", "0 to under 0.1", "0.1 to under 0.3", "0.3 to under 100", "100+"]
CLOSED = ["-0.5 to under 0.3", "0.3 to under 7"]
FLOATS = [
    0.0,
    -0.0,
    0.3,
    0.1 + 0.2,
    math.nextafter(0.3, 0),
    math.nextafter(0.3, 1),
    0.1,
    NAN,
    NAN,
    INF,
    -INF,
    None,
    None,
]
FLOATS += [1e300, -1e300, 5e-324, -5e-324, 100.0, math.nextafter(100, 0), 6.999, 7.0, -0.5, -0.25, 1.0, 1e18, 2.0**63]
SINGLES = [float(np.float32(v)) if v is not None else None for v in [0.3, 0.1, 0.0, -0.0, 100, 7, -0.5, 1.5, None]]
SINGLES += [float(np.nextafter(np.float32(v), np.float32(way))) for v in (0.3, 100) for way in (-1, 200)] + [
    NAN,
    INF,
    -INF,
]
DECIMALS = ["0", "0.3", "0.2999999999", "0.3000000001", "-0.0000000001", "100", "99.9999999999", "7", "-0.5", "0.1"]
TEXTS = ["0.3", "+.3", "3e-1", ".3E0", "0x1", "1d", "1_000", "NaN", "inf", "-Infinity", "", "  0.3 ", "0.3f", "1e400"]
TEXTS += [
    "1e-400",
    "1E2",
    "１",
    "100.",
    "-",
    ".",
    "e5",
    "1e",
    "1e+05",
    "-0",
    "-.0",
    "00.30",
    "1,5",
    "0.3\n",
    "\t1",
    "0.299",
]
TEXTS += ["9" * 200, "9" * 201, "0." + "0" * 199 + "1", "-1e99", "1 2", "", "٣", "--1", "+-1", "true", "0b1", "3L"]
WHOLES = [0, 1, -1, 7, 6, 99, 100, 101, None, 120, -100]
NUMBERS: dict[str, list[Any]] = {
    "float64": FLOATS,
    "float32": SINGLES,
    "decimal": [Decimal(d) for d in DECIMALS] + [None, Decimal(10) ** 27, -(Decimal(10) ** 27)],
    "text": [*TEXTS, None],
    "int8": WHOLES,
    "int64": [*WHOLES, 2**63 - 1, -(2**63)],
    "uint64": [n for n in WHOLES if n is None or n >= 0] + [2**64 - 1],
    "huge": [*WHOLES, 10**38 - 1, -(10**38) + 1],
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_bins_of_fractions_are_counted(make: Any, kind: str) -> None:
    """One source with two derived columns, whose edges lie between each other."""
    declared = {
        "income": {"from": "x", "bins": ["0", "0.1", "0.3", "100"], "below": True},
        "x": {"from": "x", "bins": ["-0.5", "0.3"], "max": "7"},
    }
    naive = {
        "income": ("x", number_label(kind, make.as_text, ["0", "0.1", "0.3", "100"], OPEN, True, False)),
        "x": ("x", number_label(kind, make.as_text, ["-0.5", "0.3", "7"], CLOSED, False, True)),
    }
    rows = [{"x": value} for value in NUMBERS[kind]]
    compare(make, {"x": kind}, rows, declared, naive, [[], ["income"], ["x"], ["income", "x"]])


@pytest.mark.parametrize("kind", ["float32", "decimal", "text", "uint64"])
def test_many_edges_are_counted(make: Any, kind: str) -> None:
    """Enough edges that DuckDB searches a list, on two axes, beside a column with the name of every part of the SQL."""
    edges = [f"{i / 10:.1f}" for i in range(-20, 41)]
    labels = [f"under {edges[0]}"] + [f"{a} to under {b}" for a, b in itertools.pairwise(edges)]
    few = ["0", "0.1", "0.3", "100"]
    declared = {
        "fine": {"from": "x", "bins": edges, "max": "100", "below": True},
        "few": {"from": "x", "bins": few, "below": True},
        "more": {"from": "_", "bins": edges[:55]},
    }
    naive = {
        "fine": ("x", number_label(kind, make.as_text, [*edges, "100"], [*labels, "4.0 to under 100"], True, True)),
        "few": ("x", number_label(kind, make.as_text, few, OPEN, True, False)),
        "more": ("_", number_label(kind, make.as_text, edges[:55], [*labels[1:55], f"{edges[54]}+"], False, False)),
    }
    rows = [{"x": value, "_": NUMBERS[kind][-i], "v": i} for i, value in enumerate(NUMBERS[kind])]
    by = [["fine"], ["more", "few"]]
    compare(make, {"x": kind, "_": kind, "v": "int8"}, rows, declared, naive, by)


def test_decimals_are_split_exactly_by_edges_with_more_digits(make: Any) -> None:
    edges = ["0.00000000005", "0.1", "0.10000000000000002"]
    labels = ["0.00000000005 to under 0.1", "0.1 to under 0.10000000000000002", "0.10000000000000002+"]
    values = [Decimal(d) for d in ("0", "0.0000000001", "0.1", "0.1000000001", "5")]
    naive = {"bin": ("x", number_label("decimal", make.as_text, edges, labels, False, False))}
    rows = [{"x": value} for value in values]
    compare(make, {"x": "decimal"}, rows, {"bin": {"from": "x", "bins": edges}}, naive, [["bin"]])


@pytest.mark.parametrize(("kind", "most"), [("decimal37", "9." + "9" * 37), ("decimal38", "0." + "9" * 38)])
def test_an_edge_beyond_all_decimals_of_the_source_is_above_or_below_all(make: Any, kind: str, most: str) -> None:
    edges = ["-11", "-10", "0", "1", "10"]
    labels = ["-11 to under -10", "-10 to under 0", "0 to under 1", "1 to under 10", "10+"]
    naive = {"bin": ("x", number_label(kind, make.as_text, edges, labels, False, False))}
    rows = [{"x": value} for value in (Decimal(most), Decimal(f"-{most}"), Decimal("0.5"), Decimal(0), None)]
    compare(make, {"x": kind}, rows, {"bin": {"from": "x", "bins": edges}}, naive, [["bin"], []])


LAST_DIGITS = ["0.299999999999999999", "0.3", "0.30000000000000000", "0.300000000000000001", "-0.3", "1"]
LAST_DIGITS += ["-0.300000000000000001", "-0.299999999999999999", "0.300000000000000039", "0.300000000000000041"]
LAST_DIGITS += ["123456789012345679.99999", "123456789012345680", "-99999999999999999.9999999999999999999"]
LAST_DIGITS += [
    "999999999999999899.5",
    "999999999999999999",
    "1e18",
    "-1e18",
    "1e99",
    "-999999999999999999.9999999999999999999",
    "1e-99",
]
LAST_DIGITS += ["29999999999999999999999e-23", "3e-1", "300000000000000000000000000000000e-33", "-1e-99", "0e99"]
LAST_DIGITS += ["0." + "0" * 98 + "3e99", "1" + "0" * 99 + "e-99", "+0.30", ".3", "-.3", "0.3" + "0" * 150 + "1"]


@pytest.mark.parametrize("kind", ["text", "decimal"])
def test_decimals_that_floats_cannot_tell_apart_are_compared_exactly(make: Any, kind: str) -> None:
    """Text is compared as the decimal that is written, and so are decimals except in frames."""
    edges = ["-100000000000000000", "-0.3", "0", "0.3", "0.30000000000000004", "123456789012345680"]
    edges += ["999999999999999900"]
    labels = [f"{a} to under {b}" for a, b in itertools.pairwise(edges)] + [f"{edges[-1]}+"]
    values: list[Any] = [text for text in LAST_DIGITS if kind == "text" or not re.search(r"e|\d{28}|[.]\d{11}", text)]
    if make.name == "pandas-objects":
        values = LAST_DIGITS
    values = [Decimal(text) for text in values] if kind == "decimal" else values
    naive = {"bin": ("x", number_label(kind, make.as_text, edges, labels, False, False))}
    rows = [{"x": value} for value in values]
    compare(make, {"x": kind}, rows, {"bin": {"from": "x", "bins": edges}}, naive, [["bin"]])


# -- bands, periods of days --------------------------------------------------------------------------------------------

AGES = [("0-14", 0, 14), ("15-24", 15, 24), ("25-44", 25, 44), ("45-64", 45, 64), ("65+", 65, 2**61 - 1)]


def age_label(bands: list[tuple[str, int, int]]) -> Label:
    def label(raw: Any) -> Any:
        if raw is None or (isinstance(raw, float) and math.isnan(raw)):
            return None
        if isinstance(raw, str):
            if not re.fullmatch(r" *[+-]?[0-9]+(\.0*)? *", raw):
                return OUTSIDE
            raw = int(raw.strip(" ").partition(".")[0])
        if raw != raw // 1 or (isinstance(raw, float) and abs(raw) >= 2**53):
            return OUTSIDE
        return next((name for name, low, high in bands if low <= raw <= high), OUTSIDE)

    return label


@pytest.mark.parametrize(("kind", "values"), [
    ("int16", [-1, 0, 14, 15, 24, 25, 44, 45, 64, 65, 66, 120, 121, 32767, None]),
    ("int64", [0, 64, 65, 2**61 - 1, 2**61, 2**63 - 1, -(2**63), None]),
    ("float64", [0.0, -0.0, 14.0, 14.5, 15.0, 64.0, 65.0, NAN, None, INF, -INF, 1e10]),
    ("text", ["0", "14", "15.0", " 64 ", "65", "x", "", "1e2", "120", "121", None]),
])  # fmt: skip
def test_uneven_bands_are_counted(make: Any, kind: str, values: list[Any]) -> None:
    bands = [0, 15, 25, 45, 65]
    closed = [*AGES[:-1], ("65-120", 65, 120)]
    below = [("under 0", -(2**61), -1), *AGES]
    declared: dict[str, Any] = {
        "open": {"from": "age", "bands": bands},
        "closed": {"from": "age", "bands": bands, "max": 120},
        "both": {"from": "age", "bands": bands, "below": True},
    }
    naive = {name: ("age", age_label(b)) for name, b in (("open", AGES), ("closed", closed), ("both", below))}
    rows = [{"age": value} for value in values]
    compare(make, {"age": kind}, rows, declared, naive, [["open"], ["closed"], ["both"], ["open", "closed"]])
    inside = [("0-14", 5, 14), *AGES[1:4], ("65+", 65, 99)]
    declared = {"age": {"min": 5, "max": 99}, "band": {"from": "age", "bands": bands}}
    compare(make, {"age": kind}, rows, declared, {"band": ("age", age_label(inside))}, [["band"], []])


def period_label(by: str, low: str, high: str, day_of: Callable[[Any], datetime.date | None]) -> Label:
    def label(raw: Any) -> Any:
        if raw is None:
            return None
        day = day_of(raw)
        if day is None or not datetime.date.fromisoformat(low) <= day <= datetime.date.fromisoformat(high):
            return OUTSIDE
        year, week, _ = day.isocalendar()
        return {
            "year": f"{day.year}",
            "quarter": f"{day.year}-Q{(day.month - 1) // 3 + 1}",
            "month": day.strftime("%Y-%m"),
            "week": f"{year}-W{week:02}",
            "weekday": day.strftime("%A"),
            "day": day.isoformat(),
        }[by]

    return label


RANGES = {
    "year": ("2019", "2025", "2019-01-01", "2025-12-31"),
    "quarter": ("2020-Q1", "2024-Q4", "2020-01-01", "2024-12-31"),
    "month": ("2020-01", "2024-12", "2020-01-01", "2024-12-31"),
    "week": ("2019-12-30", "2025-01-01", "2019-12-30", "2025-01-05"),
    "weekday": ("2020-01-01", "2024-12-31", "2020-01-01", "2024-12-31"),
    "day": ("2024-02-27", "2024-03-02", "2024-02-27", "2024-03-02"),
}
DATES = ["2020-01-01", "2019-12-31", "2019-12-30", "2019-12-29", "2020-02-29", "2020-12-31", "2021-01-01", "2021-01-03"]
DATES += [
    "2021-01-04",
    "2024-02-28",
    "2024-02-29",
    "2024-03-01",
    "2024-12-29",
    "2024-12-30",
    "2024-12-31",
    "2025-01-01",
]
DATES += ["2025-01-05", "2025-01-06", "2025-12-31", "2026-01-01", "1969-12-31", "2023-06-15", "2023-06-18"]


@pytest.mark.slow  # 24 questions on 1,827 days, each compared with a naive count
@pytest.mark.parametrize("kind", ["date", "micros", "text"])
def test_dates_are_counted_by_years_quarters_months_weeks_and_weekdays(make: Any, kind: str) -> None:
    days = [datetime.date.fromisoformat(day) for day in DATES]
    late = datetime.time(23, 59, 59)
    values: list[Any] = {
        "date": [*days, None],
        "micros": [datetime.datetime.combine(day, late) for day in days] + [None],
        "text": [*DATES, "2023-02-29", "2024-13-01", "20240229", "2024-02-29T00:00:00", None],
    }[kind]

    def day_of(raw: Any) -> datetime.date | None:
        if isinstance(raw, str):
            try:
                day = re.fullmatch(r"(\d{4}-\d\d-\d\d)(T00:00:00)?", raw)
                return datetime.date.fromisoformat(day[1]) if day else None
            except ValueError:
                return None
        return raw.date() if isinstance(raw, datetime.datetime) else raw

    declared = {by: {"from": "d", "by": by, "min": low, "max": high} for by, (low, high, *_) in RANGES.items()}
    naive = {by: ("d", period_label(by, first, last, day_of)) for by, (_, _, first, last) in RANGES.items()}
    by = [[name] for name in RANGES] + [["year", "weekday"], ["month", "quarter", "year"]]
    compare(make, {"d": kind}, [{"d": value} for value in values], declared, naive, by)


def test_bands_of_dates_are_counted(make: Any) -> None:
    def label(raw: Any) -> Any:
        if raw is None:
            return None
        text = raw.isoformat()
        return (
            "under 2020-02-29"
            if text < "2020-02-29"
            else "2020-02-29..2024-02-28"
            if text < "2024-02-29"
            else "from 2024-02-29"
        )

    def closed(raw: Any) -> Any:
        """The bands of 2020-2021 and 2022-2024, whose `max` is written as a year."""
        if raw is None:
            return None
        early, late = "2020-01-01..2021-12-31", "2022-01-01..2024-12-31"
        return early if raw.year in (2020, 2021) else late if 2022 <= raw.year <= 2024 else OUTSIDE

    ends = ["2019-12-31", "2020-01-01", "2021-12-31", "2022-01-01", "2024-12-31", "2025-01-01"]
    rows = [{"d": datetime.date.fromisoformat(day)} for day in [*DATES, *ends]]
    rows += [{"d": None}, {"d": datetime.date.max}]
    declared = {
        "term": {"from": "d", "bands": ["2020-02-29", "2024-02-29"], "below": True},
        "closed": {"from": "d", "bands": ["2020", "2022"], "max": "2024"},
    }
    compare(
        make, {"d": "date"}, rows, declared, {"term": ("d", label), "closed": ("d", closed)}, [["term"], ["closed"]]
    )


# -- instants ----------------------------------------------------------------------------------------------------------

ZONES = {
    "Europe/Berlin": ["2024-03-31", "2024-10-27", "2024-01-01", "2024-12-31", "2024-02-29"],
    "America/Sao_Paulo": ["2018-11-04", "2018-02-18", "2018-12-31"],  # clocks skip midnight
    "Pacific/Apia": ["2011-12-29", "2011-12-31", "2011-12-30"],  # a day was skipped
    "Asia/Kathmandu": ["2024-01-01", "2024-06-30"],
}
ZONED = [name for name in MAKERS if "csv" not in name]


@pytest.mark.slow  # hundreds of instants, each converted by Python for every period
@pytest.mark.parametrize("zone", ZONES)
def test_times_with_a_zone_are_counted_by_periods_of_a_stated_zone(make: Any, zone: str) -> None:
    """Instants around the edges of days, on the second and a microsecond before; the machine's zone has no effect."""
    info = ZoneInfo(zone)
    edges = [datetime.datetime.fromisoformat(day).replace(tzinfo=UTC) for day in ZONES[zone]]
    around = [
        edge + datetime.timedelta(hours=h, microseconds=u) for edge in edges for h in range(-15, 39) for u in (-1, 0)
    ]
    values = [*around, None, datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(2200, 1, 1, tzinfo=UTC)]
    year = ZONES[zone][0][:4]
    first = datetime.date.fromisoformat(ZONES[zone][0])
    near = [(first + days * DAY).isoformat() for days in (-6, 7)]
    whole = [f"{year}-01-01", f"{year}-12-31"]
    ends = {"year": whole, "month": whole, "weekday": near, "day": near}
    declared = {by: {"from": "t", "by": by, "min": low, "max": high, "zone": zone} for by, (low, high) in ends.items()}
    naive = {by: ("t", period_label(by, *ends[by], lambda raw: raw.astimezone(info).date())) for by in declared}
    rows = [{"t": value} for value in values]
    compare(
        make, {"t": "zoned"}, rows, declared, naive, [["year"], ["month"], ["weekday"], ["day"], ["weekday", "month"]]
    )


@pytest.mark.parametrize("kind", ["zoned", "zoned-nanos"])
def test_in_a_zone_a_day_begins_at_midnight_of_that_zone(make: Any, kind: str) -> None:
    """The day on which summer time begins: a few instants, so that this runs in `make test`."""
    ends = "2024-03-30", "2024-03-31"
    periods = {"day": ends, "days": ("2024-01-01", "2024-12-31")}
    days = {"from": "t", "by": "day", "zone": "Europe/Berlin"}
    declared = {name: {**days, "min": low, "max": high} for name, (low, high) in periods.items()}
    edges = [datetime.datetime(2024, 3, day, hour, tzinfo=UTC) for day, hour in ((29, 23), (30, 23), (31, 22))]
    rows = [{"t": edge + datetime.timedelta(microseconds=u)} for edge in edges for u in (-1, 0)] + [{"t": None}]
    info = ZoneInfo("Europe/Berlin")
    naive = {
        name: ("t", period_label("day", *periods[name], lambda raw: raw.astimezone(info).date())) for name in periods
    }
    compare(make, {"t": kind}, rows, declared, naive, [["day"], ["days"]])


STAMPS = [
    "2024-03-31T01:30:00+02:00",
    "2024-03-30T23:30:00Z",
    "2024-03-30 23:30:00+00",
    "2024-03-30 23:59:59.999999999Z",
]
STAMPS += [
    "2024-03-31T00:00:00-23:59",
    "2024-03-31T22:00:00Z",
    "2024-03-31T21:59:59.9999999Z",
    " 2024-03-31T02:30:00Z ",
]
STAMPS += ["2024-03-29T23:00:00Z", "2024-03-29T22:59:59Z", "2024-03-30T12:00:00+05:45", "2024-02-30T12:00:00Z"]
STAMPS += ["2024-03-31T24:00:00Z", "2024-03-31T12:00:60Z", "2024-03-31T12:60:00Z", "2024-03-31T12:00Z", "2024-03-31"]
STAMPS += ["2024-03-31T12:00:00", "2024-03-31T12:00:00+2", "2024-03-31T12:00:00+0200", "2024-03-31T12:00:00+24:00"]
STAMPS += [
    "2024-03-31T12:00:00 Z",
    "2024-03-31t12:00:00z",
    "2024-03-31T12:00:00Z\n",
    "2024-03-31T12:00:00 Europe/Berlin",
]
STAMPS += ["2024-03-31T12:00:00+02:00:00", "2024-03-31T12:00:00.Z", "2024-03-31T12:00:00,5Z", "12024-03-31T12:00:00Z"]
STAMPS += ["２024-03-31T12:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
STAMPS += ["", "now", "infinity", "epoch", "1711843200", "2024-03-31T12:00:00.1234567890Z", "2024-03-31T12:00:00−02:00"]


def test_text_with_an_offset_from_utc_is_an_instant_in_files_and_frames(make: Any) -> None:
    ends = "2024-03-30", "2024-03-31"
    declared = {
        "day": {"from": "t", "by": "day", "min": ends[0], "max": ends[1], "zone": "Europe/Berlin"},
        "year": {"from": "t", "by": "year", "min": "2023", "max": "2025", "zone": "UTC"},
    }
    rows = [{"t": text} for text in (*STAMPS, None)]
    if make.name in ("postgres", "spark", "spark-parquet"):
        with pytest.raises(DataError, match="time stamps with a zone; text with an offset is read in files and frames"):
            make(rows, {"t": "text"}, Schema("people", parse_columns(declared, "columns")))
        return

    def day_in(zone: str) -> Callable[[str], datetime.date | None]:
        def day_of(text: str) -> datetime.date | None:
            parts = re.fullmatch(
                r" *([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,9})?"
                r"(?:Z|([+-][0-9]{2})(?::([0-5][0-9]))?) *",
                text,
            )
            if parts is None or int(parts[7] or 0) not in range(-23, 24):
                return None
            try:
                local = datetime.datetime(*map(int, parts.groups()[:6]))  # type: ignore[arg-type]
                offset = (-1 if (parts[7] or "+")[0] == "-" else 1) * (
                    abs(int(parts[7] or 0)) * 60 + int(parts[8] or 0)
                )
                return (
                    (local - offset * datetime.timedelta(minutes=1))
                    .replace(tzinfo=UTC)
                    .astimezone(ZoneInfo(zone))
                    .date()
                )
            except (ValueError, OverflowError):
                return None

        return day_of

    years = ("2023-01-01", "2025-12-31")
    naive = {
        "day": ("t", period_label("day", *ends, day_in("Europe/Berlin"))),
        "year": ("t", period_label("year", *years, day_in("UTC"))),
    }
    engine = compare(make, {"t": "text"}, rows, declared, naive, [["day"], ["year"], ["year", "day"], []])
    counts = engine.count(ask(Schema("people", parse_columns(declared, "columns")), by="day"), salt=b"")
    assert counts.tolist() == [2, 6]


def test_times_without_a_zone_are_refused_as_instants(make: Any) -> None:
    declared = {"year": {"from": "t", "by": "year", "min": "2024", "max": "2024", "zone": "Europe/Berlin"}}
    if make.name == "pandas-objects" or make.as_text:
        return  # every value is outside: of text, and of objects, because one value can make any column one of objects
    rows = [{"t": datetime.datetime(2024, 1, 1)}]
    with pytest.raises(DataError, match="column t: declared instant"):
        make(rows, {"t": "micros"}, Schema("people", parse_columns(declared, "columns", None)))


def test_an_engine_that_cannot_compare_exactly_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    class Plain(DuckDBEngine):
        dialect = type("PlainDialect", (DuckDBDialect,), {"instant": Dialect.instant})()

        def scales(self) -> dict[str, int]:
            return {}

    for kind, value, entry, words in (
        ("decimal", Decimal(1), {"bins": ["0"]}, "no bins of decimals"),
        (
            "zoned",
            datetime.datetime.now(UTC),
            {"by": "year", "min": "2024", "max": "2024", "zone": "UTC"},
            "no periods",
        ),
    ):
        schema = Schema("people", parse_columns({"c": {"from": "x", **entry}}, "columns"))
        with pytest.raises(DataError, match=words):
            Plain(MAKERS["parquet"]([{"x": value}], {"x": kind}, tmp_path), schema)


# -- maps and hierarchies ----------------------------------------------------------------------------------------------

PLACES = {"d1": ("m1", "east"), "d2": ("m1", "east"), "d,3": ("m2", "east"), "d4": ("m3", "west"), "d5": ("m3", "west")}
HIERARCHY: dict[str, Any] = {
    "municipality": {"from": "district", "map": "geography.csv"},
    "county": {"from": "municipality", "map": "geography.csv"},
}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("terms", [{}, {"unit": "id", "rows_per_person": 1000, "cells_per_person": 9}])
def test_a_table_by_a_hierarchy_has_only_the_combinations_that_exist(
    make: Any, listed: bool, terms: dict[str, Any]
) -> None:
    places = ["d1", "d2", "d,3", "d4", "d5", "d9", "D1", "", None]
    rows: list[Row] = [{"id": 1, "district": places[i * i % 9], "age": i % 100} for i in range(300)]
    declared = {**HIERARCHY, "group": {"from": "age", "bands": [0, 18, 65]}}
    if listed:
        declared["district"] = ["d1", "d2", "d,3", "d4", "d5", "d9"]

    def part(i: int) -> Label:
        return lambda raw: None if raw is None else PLACES[raw][i] if raw in PLACES else OUTSIDE

    naive: dict[str, tuple[str, Label]] = {"municipality": ("district", part(0)), "county": ("district", part(1))}
    naive["group"] = ("age", age_label([("0-17", 0, 17), ("18-64", 18, 64), ("65+", 65, 10**9)]))
    by = [["county"], ["municipality"], ["county", "municipality"], ["county", "group", "municipality"]]
    if listed:
        naive["district"] = ("district", lambda raw: raw if raw in [None, *PLACES, "d9"] else OUTSIDE)
        by += [["district"], ["district", "municipality", "county"], ["district", "county", "group"]]
    if make.as_text:
        rows = [row for row in rows if row["district"] != ""]
    compare(make, {"id": "int64", "district": "text", "age": "int32"}, rows, declared, naive, by, **terms)


def test_counts_by_the_labels_of_a_map_of_3000_codes_are_right(make: Any) -> None:
    """3,000 codes: a list that is bound, and a map of whole numbers with labels."""
    lines = "".join(f"{i},group {i % 7}\n" for i in range(3000))
    declared = {"code": {"values": list(range(3001))}, "label": {"from": "code", "map": "codes.csv"}}
    schema = Schema(
        "people",
        parse_columns(
            declared, "columns", lambda path, key: read_public_table(f"code,label\n{lines}".encode(), path, key)
        ),
    )
    rows: list[Row] = [{"code": i} for i in range(-5, 3010, 3)] + [{"code": None}]
    engine = make(rows, {"code": "int32"}, schema)
    expected = Counter(row["code"] % 7 for row in rows if row["code"] is not None and 0 <= row["code"] < 3000)
    assert engine.count(ask(schema, by="label"), salt=b"").tolist() == [expected[i] for i in range(7)]
    chosen = ask(schema, where="label <> 'group 3'")
    assert engine.count(chosen, salt=b"").tolist() == [sum(expected.values()) - expected[3]]


def test_the_comparison_of_counts_detects_a_moved_edge() -> None:
    """The comparison fails if an edge moves by the least amount."""
    rows = [{"x": value} for value in FLOATS]
    naive = {
        "bin": ("x", number_label("float64", False, ["0", "0.3000000001"], ["0 to under 0.3", "0.3+"], False, False))
    }

    def make(rows: list[Row], types: Types, schema: Schema) -> Engine:
        return opened("pyarrow", rows, types, Path(), schema)

    make.frame = True  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        compare(make, {"x": "float64"}, rows, {"bin": {"from": "x", "bins": ["0", "0.3"]}}, naive, [["bin"]])
