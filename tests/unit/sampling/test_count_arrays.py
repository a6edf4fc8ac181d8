"""Released counts have the type of the input; the error for an invalid count names its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import countveil as cv

M = cv.design(epsilon="1", delta="1e-6", method="remap")
VALUES = [0, 1, 2, 3, 1000, 10**12]


def near(released: Any) -> bool:
    noise = np.asarray(released, dtype=np.int64) - np.array(VALUES)
    return bool((np.abs(noise) <= M.D).all())


def test_int_list_and_numpy_array_keep_their_type() -> None:
    assert isinstance(M.release(5), int)
    assert isinstance(M.release(np.int64(5)), int)
    released = M.release(VALUES)
    assert isinstance(released, list)
    assert near(released)
    for dtype in (np.int64, np.uint64, np.float64, object):
        array = M.release(np.array(VALUES, dtype=dtype))
        assert array.dtype == np.int64
        assert near(array)
    assert len(M.release(np.array([], dtype=np.int64))) == 0
    assert (M.release(np.array([200, 3], dtype=np.uint8)) >= 0).all()


def test_pandas_series_keeps_its_name_and_index() -> None:
    series = pd.Series(VALUES, index=list("abcdef"), name="people")
    released = M.release(series)
    assert isinstance(released, pd.Series)
    assert (released.name, list(released.index)) == ("people", list("abcdef"))
    assert near(released)
    assert near(M.release(series.astype("Int64")))


def test_polars_and_pyarrow_columns_keep_their_type() -> None:
    released = M.release(pl.Series("people", VALUES))
    assert isinstance(released, pl.Series)
    assert (released.name, released.dtype) == ("people", pl.Int64)
    assert near(released.to_list())
    assert isinstance(M.release(pa.array(VALUES)), pa.Int64Array)
    assert isinstance(M.release(pa.chunked_array([VALUES[:2], VALUES[2:]])), pa.ChunkedArray)


def test_the_input_is_not_changed_and_noise_is_fresh() -> None:
    counts = np.full(1000, 10**6)
    first, second = M.release(counts), M.release(counts)
    assert (counts == 10**6).all()
    assert (first != second).any()


BIG = 2**63 - 1


@pytest.mark.parametrize(
    ("counts", "row"),
    [
        (np.array([1, -1]), 2),
        (np.array([1.0, 2.5]), 2),
        (np.array([1.0, np.nan]), 2),
        (np.array([np.inf]), 1),
        (np.array([1, None], dtype=object), 2),
        (np.array([1, "x"], dtype=object), 2),
        (np.array([True, False], dtype=object), 1),
        (np.array([5, BIG]), 2),
        (np.array([2**64 - 1], dtype=np.uint64), 1),
        (np.array([1e17]), 1),
        ([3, -3], 2),
        ([3, 2.5], 2),
        (pd.Series([1, None]), 2),
        (pd.Series([1, -2]), 2),
        (pd.Series([1, None], dtype="Int64"), 2),
        (pl.Series([1, 2, None]), 3),
        (pl.Series([-1]), 1),
        (pa.chunked_array([[1], [None]]), 2),
        (pa.array([4, -4]), 2),
    ],
    ids=str,
)
def test_an_invalid_count_is_refused_with_its_row(counts: Any, row: int) -> None:
    with pytest.raises(cv.ParameterError, match=f"count in row {row}: got") as caught:
        M.release(counts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "counts",
    [
        np.array([[1, 2]]),
        np.array(["1"]),
        np.array([True]),
        np.array([1 + 2j]),
        {"n": 1},
        object(),
        pd.DataFrame({"n": [1]}),
        pl.Series(["a"]),
        pd.Series(["a"]),
        None,
        -1,
        2.5,
        "many",
        True,
        BIG + 1,
    ],
    ids=lambda x: type(x).__name__,
)
def test_an_unsupported_input_is_refused(counts: Any) -> None:
    with pytest.raises(cv.ParameterError) as caught:
        M.release(counts)
    assert "\n" not in str(caught.value)


def test_releases_near_the_largest_integer_do_not_overflow() -> None:
    top = BIG - M.certificate.worst_error
    assert (M.release(np.full(1000, top)) > 2**62).all()
    for count in (2**31, 2**53, top):
        assert abs(M.release(count) - count) <= M.D


def test_bounds_and_margins_contain_the_true_count() -> None:
    low, high = M.bounds(np.array([0, 3, 1000]))
    assert low.tolist() == [0, 0, 1000 - M.certificate.worst_error]
    assert high.tolist() == [M.certificate.worst_error + y for y in (0, 3, 1000)]
    assert M.bounds(1000) == (low[2], high[2])
    for n in range(60):
        assert M.law(n).within(M.margin_95) >= 0.95
    counts = np.arange(2000) % 50
    released = M.release(counts)
    low, high = M.bounds(released)
    assert ((low <= counts) & (counts <= high)).all()
