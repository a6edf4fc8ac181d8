"""The privacy loss of one answer: pairs of neighbouring laws as probabilities and losses.

Adding a person moves a count from n to n + s, where s is at least 1 and at most the sensitivity. The loss of a released
count y is ln(p(y|n) / p(y|n + s)), with the opposite sign if the person is removed. A count that can be released at
only one of the two neighbours has an infinite loss; the probability of such counts is stored separately, as `infinite`,
rounded up.

Floats begin here, with bounded errors: probabilities are the nearest floats of exact ratios of integers, and LOSS_ERROR
bounds the error of the logarithm. `composition` accounts for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from countveil.laws.law import Law, Laws, LawsByCount, neighbour_pairs
from countveil.laws.remap import Remap

Floats = npt.NDArray[np.float64]

LOSS_ERROR = 2.0**-50
"""A bound on the error of a loss, relative to 1 + |loss|.

The quotient is correctly rounded, and the logarithm is off by a few units in the last place.
"""


class Change(Enum):
    """Whether the second of two neighbouring datasets has one person more or one less."""

    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring laws P and Q of one answer: the losses ln(P/Q), ascending, and their probabilities under P.

    Only outcomes that both laws have are listed; `infinite` is the probability under P of the outcomes that Q does not
    have. Outcomes that only Q has do not matter to delta.
    """

    p: Floats
    loss: Floats
    infinite: float

    @property
    def mean(self) -> float:
        """The mean of the finite losses under P."""
        return float(self.p @ self.loss / self.p.sum())

    @property
    def deviation(self) -> float:
        """The standard deviation of the finite losses under P."""
        share = self.p / self.p.sum()
        mean = float((share * self.loss).sum())  # not share @ loss, which would start threads for a short product
        return math.sqrt(max(0.0, float((share * (self.loss - mean) ** 2).sum())))

    def spacing(self, base: float) -> float:
        """The mean distance, under P, from a loss to the next larger one.

        For losses that are multiples of `base` the distance counts as 0.
        """
        if len(self.loss) < 2:
            return 0.0
        gaps = np.diff(self.loss)
        if base > 0:
            steps = self.loss[:-1] / base
            gaps = np.where(np.abs(steps - np.rint(steps)) < 1e-9 * (1 + np.abs(steps)), 0.0, gaps)
        return float(self.p[:-1] @ gaps)

    @property
    def heaviest_loss(self) -> float:
        """The likeliest size |loss| other than 0; the other losses are often multiples of it."""
        return self.heaviest_between(0.0, math.inf)

    def heaviest_between(self, low: float, high: float) -> float:
        """The likeliest size |loss| other than 0 between low and high; 0 if there is none."""
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
        """The delta of P against Q: the sum of max(0, P - e^epsilon Q). **Guarantee.** Rounded up."""
        return self._delta(epsilon, 1)

    def delta_lower(self, epsilon: float) -> float:
        """The delta of P against Q, which is the sum of max(0, P - e^epsilon Q).

        **Guarantee.** The result is rounded down, so the true delta is at least as large."""
        return self._delta(epsilon, -1)

    def _delta(self, epsilon: float, sign: int) -> float:
        loss = self.loss + sign * LOSS_ERROR * (1 + np.abs(self.loss))
        delta = float(self.p @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))) + self.infinite
        return delta * (1 + sign * (len(loss) + 8) * 2.0**-51)


def pair_of(p: Law, q: Law) -> Pair:
    """The `Pair` of two laws p and q: the losses ln(p/q) of the outcomes that both have."""
    bits = max(p.bits, q.bits)
    first, last = max(-p.left, -q.left), min(p.right, q.right)
    mine = [w << (bits - p.bits) for w in p.weights[first + p.left : max(0, last + 1 + p.left)]]
    other = [w << (bits - q.bits) for w in q.weights[first + q.left : max(0, last + 1 + q.left)]]
    both = [(a, b) for a, b in zip(mine, other, strict=True) if a and b]
    losses = np.array([_log_of_quotient(a, b) for a, b in both])
    total = 1 << bits
    finite = sum(a for a, _ in both)
    infinite = (sum(p.weights) << (bits - p.bits)) - finite
    p_both = np.array([a / total for a, _ in both])
    order = np.argsort(losses, kind="stable")
    losses, p_both = losses[order], p_both[order]
    starts = np.flatnonzero(np.diff(losses, prepend=-np.inf))
    for start, end in pairwise([*starts.tolist(), len(losses)]):
        if end - start > 1:  # equal losses: the nearest float of their sum
            p_both[start] = sum(both[i][0] for i in order[start:end].tolist()) / total
    return Pair(p_both[starts], losses[starts], _up(infinite / total) if infinite else 0.0)


def _log_of_quotient(a: int, b: int) -> float:
    try:
        return math.log(a / b)
    except (OverflowError, ValueError):  # a quotient beyond floats
        return math.log(a) - math.log(b)


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer of a mechanism: for persons added and for persons removed, all pairs of laws that neighbours can have.

    The true laws may differ from those of the pairs by a share `slack` of their probability, which adds slack * (1 + E)
    to delta at order E = e^epsilon. If `symmetric`, adding and removing are mirror images, and one of them is enough.
    """

    pairs: dict[Change, tuple[Pair, ...]]
    slack: Fraction
    symmetric: bool


def answer_of(laws: Laws, sensitivity: int) -> Answer:
    """One answer of a mechanism with these laws: all pairs of laws that neighbouring counts can have.

    For a remap they are the pairs of its signed law, with the slack of the remap.
    """
    slack = Fraction(0)
    if isinstance(laws, Remap):
        slack = laws.slack
        laws = LawsByCount(laws.source)
    alone = isinstance(laws, LawsByCount) and not laws.small and not laws.top and laws.hi is None
    added = tuple(_pairs(laws, sensitivity, Change.ADD))
    symmetric = alone and laws.stationary.is_symmetric()
    removed = added if symmetric else tuple(_pairs(laws, sensitivity, Change.REMOVE))
    return Answer({Change.ADD: added, Change.REMOVE: removed}, slack, symmetric)


def _pairs(laws: Laws, sensitivity: int, change: Change) -> Iterator[Pair]:
    for n, m in neighbour_pairs(laws, sensitivity):
        here, there = laws.law(n), laws.law(m).shift(m - n)
        yield pair_of(here, there) if change is Change.ADD else pair_of(there, here)


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def float_below(x: Fraction) -> float:
    """The largest float that is at most x. A delta that holds at this smaller epsilon holds at x too."""
    nearest = float(x)
    return nearest if Fraction(nearest) <= x else math.nextafter(nearest, -math.inf)
