"""Questions on derived columns against truth tables: their hashes are equal exactly if their meanings are."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, strategies as st

from countveil.errors import QueryError
from countveil.query import Question, ask
from countveil.query.derived import parse_columns
from countveil.query.possible_cells import parse_cells
from countveil.query.public_tables import PublicTable, read_public_table
from countveil.query.schema import Schema
from tests.support.effort import examples

FILE = b"""\
district,municipality,county
d1,m1,east
d2,m1,east
d3,m2,east
d4,m3,west
"""


def read_file(path: str, key: str) -> PublicTable:
    return read_public_table(FILE, path, key)


SCHEMA = Schema(
    "t",
    parse_columns(
        {
            "county": {"from": "municipality", "map": "geography.csv"},
            "district": ["d1", "d2", "d3", "d4", "d5"],
            "municipality": {"from": "district", "map": "geography.csv"},
            "fine": {"from": "x", "bins": ["0", "1", "2"], "max": "3"},
            "coarse": {"from": "x", "bins": ["1", "3"]},
            "x": {"from": "x", "bins": ["0", "2"], "below": True},
            "ok": {"type": "boolean"},
        },
        "columns",
        read_file,
    ),
)
OUTSIDE = object()
PLACES = {"d1": ("m1", "east"), "d2": ("m1", "east"), "d3": ("m2", "east"), "d4": ("m3", "west")}
LABELS: dict[Any, tuple[Any, Any, Any]] = {
    -1: (OUTSIDE, OUTSIDE, "under 0"),
    0: ("0 to under 1", OUTSIDE, "0 to under 2"),
    1: ("1 to under 2", "1 to under 3", "0 to under 2"),
    2: ("2 to under 3", "1 to under 3", "2+"),
    3: (OUTSIDE, "3+", "2+"),
    None: (None, None, None),
    OUTSIDE: (OUTSIDE, OUTSIDE, OUTSIDE),
}
"""The labels of `fine`, `coarse` and `x` for a number in each part of the line."""


def label_row(district: Any, x: Any, ok: Any) -> dict[str, Any]:
    municipality, county = (None, None) if district is None else PLACES.get(district, (OUTSIDE, OUTSIDE))
    fine, coarse, own = LABELS[x]
    places = {"district": district, "municipality": municipality, "county": county}
    return {**places, "fine": fine, "coarse": coarse, "x": own, "ok": ok}


ROWS = [
    label_row(*values)
    for values in itertools.product(
        ["d1", "d2", "d3", "d4", "d5", None, OUTSIDE], [*range(-1, 4), None, OUTSIDE], [True, False, None, OUTSIDE]
    )
]
VALUES = {
    name: list(dict.fromkeys(row[name] for row in ROWS if row[name] is not None and row[name] is not OUTSIDE))
    for name in ROWS[0]
}
Tree = tuple[Any, ...]


def random_tree(rng: random.Random, names: list[str], depth: int) -> Tree:
    if depth and rng.random() < 0.7:
        op = rng.choice(["and", "or", "not"])
        return (op, *(random_tree(rng, names, depth - 1) for _ in range(1 if op == "not" else rng.randint(2, 3))))
    name = rng.choice(names)
    if rng.random() < 0.15:
        return ("null", name)
    return ("in", name, tuple(rng.sample(VALUES[name], rng.randint(1, len(VALUES[name])))))


def holds(tree: Tree, row: dict[str, Any]) -> bool | None:
    op, *args = tree
    if op in ("and", "or"):
        truths = [holds(part, row) for part in args]
        decisive = op == "or"
        return decisive if decisive in truths else (None if None in truths else not decisive)
    if op == "not":
        truth = holds(args[0], row)
        return None if truth is None else not truth
    value = row[args[0]]
    if value is OUTSIDE:
        return None
    if op == "null":
        return value is None
    return None if value is None else value in args[1]


def write(tree: Tree) -> str:
    op, *args = tree
    if op in ("and", "or"):
        return "(" + f" {op} ".join(write(part) for part in args) + ")"
    if op == "not":
        return f"NOT {write(args[0])}"
    if op == "null":
        return f"{args[0]} IS NULL"
    return f"{args[0]} IN ({', '.join(str(v) if isinstance(v, bool) else repr(v) for v in args[1])})"


def meaning(tree: Tree | None, by: list[str], listed: set[tuple[Any, ...]] | None = None) -> tuple[object, ...]:
    """How the group columns divide all rows, and which rows are counted; `listed` are the rows of a list."""
    cells: dict[tuple[Any, ...], set[int]] = {}
    counted = set()
    possible = {
        tuple(row[name] for name in by)
        for row in ROWS
        if listed is None or not by or tuple(row[name] for name in LISTED) in listed
    }
    for i, row in enumerate(ROWS):
        labels = tuple(row[name] for name in by)
        if None in labels or OUTSIDE in labels or labels not in possible:
            continue
        cells.setdefault(labels, set()).add(i)
        if tree is None or holds(tree, row) is True:
            counted.add(i)
    return frozenset(map(frozenset, cells.values())), frozenset(counted)


def random_question(
    rng: random.Random, names: list[str], schema: Schema = SCHEMA
) -> tuple[Tree | None, list[str], Question]:
    tree = random_tree(rng, names, rng.choice([0, 1, 2, 3])) if rng.random() < 0.9 else None
    by = rng.sample(names, rng.choice([0, 0, 1, 2, 3]))
    shown = ", ".join([*by, "count(*)"])
    text = f"SELECT {shown} FROM t" + (f" WHERE {write(tree)}" if tree else "")
    return tree, by, ask(schema, text + (f" GROUP BY {', '.join(by)}" if by else ""))


GEOGRAPHY, NUMBERS = ["district", "municipality", "county"], ["fine", "coarse", "x"]


@pytest.mark.parametrize("names", [GEOGRAPHY, NUMBERS, [*GEOGRAPHY, "ok"], [*NUMBERS, "county"]])
@examples(60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_hashes_are_equal_if_and_only_if_meanings_are(names: list[str], seed: int) -> None:
    rng = random.Random(seed)
    hashes: dict[tuple[object, ...], str] = {}
    for _ in range(15):
        tree, by, question = random_question(rng, names)
        known = hashes.setdefault(meaning(tree, by), question.sha256)
        assert known == question.sha256, question.text
        again = ask(SCHEMA, question.text)
        assert (again.sha256, again.text, again.where) == (question.sha256, question.text, question.where)
    assert len(set(hashes.values())) == len(hashes)


LISTED = ["municipality", "fine", "ok"]


@examples(60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_with_a_list_of_possible_cells_equal_hashes_have_equal_meanings(seed: int) -> None:
    """Equal hashes have equal meanings; without a condition, also the other way round."""
    rng = random.Random(seed)
    every = list(itertools.product(*(VALUES[name] for name in LISTED)))
    listed = rng.sample(every, rng.choice([1, 2, 5, 10, len(every) - 1, len(every)]))
    lines = [",".join(LISTED), *(f"{municipality},{fine},{ok}" for municipality, fine, ok in listed)]
    content = "\n".join(lines).encode()
    cells = parse_cells("cells", SCHEMA.columns, "key", lambda path, key: read_public_table(content, path, key))
    schema = replace(SCHEMA, possible=cells)
    hashes: dict[tuple[object, ...], set[str]] = {}
    for _ in range(25):
        try:
            tree, by, question = random_question(rng, [*GEOGRAPHY, *NUMBERS, "ok"], schema)
        except QueryError as error:
            if "has no cell" not in str(error):
                raise
            continue
        means = meaning(tree, by, set(listed))
        if question.where is None:
            tree = None
        hashes.setdefault((means, tree is None), set()).add(question.sha256)
        again = ask(schema, question.text)
        assert (again.sha256, again.text, again.where) == (question.sha256, question.text, question.where)
    hashes_of: dict[object, set[str]] = {}
    for (means, is_plain), known in hashes.items():
        assert len(known) == 1 or not is_plain
        hashes_of.setdefault(means, set()).update(known)
    assert sum(map(len, hashes_of.values())) == len(set().union(*hashes_of.values()))


EQUAL = {
    "a parent and its parts": ("county = 'east'", "district IN ('d1', 'd2', 'd3')"),
    "the negation of a parent leaves out unmapped values": ("NOT county = 'east'", "district = 'd4'"),
    "parent and child": ("county = 'east' AND municipality <> 'm1'", "district = 'd3'"),
    "NULL of a derived column": ("county IS NULL", "district IS NULL"),
    "bins of two columns": ("fine = '1 to under 2'", "coarse = '1 to under 3' AND x = '0 to under 2'"),
    "the order of labels": ("fine >= '1 to under 2'", "fine IN ('1 to under 2', '2 to under 3')"),
    "between labels": ("municipality BETWEEN 'm1' AND 'm2'", "county = 'east'"),
    "all labels": ("county IS NOT NULL", "district <> 'd5'"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_two_spellings_of_one_question_have_the_same_hash(name: str) -> None:
    one, other = (ask(SCHEMA, where=where) for where in EQUAL[name])
    assert one.sha256 == other.sha256
    assert one.text == other.text


def test_grouping_by_a_hierarchy_and_by_its_finest_column_are_one_question() -> None:
    narrow = Schema("t", tuple(column for column in SCHEMA.columns if column.name != "county"))
    fine = ask(SCHEMA, by="municipality")
    assert fine.sha256 == ask(SCHEMA, by=["county", "municipality"]).sha256 == ask(narrow, by="municipality").sha256
    assert ask(SCHEMA, by=["county", "municipality"]).cells == 3
    assert ask(SCHEMA, by="district").sha256 != ask(SCHEMA, by=["district", "county"]).sha256  # d5 has no county
    assert ask(SCHEMA, by="county").sha256 != fine.sha256


def test_the_content_of_a_public_file_is_part_of_the_question() -> None:
    def hash_with(old: bytes, new: bytes, **form: Any) -> str:
        table = read_public_table(FILE.replace(old, new), "geography.csv", "key")
        declared = {"county": {"from": "district", "map": "geography.csv"}}
        return ask(Schema("t", parse_columns(declared, "columns", lambda path, key: table)), **form).sha256

    grouped, chosen = {"by": "county"}, {"where": "county <> 'west'"}
    for form in (grouped, chosen):
        assert hash_with(b"d3,m2,east", b"d3,m2,west", **form) != hash_with(b"", b"", **form)
        assert hash_with(b"d2", b"d9", **form) != hash_with(b"", b"", **form)
    assert hash_with(b"east", b"East", **grouped) == hash_with(b"", b"", **grouped)  # the same cells, other labels


def test_other_derived_columns_of_a_source_do_not_change_a_question() -> None:
    fine = {"fine": {"from": "x", "bins": ["0", "1", "2"], "max": "3"}}
    alone, beside = (
        Schema("t", parse_columns({**fine, **more}, "columns")) for more in ({}, {"y": {"from": "x", "bins": ["0.5"]}})
    )
    for form in ({"by": "fine"}, {"where": "fine >= '1 to under 2'"}, {"where": "NOT fine = '0 to under 1'"}):
        assert ask(alone, **form).sha256 == ask(beside, **form).sha256
