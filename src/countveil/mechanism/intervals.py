"""Confidence intervals for the true count n; they depend only on the released number y and the mechanism.

For every count n let A(n) be the released values between the two 2.5 % tails of its law, so P(Y in A(n) | n) >= 95 %.
The interval for y runs from the least to the largest n for which A(n) contains y. So whatever the true count n is, its
release Y gets an interval that contains n with probability at least 95 %. This is exact, by integers, for small counts
and large ones alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from countveil.laws.law import Law
from countveil.laws.remap import Remap
from countveil.mechanism.cumulants import Cumulants, MappedCumulants, cumulants
from countveil.mechanism.mechanism import Mechanism

LEVEL = Fraction(95, 100)
MOST = 2**63 - 1
_NONE = np.iinfo(np.int64).max
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals of probability `level` for the true counts behind the releases of one mechanism."""

    mechanism: Mechanism
    level: Fraction = LEVEL

    def of(self, released: Ints) -> tuple[Ints, Ints]:
        """The lower and upper ends of the interval of each released number."""
        below, above = self._stationary
        low = released - above
        high = np.minimum(released, MOST - max(below, 0)) + below  # without a wrap at 2^63
        for first, lows, highs in self._tables:
            last = first + len(lows) - 1
            here = (released >= first) & (released <= last)
            place = np.clip(released, first, last) - first
            low, high = np.where(here, lows[place], low), np.where(here, highs[place], high)
        return low, high

    @cached_property
    def _tables(self) -> list[tuple[int, Ints, Ints]]:
        """Tables (first release, lower ends, upper ends) for releases near an end of the promised counts.

        They cover all releases that counts with a law other than the stationary one can have. For every other release,
        the ends of the interval are at the same two distances from the release.
        """
        laws, (least, most) = self.mechanism.laws, self.mechanism.counts
        reach = self.mechanism.certificate.worst_error
        small = laws.stationary_from + reach
        if most is None:
            return [self._table(least - reach, small)]
        large, last = self._first_top - reach, min(most + reach, MOST)
        if large - small < 2:
            return [self._table(least - reach, last)]
        return [self._table(least - reach, small), self._table(large, last)]

    @property
    def _first_top(self) -> int:
        """The least count that has a law in `top`.

        If `top` is empty, it is the largest promised count + 1, and 2^63 - 1 if there is no largest count.
        """
        most = self.mechanism.counts[1]
        return MOST if most is None else most + 1 - len(getattr(self.mechanism.laws, "top", ()))

    def _table(self, first: int, last: int) -> tuple[int, Ints, Ints]:
        """The released number `first`, and the ends of the intervals of the releases first..last."""
        least, most = self.mechanism.counts
        reach = self.mechanism.certificate.worst_error
        smallest, largest = max(first - reach, least), last + reach if most is None else min(last + reach, most)
        size = last + 1 - first
        # Everything is counted from `first`, so that no number is beyond 64 bits.
        counts = np.arange(smallest - first, largest - first + 1)
        below, above = self._distances(smallest, largest)
        starts, stops = np.clip(counts - below, 0, size), np.clip(counts + above + 1, 0, size)
        lows = _least_of_covers(starts, stops, counts, size)
        highs = -_least_of_covers(starts, stops, -counts, size)
        empty = lows == _NONE
        certain_low, certain_high = self.mechanism.bounds(first + np.arange(size))
        lows, highs = np.where(empty, 0, lows) + first, np.where(empty, 0, highs) + first
        return first, np.where(empty, certain_low, lows), np.where(empty, certain_high, highs)

    def _distances(self, first: int, last: int) -> tuple[Ints, Ints]:
        """For each count first..last, how far the central 95 % of its released values reach below and above the count.

        Returns two arrays: the distance down to the least of these values, and the distance up to the greatest.
        """
        laws = self.mechanism.laws
        below, above = (np.full(last + 1 - first, distance) for distance in self._stationary)
        if isinstance(laws, Remap) and laws.targets is not None:
            return _map_distances(laws.targets, below, above, first)
        if first < laws.lo:  # these counts are treated as lo
            short = np.arange(laws.lo - first, max(laws.lo - last - 1, 0), -1)
            down, up = self._tails(laws.law(laws.lo))
            below[: len(short)], above[: len(short)] = down - short, up + short
        small = range(max(first, laws.lo), min(laws.stationary_from - 1, last) + 1)
        for n in (*small, *range(max(first, laws.stationary_from, self._first_top), last + 1)):
            below[n - first], above[n - first] = self._tails(laws.law(n))
        return below, above

    def _tails(self, law: Law) -> tuple[int, int]:
        """How far the central 95 % of a law reach below and above 0, as two distances."""
        tail = law.total * (1 - self.level) / 2
        first, last = math.floor(tail) + 1, math.ceil(law.total - tail)  # whole numbers compare faster than fractions
        sums = list(accumulate(law.weights))
        return law.left - bisect_left(sums, first), bisect_left(sums, last) - law.left

    def of_sum(self, cells: int) -> int:
        """The margin m of a sum of `cells` released counts.

        With probability at least 95 % the sum is within m of the true sum, whatever the counts are. This is Chernoff's
        bound. The errors Z of different cells are independent, and K(t) is the largest ln E[exp(t Z) | n] of any count
        n, which includes the bias. So P(error of the sum > m) <= exp(cells K(t) - t m) for every t > 0, and P(error of
        the sum < -m) has the same bound with -t in K.
        """
        if cells not in self._sums and cells <= 1:
            self._sums[cells] = self.mechanism.margin_95
        if cells not in self._sums:
            scale = max(float(self.mechanism.certificate.variance * cells) ** 0.5, 1e-9)
            orders = np.geomspace(0.1, 10, 25) / scale
            orders = orders[orders <= self._cumulants.largest_order]  # with fewer orders the bound holds too
            sides = [min((cells * self._cumulants.at(s * t) + math.log(40)) / t for t in orders) for s in (1, -1)]
            self._sums[cells] = math.ceil(max(sides) * (1 + 1e-9))
        return self._sums[cells]

    def of_weighted_sum(self, weights: Sequence[tuple[float, int]]) -> float:
        """A margin for a sum of released counts, each times a weight. `weights` are pairs (weight, number of cells).

        With probability at least 95 % the sum is within the margin of the same sum of true counts, whatever the counts
        are. This is Chernoff's bound, as in `of_sum`.
        """
        size = math.sqrt(sum(weight * weight * cells for weight, cells in weights))
        if not size:
            return 0.0
        scale = max(float(self.mechanism.certificate.variance) ** 0.5, 1e-9) * size
        each, cells = (np.array(values, np.float64) for values in zip(*weights, strict=True))

        def bound(t: float) -> float:
            return (float(cells @ self._cumulants.at_each(t * each)) + math.log(40)) / abs(t)

        orders = np.geomspace(0.2, 5, 11) / scale
        orders = orders[orders * np.abs(each).max() <= self._cumulants.largest_order]
        margin = max(min((bound(sign * float(t)) for t in orders), default=math.inf) for sign in (1, -1))
        certain = self.mechanism.certificate.worst_error * sum(abs(weight) * cells for weight, cells in weights)
        return min(margin, float(certain)) * (1 + 1e-9)

    @cached_property
    def _cumulants(self) -> Cumulants | MappedCumulants:
        return cumulants(self.mechanism)

    @cached_property
    def _sums(self) -> dict[int, int]:
        return {}

    @cached_property
    def _stationary(self) -> tuple[int, int]:
        return self._tails(self.mechanism.laws.stationary)


