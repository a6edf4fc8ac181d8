"""One cell that moves by L stands for every change of total L, if the law of the noise is nearly log-concave.

One person in m cells, r rows each, can change a coarser table by r in m cells, by m * r in one cell, or by anything
in between. For noise with a log-concave law, the single change by L = m * r has the largest divergence at every order
(docs/proofs.md). Rounded integer weights are not exactly log-concave, so the distance to a log-concave law is measured:

    gap = the least t such that some log-concave weights lie between w and e^t w.

Replacing w by those weights, and back, multiplies probabilities by at most e^t, once for each cell that moves. So for N
answers with changes of total L, with H the curve of N changes of one cell by L,

    delta(epsilon) <= e^(N L t) H(epsilon - N (L + 1) t).

With several laws, N L t and N (L + 1) t are sums over the laws, those of all plans of a pool included.

**Guarantee.** `measure_gap` is rounded up. A plan that leaves `SLACK` of its epsilon and of its delta unused covers
every change of total L, if `cost_of_gap` of its laws is together at most `SLACK`. Several plans need the sum of their
costs: a pool that has them states an epsilon to which `cost_of_gap` of all their laws is added.
"""

from __future__ import annotations

import math
from itertools import pairwise

from countveil.laws.law import Law

SLACK = 1e-6
"""The share of epsilon and of delta that a plan with merged cells leaves unused."""
ROUNDING = 1e-12
"""A bound on the rounding error of logarithms of weights below 2^128, and of their interpolation."""


def measure_gap(law: Law) -> float:
    """The largest distance of the logarithms of the weights from their least concave majorant, rounded up.

    >>> measure_gap(Law((1, 4, 6, 4, 1), 2, 4)) < 1e-11, measure_gap(Law((4, 1, 6, 1, 4), 2, 4)) > 1
    (True, True)
    """
    logs = [math.log(weight) if weight else -math.inf for weight in law.weights]
    if -math.inf in logs:
        return math.inf
    hull: list[int] = []
    for i, value in enumerate(logs):
        while len(hull) > 1 and (logs[hull[-1]] - logs[hull[-2]]) * (i - hull[-1]) <= (value - logs[hull[-1]]) * (
            hull[-1] - hull[-2]
        ):
            hull.pop()
        hull.append(i)
    gap = 0.0
    for left, right in pairwise(hull):
        for i in range(left + 1, right):
            above = logs[left] + (logs[right] - logs[left]) * (i - left) / (right - left)
            gap = max(gap, above - logs[i])
    return gap + ROUNDING


def cost_of_gap(law: Law, total: int, answers: int) -> float:
    """An upper bound on what the gap of a law costs: in epsilon, and as a share of delta.

    `total` is the largest change by one person, `answers` the number of answers with this law.
    """
    return (measure_gap(law) + ROUNDING) * answers * (total + 1)
