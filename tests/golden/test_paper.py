"""The paper's closed form against an independent 60-digit computation, and its printed numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.design import paper
from countveil.laws.law import LawsByCount
from countveil.laws.privacy import delta, singleton
from countveil.laws.rounding import proposals, symmetric_law
from countveil.numeric.exact_numbers import exp_bounds
from tests.support import vectors

CASES = vectors.cases("paper")


@pytest.mark.parametrize("case", CASES, ids=vectors.ident)
def test_the_closed_form_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    epsilon, eta, D = Fraction(case["epsilon"]), Fraction(case["eta"]), int(case["D"])
    form = paper.closed_form(epsilon, eta, D)
    assert form.k == int(case["k"])
    assert form.holds == case["condition"]
    assert vectors.close(Fraction(form.delta_star), case["delta_star"], "1e-25")
    for name, found in (
        ("delta_k", paper.lower_bounds),
        ("C_k", lambda epsilon, eta, D: paper.crossovers(epsilon, D)),
        ("alpha", lambda epsilon, eta, D: form.alpha),
    ):
        if name in case:
            values = found(epsilon, eta, D)
            assert len(values) >= len(case[name])
            for value, expected in zip(values, case[name], strict=False):
                assert vectors.close(Fraction(value), expected, "1e-25")


@pytest.mark.parametrize("case", CASES, ids=vectors.ident)
def test_the_law_has_the_delta_that_brute_force_finds(case: dict[str, Any]) -> None:
    epsilon, eta, D = Fraction(case["epsilon"]), Fraction(case["eta"]), int(case["D"])
    law = symmetric_law(proposals(paper.closed_form(epsilon, eta, D).half), 192)
    order, _ = exp_bounds(epsilon)
    assert vectors.close(delta(LawsByCount(law), order).value, case["exact"], "1e-8") or Fraction(
        case["exact"]
    ) < Fraction("1e-40")
    assert vectors.close(singleton(LawsByCount(law), order).value, case["singleton"]) or Fraction(
        case["singleton"]
    ) < Fraction("1e-40")
    assert vectors.close(law.variance, case["variance"])
    assert vectors.close(law.within(3), case["within_3"])


@pytest.mark.parametrize("case", [c for c in CASES if not c["condition"]], ids=vectors.ident)
def test_where_the_theorem_fails_the_paper_is_refused_with_the_true_delta(case: dict[str, Any]) -> None:
    with pytest.raises(cv.InfeasibleError, match="does not hold") as caught:
        cv.design(epsilon=case["epsilon"], eta=case["eta"], D=int(case["D"]), policy="signed", method="paper")
    found = re.search(r"its law has delta (\S+) \(singleton (\S+)\)", str(caught.value))
    assert found
    assert vectors.close(Fraction(found[1]), case["exact"], "1e-6")
    assert vectors.close(Fraction(found[2]), case["singleton"], "1e-6")
    assert Fraction(case["singleton"]) > Fraction(case["delta_star"]), "the theorem claims equality"
    other = cv.design(epsilon=case["epsilon"], eta=case["eta"], D=int(case["D"]), policy="signed")
    assert other.delta_paper_bound is None


def test_the_paper_method_gives_the_numbers_printed_in_the_paper() -> None:
    m = cv.design(epsilon="2.18", eta="0.8", D=6, policy="signed", method="paper")
    j = m.describe()
    assert j["delta"].startswith("0.0153693741")
    assert j["delta_singleton"].startswith("0.00494782")
    assert j["delta_paper_bound"].startswith("0.0643216")
    law = m.law(6)
    assert f"{float(law.probability(1)):.5f}" == "0.08987"
    assert f"{float(law.probability(2)):.5f}" == "0.00960"
    assert f"{float(law.probability(1) / law.probability(2)):.4f}" == "9.3617"
    assert law.worst_error == 3, "only alpha_1..alpha_3 are positive"
    crossovers = paper.crossovers(Fraction("2.18"), 6)
    assert f"{crossovers[2]:.4f}" == "7.8867"
    assert f"{crossovers[1]:.4f}" == "8.1229"
    shown = j["paper"]
    assert isinstance(shown, dict)
    gauss = shown["discrete_gaussian"]
    assert f"{float(gauss['p1']):.5f}" == "0.11685"
    assert f"{float(gauss['p2']):.6f}" == "0.000416"
    assert round(float(gauss["ratio"])) in range(280, 283), "about 282 in the paper, from rounded probabilities"
    assert f"{float(gauss['epsilon_needed']):.1f}" == "5.6"
    assert shown["C_k"][2].startswith("7.8867")
    assert j["law"]["1"].startswith("0.08987")
    within = cv.design(epsilon="1.5", eta="0.5", D=8, policy="signed", method="paper").certificate.within_3
    assert f"{float(within):.4f}" == "0.9945"


@pytest.mark.parametrize(
    ("epsilon", "eta", "bound"), [("1.1", "0.5", "1e-3"), ("2.2", "0.8", "5e-7"), ("1.5", "0.5", "1e-3")]
)
def test_delta_is_within_the_bounds_that_the_paper_states_for_D_8(epsilon: str, eta: str, bound: str) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=8, policy="signed", method="paper")
    assert m.delta_paper_bound is not None
    assert m.delta <= m.delta_paper_bound <= Fraction(bound)
