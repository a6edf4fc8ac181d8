"""The query language against an independent definition.

A grammar makes random conditions as small trees, writes them as SQL text in one of many ways, and evaluates them on
rows with three-valued logic in plain Python. The package never sees the trees; this file never sees the package's sets.
"""

from __future__ import annotations

import datetime
import itertools
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, strategies as st

from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.query import Question, ask, col
from countveil.query.schema import Column, Schema
from tests.support.effort import examples

OUTSIDE = object()
DAY = datetime.date(2026, 1, 1).toordinal()
SCHEMA = Schema(
    "t",
    (
        Column("n", "integer", low=-3, high=6, step=3),
        Column("day", "date", low=DAY, high=DAY + 4, step=2),
        Column("region", "text", ("North", "it's", "Süd", "-", "b")),
        Column("size", "integer", (30, 10, 20)),
        Column("ok", "boolean", (False, True)),
        Column("date", "date", (datetime.date(2020, 2, 29), datetime.date(2019, 1, 1))),
        Column("Größe", "integer", low=1, high=4),
        Column("-", "text", ("x", "y")),
        Column("count", "integer", low=0, high=3),
    ),
)
Row = dict[str, Any]


# -- the definition ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """One test on a column: `kind` is an operator, in, between or null."""

    __test__ = False

    column: Column
    kind: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Node:
    """and, or, not over parts."""

    kind: str
    parts: tuple[Test | Node, ...]


Tree = Test | Node


def kleene(tree: Tree, row: Row) -> bool | None:
    """True, False or None for unknown: the logic of SQL; values outside the domain are unknown."""
    if isinstance(tree, Test):
        value = row[tree.column.name]
        if value is OUTSIDE:
            return None
        if tree.kind == "null":
            return value is None
        if value is None:
            return None
        if tree.kind == "in":
            return any(value == other for other in tree.values)
        if tree.kind == "between":
            return bool(tree.values[0] <= value <= tree.values[1])
        (other,) = tree.values
        return {
            "=": value == other,
            "<>": value != other,
            "<": value < other,
            "<=": value <= other,
            ">": value > other,
            ">=": value >= other,
        }[tree.kind]
    truths = [kleene(part, row) for part in tree.parts]
    if tree.kind == "not":
        return None if truths[0] is None else not truths[0]
    absorbing = tree.kind == "or"
    if absorbing in truths:
        return absorbing
    return None if None in truths else not absorbing


def domain(column: Column) -> list[Any]:
    if column.values:
        return list(column.values)
    points = range(column.low, column.high + 1)
    return [datetime.date.fromordinal(p) for p in points] if column.kind == "date" else list(points)


def naive(tree: Tree | None, by: list[Column], rows: list[Row]) -> list[int]:
    """The count of every cell, from the definition."""
    keys = [[domain(c)[i : i + c.step] for i in range(0, len(domain(c)), c.step)] for c in by]
    cells = [0] * len(list(itertools.product(*keys)))
    for row in rows:
        if tree is not None and kleene(tree, row) is not True:
            continue
        for i, cell in enumerate(itertools.product(*keys)):
            if all(
                row[c.name] is not OUTSIDE and row[c.name] is not None and row[c.name] in bin_
                for c, bin_ in zip(by, cell, strict=True)
            ):
                cells[i] += 1
    return cells


# -- the grammar ------------------------------------------------------------------------------------------------------


