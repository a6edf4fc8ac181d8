"""Intervals for n given y hold at least 95 % for every count, exactly; margins of sums against exact convolution."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

import countveil as cv
from countveil.accounting import plan
from countveil.exact import decimal_text
from countveil.intervals import LEVEL, Intervals
from countveil.law import Law

DESIGNS = {
    "remap": {"epsilon": "1", "delta": "1e-4"},
    "remap, wide": {"epsilon": "0.3", "delta": "1e-5"},
    "remap, nearly exact": {"epsilon": "5", "delta": "1e-3"},
    "signed": {"epsilon": "1", "delta": "1e-4", "policy": "signed"},
    "program": {"epsilon": "1", "delta": "1e-3", "method": "program"},
    "program, capped": {"epsilon": "1", "eta": "0.3", "D": 8, "counts": "0:90", "cap": True},
    "promise, short": {"epsilon": "1", "delta": "1e-3", "counts": "0:7"},
    "promise, high": {"epsilon": "1", "delta": "1e-3", "counts": "1000:1000000"},
    "floor": {"epsilon": "1.1", "eta": "0.5", "D": 8, "policy": "floor"},
}


@pytest.fixture(scope="module", params=sorted(DESIGNS))
def mechanism(request: pytest.FixtureRequest) -> cv.Mechanism:
    return cv.design(**DESIGNS[request.param])


def unlike(mechanism: cv.Mechanism) -> Iterator[int]:
    """Every promised count with a law of its own, and stationary ones, beyond where tables end."""
    low, high = mechanism.counts
    reach, last = mechanism.certificate.worst_error, mechanism.certificate.stationary_from
    end = last + 4 * reach + 3
    yield from range(low, end if high is None else min(end, high + 1))
    if high is None:
        yield from (10**6, 10**12, 2**63 - 1 - 3 * reach)
    else:
        yield from range(max(end, high - 4 * reach - 3), high + 1)


def coverage(intervals: Intervals, n: int) -> Fraction:
    """P(the interval of Y holds n | n), summed over every outcome."""
    law = intervals.mechanism.column(n)
    outcomes = [(n + z, weight) for z, weight in law.items() if weight]
    low, high = intervals.of(np.array([y for y, _ in outcomes], dtype=np.int64))
    held = sum(w for (_, w), a, b in zip(outcomes, low.tolist(), high.tolist(), strict=True) if a <= n <= b)
    return Fraction(held, law.total)


def test_intervals_hold_every_count_with_95_percent(mechanism: cv.Mechanism) -> None:
    intervals = Intervals(mechanism)
    for n in unlike(mechanism):
        assert coverage(intervals, n) >= LEVEL, f"{n}: {decimal_text(coverage(intervals, n))}"


@pytest.mark.parametrize("policy", ["nonnegative", "signed"])
def test_intervals_of_planned_mechanisms(policy: str) -> None:
    """What a curator plans with, several rows and cells of a person among it."""
    planned = plan(epsilon="8", delta="0.01", answers=3, sensitivity=2, cells=3, policy=policy).mechanism
    intervals = Intervals(planned)
    assert all(coverage(intervals, n) >= LEVEL for n in unlike(planned))


def test_the_check_on_coverage_can_fail(mechanism: cv.Mechanism) -> None:
    if mechanism.eta > LEVEL:
        pytest.skip("the released count alone is an interval of 95 %")
    intervals = Intervals(mechanism, level=Fraction(1, 2))
    assert any(coverage(intervals, n) < LEVEL for n in unlike(mechanism))


def test_intervals_lie_within_what_is_certain(mechanism: cv.Mechanism) -> None:
    low, high = mechanism.counts
    reach, last = mechanism.certificate.worst_error, mechanism.certificate.stationary_from
    y = np.arange(low - reach, (last + 5 * reach if high is None else min(last + 5 * reach, high + reach)) + 1)
    a, b = Intervals(mechanism).of(y)
    certain_low, certain_high = mechanism.bounds(y)
    assert (certain_low <= a).all()
    assert (b <= certain_high).all()
    assert (a <= b).all()


def test_intervals_are_functions_of_y_alone(mechanism: cv.Mechanism) -> None:
    y = np.arange(60)
    together = Intervals(mechanism).of(y)
    for i in (0, 7, 59):
        alone = Intervals(mechanism).of(y[i : i + 1])
        assert (alone[0][0], alone[1][0]) == (together[0][i], together[1][i])


def test_no_wrap_at_the_end_of_64_bits(mechanism: cv.Mechanism) -> None:
    if mechanism.counts[1] is not None:
        pytest.skip("promised counts end before")
    y = np.array([2**63 - 1, 2**63 - 2, 2**53], dtype=np.int64)
    low, high = Intervals(mechanism).of(y)
    assert (low <= y).all()
    assert (high >= y).all()


# Sums


def convolved(laws: list[Law]) -> dict[int, Fraction]:
    def add(a: dict[int, Fraction], b: dict[int, Fraction]) -> dict[int, Fraction]:
        found: dict[int, Fraction] = {}
        for x, p in a.items():
            for z, q in b.items():
                found[x + z] = found.get(x + z, Fraction(0)) + p * q
        return found

    return reduce(add, ({z: Fraction(w, law.total) for z, w in law.items() if w} for law in laws))


@pytest.mark.parametrize("cells", [1, 2, 3, 6])
def test_margins_of_sums_hold_for_any_counts(cells: int) -> None:
    """Exact convolution; the counts are the worst: all 0, all in the bias, mixed, all large."""
    for design in (DESIGNS["remap, nearly exact"], {"epsilon": "2", "delta": "1e-2"}, DESIGNS["promise, short"]):
        mechanism = cv.design(**design)
        low, high = mechanism.counts
        margin = Intervals(mechanism).of_sum(cells)
        top = mechanism.certificate.stationary_from if high is None else high
        for counts in ([low] * cells, [low + 1] * cells, [low + i % 3 for i in range(cells)], [top] * cells):
            law = convolved([mechanism.column(n) for n in counts])
            assert sum(p for z, p in law.items() if abs(z) <= margin) >= LEVEL


@pytest.mark.parametrize("cells", [10, 100, 10_000])
def test_margins_of_many_cells_grow_like_the_root(cells: int) -> None:
    mechanism = cv.design(epsilon="1", delta="1e-4", policy="signed")
    margin = Intervals(mechanism).of_sum(cells)
    deviation = float(mechanism.certificate.variance * cells) ** 0.5
    assert 1.9 * deviation < margin < 3 * deviation + 1


def test_the_margin_of_a_sum_counts_the_bias_of_small_cells() -> None:
    """A thousand empty cells of a mechanism that is never negative sum to far more than noise."""
    mechanism = cv.design(epsilon="1", delta="1e-4")
    law, cells = mechanism.column(0), 1000
    assert law.mean > 0
    assert Intervals(mechanism).of_sum(cells) > cells * law.mean
