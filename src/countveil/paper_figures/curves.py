"""The three deltas of one (epsilon, eta, D): as the paper states it, exact for the same law, and the least possible."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from countveil.design import closed_form, paper
from countveil.laws import privacy
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import proposals, symmetric_law
from countveil.numeric.exact_numbers import exp_bounds

BITS = 192
"""Weights are over 2**192, so that rounding changes no digit that is written."""


@dataclass(frozen=True)
class Three:
    """Three deltas at one (epsilon, eta, D): stated, exact and least.

    `stated` is the paper's formula min(1, (2D+1) delta*), `exact` is measured on the paper's law, and `least` on the
    optimal law. `holds` says whether the paper's theorem holds there.
    """

    stated: Fraction
    holds: bool
    exact: Fraction
    least: Fraction
    law: Law
    best: Law


def three(epsilon: Fraction, eta: Fraction, D: int) -> Three:
    """The paper's law and the law of least delta at these parameters, with their deltas."""
    form = paper.closed_form(epsilon, eta, D)
    law = round_law(form.half)
    best = round_law(closed_form.optimum(epsilon, eta, D).half)
    return Three(
        stated=form.stated_delta,
        holds=form.holds,
        exact=exact_delta(law, epsilon),
        least=exact_delta(best, epsilon),
        law=law,
        best=best,
    )


def round_law(half: tuple[Decimal, ...]) -> Law:
    """The symmetric law with P(Z = i) = half[i] as integer weights over 2**192."""
    return symmetric_law(proposals(half), BITS)


def exact_delta(law: Law, epsilon: Fraction) -> Fraction:
    """The least delta at epsilon for noise that does not depend on n. **Guarantee.** Rounded up, never down."""
    order, _ = exp_bounds(epsilon)  # e^epsilon rounded DOWN: delta can only grow
    return privacy.delta(LawsByCount(law), order).value
