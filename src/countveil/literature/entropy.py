"""The law of maximum entropy with mean zero and a bounded or given variance, on finitely many points v.

    maximise -sum p log p  subject to  sum p = 1,  sum v p = 0,  sum v^2 p <= V (or = V),
    and, where `chain` > 0, p nondecreasing along the first `chain` points.

The constraints on mean and variance have the multipliers b and c. Given these, the best law is proportional to
exp(theta(v)) with theta(v) = b v + c v^2. If theta falls somewhere along the chain, neighbouring points there are
pooled and share their mean theta (the isotonic regression of theta). What is left is to minimise the dual function log
sum exp(theta) - c V over b and c. This function is convex and once differentiable, with gradient (mean, second moment -
V). Newton's method with halved steps finds its minimum in floats; with the pooled blocks fixed, Newton's method in
120-digit decimals then computes the last digits. A variance bound that does not bind has c = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple, TypeVar

from countveil.errors import SolverError
from countveil.laws.rounding import PRECISE, decimal

TOLERANCE = Decimal("1e-60")
_T = TypeVar("_T", float, Decimal)
_STEPS = 200

Blocks = list[tuple[int, int]]
"""Ranges (start, stop) of the list of points; the points of a range share one probability."""


class Solved(NamedTuple):
    """The probabilities of the given points, and whether the variance is V (or only below V)."""

    law: list[Decimal]
    at_bound: bool


def solve(points: Sequence[int], chain: int, V: Fraction, *, exact: bool) -> Solved | None:
    """The law of maximum entropy on `points` with mean 0 and variance at most V (with `exact`, equal to V).

    The probabilities do not fall along the first `chain` points. None if no law that is positive on all points has such
    a variance.
    """
    low, high = variance_range(points, chain)
    if low >= V or (exact and high <= V):
        return None
    free = _Problem(points, chain, None)
    b = free.minimise((0.0, 0.0))
    loose, spread = free.polish(b)
    if spread <= V and not exact:
        return Solved(loose, spread == V)
    bound = _Problem(points, chain, V)
    return Solved(
        bound.polish(bound.minimise(b, (0.0, min(math.log(float(V) / 2), -1 / (2 * max(float(V), 0.5))))))[0], True
    )


def variance_range(points: Sequence[int], chain: int) -> tuple[Fraction, Fraction]:
    """The least and greatest variance of mean-zero laws whose probabilities do not fall along the chain.

    The chain is the first `chain` points. Such laws are mixtures of point masses and, along the chain, of uniform laws
    from some point to the chain's end. An extreme law mixes two of these: one with mean -x < 0 and second moment s, one
    with mean n > 0 and second moment t. Its variance is x / (n + x) * (n s/x + t). Both factors grow with x, because
    s/x does (it is a mean of |v| weighted by |v|), and likewise with n. So the two means nearest to 0 give the least
    variance (0 if 0 is a point), the two farthest the greatest.
    """
    end = points[:chain]
    moments = [
        (Fraction(sum(end[k:]), chain - k), Fraction(sum(v * v for v in end[k:]), chain - k)) for k in range(chain)
    ]
    moments += [(Fraction(v), Fraction(v * v)) for v in points[chain:]]
    below, above = sorted(g for g in moments if g[0] < 0), sorted(g for g in moments if g[0] > 0)

    def mix(left: tuple[Fraction, Fraction], right: tuple[Fraction, Fraction]) -> Fraction:
        return (right[0] * left[1] - left[0] * right[1]) / (right[0] - left[0])

    least = Fraction(0) if 0 in points else mix(below[-1], above[0])
    return least, mix(below[0], above[-1])


class _Problem:
    """The dual problem of one law: minimise over the multipliers b (of the mean) and c (of the variance).

    V is the variance, or None if the variance is free (then c = 0).
    """

    def __init__(self, points: Sequence[int], chain: int, V: Fraction | None) -> None:
        self.points, self.chain, self.V = points, chain, V
        self.reach = max(abs(v) for v in points)

    def minimise(self, *starts: tuple[float, float]) -> tuple[float, float]:
        """The multipliers (b, c) that minimise the dual function, in floats, from the better of the starting points."""
        b, c = min(starts, key=lambda start: self._dual(*start)[0])
        value, weights, plain = self._dual(b, c)
        V = None if self.V is None else float(self.V)
        for _ in range(_STEPS):
            step = _step(weights, plain, V)
            if abs(step[0]) * self.reach + abs(step[1]) * self.reach**2 < 1e-9:
                return b, c
            size = min(1.0, *((1 + abs(x)) / abs(d) for x, d in zip((b, c), step, strict=True) if d), 1.0)
            while (tried := self._dual(b + size * step[0], c + size * step[1]))[0] >= value:
                size /= 2
                if size < 1e-9:  # floats cannot resolve a lower value
                    return b, c
            b, c = b + size * step[0], c + size * step[1]
            value, weights, plain = tried
        raise SolverError("maximum entropy: Newton's method did not converge; change V or D a little")

    def _dual(self, b: float, c: float) -> tuple[float, list[float], list[tuple[float, float]]]:
        """The value of the dual function at (b, c), and the weight, mean and second moment of each pooled block."""
        blocks = pool([b * v + c * v * v for v in self.points], self.chain)
        plain = _features(self.points, blocks, 1.0)
        heights = [b * m + c * s for m, s in plain]
        top = max(heights)
        weights = [(stop - i) * math.exp(h - top) for (i, stop), h in zip(blocks, heights, strict=True)]
        value = top + math.log(sum(weights)) - (0 if self.V is None else c * float(self.V))
        return value, weights, plain

    def polish(self, start: tuple[float, float]) -> tuple[list[Decimal], Decimal]:
        """The probabilities to 60 digits and their variance, from multipliers (b, c) known as floats."""
        with localcontext(PRECISE):
            b, c = Decimal(start[0]), Decimal(start[1])
            V = None if self.V is None else decimal(self.V)
            blocks = pool([b * v + c * v * v for v in self.points], self.chain)
            for _ in range(_STEPS):
                plain = _features(self.points, blocks, Decimal(1))
                weights = self._weights(b, c, blocks, plain)
                step = _step(weights, plain, V)
                b, c = b + step[0], c + step[1]
                if abs(step[0]) * self.reach + abs(step[1]) * self.reach**2 < TOLERANCE:
                    theta = [b * v + c * v * v for v in self.points]
                    current = pool(theta, self.chain)
                    if _same(current, blocks, theta):
                        break
                    blocks = current
            else:
                raise SolverError("maximum entropy: the last digits did not converge; change V or D a little")
            total = sum(weights, Decimal(0))
            spread = sum((w * s for w, (_, s) in zip(weights, plain, strict=True)), Decimal(0)) / total
            law = [w / total / (stop - first) for w, (first, stop) in zip(weights, blocks, strict=True)]
            return [p for p, (first, stop) in zip(law, blocks, strict=True) for _ in range(first, stop)], spread

    def _weights(self, b: Decimal, c: Decimal, blocks: Blocks, plain: list[tuple[Decimal, Decimal]]) -> list[Decimal]:
        """The weight of each block: exp(b v + c v^2) for single points v, by successive ratios.

        A pooled block of several points weighs their number times exp(b m + c s), with the mean m and second moment s
        of its points.
        """
        table = {0: Decimal(1)}
        fall = (2 * c).exp()
        for sign, last in ((1, max(self.points)), (-1, -min(self.points))):
            ratio, weight = (sign * b + c).exp(), Decimal(1)
            for v in range(1, last + 1):
                weight *= ratio
                ratio *= fall
                table[sign * v] = weight
        return [
            table[self.points[first]] if stop - first == 1 else (stop - first) * (b * m + c * s).exp()
            for (first, stop), (m, s) in zip(blocks, plain, strict=True)
        ]


def _step(weights: Sequence[_T], plain: Sequence[tuple[_T, _T]], V: _T | None) -> tuple[_T, _T]:
    """Newton's step for the multipliers (b, c), or for b alone where the variance V is None.

    `plain` are the mean and second moment of each block, `weights` its weight.
    """
    zero = weights[0] * 0
    total = sum(weights, zero)
    mean = sum((w * m for w, (m, _) in zip(weights, plain, strict=True)), zero) / total
    second = sum((w * s for w, (_, s) in zip(weights, plain, strict=True)), zero) / total
    around = [(w / total, m - mean, s - second) for w, (m, s) in zip(weights, plain, strict=True)]
    square = sum((w * m * m for w, m, _ in around), zero)
    if V is None:
        return -mean / square, zero
    mixed = sum((w * m * s for w, m, s in around), zero)
    fourth = sum((w * s * s for w, _, s in around), zero)
    area = square * fourth - mixed * mixed
    excess = second - V
    if not area > 0:  # no curvature left in floats: follow the gradient
        return -mean, -excess
    return (mixed * excess - fourth * mean) / area, (mixed * mean - square * excess) / area


def pool(theta: Sequence[_T], chain: int) -> Blocks:
    """The blocks of the isotonic regression of theta along the first `chain` values.

    Neighbouring values that fall are pooled until the means of the blocks rise; every later value is a block of its
    own.

    >>> pool([0.0, 3.0, 1.0, 9.0, 5.0], 4)
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    """
    runs: list[tuple[int, int, _T]] = []
    for i, value in enumerate(theta[:chain]):
        first, stop, mean = i, i + 1, value
        while runs and runs[-1][2] > mean:
            before, middle, other = runs.pop()
            mean = (other * (middle - before) + mean * (stop - first)) / (stop - before)
            first = before
        runs.append((first, stop, mean))
    return [(first, stop) for first, stop, _ in runs] + [(i, i + 1) for i in range(chain, len(theta))]


def _features(points: Sequence[int], blocks: Blocks, one: _T) -> list[tuple[_T, _T]]:
    """The means of v and of v^2 over the points v of every block, as numbers of the type of `one`."""
    features = []
    for first, stop in blocks:
        if stop - first == 1:
            features.append((one * points[first], one * points[first] ** 2))
        else:
            run = points[first:stop]
            features.append((one * sum(run) / len(run), one * sum(v * v for v in run) / len(run)))
    return features


def _same(current: Blocks, used: Blocks, theta: Sequence[Decimal]) -> bool:
    """Whether two poolings give the same law: the blocks agree, or differ only where theta is constant."""
    return current == used or all(
        abs(left - right) < TOLERANCE * 1000
        for left, right in zip(_levels(theta, current), _levels(theta, used), strict=True)
    )


def _levels(theta: Sequence[Decimal], blocks: Blocks) -> list[Decimal]:
    return [sum(theta[i:j], Decimal(0)) / (j - i) for i, j in blocks for _ in range(i, j)]
