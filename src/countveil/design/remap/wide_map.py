"""Maps to the non-negative integers for wide laws: one fixed integer f(y') for every signed count y' = n + Z.

Compared with a standard deviation of a hundred, rounding the mean of a pulled outcome to an integer does not matter. So
the map is not random: f(j) is the nearest integer to a mean m(j), which is linear between few knots, and a linear
program for the means at the knots minimises the largest bias from n0 on. f never falls. So f(Y') <= y exactly if Y' <=
h(y), where h(y) is the last outcome with f(h) <= y: the margins of all counts are differences of partial sums of the
signed law's weights (`countveil.laws.remap`), which makes wide laws fast.

With q the law of the signed noise, the bias at the count n is sum_{y' < 0} q(y' - n) (-y') + sum_{j=0..T} q(j - n)
(m(j) - j). Sums over the stretch between two knots are differences of partial sums of q(z) and z q(z). Floats are
precise enough: the bias of the integer map is measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from countveil.laws.law import Law
from countveil.numeric.linear_program import Program

Floats = NDArray[np.float64]
WIDE = 80
"""Laws with at least this standard deviation are wide."""
REACH, KNOTS, ROWS = 3.0, 60, 12
"""A map reaches REACH standard deviations, has KNOTS stretches, and bounds the bias at ROWS counts per deviation."""


def is_wide(law: Law) -> bool:
    return law.variance >= WIDE**2


def wide_targets(law: Law, n0: int) -> list[int]:
    """The integers f(0), ..., f(T) of the map whose largest bias from n0 on is least; f never falls, and f(j) <= j."""
    deviation = math.sqrt(law.variance)
    T = round(REACH * deviation)
    knots = np.unique(np.linspace(0, T, KNOTS + 1).round().astype(np.int64))
    counts = np.arange(n0, T + law.left + 1, max(1, round(deviation / ROWS)))
    matrix, fixed = _bias_terms(law, knots, counts)
    program = Program()
    means = [program.variable(0, int(k)) for k in knots]
    largest = program.variable()
    program.set_variable_bounds(means[-1], T, T)
    for before, after in pairwise(means):
        program.constrain([(after, Fraction(1)), (before, Fraction(-1))], lower=0)
    for row, constant in zip(matrix / deviation, fixed / deviation, strict=True):
        terms = [(mean, Fraction(float(x))) for mean, x in zip(means, row, strict=True) if x > 1e-12]
        program.constrain([*terms, (largest, Fraction(-1))], upper=Fraction(-float(constant)))
        program.constrain([*terms, (largest, Fraction(1))], lower=Fraction(-float(constant)))
    solution = program.minimize([(largest, 1)])
    at = np.array([float(solution[mean]) for mean in means])
    j = np.arange(T + 1)
    pulled = np.floor(np.interp(j, knots, at) + 0.5).astype(np.int64)
    return [int(y) for y in np.minimum(np.maximum.accumulate(np.maximum(pulled, 0)), j)]


def _bias_terms(law: Law, knots: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """A matrix and a vector: matrix @ (means of the map at the knots) + vector is the bias at each of the counts."""
    q = np.array([weight / law.total for weight in law.weights])
    z = np.arange(-law.left, law.right + 1)
    mass, moment = np.append(0.0, np.cumsum(q)), np.append(0.0, np.cumsum(z * q))

    def sums(first: NDArray[np.int64], beyond: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """The sums of q(z) and of z q(z) over first <= z < beyond, where q is the law of the signed noise."""
        start, stop = (np.clip(x + law.left, 0, len(q)) for x in (first, beyond))
        return mass[stop] - mass[start], moment[stop] - moment[start]

    matrix = np.zeros((len(counts), len(knots)))
    for k, (a, b) in enumerate(pairwise(knots)):
        within, first = sums(a - counts, b - counts)  # a <= j < b
        rising = (first + (counts - a) * within) / (b - a)
        matrix[:, k + 1] += rising
        matrix[:, k] += within - rising
    T = knots[-1]
    matrix[:, -1] += sums(T - counts, T + 1 - counts)[0]
    within, first = sums(np.full_like(counts, -law.left), T + 1 - counts)  # every y' <= T is moved by f(y') - y'
    constant: Floats = -(first + counts * within)
    return matrix, constant
