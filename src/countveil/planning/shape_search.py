"""The search for the best symmetric law of k answers: over shapes between geometric and Gaussian, over D, then freely.

Floats throughout: what is found is a proposal. `planning` rounds it to integers and certifies those.

**Freely**: the weights of a symmetric law on [-D, D] themselves are optimised. What is best is a linear function of
them, sum_z cost_z w_z: the variance, or the probability of an error.

delta of k answers is differentiable in the weights w_z of one: with l_z = ln(w_z / w_(z-1)) the loss of outcome z,

    d delta / d w_z = k ( P(L > epsilon - l_z) - e^epsilon Q(L > epsilon - l_(z+1)) ),

L the loss of the other k - 1 answers: one more transform. The logarithms of the weights are piecewise linear in z
between knots, so that there are few unknowns; every step rescales them so that delta is met, and quasi-Newton steps
(BFGS) lower the cost. Laws on a lattice of losses have jumps in their delta; where a step does not help, it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from countveil.accounting import powers
from countveil.accounting.pairs import Floats
from countveil.accounting.shapes import (
    Target,
    composed_delta,
    enough_D,
    grid_losses,
    grid_step,
    least_scale,
    log_excess,
    normalised,
    power_law,
    variance,
)
from countveil.search import NoRootError, find_root

POWERS = (1.0, 1.4, 2.0)
REFINEMENTS = 8
NEARBY = (0.008, 0.016)
"""Where the coarse grid cannot tell powers apart, the next ones are tuned on the fine grid too."""
FINE = 200.0
"""Grid steps in a standard deviation of the loss for the last tuning; the coarser grid before is on the safe side."""
POLISHED_ANSWERS = 100
"""Beyond so many answers the family is as good as free weights."""
SHARES = (1e-5, 1e-3, 0.02, 0.2, 0.9)
"""Shares of delta that the infinite losses at the edges may take: the larger, the smaller D."""
USUAL_SHARE = 5e-3
STEPS = 60
LEAST_GAIN = 1e-7


@dataclass(frozen=True, eq=False)
class Found:
    """A proposal: P(Z = z) for z = 0..D, the power of the family it came from, and the grid it was judged on."""

    half: Floats
    power: float
    step: float

    @property
    def variance(self) -> float:
        return variance(self.half)


def cost_of(objective: str, D: int) -> Floats:
    """The linear cost of an objective: z^2, or 1 for what is not exact."""
    z = np.arange(D + 1, dtype=float)
    return z**2 if objective == "variance" else (z > 0).astype(float)


def search(target: Target, objective: str, *, edge: float = 1.0, polish: bool = True) -> Found:
    """The best law found; `edge` scales the share of delta that edges may take."""
    tried: dict[float, Found] = {}

    def at(power: float, share: float = USUAL_SHARE) -> Found | None:
        guess = tried[min(tried, key=lambda p: abs(p - power))].variance if tried else None
        found = _member(power, target, share * edge, guess)
        if found is not None and share == USUAL_SHARE:
            tried[power] = found
        return found

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
        return min((_retuned(f, target) for f in close), key=value)
    freely = [
        Found(polished(f.half, target, cost_of(objective, len(f.half) - 1)), f.power, grid_step(f.half, target))
        for f in candidates[:2]
    ]
    return _retuned(min([*candidates[:1], *freely], key=value), target)


def of_power(power: float, target: Target) -> Found | None:
    """The least noise of one shape: 1 is the (truncated) geometric law, 2 the discrete Gaussian."""
    return _member(power, target, USUAL_SHARE, None)


def _retuned(found: Found, target: Target) -> Found:
    """The same shape with just the noise that a fine grid asks for."""
    step = grid_step(found.half, target, FINE)
    logs = np.log(found.half / found.half[0])

    def lack(s: float) -> float:
        return log_excess(normalised(logs * math.exp(-s)), target, step)

    try:
        half = normalised(logs * math.exp(-find_root(lack, 0.0, step=1e-4)))
    except NoRootError:
        return found
    return Found(half, found.power, step)


def _refine(
    at: Callable[[float], Found | None], tried: dict[float, Found], value: Callable[[Found], float], times: int
) -> None:
    """Halve the intervals on both sides of the best power."""
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


def _member(power: float, target: Target, share: float, guess: float | None) -> Found | None:
    edge = target.delta * share / (target.answers * target.sensitivity)
    spread = math.sqrt(guess) if guess else math.sqrt(8 * target.answers) * target.sensitivity / target.epsilon + 0.5
    start = spread * math.sqrt(math.gamma(1 / power) / math.gamma(3 / power))
    try:
        c = least_scale(power, target, edge, start)
    except NoRootError:
        return None
    half = power_law(c, power, enough_D(c, power, edge))
    return Found(half, power, grid_step(half, target))


def _judge(objective: str) -> Callable[[Found], float]:
    if objective == "variance":
        return lambda found: found.variance
    if objective == "eta":
        return lambda found: -float(found.half[0])
    return lambda found: margin_of(found.half) + found.variance * 1e-9


def margin_of(half: Floats) -> int:
    """The least m with P(|Z| <= m) >= 95 %."""
    inside = half[0] + 2 * np.concatenate(([0.0], np.cumsum(half[1:])))
    return int(np.argmax(inside >= 0.95))


# Freely


def polished(half: Floats, target: Target, cost: Floats) -> Floats:
    """A law of no more cost than the one given, with the target, on the same support."""
    search = _Search(half, target, cost)
    x = search.start
    try:
        value, gradient = search.value_and_gradient(x)
    except NoRootError:
        return half
    inverse = np.eye(len(x))
    small = 0
    for _ in range(STEPS):
        direction = -inverse @ gradient
        slope = float(direction @ gradient)
        if slope >= 0:
            inverse, direction = np.eye(len(x)), -gradient
            slope = float(direction @ gradient)
        length = min(1.0, 0.2 / max(1e-12, float(np.abs(direction).max())))
        for _ in range(8):
            trial = x + length * direction
            found = search.value(trial)
            if found < value + 1e-4 * length * slope:
                break
            length /= 3
        else:
            return search.best
        new_value, new_gradient = search.value_and_gradient(trial)
        step, change = trial - x, new_gradient - gradient
        curvature = float(step @ change)
        if curvature > 1e-14:
            rho = 1 / curvature
            left = np.eye(len(x)) - rho * np.outer(step, change)
            inverse = left @ inverse @ left.T + rho * np.outer(step, step)
        small = small + 1 if value - new_value < LEAST_GAIN else 0
        x, value, gradient = trial, new_value, new_gradient
        if small == 3:
            break
    return search.best


class _Search:
    """ln(cost) as a function of the logarithms x of the slopes of -ln w between knots, rescaled to the target."""

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
        return normalised(-np.interp(np.arange(self.D + 1), self.knots, depth))

    def _scaled(self, x: Floats) -> tuple[float, Floats]:
        """The rescaling s at which e^-s times the slopes have the target, and the law."""

        def lack(s: float) -> float:
            found = composed_delta(self.law(x - s), self.target, self.step)
            return float(np.log(max(found, 1e-300) / self.target.delta))

        s, gap = self.scale, lack(self.scale)
        for _ in range(6):
            if -1e-8 < gap <= 0:
                break
            trial = s - max(-0.2, min(0.2, (gap + 4e-9) / self.slope))
            found = lack(trial)
            if found != gap and -1e4 < (found - gap) / (trial - s) < -1e-3:
                self.slope = (found - gap) / (trial - s)
            s, gap = trial, found
        self.scale = s if -1e-8 < gap <= 0 else find_root(lack, self.scale, step=1e-3, tolerance=1e-10)
        half = self.law(x - self.scale)
        found = self._cost_of(half)
        if found < self.least:
            self.best, self.least = half, found
        return self.scale, half

    def value(self, x: Floats) -> float:
        try:
            return float(np.log(self._cost_of(self._scaled(x)[1])))
        except NoRootError:
            return np.inf

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        s, half = self._scaled(x)
        value = self._cost_of(half)
        of_cost = self._pulled_back(self.cost, half, x - s) / value
        of_delta = self._pulled_back(_delta_gradient(half, self.target, self.step), half, x - s)
        # moving along x and rescaling so that delta stays: dc/dx - (dc/ds) / (d delta/ds) d delta/dx
        along = float(of_delta.sum())
        gradient = of_cost - of_delta * float(of_cost.sum()) / along if along else of_cost
        return float(np.log(value)), gradient

    def _cost_of(self, half: Floats) -> float:
        return float(2 * half @ self.cost - half[0] * self.cost[0])

    def _pulled_back(self, per_outcome: Floats, half: Floats, x: Floats) -> Floats:
        """The gradient in x of a function with these derivatives in each of the weights of z = 0..D (and -z)."""
        mass = np.where(np.arange(self.D + 1) == 0, half, 2 * half)
        of_depth = -mass * (per_outcome - float(mass @ per_outcome))
        beyond = np.cumsum(of_depth[::-1])[::-1]  # of everything at or beyond z
        # between knots the depth grows linearly: cell z takes the share of the interval below it
        found = np.zeros(len(x))
        slopes = np.exp(x)
        for j, (a, b) in enumerate(zip(self.knots[:-1], self.knots[1:], strict=True)):
            inside = np.arange(a + 1, b + 1)
            found[j] = slopes[j] * (
                float(of_depth[inside] @ (inside - a)) + (b - a) * float(beyond[b + 1 : b + 2].sum())
            )
        return found


def _delta_gradient(half: Floats, target: Target, step: float | None = None) -> Floats:
    """d delta / d w_z averaged over z and -z, for sensitivity 1."""
    law = np.concatenate((half[:0:-1], half))
    rise = np.log(law[1:]) - np.log(law[:-1])  # losses of outcomes -D+1..D
    others = [(grid_losses(half, target, step), max(1, target.answers - 1))]
    p_tail, q_tail = powers.tails(others, target.epsilon)
    mine = np.concatenate(([1.0], p_tail(rise)))  # outcome -D has infinite loss
    theirs = np.concatenate((q_tail(rise), [0.0]))  # as Q's outcome z + 1
    each = target.answers * (mine - theirs)
    D = len(half) - 1
    found: Floats = (each[D:] + each[D::-1]) / 2
    return found


def _knots(D: int) -> np.typing.NDArray[np.int64]:
    """0, 1, 2, ... and wider towards D."""
    found, width = [0], 1.0
    while found[-1] < D:
        found.append(min(D, found[-1] + round(width)))
        width = max(1.0, found[-1] / 5)
    return np.array(found)
