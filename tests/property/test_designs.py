"""P1, P2 and P3 hold exactly on the integer weights of every design, and certificates are what brute force finds."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import countveil as cv
from countveil.exact import exp_bounds
from countveil.mechanism import Mechanism

EPSILONS = st.integers(1, 400).map(lambda k: Fraction(k, 100))
ETAS = st.integers(1, 98).map(lambda k: Fraction(k, 100))
BOUNDS = st.integers(1, 12)


def brute_force_delta(m: Mechanism, epsilon: Fraction) -> Fraction:
    """The definition, on Fractions, over more counts than the certificate looks at."""
    order = exp_bounds(epsilon)[0]
    low, high = m.counts
    last = m.certificate.stationary_from + 3 if high is None else high
    laws = {n: {n + z: m.column(n).probability(z) for z, w in m.column(n).items() if w} for n in range(low, last + 1)}
    worst = Fraction(0)
    for n in laws:
        for s in range(1, m.certificate.sensitivity + 1):
            for a, b in ((n, n + s), (n + s, n)):
                if a in laws and b in laws:
                    p, q = laws[a], laws[b]
                    worst = max(worst, sum((max(Fraction(0), p[y] - order * q.get(y, 0)) for y in p), Fraction(0)))
    return worst


def check(m: Mechanism, n0: int | None = None) -> None:
    """P1-P3 from the weights, with nothing but Fractions."""
    low, high = m.counts
    last = m.certificate.stationary_from + 2 if high is None else high
    for n in range(low, last + 1):
        law = m.column(n)
        assert sum(law.weights) == 2**law.bits
        assert law.worst_error <= m.D
        if m.policy == "nonnegative":
            assert n + law.least >= 0
        if n >= m.certificate.eta_from:
            assert law.eta == m.eta
        if m.unbiased_from is not None and n >= m.unbiased_from:
            assert law.mean == 0
    if n0 is not None:
        assert m.unbiased_from is not None
        assert m.unbiased_from <= n0
    assert brute_force_delta(m, m.epsilon) == m.delta


@given(EPSILONS, ETAS, BOUNDS)
@settings(max_examples=200)
def test_signed(epsilon: Fraction, eta: Fraction, D: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, policy="signed")
    check(m, 0)
    assert abs(m.eta - eta) <= Fraction(1, 2**62)


@given(EPSILONS, ETAS, st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=120)
def test_whole_domain_program(epsilon: Fraction, eta: Fraction, D: int, n0: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, unbiased_from=n0, method="program")
    check(m, n0)
    assert m.certificate.eta_from <= 1
    assert abs(m.eta - eta) <= Fraction(1, 2**62)
    assert m.column(0).eta >= m.eta


@given(EPSILONS, ETAS, st.integers(1, 4), st.integers(2, 9))
@settings(max_examples=60)
def test_promised_counts(epsilon: Fraction, eta: Fraction, D: int, high: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, counts=(1, high), unbiased_from=1, method="program")
    check(m, 1)
    assert m.certificate.eta_from == 1


@given(EPSILONS, st.integers(3, 9))
@settings(max_examples=80)
def test_remap(epsilon: Fraction, digits: int) -> None:
    assume(epsilon >= Fraction(1, 10))
    delta = Fraction(1, 10**digits)
    m = cv.design(epsilon=epsilon, delta=delta, method="remap")
    assert m.delta <= delta
    order = exp_bounds(epsilon)[0]
    slack = m.family.slack * (1 + order)  # type: ignore[attr-defined]
    for row in m.profile():
        law = m.column(row.n)
        assert (law.mean, law.eta, law.mse) == (row.bias, row.exact, row.mse)
        assert row.n + law.least >= 0
        assert law.worst_error <= m.D
        assert row.n < (m.unbiased_from or 0) or law.mean == 0
        assert row.n < m.certificate.eta_from or law.eta == m.eta
    if m.certificate.stationary_from <= 60:
        found = brute_force_delta(m, epsilon)
        assert m.delta - 2 * slack <= found <= m.delta


@given(EPSILONS, st.integers(1, 40).map(lambda k: Fraction(k, 100)), st.integers(2, 6), st.integers(2, 3))
@settings(max_examples=30)
def test_larger_sensitivity(epsilon: Fraction, eta: Fraction, D: int, sensitivity: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, sensitivity=sensitivity, policy="signed")
    check(m, 0)


@given(EPSILONS, st.integers(2, 8))
@settings(max_examples=40)
def test_a_target_is_met(epsilon: Fraction, digits: int) -> None:
    delta = Fraction(1, 10**digits)
    for policy in ("signed", "floor"):
        m = cv.design(epsilon=epsilon, delta=delta, policy=policy)
        assert m.delta <= delta
        if m.D > 1:
            smaller = cv.design(epsilon=epsilon, eta=m.eta, D=m.D - 1, policy=policy)
            assert smaller.delta > delta * (1 - Fraction("2e-7")), "a smaller D would have done"
