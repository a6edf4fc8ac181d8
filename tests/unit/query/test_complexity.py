"""Questions designed to be expensive: each is accepted or refused with a bounded number of calls, and never hangs.

An accepted question also becomes SQL of bounded length: query planners are slow on conditions of thousands of parts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import QueryError
from countveil.query import Question, ask
from countveil.query.condition import Effort
from countveil.query.schema import Column, Schema
from tests.support.effort import within

CITIES = tuple(f"v{i * 7919 % 100_000}" for i in range(100_000))  # declared in no useful order
SCHEMA = Schema(
    "t",
    (
        *(Column(f"c{i:03d}", "integer", low=0, high=100) for i in range(250)),
        Column("age", "integer", low=0, high=10**9),
        Column("b", "integer", low=0, high=10**9),
        Column("city", "text", CITIES),
    ),
)


def c(i: int) -> str:
    return f"c{i:03d}"


def some(count: int, seed: int) -> str:
    rng = random.Random(seed)
    return "(" + ", ".join(str(rng.randrange(10**6)) for _ in range(count)) + ")"


def terms(joint: str, inner: str, count: int, width: int) -> str:
    rng = random.Random(count)
    tests = [f"{c(rng.randrange(30))} = {rng.randrange(100)}" for _ in range(count * width)]
    return f" {joint} ".join(f"({f' {inner} '.join(tests[i : i + width])})" for i in range(0, len(tests), width))


EVERY_THIRD = "(" + ", ".join(str(3 * i) for i in range(10_000)) + ")"
HOSTILE = {
    "OR of ANDs": terms("OR", "AND", 4000, 3),
    "AND of ORs": terms("AND", "OR", 4000, 3),
    "short OR of ANDs": terms("OR", "AND", 300, 3),
    "OR of wide ANDs": terms("OR", "AND", 400, 20),
    "each clause shrinks the next": "age <= 3000 AND "
    + " AND ".join(f"(age > {k} OR b <= {k - 1}) AND (b > {k - 1} OR age <= {k - 2})" for k in range(3000, 0, -2)),
    "units in a chain": f"{c(0)} = 1 AND " + " AND ".join(f"({c(i)} <> 1 OR {c(i + 1)} = 1)" for i in range(199)),
    "long OR on a column": " OR ".join(f"age = {2 * i}" for i in range(10_000)),
    "long AND on a column": " AND ".join(f"age <> {2 * i}" for i in range(10_000)),
    "many intervals": " OR ".join(f"age BETWEEN {10 * i} AND {10 * i + 5}" for i in range(9000)),
    "a long list": f"age IN {EVERY_THIRD}",
    "a long list negated": f"NOT age IN {EVERY_THIRD}",
    "a long list against many tests": f"age IN {EVERY_THIRD} AND "
    + " AND ".join(f"(age = {3 * i} OR b = 1)" for i in range(2500)),
    "long lists in combinations": " OR ".join(f"({c(i)} = 1 AND age IN {some(2000, i)})" for i in range(12)),
    "long lists in other combinations": " AND ".join(f"({c(i)} = 1 OR age IN {some(2000, i)})" for i in range(12)),
    "rectangles": " OR ".join(
        f"(age BETWEEN {5 * i} AND {5 * i + 2} AND b BETWEEN {7 * i} AND {7 * i + 3})" for i in range(3000)
    ),
    "stairs": " OR ".join(f"(age >= {5 * i} AND b >= {7 * (4000 - i)})" for i in range(4000)),
    "an unlucky order of columns": " OR ".join(f"({c(i)} = 1 AND {c(i + 40)} = 1)" for i in range(40)),
    "parity": " OR ".join(
        "(" + " AND ".join(f"{c(i)} {'=' if m >> i & 1 else '<>'} 1" for i in range(10)) + ")"
        for m in range(1024)
        if m.bit_count() % 2
    ),
    "deep": "(" * 64
    + f"{c(0)} = 1"
    + "".join(f" {'AND' if i % 2 else 'OR'} {c(i * 37 % 150)} <> {i})" for i in range(64)),
    "deep and wide": " OR ".join(
        "(" * 20 + f"{c(i % 100)} = {i % 90}" + "".join(f" AND {c((i + k) % 100)} <> {k})" for k in range(20))
        for i in range(250)
    ),
    "200 columns": " OR ".join(f"{c(i)} = 1" for i in range(200)),
    "all columns": " OR ".join(f"{c(i)} = 1" for i in range(250)),
    "names in another case": " OR ".join(f"{c(i % 200).upper()} = {i % 100}" for i in range(14_000)),
    "order in a large domain": " OR ".join(f"city < 'v{i}'" for i in range(5000)),
    "order in a large domain, crossed": " AND ".join(f"({c(i)} = 1 OR city > 'v{i}')" for i in range(100)),
    "exceptions from a large domain": " OR ".join(f"(city <> 'v{i}' AND {c(0)} = {i % 100})" for i in range(4000)),
    "exceptions from a large domain, crossed": " AND ".join(f"({c(i)} = 1 OR city <> 'v{i}')" for i in range(100)),
    "an unknown value of a large domain": "city = '" + "v5" * 5000 + "'",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    text = {"city"}
    table = pa.table({c.name: ["v1", "v2", None] if c.name in text else [1, 2, None] for c in SCHEMA.columns})
    engine = DuckDBEngine(Source(frame=table), SCHEMA)
    yield engine
    engine.close()


def ask_quickly(where: str, by: str = "") -> Question | None:
    """The question, or None if it is refused; either takes little work: one or two seconds on an idle machine."""
    shown, groups = (f"{by}, ", f" GROUP BY {by}") if by else ("", "")
    text = f"SELECT {shown}count(*) FROM t WHERE {where}{groups}"
    outcome: Question | QueryError
    with within(6_000_000):
        try:
            outcome = ask(SCHEMA, text)
        except QueryError as error:
            outcome = error
    if isinstance(outcome, Question):
        return outcome
    assert outcome.position is not None
    assert len(str(outcome)) < 300
    return None


@pytest.mark.slow  # counting calls takes five times as long
@pytest.mark.parametrize("name", HOSTILE)
def test_expensive_questions_are_accepted_or_refused_quickly(name: str, engine: DuckDBEngine) -> None:
    question = ask_quickly(HOSTILE[name])
    ask_quickly(f"NOT ({HOSTILE[name]})")
    ask_quickly(HOSTILE[name], by=c(0))
    if question is None:
        return
    assert len(engine.compiler().count(question, 1).sql) < 20_000
    assert 0 <= engine.count(question, salt=b"salt")[0] <= 3
    assert ask(SCHEMA, question.text).sha256 == question.sha256


@pytest.mark.slow  # counting calls is slow
def test_large_ordinary_questions_are_within_the_limits() -> None:
    ordinary = {
        "a list of 10,000": f"age IN {EVERY_THIRD}",
        "all but a list": f"age NOT IN {some(900, 1)}",
        "200 columns": " AND ".join(f"{c(i)} <> 1" for i in range(200)),
        "300 alternatives": " OR ".join(f"(age = {i} AND b = {i * i})" for i in range(300)),
        "a long list of places": "city IN (" + ", ".join(f"'{city}'" for city in CITIES[:9999]) + ")",
    }
    for where in ordinary.values():
        question = ask_quickly(where)
        assert question is not None
        assert ask(SCHEMA, question.text).sha256 == question.sha256


def test_a_question_is_refused_after_exactly_its_limit_of_effort() -> None:
    effort = Effort(10)
    effort.spend(10)
    with pytest.raises(QueryError, match="too complex"):
        effort.spend(1)


def test_ordinary_questions_take_few_calls() -> None:
    """200 questions, less than two thousand calls each; a benchmark measures the rate."""
    texts = [
        f"SELECT count(*) FROM t WHERE {c(1)} >= 65",
        f"SELECT {c(2)}, count(*) FROM t WHERE age BETWEEN 18 AND 64 AND {c(1)} IN (1, 2, 3) GROUP BY {c(2)}",
        f"SELECT count(*) FROM t WHERE ({c(1)} IN (1, 5) OR age < 20) AND NOT {c(3)} > 7",
        f"SELECT count(*) FROM t WHERE city = 'v5' AND {c(1)} IS NOT NULL",
    ]
    with within(400_000):
        for _ in range(50):
            assert all(ask(SCHEMA, text).sha256 for text in texts)
