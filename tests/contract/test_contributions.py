"""What contribution bounds leave out, from one statement on every engine, equals a naive computation in Python."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from countveil.data.contributions import TableContributions, survey_contributions
from countveil.query.schema import Column
from tests.support.makers import Types, choices, opened
from tests.support.naive import Row

REGION = Column("region", "text", ("N", "S'", "Ünï"))
AGE = Column("age", "integer", low=0, high=29, step=10)
DAY = Column("day", "date", low=datetime.date(2026, 1, 1).toordinal(), high=datetime.date(2026, 1, 3).toordinal())
TYPES: Types = {"id": "int64", "region": "text", "age": "int64", "day": "date"}
ROWS, CELLS = (1, 2, 5, 10), (1, 2, 3, 5)
TABLES = ((REGION,), (AGE,), (DAY,), (REGION, DAY), ())


def make_rows() -> list[Row]:
    chance = random.Random(7)
    rows: list[Row] = []
    for person in [None, *range(12)]:
        for _ in range(chance.choice([1, 1, 2, 5, 12])):
            day = datetime.date(2026, 1, chance.randint(1, 5))
            place = chance.choice(["N", "N", "S'", "Ünï", "elsewhere", None])
            rows.append({"id": person, "region": place, "age": chance.randint(-1, 31), "day": day})
    return rows


def label(column: Column, value: Any) -> str | None:
    """The label of a value's bin; None outside the domain."""
    if column.is_listed:
        return value if value in column.values else None
    point = value.toordinal() if isinstance(value, datetime.date) else value
    if point is None or not column.low <= point <= column.high:
        return None
    return str(column.key_labels()[(point - column.low) // column.step])


def naive_cells(rows: list[Row], table: tuple[Column, ...]) -> dict[Any, Counter[Any]]:
    """For each person, the number of rows in each cell."""
    people: dict[Any, Counter[Any]] = {}
    for row in rows:
        cell = tuple(label(column, row[column.name]) for column in table)
        if row["id"] is not None and None not in cell:
            people.setdefault(row["id"], Counter())[cell] += 1
    return people


def naive_kept(people: dict[Any, Counter[Any]], r: int, c: int) -> dict[Any, float]:
    kept: Counter[Any] = Counter()
    for cells in people.values():
        for cell, n in cells.items():
            kept[cell] += min(n, r) * min(1, c / len(cells))  # type: ignore[assignment]
    return dict(kept)


@pytest.mark.parametrize("name", choices())
def test_a_survey_of_contributions_equals_a_naive_computation(name: str, tmp_path: Path) -> None:
    rows = make_rows()
    engine = opened(name, rows, TYPES, tmp_path, None)  # type: ignore[arg-type]
    try:
        surveys = survey_contributions(engine, "id", TABLES, ROWS, CELLS)
    finally:
        engine.close()
    for table, survey in zip(TABLES, surveys, strict=True):
        check_survey(survey, table, naive_cells(rows, table))


def check_survey(survey: TableContributions, table: tuple[Column, ...], people: dict[Any, Counter[Any]]) -> None:
    total = sum(people.values(), Counter())
    assert survey.by == tuple(column.name for column in table)
    assert dict(zip(survey.labels, survey.rows, strict=True)) == dict(total)
    assert survey.people == pytest.approx(len(people))
    assert survey.most_rows == max(max(cells.values()) for cells in people.values())
    assert survey.most_cells == max(map(len, people.values()))
    for i, r in enumerate(ROWS):
        for j, c in enumerate(CELLS):
            kept = dict(zip(survey.labels, survey.count_kept_rows(i, j), strict=True))
            assert kept == pytest.approx(naive_kept(people, r, c))
            whole = [p for p in people.values() if len(p) <= c and max(p.values()) <= r]
            assert survey.whole(i, j) == pytest.approx(len(whole) / len(people))


@pytest.mark.parametrize("name", choices(["parquet", "postgres", "spark"]))
@pytest.mark.parametrize("kind", ["int64", "text"])
def test_a_sampled_survey_has_all_rows_of_the_sampled_people(name: str, kind: str, tmp_path: Path) -> None:
    people = range(400) if kind == "int64" else [f"person {i} é" for i in range(400)]
    rows: list[Row] = [{"id": person, "region": "N"} for person in people for _ in range(3)]
    engine = opened(name, rows, {"id": kind, "region": "text"}, tmp_path, None)  # type: ignore[arg-type]
    try:
        (survey,) = survey_contributions(engine, "id", [(REGION,)], ROWS, CELLS, one_in=4)
    finally:
        engine.close()
    assert 50 < survey.people < 150  # 100 are expected
    assert survey.rows.sum() == pytest.approx(3 * survey.people)
    assert survey.most_rows == 3


def test_a_source_without_rows_has_an_empty_survey(tmp_path: Path) -> None:
    engine = opened("parquet", [], {"id": "int64", "region": "text"}, tmp_path, None)  # type: ignore[arg-type]
    try:
        (survey,) = survey_contributions(engine, "id", [(REGION,)], ROWS, CELLS)
    finally:
        engine.close()
    assert (len(survey.rows), survey.people, survey.most_rows, survey.most_cells) == (0, 0, 0, 0)
