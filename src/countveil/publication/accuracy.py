"""Grades for the tables of publications, so that the published numbers have the accuracy that was asked for.

Published numbers are more accurate than their measurements, because least squares combines all tables of the tree. So
the search runs on the public tree. `split_budget` finds the variances of the measurements for which the published
numbers of weighted tables are best, and those that keep the margins of the others. The ratios between weighted tables
become weights of grades: where a measurement of variance v and sensitivity s costs (s^2/v)^(p/2), variances v are
optimal for weights in proportion to s^p v^(-p/2-1): then the derivatives of weight times variance and of the cost have
one ratio for all tables, which is Lagrange's condition. All grades of all publications and of single questions are then
planned together, under one certificate. If the plan misses a margin or keeps it too well, the variance is corrected and
the plan is made again.

The published margin of a table is that of its least accurate cell. It is simulated, as for an edition; in large trees
it is 1.96 times the standard deviation, with a reserve for what a simulation adds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.accounting.merged_cells import SLACK, cost_of_gap
from countveil.config.publications import DeclaredTable
from countveil.consistency.least_squares import solve
from countveil.consistency.reconciler import Reconciler, read_law
from countveil.consistency.split import NORMAL_95, split_budget
from countveil.consistency.tree import Tree
from countveil.errors import InfeasibleError
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from countveil.planning import Grade, plan
from countveil.planning.plans import Plan
from countveil.publication.layout import Layout, group_margin

ROUNDS = 8
RESERVE = 0.92
"""The part of a margin that 1.96 standard deviations may take: simulated margins are up to 8 % wider."""
MOST_SIMULATED = 20_000
"""The most nodes whose margins are simulated while a plan is made."""
STEPS = 20
MOST_WIDER = 16.0
"""The largest factor by which variances are assumed to grow while the variances of other tables are corrected."""
CLOSE = 0.95
"""A corrected variance aims at this part of the margin that was asked for."""
LOOSE = 4.0
WASTE = 0.85
"""If a published margin is below this part of the margin that was asked for, the plan is made again."""
FEW, SEVERAL = 4, 16
"""The numbers of answers up to which a measurement of variance v costs about v^(-1/2) and v^(-3/4); above it, 1/v."""


@dataclass
class _Aim:
    """What a table asks of the plan: a variance for its measurement, or a weight, or neither: it is not measured."""

    layout: Layout
    place: int
    variance: float | None = None
    weight: float = 0.0

    @property
    def is_measured(self) -> bool:
        return self.variance is not None or self.weight > 0

    @property
    def table(self) -> DeclaredTable:
        return self.layout.tables[self.place]

    @property
    def name(self) -> str:
        return self.layout.declared.grade_of(self.place)

    @property
    def loosest(self) -> float:
        """The largest variance with which a table with a margin is measured; with more noise it would add nothing."""
        return LOOSE * (float(self.table.margin or 0) / NORMAL_95) ** 2

    @property
    def is_loose(self) -> bool:
        """Whether the variance is at its limit, because the other tables nearly keep the margin without this one."""
        return self.variance is not None and self.variance >= self.loosest * (1 - 1e-6)

    def grade(self) -> Grade:
        sensitivity, cells = self.layout.sensitivity_of(self.table)
        terms: dict[str, Any] = {"weight": _decimal(self.weight, 1e-6, 1e6)}
        if self.variance is not None:
            terms = {"variance": _decimal(self.variance, 1e-6, 1e10)}
        return Grade(self.layout.declared.editions, policy="signed", sensitivity=sensitivity, cells=cells, **terms)


def plan_publications(layouts: Sequence[Layout], own: Mapping[str, Grade], **terms: Any) -> Plan:
    """Make the plan of a pool: one plan with a grade for every published table, beside the grades of single questions.

    `own` are the grades of single questions, `terms` the other arguments of `planning.plan`, such as epsilon.
    """
    try:
        return _find_plan(layouts, own, **terms)
    except InfeasibleError as error:
        reason, nearest = (_name_tables(text, layouts, terms) for text in (error.reason, error.nearest))
        raise InfeasibleError(reason, nearest) from None


def _name_tables(text: str, layouts: Sequence[Layout], terms: Mapping[str, Any]) -> str:
    """Rewrite the explanation why no plan was found: name tables and margins instead of grades and variances, and the
    given epsilon and delta instead of those that merged cells leave."""
    for name in ("epsilon", "delta"):
        text = text.replace(f"{name} {_shrink(terms[name])}", f"{name} {decimal_text(Fraction(terms[name]))}")
    for layout in layouts:
        for grade, table in zip(layout.declared.grades, layout.tables, strict=True):
            nearest = re.search(rf"the nearest variance of {grade}( \D*)is ([0-9.e]+)", text)
            if nearest is not None:
                margin = math.ceil(NORMAL_95 * math.sqrt(float(nearest[2])) / RESERVE)
                text = text.replace(nearest[0], f"the nearest margin of {grade}{nearest[1]}is about ±{margin}")
            text = re.sub(rf"(grade )?\b{grade}\b(?!-)", f"table {table.name} of publication {layout.name}", text)
    return text


def _find_plan(layouts: Sequence[Layout], own: Mapping[str, Grade], **terms: Any) -> Plan:
    answers = sum(int(grade.answers) for grade in own.values())
    exponent = _choose_exponent(answers + sum(layout.declared.editions * len(layout.tables) for layout in layouts))
    aims = [aim for layout in layouts for aim in _aim(layout, exponent)]
    if any(aim.layout.sensitivity_of(aim.table) != _plain(aim.layout) for aim in aims):
        terms = {**terms, "epsilon": _shrink(terms["epsilon"]), "delta": _shrink(terms["delta"])}
    found: Plan | None = None
    missed: InfeasibleError | None = None
    for _ in range(ROUNDS):
        measured = [aim for aim in aims if aim.is_measured]
        try:
            planned = plan(grades={**own, **{aim.name: aim.grade() for aim in measured}}, **terms)
            parts = [_divide_margins(layout, measured, planned) for layout in layouts]
            missed = next(filter(None, map(_find_miss, layouts, parts)), None)
            if missed is None:
                _check_merged(measured, planned)
                found = planned
        except InfeasibleError as error:
            missed = error
            break
        corrected = [_correct(each, aims, planned, exponent, own) for each, own in zip(layouts, parts, strict=True)]
        if not any(corrected):
            break
    if found is None:
        assert missed is not None
        raise missed
    return found


def _choose_exponent(answers: int) -> float:
    """The p for which a measurement of variance v costs about v^(-p/2), if so many answers share the budget."""
    return 1.0 if answers <= FEW else 1.5 if answers <= SEVERAL else 2.0


def share_costs(layout: Layout, mechanisms: Mapping[str, Mechanism], answers: int) -> dict[str, float]:
    """About which part of the privacy cost of an edition each measured table has, in a pool of so many answers."""
    exponent, costs = _choose_exponent(answers), {}
    for table in layout.tables:
        if table.name in mechanisms:
            sensitivity, cells = layout.sensitivity_of(table)
            variance = float(mechanisms[table.name].certificate.variance)
            costs[table.name] = cells * (sensitivity**2 / variance) ** (exponent / 2)
    return {name: cost / sum(costs.values()) for name, cost in costs.items()}


def _aim(layout: Layout, exponent: float) -> list[_Aim]:
    """Choose the tables that are worth measuring; each gets the variance that its margin needs, or a weight."""
    tree, tables = layout.tree, layout.tables
    sensitivity = {table.name: layout.sensitivity_of(table)[0] for table in tables}
    sums = {table.name: layout.sensitivity_of(table)[1] ** 0.5 for table in tables}
    costs = {name: math.ceil(sensitivity[name] * sums[name]) for name in sensitivity}
    names = [table.name for table in tables]
    common: dict[str, Any] = {"measured": names, "sensitivity": costs, "exponent": exponent}
    weights = {table.name: float(Fraction(table.weight or 1)) for table in tables if table.margin is None}
    targets = {table.name: float(table.margin * RESERVE) for table in tables if table.margin is not None}
    aims = [_Aim(layout, i) for i in range(len(tables))]
    if targets:
        needed = split_budget(tree, targets=targets, **common)
        for aim in aims:
            if aim.table.margin is not None and math.isfinite(needed.variances[aim.table.name]):
                aim.variance = needed.variances[aim.table.name]
    margins = {margin.name: margin for margin in layout.declared.margins if margin.weight is not None}
    if weights:
        weights |= {name: float(Fraction(margin.weight or 0)) for name, margin in margins.items()}
        across = {name: group_margin(layout, margin.by)[:2] for name, margin in margins.items()}
        split = split_budget(tree, weights=weights, margins=across, **common)
        total = sum(weight * split.published[name] for name, weight in weights.items())
        pulls = {
            name: costs[name] ** exponent * v ** (-exponent / 2 - 1)
            for name, v in split.variances.items()
            if math.isfinite(v)
        }
        scale = total / sum(pull * split.variances[name] for name, pull in pulls.items())
        for aim in aims:
            aim.weight = scale * pulls.get(aim.table.name, 0.0)
    return aims


def _divide_margins(layout: Layout, aims: Sequence[_Aim], planned: Plan) -> dict[str, float]:
    """For each table with a margin, measured or not: the margin of its published numbers, divided by that margin."""
    mechanisms = {grade.name: grade.mechanism for grade in planned.grades}
    wanted = {table.name: table.margin for table in layout.tables if table.margin is not None}
    own = {aim.table.name: mechanisms[aim.name] for aim in aims if aim.layout is layout}
    margins = find_margins(layout, own) if wanted else {}
    return {name: margins[name] / margin for name, margin in wanted.items()}


def _find_miss(layout: Layout, parts: Mapping[str, float]) -> InfeasibleError | None:
    """The error for the margin that is missed most, if one is missed."""
    name = max(parts, key=lambda name: parts[name], default="")
    if not name or parts[name] <= 1:
        return None
    margin = next(table.margin for table in layout.tables if table.name == name)
    return InfeasibleError(
        f"publication {layout.name}: no plan was found that keeps ±{margin} in table {name}",
        f"±{math.ceil(parts[name] * (margin or 0))} is possible",
    )


def _correct(layout: Layout, aims: list[_Aim], planned: Plan, exponent: float, parts: Mapping[str, float]) -> bool:
    """Correct the variances of one publication's tables, so that all margins are kept and none is kept too well.

    Returns whether any was corrected. `parts` are those of `_divide_margins`.
    """
    own = [aim for aim in aims if aim.layout is layout and aim.is_measured]
    kept = _list_kept(layout, own)
    missed = {name for name, part in parts.items() if part > 1} - {name for names in kept.values() for name in names}
    for aim in aims:
        if aim.layout is layout and aim.table.name in missed:  # no measurement can be corrected for it: it gets its own
            aim.variance = aim.loosest
    worst = {table: max(parts[name] for name in names) for table, names in kept.items()}
    wasted = any(worst[aim.table.name] < WASTE and not aim.is_loose for aim in own if aim.table.name in kept)
    if not missed and (wasted or max(worst.values(), default=0) > 1):
        _solve_variances(layout, own, planned, exponent, parts, kept)
        return True
    return bool(missed)


def _list_kept(layout: Layout, aims: Sequence[_Aim]) -> dict[str, list[str]]:
    """For each table with a variance, the tables whose margins it keeps.

    They are the table itself and those above it that have margins and are not measured, up to the next measured one.
    """
    levels, measured = layout.tree.levels, {aim.table.name for aim in aims}
    wanted = {table.name for table in layout.tables if table.margin is not None}
    kept = {}
    for name in (aim.table.name for aim in aims if aim.variance is not None):
        kept[name] = [name]
        above = levels[layout.tree.place(name)].above
        while above >= 0 and levels[above].name not in measured:
            kept[name] += {levels[above].name} & wanted
            above = levels[above].above
    return kept


def _solve_variances(
    layout: Layout,
    aims: Sequence[_Aim],
    planned: Plan,
    exponent: float,
    parts: Mapping[str, float],
    kept: Mapping[str, Sequence[str]],
) -> None:
    """Set the variances of tables so that the margins of the tables that they keep are just kept.

    The other grades pay for this: all their variances are multiplied by one factor. `parts` has, for each table, its
    present margin divided by the margin that was asked for. Present margins are simulated; new ones are estimated in
    proportion to the exact standard deviation.
    """
    variances = {grade.name: float(grade.mechanism.certificate.variance) for grade in planned.grades}
    fixed = {aim.name: kept[aim.table.name] for aim in aims if aim.table.name in kept}
    counts = {grade.name: grade.answers * grade.cells for grade in planned.grades}
    sensitivities = {grade.name: grade.mechanism.certificate.sensitivity for grade in planned.grades}

    def cost(names: Iterable[str], now: Mapping[str, float]) -> float:
        return sum(float(counts[name] * (sensitivities[name] ** 2 / now[name]) ** (exponent / 2)) for name in names)

    free = [name for name in variances if name not in fixed]
    loosest = {aim.name: aim.loosest for aim in aims}
    before = _deviate(layout.tree, {aim.table.name: variances[aim.name] for aim in aims})
    now = dict(variances)
    for _ in range(STEPS):
        deviations = _deviate(layout.tree, {aim.table.name: now[aim.name] for aim in aims})
        for grade, names in fixed.items():
            part = max(parts[name] * deviations[name] / before[name] for name in names) / CLOSE
            now[grade] = min(now[grade] * min(max(part**-2, 1 / 16), 16.0), loosest[grade])
        left = cost(variances, variances) - cost(fixed, now)
        wider = (cost(free, variances) / left) ** (2 / exponent) if left > 0 else MOST_WIDER
        now |= {name: variances[name] * min(wider, MOST_WIDER) for name in free}
    for aim in aims:
        if aim.name in fixed:
            aim.variance = now[aim.name]


def _deviate(tree: Tree, variances: Mapping[str, float]) -> dict[str, float]:
    """The largest standard deviation of the published numbers of every table, given the measurements' variances."""
    fit = solve(tree, [variances.get(name) for name in tree.names])
    return {n: math.sqrt(float(v.max(initial=0.0))) for n, v in zip(tree.names, fit.variance, strict=True)}


