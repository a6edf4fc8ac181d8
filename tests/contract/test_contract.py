"""The contract of engines: the same true counts from every kind of source, equal to a naive count in Python.

Where people are in too many cells, engines choose differently, so their hash is replaced by a constant; what holds with
their own hash is in `test_bounding`.

No value of a source may make an engine fail: the property tests read any values with any declared schema.
"""

from __future__ import annotations

import datetime
import tempfile
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, strategies as st

from countveil.config.publications import DeclaredPublication, DeclaredTable
from countveil.data.engines import Engine
from countveil.errors import DataError
from countveil.publication.layout import lay_out
from countveil.query import ask
from countveil.query.schema import Column, Schema
from tests.support import naive
from tests.support.effort import examples
from tests.support.makers import ARROW, FRAMES, MAKERS, SLOW, Types, choices, constant_hash, opened
from tests.support.naive import Row, Test

SALT = b"a salt"
DAY = datetime.date(2026, 1, 31)
BIG = 2**63 - 1


@pytest.fixture(params=choices())
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A function make_engine(rows, physical types, schema); `make_engine.frame` says that it makes a frame."""
    engines: list[Engine] = []

    def make_engine(rows: list[Row], types: Types, schema: Schema) -> Engine:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        engines.append(opened(request.param, rows, types, folder, schema))
        return engines[-1]

    make_engine.frame = request.param in FRAMES  # type: ignore[attr-defined]
    yield make_engine
    for engine in engines:
        engine.close()


def count_and_compare(
    engine: Engine, schema: Schema, rows: list[Row], by: list[str], where: Test | None = None, distinct: bool = False
) -> list[int]:
    """Check that the engine's counts equal the naive ones; the counts."""
    question = ask(schema, naive.sql(schema, by, where, distinct))
    counts = engine.count(question, salt=SALT)
    expected = naive.count(schema, by, where, distinct, rows)
    assert counts.dtype == "int64"
    if schema.unit_is_row or schema.cells_per_person >= question.cells:
        assert counts.tolist() == expected
    else:
        assert question.sensitivity > 1 or counts.sum() == sum(expected)  # any choice keeps as many cells
        with constant_hash(engine):
            assert engine.count(question, salt=SALT).tolist() == expected
    return expected


