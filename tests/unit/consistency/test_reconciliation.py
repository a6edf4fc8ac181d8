"""`cv.reconcile` from end to end: labels, frames, margins, sums, errors."""

from __future__ import annotations

import numpy as np
import pytest

import countveil as cv
from countveil.errors import ParameterError, RequestError
from tests.support.trees import three_point_law

CELLS = {
    "county": ["A", "A", "A", "A", "B", "B"],
    "town": ["a", "a", "b", "b", "c", "c"],
    "sex": ["f", "m", "f", "m", "f", "m"],
}
LAW = three_point_law(2, 3)
TABLES = [["county"], ["town"], ["town", "sex"]]
GIVEN = {"county": [98, 40], "town": [60, 41, 39], "town*sex": [31, 30, 22, 19, 41, 0]}


@pytest.fixture(scope="module")
def result() -> cv.Reconciliation:
    return cv.reconcile(cv.Tree.from_columns(CELLS, TABLES), GIVEN, LAW)


def test_reconciled_tables_have_labels_and_add_up(result: cv.Reconciliation) -> None:
    towns, sexes = result["town"], result["town*sex"]
    assert towns.labels["town"].tolist() == ["a", "b", "c"]
    assert towns.count.tolist() == sexes.count.reshape(3, 2).sum(axis=1).tolist()
    assert result["total"].count.tolist() == [result["county"].count.sum()]
    assert not result["total"].measured
    assert result.claim == "each cell"
    assert repr(result) == "<Reconciliation of <Tree total: 1, county: 2, town: 3, town*sex: 6>>"


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_measurements_and_results_can_be_frames(kind: str) -> None:
    import narwhals as nw

    tree = cv.Tree.from_columns(CELLS, TABLES)
    order = [5, 2, 0, 1, 4, 3]
    columns = {name: [CELLS[name][i] for i in order] for name in ("town", "sex")}
    frame = nw.from_dict({**columns, "count": [GIVEN["town*sex"][i] for i in order]}, backend=kind).to_native()
    result = cv.reconcile(tree, {**GIVEN, "town*sex": frame}, LAW)
    plain = cv.reconcile(tree, GIVEN, LAW)
    assert np.allclose(result["town*sex"].estimate, plain["town*sex"].estimate)
    out = nw.from_native(result["town*sex"].to(kind), eager_only=True)
    assert out.columns == ["town", "sex", "count", "low", "high", "certain_low", "certain_high"]
    assert out["count"].to_list() == result["town*sex"].count.tolist()
    missing = nw.from_dict({**columns, "count": [1] * 6}, backend=kind).head(5).to_native()
    with pytest.raises(
        ParameterError, match="got 5 rows for 5 of its cells, allowed is one row for each of its 6 cells"
    ):
        cv.reconcile(tree, {**GIVEN, "town*sex": missing}, LAW)
    with pytest.raises(ParameterError, match="a frame with the columns town, sex, count"):
        cv.reconcile(tree, {**GIVEN, "town*sex": nw.from_dict({"n": [1]}, backend=kind).to_native()}, LAW)


def test_an_unknown_kind_of_frame_is_refused(result: cv.Reconciliation) -> None:
    with pytest.raises(ParameterError, match="one of pandas, polars, pyarrow"):
        result["town"].to("excel")


def test_margins_have_an_unbiased_estimate_and_the_sum_of_published_cells(result: cv.Reconciliation) -> None:
    margin = result.margin("town*sex", "sex")
    cells = result["town*sex"]
    sums = [cells.estimate[::2].sum(), cells.estimate[1::2].sum()]
    assert np.abs(margin.estimate - sums).max() <= 0.5 + 1e-9
    assert margin.sum_of_cells.tolist() == [cells.count[::2].sum(), cells.count[1::2].sum()]
    assert (margin.low <= margin.estimate).all()
    assert (margin.estimate <= margin.high).all()
    assert len(margin) == 2
    alone = result.sum("town*sex", [0, 2, 4])
    assert alone.estimate.tolist() == margin.estimate[:1].tolist()
    assert alone.deviation == pytest.approx(margin.deviation[:1])


def test_a_sum_of_a_whole_family_has_the_deviation_of_its_parent(result: cv.Reconciliation) -> None:
    assert result.sum("town*sex", [0, 1]).deviation == pytest.approx(result["town"].deviation[:1])


def test_a_signed_mechanism_may_be_given_in_place_of_its_law() -> None:
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    tree = cv.Tree.from_parents({"town": (None, [0, 0])})
    assert cv.reconcile(tree, {"town": [5, 7]}, {"town": mechanism})["town"].measured
    with pytest.raises(ParameterError, match="policy signed"):
        cv.reconcile(tree, {"town": [5, 7]}, cv.design(epsilon="1", eta="0.5", D=3))


