"""The linear programs against optima proved by an independent exact solver, down to deltas of 1e-12."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.design.column_program import ColumnProgram, Model
from countveil.numeric.exact_numbers import decimal_text
from tests.support import vectors

CASES = vectors.cases("program")
WHOLE = [c for c in CASES if c["kind"] == "whole"]
PAPER = [c for c in CASES if c["kind"] == "paper"]


@pytest.mark.parametrize("case", WHOLE, ids=vectors.ident)
def test_the_linear_program_reaches_the_proved_optimum(case: dict[str, Any]) -> None:
    model = Model(
        epsilon=Fraction(case["epsilon"]),
        D=int(case["D"]),
        eta=Fraction(case["eta"]),
        delta=None,
        n0=int(case["n0"]),
        M=int(case["M"]),
        singleton=case["objective"] == "singleton",
    )
    program = ColumnProgram(model)
    assert vectors.close(program.optimise()[program.delta], case["delta"], "1e-9")


@pytest.mark.parametrize("case", [c for c in WHOLE if c["objective"] == "exact"], ids=vectors.ident)
def test_certified_designs_reach_the_proved_optimum(case: dict[str, Any]) -> None:
    """The delta certified on integer weights is at most 1e-6 above the proved optimum (relatively)."""
    m = cv.design(
        epsilon=case["epsilon"], eta=case["eta"], D=int(case["D"]), unbiased_from=int(case["n0"]), method="program"
    )
    assert m.delta <= Fraction(case["delta"]) * (1 + Fraction("1e-6"))
    assert m.unbiased_from is not None
    assert m.unbiased_from <= int(case["n0"])
    assert m.certificate.eta_from <= 1
    assert m.certificate.never_negative


@pytest.mark.parametrize("case", PAPER, ids=vectors.ident)
def test_the_general_program_of_the_paper_reaches_its_proved_optimum(case: dict[str, Any]) -> None:
    m = cv.design(
        epsilon=case["epsilon"],
        eta=case["eta"],
        D=int(case["D"]),
        counts=f"1:{case['N']}",
        objective="singleton",
        method="program",
    )
    assert m.certificate.delta_singleton is not None
    assert vectors.close(m.certificate.delta_singleton, case["delta"], "2e-7")
    for n in range(1, int(case["N"]) + 1):
        law = m.law(n)
        assert law.eta == m.law(1).eta
        assert law.mean == 0
        assert law.least >= -min(n, int(case["D"]))


@pytest.mark.parametrize(("n0", "delta"), [(1, "0.058"), (4, "1.43e-4"), (6, "7.56e-5")])
def test_zero_bias_from_n0_on_costs_the_known_delta(n0: int, delta: str) -> None:
    m = cv.design(epsilon="1.1", eta="0.5", D=8, unbiased_from=n0)
    assert vectors.close(m.delta, delta, "5e-3")


@pytest.mark.parametrize(
    ("epsilon", "D", "n0", "eta"),
    [
        ("0.5", 26, 2, "0.179"),
        ("0.5", 26, 3, "0.220"),
        ("0.5", 26, 5, "0.240"),
        ("1", 13, 1, "0.358"),
        ("1", 13, 2, "0.445"),
        ("1", 13, 3, "0.458"),
        ("1", 13, 5, "0.462"),
        ("2", 7, 1, "0.745"),
        ("2", 7, 2, "0.760"),
        ("2", 7, 3, "0.761"),
        ("2", 7, 5, "0.7615"),
    ],
)
def test_zero_bias_from_n0_on_leaves_the_known_eta(epsilon: str, D: int, n0: int, eta: str) -> None:
    model = Model(Fraction(epsilon), D, None, Fraction("1e-5"), n0)
    program = ColumnProgram(model)
    found = program.optimise()[program.eta]
    assert abs(found - Fraction(eta)) <= Fraction("0.0006")


def test_zero_bias_from_1_is_impossible_at_epsilon_one_half() -> None:
    with pytest.raises(cv.InfeasibleError, match="need delta >= "):
        cv.design(epsilon="0.5", delta="1e-5", D=26, unbiased_from=1)


def test_the_design_at_epsilon_1_with_n0_2_has_its_known_delta() -> None:
    m = cv.design(epsilon="1", eta="0.44", D=14, unbiased_from=2)
    assert vectors.close(m.delta, "4.79e-7", "2e-3")
    assert m.certificate.never_negative
    assert [m.law(n).mean == 0 for n in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("D", "eta"), [(14, "0.44508"), (20, "0.44533"), pytest.param(40, "0.44559", marks=pytest.mark.slow)]
)
def test_eta_grows_a_little_with_D(D: int, eta: str) -> None:
    m = cv.design(epsilon="1", delta="1e-6", D=D, unbiased_from=2, method="program")
    assert decimal_text(m.eta, 5) == eta
    assert m.delta <= Fraction("1e-6")
    assert m.certificate.never_negative
    assert m.unbiased_from == 2
