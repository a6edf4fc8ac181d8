"""A mechanism that adds noise and then maps the result to a range: Y = f(n + Z), f fixed and without randomness.

Post-processing costs no privacy, so the delta of these columns is at most that of Z at every order. Columns are made
when asked for, by moving the weights beyond an end: there are as many different ones as the noise is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from countveil.law import Law


@dataclass(frozen=True)
class Processed:
    """The laws of f(n + Z) - n for 0 <= n <= hi, where f leaves 0..hi (0.. if hi is None) alone."""

    source: Law
    send: Callable[[int], int]
    hi: int | None = None

    lo = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", lru_cache(maxsize=64)(self.column))

    @property
    def stationary_from(self) -> int:
        """From here on no noise leaves the range (below the top columns, if there is room between both ends)."""
        first = self.source.left
        return first if self.hi is None or first + self.source.right <= self.hi else self.hi

    @property
    def first_top(self) -> int | None:
        """The least count whose noise can pass the upper end."""
        return None if self.hi is None else max(0, self.hi - self.source.right + 1)

    @property
    def stationary(self) -> Law:
        return self.source

    def column(self, n: int) -> Law:
        """The law of Y - n; a count outside the range is moved to its nearest end first."""
        inside = max(n, 0) if self.hi is None else min(max(n, 0), self.hi)
        if inside != n:
            return self.column(inside).shifted(inside - n)
        least, greatest = n - self.source.left, n + self.source.right
        if least >= 0 and (self.hi is None or greatest <= self.hi):
            return self.source
        low = max(0, least)
        high = greatest if self.hi is None else min(greatest, self.hi)
        weights = list(self.source.weights[low - least : high - least + 1])
        for y in (*range(least, low), *range(high + 1, greatest + 1)):
            target = self.send(y)
            if target > high:
                weights += [0] * (target - high)
                high = target
            elif target < low:
                weights[:0] = [0] * (low - target)
                low = target
            weights[target - low] += self.source.weights[y - least]
        return Law(tuple(weights), n - low, self.source.bits)
