"""Searches by halving: against trying every integer, and down to the width that is asked for."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from countveil.search import NoRootError, bisect, find_root, least_integer, least_positive


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


# -- roots in floats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guess", [-3.0, 0.0, 0.69, 0.7, 5.0])
@pytest.mark.parametrize("root", [-2.5, 0.0, 0.7])
def test_the_root_is_found_from_both_sides(guess: float, root: float) -> None:
    found = find_root(lambda x: math.exp(-x) - math.exp(-root), guess, close=1e-12)
    assert root - 1e-12 <= found <= root + 1e-8


def test_nothing_is_lacking_at_what_is_found() -> None:
    """Also at a jump, which no line meets."""
    found = find_root(lambda x: 1.0 if x < 1 / 3 else -2.0, 0.0)
    assert 1 / 3 <= found <= 1 / 3 + 1e-4


def test_the_lower_limit_is_found_where_nothing_is_lacking_at_it() -> None:
    assert find_root(lambda x: -1.0, 3.0, limits=(0.5, 9.0)) == 0.5
    assert find_root(lambda x: 1 - x, 3.0, limits=(2.0, 9.0)) == 2.0


def test_what_has_no_root_is_said() -> None:
    for options in ({}, {"limits": (0.0, 2.0)}):
        with pytest.raises(NoRootError):
            find_root(lambda x: 1.0, 1.0, **options)  # type: ignore[arg-type]
    with pytest.raises(NoRootError):
        find_root(lambda x: -1.0, 1.0)
