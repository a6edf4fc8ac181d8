"""Symmetric laws by their half, and how private k answers of them are: floats, for the search only.

The family exp(-|z/c|^p) holds the geometric law (p = 1), the discrete Gaussian (p = 2) and everything between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.accounting import powers
from countveil.accounting.grid import Losses, above
from countveil.accounting.pairs import Floats, Pair
from countveil.search import find_root

LARGEST_D = 20_000


@dataclass(frozen=True)
class Target:
    """(epsilon, delta) of k answers together; one person changes a count by at most `sensitivity`."""

    epsilon: float
    delta: float
    answers: int
    sensitivity: int = 1


def normalised(log_half: Floats) -> Floats:
    """P(Z = z), z = 0..D, from logarithms up to a constant."""
    half = np.exp(np.maximum(log_half - log_half.max(), -600.0))
    found: Floats = half / (2 * half.sum() - half[0])
    return found


def variance(half: Floats) -> float:
    return float(2 * half @ np.arange(len(half), dtype=float) ** 2)


def pair(half: Floats, shift: int = 1) -> Pair:
    """The law of Z against that of Z + shift."""
    law = np.concatenate((half[:0:-1], half))
    p, q = law[shift:], law[:-shift]
    loss = np.log(p) - np.log(q)
    order = np.argsort(loss, kind="stable")
    return Pair(p[order], loss[order], float(law[:shift].sum()))


def grid_step(half: Floats, target: Target, fine: float = 40.0) -> float:
    """A grid that is fine against one loss and has the heaviest losses on it."""
    worst = pair(half, target.sensitivity)
    deviation = max(worst.deviation, 1e-9)
    window = 2 * (powers.WIDTH + 3) * deviation * math.sqrt(target.answers)
    step = min(max(deviation / fine, window / 2**20), window / 2**12)
    base = worst.heaviest_loss
    return base / math.ceil(base / step) if base > step else step


def grid_losses(half: Floats, target: Target, step: float | None = None) -> Losses:
    """The dominating law on a grid."""
    pairs = [pair(half, s) for s in range(1, target.sensitivity + 1)]
    return above(pairs, grid_step(half, target) if step is None else step)


def composed_delta(half: Floats, target: Target, step: float | None = None) -> float:
    """An estimate, from above, of the delta of all answers."""
    if target.answers == 1:
        return max(pair(half, s).delta(target.epsilon) for s in range(1, target.sensitivity + 1))
    return powers.estimate([(grid_losses(half, target, step), target.answers)], target.epsilon)


def log_excess(half: Floats, target: Target, step: float | None = None) -> float:
    """ln(delta of all answers / delta of the target): positive where noise is lacking."""
    return math.log(max(composed_delta(half, target, step), 1e-300) / target.delta)


def power_law(c: float, p: float, D: int) -> Floats:
    """exp(-|z/c|^p) on z = 0..D."""
    return normalised(-((np.arange(D + 1) / c) ** p))


def enough_D(c: float, p: float, edge: float) -> int:
    """The least D at which exp(-|z/c|^p) has an edge below so much."""
    scale = 2 * c * math.gamma(1 + 1 / p)
    depth = max(1.0, -math.log(edge * scale))
    return max(3, min(LARGEST_D, math.ceil(c * float(depth ** (1 / p)))))


def least_scale(p: float, target: Target, edge: float, guess: float) -> float:
    """The least c at which exp(-|z/c|^p) has the target."""

    def lack(log_c: float) -> float:
        c = math.exp(log_c)
        return log_excess(power_law(c, p, enough_D(c, p, edge)), target)

    return math.exp(find_root(lack, math.log(guess)))
