"""Why grades do not fit their budget: which one is too fine, the nearest target, and an epsilon that is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from countveil.errors import InfeasibleError
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import NoRootError, find_root, least_positive
from countveil.planning.plans import PlanRequest
from countveil.planning.split_search import GradePart, least_delta

MOST = 64
"""The search for the nearest margin that fits goes up to about this many times the requested one."""
STEPS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.8, 2.5)
"""A computed value that should be enough is multiplied by these in turn; the error names the first that works."""

Fits = Callable[[PlanRequest], bool]
"""A function that says whether a plan is found for a request, so that errors advise only what was tried."""


def explain(ask: PlanRequest, parts: Sequence[GradePart], fits: Fits) -> InfeasibleError:
    """The error for grades that do not fit their budget: which grade is too fine, and values that would fit."""
    names = [name for name, _ in ask.grades]
    bounded = [i for i, part in enumerate(parts) if part.D is not None]
    fixed = [i for i, part in enumerate(parts) if part.target is not None]
    if fixed and not (_targets_fit(ask, parts, fixed) and fits(_keep(ask, fixed))):
        return _too_fine(ask, names, parts, fixed, fits)
    budget = f"epsilon {decimal_text(ask.epsilon)} and delta {decimal_text(ask.delta)}"
    which = f"no plan of these grades with {budget} was found"
    if bounded:
        narrow = ", ".join(f"{names[i]} (D {parts[i].D})" for i in bounded)
        which = f"no laws within epsilon and delta are as narrow as {narrow}"
    elif fixed:
        which = f"the targets of {', '.join(names[i] for i in fixed)} leave too little of {budget} for the other grades"
    enough = _enough_epsilon(ask, [parts[i] for i in fixed], fits)
    hint = (
        "allow more epsilon or delta, or plan fewer answers" if enough is None else f"epsilon {enough} would be enough"
    )
    return InfeasibleError(which, f"raise D; {hint}" if bounded else hint)


def _targets_fit(ask: PlanRequest, parts: Sequence[GradePart], which: Sequence[int]) -> bool:
    """Whether signed laws that just keep the targets of these grades are within delta."""
    return least_delta([parts[i] for i in which], float(ask.epsilon)) <= float(ask.delta)


def _keep(ask: PlanRequest, which: Sequence[int]) -> PlanRequest:
    """The request reduced to the grades with these indices."""
    return replace(ask, grades=tuple(ask.grades[i] for i in which))


def _too_fine(
    ask: PlanRequest, names: Sequence[str], parts: Sequence[GradePart], fixed: Sequence[int], fits: Fits
) -> InfeasibleError:
    epsilon = float(ask.epsilon)
    alone = [i for i in fixed if not _targets_fit(ask, parts, [i])] or (list(fixed) if len(fixed) == 1 else [])
    worst = max(alone or fixed, key=lambda i: least_delta([parts[i]], epsilon))
    shown = f"epsilon {decimal_text(ask.epsilon)}, delta {decimal_text(ask.delta)}"
    which = (
        f"grade {names[alone[0]]} alone is too fine for {shown}"
        if len(alone) == 1
        else f"grades {', '.join(names[i] for i in alone)} are each too fine for {shown}"
        if alone
        else f"the targets of grades {', '.join(names[i] for i in fixed)} together are too fine for {shown}"
    )
    others = [i for i in fixed if i != worst and i not in alone]
    beside = " alone" if alone else " with the other targets as they are"
    hints = []
    nearest = _nearest(ask, parts, worst, others, fits)
    if nearest is not None:
        hints.append(f"the nearest {parts[worst].target} of {names[worst]}{beside} is {nearest}")
    enough = _enough_epsilon(ask, [parts[i] for i in fixed], fits)
    if enough is not None:
        hints.append(f"epsilon {enough} would be enough")
    return InfeasibleError(which, "; ".join(hints) or "allow larger targets")


def _nearest(ask: PlanRequest, parts: Sequence[GradePart], worst: int, others: Sequence[int], fits: Fits) -> str | None:
    """The nearest target with which the grade `worst` fits beside the grades `others`, as a text, or None."""
    name, grade = ask.grades[worst]
    part = parts[worst]
    first = _nearest_signed(part, [parts[i] for i in others], float(ask.epsilon), float(ask.delta))
    if first is None or part.target is None:
        return None
    larger = part.target != "eta"
    for step in STEPS:
        if part.target == "margin":
            text = str(math.ceil(first * step))
        else:
            text = decimal_text(Fraction(first * step if larger else first / step), 3, "up" if larger else "down")
        wider = replace(grade, **{part.target: text})  # type: ignore[arg-type]  # the name of a target
        kept = tuple(ask.grades[i] for i in others)
        if fits(replace(ask, grades=((name, wider), *kept))):
            return text
    return None


def _nearest_signed(part: GradePart, others: Sequence[GradePart], epsilon: float, delta: float) -> float | None:
    """The nearest target of a grade with which signed laws fit the budget; None if there is none within reach."""

    def keeps(target: float) -> bool:
        return least_delta([replace(part, value=target), *others], epsilon) <= delta * 0.99

    if part.target == "margin":
        first = int(part.value)
        most = MOST * (first + 1)
        more = least_positive(lambda by: keeps(first + by), most)
        return first + more if more < most else None
    sign = 1 if part.target == "variance" else -1

    def lack(factor: float) -> float:
        return math.log(
            least_delta([replace(part, value=part.value * math.exp(sign * factor)), *others], epsilon) / delta
        )

    try:
        return part.value * math.exp(sign * find_root(lack, 0.05, step=0.2, tolerance=1e-4, close=1e-3))
    except (NoRootError, ValueError):
        return None


def _enough_epsilon(ask: PlanRequest, targets: Sequence[GradePart], fits: Fits) -> str | None:
    """An epsilon with which the whole plan fits, as a text, or None.

    It is the first of a few steps that works, so it need not be the least.
    """
    epsilon, delta = float(ask.epsilon), float(ask.delta)

    def lack(log_epsilon: float) -> float:
        return math.log(max(least_delta(targets, math.exp(log_epsilon)), 1e-300) / (delta * 0.99))

    first = epsilon
    if targets and lack(math.log(epsilon)) > 0:
        try:
            first = math.exp(find_root(lack, math.log(epsilon) + 0.05, step=0.2, tolerance=1e-4, close=1e-3))
        except NoRootError:
            return None
    for step in STEPS:
        text = decimal_text(Fraction(first * step), 3, "up")
        enough = Fraction(text)
        if ask.epsilon < enough <= 100 and fits(replace(ask, epsilon=enough)):
            return text
    return None
