"""A frame of pandas, polars or pyarrow as an Arrow table that an engine reads without surprises.

No value makes a frame fail. Its types can be those of its values: one missing value makes floats of integers in pandas,
and objects of booleans; one word makes objects of everything. So whether a frame opens, and how the values of others
are read, does not depend on which of these types a column has: columns of Python objects are read as text, value by
value, and so is a column of numbers, booleans, dates or time stamps whose type is not read as the declared one. Text
that is no Unicode gets replacement characters. A type that holds no single values (a list) becomes binary, so
that it is refused by name when it is declared; so are times with a zone.

People are named by text and by whole numbers. Anything else names nobody, and neither does a float that is so large
that two people could have the same; as a value it is outside. One missing value makes such floats of all integers in a
column of pandas that cannot hold it, so integers there are read as these floats would be.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import numbers
import uuid
from typing import Any

import narwhals as nw

from countveil.engines.sql import EXACT, OUTSIDE, PRECISE, READABLE, UNITS, Family
from countveil.errors import DataError, MissingExtraError, ParameterError
from countveil.schema import Schema

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtraError("pyarrow, which frames are read through,", "parquet") from None

BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
HUGE = 10**100
EPOCH, LAST = datetime.date(1970, 1, 1).toordinal(), datetime.date.max.toordinal() + 1
NAMES = "source: every column of the frame needs a name of its own, a text"


def arrow_table(frame: Any, schema: Schema | None = None) -> Any:
    """The columns of the frame as they are, or those of a schema as they can be read."""
    try:
        eager = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise DataError(NAMES) from None
    except TypeError:
        raise ParameterError("source", type(frame).__name__, "a pandas, polars or pyarrow frame, or a path") from None
    names = list(eager.columns)
    if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise DataError(NAMES)
    if schema is None:
        return pa.table({name: _column(eager, name) for name in names})
    declared = {column.name: set(READABLE[column.kind]) for column in schema.columns}
    people = set() if schema.unit_is_row else {schema.unit}
    readable = declared | {name: declared.get(name, set(UNITS)) & set(UNITS) for name in people}
    kept = [(name, name in people) for name in names if name in readable]
    return pa.table({name: _fitted(_column(eager, name, person), readable[name], person) for name, person in kept})


def _fitted(column: Any, readable: set[Family], person: bool) -> Any:
    """The column as it is if it can be read, and value by value if its type is one that other values would change."""
    inner = _inner(column)
    family = _family(inner)
    if family is None or family in readable:
        return column
    if family in ("date", "timestamp"):
        return _as_text(_days(column.cast(inner)), person)
    return _as_text(column.to_pylist(), person, PRECISE.get(family, EXACT))


def _inner(column: Any) -> Any:
    """The type of a column's values, also where they are in a dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _family(kind: Any) -> Family | None:
    """The family of the types that a frame's values can change; None for all others."""
    if pa.types.is_decimal(kind):
        return "integer" if kind.scale == 0 else "decimal"
    families: dict[Family, bool] = {
        "boolean": pa.types.is_boolean(kind),
        "integer": pa.types.is_integer(kind),
        "single": pa.types.is_float32(kind),
        "float": pa.types.is_float64(kind),
        "date": pa.types.is_date(kind),
        "timestamp": pa.types.is_timestamp(kind) and kind.tz is None,
    }
    return next((family for family, fits in families.items() if fits), None)


