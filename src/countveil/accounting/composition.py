"""The privacy of many answers together, as bounds that enclose it.

**What is composed.** A person who is added moves every answer from some n to n + s; so answer by answer the laws are
one of the mechanism's pairs (P, Q), which may depend on all answers before. Composing, for each answer, one pair that
dominates all of them at every order bounds the delta of everything that was asked, adaptively or not, as long as the
mechanisms were fixed in advance. Adding and removing are composed apart and the larger delta counts. Replacing one
person by another moves one cell up and another down: both pairs are composed. docs/proofs.md has the argument.

**Mechanisms chosen on the way.** If which mechanism answers next depends on answers before, all that is proved is that
charges add up: each answer is charged the (epsilon, delta) its mechanism was certified at, which is settled before it
answers, and a budget (epsilon, delta) that was fixed at the start and never exceeded by the sums holds for all answers
together. What the same answers cost if fixed in advance is still a lower bound.

    upper      of the dominating grid laws, plus every error of the transform: safe
    lower      of one pair, merged to the grid, minus those errors: an attack that exists
    estimate   between them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from countveil.accounting import powers
from countveil.accounting.grid import Losses, above, below, heaviest_loss
from countveil.accounting.pairs import LOSS_ERROR, Answer, Change, Pair, float_below
from countveil.errors import ParameterError
from countveil.exact import Number, number
from countveil.search import NoRootError, find_root

FINE = 60.0
"""Grid steps in a standard deviation of one answer's loss, at least."""
MERGED = 4e-4
"""How much of the variance merging to the grid may take away, about."""
CHEAP, FINEST = 2**15, 2**20
"""A window of so many points costs nothing, so it has at least as many; and of so many for the last digits."""
SMALLEST_DELTA = 1e-300
LONGEST = 2**20
"""Losses of one answer span no more grid points than this, however rare the extreme ones are."""
LARGEST_EPSILON = 700.0
BEYOND = 3e5
WIDEST = 2e5
"""Where the search for an epsilon ends."""


@dataclass(frozen=True)
class Bounds:
    """A figure that is not computed exactly: proved to lie between `lower` and `upper`."""

    lower: float
    estimate: float
    upper: float

    @property
    def width(self) -> float:
        """(upper - lower) / estimate."""
        return (self.upper - self.lower) / self.estimate if self.estimate else 0.0


Terms = Sequence[tuple[Answer, int]]
"""Answers of mechanisms, and how many of each."""
Charges = tuple[tuple[Fraction, Fraction, int], ...]
"""(epsilon, delta) of one answer, and how often it is charged."""

FIXED = "mechanisms fixed in advance: sound for queries chosen adaptively"
ADAPTIVE = (
    "mechanisms chosen adaptively: basic composition, the certified epsilons and deltas added up, for a budget "
    "that was fixed before the first answer; fix the mechanisms in advance (a plan) for the exact curve"
)


