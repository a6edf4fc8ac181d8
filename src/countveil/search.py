"""Searches by halving a bracket: the least integer, or the least number, at which a monotone condition holds.

All of them ask the condition at a few places and trust that it goes on holding once it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

Real = TypeVar("Real", Fraction, float)


def least_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer in low..high for which a condition holds; it is not asked at `high`, which is the answer if
    it holds nowhere below.

    >>> least_integer(lambda x: x * x >= 50, 0, 100)
    8
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def least_positive(holds: Callable[[int], bool], limit: int) -> int:
    """The least integer in 1..limit, for a condition that is costly to ask at large ones: doubles before it halves."""
    high = 1
    while high < limit and not holds(high):
        high = min(2 * high, limit)
    return least_integer(holds, high // 2 + 1, high)


def bisect(
    holds: Callable[[Real], bool],
    low: Real,
    high: Real,
    *,
    steps: int = 1000,
    tolerance: Callable[[Real], Real] | None = None,
    middle: Callable[[Real, Real], Real] | None = None,
) -> tuple[Real, Real]:
    """A narrow bracket: the condition does not hold at its lower end and holds at its upper one.

    The bracket is halved so many times, or until it is no wider than `tolerance(high)`.

    >>> bisect(lambda x: x * x >= 2, Fraction(1), Fraction(2), steps=3)
    (Fraction(11, 8), Fraction(3, 2))
    """
    for _ in range(steps):
        if tolerance is not None and high - low <= tolerance(high):
            break
        between = middle(low, high) if middle else (low + high) / 2
        low, high = (low, between) if holds(between) else (between, high)
    return low, high
