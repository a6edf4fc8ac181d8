"""Exact numbers against mpmath and against the definition."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, strategies as st

from countveil.numeric.exact_numbers import convolve, decimal_text, exp_bounds, log_upper, number


@given(st.fractions(min_value=-100, max_value=100, max_denominator=10**6))
def test_bounds_enclose_the_exponential(x: Fraction) -> None:
    low, high = exp_bounds(x)
    with mpmath.workdps(120):
        value = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
        assert mpmath.mpf(low.numerator) / low.denominator <= value * (1 + mpmath.mpf(10) ** -100)
        assert mpmath.mpf(high.numerator) / high.denominator >= value * (1 - mpmath.mpf(10) ** -100)
    assert (high - low) <= low / 2**150


@given(st.fractions(min_value=1, max_value=10**9, max_denominator=10**6))
def test_logarithms_are_rounded_up(order: Fraction) -> None:
    epsilon = log_upper(order)
    assert exp_bounds(epsilon)[0] >= order
    assert exp_bounds(epsilon - Fraction(1, 10**10))[0] < order or epsilon < Fraction(1, 10**10)


@given(st.fractions(), st.integers(1, 30))
def test_decimals_are_rounded_in_the_stated_direction(x: Fraction, digits: int) -> None:
    down, near, up = (Fraction(decimal_text(x, digits, way)) for way in ("down", "nearest", "up"))
    assert down <= x <= up
    assert down <= near <= up
    assert abs(up - down) <= abs(up) * Fraction(10) ** (1 - digits)


@given(st.lists(st.integers(0, 2**70), max_size=12), st.lists(st.integers(0, 2**40), max_size=9))
def test_convolution_agrees_with_its_definition(left: list[int], right: list[int]) -> None:
    expected = [0] * max(0, len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            expected[i + j] += a * b
    if left and right:
        assert convolve(left, right) == expected


@pytest.mark.parametrize(
    ("given_", "value"),
    [("0.1", "1/10"), (0.1, "1/10"), ("1e-6", "1/1000000"), (3, "3"), ("3/4", "3/4"), (" 2 ", "2"), (".5", "1/2")],
)
def test_numbers_are_read_exactly(given_: object, value: str) -> None:
    assert number("x", given_) == Fraction(value)
