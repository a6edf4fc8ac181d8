"""In a frame, one more row changes how no other row is read, whatever type it gives to the column.

How a value is read depends on the value and the declared column alone. So a column is read before and after it is
joined with a row of another type, for all pairs of types of pandas, polars and pyarrow, and for many Python values;
each as an integer, a text, a boolean, a date, a number in bins, an instant and a person's id.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from countveil.curator.curator import Curator
from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.steps import bin_of
from countveil.data.frames import arrow_table, content_table
from countveil.errors import ConfigError, DataError
from countveil.query import ask
from countveil.query.condition import Membership, domain_of
from countveil.query.derived import parse_columns
from countveil.query.schema import Schema
from tests.support.curated import config_text, with_plan, written

BERLIN = datetime.timezone(datetime.timedelta(hours=1))
LATE, EARLY = 365 * 86_400 * 10**9 - 1, -1
"""The last nanoseconds of 1970 and of 1969."""

# -- columns of every type ---------------------------------------------------------------------------------------------

FLOATS: list[Any] = [0.7, 0.3, 1.0, 2.0**24, 0.1, None]
LARGE = [2.0**53 - 1, 2.0**53, 2.0**60, float("inf")]
SMALL: list[Any] = [0, 1, 7, 100]
BIG = [2**24 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**60]
DIGITS = [Decimal("0.7"), Decimal("0.69999999999999999999"), Decimal(7), Decimal(2**53 + 1), Decimal("0.3")]
WORDS = ["0.7", "true", "1", "North", "2026-01-01", "9007199254740993", "1970-12-31T23:30:00-01:00", "", "1.0"]
DAYS = [datetime.date(2026, 1, 1), datetime.date(1969, 12, 31), None]
MOMENTS = [datetime.datetime(1970, 12, 31, 23, 59, 59, 999_999), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)]
ZONED = [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS]
VALUES: dict[str, list[Any]] = {
    "float": FLOATS,
    "large float": [0.5, *LARGE],
    "integer": SMALL,
    "large integer": [*SMALL, *BIG],
    "boolean": [True, False],
    "decimal": DIGITS,
    "text": WORDS,
    "date": DAYS,
    "time stamp": MOMENTS,
    "zoned": ZONED,
}
PYTHON: list[Any] = [
    None,
    float("nan"),
    True,
    False,
    0,
    7,
    2**53 + 1,
    2**63 - 1,
    2**64,
    10**30,
    0.7,
    1.5,
    2.0**53,
    1e300,
]
PYTHON += [float("inf"), 1j, 1 + 0j, "x", "0.7", "7", b"7", b"\xff", Decimal("0.7"), Decimal("sNaN"), Decimal("1E+400")]
PYTHON += [DAYS[0], MOMENTS[0], ZONED[0], MOMENTS[0].replace(tzinfo=BERLIN), datetime.time(1), datetime.timedelta(1)]
PYTHON += [uuid.UUID(int=7), [1], {}, (1, 2), object()]
NUMPY = [np.float32(0.7), np.float16(0.3), np.float64(0.7), np.longdouble("0.7"), np.int8(7), np.int64(2**53 + 1)]
NUMPY += [np.uint64(2**63), np.bool_(True), np.datetime64(LATE, "ns"), np.timedelta64(1, "ns"), np.complex64(0.7)]
NUMPY += [pd.NA, pd.NaT, pd.Timestamp(LATE), pd.Timestamp(LATE, tz="UTC"), pd.Period("2026-01"), pd.Interval(0, 1)]


def pandas_columns() -> Iterator[pd.Series]:
    plain = {
        "float": ["float64", "float32", "float16", "Float32", "Float64", "float[pyarrow]", "double[pyarrow]"],
        "large float": ["float64", "float32", "Float64"],
        "integer": ["int8", "int32", "uint8", "uint32", "Int8", "UInt32", "int8[pyarrow]", "uint32[pyarrow]"],
        "large integer": ["int64", "uint64", "Int64", "UInt64", "int64[pyarrow]", "uint64[pyarrow]"],
        "boolean": ["bool", "boolean", "bool[pyarrow]"],
        "text": ["str", "string", "string[pyarrow]"],
        "time stamp": ["datetime64[ns]", "datetime64[us]", "datetime64[s]", "timestamp[us][pyarrow]"],
        "zoned": ["datetime64[ns, UTC]", "datetime64[us, Europe/Berlin]"],
        "date": ["date32[day][pyarrow]"],
    }
    for kind, types in plain.items():
        for dtype in types:
            yield pd.Series(VALUES[kind], dtype="object" if kind == "date" else None).astype(dtype)
    for kind, dtype in (("float", "float32"), ("large integer", "int64"), ("boolean", "bool"), ("text", "str")):
        yield pd.Series(VALUES[kind]).astype(dtype).astype("category")
    for kind in ("float", "large integer", "boolean", "text", "date", "decimal"):
        yield pd.Series(VALUES[kind], dtype=object)
    yield pd.Series(DIGITS, dtype=pd.ArrowDtype(pa.decimal128(38, 20)))
    for dtype in (np.longdouble, np.complex64, "Sparse[float32]"):
        yield pd.Series(np.array([0.7, 0.3, 1.0])).astype(dtype)
    yield pd.Series(np.array([0.7, 0.3], np.float32)).astype("halffloat[pyarrow]")
    yield pd.Series(np.array([LATE, EARLY], "datetime64[ns]"))
    yield pd.Series(np.array([LATE, EARLY], "datetime64[ns]")).astype("timestamp[ns][pyarrow]")
    yield pd.Series(np.array([LATE, EARLY], "datetime64[ns]")).dt.tz_localize("UTC")
    yield pd.Series(pd.cut([1, 5], [0, 3, 6]))
    yield pd.Series(pd.PeriodIndex(["2026-01", "2026-02"], freq="M")).astype("category")
    yield pd.Series(np.array(["20000-01-01", "1969-12-31"], "datetime64[s]"))
    yield pd.Series(["1", "North"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))
    yield pd.Series([datetime.timedelta(1)])
    yield pd.Series([pd.Period("2026-01")])
    yield pd.Series([b"7", b"North"])
    yield pd.Series([None, None], dtype=object)
    yield pd.Series([np.nan, np.nan])
    yield pd.Series([[1], [2]])


def polars_columns() -> Iterator[pl.Series]:
    types: dict[str, list[Any]] = {
        "float": [pl.Float64, pl.Float32, pl.Float16],
        "large float": [pl.Float64],
        "integer": [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.Int128],
        "large integer": [pl.Int64, pl.UInt64, pl.Int128],
        "boolean": [pl.Boolean],
        "text": [pl.String, pl.Categorical, pl.Enum(WORDS)],
        "date": [pl.Date],
        "time stamp": [pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("ms")],
        "zoned": [pl.Datetime("us", "UTC"), pl.Datetime("ns", "UTC")],
        "decimal": [pl.Decimal(38, 20)],
    }
    for kind, kinds in types.items():
        for dtype in kinds:
            yield pl.Series("x", VALUES[kind], strict=False).cast(dtype)
    yield pl.Series("x", [LATE, EARLY]).cast(pl.Datetime("ns"))
    for values in ([None], [b"7"], [datetime.time(1)], [datetime.timedelta(1)], [[1]], [{"a": 1}]):
        yield pl.Series("x", values)
    yield pl.Series("x", [object(), 7], dtype=pl.Object)


def pyarrow_columns() -> Iterator[pa.Array]:
    types: dict[str, list[Any]] = {
        "float": [pa.float64(), pa.float32(), pa.float16()],
        "large float": [pa.float64()],
        "integer": [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.decimal128(20, 0)],
        "large integer": [pa.int64(), pa.uint64(), pa.decimal128(20, 0), pa.decimal256(50, 0)],
        "boolean": [pa.bool_()],
        "text": [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        "date": [pa.date32(), pa.date64()],
        "time stamp": [pa.timestamp("us"), pa.timestamp("ns")],
        "zoned": [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")],
        "decimal": [pa.decimal128(38, 20), pa.decimal256(60, 20)],
    }
    for kind, kinds in types.items():
        for dtype in kinds:
            yield pa.array(VALUES[kind], pa.float64() if dtype == pa.float32() else None).cast(dtype, safe=False)
    for unit, day in (("ns", 86_400 * 10**9), ("s", 86_400), ("ms", 86_400_000)):
        yield pa.array([day - 1, -1, None], pa.timestamp(unit))
    yield pa.array([0.5, None]).dictionary_encode()
    for values, dtype in ((["1", "x"], pa.string_view()), ([b"7"], pa.binary()), ([b"7"], pa.binary_view())):
        yield pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(values, dtype))
    yield pa.nulls(1)
    for values, dtype in (([b"7"], pa.binary()), ([7], pa.time32("s")), ([7], pa.duration("ns")), ([[1]], None)):
        yield pa.array(values, dtype)


# -- adding a row ------------------------------------------------------------------------------------------------------


def join_pandas(column: pd.Series, other: pd.Series) -> Iterator[pd.Series]:
    yield pd.concat([column, other.iloc[:1]], ignore_index=True)


def add_to_pandas(column: pd.Series, value: Any) -> Iterator[pd.Series]:
    """A row whose value pandas, numpy or a list of values has to find a place for."""
    yield pd.concat([column, pd.Series([value], dtype=object)], ignore_index=True)
    yield pd.Series([*column.tolist(), value])
    enlarged = column.copy()
    enlarged.loc[len(enlarged)] = value
    yield enlarged


def join_polars(column: pl.Series, other: pl.Series) -> Iterator[pl.Series]:
    frames = [pl.DataFrame({"x": column}), pl.DataFrame({"x": other.head(1)})]
    yield pl.concat(frames, how="vertical_relaxed")["x"]


def add_to_polars(column: pl.Series, value: Any) -> Iterator[pl.Series]:
    yield pl.Series("x", [*column.to_list(), value], strict=False)


def join_pyarrow(column: pa.Array, other: pa.Array) -> Iterator[pa.ChunkedArray]:
    tables = [pa.table({"x": column}), pa.table({"x": other[:1]})]
    yield pa.concat_tables(tables, promote_options="permissive")["x"]


def add_to_pyarrow(column: pa.Array, value: Any) -> Iterator[pa.Array]:
    yield pa.array([*column.to_pylist(), value])


# -- how rows are read -------------------------------------------------------------------------------------------------

EDGES = ["0", "0.3", "0.7", "16777217", "9007199254740992", "9007199254740994"]
DECLARED: dict[str, dict[str, Any]] = {
    "integer": {"values": [0, 1, 7, 100, 2**24, 2**24 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**60]},
    "text": {"values": ["0", "1", "7", "0.7", "1.0", "true", "North", "2026-01-01", "9007199254740993", ""]},
    "boolean": {"type": "boolean"},
    "date": {"min": datetime.date(1, 1, 1), "max": datetime.date(2026, 12, 31)},
    "number": {"bins": EDGES},
    "instant": {"by": "year", "min": "1969", "max": "1970", "zone": "UTC"},
}
DERIVED = ("number", "instant")
OUTSIDE, REFUSED = "outside", "refused"
UNREAD = {OUTSIDE, None}
"""How rows of a column that is refused may be read in a column that is not."""
REFUSALS: dict[tuple[str, str], bool] = {}
MOST = 40
"""How many columns are read together at most."""
MakeFrame = Callable[[dict[str, Any]], Any]
Read = list[str | None]
"""How each row of a column is read: a value or the number of a bin, None if it is missing, or `OUTSIDE`; `REFUSED` if
the frame is refused for the type of the column."""


def read_columns(make_frame: MakeFrame, columns: list[Any]) -> list[dict[str, Read]]:
    """How the rows of columns of one length are read, in each way."""
    readings: list[dict[str, Read]] = [{"person": read_people(make_frame, column)} for column in columns]
    for column in columns:
        content_table(make_frame({"x": column}))  # no column, declared or not, makes a fingerprint fail
    pairs = [(place, reading) for reading in DECLARED for place in range(len(columns))]
    for place, reading in pairs:
        readings[place][reading] = [REFUSED] * len(columns[0])
    pairs = [pair for pair in pairs if not is_refused(make_frame, columns[pair[0]], pair[1])]
    for start in range(0, len(pairs), MOST):
        chosen = pairs[start : start + MOST]
        read = read_frame(make_frame, [columns[place] for place, _ in chosen], [reading for _, reading in chosen])
        for (place, reading), rows in zip(chosen, read, strict=True):
            readings[place][reading] = rows
    return readings


def is_refused(make_frame: MakeFrame, column: Any, reading: str) -> bool:
    """Whether a frame with a column is refused for its type: tried once for each type that columns are converted to."""
    name = "x" if reading in DERIVED else "c"
    entry = {**DECLARED[reading], **({"from": name} if reading in DERIVED else {})}
    frame, schema = make_frame({name: column}), Schema("people", parse_columns({"c": entry}, "columns"))
    kind = str(arrow_table(frame, schema).column(0).type), reading
    if kind not in REFUSALS:
        try:
            DuckDBEngine(Source(frame=frame), schema).close()
        except DataError:
            REFUSALS[kind] = True
        else:
            REFUSALS[kind] = False
    return REFUSALS[kind]


def read_frame(make_frame: MakeFrame, columns: list[Any], readings: list[str]) -> list[Read]:
    """How the rows of a frame with these columns are read, the first as the first kind and so on."""
    names = [f"{'x' if reading in DERIVED else 'c'}{i}" for i, reading in enumerate(readings)]
    entries: dict[str, Any] = {
        f"c{i}": {**DECLARED[reading], **({"from": name} if reading in DERIVED else {})}
        for i, (name, reading) in enumerate(zip(names, readings, strict=True))
    }
    frame = make_frame({**dict(zip(names, columns, strict=True)), "place": range(len(columns[0]))})
    schema = Schema("people", parse_columns({**entries, "place": {"min": 0, "max": 99}}, "columns"))
    engine = DuckDBEngine(Source(frame=frame), schema)
    try:
        compiler, parts = engine.compiler(), []
        for each in (schema.by_name[name] for name in entries):
            root = each.root
            value = bin_of(compiler, ask(schema, by=each.name).parts[0]) if each.source else compiler.read(root)
            inside = compiler.member(Membership(root, domain_of(root)))
            text = f"coalesce(CASE WHEN {inside} THEN CAST({value} AS VARCHAR) END, '{OUTSIDE}')"
            parts.append(f"CASE WHEN NOT {compiler.missing(root)} THEN {text} END AS {each.name}")
        rows = engine.run(compiler.statement(f"SELECT {', '.join(parts)} FROM {compiler.relation} ORDER BY place"))
        return [[None if v is None or v is np.ma.masked else str(v) for v in column] for column in rows.values()]
    finally:
        engine.close()


def read_people(make_frame: MakeFrame, column: Any) -> Read:
    """The person of each row, as engines read the types that a column of people is converted to."""
    people = arrow_table(make_frame({"x": column}), Schema("people", (), "x")).column(0)
    if pa.types.is_timestamp(people.type) or pa.types.is_binary(people.type):
        return [REFUSED] * len(people)
    return list(map(read_person, people.to_pylist()))


def read_person(value: Any) -> str | None:
    if isinstance(value, float):
        return None if np.isnan(value) else str(int(value)) if value.is_integer() and abs(value) < 2**53 else OUTSIDE
    return None if value is None else OUTSIDE if not isinstance(value, (int, str)) or value == "\ufffd" else str(value)


def same_value(before: Any, after: Any) -> bool:
    """Whether a library kept a value when it changed the type of its column: it may widen it, but not write it as text,
    round it to 32 bits or count its days."""
    numbers = (int, float, Decimal)
    if type(before) is not bool and isinstance(before, numbers) and isinstance(after, numbers):
        return float(before) == float(after)
    if isinstance(before, datetime.date) and isinstance(after, datetime.date):
        return before == (after if isinstance(before, datetime.datetime) else after.replace())
    return type(before) is type(after) and before == after


LIBRARIES: dict[str, Any] = {
    "pandas": (pandas_columns, pd.DataFrame, join_pandas, add_to_pandas, [*PYTHON, *NUMPY]),
    "polars": (polars_columns, pl.DataFrame, join_polars, add_to_polars, PYTHON),
    "pyarrow": (pyarrow_columns, pa.table, join_pyarrow, add_to_pyarrow, PYTHON),
}
FAILURES = (TypeError, ValueError, OverflowError, NotImplementedError, ArithmeticError, AttributeError)
FAILURES += (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def values_of(column: Any) -> list[Any]:
    """A column's values; times as whole numbers if Python has no such time."""
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.to_list()
    with suppress(OverflowError):
        return column.to_pylist()
    return column.cast(pa.int64()).to_pylist()


