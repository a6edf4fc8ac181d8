"""Conversion between fields and SQL, as far as fields can express a question."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, strategies as st
from starlette.datastructures import FormData

from countveil.query import ask
from countveil.query.schema import Column, Schema
from countveil.service.web.ask_page import split_at_error
from countveil.service.web.fields import Fields, Filter, from_form, from_question, to_sql

SCHEMA = Schema(
    "people",
    (
        Column("region", "text", ("North", "it's", 'a "b"', "Süd")),
        Column("age", "integer", low=0, high=119, step=10),
        Column("born", "date", low=datetime.date(1900, 1, 1).toordinal(), high=datetime.date(2026, 12, 31).toordinal()),
        Column("member", "boolean", (False, True)),
        Column("order", "integer", tuple(range(5))),
    ),
    "person",
    rows_per_person=3,
)
KNOWN = {"people": SCHEMA}


def subset(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """Some values or none, but never all of them: all values are no test."""
    some = st.sets(st.sampled_from(values), min_size=0, max_size=len(values) - 1)
    return some.map(lambda chosen: tuple(value for value in values if value in chosen))


@st.composite
def ranges(draw: st.DrawFn, low: int, high: int, format_point: object = str) -> tuple[str, str]:
    a = draw(st.integers(low + 1, high - 1))
    b = draw(st.integers(a, high - 1))
    write = format_point if callable(format_point) else str
    return (write(a) if draw(st.booleans()) else "", write(b) if draw(st.booleans()) else "")


@st.composite
def fields(draw: st.DrawFn) -> Fields:
    grouped = st.booleans()
    age = draw(ranges(0, 119))
    born = draw(
        ranges(SCHEMA.columns[2].low, SCHEMA.columns[2].high, lambda point: str(datetime.date.fromordinal(point)))
    )
    return Fields(
        "people",
        draw(st.booleans()),
        {
            "region": Filter(draw(grouped), draw(subset(("North", "it's", 'a "b"', "Süd")))),
            "age": Filter(draw(grouped), (), *age),
            "born": Filter(False, (), *born),
            "member": Filter(draw(grouped), draw(subset(("false", "true")))),
            "order": Filter(draw(grouped), draw(subset(tuple("01234")))),
        },
    )


@given(fields())
def test_fields_survive_conversion_to_sql_and_back(original: Fields) -> None:
    assert from_question(ask(KNOWN, to_sql(original, SCHEMA))) == original


@pytest.mark.parametrize(
    "where",
    [
        "region = 'North' OR age >= 65",
        "age IS NULL",
        "age < 10 OR age > 90",
        "region IS NULL OR region = 'North'",
    ],
)
def test_sql_that_the_form_fields_cannot_express_sets_beyond(where: str) -> None:
    assert from_question(ask(KNOWN, f"SELECT count(*) FROM people WHERE {where}")).beyond


def test_a_submitted_form_gives_fields_and_sql() -> None:
    form = FormData([("g0", "on"), ("v0", "North"), ("v0", "it's"), ("a1", " 20 "), ("b1", ""), ("people", "on")])
    submitted = from_form(form, SCHEMA)
    assert submitted.people
    assert submitted.filters["region"] == Filter(True, ("North", "it's"))
    assert submitted.filters["age"] == Filter(False, (), "20", "")
    sql = to_sql(submitted, SCHEMA)
    assert sql == (
        "SELECT region, count(DISTINCT person) FROM people WHERE region IN ('North', 'it''s') AND age >= 20 "
        "GROUP BY region"
    )


def test_typed_values_are_literals_or_refused() -> None:
    """Text cannot leave its quotes; the parser refuses what is not a number."""
    typed = Fields(
        "people", False, {"region": Filter(False, ("' OR 1=1 --",)), "age": Filter(False, (), "1 OR 1=1", "")}
    )
    with pytest.raises(Exception, match="query not allowed"):
        ask(KNOWN, to_sql(typed, SCHEMA))


@pytest.mark.parametrize(
    ("sql", "position", "parts"),
    [
        ("age < sqrt(4)", 7, ("age < ", "sqrt", "(4)")),
        ("a ! b", 3, ("a ", "!", " b")),
        ("abc", 4, ("abc", "(here)", "")),
        ("abc", 99, ("abc", "(here)", "")),
        ("", 1, ("", "(here)", "")),
        ("region = 'Nrth' OR x", 10, ("region = ", "'Nrth'", " OR x")),
        ("a = 'it''s' AND b = 'c'", 5, ("a = ", "'it''s'", " AND b = 'c'")),
        ("a = '' AND b", 5, ("a = ", "''", " AND b")),
        ("a = 'open", 5, ("a = ", "'open", "")),
        ("a = 'open'' ", 5, ("a = ", "'open'' ", "")),
        ('"a ""b"" c" = 1', 1, ("", '"a ""b"" c"', " = 1")),
        ("age > 3.25)", 7, ("age > ", "3.25", ")")),
        ("age > -3.25)", 7, ("age > ", "-3.25", ")")),
        ("born > DATE '2020-13-01' AND", 8, ("born > ", "DATE '2020-13-01'", " AND")),
        ("born > date'x'", 8, ("born > ", "date'x'", "")),
        ("date > 3", 1, ("", "date", " > 3")),
        ("people.age", 1, ("", "people", ".age")),
    ],
)
def test_the_word_at_the_position_of_an_error_is_marked(sql: str, position: int, parts: tuple[str, str, str]) -> None:
    assert split_at_error(sql, position) == parts
