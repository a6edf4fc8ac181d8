"""Quantiles of errors: ranks, classes of nodes, and both ways to simulate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from countveil.consistency import family_sums, simulation
from countveil.consistency.simulation import RUNS, Largest, Simulation, classify, rank_for
from countveil.consistency.tree import Tree
from tests.support.trees import random_example, three_point_law


def test_a_margin_is_too_narrow_with_a_probability_of_at_most_a_millionth() -> None:
    for runs in (500, 1000, 4000):
        rank = rank_for(runs)
        assert stats.binom.sf(rank - 1, runs, 0.95) <= 1e-6 < stats.binom.sf(rank - 2, runs, 0.95)
    assert rank_for(20) == 20  # no rank is enough: the largest error


def test_margins_are_at_most_ten_percent_wider_than_exact_quantiles_in_trees_of_any_size() -> None:
    """Exponential tails are the longest that log-concave noise can have."""
    example = random_example(3)
    assert Simulation.of(example.fix().fit, example.fix().laws).runs == RUNS
    level = rank_for(RUNS) / RUNS
    assert 1.04 < stats.norm.ppf((1 + level) / 2) / stats.norm.ppf(0.975) < 1.06
    assert 1.06 < stats.expon.ppf(level) / stats.expon.ppf(0.95) < 1.08
    level = stats.beta.ppf(0.999, rank_for(RUNS), RUNS + 1 - rank_for(RUNS))  # of nearly every simulation
    assert stats.expon.ppf(level) / stats.expon.ppf(0.95) < 1.16


@pytest.mark.parametrize("seed", range(60))
def test_nodes_of_one_class_have_equal_variances(seed: int) -> None:
    example = random_example(seed)
    fit = example.fix().fit
    for ids, variance in zip(classify(example.tree), fit.variance, strict=True):
        for one in range(int(ids.max(initial=-1)) + 1):
            values = variance[ids == one]
            assert len(values)
            assert np.ptp(values) <= 1e-9 * values.max()


def test_nodes_with_unlike_descendants_are_in_different_classes() -> None:
    parents = {"a": (None, [0, 0, 0, 0]), "b": ("a", [0, 0, 1, 1, 2, 2, 3]), "c": ("a", [0, 1, 1, 2, 3, 3])}
    classes = classify(Tree.from_parents(parents))
    assert classes[1].tolist()[0] == classes[1].tolist()[2]
    assert len(set(classes[1].tolist())) == 3
    regular = Tree.from_parents({"a": (None, [0] * 6), "b": ("a", [0, 1, 2, 3, 4, 5] * 7)})
    assert [int(ids.max()) for ids in classify(regular)] == [0, 0, 0]


def test_simulated_noise_has_the_law_of_its_table() -> None:
    example = random_example(3)
    fixed = example.fix()
    noise = Simulation.of(fixed.fit, fixed.laws).draw(3000)
    for z, law in zip(noise, fixed.laws, strict=True):
        assert (z is None) == (law is None)
        if z is not None and law is not None:
            counts = [(z == -law.left).sum(), (z == 0).sum(), (z == law.left).sum()]
            expected = np.array([law.weights[0], law.weights[law.left], law.weights[-1]]) / law.total * z.size
            assert sum(counts) == z.size
            assert stats.chisquare(counts, expected).pvalue > 1e-9


@pytest.mark.parametrize("seed", [3, 7, 11, 18, 30, 41])
@pytest.mark.parametrize("gain", [0, 10**9])
def test_errors_of_single_nodes_have_the_exact_variances(seed: int, gain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether families are summed at once (gain 0) or the noise of every node is drawn."""
    monkeypatch.setattr(family_sums, "LEAST_GAIN", gain)
    example = random_example(seed)
    fixed = example.fix()
    simulation = Simulation.of(fixed.fit, fixed.laws)
    picked = [np.unique(ids, return_index=True)[1] for ids in classify(example.tree)]
    runs = 20_000
    for errors, nodes, variance in zip(simulation.follow(picked, runs), picked, fixed.fit.variance, strict=True):
        ratio = (errors**2).mean(axis=0) / variance[nodes]
        noise = (errors**2).std(axis=0) / variance[nodes] / np.sqrt(runs)
        assert (np.abs(ratio - 1) < 7 * noise + 1e-12).all()
    columns = [
        np.resize(nodes, runs)[:, None] if len(nodes) else np.zeros((runs, 1), dtype=np.int64) for nodes in picked
    ]
    for errors, nodes, variance in zip(simulation.follow(columns, runs), columns, fixed.fit.variance, strict=True):
        if errors.size:
            ratios = errors[:, 0] ** 2 / variance[nodes[:, 0]]
            assert abs(ratios.mean() - 1) < 7 * ratios.std() / np.sqrt(runs) + 1e-12


def test_the_largest_errors_of_all_batches_are_kept() -> None:
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(1000, 7))
    largest = Largest(7, 1000)
    for start in range(0, 1000, 130):
        largest.add(errors[start : start + 130])
    expected = np.sort(np.abs(errors), axis=0)[rank_for(1000) - 1]
    assert np.allclose(largest.quantile(), expected, rtol=1e-5)
    assert (largest.quantile() >= expected).all()


def test_margins_by_class_and_standardised_margins_agree_on_a_regular_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree.from_parents({"a": (None, [0] * 5), "b": ("a", [0, 1, 2, 3, 4] * 6)})
    fixed_laws = {"a": three_point_law(4, 2), "b": three_point_law(3, 1)}
    from countveil.consistency.reconciler import Reconciler

    fixed = Reconciler.of(tree, fixed_laws, ("a", "b"))
    by_class = fixed.simulation.quantiles()
    assert by_class.exact
    monkeypatch.setattr(simulation, "MOST_CLASSES", 2)
    standardised = fixed.simulation.quantiles()
    assert not standardised.exact
    for one, other in zip(by_class.margins, standardised.margins, strict=True):
        assert np.allclose(one, other, rtol=0.08)
