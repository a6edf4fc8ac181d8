"""Guesses of domains: round edges that split the values, and codes and ids told apart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, strategies as st

from countveil.data.engines import Source, open_engine
from countveil.data.guesses import BINS, ColumnGuess, guess_column, round_edges
from countveil.query.derived import EDGE
from tests.support.curated import write_rows

DECIMALS = st.decimals(-(10**15), 10**15, allow_nan=False, allow_infinity=False, places=6)


@given(DECIMALS, DECIMALS)
def test_round_edges_begin_at_or_below_the_low_end_and_stop_at_or_below_the_high_end(a: Decimal, b: Decimal) -> None:
    low, high = min(a, b), max(a, b)
    edges = round_edges(low, high)
    assert edges[0] <= low
    assert edges[-1] <= high
    assert 1 <= len(edges) <= BINS + 2
    assert edges == sorted(set(edges))
    assert all(EDGE.fullmatch(f"{edge:f}") for edge in edges)


def guess(folder: Path, values: list[object]) -> ColumnGuess:
    path = write_rows(folder / "t.csv", ["x", "y"], [(value, i) for i, value in enumerate(values)])
    with closing(open_engine(Source(str(path)))) as engine:
        return guess_column(engine, "x")


@pytest.mark.parametrize(
    ("values", "coded"), [([0, 1, 1], True), ([1, 2], True), ([0, 2], False), ([1, 1], False), ([0, 1, 2], False)]
)
def test_two_neighbouring_integers_from_0_or_1_are_taken_for_codes(
    values: list[object], coded: bool, tmp_path: Path
) -> None:
    assert guess(tmp_path, values).is_coded == coded


def test_texts_with_few_rows_per_value_are_taken_for_names(tmp_path: Path) -> None:
    frequent = guess(tmp_path, [f"d{i % 61}" for i in range(610)])
    rare = guess(tmp_path, [f"d{i % 61}" for i in range(609)])
    assert frequent.column is not None
    assert len(frequent.column.values) == 61
    assert (rare.column, rare.reason) == (None, "names or free text: fewer than 10 rows per value")


def test_codes_that_floats_do_not_tell_apart_are_texts(tmp_path: Path) -> None:
    found = guess(tmp_path, [2**53 + 1 + 1000 * (i % 3) for i in range(90)])
    assert found.column is not None
    assert found.column.values == ("9007199254740993", "9007199254741993", "9007199254742993")
    assert found.reason.startswith("codes of 2^53 and more, as text")
    small = guess(tmp_path, [7 + 1000 * (i % 3) for i in range(90)])
    assert small.column is not None
    assert small.column.values == (7, 1007, 2007)


def test_whole_numbers_with_leading_zeros_are_texts(tmp_path: Path) -> None:
    few = guess(tmp_path, ["01067", "99998", "10115"])
    assert few.column is not None
    assert few.column.values == ("01067", "10115", "99998")
    many = guess(tmp_path, [f"{i % 100:03}" for i in range(1000)])
    assert many.column is not None
    assert (many.column.kind, many.column.values[99], many.reason) == ("text", "099", "over 60 values, in a file")
    near = guess(tmp_path, [f"{i:03}" for i in range(200)])
    assert (near.column, near.reason[:6]) == (None, "an id:")
    zeros = guess(tmp_path, ["0", "-0", "0.0", 7, 12])
    assert zeros.column is not None
    assert (zeros.column.kind, zeros.column.low, zeros.column.high) == ("integer", 0, 12)
    assert guess(tmp_path, ["007", "0.5", "1.5"] * 40).bins


CODES = sorted({1000 + i * i for i in range(300)})


@pytest.mark.parametrize(
    ("values", "is_listed"),
    [
        (CODES * 10, True),
        (CODES * 9, False),  # too few rows for each
        ([*CODES[:20], 99_998] * 10, True),
        ([*range(0, 1010, 10)] * 10, False),  # just a tenth of 1,001
        ([*range(0, 1100, 11)] * 10, True),
        ([*range(18, 66), 999] * 100, False),  # ages with one outlier
        ([*range(18, 66)] * 100 + [999], False),
        ([*range(1990, 2025)] * 20 + [9999] * 20, False),
        ([1] * 600 + [2] * 300 + [3] * 100 + [500, 20_000], False),  # counts
        (range(0, 200_000, 37), False),
    ],
)
def test_whole_numbers_with_wide_gaps_are_codes_and_ages_and_counts_are_not(
    values: Sequence[int], is_listed: bool, tmp_path: Path
) -> None:
    column = guess(tmp_path, list(values)).column
    listed = tuple(sorted(set(values))) if is_listed else ()
    assert (() if column is None else column.values) == listed


@pytest.mark.parametrize("type", ["DECIMAL(18,0)", "DECIMAL(38,0)", "HUGEINT", "BIGINT"])
def test_codes_beyond_the_whole_numbers_of_a_float_are_listed_exactly(type: str, tmp_path: Path) -> None:
    first, step = 100_000_000_000_000_001, 7_777_777_777_777
    path = str(tmp_path / "t.duckdb")
    with closing(duckdb.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT ({first} + i % 20 * {step})::{type} AS x FROM range(1000) r(i)")
    with closing(open_engine(Source(path, "t"))) as engine:
        column = guess_column(engine, "x").column
    assert column is not None
    assert column.values == tuple(str(first + i * step) for i in range(20))


def test_outliers_do_not_widen_the_guessed_bins(tmp_path: Path) -> None:
    values = ["1e14", "-1e14", "1e99", *(f"{i / 10}" for i in range(200))]
    assert guess(tmp_path, list(values)).bins == ("0", "5", "10", "15")
    assert guess(tmp_path, list(values)).below


@pytest.mark.parametrize("times", ["{} 10:00:00", "{}T23:59:59.5", "{}"])
def test_months_are_proposed_for_dates_and_for_times_without_a_zone(times: str, tmp_path: Path) -> None:
    guessed = guess(tmp_path, [times.format(day) for day in ("2026-01-31", "2026-03-01")])
    assert guessed.has_months
    assert guessed.column is not None
    assert guessed.column.value(guessed.column.high) == date(2026, 3, 1)
