"""A refusal names the construct, its position and the nearest allowed form."""

from __future__ import annotations

import pytest

import countveil as cv
from countveil.errors import QueryError
from countveil.query import ask, parse_condition
from countveil.query.schema import Column, Schema

SCHEMA = Schema(
    "people",
    (
        Column("age", "integer", low=0, high=120),
        Column("region", "text", ("North", "South")),
        Column("ok", "boolean", (False, True)),
        Column("number", "integer", low=0, high=2**40),
    ),
    unit="person",
)
START = "SELECT count(*) FROM people WHERE "
HISTOGRAM = "only counts exist: GROUP BY the column for a histogram; the curator has its median and mean for free"
CURATOR = "ask the curator for a column that holds them"

REFUSED = [
    ("SELECT * FROM people", 8, "* for all columns", "write count(*)"),
    ("SELECT age FROM people", 12, "a query without a count", "write count(*) before FROM"),
    ("SELECT FROM people", 8, "a query without a count", "write count(*) before FROM"),
    ("SELECT count(1) FROM people", 14, "the number 1", "write count(*) for rows or count(DISTINCT unit) for people"),
    (
        "SELECT count(age) FROM people",
        14,
        "a count of age",
        "write count(*) for rows or count(DISTINCT unit) for people",
    ),
    (
        "SELECT count(DISTINCT age) FROM people",
        23,
        "count(DISTINCT age)",
        "count(DISTINCT person) counts people; so does count(*)",
    ),
    ("SELECT sum(age) FROM people", 8, "the function sum", HISTOGRAM),
    ("SELECT region, AVG(age), count(*) FROM people GROUP BY region", 16, "the function AVG", HISTOGRAM),
    ("SELECT region, count(*), avg(age) FROM people GROUP BY region", 26, "the function avg", HISTOGRAM),
    ("SELECT Median(age) FROM people", 8, "the function Median", HISTOGRAM),
    ("SELECT quantile(age, 0.5) FROM people", 8, "the function quantile", HISTOGRAM),
    ("SELECT region, percentile_cont(0.5) WITHIN GROUP (ORDER BY age) FROM people", 16, "percentile_cont", HISTOGRAM),
    ("SELECT count(*) FROM people WHERE age > median(age)", 41, "the word median", HISTOGRAM),
    ("SELECT count(median(age)) FROM people", 14, "a count of median", HISTOGRAM),
    ("SELECT count(*) FROM people WHERE age > (0.5)", 42, "the number 0.5", "a whole number in digits"),
    ("SELECT count(*) FROM people WHERE max(age) = 3", 35, "the function max", HISTOGRAM),
    ("SELECT age/10, count(*) FROM people GROUP BY age/10", 11, "arithmetic", "grouped by its declared step"),
    ("SELECT age, count(*) FROM people GROUP BY age/10", 46, "arithmetic", CURATOR),
    ("SELECT age * 2, count(*) FROM people", 12, "arithmetic", CURATOR),
    ("SELECT age - 2, count(*) FROM people", 12, "arithmetic", CURATOR),
    ("SELECT month(born), count(*) FROM people GROUP BY month(born)", 8, "the function month", "step of days"),
    ("SELECT count(*) FROM people GROUP BY year(born)", 38, "the function year", CURATOR),
    ("SELECT count(*) FROM people WHERE EXTRACT(year FROM born) = 1990", 35, "EXTRACT", "DATE '2026-01-31'"),
    ("SELECT lower(region), count(*) FROM people GROUP BY region", 8, "the function lower", CURATOR),
    ("SELECT CASE WHEN age < 18 THEN 1 END, count(*) FROM people", 8, "CASE", CURATOR),
    ("SELECT CASE age WHEN 18 THEN 1 END, count(*) FROM people", 8, "CASE", CURATOR),
    ("SELECT region, count(*) FROM people GROUP BY region, CASE WHEN ok = TRUE THEN 1 END", 54, "CASE", CURATOR),
    ("SELECT count(*), count(*) FROM people", 18, "a count in this place", "once, before FROM"),
    ("SELECT count(*) FROM people WHERE count(*) > 5", 35, "a count in this place", "filter the answer"),
    ("SELECT region, count FROM people GROUP BY region", 16, "count without parentheses", "write count(*)"),
    ("SELECT group, count(*) FROM people GROUP BY group", 8, "the word group", 'in double quotes: "group"'),
    ("SELECT from, count(*) FROM people", 8, "the word from", 'in double quotes: "from"'),
    ("SELECT all, count(*) FROM people", 8, "ALL", 'in double quotes: "all"'),
    ("SELECT count(*) FROM people WHERE in IN (1)", 35, "the word in", 'in double quotes: "in"'),
    ("SELECT count(order) FROM people", 14, "a count of order", "write count(*)"),
    ("SELECT count(*) FROM people WHERE order", 35, "the column order alone", "write order = TRUE"),
    ("SELECT CAST(age AS text), count(*) FROM people", 8, "a cast", "declared type"),
    ("SELECT DISTINCT region FROM people", 8, "SELECT DISTINCT", "GROUP BY"),
    ("SELECT count(*), region FROM people", 16, "the symbol ,", "the count comes last"),
    ("SELECT count(*) + 1 FROM people", 17, "arithmetic", "write count(*) alone"),
    ("SELECT count(*) * 2 FROM people", 17, "arithmetic", "write count(*) alone"),
    ("SELECT count(*) FROM people p", 29, "an alias for the dataset (p)", "write column names alone"),
    ("SELECT count(*) FROM people, other", 28, "a second dataset", "one dataset"),
    ("SELECT count(*) FROM people JOIN other", 29, "a join", "one dataset"),
    ("SELECT count(*) FROM 'a.csv'", 22, "a file", "declared dataset"),
    ("SELECT count(*) FROM (SELECT 1)", 22, "a subquery", "one dataset"),
    ("SELECT count(*) FROM peple", 22, "peple is not declared", "declared are people"),
    ("COPY people TO 'x'", 1, "a statement that starts with COPY", "the form is SELECT"),
    ("SELECT region, count(*) FROM people", 8, "region without GROUP BY", "name it in GROUP BY too"),
    ("SELECT count(*) FROM people GROUP BY region", 38, "GROUP BY region without selecting it", "before count(*)"),
    ("SELECT region, count(*) FROM people GROUP BY ALL", 46, "ALL", "name the columns"),
    ("SELECT number, count(*) FROM people GROUP BY number", 8, "1099511627777 cells", "at most 2000000"),
    (START + "ok", 35, "the column ok alone", "write ok = TRUE"),
    (START + "NOT ok AND age = 1", 39, "the column ok alone", "write ok = TRUE"),
    (START + "ok IS TRUE", 41, "IS TRUE", "write = TRUE"),
    (START + "TRUE", 35, "a value alone", "column op literal"),
    (START + "1 = 1", 35, "a comparison without a column", "column op literal"),
    (START + 'region = "North"', 44, 'the name "North"', "'North'"),
    (START + "region = North", 44, "the word North in place of a value", "'text'"),
    (START + "region = 'Nort'", 44, "region has no value Nort", "did you mean 'North'?"),
    (START + "region = 'Elsewhere'", 44, "region has no value Elsewhere", "declared are North, South"),
    (START + "agee = 5", 35, "agee is not declared", "did you mean age?"),
    (START + "age = NULL", 41, "a comparison with NULL", "IS NULL"),
    (START + "age == 5", 39, "the operator ==", "write ="),
    (START + "!(age = 5)", 35, "the operator !", "write NOT"),
    (START + "age ≥ 5", 39, "the character ≥", "write >="),
    (START + "age IS DISTINCT FROM 5", 42, "IS DISTINCT", "write = or <>"),
    (START + "region LIKE 'N%'", 42, "LIKE", "IN ('value', ...)"),
    (START + "age = 1.5", 41, "the number 1.5", "whole number"),
    (START + "age = '5'", 41, "5 for the integer column age", "a whole number"),
    (START + "ok = 1", 40, "1 for the boolean column ok", "TRUE or FALSE"),
    (START + "ok > FALSE", 40, "> on the boolean column ok", "= TRUE or = FALSE"),
    (START + "age = (SELECT 1)", 41, "a subquery", "a literal is"),
    (START + "age IN (SELECT 1)", 43, "a subquery", "one question"),
    (START + "CASE WHEN age = 1 THEN TRUE END", 35, "CASE", "AND, OR, NOT"),
    (START + "abs(age) = 5", 35, "the function abs", "a declared column"),
    (START + "age = 5 5", 43, "the number 5", "AND, OR, GROUP BY"),
    (START + "(age = 5", 43, "stops too early", "closing parenthesis"),
    (START + "DATE = 5", 35, "the column DATE is not declared", "declared are age"),
    (START + "DATE 5 < born", 40, "DATE 5", "write a date as DATE '2026-01-31'"),
    (START + "born = DATE born", 47, "DATE born", "write a date as DATE '2026-01-31'"),
    (START + "region = ‘North’", 44, "a typographic quote", "'text'"),
]


