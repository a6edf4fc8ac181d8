"""Sums of families have the convolution of their law, and the noise of chosen nodes is part of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from countveil.consistency.family_sums import FamilySums, SumLaw
from countveil.consistency.tree import Tree
from countveil.consistency.uniforms import Uniforms
from countveil.laws.law import Law
from countveil.numeric.exact_numbers import convolve

LAW = Law((1, 2, 8, 3, 2), 2, 4)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_the_law_of_a_family_sum_is_the_exact_convolution(size: int) -> None:
    weights = [1]
    for _ in range(size):
        weights = convolve(weights, LAW.weights)
    exact = np.cumsum([float(Fraction(w, LAW.total**size)) for w in weights])
    law = SumLaw.of(LAW, size)
    assert law.least == -2 * size
    assert np.abs(law.ends - exact).max() < 1e-12


def test_family_sums_are_drawn_by_inverting_the_cumulated_probabilities() -> None:
    law = SumLaw.of(LAW, 5)
    uniform = np.random.default_rng(1).random(20_000)
    assert law.draw(uniform).tolist() == (np.searchsorted(law.ends, uniform, side="right") - 10).tolist()
    assert law.draw(np.array([0.0, 1 - 2.0**-53])).tolist()[0] == -10


def test_chosen_nodes_have_the_law_and_their_family_sums_have_its_convolution() -> None:
    level = Tree.from_parents({"a": (None, [0] * 3), "b": ("a", [0] * 6 + [1] + [2] * 4)}).levels[2]
    sums = FamilySums(level, LAW, Uniforms())
    nodes = np.array([2, 6, 9])
    own, family, totals = sums.draw_with(nodes, 30_000)
    assert family.tolist() == [0, 1, 2]
    assert (own[:, 1] == totals[:, 1]).all()
    counts = [(own[:, 0] == z).sum() for z, _ in LAW.items()]
    expected = np.array(LAW.weights) / LAW.total * 30_000
    assert stats.chisquare(counts, expected).pvalue > 1e-9
    variance = float(LAW.variance)
    for column, size in enumerate((6, 1, 4)):
        assert totals[:, column].var() == pytest.approx(size * variance, rel=0.1)
        assert np.cov(own[:, column], totals[:, column])[0, 1] == pytest.approx(variance, rel=0.15)
    assert np.corrcoef(own[:, 0], totals[:, 2])[0, 1] == pytest.approx(0, abs=0.05)


def test_drawing_family_sums_pays_only_if_families_are_large_and_the_table_is_small() -> None:
    wide = Tree.from_parents({"a": (None, [0] * 8)}).levels[1]
    narrow = Tree.from_parents({"a": (None, [0] * 8), "b": ("a", list(range(8)) * 2)}).levels[2]
    assert FamilySums.pays(wide, LAW)
    assert not FamilySums.pays(narrow, LAW)
    assert not FamilySums.pays(Tree.from_parents({"a": (None, [0] * 2_000_000)}).levels[1], LAW)
