"""The 95 % margin of a plan before it is made: an estimate in closed form, in microseconds.

The estimate is the better of two classic plans for that number of answers: Laplace noise, with even shares of epsilon,
and Gaussian noise, whose exact delta has a closed form (Balle and Wang 2018). A person who is in several cells pays for
each of them, and noise grows in proportion to what a person can change in one cell. The margin of a real plan differs
from the estimate by at most about one, or by about a tenth.
"""

from __future__ import annotations

import math

from countveil.accounting import Neighbours

WITHIN_95 = 1.959964
"""A normal variable is within this many standard deviations of its mean with probability 95 %."""


def estimate_margin(
    epsilon: float,
    delta: float,
    answers: int,
    *,
    cells: int = 1,
    sensitivity: int = 1,
    neighbours: Neighbours = "add-remove",
) -> int:
    """An estimate of the 95 % margin of a plan's answers for typical counts; not certified.

    >>> estimate_margin(3, 1e-6, 50), estimate_margin(3, 1e-6, 50, cells=2, sensitivity=3)
    (22, 91)
    """
    pairs = answers * cells * (2 if neighbours == "replace" else 1)
    laplace = math.log(20) * pairs / epsilon
    gaussian = WITHIN_95 * math.sqrt(pairs) * _deviation(epsilon, delta)
    return math.ceil(sensitivity * min(laplace, gaussian))


def _deviation(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise for (epsilon, delta) and sensitivity 1."""
    low, high = 1e-3, 1e4
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _gaussian_delta(epsilon, middle) > delta else (low, middle)
    return high


def _gaussian_delta(epsilon: float, deviation: float) -> float:
    half, drift = 1 / (2 * deviation), epsilon * deviation
    return _below(half - drift) - math.exp(epsilon) * _below(-half - drift)


def _below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
