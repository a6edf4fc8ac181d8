"""What a released number says about the true count: intervals for n that depend on y and the mechanism alone.

For every count n let A(n) be the released values between the two 2.5 % tails of its law, so P(Y in A(n) | n) >= 95 %.
The interval for y runs from the least to the largest n with y in A(n). Whatever n is, the interval that its release
gives holds n with at least 95 %: exact, by integers, for small counts and large ones alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from countveil.law import Law, distinct_counts
from countveil.mechanism import Mechanism

LEVEL = Fraction(95, 100)
MOST = 2**63 - 1
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Intervals for the counts behind releases of one mechanism."""

    mechanism: Mechanism
    level: Fraction = LEVEL

    def of(self, released: Ints) -> tuple[Ints, Ints]:
        """The least and the largest count that each release speaks for."""
        below, above = self._stationary
        low = released - above
        high = np.minimum(released, MOST - below) + below  # without a wrap at 2^63
        for first, lows, highs in self._tables:
            last = first + len(lows) - 1
            here = (released >= first) & (released <= last)
            place = np.clip(released, first, last) - first
            low, high = np.where(here, lows[place], low), np.where(here, highs[place], high)
        return low, high

    @cached_property
    def _tables(self) -> list[tuple[int, Ints, Ints]]:
        """The intervals of every release that a count with a law of its own can give: (first release, lows, highs)."""
        family, (least, most) = self.mechanism.family, self.mechanism.counts
        reach = self.mechanism.certificate.worst_error
        small = family.stationary_from + reach
        if most is None:
            return [self._table(least - reach, small)]
        large, last = self._first_top - reach, min(most + reach, MOST)
        if large - small < 2:
            return [self._table(least - reach, last)]
        return [self._table(least - reach, small), self._table(large, last)]

    @property
    def _first_top(self) -> int:
        """Counts from the stationary one to below this one have the stationary law."""
        most = self.mechanism.counts[1]
        return MOST if most is None else most + 1 - len(getattr(self.mechanism.family, "top", ()))

    def _table(self, first: int, last: int) -> tuple[int, Ints, Ints]:
        """The intervals of the releases first..last."""
        family, (least, most) = self.mechanism.family, self.mechanism.counts
        reach = self.mechanism.certificate.worst_error
        lows, highs = np.full(last + 1 - first, MOST), np.full(last + 1 - first, -1)
        largest = last + reach if most is None else min(last + reach, most)
        for n in range(max(first - reach, least), largest + 1):
            alike = family.stationary_from <= n < self._first_top
            below, above = self._stationary if alike else self._tails(family.column(n))
            start, stop = max(n - below - first, 0), max(n + above - first + 1, 0)
            lows[start:stop] = np.minimum(lows[start:stop], n)
            highs[start:stop] = np.maximum(highs[start:stop], n)
        empty = highs < 0
        certain_low, certain_high = self.mechanism.bounds(np.arange(first, last + 1))
        return first, np.where(empty, certain_low, lows), np.where(empty, certain_high, highs)

    def _tails(self, law: Law) -> tuple[int, int]:
        """How far A(n) reaches below and above n."""
        tail = law.total * (1 - self.level) / 2
        sums = list(accumulate(law.weights))
        start = next(i for i, s in enumerate(sums) if s > tail)
        stop = next(i for i, s in enumerate(sums) if law.total - s <= tail)
        return law.left - start, stop - law.left

    def of_sum(self, cells: int) -> int:
        """A margin for the sum of so many released counts that holds with at least 95 %, whatever the counts are.

        Chernoff's bound. Errors Z of different cells are independent, and K(t) = max over n of ln E[exp(t Z) | n], so
        P(sum > m) <= exp(cells K(t) - t m) for every t > 0, and the same below with -t. Bias of small counts is in K.
        """
        if cells not in self._sums and cells <= 1:
            self._sums[cells] = max(self.mechanism.family.column(n).margin(self.level) for n in self._counts)
        if cells not in self._sums:
            scale = max(float(self.mechanism.certificate.variance * cells) ** 0.5, 1e-9)
            orders = np.geomspace(0.1, 10, 25) / scale
            sides = [min((cells * self._cumulant(s * t) + math.log(40)) / t for t in orders) for s in (1, -1)]
            self._sums[cells] = math.ceil(max(sides) * (1 + 1e-9))
        return self._sums[cells]

    def _cumulant(self, t: float) -> float:
        """K(t): the largest ln E exp(t Z) of any count."""
        z, laws = self._laws
        top = float(np.max(t * z))
        return top + math.log(float(np.max(laws @ np.exp(t * z - top))))

    @cached_property
    def _laws(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The errors -reach..reach, and their probabilities for every count that has a law of its own."""
        family, counts = self.mechanism.family, self._counts
        reach = self.mechanism.certificate.worst_error
        laws = np.zeros((len(counts), 2 * reach + 1))
        for i, n in enumerate(counts):
            law = family.column(n)
            start = reach - law.left
            row = [weight / law.total for weight in law.weights]
            laws[i, max(start, 0) : start + len(row)] = row[max(-start, 0) :]
        return np.arange(-reach, reach + 1, dtype=np.float64), laws

    @cached_property
    def _counts(self) -> list[int]:
        """Promised counts at which every law of an error occurs."""
        return [*range(self.mechanism.counts[0], self.mechanism.family.lo), *distinct_counts(self.mechanism.family)]

    @cached_property
    def _sums(self) -> dict[int, int]:
        return {}

    @cached_property
    def _stationary(self) -> tuple[int, int]:
        return self._tails(self.mechanism.family.stationary)