def _days(column: Any) -> list[object]:
    """The day of every date or time stamp; one that Python has no date for is no date."""
    kind = column.type
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    day = 1 if pa.types.is_date32(kind) else 86_400 * (1000 if pa.types.is_date64(kind) else units[kind.unit])
    whole = column.cast(pa.int32()).to_pylist() if pa.types.is_date32(kind) else column.cast(pa.int64()).to_pylist()
    days = [None if value is None else value // day + EPOCH for value in whole]
    return [n if n is None else datetime.date.fromordinal(n) if 0 < n < LAST else OUTSIDE for n in days]


def _column(frame: Any, name: str, person: bool = False) -> Any:
    series = frame[name]
    kind = getattr(series.to_native(), "dtype", "")
    rounded = frame.implementation.is_pandas_like() and _is_rounded(kind)
    if str(kind).lower() == "object":
        return _as_text(series.to_list(), person, whole=EXACT if rounded else HUGE)
    try:
        found = series.to_arrow()
    except Exception:
        if series.dtype.is_nested():
            return pa.nulls(len(series), pa.binary())
        return _as_text(series.to_list(), person, whole=EXACT if rounded else HUGE)
    if rounded and isinstance(found.type, pa.BaseExtensionType):  # periods and intervals of pandas
        return _as_text(series.to_list(), person)
    return _readable(_rounded(found) if rounded else found, person)


def _is_rounded(kind: Any) -> bool:
    """A missing value makes floats of the integers in a pandas column of this type."""
    inner = str(getattr(getattr(kind, "categories", None), "dtype", kind))
    return inner not in ("Int64", "UInt64") and not inner.endswith("[pyarrow]")


def _rounded(column: Any) -> Any:
    """Integers as the floats that a missing value makes of them, where that can be seen."""
    inner = _inner(column)
    if not pa.types.is_integer(inner) or inner.bit_width < 64:
        return column
    plain = column.cast(inner)
    ends = pc.min_max(plain).as_py()
    least, most = ends["min"] or 0, ends["max"] or 0
    return column if least > -EXACT and most < EXACT else plain.cast(pa.float64(), safe=False)


def _readable(column: Any, person: bool) -> Any:
    """The column with a type and with values that an engine can read."""
    inner = _inner(column)
    if pa.types.is_float16(inner):
        return _as_text(column.to_pylist(), True, 2**11) if person else column.cast(pa.float32())
    if pa.types.is_decimal(inner):
        return column if 0 <= inner.scale <= inner.precision <= 38 else _as_text(column.to_pylist(), person)
    if pa.types.is_time(inner) or pa.types.is_duration(inner):
        return _as_text([None if null else OUTSIDE for null in column.cast(inner).is_null().to_pylist()])
    if any(fits(inner) for fits in BYTES):
        return _as_text(column.to_pylist(), person)
    if any(fits(inner) for fits in TEXTS):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return _as_text(column.cast(inner).cast(pa.large_binary()).to_pylist())
        return column
    simple = _family(inner) is not None or pa.types.is_timestamp(inner) or pa.types.is_null(inner)
    return column if simple else pa.nulls(len(column), pa.binary())


def _as_text(values: list[Any], person: bool = False, exact: int = EXACT, whole: int = HUGE) -> Any:
    read = person_of if person else text_of
    return pa.array([read(value, exact, whole) for value in values], pa.large_string())


def person_of(value: object, exact: int = EXACT, whole: int = HUGE) -> str | None:
    """What a Python value names a person with: None or U+FFFD for nobody.

    >>> person_of(12.0), person_of("Ann"), person_of(2.0**53), person_of(2**53), person_of(True)
    ('12', 'Ann', '\ufffd', '9007199254740992', '\ufffd')
    """
    if isinstance(value, (bool, datetime.date)) or type(value).__name__ == "bool":
        return OUTSIDE if value == value else None  # NaT is a date that is missing
    return text_of(value, exact, whole)


def text_of(value: object, exact: int = EXACT, whole: int = HUGE) -> str | None:
    """A Python value as the text that reads as it: None if it is missing, U+FFFD if it is outside every domain.

    A float has to be below `exact`, an integer below `whole`.

    >>> text_of(12.0), text_of(True), text_of(datetime.date(2026, 1, 31)), text_of(float("nan")), text_of([1])
    ('12', 'true', '2026-01-31', None, '�')
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas.NA and pandas.NaT
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool) or type(value).__name__ == "bool":  # Python's and numpy's
        return "true" if value else "false"
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        if value.imag:
            return OUTSIDE
        value = value.real  # one complex number makes all others in its column complex
    if isinstance(value, (numbers.Real, decimal.Decimal)):
        return _number(value, exact, whole)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.tzinfo is None else OUTSIDE
    return value.isoformat() if isinstance(value, datetime.date) else OUTSIDE


def _number(value: Any, exact: int, whole: int) -> str | None:
    if isinstance(value, numbers.Integral):
        integer = int(value)
        return str(integer) if abs(integer) < whole else OUTSIDE
    if isinstance(value, decimal.Decimal):  # its arithmetic can overflow or signal; its own words about itself cannot
        if value.is_nan():
            return None
        if value.is_infinite() or value.adjusted() > 99:
            return OUTSIDE
        value = fractions.Fraction(value)
    if value != value:  # NaN
        return None
    exact = {"float16": 2**11, "float32": 2**24}.get(type(value).__name__, exact)
    bound = HUGE if isinstance(value, numbers.Rational) else exact
    return str(int(value)) if abs(value) < bound and value == int(value) else OUTSIDE
