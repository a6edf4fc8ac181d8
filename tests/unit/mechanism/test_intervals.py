"""Intervals for n given y hold at least 95 % for every count, exactly; margins of sums against exact convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from random import Random

import numpy as np
import pytest

import countveil as cv
from countveil.design.remap.designer import remap_nearly
from countveil.laws.law import Law, LawsByCount
from countveil.laws.remap import Remap, Row
from countveil.mechanism.certificate import Terms
from countveil.mechanism.intervals import LEVEL, Intervals
from countveil.mechanism.mechanism import bind
from countveil.numeric.exact_numbers import decimal_text
from countveil.planning import plan
from countveil.planning.program_plan import law_of
from countveil.planning.shapes import power_law

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
    """Every promised count with a law of its own, and some stationary counts beyond the end of the tables."""
    low, high = mechanism.counts
    reach, last = mechanism.certificate.worst_error, mechanism.certificate.stationary_from
    end = last + 4 * reach + 3
    yield from range(low, end if high is None else min(end, high + 1))
    if high is None:
        yield from (10**6, 10**12, 2**63 - 1 - 3 * reach)
    else:
        yield from range(max(end, high - 4 * reach - 3), high + 1)


def coverage(intervals: Intervals, n: int) -> Fraction:
    """P(the interval of Y contains n | n), summed over every outcome."""
    law = intervals.mechanism.law(n)
    outcomes = [(n + z, weight) for z, weight in law.items() if weight]
    low, high = intervals.of(np.array([y for y, _ in outcomes], dtype=np.int64))
    held = sum(w for (_, w), a, b in zip(outcomes, low.tolist(), high.tolist(), strict=True) if a <= n <= b)
    return Fraction(held, law.total)


def test_intervals_contain_every_count_with_95_percent(mechanism: cv.Mechanism) -> None:
    intervals = Intervals(mechanism)
    for n in unlike(mechanism):
        assert coverage(intervals, n) >= LEVEL, f"{n}: {decimal_text(coverage(intervals, n))}"


@pytest.mark.parametrize("policy", ["nonnegative", "signed"])
def test_intervals_of_planned_mechanisms_contain_every_count_with_95_percent(policy: str) -> None:
    """Plans as a curator makes them, for persons with several rows and cells."""
    planned = plan(epsilon="8", delta="0.01", answers=3, sensitivity=2, cells=3, policy=policy).mechanism
    intervals = Intervals(planned)
    assert all(coverage(intervals, n) >= LEVEL for n in unlike(planned))


def test_the_check_of_coverage_detects_intervals_that_are_too_short(mechanism: cv.Mechanism) -> None:
    if mechanism.eta > LEVEL:
        pytest.skip("the released count alone is an interval of 95 %")
    intervals = Intervals(mechanism, level=Fraction(1, 2))
    assert any(coverage(intervals, n) < LEVEL for n in unlike(mechanism))


def test_intervals_lie_within_the_certain_bounds(mechanism: cv.Mechanism) -> None:
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


def test_intervals_do_not_overflow_64_bits(mechanism: cv.Mechanism) -> None:
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
    """The margin is compared with an exact convolution, for cells that are all empty, all 1, mixed, and all large."""
    for design in (DESIGNS["remap, nearly exact"], {"epsilon": "2", "delta": "1e-2"}, DESIGNS["promise, short"]):
        mechanism = cv.design(**design)
        low, high = mechanism.counts
        margin = Intervals(mechanism).of_sum(cells)
        top = mechanism.certificate.stationary_from if high is None else high
        for counts in ([low] * cells, [low + 1] * cells, [low + i % 3 for i in range(cells)], [top] * cells):
            law = convolved([mechanism.law(n) for n in counts])
            assert sum(p for z, p in law.items() if abs(z) <= margin) >= LEVEL


@pytest.mark.parametrize("cells", [10, 100, 10_000])
def test_margins_of_sums_grow_like_the_square_root_of_the_number_of_cells(cells: int) -> None:
    mechanism = cv.design(epsilon="1", delta="1e-4", policy="signed")
    margin = Intervals(mechanism).of_sum(cells)
    deviation = float(mechanism.certificate.variance * cells) ** 0.5
    assert 1.9 * deviation < margin < 3 * deviation + 1


def test_the_margin_of_a_sum_includes_the_bias_of_small_cells() -> None:
    """If releases are never negative, the sum of a thousand empty cells is far above the noise."""
    mechanism = cv.design(epsilon="1", delta="1e-4")
    law, cells = mechanism.law(0), 1000
    assert law.mean > 0
    assert Intervals(mechanism).of_sum(cells) > cells * law.mean


# Intervals against their definition


def random_law(random: Random, left: int, right: int, bits: int = 40) -> Law:
    """Random weights of very different sizes, some of them 0."""
    raw = [random.choice((0, 1, 1, 1)) * random.getrandbits(random.randint(1, 30)) for _ in range(left + right + 1)]
    raw[left] += 1
    total = sum(raw)
    weights = [(w << bits) // total for w in raw]
    weights[left] += (1 << bits) - sum(weights)
    return Law(tuple(weights), left, bits)


def bind_remap(source: Law, rows: list[Row], negative: Row, map_bits: int) -> cv.Mechanism:
    """A mechanism with a map that has no moves."""
    M = len(rows) + source.left
    D = source.left + source.right + M
    laws = Remap(source, negative, tuple(rows), map_bits, M, D)
    return bind(laws, Terms(Fraction(1), "nonnegative", "remap", D))


def random_step_map(random: Random, widest: int) -> cv.Mechanism:
    """A map of single outcomes that never falls."""
    source, T = random_law(random, random.randint(2, widest), random.randint(2, widest)), random.randint(1, widest)
    targets = sorted(random.randint(0, T) for _ in range(T + 1))
    mechanism = bind_remap(source, [((y, 2),) for y in targets], ((0, 2),), 1)
    assert mechanism.laws.targets == tuple(targets)  # type: ignore[attr-defined]
    return mechanism


def random_map(random: Random, widest: int) -> cv.Mechanism:
    """A map of two random outcomes each, in any order."""
    source, T = random_law(random, random.randint(2, widest), random.randint(2, widest)), random.randint(1, widest)

    def row() -> Row:
        share = random.randint(0, 256)
        return (random.randint(0, T), share), (random.randint(0, T), 256 - share)

    mechanism = bind_remap(source, [row() for _ in range(T + 1)], row(), 8)
    assert mechanism.laws.targets is None  # type: ignore[attr-defined]
    return mechanism


def random_floor(random: Random, widest: int) -> cv.Mechanism:
    source = random_law(random, random.randint(2, widest), random.randint(2, widest))
    laws = LawsByCount(source, lo=source.right)
    return bind(laws, Terms(Fraction(1), "floor", "program", source.worst_error))


def define_intervals(mechanism: cv.Mechanism, first: int, last: int) -> dict[int, tuple[int, int]]:
    """The intervals of the releases first..last, by the definition: A(n) of every count, one release at a time."""
    reach = mechanism.certificate.worst_error
    found: dict[int, tuple[int, int]] = {}
    for n in range(max(0, first - reach), last + reach + 1):
        law = mechanism.law(n)
        outcomes = [(n + z, weight) for z, weight in law.items()]
        sums = list(accumulate(weight for _, weight in outcomes))
        start = next(y for (y, _), s in zip(outcomes, sums, strict=True) if Fraction(s, law.total) > (1 - LEVEL) / 2)
        stop = next(
            y for (y, _), s in zip(outcomes, sums, strict=True) if 1 - Fraction(s, law.total) <= (1 - LEVEL) / 2
        )
        for y in range(max(start, first), min(stop, last) + 1):
            low, _ = found.get(y, (n, n))
            found[y] = low, n
    return {y: found.get(y) or mechanism.bounds(y) for y in range(first, last + 1)}


@pytest.mark.parametrize("make", [random_step_map, random_map, random_floor])
@pytest.mark.parametrize(("widest", "tries"), [(4, 20), (12, 8), (60, 1)])
def test_intervals_equal_their_definition(make: Callable[[Random, int], cv.Mechanism], widest: int, tries: int) -> None:
    random = Random(widest)
    for _ in range(tries):
        mechanism = make(random, widest)
        reach = mechanism.certificate.worst_error
        first, last = -reach, mechanism.certificate.stationary_from + 2 * reach + 2
        low, high = Intervals(mechanism).of(np.arange(first, last + 1))
        defined = define_intervals(mechanism, first, last)
        assert dict(zip(range(first, last + 1), zip(low.tolist(), high.tolist(), strict=True), strict=True)) == defined


@pytest.mark.slow  # a law of 200,000 weights, whose map is found and measured
def test_intervals_of_a_wide_map_contain_every_count_with_95_percent() -> None:
    """As wide as a plan for 1,000 rows in ten cells; 95 % is attained, so the intervals are no wider than defined."""
    laws = remap_nearly(law_of(power_law(20_000.0, 1.95, 110_000)))
    mechanism = bind(laws, Terms(Fraction(1), "nonnegative", "remap", laws.D))
    intervals, M = Intervals(mechanism), laws.stationary_from
    targets, weights = laws.targets, laws.source.weights
    assert targets is not None
    assert laws.source.left > 100_000
    shares = []
    for n in (0, 1, 2, 500, laws.T // 2, laws.T, laws.T + 1, 20_000, 40_000, M - 1, M, M + 1, 10**6, 10**12):
        released = np.array([laws.send(n + z) for z, _ in laws.source.items()], dtype=np.int64)
        low, high = intervals.of(released)
        held = sum(weights[i] for i in np.flatnonzero((low <= n) & (n <= high)).tolist())
        shares.append(Fraction(held, laws.source.total))
    assert all(share >= LEVEL for share in shares)
    assert min(shares) < LEVEL + Fraction(1, 1000)
    assert (
        mechanism.margin_95 <= intervals.of_sum(2) <= intervals.of_sum(100) <= 100 * mechanism.certificate.worst_error
    )
