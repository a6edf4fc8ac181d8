"""Symmetric laws, stored as P(Z = z) for z = 0..D (`half`), and the delta of k answers: floats, for searches only.

Every law of the search is unimodal, so of all shifts up to the sensitivity only the largest one is measured: no other
has a larger divergence at any order (docs/proofs.md).

The laws with probabilities proportional to exp(-|z/c|^p) include the geometric law (p = 1), the discrete Gaussian (p =
2) and all shapes in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.accounting import convolution
from countveil.accounting.loss_grid import Losses, above
from countveil.accounting.privacy_loss import Floats, Pair
from countveil.numeric.search import find_root

LARGEST_D = 190_000


@dataclass(frozen=True)
class Target:
    """The (epsilon, delta) of all answers together, which a law must meet.

    One person changes a count by at most `sensitivity`.
    """

    epsilon: float
    delta: float
    answers: int
    sensitivity: int = 1


def normalise(log_half: Floats) -> Floats:
    """The probabilities P(Z = z), z = 0..D, of a symmetric law from logarithms that may be off by a constant."""
    half = np.exp(np.maximum(log_half - log_half.max(), -600.0))
    probabilities: Floats = half / (2 * half.sum() - half[0])
    return probabilities


def variance(half: Floats) -> float:
    return float(2 * half @ np.arange(len(half), dtype=float) ** 2)


def pair(half: Floats, shift: int = 1) -> Pair:
    """The privacy losses of the law of Z against the law of Z + shift."""
    law = np.concatenate((half[:0:-1], half))
    p, q = law[shift:], law[:-shift]
    loss = np.log(p) - np.log(q)
    order = np.argsort(loss, kind="stable")
    return Pair(p[order], loss[order], float(law[:shift].sum()))


def grid_step(half: Floats, target: Target, fine: float = 40.0) -> float:
    """A step for a grid of privacy losses: small compared with the standard deviation of one answer's loss.

    The likeliest losses are multiples of the step.
    """
    worst = pair(half, target.sensitivity)
    deviation = max(worst.deviation, 1e-9)
    window = 2 * (convolution.WIDTH + 3) * deviation * math.sqrt(target.answers)
    step = min(max(deviation / fine, window / 2**20), window / 2**12)
    base = worst.heaviest_loss
    return base / math.ceil(base / step) if base > step else step


def grid_losses(half: Floats, target: Target, step: float | None = None) -> Losses:
    """The law of the privacy loss of one answer, on a grid, rounded to the safe side.

    It is the loss for the largest shift, which is the sensitivity.
    """
    return above([pair(half, target.sensitivity)], grid_step(half, target) if step is None else step)


def composed_delta(half: Floats, target: Target, step: float | None = None) -> float:
    """An estimate of the delta of all answers together, on the safe side: if it is off, it is too large."""
    if target.answers == 1:
        return pair(half, target.sensitivity).delta(target.epsilon)
    return convolution.estimate([(grid_losses(half, target, step), target.answers)], target.epsilon)


def log_excess(half: Floats, target: Target, step: float | None = None) -> float:
    """ln(delta of all answers / delta of the target): positive where more noise is needed."""
    return math.log(max(composed_delta(half, target, step), 1e-300) / target.delta)


def power_law(c: float, p: float, D: int) -> Floats:
    """The probabilities P(Z = z), z = 0..D, of the symmetric law proportional to exp(-|z/c|^p)."""
    return normalise(-((np.arange(D + 1) / c) ** p))


def enough_D(c: float, p: float, edge: float) -> int:
    """The least D at which P(Z = D) of the law proportional to exp(-|z/c|^p) is about `edge` or less."""
    scale = 2 * c * math.gamma(1 + 1 / p)
    depth = max(1.0, -math.log(edge * scale))
    return max(3, min(LARGEST_D, math.ceil(c * float(depth ** (1 / p)))))


def least_scale(p: float, target: Target, edge: float, guess: float) -> float:
    """The least scale c at which the law proportional to exp(-|z/c|^p) meets the target."""

    def lack(log_c: float) -> float:
        c = math.exp(log_c)
        return log_excess(power_law(c, p, enough_D(c, p, edge)), target)

    return math.exp(find_root(lack, math.log(guess)))
