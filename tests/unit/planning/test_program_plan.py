"""Plans by linear program: P1-P3 exactly, and the guarantee of all answers computed again from its definition."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest

import countveil as cv
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.planning import plans
from countveil.planning.curve_program import CurveProgram
from countveil.planning.plans import Plan
from countveil.planning.program_plan import LARGEST_D, ProposedLaws, chords, law_of
from countveil.planning.shapes import power_law

Outcomes = list[tuple[int, int]]
"""Weights (p, q) of every outcome at two neighbouring counts, over the same total."""


@lru_cache
def program_plan(epsilon: str = "3", delta: str = "1e-6", answers: int = 2, n0: int | None = None) -> Plan:
    return cv.plan(epsilon=epsilon, delta=delta, answers=answers, method="program", unbiased_from=n0)


def outcomes(laws: Laws, n: int, m: int) -> Outcomes:
    here, there = laws.law(n), laws.law(m)
    assert here.bits == there.bits
    last = max(n + here.right, m + there.right)
    return [(here.weight(y - n), there.weight(y - m)) for y in range(last + 1)]


def moves(laws: Laws, step: int) -> list[Outcomes]:
    """Outcomes for a person added (step 1) or removed (-1), at every count that has its own law."""
    starts = range(laws.stationary_from + 2)
    return [outcomes(laws, *((n, n + 1) if step == 1 else (n + 1, n))) for n in starts]


def order(epsilon: int) -> Fraction:
    """e^epsilon from below, by its series, so that delta is not too small."""
    return sum((Fraction(epsilon**i, math.factorial(i)) for i in range(60)), Fraction(0))


def two_answers(laws: Laws, E: Fraction) -> tuple[Fraction, Fraction]:
    """The exact delta of two answers: with both counts fixed, and with the second chosen after the first answer."""
    unit = laws.law(0).total ** 2 * E.denominator
    fixed = adaptive = 0
    for step in (1, -1):
        every = moves(laws, step)
        for first in every:
            by_answer = [
                [sum(max(0, E.denominator * p * p2 - E.numerator * q * q2) for p2, q2 in second) for second in every]
                for p, q in first
            ]
            fixed = max(fixed, *(sum(deltas) for deltas in zip(*by_answer, strict=True)))
            adaptive = max(adaptive, sum(max(row) for row in by_answer))
    return Fraction(fixed, unit), Fraction(adaptive, unit)


def height(pair: Outcomes, E: Fraction, total: int) -> Fraction:
    return sum((max(Fraction(0), p - E * q) for p, q in pair), Fraction(0)) / total


def with_wrong_law(laws: LawsByCount) -> LawsByCount:
    """The laws, with a hundred-thousandth of the mass of one law moved to its far end."""
    law = laws.small[3]
    share = law.total // 100_000
    weights = list(law.weights)
    weights[law.left] -= share
    weights[-1] += share
    small = (*laws.small[:3], Law(tuple(weights), law.left, law.bits), *laws.small[4:])
    return replace(laws, small=small)


# Guarantees


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(
    ("epsilon", "delta", "answers"), [("3", "1e-6", 2), ("3", "1e-6", 5), ("10", "1e-4", 10), ("4", "0.01", 10)]
)
def test_plans_by_program_have_p1_p2_and_p3_exactly(epsilon: str, delta: str, answers: int) -> None:
    best = program_plan(epsilon, delta, answers)
    m, c = best.mechanism, best.mechanism.certificate
    n0 = c.unbiased_from
    assert n0 is not None
    assert n0 <= 4 * math.sqrt(c.variance)
    assert c.never_negative
    assert c.eta_from <= 1
    for n in range(c.stationary_from + 3):
        law = m.law(n)
        assert n + law.least >= 0
        assert max(-law.least, law.greatest) <= m.D
        assert law.eta == c.eta if n else law.eta >= c.eta
        assert law.mean == 0 if n >= n0 else abs(law.mean) <= c.bias_below
    assert best.certified.upper <= float(delta)
    assert cv.compose(m, answers).delta(float(epsilon)).upper <= float(delta)
    assert cv.affordable_answers(m, epsilon, delta) >= answers


def test_certified_bounds_enclose_the_exact_delta_of_two_answers() -> None:
    best = program_plan()
    fixed, adaptive = two_answers(best.mechanism.laws, order(3))
    assert Fraction(best.certified.lower) <= fixed <= adaptive <= Fraction(best.certified.upper)
    assert Fraction(best.certified.upper) <= Fraction("1e-6")


def test_a_proposed_law_that_exceeds_delta_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong law exceeds delta by the definition, and the planner refuses it."""
    best = program_plan()
    laws = best.mechanism.laws
    assert isinstance(laws, LawsByCount)
    assert two_answers(with_wrong_law(laws), order(3))[0] > Fraction(best.certified.upper)

    def propose(*_: object) -> ProposedLaws:
        return ProposedLaws(with_wrong_law(laws), 0.01, ())

    monkeypatch.setattr(plans, "propose", propose)
    with pytest.raises(cv.InfeasibleError, match="exceed delta together"):
        cv.plan(epsilon="3", delta="1e-6", answers=2, method="program")


def test_laws_that_exceed_delta_are_planned_again_with_a_lower_target(monkeypatch: pytest.MonkeyPatch) -> None:
    best = program_plan()
    laws = best.mechanism.laws
    assert isinstance(laws, LawsByCount)
    targets = []

    def propose(target: Any, *_: object) -> ProposedLaws:
        targets.append(target.delta)
        return ProposedLaws(with_wrong_law(laws) if len(targets) == 1 else laws, 0.01, ())

    monkeypatch.setattr(plans, "propose", propose)
    again = cv.plan(epsilon="3", delta="1e-6", answers=2, method="program")
    assert again.mechanism.laws == laws
    assert targets[1] < targets[0]


