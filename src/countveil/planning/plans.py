"""From a budget and a number of answers to the best mechanism that a search finds, certified for all.

`shape_search` searches for the best *signed* law for k answers. The law is rounded to integers, and the delta of all
answers is certified on those integers. Policy nonnegative adds a remap, which is post-processing, so the certified
delta still holds. No law is corrected to a bias of exactly zero: that would move a share of each law and cost k * share
* (1 + E) of delta, with E = e^epsilon. Method program makes a law for each small count instead (`program_plan`),
certified by the largest of all their privacy curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.privacy_loss import Floats, answer_of, float_below, pair_of
from countveil.design import design
from countveil.design.remap.designer import remap_nearly
from countveil.design.remap.postprocessing import describe_map, details
from countveil.display.cards import Card, Drawable
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.privacy import epsilon_order
from countveil.laws.remap import Remap
from countveil.mechanism.certificate import LEVEL_95, Policy, Terms, margin_95
from countveil.mechanism.mechanism import Mechanism, bind
from countveil.numeric.exact_numbers import decimal_text, log_upper
from countveil.numeric.search import NoRootError, bisect, find_root
from countveil.planning.grades import STANDARD, Grade, PlannedGrade
from countveil.planning.program_plan import law_of, propose
from countveil.planning.shape_search import Candidate, search
from countveil.planning.shapes import LARGEST_D, Target, composed_delta, normalise

LISTED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
ATTEMPTS = 8
RETRIES = 3
LARGE_SHARE = 2
"""If one answer has more epsilon than this, even shares are as good as any other plan."""
MOST_DESIGNED = 4
"""For one answer, laws are designed up to this sensitivity; beyond, the linear program takes too long."""
LARGEST_SHARE = Fraction(20)
"""The most epsilon for one answer: here all but a few answers in a billion are exact."""
AIMED = 1 - 5e-5
"""The search aims at this share of delta; the rest is for rounding."""
EDGES = (1.0, 0.1, 0.01)
"""Factors for the share of delta that cutting a law at its ends may take, in the order in which they are tried."""
FINER = (1.0, 2.0, 3.0)
EDGES_TOO_LIKELY = "the probability of the largest noise values (near -D and D) uses too much of delta"


@dataclass(frozen=True)
class PlanRequest:
    """The checked arguments of `plan`."""

    epsilon: Fraction
    delta: Fraction
    answers: int
    policy: Policy = "nonnegative"
    objective: str = "variance"
    neighbours: str = "add-remove"
    cells: int = 1
    sensitivity: int = 1
    unbiased_from: int | None = None
    max_bias: Fraction | None = None
    method: str = "remap"
    grades: tuple[tuple[str, Grade], ...] = ()

    @property
    def pairs(self) -> int:
        """The number of pairs of laws composed: one for each answer and cell, or two with neighbours "replace"."""
        return self.answers * self.cells * (2 if self.neighbours == "replace" else 1)

    @property
    def target(self) -> Target:
        return Target(float(self.epsilon), float(self.delta) * AIMED, self.pairs, self.sensitivity)


@dataclass(frozen=True, repr=False)
class Plan(Drawable):
    """The grades of a plan within (epsilon, delta); `certified` bounds the delta of all their answers together.

    `ask` is the request. A plan of k equal answers has one grade, named `standard`. `answers` is the number of answers
    of all grades.
    """

    ask: PlanRequest
    grades: tuple[PlannedGrade, ...]
    certified: Bounds
    notes: tuple[str, ...]
    price_list: tuple[dict[str, object], ...] = ()

    def _line(self) -> str:
        grades = ", ".join(f"{grade.name} {grade.answers} within ±{grade.mechanism.margin_95}" for grade in self.grades)
        return f"epsilon={decimal_text(self.ask.epsilon)} delta={decimal_text(self.ask.delta)}: {grades}"

    def _card(self) -> Card:
        ask = self.ask
        budget = f"epsilon {decimal_text(ask.epsilon)}, delta {decimal_text(ask.delta)}"
        facts = {"all answers together": budget, "certified delta": f"{self.certified.upper:.6g}", "policy": ask.policy}
        rows = [
            (
                *(grade.name, grade.answers, f"±{grade.mechanism.margin_95}", grade.mechanism.certificate.worst_error),
                *(decimal_text(x, 4) for x in (grade.mechanism.certificate.variance, grade.mechanism.eta)),
            )
            for grade in self.grades
        ]
        head = ("grade", "answers", "95 % margin", "largest error", "variance", "eta")
        return Card(f"Plan of {self.answers:,} answers", facts, "", head, rows, len(rows), self.notes)

    @property
    def answers(self) -> int:
        return sum(grade.answers for grade in self.grades)

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the one grade; raises RequestError if the plan has several grades."""
        if len(self.grades) > 1:
            names = ", ".join(grade.name for grade in self.grades)
            raise RequestError(f"this plan has a mechanism for each grade ({names}); take them from plan.grades")
        return self.grades[0].mechanism

    def describe(self) -> dict[str, object]:
        """The plan as JSON values. `per_answer` is the mechanism if the plan has only one grade, otherwise None."""
        ask, alone = self.ask, len(self.grades) == 1
        return {
            "schema_version": 1,
            "answers": self.answers,
            "epsilon": decimal_text(ask.epsilon),
            "delta": decimal_text(Fraction(self.certified.upper), rounding="up"),
            "delta_lower": decimal_text(Fraction(self.certified.lower), rounding="down"),
            "delta_allowed": decimal_text(ask.delta),
            "policy": ask.policy,
            "method": self.mechanism.method if alone and ask.policy == "nonnegative" else None,
            "objective": ask.objective,
            "neighbours": ask.neighbours,
            "cells": ask.cells,
            "sensitivity": ask.sensitivity,
            "per_answer": self.mechanism.describe() if alone else None,
            "grades": [grade.describe() for grade in self.grades],
            "price_list": list(self.price_list),
            "notes": list(self.notes),
        }


