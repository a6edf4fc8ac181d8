from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.errors import ParameterError
from countveil.literature.bounded import bounded_laplace, doubly_exponential, truncated_laplace
from countveil.numeric.exact_numbers import exp_bounds


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-9"), ("1", "1e-6"), ("4", "0.01")])
def test_truncated_laplace_has_its_delta_at_its_epsilon_but_not_at_a_smaller_one(epsilon: str, delta: str) -> None:
    member = truncated_laplace(epsilon, delta)
    assert member.delta(exp_bounds(Fraction(epsilon))[0]) <= Fraction(delta) * (1 + Fraction(1, 10**20))
    assert member.delta(exp_bounds(Fraction(epsilon) * Fraction(9, 10))[0]) > Fraction(delta)


@pytest.mark.parametrize("N", [1, 2, 9, 30])
def test_bounded_laplace_stays_in_its_range_and_has_a_larger_epsilon_than_its_rate(N: int) -> None:
    member = bounded_laplace("1", N)
    for n in range(N + 1):
        law = member.laws.law(n)
        assert n + law.least == 0
        assert n + law.greatest == N
        assert law.weights == member.laws.law(N - n).mirror().weights
    assert member.laws.law(0).mean > 0
    if N > 1:
        assert member.delta(exp_bounds(Fraction(1))[0]) > Fraction(1, 100)


def test_the_law_for_many_queries_is_bounded_by_R() -> None:
    law = doubly_exponential("24.5").laws.stationary
    assert law.worst_error < 24
    assert doubly_exponential("1.1").laws.stationary.worst_error <= 1


@pytest.mark.parametrize("value", ["0", "nan", "1e9", None])
def test_bad_parameters_are_refused(value: object) -> None:
    with pytest.raises(ParameterError, match="R: got"):
        doubly_exponential(value)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="delta: got"):
        truncated_laplace("1", value)  # type: ignore[arg-type]
