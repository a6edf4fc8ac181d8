"""P1, P2 and P3 hold exactly on the integer weights of every design, and certificates agree with brute force."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given, strategies as st

import countveil as cv
from countveil.numeric.exact_numbers import exp_bounds
from tests.support.designs import brute_force_delta, check
from tests.support.effort import examples

EPSILONS = st.integers(1, 400).map(lambda k: Fraction(k, 100))
ETAS = st.integers(1, 98).map(lambda k: Fraction(k, 100))
BOUNDS = st.integers(1, 12)


@given(EPSILONS, ETAS, BOUNDS)
@examples(200)
def test_signed_designs_have_p1_p2_and_p3(epsilon: Fraction, eta: Fraction, D: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, policy="signed")
    check(m, 0)
    assert abs(m.eta - eta) <= Fraction(1, 2**62)


@given(EPSILONS, ETAS, st.integers(1, 6), st.integers(1, 4))
@examples(120)
def test_designs_by_program_have_p1_p2_and_p3(epsilon: Fraction, eta: Fraction, D: int, n0: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, unbiased_from=n0, method="program")
    check(m, n0)
    assert m.certificate.eta_from <= 1
    assert abs(m.eta - eta) <= Fraction(1, 2**62)
    assert m.law(0).eta >= m.eta


@given(EPSILONS, ETAS, st.integers(1, 4), st.integers(2, 9))
@examples(60)
def test_designs_for_promised_counts_have_p1_p2_and_p3(epsilon: Fraction, eta: Fraction, D: int, high: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, counts=(1, high), unbiased_from=1, method="program")
    check(m, 1)
    assert m.certificate.eta_from == 1


@given(EPSILONS, st.integers(3, 9))
@examples(80)
def test_the_profile_and_the_delta_of_a_remap_agree_with_brute_force(epsilon: Fraction, digits: int) -> None:
    assume(epsilon >= Fraction(1, 10))
    delta = Fraction(1, 10**digits)
    m = cv.design(epsilon=epsilon, delta=delta, method="remap")
    assert m.delta <= delta
    order = exp_bounds(epsilon)[0]
    slack = m.laws.slack * (1 + order)  # type: ignore[attr-defined]
    for row in m.profile():
        law = m.law(row.n)
        assert (law.mean, law.eta, law.mse) == (row.bias, row.exact, row.mse)
        assert row.n + law.least >= 0
        assert law.worst_error <= m.D
        assert row.n < (m.unbiased_from or 0) or law.mean == 0
        assert row.n < m.certificate.eta_from or law.eta == m.eta
    if m.certificate.stationary_from <= 60:
        exact = brute_force_delta(m, epsilon)
        assert m.delta - 2 * slack <= exact <= m.delta


@given(EPSILONS, st.integers(1, 40).map(lambda k: Fraction(k, 100)), st.integers(2, 6), st.integers(2, 3))
@examples(30)
def test_signed_designs_of_larger_sensitivity_have_p1_p2_and_p3(
    epsilon: Fraction, eta: Fraction, D: int, sensitivity: int
) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, sensitivity=sensitivity, policy="signed")
    check(m, 0)


@given(EPSILONS, st.integers(2, 8))
@examples(40)
def test_designs_meet_delta_with_the_least_D(epsilon: Fraction, digits: int) -> None:
    delta = Fraction(1, 10**digits)
    for policy in ("signed", "floor"):
        m = cv.design(epsilon=epsilon, delta=delta, policy=policy)
        assert m.delta <= delta
        if m.D > 1:
            smaller = cv.design(epsilon=epsilon, eta=m.eta, D=m.D - 1, policy=policy)
            assert smaller.delta > delta * (1 - Fraction("2e-7")), "a smaller D would be enough"
