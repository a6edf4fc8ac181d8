"""Searches by halving: against trying every integer, and down to the width that is asked for."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from countveil.search import bisect, least_integer, least_positive


@pytest.mark.parametrize("high", range(1, 20))
def test_the_least_integer_is_the_one_that_counting_finds(high: int) -> None:
    for threshold in range(-1, high + 3):
        wanted = next((x for x in range(high) if x >= threshold), high)
        assert least_integer(lambda x: x >= threshold, 0, high) == wanted  # noqa: B023
        wanted = next((x for x in range(1, high) if x >= threshold), high)
        assert least_positive(lambda x: x >= threshold, high) == wanted  # noqa: B023


def test_doubling_never_asks_beyond_twice_the_answer() -> None:
    asked = []
    assert least_positive(lambda x: bool(asked.append(x)) or x >= 37, 10**9) == 37  # type: ignore[func-returns-value]
    assert max(asked) == 64


def test_a_bracket_is_as_narrow_as_asked_for_and_holds_the_root() -> None:
    low, high = bisect(lambda x: x * x >= 2, Fraction(1), Fraction(2), tolerance=lambda high: high / 10**9)
    assert low * low < 2 <= high * high
    assert high - low <= high / 10**9 < 2 * (high - low)
    low, high = bisect(lambda x: x >= 100, 1.0, 1e6, steps=30, middle=lambda low, high: math.sqrt(low * high))
    assert low < 100 <= high < low * (1 + 1e-7)
