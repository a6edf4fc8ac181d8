"""Names that are keywords: accepted without quotes if the text has one reading, otherwise refused with a hint to quote.

In the strict language no keyword is a name without quotes. A reading of a text is a strict text that quotes some of its
words. A text with exactly one reading means what that reading means.
"""

from __future__ import annotations

import itertools
import random
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from countveil.errors import QueryError
from countveil.query import Question, ask, parse_condition, sql, write_condition
from countveil.query.declarations import parse_column
from countveil.query.schema import Column, Schema
from countveil.query.tokens import NAMEABLE, RESERVED

SQL_WORDS = ["order", "limit", "left", "case", "sum", "month", "user", "end", "filter", "using", "when", "interval"]
REFUSED = sorted(word.lower() for word in RESERVED - NAMEABLE)
ACCEPTED = sorted([word.lower() for word in NAMEABLE] + SQL_WORDS)
POSITIONS = [
    "SELECT {}, count(*) FROM t GROUP BY {}",
    "SELECT n, {}, count(*) FROM t GROUP BY {}, n",
    "SELECT count(*) FROM t WHERE {} = 1",
    "SELECT count(*) FROM t WHERE 1 < {}",
    "SELECT count(*) FROM t WHERE {} IN (1, 2)",
    "SELECT count(*) FROM t WHERE {} NOT IN (1)",
    "SELECT count(*) FROM t WHERE {} BETWEEN 1 AND 2",
    "SELECT count(*) FROM t WHERE {} NOT BETWEEN 1 AND 2",
    "SELECT count(*) FROM t WHERE {} IS NULL",
    "SELECT count(*) FROM t WHERE {} IS NOT NULL",
    "SELECT count(*) FROM t WHERE NOT {} = 1",
    "SELECT count(*) FROM t WHERE ({} <> 2)",
    "SELECT count(*) FROM t WHERE n = 1 AND {} = 1",
    "SELECT count(*) FROM t WHERE n BETWEEN 1 AND 2 AND {} = 1",
    "SELECT {}, count(*) FROM t WHERE {} = 1 OR n = 1 GROUP BY {}",
    "SELECT count(DISTINCT {}) FROM t",
]


def schema(*names: str, unit: str = "row") -> Schema:
    return Schema("t", tuple(Column(name, "integer", (1, 2, 3)) for name in ("n", *names)), unit, rows_per_person=2)


def ask_twice(text: str, schema: Schema) -> Question:
    question = ask(schema, text)
    assert ask(schema, question.text).sha256 == question.sha256
    return question


@pytest.mark.parametrize("position", POSITIONS)
def test_a_keyword_is_accepted_as_a_name_or_refused_with_a_hint_to_quote_it(position: str) -> None:
    for word in (*ACCEPTED, *REFUSED):
        unit = word if "DISTINCT" in position else "row"
        quoted = ask_twice(position.replace("{}", f'"{word}"'), schema(word, unit=unit))
        for spelled in (word, word.upper()):
            text = position.replace("{}", spelled)
            if word in ACCEPTED:
                assert ask_twice(text, schema(word, unit=unit)) == quoted
            else:
                with pytest.raises(QueryError, match=f'(?i)in double quotes: "{spelled}"'):
                    ask(schema(word, unit=unit), text)


def test_the_count_and_the_dataset_may_have_the_name_of_a_keyword() -> None:
    for word in ACCEPTED:
        people = Schema(word, schema().columns)
        assert ask(people, f"SELECT count(*) AS {word} FROM {word}") == ask(
            people, f'SELECT count(*) {word} FROM "{word}"'
        )
        assert ask(people, f"SELECT count(*) {word} FROM {word}").name == word


def test_columns_named_date_and_count_work_beside_date_literals_and_count() -> None:
    days = parse_column("date", {"min": "2026-01-01", "max": "2026-01-09"}, "date")
    people = Schema("t", (days, Column("count", "integer", (1, 2)), Column("by", "text", ("date", "("))))
    text = (
        "select date, count, by, count(*) from t where date >= date '2026-01-02' and date '2026-01-05' > date "
        "and date in (date '2026-01-03', date '2026-01-04') and date between date '2026-01-01' and date '2026-01-08' "
        "and by <> 'date' and '(' = by and count = 1 group by date, count, by"
    )
    question = ask_twice(text, people)
    assert [column.name for column in question.by] == ["date", "count", "by"]
    where = """"by" = '(' AND "count" = 1 AND "date" BETWEEN DATE '2026-01-03' AND DATE '2026-01-04' GROUP BY"""
    assert where in question.text
    assert question.name == "count_1"


