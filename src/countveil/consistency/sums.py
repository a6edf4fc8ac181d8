"""Sums of cells, in the tree or across it: unbiased estimates with exact variances and margins.

A sum of cells is a linear function of the least-squares estimates. One transposed pass gives the weight of every
measurement in this sum, and so its exact variance. The margin of a sum comes from simulation of the whole tree, as the
margin of a cell does. In large trees it comes from the normal law if a proved bound on the distance to the normal law
is small. That bound is the one of Berry and Esseen for independent summands X_i, with Shevtsova's constant 0.56 (2010):
with b = 0.56 sum E|X_i|^3 / sd^3, P(|error| <= q sd) >= 2 Phi(q) - 1 - 2 b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.hierarchy import read_array
from countveil.consistency.least_squares import LeastSquares
from countveil.consistency.simulation import LEVEL, Largest, Progress, Simulation
from countveil.consistency.tree import Floats, Ints, Level
from countveil.errors import ParameterError
from countveil.laws.law import Law

LARGEST_SIMULATED = 500_000
"""In trees with at most this many nodes sums are always simulated."""
BERRY_ESSEEN = 0.56
CLOSE_TO_NORMAL = 0.008
"""The normal law is used where its proved distance is at most this: its quantile is then at most 8.5 % too large."""
CHUNK = 1 << 24


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of cells of one table: `nodes` in the order of their groups, and `starts`, where each group begins."""

    place: int
    nodes: Ints
    starts: Ints
    size: int
    present: Ints

    @staticmethod
    def of(place: int, groups: Ints, size: int) -> Groups:
        """Groups from the number of the group of each node; nodes with a negative number are in no group."""
        order = np.argsort(groups, kind="stable")
        order = order[int((groups < 0).sum()) :]
        present, starts = np.unique(groups[order], return_index=True)
        return Groups(place, order, starts, size, present)

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of the values over every group; the nodes are the last axis of `values`."""
        sums: NDArray[Any] = np.zeros((*values.shape[:-1], self.size), dtype=values.dtype)
        if len(self.nodes):
            sums[..., self.present] = np.add.reduceat(values[..., self.nodes], self.starts, axis=-1)
        return sums

    def targets(self, fit: LeastSquares, first: int, last: int) -> list[Floats]:
        """For the groups first..last - 1, a row of indicators of their nodes: 1 for a node of the group, else 0."""
        targets = [np.zeros((last - first, len(level))) for level in fit.tree.levels]
        ends = np.append(self.starts, len(self.nodes))
        for k, group in enumerate(self.present):
            if first <= group < last:
                targets[self.place][group - first, self.nodes[ends[k] : ends[k + 1]]] = 1
        return targets


def read_groups(level: Level, groups: Any) -> tuple[Ints, int]:
    """The group of each declared cell, and how many groups there are.

    `groups` are numbers, or the name of a column whose values are the groups.
    """
    if isinstance(groups, str):
        if groups not in level.labels:
            allowed = "a column of the table: " + (", ".join(level.labels) or "it has none")
            raise ParameterError("groups", groups, allowed)
        numbers = np.unique(level.labels[groups], return_inverse=True)[1].astype(np.int64)
        return numbers, int(numbers.max()) + 1
    given = read_array("groups", groups)
    if given.dtype.kind not in "iu" or given.shape != (level.size,):
        allowed = f"one whole number for each of the {level.size} cells of {level.name}"
        raise ParameterError("groups", f"an array of {given.dtype} and shape {given.shape}", allowed)
    limit = 10 * level.size + 1000
    if int(given.max()) >= limit:
        raise ParameterError("groups", int(given.max()), f"a number below {limit}", "number the groups 0, 1, 2, ...")
    if int(given.max()) < 0:
        raise ParameterError("groups", "only negative numbers", "a group number of 0 or more for at least one cell")
    return given.astype(np.int64), int(given.max()) + 1


@dataclass(frozen=True, eq=False)
class SumErrors:
    """The standard deviation of every sum, and a bound on the distance of its law to the normal law (Berry, Esseen)."""

    deviations: Floats
    distances: Floats


def measure_sums(fit: LeastSquares, laws: Sequence[Law | None], groups: Groups, progress: Progress = iter) -> SumErrors:
    """The exact standard deviation of the error of every sum over a group of estimates, with a bound on the distance of
    its law to the normal law."""
    variance = [0.0 if law is None else float(law.variance) for law in laws]
    third = [0.0 if law is None else third_moment(law) for law in laws]
    step = max(1, CHUNK // len(fit.tree))
    deviations, distances = np.zeros(groups.size), np.zeros(groups.size)
    for first in progress(range(0, groups.size, step)):
        last = min(first + step, groups.size)
        weights = [np.abs(w) for w in fit.weigh(groups.targets(fit, first, last))]
        total = np.sqrt(sum(s * (w * w).sum(axis=-1) for s, w in zip(variance, weights, strict=True)))
        cubes = sum(m * (w * w * w).sum(axis=-1) for m, w in zip(third, weights, strict=True))
        deviations[first:last] = total
        distances[first:last] = BERRY_ESSEEN * cubes / np.maximum(total, 1e-100) ** 3
    return SumErrors(deviations, distances)


def third_moment(law: Law) -> float:
    """E|Z|^3 of the noise Z."""
    return sum(abs(z) ** 3 * w for z, w in law.items()) / law.total


def find_margins(simulation: Simulation, groups: Groups, errors: SumErrors, progress: Progress = iter) -> Floats:
    """For every sum over a group, a margin that its error exceeds with probability at most 5 %."""
    large = len(simulation.tree) > LARGEST_SIMULATED
    level = np.minimum((1 + LEVEL) / 2 + errors.distances, 1 - 1e-12)
    normal = np.array([NormalDist().inv_cdf(p) for p in level])
    margins: Floats = normal * errors.deviations
    if large and bool((errors.distances <= CLOSE_TO_NORMAL).all()):
        return margins
    largest = Largest(groups.size, simulation.runs)
    for runs in simulation.batches(len(simulation.tree), progress):  # every node is drawn, not only sums of families
        estimates = simulation.fit.estimate(simulation.draw(runs))
        largest.add(groups.sum(estimates[groups.place]))
    simulated = largest.quantile()
    return np.where(errors.distances <= CLOSE_TO_NORMAL, margins, simulated) if large else simulated
