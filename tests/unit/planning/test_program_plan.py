"""Plans by linear program: P1-P3 exactly, and the guarantee of all answers computed again from its definition."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest

import countveil as cv
from countveil.accounting import planning
from countveil.accounting.planning import Plan
from countveil.accounting.programmed import LARGEST_D, Held, chords, law_of
from countveil.accounting.shapes import power_law
from countveil.design.held import HeldProgram
from countveil.law import ColumnFamily, Columns, Law

Outcomes = list[tuple[int, int]]
"""Weights (p, q) of every outcome of two neighbours, over the same total."""


@lru_cache
def planned(epsilon: str = "3", delta: str = "1e-6", answers: int = 2, n0: int | None = None) -> Plan:
    return cv.plan(epsilon=epsilon, delta=delta, answers=answers, method="program", unbiased_from=n0)


def outcomes(family: ColumnFamily, n: int, m: int) -> Outcomes:
    here, there = family.column(n), family.column(m)
    assert here.bits == there.bits
    last = max(n + here.right, m + there.right)
    return [(here.weight(y - n), there.weight(y - m)) for y in range(last + 1)]


def moves(family: ColumnFamily, step: int) -> list[Outcomes]:
    """A person who is added (step 1) or removed (-1), at every count that has a law of its own."""
    starts = range(family.stationary_from + 2)
    return [outcomes(family, *((n, n + 1) if step == 1 else (n + 1, n))) for n in starts]


def order(epsilon: int) -> Fraction:
    """e^epsilon from below, by its series: the delta at it is not too small."""
    return sum((Fraction(epsilon**i, math.factorial(i)) for i in range(60)), Fraction(0))


def two_answers(family: ColumnFamily, E: Fraction) -> tuple[Fraction, Fraction]:
    """The exact delta of two answers: of two moves settled before, and of a second one that suits the first answer."""
    unit = family.column(0).total ** 2 * E.denominator
    settled = adaptive = 0
    for step in (1, -1):
        every = moves(family, step)
        for first in every:
            by_answer = [
                [sum(max(0, E.denominator * p * p2 - E.numerator * q * q2) for p2, q2 in second) for second in every]
                for p, q in first
            ]
            settled = max(settled, *(sum(column) for column in zip(*by_answer, strict=True)))
            adaptive = max(adaptive, sum(max(row) for row in by_answer))
    return Fraction(settled, unit), Fraction(adaptive, unit)


def height(pair: Outcomes, E: Fraction, total: int) -> Fraction:
    return sum((max(Fraction(0), p - E * q) for p, q in pair), Fraction(0)) / total


def spoilt(family: Columns) -> Columns:
    """One column with a hundred-thousandth of its mass at the far end."""
    law = family.small[3]
    share = law.total // 100_000
    weights = list(law.weights)
    weights[law.left] -= share
    weights[-1] += share
    small = (*family.small[:3], Law(tuple(weights), law.left, law.bits), *family.small[4:])
    return replace(family, small=small)


# What is promised


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(
    ("epsilon", "delta", "answers"), [("3", "1e-6", 2), ("3", "1e-6", 5), ("10", "1e-4", 10), ("4", "0.01", 10)]
)
def test_p1_p2_p3_exactly(epsilon: str, delta: str, answers: int) -> None:
    found = planned(epsilon, delta, answers)
    m, c = found.mechanism, found.mechanism.certificate
    n0 = c.unbiased_from
    assert n0 is not None
    assert n0 <= 4 * math.sqrt(c.variance)
    assert c.never_negative
    assert c.eta_from <= 1
    for n in range(c.stationary_from + 3):
        law = m.column(n)
        assert n + law.least >= 0
        assert max(-law.least, law.greatest) <= m.D
        assert law.eta == c.eta if n else law.eta >= c.eta
        assert law.mean == 0 if n >= n0 else abs(law.mean) <= c.bias_below
    assert found.certified.upper <= float(delta)
    assert cv.compose(m, answers).delta(float(epsilon)).upper <= float(delta)
    assert cv.answers_within(m, epsilon, delta) >= answers


def test_two_answers_have_exactly_the_delta_that_is_stated() -> None:
    found = planned()
    settled, adaptive = two_answers(found.mechanism.family, order(3))
    assert Fraction(found.certified.lower) <= settled <= adaptive <= Fraction(found.certified.upper)
    assert Fraction(found.certified.upper) <= Fraction("1e-6")


def test_a_column_that_is_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the definition, and by the planner, whatever its program proposes."""
    found = planned()
    family = found.mechanism.family
    assert isinstance(family, Columns)
    assert two_answers(spoilt(family), order(3))[0] > Fraction(found.certified.upper)

    def propose(*_: object) -> Held:
        return Held(spoilt(family), 0.01, ())

    monkeypatch.setattr(planning, "propose", propose)
    with pytest.raises(cv.InfeasibleError, match="miss the delta"):
        cv.plan(epsilon="3", delta="1e-6", answers=2, method="program")


