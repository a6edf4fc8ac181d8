"""Conditions written in Python: every common mistake gets a QueryError that says what to write."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from countveil.errors import QueryError
from countveil.query import ask, check_form, col
from countveil.query.expression import Among, Both, ColumnComparison, Constant, Name, Negation
from countveil.query.schema import Column, Schema
from tests.support.effort import within

SCHEMA = Schema(
    "people",
    (
        Column("age", "integer", low=0, high=120),
        Column("region", "text", ("North", "South")),
        Column("ok", "boolean", (False, True)),
        Column("born", "date", low=700_000, high=740_000),
    ),
)


def ask_where(where: Any, **more: Any) -> Any:
    return ask(SCHEMA, dataset="people", where=where, **more)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "and": (lambda: (col("age") > 5) and (col("ok") == True), "join conditions with & | ~"),  # noqa: E712
    "or": (lambda: (col("age") > 5) or (col("age") < 2), "join conditions with & | ~"),
    "not": (lambda: not (col("age") > 5), "join conditions with & | ~"),
    "chained comparison": (lambda: 5 < col("age") < 10, "join conditions with & | ~"),
    "in": (lambda: col("age") in [1, 2], "join conditions with & | ~"),
    "not a column": (lambda: not col("ok"), "a column has no truth value"),
    "no parentheses": (lambda: col("age") > 5 & col("ok"), "put comparisons in parentheses"),
    "a bare column joined": (lambda: col("ok") & (col("age") > 5), "put comparisons in parentheses"),
    "a bare column joined last": (lambda: (col("age") > 5) | col("ok"), "put comparisons in parentheses"),
    "a bare column negated": (lambda: ~col("ok"), "put comparisons in parentheses"),
    "a value joined": (lambda: (col("age") > 5) & True, "a value of type bool in place of a condition"),
    "a value joined first": (lambda: True | (col("age") > 5), "a value of type bool in place of a condition"),
    "a text joined": (lambda: (col("age") > 5) & "ok = TRUE", "a value of type str in place of a condition"),
    "None": (lambda: col("age") == None, r'write col\("age"\).is_null\(\)'),  # noqa: E711
    "isin None": (lambda: col("age").isin([1, None]), "is_null"),
    "a float": (lambda: col("age") > 1.5, "a value of type float"),
    "NaN": (lambda: col("age") == float("nan"), "a value of type float"),
    "a numpy float": (lambda: col("age") > np.float64(1), "a value of type float"),
    "an array": (lambda: col("age") == np.array([1, 2]), "a value of type ndarray"),
    "an array of one": (lambda: col("age") == np.array([1]), "a value of type ndarray"),
    "a Decimal": (lambda: col("age") == Decimal(1), "a value of type Decimal"),
    "bytes": (lambda: col("region") == b"North", "a value of type bytes"),
    "a list": (lambda: col("age") == [1], "a value of type list"),
    "a datetime": (lambda: col("born") > datetime.datetime(2000, 1, 1), "a value of type datetime"),
    "a numpy time": (lambda: col("born") > np.datetime64("2000-01-01T00:00"), "a value of type datetime"),
    "two columns": (lambda: col("age") == col("born"), "compare a column with a value"),
    "between columns": (lambda: col("age").between(1, col("born")), "compare a column with a value"),
    "2^63": (lambda: col("age") == 2**63, "whole numbers lie in"),
    "10^5000": (lambda: col("age") < -(10**5000), "whole numbers lie in"),
    "NUL": (lambda: col("region") == "North\x00", "U\\+0000"),
    "a lone surrogate": (lambda: col("region") == "\ud800", "U\\+D800"),
    "a name with a lone surrogate": (lambda: col("\ud800") == 1, "U\\+D800"),
    "a name that is no text": (lambda: col(5), "a column name of type int"),  # type: ignore[arg-type]
    "isin a text": (lambda: col("region").isin("North"), "give a list"),
    "isin a number": (lambda: col("age").isin(5), "give a list"),  # type: ignore[arg-type]
    "isin without end": (lambda: col("age").isin(itertools.count()), "at most 10000"),
    "isin nothing": (lambda: ask_where(col("age").isin([])), "name at least one value"),
    "a wrong type": (lambda: ask_where(col("age") == "5"), "write a whole number"),
    "a boolean for a number": (lambda: ask_where(col("age") == True), "write a whole number"),  # noqa: E712
    "an unknown column": (lambda: ask_where(col("agee") == 1), "did you mean age"),
    "a name in another case": (lambda: ask_where(col("AGE") == 1), "AGE is not declared"),
    "order of booleans": (lambda: ask_where(col("ok") > False), "= TRUE or = FALSE"),
    "where a column": (lambda: ask_where(col("ok")), "where of type ColumnReference"),
    "where a boolean": (lambda: ask_where(True), "where of type bool"),
    "where a lambda": (lambda: ask_where(lambda row: True), "where of type function"),
    "where empty": (lambda: ask_where(""), "stops too early"),
    "where a whole query": (lambda: ask_where("SELECT count(*) FROM people"), "a subquery"),
    "a hand-made operator": (
        lambda: ask_where(ColumnComparison(Name("age"), "LIKE", Constant(1))),
        "the operators are",
    ),
    "a hand-made part": (lambda: ask_where(Both((5,))), "a condition of type int"),  # type: ignore[arg-type]
    "a hand-made constant": (lambda: ask_where(Among(Name("age"), (Constant(1.5),))), "1.5 for the integer column"),  # type: ignore[arg-type]
    "SQL and more": (lambda: ask(SCHEMA, "SELECT count(*) FROM people", by="region"), "give one or the other"),
    "SQL and a name": (lambda: ask(SCHEMA, "SELECT count(*) FROM people", name="n"), "give one or the other"),
    "no dataset": (lambda: ask({"a": SCHEMA, "b": SCHEMA}), "name one of a, b"),
    "an unknown dataset": (lambda: ask(SCHEMA, dataset="peple"), "peple is not declared"),
    "a dataset that is no text": (lambda: ask(SCHEMA, dataset=["people"]), "a dataset name of type list"),  # type: ignore[arg-type]
    "by a number": (lambda: ask(SCHEMA, by=5), "by of type int; give a column name or a list"),  # type: ignore[arg-type]
    "by numbers": (lambda: ask(SCHEMA, by=[5]), "a column name of type int"),  # type: ignore[list-item]
    "by twice": (lambda: ask(SCHEMA, by=["age", "age"]), "name each column once"),
    "by an unknown column": (lambda: ask(SCHEMA, by=["agee"]), "did you mean age"),
    "an empty name": (lambda: ask(SCHEMA, name=""), "no name of a group column"),
    "a name that is taken": (lambda: ask(SCHEMA, by="age", name="age"), "no name of a group column"),
    "a name with an escape": (lambda: ask(SCHEMA, name="\x1b[2J"), "no name of a group column"),
    "a long name": (lambda: ask(SCHEMA, name="x" * 201), "no name of a group column"),
}


@pytest.mark.parametrize("case", BAD)
def test_every_mistake_is_refused_with_a_hint(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(QueryError, match=message) as error:
        make()
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 300


@pytest.mark.parametrize("value", [65, np.int64(65), np.uint8(65)])
def test_numpy_integers_are_accepted(value: Any) -> None:
    assert ask_where(col("age") == value).text == "SELECT count(*) FROM people WHERE age = 65"


def test_numpy_scalars_are_accepted() -> None:
    assert ask_where(col("ok") == np.bool_(True)).text.endswith("ok = TRUE")
    assert ask_where(col("region") == np.str_("North")).text.endswith("region = 'North'")
    assert ask_where(col("born") == np.datetime64("2000-01-01")).text.endswith("born = DATE '2000-01-01'")
    assert ask_where(col("age").isin(np.array([1, 2]))).text.endswith("age BETWEEN 1 AND 2")


@pytest.mark.slow  # counting calls is slow
def test_long_chains_of_conditions_are_accepted_quickly() -> None:
    with within(3_000_000):
        both, either = col("age") >= 0, col("age") == 0
        for i in range(10_000):
            both, either = both & (col("age") != i % 100), either | (col("age") == i % 100)
        assert ask_where(both).text.endswith("age >= 100")
        assert ask_where(either).text.endswith("age <= 99")


def test_deep_conditions_are_refused_quickly() -> None:
    negated: Any = col("age") == 1
    mixed: Any = col("age") == 1
    right: Any = col("age") == 1
    for i in range(10_000):
        negated = Negation(negated)
        mixed = (mixed & (col("age") != i % 100)) | (col("age") == 5)
        right = (col("age") != 3) & right
    for deep in (negated, mixed, right):
        with within(200_000), pytest.raises(QueryError, match="too many parts"):
            ask_where(deep)


def test_a_condition_of_too_many_parts_is_refused() -> None:
    with pytest.raises(QueryError, match="too many parts"):
        ask_where(Both(tuple(col("age") != 1 for _ in range(20_001))))


def test_asking_a_question_object_returns_it_unchanged() -> None:
    question = ask_where(col("age") >= 65)
    assert ask(SCHEMA, question) is question
    assert ask({"people": SCHEMA}, question, dataset=None, by=(), where=None, people=False, name=None) is question


def test_a_question_of_another_schema_is_refused() -> None:
    """Its columns and bounds may differ from the declared ones."""
    question = ask_where(col("age") >= 65)
    wider = replace(SCHEMA, rows_per_person=3, unit="person")
    with pytest.raises(QueryError, match="another schema"):
        ask(wider, question)
    with pytest.raises(QueryError, match="people is not declared"):
        ask({"other": replace(SCHEMA, name="other")}, question)


@pytest.mark.parametrize(
    "form", [{"dataset": "people"}, {"by": ["age"]}, {"where": col("age") > 5}, {"people": True}, {"name": "n"}]
)
def test_text_or_a_question_together_with_other_arguments_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match="SQL text together with dataset, by, where, people or name"):
        ask(SCHEMA, "SELECT count(*) FROM people", **form)
    with pytest.raises(QueryError, match="a question together with dataset, by, where, people or name"):
        ask(SCHEMA, ask_where(None), **form)


@pytest.mark.parametrize("question", [None, "SELECT count(*) FROM people"])
def test_an_unknown_argument_is_a_type_error(question: str | None) -> None:
    with pytest.raises(TypeError, match="unknown argument group; a question has dataset, by, where, people, name"):
        ask(SCHEMA, question, group="age")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown argument group"):
        check_form(group="age")  # type: ignore[call-arg]


def test_the_deprecated_argument_sql_is_accepted_with_a_warning() -> None:
    sql = "SELECT count(*) FROM people"
    with pytest.warns(DeprecationWarning, match=r"^sql= is deprecated; use question=, or give the text first$"):
        assert ask(SCHEMA, sql=sql) == ask(SCHEMA, sql)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown argument sql"):
        ask(SCHEMA, sql, sql=sql)  # type: ignore[call-arg]
