"""Contribution bounding: one person changes at most the declared number of cells and rows, and no rows of other people.

Engines choose a person's cells with hashes of their own. What keeps people private must hold with any hash, so it is
also tested with a constant in its place; that the cells are chosen evenly is up to the hash.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, strategies as st
from scipy.stats import chi2

from countveil.query import ask
from countveil.query.schema import Column, Schema
from tests.support import naive
from tests.support.effort import examples
from tests.support.makers import MAKERS, SLOW, Types, choices, constant_hash, opened
from tests.support.naive import Row, Test

REGION = Column("region", "text", ("N", "S", "E", "W"))
AGE = Column("age", "integer", low=0, high=9)
ADULT = Test(">=", (AGE, (2,)))
TEXTS = [None, "", "a", "a ", " a", "A", "a|1", "b'", "é"]
PEOPLE: dict[str, list[Any]] = {
    "int64": [None, 1, 2, 3, -4, 2**62],
    "uint64": [None, 0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
    "huge": [None, 0, -1, 2**53, 2**53 + 1, 10**37, 10**37 + 1],
    "text": TEXTS,
    "category": TEXTS,
}
NULS = ["\0", "a\0", "a\0b"]
"""Ids that only Parquet files and frames are given: PostgreSQL cannot store them."""
FRAMES = ("parquet", "pyarrow", "polars", "pandas", "pandas-objects")


@st.composite
def crowds(draw: st.DrawFn, name: str) -> tuple[Schema, Types, list[Row]]:
    kind = draw(st.sampled_from(sorted(PEOPLE)))
    more = NULS if PEOPLE[kind] is TEXTS and name in FRAMES else []
    ids = draw(st.lists(st.sampled_from([*PEOPLE[kind], *more]), min_size=1, max_size=6, unique=True))
    row = st.fixed_dictionaries(
        {
            "id": st.sampled_from(ids),
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


Counts = np.ndarray[Any, np.dtype[np.int64]]
RARE = 1e-9
"""The probability with which a test of evenness fails although the choice is even."""


def counts(
    name: str,
    schema: Schema,
    types: Types,
    rows: list[Row],
    sql: str,
    *salts: bytes,
    constant: str | None = None,
) -> list[Counts]:
    """The counts of one engine under each salt, with its own hash or another expression in its place."""
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(name, rows, types, Path(folder), schema)
        try:
            with nullcontext() if constant is None else constant_hash(engine, constant):
                return [engine.count(ask(schema, sql), salt=salt) for salt in salts]
        finally:
            engine.close()


CONSTANT = "(CAST({salt} AS BIGINT) & 0)"


@pytest.mark.parametrize("name", choices(name for name in MAKERS if name not in SLOW))
@pytest.mark.parametrize("constant", [None, CONSTANT], ids=["own-hash", "constant-hash"])
@pytest.mark.parametrize("distinct", [False, True])
@examples(15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_person_changes_counts_by_no_more_than_the_declared_bounds(
    name: str, constant: str | None, distinct: bool, data: st.DataObject
) -> None:
    check_bounds(name, constant, distinct, data)


@pytest.mark.slow  # a Spark job for each person
@pytest.mark.parametrize("name", choices(sorted(SLOW)))
@pytest.mark.parametrize("constant", [None, CONSTANT], ids=["own-hash", "constant-hash"])
@examples(2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_person_changes_counts_by_no_more_than_the_declared_bounds_on_slow_engines(
    name: str, constant: str | None, data: st.DataObject
) -> None:
    check_bounds(name, constant, data.draw(st.booleans()), data)


def check_bounds(name: str, constant: str | None, distinct: bool, data: st.DataObject) -> None:
    schema, types, rows = data.draw(crowds(name))
    by = data.draw(st.sampled_from([[], ["region"], ["age"], ["region", "age"]]))
    sql = naive.sql(schema, by, data.draw(st.sampled_from([None, ADULT])), distinct)
    salt = data.draw(st.binary(min_size=1, max_size=16))

    def count_rows(rows: list[Row]) -> Counts:
        return counts(name, schema, types, rows, sql, salt, constant=constant)[0]

    whole = count_rows(rows)
    alone = np.zeros_like(whole)
    for person in dict.fromkeys(row["id"] for row in rows):
        own = [row for row in rows if row["id"] == person]
        change = whole - count_rows([row for row in rows if row["id"] != person])
        most = 1 if distinct else schema.rows_per_person
        assert np.count_nonzero(change) <= (0 if person is None else schema.cells_per_person)
        assert change.min(initial=0) >= 0
        assert change.max(initial=0) <= most
        single = count_rows(own)
        assert (single == change).all()  # the rows selected for other people stay the same
        alone += single
    assert (alone == whole).all()


def crowd(size: int, cells: int, most: int = 1, kind: str = "int64") -> tuple[Schema, Types, list[Row]]:
    """People who are in all 40 cells."""
    schema = Schema("people", (REGION, AGE), unit="id", cells_per_person=cells, rows_per_person=most)
    everybody = [str(i) if kind == "text" else i for i in range(size)]
    rows = [{"id": i, "region": r, "age": a} for i in everybody for r in REGION.values for a in range(10)]
    return schema, {"id": kind, "region": "text", "age": "int64"}, rows


@pytest.mark.parametrize("name", choices())
def test_the_salt_alone_selects_the_cells_of_a_person(name: str) -> None:
    schema, types, rows = crowd(30, 2)
    sql = naive.sql(schema, ["region", "age"])
    first, again, other = counts(name, schema, types, rows, sql, b"one", b"one", b"two")
    assert first.sum() == other.sum() == 60
    assert (first == again).all()
    assert (first != other).any()
    (backwards,) = counts(name, schema, types, rows[::-1], sql, b"one")  # the order of rows has no effect
    assert (first == backwards).all()


@pytest.mark.parametrize("name", choices())
@pytest.mark.parametrize(("cells", "most"), [(1, 1), (1, 3), (3, 1), (3, 2), (7, 1), (7, 2)])
def test_if_hashes_are_equal_the_lowest_cells_of_a_person_are_selected(name: str, cells: int, most: int) -> None:
    schema, types, rows = crowd(20, cells, most)
    by, rows = ["region", "age"], [*rows, *rows[40:], *rows[::-1]]  # the first person has two rows in each cell
    (lowest,) = counts(name, schema, types, rows, naive.sql(schema, by), b"salt", constant=CONSTANT)
    assert lowest.tolist() == naive.count(schema, by, None, False, rows)


@pytest.mark.parametrize("name", choices())
@pytest.mark.parametrize("most", [1, 3])
def test_the_salt_has_no_effect_if_a_person_may_be_in_every_cell(name: str, most: int) -> None:
    schema, types, rows = crowd(5, 40, most)
    by, rows = ["region", "age"], [*rows, *rows[7:100]]
    first, other = counts(name, schema, types, rows, naive.sql(schema, by), b"one", b"two")
    assert first.tolist() == other.tolist() == naive.count(schema, by, None, False, rows)


def evenness(selected: Counts, people: int, cells: int) -> float:
    """The p-value of a chi-square test that so many people were counted in so many cells each, evenly."""
    size, chance = len(selected), cells / len(selected)
    spread = people * chance * (1 - chance) * size / (size - 1)
    return float(chi2.sf(((selected - people * chance) ** 2).sum() / spread, size - 1))


EVEN = [(1, "int64"), (3, "int64"), (7, "int64"), (1, "text")]


@pytest.mark.parametrize("name", choices(["pyarrow", "postgres", "spark"]))
@pytest.mark.parametrize(("cells", "kind"), EVEN)
def test_every_cell_is_selected_for_about_as_many_people(name: str, cells: int, kind: str) -> None:
    """Over people: 2000 people in all 40 cells."""
    schema, types, rows = crowd(2000, cells, kind=kind)
    (selected,) = counts(name, schema, types, rows, naive.sql(schema, ["region", "age"]), b"salt")
    assert selected.sum() == 2000 * cells
    assert evenness(selected, 2000, cells) > RARE


@pytest.mark.postgres
@pytest.mark.parametrize("most", [1, 2])
def test_people_who_can_be_in_very_many_cells_are_counted_without_arrays(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, types, rows = crowd(20, 3, most)
    sql, rows = naive.sql(schema, ["region", "age"]), [*rows, *rows[40:]]
    (with_arrays,) = counts("postgres", schema, types, rows, sql, b"salt")
    monkeypatch.setattr("countveil.data.engines.postgres_sql.LARGEST_ARRAY", 39)
    (without,) = counts("postgres", schema, types, rows, sql, b"salt")
    assert (with_arrays == without).all()


def triples(size: int, kind: str) -> tuple[Schema, Types, list[Row]]:
    """People who are in three cells each, which nobody else is in."""
    schema = Schema("people", (Column("cell", "integer", low=0, high=3 * size - 1),), unit="id")
    rows = [{"id": str(i // 3) if kind == "text" else i // 3, "cell": i} for i in range(3 * size)]
    return schema, {"id": kind, "cell": "int64"}, rows


def fresh_evenness(name: str, kind: str, constant: str | None = None) -> float:
    """The p-value of a test that each person's cell is chosen evenly, and independently under two salts."""
    schema, types, rows = triples(2000, kind)
    sql = naive.sql(schema, ["cell"])
    one, two = (
        chosen.reshape(-1, 3).argmax(axis=1)
        for chosen in counts(name, schema, types, rows, sql, b"one", b"two", constant=constant)
    )
    return evenness(np.bincount(3 * one + two, minlength=9), 2000, 1)


