"""The privacy of many answers together: a lower and an upper bound on delta(epsilon).

**What is composed.** Adding a person moves the true count of every answer from some n to n + s, with s at most the
sensitivity. So the laws of each answer before and after are one of the mechanism's pairs (P, Q); which pair it is may
depend on all earlier answers. For each answer, the pair that is composed dominates all of these: at every epsilon its
delta is at least theirs. This bounds the delta of all queries, adaptive or not, if the mechanisms are fixed in advance.
Adding and removing are composed separately; the larger delta counts. Replacing one person by another moves one cell up
and another down: both pairs are composed. docs/proofs.md has the proof.

**Mechanisms chosen adaptively.** If the choice of the next mechanism depends on earlier answers, only basic composition
is proved. Each answer is charged the (epsilon, delta) that its mechanism was certified at, before it is drawn. A budget
(epsilon, delta) that is fixed at the start and that the sums never exceed holds for all answers together. The cost of
the same answers with mechanisms fixed in advance is still a lower bound.

    upper      from dominating laws on a grid, plus every error of the Fourier transform: safe
    lower      from one pair, merged to the grid, minus those errors: an attack that exists
    estimate   between them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from countveil.accounting import convolution
from countveil.accounting.loss_grid import Losses, above, below, heaviest_loss
from countveil.accounting.privacy_loss import LOSS_ERROR, Answer, Change, Pair, float_below
from countveil.accounting.spectrum import UNIT
from countveil.display.cards import Card, Drawable
from countveil.errors import ParameterError
from countveil.numeric.exact_numbers import Number, number
from countveil.numeric.search import NoRootError, find_root

FINE = 60.0
"""The grid of privacy losses has at least this many steps in a standard deviation of one answer's loss."""
MERGED = 4e-4
"""Merging privacy losses to the grid may remove about this share of their variance."""
CHEAP, FINEST = 2**15, 2**20
"""Points in the window of the Fourier transform: CHEAP takes no noticeable time, FINEST is for the last digits."""
SMALLEST_DELTA = 1e-300
LONGEST = 2**20
"""The losses of one answer span at most this many grid points, however rare the extreme losses are."""
LARGEST_EPSILON = 700.0
BEYOND = 3e5
WIDEST = 2e5
"""The search for an epsilon goes no further than this."""
SHOWN_EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""The epsilons of the card in a notebook."""


@dataclass(frozen=True)
class Bounds:
    """A number that is not known exactly, but is proved to be between `lower` and `upper`.

    `estimate` is the best guess, also between them.
    """

    lower: float
    estimate: float
    upper: float

    @property
    def width(self) -> float:
        """The relative width of the bounds, (upper - lower) / estimate."""
        return (self.upper - self.lower) / self.estimate if self.estimate else 0.0


Terms = Sequence[tuple[Answer, int]]
"""Pairs (kind of answer, how many answers of that kind)."""
Charges = tuple[tuple[Fraction, Fraction, int], ...]
"""Triples (epsilon, delta, how often): what one answer is charged, and how many times."""

FIXED = "mechanisms fixed in advance: sound for queries chosen adaptively"
ADAPTIVE = (
    "mechanisms chosen adaptively: basic composition, the sums of the certified epsilons and deltas, for a budget "
    "that was fixed before the first answer; fix the mechanisms in advance (a plan) for the exact curve"
)


@dataclass(frozen=True, eq=False, repr=False)
class Composition(Drawable):
    """The privacy of all answers together, given in `terms`.

    `neighbours` is "add-remove" or "replace"; a person is in up to `cells` cells of a table. If g = `people` persons
    are protected together, delta at epsilon is at most the sum, over i = 0..g-1, of e^(i epsilon/g) times the delta for
    one person at epsilon/g. `charges`, if given, are those of mechanisms chosen adaptively.
    """

    terms: Terms
    neighbours: str = "add-remove"
    cells: int = 1
    people: int = 1
    chosen_step: float | None = None
    points: int = CHEAP
    charges: Charges | None = None

    def _line(self) -> str:
        answers = sum(k for _, k in self.terms)
        return f"of {answers} answers, {self.neighbours}, cells={self.cells} people={self.people}"

    def _card(self) -> Card:
        rows = [(f"{epsilon:g}", f"{self.upper(epsilon):.3g}") for epsilon in SHOWN_EPSILONS]
        notes = (f"delta is an upper bound; {self.note}",)
        return Card(f"Composition {self._line()}", head=("epsilon", "delta"), rows=rows, size=len(rows), notes=notes)

    @property
    def note(self) -> str:
        """The condition under which the bounds hold."""
        return FIXED if self.charges is None else ADAPTIVE

    @cached_property
    def _ways(self) -> list[list[tuple[tuple[Pair, ...], int]]]:
        """For every way in which neighbours can differ: the pairs of laws to compose, and how many times each."""
        if self.neighbours == "replace":
            both = [(answer.pairs[c], k * self.cells) for answer, k in self.terms for c in Change]
            return [both]
        ways = [[(answer.pairs[c], k * self.cells) for answer, k in self.terms] for c in Change]
        return ways[:1] if all(answer.symmetric for answer, _ in self.terms) else ways

    @cached_property
    def _reveals(self) -> bool:
        """Whether some neighbours have no outcome in common, so that one answer tells them apart."""
        return any(not len(pair.loss) for way in self._ways for pairs, _ in way for pair in pairs)

    @cached_property
    def _edges(self) -> float:
        """A lower bound on delta at every epsilon: the probability of an infinite loss in any answer, rounded down."""
        logs = [
            sum(k * math.log1p(-min(max(pair.infinite for pair in pairs), 1 - UNIT)) for pairs, k in way)
            for way in self._ways
        ]
        return -math.expm1(min(logs)) * (1 - 2.0**-40)

    @cached_property
    def step(self) -> float:
        """The grid step: small compared with one answer's loss, but large enough for a grid of the sum of all losses.

        A fraction of the likeliest loss is used if possible, so that this loss and its multiples are on the grid.
        """
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
        window = 2 * (convolution.WIDTH + 3) * deviation * math.sqrt(self.answers)
        wanted = min(max(wanted, window / (convolution.LARGEST / 2)), window / self.points)
        wanted = max(wanted, (max(extremes) - min(extremes)) / LONGEST)
        return base / math.ceil(base / wanted) if base > wanted else wanted

    @cached_property
    def _above(self) -> list[list[tuple[Losses, int]]]:
        return [[(above(pairs, self.step), k) for pairs, k in way] for way in self._ways]

    @cached_property
    def _attacks(self) -> list[list[tuple[Losses, int]]]:
        """Choices of neighbouring counts that an attacker can make, for the lower bound on delta.

        Each attack has one epsilon. For every answer it chooses the pair of laws whose delta at this epsilon is
        largest. Small and large epsilons give different attacks.
        """
        attacks = []
        for way in self._ways:
            choices = {
                tuple(max(range(len(pairs)), key=lambda i: pairs[i].delta(epsilon)) for pairs, _ in way)
                for epsilon in (0.0, *(max(pairs[0].deviation for pairs, _ in way) * x for x in (1.0, 3.0)))
            }
            for choice in sorted(choices):
                chosen = zip(way, choice, strict=True)
                attacks.append([(below(pairs[i], self.step), k) for (pairs, k), i in chosen])
        return attacks

    def _slack(self, epsilon: float) -> float:
        """What the moves of remaps add to the delta of all answers, rounded up: k * slack * (1 + e^epsilon)."""
        share = sum((k * self.cells * answer.slack for answer, k in self.terms), Fraction(0))
        if self.neighbours == "replace":
            share *= 2
        return float(share) * (1 + math.exp(min(epsilon, 700.0))) * (1 + 2.0**-48) if share else 0.0

    @property
    def answers(self) -> int:
        """The number of pairs of laws composed: one for each answer and cell, or two with neighbours "replace"."""
        return sum(k for _, k in self._ways[0])

    def upper(self, epsilon: Number) -> float:
        """An upper bound on the delta of all answers together at epsilon. **Guarantee.** Never too small.

        It is the smaller of two bounds that both hold: that of the Fourier transform, and basic composition with the
        same epsilon for every answer. If there are `charges`, it is the sum of their deltas where epsilon is at least
        the sum of their epsilons; below that nothing is proved, and the bound is 1.
        """
        if self.charges is not None:
            spent, delta = _sums(self.charges)
            return min(1.0, math.nextafter(float(delta), 2.0)) if _exact("epsilon", epsilon) >= spent else 1.0
        epsilon = _check_epsilon(epsilon, float_below)
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
            estimate = convolution.delta(parts, math.nextafter(epsilon - _slip(parts), -math.inf))
            worst = max(worst, estimate.value + estimate.error)
        return min(1.0, simple, worst + self._slack(epsilon))

    def _even_shares(self, way: Sequence[tuple[tuple[Pair, ...], int]], epsilon: float) -> float:
        """Basic composition: the sum of the deltas of all k answers at epsilon/k, rounded up."""
        share = math.nextafter(epsilon / self.answers, -math.inf) if self.answers > 1 else epsilon
        delta = sum(k * max(pair.delta(share) for pair in pairs) for pairs, k in way)
        return (delta + self._slack(share)) * (1 + 2.0**-48)

    def lower(self, epsilon: Number) -> float:
        """A lower bound on the delta of all answers together at epsilon. **Guarantee.** Never too large."""
        epsilon = _check_epsilon(epsilon, _float_above)
        if self._reveals:
            return 1.0
        if self.answers == 1:
            return max(pair.delta_lower(epsilon) for way in self._ways for pair in way[0][0])
        estimates = (
            convolution.delta(parts, math.nextafter(epsilon + _slip(parts), math.inf)) for parts in self._attacks
        )
        always = -math.expm1(epsilon) * (1 - 2.0**-50) if epsilon < 0 else 0.0  # P(A) - E Q(A) for the certain event A
        return max(always, self._edges, *(estimate.value - estimate.error for estimate in estimates))

    def delta(self, epsilon: Number) -> Bounds:
        """The delta of all answers together at epsilon.

        Args:
            epsilon: Any number; it may be negative.

        Returns:
            Proved lower and upper bounds, and an estimate between them.

        Raises:
            ParameterError: epsilon is not a number.

        >>> import countveil as cv
        >>> m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
        >>> cv.compose(m, 10).delta("1").upper < 1e-8
        True
        """
        upper, lower = self.upper(epsilon), self.lower(epsilon)
        lower = min(lower, upper)
        return Bounds(lower, math.sqrt(lower * upper) if lower else upper / 2, upper)

    def epsilon(self, delta: Number) -> Bounds | None:
        """The least epsilon >= 0 of all answers together at a delta.

        If there are `charges`, it is the sum of their epsilons.

        Args:
            delta: Above 0.

        Returns:
            Proved bounds; None if infinite losses, or the charged deltas, exceed delta at every epsilon.

        Raises:
            ParameterError: delta is not above 0.

        >>> import countveil as cv
        >>> m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
        >>> cv.compose(m, 10).epsilon("1e-6").upper < 1
        True
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
    """A limit on the rounding error of the sum of all losses.

    An upper bound is computed at epsilon minus this limit, a lower bound at epsilon plus this limit.
    """
    return sum(k * (losses.error + 8 * LOSS_ERROR * (1 + losses.reach)) for losses, k in parts)