@pytest.mark.parametrize(("text", "position", "construct", "allowed"), REFUSED, ids=[r[0][-40:] for r in REFUSED])
def test_a_refusal_names_construct_position_and_allowed_form(
    text: str, position: int, construct: str, allowed: str
) -> None:
    with pytest.raises(QueryError) as error:
        ask(SCHEMA, text)
    assert construct in error.value.construct
    assert allowed in error.value.allowed
    assert error.value.position == position


def test_the_refusal_of_another_count_says_what_the_allowed_counts_count() -> None:
    visits = Schema("visits", SCHEMA.columns, unit="person", rows_per_person=3)
    meaning = r"count\(DISTINCT person\) counts people; count\(\*\) counts rows, at most 3 of a person in a cell"
    with pytest.raises(QueryError, match=meaning):
        ask(visits, "SELECT count(DISTINCT age) FROM visits")
    with pytest.raises(QueryError, match=r"every row is a person, so count\(\*\) counts people: write count\(\*\)"):
        ask(Schema("people", SCHEMA.columns), "SELECT count(DISTINCT age) FROM people")


def test_arithmetic_in_python_is_refused_as_in_text() -> None:
    age = cv.col("age")
    for compute in (lambda: age / 10, lambda: age // 10, lambda: 2 * age, lambda: age + 1, lambda: 1 - age):
        with pytest.raises(QueryError, match=r"arithmetic; .*grouped by its declared step; .*ask the curator"):
            compute()


def test_a_condition_alone_is_refused_like_a_query() -> None:
    with pytest.raises(QueryError, match="at position 9: a second statement"):
        parse_condition("age = 5;; DROP TABLE people")
    with pytest.raises(QueryError, match="at position 9: the word GROUP"):
        parse_condition("age = 5 GROUP BY age")


def test_if_two_spellings_of_a_group_column_differ_the_quoted_one_decides() -> None:
    assert ask(SCHEMA, 'SELECT REGION, count(*) FROM people GROUP BY "region"').by[0].name == "region"
    with pytest.raises(QueryError, match="REGION is not declared"):
        ask(SCHEMA, 'SELECT region, count(*) FROM people GROUP BY "REGION"')


def test_messages_shorten_long_names_and_values() -> None:
    name, value = "n" * 200, "v" * 5000
    schema = Schema(name, (Column(name, "text", (value, value + "w")),), unit=name)
    for text in (f"SELECT count(*) FROM {name} WHERE {name} = '{'v' * 400}'", f"SELECT count(*) FROM {name}x"):
        with pytest.raises(QueryError) as error:
            ask(schema, text)
        assert len(str(error.value)) < 300


def test_datasets_that_differ_by_case_need_quotes() -> None:
    known = {name: Schema(name, SCHEMA.columns) for name in ("People", "people")}
    assert ask(known, "SELECT count(*) FROM people").schema.name == "people"
    assert ask(known, 'SELECT count(*) FROM "People"').schema.name == "People"
    with pytest.raises(QueryError, match="PEOPLE is not declared"):
        ask(known, "SELECT count(*) FROM PEOPLE")