def longer_columns(library: str, column: Any, others: list[Any], values: list[Any]) -> Iterator[Any]:
    """The column with one more row, which is the first of another column or has one of these values."""
    _, _, join, add, _ = LIBRARIES[library]
    for way, other in [*((join, other) for other in others), *((add, value) for value in values)]:
        with suppress(*FAILURES):  # the library has no type for both
            yield from way(column, other)


def compare_readings(library: str, columns: int = 1, others: int = 1, odd: int = 1) -> int:
    """Compare how each row of a column is read before and after a row is added; how many columns were compared.

    Every so many columns are taken, with every so many of the others, and with every so many of the values.
    """
    make_columns, make_frame, _, _, values = LIBRARIES[library]
    every, compared = list(make_columns()), 0
    for start, column in enumerate(every[::columns]):
        chosen, added = every[start % others :: others], values[start % odd :: odd]
        longer = list(longer_columns(library, column, chosen, added))
        if not longer:
            continue
        before = read_columns(make_frame, [column])[0]
        for each, after in zip(longer, read_columns(make_frame, longer), strict=True):
            # where pandas turns a masked column into a complex one, it shows unwritten memory for a missing value
            kept = [value is not pd.NA or getattr(each, "dtype", None) != "complex128" for value in values_of(column)]
            if library != "pandas":
                kept = [same_value(a, b) for a, b in zip(values_of(column), values_of(each), strict=False)]
            for reading, read in after.items():
                rows = zip(kept, before[reading], read[:-1], strict=True)
                same = all(a == b or not keeps or (REFUSED in (a, b) and {a, b} & UNREAD) for keeps, a, b in rows)
                assert same, f"{reading}: {values_of(column)}, {values_of(each)}: {before[reading]}, {read}"
            compared += any(kept)
    return compared


