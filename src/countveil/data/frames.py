"""Turns a frame of pandas, polars or pyarrow into an Arrow table that every engine reads in the same way.

How a value is read depends on the value and the declared column alone, never on the type that its column has: one odd
row can change that type. In pandas a missing value turns integers into floats and booleans into objects, a text turns
any column into objects, and a wider float widens all others. So no value makes a frame fail, and all containers agree:

- a number is the 64-bit float that is nearest to it, whether it is stored as a float of 16 or 32 bits, an integer, a
  decimal or an object; where a number is needed True is 1 and False is 0, as in arrays that also hold numbers;
- where a whole number is needed (values, bands, people), it must be below 2^53: from there on, several integers are the
  same float, so all of them are outside. Text keeps every digit;
- a time without zone is the day that it lies in, a time with a zone the microsecond that it lies in;
- a person's id is a text or a whole number;
- what cannot be read is outside every domain: text that is not Unicode, times of day, durations, other objects.

Columns of known types are converted as a whole, others value by value, as `text_of` and its companions say; the tests
compare both ways for all pairs of types. A column of lists or of another compound type becomes binary, which is refused
with its name if the column is declared. So is a time with a zone that is declared as a date, and one without a zone
that is declared with a zone.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import narwhals as nw
import numpy as np

from countveil.data.engines.families import EXACT, OUTSIDE
from countveil.errors import DataError, MissingExtraError, ParameterError
from countveil.query.schema import Kind, Schema

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtraError("pyarrow, which frames are read through,", "parquet") from None

Reading = Kind | Literal["person", "any", "content"]
"""What a column is read as: its declared kind, a person's id, anything that its type may mean, or, to tell frames
apart, its content."""
NUMERIC: tuple[Reading, ...] = ("integer", "text", "boolean", "number", "person", "any")
"""What a column of numbers is read as without looking at each of them."""
TIMELESS: tuple[Reading, ...] = ("integer", "text", "boolean", "number", "person")
"""What a column of dates is read as only by looking at each of them."""
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
EPOCH, LAST = datetime.date(1970, 1, 1).toordinal(), datetime.date.max.toordinal() + 1
FAR = 9 * 10**12
"""A number of seconds from 1970 that is beyond every period, and whose microseconds are a 64-bit integer."""
NAMES = "source: every column of the frame needs a different name, as text"


def arrow_table(frame: Any, schema: Schema | None = None) -> Any:
    """Convert a frame to an Arrow table of types that engines read: all of its columns, or those of a schema."""
    eager = _eager(frame)
    if schema is None:
        readings: dict[str, Reading] = dict.fromkeys(eager.columns, "any")
    else:
        readings = {column.name: column.kind for column in schema.sources}
        readings |= {} if schema.unit_is_row else {schema.unit: "person"}
    return pa.table({name: _read_column(eager[name], readings[name]) for name in eager.columns if name in readings})


def content_table(frame: Any) -> Any:
    """An Arrow table of all columns, to tell frames apart: two frames that differ in a count, under any schema, have
    different tables."""
    eager = _eager(frame)
    return pa.table({name: _read_column(eager[name], "content") for name in eager.columns})


def _eager(frame: Any) -> Any:
    """A frame with the methods of narwhals; its columns have different names."""
    try:
        eager = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise DataError(NAMES) from None
    except TypeError:
        raise ParameterError("source", type(frame).__name__, "a pandas, polars or pyarrow frame, or a path") from None
    names = list(eager.columns)
    if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise DataError(NAMES)
    return eager


def _read_column(series: Any, reading: Reading) -> Any:
    column = _typed_column(series)
    if column is None:
        return _read_values(series.to_list(), reading)
    kind = column.type
    if _is_number(kind):
        if reading == "content" or (pa.types.is_boolean(kind) and reading in ("boolean", "any")):
            return column
        if pa.types.is_boolean(kind) and reading == "text":
            return column.cast(pa.large_string())
        column = _as_numbers(column)
        return column if reading in NUMERIC else _read_values(column.to_pylist(), reading)
    if any(fits(kind) for fits in BYTES):
        return _read_values(column.to_pylist(), reading)
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return _read_values(_days(column), reading) if reading in TIMELESS else column
    if pa.types.is_timestamp(kind):
        return column if kind.unit in ("us", "ns") else _within(column, FAR * (1000 if kind.unit == "ms" else 1))
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return _read_values([None if null else OUTSIDE for null in column.is_null().to_pylist()], reading)
    if _is_text(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        return column
    return pa.nulls(len(column), pa.binary())


def _typed_column(series: Any) -> Any:
    """A column as an Arrow array of one type; None if each value has a type of its own, or Arrow lacks the type.

    Categories become their values, except that texts stay in their dictionary. Text that is not Unicode becomes bytes.
    """
    kind = getattr(series.to_native(), "dtype", "")
    if "object" in (str(kind).lower(), str(getattr(getattr(kind, "categories", None), "dtype", ""))):
        return None
    try:
        column = series.to_arrow()
        inner = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if isinstance(inner, pa.BaseExtensionType) and series.implementation.is_pandas_like():
            return None  # periods and intervals
        if column.type != inner and inner not in (pa.string(), pa.large_string()):
            return column.cast(inner)
    except Exception:  # Arrow has no such column
        return pa.nulls(len(series), pa.binary()) if series.dtype.is_nested() else None
    if not _is_text(inner):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return column.cast(inner).cast(pa.large_binary())
    return column


def _is_text(kind: Any) -> bool:
    return any(fits(kind) for fits in TEXTS)


def _is_number(kind: Any) -> bool:
    types = pa.types
    return any(fits(kind) for fits in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal))


def _as_numbers(column: Any) -> Any:
    """Numbers and booleans as 64-bit floats, or as integers if all of them are below 2^53."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(
            pa.float64()
        )  # Arrow rounds text to the nearest float, decimals not always
    if pa.types.is_integer(kind):
        ends = pc.min_max(column).as_py()
        if (ends["min"] or 0) > -EXACT and (ends["max"] or 0) < EXACT:
            return column
    return column.cast(pa.float64(), safe=False)


