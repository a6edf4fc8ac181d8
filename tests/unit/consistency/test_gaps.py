"""How much sums of published cells exceed the true sums: expected from a guess, and estimated after a publication."""

from __future__ import annotations

import numpy as np
import pytest

import countveil as cv
from countveil.consistency.reconciler import Reconciler
from countveil.errors import ParameterError
from tests.support.trees import three_point_law

LAW = three_point_law(3, 2)
TOWNS = 20
TREE = cv.Tree.from_parents({"town": (None, [0] * TOWNS), "sex": ("town", np.repeat(np.arange(TOWNS), 2))})
TRUTH = {"town": np.full(TOWNS, 50), "sex": np.tile([50, 0], TOWNS)}
SEXES = np.tile([0, 1], TOWNS)


def measure(rng: np.random.Generator) -> dict[str, np.typing.NDArray[np.int64]]:
    """The truth with noise: -3 and 3 with probability 1/4 each."""
    return {name: counts + rng.choice([-3, 0, 0, 3], len(counts)) for name, counts in TRUTH.items()}


def test_the_mean_gap_of_a_margin_is_the_one_expected_from_the_truth() -> None:
    """Both are the mean excess of the sum of published cells over the true sum."""
    fixed = Reconciler.of(TREE, LAW, ("town", "sex"))
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=20)  # intervals do not matter here
    rng = np.random.default_rng(2)
    gaps, excess = [], []
    for _ in range(100):
        margin = fixed.reconcile(measure(rng)).margin("sex", SEXES)
        gaps.append(margin.gap)
        excess.append(margin.sum_of_cells - [50 * TOWNS, 0])
        assert (np.abs(margin.sum_of_cells - margin.gap - margin.estimate) <= 0.5 + 1e-6).all()
    expected = cv.expect_gaps(TREE, TRUTH, LAW, "sex", SEXES, runs=100)
    for values in (np.array(gaps), np.array(excess)):
        doubt = np.hypot(values.std(axis=0) / 10, expected.error)
        assert (np.abs(values.mean(axis=0) - expected.mean) < 6 * doubt).all()
    assert expected.mean[1] > 15 * expected.error[1]  # 20 empty cells
    assert expected.mean[0] < -15 * expected.error[0]


def test_no_gap_is_expected_where_no_count_is_small() -> None:
    guess = {"town": np.full(TOWNS, 100), "sex": np.full(2 * TOWNS, 50)}
    expected = cv.expect_gaps(TREE, guess, LAW, "sex", SEXES)
    assert (np.abs(expected.mean) < 6 * expected.error).all()


def test_bad_arguments_are_refused_in_one_line() -> None:
    for match, call in {
        "counts add up": lambda: cv.expect_gaps(TREE, {**TRUTH, "town": TRUTH["town"] + 1}, LAW, "sex", SEXES),
        "none of them negative": lambda: cv.expect_gaps(TREE, {"sex": TRUTH["sex"] - 1}, LAW, "sex", SEXES),
        "at least 2": lambda: cv.expect_gaps(TREE, TRUTH, LAW, "sex", SEXES, runs=1),
        "a table of the tree": lambda: cv.expect_gaps(TREE, TRUTH, LAW, "age", SEXES),
        "a column of the table": lambda: cv.expect_gaps(TREE, TRUTH, LAW, "sex", "sex"),
    }.items():
        with pytest.raises(ParameterError, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)