def test_privacy_curves_are_below_the_heights_and_the_chords_between_them() -> None:
    source, law = law_of(power_law(1.7, 1.4, 6)), law_of(power_law(1.75, 1.4, 7))
    total = source.total
    shift = [(source.weight(z), source.weight(z - 1)) for z in range(-6, 8)]
    orders = (Fraction(1), Fraction(3, 2), Fraction(5, 2), max(Fraction(p, q) for p, q in shift if q))
    heights = tuple(height(shift, E, total) * Fraction(101, 100) for E in orders)
    laws, n0 = CurveProgram(law, orders, heights).solve()
    assert 1 <= n0 <= 7
    above = chords(orders, heights)
    for step in (1, -1):
        for pair in moves(laws, step):
            for E, most in zip(orders, heights, strict=True):
                assert height(pair, E, laws.stationary.total) <= most * (1 + Fraction(1, 10**6))
            for loss in (-2.0, -0.5, -0.1, 0.0, 0.2, 0.6, 1.5, 4.0):
                exact = height(pair, Fraction(math.exp(loss)), laws.stationary.total)
                assert float(exact) <= above.delta(loss) * (1 + 1e-6)


def test_chords_meet_the_heights_at_the_orders() -> None:
    orders, heights = (Fraction(1), Fraction(2), Fraction(4)), (Fraction(2, 5), Fraction(1, 10), Fraction(1, 20))
    pair = chords(orders, heights)
    for E, expected in zip(orders, heights, strict=True):
        assert pair.delta(math.log(E)) == pytest.approx(float(expected), rel=1e-12)
        assert pair.delta(-math.log(E)) == pytest.approx(float(1 - (1 - expected) / E), rel=1e-12)


@pytest.mark.slow  # plans are searched for
def test_small_counts_have_the_same_eta_as_large_ones() -> None:
    by_program, by_remap = program_plan(answers=5).mechanism, cv.plan(epsilon="3", delta="1e-6", answers=5).mechanism
    assert by_program.law(2).eta == by_program.eta > 4 * by_remap.law(2).eta
    assert by_program.certificate.variance < by_remap.certificate.variance * Fraction(101, 100)
    assert by_program.law(20).mean == 0 != by_remap.law(20).mean


@pytest.mark.slow  # plans are searched for
def test_a_plan_by_program_can_be_unbiased_from_a_given_count() -> None:
    usual, early = program_plan(answers=3), program_plan(answers=3, n0=2)
    assert usual.mechanism.unbiased_from == 4
    assert early.mechanism.unbiased_from == 2
    assert early.mechanism.eta < usual.mechanism.eta
    with pytest.raises(cv.InfeasibleError, match="unbiased from n = 1 on; raise unbiased_from, or use method remap"):
        program_plan(n0=1)


@pytest.mark.slow  # plans are searched for
def test_replacing_one_person_costs_as_much_as_two_answers() -> None:
    best = cv.plan(epsilon="3", delta="1e-6", answers=1, method="program", neighbours="replace")
    assert best.certified.upper <= 1e-6
    assert cv.compose(best.mechanism, 1, neighbours="replace").upper(3.0) <= 1e-6
    assert best.mechanism.certificate.variance == program_plan().mechanism.certificate.variance


def test_plans_of_one_answer_or_of_a_large_epsilon_are_designs_by_program() -> None:
    one = program_plan(answers=1)
    assert one.mechanism.laws == cv.design(epsilon="3", delta="1e-6", method="program").laws
    much = program_plan("10", "1e-6", 2)
    assert much.mechanism.method == "program"
    assert much.certified.upper <= 1e-6


@pytest.mark.slow  # plans are searched for
def test_the_description_names_the_method_and_the_curve() -> None:
    described = program_plan().describe()
    assert described["method"] == "program"
    assert "every curve held under that of the best signed law at 2 orders" in str(described["notes"])
    assert cv.plan(epsilon="3", delta="1e-6", answers=2).describe()["method"] == "remap"
    assert cv.plan(epsilon="3", delta="1e-6", answers=2, policy="signed").describe()["method"] is None


def test_a_saved_plan_loads_with_the_same_hash(tmp_path: Any) -> None:
    m = program_plan().mechanism
    m.save(tmp_path / "m.json")
    assert cv.Mechanism.load(tmp_path / "m.json").hash == m.hash


# Refusals


def test_plans_with_noise_beyond_the_limit_are_refused() -> None:
    with pytest.raises(cv.InfeasibleError) as caught:
        program_plan(answers=30)
    message = str(caught.value)
    assert f"method program allows noise up to D = {LARGEST_D}, but these answers need D = " in message
    assert "use method remap, plan fewer answers, or allow more epsilon" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("more", "argument"),
    [
        ({"method": "magic"}, "method"),
        ({"method": "program", "policy": "signed"}, "method"),
        ({"method": "program", "sensitivity": 2}, "sensitivity"),
        ({"method": "program", "max_bias": "1e-6"}, "max_bias"),
    ],
)
def test_arguments_that_method_program_does_not_support_are_refused(more: dict[str, Any], argument: str) -> None:
    with pytest.raises(cv.ParameterError) as caught:
        cv.plan(epsilon="3", delta="1e-6", answers=2, **more)
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_plan_near_the_largest_D_meets_its_budget() -> None:
    best = program_plan(answers=7)
    assert best.certified.upper <= 1e-6
    assert cv.compose(best.mechanism, 7).upper(3.0) <= 1e-6
