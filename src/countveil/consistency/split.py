"""How to divide a budget among the tables of a tree so that the published numbers are best.

A measurement of variance s costs about (d^2 / s)^(p/2), where d is the sensitivity, and p is 1 if few answers share the
budget (pure epsilon) and 2 if many do. What matters is not the variance of the measurements but that of the
least-squares estimates, to which all tables contribute. It is computed exactly on the public tree; nodes that can be
exchanged without changing the tree are computed once. A pattern search over the logarithms of the variances finds the
best split. Target margins are met through multipliers: a table that misses its target gets more weight.

These are floats and a search: a split is a proposal, and the laws of the noise are certified as always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from countveil.consistency.least_squares import solve
from countveil.consistency.simulation import classify
from countveil.consistency.sums import Groups
from countveil.consistency.tree import TOTAL, Floats, Ints, Tree
from countveil.errors import InfeasibleError, ParameterError, RequestError

NORMAL_95 = 1.96
FIRST_STEP, LAST_STEP = 1.0, 0.004
ROUNDS = 60
SAMPLED_GROUPS = 16
LEAST_SHARE = 0.005
"""Shares of the budget are searched down to this fraction of the largest; a table that gets no more is left out."""


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
    names = tuple(name for name in tree.names if name != TOTAL) if measured is None else tuple(measured)
    for name in (*names, *(sensitivity or {})):
        tree.place(name)
    if not 1 <= exponent <= 2:
        raise ParameterError("exponent", exponent, "a number from 1 to 2")
    known = (*tree.names, *(margins or {}))
    for argument, given in (("weights", weights or {}), ("targets", targets or {})):
        for name, value in given.items():
            if name not in known or not 0 <= value < math.inf or (argument == "targets" and not value):
                least = "a number above 0" if argument == "targets" else "a number of 0 or more"
                raise ParameterError(f"{argument} of {name}", value, f"{least} for one of {', '.join(known)}")
    search = _Search(tree, names, dict(sensitivity or {}), exponent, dict(margins or {}))
    limits = {name: (margin / NORMAL_95) ** 2 for name, margin in (targets or {}).items()}
    if not limits:
        counts = dict(weights) if weights else dict.fromkeys(names, 1.0)
        if not any(counts.values()):
            raise ParameterError("weights", counts, "at least one weight above 0")
        return search.finish(search.minimise(counts), 1.0 if budget is None else budget)
    needed = search.meet(limits)
    if budget is not None and needed.cost > budget * (1 + 1e-9):
        raise InfeasibleError(
            f"the target margins need a budget of {needed.cost:.6g}, more than {budget:.6g}",
            f"margins {math.sqrt((needed.cost / budget) ** (2 / exponent)):.3g} times as wide are possible",
        )
    if not weights or budget is None:
        return needed
    return search.improve(dict(weights), limits, budget)


@dataclass(eq=False)
class _Search:
    """The search for the best split on one tree; x are the logarithms of the variances of the measured tables."""

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
        self.depth = -2 / self.exponent * math.log(LEAST_SHARE)
        self.finest = [i for i, name in enumerate(self.names) if self.tree.find_leaves(self.tree.place(name)).any()]
        self.starts = self._list_starts()

    def _list_starts(self) -> list[Floats]:
        """The values of x at which the first search begins.

        There are several, because for few answers the best split can leave tables out, and there are local optima.
        """
        count = len(self.names)
        off = (1 - np.eye(count)) * self.depth
        starts = [np.zeros(count), *(self.depth - off), *off]
        for start in starts:
            start[self.finest] = 0.0
        return list({tuple(start): start for start in starts}.values())

    def cost(self, x: Floats) -> Floats:
        d = np.array([self.sensitivity.get(name, 1) for name in self.names], dtype=np.float64)
        return np.asarray((d * np.exp(-x / 2)) ** self.exponent, dtype=np.float64)

    def estimate_variances(self, x: Floats, wanted: Sequence[str]) -> dict[str, float]:
        """The mean variances of the estimates of all tables, and of sums across the tree if any of `wanted` is one."""
        at = dict(zip(self.names, np.exp(x), strict=True))
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
        """The x at which the weighted sum of mean variances is least for a fixed cost, shifted to a minimum of 0.

        The next search starts from the result.
        """
        wanted = [name for name, weight in weights.items() if weight]

        def value(x: Floats) -> float:
            means = self.estimate_variances(x, wanted)
            total = sum(weights[name] * means[name] for name in wanted)
            return math.log(total) + 2 / self.exponent * math.log(float(self.cost(x).sum()))

        ends = [self._descend(start, value) for start in self.starts]
        x = min(ends, key=lambda end: end[1])[0]
        self.starts = [x - x.min()]
        return self.starts[0]

    def _descend(self, x: Floats, value: Callable[[Floats], float]) -> tuple[Floats, float]:
        """Compass search from x: steps along one coordinate grow when they succeed and shrink when they fail."""
        best = value(x)
        steps = np.full(len(x), FIRST_STEP)
        while len(x) > 1 and steps.max() > LAST_STEP:
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
            trial[i] += sign * step
            if np.ptp(trial) <= self.depth and (new := value(trial)) < best - 1e-9:
                return trial, new
        return None

    def finish(self, x: Floats, budget: float) -> BudgetSplit:
        """The split at x, scaled so that its cost is the budget; tables of no use are left out."""
        useless = x - x.min() > self.depth - 2 * FIRST_STEP / 3
        useless[self.finest] = False
        x = np.where(useless, math.inf, x)
        costs = self.cost(x)
        x = x + 2 / self.exponent * math.log(float(costs.sum()) / budget)
        costs = self.cost(x)
        return BudgetSplit(
            shares=dict(zip(self.names, (costs / costs.sum()).tolist(), strict=True)),
            variances=dict(zip(self.names, np.exp(x).tolist(), strict=True)),
            published=self.estimate_variances(x, list(self.groups)),
            cost=float(costs.sum()),
        )

    def meet(self, limits: Mapping[str, float]) -> BudgetSplit:
        """The split of least cost at which the mean variances keep the limits."""
        multipliers = {name: 1 / limit for name, limit in limits.items()}
        best: BudgetSplit | None = None
        for _ in range(ROUNDS):
            x = self.minimise(multipliers)
            unscaled = self.finish(x, 1.0).published
            ratios = {name: unscaled[name] / limit for name, limit in limits.items()}
            worst = max(ratios.values())
            split = self.finish(x, worst ** (self.exponent / 2))
            if best is None or split.cost < best.cost:
                best = split
            if min(ratios.values()) > 0.999 * worst:
                break
            for name, ratio in ratios.items():
                multipliers[name] = max(multipliers[name] * ratio / worst, 1e-12 / limits[name])
        assert best is not None
        return best

    def improve(self, weights: Mapping[str, float], limits: Mapping[str, float], budget: float) -> BudgetSplit:
        """The split with the least weighted sum that keeps the limits and costs the budget, which must be enough."""
        total = sum(weights.values())
        pull = dict.fromkeys(limits, 1e-3)
        best = self.meet(limits)
        best = self.finish(self.starts[0], budget)

        def value(split: BudgetSplit) -> float:
            return sum(weights[name] * split.published[name] for name in weights)

        for _ in range(ROUNDS):
            scale = value(best) / total
            mixed = dict(weights)
            for name, factor in pull.items():
                mixed[name] = mixed.get(name, 0.0) + factor * scale * total / limits[name]
            split = self.finish(self.minimise(mixed), budget)
            ratios = {name: split.published[name] / limit for name, limit in limits.items()}
            if max(ratios.values()) <= 1 + 1e-3 and value(split) < value(best):
                best = split
            for name, ratio in ratios.items():
                pull[name] = max(pull[name] * ratio**2, 1e-9)
        return best


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
            new = np.append(True, mine[1:] != mine[:-1])
            parents.append(mine)
            starts.append(np.flatnonzero(new))
            above = np.ones(1) if level.above < 0 else nodes[level.above]
            times.append(counts / above[mine])
            nodes.append(counts)
        return TreeShape([level.above for level in tree.levels], parents, starts, times, nodes)

    def variances(self, measured: Sequence[float | None]) -> list[float]:
        """The mean variance of each table's estimates; `measured` are the variances of the measurements, or None."""
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
            total = np.repeat(totals[i], widths)
            share = rising[i] / total
            final.append(rising[i] - share**2 * (total - final[self.above[i]][self.parents[i]]))
        return [float(f @ n / n.sum()) for f, n in zip(final, self.nodes, strict=True)]


def _sample(tree: Tree, table: str, groups: Ints) -> Groups:
    """A few of the groups of cells, evenly spaced: enough to steer a search."""
    place = tree.place(table)
    given = np.asarray(groups)
    if given.shape != (tree.levels[place].size,):
        raise RequestError(f"a margin needs one group for each of the {tree.levels[place].size} cells of {table}")
    kept = np.unique(given[given >= 0])
    kept = kept[np.linspace(0, len(kept) - 1, min(len(kept), SAMPLED_GROUPS)).round().astype(np.int64)]
    numbers = np.full(int(given.max()) + 1, -1)
    numbers[kept] = np.arange(len(kept))
    return Groups.of(place, tree.levels[place].select(np.where(given >= 0, numbers[given], -1)), len(kept))
