"""The split of a budget is within 2 % of a fine grid, and targets are met at the least cost."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from countveil.consistency.least_squares import solve
from countveil.consistency.split import NORMAL_95, TreeShape, split_budget
from countveil.consistency.tree import Tree
from countveil.errors import InfeasibleError, ParameterError, RequestError
from tests.support.effort import FAST
from tests.support.trees import random_example

TREES = {
    "regular": {"a": (None, [0] * 4), "b": ("a", [0, 1, 2, 3] * 5), "c": ("b", list(range(20)) * 3)},
    "uneven": {"a": (None, [0] * 3), "b": ("a", [0, 0, 0, 0, 0, 0, 1, 2, 2]), "c": ("b", [0] * 30 + list(range(9)))},
    "two partitions": {"a": (None, [0] * 5), "b": ("a", [0, 1, 2, 3, 4] * 2), "c": ("a", [0, 1, 2, 3, 4] * 9)},
}
WEIGHTS = ({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0}, {"c": 1.0}, {"total": 0.1, "b": 3.0})


@pytest.mark.parametrize("seed", range(60))
def test_the_shape_of_a_tree_gives_the_mean_variance_of_each_table(seed: int) -> None:
    example = random_example(seed)
    variances = [float(example.laws[n].variance) if n in example.laws else None for n in example.tree.names]
    fit = solve(example.tree, variances)
    expected = [float(v.mean()) if len(v) else 0.0 for v in fit.variance]
    assert np.allclose(TreeShape.of(example.tree).variances(variances), expected, rtol=1e-9)


def grid_optimum(tree: Tree, weights: dict[str, float], exponent: float) -> float:
    """The least weighted variance over a fine grid of shares, also with tables left out."""
    shape = TreeShape.of(tree)
    steps = np.concatenate([[0.0], np.geomspace(0.004, 1, 45)])
    best = math.inf
    for shares in itertools.product(steps, steps, [1.0]):
        total = sum(shares)
        at = [math.inf if not s else (total / s) ** (2 / exponent) for s in shares]
        variances: list[float | None] = [None if v == math.inf else v for v in at]
        if any(v is None and bool(tree.find_leaves(i + 1).any()) for i, v in enumerate(variances)):
            continue
        means = dict(zip(tree.names, shape.variances([None, *variances]), strict=True))
        best = min(best, sum(w * means[name] for name, w in weights.items()))
    return best


@pytest.mark.parametrize("exponent", [1.0, 2.0])
@pytest.mark.parametrize("name", TREES)
def test_the_split_is_within_two_percent_of_the_best_one_on_a_fine_grid(name: str, exponent: float) -> None:
    tree = Tree.from_parents(TREES[name])
    for weights in WEIGHTS:
        split = split_budget(tree, weights=weights, exponent=exponent)
        value = sum(w * split.published[table] for table, w in weights.items())
        assert value < 1.02 * grid_optimum(tree, weights, exponent)
        assert split.cost == pytest.approx(1)
        assert sum(split.shares.values()) == pytest.approx(1)


def random_problem(seed: int) -> tuple[Tree, dict[str, float], float, dict[str, int]]:
    """A tree of two to four tables, and weights, exponent and sensitivities."""
    rng = np.random.default_rng(seed)
    sizes: dict[str | None, int] = {None: 1}
    tables = {}
    for i in range(int(rng.integers(2, 5))):
        above = list(sizes)[-1 if rng.random() < 0.7 else int(rng.integers(0, len(sizes)))]
        size = min(sizes[above] * int(rng.choice([1, 2, 5, 20])), 400)
        parents = rng.integers(0, sizes[above], size) if rng.random() < 0.5 else np.arange(size) % sizes[above]
        tables[f"t{i}"], sizes[f"t{i}"] = (above, parents), size
    tree = Tree.from_parents(tables)
    weights = {name: float(rng.choice([0, 1, 10, 0.01])) for name in tree.names}
    drawn = [int(d) for d in rng.choice([1, 1, 3, 10], len(tables))]
    drawn = [[1] * len(drawn), sorted(drawn, reverse=True), drawn][seed % 3]
    exponent = float(rng.choice([1, 1.5, 2]))
    return tree, {**weights, "t0": weights["t0"] or 1.0}, exponent, dict(zip(tables, drawn, strict=True))


def coarse_optimum(tree: Tree, weights: dict[str, float], exponent: float, sensitivity: dict[str, int]) -> float:
    """The least weighted variance over a coarse grid of shares, refined three times around its best point."""
    shape, d = TreeShape.of(tree), np.array(list(sensitivity.values()), dtype=float)
    needed = [bool(tree.find_leaves(tree.place(name)).any()) for name in sensitivity]

    def value(shares: tuple[float, ...]) -> float:
        if not any(shares) or any(n and not s for n, s in zip(needed, shares, strict=True)):
            return math.inf
        at = [None if not s else x * x * (sum(shares) / s) ** (2 / exponent) for s, x in zip(shares, d, strict=True)]
        means = dict(zip(tree.names, shape.variances([None, *at]), strict=True))
        return sum(w * means[name] for name, w in weights.items())

    grid = list(itertools.product([0, 0.001, 0.05, 0.2, 1], repeat=len(d)))
    best = min(grid, key=value)
    for step in (1.8, 1.3, 1.1):
        around = [[s / step, s, s * step] if s else [0.0] for s in best]
        best = min(itertools.product(*around), key=value)
    return value(best)


@pytest.mark.parametrize("seed", range(12 if FAST else 60))
def test_the_split_is_within_two_percent_of_a_grid_on_random_trees_with_sensitivities(seed: int) -> None:
    tree, weights, exponent, sensitivity = random_problem(seed)
    split = split_budget(tree, weights=weights, exponent=exponent, sensitivity=sensitivity)
    value = sum(w * split.published[table] for table, w in weights.items())
    assert value < 1.02 * coarse_optimum(tree, weights, exponent, sensitivity)


@pytest.mark.parametrize("exponent", [1.5, 2.0])
def test_a_cheap_fine_table_alone_is_found(exponent: float) -> None:
    towns, streets = np.arange(10) % 2, np.arange(200) % 10
    tree = Tree.from_parents({"region": (None, [0, 0]), "town": ("region", towns), "street": ("town", streets)})
    weights, dear = {"region": 10, "street": 10, "total": 10}, {"region": 10, "town": 10}
    split = split_budget(tree, weights=weights, exponent=exponent, sensitivity=dear)
    assert split.shares == {"region": 0, "town": 0, "street": 1}
    assert sum(10 * split.published[name] for name in weights) == pytest.approx(3010)


def test_tables_that_must_be_measured_but_do_not_count_get_almost_nothing() -> None:
    tree = Tree.from_parents({"a": (None, [0] * 5), "b": ("a", np.arange(10) % 5)})
    split = split_budget(tree, weights={"a": 1}, exponent=2, sensitivity={"a": 1, "b": 10})
    assert split.shares["b"] < 0.01
    assert split.published["a"] < 1.01
    for dear in (10**9, 10**20):  # floats keep the variance of a beside the one of b
        one = Tree.from_parents({"a": (None, [0]), "b": ("a", [0])})
        assert split_budget(one, weights={"b": 1}, sensitivity={"b": dear}).published["b"] == pytest.approx(1, rel=0.01)
    parents = [1, 1, 1, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 12, 13, 14, 14, 19, 19, 19]
    tree = Tree.from_parents({"t0": (None, [0] * 20), "t1": ("t0", parents), "t2": (None, [0, 0])})
    weights = {"total": 1, "t0": 10, "t1": 10}
    split = split_budget(tree, weights=weights)
    assert sum(w * split.published[name] for name, w in weights.items()) < 117


def test_a_table_without_possible_cells_gets_no_share() -> None:
    parents: dict[str, tuple[str | None, list[int]]] = {"a": (None, [0, 0]), "b": ("a", [0]), "c": ("b", [0, 0])}
    tree = Tree.from_parents(parents, zeros={"a": [True, False]})
    split = split_budget(tree)
    assert split.shares == {"a": 1, "b": 0, "c": 0}
    assert split.published == pytest.approx({"total": 1, "a": 1, "b": 0, "c": 0})
    assert split_budget(tree, targets={"a": 1.96, "b": 1}).variances["a"] == pytest.approx(1)
    with pytest.raises(ParameterError, match="for a table with possible cells"):
        split_budget(tree, weights={"b": 1})
    with pytest.raises(ParameterError, match="a group for at least one possible cell"):
        split_budget(tree, weights={"m": 1}, margins={"m": ("b", [0])})


def test_for_a_margin_that_is_no_table_the_split_prefers_the_finest_table() -> None:
    tree = Tree.from_parents({"a": (None, [0] * 4), "b": ("a", [0, 1, 2, 3] * 25)})
    groups = np.arange(100) // 4 % 5
    across = split_budget(tree, weights={"m": 1}, margins={"m": ("b", groups)})
    inside = split_budget(tree, weights={"a": 1})
    assert across.shares["b"] > inside.shares["b"]
    fit = solve(tree, [None if v == math.inf else v for v in (math.inf, *across.variances.values())])
    from countveil.consistency.sums import Groups

    weights = fit.weigh(Groups.of(2, groups, 5).targets(fit, 0, 5))
    given = [0.0, *(0.0 if v == math.inf else v for v in across.variances.values())]
    expected = sum(s * (w * w).sum() for s, w in zip(given, weights, strict=True)) / 5
    assert across.published["m"] == pytest.approx(expected)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_margin_targets_are_met_at_the_least_cost(exponent: float) -> None:
    tree = Tree.from_parents(TREES["uneven"])
    targets = {"a": 6.0, "c": 4.0}
    split = split_budget(tree, targets=targets, exponent=exponent)
    for name, margin in targets.items():
        assert NORMAL_95 * math.sqrt(split.published[name]) <= margin * 1.0001
    best = math.inf
    for x, y in itertools.product(np.geomspace(0.5, 2000, 40), repeat=2):
        means = dict(zip(tree.names, TreeShape.of(tree).variances([None, x, y, 1.0]), strict=True))
        scale = min((m / NORMAL_95) ** 2 / means[name] for name, m in targets.items())
        best = min(best, sum((scale * v) ** (-exponent / 2) for v in (x, y, 1.0)))
    assert split.cost < 1.03 * best


def test_tables_with_targets_and_tables_with_weights_share_a_budget() -> None:
    tree = Tree.from_parents(TREES["regular"])
    needed = split_budget(tree, targets={"a": 5})
    split = split_budget(tree, targets={"a": 5}, weights={"c": 1}, budget=2 * needed.cost)
    free = split_budget(tree, weights={"c": 1}, budget=2 * needed.cost)
    assert NORMAL_95 * math.sqrt(split.published["a"]) <= 5.01
    assert free.published["c"] <= split.published["c"] * 1.001
    assert split.cost == pytest.approx(2 * needed.cost)
    few = Tree.from_parents({"a": (None, [0] * 5), "b": ("a", np.arange(2500) % 5)})
    split = split_budget(few, targets={"a": 30}, weights={"b": 1}, budget=1.0)  # the least share of a that is enough
    assert NORMAL_95 * math.sqrt(split.published["a"]) <= 30.01
    assert split.published["b"] < 1.12
    with pytest.raises(InfeasibleError, match="margins 2 times as wide are possible"):
        split_budget(tree, targets={"a": 5}, weights={"c": 1}, budget=needed.cost / 2)


def test_a_table_of_larger_sensitivity_gets_noise_of_larger_variance() -> None:
    tree = Tree.from_parents(TREES["regular"])
    plain = split_budget(tree, exponent=2)
    dear = split_budget(tree, sensitivity={"a": 3}, exponent=2)
    assert dear.variances["a"] > plain.variances["a"]


def test_bad_arguments_are_refused() -> None:
    tree = Tree.from_parents(TREES["regular"])
    with pytest.raises(ParameterError, match="exponent"):
        split_budget(tree, exponent=3)
    with pytest.raises(ParameterError, match="weights of d"):
        split_budget(tree, weights={"d": 1})
    with pytest.raises(ParameterError, match="targets of a"):
        split_budget(tree, targets={"a": 0})
    with pytest.raises(ParameterError, match="at least one weight above 0"):
        split_budget(tree, weights={"a": 0})
    with pytest.raises(RequestError, match="it must be measured"):
        split_budget(tree, measured=["a", "b"])


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        *(("budget: got", {"budget": budget}) for budget in (0, -1, math.nan, math.inf, "1", True)),
        *(("sensitivity of a: got", {"sensitivity": {"a": d}}) for d in (0, -1, 1.5, "x")),
        *(("weights of a: got", {"weights": {"a": w}}) for w in ("x", -1, math.nan, math.inf, None)),
        *(("targets of a: got", {"targets": {"a": t}}) for t in ("x", 0, 1e-300, 1e300, math.nan)),
        ("exponent: got", {"exponent": "x"}),
        ("allowed is a name that no table of the tree has", {"margins": {"a": ("c", np.zeros(60, dtype=np.int64))}}),
        ("one whole number for each of the 60 cells", {"margins": {"m": ("c", np.zeros(3, dtype=np.int64))}}),
        ("one whole number for each of the 60 cells", {"margins": {"m": ("c", np.zeros(60))}}),
        ("only negative numbers", {"margins": {"m": ("c", np.full(60, -1))}}),
    ],
)
def test_bad_numbers_and_groups_are_refused(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=message) as refused:
        split_budget(Tree.from_parents(TREES["regular"]), **arguments)
    assert "\n" not in str(refused.value)
