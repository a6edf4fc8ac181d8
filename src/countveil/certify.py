"""The only maker of mechanisms: a proposal goes in, a measured Mechanism comes out.

Designers propose probabilities; `certify` rounds them to integer weights over 2^64, 2^96 or 2^128, the
least width at which rounding changes delta by less than a relative 1e-8, and states what those weights have.
A proposal can be poor; a certificate cannot be wrong about the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from countveil import privacy
from countveil.certificate import measure
from countveil.columns import ColumnFamily
from countveil.errors import InfeasibleError
from countveil.exact import exp_bounds
from countveil.mechanism import Mechanism

WIDTHS = (64, 96, 128)
_REFERENCE = 192
_TOLERANCE = Fraction(1, 10**8)

Build = Callable[[int], ColumnFamily]
"""Rounds a proposal to so many bits."""


@dataclass(frozen=True)
class Terms:
    """Under which terms a proposal is judged, and what is to be said about it."""

    epsilon: Fraction
    policy: str
    method: str
    D: int
    sensitivity: int = 1
    counts: tuple[int, int | None] = (0, None)
    bits: int | None = None
    delta_paper_bound: Fraction | None = None
    notes: tuple[str, ...] = ()
    prices: tuple[dict[str, object], ...] = ()
    details: dict[str, object] | None = None


def certify(build: Build, terms: Terms) -> Mechanism:
    """Round, measure, and bind the weights to what they have."""
    bits = terms.bits or enough_bits(build, terms.epsilon, terms.sensitivity)
    return bind(build(bits), terms)


def bind(family: ColumnFamily, terms: Terms) -> Mechanism:
    """The Mechanism of integer columns as they are."""
    return Mechanism(
        family=family,
        certificate=measure(family, terms.epsilon, terms.sensitivity, terms.counts),
        policy=terms.policy,
        method=terms.method,
        D=terms.D,
        counts=terms.counts,
        delta_paper_bound=terms.delta_paper_bound,
        notes=terms.notes,
        prices=terms.prices,
        details=terms.details,
    )


def annotate(mechanism: Mechanism, *notes: str, prices: tuple[dict[str, object], ...] = ()) -> Mechanism:
    """The same mechanism with more said about it."""
    return replace(mechanism, notes=mechanism.notes + notes, prices=prices or mechanism.prices)


def enough_bits(build: Build, epsilon: Fraction, sensitivity: int) -> int:
    """The least width whose rounding changes delta by less than a relative 1e-8."""
    order, _ = exp_bounds(epsilon)
    reference = privacy.delta(build(_REFERENCE), order, sensitivity).value
    for bits in WIDTHS:
        try:
            value = privacy.delta(build(bits), order, sensitivity).value
        except InfeasibleError:
            continue
        if abs(value - reference) <= _TOLERANCE * reference:
            return bits
    return WIDTHS[-1]
