"""From a budget to the best mechanism that a search finds for so many answers, certified for all of them.

grades          `Grade`, what is asked of answers of one accuracy, and `PlannedGrade`, what they get
plans           `Plan`, and how a plan of equal answers is made and certified
graded_plan     plans of several grades: targets (margin, variance or eta) are kept, the rest is split by weight
split_search    the search for the laws of several grades
grade_prices    what one more answer of a grade costs the others
shortfall       why grades do not fit their budget, and which values would fit
descent         descent by quasi-Newton steps
shape_search    the search for the best symmetric law of k answers: shapes, then D, then the weights themselves
shapes          symmetric laws, stored as P(Z = z) for z = 0..D, in floats, for the search only
program_plan    plans by linear program: a law for each small count
curve_program   the linear program of `program_plan`, with privacy curves below given heights
margins         an estimate of the 95 % margin of a plan in closed form
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from countveil.accounting import NEIGHBOURS, Neighbours
from countveil.errors import ParameterError, RequestError
from countveil.numeric.exact_numbers import Number, integer, number
from countveil.planning.grades import (
    LARGEST_CELLS,
    LARGEST_PLAN,
    LARGEST_SENSITIVITY,
    Grade,
    PlannedGrade,
    PlanPolicy,
    check_grades,
)

if TYPE_CHECKING:
    from countveil.planning.plans import Plan

__all__ = ["Grade", "PlanPolicy", "PlannedGrade", "plan"]

PlanObjective = Literal["variance", "eta", "margin"]
PlanMethod = Literal["remap", "program"]


def plan(
    *,
    epsilon: Number,
    delta: Number,
    answers: int | str | None = None,
    grades: Mapping[str, Grade] | None = None,
    policy: PlanPolicy = "nonnegative",
    objective: PlanObjective = "variance",
    neighbours: Neighbours = "add-remove",
    cells: int | str = 1,
    sensitivity: int | str = 1,
    unbiased_from: int | str | None = None,
    max_bias: Number | None = None,
    method: PlanMethod = "remap",
    prices: bool = False,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Plan:
    """The best mechanisms that a search finds for a number of answers, certified for all of them together.

    Args:
        epsilon, delta: The budget of all answers together.
        answers: The number of answers, all of one accuracy: a plan with one grade, named `standard`.
        grades: Instead of `answers`: names and grades, each with its number of answers and its accuracy.
        policy: "nonnegative", "signed" or "floor" (counts below D are treated as D).
        objective: What is best for a typical count: least "variance", largest "eta" or least 95 % "margin". With
            grades, the least sum over all answers of weight times variance, or of weight times the probability of an
            error (objective "eta").
        neighbours: "add-remove" (one person more or less) or "replace" (one person replaced by another).
        cells: The number of cells of one table that a person can be in.
        sensitivity: How much one person can change a count.
        unbiased_from: For policy nonnegative, the bias is at most `max_bias` from this count on.
        max_bias: The largest allowed bias. The defaults of these two are those of `make_nonnegative`.
        method: How counts are made never negative. "remap" maps signed noise. "program", for noise up to 48, makes
            P(Y = n) the same for all counts n from 1 on, and the bias exactly zero from `unbiased_from` on.
        prices: Also compute the price list: other numbers of answers, or with grades one more answer of each.
        progress: A function that wraps the rows of that list, to show progress.

    Returns:
        A Plan: its grades with their mechanisms, and the certified delta of all answers.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: The arguments contradict each other.
        InfeasibleError: No mechanism fits the budget.

    >>> best = plan(epsilon="3", delta="1e-6", answers=10, policy="signed")
    >>> float(best.mechanism.certificate.variance) < 20.1, best.certified.upper <= 1e-6
    (True, True)
    >>> best = plan(epsilon="3", delta="1e-6", grades={"fine": Grade(2, margin=3), "standard": Grade(10)})
    >>> [(grade.name, grade.answers) for grade in best.grades], best.certified.upper <= 1e-6
    ([('fine', 2), ('standard', 10)], True)
    """
    from dataclasses import replace

    from countveil.design.remap.postprocessing import read_bias, read_n0
    from countveil.planning.grade_prices import grade_price_list
    from countveil.planning.graded_plan import make_graded_plan
    from countveil.planning.plans import PlanRequest, make_plan, price_list

    allowed = "a decimal number from 0.001 to 100"
    total = number("epsilon", epsilon, allowed)
    if not Fraction(1, 1000) <= total <= 100:
        raise ParameterError("epsilon", epsilon, allowed)
    allowed = "a decimal number from 1e-15 to 0.1"
    target = number("delta", delta, allowed)
    if not Fraction(1, 10**15) <= target <= Fraction(1, 10):
        hint = "bounded noise always needs a delta above 0" if target == 0 else ""
        raise ParameterError("delta", delta, allowed, hint)
    for name, given, choices in (
        ("policy", policy, get_args(PlanPolicy)),
        ("objective", objective, get_args(PlanObjective)),
        ("neighbours", neighbours, NEIGHBOURS),
        ("method", method, get_args(PlanMethod)),
    ):
        if given not in choices:
            raise ParameterError(name, given, "one of " + ", ".join(choices))
    if policy != "nonnegative" and (unbiased_from is not None or max_bias is not None):
        raise RequestError(
            f"unbiased_from and max_bias are for policy nonnegative: leave them out with policy {policy}"
        )
    if method == "program":
        _check_program(policy, sensitivity, max_bias)
    if (answers is None) == (grades is None):
        raise RequestError("give either answers (a number, if all have one accuracy) or grades")
    named = () if grades is None else check_grades(grades)
    if named and (method == "program" or objective == "margin"):
        what = "method program" if method == "program" else "objective margin"
        raise RequestError(f"{what} is for answers of one accuracy; leave it out, or give answers instead of grades")
    ask = PlanRequest(
        total,
        target,
        sum(int(grade.answers) for _, grade in named) or integer("answers", answers, 1, LARGEST_PLAN),
        policy,
        objective,
        neighbours,
        integer("cells", cells, 1, LARGEST_CELLS),
        integer("sensitivity", sensitivity, 1, LARGEST_SENSITIVITY),
        read_n0(unbiased_from),
        read_bias(max_bias),
        method,
        named,
    )
    if not named:
        best = make_plan(ask)
        return replace(best, price_list=price_list(best, progress)) if prices else best
    best = make_graded_plan(ask)
    return replace(best, price_list=grade_price_list(best, progress)) if prices else best


def _check_program(policy: str, sensitivity: object, max_bias: object) -> None:
    """Refuse arguments that method program does not support."""
    if policy != "nonnegative":
        raise ParameterError(
            "method", "program", f"remap with policy {policy}", "method program is for policy nonnegative"
        )
    if max_bias is not None:
        hint = "its bias is exactly zero from unbiased_from on; leave out max_bias"
        raise ParameterError("max_bias", max_bias, "nothing with method program", hint)
    if integer("sensitivity", sensitivity, 1, LARGEST_SENSITIVITY) > 1:
        raise ParameterError("sensitivity", sensitivity, "1 with method program", "use method remap")