QUIET = pytest.mark.filterwarnings("ignore::Warning")  # of libraries that are given odd values


@QUIET
@pytest.mark.slow  # reads thousands of columns
@pytest.mark.parametrize(("library", "odd", "least"), [("pandas", 12, 3_500), ("polars", 3, 400), ("pyarrow", 3, 200)])
def test_one_more_row_of_any_type_changes_how_no_other_row_is_read(library: str, odd: int, least: int) -> None:
    assert compare_readings(library, odd=odd) >= least


@QUIET
@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_one_more_row_of_some_types_changes_how_no_other_row_is_read(library: str) -> None:
    assert compare_readings(library, columns=19, others=29, odd=29) >= 1


# -- through the curator -----------------------------------------------------------------------------------------------


def released(folder: Path, columns: str, frame: Any, sql: str, unit: str = "row") -> tuple[list[int], int]:
    """The released counts of a frame, and how far they can be from the truth."""
    folder.mkdir(parents=True)
    path = written(folder, config_text(unit=unit, columns=columns))
    with_plan(path)
    with Curator.open(path, sources={"people": frame}) as curator:
        table = curator.count(sql)
        return table.released.tolist(), table.worst_error


def check_counts(folder: Path, columns: str, frames: list[Any], sql: str, expected: list[int], unit: str) -> None:
    for i, frame in enumerate(frames):
        counts, error = released(folder / str(i), columns, frame, sql, unit)
        assert error < 20
        assert all(abs(n - m) <= error + 1 for n, m in zip(counts, expected, strict=True)), (i, counts)