@pytest.mark.parametrize("name", choices(["pyarrow", "postgres", "spark"]))
@pytest.mark.parametrize("kind", ["int64", "text"])
def test_two_salts_select_the_cell_of_a_person_independently(name: str, kind: str) -> None:
    assert fresh_evenness(name, kind) > RARE


@pytest.mark.postgres
def test_numbers_of_many_digits_are_hashed_too() -> None:
    assert fresh_evenness("postgres", "huge") > RARE


def set_evenness(name: str, kind: str, most: int = 1, constant: str | None = None) -> float:
    """The p-value of a test that the two cells of each person are an even choice out of four, under two salts."""
    size, pairs = 2000, [0b0011, 0b0101, 0b0110, 0b1001, 0b1010, 0b1100]
    domain = Column("cell", "integer", low=0, high=4 * size - 1)
    schema = Schema("people", (domain,), unit="id", cells_per_person=2, rows_per_person=most)
    rows = [{"id": str(i // 4) if kind == "text" else i // 4, "cell": i} for i in range(4 * size)]
    types, sql = {"id": kind, "cell": "int64"}, naive.sql(schema, ["cell"])
    chosen = counts(name, schema, types, rows, sql, b"one", b"two", constant=constant)
    one, two = (np.searchsorted(pairs, each.reshape(-1, 4) @ [1, 2, 4, 8]) for each in chosen)
    joint = np.bincount(6 * one + two, minlength=36)
    return float(chi2.sf(((joint - size / 36) ** 2).sum() / (size / 36), 35))


@pytest.mark.parametrize("name", choices(["pyarrow", "postgres", "spark"]))
@pytest.mark.parametrize(("kind", "most"), [("int64", 1), ("int64", 2), ("text", 1), ("huge", 1)])
def test_every_pair_of_four_cells_is_selected_as_often_and_independently_under_two_salts(
    name: str, kind: str, most: int
) -> None:
    assert set_evenness(name, kind, most) > RARE


def test_the_test_of_evenness_detects_uneven_hashes() -> None:
    """DuckDB's hash combines its last argument by XOR: neither the cell nor the salt may be the last one."""
    schema, types, rows = crowd(2000, 1)
    last = "CAST(hash({salt}, u, cell) >> 1 AS BIGINT)"
    (selected,) = counts("pyarrow", schema, types, rows, naive.sql(schema, ["region", "age"]), b"salt", constant=last)
    assert evenness(selected, 2000, 1) < RARE
    for weak in ("CAST(hash(u, cell, CAST({salt} AS BIGINT)) >> 1 AS BIGINT)", CONSTANT):
        assert fresh_evenness("pyarrow", "int64", weak) < RARE
        assert set_evenness("pyarrow", "int64", constant=weak) < RARE


def test_a_naive_count_with_a_wrong_bound_differs_from_the_count_of_the_engine() -> None:
    """A naive count with a wrong bound differs from the engine's, so the comparison can fail."""
    schema, types, rows = crowd(5, 2, most=2)
    by = ["region", "age"]
    (right,) = counts("pyarrow", schema, types, rows * 3, naive.sql(schema, by), b"salt", constant=CONSTANT)
    assert right.tolist() == naive.count(schema, by, None, False, rows * 3)
    for cells, most in ((3, 2), (1, 2), (2, 3), (2, 1)):
        wrong = Schema("people", (REGION, AGE), unit="id", cells_per_person=cells, rows_per_person=most)
        assert right.tolist() != naive.count(wrong, by, None, False, rows * 3)
