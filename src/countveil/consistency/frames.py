"""Frames in and out: measurements are matched by label, and tables are returned as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.bounds import LARGEST_SUM
from countveil.consistency.hierarchy import read_array
from countveil.consistency.tree import Ints, Level
from countveil.errors import ParameterError

KINDS = ("pandas", "polars", "pyarrow")


def make_frame(columns: Mapping[str, NDArray[Any]], kind: Any) -> Any:
    """A frame of the given kind ("pandas", "polars" or "pyarrow") with these columns."""
    import narwhals as nw

    if kind not in KINDS:
        raise ParameterError("kind", kind, "one of " + ", ".join(KINDS))
    try:
        series = {name: nw.new_series(name, values, backend=kind) for name, values in columns.items()}
    except ImportError:
        allowed = f"a kind of frame whose package is installed; run: pip install {kind}"
        raise ParameterError("kind", kind, allowed) from None
    return nw.from_dict(series, backend=kind).to_native()


def read_measurement(level: Level, given: Any) -> Ints:
    """The measurements of a table, in the order in which its cells were declared.

    They are given as an array in that order, or as a frame with the labels of the cells and a column `count`.
    """
    named = f"measurements of {level.name}"
    values = _match(level, given, named) if _is_frame(given) else read_array(named, given)
    if values.shape != (level.size,) or values.dtype.kind not in "iu":
        raise ParameterError(named, f"{values.dtype} of shape {values.shape}", _one_each(level))
    if values.dtype.kind == "u" and int(values.max()) >= LARGEST_SUM:
        raise ParameterError(named, "a count of 2^62 or more", "smaller counts, of a signed type if negative")
    return values.astype(np.int64)


def _one_each(level: Level) -> str:
    return f"one whole number for each of its {level.size} cells, negative ones included"


def _is_frame(given: Any) -> bool:
    return hasattr(type(given), "columns") or hasattr(type(given), "column_names")


def _match(level: Level, frame: Any, named: str) -> NDArray[Any]:
    """The column `count` of a frame, in the order in which the cells of the table were declared."""
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        rows = nw.from_native(frame, eager_only=True)
        present = rows.columns
    except (TypeError, NarwhalsError):
        allowed = "a frame in memory with columns of different names"
        raise ParameterError(named, type(frame).__name__, allowed, "a lazy frame must be collected first") from None
    wanted = [*level.labels, "count"]
    if not level.labels:
        raise ParameterError(named, f"a frame of {', '.join(present)}", "an array: the table has no labels")
    if not set(wanted) <= set(present):
        allowed = "a frame with the columns " + ", ".join(wanted)
        raise ParameterError(named, f"a frame of {', '.join(present)}", allowed)
    pairs = [_make_comparable(labels, rows[name]) for name, labels in level.labels.items()]
    cells = {labels: i for i, labels in enumerate(zip(*(declared for declared, _ in pairs), strict=True))}
    keys = list(zip(*(given for _, given in pairs), strict=True))
    if len(keys) != len(cells) or set(keys) != cells.keys():
        known = len(cells.keys() & set(keys))
        shown, allowed = f"{len(keys)} rows for {known} of its cells", f"one row for each of its {len(cells)} cells"
        raise ParameterError(named, shown, allowed)
    counts = rows["count"]
    if bool(counts.is_null().any()):
        raise ParameterError(named, "a column count with nulls", _one_each(level))
    if not counts.dtype.is_integer():
        raise ParameterError(named, f"a column count of {counts.dtype}", _one_each(level))
    given = counts.to_numpy()
    values: NDArray[Any] = np.empty_like(given)
    values[[cells[key] for key in keys]] = given
    return values


def _make_comparable(declared: NDArray[Any], column: Any) -> tuple[list[Any], list[Any]]:
    """The declared labels and those of a frame as values of one kind: dates as numbers, missing labels as None."""
    given = column.to_numpy()
    if declared.dtype.kind == given.dtype.kind and given.dtype.kind in "mM":
        unit = np.result_type(declared, given)  # the finer unit of the two
        return tuple(each.astype(unit).astype(np.int64).tolist() for each in (declared, given))
    nulls = column.is_null().to_list()
    values = [None if null else value for value, null in zip(column.to_list(), nulls, strict=True)]
    return _replace_nan(declared.tolist()), _replace_nan(values)


def _replace_nan(values: list[Any]) -> list[Any]:
    """The values with None in place of NaN, which is not equal to itself."""
    return [None if isinstance(value, float) and value != value else value for value in values]