CROWD = 1_000
ODD_ROWS = [pd.Series(["x"]), pd.Series([None], dtype=object), pd.Series([0.5]), pd.Series([Decimal("0.5")])]


@QUIET
@pytest.mark.parametrize("dtype", ["float32", "Float32", "float[pyarrow]", "float16", "category"])
def test_one_odd_row_moves_nobody_to_another_bin(dtype: str, tmp_path: Path) -> None:
    """0.7 with 32 bits is below 0.7, with 16 bits above, in a column of any type."""
    column = pd.Series([0.7] * CROWD, dtype="float32").astype(dtype)
    frames = [pd.DataFrame({"x": pd.concat([column, odd], ignore_index=True)}) for odd in [column[:1], *ODD_ROWS]]
    expected = [0, CROWD] if dtype == "float16" else [CROWD, 0]
    bins = 'bin = { from = "x", bins = ["0", "0.7", "1"] }'
    asked = "SELECT bin, count(*) FROM people GROUP BY bin"
    check_counts(tmp_path, bins, frames, asked, [*expected, 0], "row")


@pytest.mark.parametrize("dtype", ["int64", "Int64", "UInt64", "int64[pyarrow]"])
def test_one_odd_id_removes_nobody_else(dtype: str, tmp_path: Path) -> None:
    """Ids from 2^53 on identify nobody in any pandas column of numbers, and everybody in one of text."""
    ids = pd.Series(range(2**53 + 1, 2**53 + 1 + CROWD)).astype(dtype)
    for column, expected in ((ids, 0), (ids.astype(str), CROWD)):
        columns = [pd.concat([column, odd], ignore_index=True) for odd in [column[:1], *ODD_ROWS[:2]]]
        columns += [] if expected or "pyarrow" in dtype else [pd.concat([column, ODD_ROWS[2]], ignore_index=True)]
        frames = [pd.DataFrame({"person": people, "x": [1] * (CROWD + 1)}) for people in columns]
        asked = "SELECT count(DISTINCT person) FROM people"
        check_counts(tmp_path / str(expected), "x = [1]", frames, asked, [expected], "person")


