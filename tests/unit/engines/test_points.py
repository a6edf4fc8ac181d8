"""Rows as points: every count is what going through the rows one by one gives."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countveil.engines import Source, duckdb_held
from countveil.engines.duckdb import DuckDBEngine
from countveil.engines.points import NULL, OUTSIDE, PointRows
from countveil.errors import EngineError
from countveil.query import Question, ask
from countveil.query.condition import ALWAYS, NEVER, All, Any, Member, Typed, set_of
from countveil.schema import Column, Schema

COLUMNS = (
    Column("w", "text", ("a", "b", "c", "d")),
    Column("x", "integer", low=-3, high=9, step=5),
    Column("y", "integer", low=100, high=104),
)
SCHEMA = Schema("people", COLUMNS)


def accepts(condition: Typed, row: dict[Column, int]) -> bool:
    """A condition as it is defined; `row` has points, NULL just below the domain, outside below that."""
    if isinstance(condition, Member):
        point = row[condition.column]
        return any(low <= point <= high for low, high in condition.points)
    every = isinstance(condition, All)
    return (all if every else any)(accepts(part, row) for part in condition.parts)


@st.composite
def members(draw: st.DrawFn) -> Member:
    column = draw(st.sampled_from(COLUMNS))
    chosen = draw(st.sets(st.integers(column.first - 1, column.last)))
    return Member(column, set_of(chosen))


conditions = st.recursive(
    st.one_of(members(), st.sampled_from([ALWAYS, NEVER])),
    lambda inner: st.builds(lambda kind, parts: kind(tuple(parts)), st.sampled_from([All, Any]), st.lists(inner)),
    max_leaves=8,
)


@given(
    where=st.one_of(st.none(), conditions),
    by=st.sets(st.sampled_from(COLUMNS)),
    rows=st.lists(st.tuples(*(st.integers(OUTSIDE, column.last - column.first) for column in COLUMNS)), max_size=40),
)
def test_counts_are_those_of_the_rows_one_by_one(
    where: Typed | None, by: set[Column], rows: list[tuple[int, ...]]
) -> None:
    grouped = tuple(column for column in COLUMNS if column in by)
    table = np.array(rows, dtype=np.int8).reshape(-1, 3)
    points = PointRows(len(rows), {column: table[:, i].copy() for i, column in enumerate(COLUMNS)})
    found = points.count(Question(SCHEMA, grouped, True, where, grouped))
    cells: Counter[tuple[int, ...]] = Counter()
    for row in rows:
        placed = {column: column.first + offset for column, offset in zip(COLUMNS, row, strict=True)}
        if where is None or accepts(where, placed):
            cells[tuple((placed[column] - column.first) // column.step for column in grouped)] += 1
    keys = product(*(range(column.keys) for column in grouped))
    assert found.dtype == np.int64
    assert found.tolist() == [cells[key] for key in keys], "what is NULL or outside is in no cell"


def test_a_question_about_other_columns_is_left_to_the_engine() -> None:
    points = PointRows(1, {COLUMNS[0]: np.array([0], dtype=np.int8)})
    assert points.can(ask(SCHEMA, "SELECT w, count(*) FROM people WHERE w <> 'a' GROUP BY w"))
    assert not points.can(ask(SCHEMA, "SELECT count(*) FROM people WHERE w = 'a' OR x = 1"))
    assert not points.can(ask(SCHEMA, "SELECT y, count(*) FROM people GROUP BY y"))


@pytest.mark.parametrize("last", [126, 127, 128, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**62 - 1])
@pytest.mark.parametrize("low", [0, -(2**62)])
def test_columns_of_every_width(tmp_path: Path, low: int, last: int) -> None:
    """The ends of the domain, what is next to them on either side, and NULL, wherever an integer type ends."""
    high = low + last
    values = [low, low + 1, high - 1, high, high, low - 1, high + 1, None]
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), tmp_path / "rows.parquet")
    schema = Schema("people", (Column("x", "integer", low=low, high=high, step=max(1, last // 2)),))
    whole = Schema("people", (Column("x", "integer", low=low, high=high, step=last + 1),))
    engine = DuckDBEngine(Source("rows.parquet", directory=tmp_path), schema)

    def counted(where: str) -> list[int]:
        question = ask(schema, f"SELECT count(*) FROM people WHERE {where}")
        assert engine._points is not None
        assert engine._points.can(question)
        return [
            int(found[0])
            for found in (engine.count(question, key=b""), super(DuckDBEngine, engine).count(question, key=b""))
        ]

    assert counted(f"x = {high}") == [2, 2]
    assert counted(f"x >= {low}") == [5, 5]
    assert counted(f"x < {high}") == [3, 3]
    assert counted(f"x <> {low}") == [4, 4]
    assert counted("x IS NULL") == [1, 1]
    assert counted("x IS NOT NULL") == [5, 5]
    assert counted(f"x IN ({low}, {high - 1}, {high})") == [4, 4]
    assert counted(f"x IS NULL OR x = {low} OR x = {high}") == [4, 4]
    grouped = engine.count(ask(schema, "SELECT x, count(*) FROM people GROUP BY x"), key=b"")
    assert (grouped[0], grouped.sum()) == (2, 5)
    engine.close()
    engine = DuckDBEngine(Source("rows.parquet", directory=tmp_path), whole)
    assert engine.count(ask(whole, "SELECT x, count(*) FROM people GROUP BY x"), key=b"").tolist() == [5]
    assert engine._points is not None
    engine.close()


def test_columns_are_read_in_batches_and_not_kept_as_points_where_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{i}" for i in range(7)]
    values = {name: [(i + j) % 9 - 1 for j in range(40)] for i, name in enumerate(names)}
    pq.write_table(pa.table(values), tmp_path / "rows.parquet")
    schema = Schema("people", tuple(Column(name, "integer", low=0, high=6) for name in names))
    source = Source("rows.parquet", directory=tmp_path)
    sqls = [f"SELECT {a}, count(*) FROM people WHERE {b} >= 3 GROUP BY {a}" for a in names for b in names if a != b]
    found = []
    for most, kept in ((duckdb_held.MAX_POINTS, True), (7 * 40, True), (7 * 40 - 1, False)):
        monkeypatch.setattr(duckdb_held, "MAX_POINTS", most)
        monkeypatch.setattr(duckdb_held, "READ", 3)
        engine = DuckDBEngine(source, schema)
        assert (engine._points is not None) is kept
        found.append([engine.count(ask(schema, sql), key=b"").tolist() for sql in sqls])
        engine.close()
    assert found[0] == found[1] == found[2]


def test_a_fault_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "rows.parquet")
    schema = Schema("people", (Column("x", "integer", low=0, high=9),))
    engine = DuckDBEngine(Source("rows.parquet", directory=tmp_path), schema)
    monkeypatch.setattr(PointRows, "_where", lambda self, condition: 1 / 0)
    with pytest.raises(EngineError, match=r"^the source could not be read"):
        engine.count(ask(schema, "SELECT count(*) FROM people WHERE x = 1"), key=b"")
    engine.close()


def test_null_is_the_point_before_the_domain_and_outside_is_none() -> None:
    assert (NULL, OUTSIDE) == (-1, -2)
