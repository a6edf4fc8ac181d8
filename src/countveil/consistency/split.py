"""How to divide a budget among the tables of a tree so that the published numbers are best.

A measurement of variance s costs about (d^2 / s)^(p/2), where d is the sensitivity, and p is 1 if few answers share the
budget (pure epsilon) and 2 if many do. What matters is not the variance of the measurements but that of the
least-squares estimates, to which all tables contribute. It is computed exactly on the public tree; nodes that can be
exchanged without changing the tree are computed once. A pattern search over the logarithms of the costs finds the best
split. It begins at splits that leave out any of the tables, because for p below 2 each of them can be near a local
optimum. Target margins enter as a smooth maximum or as a penalty, which later searches sharpen.

These are floats and a search: a split is a proposal, and the laws of the noise are certified as always.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np

from countveil.consistency.least_squares import solve
from countveil.consistency.simulation import classify
from countveil.consistency.sums import Groups, read_groups
from countveil.consistency.tree import TOTAL, Floats, Ints, Tree
from countveil.errors import InfeasibleError, ParameterError

NORMAL_95 = 1.96
FIRST_STEP, COARSE_STEP, LAST_STEP = 1.0, 0.3, 0.004
VALLEYS = 5
"""From how many starts a search goes a few steps before it continues from the best."""
ALL_CORNERS = 6
"""Up to so many tables, every set of tables that could be left out is a start."""
LEAST_SHARE = 0.002
"""Shares of the budget are searched down to this fraction of the largest; a table that gets no more is left out."""
NORMS = (1.0, 4.0, 16.0, 64.0, 256.0)
PENALTIES = (3.0, 30.0, 300.0)
"""How the searches for target margins become sharper: powers of a mean, and factors of a penalty."""
LARGEST = 1e50
"""The largest number that is taken, and 1 over the least one."""
SAMPLED_GROUPS = 16


@dataclass(frozen=True)
class BudgetSplit:
    """For each table its share of the budget and the variance of its measurements.

    A table that is of no use has share 0 and an infinite variance: do not measure it. `published` is the mean variance
    of the estimates of each table (and of each sum across the tree). `cost` is the sum of the costs of all
    measurements.
    """

    shares: dict[str, float]
    variances: dict[str, float]
    published: dict[str, float]
    cost: float


def split_budget(
    tree: Tree,
    *,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
    margins: Mapping[str, tuple[str, Ints]] | None = None,
    measured: Sequence[str] | None = None,
    sensitivity: Mapping[str, int] | None = None,
    exponent: float = 1.0,
    budget: float | None = None,
) -> BudgetSplit:
    """The variances of the measurements for which the published numbers are best.

    Args:
        tree: The public tree.
        weights: The weight of a table, or of one of `margins`, in the weighted sum of the mean variances of published
            numbers, which is minimised. Default: 1 for every measured table, if there are no targets.
        targets: For a table, or one of `margins`: the 95 % margin of error that its published numbers keep on average.
        margins: Sums across the tree: for each name a table and the group of each of its cells (-1 for none).
        measured: The tables that are measured. Default: all but the total.
        sensitivity: How much one person changes one cell of a table. Default: 1.
        exponent: A measurement costs (sensitivity^2 / variance)^(exponent/2); from 1 (few answers) to 2 (many).
        budget: The sum of all costs. Default: 1, or with targets what these need; weights then have no effect.

    Returns:
        A BudgetSplit.

    Raises:
        ParameterError: A name or number is not allowed.
        RequestError: A table that no finer table divides is not measured.
        InfeasibleError: The targets need more than the budget.

    >>> tree = Tree.from_parents({"county": (None, [0] * 10), "town": ("county", list(range(10)) * 20)})
    >>> split = split_budget(tree, weights={"county": 1, "town": 1})
    >>> 0.4 < split.shares["county"] < 0.6, abs(sum(split.shares.values()) - 1) < 1e-9
    (True, True)
    """
    names = tuple(name for name in tree.names if name != TOTAL) if measured is None else tuple(dict.fromkeys(measured))
    for name in (*names, *(sensitivity or {})):
        tree.place(name)
    _check_numbers(tree, weights or {}, targets or {}, margins or {}, sensitivity or {}, exponent, budget)
    search = _Search(tree, names, dict(sensitivity or {}), exponent, dict(margins or {}))
    empty = {level.name for level in tree.levels if not len(level)}
    limits = {name: (float(margin) / NORMAL_95) ** 2 for name, margin in (targets or {}).items() if name not in empty}
    given = weights or ({} if limits else dict.fromkeys(names, 1.0))
    counts = {name: float(weight) for name, weight in given.items() if weight and name not in empty}
    if given and not counts:
        raise ParameterError("weights", dict(given), "at least one weight above 0 for a table with possible cells")
    if not limits:
        return search.finish(search.minimise(counts), 1.0 if budget is None else budget)
    needed = search.meet(limits)
    if budget is not None and needed.cost > budget * (1 + 1e-9):
        raise InfeasibleError(
            f"the target margins need a budget of {needed.cost:.6g}, more than {float(budget):.6g}",
            f"margins {math.sqrt((needed.cost / budget) ** (2 / exponent)):.3g} times as wide are possible",
        )
    return needed if not counts or budget is None else search.improve(counts, limits, budget, needed)


def _check_numbers(
    tree: Tree,
    weights: Mapping[str, float],
    targets: Mapping[str, float],
    margins: Mapping[str, tuple[str, Ints]],
    sensitivity: Mapping[str, int],
    exponent: float,
    budget: float | None,
) -> None:
    """Refuse names and numbers with which no search is possible."""
    for name in margins:
        if name in tree.names:
            raise ParameterError("margins", name, "a name that no table of the tree has")
    known = (*tree.names, *margins)
    above = f"a number from {1 / LARGEST:g} to {LARGEST:g}"
    for argument, given, allowed in (("weights", weights, f"0 or {above}"), ("targets", targets, above)):
        for name, value in given.items():
            if name not in known or not (_is_within(value) or (argument == "weights" and value == 0)):
                raise ParameterError(f"{argument} of {name}", value, f"{allowed}, for one of {', '.join(known)}")
    for name, size in sensitivity.items():
        if not isinstance(size, Integral) or not _is_within(size):
            raise ParameterError(f"sensitivity of {name}", size, "a whole number of 1 or more")
    if not _is_within(exponent) or not 1 <= exponent <= 2:
        raise ParameterError("exponent", exponent, "a number from 1 to 2")
    if budget is not None and not _is_within(budget):
        raise ParameterError("budget", budget, above)


def _is_within(value: Any) -> bool:
    """Whether the value is a number of a size with which floats can calculate."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and bool(1 / LARGEST <= value <= LARGEST)