class Grammar:
    """Random trees over some columns, and random ways to write them."""

    def __init__(self, columns: list[Column], rng: random.Random) -> None:
        self.columns = columns
        self.rng = rng

    def literal(self, column: Column, inside: bool = False) -> Any:
        """A value of the column's type; numbers and dates may lie beyond the domain."""
        if column.kind in ("text", "boolean") or inside or self.rng.random() < 0.8:
            return self.rng.choice(domain(column))
        if column.kind == "integer":
            return self.rng.choice([-(2**63), 2**63 - 1, -100, 100, 15])
        return self.rng.choice([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2019, 6, 1)])

    def test(self) -> Test:
        column = self.rng.choice(self.columns)
        kinds = ["=", "<>", "in", "null"] + ([] if column.kind == "boolean" else ["<", "<=", ">", ">=", "between"])
        kind = self.rng.choice(kinds)
        count = {"null": 0, "between": 2, "in": self.rng.randint(1, 4)}.get(kind, 1)
        return Test(column, kind, tuple(self.literal(column) for _ in range(count)))

    def tree(self, depth: int) -> Tree:
        if depth == 0 or self.rng.random() < 0.25:
            return self.test()
        kind = self.rng.choice(["and", "or", "not"])
        count = 1 if kind == "not" else self.rng.randint(2, 4)
        return Node(kind, tuple(self.tree(depth - 1) for _ in range(count)))

    # -- as text ------------------------------------------------------------------------------------------------------

    def word(self, word: str) -> str:
        return self.rng.choice([word.upper(), word.lower(), word.capitalize()])

    def blank(self) -> str:
        return self.rng.choice([" ", " ", " ", "\n", "\t ", "  "])

    def name(self, name: str) -> str:
        if name.isidentifier() and name.isascii() and self.rng.random() < 0.8:
            return self.rng.choice([name, name.upper(), name.capitalize()])
        return '"' + name.replace('"', '""') + '"'

    def value(self, value: Any) -> str:
        if isinstance(value, bool):
            return self.word(str(value))
        if isinstance(value, datetime.date):
            return self.rng.choice([self.word("date") + " ", ""]) + f"'{value.isoformat()}'"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return self.rng.choice(["", "00"]) + str(value) if value >= 0 else f"-{self.rng.choice(['', ' '])}{-value}"

    def write(self, tree: Tree) -> str:
        """The tree as text; compound parts are in parentheses."""
        if isinstance(tree, Test):
            return self.write_test(tree)
        parts = [self.write(part) for part in tree.parts]
        parts = [
            f"({part})" if isinstance(of, Node) or self.rng.random() < 0.1 else part
            for part, of in zip(parts, tree.parts, strict=True)
        ]
        if tree.kind == "not":
            return self.word("not") + self.blank() + parts[0]
        return (self.blank() + self.word(tree.kind) + self.blank()).join(parts)

    def write_test(self, test: Test) -> str:
        name, values = self.name(test.column.name), [self.value(v) for v in test.values]
        if test.kind == "null":
            return f"{name} {self.word('is')} {self.word('null')}"
        if test.kind == "in":
            return f"{name} {self.word('in')} ({', '.join(values)})"
        if test.kind == "between":
            return f"{name} {self.word('between')} {values[0]} {self.word('and')} {values[1]}"
        if self.rng.random() < 0.3:
            flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(test.kind, test.kind)
            return f"{values[0]} {flipped} {name}"
        return f"{name}{self.blank()}{'!=' if test.kind == '<>' and self.rng.random() < 0.5 else test.kind} {values[0]}"

    def query(self, tree: Tree | None, by: list[Column]) -> str:
        names = [column.name for column in by]
        shown = ", ".join(self.name(name) for name in names) + ", " if names else ""
        alias = self.rng.choice(["", " AS total", ' "how many"', " n"]) if "n" not in names else ""
        where = f"{self.blank()}{self.word('where')} {self.write(tree)}" if tree is not None else ""
        self.rng.shuffle(names)
        groups = f" GROUP BY {', '.join(self.name(name) for name in names)}" if names else ""
        end = self.rng.choice(["", ";", " ; "])
        return f"{self.word('select')} {shown}{self.word('count')}(*){alias} FROM {self.name('t')}{where}{groups}{end}"

    def random_question(self, depth: int) -> tuple[Tree | None, list[Column], Question, str]:
        tree = self.tree(depth) if self.rng.random() < 0.95 else None
        by = self.rng.sample(self.columns, self.rng.choice([0, 0, 1, 2]))
        text = self.query(tree, by)
        return tree, by, ask(SCHEMA, text), text

    def row(self) -> Row:
        return {c.name: self.rng.choice([*domain(c) * 2, None, OUTSIDE]) for c in SCHEMA.columns}


def raw(column: Column, value: Any, rng: random.Random) -> Any:
    """A value as text of a data source."""
    if value is None:
        return None
    if value is OUTSIDE:
        return rng.choice(["", "?", "1e3", "99999999999999999999", "2026-13-01", "NORTH", "12.5"])
    return {True: "True", False: "0"}[value] if column.kind == "boolean" else str(value)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    grammar = Grammar(list(SCHEMA.columns), random.Random(20260101))
    return [grammar.row() for _ in range(400)]


@pytest.fixture(scope="module")
def engine(rows: list[Row]) -> Any:
    rng = random.Random(7)
    frame = pa.table(
        {c.name: pa.array([raw(c, row[c.name], rng) for row in rows], pa.string()) for c in SCHEMA.columns}
    )
    opened = DuckDBEngine(Source(frame=frame), SCHEMA)
    yield opened
    opened.close()


def assert_fixed_point(question: Question) -> None:
    again = ask(SCHEMA, question.text)
    assert again.text == question.text
    assert again.sha256 == question.sha256
    assert again.where == question.where


@pytest.mark.parametrize("seed", range(20))
def test_valid_queries_parse_to_a_fixed_point_and_count_like_the_definition(
    seed: int, rows: list[Row], engine: DuckDBEngine
) -> None:
    """20 x 50 queries count 400 rows through the engine; the values are text, some are missing, some are invalid."""
    grammar = Grammar(list(SCHEMA.columns), random.Random(seed))
    for _ in range(50):
        tree, by, question, text = grammar.random_question(depth=grammar.rng.choice([1, 2, 3, 4]))
        assert_fixed_point(question)
        ordered = [column for column in SCHEMA.columns if column in by]
        assert question.shown == tuple(by)
        assert engine.count(question, salt=b"salt").tolist() == naive(tree, ordered, rows), text


