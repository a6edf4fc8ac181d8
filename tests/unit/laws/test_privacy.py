"""Exact divergences against the definition, and laws on which planted mistakes are detected."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

import countveil as cv
from countveil.laws import privacy
from countveil.laws.law import Law, LawsByCount, distinct_counts, neighbour_pairs


@st.composite
def laws(draw: st.DrawFn, bits: int = 5) -> Law:
    size = draw(st.integers(1, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 2**bits), min_size=size - 1, max_size=size - 1)))
    weights = [b - a for a, b in zip([0, *cuts], [*cuts, 2**bits], strict=True)]
    return Law(tuple(weights), draw(st.integers(-2, size + 1)), bits)


ORDERS = st.fractions(min_value=Fraction(1, 8), max_value=8, max_denominator=20)


@given(laws(), laws(bits=7), ORDERS)
def test_hockey_stick_agrees_with_its_definition(p: Law, q: Law, order: Fraction) -> None:
    everywhere = range(-20, 21)
    excesses = [p.probability(z) - order * q.probability(z) for z in everywhere]
    assert privacy.hockey_stick(p, q, order) == sum((max(Fraction(0), x) for x in excesses), Fraction(0))
    assert privacy.largest_excess(p, q, order) == max(Fraction(0), *excesses)


@given(laws(), laws(), laws(), ORDERS, st.integers(1, 3))
def test_delta_is_the_largest_over_all_neighbouring_pairs(
    a: Law, b: Law, c: Law, order: Fraction, sensitivity: int
) -> None:
    """Laws a, b, then c for all larger counts: brute force over many more counts than `delta` checks."""
    laws = LawsByCount(c, small=(a, b))
    outcomes = {n: {n + z: Fraction(w, law.total) for z, w in law.items()} for n in range(12) for law in [laws.law(n)]}
    worst = Fraction(0)
    for n in range(12):
        for m in range(12):
            if 1 <= abs(n - m) <= sensitivity:
                p, q = outcomes[n], outcomes[m]
                worst = max(worst, sum((max(Fraction(0), p[y] - order * q.get(y, 0)) for y in p), Fraction(0)))
    assert privacy.delta(laws, order, sensitivity).value == worst


@given(laws(), laws(), laws(), st.integers(3, 9), st.integers(1, 2))
def test_delta_includes_top_laws_and_clamped_counts(a: Law, b: Law, c: Law, high: int, sensitivity: int) -> None:
    laws = LawsByCount(b, small=(a,), top=(c,), lo=1, hi=high)
    order = Fraction(3, 2)
    worst = Fraction(0)
    for n in range(high + 4):
        for m in range(max(0, n - sensitivity), n + sensitivity + 1):
            p, q = laws.law(n), laws.law(m).shift(m - n)
            worst = max(worst, privacy.hockey_stick(p, q, order))
    assert privacy.delta(laws, order, sensitivity).value == worst, "clamped counts included"


def test_delta_includes_both_directions_and_every_shift_and_the_stationary_law() -> None:
    """Each of these laws attains its delta at a pair that an incomplete loop would miss."""
    order = Fraction(2)
    narrow, wide, point = Law((1, 2, 1), 1, 2), Law((2, 4, 4, 4, 2), 2, 4), Law((4,), 0, 2)

    def at(laws: LawsByCount, n: int, m: int) -> Fraction:
        return privacy.hockey_stick(laws.law(n), laws.law(m).shift(m - n), order)

    rising = LawsByCount(wide, small=(point,))
    assert privacy.delta(rising, order).value == at(rising, 1, 0) > at(rising, 0, 1)
    falling = LawsByCount(point, small=(wide,))
    assert privacy.delta(falling, order).value == at(falling, 1, 2) > at(falling, 0, 1)
    stationary = LawsByCount(narrow, small=(wide,))
    assert privacy.delta(stationary, order, 2).value == at(stationary, 1, 3) > at(stationary, 1, 2)
    assert distinct_counts(stationary) == [0, 1]
    assert list(neighbour_pairs(stationary, 2)) == [(0, 1), (0, 2), (1, 3)]  # unimodal: its largest shift
    holed = LawsByCount(Law((1, 0, 3), 1, 2), small=(wide,))
    assert list(neighbour_pairs(holed, 2)) == [(0, 1), (0, 2), (1, 2), (1, 3)]


@given(laws(), st.fractions(min_value=Fraction(1, 50), max_value=Fraction(9, 10), max_denominator=50))
def test_epsilon_order_is_the_least_that_meets_the_target(law: Law, target: Fraction) -> None:
    laws = LawsByCount(law)
    order = privacy.epsilon_order(laws, target)
    if order is None:
        assert privacy.delta(laws, Fraction(10**30)).value > target
    else:
        assert privacy.delta(laws, order).value <= target
        assert order == 1 or privacy.delta(laws, order - Fraction(1, 10**9)).value > target


@pytest.mark.parametrize("method", ["optimal", "remap"])
def test_epsilon_and_delta_are_inverse(method: str) -> None:
    policy = "signed" if method == "optimal" else "nonnegative"
    m = cv.design(epsilon="1", delta="1e-6", policy=policy, method=method)
    epsilon = m.epsilon_at("1e-3")
    assert epsilon is not None
    assert m.delta_at(epsilon) <= Fraction("1e-3") < m.delta_at(epsilon - Fraction("1e-12"))
    assert m.epsilon_at("1e-30") is None
    assert m.epsilon_at("0.9") == 0


def test_delta_at_negative_epsilon_follows_from_positive_epsilon() -> None:
    """For a symmetric pair H(1/E) = 1 - (1 - H(E))/E at every order."""
    m = cv.design(epsilon="1", delta="1e-6", policy="signed")
    for order in (Fraction(2), Fraction(5, 4)):
        laws = m.laws
        above, below = privacy.delta(laws, order).value, privacy.delta(laws, 1 / order).value
        assert below == 1 - (1 - above) / order