def test_an_inspection_counts_the_people_whose_ids_are_too_large(tmp_path: Path) -> None:
    path = written(tmp_path, config_text(columns="x = [1]"))
    with_plan(path)
    for dtype in ("int64", "object"):
        ids = pd.Series([1, 2, *range(2**53 + 1, 2**53 + 6)], dtype=dtype)
        with Curator.open(path, sources={"people": pd.DataFrame({"person": ids, "x": [1] * 7})}) as curator:
            (note,) = curator.inspect("people").notes
        assert note.startswith("5 rows without a person in column person; never counted")
        assert "store large ids as text" in note


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_the_end_of_a_day_is_on_that_day_whatever_the_other_rows_hold(unit: str, tmp_path: Path) -> None:
    last = pd.Timestamp(LATE).floor(unit).as_unit(unit)
    column = pd.Series([last] * 300)
    assert column.dtype == f"datetime64[{unit}]"
    columns = [column, pd.concat([column, ODD_ROWS[0]]), pd.concat([column, pd.Series([pd.NaT], dtype=object)])]
    frames: list[Any] = [pd.DataFrame({"x": each}) for each in columns]
    frames += [pl.from_pandas(frames[0]), pa.Table.from_pandas(frames[0])]
    asked = "SELECT x, count(*) FROM people GROUP BY x"
    days = "x = { min = 1970-12-31, max = 1971-01-01 }"
    check_counts(tmp_path, days, frames, asked, [300, 0], "row")


