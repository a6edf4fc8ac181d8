"""Plans are certified for all answers together, meet the request, and need less noise than common laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.accounting import affordable_answers, compose
from countveil.laws.remap import Remap
from countveil.numeric.exact_numbers import decimal_text
from countveil.planning import plan
from countveil.planning.plans import Plan

BUDGETS = [("1", "1e-6"), ("3", "1e-6"), ("5", "1e-9")]


def check(best: Plan) -> None:
    """Check the guarantee of a plan, computed again from its mechanism alone."""
    ask = best.ask
    assert best.certified.lower <= best.certified.estimate <= best.certified.upper <= float(ask.delta)
    again = compose(best.mechanism, ask.answers, neighbours=ask.neighbours, cells=ask.cells).delta(float(ask.epsilon))
    assert again.lower <= best.certified.upper * (1 + 1e-9)
    assert best.certified.lower <= again.upper * (1 + 1e-9)
    assert again.upper <= float(ask.delta) * 1.05
    if ask.policy == "nonnegative":
        assert best.mechanism.certificate.never_negative


def signed(epsilon: str, delta: str, answers: int, **more: Any) -> Plan:
    return plan(epsilon=epsilon, delta=delta, answers=answers, policy="signed", **more)


@pytest.mark.parametrize(("answers", "goal"), [(10, 20.1), (30, 70.0)])
def test_the_variance_of_a_plan_is_below_that_of_geometric_and_gaussian_laws(answers: int, goal: float) -> None:
    """The geometric law needs 22.06 and 125.8 here, the discrete Gaussian 23.91 and 72.1."""
    best = signed("3", "1e-6", answers)
    check(best)
    assert float(best.mechanism.certificate.variance) <= goal


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_a_plan_of_one_answer_is_the_design(epsilon: str, delta: str) -> None:
    best = signed(epsilon, delta, 1)
    assert best.mechanism.laws == cv.design(epsilon=epsilon, delta=delta, policy="signed").laws
    assert best.certified.lower <= best.certified.upper <= float(delta)


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize("answers", [2, 10, 200])
def test_plans_are_never_negative_by_default(answers: int) -> None:
    best = plan(epsilon="3", delta="1e-6", answers=answers)
    check(best)
    laws = best.mechanism.laws
    assert isinstance(laws, Remap)
    for n in (0, 1, 5, laws.stationary_from):
        assert n + laws.law(n).least >= 0
    assert best.mechanism.certificate.nearly_unbiased_from is not None
    assert compose(best.mechanism, answers, fine=True).upper(3.0) <= 1e-6
    assert affordable_answers(best.mechanism, "3", "1e-6") == answers


def test_a_never_negative_plan_has_the_variance_of_the_signed_plan() -> None:
    """Avoiding negative counts costs no privacy and, far from 0, no accuracy."""
    one, other = plan(epsilon="3", delta="1e-6", answers=10), signed("3", "1e-6", 10)
    assert one.mechanism.certificate.variance == other.mechanism.certificate.variance


@pytest.mark.parametrize("objective", ["eta", "margin"])
def test_a_plan_for_an_objective_is_at_least_as_good_in_that_measure_as_the_usual_plan(objective: str) -> None:
    usual, best = signed("3", "1e-6", 10), signed("3", "1e-6", 10, objective=objective)
    check(best)
    if objective == "eta":
        assert best.mechanism.eta >= usual.mechanism.eta
    else:
        assert best.mechanism.margin_95 <= usual.mechanism.margin_95


@pytest.mark.slow  # plans are searched for
def test_replacing_a_person_and_two_cells_a_person_each_double_the_composed_answers() -> None:
    plain = signed("3", "1e-6", 10)
    for more in ({"neighbours": "replace"}, {"cells": 2}):
        best = signed("3", "1e-6", 5, **more)
        check(best)
        assert float(best.mechanism.certificate.variance) == pytest.approx(
            float(plain.mechanism.certificate.variance), rel=1e-3
        )
    with_shift = signed("3", "1e-6", 3, sensitivity=2)
    check(with_shift)
    assert with_shift.mechanism.certificate.variance > signed("3", "1e-6", 3).mechanism.certificate.variance


def test_the_budget_of_a_plan_pays_for_its_answers_and_at_most_one_more() -> None:
    best = signed("3", "1e-6", 10)
    assert 10 <= affordable_answers(best.mechanism, "3", "1.001e-6") <= 11


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("answers", [2, 5, 20, 100, 1000])
def test_plans_meet_their_budget(epsilon: str, delta: str, answers: int) -> None:
    check(signed(epsilon, delta, answers))


@pytest.mark.slow
@pytest.mark.parametrize("answers", [100, 10_000])
def test_bounds_of_large_plans_are_within_one_percent(answers: int) -> None:
    best = signed("3", "1e-6", answers)
    check(best)
    assert compose(best.mechanism, answers).delta(3.0).width <= 0.01


@pytest.mark.slow  # plans are searched for
def test_the_price_list_and_the_description_contain_the_plan() -> None:
    best = signed("3", "1e-6", 3, prices=True)
    rows = best.price_list
    assert [row["answers"] for row in rows] == sorted({1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000})
    assert [row["answers"] for row in rows if row["chosen"]] == [3]
    assert [float(str(row["variance"])) for row in rows] == sorted(float(str(row["variance"])) for row in rows)
    described = best.describe()
    assert float(str(described["delta"])) <= 1e-6
    assert described["answers"] == 3


@pytest.mark.slow  # plans are searched for
def test_margin_95_holds_for_every_count_and_agrees_with_the_price_list() -> None:
    best = plan(epsilon="3", delta="1e-6", answers=30, prices=True)
    description, m = best.describe(), best.mechanism
    per_answer: Any = description["per_answer"]
    (own_row,) = [row for row in best.price_list if row["chosen"]]
    level = Fraction(95, 100)
    worst = max(m.law(n).margin(level) for n in range(m.laws.stationary_from + 1))
    assert worst > m.law(10**6).margin(level)  # some small count has a larger margin than a typical one
    assert {m.margin_95, per_answer["margin_95"], own_row["margin_95"]} == {worst}
    typical = {m.certificate.typical_margin_95, per_answer["typical_margin_95"], own_row["typical_margin_95"]}
    assert typical == {m.law(10**6).margin(level)}
    assert (own_row["D"], Fraction(str(own_row["variance"]))) == (
        m.D,
        Fraction(decimal_text(m.certificate.variance, 6)),
    )
    assert Fraction(str(own_row["eta"])) == Fraction(decimal_text(m.eta, 6))
    (hundred,) = [row for row in best.price_list if row["answers"] == 100]
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
        ("policy", "ceiling"),
        ("objective", "bias"),
        ("neighbours", "swap"),
        ("cells", 0),
        ("sensitivity", 0),
        ("sensitivity", 1001),
        ("cells", 10_001),
    ],
)
def test_bad_arguments_are_refused(argument: str, given: object) -> None:
    request: dict[str, Any] = {"epsilon": "3", "delta": "1e-6", "answers": 10, argument: given}
    with pytest.raises(cv.ParameterError) as caught:
        plan(**request)
    message = str(caught.value)
    assert caught.value.argument == argument
    assert message.startswith(f"{argument}: got ")
    assert "allowed is" in message
    assert "\n" not in message


def test_refusal_of_delta_0_gives_the_reason() -> None:
    with pytest.raises(cv.ParameterError, match="bounded noise always needs a delta above 0"):
        plan(epsilon="3", delta="0", answers=10)


@pytest.mark.slow  # plans are searched for
def test_a_budget_that_needs_almost_no_noise_has_a_plan() -> None:
    """The first laws tried have fewer than two values on a side, too few for a map to non-negative counts; later laws
    have enough.
    """
    best = plan(epsilon="20", delta="0.01", answers=2)
    check(best)
    assert best.mechanism.certificate.never_negative


@pytest.mark.slow  # plans are searched for
def test_a_budget_that_bounded_noise_cannot_meet_is_refused() -> None:
    with pytest.raises(cv.InfeasibleError) as caught:
        plan(epsilon="0.001", delta="1e-15", answers=10**6)
    message = str(caught.value)
    assert "no plan of 1000000 answers" in message
    assert "190000" in message
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
def test_plans_are_within_their_budget_when_composed_again(epsilon: str, delta: str, answers: int, policy: str) -> None:
    best = plan(epsilon=epsilon, delta=delta, answers=answers, policy=policy)
    assert best.certified.upper <= float(delta)
    assert compose(best.mechanism, answers, fine=True).upper(float(epsilon)) <= float(delta)
    assert affordable_answers(best.mechanism, epsilon, delta) >= answers


def test_a_bias_that_no_map_of_even_shares_has_may_have_a_map_of_another_law() -> None:
    """If it has none, the message names the least bias of even shares; that of the search's law is 1.22e-7."""
    asked: dict[str, Any] = {"epsilon": "9", "delta": "1e-3", "answers": 4, "unbiased_from": 1}
    with pytest.raises(cv.RequestError, match=r"the least is about 1\.07e-7; raise unbiased_from or max_bias"):
        plan(**asked, max_bias="1e-9")
    assert plan(**asked, max_bias="2e-7").notes[0].startswith("even shares")
    found = plan(epsilon="9", delta="1e-6", answers=2, unbiased_from=1, max_bias="1e-9")
    assert not any(note.startswith("even shares") for note in found.notes)
