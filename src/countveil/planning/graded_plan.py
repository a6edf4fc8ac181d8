"""Plans of several grades: a mechanism for each, certified for all answers of all grades together.

`split_search` proposes a symmetric law for each grade. The laws are rounded to integers, made never negative where that
is asked for (which is post-processing), and the composition of all of them is certified on those integers.

A margin m means that, for every count, the released number is within m of the truth with probability 95 %. Making
releases never negative changes the releases of small counts, and may move them away from the truth. So signed noise
that is within m with probability 95 % may not be enough; then the search asks for a law with a higher probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from countveil.accounting.composition import FINEST, Bounds, Composition
from countveil.accounting.privacy_loss import answer_of, float_below
from countveil.errors import CountveilError, InfeasibleError
from countveil.laws.law import Law, LawsByCount
from countveil.mechanism.certificate import margin_95
from countveil.numeric.search import NoRootError, bisect
from countveil.planning.grades import Grade, PlannedGrade
from countveil.planning.plans import AIMED, FINER, Plan, PlanRequest, certify_alone, make_laws, make_plan, promises
from countveil.planning.program_plan import law_of
from countveil.planning.shortfall import explain
from countveil.planning.split_search import LEVEL_95, GradePart, Split, find_split, fitting_law, widen

ATTEMPTS = 14
TRIES = 8
LEAST_LEVEL, MOST_LEVEL = LEVEL_95 * (1 + 1e-9), 0.999
"""The least and the largest probability with which a law may be required to keep a margin. The least is 95 %, increased
a little for rounding.
"""
USUAL_POWER = 1.4


def make_graded_plan(ask: PlanRequest) -> Plan:
    """The best plan that the search finds for the grades of a request, certified under composition."""
    try:
        return _find_plan(ask)
    except NoRootError:
        raise explain(ask, _targets_of(ask), _is_plannable) from None


def _is_plannable(ask: PlanRequest) -> bool:
    """Whether a plan can be found for a request."""
    try:
        _find_plan(ask)
    except (NoRootError, CountveilError):
        return False
    return True


def _targets_of(ask: PlanRequest) -> list[GradePart]:
    """The grades of a request in the form that the search needs.

    Their margins hold for signed noise only; `_find_plan` asks for more where they must hold for small counts too.
    """
    return [part_of(ask_of(ask, grade), grade) for _, grade in ask.grades]


def _find_plan(ask: PlanRequest) -> Plan:
    """The best plan that the search finds for a request; raises NoRootError if its grades do not fit the budget."""
    asks = [ask_of(ask, grade) for _, grade in ask.grades]
    if len(asks) == 1 and is_free(ask.grades[0][1]):
        alone = make_plan(asks[0])
        return replace(alone, ask=ask, grades=(replace(alone.grades[0], name=ask.grades[0][0]),))
    parts = [replace(part, level=_level(each, part)) for each, part in zip(asks, _targets_of(ask), strict=True)]
    split: Split | None = None
    for _ in range(TRIES):
        split = find_split(parts, float(ask.epsilon), float(ask.delta) * AIMED, ask.objective, near=split)
        planned, bounds = _certify(ask, asks, parts, split)
        missed = [i for i, part in enumerate(parts) if not _keeps_margin(part, planned[i])]
        if not missed:
            return Plan(ask, planned, bounds, _notes(ask, bounds))
        parts = [
            replace(part, level=part.level + (1 - part.level) / 10) if i in missed else part
            for i, part in enumerate(parts)
        ]
    name = ask.grades[missed[0]][0]
    raise InfeasibleError(
        f"grade {name}: no law keeps its margin for small counts", "allow a larger margin, or use policy signed"
    )


def ask_of(ask: PlanRequest, grade: Grade) -> PlanRequest:
    """The request of one grade alone."""
    policy = grade.policy or ask.policy
    return replace(
        ask,
        answers=int(grade.answers),
        policy=policy,
        sensitivity=int(grade.sensitivity or ask.sensitivity),
        cells=int(grade.cells or ask.cells),
        unbiased_from=ask.unbiased_from if policy == "nonnegative" else None,
        max_bias=ask.max_bias if policy == "nonnegative" else None,
        grades=(),
    )


def is_free(grade: Grade) -> bool:
    """Whether a grade has no target and no bound, only a weight."""
    return grade.margin is None and grade.variance is None and grade.eta is None and grade.D is None


def part_of(ask: PlanRequest, grade: Grade) -> GradePart:
    """A grade in the form that the search needs; `ask` is the request of this grade alone."""
    D = None if grade.D is None else int(grade.D)
    for name in ("margin", "variance", "eta"):
        if (target := getattr(grade, name)) is not None:
            spare = {"margin": 1.0, "variance": 1 - 1e-9, "eta": 1 + 1e-9}[name]  # a reserve for rounding to integers
            return GradePart(ask.pairs, ask.sensitivity, 0.0, name, float(target) * spare, D=D)
    weight = float(Fraction(1 if grade.weight is None else grade.weight)) * ask.answers / ask.pairs
    return GradePart(ask.pairs, ask.sensitivity, weight, D=D)


def _level(ask: PlanRequest, part: GradePart) -> float:
    """The probability with which a signed law must keep a margin, so that every count keeps it with 95 % after the map.

    It is found for a law of usual shape. Laws that need no map keep the margin with 95 %.
    """
    if part.target != "margin" or ask.policy != "nonnegative":
        return LEAST_LEVEL

    def enough(level: float) -> bool:
        with suppress(CountveilError):
            law = law_of(fitting_law(replace(part, level=level), USUAL_POWER, float(ask.delta)))
            return margin_95(make_laws(ask, law)) <= part.value
        return False

    if enough(LEAST_LEVEL):
        return LEAST_LEVEL
    return bisect(enough, LEAST_LEVEL, MOST_LEVEL, steps=6)[1]


def _keeps_margin(part: GradePart, grade: PlannedGrade) -> bool:
    """Whether every count keeps the margin that its grade asks for; with policy floor, every count from D on."""
    mechanism = grade.mechanism
    typical = mechanism.policy == "floor"
    margin = mechanism.certificate.typical_margin_95 if typical else mechanism.margin_95
    return part.target != "margin" or margin <= part.value


def _certify(
    ask: PlanRequest, asks: Sequence[PlanRequest], parts: Sequence[GradePart], split: Split
) -> tuple[tuple[PlannedGrade, ...], Bounds]:
    """Round the proposed laws and certify them together.

    If they exceed delta, the laws without a target are widened a little and tried again.
    """
    halves, by = split.halves, 1e-5
    for _ in range(ATTEMPTS):
        laws = [law_of(half) for half in halves]
        bounds = _compose(asks, laws, ask, split.step)
        if Fraction(bounds.upper) <= ask.delta:
            planned = tuple(
                PlannedGrade(name, each.answers, certify_alone(each, make_laws(each, law)), each.cells)
                for (name, _), each, law in zip(ask.grades, asks, laws, strict=True)
            )
            return planned, bounds
        halves, by = widen(halves, parts, by), 2 * by
    raise NoRootError


def _compose(asks: Sequence[PlanRequest], laws: Sequence[Law], ask: PlanRequest, step: float) -> Bounds:
    """Bounds on the delta of all answers: the tightest of those from a few grids, which all hold."""
    terms = [
        (answer_of(LawsByCount(law), each.sensitivity), each.answers * each.cells)
        for each, law in zip(asks, laws, strict=True)
    ]
    epsilon = float_below(ask.epsilon)
    bounds = Composition(terms, ask.neighbours).delta(epsilon)
    others = [Composition(terms, ask.neighbours, chosen_step=step / finer) for finer in FINER]
    for other in (*others, Composition(terms, ask.neighbours, points=FINEST)):
        if Fraction(bounds.upper) <= ask.delta:
            break
        found = other.delta(epsilon)
        lower, upper = max(bounds.lower, found.lower), min(bounds.upper, found.upper)
        bounds = Bounds(lower, (lower * upper) ** 0.5, upper)
    return bounds


def _notes(ask: PlanRequest, bounds: Bounds) -> tuple[str, ...]:
    notes = [
        *promises(bounds)[:1],
        "sound for queries chosen adaptively and for grades in any order; every grade keeps its number of answers",
    ]
    targets = all(grade.margin or grade.variance or grade.eta for _, grade in ask.grades)
    if targets and bounds.upper < float(ask.delta) * 0.9:
        notes.append("every grade has a target, and all of them together need less than the delta that is allowed")
    return tuple(notes)
