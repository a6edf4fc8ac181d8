"""Basic composition: what is proved when the mechanisms themselves were chosen on the way.

The composition of dominating pairs needs mechanisms that are fixed in advance. If which mechanism answers next depends
on answers before, charges still add up: each answer is charged the (epsilon, delta) its mechanism was certified at,
which is settled before it answers, and a budget (epsilon, delta) that was fixed at the start and never exceeded by the
sums holds for all answers together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from countveil.accounting.composition import Bounds, Composition, least_epsilon


@dataclass(frozen=True, eq=False)
class Basic:
    """Answers of mechanisms chosen adaptively: for each kind its charge (epsilon, delta) and how often it is made."""

    charges: tuple[tuple[Fraction, Fraction, int], ...]
    fixed: Composition
    """The same answers as if they had been fixed in advance: a lower bound."""

    note = (
        "mechanisms chosen adaptively: basic composition, the certified epsilons and deltas added up, for a budget "
        "that was fixed before the first answer; fix the mechanisms in advance (a plan) for the exact curve"
    )

    @property
    def charged(self) -> tuple[Fraction, Fraction]:
        """The sums of epsilons and of deltas, exactly."""
        epsilon = sum((e * k for e, _, k in self.charges), Fraction(0))
        return epsilon, min(Fraction(1), sum((d * k for _, d, k in self.charges), Fraction(0)))

    def upper(self, epsilon: float | Fraction) -> float:
        """The deltas' sum, rounded up, if epsilon is at least the epsilons' sum, else 1: nothing is proved below it."""
        spent, delta = self.charged
        return min(1.0, math.nextafter(float(delta), 2.0)) if Fraction(epsilon) >= spent else 1.0

    def lower(self, epsilon: float) -> float:
        return self.fixed.lower(epsilon)

    def delta(self, epsilon: float) -> Bounds:
        """The delta of all answers together at epsilon."""
        upper = self.upper(epsilon)
        lower = min(self.lower(epsilon), upper)
        return Bounds(lower, math.sqrt(lower * upper) if lower else upper / 2, upper)

    def epsilon(self, delta: float) -> Bounds | None:
        """The epsilons' sum if the deltas' sum is within delta, else None."""
        spent, charged = self.charged
        if charged > Fraction(delta):
            return None
        upper = math.nextafter(float(spent), math.inf)
        lower = min(least_epsilon(self.lower, delta) or 0.0, upper)
        return Bounds(lower, (lower + upper) / 2, upper)
