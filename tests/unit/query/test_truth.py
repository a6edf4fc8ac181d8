"""Every question says what it counts, within which bounds, from the schema alone."""

from __future__ import annotations

import pytest

from countveil.query import ask
from countveil.query.schema import Column, Schema
from countveil.query.truth import PLAIN, WITHIN

REGION = Column("region", "text", ("North", "South", "East"))
VISITS = Schema("visits", (REGION,), "patient", 3, 2)
SINGLE = Schema("visits", (REGION,), "patient")
PEOPLE = Schema("people", (REGION,))


@pytest.mark.parametrize(
    ("schema", "count", "text", "interval"),
    [
        (VISITS, "count(*)", "rows of people; at most 3 rows each in a cell, 2 cells each", WITHIN),
        (VISITS, "count(DISTINCT patient)", "people; each once in a cell, at most 2 cells each", WITHIN),
        (SINGLE, "count(*)", "people; at most 1 row each in a cell, 1 cell each", WITHIN),
        (PEOPLE, "count(*)", "rows; every row is one person", PLAIN),
    ],
)
def test_a_question_says_what_it_counts_and_within_which_bounds(
    schema: Schema, count: str, text: str, interval: str
) -> None:
    truth = ask(schema, f"SELECT region, {count} FROM {schema.name} GROUP BY region").truth
    assert (truth.text, truth.interval, truth.bounded) == (text, interval, interval == WITHIN)
    assert truth.sentence == (f"{text}; {WITHIN}" if truth.bounded else text)
    assert (truth.unit, truth.rows_per_person, truth.cells_per_person) == (
        schema.unit,
        schema.rows_per_person,
        schema.cells_per_person,
    )


def test_counting_people_in_no_more_cells_than_the_bound_leaves_nobody_out() -> None:
    asked = "SELECT count(DISTINCT patient) FROM visits"
    assert ask(VISITS, asked).truth.interval == PLAIN
    assert ask(VISITS, "SELECT region, count(DISTINCT patient) FROM visits GROUP BY region").truth.interval == WITHIN


def test_a_total_of_rows_counts_within_the_bounds_too() -> None:
    assert ask(VISITS, "SELECT count(*) FROM visits").truth.bounded


def test_rows_are_described_as_people_only_if_each_person_has_one() -> None:
    counted = [ask(schema, f"SELECT count(*) FROM {schema.name}").truth.counted for schema in (VISITS, SINGLE, PEOPLE)]
    assert counted == ["rows", "people", "rows"]


def test_large_bounds_are_written_with_commas() -> None:
    schema = Schema("visits", (REGION,), "patient", 1000, 10_000)
    assert ask(schema, "SELECT count(*) FROM visits").truth.text.endswith(
        "1,000 rows each in a cell, 10,000 cells each"
    )
