"""Least squares on a tree: two passes, linear in the nodes, with exact variances (Hay et al. 2010, generalised).

Upwards, a node's own measurement and the sums of its families are combined by precision. Downwards, the difference
between a node and the sum of a family is shared among the family in proportion to the variances of the upward pass. The
result is the best linear unbiased estimate of every count, for unequal variances and fan-outs, several families of a
node and tables that are not measured. All weights depend on the tree and the variances of the measurements alone.

Arrays have the nodes as their last axis; many sets of measurements can be estimated at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.consistency.tree import Floats, Ints, Tree
from countveil.errors import RequestError


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The weights of the two passes.

    For each node: `rising`, the variance of its upward estimate; `own`, the weight of its own measurement there;
    `share`, its part of what is shared in its family; `variance`, that of its final estimate. For each family,
    `weight` is the weight of its sum in the upward estimate of the parent.
    """

    tree: Tree
    rising: list[Floats]
    own: list[Floats]
    share: list[Floats]
    weight: list[Floats]
    variance: list[Floats]

    def sum_up(self, measurements: Sequence[Floats | Ints | None]) -> tuple[list[Floats], list[Floats]]:
        """The upward estimate of every node, and the sum of it over every family."""
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
        """The estimate of every node; None stands for a table that is not measured."""
        estimates, sums = self.sum_up(measurements)
        for i, level in enumerate(self.tree.levels[1:], start=1):
            gap = estimates[level.above][..., level.filled] - sums[i]
            estimates[i] += self.share[i] * level.spread(gap)
        return estimates

    def weigh(self, targets: Sequence[Floats]) -> list[Floats]:
        """The weight of every measurement in sum over all nodes of target * estimate: `estimate`, transposed."""
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
    """The weights for measurements of these variances, one for each table; None stands for a table not measured."""
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
        gain = totals[i] - variance[level.above][level.filled]  # what the rest of the tree adds to the family's sum
        variance.append(rising[i] - share[i] ** 2 * level.spread(gain))
    return LeastSquares(tree, rising, own, share, weight, variance)
