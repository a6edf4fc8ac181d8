"""Plans by linear program: a law for each small count, with curves held under that of a signed law for k answers.

1. The best signed law for k answers is searched for, as for any plan, with a little of delta kept back.
2. Its curve is taken at a few orders; joined by chords it is the curve of a pair that dominates whatever is below it at
   those orders. While there are too many orders, the one without which k answers cost least is left out.
3. The stationary law is the signed one with its centre a percent lower. That percent is what small counts have to
   spend: on P2 and P3 exactly, where a remap has neither.
4. `design.held` finds the columns below. All of this proposes; `planning` composes the supremum of the curves of all
   columns over all orders, and accepts what is within the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from countveil.accounting import powers
from countveil.accounting.grid import above
from countveil.accounting.pairs import Floats, Pair
from countveil.accounting.searching import search
from countveil.accounting.shapes import Target, normalised
from countveil.design.held import HeldProgram
from countveil.design.linear import NoSolution
from countveil.errors import InfeasibleError
from countveil.law import Columns, Law
from countveil.privacy import hockey_stick
from countveil.rounding import SCALE, symmetric_law
from countveil.search import NoRootError

LARGEST_D = 48
"""Noise up to which the program is small enough to be solved within minutes."""
ORDERS = 8
"""Orders above 1 at which curves are held, at most."""
DIPS = (0.01, 0.03, 0.1)
"""By how much the centre of the stationary law is lower than the signed one's, in the order they are tried."""
EDGE = 0.05
"""The share of delta that the edges of the signed law may take if its D can be smaller for it."""
SPARED = 0.98
"""The share of delta that the chords aim at."""
CLEAR = 1 - 3e-6
"""The share of epsilon that is planned for: where k times the largest loss is epsilon, rounding must not exceed it."""
OUTSIDE = 0.6
"""The edge of the stationary law, at most, of that of the signed law."""
TRIES = 6
STEPS = 200
"""Grid steps in the largest loss."""
_SAME = Fraction(10**6 + 1, 10**6)

Curve = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
"""Orders from 1 on and the heights of a curve at them."""


@dataclass(frozen=True)
class Held:
    """Columns held under a curve, the grid step that suits it, and what is to be said."""

    columns: Columns
    step: float
    notes: tuple[str, ...]


def law_of(half: Floats) -> Law:
    """The integers of P(Z = z), z = 0..D."""
    bits = 64 if float(half.min()) > 2.0**-36 else 96 if float(half.min()) > 2.0**-68 else 128
    return symmetric_law([int(Fraction(float(p)) * (1 << SCALE)) for p in half], bits)


def propose(target: Target, objective: str, n0: int | None = None) -> Held:
    """Columns for k answers: not certified, but for what the solver and rounding are off by within the target."""
    half, curve = _under(replace(target, epsilon=target.epsilon * CLEAR), objective)
    for dip in DIPS:
        law = _dipped(half, dip, curve)
        if law is None:
            continue
        _check_size(law.right)
        try:
            columns, first = HeldProgram(law, *curve).columns(n0)
        except NoSolution:
            continue
        return Held(columns, math.log(curve[0][-1]) / STEPS, _notes(dip, len(curve[0]), first))
    if n0 is None:
        raise InfeasibleError("the program found no columns within this budget", "use method remap")
    raise InfeasibleError(
        f"the program found no columns within this budget that are unbiased from n = {n0} on",
        "raise unbiased_from, or use method remap",
    )


def _under(target: Target, objective: str) -> tuple[Floats, Curve]:
    """A signed law, and its curve at a few orders: what is below it there is within the target."""
    aim = target.delta * SPARED
    for _ in range(TRIES):
        try:
            half = search(replace(target, delta=aim), objective).half
        except NoRootError:
            break
        half = _shortened(half, target)
        _check_size(len(half) - 1)
        curve = _chosen(law_of(half), target)
        found = _composed(*curve, target)
        if found <= target.delta * SPARED:
            return half, curve
        aim *= 0.99 * SPARED * target.delta / found
    raise InfeasibleError("no law was found under whose curve these answers are within the budget", "use method remap")


