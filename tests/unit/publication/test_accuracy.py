"""A plan that is made keeps the margin of every table that has one, whether the table is measured or not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import countveil as cv
from countveil.config.publications import DeclaredPublication, DeclaredTable
from countveil.errors import InfeasibleError
from countveil.planning.plans import Plan
from countveil.publication.accuracy import find_margins, plan_publications
from countveil.publication.layout import Layout, lay_out
from countveil.publication.outlook import foresee
from countveil.query.schema import Column, Schema

SHAPES: list[list[tuple[str, ...]]] = [
    [(), ("x",), ("x", "y")],
    [(), ("x",), ("x", "y"), ("x", "y", "z")],
    [("x",), ("x", "y")],
    [(), ("x",), ("y",)],
]


def plan_tables(layout: Layout, epsilon: str) -> Plan:
    schema = layout.question.schema
    terms: dict[str, Any] = {"cells": schema.cells_per_person, "sensitivity": schema.rows_per_person}
    terms |= {"policy": "nonnegative", "neighbours": "add-remove", "objective": "variance"}
    return plan_publications([layout], {}, epsilon=epsilon, delta="1e-6", **terms)


def publication(
    schema: Schema, tables: list[tuple[tuple[str, ...], int | None]], *, editions: int = 1, weight: str | None = None
) -> Layout:
    declared = tuple(DeclaredTable(by, margin, None if margin else weight) for by, margin in tables)
    return lay_out(DeclaredPublication("census", "people", declared, Path("out"), editions), schema)


def check_margins(layout: Layout, planned: Plan) -> list[str]:
    """Assert that every declared margin is kept; returns the tables with margins that are not measured."""
    mechanisms = {layout.tables[int(g.name.rpartition("-")[2]) - 1].name: g.mechanism for g in planned.grades}
    margins = find_margins(layout, mechanisms)
    wanted = {table.name: table.margin for table in layout.tables if table.margin is not None}
    assert {name: margins[name] for name in wanted if margins[name] > wanted[name]} == {}
    return [name for name in wanted if name not in mechanisms]


def places(*sizes: int, rows: int = 1, cells: int = 1) -> Schema:
    columns = tuple(Column(name, "integer", low=1, high=size) for name, size in zip("xyz", sizes, strict=False) if size)
    return Schema("people", columns, "id", rows, cells)


def test_the_margin_of_a_table_that_is_not_measured_is_kept_by_finer_tables() -> None:
    """The finer tables would keep their own margins with more noise, but not the one of the total."""
    layout = publication(places(4, 6), [((), 60), (("x",), 40), (("x", "y"), 35)])
    assert check_margins(layout, plan_tables(layout, "0.3")) == ["total"]


@pytest.mark.slow  # a search for what would fit
def test_the_error_for_a_margin_that_no_plan_keeps_states_the_given_epsilon_and_delta() -> None:
    layout = publication(places(3, 2, rows=2, cells=3), [((), 400), (("x",), 50), (("x", "y"), None)])
    with pytest.raises(InfeasibleError, match=r"too fine for epsilon 0\.3, delta 1e-6; .*of table x of publication"):
        plan_tables(layout, "0.3")


def draw_publication(rng: random.Random) -> Layout:
    rows, cells = rng.choice([(1, 1), (2, 1), (2, 3)])
    schema = places(rng.choice([2, 3, 5]), rng.choice([2, 4]), rng.choice([2, 3]), rows=rows, cells=cells)
    tables: list[tuple[tuple[str, ...], int | None]] = []
    for by in rng.choice(SHAPES):
        margin = rows * cells * int(math.exp(rng.uniform(math.log(8), math.log(120))))
        tables.append((by, margin if rng.random() < 0.7 else None))
    return publication(schema, tables, editions=rng.choice([1, 1, 3]), weight=rng.choice([None, "0.01", "30"]))


@pytest.mark.slow  # plans are designed
def test_plans_keep_every_margin_on_random_trees() -> None:
    kept = 0
    for seed in range(6):
        rng = random.Random(seed)
        layout = draw_publication(rng)
        try:
            planned = plan_tables(layout, rng.choice(["0.3", "1", "2"]))
        except InfeasibleError:
            continue
        check_margins(layout, planned)
        kept += 1
    assert kept >= 3


def test_the_expected_time_follows_what_is_simulated_and_not_the_number_of_cells() -> None:
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    seconds = {}
    for margins in ((), (DeclaredTable(("y",)),)):
        tables = tuple(map(DeclaredTable, (("x",), ("x", "y"))))
        declared = DeclaredPublication("census", "people", tables, Path("out"), margins=margins)
        layout = lay_out(declared, places(100, 1000))
        laws = {"x": mechanism, "x*y": mechanism}
        outlook = foresee(layout, laws, epsilon="1", delta="1e-6", pool="p", editions_left=1, answers=2)
        seconds[len(margins)] = outlook.seconds
        assert [(each.grade, each.answers, each.share) for each in outlook.tables] == [
            (None, 0, 0.0),
            ("census-1", 1, 0.5),
            ("census-2", 1, 0.5),
        ]
    assert seconds[0] <= 3
    assert 10 <= seconds[1] <= 30  # every run of the simulation of sums across the tree estimates all cells


def test_the_largest_error_of_an_outlook_is_exact_beyond_the_integers_of_floats() -> None:
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    wide, wider = replace(mechanism, D=2**53 + 1), replace(mechanism, D=3 * 2**53)
    layout = publication(places(2, 3), [((), None), (("x",), None), (("x", "y"), None)])
    laws = {"total": wider, "x": wider, "x*y": wide}
    outlook = foresee(layout, laws, epsilon="1", delta="1e-6", pool="p", editions_left=1, answers=3)
    assert [each.worst_error for each in outlook.tables] == [6 * 2**53, 6 * 2**53, 2 * (2**53 + 1)]
    laws["x"] = replace(mechanism, D=4 * 2**53)
    outlook = foresee(layout, laws, epsilon="1", delta="1e-6", pool="p", editions_left=1, answers=3)
    assert [each.worst_error for each in outlook.tables] == [6 * 2**53, 6 * (2**53 + 1), 2 * (2**53 + 1)]