@pytest.mark.parametrize(
    "values", [[np.int64(7)] * CROWD, [np.uint8(7)] * CROWD, [True] * CROWD, [np.bool_(True)] * CROWD]
)
def test_numbers_of_numpy_and_booleans_in_a_column_of_objects_are_read(values: list[Any], tmp_path: Path) -> None:
    frames = [pd.DataFrame({"x": pd.Series([*values, *odd], dtype=object)}) for odd in ([], ["x"], [10**30], [0.5])]
    expected = [CROWD, 0, 0] if values[0] == 1 else [0, CROWD, 0]
    bins = 'bin = { from = "x", bins = ["0", "2", "8"] }'
    asked = "SELECT bin, count(*) FROM people GROUP BY bin"
    check_counts(tmp_path, bins, frames, asked, expected, "row")


def test_a_column_that_nobody_declared_stops_no_question(tmp_path: Path) -> None:
    """A category of intervals, as pd.cut makes it, has no type in Arrow."""
    odd = [pd.cut([1, 5] * 500, [0, 3, 6]), pd.Series([Spiteful(1.0)] * CROWD, dtype=object), [[1]] * CROWD]
    frames = [pd.DataFrame({"x": [1] * CROWD, "odd": each}) for each in odd]
    check_counts(tmp_path, "x = [1]", frames, "SELECT x, count(*) FROM people GROUP BY x", [CROWD], "row")
    declared = [frame.rename(columns={"x": "y", "odd": "x"}) for frame in frames[:2]]
    check_counts(tmp_path / "declared", "x = [1]", declared, "SELECT x, count(*) FROM people GROUP BY x", [0], "row")


