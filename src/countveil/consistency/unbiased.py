"""Exactly unbiased whole tables that add up: rational estimates, rounded with one uniform integer for all of them.

A node is a cell of a table; a family of a node consists of the cells of one finer table that it is divided into. The
weights of least squares are rounded to multiples of 2^-32 such that the weights of a node, and the shares of a family,
still add up to exactly 1. Estimates with such weights are exactly unbiased and exactly additive, and all estimates of a
table are whole multiples of one power of 1/2: Python's integers hold them without rounding. The total gets an interval
as long as its estimate, each family is laid inside its parent's interval in random order, and a node that covers [a, b)
is published as floor(b + u) - floor(a + u), with one uniform number u for all nodes.

**Guarantee.** Over u, the mean of every published number is its estimate; each published number is the floor or the
ceiling of its estimate; and families add up. Numbers may be negative, and can be further from the truth than the
certain bounds allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from countveil.consistency.least_squares import LeastSquares
from countveil.consistency.tree import Floats, Ints, Level
from countveil.consistency.uniforms import Uniforms

WEIGHT_BITS = 32
ONE = 1 << WEIGHT_BITS


@dataclass(frozen=True, eq=False)
class ExactEstimates:
    """Estimates of all nodes, exactly: `values` are whole multiples of 2**-bits, level by level."""

    values: list[Any]
    bits: int

    def fractions(self, place: int) -> list[Fraction]:
        """The estimates of one level as Fractions."""
        return [Fraction(int(value), 1 << self.bits) for value in self.values[place]]


def estimate_exactly(fit: LeastSquares, measurements: Sequence[Ints | None]) -> ExactEstimates:
    """The least-squares estimates in exact arithmetic, with weights rounded to multiples of 2^-32."""
    levels = fit.tree.levels
    rising: list[Any] = [None] * len(levels)
    sums: list[Any] = [None] * len(levels)
    rising_bits = [0] * len(levels)
    for i in range(len(levels) - 1, -1, -1):
        below = fit.tree.below(i)
        rising_bits[i] = max(rising_bits[j] for j in below) + WEIGHT_BITS if below else 0
        rising[i] = _combine(fit, i, measurements[i], sums, rising_bits)
        if i:
            sums[i] = np.add.reduceat(rising[i], levels[i].starts)
    values: list[Any] = [rising[0]]
    bits = [rising_bits[0]]
    for i, level in enumerate(levels[1:], start=1):
        bits.append(bits[level.above] + WEIGHT_BITS)
        gap = values[level.above][level.filled] - (sums[i] << (bits[level.above] - rising_bits[i]))
        shares = round_shares(level, fit.share[i]).astype(object)
        values.append((rising[i] << (bits[i] - rising_bits[i])) + shares * level.spread(gap))
        sums[i] = rising[i] = None
    most = max(bits)
    for i, (value, b) in enumerate(zip(values, bits, strict=True)):
        values[i] = value << (most - b)
    return ExactEstimates(values, most)


def _combine(fit: LeastSquares, place: int, y: Ints | None, sums: Sequence[Any], bits: Sequence[int]) -> Any:
    """The upward estimates of the nodes of one level, as multiples of 2**-bits[place].

    They combine a node's own measurement with the sums of its families.
    """
    below = fit.tree.below(place)
    if not below:
        return np.zeros(0, dtype=object) if y is None else y.astype(object)  # without cells it need not be measured
    level = fit.tree.levels[place]
    left = np.full(len(level), ONE, dtype=np.int64)
    total = np.zeros(len(level), dtype=object)
    parts: list[tuple[Any, Any, int]] = [(fit.tree.levels[i].filled, fit.weight[i], i) for i in below]
    last = np.full(len(level), -1)  # the last family of a node takes what is left, unless its own measurement does
    if y is None:
        for filled, _, i in parts:
            last[filled] = i
    for filled, weight, i in parts:
        units = np.rint(weight * ONE).astype(np.int64)
        units = np.where(last[filled] == i, left[filled], np.minimum(units, left[filled]))
        left[filled] -= units
        total[filled] += units.astype(object) * (sums[i] << (bits[place] - WEIGHT_BITS - bits[i]))
    if y is not None:
        total += (left.astype(object) * y.astype(object)) << (bits[place] - WEIGHT_BITS)
    return total


def round_shares(level: Level, shares: Floats) -> Ints:
    """The shares of the nodes of each family in units of 2^-32, as integers that add up to exactly 2^32."""
    units = np.floor(shares * ONE).astype(np.int64)
    left = ONE - level.sum_families(units)
    each = level.spread(left // level.widths)
    rest = level.spread(left % level.widths)
    units += each + (level.accumulate(np.ones(len(level), dtype=np.int64)) < rest)
    return units


def round_unbiased(fit: LeastSquares, exact: ExactEstimates, u: int, uniforms: Uniforms) -> list[Ints]:
    """Round exact estimates at random to whole numbers that add up, with one uniform number u for all of them.

    Every family is laid in random order inside its parent's interval; a node that covers [a, b) is published as floor(b
    + u) - floor(a + u). `u` is given as an integer below 2**bits, in units of 2**-bits.
    """
    levels, bits = fit.tree.levels, exact.bits
    starts: list[Any] = [np.array([u], dtype=object)]
    published: list[Ints] = []
    for i, level in enumerate(levels):
        values = exact.values[i]
        if i:
            order = uniforms.shuffle_families(level)
            shuffled = values[order]
            before = np.cumsum(shuffled) - shuffled
            before += level.spread(starts[level.above][level.filled] - before[level.starts])
            mine = np.empty(len(level), dtype=object)
            mine[order] = before
            starts.append(mine)
        published.append(((starts[i] + values >> bits) - (starts[i] >> bits)).astype(np.int64))
    return published


def draw_uniform(bits: int, uniforms: Uniforms) -> int:
    """A uniform integer below 2**bits."""
    words = uniforms.draw(-(-bits // 64))
    value = 0
    for word in words:
        value = value << 64 | int(word)
    return value >> (64 * len(words) - bits)


def round_exactly(fit: LeastSquares, measurements: Sequence[Ints | None], uniforms: Uniforms) -> tuple[list[Ints], str]:
    """Unbiased whole tables, and the uniform number that they were rounded with, as the text of a fraction."""
    exact = estimate_exactly(fit, measurements)
    bits = max(exact.bits, 1)
    u = draw_uniform(bits, uniforms) >> (bits - exact.bits)
    return round_unbiased(fit, exact, u, uniforms), f"{u}/2^{exact.bits}"
