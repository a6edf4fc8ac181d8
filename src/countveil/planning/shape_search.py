"""The search for the best symmetric law of k answers: over shapes between geometric and Gaussian, over D, then freely.

Floats throughout: the result is a proposal. `plan` rounds it to integers and certifies those.

**Freely** means that the weights w_z of a symmetric law on [-D, D] themselves are optimised. The objective is linear in
the weights, sum_z cost_z w_z: the variance, or the probability of an error.

The delta of k answers is differentiable in the weights w_z of one answer. With l_z = ln(w_z / w_(z-1)) the privacy loss
of outcome z, and L the loss of the other k - 1 answers, whose laws at two neighbouring datasets are P and Q,

    d delta / d w_z = k ( P(L > epsilon - l_z) - e^epsilon Q(L > epsilon - l_(z+1)) ),

which takes one more Fourier transform. Between a few values of z, called knots, the logarithms of the weights are
linear in z, so that there are few unknowns. Every step rescales the logarithms so that delta is met, and quasi-Newton
steps (BFGS) lower the cost. The delta of laws on a lattice of losses has jumps; the search ends at a step without a
gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from countveil.accounting import convolution
from countveil.accounting.privacy_loss import Floats
from countveil.numeric.search import NoRootError, find_root
from countveil.planning.descent import descend
from countveil.planning.shapes import (
    Target,
    composed_delta,
    enough_D,
    grid_losses,
    grid_step,
    least_scale,
    log_excess,
    normalise,
    power_law,
    variance,
)

POWERS = (1.0, 1.4, 2.0)
REFINEMENTS = 8
NEARBY = (0.008, 0.016)
"""Powers above the best one by these amounts are tuned on the fine grid too: the coarse grid cannot tell them apart."""
FINE = 200.0
"""Grid steps in a standard deviation of the loss for the last tuning; the coarser grid errs on the safe side."""
POLISHED_ANSWERS = 100
"""From this many answers on, a shape is as good as weights that are optimised freely."""
SHARES = (1e-5, 1e-3, 0.02, 0.2, 0.9)
"""Shares of delta that cutting a law at its ends may take: the larger the share, the smaller D."""
USUAL_SHARE = 5e-3
WIDE, SMALL_SENSITIVITY = 60, 4
"""Laws wider than about this standard deviation take the shape of a narrower one, unless the sensitivity is small."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A proposed law: P(Z = z) for z = 0..D, the power of its shape, and the step of the grid it was judged on."""

    half: Floats
    power: float
    step: float

    @property
    def variance(self) -> float:
        return variance(self.half)


def cost_of(objective: str, D: int) -> Floats:
    """The cost of each noise z = 0..D for an objective: z^2 for "variance", else 1 for every z except 0."""
    z = np.arange(D + 1, dtype=float)
    return z**2 if objective == "variance" else (z > 0).astype(float)


def search(target: Target, objective: str, *, edge: float = 1.0, polish: bool = True) -> Candidate:
    """The best law for the target that the search finds; raises NoRootError if it finds none.

    `edge` scales the share of delta that the ends of the noise may take; without `polish` the search is fast and rough.
    A wide law has nearly the shape of a narrower one, so at a large sensitivity the shape is found at a smaller one.
    """
    small = max(1, math.ceil(WIDE * target.epsilon / math.sqrt(8 * target.answers)))
    if target.sensitivity <= max(small, SMALL_SENSITIVITY):
        return _search(target, objective, edge, polish)
    near = _search(replace(target, sensitivity=small), objective, edge, polish=False)
    guess = near.variance * (target.sensitivity / small) ** 2
    member = _member(near.power, target, USUAL_SHARE * edge, guess)
    if member is None:
        raise NoRootError
    return _retune(member, target) if polish else member