def plan_of(ask: PlanRequest, mechanism: Mechanism, certified: Bounds, notes: tuple[str, ...]) -> Plan:
    """A plan whose answers all have the same mechanism."""
    return Plan(ask, (PlannedGrade(STANDARD, ask.answers, mechanism, ask.cells),), certified, notes)


def make_plan(ask: PlanRequest) -> Plan:
    """The best plan of equal answers that the search finds for a request, certified for all answers together."""
    if ask.pairs == 1 and ask.sensitivity == 1:
        return _plan_single(ask)
    if not _is_designed(ask):
        return _search_plan(ask)
    try:
        return _share_evenly(ask)
    except InfeasibleError:  # even shares have no law
        return _search_plan(ask)
    except CountveilError as error:  # their law has no map of so small a bias; another law may have one
        with suppress(CountveilError):
            return _search_plan(ask)
        raise error from None


def _search_plan(ask: PlanRequest) -> Plan:
    """The best plan whose law is searched for, not designed."""
    if ask.method == "program":
        return _plan_by_program(ask)
    for edge in EDGES:
        with suppress(NoRootError, InfeasibleError):
            return _certify(ask, search(ask.target, ask.objective, edge=edge))
    raise InfeasibleError(
        f"no plan of {ask.answers} answers with epsilon {decimal_text(ask.epsilon)} and delta "
        f"{decimal_text(ask.delta)} was found with noise up to {LARGEST_D}",
        "allow more epsilon or delta, or plan fewer answers",
    )


def _is_designed(ask: PlanRequest) -> bool:
    """Whether each answer gets an even share of the budget, and the law that `design` makes for that share.

    True if there is only one pair of laws, or if each pair has an epsilon above LARGE_SHARE; but never at a sensitivity
    that is too large for `design`.
    """
    if ask.sensitivity > 1 and (ask.sensitivity > MOST_DESIGNED or 4 * ask.epsilon < ask.sensitivity):
        return False
    return ask.pairs == 1 or ask.epsilon > LARGE_SHARE * ask.pairs


def estimate(ask: PlanRequest) -> Laws:
    """An estimate of the laws of a plan, found fast and not certified: shapes from geometric to Gaussian.

    The laws are remapped if the request needs never-negative counts.
    """
    if _is_designed(ask):
        epsilon, delta = ask.epsilon / ask.pairs, ask.delta / ask.pairs
        law = design(epsilon=epsilon, delta=delta, policy="signed", sensitivity=ask.sensitivity).laws.stationary
    else:
        law = law_of(search(ask.target, ask.objective, polish=False).half)
    return make_laws(ask, law)


def price_list(plan: Plan, steps: Callable[[Iterable[int]], Iterable[int]] = iter) -> tuple[dict[str, object], ...]:
    """The accuracy of one answer if there were 1, 2, 5, ... 1000 answers: exact for the given plan, else estimated."""
    counts = sorted({*LISTED, plan.answers})
    rows = []
    for k in steps(counts):
        made = k == plan.answers
        with suppress(NoRootError, InfeasibleError, RequestError):
            laws = plan.mechanism.laws if made else estimate(replace(plan.ask, answers=k))
            D = plan.mechanism.D if made else _bound(laws)
            rows.append({"answers": k, **_price(laws, D), "chosen": made})
    return tuple(rows)


