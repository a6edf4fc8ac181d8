"""Basic composition: what is proved when the mechanisms themselves were chosen on the way.

The composition of dominating pairs needs mechanisms that are fixed in advance. If which mechanism answers next depends
on answers before, epsilons and deltas still add up: shares e_i of epsilon with sum epsilon give delta at most the sum
of delta_i(e_i). Epsilon is shared in proportion to the epsilons that the mechanisms were certified at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from countveil.accounting.composition import Bounds, Composition, least_epsilon


@dataclass(frozen=True, eq=False)
class Basic:
    """Answers of mechanisms chosen adaptively: one composition for each kind of answer, how often, and its weight."""

    answers: tuple[tuple[Composition, int, float], ...]
    fixed: Composition
    """The same answers as if they had been fixed in advance: a lower bound."""

    note = (
        "mechanisms chosen adaptively: basic composition, epsilons and deltas added up; fix the mechanisms in advance "
        "(a plan) for the exact curve"
    )

    def upper(self, epsilon: float) -> float:
        """A delta that all answers together have at epsilon >= 0. **Guarantee.** Never too small."""
        if epsilon < 0:
            return 1.0
        total = sum(k * weight for _, k, weight in self.answers)
        found = sum(k * one.upper(epsilon * weight / total * (1 - 2.0**-50)) for one, k, weight in self.answers)
        return min(1.0, found * (1 + 2.0**-40))

    def lower(self, epsilon: float) -> float:
        return self.fixed.lower(epsilon)

    def delta(self, epsilon: float) -> Bounds:
        """The delta of all answers together at epsilon."""
        upper = self.upper(epsilon)
        lower = min(self.lower(epsilon), upper)
        return Bounds(lower, math.sqrt(lower * upper) if lower else upper / 2, upper)

    def epsilon(self, delta: float) -> Bounds | None:
        """The least epsilon >= 0 for a delta, or None."""
        upper = least_epsilon(self.upper, delta)
        if upper is None:
            return None
        lower = min(least_epsilon(self.lower, delta) or 0.0, upper)
        return Bounds(lower, (lower + upper) / 2, upper)
