"""P1, P2, P3 and delta of a mechanism by their definitions, on the integer weights of every law."""

from __future__ import annotations

from fractions import Fraction

from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import exp_bounds


def brute_force_delta(m: Mechanism, epsilon: Fraction) -> Fraction:
    """delta by its definition, in Fractions, over more counts than the certificate compares."""
    order = exp_bounds(epsilon)[0]
    low, high = m.counts
    last = m.certificate.stationary_from + 3 if high is None else high
    laws = {n: {n + z: m.law(n).probability(z) for z, w in m.law(n).items() if w} for n in range(low, last + 1)}
    worst = Fraction(0)
    for n in laws:
        for s in range(1, m.certificate.sensitivity + 1):
            for a, b in ((n, n + s), (n + s, n)):
                if a in laws and b in laws:
                    p, q = laws[a], laws[b]
                    worst = max(worst, sum((max(Fraction(0), p[y] - order * q.get(y, 0)) for y in p), Fraction(0)))
    return worst


def check(m: Mechanism, n0: int | None = None) -> None:
    """Check P1, P2 and P3 on the weights, in Fractions."""
    low, high = m.counts
    last = m.certificate.stationary_from + 2 if high is None else high
    for n in range(low, last + 1):
        law = m.law(n)
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
