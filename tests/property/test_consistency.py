"""Publications on hundreds of random trees with extreme noise: what holds with certainty holds every time."""

from __future__ import annotations

import numpy as np
import pytest

from countveil.consistency.reconciliation import Reconciliation
from countveil.consistency.tree import Ints
from tests.support.effort import FAST
from tests.support.trees import Example, random_example, sum_errors

SEEDS = range(60 if FAST else 400)


def reconcile(example: Example, estimate: str = "nearest") -> Reconciliation:
    fixed = example.fix()
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=20)  # margins do not matter here
    return fixed.reconcile(example.measurements, estimate=estimate)


def nodes_of(result: Reconciliation, name: str) -> list[Ints]:
    return [level.select(getattr(result[level.name], name)) for level in result.tree.levels]


@pytest.mark.slow  # hundreds of trees
@pytest.mark.parametrize("part", range(4))
def test_at_extreme_noise_published_tables_add_up_and_are_within_their_certain_bounds(part: int) -> None:
    for seed in SEEDS[part::4]:
        example = random_example(seed)
        result = reconcile(example)
        counts = nodes_of(result, "count")
        assert sum_errors(example.tree, counts) == 0, seed
        for level, count, truth in zip(example.tree.levels, counts, example.truth, strict=True):
            table = result[level.name]
            assert count.dtype == np.int64
            assert (count >= 0).all(), seed
            certain_low, certain_high = level.select(table.certain_low), level.select(table.certain_high)
            assert ((certain_low <= count) & (count <= certain_high)).all(), seed
            assert ((certain_low <= truth) & (truth <= certain_high)).all(), seed
            if level.name in example.laws:
                assert (np.abs(count - truth) <= 2 * example.laws[level.name].left).all(), seed
            assert ((table.low <= table.count) & (table.count <= table.high)).all(), seed
            assert ((table.certain_low <= table.low) & (table.high <= table.certain_high)).all(), seed
            outside = np.ones(level.size, dtype=bool)
            outside[np.arange(level.size) if level.declared is None else level.declared] = False
            assert not table.count[outside].any()
            assert not table.high[outside].any()


@pytest.mark.slow  # hundreds of trees
def test_unbiased_tables_add_up_and_are_within_one_of_their_estimates() -> None:
    for seed in SEEDS:
        example = random_example(seed)
        result = reconcile(example, "unbiased")
        counts = nodes_of(result, "count")
        assert sum_errors(example.tree, counts) == 0, seed
        for level in example.tree.levels:
            table = result[level.name]
            near = 1 + 1e-6 * np.abs(table.estimate) + 1e-4
            assert (np.abs(table.count - table.estimate) <= near).all(), seed
            assert ((table.low <= table.count) & (table.count <= table.high)).all(), seed


def test_among_the_random_trees_every_feature_occurs() -> None:
    examples = [random_example(seed) for seed in range(60)]
    trees = [example.tree for example in examples]
    assert any(len(tree.below(i)) > 1 for tree in trees for i in range(len(tree.levels)))
    assert any(len(example.laws) < len(example.tree.levels) for example in examples)
    assert any(level.declared is not None for tree in trees for level in tree.levels)
    assert any(len(level) < level.size for tree in trees for level in tree.levels)
    assert any(not len(level) for tree in trees for level in tree.levels)
    assert any(not len(tree.levels[level.above]) for tree in trees for level in tree.levels[1:])
    assert any(len(tree) == 2 for tree in trees)
    assert any(int(example.truth[0][0]) > 2**52 for example in examples)
    assert any(tree.find_leaves(i).any() and tree.below(i) for tree in trees for i in range(len(tree.levels)))
