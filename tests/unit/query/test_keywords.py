"""Names like keywords: asked without quotes where only one reading exists, otherwise refused with the way to quote it.

The strict language, in which no keyword is a name without quotes, is the definition: a text means what its only reading
in the strict language means, where a reading quotes some of its words and leaves the others.
"""

from __future__ import annotations

import itertools
import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countveil.errors import QueryError
from countveil.query import Question, ask, parse_condition, sql, written
from countveil.query.tokens import NAMEABLE, RESERVED
from countveil.schema import Column, Schema, parse_column

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


def asked(text: str, schema: Schema) -> Question:
    question = ask(schema, text)
    assert ask(schema, question.text).sha256 == question.sha256
    return question


@pytest.mark.parametrize("position", POSITIONS)
def test_a_name_is_asked_without_quotes_or_the_refusal_quotes_it(position: str) -> None:
    for word in (*ACCEPTED, *REFUSED):
        unit = word if "DISTINCT" in position else "row"
        quoted = asked(position.replace("{}", f'"{word}"'), schema(word, unit=unit))
        for spelled in (word, word.upper()):
            text = position.replace("{}", spelled)
            if word in ACCEPTED:
                assert asked(text, schema(word, unit=unit)) == quoted
            else:
                with pytest.raises(QueryError, match=f'(?i)in double quotes: "{spelled}"'):
                    ask(schema(word, unit=unit), text)


def test_the_count_and_the_dataset_may_be_named_so() -> None:
    for word in ACCEPTED:
        people = Schema(word, schema().columns)
        assert ask(people, f"SELECT count(*) AS {word} FROM {word}") == ask(
            people, f'SELECT count(*) {word} FROM "{word}"'
        )
        assert ask(people, f"SELECT count(*) {word} FROM {word}").name == word


def test_a_column_and_the_literal_or_count_of_its_name_stand_together() -> None:
    days = parse_column("date", {"min": "2026-01-01", "max": "2026-01-09"}, "date")
    people = Schema("t", (days, Column("count", "integer", (1, 2)), Column("by", "text", ("date", "("))))
    text = (
        "select date, count, by, count(*) from t where date >= date '2026-01-02' and date '2026-01-05' > date "
        "and date in (date '2026-01-03', date '2026-01-04') and date between date '2026-01-01' and date '2026-01-08' "
        "and by <> 'date' and '(' = by and count = 1 group by date, count, by"
    )
    question = asked(text, people)
    assert [column.name for column in question.by] == ["date", "count", "by"]
    where = """"by" = '(' AND "count" = 1 AND "date" BETWEEN DATE '2026-01-03' AND DATE '2026-01-04' GROUP BY"""
    assert where in question.text
    assert question.name == "count_1"


def test_another_case_in_quotes_is_told_the_declared_spelling() -> None:
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


def changed(words: list[str], rng: random.Random) -> list[str]:
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
        question = asked(text, CONFUSING)
    except QueryError:
        return None
    return question.sha256, question.name


def strict_readings(words: list[str]) -> list[tuple[str, str]]:
    """What the text may mean, over every choice of which of its nameable words are names."""
    places = [i for i, word in enumerate(words) if word.upper() in NAMEABLE]
    found = []
    with mock.patch.object(sql, "NAMEABLE", frozenset()):
        for names in itertools.product([False, True], repeat=len(places)):
            quoted = {place for place, name in zip(places, names, strict=True) if name}
            one = meaning(" ".join(f'"{word}"' if i in quoted else word for i, word in enumerate(words)))
            found += [one] if one is not None else []
    return found


@given(st.integers(0, 2**32))
def test_a_text_is_accepted_exactly_if_it_has_one_reading(seed: int) -> None:
    rng = random.Random(seed)
    words = changed(sentence(rng), rng)[:40]
    if sum(word.upper() in NAMEABLE for word in words) > 8:
        return
    found = meaning(" ".join(words))
    assert strict_readings(words) == ([] if found is None else [found])


@given(st.integers(0, 2**32))
def test_an_accepted_condition_is_written_and_read_as_the_same(seed: int) -> None:
    rng = random.Random(seed)
    text = " ".join(changed([*simple_test(rng).split(" "), "and", *simple_test(rng).split(" ")], rng))
    try:
        condition = parse_condition(text)
        question = ask(CONFUSING, where=condition)
    except QueryError:
        return
    assert ask(CONFUSING, where=written(condition)).sha256 == question.sha256
    assert ask(CONFUSING, where=written(parse_condition(written(condition)))).sha256 == question.sha256
