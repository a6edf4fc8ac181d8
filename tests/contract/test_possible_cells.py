"""The contract of a public list of possible cells: every engine counts like a naive reading in Python.

The naive reading goes through every combination of source values and asks of each whether the list has it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from countveil.data.engines import Engine
from countveil.query import Question, ask
from countveil.query.derived import parse_columns
from countveil.query.possible_cells import parse_cells
from countveil.query.public_tables import PublicTable, read_public_table
from countveil.query.schema import Schema
from tests.support.makers import Types, choices, opened
from tests.support.naive import Row

GEOGRAPHY = "district,municipality,county\nd1,m1,east\nd2,m1,east\nd3,m2,east\nd4,m3,west\nd5,m3,west\n"
PLACES = {line.split(",")[0]: line.split(",")[1:] for line in GEOGRAPHY.splitlines()[1:]}
POSSIBLE = """\
sex,municipality,age_group
male,m1,0-17
female,m1,0-17
female,m1,18-64
2,m2,65+
male,m3,18-64
female,m3,65+
"""
"""A label and a value of the same column; sex is declared after the others, and grouped between them."""
DECLARED: dict[str, Any] = {
    "district": ["d1", "d2", "d3", "d4", "d5", "d6"],
    "municipality": {"from": "district", "map": "geography.csv"},
    "sex": {"values": [1, 2], "labels": ["male", "female"]},
    "county": {"from": "municipality", "map": "geography.csv"},
    "age": {"min": 0, "max": 99, "step": 10},
    "age_group": {"from": "age", "bands": [0, 18, 65]},
    "kind": ["a", "b"],
}
TYPES: Types = {"id": "int64", "district": "text", "sex": "int8", "age": "int16", "kind": "text"}
LISTED = {
    (part[1], 1 if part[0] == "male" else 2, part[2])
    for part in (line.split(",") for line in POSSIBLE.splitlines()[1:])
}


def schema_of(listed: str = POSSIBLE, declared: dict[str, Any] = DECLARED, **terms: Any) -> Schema:
    def read(path: str, key: str) -> PublicTable:
        return read_public_table((GEOGRAPHY if path == "geography.csv" else listed).encode(), path, key)

    columns = parse_columns(declared, "columns", read)
    return Schema("people", columns, possible=parse_cells("possible.csv", columns, "cells", read), **terms)


def labels_of(row: Row) -> dict[str, Any]:
    """The label of every column, None outside."""
    municipality, county = PLACES.get(row["district"], (None, None))
    age = row["age"] if row["age"] is not None and 0 <= row["age"] <= 99 else None
    low = None if age is None else age // 10 * 10
    return {
        "district": row["district"] if row["district"] in DECLARED["district"] else None,
        "municipality": municipality,
        "county": county,
        "sex": row["sex"] if row["sex"] in (1, 2) else None,
        "age": None if low is None else f"{low}-{low + 9}",
        "age_group": None if age is None else "0-17" if age < 18 else "18-64" if age < 65 else "65+",
        "kind": row["kind"] if row["kind"] in ("a", "b") else None,
    }


EVERY = [
    labels_of({"district": d, "sex": s, "age": a, "kind": k})
    for d, s, a, k in product([f"d{i}" for i in range(1, 7)], (1, 2), range(100), "ab")
]


def possible(by: list[str]) -> set[tuple[Any, ...]]:
    """The cells with a combination of the list."""
    inside = [at for at in EVERY if (at["municipality"], at["sex"], at["age_group"]) in LISTED]
    if not set(by) & {"district", "municipality", "county", "sex", "age", "age_group"}:
        inside = EVERY
    found = {tuple(at[name] for name in by) for at in inside}
    return {cell for cell in found if None not in cell}


def cells_of(question: Question) -> list[tuple[Any, ...]]:
    """The values of every cell, in the order of the columns of the question."""
    places = list(product(*(range(axis.size) for axis in question.axes)))
    columns = []
    for column in question.by:
        i = next(i for i, axis in enumerate(question.axes) if column in axis.columns)
        codes = {"male": 1, "female": 2}
        labels = [codes.get(str(label), label) for label in question.axes[i].labels(column)]
        columns.append([labels[place[i]] for place in places])
    return list(zip(*columns, strict=True)) if columns else [()]


@pytest.fixture(params=choices())
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    engines: list[Engine] = []

    def make_engine(rows: list[Row], schema: Schema) -> Engine:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        engines.append(opened(request.param, rows, TYPES, folder, schema))
        return engines[-1]

    yield make_engine
    for engine in engines:
        engine.close()


def some_rows() -> list[Row]:
    districts = ["d1", "d2", "d3", "d4", "d5", "d6", "d9", None]
    return [
        {
            "id": i % 7,
            "district": districts[i * i % 8 if i % 3 else i % 8],
            "sex": (1, 2, 2, 3, None)[i % 5],
            "age": (i * 37) % 103 - 2 if i % 11 else None,
            "kind": "abab?"[i % 5],
        }
        for i in range(400)
    ]


BY = [
    ["municipality", "sex", "age_group"],
    ["municipality", "sex"],
    ["sex", "age_group"],
    ["municipality"],
    ["sex"],
    ["district", "age_group", "kind"],
    ["county", "age"],
    ["district", "county", "sex", "age", "kind"],
    ["municipality", "county", "kind"],
    ["kind"],
]


@pytest.mark.parametrize("terms", [{}, {"unit": "id", "rows_per_person": 1000, "cells_per_person": 10_000}])
def test_tables_have_only_possible_cells_with_the_counts_of_a_naive_reading(make: Any, terms: dict[str, Any]) -> None:
    schema = schema_of(**terms)
    rows = some_rows()
    engine = make(rows, schema)
    for by in BY:
        for where in (None, "sex = 'female'", "municipality <> 'm1' OR age_group = '65+'"):
            question = ask(schema, by=by, where=where)
            names = [column.name for column in question.by]
            cells = cells_of(question)
            assert len(set(cells)) == len(cells) == question.cells
            assert set(cells) == possible(names), by
            counts = engine.count(question, salt=b"salt").tolist()
            at = [labels_of(row) for row in rows]
            if where == "sex = 'female'":
                at = [a for a in at if a["sex"] == 2]
            elif where:
                at = [a for a in at if a["municipality"] in ("m2", "m3") or a["age_group"] == "65+"]
            expected = Counter(cell for a in at if (cell := tuple(a[name] for name in names)) in set(cells))
            assert {cell: n for cell, n in zip(cells, counts, strict=True) if n} == dict(expected), (by, where)
            assert sum(expected.values()) > 0
            assert ask(schema, question.text).sha256 == question.sha256


def test_rows_of_impossible_cells_are_left_out_before_a_persons_cells_are_chosen(make: Any) -> None:
    """Everybody is in five impossible cells and in one that can exist: it is counted, whatever the salt."""
    schema = schema_of(unit="id", rows_per_person=2, cells_per_person=1)
    impossible = [("d1", 1, 30), ("d1", 1, 70), ("d3", 2, 30), ("d4", 1, 5), ("d6", 1, 5)]
    rows: list[Row] = [
        {"id": person, "district": d, "sex": s, "age": a, "kind": "a"}
        for person in range(40)
        for d, s, a in [*impossible * 2, ("d5", 1, 30)]
    ]
    question = ask(schema, by=["municipality", "sex", "age_group"])
    engine = make(rows, schema)
    for salt in (b"one", b"two", b"three"):
        counts = dict(zip(cells_of(question), engine.count(question, salt=salt).tolist(), strict=True))
        assert counts.pop(("m3", 1, "18-64")) == 40
        assert not any(counts.values())
