"""Quantiles of the errors of least-squares estimates, by simulation on the public tree.

The error of an estimate is a fixed linear combination of independent noises with known laws, so its law depends on the
tree and the laws alone, never on the data. Thousands of sets of noise are drawn from the same laws as in a publication,
and every run gives the errors of the whole tree. The simulated 95 % quantile is the order statistic of rank
`rank_for(runs)`: with probability 1 - 1e-6 over the simulation, it is at least the true 95 % quantile.

- **By class.** Two nodes (cells of tables) that can be exchanged without changing the tree have the same law of errors:
  one node of each such class is enough. With at most `MOST_CLASSES` classes, the law of every node is simulated.
- **Standardised.** With more classes, each run takes one random node of each table and divides its error by its exact
  standard deviation. The margin of a node is the quantile of that ratio times the standard deviation of the node. It
  holds for the cells of the table on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.family_sums import FamilySums
from countveil.consistency.least_squares import LeastSquares
from countveil.consistency.tree import Floats, Ints, Tree
from countveil.consistency.uniforms import KeySource, Uniforms
from countveil.laws.law import Law, LawsByCount
from countveil.sampling.sampler import Sampler, sampler

RUNS = 10_000
"""With this many runs margins are 5 % (normal errors) to 8 % (exponential tails) wider than exact quantiles."""
LEVEL = 0.95
DOUBT = 1e-6
"""The probability that a simulated quantile is too small."""
MOST_CLASSES = 100_000
BATCH_NODES = 1 << 20
OUTWARD = 1 + 1e-9
Progress = Callable[[Iterable[int]], Iterable[int]]


def rank_for(runs: int, level: float = LEVEL, doubt: float = DOUBT) -> int:
    """The rank of the order statistic to use as the quantile at `level`, among the sorted results of all runs.

    It is the least rank whose result is below the true quantile with probability at most `doubt`.

    >>> rank_for(4000)
    3863
    """
    tail = 0.0
    for k in range(runs, 0, -1):
        ways = math.lgamma(runs + 1) - math.lgamma(k + 1) - math.lgamma(runs - k + 1)
        tail += math.exp(ways + k * math.log(level) + (runs - k) * math.log1p(-level))
        if tail > doubt:
            return min(k + 1, runs)
    return 1


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulates errors of estimates: draws noise for all measurements and follows it through least squares."""

    fit: LeastSquares
    laws: Sequence[Law | None]
    runs: int
    keys: KeySource = field(default_factory=KeySource)

    @staticmethod
    def of(fit: LeastSquares, laws: Sequence[Law | None], keys: KeySource | None = None) -> Simulation:
        """A simulation with the usual number of runs."""
        return Simulation(fit, laws, RUNS, keys or KeySource())

    @cached_property
    def _samplers(self) -> list[Sampler | None]:
        made: dict[Law, Sampler] = {}
        for law in self.laws:
            if law is not None and law not in made:
                made[law] = sampler(LawsByCount(law))
        return [None if law is None else made[law] for law in self.laws]

    @property
    def tree(self) -> Tree:
        return self.fit.tree

    @cached_property
    def _family_sums(self) -> dict[int, FamilySums]:
        """For each finest table with large families, the object that draws the sums of whole families at once."""
        pairs = enumerate(zip(self.tree.levels, self.laws, strict=True))
        return {
            i: FamilySums(level, law, Uniforms(self.keys.next()))
            for i, (level, law) in pairs
            if i and law is not None and not self.tree.below(i) and FamilySums.pays(level, law)
        }

    @property
    def draws_per_run(self) -> int:
        """How many numbers each run draws: one for every node, or for every family of which only the sum is drawn."""
        return len(self.tree) - sum(len(s.level) - len(s.level.starts) for s in self._family_sums.values())

    @property
    def nodes_per_run(self) -> int:
        """How many nodes each run follows through least squares: one of each class, or one of each table."""
        classes = self._classes
        return len(self.tree.levels) if classes is None else sum(map(_count, classes))

    @property
    def _classes(self) -> list[Ints] | None:
        """The class of every node; None if there are too many classes."""
        classes = classify(self.tree)
        return classes if sum(map(_count, classes)) <= MOST_CLASSES else None

    def draw(self, runs: int) -> list[Ints | None]:
        """Draw noise for every measurement of each table (None if it is not measured), with a row for each run."""
        return [None if law is None else self._draw(i, runs) for i, law in enumerate(self.laws)]

    def _draw(self, place: int, runs: int) -> Ints:
        source, size = self._samplers[place], len(self.tree.levels[place])
        assert source is not None
        zeros = np.broadcast_to(np.int64(0), runs * size)
        return source.release(zeros, self.keys.next()).reshape(runs, size)

    def batches(self, progress: Progress = iter) -> Iterator[int]:
        """Yield how many runs to draw at once, until all runs are drawn."""
        size = min(self.runs, max(1, BATCH_NODES // max(self.draws_per_run, 1)))
        for start in progress(range(0, self.runs, size)):
            yield min(size, self.runs - start)

    def quantiles(self, progress: Progress = iter) -> Quantiles:
        """The 95 % margin of the estimate of every node: by class if there are few classes, else standardised."""
        classes = self._classes
        return self._standardise(progress) if classes is None else self._by_class(classes, progress)

    def _by_class(self, classes: list[Ints], progress: Progress) -> Quantiles:
        picked = [np.unique(ids, return_index=True)[1] for ids in classes]
        ends = np.cumsum([0, *map(len, picked)])
        largest = Largest(int(ends[-1]), self.runs)
        for runs in self.batches(progress):
            largest.add(np.concatenate(self.follow(picked, runs), axis=1))
        margins = largest.quantile()
        return Quantiles([margins[ends[i] + ids] for i, ids in enumerate(classes)], exact=True)

    def _standardise(self, progress: Progress) -> Quantiles:
        levels, picker = self.tree.levels, Uniforms(self.keys.next())
        ratios: list[list[Floats]] = [[] for _ in levels]
        for runs in self.batches(progress):
            nodes = [(picker.draw(runs) % np.uint64(max(1, len(level)))).astype(np.int64) for level in levels]
            for i, errors in enumerate(self.follow([n[:, None] for n in nodes], runs)):
                if len(levels[i]):
                    ratios[i].append(errors[:, 0] / np.sqrt(self.fit.variance[i][nodes[i]]))
        rank = rank_for(self.runs)
        margins = []
        for parts, variance in zip(ratios, self.fit.variance, strict=True):
            sizes = np.sort(np.abs(np.concatenate(parts))) if parts else np.zeros(self.runs)
            margins.append(float(sizes[rank - 1]) * OUTWARD * np.sqrt(variance))
        return Quantiles(margins, exact=False)

    def follow(self, picked: Sequence[Ints], runs: int) -> list[Floats]:
        """The errors of the estimates of some nodes of every level, with a row for each run.

        The nodes are the same in every run or, if given as a column, one for each run. In a table that no finer table
        divides, they must be of different families; of its other nodes only the sums of families are drawn.
        """
        levels, fit = self.tree.levels, self.fit
        rising: list[Floats] = [np.zeros(0)] * len(levels)
        sums: list[Floats] = [np.zeros(0)] * len(levels)
        own: dict[int, Floats] = {}
        for i in range(len(levels) - 1, -1, -1):
            level, law, below = levels[i], self.laws[i], self.tree.below(i)
            if i in self._family_sums and len(level):
                z, _, sums[i] = self._family_sums[i].draw_with(picked[i], runs)  # type: ignore[assignment]
                own[i] = z.astype(np.float64)
                continue
            noise = self._draw(i, runs) if law is not None else None
            rising[i] = np.zeros((runs, len(level))) if noise is None else fit.own[i] * noise
            for j in below:
                rising[i][:, levels[j].filled] += fit.weight[j] * sums[j]
            if i:
                sums[i] = level.sum_families(rising[i])

        passes = _Passes(fit, rising, sums, own)
        return [passes.trace(i, nodes) if len(levels[i]) else np.zeros((runs, 0)) for i, nodes in enumerate(picked)]


@dataclass(frozen=True, eq=False)
class _Passes:
    """The results of the upward pass of least squares in some runs.

    `own` is the noise of the chosen nodes in those levels where only sums of families were drawn.
    """

    fit: LeastSquares
    rising: list[Floats]
    sums: list[Floats]
    own: dict[int, Floats]

    def trace(self, place: int, nodes: Ints) -> Floats:
        """The errors of the final estimates of some nodes of a level, computed from those of their parents."""
        level = self.fit.tree.levels[place]
        rows = np.arange(len(self.rising[0]))[:, None]
        mine = self.own[place] if place in self.own else self.rising[place][rows, nodes]
        if not place:
            return mine
        family = np.searchsorted(level.starts, nodes, side="right") - 1
        gap = self.trace(level.above, level.parents[nodes].astype(np.int64)) - self.sums[place][rows, family]
        errors: Floats = mine + self.fit.share[place][nodes] * gap
        return errors


@dataclass(frozen=True, eq=False)
class Quantiles:
    """For every node, a margin that the error of its estimate exceeds with probability at most 5 %.

    If not `exact`, the margins of a table hold for its cells on average.
    """

    margins: list[Floats]
    exact: bool


class Largest:
    """For each of many errors, keeps its largest sizes over the runs: only as many as its quantile needs."""

    def __init__(self, errors: int, runs: int) -> None:
        self.size = runs - rank_for(runs) + 1
        self.kept = np.zeros((errors, self.size), dtype=np.float32)

    def add(self, errors: NDArray[Any]) -> None:
        """Add the errors of more runs, with a row for each run."""
        both = np.concatenate([self.kept, np.abs(errors).T.astype(np.float32)], axis=1)
        split = both.shape[1] - self.size
        self.kept = np.partition(both, split, axis=1)[:, split:].copy()

    def quantile(self) -> Floats:
        """The quantile of every error's size, rounded up by more than single precision loses."""
        quantile: Floats = self.kept.min(axis=1).astype(np.float64) * (1 + 1e-6)
        return quantile


def classify(tree: Tree) -> list[Ints]:
    """A class for every node of every level; nodes of one class have the same law of errors.

    An upward pass finds nodes with the same subtree; a downward pass separates those whose parents are of different
    classes. Subtrees are compared by sums of hashes of 64 bits.
    """
    levels = tree.levels
    hashes = [np.zeros(len(level), dtype=np.uint64) for level in levels]
    kinds: list[Ints] = [np.zeros(len(level), dtype=np.int64) for level in levels]
    for i in range(len(levels) - 1, -1, -1):
        if tree.below(i):
            kinds[i] = np.unique(hashes[i], return_inverse=True)[1].astype(np.int64)
        if i:
            level = levels[i]
            if tree.below(i):
                sums = level.sum_families(_mix(hashes[i] + np.uint64(1)))
            else:
                sums = level.widths.astype(np.uint64)
            hashes[level.above][level.filled] += _mix(sums + np.uint64(i << 40))
    classes = [np.zeros(1, dtype=np.int64)]
    for i, level in enumerate(levels[1:], start=1):
        family = classes[level.above][level.filled]
        if not tree.below(i):
            family = np.unique(family, return_inverse=True)[1]
            classes.append(level.spread(family))
            continue
        key = level.spread(family) * (int(kinds[i].max(initial=0)) + 1) + kinds[i]
        classes.append(np.unique(key, return_inverse=True)[1].astype(np.int64))
    return classes


def _count(ids: Ints) -> int:
    """How many classes a level has."""
    return int(ids.max(initial=-1)) + 1


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit hash of every value (splitmix64)."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