def test_a_miss_is_planned_again_under_a_lower_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned()
    family = found.mechanism.family
    assert isinstance(family, Columns)
    aimed = []

    def propose(target: Any, *_: object) -> Held:
        aimed.append(target.delta)
        return Held(spoilt(family) if len(aimed) == 1 else family, 0.01, ())

    monkeypatch.setattr(planning, "propose", propose)
    again = cv.plan(epsilon="3", delta="1e-6", answers=2, method="program")
    assert again.mechanism.family == family
    assert aimed[1] < aimed[0]


def test_curves_are_held_at_the_orders_and_below_the_chords_between() -> None:
    source, law = law_of(power_law(1.7, 1.4, 6)), law_of(power_law(1.75, 1.4, 7))
    total = source.total
    shift = [(source.weight(z), source.weight(z - 1)) for z in range(-6, 8)]
    orders = (Fraction(1), Fraction(3, 2), Fraction(5, 2), max(Fraction(p, q) for p, q in shift if q))
    heights = tuple(height(shift, E, total) * Fraction(101, 100) for E in orders)
    columns, n0 = HeldProgram(law, orders, heights).columns()
    assert 1 <= n0 <= 7
    above = chords(orders, heights)
    for step in (1, -1):
        for pair in moves(columns, step):
            for E, most in zip(orders, heights, strict=True):
                assert height(pair, E, columns.stationary.total) <= most * (1 + Fraction(1, 10**6))
            for loss in (-2.0, -0.5, -0.1, 0.0, 0.2, 0.6, 1.5, 4.0):
                exact = height(pair, Fraction(math.exp(loss)), columns.stationary.total)
                assert float(exact) <= above.delta(loss) * (1 + 1e-6)


def test_chords_are_at_their_heights() -> None:
    orders, heights = (Fraction(1), Fraction(2), Fraction(4)), (Fraction(2, 5), Fraction(1, 10), Fraction(1, 20))
    pair = chords(orders, heights)
    for E, expected in zip(orders, heights, strict=True):
        assert pair.delta(math.log(E)) == pytest.approx(float(expected), rel=1e-12)
        assert pair.delta(-math.log(E)) == pytest.approx(float(1 - (1 - expected) / E), rel=1e-12)


@pytest.mark.slow  # plans are searched for
def test_small_counts_are_exact_as_often_as_large_ones() -> None:
    by_program, by_remap = planned(answers=5).mechanism, cv.plan(epsilon="3", delta="1e-6", answers=5).mechanism
    assert by_program.column(2).eta == by_program.eta > 4 * by_remap.column(2).eta
    assert by_program.certificate.variance < by_remap.certificate.variance * Fraction(101, 100)
    assert by_program.column(20).mean == 0 != by_remap.column(20).mean


@pytest.mark.slow  # plans are searched for
def test_a_count_from_which_there_is_no_bias_can_be_asked_for() -> None:
    usual, early = planned(answers=3), planned(answers=3, n0=2)
    assert usual.mechanism.unbiased_from == 4
    assert early.mechanism.unbiased_from == 2
    assert early.mechanism.eta < usual.mechanism.eta
    with pytest.raises(cv.InfeasibleError, match="unbiased from n = 1 on; raise unbiased_from, or use method remap"):
        planned(n0=1)


@pytest.mark.slow  # plans are searched for
def test_who_is_a_neighbour_counts() -> None:
    found = cv.plan(epsilon="3", delta="1e-6", answers=1, method="program", neighbours="replace")
    assert found.certified.upper <= 1e-6
    assert cv.compose(found.mechanism, 1, neighbours="replace").upper(3.0) <= 1e-6
    assert found.mechanism.certificate.variance == planned().mechanism.certificate.variance


def test_one_answer_and_much_epsilon_are_designs() -> None:
    one = planned(answers=1)
    assert one.mechanism.family == cv.design(epsilon="3", delta="1e-6", method="program").family
    much = planned("10", "1e-6", 2)
    assert much.mechanism.method == "program"
    assert much.certified.upper <= 1e-6


@pytest.mark.slow  # plans are searched for
def test_what_is_said() -> None:
    described = planned().describe()
    assert described["method"] == "program"
    assert "every curve held under that of the best signed law at 2 orders" in str(described["notes"])
    assert cv.plan(epsilon="3", delta="1e-6", answers=2).describe()["method"] == "remap"
    assert cv.plan(epsilon="3", delta="1e-6", answers=2, policy="signed").describe()["method"] is None


def test_the_file_is_measured_again(tmp_path: Any) -> None:
    m = planned().mechanism
    m.save(tmp_path / "m.json")
    assert cv.Mechanism.load(tmp_path / "m.json").hash == m.hash


# Refusals


def test_too_much_noise_is_refused() -> None:
    with pytest.raises(cv.InfeasibleError) as caught:
        planned(answers=30)
    message = str(caught.value)
    assert f"method program plans noise up to {LARGEST_D}, and these answers need up to " in message
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
def test_bad_combinations(more: dict[str, Any], argument: str) -> None:
    with pytest.raises(cv.ParameterError) as caught:
        cv.plan(epsilon="3", delta="1e-6", answers=2, **more)
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_plan_near_the_limit() -> None:
    found = planned(answers=7)
    assert found.certified.upper <= 1e-6
    assert cv.compose(found.mechanism, 7).upper(3.0) <= 1e-6
