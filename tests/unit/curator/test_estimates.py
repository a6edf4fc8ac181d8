"""Quantiles and means of released histograms, against the true ones of the data."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import countveil as cv
from countveil.curator.results import Table, make_table
from countveil.errors import ParameterError, RequestError, ServiceError
from countveil.mechanism.intervals import Intervals
from countveil.query import ask
from countveil.query.derived import parse_columns
from countveil.query.schema import Column, Schema

SCHEMA = Schema(
    "people",
    parse_columns(
        {
            "age": {"min": 0, "max": 99, "step": 5},
            "band": {"from": "age", "bands": [0, 18, 40, 65]},
            "open": {"from": "years", "bands": [0, 18, 65]},
            "income": {"from": "euros", "bins": ["0", "10", "25.5"], "max": "100"},
            "debt": {"from": "owed", "bins": ["0", "10"], "max": "100", "below": True},
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
    with pytest.raises(ParameterError, match=r"got no name, .* with an order; this table has: month, band"):
        release(["month", "band"], [1] * 24).quantile(0.5)
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
    with pytest.raises(ParameterError, match=r"got open, .* closed bins; 65\+ has no upper end: declare max"):
        release("open", [10, 10, 10], noise=False).mean()
    with pytest.raises(ParameterError, match="under 0 has no lower end: write its least value as the first edge"):
        release("debt", [10, 10, 10], noise=False).mean("debt")
    with pytest.raises(ParameterError, match="this table has: none"):
        release("month", [1] * 6).mean()
    with pytest.raises(RequestError, match="no count was released above zero"):
        release("income", [0, 0, 0], noise=False).mean()


def test_a_service_gives_no_estimates() -> None:
    table = release("band", [1, 2, 3, 4])
    received = Table(**{**{name: getattr(table, name) for name in table.__dataclass_fields__}, "intervals": None})
    with pytest.raises(ServiceError, match="ask the curator for quantiles and means"):
        received.quantile(0.5)


RELEASES = 4_000
"""Of an interval that holds in 90 % of all releases, these show with 1 - 1e-9 that it does not hold in 95 %."""


def at_most(share: int) -> list[int]:
    """For every number k of releases, 100^RELEASES times the probability that at most k hold, if each does with `share`
    per cent."""
    terms = [(100 - share) ** RELEASES]
    for k in range(RELEASES):
        terms.append(terms[k] * (RELEASES - k) * share // ((k + 1) * (100 - share)))  # exact: a binomial coefficient
    return list(itertools.accumulate(terms))


@cache
def most_rejected() -> int:
    """The most intervals that hold, of all releases, which have at most 1e-9 if each holds with 95 %."""
    return next(k for k, sums in enumerate(at_most(95)) if sums * 10**9 > 100**RELEASES) - 1


def covers(table: Table, counts: list[int], q: float) -> tuple[bool, bool]:
    """Whether the intervals of a quantile and of the mean of `score` hold for the true counts."""
    bins, n = range(len(counts)), sum(counts)
    true = next(i for i in bins if sum(counts[: i + 1]) >= Fraction(q) * n)
    quantile, mean = table.quantile(q, "score"), table.mean("score")
    average = Fraction(sum(i * counts[i] for i in bins), n)
    return quantile.low <= true <= quantile.high, Fraction(mean.low) <= average <= Fraction(mean.high)


def test_the_number_of_simulated_releases_is_enough_to_tell_90_from_95_per_cent() -> None:
    assert 0.9 * RELEASES < most_rejected() < 0.95 * RELEASES
    assert (100**RELEASES - at_most(90)[most_rejected()]) * 10**9 <= 100**RELEASES


SCORES = Schema("people", (Column("score", "integer", low=0, high=9),))


@pytest.mark.slow  # 4,000 releases, each with dozens of margins
@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_intervals_of_quantiles_and_means_hold_in_95_of_100_releases(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bin is one value, so that the noise alone decides; a tenth of our margin is too narrow and is rejected."""
    margin = Intervals.of_weighted_sum
    monkeypatch.setattr(Intervals, "of_weighted_sum", lambda self, weights: factor * margin(self, weights))
    counts = [3, 0, 25, 9, 14, 2, 31, 17, 8, 11]
    question, intervals = ask(SCORES, by="score"), Intervals(MECHANISM)
    held = np.zeros(2, np.int64)
    for _ in range(RELEASES):
        released = np.asarray(MECHANISM.release(np.array(counts)))
        held += covers(make_table(question, released, intervals, RECEIPT, False), counts, 0.3)
    assert ((held <= most_rejected()) == (factor < 1)).all(), held


@pytest.mark.parametrize(("counts", "q"), [([4, 3], 0.5), ([0, 9], 0.25), ([40, 41], 0.5), ([1, 30], 0.02)])
def test_the_exact_coverage_of_estimates_from_two_bins_is_at_least_95_per_cent(counts: list[int], q: float) -> None:
    """Every pair of releases of a small mechanism with its exact probability."""
    mechanism = cv.design(epsilon="1", delta="1e-2")
    schema = Schema("people", (Column("score", "integer", low=0, high=1),))
    question, intervals = ask(schema, by="score"), Intervals(mechanism)
    laws = [mechanism.laws.law(n) for n in counts]
    held = [0, 0]
    for outcome in itertools.product(
        *(enumerate(law.weights, n - law.left) for law, n in zip(laws, counts, strict=True))
    ):
        released, weight = np.array([y for y, _ in outcome]), math.prod(w for _, w in outcome)
        if not weight:
            continue
        holds = (True, True)  # without anybody there is no interval
        if released.sum() > 0:
            holds = covers(make_table(question, released, intervals, RECEIPT, False), counts, q)
        held = [n + weight * hold for n, hold in zip(held, holds, strict=True)]
    assert all(Fraction(n, math.prod(law.total for law in laws)) >= Fraction(95, 100) for n in held)


def test_the_margin_of_a_weighted_sum_scales_with_its_weights() -> None:
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
