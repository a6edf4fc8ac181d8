"""Exact divergences against the definition, and planted mistakes that must show."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countveil as cv
from countveil import privacy
from countveil.law import Columns, Law, distinct_counts, neighbour_pairs


@st.composite
def laws(draw: st.DrawFn, bits: int = 5) -> Law:
    size = draw(st.integers(1, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 2**bits), min_size=size - 1, max_size=size - 1)))
    weights = [b - a for a, b in zip([0, *cuts], [*cuts, 2**bits], strict=True)]
    return Law(tuple(weights), draw(st.integers(-2, size + 1)), bits)


ORDERS = st.fractions(min_value=Fraction(1, 8), max_value=8, max_denominator=20)


@given(laws(), laws(bits=7), ORDERS)
def test_hockey_stick_is_its_definition(p: Law, q: Law, order: Fraction) -> None:
    everywhere = range(-20, 21)
    excesses = [p.probability(z) - order * q.probability(z) for z in everywhere]
    assert privacy.hockey_stick(p, q, order) == sum((max(Fraction(0), x) for x in excesses), Fraction(0))
    assert privacy.largest_excess(p, q, order) == max(Fraction(0), *excesses)


@given(laws(), laws(), laws(), ORDERS, st.integers(1, 3))
def test_delta_looks_at_every_pair(a: Law, b: Law, c: Law, order: Fraction, sensitivity: int) -> None:
    """Columns a, b, then c for ever: brute force over many more counts than the certificate looks at."""
    family = Columns(c, small=(a, b))
    outcomes = {
        n: {n + z: Fraction(w, law.total) for z, w in law.items()} for n in range(12) for law in [family.column(n)]
    }
    worst = Fraction(0)
    for n in range(12):
        for m in range(12):
            if 1 <= abs(n - m) <= sensitivity:
                p, q = outcomes[n], outcomes[m]
                worst = max(worst, sum((max(Fraction(0), p[y] - order * q.get(y, 0)) for y in p), Fraction(0)))
    assert privacy.delta(family, order, sensitivity).value == worst


@given(laws(), laws(), laws(), st.integers(3, 9), st.integers(1, 2))
def test_delta_reaches_the_top(a: Law, b: Law, c: Law, high: int, sensitivity: int) -> None:
    family = Columns(b, small=(a,), top=(c,), lo=1, hi=high)
    order = Fraction(3, 2)
    worst = Fraction(0)
    for n in range(high + 4):
        for m in range(max(0, n - sensitivity), n + sensitivity + 1):
            p, q = family.column(n), family.column(m).shifted(m - n)
            worst = max(worst, privacy.hockey_stick(p, q, order))
    assert privacy.delta(family, order, sensitivity).value == worst, "clamped counts included"


def test_forgetting_a_direction_a_shift_or_the_translated_column_would_show() -> None:
    """Each of these families has its delta at a pair that a careless loop would leave out."""
    order = Fraction(2)
    narrow, wide, point = Law((1, 2, 1), 1, 2), Law((2, 4, 4, 4, 2), 2, 4), Law((4,), 0, 2)

    def at(family: Columns, n: int, m: int) -> Fraction:
        return privacy.hockey_stick(family.column(n), family.column(m).shifted(m - n), order)

    rising = Columns(wide, small=(point,))
    assert privacy.delta(rising, order).value == at(rising, 1, 0) > at(rising, 0, 1)
    falling = Columns(point, small=(wide,))
    assert privacy.delta(falling, order).value == at(falling, 1, 2) > at(falling, 0, 1)
    stationary = Columns(narrow, small=(wide,))
    assert privacy.delta(stationary, order, 2).value == at(stationary, 1, 3) > at(stationary, 1, 2)
    assert distinct_counts(stationary) == [0, 1]
    assert list(neighbour_pairs(stationary, 2)) == [(0, 1), (0, 2), (1, 2), (1, 3)]


@given(laws(), st.fractions(min_value=Fraction(1, 50), max_value=Fraction(9, 10), max_denominator=50))
def test_least_epsilon(law: Law, target: Fraction) -> None:
    family = Columns(law)
    order = privacy.epsilon_order(family, target)
    if order is None:
        assert privacy.delta(family, Fraction(10**30)).value > target
    else:
        assert privacy.delta(family, order).value <= target
        assert order == 1 or privacy.delta(family, order - Fraction(1, 10**9)).value > target


@pytest.mark.parametrize("method", ["optimal", "remap"])
def test_epsilon_and_delta_are_inverse(method: str) -> None:
    policy = "signed" if method == "optimal" else "nonnegative"
    m = cv.design(epsilon="1", delta="1e-6", policy=policy, method=method)
    epsilon = m.epsilon_at("1e-3")
    assert epsilon is not None
    assert m.delta_at(epsilon) <= Fraction("1e-3") < m.delta_at(epsilon - Fraction("1e-12"))
    assert m.epsilon_at("1e-30") is None
    assert m.epsilon_at("0.9") == 0


def test_negative_epsilon_is_the_other_end_of_the_curve() -> None:
    """For a symmetric pair H(1/E) = 1 - (1 - H(E))/E at every order."""
    m = cv.design(epsilon="1", delta="1e-6", policy="signed")
    for order in (Fraction(2), Fraction(5, 4)):
        family = m.family
        above, below = privacy.delta(family, order).value, privacy.delta(family, 1 / order).value
        assert below == 1 - (1 - above) / order
