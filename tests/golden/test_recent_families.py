"""The mechanisms of the newest papers against independent computations, and against numbers that others printed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.accounting.composition import Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.literature.bounded import bounded_laplace, doubly_exponential, truncated_laplace
from countveil.literature.canonical import canonical_noise
from countveil.literature.finite_set import finite_set_noise
from countveil.literature.gaussian import discrete_gaussian, truncated_gaussian
from countveil.literature.geometric import geometric
from countveil.literature.member import Member
from countveil.literature.offset_gaussian import offset_gaussian
from countveil.literature.renyi import divergence, optimise, renyi_optimal
from countveil.literature.skellam import skellam
from countveil.literature.unbiased import unbiased_geometric
from countveil.numeric.exact_numbers import exp_bounds
from tests.support import vectors

CASES = vectors.cases("recent_families")
TINY = Fraction(1, 2**85)


def of(kind: str) -> list[dict[str, Any]]:
    chosen = [case for case in CASES if case["kind"] == kind]
    assert chosen
    return chosen


def near(measured: Fraction, expected: str) -> bool:
    """Whether they agree to 25 digits, or up to the mass of the tails that were cut off."""
    return vectors.close(measured, expected, "1e-25") or abs(measured - Fraction(expected)) <= TINY


def check(member: Member, case: dict[str, Any]) -> None:
    law = member.laws.stationary
    for z, expected in case.get("pmf", {}).items():
        assert near(law.probability(int(z)), expected)
    if "variance" in case:
        assert near(law.variance, case["variance"])
    for epsilon, expected in case["deltas"]:
        measured = member.delta(exp_bounds(Fraction(epsilon))[0])
        assert near(measured, expected)
        assert measured >= Fraction(expected) * (1 - Fraction(1, 10**25)) - TINY


def label(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values() if isinstance(value, str) and len(value) < 12)


@pytest.mark.parametrize("case", of("canonical"), ids=label)
def test_canonical_noise_has_the_law_that_the_code_of_its_authors_computes(case: dict[str, Any]) -> None:
    member = canonical_noise(case["epsilon"], case["delta"])
    check(member, case)
    assert member.laws.stationary.worst_error == int(case["D"])


@pytest.mark.parametrize("case", of("printed canonical"), ids=label)
def test_canonical_noise_and_its_certified_design_have_the_printed_digits(case: dict[str, Any]) -> None:
    law = canonical_noise(case["epsilon"], case["delta"]).laws.stationary
    designed = cv.design(epsilon=case["epsilon"], delta=case["delta"], policy="signed")
    for eta, variance, D in (
        (law.eta, law.variance, law.worst_error),
        (designed.eta, designed.certificate.variance, designed.D),
    ):
        digits = len(case["variance"].partition(".")[2])
        assert (f"{float(eta):.6f}", f"{float(variance):.{digits}f}", str(D)) == (
            case["eta"],
            case["variance"],
            case["D"],
        )
    assert designed.delta <= Fraction(case["delta"])


@pytest.mark.parametrize("case", of("truncated gaussian"), ids=label)
def test_the_truncated_gaussian_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(truncated_gaussian(case["s2"], int(case["D"])), case)


@pytest.mark.parametrize("case", of("offset gaussian"), ids=label)
def test_the_offset_gaussian_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(offset_gaussian(case["s2"], case["m"]), case)


@pytest.mark.parametrize("case", of("skellam"), ids=label)
def test_skellam_noise_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(skellam(case["V"]), case)


@pytest.mark.parametrize("case", of("truncated laplace"), ids=label)
def test_truncated_laplace_agrees_with_the_independent_computation_and_keeps_its_guarantee(
    case: dict[str, Any],
) -> None:
    member = truncated_laplace(case["epsilon"], case["delta"])
    check(member, case)
    assert member.delta(exp_bounds(Fraction(case["epsilon"]))[0]) <= Fraction(case["delta"]) * (1 + Fraction(1, 10**20))


@pytest.mark.parametrize("case", of("bounded laplace"), ids=label)
def test_bounded_laplace_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    member = bounded_laplace(case["epsilon"], int(case["N"]))
    for n, column in enumerate(case["columns"]):
        for y, expected in enumerate(column):
            assert near(member.laws.law(n).probability(y - n), expected)
    check(member, {"deltas": case["deltas"]})


@pytest.mark.parametrize("case", of("doubly exponential"), ids=label)
def test_the_bounded_law_for_many_queries_agrees_with_the_independent_computation(case: dict[str, Any]) -> None:
    check(doubly_exponential(case["R"]), case)


@pytest.mark.parametrize("case", of("unbiased"), ids=lambda c: c["epsilon"] + "-" + c["n"])
def test_the_unbiased_geometric_agrees_with_the_independent_computation_and_has_no_bias(case: dict[str, Any]) -> None:
    n = int(case["n"])
    law = unbiased_geometric(case["epsilon"]).laws.law(n)
    for y, expected in case["column"].items():
        assert near(law.probability(int(y) - n), expected)
    assert abs(law.mean) <= TINY
    assert abs(Fraction(case["mean"]) - n) < Fraction(1, 10**50)


@pytest.mark.parametrize("case", of("finite set"), ids=label)
def test_noise_on_a_finite_set_is_the_optimum_of_its_linear_program(case: dict[str, Any]) -> None:
    member = finite_set_noise(case["epsilon"], case["delta"], int(case["D"]))
    assert vectors.close(member.laws.law(int(case["D"])).variance, case["variance"], "1e-7")
    assert member.delta(exp_bounds(Fraction(case["epsilon"]))[0]) <= Fraction(case["delta"]) * (1 + Fraction(1, 10**20))


@pytest.mark.parametrize("case", of("renyi"), ids=label)
def test_the_renyi_optimal_law_agrees_with_another_solver(case: dict[str, Any]) -> None:
    V, order = float(case["V"]), float(case["order"])
    half, tail = optimise(V, order)
    assert math.isclose(divergence(half, tail, order, 1), float(case["divergence"]), rel_tol=1e-5)
    assert vectors.close(renyi_optimal(case["V"], case["order"]).laws.stationary.variance, case["V"], "1e-8")


@pytest.mark.slow  # Newton's method with two hundred weights that hardly interact
@pytest.mark.parametrize("case", of("printed cactus"), ids=label)
def test_the_published_cactus_laws_have_their_published_divergence(case: dict[str, Any]) -> None:
    """The continuous law of a standard deviation s at sensitivity 1 is nearly the integer one of 8 s at 8."""
    cells = 8
    V = (float(case["deviation"]) * cells) ** 2 - 1 / 12
    half, tail = optimise(V, 1.0, cells)
    assert math.isclose(divergence(half, tail, 1.0, cells), float(case["divergence"]), rel_tol=1e-3)


@pytest.mark.slow  # bounds epsilon of three compositions, by many evaluations each
def test_ten_answers_have_the_epsilons_that_the_authors_print() -> None:
    (case,) = of("printed renyi")
    V, k = case["V"], int(case["answers"])
    members = {
        "geometric": geometric(f"{2 * math.asinh(1 / math.sqrt(2 * float(V))):.15f}"),
        "gaussian": discrete_gaussian(V),
        "renyi": renyi_optimal(V, "16"),
    }
    for name, member in members.items():
        bounds = Composition([(answer_of(member.laws, 1), k)]).epsilon(case["delta"])
        assert bounds is not None
        assert abs(bounds.upper - float(case[name])) < 0.0075, name  # printed to two digits, for real-valued noise