def _days(column: Any) -> list[object]:
    """The day of each date or time stamp; `OUTSIDE` if it is out of the range of Python's dates."""
    kind = column.type
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    day = 1 if pa.types.is_date32(kind) else 86_400 * (1000 if pa.types.is_date64(kind) else units[kind.unit])
    whole = column.cast(pa.int32()).to_pylist() if pa.types.is_date32(kind) else column.cast(pa.int64()).to_pylist()
    days = [None if value is None else value // day + EPOCH for value in whole]
    return [n if n is None else datetime.date.fromordinal(n) if 0 < n < LAST else OUTSIDE for n in days]


def _within(column: Any, limit: int) -> Any:
    """Replace times beyond a limit by the limit: engines would fail on those that are no 64-bit microseconds."""
    floor = pc.max_element_wise(column.cast(pa.int64()), -limit, skip_nulls=False)
    return pc.min_element_wise(floor, limit, skip_nulls=False).cast(column.type)


# -- value by value ----------------------------------------------------------------------------------------------------


def _read_values(values: list[Any], reading: Reading) -> Any:
    readers: dict[Reading, Callable[[object], str | None]] = {
        "integer": whole_text_of,
        "number": number_text_of,
        "instant": instant_text_of,
        "person": person_of,
        "content": content_of,
    }
    read = readers.get(reading, text_of)
    try:
        texts = [read(value) for value in values]
    except Exception:  # of a method of one of the values
        texts = [_read_safely(read, value) for value in values]
    return pa.array(texts, pa.large_string())


def _read_safely(read: Callable[[object], str | None], value: object) -> str | None:
    try:
        return read(value)
    except Exception:
        return OUTSIDE


def text_of(value: object) -> str | None:
    """The text that engines read as this value: None if it is missing, U+FFFD if it is outside every domain.

    >>> text_of(12.0), text_of(True), text_of(datetime.date(2026, 1, 31)), text_of(float("nan")), text_of([1])
    ('12', 'true', '2026-01-31', None, '\ufffd')
    >>> text_of(2**53 - 1), text_of(2**53), text_of("9007199254740993")
    ('9007199254740991', '\ufffd', '9007199254740993')
    """
    if _is_missing(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    number = _number_of(value)
    if number is not None:
        return str(int(number)) if abs(number) < EXACT and number.is_integer() else OUTSIDE
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime.datetime):
        with suppress(Exception):  # pandas cannot say the date of a time after the year 9999
            return value.date().isoformat() if value.tzinfo is None else OUTSIDE
        return OUTSIDE
    return value.isoformat() if isinstance(value, datetime.date) else OUTSIDE


def whole_text_of(value: object) -> str | None:
    """The text that engines read as this whole number: as `text_of`, but True is 1.

    >>> whole_text_of(True), whole_text_of(12.0), whole_text_of("true")
    ('1', '12', 'true')
    """
    return str(int(value)) if isinstance(value, (bool, np.bool_)) else text_of(value)


def person_of(value: object) -> str | None:
    """The text of a value as a person's id; None if it is missing, U+FFFD if it cannot be an id.

    >>> person_of(12.0), person_of("Ann"), person_of(2.0**53), person_of(datetime.date(2026, 1, 31))
    ('12', 'Ann', '\ufffd', '\ufffd')
    """
    text = whole_text_of(value)
    return OUTSIDE if text is not None and isinstance(value, (datetime.date, np.datetime64)) else text


def number_text_of(value: object) -> str | None:
    """The text that engines read as this number: None if it is missing, U+FFFD if the value is no number.

    Very large and very small numbers are replaced by fixed ones; no edge of a bin lies between them.

    >>> number_text_of(0.1), number_text_of(float("-inf")), number_text_of(5e-324), number_text_of([1])
    ('0.1', '-9e99', '1e-90', '\ufffd')
    >>> number_text_of(np.float32(0.7)), number_text_of(decimal.Decimal("0.29999999999999999999"))
    ('0.699999988079071', '0.3')
    """
    if isinstance(value, (str, bytes)) or _is_missing(value):
        return text_of(value)
    number = _number_of(value)
    if number is None:
        return OUTSIDE
    if abs(number) >= 1e90:
        return "9e99" if number > 0 else "-9e99"
    if 0 < abs(number) < 1e-90:
        return "1e-90" if number > 0 else "-1e-90"
    return repr(number)


def instant_text_of(value: object) -> str | None:
    """The text that engines read as this time with a zone; None if it is missing, U+FFFD if it is no such time.

    >>> instant_text_of(datetime.datetime(2026, 1, 31, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))))
    '2026-01-30T23:00:00+00:00'
    >>> instant_text_of(datetime.datetime(2026, 1, 31, 1)), instant_text_of("2026-01-31T01:00:00Z")
    ('\ufffd', '2026-01-31T01:00:00Z')
    """
    if isinstance(value, (str, bytes)) or _is_missing(value):
        return text_of(value)
    if isinstance(value, datetime.datetime):
        with suppress(Exception):  # a time that is out of range in UTC
            return value.astimezone(datetime.UTC).isoformat() if value.utcoffset() is not None else OUTSIDE
    return OUTSIDE


def content_of(value: object) -> str | None:
    """A text that differs for values that are read differently as any declared column; None if the value is missing.

    >>> content_of(1.0), content_of("1.0")
    ('number 1.0', 'text 1.0')
    """
    if isinstance(value, str):
        return f"text {text_of(value)}"
    if _is_missing(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return f"boolean {value}"
    if isinstance(value, (datetime.date, np.datetime64)):
        return f"day {text_of(value)}, instant {instant_text_of(value)}"
    number = _number_of(value)
    return f"text {text_of(value)}" if number is None else f"number {number!r}"


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NA, NaT or NaN. Only values of known types are compared: comparing arrays or signaling
    NaN fails."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas.NA and pandas.NaT
        return True
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return isinstance(value, (numbers.Complex, np.datetime64, np.timedelta64)) and bool(value != value)


def _number_of(value: object) -> float | None:
    """The 64-bit float that is nearest to a number; None if the value is no real number.

    >>> _number_of(True), _number_of(2**53 + 1), _number_of(10**400), _number_of(1 + 0j), _number_of(1j)
    (1.0, 9007199254740992.0, inf, 1.0, None)
    """
    if isinstance(value, np.timedelta64):  # to numpy a length of time is a whole number, without its unit
        return None
    if isinstance(value, np.bool_):
        return float(value)
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        if value.imag:
            return None
        value = value.real  # one complex number turns its whole column complex
    if not isinstance(value, (numbers.Real, decimal.Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except Exception:
        return None
