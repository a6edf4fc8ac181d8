"""The closed form of least exact delta against an exact rational simplex and a table of printed values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.design import closed_form
from tests.support import vectors

CASES = vectors.cases("optimal")


@pytest.mark.parametrize("case", CASES, ids=vectors.ident)
def test_signed_designs_have_the_least_delta_that_an_exact_simplex_finds(case: dict[str, Any]) -> None:
    m = cv.design(
        epsilon=case["epsilon"],
        eta=case["eta"],
        D=int(case["D"]),
        sensitivity=int(case["sensitivity"]),
        policy="signed",
    )
    closed = case["sensitivity"] == "1"
    assert m.method == ("optimal" if closed else "program")
    assert vectors.close(m.delta, case["delta"], "1e-8" if closed else "2e-7")


@pytest.mark.parametrize("case", [c for c in CASES if c["sensitivity"] == "1"][::4], ids=vectors.ident)
def test_designs_by_linear_program_have_the_delta_of_the_closed_form(case: dict[str, Any]) -> None:
    m = cv.design(epsilon=case["epsilon"], eta=case["eta"], D=int(case["D"]), policy="signed", method="program")
    assert vectors.close(m.delta, case["delta"], "2e-7")


@pytest.mark.parametrize(
    ("epsilon", "eta", "D", "paper_law", "best"),
    [
        ("1.1", "0.5", 8, "4.03456811538943e-4", "7.5534912557477e-5"),
        ("2.2", "0.8", 8, "1.29703253050159e-7", "1.82332001776121e-8"),
        ("1.5", "0.5", 6, "5.01051876846274e-4", "1.07431899664979e-4"),
        ("0.5", "0.2", 12, "3.08068193099589e-3", "6.44806019042312e-4"),
        ("1.0", "0.4", 20, "1.34324717904171e-8", "1.06249284671957e-9"),
    ],
)
def test_designs_have_the_printed_deltas_and_those_of_the_closed_form(
    epsilon: str, eta: str, D: int, paper_law: str, best: str
) -> None:
    same = {"epsilon": epsilon, "eta": eta, "D": D, "policy": "signed"}
    assert vectors.close(cv.design(**same, method="paper").delta, paper_law)
    assert vectors.close(cv.design(**same).delta, best)
    E = Fraction(closed_form.exp(Fraction(epsilon)))
    side = (1 - Fraction(eta)) / 2
    formula = max(Fraction(eta) - (E - 1) * side, side * (E - 1) / (E**D - 1))
    assert abs(cv.design(**same).delta - formula) <= formula / 10**8


def test_a_design_for_epsilon_1_and_delta_1e_6_has_eta_0_462_and_D_14() -> None:
    m = cv.design(epsilon="1", delta="1e-6", policy="signed")
    assert (f"{float(m.eta):.3f}", m.D) == ("0.462", 14)
    assert m.delta <= Fraction("1e-6")


def test_delta_begins_to_grow_where_eta_is_tanh_of_half_epsilon() -> None:
    """Just below the knee delta is negligible, above it delta grows at once."""
    below = cv.design(epsilon="1.1", eta="0.500", D=60, policy="signed").delta
    above = cv.design(epsilon="1.1", eta="0.502", D=60, policy="signed").delta
    assert below < Fraction("1e-20")
    assert above > Fraction("1e-3")


@pytest.mark.parametrize(("epsilon", "eta", "D"), [("20", "0.9", 500), ("0.001", "0.0004", 20000), ("100", "0.5", 100)])
def test_extreme_parameters_neither_overflow_nor_lose_precision(epsilon: str, eta: str, D: int) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, policy="signed")
    assert 0 < m.delta < Fraction("1e-11")
    assert m.law(D).mean == 0
    formula = closed_form.least_delta(Fraction(epsilon), Fraction(eta), D)
    assert m.delta <= Fraction(formula) * (1 + Fraction("1e-8")) + Fraction(1, 2**100)
