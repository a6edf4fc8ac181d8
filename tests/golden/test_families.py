"""The comparators against independent 60-digit computations, and against numbers that others printed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from countveil.exact import exp_bounds
from countveil.families.fair import explicit_fair
from countveil.families.gaussian import discrete_gaussian, parameter_for_variance
from countveil.families.geometric import clamped_geometric, folded_geometric, rounded_laplace, truncated_geometric
from countveil.families.maximum_entropy import maximum_entropy
from countveil.families.member import Member
from countveil.families.staircase import best_r, staircase
from tests.support import vectors

CASES = vectors.cases("families")
TINY = Fraction(1, 2**85)
"""2**-100 is cut off, times 1 + E for E up to e^9."""


def of(*kinds: str) -> list[dict[str, Any]]:
    found = [case for case in CASES if case["kind"] in kinds]
    assert found
    return found


def near(measured: Fraction, expected: str) -> bool:
    """To 25 digits, or to what cutting off leaves."""
    return vectors.close(measured, expected, "1e-25") or abs(measured - Fraction(expected)) <= TINY


def check(member: Member, case: dict[str, Any], sensitivity: int = 1) -> None:
    law = member.columns.stationary
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
def test_discrete_gaussian(case: dict[str, Any]) -> None:
    check(discrete_gaussian(case["s2"]), case)
    assert vectors.close(parameter_for_variance(Fraction(case["variance"])), case["s2"], "1e-27")


@pytest.mark.parametrize("case", of("truncated"), ids=vectors.ident)
def test_truncated_geometric(case: dict[str, Any]) -> None:
    check(truncated_geometric(case["epsilon"], int(case["D"])), case)


@pytest.mark.parametrize("case", of("laplace"), ids=vectors.ident)
def test_rounded_laplace(case: dict[str, Any]) -> None:
    check(rounded_laplace(case["epsilon"]), case)


@pytest.mark.parametrize("case", of("staircase"), ids=vectors.ident)
def test_staircase(case: dict[str, Any]) -> None:
    d = int(case["d"])
    check(staircase(case["epsilon"], d, int(case["r"])), case, d)


@pytest.mark.parametrize("case", of("fair"), ids=vectors.ident)
def test_explicit_fair(case: dict[str, Any]) -> None:
    member = explicit_fair(case["epsilon"], int(case["N"]))
    for n, column in enumerate(case["columns"]):
        for y, expected in enumerate(column):
            assert near(member.columns.column(n).probability(y - n), expected)
    check(member, {"deltas": case["deltas"]})


@pytest.mark.parametrize("case", of("clamped", "folded"), ids=lambda c: vectors.ident(c) + c["n"])
def test_clamped_and_folded(case: dict[str, Any]) -> None:
    make = clamped_geometric if case["kind"] == "clamped" else folded_geometric
    n = int(case["n"])
    law = make(case["epsilon"], None if case["N"] is None else int(case["N"])).columns.column(n)
    for y, expected in enumerate(case["column"]):
        assert near(law.probability(y - n), expected)


@pytest.mark.parametrize("case", of("entropy"), ids=vectors.ident)
def test_the_last_row_of_maximum_entropy(case: dict[str, Any]) -> None:
    check(maximum_entropy(int(case["D"]), case["V"]), case)


@pytest.mark.parametrize("case", of("entropy row"), ids=vectors.ident)
def test_small_rows_of_maximum_entropy(case: dict[str, Any]) -> None:
    n = int(case["n"])
    law = maximum_entropy(int(case["D"]), case["V"], monotone=False, exact_variance=True).columns.column(n)
    assert len(law.weights) == len(case["column"])
    for (_, w), expected in zip(law.items(), case["column"], strict=True):
        assert near(Fraction(w, law.total), expected)


@pytest.mark.parametrize("case", of("printed gaussian"), ids=lambda c: c["s2"])
def test_the_discrete_gaussian_of_dp_accounting(case: dict[str, Any]) -> None:
    for epsilon, printed in case["deltas"]:
        order, _ = exp_bounds(Fraction(epsilon))
        assert vectors.close(discrete_gaussian(case["s2"]).delta(order), printed, case["relative"])


@pytest.mark.parametrize("case", of("printed ptable"), ids=lambda c: c["source"].split()[0] + c["n"])
def test_published_p_tables(case: dict[str, Any]) -> None:
    member = maximum_entropy(
        int(case["D"]), case["V"], case["pstay"], int(case["js"]), exact_variance=case["exact_variance"]
    )
    law = member.columns.column(int(case["n"]))
    for z, printed in case["pmf"].items():
        assert abs(law.probability(int(z)) - Fraction(printed)) <= Fraction(case["within"])


@pytest.mark.parametrize(("epsilon", "delta", "eta"), [("1.5", "1.749e-5", "0.63516"), ("0.5", "7.568e-3", "0.2506")])
def test_published_values_of_the_truncated_geometric(epsilon: str, delta: str, eta: str) -> None:
    member = truncated_geometric(epsilon, 7)
    assert vectors.close(member.delta(exp_bounds(Fraction(epsilon))[0]), delta, "1e-4")
    assert vectors.close(member.columns.stationary.eta, eta, "2e-4")


def test_the_gaussian_of_the_paper() -> None:
    """At the parameter 0.2660 the true variance is 0.2370: not a comparison at equal variance."""
    s2 = next(c["variance"] for c in vectors.cases("paper") if (c["epsilon"], c["eta"], c["D"]) == ("2.18", "0.8", "6"))
    law = discrete_gaussian(Fraction(s2)).columns.stationary
    assert vectors.close(law.variance, "0.2370", "2e-4")
    assert vectors.close(law.probability(1), "0.11685", "1e-4")
    assert vectors.close(law.probability(2), "0.000416", "2e-3")


def test_the_best_r() -> None:
    for case in of("staircase"):
        epsilon, d = Fraction(case["epsilon"]), int(case["d"])
        best = staircase(epsilon, d).columns.stationary.variance
        assert best <= Fraction(case["variance"]) + TINY
        assert best == staircase(epsilon, d, best_r(epsilon, d)).columns.stationary.variance
