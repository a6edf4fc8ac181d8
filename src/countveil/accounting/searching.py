"""The search for the best symmetric law of k answers: over shapes between geometric and Gaussian, over D, then freely.

Floats throughout: what is found is a proposal. `planning` rounds it to integers and certifies those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from countveil.accounting.pairs import Floats
from countveil.accounting.polish import polished
from countveil.accounting.shapes import (
    Target,
    enough_D,
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


@dataclass(frozen=True, eq=False)
class Found:
    """A proposal: P(Z = z) for z = 0..D, the power of the family it came from, and the grid it was judged on."""

    half: Floats
    power: float
    step: float

    @property
    def variance(self) -> float:
        return variance(self.half)


def cost_of(objective: str, D: int, margin: int = 0) -> Floats:
    """The linear cost of an objective: z^2, or 1 for what is not exact, or 1 for what is outside the margin."""
    z = np.arange(D + 1, dtype=float)
    if objective == "variance":
        return z**2
    return (z > (margin if objective == "margin" else 0)).astype(float)


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