@dataclass(frozen=True, eq=False)
class Composition:
    """All answers together. `neighbours` is "add-remove" or "replace"; a person is in up to `cells` cells of a table.

    Datasets that differ by `people` persons are joined by a chain of neighbours: delta_g(epsilon) is at most
    sum_{i<g} e^(i epsilon/g) delta(epsilon/g). Where mechanisms were chosen on the way, `charges` is what they cost.
    """

    terms: Terms
    neighbours: str = "add-remove"
    cells: int = 1
    people: int = 1
    chosen_step: float | None = None
    points: int = CHEAP
    charges: Charges | None = None

    @property
    def note(self) -> str:
        """Under which condition the bounds hold."""
        return FIXED if self.charges is None else ADAPTIVE

    @cached_property
    def _ways(self) -> list[list[tuple[tuple[Pair, ...], int]]]:
        """For every way in which datasets can differ: the pairs that are composed, and how often."""
        if self.neighbours == "replace":
            both = [(answer.pairs[c], k * self.cells) for answer, k in self.terms for c in Change]
            return [both]
        ways = [[(answer.pairs[c], k * self.cells) for answer, k in self.terms] for c in Change]
        return ways[:1] if all(answer.symmetric for answer, _ in self.terms) else ways

    @cached_property
    def _reveals(self) -> bool:
        """Some neighbours have no outcome in common: one answer can tell them apart."""
        return any(not len(pair.loss) for way in self._ways for pairs, _ in way for pair in pairs)

    @cached_property
    def _edges(self) -> float:
        """The probability of an infinite loss, 1 - (1 - p)^k, rounded down: delta is no less at any epsilon."""
        found = [
            sum(k * math.log1p(-min(max(pair.infinite for pair in pairs), 1 - powers.UNIT)) for pairs, k in way)
            for way in self._ways
        ]
        return -math.expm1(min(found)) * (1 - 2.0**-40)

    @cached_property
    def step(self) -> float:
        """Fine against the loss of one answer, coarse enough for the sum to fit; heavy losses are on the grid."""
        if self.chosen_step is not None:
            return self.chosen_step
        pairs = [(pair, k) for way in self._ways for several, k in way for pair in several]
        count = sum(k for _, k in pairs)
        variance = sum(k * pair.deviation**2 for pair, k in pairs)
        extremes = [float(x) for pair, _ in pairs for x in (pair.loss[0], pair.loss[-1])]
        if variance <= 0:
            return max(1e-6, *(abs(x) for x in extremes))
        deviation = math.sqrt(variance / count)
        parts = [part for way in self._ways for part in way]
        most = max(k for _, k in parts)
        base = max(heaviest_loss(several, deviation) for several, k in parts if k == most)
        spacing = max(pair.spacing(base) for pair, _ in pairs)
        wanted = min(deviation / FINE, MERGED * deviation**2 / spacing if spacing else math.inf)
        window = 2 * (powers.WIDTH + 3) * deviation * math.sqrt(self.answers)
        wanted = min(max(wanted, window / (powers.LARGEST / 2)), window / self.points)
        wanted = max(wanted, (max(extremes) - min(extremes)) / LONGEST)
        return base / math.ceil(base / wanted) if base > wanted else wanted

    @cached_property
    def _above(self) -> list[list[tuple[Losses, int]]]:
        return [[(above(pairs, self.step), k) for pairs, k in way] for way in self._ways]

    @cached_property
    def _attacks(self) -> list[list[tuple[Losses, int]]]:
        """Ways to differ that exist: in every answer one pair, the worst for few answers or the worst for many."""
        found = []
        for way in self._ways:
            choices = {
                tuple(max(range(len(pairs)), key=lambda i: pairs[i].delta(epsilon)) for pairs, _ in way)
                for epsilon in (0.0, *(max(pairs[0].deviation for pairs, _ in way) * x for x in (1.0, 3.0)))
            }
            for choice in sorted(choices):
                chosen = zip(way, choice, strict=True)
                found.append([(below(pairs[i], self.step), k) for (pairs, k), i in chosen])
        return found

    def _slack(self, epsilon: float) -> float:
        """What laws that differ by a share may add: k * share * (1 + E), rounded up."""
        share = sum((k * self.cells * answer.slack for answer, k in self.terms), Fraction(0))
        if self.neighbours == "replace":
            share *= 2
        return float(share) * (1 + math.exp(min(epsilon, 700.0))) * (1 + 2.0**-48) if share else 0.0

    @property
    def answers(self) -> int:
        """How many pairs are composed."""
        return sum(k for _, k in self._ways[0])

    def upper(self, epsilon: Number) -> float:
        """A delta that all answers together have at epsilon. **Guarantee.** Never too small.

        The smaller of the transform's bound and of basic composition with even shares, which both hold. For `charges`
        the sum of their deltas, if epsilon is at least the sum of their epsilons: nothing is proved below it.
        """
        if self.charges is not None:
            spent, delta = _sums(self.charges)
            return min(1.0, math.nextafter(float(delta), 2.0)) if _exact("epsilon", epsilon) >= spent else 1.0
        epsilon = _checked(epsilon, float_below)
        if self._reveals:
            return 1.0
        if self.people > 1:
            epsilon = min(epsilon, LARGEST_EPSILON)
            shared = epsilon / self.people
            if epsilon < 0:
                return 1.0
            chain = math.expm1(epsilon) / math.expm1(shared) if shared > 0 else float(self.people)
            return min(1.0, chain * (1 + 2.0**-48) * replace(self, people=1).upper(shared))
        simple = max(self._even_shares(way, epsilon) for way in self._ways)
        if self.answers == 1:
            return min(1.0, simple)
        worst = 0.0
        for parts in self._above:
            found = powers.delta(parts, math.nextafter(epsilon - _slip(parts), -math.inf))
            worst = max(worst, found.value + found.error)
        return min(1.0, simple, worst + self._slack(epsilon))

    def _even_shares(self, way: Sequence[tuple[tuple[Pair, ...], int]], epsilon: float) -> float:
        """Basic composition: the sum of all deltas at epsilon/k, slacks included."""
        share = math.nextafter(epsilon / self.answers, -math.inf) if self.answers > 1 else epsilon
        found = sum(k * max(pair.delta(share) for pair in pairs) for pairs, k in way)
        return (found + self._slack(share)) * (1 + 2.0**-48)

    def lower(self, epsilon: Number) -> float:
        """A delta that all answers together cannot be better than at epsilon."""
        epsilon = _checked(epsilon, _float_above)
        if self._reveals:
            return 1.0
        if self.answers == 1:
            return max(pair.delta_lower(epsilon) for way in self._ways for pair in way[0][0])
        found = (powers.delta(parts, math.nextafter(epsilon + _slip(parts), math.inf)) for parts in self._attacks)
        always = -math.expm1(epsilon) * (1 - 2.0**-50) if epsilon < 0 else 0.0  # P(A) - E Q(A) with A certain
        return max(always, self._edges, *(estimate.value - estimate.error for estimate in found))

    def delta(self, epsilon: Number) -> Bounds:
        """The delta of all answers together at epsilon (which may be negative)."""
        upper, lower = self.upper(epsilon), self.lower(epsilon)
        lower = min(lower, upper)
        return Bounds(lower, math.sqrt(lower * upper) if lower else upper / 2, upper)

    def epsilon(self, delta: Number) -> Bounds | None:
        """The least epsilon >= 0 of all answers together for a delta, or None: infinite losses alone weigh more.

        For `charges` the sum of their epsilons, or None if the sum of their deltas is more than delta.
        """
        target = _exact("delta", delta)
        if target <= 0:
            raise ParameterError("delta", delta, "a number above 0")
        upper: float | None
        if self.charges is not None:
            spent, charged = _sums(self.charges)
            upper = math.nextafter(float(spent), math.inf) if charged <= target else None
        else:
            upper = None if self._edges > target else _least_epsilon(self.upper, target)
        if upper is None:
            return None
        lower = min(_epsilon_not_enough(self.lower, target), upper)
        return Bounds(lower, (lower + upper) / 2, upper)


