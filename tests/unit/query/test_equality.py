"""Equal questions written in different ways, and different questions that look alike."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from countveil.errors import QueryError
from countveil.query import ask, col
from countveil.query.declarations import parse_column
from countveil.query.schema import Column, Schema

SCHEMA = Schema(
    "people",
    (
        Column("age", "integer", low=0, high=120, step=10),
        Column("region", "text", ("North", "South", "West")),
        Column("ok", "boolean", (False, True)),
        parse_column("born", {"min": "1900-01-01", "max": "2026-01-01"}, "born"),
        Column("size", "integer", (1, 2, 3)),
    ),
)
VISITS = Schema("visits", (Column("age", "integer", low=0, high=9),), unit="Person", rows_per_person=3)
ONCE = Schema("once", (Column("age", "integer", low=0, high=9),), unit="Person")


def hash_where(text: str) -> str:
    return ask(SCHEMA, f"SELECT count(*) FROM people WHERE {text}").sha256


EQUAL = {
    "order of operands": ("age > 5 AND ok = TRUE", "ok = TRUE AND age > 5"),
    "double negation": ("age > 5", "NOT NOT (NOT (NOT age > 5))"),
    "De Morgan, and": ("NOT (age > 5 AND ok = TRUE)", "NOT age > 5 OR NOT ok = TRUE"),
    "De Morgan, or": ("NOT (age > 5 OR ok = TRUE)", "age <= 5 AND ok <> TRUE"),
    "IN and OR": ("region IN ('North', 'South')", "region = 'South' OR region = 'North'"),
    "IN twice": ("region IN ('North', 'North')", "region = 'North'"),
    "NOT IN and the rest": ("region NOT IN ('North')", "region IN ('South', 'West')"),
    "<> and IN": ("region <> 'West'", "region IN ('South', 'North')"),
    "BETWEEN": ("age BETWEEN 20 AND 30", "age >= 20 AND age <= 30"),
    "BETWEEN beyond the domain": ("age BETWEEN -5 AND 30", "age <= 30"),
    "NOT BETWEEN": ("age NOT BETWEEN 20 AND 30", "age < 20 OR age > 30"),
    "BETWEEN upside down": ("age BETWEEN 30 AND 20", "age IS NULL AND age IS NOT NULL"),
    "literal first": ("65 <= age", "age >= 65"),
    "integers are whole": ("age > 64", "age >= 65"),
    "!= and <>": ("age != 5", "age <> 5"),
    "a redundant term": ("age >= 65 AND age >= 18", "age >= 65"),
    "a term without effect": ("age >= 65 AND age IS NOT NULL", "age >= 65"),
    "absorption": ("age = 1 OR (age = 1 AND ok = TRUE)", "age = 1"),
    "absorption of a longer term": (
        "(age = 1 AND ok = TRUE AND region = 'West') OR (age = 1 AND ok = TRUE)",
        "age = 1 AND ok = TRUE",
    ),
    "distribution": (
        "age = 1 AND (ok = TRUE OR region = 'West')",
        "(age = 1 AND ok = TRUE) OR (age = 1 AND region = 'West')",
    ),
    "consensus": (
        "(age = 1 AND ok = TRUE) OR (age <> 1 AND size = 2) OR (ok = TRUE AND size = 2 AND age IS NOT NULL)",
        "(age = 1 AND ok = TRUE) OR (age <> 1 AND size = 2)",
    ),
    "the whole domain": ("size IN (1, 2, 3)", "size IS NOT NULL"),
    "a number outside": ("size = 7", "age > 500"),
    "never": ("age < 5 AND age > 7", "ok = TRUE AND ok = FALSE"),
    "booleans": ("ok <> FALSE", "ok = TRUE"),
    "dates as text": ("born > '2000-01-01'", "born > DATE '2000-01-01'"),
    "dates by the day": ("born > '2000-01-01'", "born >= '2000-01-02'"),
    "case of names": ("AGE = 1 AND Region = 'North'", "\"age\" = 1 AND region = 'North'"),
    "parentheses": ("((age = 1)) AND (ok = TRUE)", "age = 1 AND ok = TRUE"),
    "leading zeros": ("age = 007", "age = 7"),
    "blanks": ("age\n\t=  1", "age=1"),
}
DIFFERENT = {
    "NULL is not false": ("NOT age > 5", "age <= 5 OR age IS NULL"),
    "every value, or NULL too": ("ok = TRUE OR ok = FALSE", "ok IS NULL OR ok IS NOT NULL"),
    "a column that matters by being known": ("age = 1", "age = 1 AND ok IS NOT NULL"),
    "and, or": ("age = 1 AND ok = TRUE", "age = 1 OR ok = TRUE"),
    "one end": ("age > 65", "age >= 65"),
    "values": ("region = 'North'", "region = 'South'"),
    "columns": ("size = 1", "age = 1"),
    "precedence": ("age = 1 OR ok = TRUE AND size = 1", "(age = 1 OR ok = TRUE) AND size = 1"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_two_spellings_of_one_question_have_the_same_hash(name: str) -> None:
    one, other = EQUAL[name]
    assert hash_where(one) == hash_where(other)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_questions_that_look_alike_have_different_hashes(name: str) -> None:
    one, other = DIFFERENT[name]
    assert hash_where(one) != hash_where(other)


def test_the_order_of_columns_and_the_name_of_the_count_and_case_do_not_change_a_question() -> None:
    first = ask(SCHEMA, "SELECT region, ok, count(*) FROM people GROUP BY region, ok")
    second = ask(SCHEMA, 'select OK, "region", Count ( * ) as "how many" from People group by REGION, ok;')
    assert first.sha256 == second.sha256
    assert first.text == second.text
    assert [c.name for c in second.shown] == ["ok", "region"]
    assert [c.name for c in second.by] == ["region", "ok"]
    assert second.name == "how many"


@pytest.mark.parametrize("test", ["region IS NOT NULL", "region IN ('North', 'South', 'West')", "NOT region IS NULL"])
def test_a_condition_that_grouping_implies_does_not_change_a_question(test: str) -> None:
    plain = ask(SCHEMA, "SELECT region, count(*) FROM people GROUP BY region")
    tested = ask(SCHEMA, f"SELECT region, count(*) FROM people WHERE {test} GROUP BY region")
    assert tested.sha256 == plain.sha256
    assert tested.where is None
    assert ask(SCHEMA, f"SELECT count(*) FROM people WHERE {test}").sha256 != ask(SCHEMA, dataset="people").sha256


def test_questions_with_different_group_columns_are_different() -> None:
    by = [(), ("region",), ("ok",), ("region", "ok")]
    assert len({ask(SCHEMA, by=columns).sha256 for columns in by}) == len(by)


def test_counting_people_differs_from_counting_rows_unless_each_has_one() -> None:
    once = [ask(ONCE, f"SELECT count({what}) FROM once") for what in ("*", "DISTINCT person", 'DISTINCT "Person"')]
    assert len({question.sha256 for question in [*once, ask(ONCE, people=True), ask(ONCE)]}) == 1
    rows, people = ask(VISITS, "SELECT count(*) FROM visits"), ask(VISITS, "SELECT count(DISTINCT person) FROM visits")
    assert rows.sha256 != people.sha256
    assert (rows.sensitivity, people.sensitivity) == (3, 1)
    assert ask(VISITS, people=True).sha256 == people.sha256 == ask(VISITS, people.text).sha256
    for wrong in ("DISTINCT age", 'DISTINCT "person"'):
        with pytest.raises(QueryError, match=r"counts people; .*counts rows, at most 3 of a person"):
            ask(VISITS, f"SELECT count({wrong}) FROM visits")


def test_a_changed_domain_changes_the_question() -> None:
    def hash_with(**changes: Any) -> str:
        schema = Schema("people", (Column("age", "integer", **({"low": 0, "high": 120} | changes)),))
        return ask(schema, "SELECT count(*) FROM people WHERE age >= 65").sha256

    assert hash_with() == hash_with()
    assert hash_with() != hash_with(high=100)
    assert hash_with() != hash_with(step=10)
    assert hash_with() != hash_with(low=-5)


@pytest.mark.parametrize("part", [{"unit": "id"}, {"rows_per_person": 2}, {"cells_per_person": 3}, {"name": "others"}])
def test_a_changed_unit_or_bound_changes_the_question(part: dict[str, Any]) -> None:
    def hash_with(**terms: Any) -> str:
        schema = Schema(
            **({"name": "people", "columns": (Column("age", "integer", low=0, high=9),), "unit": "p"} | terms)
        )
        return ask(schema, f"SELECT count(*) FROM {schema.name} WHERE age >= 5").sha256

    assert hash_with() != hash_with(**part)


def test_the_text_of_a_question_asks_the_same_question() -> None:
    """A question whose text cannot be asked again is refused."""
    listed = Schema("people", (Column("c", "text", tuple(f"v{i:05d}" for i in range(60_000))), *SCHEMA.columns))
    with pytest.raises(QueryError, match="simplified text is too long"):
        ask(listed, "SELECT count(*) FROM people WHERE c < 'v40000' AND c <> 'v00001' AND c <> 'v39998'")
    short = ask(listed, "SELECT count(*) FROM people WHERE c < 'v00300'")
    assert ask(listed, short.text).sha256 == short.sha256
    deep = col("age") == 1
    for i in range(150):
        deep = (deep & (col("size") != i % 3)) if i % 2 else (deep | (col("age") == i % 50))
    try:
        question = ask(SCHEMA, dataset="people", where=deep)
    except QueryError:
        return
    assert ask(SCHEMA, question.text).sha256 == question.sha256


def test_names_that_look_alike_are_different_columns() -> None:
    schema = Schema("people", (Column("k", "integer", low=0, high=3), Column("Größe", "integer", low=0, high=3)))
    for shown, grouped in (('"\u212a"', '"k"'), ('"K"', '"k"'), ('"grösse"', '"Größe"'), ('"größe"', '"Größe"')):
        for first, second in ((shown, grouped), (grouped, shown)):
            with pytest.raises(QueryError):
                ask(schema, f"SELECT {first}, count(*) FROM people GROUP BY {second}")
    assert ask(schema, 'SELECT K, count(*) FROM people GROUP BY "k"').by == schema.columns[:1]


def test_too_many_group_columns_are_refused() -> None:
    columns = tuple(Column(f"c{i}", "integer", (1,)) for i in range(60))
    names = ", ".join(column.name for column in columns)
    with pytest.raises(QueryError, match="60 group columns; at most 50 are allowed"):
        ask(Schema("people", columns), f"SELECT {names}, count(*) FROM people GROUP BY {names}")


def test_columns_without_effect_do_not_change_a_question() -> None:
    narrow = Schema("people", SCHEMA.columns[:1])
    text = "SELECT count(*) FROM people WHERE age = 1"
    assert ask(narrow, text).sha256 == ask(SCHEMA, text).sha256
    assert ask(SCHEMA, text + " OR (age = 1 AND ok = TRUE AND size = 1)").sha256 == ask(SCHEMA, text).sha256


@pytest.mark.parametrize(
    ("python", "text"),
    [
        (col("age") >= 65, "65 <= age"),
        ((col("age") > 5) & ~col("region").isin(["North"]), "age > 5 AND region NOT IN ('North')"),
        ((col("ok") == True) | col("ok").is_null(), "ok = TRUE OR ok IS NULL"),  # noqa: E712
        (~(col("age").between(1, 5)), "age NOT BETWEEN 1 AND 5"),
        (col("born") < datetime.date(2000, 1, 1), "born < DATE '2000-01-01'"),
        (col("born") != "2000-01-01", "born <> '2000-01-01'"),
    ],
)
def test_python_and_text_ask_the_same_question(python: Any, text: str) -> None:
    sql = ask(SCHEMA, f"SELECT region, count(*) FROM people WHERE {text} GROUP BY region")
    for form in (python, text):
        assert ask(SCHEMA, dataset="people", by="region", where=form).sha256 == sql.sha256
        assert ask({"people": SCHEMA, "visits": VISITS}, dataset="people", by=["region"], where=form) == sql


def test_a_group_column_may_be_called_count() -> None:
    schema = Schema("t", (Column("count", "integer", low=0, high=3), Column("count_1", "integer", low=0, high=3)))
    question = ask(schema, by=["count", "count_1"])
    assert question.name == "count_2"
    assert ask(schema, question.text) == question
