"""Contribution bounding: one person changes at most the declared amounts, and nobody else's rows move."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from countveil.query import ask
from countveil.schema import Column, Schema
from tests.support import naive
from tests.support.effort import examples
from tests.support.makers import MAKERS, SLOW, Types, choices, opened
from tests.support.naive import Row, Test

REGION = Column("region", "text", ("N", "S", "E", "W"))
AGE = Column("age", "integer", low=0, high=9)
ADULT = Test(">=", (AGE, (2,)))
PEOPLE = {"int64": [None, 1, 2, 3, -4, 2**62], "text": [None, "", "a", "a|1", "b'", "é"]}


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Schema, Types, list[Row]]:
    kind = draw(st.sampled_from(sorted(PEOPLE)))
    row = st.fixed_dictionaries(
        {
            "id": st.sampled_from(PEOPLE[kind]),
            "region": st.sampled_from(["N", "S", "E", "W", "X", None]),
            "age": st.integers(-1, 10),
        }
    )
    schema = Schema(
        "people",
        (REGION, AGE),
        unit="id",
        rows_per_person=draw(st.integers(1, 4)),
        cells_per_person=draw(st.integers(1, 4)),
    )
    rows = draw(st.lists(row, max_size=60))
    return schema, {"id": kind, "region": "text", "age": "int64"}, rows * draw(st.integers(1, 3))


def counts(
    name: str, schema: Schema, types: Types, rows: list[Row], sql: str, key: bytes = b"key"
) -> np.ndarray[Any, np.dtype[np.int64]]:
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(name, rows, types, Path(folder), schema)
        try:
            return engine.count(ask(schema, sql), key=key)
        finally:
            engine.close()


@pytest.mark.parametrize("name", choices(name for name in MAKERS if name not in SLOW))
@pytest.mark.parametrize("distinct", [False, True])
@examples(15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_person_changes_no_more_than_declared(name: str, distinct: bool, data: st.DataObject) -> None:
    one_person(name, distinct, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", choices(sorted(SLOW)))
@examples(2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_person_changes_no_more_than_declared_slowly(name: str, data: st.DataObject) -> None:
    one_person(name, False, data)


def one_person(name: str, distinct: bool, data: st.DataObject) -> None:
    schema, types, rows = data.draw(crowds())
    by = data.draw(st.sampled_from([[], ["region"], ["age"], ["region", "age"]]))
    sql = naive.sql(schema, by, data.draw(st.sampled_from([None, ADULT])), distinct)
    key = data.draw(st.binary(min_size=1, max_size=16))
    whole = counts(name, schema, types, rows, sql, key)
    alone = np.zeros_like(whole)
    for person in dict.fromkeys(row["id"] for row in rows):
        own = [row for row in rows if row["id"] == person]
        others = [row for row in rows if row["id"] != person]
        change = whole - counts(name, schema, types, others, sql, key)
        most = 1 if distinct else schema.rows_per_person
        assert np.count_nonzero(change) <= (0 if person is None else schema.cells_per_person)
        assert change.min(initial=0) >= 0
        assert change.max(initial=0) <= most
        single = counts(name, schema, types, own, sql, key)
        assert (single == change).all()  # nobody else's selection moved
        alone += single
    assert (alone == whole).all()


def crowd(size: int, cells: int, most: int = 1) -> tuple[Schema, Types, list[Row]]:
    schema = Schema("people", (REGION, AGE), unit="id", cells_per_person=cells, rows_per_person=most)
    rows = [{"id": i, "region": r, "age": a} for i in range(size) for r in REGION.values for a in range(10)]
    return schema, {"id": "int64", "region": "text", "age": "int64"}, rows


@pytest.mark.parametrize("name", choices())
def test_the_key_chooses(name: str) -> None:
    schema, types, rows = crowd(30, 2)
    sql = naive.sql(schema, ["region", "age"])
    first, again, other = (counts(name, schema, types, rows, sql, key) for key in (b"one", b"one", b"two"))
    assert first.sum() == other.sum() == 60
    assert (first == again).all()
    assert (first != other).any()
    backwards = counts(name, schema, types, rows[::-1], sql, b"one")  # the order of rows does not choose
    assert (first == backwards).all()


@pytest.mark.parametrize("name", choices())
def test_every_engine_chooses_the_same_cells(name: str) -> None:
    schema, types, rows = crowd(20, 3)
    by = ["region", "age"]
    assert counts(name, schema, types, rows, naive.sql(schema, by)).tolist() == naive.count(
        schema, by, None, False, rows, b"key"
    )


def test_cells_are_chosen_evenly() -> None:
    """4000 people in all 40 cells, one of which counts: about 100 each, whatever the cell (7 standard deviations)."""
    schema, types, rows = crowd(4000, 1)
    chosen = counts("pyarrow", schema, types, rows, naive.sql(schema, ["region", "age"]))
    assert chosen.sum() == 4000
    assert abs(chosen - 100).max() < 70


def test_planted_faults_are_seen() -> None:
    """The naive count with a wrong bound, a wrong key or no bound differs: the comparison can fail."""
    schema, types, rows = crowd(5, 2, most=2)
    by = ["region", "age"]
    right = counts("pyarrow", schema, types, rows * 3, naive.sql(schema, by), b"key").tolist()
    assert right == naive.count(schema, by, None, False, rows * 3, b"key")
    for cells, most, key in ((3, 2, b"key"), (2, 3, b"key"), (2, 2, b"kez")):
        wrong = Schema("people", (REGION, AGE), unit="id", cells_per_person=cells, rows_per_person=most)
        assert right != naive.count(wrong, by, None, False, rows * 3, key)
