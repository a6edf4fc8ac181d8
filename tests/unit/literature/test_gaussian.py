from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from countveil.errors import ParameterError
from countveil.literature.gaussian import discrete_gaussian, parameter_for_variance
from countveil.numeric.exact_numbers import exp_bounds


def delta_formula(s2: Fraction, epsilon: Fraction) -> Fraction:
    """P(Z > epsilon s2 - 1/2) - E P(Z > epsilon s2 + 1/2), on the cut-off law."""
    law = discrete_gaussian(s2).laws.stationary
    tail = lambda t: sum((law.probability(z) for z in range(law.right + 1) if z > t), Fraction(0))  # noqa: E731
    above, beyond = (tail(epsilon * s2 + shift) for shift in (Fraction(-1, 2), Fraction(1, 2)))
    return above - exp_bounds(epsilon)[0] * beyond


@given(st.fractions(Fraction(1, 10), 50, max_denominator=100), st.fractions(Fraction(1), 5, max_denominator=20))
def test_the_measured_delta_equals_the_formula(s2: Fraction, epsilon: Fraction) -> None:
    member = discrete_gaussian(s2)
    assert member.laws.stationary.is_symmetric()
    assert member.cut <= Fraction(1, 2**99)
    delta = member.delta(exp_bounds(epsilon)[0])
    assert abs(delta - delta_formula(s2, epsilon)) <= Fraction(1, 2**80)


@given(st.fractions(Fraction(1, 1000), 20, max_denominator=1000))
def test_the_computed_parameter_has_the_given_variance(V: Fraction) -> None:
    law = discrete_gaussian(parameter_for_variance(V)).laws.stationary
    assert abs(law.variance - V) <= V * Fraction(1, 10**25)


def test_large_variances_equal_their_parameter() -> None:
    assert parameter_for_variance("1234.5") == Fraction("1234.5")


@pytest.mark.parametrize("s2", ["0", "-1", "1e9", "0.0001", "many", None, True, float("nan")])
def test_bad_parameters_are_refused(s2: object) -> None:
    with pytest.raises(ParameterError, match="s2: got"):
        discrete_gaussian(s2)  # type: ignore[arg-type]
    if s2 != "0.0001":
        with pytest.raises(ParameterError, match="V: got"):
            parameter_for_variance(s2)  # type: ignore[arg-type]
