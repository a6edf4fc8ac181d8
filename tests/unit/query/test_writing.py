"""Conditions of Python, written as text: the text asks the same, and a column is meant as it is spelled."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countveil as cv
from countveil.query import Condition, ask, parse_condition, written
from countveil.query.expression import Comparison, Constant, Name
from countveil.schema import Column, Schema

AWKWARD = ("it's", 'a "b"', "", " x ", "--", "NULL", "Größe", "\n", "DATE '2026-01-31'", "%_\\")
SCHEMA = Schema(
    "people",
    (
        Column("age", "integer", low=-5, high=5),
        Column('od"d name', "text", AWKWARD),
        Column("ok", "boolean", (False, True)),
        Column("Date", "date", low=datetime.date(2026, 1, 1).toordinal(), high=datetime.date(2026, 1, 9).toordinal()),
    ),
)
NAMES = [column.name for column in SCHEMA.columns]


def values(name: str) -> st.SearchStrategy[object]:
    column = SCHEMA.by_name[name]
    return st.sampled_from([column.value(point) for point in range(column.first, column.last + 1)])


@st.composite
def simple_conditions(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(NAMES))
    column, some = cv.col(name), values(name)
    forms: list[st.SearchStrategy[Condition]] = [
        st.just(column.is_null()),
        st.builds(column.__eq__, some),
        st.builds(column.__ne__, some),
        st.builds(column.isin, st.lists(some, min_size=1, max_size=4)),
    ]
    if name != "ok":
        forms += [st.builds(column.__lt__, some), st.builds(column.__ge__, some), st.builds(column.between, some, some)]
    return draw(st.one_of(forms))


CONDITIONS = st.recursive(
    simple_conditions(),
    lambda inner: st.one_of(
        st.builds(lambda a: ~a, inner),
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
    ),
    max_leaves=12,
)


@pytest.mark.slow  # counting calls slows them down
@given(CONDITIONS)
def test_the_text_asks_the_same(condition: Condition) -> None:
    text = written(condition)
    assert ask(SCHEMA, where=text).sha256 == ask(SCHEMA, where=condition).sha256
    assert written(parse_condition(text)) == text


def test_parentheses_are_few() -> None:
    a, b, c = cv.col("a") == 1, cv.col("b") == 2, cv.col("c") == 3
    assert written(a & (b & c) | a & b) == '"a" = 1 AND "b" = 2 AND "c" = 3 OR "a" = 1 AND "b" = 2'
    assert written(a & ~~(b | c) & ~~~c) == '"a" = 1 AND ("b" = 2 OR "c" = 3) AND NOT "c" = 3'


def test_names_are_meant_as_they_are_spelled() -> None:
    schema = Schema("people", (Column("Age", "integer", low=0, high=9),))
    for where in (cv.col("age") == 1, written(cv.col("age") == 1)):
        with pytest.raises(cv.QueryError, match="the column age is not declared"):
            ask(schema, where=where)


def test_what_cannot_be_written_is_refused_as_it_is_when_it_is_asked() -> None:
    deep: Condition = cv.col("age") == 1
    for _ in range(20_000):
        deep = (deep | (cv.col("ok") == True)) & (cv.col("age") == 2)  # noqa: E712
    for condition in (cv.col("age").isin([]), deep, Condition()):
        with pytest.raises(cv.QueryError) as there:
            written(condition)
        with pytest.raises(cv.QueryError) as here:
            ask(SCHEMA, where=condition)
        assert str(there.value) == str(here.value)


def test_numbers_and_text_of_other_types_keep_their_value() -> None:
    class Text(str):
        def __str__(self) -> str:
            return "not this"

    assert written(Comparison(Name("a"), "=", Constant(Text("this")))) == "\"a\" = 'this'"
    assert written(cv.col("a") == -(2**63)) == '"a" = -9223372036854775808'
