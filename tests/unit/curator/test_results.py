"""Tables of released counts: labels, frames, sums with their errors, and nothing in them but y and public facts."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import countveil as cv
from countveil.answers import CONSISTENT, Receipt, Table, draw_counts, make_table
from countveil.errors import EngineError, ParameterError
from countveil.intervals import Intervals
from countveil.query import ask
from countveil.schema import Column, Schema

TINY = 1e-9
RECEIPT = Receipt("id", "people", 1, "q", "text", "m", "people", "1", "1e-6", 4, 3, "2026-11-16T00:00:00+00:00")
SCHEMA = Schema(
    "people",
    (
        Column("region", "text", ("North", "two\nlines", "")),
        Column("ok", "boolean", (False, True)),
        Column("day", "date", low=datetime.date(2026, 1, 30).toordinal(), high=datetime.date(2026, 2, 2).toordinal()),
        Column("age", "integer", low=-5, high=14, step=10),
        Column("code", "integer", (7, 3)),
        Column("count_low", "integer", (1, 2)),
    ),
)


@cache
def intervals() -> Intervals:
    return Intervals(cv.design(epsilon="1", delta="1e-4"))


def table(sql: str, counts: Any = None, **more: Any) -> Table:
    question = ask(SCHEMA, sql)
    values = np.arange(question.cells, dtype=np.int64) if counts is None else np.array(counts, dtype=np.int64)
    return make_table(question, values, intervals(), RECEIPT, False, **more)


def by(*columns: str) -> str:
    return f"SELECT {', '.join(columns)}, count(*) FROM people GROUP BY {', '.join(columns)}"


def test_labels() -> None:
    assert [row[0] for row in table(by("region")).rows] == ["North", "two\nlines", ""]
    assert [row[0] for row in table(by("ok")).rows] == [False, True]
    assert [row[0] for row in table(by("day")).rows][1:3] == [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)]
    assert [row[0] for row in table(by("age")).rows] == ["-5..4", "5-14"]
    assert [row[0] for row in table(by("code")).rows] == [7, 3]


def test_rows_hold_y_and_an_interval_that_depends_on_y_alone() -> None:
    found = list(table(by("region", "ok"), [4, 4, 0, 9, 4, 0]).rows)
    ends: dict[int, tuple[int, int]] = {}
    for _, _, y, low, high in found:
        assert ends.setdefault(y, (low, high)) == (low, high)
        assert low <= y <= high or y == 0
    assert [row[2] for row in found] == [4, 4, 0, 9, 4, 0]


def test_cells_in_the_order_asked() -> None:
    straight, crossed = table(by("region", "ok", "code")), table(by("code", "region", "ok"))
    assert {row[:3]: row[3:] for row in straight.rows} == {(r, o, c): tuple(y) for c, r, o, *y in crossed.rows}
    assert [row[0] for row in crossed.rows] == [7] * 6 + [3] * 6


def test_the_ends_of_the_interval_take_no_name_of_a_column() -> None:
    found = table(by("count_low"))
    assert found.columns == ["count_low", "count", "count_low_95", "count_high_95"]
    assert found.to("pandas")["count_low"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_hold_the_rows(kind: str) -> None:
    found = table(by("day", "ok", "region", "age"), kind=kind)
    assert type(found.frame).__module__.startswith(kind)
    frame = found.frame if kind == "pandas" else found.frame.to_pandas()
    assert list(frame.columns) == found.columns
    assert isinstance(frame.index, pd.RangeIndex)
    for column, values in zip(found.columns, zip(*found.rows, strict=True), strict=True):
        held = [v.date() if isinstance(v, pd.Timestamp) else v for v in frame[column].tolist()]
        assert held == list(values)


def test_a_frame_of_one_count() -> None:
    assert table("SELECT count(*) FROM people", [41]).to("pandas")["count"].tolist() == [41]


@pytest.mark.parametrize("kind", ["numpy", "", None, 3, ["pandas"]])
def test_unknown_kinds_of_frames(kind: Any) -> None:
    with pytest.raises(ParameterError, match="frame"):
        table(by("ok")).to(kind)


def test_json_says_everything_in_plain_values() -> None:
    described = json.loads(json.dumps(table(by("day", "ok"), [2**62, *range(7)]).describe()))
    assert described["columns"] == ["day", "ok", "count", "count_low", "count_high"]
    assert described["rows"][0][:3] == ["2026-01-30", False, 2**62]
    assert set(described) >= {"schema_version", "columns", "rows", "receipt", "replayed", "margin_95", "worst_error"}
    assert described["receipt"]["epsilon"] == "1"
    assert described["total"]["note"] == CONSISTENT


# Sums


def test_totals_are_sums_of_what_was_released() -> None:
    found = table(by("region", "ok"), [5, 0, 3, 2, 2**40, 1])
    total = found.total()
    assert (total.value, total.cells) == (2**40 + 11, 6)
    assert total.worst_error == 6 * found.mechanism.certificate.worst_error
    assert "agree by construction" in total.note
    assert "need not agree" in total.note


def test_subtotals_agree_with_parts_and_totals() -> None:
    rng = np.random.default_rng(1)
    found = table(by("region", "ok", "code"), rng.integers(0, 100, 12))
    frame = found.to("pandas")
    for columns in (["region"], ["ok"], ["code", "region"], ["region", "ok", "code"], []):
        parts = found.subtotals(columns)
        assert sum(part.value for _, part in parts) == found.total().value
        for key, part in parts:
            chosen = frame
            for name, label in zip(columns, key, strict=True):
                chosen = chosen[chosen[name] == label]
            assert (part.value, part.cells) == (chosen["count"].sum(), len(chosen))
    assert found.subtotals("ok") == found.subtotals(["ok"])


@pytest.mark.parametrize("columns", ["nope", ["ok", "ok"], ["region", "age"], [3]])
def test_bad_subtotals(columns: Any) -> None:
    with pytest.raises(ParameterError, match="by"):
        table(by("region", "ok")).subtotals(columns)


def test_no_wrap_in_sums_of_huge_counts() -> None:
    assert table(by("region", "ok"), [2**63 - 1] * 6).total().value == 6 * (2**63 - 1)


@pytest.mark.parametrize("n", [0, 1, 3, 10**6])
def test_the_margin_of_a_total_holds_on_the_running_sampler(n: int) -> None:
    """20,000 tables of 12 cells: the sum is further off than its margin in at most 5 %, up to p = 1e-9."""
    found = table(by("region", "ok", "code"), [0] * 12)
    mechanism, tables = found.mechanism, 20_000
    released = mechanism.release(np.full(12 * tables, n, dtype=np.int64)).reshape(tables, 12)
    off = np.abs(released.sum(axis=1) - 12 * n)
    total = found.total()
    assert off.max() <= total.worst_error
    assert stats.binomtest(int((off > total.margin_95).sum()), tables, 0.05, "greater").pvalue > TINY


def test_a_total_asked_for_on_its_own_is_closer() -> None:
    found = table(by("region", "ok", "code"))
    assert found.mechanism.margin_95 < found.total().margin_95


def test_a_replay_is_told() -> None:
    assert replace(table(by("ok")), replayed=True).describe()["replayed"] is True


@pytest.mark.parametrize(
    "counts",
    [[7], None, np.array([7.0]), np.array([7], dtype=np.int32), np.array([[7]]), np.array([7, 7]), np.array([-1])],
)
def test_what_an_engine_returns_is_counts_of_all_cells_or_refused(counts: Any) -> None:
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    with pytest.raises(EngineError, match=r"^the engine returned what cannot be counts; the charge is kept$"):
        draw_counts(mechanism, counts, 1)
    assert draw_counts(mechanism, np.array([7]), 1).shape == (1,)
