from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countveil.errors import ParameterError
from countveil.exact import exp_bounds
from countveil.families.geometric import geometric
from countveil.families.laplace import rounded_laplace


@given(st.fractions(Fraction(1, 10), 5, max_denominator=20))
def test_the_rounded_law(epsilon: Fraction) -> None:
    member = rounded_laplace(epsilon)
    law = member.columns.stationary
    order, _ = exp_bounds(epsilon)
    assert abs(law.eta - (1 - 1 / exp_bounds(epsilon / 2)[0])) <= Fraction(1, 2**99)
    assert abs(law.probability(2) * order - law.probability(1)) <= Fraction(1, 2**99)
    assert member.delta(order) <= Fraction(1, 2**88)
    assert law.variance > geometric(epsilon).columns.stationary.variance
    assert "Mironov" in member.notes[-1]


def test_bad_epsilon() -> None:
    with pytest.raises(ParameterError, match="epsilon: got"):
        rounded_laplace("0")