@dataclass(eq=False)
class _Search:
    """The search for the best split on one tree.

    x has for each measured table the logarithm of variance / sensitivity^2, so that equal numbers mean equal costs; it
    is infinite for a table that is left out. Its least number is 0.
    """

    tree: Tree
    names: tuple[str, ...]
    sensitivity: dict[str, int]
    exponent: float
    margins: dict[str, tuple[str, Ints]]
    starts: list[Floats] = field(init=False)

    def __post_init__(self) -> None:
        solve(self.tree, [1.0 if name in self.names else None for name in self.tree.names])  # refuses what it cannot do
        self.shape = TreeShape.of(self.tree)
        self.groups = {name: _sample(self.tree, *given) for name, given in self.margins.items()}
        self.squares = np.array([self.sensitivity.get(name, 1) for name in self.names], dtype=np.float64) ** 2
        self.depth = -2 / self.exponent * math.log(LEAST_SHARE)
        needed = np.array([self.tree.find_leaves(self.tree.place(name)).any() for name in self.names])
        self.most = np.where(needed, self.depth, math.inf)
        self.starts = self._list_starts()

    def _list_starts(self) -> list[Floats]:
        """The values of x at which a search begins: at each, some tables have the same cost, the others the least."""
        count = len(self.names)
        some = range(count) if count <= ALL_CORNERS else (0, 1, count - 1)
        corners = [off for size in some for off in itertools.combinations(range(count), size)]
        return [np.where(np.isin(range(count), off), self.most, 0.0) for off in corners]

    def cost(self, x: Floats) -> Floats:
        return np.asarray(np.exp(-x / 2 * self.exponent), dtype=np.float64)

    def estimate_variances(self, x: Floats, wanted: Sequence[str]) -> dict[str, float]:
        """The mean variances of the estimates of all tables, and of sums across the tree if any of `wanted` is one."""
        at = dict(zip(self.names, self.squares * np.exp(x), strict=True))
        variances = [float(at[name]) if at.get(name, math.inf) < math.inf else None for name in self.tree.names]
        means = dict(zip(self.tree.names, self.shape.variances(variances), strict=True))
        if any(name in self.groups for name in wanted):
            fit = solve(self.tree, variances)
            for name, groups in self.groups.items():
                weights = fit.weigh(groups.targets(fit, 0, groups.size))
                sums = (0.0 if s is None else s * (w * w).sum() for s, w in zip(variances, weights, strict=True))
                means[name] = float(sum(sums)) / groups.size
        return means

    def minimise(self, weights: Mapping[str, float]) -> Floats:
        """The x at which the weighted sum of mean variances is least for a fixed cost."""

        def value(x: Floats) -> float:
            means = self.estimate_variances(x, list(weights))
            total = sum(weight * means[name] for name, weight in weights.items())
            return math.log(total) + 2 / self.exponent * math.log(float(self.cost(x).sum()))

        return self._search(value)

    def _search(self, value: Callable[[Floats], float], *more: Floats) -> Floats:
        """The x of least value found from the starts, and from more of them.

        A few steps from each of the best starts find the deepest valley; only there the search goes to the end.
        """
        found = sorted(((start, value(start)) for start in (*more, *self.starts)), key=lambda end: end[1])[:VALLEYS]
        if len(found) > 1:
            found = [self._descend(*start, value, COARSE_STEP) for start in found]
        return self._descend(*min(found, key=lambda end: end[1]), value, LAST_STEP)[0]

    def _descend(self, x: Floats, best: float, value: Callable[[Floats], float], last: float) -> tuple[Floats, float]:
        """Compass search from x: steps along one coordinate grow when they succeed and shrink when they fail."""
        steps = np.full(len(x), FIRST_STEP)
        while len(x) > 1 and steps.max() > last:
            for i in range(len(x)):
                moved = self._move(x, i, steps[i], best, value)
                if moved is None:
                    steps[i] /= 3
                else:
                    x, best = moved
                    steps[i] *= 1.5
        return x, best

    def _move(
        self, x: Floats, i: int, step: float, best: float, value: Callable[[Floats], float]
    ) -> tuple[Floats, float] | None:
        """A better x, one step up or down along coordinate i, with its value; None if neither is better."""
        for sign in (1, -1):
            trial = x.copy()
            trial[i] = min(trial[i], self.depth) + sign * step
            trial -= trial.min()
            trial = np.where(trial < self.depth, trial, self.most)
            if not np.array_equal(trial, x) and (new := value(trial)) < best - 1e-9:
                return trial, new
        return None

    def finish(self, x: Floats, budget: float) -> BudgetSplit:
        """The split at x, scaled so that its cost is the budget."""
        costs = self.cost(x)
        x = x + 2 / self.exponent * math.log(float(costs.sum()) / budget)
        costs = self.cost(x)
        return BudgetSplit(
            shares=dict(zip(self.names, (costs / costs.sum()).tolist(), strict=True)),
            variances=dict(zip(self.names, (self.squares * np.exp(x)).tolist(), strict=True)),
            published=self.estimate_variances(x, list(self.groups)),
            cost=float(costs.sum()),
        )

    def meet(self, limits: Mapping[str, float]) -> BudgetSplit:
        """The split of least cost at which the mean variances keep the limits."""

        def value(x: Floats, norm: float) -> float:
            means = self.estimate_variances(x, list(limits))
            ratios = np.array([means[name] / limit for name, limit in limits.items()])
            worst = float(ratios.max())
            excess = math.log(float(((ratios / worst) ** norm).sum())) / norm
            return math.log(worst) + excess + 2 / self.exponent * math.log(float(self.cost(x).sum()))

        ends: list[Floats] = []
        for norm in NORMS if len(limits) > 1 else NORMS[:1]:
            ends = [self._search(partial(value, norm=norm), *ends)]
        published = self.finish(ends[0], 1.0).published
        worst = max(published[name] / limit for name, limit in limits.items())
        return self.finish(ends[0], worst ** (self.exponent / 2))

    def improve(
        self, weights: Mapping[str, float], limits: Mapping[str, float], budget: float, needed: BudgetSplit
    ) -> BudgetSplit:
        """The split with the least weighted sum that keeps the limits and costs the budget.

        `needed` is the split of least cost that keeps the limits; the budget must be enough for it.
        """

        def value(x: Floats, penalty: float) -> float:
            means = self.estimate_variances(x, [*weights, *limits])
            scale = (float(self.cost(x).sum()) / budget) ** (2 / self.exponent)
            worst = scale * max(means[name] / limit for name, limit in limits.items())
            total = scale * sum(weight * means[name] for name, weight in weights.items())
            return math.log(total) + penalty * math.log(max(worst, 1.0))

        x = np.log(np.array([needed.variances[name] for name in self.names]) / self.squares)
        x -= x.min()
        for penalty in PENALTIES:
            x = self._search(partial(value, penalty=penalty), x)
        return self.finish(x, budget)