def _map_distances(targets: tuple[int, ...], below: Ints, above: Ints, first: int) -> tuple[Ints, Ints]:
    """How far the central 95 % of released values reach below and above each count, for a map that never falls.

    `below` and `above` are these distances before the map. Applying such a map to a quantile of n + Z gives the same
    quantile of the released count.
    """
    table, T = np.array(targets, dtype=np.int64), len(targets) - 1
    counts = first + np.arange(len(below))

    def send(signed: Ints) -> Ints:
        return np.where(signed < 0, 0, np.where(signed <= T, table[np.clip(signed, 0, T)], signed))

    return counts - send(counts - below), send(counts + above) - counts


def _least_of_covers(starts: Ints, stops: Ints, values: Ints, size: int) -> Ints:
    """For every index 0..size - 1 the least value among the ranges that cover it, or _NONE if none does.

    Range i covers the indexes starts[i]..stops[i] - 1 and has the value values[i]. Every range is the union of two
    ranges, which may overlap, whose length is a power of two. Beginning with the longest, the ranges of each length are
    split into halves. The time is linear in the number of ranges, and proportional to size * log(size).
    """
    some = starts < stops
    starts, stops, values = starts[some], stops[some], values[some]
    exponents = np.frexp((stops - starts).astype(np.float64))[1] - 1
    least = np.full(size, _NONE)
    for exponent in range(int(exponents.max(initial=0)), -1, -1):
        here = exponents == exponent
        np.minimum.at(least, starts[here], values[here])
        np.minimum.at(least, stops[here] - (1 << exponent), values[here])
        if exponent:
            half = 1 << (exponent - 1)
            halves = least.copy()
            np.minimum(halves[half:], least[:-half], out=halves[half:])
            least = halves
    return least
