"""On what terms mechanisms are compared: what they share, and what is then measured.

same guarantee       (epsilon, delta): every mechanism with the least noise that has it; compare the noise
same variance        (epsilon, variance) or (delta, variance): compare delta, or epsilon
same eta and bound   (epsilon, eta, D) or (delta, eta, D): compare delta, or epsilon
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from countveil.certificate import typical_count
from countveil.errors import ParameterError, RequestError
from countveil.exact import Number, exp_bounds, integer, log_upper, number
from countveil.families.member import Member
from countveil.law import Columns, Law
from countveil.privacy import epsilon_order

LARGEST_D = 2000


class Shared(Enum):
    """What all mechanisms of a comparison have in common."""

    GUARANTEE = "guarantee"
    VARIANCE = "variance"
    ETA = "eta and D"


@dataclass(frozen=True)
class Basis:
    """The terms of one comparison. Of epsilon and delta one may be None: it is what is measured.

    `largest_count` is the end N of the range for mechanisms that are defined on 0..N only.
    """

    shared: Shared
    epsilon: Fraction | None
    delta: Fraction | None
    variance: Fraction | None
    eta: Fraction | None
    D: int | None
    sensitivity: int
    largest_count: int

    def judge(self, member: Member) -> tuple[Fraction, Fraction]:
        """Two figures of which the first is at most the second where a member has the noise that the terms ask for."""
        if self.shared is Shared.VARIANCE:
            return self.variance or Fraction(0), typical_law(member).variance
        if self.shared is Shared.ETA:
            return typical_law(member).eta, self.eta or Fraction(1)
        return self.delta_of(member), self.delta or Fraction(0)

    def noisy_enough(self, member: Member) -> bool:
        """Whether a member has at least the noise that the shared terms ask for: monotone in the noise."""
        first, second = self.judge(member)
        return first <= second

    def delta_of(self, member: Member) -> Fraction:
        """The exact delta of a member at the basis' epsilon, what was cut off included."""
        order, _ = exp_bounds(self.epsilon or Fraction(0))
        return member.delta(order, self.sensitivity)

    def privacy_of(self, member: Member) -> tuple[Fraction | None, Fraction]:
        """(epsilon, delta) of a member: the one that is given and the one that is measured.

        **Guarantee.** Both are rounded up. epsilon is None where no epsilon has the given delta.
        """
        if self.epsilon is not None:
            return self.epsilon, self.delta_of(member)
        target = self.delta or Fraction(0)
        measured_on = member.columns if member.source is None else Columns(member.source)
        order = epsilon_order(measured_on, target, self.sensitivity)
        if order is None:
            return None, target
        # The cut may raise delta by cut * (1 + E): ask for that much less, at an order up to twice as large.
        spared = target - member.cut * (1 + 2 * order)
        safe = epsilon_order(measured_on, spared, self.sensitivity) if spared > 0 else None
        return (None, target) if safe is None or safe > 2 * order else (log_upper(safe), target)


def typical_law(member: Member) -> Law:
    """The law of Z at a stationary count or, on a bounded range, in its middle."""
    low, high = member.counts
    return member.columns.column(typical_count(member.columns, low, high))


def parse(
    epsilon: Number | None,
    delta: Number | None,
    variance: Number | None,
    eta: Number | None,
    D: object,
    sensitivity: object,
    largest_count: object,
) -> Basis:
    """Check every argument by itself, then that together they say what is shared."""
    values = {
        "epsilon": _within("epsilon", epsilon, "0.01", "20", "a decimal number from 0.01 to 20"),
        "delta": _within("delta", delta, "1e-18", "0.999", "a decimal number from 1e-18 to 0.999"),
        "variance": _within("variance", variance, "1e-3", "1e4", "a decimal number from 0.001 to 10000"),
        "eta": _within("eta", eta, "0.001", "0.999", "a decimal number from 0.001 to 0.999"),
    }
    bound = None if D is None else integer("D", D, 1, LARGEST_D)
    given = {name for name, value in values.items() if value is not None}
    one = len(given & {"epsilon", "delta"}) == 1
    if given == {"epsilon", "delta"}:
        shared = Shared.GUARANTEE
    elif one and "variance" in given and "eta" not in given:
        shared = Shared.VARIANCE
    elif one and "eta" in given and "variance" not in given and bound is not None:
        shared = Shared.ETA
    else:
        names = [name for name in values if name in given] + (["D"] if bound is not None else [])
        raise RequestError(
            f"{', '.join(names) or 'nothing'} given, which is no basis for a comparison; give (epsilon, delta), "
            "(epsilon, variance), (delta, variance), (epsilon, eta, D) or (delta, eta, D)"
        )
    return Basis(
        shared=shared,
        D=bound,
        sensitivity=integer("sensitivity", sensitivity, 1, 10),
        largest_count=integer("largest_count", largest_count, 2, 300),
        **values,
    )


def _within(argument: str, given: Number | None, low: str, high: str, allowed: str) -> Fraction | None:
    if given is None:
        return None
    value = number(argument, given, allowed)
    if not Fraction(low) <= value <= Fraction(high):
        raise ParameterError(argument, given, allowed)
    return value
