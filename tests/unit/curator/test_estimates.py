"""Quantiles and means of released histograms, against the true ones of the data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import countveil as cv
from countveil.curator.results import Table, make_table
from countveil.errors import ParameterError, RequestError, ServiceError
from countveil.mechanism.intervals import Intervals
from countveil.query import ask
from countveil.query.derived import parse_columns
from countveil.query.schema import Schema

SCHEMA = Schema(
    "people",
    parse_columns(
        {
            "age": {"min": 0, "max": 99, "step": 5},
            "band": {"from": "age", "bands": [0, 18, 40, 65]},
            "open": {"from": "years", "bands": [0, 18, 65]},
            "income": {"from": "euros", "bins": ["0", "10", "25.5"], "max": "100"},
            "month": {"from": "date", "by": "month", "min": "2024-01", "max": "2024-06"},
            "weekday": {"from": "date", "by": "weekday", "min": "2024-01", "max": "2024-06"},
            "sex": ["f", "m"],
        },
        "columns",
    ),
)
MECHANISM = cv.design(epsilon="1", delta="1e-6")
RECEIPT: Any = None


def release(by: list[str] | str, counts: Any, noise: bool = True) -> Table:
    """The table of a question with these true counts in the order of cells."""
    question = ask(SCHEMA, by=by)
    counts = np.array(counts, np.int64)
    released = MECHANISM.release(counts) if noise else counts
    return make_table(question, np.asarray(released), Intervals(MECHANISM), RECEIPT, False)


def test_a_quantile_is_the_bin_that_holds_it() -> None:
    table = release("band", [10_000, 20_000, 40_000, 30_000], noise=False)
    quantiles = {q: table.quantile(q).label for q in (0, 0.05, 0.1, 0.11, 0.3, 0.5, 0.7, 0.9, 1)}
    assert list(quantiles.values()) == ["0-17", "0-17", "0-17", "18-39", "18-39", "40-64", "40-64", "65+", "65+"]
    assert vars(table.quantile(0.5)) == {"label": "40-64", "low": "40-64", "high": "40-64"}
    assert vars(table.quantile(0.3)) == {"label": "18-39", "low": "18-39", "high": "40-64"}  # at an edge


def test_quantiles_are_given_for_ordered_columns_only() -> None:
    assert release("month", [1, 1, 1, 1000, 1, 1], noise=False).quantile(0.5).label == "2024-04"
    assert release("open", [10, 10, 1000], noise=False).quantile(0.5).label == "65+"
    both = release(["sex", "band"], [100, 100, 0, 0, 0, 0, 500, 500], noise=False)
    assert both.quantile(0.5, "band").label == "65+"
    for table in (release("weekday", [1] * 7), release("sex", [1, 1])):
        with pytest.raises(ParameterError, match="a group column with an order; this table has: none"):
            table.quantile(0.5)
    for q in (-0.1, 1.1, "0.5", True):
        with pytest.raises(ParameterError, match=r"0\.5 is the median"):
            both.quantile(q, "band")  # type: ignore[arg-type]


def test_a_mean_lies_between_the_ends_of_the_bins() -> None:
    table = release("income", [500_000, 300_000, 200_000], noise=False)
    mean = table.mean()
    assert mean.value == pytest.approx((500_000 * 5 + 300_000 * 17.75 + 200_000 * 62.75) / 1_000_000)
    assert mean.low == pytest.approx((300_000 * 10 + 200_000 * 25.5) / 1_000_000, rel=1e-3)
    assert mean.high == pytest.approx((500_000 * 10 + 300_000 * 25.5 + 200_000 * 100) / 1_000_000, rel=1e-3)
    assert mean.low < mean.value < mean.high
    few = release("income", [1, 1, 1], noise=False).mean()
    assert (few.low, few.high) == (0, 100)  # perhaps nobody is counted
    with pytest.raises(ParameterError, match=r"closed bins; 65\+ is open: declare max"):
        release("open", [10, 10, 10], noise=False).mean()
    with pytest.raises(ParameterError, match="this table has: none"):
        release("month", [1] * 6).mean()
    with pytest.raises(RequestError, match="no count was released above zero"):
        release("income", [0, 0, 0], noise=False).mean()


def test_a_service_gives_no_estimates() -> None:
    table = release("band", [1, 2, 3, 4])
    received = Table(**{**{name: getattr(table, name) for name in table.__dataclass_fields__}, "intervals": None})
    with pytest.raises(ServiceError, match="ask the curator for quantiles and means"):
        received.quantile(0.5)


@pytest.mark.slow  # 40 releases, each with hundreds of margins
@pytest.mark.parametrize("size", [30, 300])
def test_intervals_hold_in_more_than_95_of_100_releases(size: int) -> None:
    """Releases of one table: the true quantile and mean are within almost always, and intervals are not the whole."""
    ages = np.random.default_rng(size).integers(0, 100, size)
    counts = np.bincount(ages // 5, minlength=20)
    quartile = int(np.sort(ages)[-(-size // 4) - 1]) // 5
    held, narrow = [], []
    for _ in range(40):
        table = release("age", counts)
        labels = table.labels[0]
        quantile, mean = table.quantile(0.25), table.mean()
        held.append(labels.index(quantile.low) <= quartile <= labels.index(quantile.high))
        held.append(mean.low <= ages.mean() <= mean.high)
        narrow.append(mean.high - mean.low < 80)
    assert sum(held) >= 0.95 * len(held)
    assert size < 300 or all(narrow)


def test_a_weighted_sum_has_the_margin_of_its_weights() -> None:
    intervals = Intervals(MECHANISM)
    weighted, plain = intervals.of_weighted_sum([(1.0, 50)]), intervals.of_sum(50)
    assert abs(weighted - plain) <= 0.1 * plain + 1
    assert intervals.of_weighted_sum([(2.0, 50)]) == pytest.approx(2 * intervals.of_weighted_sum([(1.0, 50)]))
    assert intervals.of_weighted_sum([(-1.0, 50)]) == pytest.approx(intervals.of_weighted_sum([(1.0, 50)]))
    assert intervals.of_weighted_sum([(0.0, 50)]) == 0
    assert intervals.of_weighted_sum([(1.0, 1)]) <= MECHANISM.certificate.worst_error * (1 + 1e-6)
    draws = np.asarray(MECHANISM.release(np.full(40_000, 1_000))).reshape(2_000, 20) - 1_000
    weights = np.linspace(-1, 3, 20)
    margin = intervals.of_weighted_sum([(float(weight), 1) for weight in weights])
    assert (abs(draws @ weights) <= margin).mean() >= 0.95


def test_bin_ends_are_given_for_columns_with_an_order() -> None:
    ends = {column.name: column.bin_ends() for column in SCHEMA.columns}
    assert ends["age"][:2] == [(0, 4), (5, 9)]  # type: ignore[index]
    assert ends["open"] == [(0, 17), (18, 64), (65, None)]
    assert ends["income"] == [(0, 10), (10, Fraction(51, 2)), (Fraction(51, 2), 100)]
    assert ends["weekday"] is ends["sex"] is None
