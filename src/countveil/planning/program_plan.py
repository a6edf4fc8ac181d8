"""Plans by linear program: a law for each small count, and privacy curves below one that is good for k answers.

The privacy curve of two laws is the function delta(E) of the order E = e^epsilon.

1. Search for the best signed law for k answers, as for any plan, with a small part of delta in reserve.
2. Evaluate the curve of that law at a few orders, and join the values by straight lines. The result dominates: laws
   whose curves are below it at those orders are below it everywhere. While there are too many orders, drop the one
   whose removal costs least for k answers.
3. The stationary law is the signed law with its centre lowered by a percent. The laws of small counts use that percent
   for what a remap does not have: an exact P(Y = n) = eta (P2) and a bias of exactly zero (P3).
4. `curve_program` finds the laws of small counts. These steps only propose; `plan` composes the largest of the curves
   of all laws over all orders, and accepts laws within the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from countveil.accounting import convolution
from countveil.accounting.loss_grid import above
from countveil.accounting.privacy_loss import Floats, Pair
from countveil.errors import InfeasibleError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.privacy import hockey_stick
from countveil.laws.rounding import SCALE, symmetric_law
from countveil.numeric.linear_program import NoSolution
from countveil.numeric.search import NoRootError
from countveil.planning.curve_program import CurveProgram
from countveil.planning.shape_search import search
from countveil.planning.shapes import Target, normalise

LARGEST_D = 48
"""The largest D for which the program is solved within minutes."""
ORDERS = 8
"""Privacy curves are bounded at no more than this many orders above 1."""
DIPS = (0.01, 0.03, 0.1)
"""Shares by which the centre of the stationary law is lowered, in the order in which they are tried."""
EDGE = 0.05
"""Cutting the signed law at its ends may take up to this share of delta, to make D smaller."""
SPARED = 0.98
"""The curve that bounds those of all laws aims at this share of delta."""
CLEAR = 1 - 3e-6
"""The share of epsilon to aim at. If k times the largest loss is exactly epsilon, rounding must not push it beyond."""
OUTSIDE = 0.6
"""The outermost weight of the stationary law is at most this share of that of the signed law."""
TRIES = 6
STEPS = 200
"""The largest privacy loss spans this many grid steps."""
_SAME = Fraction(10**6 + 1, 10**6)

Curve = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
"""A pair (orders from 1 on, the heights of a privacy curve at these orders)."""


@dataclass(frozen=True)
class ProposedLaws:
    """Proposed laws, not certified: the laws, a suitable grid step for composing them, and notes for the plan."""

    laws: LawsByCount
    step: float
    notes: tuple[str, ...]


def law_of(half: Floats) -> Law:
    """The symmetric law with P(Z = z) proportional to half[|z|], rounded to integer weights."""
    bits = 64 if float(half.min()) > 2.0**-36 else 96 if float(half.min()) > 2.0**-68 else 128
    return symmetric_law([int(Fraction(float(p)) * (1 << SCALE)) for p in half], bits)


def propose(target: Target, objective: str, n0: int | None = None) -> ProposedLaws:
    """Laws for k answers, not certified: within the target except for errors of the solver and of rounding."""
    half, curve = _find_curve(replace(target, epsilon=target.epsilon * CLEAR), objective)
    for dip in DIPS:
        law = _lower_centre(half, dip, curve)
        if law is None:
            continue
        _check_size(law.right)
        try:
            program = CurveProgram(law, *curve)
            laws, first = program.solve(n0)
        except NoSolution:
            continue
        notes = (*_notes(dip, len(curve[0]), first), *program.program.notes)
        return ProposedLaws(laws, math.log(curve[0][-1]) / STEPS, notes)
    if n0 is None:
        raise InfeasibleError("the program found no laws within this budget", "use method remap")
    raise InfeasibleError(
        f"the program found no laws within this budget that are unbiased from n = {n0} on",
        "raise unbiased_from, or use method remap",
    )


def _find_curve(target: Target, objective: str) -> tuple[Floats, Curve]:
    """A signed law, and a curve at a few orders: k answers with laws below that curve are within the target."""
    aim = target.delta * SPARED
    for _ in range(TRIES):
        try:
            half = search(replace(target, delta=aim), objective).half
        except NoRootError:
            break
        half = _shorten(half, target)
        _check_size(len(half) - 1)
        curve = _choose_curve(law_of(half), target)
        delta = _estimate_delta(*curve, target)
        if delta <= target.delta * SPARED:
            return half, curve
        aim *= 0.99 * SPARED * target.delta / delta
    raise InfeasibleError("no signed law has a curve that keeps these answers within the budget", "use method remap")


def _check_size(D: int) -> None:
    if D > LARGEST_D:
        raise InfeasibleError(
            f"method program allows noise up to D = {LARGEST_D}, but these answers need D = {D}",
            "use method remap, plan fewer answers, or allow more epsilon",
        )


def _shorten(half: Floats, target: Target) -> Floats:
    """Cut off the ends of a law that take less than a share of delta: a smaller D makes a smaller program."""
    for D in range(3, len(half) - 1):
        if half[D] * target.answers <= EDGE * target.delta:
            return normalise(np.log(half[: D + 1]))
    return half


def _lower_centre(half: Floats, by: float, curve: Curve) -> Law | None:
    """The law with a lower centre and a smaller outermost weight, which leaves other laws some room below the curve.

    The logarithm of the centre falls by `by`. That raises all other weights; if the law then exceeds the curve, its
    losses are scaled down a little too. None if no such law is below the curve.
    """
    for flatter in (0.0, by / 10, by / 5, by / 2, by):
        logs = (np.log(half / half[0]) * (1 - flatter)).tolist()
        logs[0] -= by
        while normalise(np.array(logs))[-1] > OUTSIDE * half[-1]:
            logs.append(2 * logs[-1] - logs[-2])
        law = law_of(normalise(np.array(logs)))
        if all(_height(law, E) <= height for E, height in zip(*curve, strict=True)):
            return law
    return None


def _height(law: Law, order: Fraction) -> Fraction:
    """The exact delta of a law against its shift by 1, at one order E = e^epsilon."""
    return hockey_stick(law, law.shift(1), order)


def _choose_curve(law: Law, target: Target) -> Curve:
    """The privacy curve of a law against its shift by 1, given by its heights at a few orders.

    The curve consists of straight lines, which meet at the order 1 and at the ratios P(Z = i) / P(Z = i + 1). While
    these orders are too many, the one whose removal costs least for k answers is dropped.
    """
    orders = [Fraction(1)]
    for ratio in sorted(law.probability(i) / law.probability(i + 1) for i in range(law.right)):
        if ratio > orders[-1] * _SAME:
            orders.append(ratio)
        elif len(orders) > 1:
            orders[-1] = ratio  # rounding makes equal ratios differ: the largest of them counts
    height = {E: _height(law, E) for E in orders}

    def cost(without: int) -> float:
        kept = tuple(orders[:without] + orders[without + 1 :])
        return _estimate_delta(kept, tuple(height[E] for E in kept), target)

    while len(orders) > ORDERS + 1:
        del orders[min(range(1, len(orders) - 1), key=cost)]
    return tuple(orders), tuple(height[E] for E in orders)


def chords(orders: tuple[Fraction, ...], heights: tuple[Fraction, ...]) -> Pair:
    """The pair of laws whose privacy curve joins the given heights by straight lines.

    The orders are 1 and above; the mirrored pair has the same curve.
    """
    E = [*(1 / order for order in orders[:0:-1]), *orders]
    h = [*(1 - (1 - height) / order for order, height in zip(orders[:0:-1], heights[:0:-1], strict=True)), *heights]
    slopes = [(1 - h[0]) / E[0]]
    slopes += [(h[i] - h[i + 1]) / (E[i + 1] - E[i]) for i in range(len(E) - 1)]
    slopes.append(Fraction(0))
    p = np.array([max(0.0, float(E[i] * (slopes[i] - slopes[i + 1]))) for i in range(len(E))])
    loss = np.array([math.log(order) for order in E])
    return Pair(p[p > 0], loss[p > 0], float(h[-1]))


def _estimate_delta(orders: tuple[Fraction, ...], heights: tuple[Fraction, ...], target: Target) -> float:
    """An estimate of the delta of k answers, each with the curve that joins the heights by straight lines."""
    losses = above([chords(orders, heights)], math.log(orders[-1]) / STEPS)
    return convolution.estimate([(losses, target.answers)], target.epsilon)


def _notes(dip: float, orders: int, n0: int) -> tuple[str, ...]:
    return (
        f"a law for each count by linear program, every curve held under that of the best signed law at {orders} "
        "orders and their inverses; order: least bias of small counts, mean squared errors",
        f"P(Y = n | n) = eta from n = 1 on and bias exactly zero from n = {n0} on, at the price of a centre that is "
        f"{dip:.0%} lower than the signed law's",
    )
