"""The split of a budget is within 2 % of a fine grid, and targets are met at the least cost."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from countveil.consistency.least_squares import solve
from countveil.consistency.split import NORMAL_95, TreeShape, split_budget
from countveil.consistency.tree import Tree
from countveil.errors import InfeasibleError, ParameterError, RequestError
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
    expected = [float(v.mean()) if len(v) else math.nan for v in fit.variance]
    if any(not len(v) for v in fit.variance):
        return
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
    with pytest.raises(RequestError, match="one group for each of the 60 cells"):
        split_budget(tree, weights={"m": 1}, margins={"m": ("c", np.zeros(3, dtype=np.int64))})
