"""The delta of many answers together against sums from the definition, computed independently at 60 digits."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.literature.gaussian import discrete_gaussian
from countveil.literature.geometric import geometric, truncated_geometric
from countveil.literature.member import Member
from tests.support import vectors

CASES = vectors.cases("accounting")


def of(kind: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["kind"] == kind]


def ident(case: dict[str, Any]) -> str:
    return "-".join(str(case[key]) for key in ("epsilon", "s2", "D", "left", "bits", "k") if key in case)


def composed(laws: Laws, k: int, **more: Any) -> Composition:
    return Composition([(answer_of(laws, 1), k)], **more)


def contains(found: Bounds, expected: str, spare: float = 0.0) -> bool:
    """Whether the bounds, widened by `spare` for the rounding of the laws, contain a value of 30 digits."""
    exact, digits = Fraction(expected), Fraction(1, 10**28)
    return Fraction(found.lower) - Fraction(spare) <= exact * (1 + digits) and exact * (1 - digits) <= Fraction(
        found.upper
    ) + Fraction(spare)


def members(case: dict[str, Any]) -> Iterator[Member]:
    if case["kind"] == "geometric":
        yield geometric(case["epsilon"])
    elif case["kind"] == "truncated":
        yield truncated_geometric(case["epsilon"], case["D"])
    else:
        yield discrete_gaussian(case["s2"])


@pytest.mark.parametrize("case", of("geometric") + of("truncated") + of("gaussian"), ids=ident)
def test_bounds_enclose_the_delta_of_known_laws_closely(case: dict[str, Any]) -> None:
    (member,) = members(case)
    together = composed(member.laws, case["k"])
    for epsilon, expected in case["deltas"]:
        exact = float(expected)
        found = together.delta(float(epsilon))
        spare = case["k"] * float(member.cut) * (1 + 2.72 ** max(0.0, float(epsilon)))
        assert contains(found, expected, spare), (epsilon, expected, found)
        if exact > 1e-15:
            assert found.upper - found.lower <= 0.01 * exact + 1e-12 * (exact < 1e-9), (epsilon, found)


def test_the_expected_deltas_are_tiny_and_detect_a_wrong_number_of_answers() -> None:
    """The least positive expected delta is below 1e-14, and bounds for k - 1 or k + 1
    answers contain no delta that is expected for k."""
    positive = [float(d) for case in CASES for _, d in case.get("deltas", []) if float(d) > 0]
    assert min(positive) < 1e-14
    case = next(c for c in of("gaussian") if c["k"] == 30)
    (member,) = members(case)
    for k in (29, 31):
        wrong = composed(member.laws, k)
        assert not any(contains(wrong.delta(float(e)), d) for e, d in case["deltas"])


@pytest.mark.slow  # exact convolutions
@pytest.mark.parametrize("case", of("weights"), ids=ident)
def test_bounds_enclose_the_delta_of_adding_removing_and_replacing_a_person(case: dict[str, Any]) -> None:
    laws = LawsByCount(Law(tuple(int(w) for w in case["weights"]), case["left"], case["bits"]))
    both = composed(laws, case["k"])
    for (epsilon, add), (_, remove) in zip(case["add"], case["remove"], strict=True):
        assert contains(both.delta(float(epsilon)), max(add, remove, key=Fraction)), epsilon
    swapped = composed(laws, case["replaced"], neighbours="replace")
    for epsilon, expected in case["replace"]:
        assert contains(swapped.delta(float(epsilon)), expected), epsilon


@pytest.mark.parametrize("case", of("columns"), ids=ident)
def test_bounds_enclose_the_delta_of_mixtures_of_laws(case: dict[str, Any]) -> None:
    laws = [Law(tuple(column), n, case["bits"]) for n, column in enumerate(case["columns"])]
    found = composed(LawsByCount(laws[-1], small=tuple(laws), hi=len(laws) - 1), case["k"])
    for epsilon, mixed in case["deltas"]:
        assert Fraction(found.upper(float(epsilon))) >= Fraction(mixed) * (1 - Fraction(1, 10**28))
        assert Fraction(found.lower(float(epsilon))) <= Fraction(mixed)
    assert any(
        Fraction(mixed) > Fraction(same) for (_, mixed), (_, same) in zip(case["deltas"], case["same"], strict=True)
    )
