"""Measurements as arrays and frames: matched by label, and refused in one line if they are not whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import countveil as cv
from countveil.consistency.frames import read_measurement
from countveil.errors import ParameterError

TREE = cv.Tree.from_columns({"town": ["x", "y", "z"]}, ["town"])
TOWN = TREE.levels[1]
LAW = cv.Law((1, 2, 1), 1, 2)
KINDS = ["pandas", "polars", "pyarrow"]


def frame(kind: str, columns: dict[str, Any]) -> Any:
    import narwhals as nw

    return nw.from_dict(columns, backend=kind).to_native()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([3.7, 2.2, 9.9], "a column count of Float64, allowed is one whole number for each of its 3 cells"),
        ([1e30, 1.0, 1.0], "a column count of Float64"),
        (["3", "4", "5"], "a column count of String"),
        ([True, False, True], "a column count of Boolean"),
        ([3, None, 4], "a column count with nulls, allowed is one whole number"),
    ],
)
def test_counts_of_a_frame_that_are_no_whole_numbers_are_refused(kind: str, counts: list[Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        read_measurement(TOWN, frame(kind, {"town": ["x", "y", "z"], "count": counts}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_unsigned_counts_that_do_not_fit_are_refused_not_made_negative(kind: str) -> None:
    small, large = (np.array([n, 4, 5], dtype=np.uint64) for n in (3, 2**64 - 1))
    assert read_measurement(TOWN, small).tolist() == [3, 4, 5]
    assert read_measurement(TOWN, frame(kind, {"town": ["z", "y", "x"], "count": small})).tolist() == [5, 4, 3]
    for given in (large, frame(kind, {"town": ["x", "y", "z"], "count": large})):
        with pytest.raises(ParameterError, match=r"measurements of town: got a count of 2\^62 or more"):
            read_measurement(TOWN, given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["D", "ns"])
def test_dates_and_missing_labels_match_the_frame_they_came_from(kind: str, unit: str) -> None:
    days = np.array(["2020-01-01", "2020-01-02"], dtype=f"datetime64[{unit}]")
    if kind != "pyarrow":
        level = cv.Tree.from_columns({"day": days}, ["day"]).levels[1]
        assert read_measurement(level, frame(kind, {"day": days[::-1].copy(), "count": [2, 1]})).tolist() == [1, 2]
    numbers = np.array([1.0, np.nan])
    level = cv.Tree.from_columns({"code": numbers}, ["code"]).levels[1]
    assert read_measurement(level, frame(kind, {"code": numbers[::-1].copy(), "count": [2, 1]})).tolist() == [1, 2]


def test_frames_that_are_lazy_or_have_two_columns_of_one_name_are_refused() -> None:
    import pandas as pd
    import polars as pl

    lazy = pl.DataFrame({"town": ["x", "y", "z"], "count": [3, 2, 4]}).lazy()
    double = pd.DataFrame([["x", 1, 2], ["y", 1, 2], ["z", 1, 2]], columns=["town", "count", "count"])
    for given in (lazy, double):
        with pytest.raises(ParameterError, match="a frame in memory with columns of different names; a lazy frame"):
            read_measurement(TOWN, given)


@pytest.mark.parametrize(
    ("tree", "measurements", "message"),
    [
        (TREE, {"town": [[1], [1, 2], [3]]}, "measurements of town: got lists of unequal lengths"),
        (TREE, None, "measurements: got NoneType, allowed is a mapping"),
        (TREE, ["town"], "measurements: got list, allowed is a mapping"),
        (None, {"town": [1, 2, 3]}, "tree: got NoneType, allowed is a Tree"),
    ],
)
def test_arguments_of_wrong_types_are_refused_in_one_line(tree: Any, measurements: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        cv.reconcile(tree, measurements, LAW)
    assert "\n" not in str(caught.value)