@dataclass(frozen=True, eq=False)
class TreeShape:
    """A tree in which nodes of one class (exchangeable without changing the tree) are taken together.

    For each class: the class of the parents, where families begin, and the number of nodes; `times` is how many nodes
    of the class are in one family.
    """

    above: list[int]
    parents: list[Ints]
    starts: list[Ints]
    times: list[Floats]
    nodes: list[Floats]

    @staticmethod
    def of(tree: Tree) -> TreeShape:
        classes = classify(tree)
        parents: list[Ints] = []
        starts: list[Ints] = []
        times: list[Floats] = []
        nodes: list[Floats] = []
        for level, ids in zip(tree.levels, classes, strict=True):
            counts = np.bincount(ids).astype(np.float64)
            first = np.unique(ids, return_index=True)[1]
            mine = np.zeros(1, dtype=np.int64) if level.above < 0 else classes[level.above][level.parents[first]]
            new = np.append(True, mine[1:] != mine[:-1])[: len(mine)]
            parents.append(mine)
            starts.append(np.flatnonzero(new))
            above = np.ones(1) if level.above < 0 else nodes[level.above]
            times.append(counts / above[mine])
            nodes.append(counts)
        return TreeShape([level.above for level in tree.levels], parents, starts, times, nodes)

    def variances(self, measured: Sequence[float | None]) -> list[float]:
        """The mean variance of each table's estimates; `measured` are the variances of the measurements, or None.

        It is 0 for a table without cells.
        """
        count = len(self.above)
        precision = [np.full(len(n), 0.0 if s is None else 1 / s) for n, s in zip(self.nodes, measured, strict=True)]
        rising: list[Floats] = [np.zeros(0)] * count
        totals: list[Floats] = [np.zeros(0)] * count
        for i in range(count - 1, -1, -1):
            rising[i] = 1 / precision[i]
            if i:
                totals[i] = np.add.reduceat(self.times[i] * rising[i], self.starts[i])
                precision[self.above[i]][self.parents[i][self.starts[i]]] += 1 / totals[i]
        final = [rising[0]]
        for i in range(1, count):
            widths = np.diff(np.append(self.starts[i], len(self.parents[i])))
            share = rising[i] / np.repeat(totals[i], widths)
            final.append(rising[i] * (1 - share) + share**2 * final[self.above[i]][self.parents[i]])
        return [float(f @ n / max(n.sum(), 1.0)) for f, n in zip(final, self.nodes, strict=True)]


def _sample(tree: Tree, table: str, groups: Ints) -> Groups:
    """A few of the groups of cells, evenly spaced: enough to steer a search."""
    place = tree.place(table)
    level = tree.levels[place]
    given = level.select(read_groups(level, groups)[0])
    kept = np.unique(given[given >= 0])
    if not len(kept):
        raise ParameterError("margins", f"groups of {table} without cells", "a group for at least one possible cell")
    kept = kept[np.linspace(0, len(kept) - 1, min(len(kept), SAMPLED_GROUPS)).round().astype(np.int64)]
    numbers = np.full(int(given.max()) + 1, -1)
    numbers[kept] = np.arange(len(kept))
    return Groups.of(place, np.where(given >= 0, numbers[given], -1), len(kept))