def _slip(parts: Sequence[tuple[Losses, int]]) -> float:
    """How far rounding may have moved the sum of all losses: a bound moves epsilon as far, to the safe side."""
    return sum(k * (losses.error + 8 * LOSS_ERROR * (1 + losses.reach)) for losses, k in parts)


def _sums(charges: Charges) -> tuple[Fraction, Fraction]:
    """The sums of epsilons and of deltas, exactly."""
    epsilon = sum((e * k for e, _, k in charges), Fraction(0))
    return epsilon, min(Fraction(1), sum((d * k for _, d, k in charges), Fraction(0)))


def _exact(name: str, given: Number) -> Fraction:
    """A number as it is; a float is itself, not its shortest decimal."""
    return Fraction(given) if isinstance(given, float) and math.isfinite(given) else number(name, given)


def _checked(epsilon: Number, rounding: Callable[[Fraction], float]) -> float:
    """Epsilon as a float, rounded to the safe side; beyond 700 in size delta is bounded by what it is there."""
    value = epsilon if isinstance(epsilon, float) else rounding(number("epsilon", epsilon))
    if math.isnan(value):
        raise ParameterError("epsilon", epsilon, "a number")
    return max(-LARGEST_EPSILON, min(float(value), BEYOND))


def _float_above(x: Fraction) -> float:
    return -float_below(-x)


def _least_epsilon(delta_at: Callable[[float], float], delta: Fraction) -> float | None:
    """An epsilon >= 0 with delta_at(epsilon) <= delta: the least one, about, or None if there is none below 2e5."""
    log_target = math.log(delta)

    def lack(epsilon: float) -> float:
        return math.log(max(delta_at(epsilon), SMALLEST_DELTA)) - log_target

    limits = (0.0, math.inf)
    try:
        found = find_root(lack, 1.0, limits=limits, step=1.0, widest=WIDEST, tolerance=1e-9, close=1e-9)
    except NoRootError:
        return None
    step = 1e-12
    while delta_at(found) > delta:  # logarithms of deltas that differ in their last digits are equal
        if found > WIDEST:
            return None
        found, step = max(found * (1 + step), 1e-300), 2 * step
    return found


def _epsilon_not_enough(delta_at: Callable[[float], float], delta: Fraction) -> float:
    """An epsilon with delta_at(epsilon) > delta, close to the largest; 0 if even there delta is enough."""
    found = _least_epsilon(delta_at, delta) or 0.0
    nudge = 1e-9
    while found and nudge < 1 and delta_at(found * (1 - nudge)) <= delta:
        nudge *= 4
    return found * (1 - nudge) if nudge < 1 else 0.0
