"""Trees from columns: coarser tables are found, missing ones added, crossing ones refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from countveil.consistency.tree import Tree
from countveil.errors import ParameterError, RequestError

TOWNS = {"a": "A", "b": "A", "c": "B", "d": "C"}
ROWS = list(itertools.product(TOWNS, ("f", "m"), range(3)))
CELLS = {
    "county": [TOWNS[town] for town, _, _ in ROWS],
    "town": [town for town, _, _ in ROWS],
    "sex": [sex for _, sex, _ in ROWS],
    "age": [age for _, _, age in ROWS],
}


def parents_of(tree: Tree) -> dict[str, str]:
    return {level.name: tree.levels[level.above].name for level in tree.levels[1:]}


def test_the_hierarchy_of_tables_is_read_from_the_cells() -> None:
    tree = Tree.from_columns(CELLS, [["town", "sex", "age"], ["county"], ["town"], [], ["town", "sex"]])
    assert parents_of(tree) == {
        "county": "total",
        "town": "county",
        "town*sex": "town",
        "town*sex*age": "town*sex",
    }
    assert tree.added == ()
    town = tree.levels[tree.place("town")]
    assert town.labels["town"].tolist() == ["a", "b", "c", "d"]
    assert town.parents.tolist() == [0, 0, 1, 2]


def test_a_missing_common_coarsening_is_added_and_named() -> None:
    tree = Tree.from_columns(CELLS, [["county"], ["town", "sex"], ["town", "age"]])
    assert tree.added == ("town", "total")
    assert parents_of(tree) == {"county": "total", "town": "county", "town*sex": "town", "town*age": "town"}


def test_a_tree_has_no_cells_but_the_given_ones() -> None:
    kept = [i for i, (town, sex, _) in enumerate(ROWS) if (town, sex) != ("b", "m")]
    cells = {name: [values[i] for i in kept] for name, values in CELLS.items()}
    tree = Tree.from_columns(cells, [["town"], ["town", "sex"]])
    assert [len(level) for level in tree.levels] == [1, 4, 7]


def test_a_common_coarsening_that_no_column_names_is_found_by_connected_rows() -> None:
    cells = {"one": [0, 0, 1, 2], "other": [0, 1, 1, 2]}
    tree = Tree.from_columns(cells, [["one"], ["other"]])
    assert tree.added == ("common part of one and other", "total")
    assert parents_of(tree)["one"] == parents_of(tree)["other"] == "common part of one and other"
    assert [len(level) for level in tree.levels] == [1, 2, 3, 3]


def test_tables_that_cross_are_refused_and_named() -> None:
    with pytest.raises(RequestError, match="tables county and sex cross, and town\\*sex is finer than both"):
        Tree.from_columns(CELLS, [["county"], ["sex"], ["town", "sex"]])
    with pytest.raises(RequestError, match="tables town\\*sex and town\\*age cross"):
        Tree.from_columns(CELLS, [["town", "sex"], ["town", "age"], ["town", "sex", "age"]])
    with pytest.raises(RequestError, match="cross"):
        Tree.from_columns(CELLS, [["sex"], ["town", "sex"], ["town", "age"]])


def test_two_tables_of_one_name_are_refused_also_if_one_is_added() -> None:
    cells = {"total": [0, 0, 1, 1], "ok": [0, 1, 0, 1]}
    with pytest.raises(RequestError, match=r"two tables are called total: .*; total is the name of a table"):
        Tree.from_columns(cells, [["total"], ["total", "ok"]])
    with pytest.raises(RequestError, match="two tables are called a: give them different names"):
        Tree.from_columns(CELLS, [["town"], ["town", "sex"]], names=["a", "a"])


def test_equal_tables_and_unknown_columns_are_refused() -> None:
    with pytest.raises(RequestError, match="tables town and county\\*town have the same cells"):
        Tree.from_columns(CELLS, [["town"], ["county", "town"]])
    with pytest.raises(ParameterError, match="columns of the cells: county, town, sex, age"):
        Tree.from_columns(CELLS, [["village"]])
    with pytest.raises(ParameterError, match="one name for each"):
        Tree.from_columns(CELLS, [["town"]], names=["a", "b"])
    with pytest.raises(ParameterError, match="columns of one length"):
        Tree.from_columns({"town": [1], "sex": [1, 2]}, [["town"]])
    with pytest.raises(ParameterError, match="column town: got lists of unequal lengths"):
        Tree.from_columns({"town": [[1], [1, 2]]}, [["town"]])


def test_a_frame_with_two_columns_of_one_name_is_refused() -> None:
    import pandas as pd

    with pytest.raises(ParameterError, match="cells: got two columns of one name"):
        Tree.from_columns(pd.DataFrame([["x", 1]], columns=["town", "town"]), [["town"]])


@pytest.mark.parametrize("name", ["count", "low", "high", "certain_low", "certain_high"])
def test_labels_cannot_have_the_name_of_a_published_number(name: str) -> None:
    cells = {"town": ["a", "b", "c"], name: [1, 1, 2]}
    with pytest.raises(ParameterError, match=f"table: got {name}, allowed is a list of columns with other names than"):
        Tree.from_columns(cells, [[name], ["town"]])
    other = {"one": [0, 0, 1, 2], "other": [0, 1, 1, 2], name: [1, 1, 1, 2]}
    assert name not in Tree.from_columns(other, [["one"], ["other"]]).added  # which has the same cells


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_the_cells_of_a_tree_can_be_a_frame(kind: str) -> None:
    import narwhals as nw

    frame = nw.from_dict(CELLS, backend=kind).to_native()
    tree = Tree.from_columns(frame, [["county"], "town"], names=["counties", "towns"])
    assert tree.names == ("total", "counties", "towns")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64])
def test_cells_are_told_apart_by_labels_of_any_integer_type(kind: type[np.integer]) -> None:
    labels = [int(np.iinfo(kind).max) - i for i in range(201)]
    assert len(Tree.from_columns({"code": np.array(labels, dtype=kind)}, ["code"]).levels[1]) == 201


def test_nodes_keep_the_order_of_the_cells() -> None:
    cells = {"county": ["B", "A", "B", "A"], "town": ["x", "y", "z", "w"]}
    tree = Tree.from_columns(cells, [["county"], ["town"]])
    town = tree.levels[2]
    assert town.labels["town"].tolist() == ["x", "y", "z", "w"]
    assert town.restore(np.asarray(town.labels["town"])[town.declared]).tolist() == ["x", "y", "z", "w"]
