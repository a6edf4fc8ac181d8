from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.errors import ParameterError
from countveil.literature.finite_set import finite_set_noise
from countveil.numeric.exact_numbers import exp_bounds


def test_without_a_delta_the_law_is_geometric_and_exactly_private() -> None:
    member = finite_set_noise("1", "0", 2)
    law = member.laws.law(2)
    E = exp_bounds(Fraction(1))[0]
    assert all(abs(law.probability(z) * E - law.probability(z - 1)) < Fraction(1, 10**40) for z in (1, 2))
    assert member.delta(E) < Fraction(1, 2**150)


def test_the_noise_of_every_count_has_the_same_weights_in_another_order() -> None:
    member = finite_set_noise("1", "0.05", 2)
    laws = [member.laws.law(n) for n in range(5)]
    assert member.counts == (0, 4)
    assert len({tuple(sorted(law.weights)) for law in laws}) == 1
    assert all(law.least == -n and n + law.greatest == 4 for n, law in enumerate(laws))


@pytest.mark.parametrize("D", [0, 5, "x"])
def test_a_noise_bound_other_than_1_to_4_is_refused(D: object) -> None:
    with pytest.raises(ParameterError, match="D: got"):
        finite_set_noise("1", "0.1", D)  # type: ignore[arg-type]