def test_the_true_tables_of_a_publication_are_sums_of_one_table_of_counts(make: Any, tmp_path: Path) -> None:
    """Every person is counted once, in the finest cells of all tables, so the true tables add up on every engine."""
    columns = (Column("region", "text", ("North", "South")), Column("age", "integer", low=0, high=99, step=50))
    schema = Schema("people", columns, "id")
    rows = [{"id": i // 2, "region": ["North", "South"][i % 2], "age": 3 * i % 110} for i in range(60)]
    tables = (DeclaredTable(()), DeclaredTable(("region",)), DeclaredTable(("region", "age")))
    layout = lay_out(DeclaredPublication("census", "people", tables, tmp_path), schema)
    engine = make(rows, {"id": "int64", "region": "text", "age": "int64"}, schema)
    counts = engine.count(layout.question, salt=SALT)
    total, regions, cells = (layout.sum_table(counts, table) for table in tables)
    people = {row["id"] for row in rows if row["age"] < 100}
    assert (total[0], regions.sum(), cells.sum()) == (len(people),) * 3
    assert cells.reshape(2, 2).sum(axis=1).tolist() == regions.tolist()
    with constant_hash(engine):
        expected = naive.count(schema, ["region", "age"], None, False, rows)
        assert engine.count(layout.question, salt=SALT).tolist() == expected


def column_of(values: list[Any], kind: str, column: Column) -> tuple[list[Row], Types, Schema]:
    return [{column.name: value} for value in values], {column.name: kind}, Schema("people", (column,))


def check(make: Any, values: list[Any], kind: str, column: Column) -> list[int]:
    """Check counts of one column: grouped, NULL, not NULL, and with conditions on both ends of the domain."""
    rows, types, schema = column_of(values, kind, column)
    engine, rows = make(rows, types, schema), naive.precise(rows, make.frame)
    null = Test("null", (column,))
    count_and_compare(engine, schema, rows, [], null)
    count_and_compare(engine, schema, rows, [], Test("not", (null,)))
    first, last = column.value(column.first), column.value(column.last)
    count_and_compare(engine, schema, rows, [], Test("<>", (column, (first,))))
    count_and_compare(engine, schema, rows, [], Test("in", (column, (first, last))))
    if column.kind != "boolean":
        count_and_compare(engine, schema, rows, [], Test("<=", (column, (last,))))
        count_and_compare(engine, schema, rows, [], Test("or", (Test(">", (column, (first,))), null)))
    count_and_compare(engine, schema, rows, [])
    return count_and_compare(engine, schema, rows, [column.name]) if column.keys < 10_000 else []


# -- whole numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "huge"])
def test_integers_of_every_width_are_counted(make: Any, kind: str) -> None:
    ends = {"int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": BIG}
    ends |= {"uint8": 255, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1, "huge": 10**38 - 1}
    least = 0 if kind.startswith("uint") else -ends[kind]
    values = [0, 1, 1, 5, 9, 10, None, ends[kind], ends[kind] - 1, least]
    assert sum(check(make, values, kind, Column("x", "integer", low=-3, high=9, step=4))) == 5 + (least == 0)


def test_large_integers_keep_every_digit_except_in_frames(make: Any) -> None:
    values = [2**31 - 1, 2**31, 2**53, 2**53 + 1, BIG, BIG - 1, -BIG, -BIG - 1, None]
    listed = Column("x", "integer", (2**31, 2**53 + 1, BIG, -BIG, -BIG - 1))
    assert check(make, values, "int64", listed) == ([1, 0, 0, 0, 0] if make.frame else [1, 1, 1, 1, 1])


@pytest.mark.parametrize("kind", ["int64", "huge"])
def test_long_lists_of_integers_are_counted(make: Any, kind: str) -> None:
    """Lists that are bound as one parameter; numbers beyond 64 bits are outside of them."""
    values = [5, 39, 40, -1, None] + ([10**30, -(10**38) + 1] if kind == "huge" else [])
    assert sum(check(make, values, kind, Column("x", "integer", tuple(range(40))))) == 2
    if kind == "int64":
        ends = tuple(sign * (BIG - i) for i in range(400) for sign in (1, -1))
        assert sum(check(make, [BIG, -BIG, 399 - BIG, -BIG - 1, 0, None], kind, Column("x", "integer", ends))) == (
            0 if make.frame else 3
        )


@pytest.mark.parametrize("size", [100, 3_000])
def test_long_lists_of_texts_and_dates_are_counted(make: Any, size: int) -> None:
    """One list is short enough to be part of the SQL text, one is too long."""
    odd = [
        "it's",
        "\\",
        "\\'); --",
        '"',
        "",
        " ",
        "é",
        "e\u0301",
        "😀",
        "ß\u2028",
        "x" * 200,
        "\\u0041",
        "?",
        ":p0",
        "a\tb",
    ]
    texts = [*odd, *(f"a text of a longer list {i}" for i in range(size))]
    values = [*odd, "A", "a text of a longer list 7", "a text of a longer list", "A TEXT OF A LONGER LIST 7", None]
    assert sum(check(make, values, "text", Column("x", "text", tuple(texts)))) == len(odd) + 1
    days = [DAY + datetime.timedelta(i) for i in range(-size, size, 2)]
    dates = [days[0], days[-1], days[0] - datetime.timedelta(1), days[5], None]
    assert sum(check(make, dates, "date", Column("x", "date", tuple(days)))) == 3


@pytest.mark.parametrize(("low", "high"), [(BIG - 10, BIG), (-BIG, -BIG + 10), (-5, 2**61)])
def test_ranges_at_the_limits_of_64_bits_are_counted(make: Any, low: int, high: int) -> None:
    values = [BIG, BIG - 1, -BIG, -BIG - 1, 2**61, 0, -5, -6, None]
    check(make, values, "int64", Column("x", "integer", low=low, high=high))
    check(make, values, "huge", Column("x", "integer", low=low, high=high, step=(high - low + 1) // 2))


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_whole_floats_are_counted_as_integers(make: Any, kind: str) -> None:
    inf, nan = float("inf"), float("nan")
    values = [0.0, -0.0, 1.0, 1.5, -1.0, nan, nan, None, inf, -inf, 1e30, -1e30, 2.0**63, -(2.0**63), 0.25, 3.0]
    assert check(make, values, kind, Column("x", "integer", low=-1, high=3)) == [1, 2, 1, 0, 1]
    assert check(make, values, kind, Column("x", "boolean", (False, True))) == [2, 1]


@pytest.mark.parametrize(("kind", "largest"), [("float32", 2**53 - 2**29), ("float64", 2**53 - 1)])
def test_floats_too_large_to_be_exact_integers_are_outside_the_domain(make: Any, kind: str, largest: int) -> None:
    """Floats of 32 bits are the 64-bit floats that they equal, so both have one limit."""
    whole = [sign * n for n in (largest, 2**53, 2**54) for sign in (1, -1)]
    assert check(make, [float(n) for n in whole], kind, Column("x", "integer", tuple(whole))) == [1, 1, 0, 0, 0, 0]


def test_whole_decimals_are_counted_as_integers(make: Any) -> None:
    digits = ["0", "-0.0", "1.0", "1.0000000001", "3", "9999999999999999999999999999.9999999999", "9223372036854775807"]
    values = [Decimal(d) for d in digits] + [None, Decimal(-(10**27))]
    assert check(make, values, "decimal", Column("x", "integer", low=0, high=3)) == [2, 1, 0, 1]


NUMBERS_AS_TEXT = ["3", "3.5", "1e3", "0x10", "1_000", " 3 ", "12.0", "12.", "+12", "-0", "-0.0", "007", ".5", ".", "+"]
NUMBERS_AS_TEXT += [
    "-",
    "",
    "  ",
    "--1",
    "1 2",
    "１",
    "٣",
    "3\n",
    "\t3",
    "\u00a03",
    "3\u2003",
    "0b1",
    "NaN",
    "nan",
    "inf",
]
NUMBERS_AS_TEXT += ["true", "1,000", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 26]
NUMBERS_AS_TEXT += ["0" * 23 + "12", "12." + "0" * 38, "12." + "0" * 29 + "1", "1.", "3;--", "½", "Ⅷ", "1e400", "1E3"]
NUMBERS_AS_TEXT += ["3f", "3d", "3L"]


def test_numbers_written_as_text_are_read_as_integers(make: Any) -> None:
    values = [*NUMBERS_AS_TEXT, None]
    assert sum(check(make, values, "text", Column("x", "integer", low=-3, high=1000))) == 11
    assert check(make, values, "text", Column("x", "integer", (BIG, -BIG - 1, 12))) == [1, 1, 5]


def test_texts_of_thousands_of_digits_do_not_make_an_engine_fail(make: Any) -> None:
    """More digits than the exact numbers of any engine, before and after the decimal point."""
    values = [
        "9" * 140_000,
        "3." + "0" * 17_000,
        "0" * 140_000 + "3",
        "-" + "0" * 20_000 + "3",
        "2." + "0" * 17_000 + "1",
    ]
    values += [" " * 20_000 + "2" + " " * 20_000, "1" * 20, "-" + "9" * 140_000 + ".0", None]
    rows, types, schema = column_of(values, "text", Column("x", "integer", low=-3, high=3))
    counts = make(rows, types, schema).count(ask(schema, naive.sql(schema, ["x"])), salt=SALT)
    assert counts.tolist() == [1, 0, 0, 0, 0, 1, 2]
    rows, types, schema = column_of(
        ["1." + "0" * 17_000, "0" * 140_000, "9" * 140_000], "text", Column("x", "boolean", (False, True))
    )
    assert make(rows, types, schema).count(ask(schema, naive.sql(schema, ["x"])), salt=SALT).tolist() == [1, 1]


# -- text, booleans, dates ---------------------------------------------------------------------------------------------

NFC, NFD = (unicodedata.normalize(form, "Zürich") for form in ("NFC", "NFD"))
STRINGS = ["", " ", "a", "A", " a", "a ", "a\n", "a\r\nb", '"', "'", "''", "a,b", "%", "_", "\\", "\t", "\x01\x1b\x7f"]
STRINGS += [
    "🜚🙂",
    "👩‍👩‍👧",
    NFC,
    NFD,
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "NULL",
    "null",
    "N/A",
    "0",
    "00",
    "1.0",
    "$1",
    "{}",
    "x" * 3000,
]


@pytest.mark.parametrize("kind", ["text", "category"])
def test_text_is_compared_character_by_character(make: Any, kind: str) -> None:
    declared = Column("x", "text", tuple(STRINGS[::2]))
    assert check(make, [*STRINGS, *STRINGS[:9], None, None], kind, declared) == [2] * 5 + [1] * (len(STRINGS) // 2 - 5)
    check(make, [*STRINGS, None], kind, Column("x", "text", tuple(STRINGS[1::2])))


def test_integers_are_read_as_declared_text(make: Any) -> None:
    assert check(make, [1, 1, -1, 10, None, 0], "int32", Column("x", "text", ("1", "-1", "01", "0"))) == [2, 1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bool", [True, False, False, None]),
        ("int8", [1, 0, 0, 2, -1, None]),
        ("uint64", [1, 0, 0, 2, 2**64 - 1, None]),
        ("text", ["true", "FALSE", " f ", "yes", "", None, "2", "ＴＲＵＥ", "tru\u0065\u0301", "T\n", "1.5"]),
        ("text", ["1.0", " 0", "-00", "tt", "0x0", "1e0", None]),
    ],
)
def test_booleans_are_read_from_every_type(make: Any, kind: str, values: list[Any]) -> None:
    assert check(make, values, kind, Column("x", "boolean", (False, True))) == [2, 1]


DATES_AS_TEXT = (
    "2026-01-31|2026-1-31| 2026-01-30 |2026-02-30|20260131|2026-01-31T00:00:00|31.01.2026|0000-00-00|2026-W05-6"
)
DATES_AS_TEXT += (
    "|infinity|epoch|today||9999-12-31|0001-01-01|２０２６-01-31|2026-01-31\n|-2026-01-31|2026-01-31 BC|0000-01-01"
)
DATES_AS_TEXT += "|2026-01-31 10:00:00|2026-01-30T23:59:59.999999999| 2026-01-29 00:00:00.5 |2026-02-30 10:00:00"
DATES_AS_TEXT += "|2026-01-31T24:00:00|2026-01-31 10:60:00|2026-01-31 23:59:60|2026-01-31 10:00|2026-01-31T10:00:00Z"
DATES_AS_TEXT += "|2026-01-31 10:00:00+00|2026-01-31 10:00:00.|2026-01-31 10:00:00.1234567890|2026-01-31  10:00:00"
DATES_AS_TEXT += (
    "|2026-01-31t10:00:00|2026-01-31\t10:00:00|2026-01-31 10:00:00\n|2026-01-3110:00:00"
    "|9999-12-31 23:59:59.999999999|2026-01-31T10:00:00,5"
)
DATES_AS_TEXT += "|0000-01-01T10:00:00|2026-01-31 1:00:00|2026-01-31 10:00:00 AM|2026-01-31 １0:00:00"


def test_dates_and_dates_as_text_are_counted(make: Any) -> None:
    week = Column("x", "date", low=DAY.toordinal() - 6, high=DAY.toordinal())
    ever = Column("x", "date", low=1, high=datetime.date.max.toordinal(), step=100 * 365)
    few = Column("x", "date", (DAY, datetime.date.max, datetime.date.min))
    dates = [DAY, DAY - datetime.timedelta(6), datetime.date.min, datetime.date.max, None]
    for column in (week, ever, few):
        check(make, dates, "date", column)
        check(make, [*DATES_AS_TEXT.split("|"), None], "text", column)


@pytest.mark.parametrize("kind", ["seconds", "micros", "nanos"])
def test_time_stamps_are_counted_by_their_day(make: Any, kind: str) -> None:
    midnight = datetime.datetime(2026, 1, 31)
    second = datetime.timedelta(seconds=1)
    values = [midnight, midnight - second, midnight + 86399 * second, midnight + 86400 * second, None]
    values += [datetime.datetime(1700, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59)]
    assert check(make, values, kind, Column("x", "date", low=DAY.toordinal() - 1, high=DAY.toordinal())) == [1, 2]
    check(make, values, kind, Column("x", "date", (datetime.date(1969, 12, 31), DAY)))


def test_the_last_nanosecond_of_a_day_is_counted_on_that_day(make: Any) -> None:
    """Before 1970 and after; these are the ends of pandas' periods."""
    last = [pd.Timestamp(day * 86_400 * 10**9 - 1) for day in (-1, 0, 1, 20_000)]
    days = tuple((first - pd.Timedelta(1)).date() for first in (pd.Timestamp(day, unit="D") for day in (0, 1, 20_000)))
    assert check(make, [*last, None], "nanos", Column("x", "date", days)) == [1, 1, 1]


# -- shapes of tables --------------------------------------------------------------------------------------------------

REGION = Column("region", "text", ("North", "South", "East"))
AGE = Column("age", "integer", low=0, high=99, step=10)
ADULT = Column("adult", "boolean", (False, True))
BORN = Column("born", "date", low=DAY.toordinal() - 99, high=DAY.toordinal(), step=30)
TYPES = {"id": "int64", "region": "text", "age": "int32", "adult": "bool", "born": "date"}


def person(i: int) -> Row:
    day = DAY - datetime.timedelta(i % 130)
    region = (*REGION.values, "West", None)[i % 5]
    return {"id": i % 7 or None, "region": region, "age": i % 110, "adult": i % 4 > 1, "born": day}


@pytest.mark.parametrize("size", [0, 1, 2, 200])
@pytest.mark.parametrize("unit", ["row", "id"])
def test_tables_of_every_size_and_shape_are_counted(make: Any, size: int, unit: str) -> None:
    schema = Schema("people", (REGION, AGE, ADULT, BORN), unit=unit, rows_per_person=1 if unit == "row" else 3)
    rows = [person(i) for i in range(size)]
    engine = make(rows, TYPES, schema)
    where = Test("and", (Test(">=", (AGE, (18,))), Test("not", (Test("=", (REGION, ("South",))),))))
    for by in (
        [],
        ["region"],
        ["age", "region"],
        ["adult"],
        ["born", "adult", "region"],
        [c.name for c in schema.columns],
    ):
        count_and_compare(engine, schema, rows, by)
        count_and_compare(engine, schema, rows, by, where)
        if unit == "id":
            count_and_compare(engine, schema, rows, by, where, distinct=True)


def test_the_method_columns_returns_the_names_and_type_families_of_columns(
    make: Any, request: pytest.FixtureRequest
) -> None:
    schema = Schema("people", (REGION, AGE, ADULT, BORN), unit="id")
    columns = dict(make([person(1)], TYPES, schema).columns())
    families = {"id": "integer", "region": "text", "age": "integer", "adult": "boolean", "born": "date"}
    untyped = "csv" in request.node.name or "objects" in request.node.name
    assert columns == (dict.fromkeys(families, "text") if untyped else families)


def test_source_columns_may_have_the_names_that_generated_sql_uses(make: Any) -> None:
    """The generated SQL has aliases such as u, k0 and cell."""
    names = [
        "u",
        "k0",
        "k1",
        "n",
        "cell",
        "v",
        "i",
        "d0",
        "place",
        "counted",
        "frame",
        "count",
        "a b",
        'q"x',
        "select",
        "é",
    ]
    columns = tuple(Column(name, "integer", low=0, high=2) for name in names)
    rows = [{name: (i * (j + 1)) % 4 for j, name in enumerate(names)} | {"who": i % 3} for i in range(40)]
    types = dict.fromkeys([*names, "who"], "int32")
    for unit in ("row", "who", "u", "n"):
        schema = Schema("people", tuple(c for c in columns if c.name != unit), unit=unit, cells_per_person=2)
        engine = make(rows, types, schema)
        for by in (["k1", "k0"], ["v", "i"], ["cell", "place"], ["a b", "select", "é"], ["d0", "frame"], ["k0"]):
            count_and_compare(engine, schema, rows, by, Test("=", (columns[4], (1,))) if unit == "row" else None)


UNITS, CELLS, MOST = ["int64", "uint64", "text", "category", "huge"], [1, 2, 3, 100], [1, 2, 1000]
PAIRWISE = [(c, MOST[(i + j) % 3], u) for i, u in enumerate(UNITS) for j, c in enumerate(CELLS)]
"""Every pair of values of two of the three parameters occurs."""


@pytest.mark.parametrize(("cells", "most", "unit"), PAIRWISE)
def test_people_in_many_rows_and_cells_are_bounded(make: Any, cells: int, most: int, unit: str) -> None:
    schema = Schema("people", (REGION, AGE), unit="id", cells_per_person=cells, rows_per_person=most)
    ids: list[Any] = [None, 0, 1, 2, 10**15, 3, 4]
    if unit in ("text", "category"):
        ids = [None, "", "a", "a|1", "1", "01", "é\n'"]
    rows = [{"id": ids[i * i % 7], "region": REGION.values[i % 3], "age": i % 40} for i in range(150)]
    engine = make(rows, {"id": unit, "region": "text", "age": "int8"}, schema)
    for by in ([], ["region"], ["region", "age"]):
        count_and_compare(engine, schema, rows, by)
        count_and_compare(engine, schema, rows, by, distinct=True)


# -- any values, any schema --------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.sampled_from([*NUMBERS_AS_TEXT, *STRINGS, *DATES_AS_TEXT.split("|")]),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=6),
    st.integers().map(str),
    st.from_regex(r"[+-]?[0-9]{0,25}[.]?[0-9]{0,25}", fullmatch=True),
    st.dates().map(str),
)


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(low, high), st.integers(max(low, -5), 5), st.sampled_from([low, high]))


NAIVE_TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{n}": whole(n, True) for n in (8, 16, 32, 64)},
    **{f"uint{n}": whole(n, False) for n in (8, 16, 32, 64)},
    "huge": st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), whole(64, True)),
    "float32": st.one_of(st.floats(width=32), st.integers(-5, 5).map(float)),
    "float64": st.one_of(st.floats(), st.integers(-5, 5).map(float), st.integers(-(2**70), 2**70).map(float)),
    "decimal": st.one_of(
        st.decimals(-(10**27), 10**27, places=10),
        st.integers(-5, 5).map(Decimal),
        st.integers(-(2**63), BIG).map(Decimal),
    ),
    "text": WORDS,
    "category": WORDS,
    "bool": st.booleans(),
    "date": st.dates(),
    "seconds": NAIVE_TIMES,
    "micros": NAIVE_TIMES,
    "nanos": NAIVE_TIMES,
}
READ_FROM = {
    "integer": [k for k in ARROW if k.startswith(("int", "uint", "float"))] + ["huge", "decimal", "text", "category"],
    "text": [k for k in ARROW if k.startswith(("int", "uint"))] + ["huge", "text", "category"],
    "boolean": [k for k in ARROW if k.startswith(("int", "uint", "float"))] + ["bool", "huge", "decimal", "text"],
    "date": ["date", "seconds", "micros", "nanos", "text", "category"],
}


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(["integer", "text", "boolean", "date"]))
    if kind == "boolean":
        return Column(name, "boolean", (False, True))
    if kind == "text":
        return Column(name, "text", tuple(draw(st.lists(WORDS, min_size=1, max_size=40, unique=True))))
    points = whole(64, True) if kind == "integer" else st.dates()
    if draw(st.booleans()):
        return Column(name, kind, tuple(draw(st.lists(points, min_size=1, max_size=40, unique=True))))  # type: ignore[arg-type]
    start = draw(points)
    low = start if isinstance(start, int) else start.toordinal()
    last = BIG if kind == "integer" else datetime.date.max.toordinal()
    low = max(low, -BIG)
    high = min(last, low + draw(st.one_of(st.integers(0, 12), st.integers(0, 2**62 - 1))))
    least = -(-(high - low + 1) // 20)
    return Column(name, kind, low=low, high=high, step=draw(st.integers(least, high - low + 1)))  # type: ignore[arg-type]


@st.composite
def conditions(draw: st.DrawFn, among: tuple[Column, ...], depth: int = 2) -> Test:
    if depth and draw(st.booleans()):
        op = draw(st.sampled_from(["and", "or", "not"]))
        parts = draw(st.lists(conditions(among, depth - 1), min_size=1, max_size=1 if op == "not" else 3))
        return Test(op, tuple(parts))
    column = draw(st.sampled_from(among))
    values = [column.value(draw(st.integers(column.first, column.last))) for _ in range(draw(st.integers(1, 50)))]
    ops = ["null", "in", "=", "<>"] + ([] if column.kind == "boolean" else ["<", "<=", ">", ">="])
    op = draw(st.sampled_from(ops))
    return Test("null", (column,)) if op == "null" else Test(op, (column, tuple(values)))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Types, list[Row]]:
    declared = tuple(draw(columns(f"c{i}")) for i in range(draw(st.integers(1, 3))))
    types = {column.name: draw(st.sampled_from(READ_FROM[column.kind])) for column in declared}
    unit = draw(st.sampled_from(["row", "id"]))
    types["id"] = draw(st.sampled_from(["int64", "text"]))
    own = {
        column.name: st.one_of(st.none(), VALUES[types[column.name]], st.sampled_from(column.values))
        if column.kind == "text" and types[column.name] in ("text", "category")
        else st.one_of(st.none(), VALUES[types[column.name]])
        for column in declared
    }
    ids = st.one_of(st.none(), st.integers(0, 4)) if types["id"] == "int64" else st.sampled_from([None, "", "a", "b"])
    rows = draw(st.lists(st.fixed_dictionaries({**own, "id": ids}), max_size=25))
    bounds = {"rows_per_person": draw(st.integers(1, 3)), "cells_per_person": draw(st.integers(1, 3))}
    return Schema("people", declared, unit=unit, **(bounds if unit == "id" else {})), types, rows


