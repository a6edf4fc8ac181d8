"""Python conditions written as text: the text asks the same question, and names keep their case."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, strategies as st

import countveil as cv
from countveil.query import Condition, ask, parse_condition, write_condition
from countveil.query.expression import ColumnComparison, Constant, Name
from countveil.query.schema import Column, Schema

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


@pytest.mark.slow  # counting calls is slow
@given(CONDITIONS)
def test_the_text_of_a_condition_asks_the_same_question(condition: Condition) -> None:
    text = write_condition(condition)
    assert ask(SCHEMA, where=text).sha256 == ask(SCHEMA, where=condition).sha256
    assert write_condition(parse_condition(text)) == text


def test_only_necessary_parentheses_are_written() -> None:
    a, b, c = cv.col("a") == 1, cv.col("b") == 2, cv.col("c") == 3
    assert write_condition(a & (b & c) | a & b) == '"a" = 1 AND "b" = 2 AND "c" = 3 OR "a" = 1 AND "b" = 2'
    assert write_condition(a & ~~(b | c) & ~~~c) == '"a" = 1 AND ("b" = 2 OR "c" = 3) AND NOT "c" = 3'


def test_the_case_of_a_python_name_is_significant() -> None:
    schema = Schema("people", (Column("Age", "integer", low=0, high=9),))
    for where in (cv.col("age") == 1, write_condition(cv.col("age") == 1)):
        with pytest.raises(cv.QueryError, match="the column age is not declared"):
            ask(schema, where=where)


def test_writing_and_asking_an_invalid_condition_fail_with_the_same_message() -> None:
    deep: Condition = cv.col("age") == 1
    for _ in range(20_000):
        deep = (deep | (cv.col("ok") == True)) & (cv.col("age") == 2)  # noqa: E712
    for condition in (cv.col("age").isin([]), deep, Condition()):
        with pytest.raises(cv.QueryError) as writing:
            write_condition(condition)
        with pytest.raises(cv.QueryError) as asking:
            ask(SCHEMA, where=condition)
        assert str(writing.value) == str(asking.value)


def test_subclasses_of_text_and_the_least_integer_are_written_exactly() -> None:
    class Text(str):
        def __str__(self) -> str:
            return "not this"

    assert write_condition(ColumnComparison(Name("a"), "=", Constant(Text("this")))) == "\"a\" = 'this'"
    assert write_condition(cv.col("a") == -(2**63)) == '"a" = -9223372036854775808'