def _search(target: Target, objective: str, edge: float, polish: bool) -> Candidate:
    tried: dict[float, Candidate] = {}

    def at(power: float, share: float = USUAL_SHARE) -> Candidate | None:
        guess = tried[min(tried, key=lambda p: abs(p - power))].variance if tried else None
        candidate = _member(power, target, share * edge, guess)
        if candidate is not None and share == USUAL_SHARE:
            tried[power] = candidate
        return candidate

    value = _judge(objective)
    for power in POWERS:
        at(power)
    if not tried:
        raise NoRootError
    _refine(at, tried, value, REFINEMENTS if polish else 3)
    best = min(tried.values(), key=value)
    if not polish:
        return best
    candidates = [best, *(f for share in SHARES if (f := at(best.power, share)) is not None)]
    candidates.sort(key=value)
    if objective == "margin" or target.sensitivity > 1 or not 1 < target.answers < POLISHED_ANSWERS:
        near = [at(best.power + more, SHARES[0]) for more in NEARBY if target.answers >= POLISHED_ANSWERS]
        close = [*candidates[:1], *(f for f in near if f is not None)]
        return min((_retune(f, target) for f in close), key=value)
    freely = [
        Candidate(
            polish_weights(f.half, target, cost_of(objective, len(f.half) - 1)), f.power, grid_step(f.half, target)
        )
        for f in candidates[:2]
    ]
    return _retune(min([*candidates[:1], *freely], key=value), target)


def search_power(power: float, target: Target) -> Candidate | None:
    """The law exp(-|z/c|^power) with the least noise that meets the target, or None if there is none.

    Power 1 is the (truncated) geometric law, 2 the discrete Gaussian.
    """
    return _member(power, target, USUAL_SHARE, None)


def _retune(candidate: Candidate, target: Target) -> Candidate:
    """The same shape with the least noise that meets the target on a fine grid."""
    step = grid_step(candidate.half, target, FINE)
    logs = np.log(candidate.half / candidate.half[0])

    def lack(s: float) -> float:
        return log_excess(normalise(logs * math.exp(-s)), target, step)

    try:
        half = normalise(logs * math.exp(-find_root(lack, 0.0, step=1e-4)))
    except NoRootError:
        return candidate
    return Candidate(half, candidate.power, step)


def _refine(
    at: Callable[[float], Candidate | None],
    tried: dict[float, Candidate],
    value: Callable[[Candidate], float],
    times: int,
) -> None:
    """Try new powers half-way between the best power and its neighbours on both sides, up to `times` times."""
    for _ in range(times):
        ordered = sorted(tried)
        i = ordered.index(min(tried, key=lambda p: value(tried[p])))
        sides = [ordered[j] for j in (i - 1, i + 1) if 0 <= j < len(ordered)]
        if not sides:
            return
        far = max(sides, key=lambda p: abs(p - ordered[i]))
        if abs(far - ordered[i]) < 0.01:
            return
        at(round((far + ordered[i]) / 2, 4))


def _member(power: float, target: Target, share: float, guess: float | None) -> Candidate | None:
    edge = target.delta * share / (target.answers * target.sensitivity)
    spread = math.sqrt(guess) if guess else math.sqrt(8 * target.answers) * target.sensitivity / target.epsilon + 0.5
    start = spread * math.sqrt(math.gamma(1 / power) / math.gamma(3 / power))
    try:
        c = least_scale(power, target, edge, start)
    except NoRootError:
        return None
    half = power_law(c, power, enough_D(c, power, edge))
    return Candidate(half, power, grid_step(half, target))


def _judge(objective: str) -> Callable[[Candidate], float]:
    if objective == "variance":
        return lambda candidate: candidate.variance
    if objective == "eta":
        return lambda candidate: -float(candidate.half[0])
    return lambda candidate: margin_of(candidate.half) + candidate.variance * 1e-9


def margin_of(half: Floats) -> int:
    """The least m with P(|Z| <= m) >= 95 %, where half[z] is P(Z = z) = P(Z = -z)."""
    inside = half[0] + 2 * np.concatenate(([0.0], np.cumsum(half[1:])))
    return int(np.argmax(inside >= 0.95))


# Freely


def polish_weights(half: Floats, target: Target, cost: Floats) -> Floats:
    """A law that meets the target on the same support, at no more cost than the given law."""
    search = _Search(half, target, cost)
    descend(search, search.start)
    return search.best