def find_margins(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> dict[str, float]:
    """The 95 % margin of the least accurate published number of every table."""
    tree = layout.tree
    if len(tree) > MOST_SIMULATED:
        return {name: each / RESERVE for name, each in estimate_margins(layout, mechanisms).items()}
    reconciler = Reconciler.of(tree, mechanisms, tuple(mechanisms), layout.digest.encode())
    return {name: float(reconciler.margins(name).max(initial=0.0)) for name in tree.names}


def estimate_margins(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> dict[str, float]:
    """1.96 times the largest standard deviation of the published numbers of every table, by exact variances."""
    laws = {name: read_law(name, mechanism) for name, mechanism in mechanisms.items()}
    deviations = _deviate(layout.tree, {name: float(law.variance) for name, law in laws.items()})
    return {name: NORMAL_95 * deviation for name, deviation in deviations.items()}


def _plain(layout: Layout) -> tuple[int, int]:
    """By how much one person changes one of the finest cells, and in how many of these cells a person can be."""
    return layout.question.sensitivity, layout.question.schema.cells_per_person


def _check_merged(aims: Sequence[_Aim], planned: Plan) -> None:
    """Refuse laws that are too far from log-concave for tables whose cells merge several cells of a person."""
    mechanisms = {grade.name: grade.mechanism for grade in planned.grades}
    cost = 0.0
    for aim in aims:
        sensitivity, _ = merged = aim.layout.sensitivity_of(aim.table)
        if merged != _plain(aim.layout):
            law = read_law(aim.table.name, mechanisms[aim.name])
            answers = aim.layout.declared.editions * (2 if planned.ask.neighbours == "replace" else 1)
            cost += cost_of_gap(law, sensitivity, answers)
    if cost > SLACK * min(1.0, float(planned.ask.epsilon)):
        raise InfeasibleError(
            "the laws that were found are too far from log-concave for people in several cells",
            "set cells_per_person = 1, or ask for larger margins",
        )


def _shrink(value: str) -> str:
    """Reduce a privacy parameter by the slack that merged cells need."""
    return decimal_text(Fraction(value) * (1 - Fraction(SLACK)))


def _decimal(value: float, low: float, high: float) -> str:
    """Write a number as a decimal text of six digits, after it is moved into the limits."""
    return decimal_text(Fraction(f"{min(max(value, low), high):.6g}"))