def test_structural_zeros_are_zero_whatever_was_measured() -> None:
    tree = cv.Tree.from_parents({"town": (None, [0, 0, 0])}, zeros={"town": [False, True, False]})
    table = cv.reconcile(tree, {"town": [5, 999, 7]}, LAW)["town"]
    assert (table.count[1], table.low[1], table.high[1], table.certain_high[1]) == (0, 0, 0, 0)


@pytest.mark.parametrize("estimate", ["nearest", "unbiased"])
def test_margins_of_counts_that_no_float_can_hold_contain_the_truth(estimate: cv.consistency.Estimate) -> None:
    n = 2**58 + 1
    tree = cv.Tree.from_parents({"a": (None, [0, 0]), "b": ("a", [0, 0, 1, 1])})
    counts = np.array([n, 5, n + 40, 3])
    found = cv.reconcile(tree, {"a": [n + 5, n + 43], "b": counts}, LAW, estimate=estimate).margin("b", [0, 1, 0, 1])
    assert found.estimate.tolist() == [2 * n + 40, 8]
    assert (found.low <= [2 * n + 40, 8]).all()
    assert (found.high >= [2 * n + 40, 8]).all()
    assert np.abs(found.gap - (found.sum_of_cells - [2 * n + 40, 8])).max() < 1e-6


@pytest.mark.parametrize("estimate", ["nearest", "unbiased"])
@pytest.mark.parametrize("measured", [["a", "empty", "below"], ["a"]])
def test_tables_without_possible_cells_are_zero(estimate: cv.consistency.Estimate, measured: list[str]) -> None:
    parents = {"a": (None, [0, 0]), "empty": ("a", [0, 0]), "below": ("empty", [0, 0, 1])}
    tree = cv.Tree.from_parents(parents, zeros={"empty": [True, True]})
    given = {name: np.full(tree.levels[tree.place(name)].size, 5) for name in measured}
    result = cv.reconcile(tree, given, LAW, estimate=estimate)
    assert abs(result["a"].count[1] - 5) <= 2
    assert result["empty"].count.tolist() == [0, 0]
    assert result["below"].high.tolist() == [0, 0, 0]
    assert result.margin("below", [0, 1, 1]).estimate.tolist() == [0, 0]


def test_bad_arguments_are_refused_in_one_line(result: cv.Reconciliation) -> None:
    tree = cv.Tree.from_columns(CELLS, TABLES)
    for match, call in {
        "measurements: got village, allowed is a table of the tree": lambda: cv.reconcile(tree, {"village": [1]}, LAW),
        "got no law for town, allowed is a mapping": lambda: cv.reconcile(tree, GIVEN, {"county": LAW}),
        "one of nearest, unbiased": lambda: cv.reconcile(tree, GIVEN, LAW, estimate="best"),  # type: ignore[arg-type]
        "one whole number for each of its 3 cells": lambda: cv.reconcile(tree, {**GIVEN, "town": [1, 2]}, LAW),
        "a law of mean 0": lambda: cv.reconcile(tree, GIVEN, cv.Law((1, 1), 0, 1)),
        "a Law, or a Mechanism": lambda: cv.reconcile(tree, GIVEN, {"county": 3, "town": LAW, "town*sex": LAW}),
        "a table of the tree": lambda: result["village"],
        "a column of the table: town, sex": lambda: result.margin("town*sex", "age"),
        "one whole number for each of the 6 cells": lambda: result.margin("town*sex", [1, 2]),
        "a group number of 0 or more": lambda: result.margin("town*sex", [-1] * 6),
        "a number below 1060; number the groups 0, 1, 2": lambda: result.margin("town*sex", [10**9] * 6),
        "groups: got lists of unequal lengths": lambda: result.margin("town*sex", [[1], [1, 2]]),
        "cells: got lists of unequal lengths": lambda: result.sum("town*sex", [[1], [1, 2]]),
        "different numbers from 0 to 5": lambda: result.sum("town*sex", [3, 3]),
        "at least one": lambda: result.sum("town*sex", []),
    }.items():
        with pytest.raises(ParameterError, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match="it must be measured"):
        cv.reconcile(tree, {"county": [1, 2]}, LAW)


def test_the_argument_progress_is_called_during_the_simulation() -> None:
    steps = []

    def watch(items: object) -> object:
        for item in items:  # type: ignore[attr-defined]
            steps.append(item)
            yield item

    cv.reconcile(cv.Tree.from_columns(CELLS, TABLES), GIVEN, LAW, progress=watch)  # type: ignore[arg-type]
    assert steps