@pytest.mark.slow
@pytest.mark.parametrize("name", choices(name for name in MAKERS if name not in SLOW))
@examples(120, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_tables_are_counted_as_defined(name: str, data: st.DataObject) -> None:
    check_random_table(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", choices(sorted(SLOW)))
@examples(12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_tables_are_counted_as_defined_on_slow_engines(name: str, data: st.DataObject) -> None:
    check_random_table(name, data)


def check_random_table(name: str, data: st.DataObject) -> None:
    schema, types, rows = data.draw(tables())
    with tempfile.TemporaryDirectory() as folder:
        engine, rows = opened(name, rows, types, Path(folder), schema), naive.precise(rows, name in FRAMES)
        try:
            for _ in range(3):
                by = data.draw(st.lists(st.sampled_from([c.name for c in schema.columns]), unique=True, max_size=2))
                where = data.draw(st.one_of(st.none(), conditions(schema.columns)))
                distinct = not schema.unit_is_row and data.draw(st.booleans())
                count_and_compare(engine, schema, rows, by, where, distinct)
        finally:
            engine.close()


# -- missing columns ---------------------------------------------------------------------------------------------------


def test_a_declared_column_that_the_source_lacks_is_refused(make: Any) -> None:
    rows = [{"x": 1}]
    with pytest.raises(DataError, match="column y is declared, but the source has no column of that name"):
        make(rows, {"x": "int64"}, Schema("people", (Column("y", "integer", low=0, high=1),)))
    with pytest.raises(DataError, match="unit who is declared"):
        make(rows, {"x": "int64"}, Schema("people", (Column("x", "integer", low=0, high=1),), unit="who"))
    with pytest.raises(DataError, match="column X is declared"):  # names are exact
        make(rows, {"x": "int64"}, Schema("people", (Column("X", "integer", low=0, high=1),)))