def test_the_refusal_of_a_quoted_name_in_another_case_shows_the_declared_spelling() -> None:
    with pytest.raises(QueryError, match='the column GROUP is not declared; write it as "group"'):
        ask(schema("group"), 'SELECT count(*) FROM t WHERE "GROUP" = 1')


# -- exactly the texts with one reading -------------------------------------------------------------------------------

CONFUSING = Schema(
    "by",
    (
        parse_column("date", {"values": ["2026-01-01", "2026-01-02"], "type": "date"}, "date"),
        Column("count", "integer", (1, 2, 3)),
        Column("by", "text", ("date", "by", "(")),
        Column("case", "boolean", (False, True)),
        *(Column(word, "integer", (1, 2, 3)) for word in REFUSED),
    ),
)
LITERALS = {
    "date": ["date '2026-01-01'", "'2026-01-02'"],
    "count": ["1", "2"],
    "by": ["'date'", "'('"],
    "case": ["true"],
    **{word: ["1", "2"] for word in REFUSED},
}
WEIGHTS = [12 if name not in REFUSED else 1 for name in LITERALS]
ODD = [
    *("date", "count", "by", "case", "group", "in", "is", "not", "null", "between", "and", "or", "from", "where"),
    *("select", "distinct", "as", "all", "true", "1", "'('", "(", ")", ",", "=", "<>", "*", ";"),
]


def simple_test(rng: random.Random) -> str:
    (name,) = rng.choices(list(LITERALS), WEIGHTS)
    value, other = (rng.choice(LITERALS[name]) for _ in range(2))
    forms = [f"{name} = {value}", f"{value} <> {name}", f"{name} in ( {value} , {other} )", f"not {name} is null"]
    if name != "case":
        forms += [f"{name} < {value}", f"{value} <= {name}", f"{name} not between {value} and {other}"]
    return rng.choice(forms)


def sentence(rng: random.Random) -> list[str]:
    """The words of a query about `by`, all in lower case and without quotes."""
    names = list(dict.fromkeys(rng.choices(list(LITERALS), WEIGHTS, k=rng.choice([0, 1, 1, 2]))))
    tests = [simple_test(rng) for _ in range(rng.choice([0, 1, 2]))]
    condition = rng.choice([" and ", " or not "]).join(rng.choice(["{}", "( {} )"]).format(test) for test in tests)
    alias = rng.choice(["", "as n ", "date ", "as by "])
    shown = "".join(f"{name} , " for name in names)
    where = f" where {condition}" if tests else ""
    groups = f" group by {' , '.join(names)}" if names else ""
    return f"select {shown}count ( * ) {alias}from by{where}{groups}".split(" ")


def mutate(words: list[str], rng: random.Random) -> list[str]:
    words = list(words)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(words))
        match rng.randrange(3):
            case 0:
                words[at] = rng.choice(ODD)
            case 1:
                words.insert(at, rng.choice(ODD))
            case _:
                del words[at]
    return words


def meaning(text: str) -> tuple[str, str] | None:
    try:
        question = ask_twice(text, CONFUSING)
    except QueryError:
        return None
    return question.sha256, question.name


def strict_readings(words: list[str]) -> list[tuple[str, str]]:
    """The meanings of a text, over all choices of which nameable words are names."""
    places = [i for i, word in enumerate(words) if word.upper() in NAMEABLE]
    readings = []
    with mock.patch.object(sql, "NAMEABLE", frozenset()):
        for names in itertools.product([False, True], repeat=len(places)):
            quoted = {place for place, name in zip(places, names, strict=True) if name}
            one = meaning(" ".join(f'"{word}"' if i in quoted else word for i, word in enumerate(words)))
            readings += [one] if one is not None else []
    return readings


@given(st.integers(0, 2**32))
def test_a_text_is_accepted_exactly_if_it_has_one_reading(seed: int) -> None:
    rng = random.Random(seed)
    words = mutate(sentence(rng), rng)[:40]
    if sum(word.upper() in NAMEABLE for word in words) > 8:
        return
    accepted = meaning(" ".join(words))
    assert strict_readings(words) == ([] if accepted is None else [accepted])


@given(st.integers(0, 2**32))
def test_writing_and_parsing_an_accepted_condition_keeps_its_meaning(seed: int) -> None:
    rng = random.Random(seed)
    text = " ".join(mutate([*simple_test(rng).split(" "), "and", *simple_test(rng).split(" ")], rng))
    try:
        condition = parse_condition(text)
        question = ask(CONFUSING, where=condition)
    except QueryError:
        return
    assert ask(CONFUSING, where=write_condition(condition)).sha256 == question.sha256
    assert ask(CONFUSING, where=write_condition(parse_condition(write_condition(condition)))).sha256 == question.sha256
