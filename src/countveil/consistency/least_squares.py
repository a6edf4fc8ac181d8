"""Least squares on a tree: two passes, linear in the nodes, with exact variances (Hay et al. 2010, generalised).

A node is a cell of a table; a family of a node consists of the cells of one finer table that it is divided into. The
upward pass combines a node's own measurement with the sums of its families, weighted by precision (1/variance). The
downward pass compares the estimate of a node with the sum of each of its families, and shares the difference among the
family in proportion to the variances of the upward pass. The result is the best linear unbiased estimate of every
count, also for unequal variances and numbers of parts, several families of a node, and tables that are not measured.
All weights depend on the tree and the variances of the measurements alone.

Arrays have the nodes as their last axis; many sets of measurements can be estimated at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.consistency.tree import Floats, Ints, Level, Tree
from countveil.errors import RequestError


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The weights of the two passes of least squares on a tree.

    For each node: `rising` is the variance of its estimate in the upward pass; `own` is the weight of its own
    measurement there; `share` is its part of the difference that its family shares in the downward pass; `variance` is
    the variance of its final estimate. For each family, `weight` is the weight of its sum in the upward estimate of the
    parent.
    """

    tree: Tree
    rising: list[Floats]
    own: list[Floats]
    share: list[Floats]
    weight: list[Floats]
    variance: list[Floats]

    def sum_up(self, measurements: Sequence[Floats | Ints | None]) -> tuple[list[Floats], list[Floats]]:
        """The upward pass: the upward estimate of every node, and the sum of these estimates over every family."""
        levels = self.tree.levels
        shape = next(y.shape[:-1] for y in measurements if y is not None)
        rising = [
            np.zeros((*shape, len(level))) if y is None else own * y
            for level, y, own in zip(levels, measurements, self.own, strict=True)
        ]
        sums: list[Floats] = [np.zeros(0)] * len(levels)
        for i in range(len(levels) - 1, 0, -1):
            sums[i] = levels[i].sum_families(rising[i])
            rising[levels[i].above][..., levels[i].filled] += self.weight[i] * sums[i]
        return rising, sums

    def estimate(self, measurements: Sequence[Floats | Ints | None]) -> list[Floats]:
        """The least-squares estimate of every node, from measurements of each table (None if it is not measured)."""
        estimates, sums = self.sum_up(measurements)
        for i, level in enumerate(self.tree.levels[1:], start=1):
            gap = estimates[level.above][..., level.filled] - sums[i]
            estimates[i] += self.share[i] * level.spread(gap)
        return estimates

    def weigh(self, targets: Sequence[Floats]) -> list[Floats]:
        """The weight of every measurement in the weighted sum of estimates in which `targets` are the weights of the
        nodes.

        This is `estimate`, transposed.
        """
        levels = self.tree.levels
        weights = [np.array(t, dtype=np.float64) for t in targets]
        for i in range(len(levels) - 1, 0, -1):
            shared = levels[i].sum_families(self.share[i] * weights[i])
            weights[levels[i].above][..., levels[i].filled] += shared
            weights[i] -= levels[i].spread(shared)
        for i, level in enumerate(levels):
            if i:
                weights[i] += level.spread(self.weight[i] * weights[level.above][..., level.filled])
        return [own * w for own, w in zip(self.own, weights, strict=True)]


def solve(tree: Tree, variances: Sequence[float | None]) -> LeastSquares:
    """The weights of least squares, from the variance of the measurements of each table; None if it is not measured."""
    levels = tree.levels
    for i, (level, s) in enumerate(zip(levels, variances, strict=True)):
        if s is None and bool(tree.find_leaves(i).any()):
            raise RequestError(f"table {level.name} has cells that no finer table divides: it must be measured")
    precision = [np.full(len(level), 0.0 if s is None else 1 / s) for level, s in zip(levels, variances, strict=True)]
    rising: list[Floats] = [np.zeros(0)] * len(levels)
    totals: list[Floats] = [np.zeros(0)] * len(levels)
    for i in range(len(levels) - 1, -1, -1):
        rising[i] = 1 / precision[i]
        if i:
            totals[i] = levels[i].sum_families(rising[i])
            precision[levels[i].above][levels[i].filled] += 1 / totals[i]
    own = [v * (0.0 if s is None else 1 / s) for v, s in zip(rising, variances, strict=True)]
    share, weight, variance = [np.ones(1)], [np.zeros(0)], [rising[0]]
    for i, level in enumerate(levels[1:], start=1):
        share.append(rising[i] / level.spread(totals[i]))
        weight.append(rising[level.above][level.filled] / totals[i])
        above = level.spread(variance[level.above][level.filled])
        variance.append(share[i] ** 2 * above + rising[i] * _find_rest(level, share[i]))
    return LeastSquares(tree, rising, own, share, weight, variance)


def _find_rest(level: Level, share: Floats) -> Floats:
    """1 - share for every node; near a share of 1 as the sum of the other shares, which loses no digits."""
    large = share > 0.5  # at most one node of each family
    others = level.spread(level.sum_families(np.where(large, 0.0, share)))
    return np.where(large, others, 1 - share)
