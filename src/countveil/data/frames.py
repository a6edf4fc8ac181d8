"""Turns a frame of pandas, polars or pyarrow into an Arrow table that every engine reads in the same way.

No value makes a frame fail. In pandas one value can change the type of its column: a missing value turns integers into
floats and booleans into objects, and a text turns any column into objects. So the type that a column got in this way
must not decide whether a frame opens, or how the other values are read. Columns of Python objects are therefore read as
text, value by value, and so are columns of numbers, booleans, dates or time stamps whose type does not fit the declared
one. Text that is not Unicode gets replacement characters. A column of lists or of another compound type becomes binary,
which is refused with its name if the column is declared. Times with a zone are refused in the same way.

A person's id is a text or a whole number. Rows with any other value in its place are not counted, nor are rows with a
float so large that two people could share it; in a declared column, such a float is outside every domain. One missing
value turns all integers of a pandas column into floats, unless the column's type can represent missing values. So
integers of such columns are always read as these floats would be.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import numbers
import re
import uuid
from contextlib import suppress
from typing import Any, TypeGuard

import narwhals as nw

from countveil.data.engines.families import EXACT, OUTSIDE, PRECISE, READABLE, UNITS, Family
from countveil.data.engines.steps import INSTANT
from countveil.errors import DataError, MissingExtraError, ParameterError
from countveil.query.schema import Kind, Schema

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtraError("pyarrow, which frames are read through,", "parquet") from None

BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
HUGE = 10**100
EPOCH, LAST = datetime.date(1970, 1, 1).toordinal(), datetime.date.max.toordinal() + 1
FAR = 9 * 10**12
"""A number of seconds from 1970 that is beyond every period, and whose microseconds are a 64-bit integer."""
CUT = ("number", "instant")
"""Kinds of source columns that are only read through derived columns."""
FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
NAMES = "source: every column of the frame needs a different name, as text"


def arrow_table(frame: Any, schema: Schema | None = None) -> Any:
    """Convert a frame to an Arrow table.

    Without a schema, all columns are kept unchanged. With a schema, only its columns are kept, in types that engines
    read.
    """
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
        return _table({name: _column(eager, name) for name in names})
    kinds = {column.name: column.kind for column in schema.sources}
    declared = {name: set(READABLE[kind]) for name, kind in kinds.items()}
    people = set() if schema.unit_is_row else {schema.unit}
    readable = declared | {name: declared.get(name, set(UNITS)) & set(UNITS) for name in people}
    columns = [(name, name in people) for name in names if name in readable]
    fitted = {}
    for name, person in columns:
        column = _cut_column(eager, name, kinds[name]) if kinds.get(name) in CUT and not person else None
        if column is None:
            column = _column(eager, name, person, kinds.get(name))
            if kinds.get(name) != "instant":  # text is read as an instant, and any other type is refused
                column = _fit(column, readable[name], person)
        fitted[name] = column
    return _table(fitted)


def _table(columns: dict[str, Any]) -> Any:
    """A table of columns. Floats of 16 bits, which DuckDB does not read, become wider; its metadata names them."""
    halves = [name for name, column in columns.items() if pa.types.is_float16(_inner(column))]
    wide = {name: column.cast(pa.float32()) if name in halves else column for name, column in columns.items()}
    return pa.table(wide).replace_schema_metadata(dict.fromkeys(halves, "half") or None)


def _cut_column(frame: Any, name: str, kind: Kind) -> Any:
    """Convert a column of Python objects to fractions or instants, value by value; None if it has another type."""
    series = frame[name]
    if str(getattr(series.to_native(), "dtype", "")).lower() != "object":
        return None
    values = series.to_list()
    if kind == "number":
        return _number_texts(values)
    return pa.array([_instant_of(value) for value in values], pa.timestamp("us", "UTC"))


def _instant_of(value: object) -> datetime.datetime | None:
    """Convert a value or a text to a time with a zone; None if it is missing.

    A value that is no such time becomes the first instant of the year 1, which is before every period.

    >>> _instant_of(" 2026-01-31T01:00:00.25+02 "), _instant_of("2026-01-31T01:00:00")
    (datetime.datetime(2026, 1, 31, 1, 0, 0, 250000, tzinfo=datetime.timezone(datetime.timedelta(seconds=7200))), \
datetime.datetime(1, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """
    if _is_missing(value):
        return None
    if isinstance(value, str) and re.fullmatch(INSTANT, value.strip(" ")):
        with suppress(ValueError):
            value = datetime.datetime.fromisoformat(value.strip(" "))
    has_zone = isinstance(value, datetime.datetime) and value.utcoffset() is not None
    return value if has_zone else FIRST  # type: ignore[return-value]


def number_text_of(value: object) -> str | None:
    """The text that engines read as this number: None if it is missing, U+FFFD if the value is no number.

    The number may change a little, but never across the edge of a bin. Exact numbers are rounded down to 18 digits
    after the point, which is as many as an edge may have; very large and very small numbers are replaced by fixed ones.

    >>> number_text_of(0.1), number_text_of(float("-inf")), number_text_of(5e-324), number_text_of(True)
    ('0.1', '-9e99', '1e-90', '\ufffd')
    >>> number_text_of(decimal.Decimal("0.29999999999999999999"))
    '0.299999999999999999'
    """
    if isinstance(value, (str, bytes)) or _is_missing(value):
        return text_of(value)
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real) and not value.imag:
        value = value.real  # one complex number turns its whole column complex
    if isinstance(value, bool) or not _is_number(value):
        return OUTSIDE
    if type(value).__name__ in ("longdouble", "float128"):
        value = decimal.Decimal(str(value))  # a 64-bit float could be on the other side of an edge
    if isinstance(value, decimal.Decimal):  # its arithmetic can overflow or signal; these methods cannot
        if value and (value.is_infinite() or value.adjusted() > 20):
            return "-9e99" if value.is_signed() else "9e99"
        if value and value.adjusted() < -20:
            return "-1e-90" if value.is_signed() else "1e-90"
    if isinstance(value, (numbers.Rational, decimal.Decimal)):
        units = math.floor(fractions.Fraction(value) * 10**18)
        units = max(-(10**37) + 1, min(10**37 - 1, units))
        digits = f"{abs(units):019}"
        return f"{'-' * (units < 0)}{digits[:-18]}.{digits[-18:]}"
    number = float(value)
    if abs(number) >= 1e90:
        return "9e99" if number > 0 else "-9e99"
    if 0 < abs(number) < 1e-90:
        return "1e-90" if number > 0 else "-1e-90"
    return str(value) if type(value).__name__ in ("float32", "float16") else repr(number)


def _fit(column: Any, readable: set[Family], person: bool) -> Any:
    """Return a column in a type that engines can read.

    If the type is not readable, and a single value could have changed it (see `_family`), the column is converted to
    text, value by value.
    """
    inner = _inner(column)
    family = _family(inner)
    if family is None or family in readable:
        return column
    if family in ("date", "timestamp"):
        return _as_text(_days(column.cast(inner)), person)
    return _as_text(column.to_pylist(), person, PRECISE.get(family, EXACT))


def _inner(column: Any) -> Any:
    """The type of a column's values; for a dictionary-encoded column, the type of the values in its dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _family(kind: Any) -> Family | None:
    """The family of a type, if a single value in a frame could have changed the column to another type; else None."""
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
    """The day of each date or time stamp; `OUTSIDE` if it is out of the range of Python's dates."""
    kind = column.type
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    day = 1 if pa.types.is_date32(kind) else 86_400 * (1000 if pa.types.is_date64(kind) else units[kind.unit])
    whole = column.cast(pa.int32()).to_pylist() if pa.types.is_date32(kind) else column.cast(pa.int64()).to_pylist()
    days = [None if value is None else value // day + EPOCH for value in whole]
    return [n if n is None else datetime.date.fromordinal(n) if 0 < n < LAST else OUTSIDE for n in days]


def _column(frame: Any, name: str, person: bool = False, declared: Kind | None = None) -> Any:
    series = frame[name]
    kind = getattr(series.to_native(), "dtype", "")
    rounded = frame.implementation.is_pandas_like() and _is_rounded(kind)
    if str(kind).lower() == "object":
        return _as_text(series.to_list(), person, whole=EXACT if rounded else HUGE)
    try:
        array = series.to_arrow()
    except Exception:
        if series.dtype.is_nested():
            return pa.nulls(len(series), pa.binary())
        if declared == "number" and not person:
            return _number_texts(series.to_list())
        return _as_text(series.to_list(), person, whole=EXACT if rounded else HUGE)
    if rounded and isinstance(array.type, pa.BaseExtensionType):  # periods and intervals of pandas
        return _as_text(series.to_list(), person)
    return _readable(_round_as_floats(array) if rounded else array, person, declared)


def _is_rounded(kind: Any) -> bool:
    """Whether a missing value would turn the integers in a pandas column of this type into floats."""
    inner = str(getattr(getattr(kind, "categories", None), "dtype", kind))
    return inner not in ("Int64", "UInt64") and not inner.endswith("[pyarrow]")


def _round_as_floats(column: Any) -> Any:
    """Round 64-bit integers to floats, as a missing value would do, if any of them is too large for an exact float."""
    inner = _inner(column)
    if not pa.types.is_integer(inner) or inner.bit_width < 64:
        return column
    plain = column.cast(inner)
    ends = pc.min_max(plain).as_py()
    least, most = ends["min"] or 0, ends["max"] or 0
    return column if least > -EXACT and most < EXACT else plain.cast(pa.float64(), safe=False)


def _readable(column: Any, person: bool, declared: Kind | None) -> Any:
    """Convert a column to a type and to values that an engine can read."""
    inner = _inner(column)
    if pa.types.is_float16(inner):
        return _as_text(column.to_pylist(), True, PRECISE["half"]) if person else column
    if pa.types.is_decimal(inner) and 0 <= inner.scale <= inner.precision <= 38:
        return column.cast(pa.decimal128(inner.precision, inner.scale)) if inner.bit_width > 128 else column
    if pa.types.is_decimal(inner):
        values = column.to_pylist()
        return _number_texts(values) if declared == "number" and not person else _as_text(values, person)
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
    if pa.types.is_timestamp(inner) and inner.tz is not None and inner.unit in ("s", "ms"):
        return _within(column.cast(inner), FAR * (1000 if inner.unit == "ms" else 1))
    simple = _family(inner) is not None or pa.types.is_timestamp(inner) or pa.types.is_null(inner)
    return column if simple else pa.nulls(len(column), pa.binary())


def _within(column: Any, limit: int) -> Any:
    """Replace times beyond a limit by the limit: engines would fail on those that are no 64-bit microseconds."""
    floor = pc.max_element_wise(column.cast(pa.int64()), -limit, skip_nulls=False)
    return pc.min_element_wise(floor, limit, skip_nulls=False).cast(column.type)


def _as_text(values: list[Any], person: bool = False, exact: int = EXACT, whole: int = HUGE) -> Any:
    read = person_of if person else text_of
    return pa.array([read(value, exact, whole) for value in values], pa.large_string())


def _number_texts(values: list[Any]) -> Any:
    return pa.array([number_text_of(value) for value in values], pa.large_string())


def person_of(value: object, exact: int = EXACT, whole: int = HUGE) -> str | None:
    """The text of a Python value as a person's id; None if it is missing, U+FFFD if it cannot be an id.

    >>> person_of(12.0), person_of("Ann"), person_of(2.0**53), person_of(2**53), person_of(True)
    ('12', 'Ann', '\ufffd', '9007199254740992', '\ufffd')
    """
    if isinstance(value, (bool, datetime.date)) or type(value).__name__ == "bool":
        return OUTSIDE if value == value else None  # NaT is a missing date
    return text_of(value, exact, whole)


def text_of(value: object, exact: int = EXACT, whole: int = HUGE) -> str | None:
    """The text that engines read as this Python value: None if it is missing, U+FFFD if it is outside every domain.

    Floats of at least `exact` and integers of at least `whole` (in absolute value) are outside every domain.

    >>> text_of(12.0), text_of(True), text_of(datetime.date(2026, 1, 31)), text_of(float("nan")), text_of([1])
    ('12', 'true', '2026-01-31', None, '�')
    """
    if _is_missing(value):
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
        value = value.real  # one complex number turns its whole column complex
    if _is_number(value):
        return _number(value, exact, whole)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.tzinfo is None else OUTSIDE
    return value.isoformat() if isinstance(value, datetime.date) else OUTSIDE


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NA, NaT or NaN. Only values of known types are compared: comparing arrays or signaling
    NaN fails."""
    kind = type(value).__name__
    if value is None or kind in ("NAType", "NaTType"):  # pandas.NA and pandas.NaT
        return True
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return (isinstance(value, numbers.Complex) or kind in ("datetime64", "timedelta64")) and bool(value != value)


def _is_number(value: object) -> TypeGuard[numbers.Real | decimal.Decimal]:
    """Whether a value is a real number. To numpy a length of time is a whole number, without its unit."""
    return isinstance(value, (numbers.Real, decimal.Decimal)) and type(value).__name__ != "timedelta64"


def _number(value: Any, exact: int, whole: int) -> str:
    if isinstance(value, numbers.Integral):
        integer = int(value)
        return str(integer) if abs(integer) < whole else OUTSIDE
    if isinstance(value, decimal.Decimal):  # its arithmetic can overflow or signal; these methods cannot
        if value.is_infinite() or value.adjusted() > 99:
            return OUTSIDE
        value = fractions.Fraction(value)
    exact = {"float16": PRECISE["half"], "float32": PRECISE["single"]}.get(type(value).__name__, exact)
    bound = HUGE if isinstance(value, numbers.Rational) else exact
    return str(int(value)) if abs(value) < bound and value == int(value) else OUTSIDE
