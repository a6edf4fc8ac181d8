"""What one answer can reveal: pairs of neighbouring laws as probabilities and privacy losses.

A person who is added moves a count from n to n + s, 1 <= s <= d (d the sensitivity). The loss of an outcome y is
ln(p(y|n) / p(y|n + s)), or its opposite where the person is removed. Outcomes that only one of two neighbours has lose
everything; their probability is kept apart, exactly, as `infinite`.

Floats begin here, and errors are on the safe side: probabilities are the nearest floats of exact ratios of integers,
and LOSS_ERROR bounds what the logarithm can be off by. `composition` accounts for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from countveil.law import ColumnFamily, Columns, Law, neighbour_pairs
from countveil.remap import Remap

Floats = npt.NDArray[np.float64]

LOSS_ERROR = 2.0**-50
"""Relative to 1 + |loss|: correctly rounded quotients and a logarithm good to a few units in the last place."""


class Change(Enum):
    """What happens to the person between two neighbouring datasets."""

    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, eq=False)
class Pair:
    """Two laws (P, Q) of one answer: P-probabilities and losses ln(P/Q) of the outcomes both have, losses ascending.

    `infinite` is the P-probability of outcomes that Q does not have. Outcomes that only Q has do not matter to delta.
    """

    p: Floats
    loss: Floats
    infinite: float

    @property
    def mean(self) -> float:
        """E[loss] under P over finite losses."""
        return float(self.p @ self.loss / self.p.sum())

    @property
    def deviation(self) -> float:
        """The standard deviation of the loss under P over finite losses."""
        share = self.p / self.p.sum()
        mean = float(share @ self.loss)
        return math.sqrt(max(0.0, float(share @ (self.loss - mean) ** 2)))

    def spacing(self, base: float) -> float:
        """How far the next larger loss is, on average; losses that are multiples of a base count as 0."""
        if len(self.loss) < 2:
            return 0.0
        gaps = np.diff(self.loss)
        if base > 0:
            steps = self.loss[:-1] / base
            gaps = np.where(np.abs(steps - np.rint(steps)) < 1e-9 * (1 + np.abs(steps)), 0.0, gaps)
        return float(self.p[:-1] @ gaps)

    @property
    def heaviest_loss(self) -> float:
        """The |loss| of largest probability, 0 left out: the others are often multiples of it."""
        return self.heaviest_between(0.0, math.inf)

    def heaviest_between(self, low: float, high: float) -> float:
        """The same of the losses whose size is from low to high; 0 if there are none."""
        sizes = np.abs(self.loss)
        order = np.argsort(sizes)
        order = order[(sizes[order] >= low) & (sizes[order] <= high)]
        sizes, p = sizes[order], self.p[order]
        if not len(sizes):
            return 0.0
        same = np.cumsum(np.append(0, np.diff(sizes) > 1e-9 * (1 + sizes[1:])))
        weight = np.where(sizes[np.searchsorted(same, same)] > 1e-9, np.bincount(same, p)[same], 0.0)
        return float(sizes[int(weight.argmax())]) if weight.any() else 0.0

    def delta(self, epsilon: float) -> float:
        """sum max(0, P - e^epsilon Q). **Guarantee.** Rounded up: losses by LOSS_ERROR, the sum by its length."""
        return self._delta(epsilon, 1)

    def delta_lower(self, epsilon: float) -> float:
        """The same sum. **Guarantee.** Rounded down."""
        return self._delta(epsilon, -1)

    def _delta(self, epsilon: float, sign: int) -> float:
        loss = self.loss + sign * LOSS_ERROR * (1 + np.abs(self.loss))
        found = float(self.p @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))) + self.infinite
        return found * (1 + sign * (len(loss) + 8) * 2.0**-51)


def pair_of(p: Law, q: Law) -> Pair:
    """The pair of two laws of the same outcomes."""
    bits = max(p.bits, q.bits)
    losses: dict[float, int] = {}
    infinite = 0
    for z, weight in p.items():
        if not weight:
            continue
        other = q.weight(z) << (bits - q.bits)
        mine = weight << (bits - p.bits)
        if other:
            try:
                loss = math.log(mine / other)
            except (OverflowError, ValueError):  # a quotient beyond floats
                loss = math.log(mine) - math.log(other)
            losses[loss] = losses.get(loss, 0) + mine
        else:
            infinite += mine
    total = 1 << bits
    ordered = sorted(losses)
    return Pair(
        np.array([losses[loss] / total for loss in ordered]),
        np.array(ordered),
        _up(infinite / total) if infinite else 0.0,
    )


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer of a mechanism: the pairs that its neighbours can be, for each change, and what else it may cost.

    `slack` is the share by which laws may differ from those of the pairs: it adds slack * (1 + E) to delta. In a
    `symmetric` one the two changes are mirror images, and one of them is enough.
    """

    pairs: dict[Change, tuple[Pair, ...]]
    slack: Fraction
    symmetric: bool


def answer_of(family: ColumnFamily, sensitivity: int) -> Answer:
    """All pairs of a family of columns; for a remapped one those of its signed law, and the slack of its moves."""
    slack = Fraction(0)
    if isinstance(family, Remap):
        slack = family.slack
        family = Columns(family.source)
    pairs = {change: tuple(_pairs(family, sensitivity, change)) for change in Change}
    law = family.stationary
    alone = isinstance(family, Columns) and not family.small and not family.top and family.hi is None
    return Answer(pairs, slack, alone and law.is_symmetric())


def _pairs(family: ColumnFamily, sensitivity: int, change: Change) -> Iterator[Pair]:
    for n, m in neighbour_pairs(family, sensitivity):
        here, there = family.column(n), family.column(m).shifted(m - n)
        yield pair_of(here, there) if change is Change.ADD else pair_of(there, here)


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def float_below(x: Fraction) -> float:
    """The largest float that is at most x: a delta at it holds at x too."""
    found = float(x)
    return found if Fraction(found) <= x else math.nextafter(found, -math.inf)