@pytest.mark.parametrize("seed", range(10))
def test_every_query_of_the_grammar_parses_to_a_fixed_point(seed: int) -> None:
    """10 x 500 queries: parse, canonicalise, fixed point."""
    grammar = Grammar(list(SCHEMA.columns), random.Random(1000 + seed))
    for _ in range(500):
        *_, question, _text = grammar.random_question(depth=grammar.rng.choice([1, 2, 3]))
        assert_fixed_point(question)


# -- equal questions have equal hashes, and only they -----------------------------------------------------------------

SMALL = [SCHEMA.by_name[name] for name in ("size", "ok", "-")]
TABLE = [
    dict(zip([c.name for c in SMALL], values, strict=True))
    for values in itertools.product(*([*domain(c), None, OUTSIDE] for c in SMALL))
]


def meaning(tree: Tree | None, by: list[Column]) -> tuple[object, ...]:
    """The group columns, and which of all possible rows are counted."""
    counted = tuple(
        (tree is None or kleene(tree, row) is True)
        and not any(row[c.name] is None or row[c.name] is OUTSIDE for c in by)
        for row in TABLE
    )
    return frozenset(c.name for c in by), counted


@examples(300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_questions_have_equal_hashes_if_and_only_if_equal_truth_tables(seed: int, depth: int) -> None:
    """Groups of 12 questions on columns with few values, compared pair by pair."""
    grammar = Grammar(SMALL, random.Random(seed))
    hashes: dict[tuple[object, ...], str] = {}
    for _ in range(12):
        tree, by, question, text = grammar.random_question(depth)
        known = hashes.setdefault(meaning(tree, by), question.sha256)
        assert known == question.sha256, text
    assert len(set(hashes.values())) == len(hashes)


def rewrite(tree: Tree, rng: random.Random) -> Tree:
    """Another tree with the same meaning."""
    if isinstance(tree, Node):
        tree = Node(tree.kind, tuple(rewrite(part, rng) for part in tree.parts))
    match rng.randrange(8):
        case 0:
            return Node("not", (Node("not", (tree,)),))
        case 1:
            return Node(rng.choice(["and", "or"]), (tree, tree))
        case 2 if isinstance(tree, Node) and tree.kind != "not":
            return Node(tree.kind, tuple(rng.sample(tree.parts, len(tree.parts))))
        case 3 if isinstance(tree, Node) and tree.kind != "not":  # De Morgan
            other = "or" if tree.kind == "and" else "and"
            return Node("not", (Node(other, tuple(Node("not", (part,)) for part in tree.parts)),))
        case 4 if isinstance(tree, Test) and tree.kind == "in":
            return Node("or", tuple(Test(tree.column, "=", (v,)) for v in (*tree.values, tree.values[0])))
        case 5 if isinstance(tree, Test) and tree.kind == "between":
            low, high = tree.values
            return Node("and", (Test(tree.column, ">=", (low,)), Test(tree.column, "<=", (high,))))
        case 6:  # absorption
            other_test = Grammar(list(SCHEMA.columns), rng).test()
            outer, inner = rng.choice([("and", "or"), ("or", "and")])
            return Node(outer, (tree, Node(inner, (tree, other_test))))
        case 7 if isinstance(tree, Node) and tree.kind == "and" and isinstance(tree.parts[0], Node):  # distribution
            first, rest = tree.parts[0], tree.parts[1:]
            if first.kind == "or":
                return Node("or", tuple(Node("and", (part, *rest)) for part in first.parts))
    return tree


@examples(400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_rewritten_questions_keep_their_hash(seed: int) -> None:
    rng = random.Random(seed)
    grammar = Grammar(list(SCHEMA.columns), rng)
    tree = grammar.tree(rng.choice([1, 2, 3]))
    by = rng.sample(list(SCHEMA.columns), rng.choice([0, 1, 2]))
    other = rewrite(rewrite(tree, rng), rng)
    assert ask(SCHEMA, grammar.query(tree, by)).sha256 == ask(SCHEMA, grammar.query(other, by)).sha256


@examples(200, deadline=None)
@given(st.integers(0, 2**32))
def test_the_python_form_and_the_text_have_the_same_hash(seed: int) -> None:
    grammar = Grammar(list(SCHEMA.columns), random.Random(seed))
    tree, by = grammar.tree(3), grammar.rng.sample(list(SCHEMA.columns), 2)
    names = [column.name for column in by]
    from_text = ask(SCHEMA, grammar.query(tree, by))
    assert ask(SCHEMA, by=names, where=python(tree)).sha256 == from_text.sha256
    assert ask(SCHEMA, by=names, where=grammar.write(tree)).sha256 == from_text.sha256


def python(tree: Tree) -> Any:
    """The tree as a condition of the Python form."""
    if isinstance(tree, Test):
        column = col(tree.column.name)
        if tree.kind == "null":
            return column.is_null()
        if tree.kind == "in":
            return column.isin(tree.values)
        if tree.kind == "between":
            return column.between(*tree.values)
        method = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[tree.kind]
        return getattr(column, f"__{method}__")(*tree.values)
    parts = [python(part) for part in tree.parts]
    if tree.kind == "not":
        return ~parts[0]
    condition = parts[0]
    for part in parts[1:]:
        condition = condition & part if tree.kind == "and" else condition | part
    return condition