def _price(laws: Laws, D: int) -> dict[str, object]:
    """The accuracy of one answer for the price list.

    `margin_95` holds for every count, the other figures for a typical count.
    """
    law = laws.stationary
    return {
        "variance": decimal_text(law.variance, 6),
        "margin_95": margin_95(laws),
        "typical_margin_95": law.margin(LEVEL_95),
        "eta": decimal_text(law.eta, 6),
        "D": D,
    }


def _plan_single(ask: PlanRequest) -> Plan:
    """A plan of one answer, whose mechanism is made by `design`."""
    mechanism = design(
        epsilon=ask.epsilon,
        delta=ask.delta,
        policy=ask.policy,
        sensitivity=ask.sensitivity,
        unbiased_from=ask.unbiased_from,
        method="program" if ask.method == "program" else "auto",
    )
    delta = float(mechanism.delta)  # exact, and at most what was asked for
    upper = delta if Fraction(delta) >= mechanism.delta else math.nextafter(delta, 1.0)
    lower = Composition([(answer_of(mechanism.laws, ask.sensitivity), 1)]).lower(float(ask.epsilon))
    notes = ("one answer: the design for (epsilon, delta), of largest eta, which serves every objective here",)
    return plan_of(ask, mechanism, Bounds(min(lower, delta), delta, upper), notes)


def _share_evenly(ask: PlanRequest) -> Plan:
    """A plan with even shares of epsilon and delta, which is the best plan if `_is_designed` holds."""
    epsilon = min(ask.epsilon / ask.pairs, LARGEST_SHARE)
    delta = ask.delta / ask.pairs * Fraction(AIMED)
    try:
        if ask.method == "program":
            mechanism = design(epsilon=epsilon, delta=delta, method="program", unbiased_from=ask.unbiased_from)
        else:
            mechanism = design(epsilon=epsilon, delta=delta, policy="signed", sensitivity=ask.sensitivity)
    except CountveilError as error:
        raise InfeasibleError(f"an even share of epsilon has no law: {error}", "allow more epsilon or delta") from None
    if ask.policy == "nonnegative" and ask.method == "remap":
        mechanism = certify_alone(ask, make_laws(ask, mechanism.laws.stationary))
    bounds = _compose(ask, mechanism.laws, 1e-3)
    if Fraction(bounds.upper) > ask.delta:
        raise InfeasibleError("with even shares of epsilon, all answers together exceed delta", "raise delta")
    notes = (
        "even shares of epsilon and delta for every answer: with so much epsilon nothing else is better",
        "the law of largest eta, which serves every objective here",
    )
    return plan_of(ask, mechanism, bounds, notes)


def _certify(ask: PlanRequest, candidate: Candidate) -> Plan:
    """Round a candidate to integer weights, remap it if requested, and certify the plan.

    A law that exceeds delta is widened a little and tried again.
    """
    half, target = candidate.half, ask.target
    for _ in range(ATTEMPTS):
        law = law_of(half)
        bounds = _compose(ask, LawsByCount(law), candidate.step)
        if Fraction(bounds.upper) <= ask.delta:
            return plan_of(ask, certify_alone(ask, make_laws(ask, law)), bounds, _notes(candidate, bounds))
        excess = bounds.upper / float(ask.delta)
        target = replace(target, delta=target.delta / excess**1.2)
        half = _widen(half, target, candidate.step)
    raise InfeasibleError(EDGES_TOO_LIKELY, "allow more delta, or plan fewer answers")


def _plan_by_program(ask: PlanRequest) -> Plan:
    """A plan by linear program: laws below a privacy curve, certified together.

    If they exceed delta, a lower curve is tried.
    """
    target = ask.target
    for _ in range(RETRIES):
        proposed = propose(target, ask.objective, ask.unbiased_from)
        bounds = _compose(ask, proposed.laws, proposed.step)
        if Fraction(bounds.upper) <= ask.delta:
            return plan_of(ask, certify_alone(ask, proposed.laws), bounds, (*proposed.notes, *promises(bounds)))
        target = replace(target, delta=target.delta * 0.9 * float(ask.delta) / bounds.upper)
    raise InfeasibleError("the laws that the program found exceed delta together", "raise delta, or use method remap")


