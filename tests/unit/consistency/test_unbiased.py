"""The unbiased option: exact rational estimates, and whole numbers whose mean over u is exactly the estimate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from countveil.consistency.tree import Tree
from countveil.consistency.unbiased import (
    ONE,
    ExactEstimates,
    draw_uniform,
    estimate_exactly,
    round_exactly,
    round_shares,
    round_unbiased,
)
from countveil.consistency.uniforms import Uniforms
from countveil.sampling.randomness import NoiseKey
from tests.support.trees import random_example, sum_errors, three_point_law


@pytest.mark.parametrize("seed", range(25))
def test_exact_estimates_from_measurements_without_noise_are_the_truth(seed: int) -> None:
    """Without noise the estimates are the truth, as a linear estimate with weights that add up to 1 must be."""
    example = random_example(seed)
    fit = example.fix().fit
    given = [None if z is None else n for z, n in zip(example.noise, example.truth, strict=True)]
    exact = estimate_exactly(fit, given)
    for values, truth in zip(exact.values, example.truth, strict=True):
        assert [int(v) for v in values] == [int(n) << exact.bits for n in truth]
    noisy = [None if z is None else n + z for z, n in zip(example.noise, example.truth, strict=True)]
    exact = estimate_exactly(fit, noisy)
    assert sum_errors(example.tree, exact.values) == 0
    near = fit.estimate([None if z is None else z.astype(np.float64) for z in example.noise])
    for i, (errors, truth) in enumerate(zip(near, example.truth, strict=True)):
        differences = [float(f - int(n)) for f, n in zip(exact.fractions(i), truth, strict=True)]
        assert np.allclose(differences, errors, rtol=1e-6, atol=1e-6)


def test_the_mean_of_the_rounded_counts_over_every_u_is_exactly_the_estimate() -> None:
    tree = Tree.from_parents({"a": (None, [0, 0, 0]), "b": ("a", [0, 0, 1, 1, 1, 2])})
    fit = random_fit(tree)
    values = [[-5], [7, -14, 2], [3, 4, -20, 1, 5, 2]]
    exact = ExactEstimates([np.array(v, dtype=object) for v in values], bits=3)
    runs = [round_unbiased(fit, exact, u, Uniforms(NoiseKey(bytes(32)))) for u in range(8)]  # one order
    for i, level in enumerate(values):
        published = [run[i] for run in runs]
        means = [Fraction(int(sum(column)), 8) for column in zip(*published, strict=True)]
        assert means == [Fraction(v, 8) for v in level]
        for counts in published:
            assert all(c in (v // 8, -(-v // 8)) for c, v in zip(counts, level, strict=True))
    assert all(sum_errors(tree, run) == 0 for run in runs)


def random_fit(tree: Tree) -> object:
    from countveil.consistency.reconciler import Reconciler

    return Reconciler.of(tree, three_point_law(2, 3), ("a", "b")).fit


def test_the_rounded_shares_of_a_family_add_up_to_exactly_one() -> None:
    level = Tree.from_parents({"a": (None, [0] * 3), "b": ("a", [0] * 7 + [1] + [2] * 1000)}).levels[2]
    shares = np.concatenate([np.full(7, 1 / 7), [1.0], np.full(1000, 1e-3)])
    assert level.sum_families(round_shares(level, shares)).tolist() == [ONE] * 3


def test_unbiased_counts_are_unbiased_where_nearest_ones_are_not() -> None:
    from countveil.consistency.reconciler import Reconciler

    tree = Tree.from_parents({"a": (None, [0] * 200)})
    law = three_point_law(4, 2)
    fixed = Reconciler.of(tree, law, ("a",))
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=20)
    rng = np.random.default_rng(2)
    truth = np.zeros(200, dtype=np.int64)
    truth[:20] = 50
    means = {"unbiased": [], "nearest": []}
    for _ in range(60):
        y = truth + 4 * rng.choice([-1, 0, 0, 1], 200)
        for estimate, errors in means.items():
            errors.append(float((fixed.reconcile({"a": y}, estimate=estimate)["a"].count - truth)[20:].mean()))
    deviation = 4 / np.sqrt(2 * 180 * 60)
    assert abs(np.mean(means["unbiased"])) < 6.2 * deviation
    assert np.mean(means["nearest"]) > 6.2 * deviation


def test_the_uniform_number_of_the_rounding_is_recorded_as_a_fraction() -> None:
    tree = Tree.from_parents({"a": (None, [0, 0])})
    _, text = round_exactly(random_leaf_fit(tree), [None, np.array([3, -1])], Uniforms())
    u, bits = text.split("/2^")
    assert 0 <= int(u) < 2 ** int(bits)
    draws = [draw_uniform(70, Uniforms()) for _ in range(200)]
    assert max(draws) < 2**70
    assert max(draws) > 2**69 > min(draws)


def random_leaf_fit(tree: Tree) -> object:
    from countveil.consistency.reconciler import Reconciler

    return Reconciler.of(tree, three_point_law(2, 3), ("a",)).fit
