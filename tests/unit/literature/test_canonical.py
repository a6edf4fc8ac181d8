from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, strategies as st

from countveil.errors import InfeasibleError, ParameterError
from countveil.laws.privacy import hockey_stick
from countveil.literature.canonical import canonical_noise, ideal_half, round_down, widen
from countveil.numeric.exact_numbers import exp_bounds

EPSILONS = st.fractions(Fraction(1, 4), 8, max_denominator=50)
DELTAS = st.integers(1, 60).map(lambda k: Fraction(7, 10) ** k)


@given(EPSILONS, DELTAS, st.sampled_from([64, 96, 192]))
def test_rounded_weights_never_exceed_delta_and_use_nearly_all_of_it(
    epsilon: Fraction, delta: Fraction, bits: int
) -> None:
    order = exp_bounds(epsilon)[0]
    half = ideal_half(epsilon, delta)
    law = round_down(order, delta, len(half) - 1, bits)
    assert law.is_symmetric()
    measured = hockey_stick(law, law.shift(1), order)
    assert measured <= delta
    assert measured >= delta - Fraction(4 * len(half) * (1 + int(order)), 1 << bits)
    near = Fraction(8 * len(half), 1 << bits) / min(epsilon, Fraction(1)) + Fraction(
        1, 2**170
    )  # e^epsilon is rounded down to so many digits
    assert all(abs(law.probability(i) - Fraction(p)) <= near for i, p in enumerate(half))


@given(EPSILONS, DELTAS)
def test_the_tails_of_canonical_noise_obey_their_recurrence(epsilon: Fraction, delta: Fraction) -> None:
    half = [Fraction(p) for p in ideal_half(epsilon, delta)]
    E = exp_bounds(epsilon)[0]
    tails = [Fraction(0), *accumulate(reversed(half[1:]))][::-1]
    assert abs(half[0] - (E - 1 + 2 * delta) / (E + 1)) < Fraction(1, 10**50)
    for tail, following in pairwise(tails):
        assert abs(following - max(Fraction(0), (tail - delta) / E)) < Fraction(1, 10**50)


def test_the_uniform_law_at_epsilon_0_cannot_have_dyadic_weights() -> None:
    """At epsilon 0 and delta 1/5 the law is uniform on -2..2, which weights over 2^64 cannot be."""
    with pytest.raises(InfeasibleError):
        round_down(Fraction(1), Fraction(1, 5), 2, 64)
    law = round_down(Fraction(1), Fraction(1, 5) + Fraction(1, 2**60), 2, 64)
    assert law.worst_error == 2
    assert all(abs(law.probability(z) - Fraction(1, 5)) < Fraction(1, 2**58) for z in range(-2, 3))
    assert widen(law, 4).weights[2:-2] == law.weights


@pytest.mark.parametrize("delta", ["0", "-1", "1", "many", None])
def test_bad_deltas_are_refused(delta: object) -> None:
    with pytest.raises(ParameterError, match="delta: got"):
        canonical_noise("1", delta)  # type: ignore[arg-type]
