"""From a budget and a number of answers to the best mechanism, certified for all answers together.

The best *signed* law for k answers is searched for (`searching`), rounded to integers, and its composed delta is
certified on those. Policy nonnegative makes it never negative by a remap: post-processing, so that the curve of all
answers is the signed law's. No column is corrected to a bias of exactly zero, which would cost k * share * (1 + E).
Method program has a law for each small count instead (`programmed`), certified by the supremum of all their curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.pairs import Floats, answer_of, float_below
from countveil.accounting.programmed import law_of, propose
from countveil.accounting.searching import Found, search
from countveil.accounting.shapes import LARGEST_D, Target, composed_delta, normalised
from countveil.certificate import LEVEL_95, Terms, margin_95
from countveil.design import design
from countveil.design.remapping import remap_nearly
from countveil.design.unsigned import described, details
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.exact import decimal_text, log_upper
from countveil.law import ColumnFamily, Columns, Law
from countveil.mechanism import Mechanism, bind
from countveil.privacy import epsilon_order
from countveil.remap import Remap
from countveil.search import NoRootError, find_root

LISTED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
ATTEMPTS = 8
RETRIES = 3
LARGE_SHARE = 2
"""Epsilon of one answer from which on sharing evenly is as good as anything."""
LARGEST_SHARE = Fraction(20)
"""More epsilon for one answer than this has no use: it is exact but for a few in a billion."""
AIMED = 1 - 5e-5
"""Share of delta that the search aims at: rounding takes some, and a law just below is as good."""
EDGES = (1.0, 0.1, 0.01)
"""Scales of the share of delta that edges may take, in the order they are tried."""
FINER = (1.0, 2.0, 3.0)


@dataclass(frozen=True)
class Ask:
    """What a plan is asked for, checked."""

    epsilon: Fraction
    delta: Fraction
    answers: int
    policy: str = "nonnegative"
    objective: str = "variance"
    neighbours: str = "add-remove"
    cells: int = 1
    sensitivity: int = 1
    unbiased_from: int | None = None
    max_bias: Fraction | None = None
    method: str = "remap"

    @property
    def pairs(self) -> int:
        """How many pairs are composed: a replaced person moves one cell up and one down."""
        return self.answers * self.cells * (2 if self.neighbours == "replace" else 1)

    @property
    def target(self) -> Target:
        return Target(float(self.epsilon), float(self.delta) * AIMED, self.pairs, self.sensitivity)


@dataclass(frozen=True)
class Plan:
    """k answers of one mechanism within (epsilon, delta): `certified` bounds their delta, all together."""

    ask: Ask
    mechanism: Mechanism
    certified: Bounds
    notes: tuple[str, ...]
    price_list: tuple[dict[str, object], ...] = ()

    @property
    def answers(self) -> int:
        return self.ask.answers

    def describe(self) -> dict[str, object]:
        """As plain JSON values."""
        ask = self.ask
        return {
            "schema_version": 1,
            "answers": ask.answers,
            "epsilon": decimal_text(ask.epsilon),
            "delta": decimal_text(Fraction(self.certified.upper), rounding="up"),
            "delta_lower": decimal_text(Fraction(self.certified.lower), rounding="down"),
            "delta_allowed": decimal_text(ask.delta),
            "policy": ask.policy,
            "method": None if ask.policy == "signed" else self.mechanism.method,
            "objective": ask.objective,
            "neighbours": ask.neighbours,
            "cells": ask.cells,
            "sensitivity": ask.sensitivity,
            "per_answer": self.mechanism.describe(),
            "price_list": list(self.price_list),
            "notes": list(self.notes),
        }


def make_plan(ask: Ask) -> Plan:
    """The best mechanism for the answers asked for, certified under composition."""
    if ask.pairs == 1:
        return _single(ask)
    if ask.epsilon > LARGE_SHARE * ask.pairs:
        with suppress(CountveilError):
            return _shared(ask)
    if ask.method == "program":
        return _by_program(ask)
    for edge in EDGES:
        with suppress(NoRootError, InfeasibleError):
            return _certified(ask, search(ask.target, ask.objective, edge=edge))
    raise InfeasibleError(
        f"no plan of {ask.answers} answers with epsilon {decimal_text(ask.epsilon)} and delta "
        f"{decimal_text(ask.delta)} was found with noise up to {LARGEST_D}",
        "allow more epsilon or delta, or plan fewer answers",
    )


def estimate(ask: Ask) -> ColumnFamily:
    """About the columns of a plan, quickly: shapes between geometric and Gaussian, remapped if asked, not certified."""
    if ask.pairs == 1 or ask.epsilon > LARGE_SHARE * ask.pairs:
        epsilon, delta = ask.epsilon / ask.pairs, ask.delta / ask.pairs
        law = design(epsilon=epsilon, delta=delta, policy="signed", sensitivity=ask.sensitivity).family.stationary
    else:
        law = law_of(search(ask.target, ask.objective, polish=False).half)
    return _family(ask, law)


def price_list(plan: Plan, steps: Callable[[Iterable[int]], Iterable[int]] = iter) -> tuple[dict[str, object], ...]:
    """Prices of 1, 2, 5, ... 1000 answers: estimates, but for the plan that was made, whose own figures stand there."""
    counts = sorted({*LISTED, plan.answers})
    rows = []
    for k in steps(counts):
        made = k == plan.answers
        with suppress(NoRootError, InfeasibleError, RequestError):
            family = plan.mechanism.family if made else estimate(replace(plan.ask, answers=k))
            D = plan.mechanism.D if made else _bound(family)
            rows.append({"answers": k, **_price(family, D), "chosen": made})
    return tuple(rows)


def _price(family: ColumnFamily, D: int) -> dict[str, object]:
    """How accurate an answer is: of a typical count, but for `margin_95`, which holds for every count."""
    law = family.stationary
    return {
        "variance": decimal_text(law.variance, 6),
        "margin_95": margin_95(family),
        "typical_margin_95": law.margin(LEVEL_95),
        "eta": decimal_text(law.eta, 6),
        "D": D,
    }


def _single(ask: Ask) -> Plan:
    """One answer is a design."""
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
    lower = Composition([(answer_of(mechanism.family, ask.sensitivity), 1)]).lower(float(ask.epsilon))
    notes = ("one answer: the design for (epsilon, delta), of largest eta, which serves every objective here",)
    return Plan(ask, mechanism, Bounds(min(lower, delta), delta, upper), notes)


def _shared(ask: Ask) -> Plan:
    """So much epsilon for each answer that the best for all is the best for one, with even shares of both."""
    epsilon = min(ask.epsilon / ask.pairs, LARGEST_SHARE)
    delta = ask.delta / ask.pairs * Fraction(AIMED)
    if ask.method == "program":
        policy, n0 = "nonnegative", ask.unbiased_from
        mechanism = design(epsilon=epsilon, delta=delta, policy=policy, method="program", unbiased_from=n0)
    else:
        mechanism = design(epsilon=epsilon, delta=delta, policy="signed", sensitivity=ask.sensitivity)
    if ask.policy == "nonnegative" and ask.method == "remap":
        mechanism = _mechanism(ask, _family(ask, mechanism.family.stationary))
    bounds = _composed(ask, mechanism.family, 1e-3)
    if Fraction(bounds.upper) > ask.delta:
        raise InfeasibleError("even shares miss the delta", "allow more of it")
    notes = (
        "even shares of epsilon and delta for every answer: with so much epsilon nothing else is better",
        "the law of largest eta, which serves every objective here",
    )
    return Plan(ask, mechanism, bounds, notes)


def _certified(ask: Ask, found: Found) -> Plan:
    """Round, remap if asked, and certify; a law that misses is widened a little and tried again."""
    half, target = found.half, ask.target
    for _ in range(ATTEMPTS):
        law = law_of(half)
        bounds = _composed(ask, Columns(law), found.step)
        if Fraction(bounds.upper) <= ask.delta:
            return Plan(ask, _mechanism(ask, _family(ask, law)), bounds, _notes(found, bounds))
        excess = bounds.upper / float(ask.delta)
        target = replace(target, delta=target.delta / excess**1.2)
        half = _widened(half, target, found.step)
    raise InfeasibleError("edges take too much of delta", "a larger D is needed")


def _by_program(ask: Ask) -> Plan:
    """Columns under a curve, certified; where what is certified misses, under a lower one."""
    target = ask.target
    for _ in range(RETRIES):
        held = propose(target, ask.objective, ask.unbiased_from)
        bounds = _composed(ask, held.columns, held.step)
        if Fraction(bounds.upper) <= ask.delta:
            return Plan(ask, _mechanism(ask, held.columns), bounds, (*held.notes, *_promises(bounds)))
        target = replace(target, delta=target.delta * 0.9 * float(ask.delta) / bounds.upper)
    raise InfeasibleError("the columns that were found miss the delta", "allow more of it, or use method remap")


def _family(ask: Ask, law: Law) -> ColumnFamily:
    """The law, made never negative if asked: post-processing, so that what was composed holds."""
    if ask.policy == "signed":
        return Columns(law)
    if min(law.left, law.right) < 2:
        raise InfeasibleError("next to no noise is needed, and none of it can be moved", "choose a smaller epsilon")
    try:
        return remap_nearly(law, ask.unbiased_from, ask.max_bias)
    except InfeasibleError as error:
        raise RequestError(str(error)) from None  # another law would not help


def _composed(ask: Ask, family: ColumnFamily, step: float) -> Bounds:
    """The tightest of a few grids: every one is an upper and a lower bound."""
    terms = [(answer_of(family, ask.sensitivity), ask.answers)]
    usual = Composition(terms, ask.neighbours, ask.cells)
    found = usual.delta(float_below(ask.epsilon))
    for finer in FINER:
        if Fraction(found.upper) <= ask.delta:
            break
        other = Composition(terms, ask.neighbours, ask.cells, chosen_step=step / finer).delta(float_below(ask.epsilon))
        lower, upper = max(found.lower, other.lower), min(found.upper, other.upper)
        found = Bounds(lower, (lower * upper) ** 0.5, upper)
    return found


def _widened(half: Floats, target: Target, step: float) -> Floats:
    """The law with its logarithms scaled down until it meets the target."""
    logs = np.log(half / half[0])

    def lack(s: float) -> float:
        found = composed_delta(normalised(logs * np.exp(-s)), target, step)
        return float(np.log(max(found, 1e-300) / target.delta))

    try:
        return normalised(logs * np.exp(-find_root(lack, 0.0, step=1e-4)))
    except NoRootError:
        raise InfeasibleError("edges take too much of delta", "a larger D is needed") from None


def _mechanism(ask: Ask, family: ColumnFamily) -> Mechanism:
    """Judged alone at the epsilon where one answer has its even share of delta."""
    share = ask.delta / ask.pairs
    order = epsilon_order(family, share, ask.sensitivity)
    epsilon = ask.epsilon if order is None else min(ask.epsilon, log_upper(order, 6))
    return bind(
        family,
        Terms(
            epsilon=epsilon,
            policy=ask.policy,
            method="program" if ask.policy == "signed" else ask.method,
            D=_bound(family),
            sensitivity=ask.sensitivity,
            notes=(
                f"planned for {ask.answers} answers within epsilon {decimal_text(ask.epsilon)}, delta "
                f"{decimal_text(ask.delta)} together; epsilon and delta here are those of one answer alone",
                *((described(family),) if isinstance(family, Remap) else ()),
            ),
            details=details(family, ask.unbiased_from) if isinstance(family, Remap) else None,
        ),
    )


def _bound(family: ColumnFamily) -> int:
    """D: a remap states its own."""
    return family.D if isinstance(family, Remap) else family.stationary.worst_error


def _notes(found: Found, bounds: Bounds) -> tuple[str, ...]:
    shape = "geometric-like" if found.power < 1.1 else "Gaussian-like" if found.power > 1.9 else "between both"
    return (
        f"shape near exp(-|z/c|^{found.power:.3g}), {shape}; weights then optimised one by one where that helps",
        *_promises(bounds),
    )


def _promises(bounds: Bounds) -> tuple[str, ...]:
    return (
        f"certified by composition: the delta of all answers is between {bounds.lower:.6g} and {bounds.upper:.6g}",
        "sound for queries chosen adaptively; every answer must use this mechanism",
    )
