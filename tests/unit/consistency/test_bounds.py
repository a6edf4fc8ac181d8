"""Certain bounds: the truth is inside, whole numbers inside can be divided, impossible measurements are refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from countveil.consistency.bounds import bound_counts, fill, find_reference
from countveil.consistency.tree import Tree
from countveil.errors import ParameterError, RequestError
from tests.support.trees import random_example, sum_errors


def test_certain_bounds_are_the_extremes_of_all_tables_within_the_noise_bounds() -> None:
    """By brute force over all tables of a small tree."""
    tree = Tree.from_parents({"a": (None, [0, 0]), "b": ("a", [0, 0, 1])})
    rng = np.random.default_rng(1)
    for _ in range(50):
        leaves = rng.integers(0, 3, 3)
        truth = [np.array([leaves.sum()]), np.array([leaves[:2].sum(), leaves[2]]), leaves]
        y = [n + rng.integers(-1, 2, len(n)) for n in truth]
        bounds = bound_counts(tree, y, [(-1, 1)] * 3)
        possible = []
        for cells in itertools.product(range(6), repeat=3):
            tables = [np.array([sum(cells)]), np.array([cells[0] + cells[1], cells[2]]), np.array(cells)]
            if all((np.abs(table - given) <= 1).all() for table, given in zip(tables, y, strict=True)):
                possible.append(np.concatenate(tables))
        least, most = np.min(possible, axis=0), np.max(possible, axis=0)
        low, high = np.concatenate(bounds.low), np.concatenate(bounds.high)
        assert low.tolist() == least.tolist()
        assert high.tolist() == most.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_table_adds_up_and_is_within_the_bounds(seed: int) -> None:
    example = random_example(seed)
    fixed = example.fix()
    given = fixed.read(example.measurements)
    ends = [None if law is None else (law.least, law.greatest) for law in fixed.laws]
    bounds = bound_counts(example.tree, given, ends)
    reference = find_reference(example.tree, bounds)
    assert sum_errors(example.tree, reference) == 0
    for counts, low, high in zip(reference, bounds.low, bounds.high, strict=True):
        assert ((low <= counts) & (counts <= high)).all()


def test_the_function_fill_gives_no_cell_more_than_its_capacity() -> None:
    level = Tree.from_parents({"a": (None, [0, 0]), "b": ("a", [0, 0, 0, 1, 1])}).levels[2]
    assert fill(level, np.array([5, 1]), np.array([2, 2, 9, 0, 4])).tolist() == [2, 2, 1, 0, 1]


def test_measurements_that_no_tables_can_have_given_are_refused() -> None:
    tree = Tree.from_parents({"a": (None, [0, 0])})
    with pytest.raises(RequestError, match="no tables of counts lie within the noise bounds"):
        bound_counts(tree, [np.array([100]), np.array([1, 2])], [(-2, 2), (-2, 2)])
    with pytest.raises(RequestError, match="cut at 0"):
        bound_counts(tree, [None, np.array([1, -5])], [None, (-2, 2)])


def test_sums_that_could_leave_64_bits_are_refused() -> None:
    tree = Tree.from_parents({"a": (None, [0, 0])})
    with pytest.raises(ParameterError, match="2\\^61"):
        bound_counts(tree, [None, np.array([2**61, 2**61])], [None, (-2, 2)])
