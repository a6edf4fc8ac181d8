"""The one root finder: floats that steer a search, never part of a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable


class NoRootError(Exception):
    """The function does not change sign where it was looked for."""


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
    """The least x (about) with lack(x) <= 0, lack falling: bracket by growing steps, then Illinois' regula falsi.

    The lower limit is the answer if nothing is lacking there. The search ends when the bracket is as short as
    `tolerance`, or when -close < lack(x) <= 0.

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
