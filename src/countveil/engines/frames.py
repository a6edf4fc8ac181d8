"""A frame of pandas, polars or pyarrow as an Arrow table that an engine reads without surprises.

How a column is converted depends on its declared type alone, never on its values, and no value makes it fail. Columns
of Python objects are read as text, value by value; text that is no Unicode gets replacement characters; a type that no
declared column can have becomes binary, so that it is refused by name when it is declared.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import numbers
import uuid
from collections.abc import Collection
from typing import Any

from countveil.errors import DataError, MissingExtraError, ParameterError

OUTSIDE = "\ufffd"
LIMIT = 2**64
HUGE = 10**100
NAMES = "source: every column of the frame needs a name of its own, a text"


def arrow_table(frame: Any, wanted: Collection[str] | None = None) -> Any:
    """The columns of the frame, or those of them that are wanted."""
    import narwhals as nw

    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("pyarrow, which frames are read through,", "parquet") from None
    try:
        eager = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise DataError(NAMES) from None
    except TypeError:
        raise ParameterError("source", type(frame).__name__, "a pandas, polars or pyarrow frame, or a path") from None
    names = list(eager.columns)
    if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise DataError(NAMES)
    return pa.table({name: _column(eager, name) for name in names if wanted is None or name in wanted})


def _column(frame: Any, name: str) -> Any:
    import narwhals as nw
    import pyarrow as pa

    series = frame[name]
    if str(getattr(series.to_native(), "dtype", "")).lower() == "object":
        return _as_text(series.to_list())
    try:
        found = series.to_arrow()
    except Exception:
        if series.dtype in (nw.String, nw.Categorical, nw.Enum):
            return _as_text(series.to_list())
        return pa.nulls(len(series), pa.binary())
    return _readable(found)


def _readable(column: Any) -> Any:
    """The column with a type and with values that an engine can read."""
    import pyarrow as pa

    inner = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_float16(inner):
        return column.cast(pa.float32())
    if pa.types.is_decimal(inner):
        return column if 0 <= inner.scale <= inner.precision <= 38 else pa.nulls(len(column), pa.binary())
    if pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return _as_text(column.cast(inner).cast(pa.large_binary()).to_pylist())
        return column
    simple = (
        pa.types.is_integer(inner),
        pa.types.is_floating(inner),
        pa.types.is_boolean(inner),
        pa.types.is_date(inner),
        pa.types.is_timestamp(inner),
        pa.types.is_null(inner),
    )
    return column if any(simple) else pa.nulls(len(column), pa.binary())


def _as_text(values: list[object]) -> Any:
    import pyarrow as pa

    return pa.array([text_of(value) for value in values], pa.large_string())


def text_of(value: object) -> str | None:
    """A Python value as the text that reads as it: None if it is missing, U+FFFD if it is outside every domain.

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
    if isinstance(value, (numbers.Real, decimal.Decimal)):
        return _number(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.tzinfo is None else OUTSIDE
    return value.isoformat() if isinstance(value, datetime.date) else OUTSIDE


def _number(value: Any) -> str | None:
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return str(whole) if abs(whole) < HUGE else OUTSIDE
    if isinstance(value, decimal.Decimal):  # its arithmetic can overflow or signal; its own words about itself cannot
        if value.is_nan():
            return None
        if value.is_infinite() or value.adjusted() > 40:
            return OUTSIDE
        value = fractions.Fraction(value)
    if value != value:  # NaN
        return None
    return str(int(value)) if abs(value) < LIMIT and value == int(value) else OUTSIDE
