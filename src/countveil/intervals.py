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

from countveil.law import Law
from countveil.mechanism import Mechanism

LEVEL = Fraction(95, 100)
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Intervals for the counts behind releases of one mechanism."""

    mechanism: Mechanism
    level: Fraction = LEVEL

    def of(self, released: Ints) -> tuple[Ints, Ints]:
        """The least and the largest count that each release speaks for."""
        lows, highs, first = self._table
        below, above = self._tails(self.mechanism.family.stationary)
        place = np.clip(released - first, 0, len(lows) - 1)
        far = released - first >= len(lows)
        low = np.where(far, released - above, lows[place])
        high = np.where(far, released + below, highs[place])
        return low, high

    @cached_property
    def _table(self) -> tuple[Ints, Ints, int]:
        """The intervals of every release that a count with a law of its own can give."""
        family, (least, most) = self.mechanism.family, self.mechanism.counts
        reach = self.mechanism.certificate.worst_error
        last = family.stationary_from + reach if most is None else most
        first, size = least - reach, last + 1 - least + 2 * reach if most is not None else last + 1 - least + reach
        lows, highs = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
        top = last if most is not None else last + reach
        for n in range(least, top + 1):
            below, above = self._tails(family.column(n) if n < family.stationary_from or most is not None else None)
            start, stop = max(n - below - first, 0), min(n + above - first + 1, size)
            lows[start:stop] = np.minimum(lows[start:stop], n)
            highs[start:stop] = np.maximum(highs[start:stop], n)
        empty = highs < 0
        y = np.arange(first, first + size)
        lows = np.where(empty, np.maximum(y - reach, least), lows)
        highs = np.where(empty, np.maximum(y + reach, least), highs)
        return lows, highs, first

    def _tails(self, law: Law | None) -> tuple[int, int]:
        """How far A(n) reaches below and above n."""
        if law is None:
            return self._stationary
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
        if cells <= 1:
            return self.mechanism.margin_95
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
        family, (least, most) = self.mechanism.family, self.mechanism.counts
        counts = range(least, (family.stationary_from if most is None else most) + 1)
        reach = self.mechanism.certificate.worst_error
        laws = np.zeros((len(counts), 2 * reach + 1))
        for i, n in enumerate(counts):
            law = family.column(n)
            start = reach - law.left
            row = [weight / law.total for weight in law.weights]
            laws[i, max(start, 0) : start + len(row)] = row[max(-start, 0) :]
        return np.arange(-reach, reach + 1, dtype=np.float64), laws

    @cached_property
    def _sums(self) -> dict[int, int]:
        return {}

    @cached_property
    def _stationary(self) -> tuple[int, int]:
        return self._tails(self.mechanism.family.stationary)
