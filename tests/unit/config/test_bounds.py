"""Choices of contribution bounds: what each leaves out, how much noise it needs, and which one is proposed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from countveil.config import bounds as module
from countveil.config.bounds import BoundsTable, PlannedAnswers, choose_tables, compare_bounds
from countveil.data.engines import Engine, Source, open_engine
from countveil.errors import ParameterError
from countveil.query.schema import Column

PLANNED = PlannedAnswers(3, 1e-6, 50)
CELL = Column("cell", "integer", low=0, high=9)
OTHER = Column("other", "text", ("a", "b"))
WIDE = Column("wide", "integer", low=0, high=10**6)


@contextmanager
def engine_of(rows: Iterable[tuple[int, int]]) -> Iterator[Engine]:
    people, cells = zip(*rows, strict=True)
    frame = pa.table({"person": pa.array(people, pa.int64()), "cell": pa.array(cells, pa.int64())})
    engine = open_engine(Source(frame=frame))
    try:
        yield engine
    finally:
        engine.close()


def compare(
    rows: list[tuple[int, int]],
    planned: PlannedAnswers | None = PLANNED,
    declared: tuple[int, int] | None = None,
    size: int | None = None,
) -> BoundsTable:
    with engine_of(rows) as engine:
        return compare_bounds(engine, "person", [(CELL,)], size or len(rows), planned, declared)


def test_if_each_person_has_one_row_the_narrowest_bounds_lose_nothing() -> None:
    table = compare([(i, i % 10) for i in range(3000)])
    assert table.best.bounds == (1, 1)
    assert (table.best.rows_kept, table.best.people_kept, table.best.left_out) == (1, 1, 0)
    assert table.best.larger == "noise"
    assert [choice.bounds for choice in table.choices] == [(1, 1)]
    assert table.worst_cells == ()


def test_for_many_people_with_three_rows_bounds_of_three_rows_are_proposed() -> None:
    """In cells of 3,000 rows, leaving two thirds of the rows out is worse than three times the noise."""
    table = compare([(i, i % 10) for i in range(10_000) for _ in range(3)])
    assert table.best.bounds == (3, 1)
    assert table.best.rows_kept == pytest.approx(1)
    assert table.best.margin_95 == PLANNED.margin(3, 1)
    narrow = next(choice for choice in table.choices if choice.bounds == (1, 1))
    assert (narrow.rows_kept, narrow.people_kept) == pytest.approx((1 / 3, 0))
    assert (narrow.left_out, narrow.larger) == (pytest.approx(2 / 3), "left out")


def test_for_few_people_narrow_bounds_are_proposed_because_noise_dominates() -> None:
    table = compare([(i, i % 10) for i in range(100) for _ in range(3)])
    assert table.best.bounds == (1, 1)


def test_the_error_of_bounds_is_the_loss_plus_the_margin_of_a_median_cell() -> None:
    rows = [(i, i % 10) for i in range(5_000) for _ in range(2)]
    choice = next(each for each in compare(rows).choices if each.bounds == (1, 1))
    assert choice.noise == pytest.approx(PLANNED.margin(1, 1) / 1000)
    assert choice.error == pytest.approx(0.5 + PLANNED.margin(1, 1) / 1000)


def test_if_people_are_in_five_cells_bounds_of_five_cells_are_proposed() -> None:
    table = compare([(i, (i + j) % 10) for i in range(20_000) for j in range(5)])
    assert table.best.bounds == (1, 5)
    assert table.best.people_kept == pytest.approx(1)


def test_declared_bounds_off_the_grid_are_compared_with_their_worst_cells() -> None:
    rows = [(i, i % 9) for i in range(9_000)] + [(i // 70 + 10**6, 9) for i in range(1400)]
    table = compare(rows, declared=(7, 4))
    assert table.declared is not None
    assert table.declared.bounds == (7, 4)
    assert table.declared.worst_left_out == pytest.approx(0.9)
    assert [(cell.by, cell.labels, cell.rows, round(cell.left_out, 9)) for cell in table.worst_cells] == [
        (("cell",), ("9",), 1400, 0.9)
    ]


def test_declared_bounds_that_are_not_on_the_grid_are_not_proposed() -> None:
    rows = [(i, i % 10) for i in range(10_000) for _ in range(4)]
    assert compare(rows, declared=(4, 1)).best.bounds == (5, 1)


def test_without_a_budget_the_noise_is_unknown_and_the_proposed_bounds_keep_all_rows() -> None:
    table = compare([(i, i % 10) for i in range(100) for _ in range(3)], planned=None)
    assert (table.best.bounds, table.best.margin_95, table.best.noise) == ((3, 1), None, None)


def test_bounds_whose_noise_cannot_be_planned_are_not_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_MARGIN", PLANNED.margin(2, 1))
    table = compare([(i, i % 10) for i in range(10_000) for _ in range(3)])
    assert table.best.bounds == (2, 1)


def test_a_large_source_is_surveyed_by_a_sample_of_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SURVEYED", 10_000)
    rows = [(i, i % 10) for i in range(10_000) for _ in range(3)]
    table = compare(rows)
    assert table.one_in == 3
    assert table.best.bounds == (3, 1)
    full = compare(rows, size=1)
    assert table.best.noise == pytest.approx(full.best.noise, rel=0.2)  # of the cell's rows, not of the sample's


def test_the_bounds_proposed_for_a_source_without_rows_are_1_and_1() -> None:
    frame = pa.table({"person": pa.array([], pa.int64()), "cell": pa.array([], pa.int64())})
    engine = open_engine(Source(frame=frame))
    try:
        table = compare_bounds(engine, "person", [(CELL,)], 0, PLANNED)
    finally:
        engine.close()
    assert (table.best.bounds, table.best.rows_kept) == ((1, 1), 1)


def test_among_efficient_bounds_those_with_more_noise_keep_more_rows() -> None:
    table = compare([(i // 6, (i // 2) % 10) for i in range(9_000)], declared=(1, 1))
    shown = table.efficient
    assert {table.best.bounds, (1, 1)} <= {choice.bounds for choice in shown}
    pairs = [(choice.margin_95, choice.rows_kept) for choice in shown]
    assert pairs == sorted(pairs)
    assert len(shown) < len(table.choices)


def test_a_comparison_of_bounds_can_be_written_as_json() -> None:
    described = compare([(i, i % 10) for i in range(100) for _ in range(3)], declared=(1, 1)).describe()
    plain = json.loads(json.dumps(described))
    assert plain["tables"] == [["cell"]]
    assert plain["declared"]["rows_kept"] == 0.3333
    assert {"rows_per_person", "cells_per_person", "margin_95", "larger", "worst_left_out"} <= set(plain["best"])
    assert plain["worst_cells"][0]["by"] == ["cell"]


# Tables


def test_if_no_tables_are_named_there_is_one_for_each_small_column() -> None:
    assert choose_tables([CELL, WIDE, OTHER]) == [(CELL,), (OTHER,)]
    assert choose_tables([WIDE]) == [()]
    many = [Column(f"c{i}", "integer", low=0, high=9) for i in range(20)]
    assert choose_tables(many) == [(column,) for column in many[:8]]


def test_tables_are_chosen_by_column_names_separated_by_commas() -> None:
    columns = [CELL, WIDE, OTHER]
    assert choose_tables(columns, ["other, cell", "wide", "cell,other"]) == [(OTHER, CELL), (WIDE,)]
    assert choose_tables(columns, [""]) == [()]


@pytest.mark.parametrize("names", ["nope", "cell,nope", "cell,cell", "cell;other"])
def test_tables_by_unknown_or_repeated_columns_are_refused(names: str) -> None:
    with pytest.raises(ParameterError, match="out of: cell, other"):
        choose_tables([CELL, OTHER], [names])
