"""Remapped geometric laws against closed forms computed independently."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.design.remap import pulls
from countveil.laws.remap import Remap
from tests.support import vectors

CASES = vectors.cases("remap")
NUMERIC = [c for c in CASES if c["epsilon"] != "ln 2"]


@pytest.mark.parametrize("case", NUMERIC, ids=vectors.ident)
def test_remaps_have_the_least_n0_and_the_eta_of_the_independent_computation(case: dict[str, Any]) -> None:
    m = cv.design(epsilon=case["epsilon"], delta="1e-9", method="remap")
    if case["epsilon"] != "0.6931471805599453":  # within 1e-16 of ln 2, where the least n0 changes
        assert m.unbiased_from == int(case["needed_n0"])
    assert vectors.close(m.eta, case["eta_signed"], "1e-8")


def test_the_remap_at_epsilon_1_equals_its_closed_form() -> None:
    """One pull, 1 -> 0 with probability a^2/(1-a)^2, makes every count from 1 on unbiased."""
    case = next(c for c in CASES if c["epsilon"] == "1")
    m = cv.design(epsilon="1", delta="1e-12", method="remap")
    laws = m.laws
    assert isinstance(laws, Remap)
    assert laws.T == 1
    assert vectors.close(Fraction(laws.rows[1][0][1], 2**laws.map_bits), case["pull_down"][0], "1e-8")
    for n, (exact, mse) in enumerate(zip(case["P_exact"], case["mse"], strict=True)):
        assert vectors.close(m.law(n).eta, exact, "1e-8")
        assert vectors.close(m.law(n).mse, mse, "1e-6")
    assert vectors.close(m.certificate.variance, case["mse_limit"], "1e-6")
    assert vectors.close(m.certificate.bias_at[0], case["bias"][0], "1e-6")


def test_at_epsilon_ln_2_one_pull_is_just_enough() -> None:
    assert pulls.least_T(0.5) == 1
    assert pulls.geometric_need(0.5) == 0.5**-1  # what the one pull, of 1 to 0, can compensate
