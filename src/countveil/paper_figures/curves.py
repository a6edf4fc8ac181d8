"""The three deltas of one (epsilon, eta, D): as the paper states it, exact for the same law, and the least possible."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from countveil import privacy
from countveil.design import optimal, paper
from countveil.exact import exp_bounds
from countveil.law import Columns, Law
from countveil.rounding import proposals, symmetric_law

BITS = 192
"""Rounding to 2**-192 is far below every digit that is written."""


@dataclass(frozen=True)
class Three:
    """`stated` is min(1, (2D+1) delta*), a formula; `exact` and `least` are measured on the weights of the two laws."""

    stated: Fraction
    holds: bool
    exact: Fraction
    least: Fraction
    law: Law
    best: Law


def three(epsilon: Fraction, eta: Fraction, D: int) -> Three:
    """The paper's law and the optimum, with their deltas."""
    form = paper.closed_form(epsilon, eta, D)
    law = written(form.half)
    best = written(optimal.optimum(epsilon, eta, D).half)
    return Three(
        stated=form.stated,
        holds=form.holds,
        exact=exact_delta(law, epsilon),
        least=exact_delta(best, epsilon),
        law=law,
        best=best,
    )


def written(half: tuple[Decimal, ...]) -> Law:
    """A symmetric law as integer weights over 2**192."""
    return symmetric_law(proposals(half), BITS)


def exact_delta(law: Law, epsilon: Fraction) -> Fraction:
    """The least delta at epsilon for noise that does not depend on n. **Guarantee.** Rounded up, never down."""
    order, _ = exp_bounds(epsilon)  # e^epsilon rounded DOWN: delta can only grow
    return privacy.delta(Columns(law), order).value
