"""Searches agree with trying every integer and stop at the requested width; root finding in floats."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from countveil.numeric.search import NoRootError, bisect, find_root, least_integer, least_positive


@pytest.mark.parametrize("high", range(1, 20))
def test_least_integer_agrees_with_trying_every_integer(high: int) -> None:
    for threshold in range(-1, high + 3):
        expected = next((x for x in range(high) if x >= threshold), high)
        assert least_integer(lambda x: x >= threshold, 0, high) == expected  # noqa: B023
        expected = next((x for x in range(1, high) if x >= threshold), high)
        assert least_positive(lambda x: x >= threshold, high) == expected  # noqa: B023


def test_doubling_never_evaluates_beyond_twice_the_result() -> None:
    evaluated = []
    assert least_positive(lambda x: bool(evaluated.append(x)) or x >= 37, 10**9) == 37  # type: ignore[func-returns-value]
    assert max(evaluated) == 64


def test_bisect_returns_a_bracket_of_the_requested_width_around_the_root() -> None:
    low, high = bisect(lambda x: x * x >= 2, Fraction(1), Fraction(2), tolerance=lambda high: high / 10**9)
    assert low * low < 2 <= high * high
    assert high - low <= high / 10**9 < 2 * (high - low)
    low, high = bisect(lambda x: x >= 100, 1.0, 1e6, steps=30, middle=lambda low, high: math.sqrt(low * high))
    assert low < 100 <= high < low * (1 + 1e-7)


# Roots in floats


@pytest.mark.parametrize("guess", [-3.0, 0.0, 0.69, 0.7, 5.0])
@pytest.mark.parametrize("root", [-2.5, 0.0, 0.7])
def test_find_root_converges_from_both_sides(guess: float, root: float) -> None:
    x = find_root(lambda x: math.exp(-x) - math.exp(-root), guess, close=1e-12)
    assert root - 1e-12 <= x <= root + 1e-8


def test_find_root_returns_a_point_past_a_jump() -> None:
    """At a jump the function never takes the value zero."""
    x = find_root(lambda x: 1.0 if x < 1 / 3 else -2.0, 0.0)
    assert 1 / 3 <= x <= 1 / 3 + 1e-4


def test_find_root_returns_the_lower_limit_if_the_condition_holds_there() -> None:
    assert find_root(lambda x: -1.0, 3.0, limits=(0.5, 9.0)) == 0.5
    assert find_root(lambda x: 1 - x, 3.0, limits=(2.0, 9.0)) == 2.0


def test_find_root_raises_if_there_is_no_root() -> None:
    for options in ({}, {"limits": (0.0, 2.0)}):
        with pytest.raises(NoRootError):
            find_root(lambda x: 1.0, 1.0, **options)  # type: ignore[arg-type]
    with pytest.raises(NoRootError):
        find_root(lambda x: -1.0, 1.0)
