"""What one more answer of a grade costs the other grades: estimates, in margin and variance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import NoRootError
from countveil.planning.graded_plan import ask_of, is_free, part_of
from countveil.planning.plans import AIMED, Plan
from countveil.planning.shape_search import margin_of
from countveil.planning.shapes import variance
from countveil.planning.split_search import Split, find_split


def grade_price_list(
    plan: Plan, steps: Callable[[Iterable[str]], Iterable[str]] = iter
) -> tuple[dict[str, object], ...]:
    """For one more answer of each grade: the accuracy that the grades without a target would then have.

    Each row gives their typical margin and variance as `others`, or None if one more answer does not fit, because the
    targets alone would exceed the budget.
    """
    rows: list[dict[str, object]] = []
    split: Split | None = None
    for name in steps([grade.name for grade in plan.grades]):
        answers = next(grade.answers for grade in plan.grades if grade.name == name)
        try:
            split = _one_more(plan, name, split)
        except NoRootError:
            rows.append({"grade": name, "answers": answers + 1, "others": None})
        else:
            rows.append({"grade": name, "answers": answers + 1, "others": _accuracy(plan, split)})
    return tuple(rows)


def _one_more(plan: Plan, name: str, near: Split | None) -> Split:
    """The best laws for all grades after one more answer of the grade `name`.

    `near`, a result for one more answer of another grade, shortens the search.
    """
    ask, parts = plan.ask, []
    for (grade_name, grade), planned in zip(ask.grades, plan.grades, strict=True):
        own = ask_of(ask, grade)
        part = part_of(own, grade)
        if part.target == "margin":  # keep the margin with the same probability as in the plan
            part = replace(part, level=float(planned.mechanism.laws.stationary.within(int(part.value))) * (1 - 1e-9))
        more = own.pairs // own.answers if grade_name == name else 0
        parts.append(replace(part, pairs=part.pairs + more))
    return find_split(parts, float(ask.epsilon), float(ask.delta) * AIMED, ask.objective, near=near)


def _accuracy(plan: Plan, split: Split) -> dict[str, object]:
    """For each grade without a target: its margin and variance after the split, and its variance in the plan."""
    return {
        grade.name: {
            "typical_margin_95": margin_of(half),
            "variance": decimal_text(Fraction(variance(half)), 4),
            "variance_before": decimal_text(grade.mechanism.certificate.variance, 4),
        }
        for grade, half, (_, given) in zip(plan.grades, split.halves, plan.ask.grades, strict=True)
        if is_free(given)
    }