class _Search:
    """The function that free weights minimise: ln(cost) of a law that is rescaled to meet the target.

    Its variables x describe the law: between two knots, -ln(weight) rises with the slope e^x.
    """

    def __init__(self, half: Floats, target: Target, cost: Floats) -> None:
        self.target = target
        self.cost = cost
        self.D = len(half) - 1
        self.knots = _knots(self.D)
        depth = -np.log(half / half[0])[self.knots]
        self.widths = np.diff(self.knots)
        self.start = np.log(np.maximum(np.diff(depth), 1e-12) / self.widths)
        self.step = grid_step(half, target)  # one grid for the whole search: its error must not depend on the law
        self.scale = 0.0
        self.slope = -float(target.answers)
        self.best = half
        self.least = self._cost_of(half)

    def law(self, x: Floats) -> Floats:
        depth = np.concatenate(([0.0], np.cumsum(np.exp(x) * self.widths)))
        return normalise(-np.interp(np.arange(self.D + 1), self.knots, depth))

    def _rescale(self, x: Floats) -> tuple[float, Floats]:
        """A number s, and the law with all slopes multiplied by e^-s, which meets the target."""

        def lack(s: float) -> float:
            delta = composed_delta(self.law(x - s), self.target, self.step)
            return float(np.log(max(delta, 1e-300) / self.target.delta))

        s, gap = self.scale, lack(self.scale)
        for _ in range(6):
            if -1e-8 < gap <= 0:
                break
            trial = s - max(-0.2, min(0.2, (gap + 4e-9) / self.slope))
            new_gap = lack(trial)
            if new_gap != gap and -1e4 < (new_gap - gap) / (trial - s) < -1e-3:
                self.slope = (new_gap - gap) / (trial - s)
            s, gap = trial, new_gap
        self.scale = s if -1e-8 < gap <= 0 else find_root(lack, self.scale, step=1e-3, tolerance=1e-10)
        half = self.law(x - self.scale)
        cost = self._cost_of(half)
        if cost < self.least:
            self.best, self.least = half, cost
        return self.scale, half

    def value(self, x: Floats) -> float:
        try:
            return float(np.log(self._cost_of(self._rescale(x)[1])))
        except NoRootError:
            return np.inf

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        s, half = self._rescale(x)
        value = self._cost_of(half)
        of_cost = self._pull_back(self.cost, half, x - s) / value
        of_delta = self._pull_back(_delta_gradient(half, self.target, self.step), half, x - s)
        # moving along x and rescaling so that delta stays: dc/dx - (dc/ds) / (d delta/ds) d delta/dx
        along = float(of_delta.sum())
        gradient = of_cost - of_delta * float(of_cost.sum()) / along if along else of_cost
        return float(np.log(value)), gradient

    def _cost_of(self, half: Floats) -> float:
        return float(2 * half @ self.cost - half[0] * self.cost[0])

    def _pull_back(self, per_outcome: Floats, half: Floats, x: Floats) -> Floats:
        """The gradient in the variables x of a function that is given by its derivatives in the weights.

        `per_outcome[z]` is the derivative in the weight of z, the same for -z, for z = 0..D.
        """
        mass = np.where(np.arange(self.D + 1) == 0, half, 2 * half)
        of_depth = -mass * (per_outcome - float(mass @ per_outcome))
        beyond = np.cumsum(of_depth[::-1])[::-1]  # of everything at or beyond z
        # between knots the depth -ln(weight) grows linearly: z has the share of the interval that is below it
        gradient = np.zeros(len(x))
        slopes = np.exp(x)
        for j, (a, b) in enumerate(zip(self.knots[:-1], self.knots[1:], strict=True)):
            inside = np.arange(a + 1, b + 1)
            gradient[j] = slopes[j] * (
                float(of_depth[inside] @ (inside - a)) + (b - a) * float(beyond[b + 1 : b + 2].sum())
            )
        return gradient


def _delta_gradient(half: Floats, target: Target, step: float | None = None) -> Floats:
    """The derivative of the delta of all answers in the weight of each noise z = 0..D, averaged over z and -z.

    For sensitivity 1.
    """
    law = np.concatenate((half[:0:-1], half))
    rise = np.log(law[1:]) - np.log(law[:-1])  # losses of outcomes -D+1..D
    others = [(grid_losses(half, target, step), max(1, target.answers - 1))]
    p_tail, q_tail = convolution.tails(others, target.epsilon)
    mine = np.concatenate(([1.0], p_tail(rise)))  # outcome -D has infinite loss
    theirs = np.concatenate((q_tail(rise), [0.0]))  # as Q's outcome z + 1
    each = target.answers * (mine - theirs)
    D = len(half) - 1
    gradient: Floats = (each[D:] + each[D::-1]) / 2
    return gradient


def _knots(D: int) -> np.typing.NDArray[np.int64]:
    """The z between which logarithms of weights are linear: 0, 1, 2, ..., and wider apart towards D."""
    knots, width = [0], 1.0
    while knots[-1] < D:
        knots.append(min(D, knots[-1] + round(width)))
        width = max(1.0, knots[-1] / 5)
    return np.array(knots)
