"""Plans: certified for all answers together, no worse than asked for, and better than what peers would use."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.accounting import answers_within, compose, plan
from countveil.accounting.planning import Plan
from countveil.exact import decimal_text
from countveil.remap import Remap

BUDGETS = [("1", "1e-6"), ("3", "1e-6"), ("5", "1e-9")]


def check(found: Plan) -> None:
    """What every plan promises, computed again from the mechanism alone."""
    ask = found.ask
    assert found.certified.lower <= found.certified.estimate <= found.certified.upper <= float(ask.delta)
    again = compose(found.mechanism, ask.answers, neighbours=ask.neighbours, cells=ask.cells).delta(float(ask.epsilon))
    assert again.lower <= found.certified.upper * (1 + 1e-9)
    assert found.certified.lower <= again.upper * (1 + 1e-9)
    assert again.upper <= float(ask.delta) * 1.05
    if ask.policy == "nonnegative":
        assert found.mechanism.certificate.never_negative


def signed(epsilon: str, delta: str, answers: int, **more: Any) -> Plan:
    return plan(epsilon=epsilon, delta=delta, answers=answers, policy="signed", **more)


@pytest.mark.parametrize(("answers", "goal"), [(10, 20.1), (30, 70.0)])
def test_variance_goals(answers: int, goal: float) -> None:
    """Geometric needs 22.06 and 125.8 here, the discrete Gaussian 23.91 and 72.1."""
    found = signed("3", "1e-6", answers)
    check(found)
    assert float(found.mechanism.certificate.variance) <= goal


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_one_answer_is_the_design(epsilon: str, delta: str) -> None:
    found = signed(epsilon, delta, 1)
    assert found.mechanism.family == cv.design(epsilon=epsilon, delta=delta, policy="signed").family
    assert found.certified.lower <= found.certified.upper <= float(delta)


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize("answers", [2, 10, 200])
def test_never_negative_by_default(answers: int) -> None:
    found = plan(epsilon="3", delta="1e-6", answers=answers)
    check(found)
    family = found.mechanism.family
    assert isinstance(family, Remap)
    for n in (0, 1, 5, family.stationary_from):
        assert n + family.column(n).least >= 0
    assert found.mechanism.certificate.nearly_unbiased_from is not None
    assert compose(found.mechanism, answers, fine=True).upper(3.0) <= 1e-6
    assert answers_within(found.mechanism, "3", "1e-6") == answers


def test_the_law_is_the_signed_ones() -> None:
    """Never negative costs no privacy and, far from 0, no accuracy."""
    one, other = plan(epsilon="3", delta="1e-6", answers=10), signed("3", "1e-6", 10)
    assert one.mechanism.certificate.variance == other.mechanism.certificate.variance


@pytest.mark.parametrize("objective", ["eta", "margin"])
def test_other_objectives_are_at_least_as_good_at_theirs(objective: str) -> None:
    usual, found = signed("3", "1e-6", 10), signed("3", "1e-6", 10, objective=objective)
    check(found)
    if objective == "eta":
        assert found.mechanism.eta >= usual.mechanism.eta
    else:
        assert found.mechanism.margin_95 <= usual.mechanism.margin_95


@pytest.mark.slow  # plans are searched for
def test_replacing_is_twice_as_many_and_so_are_two_cells() -> None:
    plain = signed("3", "1e-6", 10)
    for more in ({"neighbours": "replace"}, {"cells": 2}):
        found = signed("3", "1e-6", 5, **more)
        check(found)
        assert float(found.mechanism.certificate.variance) == pytest.approx(
            float(plain.mechanism.certificate.variance), rel=1e-3
        )
    with_shift = signed("3", "1e-6", 3, sensitivity=2)
    check(with_shift)
    assert with_shift.mechanism.certificate.variance > signed("3", "1e-6", 3).mechanism.certificate.variance


def test_a_plan_pays_for_its_answers() -> None:
    found = signed("3", "1e-6", 10)
    assert 10 <= answers_within(found.mechanism, "3", "1.001e-6") <= 11


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("answers", [2, 5, 20, 100, 1000])
def test_plans_hold(epsilon: str, delta: str, answers: int) -> None:
    check(signed(epsilon, delta, answers))


@pytest.mark.slow
@pytest.mark.parametrize("answers", [100, 10_000])
def test_brackets_of_large_plans(answers: int) -> None:
    found = signed("3", "1e-6", answers)
    check(found)
    assert compose(found.mechanism, answers).delta(3.0).width <= 0.01


@pytest.mark.slow  # plans are searched for
def test_prices_and_description() -> None:
    found = signed("3", "1e-6", 3, prices=True)
    rows = found.price_list
    assert [row["answers"] for row in rows] == sorted({1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000})
    assert [row["answers"] for row in rows if row["chosen"]] == [3]
    assert [float(str(row["variance"])) for row in rows] == sorted(float(str(row["variance"])) for row in rows)
    described = found.describe()
    assert float(str(described["delta"])) <= 1e-6
    assert described["answers"] == 3


@pytest.mark.slow  # plans are searched for
def test_every_margin_95_holds_for_every_count_and_the_price_list_has_the_plan_that_was_made() -> None:
    found = plan(epsilon="3", delta="1e-6", answers=30, prices=True)
    described, m = found.describe(), found.mechanism
    each: Any = described["per_answer"]
    (made,) = [row for row in found.price_list if row["chosen"]]
    level = Fraction(95, 100)
    worst = max(m.column(n).margin(level) for n in range(m.family.stationary_from + 1))
    assert worst > m.column(10**6).margin(level)  # some small count is further off than a typical one
    assert {m.margin_95, each["margin_95"], made["margin_95"]} == {worst}
    typical = {m.certificate.typical_margin_95, each["typical_margin_95"], made["typical_margin_95"]}
    assert typical == {m.column(10**6).margin(level)}
    assert (made["D"], Fraction(str(made["variance"]))) == (m.D, Fraction(decimal_text(m.certificate.variance, 6)))
    assert Fraction(str(made["eta"])) == Fraction(decimal_text(m.eta, 6))
    (hundred,) = [row for row in found.price_list if row["answers"] == 100]
    assert abs(int(str(hundred["margin_95"])) - plan(epsilon="3", delta="1e-6", answers=100).mechanism.margin_95) <= 1


# Bad input


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("answers", 0),
        ("answers", -1),
        ("answers", 10**12),
        ("answers", "many"),
        ("answers", 2.5),
        ("epsilon", "0"),
        ("epsilon", "-1"),
        ("epsilon", "1e-9"),
        ("epsilon", "nan"),
        ("delta", "0"),
        ("delta", "1e-16"),
        ("delta", "1"),
        ("delta", "abc"),
        ("policy", "floor"),
        ("objective", "bias"),
        ("neighbours", "swap"),
        ("cells", 0),
        ("sensitivity", 0),
        ("sensitivity", 21),
    ],
)
def test_bad_input(argument: str, given: object) -> None:
    request: dict[str, Any] = {"epsilon": "3", "delta": "1e-6", "answers": 10, argument: given}
    with pytest.raises(cv.ParameterError) as caught:
        plan(**request)
    message = str(caught.value)
    assert caught.value.argument == argument
    assert message.startswith(f"{argument}: got ")
    assert "allowed is" in message
    assert "\n" not in message


def test_delta_0_says_why() -> None:
    with pytest.raises(cv.ParameterError, match="bounded noise always needs a delta above 0"):
        plan(epsilon="3", delta="0", answers=10)


@pytest.mark.slow  # plans are searched for
def test_a_budget_that_needs_next_to_no_noise() -> None:
    """The first laws that come to mind have no two values on a side that a map could move; others do."""
    found = plan(epsilon="20", delta="0.01", answers=2)
    check(found)
    assert found.mechanism.certificate.never_negative


@pytest.mark.slow  # plans are searched for
def test_a_budget_that_bounded_noise_cannot_meet() -> None:
    with pytest.raises(cv.InfeasibleError) as caught:
        plan(epsilon="0.001", delta="1e-15", answers=10**6)
    message = str(caught.value)
    assert "no plan of 1000000 answers" in message
    assert "20000" in message
    assert "plan fewer answers" in message


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(
    ("epsilon", "delta", "answers", "policy"),
    [
        ("100", "0.1", 3, "signed"),
        ("100", "1e-15", 2, "nonnegative"),
        ("20", "1e-6", 3, "nonnegative"),
        ("5", "1e-9", 2, "signed"),
    ],
)
def test_the_accountant_agrees_with_even_shares(epsilon: str, delta: str, answers: int, policy: str) -> None:
    found = plan(epsilon=epsilon, delta=delta, answers=answers, policy=policy)
    assert found.certified.upper <= float(delta)
    assert compose(found.mechanism, answers, fine=True).upper(float(epsilon)) <= float(delta)
    assert answers_within(found.mechanism, epsilon, delta) >= answers
