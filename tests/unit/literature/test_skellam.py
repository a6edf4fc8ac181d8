from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from countveil.errors import ParameterError
from countveil.literature.offset_gaussian import offset_gaussian
from countveil.literature.skellam import skellam


@given(st.fractions(Fraction(1, 50), 500, max_denominator=50))
def test_the_variance_of_skellam_noise_is_its_parameter(V: Fraction) -> None:
    assert abs(skellam(V).laws.stationary.variance - V) <= V * Fraction(1, 2**80)


@pytest.mark.parametrize("V", ["0", "1e9", "x", None])
def test_bad_parameters_are_refused(V: object) -> None:
    with pytest.raises(ParameterError, match="V: got"):
        skellam(V)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="s2: got"):
        offset_gaussian(V if V != "1e9" else "1e11", "1")  # type: ignore[arg-type]
