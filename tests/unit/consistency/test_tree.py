"""Trees: nodes in the order of their parents, structural zeros, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from countveil.consistency.tree import Tree
from countveil.errors import ParameterError, RequestError


def test_nodes_are_sorted_by_their_parents_and_restored_to_declared_order() -> None:
    tree = Tree.from_parents({"county": (None, [0, 0, 0]), "town": ("county", [2, 0, 2, 1])})
    town = tree.levels[2]
    assert town.parents.tolist() == [0, 1, 2, 2]
    declared = np.array([10, 20, 30, 40])
    assert town.select(declared).tolist() == [20, 40, 10, 30]
    assert town.restore(town.select(declared)).tolist() == declared.tolist()
    assert town.sum_families(town.select(declared)).tolist() == [20, 40, 40]


def test_structural_zeros_are_no_nodes_and_make_zeros_of_coarser_and_finer_cells() -> None:
    tables = {"county": (None, [0, 0]), "town": ("county", [0, 0, 1]), "sex": ("town", [0, 0, 1, 1, 2, 2])}
    tree = Tree.from_parents(tables, zeros={"sex": np.array([False, True, True, True, False, False])})
    assert [len(level) for level in tree.levels] == [1, 2, 2, 3]
    assert tree.levels[2].restore(np.array([5, 7])).tolist() == [5, 0, 7]
    below = Tree.from_parents(tables, zeros={"county": np.array([True, False])})
    assert [len(level) for level in below.levels] == [1, 1, 1, 2]


def test_a_table_whose_parents_are_all_structural_zeros_has_no_nodes() -> None:
    tables = {"county": (None, [0, 0]), "town": ("county", [1, 1])}
    tree = Tree.from_parents(tables, zeros={"county": np.array([False, True])})
    assert [len(level) for level in tree.levels] == [1, 1, 0]
    assert tree.find_leaves(1).tolist() == [True]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"town": ("county", [0])}, "coarser table of town"),
        ({"total": (None, [0])}, "every tree has"),
        ({"town": (None, [])}, "at least one"),
        ({"a": (None, [0, 0]), "b": ("a", [0, 2])}, "parent of cell 1 of b: got 2, allowed is a cell from 0 to 1"),
        ({"a": (None, [0, 0]), "b": ("a", [0, -1])}, "parent of cell 1 of b: got -1"),
        ({"a": (None, [0, 0]), "b": ("a", [0.5, 1])}, "whole numbers"),
        ({"a": (None, [[0], [0, 0]])}, "parents of a: got lists of unequal lengths"),
    ],
)
def test_bad_parents_are_refused_in_one_line(tables: dict[str, tuple[str | None, list[int]]], message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        Tree.from_parents(tables)
    assert "\n" not in str(caught.value)


def test_bad_zeros_are_refused() -> None:
    tables = {"town": (None, [0, 0])}
    with pytest.raises(ParameterError, match="a table of the tree"):
        Tree.from_parents(tables, zeros={"county": np.array([True])})
    with pytest.raises(ParameterError, match="one truth value for each of its 2 cells"):
        Tree.from_parents(tables, zeros={"town": [0, 1]})
    with pytest.raises(RequestError, match="every cell is a structural zero"):
        Tree.from_parents(tables, zeros={"town": [True, True]})
