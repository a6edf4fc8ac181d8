"""Grades: their arguments, plans that keep their targets, and the messages if they do not fit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import countveil as cv
from countveil.accounting import compose
from countveil.planning import Grade, plan
from countveil.planning.grades import read_grade
from countveil.planning.plans import Plan


def graded(epsilon: str = "3", delta: str = "1e-6", policy: cv.PlanPolicy = "signed", **grades: Grade) -> Plan:
    return plan(epsilon=epsilon, delta=delta, policy=policy, grades=grades)


def check(best: Plan) -> None:
    """The certified delta is that of all laws together, and within the budget."""
    terms = [(grade.mechanism, grade.answers * grade.cells) for grade in best.grades]
    recomputed = compose(terms, neighbours=best.ask.neighbours, fine=True).upper(float(best.ask.epsilon))
    assert best.certified.lower <= recomputed * (1 + 1e-9)
    assert Fraction(best.certified.upper) <= best.ask.delta
    assert recomputed <= float(best.ask.delta) * (1 + 1e-3)


def variance(best: Plan, name: str) -> float:
    return next(float(g.mechanism.certificate.variance) for g in best.grades if g.name == name)


# Arguments


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        *(
            ("answers", 0),
            ("answers", "x"),
            ("answers", 10**9),
            ("margin", -1),
            ("margin", 0.5),
            ("D", 2),
            ("eta", "1"),
        ),
        *(("variance", 0), ("weight", "0"), ("weight", -1), ("policy", "ceiling"), ("cells", 0), ("sensitivity", 1001)),
    ],
)
def test_bad_arguments_of_a_grade_are_refused(argument: str, given: object) -> None:
    arguments: dict[str, Any] = {"answers": 10, argument: given}
    with pytest.raises(cv.ParameterError) as caught:
        Grade(**arguments)
    assert caught.value.argument == argument


@pytest.mark.parametrize("two", [{"margin": 3, "eta": "0.5"}, {"margin": 3, "weight": 2}, {"variance": 1, "weight": 2}])
def test_a_grade_has_one_target_and_no_weight_beside_it(two: dict[str, Any]) -> None:
    with pytest.raises(cv.RequestError, match="leave one"):
        Grade(1, **two)


def test_numbers_of_a_grade_are_exact() -> None:
    grade = Grade("40", weight="0.25")
    assert (grade.answers, grade.weight) == (40, Fraction(1, 4))
    assert Grade(40, weight=0.25) == grade


@pytest.mark.parametrize(
    ("text", "name", "grade"),
    [
        ("fine=2@3", "fine", Grade(2, margin=3)),
        ("standard=10", "standard", Grade(10)),
        ("coarse=40x0.25", "coarse", Grade(40, weight="0.25")),
        ("a=1@variance:2.5", "a", Grade(1, variance="2.5")),
        ("a=1@eta:0.5/signed", "a", Grade(1, eta="0.5", policy="signed")),
        ("a=1x2@D:9/floor", "a", Grade(1, weight=2, D=9, policy="floor")),
    ],
)
def test_the_text_of_a_grade_is_read(text: str, name: str, grade: Grade) -> None:
    assert read_grade(text) == (name, grade)


@pytest.mark.parametrize(
    "text", ["", "fine", "fine=", "fine=x", "=2", "Fine=2", "fine=2@", "fine=2@k:3", "fine=2/none"]
)
def test_invalid_texts_of_grades_are_refused(text: str) -> None:
    with pytest.raises(cv.ParameterError):
        read_grade(text)


@pytest.mark.parametrize(
    "given",
    [
        {"answers": 3, "grades": {"a": Grade(1)}},
        {},
        {"grades": {"a": Grade(1)}, "objective": "margin"},
        {"grades": {"a": Grade(1)}, "method": "program"},
    ],
)
def test_grades_beside_arguments_that_exclude_them_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(cv.RequestError):
        plan(epsilon="3", delta="1e-6", **given)


@pytest.mark.parametrize("grades", [{}, [], {"a": 3}, {"A": Grade(1)}, {"a b": Grade(1)}, {1: Grade(1)}])
def test_grades_must_be_a_mapping_from_names(grades: object) -> None:
    with pytest.raises(cv.ParameterError):
        plan(epsilon="3", delta="1e-6", grades=grades)  # type: ignore[arg-type]  # on purpose


# Plans


def test_a_plan_of_answers_has_one_grade_named_standard() -> None:
    best = plan(epsilon="3", delta="1e-6", answers=5, policy="signed")
    (grade,) = best.grades
    assert (grade.name, grade.answers, grade.mechanism) == ("standard", 5, best.mechanism)
    assert best.answers == 5
    named = graded(all=Grade(5))
    assert named.grades[0].name == "all"
    assert named.mechanism.laws == best.mechanism.laws


@pytest.mark.slow  # plans are searched for
def test_two_weights_split_the_budget() -> None:
    """Variances near the reciprocal of a power of the weights from 1/2 to 2/3."""
    best = graded(fine=Grade(1, weight=16), standard=Grade(20))
    check(best)
    ratio = variance(best, "standard") / variance(best, "fine")
    assert 4 < ratio < 16 ** (2 / 3)
    assert best.answers == 21
    with pytest.raises(cv.RequestError, match="fine, standard"):
        _ = best.mechanism
    described = best.describe()
    assert described["per_answer"] is None
    grades: Any = described["grades"]
    assert [(g["name"], g["answers"], g["mechanism"]) for g in grades] == [
        (g.name, g.answers, g.mechanism.hash) for g in best.grades
    ]


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(
    ("setting", "grades", "least"),
    [
        (("3", "1e-6"), ((1, 16), (20, 1)), 1278.83),
        (("1", "1e-6"), ((4, 16), (8, 1)), 8600.99),
        (("5", "1e-9"), ((10, 16), (100, 1)), 28371.53),
        (("3", "1e-6"), ((2, 16), (10, 4), (40, 1)), 10865.06),
    ],
)
def test_the_weighted_variance_is_the_least_that_a_fine_grid_finds(
    setting: tuple[str, str], grades: tuple[tuple[int, int], ...], least: float
) -> None:
    """`least` is what `benchmarks/grade_search.py` prints: grids over splits and powers, ever finer around the best
    point, with a composition of its own."""
    best = graded(*setting, **{f"g{i}": Grade(k, weight=weight) for i, (k, weight) in enumerate(grades)})
    check(best)
    total = sum(k * weight * variance(best, f"g{i}") for i, (k, weight) in enumerate(grades))
    assert total < least * 1.001


@pytest.mark.slow  # plans are searched for
def test_equal_grades_get_the_law_of_one_plan() -> None:
    best = graded(a=Grade(4), b=Grade(6))
    check(best)
    assert variance(best, "a") == variance(best, "b")
    together = plan(epsilon="3", delta="1e-6", answers=10, policy="signed").mechanism.certificate.variance
    assert float(together) * 0.999 < variance(best, "a") < float(together) * 1.02


@pytest.mark.slow  # plans are searched for
def test_every_grade_keeps_its_target_of_margin_or_variance_or_eta() -> None:
    best = graded(policy="nonnegative", fine=Grade(2, margin=4), usual=Grade(5, variance=40), rest=Grade(3))
    check(best)
    fine, usual, _ = (grade.mechanism for grade in best.grades)
    assert fine.margin_95 <= 4
    assert usual.certificate.variance <= 40
    assert all(grade.mechanism.certificate.never_negative for grade in best.grades)
    exact = graded(sure=Grade(2, eta="0.2"), rest=Grade(3))
    check(exact)
    assert exact.grades[0].mechanism.eta >= Fraction(1, 5)


@pytest.mark.slow  # plans are searched for
def test_a_noise_bound_leaves_the_accuracy_to_the_weight() -> None:
    best = graded(tight=Grade(2, D=14), rest=Grade(10))
    check(best)
    assert best.grades[0].mechanism.D <= 14
    assert variance(best, "tight") < variance(best, "rest")


@pytest.mark.slow  # plans are searched for
def test_every_grade_has_a_policy_and_a_sensitivity_and_cells_of_its_own() -> None:
    best = graded(
        a=Grade(2, policy="nonnegative"), b=Grade(2, sensitivity=3, cells=2), c=Grade(2, policy="floor", cells=2)
    )
    check(best)
    a, b, c = (grade.mechanism for grade in best.grades)
    assert [m.policy for m in (a, b, c)] == ["nonnegative", "signed", "floor"]
    assert [m.certificate.sensitivity for m in (a, b, c)] == [1, 3, 1]
    assert [grade.cells for grade in best.grades] == [1, 2, 2]
    assert a.certificate.never_negative
    assert c.certificate.never_negative
    assert c.law(0).mean == c.D


@pytest.mark.slow  # plans are searched for
def test_replacing_a_person_composes_both_directions_of_every_grade() -> None:
    best = plan(
        epsilon="3",
        delta="1e-6",
        policy="signed",
        neighbours="replace",
        grades={"a": Grade(1, weight=9), "b": Grade(9)},
    )
    check(best)
    assert variance(best, "a") > variance(graded(a=Grade(1, weight=9), b=Grade(9)), "a")


@pytest.mark.slow  # plans are searched for
def test_the_price_list_says_what_one_more_answer_costs_the_others() -> None:
    best = plan(
        epsilon="3",
        delta="1e-6",
        policy="signed",
        prices=True,
        grades={"fine": Grade(1, margin=5), "standard": Grade(10)},
    )
    rows: Any = best.price_list
    assert [(row["grade"], row["answers"]) for row in rows] == [("fine", 2), ("standard", 11)]
    for row in rows:
        cost = row["others"]["standard"]
        assert float(cost["variance"]) > float(cost["variance_before"])


# What does not fit


@pytest.mark.slow  # plans are searched for
def test_a_grade_that_is_too_fine_is_named_with_what_would_fit() -> None:
    with pytest.raises(cv.InfeasibleError) as caught:
        graded(fine=Grade(2, margin=1), standard=Grade(10))
    message = str(caught.value)
    assert "grade fine alone is too fine for epsilon 3, delta 1e-6" in message
    assert "the nearest margin of fine alone is 2" in message
    enough = message.split("epsilon ")[-1].split(" would be enough")[0]
    check(graded(str(float(enough) + 0.3), fine=Grade(2, margin=1), standard=Grade(10)))


@pytest.mark.slow  # plans are searched for
def test_targets_that_fit_alone_but_not_together_are_all_named() -> None:
    with pytest.raises(cv.InfeasibleError, match=r"targets of grades a, b together.*nearest variance of b"):
        graded(a=Grade(2, margin=2), b=Grade(2, variance="1"))


@pytest.mark.slow  # plans to find values that fit, and plans again with them
@pytest.mark.parametrize(
    ("epsilon", "grades"),
    [
        ("1", {"fine": Grade(2, margin=3), "standard": Grade(3)}),
        ("1.9", {"fine": Grade(2, margin=3), "standard": Grade(3)}),
        ("1", {"a": Grade(2, margin=9), "c": Grade(3, margin=9)}),
    ],
)
def test_the_epsilon_and_the_margin_that_a_refusal_advises_fit(epsilon: str, grades: dict[str, Grade]) -> None:
    """Also for policy nonnegative, whose margins hold for small counts, and beside grades without a target."""
    with pytest.raises(cv.InfeasibleError) as refused:
        cv.plan(epsilon=epsilon, delta="1e-6", grades=grades)
    message = str(refused.value)
    enough = message.split("epsilon ")[-1].split(" would be enough")[0]
    assert cv.plan(epsilon=enough, delta="1e-6", grades=grades).certified.upper <= 1e-6
    if "nearest margin of fine alone is " in message:
        margin = message.split("alone is ")[2].split(";")[0]
        assert cv.plan(epsilon=epsilon, delta="1e-6", grades={"fine": Grade(2, margin=margin)}).grades
