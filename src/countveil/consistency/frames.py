"""Frames in and out: measurements are matched by label, and tables are returned as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    if isinstance(given, np.ndarray | list | tuple):
        values = np.asarray(given)
    elif getattr(given, "columns", None) is not None or hasattr(given, "column_names"):
        values = _match(level, given)
    else:
        values = np.asarray(given)
    if values.shape != (level.size,) or values.dtype.kind not in "iu":
        allowed = f"one whole number for each of its {level.size} cells, negative ones included"
        raise ParameterError(f"measurements of {level.name}", f"{values.dtype} of shape {values.shape}", allowed)
    return values.astype(np.int64)


def _match(level: Level, frame: Any) -> NDArray[Any]:
    """The column `count` of a frame, in the order in which the cells of the table were declared."""
    import narwhals as nw

    rows = nw.from_native(frame, eager_only=True)
    wanted = [*level.labels, "count"]
    missing = [name for name in wanted if name not in rows.columns]
    if missing or not level.labels:
        frame_allowed = "a frame with the columns " + ", ".join(wanted)
        allowed = frame_allowed if level.labels else "an array: the table has no labels"
        raise ParameterError(f"measurements of {level.name}", f"a frame of {', '.join(rows.columns)}", allowed)
    cells = {labels: i for i, labels in enumerate(zip(*(c.tolist() for c in level.labels.values()), strict=True))}
    keys = list(zip(*(rows[name].to_list() for name in level.labels), strict=True))
    if len(keys) != len(cells) or set(keys) != cells.keys():
        known = len(cells.keys() & set(keys))
        given, allowed = f"{len(keys)} rows for {known} of its cells", f"one row for each of its {len(cells)} cells"
        raise ParameterError(f"measurements of {level.name}", given, allowed)
    values = np.empty(len(keys), dtype=np.int64)
    values[[cells[key] for key in keys]] = rows["count"].to_numpy()
    return values
