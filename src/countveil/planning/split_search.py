"""The search for the laws of several grades: the split of one budget that makes the weighted sum of costs least.

Every grade has a truncated law proportional to exp(-|z/c|^p) with scale c and power p. A grade with a target has the
widest law of its power that keeps the target. The other scales, and all powers, are free; each trial multiplies the
free scales by one factor so that the composed delta meets the budget. So the search is unconstrained:

1. Start from variances in proportion to (sensitivity^2/weight)^e, with e from 1/2 (many answers, where an answer of
   variance v costs about 1/v) to 2/3 (few answers, where it costs about 1/sqrt(v)), and one power for all.
2. Descend with the gradient of delta. For a grade with k answers and sensitivity d, let w_z be the probability and l_z
   the privacy loss of the noise z of one answer. Let L be the loss of all other answers, and P and Q the laws of these
   answers at two neighbouring datasets. Then
       d delta / d w_z = k ( P(L > epsilon - l_z) - e^epsilon Q(L > epsilon - l_(z+d)) ).
3. Try steps along single variables: where few answers make delta a function with kinks, descent alone can stop early.

Floats throughout: the result is a proposal, which `graded_plan` rounds to integers and certifies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from countveil.accounting import convolution
from countveil.accounting.loss_grid import above
from countveil.accounting.privacy_loss import Floats
from countveil.numeric.search import NoRootError, find_root
from countveil.planning.descent import descend
from countveil.planning.shape_search import WIDE, cost_of
from countveil.planning.shapes import enough_D, normalise, pair, power_law, variance

POWERS = (1.0, 1.25, 1.6, 2.0)
EXPONENTS = (1 / 2, 2 / 3)
SHARE = 5e-3
"""Cutting all laws at their ends may take this share of delta."""
EDGE_SHARE = 0.3
"""Cutting the law of a grade with a bound D at -D and D may take this share of delta."""
COARSE, FINE = 40.0, 160.0
"""Grid steps in the smallest standard deviation of a loss: for the search, and for the last tuning."""
SMALLEST_POWER, LARGEST_POWER = 1.0, 3.0
MOST_EXACT = 8
"""With more kinds of grades than this, gradients count the answer itself among the others, which hardly matters."""
MOST_VARIABLES = 8
"""Steps along single variables are tried if there are at most this many variables."""
FIRST_STEPS, SHORTER = 0.15, 5  # the length of these steps at first, and how often it is shortened
LEVEL_95 = 0.95


@dataclass(frozen=True)
class GradePart:
    """A grade in the form of the search: its number of pairs of laws, and the weight of one pair's cost or a target."""

    pairs: int
    sensitivity: int
    weight: float = 0.0
    target: str | None = None
    value: float = 0.0
    level: float = LEVEL_95
    D: int | None = None

    def keeps(self, half: Floats) -> bool:
        """Whether a law keeps the target (a margin: with probability `level`); `half` are P(Z = z) for z = 0..D."""
        if self.target == "variance":
            return variance(half) <= self.value
        if self.target == "eta":
            return float(half[0]) >= self.value
        return float(half[0] + 2 * half[1 : int(self.value) + 1].sum()) >= self.level


@dataclass(frozen=True)
class Shape:
    """The law proportional to exp(-|z/scale|^power)."""

    scale: float
    power: float


@dataclass(frozen=True, eq=False)
class Split:
    """Proposed laws: P(Z = z), z = 0..D, of every grade, a grid step that suits them, and the shapes of all kinds."""

    halves: tuple[Floats, ...]
    step: float
    shapes: tuple[Shape, ...]


def find_split(
    parts: Sequence[GradePart],
    epsilon: float,
    delta: float,
    objective: str = "variance",
    *,
    near: Split | None = None,
) -> Split:
    """The laws of least weighted cost; NoRootError if there are none. `near`, a split of similar parts, saves time."""
    kinds = _merge(parts)
    small = [_narrow(kind, epsilon, sum(kind.pairs for kind in kinds)) for kind in kinds]
    search = _Search(small, epsilon, delta, objective)
    shapes = search.run() if near is None else search.run_near(near.shapes)
    wide = [
        replace(shape, scale=shape.scale * kind.sensitivity / narrow.sensitivity)
        for shape, kind, narrow in zip(shapes, kinds, small, strict=True)
    ]
    final = _Search(kinds, epsilon, delta, objective, fine=FINE)
    halves = final.tune(wide)
    by_kind = dict(zip(kinds, halves, strict=True))
    return Split(tuple(by_kind[replace(part, pairs=_pairs(kinds, part))] for part in parts), final.step, tuple(shapes))


