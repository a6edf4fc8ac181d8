"""Sums of cells: exact standard deviations, and margins by simulation or by a proved distance to the normal law."""

from __future__ import annotations

import numpy as np
import pytest

from countveil.consistency import sums
from countveil.consistency.simulation import Simulation
from countveil.consistency.sums import Groups, find_margins, measure_sums, third_moment
from tests.support.trees import random_example, three_point_law


def test_groups_sum_cells_by_group_number_and_leave_out_negative_numbers() -> None:
    groups = Groups.of(0, np.array([2, 0, -1, 2, 0]), 4)
    values = np.array([1, 10, 100, 1000, 10000])
    assert groups.sum(values).tolist() == [10010, 0, 1001, 0]
    assert groups.sum(np.stack([values, 2 * values]))[1].tolist() == [20020, 0, 2002, 0]


@pytest.mark.parametrize("seed", [2, 3, 7, 11, 18, 30])
def test_deviations_of_sums_are_exact(seed: int) -> None:
    """Against the covariance of all estimates, made of unit measurements."""
    example = random_example(seed)
    fixed = example.fix()
    i = len(example.tree.levels) - 1
    size = len(example.tree.levels[i])
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-1, 3, size)
    found = measure_sums(fixed.fit, fixed.laws, Groups.of(i, numbers, 3)).deviations
    variance = np.zeros(3)
    for j, law in enumerate(fixed.laws):
        if law is None:
            continue
        units = [
            None if other is None else np.zeros((len(example.tree.levels[j]), len(level)))
            for other, level in zip(fixed.laws, example.tree.levels, strict=True)
        ]
        units[j] = np.eye(len(example.tree.levels[j]))
        columns = fixed.fit.estimate(units)[i]
        for group in range(3):
            variance[group] += float(law.variance) * (columns[:, numbers == group].sum(axis=1) ** 2).sum()
    assert np.allclose(found, np.sqrt(variance), rtol=1e-9, atol=1e-9)


def test_third_moments_of_noise_are_those_of_its_law() -> None:
    assert third_moment(three_point_law(3, 2)) == 27 / 2


def test_large_trees_use_the_normal_law_only_where_it_is_proved_close(monkeypatch: pytest.MonkeyPatch) -> None:
    from countveil.consistency.reconciler import Reconciler
    from countveil.consistency.tree import Tree

    tree = Tree.from_parents({"a": (None, [0] * 6000)})
    fixed = Reconciler.of(tree, three_point_law(2, 1), ("a",))
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=4000)
    numbers = np.zeros(6000, dtype=np.int64)
    numbers[:5] = 1
    groups = Groups.of(1, numbers, 2)
    errors = measure_sums(fixed.fit, fixed.laws, groups)
    assert np.allclose(errors.distances, 0.56 / np.sqrt([5995, 5]))  # noise of plus or minus 2
    assert errors.distances[0] < sums.CLOSE_TO_NORMAL < errors.distances[1]
    simulated = find_margins(fixed.simulation, groups, errors)
    monkeypatch.setattr(sums, "LARGEST_SIMULATED", 10)
    mixed = find_margins(fixed.simulation, groups, errors)
    assert 1.96 * errors.deviations[0] < mixed[0] < 2.2 * errors.deviations[0]
    assert abs(simulated[0] / mixed[0] - 1) < 0.15
    assert mixed[1] == pytest.approx(simulated[1], rel=0.3)


def test_margins_draw_at_most_one_batch_of_nodes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the margins of cells need only the sums of large families."""
    from countveil.consistency import simulation
    from countveil.consistency.reconciler import Reconciler
    from countveil.consistency.tree import Tree

    tree = Tree.from_parents({"a": (None, [0] * 20), "b": ("a", np.repeat(np.arange(20), 1000))})
    fixed = Reconciler.of(tree, three_point_law(2, 1), ("a", "b"))
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=20)
    assert fixed.simulation.draws_per_run < 100
    monkeypatch.setattr(simulation, "BATCH_NODES", 3 * len(tree))
    drawn: list[int] = []
    draw = Simulation.draw
    monkeypatch.setattr(Simulation, "draw", lambda self, runs: drawn.append(runs) or draw(self, runs))
    groups = Groups.of(2, np.arange(20_000) % 2, 2)
    find_margins(fixed.simulation, groups, measure_sums(fixed.fit, fixed.laws, groups))
    assert max(drawn) == 3
    assert sum(drawn) == 20