def _check_size(D: int) -> None:
    if D > LARGEST_D:
        raise InfeasibleError(
            f"method program plans noise up to {LARGEST_D}, and these answers need up to {D}",
            "use method remap, plan fewer answers, or allow more epsilon",
        )


def _shortened(half: Floats, target: Target) -> Floats:
    """Without the tail that takes less than a share of delta: a smaller D is a smaller program."""
    for D in range(3, len(half) - 1):
        if half[D] * target.answers <= EDGE * target.delta:
            return normalised(np.log(half[: D + 1]))
    return half


def _dipped(half: Floats, by: float, curve: Curve) -> Law | None:
    """The law with a lower centre, wider so that its edge leaves something to the columns', under a curve.

    Taking from the centre gives to all else: where that is above the curve, losses are scaled down a little too.
    """
    for flatter in (0.0, by / 10, by / 5, by / 2, by):
        logs = (np.log(half / half[0]) * (1 - flatter)).tolist()
        logs[0] -= by
        while normalised(np.array(logs))[-1] > OUTSIDE * half[-1]:
            logs.append(2 * logs[-1] - logs[-2])
        law = law_of(normalised(np.array(logs)))
        if all(_height(law, E) <= height for E, height in zip(*curve, strict=True)):
            return law
    return None


def _height(law: Law, order: Fraction) -> Fraction:
    """The curve of a law and its shift, at one order."""
    return hockey_stick(law, law.shifted(1), order)


def _chosen(law: Law, target: Target) -> Curve:
    """The curve at its own corners, of which all but a few are left out."""
    orders = [Fraction(1)]
    for ratio in sorted(law.probability(i) / law.probability(i + 1) for i in range(law.right)):
        if ratio > orders[-1] * _SAME:
            orders.append(ratio)
        elif len(orders) > 1:
            orders[-1] = ratio  # rounding makes equal ratios differ: the largest of them counts
    height = {E: _height(law, E) for E in orders}

    def cost(without: int) -> float:
        kept = tuple(orders[:without] + orders[without + 1 :])
        return _composed(kept, tuple(height[E] for E in kept), target)

    while len(orders) > ORDERS + 1:
        del orders[min(range(1, len(orders) - 1), key=cost)]
    return tuple(orders), tuple(height[E] for E in orders)


def chords(orders: tuple[Fraction, ...], heights: tuple[Fraction, ...]) -> Pair:
    """The pair whose curve, and whose mirror image's, joins the heights at orders from 1 on by straight lines."""
    E = [*(1 / order for order in orders[:0:-1]), *orders]
    h = [*(1 - (1 - height) / order for order, height in zip(orders[:0:-1], heights[:0:-1], strict=True)), *heights]
    slopes = [(1 - h[0]) / E[0]]
    slopes += [(h[i] - h[i + 1]) / (E[i + 1] - E[i]) for i in range(len(E) - 1)]
    slopes.append(Fraction(0))
    p = np.array([max(0.0, float(E[i] * (slopes[i] - slopes[i + 1]))) for i in range(len(E))])
    loss = np.array([math.log(order) for order in E])
    return Pair(p[p > 0], loss[p > 0], float(h[-1]))


def _composed(orders: tuple[Fraction, ...], heights: tuple[Fraction, ...], target: Target) -> float:
    """An estimate of the delta of k answers whose curves are on the chords."""
    losses = above([chords(orders, heights)], math.log(orders[-1]) / STEPS)
    return powers.estimate([(losses, target.answers)], target.epsilon)


def _notes(dip: float, orders: int, n0: int) -> tuple[str, ...]:
    return (
        f"a law for each count by linear program, every curve held under that of the best signed law at {orders} "
        "orders and their inverses; order: least bias of small counts, mean squared errors",
        f"P(Y = n | n) = eta from n = 1 on and bias exactly zero from n = {n0} on, at the price of a centre that is "
        f"{dip:.0%} lower than the signed law's",
    )