class Spiteful(float):
    """A number that cannot be compared."""

    def __ne__(self, other: object) -> bool:
        raise ValueError("secret")

    __hash__ = None  # type: ignore[assignment]


def test_true_is_a_text_where_texts_are_declared_and_a_number_where_numbers_are(tmp_path: Path) -> None:
    columns = [pd.Series([True] * CROWD), pd.Series([*[True] * CROWD, "x"]), pl.Series([True] * CROWD)]
    frames = [*map(pd.DataFrame, ({"x": each} for each in columns[:2])), pl.DataFrame({"x": columns[2]})]
    asked = "SELECT x, count(*) FROM people GROUP BY x"
    check_counts(tmp_path / "text", 'x = ["true", "1"]', frames, asked, [CROWD, 0], "row")
    check_counts(tmp_path / "integer", "x = [0, 1]", frames, asked, [0, CROWD], "row")


def test_values_that_are_read_differently_have_different_content() -> None:
    """Otherwise a recorded answer would be replayed for other data."""
    day, moment = DAYS[0], MOMENTS[0]
    values = [
        "1",
        1,
        "true",
        True,
        "2026-01-01",
        day,
        moment,
        ZONED[0],
        "1.0",
        1.5,
        "1.5",
        b"7",
        None,
        "x",
        moment.time(),
    ]
    contents = [str(content_table(pd.DataFrame({"x": pd.Series([v], dtype=object)}))["x"][0].as_py()) for v in values]
    assert len(set(contents)) == len(values)
    same = [np.int64(1), 1.0, Decimal(1), np.float32(1)]
    assert len({str(content_table(pd.DataFrame({"x": pd.Series([v], dtype=object)}))["x"]) for v in same}) == 1


@pytest.mark.parametrize(
    "edge",
    ["0.333333333333333333", "1.000000000000000001", "9007199254740993", "123456789012345678", "999999999999999999"],
)
def test_an_edge_with_more_digits_than_a_float_is_refused(edge: str) -> None:
    with pytest.raises(ConfigError, match=r"has more digits than a 64-bit float can hold; write [0-9.]+$") as refused:
        parse_columns({"bin": {"from": "x", "bins": ["0", edge]}}, "columns")
    advised = str(refused.value).rpartition("write ")[2]
    assert parse_columns({"bin": {"from": "x", "bins": ["0", advised]}}, "columns")
    if "." not in edge:  # bands are whole numbers, which are compared exactly
        assert parse_columns({"band": {"from": "x", "bands": [0, int(edge)]}}, "columns")
