"""The mechanisms of the literature against independent 60-digit computations, and against published numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from countveil.literature.fair import explicit_fair
from countveil.literature.gaussian import discrete_gaussian, parameter_for_variance
from countveil.literature.geometric import clamped_geometric, folded_geometric, rounded_laplace, truncated_geometric
from countveil.literature.maximum_entropy import maximum_entropy
from countveil.literature.member import Member
from countveil.literature.staircase import best_r, staircase
from countveil.numeric.exact_numbers import exp_bounds
from tests.support import vectors

CASES = vectors.cases("families")
TINY = Fraction(1, 2**85)
"""The most that cut-off tails add to a delta: 2**-100 times 1 + E, for E up to e^9."""


def of(*kinds: str) -> list[dict[str, Any]]:
    found = [case for case in CASES if case["kind"] in kinds]
    assert found
    return found


def near(measured: Fraction, expected: str) -> bool:
    """Whether the two agree to 25 digits, or up to the effect of cut-off tails."""
    return vectors.close(measured, expected, "1e-25") or abs(measured - Fraction(expected)) <= TINY


def check(member: Member, case: dict[str, Any], sensitivity: int = 1) -> None:
    law = member.laws.stationary
    for z, expected in case.get("pmf", {}).items():
        assert near(law.probability(int(z)), expected)
    if "variance" in case:
        assert near(law.variance, case["variance"])
    for epsilon, expected in case.get("deltas", []):
        order, _ = exp_bounds(Fraction(epsilon))
        measured = member.delta(order, sensitivity)
        assert near(measured, expected)
        assert measured >= Fraction(expected) * (1 - Fraction(1, 10**25))


@pytest.mark.parametrize("case", of("gaussian"), ids=lambda c: c["s2"][:8])
def test_discrete_gaussians_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(discrete_gaussian(case["s2"]), case)
    assert vectors.close(parameter_for_variance(Fraction(case["variance"])), case["s2"], "1e-27")


@pytest.mark.parametrize("case", of("truncated"), ids=vectors.ident)
def test_truncated_geometric_laws_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(truncated_geometric(case["epsilon"], int(case["D"])), case)


@pytest.mark.parametrize("case", of("laplace"), ids=vectors.ident)
def test_rounded_laplace_laws_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(rounded_laplace(case["epsilon"]), case)


@pytest.mark.parametrize("case", of("staircase"), ids=vectors.ident)
def test_staircases_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    d = int(case["d"])
    check(staircase(case["epsilon"], d, int(case["r"])), case, d)


@pytest.mark.parametrize("case", of("fair"), ids=vectors.ident)
def test_explicit_fair_mechanisms_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    member = explicit_fair(case["epsilon"], int(case["N"]))
    for n, column in enumerate(case["columns"]):
        for y, expected in enumerate(column):
            assert near(member.laws.law(n).probability(y - n), expected)
    check(member, {"deltas": case["deltas"]})


@pytest.mark.parametrize("case", of("clamped", "folded"), ids=lambda c: vectors.ident(c) + c["n"])
def test_clamped_and_folded_geometric_laws_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    make = clamped_geometric if case["kind"] == "clamped" else folded_geometric
    n = int(case["n"])
    law = make(case["epsilon"], None if case["N"] is None else int(case["N"])).laws.law(n)
    for y, expected in enumerate(case["column"]):
        assert near(law.probability(y - n), expected)


@pytest.mark.parametrize("case", of("entropy"), ids=vectors.ident)
def test_the_last_rows_of_maximum_entropy_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(maximum_entropy(int(case["D"]), case["V"]), case)


@pytest.mark.parametrize("case", of("entropy row"), ids=vectors.ident)
def test_small_rows_of_maximum_entropy_agree_with_the_independent_computation(case: dict[str, Any]) -> None:
    n = int(case["n"])
    law = maximum_entropy(int(case["D"]), case["V"], monotone=False, exact_variance=True).laws.law(n)
    assert len(law.weights) == len(case["column"])
    for (_, w), expected in zip(law.items(), case["column"], strict=True):
        assert near(Fraction(w, law.total), expected)


@pytest.mark.parametrize("case", of("printed gaussian"), ids=lambda c: c["s2"])
def test_discrete_gaussians_have_the_deltas_that_dp_accounting_prints(case: dict[str, Any]) -> None:
    for epsilon, printed in case["deltas"]:
        order, _ = exp_bounds(Fraction(epsilon))
        assert vectors.close(discrete_gaussian(case["s2"]).delta(order), printed, case["relative"])


@pytest.mark.parametrize("case", of("printed ptable"), ids=lambda c: c["source"].split()[0] + c["n"])
def test_maximum_entropy_gives_the_published_p_tables(case: dict[str, Any]) -> None:
    member = maximum_entropy(
        int(case["D"]), case["V"], case["pstay"], int(case["js"]), exact_variance=case["exact_variance"]
    )
    law = member.laws.law(int(case["n"]))
    for z, printed in case["pmf"].items():
        assert abs(law.probability(int(z)) - Fraction(printed)) <= Fraction(case["within"])


@pytest.mark.parametrize(("epsilon", "delta", "eta"), [("1.5", "1.749e-5", "0.63516"), ("0.5", "7.568e-3", "0.2506")])
def test_truncated_geometric_laws_have_their_published_delta_and_eta(epsilon: str, delta: str, eta: str) -> None:
    member = truncated_geometric(epsilon, 7)
    assert vectors.close(member.delta(exp_bounds(Fraction(epsilon))[0]), delta, "1e-4")
    assert vectors.close(member.laws.stationary.eta, eta, "2e-4")


def test_the_gaussian_of_the_paper_has_another_variance_than_its_parameter() -> None:
    """The paper sets the parameter to 0.2660; the variance is then 0.2370, not that of the paper's law."""
    s2 = next(c["variance"] for c in vectors.cases("paper") if (c["epsilon"], c["eta"], c["D"]) == ("2.18", "0.8", "6"))
    law = discrete_gaussian(Fraction(s2)).laws.stationary
    assert vectors.close(law.variance, "0.2370", "2e-4")
    assert vectors.close(law.probability(1), "0.11685", "1e-4")
    assert vectors.close(law.probability(2), "0.000416", "2e-3")


def test_the_best_r_has_the_least_variance_of_all_staircases() -> None:
    for case in of("staircase"):
        epsilon, d = Fraction(case["epsilon"]), int(case["d"])
        best = staircase(epsilon, d).laws.stationary.variance
        assert best <= Fraction(case["variance"]) + TINY
        assert best == staircase(epsilon, d, best_r(epsilon, d)).laws.stationary.variance
