"""Releases of lists, arrays and columns of counts; the result has the type of the input.

Counts are checked before any noise is drawn. An error names the row and the value of an invalid count: releasing is
for finished tables, whose owner may see their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import ParameterError
from countveil.numeric.exact_numbers import integer
from countveil.sampling.randomness import NoiseKey
from countveil.sampling.sampler import Sampler, release_one

__all__ = ["SINGLE", "as_counts", "release", "release_one"]

SINGLE = int | str | float | np.integer | np.floating | None
"""Types that are read as one count; a None, or a text that is not a number, is refused with an error."""
_ALLOWED = "whole numbers from 0 to {top}"


def release(sampler: Sampler, counts: Any, top: int) -> Any:
    """Noisy counts of the same kind as `counts`: a list, a numpy array, or a pandas, polars or pyarrow column.

    Every count must be a whole number from 0 to `top`.
    """
    if isinstance(counts, np.ma.MaskedArray) and np.ma.getmaskarray(counts).any():
        row = int(np.flatnonzero(np.ma.getmaskarray(counts).ravel())[0]) + 1
        raise ParameterError(f"count in row {row}", "a masked value", "a whole number; fill missing counts first")
    if isinstance(counts, np.ndarray):
        return sampler.release(as_counts(counts, top), NoiseKey())
    if isinstance(counts, list | tuple):
        values = [integer(f"count in row {row}", n, 0, top) for row, n in enumerate(counts, start=1)]
        return sampler.release(np.array(values, dtype=np.int64), NoiseKey()).tolist()
    return _series(sampler, counts, top)


def as_counts(values: NDArray[Any], top: int, first_row: int = 1, argument: str = "count") -> NDArray[np.int64]:
    """A one-dimensional array as int64 counts, each checked to be a whole number from 0 to `top`.

    An error names the row of the invalid count; rows are numbered from `first_row`.
    """
    if values.ndim != 1:
        raise ParameterError("counts", f"an array of {values.ndim} dimensions", "one dimension")
    plain = values.dtype == np.int64 and values.flags.c_contiguous
    if plain and (not len(values) or values.view(np.uint64).max() <= top):  # as uint64, negative counts are above top
        return values
    if values.dtype.kind in "iu":
        wrong = values > top if values.dtype.kind == "u" else (values < 0) | (values > top)
        if values.dtype.itemsize < 8 and values.dtype.kind == "u":
            wrong = np.zeros(0, dtype=np.bool_)
    elif values.dtype.kind == "f":
        top = 2**53 - 1  # larger floats skip integers
        wrong = ~(np.isfinite(values) & (values == np.floor(values)) & (values >= 0) & (values <= top))
    elif values.dtype.kind == "O":
        wrong = np.array([not _is_count(value, top) for value in values], dtype=np.bool_)
    else:
        raise ParameterError("counts", f"an array of {values.dtype}", _ALLOWED.format(top=top))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ParameterError(f"{argument} in row {first_row + row}", _describe(values[row]), _ALLOWED.format(top=top))
    return values.astype(np.int64, copy=False)


def _series(sampler: Sampler, counts: Any, top: int) -> Any:
    """Noisy counts of a pandas, polars or pyarrow column, as a column of the same type and name."""
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    if type(counts).__module__.startswith("pyarrow") and hasattr(counts, "buffers"):  # a plain Array, not a column
        import pyarrow

        return _series(sampler, pyarrow.chunked_array([counts]), top).combine_chunks()
    try:
        series = nw.from_native(counts, series_only=True, allow_series=True)
    except (TypeError, NarwhalsError):
        allowed = "an int, a list, a numpy array, or a pandas, polars or pyarrow column"
        raise ParameterError("count", type(counts).__name__, allowed) from None
    missing = series.is_null()
    if missing.any():
        row = int(missing.to_numpy().argmax()) + 1
        raise ParameterError(f"count in row {row}", "NULL", "a whole number; fill missing counts first")
    try:
        values = series.to_numpy()
    except Exception:  # whatever a frame library raises for values that have no numpy form
        raise ParameterError("counts", f"a column of {series.dtype}", _ALLOWED.format(top=top)) from None
    noisy = sampler.release(as_counts(values, top), NoiseKey())
    fresh = nw.new_series(name=series.name, values=noisy, dtype=nw.Int64(), backend=series.implementation)
    native = fresh.to_native()
    if hasattr(counts, "index") and hasattr(native, "index") and series.implementation.is_pandas():
        native.index = counts.index
    return native


def _is_count(value: Any, top: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value <= top)


def _describe(value: Any) -> str:
    return "a missing value" if value is None or value != value else str(value)
