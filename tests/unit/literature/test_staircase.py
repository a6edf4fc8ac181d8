from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.errors import ParameterError
from countveil.literature.geometric import geometric
from countveil.literature.staircase import best_r, staircase
from countveil.numeric.exact_numbers import exp_bounds


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_a_staircase_is_private_at_its_sensitivity_and_has_less_variance_than_the_geometric_law(
    epsilon: str, d: int
) -> None:
    member = staircase(epsilon, d)
    order, _ = exp_bounds(Fraction(epsilon))
    assert member.delta(order, d) <= Fraction(1, 2**90)
    assert member.delta(order * 9 / 10, d) > Fraction(1, 1000)
    law = member.laws.stationary
    assert law.is_symmetric()
    assert law.variance < geometric(Fraction(epsilon) / d).laws.stationary.variance


def test_the_staircase_at_sensitivity_1_is_the_geometric_law() -> None:
    law, other = (m.laws.stationary for m in (staircase("0.7", 1), geometric("0.7")))
    assert law == other


@pytest.mark.parametrize("epsilon", ["0.3", "2", "6"])
def test_the_best_r_has_the_least_variance(epsilon: str) -> None:
    d = 6
    variances = [staircase(epsilon, d, r).laws.stationary.variance for r in range(1, d + 1)]
    assert variances[best_r(Fraction(epsilon), d) - 1] == min(variances)


def test_a_staircase_of_large_epsilon_still_has_noise_of_1() -> None:
    assert staircase(100, 1).laws.stationary.right >= 1


@pytest.mark.parametrize(("name", "given"), [("sensitivity", 0), ("sensitivity", 101), ("r", 0), ("r", 5), ("r", "x")])
def test_bad_parameters_are_refused(name: str, given: object) -> None:
    arguments = {"sensitivity": 4} | {name: given}
    with pytest.raises(ParameterError, match=f"{name}: got"):
        staircase(1, **arguments)  # type: ignore[arg-type]