def _merge(parts: Sequence[GradePart]) -> list[GradePart]:
    """Parts that differ only in their number of pairs, merged: they have the same law."""
    pairs: dict[GradePart, int] = {}
    for part in parts:
        kind = replace(part, pairs=0)
        pairs[kind] = pairs.get(kind, 0) + part.pairs
    return [replace(kind, pairs=k) for kind, k in pairs.items()]


def _pairs(kinds: Sequence[GradePart], part: GradePart) -> int:
    return next(kind.pairs for kind in kinds if replace(kind, pairs=part.pairs) == part)


def _narrow(part: GradePart, epsilon: float, pairs: int) -> GradePart:
    """A part of smaller sensitivity with nearly the same shape, if the law of the part is wide; else the part."""
    small = max(1, math.ceil(WIDE * epsilon / math.sqrt(8 * pairs)))
    if part.target is not None or part.D is not None or small >= part.sensitivity:
        return part
    return replace(part, sensitivity=small, weight=part.weight * (part.sensitivity / small) ** 2)


class _Search:
    """ln(cost) as a function of ln(scale) of the parts without a target and of all powers, rescaled to the budget."""

    def __init__(
        self, parts: Sequence[GradePart], epsilon: float, delta: float, objective: str, fine: float = COARSE
    ) -> None:
        self.parts, self.epsilon, self.delta = list(parts), epsilon, delta
        self.objective, self.fine = objective, fine
        self.free = [i for i, part in enumerate(parts) if part.target is None]
        total = sum(part.pairs for part in parts)
        self.edges = [delta * SHARE / (total * part.sensitivity) for part in parts]
        self.step = 0.0
        self.reach = [0] * len(parts)  # D of every part; fixed during a descent
        self.scale = 0.0
        self.best: list[Shape] = []
        self.least = math.inf
        self._fitting: dict[tuple[int, float, int], float] = {}

    # The variables: ln(scale) of the free parts, then the powers of all parts

    def shapes(self, x: Floats, s: float = 0.0) -> list[Shape]:
        powers = np.clip(x[len(self.free) :], SMALLEST_POWER, LARGEST_POWER)
        scales = dict(zip(self.free, np.exp(np.minimum(x[: len(self.free)] + s, 25.0)).tolist(), strict=True))
        return [
            Shape(
                min(scales[i], self._largest_scale(i, power)) if i in scales else self._fitting_scale(i, power), power
            )
            for i, power in enumerate(powers.tolist())
        ]

    def _largest_scale(self, i: int, power: float) -> float:
        """The scale at which cutting the noise of part i at D takes its share of delta; infinite without a bound D."""
        D = self.parts[i].D
        if D is None:
            return math.inf
        share = EDGE_SHARE * self.delta / (self.parts[i].pairs * self.parts[i].sensitivity)
        low, high = 1e-2, 2.0 * D
        for _ in range(45):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if power_law(middle, power, D)[D] <= share else (low, middle)
        return low

    def variables(self, shapes: Sequence[Shape]) -> Floats:
        return np.array([*(math.log(shapes[i].scale) for i in self.free), *(shape.power for shape in shapes)])

    def _fitting_scale(self, i: int, power: float) -> float:
        """The largest scale at which part i keeps its target with this power."""
        key = (i, power, self.reach[i])
        if key not in self._fitting:
            self._fitting[key] = self._search_scale(i, power)
        return self._fitting[key]

    def _search_scale(self, i: int, power: float) -> float:
        part = self.parts[i]
        low, high = 1e-2, 2e-2
        while part.keeps(self._law(i, Shape(high, power))):
            low, high = high, 2 * high
            if high > 1e7:
                return low
        for _ in range(45):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if part.keeps(self._law(i, Shape(middle, power))) else (low, middle)
        return low

    def _law(self, i: int, shape: Shape) -> Floats:
        D = self.reach[i] or enough_D(shape.scale, shape.power, self.edges[i])
        return power_law(shape.scale, shape.power, D if self.parts[i].D is None else min(D, self.parts[i].D or D))

    def laws(self, shapes: Sequence[Shape]) -> list[Floats]:
        return [self._law(i, shape) for i, shape in enumerate(shapes)]

    def cost(self, halves: Sequence[Floats]) -> float:
        """The sum of weight * cost over all answers or, if every part has a target, the delta."""
        if not self.free:
            return self.estimate_delta(halves)
        weights = {i: self.parts[i].weight * self.parts[i].pairs for i in self.free}
        return sum(weights[i] * float(2 * (halves[i] * self._costs(halves[i])).sum()) for i in self.free)

    def _costs(self, half: Floats) -> Floats:
        return cost_of(self.objective, len(half) - 1)

    def estimate_delta(self, halves: Sequence[Floats]) -> float:
        """An estimate of the delta of all answers together, on the safe side: if it is off, it is too large."""
        return convolution.estimate(self._losses(halves), self.epsilon)

    def _losses(self, halves: Sequence[Floats]) -> list[convolution.Part]:
        step = self.step or self._grid(halves)
        return [
            (above([pair(half, part.sensitivity)], step), part.pairs)
            for part, half in zip(self.parts, halves, strict=True)
        ]

    def _grid(self, halves: Sequence[Floats]) -> float:
        """A step that is small compared with every loss, and divides the likeliest loss of the part with most pairs."""
        pairs = [pair(half, part.sensitivity) for part, half in zip(self.parts, halves, strict=True)]
        total = math.sqrt(sum(part.pairs * p.deviation**2 for part, p in zip(self.parts, pairs, strict=True)))
        window = 2 * (convolution.WIDTH + 3) * max(total, 1e-9)
        step = min(max(min(p.deviation for p in pairs) / self.fine, window / 2**18), window / 2**12)
        most = max(range(len(pairs)), key=lambda i: self.parts[i].pairs)
        base = pairs[most].heaviest_loss
        return base / math.ceil(base / step) if base > step else step

    # The search

    def run(self) -> list[Shape]:
        """The best shapes that the search finds."""
        starts: list[tuple[float, list[Shape]]] = []
        for power in POWERS:
            for exponent in EXPONENTS if len(self.free) > 1 else EXPONENTS[:1]:
                self.reach, self.step, self.scale = [0] * len(self.parts), 0.0, 0.0
                x = self.variables(self._start(power, exponent))
                value = self.value(x, tolerance=1e-3)
                if math.isfinite(value):
                    starts.append((value, self.shapes(x, self.scale)))
        if not starts:
            raise NoRootError
        starts.sort(key=lambda start: start[0])
        self.least = math.inf
        for _, shapes in starts[:2]:
            self._descend(shapes)
            for i in range(SHORTER if len(self.free) + len(self.parts) <= MOST_VARIABLES else 0):
                self._try_single(FIRST_STEPS / 2.5**i)
        return self.run_near(self.best)

    def run_near(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The best shapes found near the given ones, on a grid and with bounds D of their own."""
        self.least = math.inf
        self._descend(shapes)
        if not self.best:
            raise NoRootError
        return self.best

    def _descend(self, shapes: Sequence[Shape]) -> None:
        self._fix(shapes)
        descend(self, self.variables(shapes), steps=25)

    def _start(self, power: float, exponent: float) -> list[Shape]:
        total = sum(part.pairs for part in self.parts)
        guess = math.sqrt(8 * total) / self.epsilon + 0.5
        weights = [self.parts[i].weight for i in self.free]
        middle = math.exp(sum(map(math.log, weights)) / len(weights)) if weights else 1.0
        found = []
        for i, part in enumerate(self.parts):
            if part.target is None:
                ratio = part.sensitivity ** (2 * exponent) * (part.weight / middle) ** (-exponent)
                found.append(Shape(guess * math.sqrt(ratio), power))
            else:
                found.append(Shape(self._fitting_scale(i, power), power))
        return found

    def _fix(self, shapes: Sequence[Shape]) -> None:
        """Fix the bounds D and the grid at these shapes: errors of the search must not depend on the laws it tries."""
        self.reach, self.step, self.scale = [0] * len(self.parts), 0.0, 0.0
        halves = self.laws(shapes)
        self.step = self._grid(halves)
        self.reach = [round(1.1 * (len(half) - 1)) + 1 for half in halves]

    def _try_single(self, length: float) -> None:
        """Take steps of one length along every variable, for as long as one of them gains."""
        gained = True
        while gained:
            gained = False
            for j in range(len(self.variables(self.best))):
                for sign in (1, -1):
                    before, x = self.least, self.variables(self.best)
                    x[j] += sign * length
                    self.scale = 0.0
                    self.value(x)
                    if self.least < before * (1 - 1e-5):
                        gained = True
                        break

    def tune(self, shapes: Sequence[Shape]) -> list[Floats]:
        """The laws of these shapes; those without a target are rescaled to the budget on this search's own grid."""
        self.step = self._grid(self.laws(shapes))
        x = self.variables(shapes)
        s = self._rescale(x)
        if not self.free and self._lack(x, s) > 0:
            raise NoRootError
        return self.laws(self.shapes(x, s))

    def _lack(self, x: Floats, s: float) -> float:
        return math.log(max(self.estimate_delta(self.laws(self.shapes(x, s))), 1e-300) / self.delta)

    def _rescale(self, x: Floats, tolerance: float = 1e-9) -> float:
        """The s to add to the logarithms of the free scales so that delta meets the budget."""
        if not self.free:
            return 0.0
        close = 10 * tolerance
        return find_root(lambda s: self._lack(x, s), self.scale, step=0.02, tolerance=tolerance, close=close)

    def value(self, x: Floats, tolerance: float = 1e-7) -> float:
        try:
            self.scale = self._rescale(x, tolerance)
        except NoRootError:
            self.scale = 0.0
            return math.inf
        shapes = self.shapes(x, self.scale)
        cost = self.cost(self.laws(shapes))
        if cost < self.least:
            self.least, self.best = cost, shapes
        return math.log(cost)

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        value = self.value(x)
        if not math.isfinite(value):
            raise NoRootError
        at = self.variables(self.shapes(x, self.scale))
        halves = self.laws(self.shapes(at))
        slopes = self._delta_slopes(halves)
        of_cost, of_delta = np.zeros(len(at)), np.zeros(len(at))
        for j in range(len(at)):
            moved = at.copy()
            tiny = 1e-5 if at[j] + 1e-5 < LARGEST_POWER or j < len(self.free) else -1e-5
            moved[j] += tiny
            i = self.free[j] if j < len(self.free) else j - len(self.free)
            change = (self._law(i, self.shapes(moved)[i]) - halves[i]) / tiny
            of_delta[j] = float((change * slopes[i]).sum())
            if self.free and i in self.free:
                weight = self.parts[i].weight * self.parts[i].pairs
                of_cost[j] = weight * float(2 * (change * self._costs(halves[i])).sum())
        if not self.free:
            return value, of_delta / max(math.exp(value), 1e-290)
        many = len(self.free)
        along = float(of_delta[:many].sum())
        gradient = of_cost - of_delta * float(of_cost[:many].sum()) / along if along else of_cost
        return value, gradient / math.exp(value)

    def _delta_slopes(self, halves: Sequence[Floats]) -> list[Floats]:
        """For every part, the derivative of delta in the weights of z and -z together, for z = 0..D."""
        losses = self._losses(halves)
        slopes = []
        shared = convolution.tails(losses, self.epsilon) if len(losses) > MOST_EXACT else None
        for i, (half, part) in enumerate(zip(halves, self.parts, strict=True)):
            others = [(loss, k - (i == j)) for j, (loss, k) in enumerate(losses)]
            p_tail, q_tail = shared or convolution.tails([(a, k) for a, k in others if k] or losses, self.epsilon)
            d, D = part.sensitivity, len(half) - 1
            law = np.concatenate((half[:0:-1], half))
            rise = np.log(law[d:]) - np.log(law[:-d])  # losses of outcomes -D+d..D
            mine = np.concatenate((np.ones(d), p_tail(rise)))
            theirs = np.concatenate((q_tail(rise), np.zeros(d)))  # as Q's outcome z + d
            each = part.pairs * (mine - theirs)
            both = each[D:] + each[D::-1]
            both[0] /= 2
            slopes.append(both)
        return slopes


def fitting_law(part: GradePart, power: float, delta: float) -> Floats:
    """The widest law with this power that keeps the part's target, as P(Z = z) for z = 0..D."""
    search = _Search([part], 1.0, delta, "variance")
    return search.laws(search.shapes(np.array([power])))[0]


def least_delta(parts: Sequence[GradePart], epsilon: float) -> float:
    """An estimate of the least delta of grades that all have targets; all laws have one power, the best of a few."""
    search = _Search(parts, epsilon, 1e-9, "variance")
    return min(search.estimate_delta(search.laws(search.shapes(np.full(len(parts), power)))) for power in POWERS)


def widen(halves: Sequence[Floats], parts: Sequence[GradePart], by: float) -> tuple[Floats, ...]:
    """The laws; those without a target are made a little wider: their logarithms are multiplied by 1 - `by`."""
    return tuple(
        half if part.target is not None else normalise(np.log(half / half[0]) * (1 - by))
        for part, half in zip(parts, halves, strict=True)
    )