def _sums(charges: Charges) -> tuple[Fraction, Fraction]:
    """The sums of all charged epsilons and of all charged deltas, exactly; the second is at most 1."""
    epsilon = sum((e * k for e, _, k in charges), Fraction(0))
    return epsilon, min(Fraction(1), sum((d * k for _, d, k in charges), Fraction(0)))


def _exact(name: str, given: Number) -> Fraction:
    """The exact value of a number; a float stands for its binary value, not for its shortest decimal."""
    return Fraction(given) if isinstance(given, float) and math.isfinite(given) else number(name, given)


def _check_epsilon(epsilon: Number, rounding: Callable[[Fraction], float]) -> float:
    """Epsilon as a float, rounded to the safe side and limited to the range that the transform can compute."""
    value = epsilon if isinstance(epsilon, float) else rounding(number("epsilon", epsilon))
    if math.isnan(value):
        raise ParameterError("epsilon", epsilon, "a number")
    return max(-LARGEST_EPSILON, min(float(value), BEYOND))


def _float_above(x: Fraction) -> float:
    return -float_below(-x)


def _least_epsilon(delta_at: Callable[[float], float], delta: Fraction) -> float | None:
    """Approximately the least epsilon >= 0 with delta_at(epsilon) <= delta; None if there is none below 2e5.

    At the result, delta_at(epsilon) <= delta holds.
    """
    log_target = math.log(delta)

    def lack(epsilon: float) -> float:
        return math.log(max(delta_at(epsilon), SMALLEST_DELTA)) - log_target

    limits = (0.0, math.inf)
    try:
        least = find_root(lack, 1.0, limits=limits, step=1.0, widest=WIDEST, tolerance=1e-9, close=1e-9)
    except NoRootError:
        return None
    step = 1e-12
    while delta_at(least) > delta:  # logarithms of deltas that differ in their last digits are equal
        if least > WIDEST:
            return None
        least, step = max(least * (1 + step), 1e-300), 2 * step
    return least


def _epsilon_not_enough(delta_at: Callable[[float], float], delta: Fraction) -> float:
    """Approximately the largest epsilon at which delta_at(epsilon) is above delta; 0 if there is none above 0."""
    epsilon = _least_epsilon(delta_at, delta) or 0.0
    nudge = 1e-9
    while epsilon and nudge < 1 and delta_at(epsilon * (1 - nudge)) <= delta:
        nudge *= 4
    return epsilon * (1 - nudge) if nudge < 1 else 0.0
