"""Tables of released counts: labels, frames, sums with their errors, which contain only y and public facts."""

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
from countveil.curator.recorded_counts import draw_counts
from countveil.curator.results import CONSISTENT, Receipt, Table, make_table
from countveil.errors import EngineError, MissingExtraError, ParameterError
from countveil.mechanism.intervals import Intervals
from countveil.query import ask
from countveil.query.schema import Column, Schema

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


def test_labels_have_the_types_of_their_columns() -> None:
    assert [row[0] for row in table(by("region")).rows] == ["North", "two\nlines", ""]
    assert [row[0] for row in table(by("ok")).rows] == [False, True]
    assert [row[0] for row in table(by("day")).rows][1:3] == [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)]
    assert [row[0] for row in table(by("age")).rows] == ["-5..4", "5-14"]
    assert [row[0] for row in table(by("code")).rows] == [7, 3]


def test_rows_hold_y_and_an_interval_that_depends_on_y_alone() -> None:
    result = list(table(by("region", "ok"), [4, 4, 0, 9, 4, 0]).rows)
    ends: dict[int, tuple[int, int]] = {}
    for _, _, y, low, high in result:
        assert ends.setdefault(y, (low, high)) == (low, high)
        assert low <= y <= high or y == 0
    assert [row[2] for row in result] == [4, 4, 0, 9, 4, 0]


def test_cells_come_in_the_order_of_the_group_columns() -> None:
    straight, crossed = table(by("region", "ok", "code")), table(by("code", "region", "ok"))
    assert {row[:3]: row[3:] for row in straight.rows} == {(r, o, c): tuple(y) for c, r, o, *y in crossed.rows}
    assert [row[0] for row in crossed.rows] == [7] * 6 + [3] * 6


def test_interval_columns_never_take_the_name_of_a_group_column() -> None:
    result = table(by("count_low"))
    assert result.columns == ["count_low", "count", "count_low_95", "count_high_95"]
    assert result.to("pandas")["count_low"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_of_a_table_hold_its_rows(kind: str) -> None:
    result = table(by("day", "ok", "region", "age"), kind=kind)
    assert type(result.frame).__module__.startswith(kind)
    frame = result.frame if kind == "pandas" else result.frame.to_pandas()
    assert list(frame.columns) == result.columns
    assert isinstance(frame.index, pd.RangeIndex)
    for column, values in zip(result.columns, zip(*result.rows, strict=True), strict=True):
        values_in_frame = [v.date() if isinstance(v, pd.Timestamp) else v for v in frame[column].tolist()]
        assert values_in_frame == list(values)


def test_a_frame_of_one_count_has_one_row() -> None:
    assert table("SELECT count(*) FROM people", [41]).to("pandas")["count"].tolist() == [41]


@pytest.mark.parametrize("kind", ["numpy", "", None, 3, ["pandas"]])
def test_unknown_kinds_of_frames_are_refused(kind: Any) -> None:
    with pytest.raises(ParameterError, match="frame"):
        table(by("ok")).to(kind)


def test_the_json_of_a_table_has_everything_in_plain_values() -> None:
    described = json.loads(json.dumps(table(by("day", "ok"), [2**62, *range(7)]).describe()))
    assert described["columns"] == ["day", "ok", "count", "count_low", "count_high"]
    assert described["rows"][0][:3] == ["2026-01-30", False, 2**62]
    assert set(described) >= {"schema_version", "columns", "rows", "receipt", "replayed", "margin_95", "worst_error"}
    assert described["receipt"]["epsilon"] == "1"
    assert described["total"]["note"] == CONSISTENT


# Sums


def test_totals_are_sums_of_what_was_released() -> None:
    result = table(by("region", "ok"), [5, 0, 3, 2, 2**40, 1])
    total = result.total()
    assert (total.value, total.cells) == (2**40 + 11, 6)
    assert total.worst_error == 6 * result.mechanism.certificate.worst_error
    assert "agree by construction" in total.note
    assert "need not agree" in total.note


def test_subtotals_are_the_sums_of_their_cells_and_add_up_to_the_total() -> None:
    rng = np.random.default_rng(1)
    result = table(by("region", "ok", "code"), rng.integers(0, 100, 12))
    frame = result.to("pandas")
    for columns in (["region"], ["ok"], ["code", "region"], ["region", "ok", "code"], []):
        parts = result.subtotals(columns)
        assert sum(part.value for _, part in parts) == result.total().value
        for key, part in parts:
            chosen = frame
            for name, label in zip(columns, key, strict=True):
                chosen = chosen[chosen[name] == label]
            assert (part.value, part.cells) == (chosen["count"].sum(), len(chosen))
    assert result.subtotals("ok") == result.subtotals(["ok"])


@pytest.mark.parametrize("columns", ["nope", ["ok", "ok"], ["region", "age"], [3]])
def test_subtotals_by_unknown_or_repeated_columns_are_refused(columns: Any) -> None:
    with pytest.raises(ParameterError, match="by"):
        table(by("region", "ok")).subtotals(columns)


def test_sums_of_huge_counts_do_not_overflow() -> None:
    assert table(by("region", "ok"), [2**63 - 1] * 6).total().value == 6 * (2**63 - 1)


@pytest.mark.parametrize("n", [0, 1, 3, 10**6])
def test_the_margin_of_a_total_holds_on_the_running_sampler(n: int) -> None:
    """20,000 tables of 12 cells: the sum is further off than its margin in at most 5 %, up to p = 1e-9."""
    result = table(by("region", "ok", "code"), [0] * 12)
    mechanism, tables = result.mechanism, 20_000
    released = mechanism.release(np.full(12 * tables, n, dtype=np.int64)).reshape(tables, 12)
    off = np.abs(released.sum(axis=1) - 12 * n)
    total = result.total()
    assert off.max() <= total.worst_error
    assert stats.binomtest(int((off > total.margin_95).sum()), tables, 0.05, "greater").pvalue > TINY


def test_a_total_asked_for_on_its_own_is_more_accurate_than_a_sum_of_cells() -> None:
    result = table(by("region", "ok", "code"))
    assert result.mechanism.margin_95 < result.total().margin_95


def test_the_description_of_a_replayed_table_says_that_it_is_a_replay() -> None:
    assert replace(table(by("ok")), replayed=True).describe()["replayed"] is True


@pytest.mark.parametrize(
    "counts",
    [[7], None, np.array([7.0]), np.array([7], dtype=np.int32), np.array([[7]]), np.array([7, 7]), np.array([-1])],
)
def test_engine_results_other_than_one_count_per_cell_are_refused(counts: Any) -> None:
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    with pytest.raises(EngineError, match=r"^the engine returned values that cannot be counts; the charge is kept$"):
        draw_counts(mechanism, counts, 1)
    assert draw_counts(mechanism, np.array([7]), 1).shape == (1,)


def test_without_a_frame_package_the_error_names_the_extra_and_rows_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    released = table("SELECT ok, count(*) FROM people GROUP BY ok", [3, 4])
    monkeypatch.setattr("countveil.curator.results.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"table\.rows needs none of them.*countveil\[parquet\]"):
        _ = released.frame
    assert [row[:2] for row in released.rows] == [(False, 3), (True, 4)]
