"""One-dimensional searches: the least integer or number at which a monotone condition holds; the root of a function.

A condition is monotone if it holds for all larger values once it holds; the searches rely on this, and evaluate the
condition at a few places only. `find_root` uses floats, which steer a search and are never part of a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

Real = TypeVar("Real", Fraction, float)


def least_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer in low..high for which a condition holds, or `high` if it holds nowhere below.

    The condition is never evaluated at `high`.

    >>> least_integer(lambda x: x * x >= 50, 0, 100)
    8
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def least_positive(holds: Callable[[int], bool], limit: int) -> int:
    """The least integer in 1..limit for which a condition holds, or `limit` if it holds nowhere below.

    Small integers are tried first, because the condition takes long to evaluate for large ones.
    """
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
    """Halve the bracket (low, high) again and again, and return its two ends.

    The condition must be false at `low` and true at `high`; then the same holds for the ends of every shorter bracket.
    The search ends after `steps` halvings, or when the bracket is at most `tolerance(high)` long. `middle`, if given,
    chooses where a bracket is divided.

    >>> bisect(lambda x: x * x >= 2, Fraction(1), Fraction(2), steps=3)
    (Fraction(11, 8), Fraction(3, 2))
    """
    for _ in range(steps):
        if tolerance is not None and high - low <= tolerance(high):
            break
        between = middle(low, high) if middle else (low + high) / 2
        low, high = (low, between) if holds(between) else (between, high)
    return low, high


class NoRootError(Exception):
    """The function does not change sign within the searched range."""


def find_root(
    lack: Callable[[float], float],
    guess: float,
    *,
    limits: tuple[float, float] = (-math.inf, math.inf),
    step: float = 0.05,
    widest: float = 16.0,
    tolerance: float = 1e-9,
    close: float = 1e-8,
) -> float:
    """The least x with lack(x) <= 0, approximately, for a decreasing function `lack`.

    From `guess`, steps that double in length find a bracket, at most about `widest` long. The Illinois method then
    shortens it, until it is at most `tolerance` long or -close < lack(x) <= 0. Returns the lower limit if lack <= 0
    there; raises NoRootError if the function does not change sign within reach.

    >>> round(find_root(lambda x: 2 - x * x, 1.0), 6)
    1.414214
    """
    low = high = guess
    gap_low = gap_high = lack(guess)
    width = step
    while gap_high > 0:
        if high >= limits[1] or 2 * width > widest:
            raise NoRootError
        low, gap_low = high, gap_high
        high, width = min(high + width, limits[1]), 2 * width
        gap_high = lack(high)
    width = step
    while gap_low <= 0:
        if low <= limits[0]:
            return low
        if 2 * width > widest:
            raise NoRootError
        high, gap_high = low, gap_low
        low, width = max(low - width, limits[0]), 2 * width
        gap_low = lack(low)
    for i in range(80):
        if high - low <= tolerance or -close < gap_high <= 0:
            break
        middle = low + (high - low) * gap_low / (gap_low - gap_high)
        if i % 4 == 3 or not low < middle < high:
            middle = (low + high) / 2
        gap = lack(middle)
        if gap > 0:
            low, gap_low, gap_high = middle, gap, gap_high / 2
        else:
            high, gap_high, gap_low = middle, gap, gap_low / 2
    return high