def make_laws(ask: PlanRequest, law: Law) -> Laws:
    """The laws of a mechanism with this signed noise: remapped to be never negative if the request needs that.

    A remap is post-processing, so the delta certified for the signed law holds.
    """
    if ask.policy != "nonnegative":
        return LawsByCount(law, lo=law.right if ask.policy == "floor" else 0)
    if min(law.left, law.right) < 2:
        raise InfeasibleError(
            "noise of at most 1 leaves no room for a map that avoids negative counts",
            "give a smaller epsilon, or policy signed",
        )
    try:
        return remap_nearly(law, ask.unbiased_from, ask.max_bias)
    except InfeasibleError as error:
        raise RequestError(str(error)) from None  # another law would not help


def _compose(ask: PlanRequest, laws: Laws, step: float) -> Bounds:
    """Bounds on the delta of all answers: the tightest of those from a few grids, which all hold."""
    terms = [(answer_of(laws, ask.sensitivity), ask.answers)]
    usual = Composition(terms, ask.neighbours, ask.cells)
    bounds = usual.delta(float_below(ask.epsilon))
    for finer in FINER:
        if Fraction(bounds.upper) <= ask.delta:
            break
        other = Composition(terms, ask.neighbours, ask.cells, chosen_step=step / finer).delta(float_below(ask.epsilon))
        lower, upper = max(bounds.lower, other.lower), min(bounds.upper, other.upper)
        bounds = Bounds(lower, (lower * upper) ** 0.5, upper)
    return bounds


def _widen(half: Floats, target: Target, step: float) -> Floats:
    """The law with the logarithms of its probabilities scaled down, which makes it wider, until it meets the target."""
    logs = np.log(half / half[0])

    def lack(s: float) -> float:
        delta = composed_delta(normalise(logs * np.exp(-s)), target, step)
        return float(np.log(max(delta, 1e-300) / target.delta))

    try:
        return normalise(logs * np.exp(-find_root(lack, 0.0, step=1e-4)))
    except NoRootError:
        raise InfeasibleError(EDGES_TOO_LIKELY, "allow more delta, or plan fewer answers") from None


def certify_alone(ask: PlanRequest, laws: Laws) -> Mechanism:
    """The mechanism with these laws, certified for one answer alone.

    The certificate's epsilon is the one at which the answer has its even share of delta.
    """
    share = ask.delta / ask.pairs
    order = epsilon_order(laws, share, ask.sensitivity, _order_below(laws.stationary, share, ask.sensitivity))
    epsilon = ask.epsilon if order is None else min(ask.epsilon, log_upper(order, 6))
    return bind(
        laws,
        Terms(
            epsilon=epsilon,
            policy=ask.policy,
            method=ask.method if ask.policy == "nonnegative" else "program",
            D=_bound(laws),
            sensitivity=ask.sensitivity,
            notes=(
                f"planned for {ask.answers} answers within epsilon {decimal_text(ask.epsilon)}, delta "
                f"{decimal_text(ask.delta)} together; epsilon and delta here are those of one answer alone",
                *((describe_map(laws),) if isinstance(laws, Remap) else ()),
            ),
            details=details(laws, ask.unbiased_from) if isinstance(laws, Remap) else None,
        ),
    )


def _order_below(law: Law, share: Fraction, sensitivity: int) -> Fraction:
    """An order E = e^epsilon at which the delta of a signed law is probably a little above `share`.

    It is the first guess of a search.
    """
    loss = pair_of(law, law.shift(sensitivity))
    target = float(share) * (1 + 1e-9)
    if loss.infinite >= target or not len(loss.loss) or loss.delta(0.0) <= target:
        return Fraction(1)
    low, _ = bisect(lambda epsilon: loss.delta(epsilon) <= target, 0.0, float(loss.loss[-1]), steps=24)
    return Fraction(math.exp(low))


def _bound(laws: Laws) -> int:
    """The noise bound D of these laws; for a remap, the bound on noise and map together."""
    return laws.D if isinstance(laws, Remap) else laws.stationary.worst_error


def _notes(candidate: Candidate, bounds: Bounds) -> tuple[str, ...]:
    shape = "geometric-like" if candidate.power < 1.1 else "Gaussian-like" if candidate.power > 1.9 else "between both"
    return (
        f"shape near exp(-|z/c|^{candidate.power:.3g}), {shape}; weights then optimised one by one where that helps",
        *promises(bounds),
    )


def promises(bounds: Bounds) -> tuple[str, ...]:
    return (
        f"certified by composition: the delta of all answers is between {bounds.lower:.6g} and {bounds.upper:.6g}",
        "sound for queries chosen adaptively; every answer must use this mechanism",
    )
