"""The terms of a comparison: what all mechanisms share, and what is then measured.

same guarantee       (epsilon, delta), for one answer or for k together: each mechanism has the least noise for it
same variance        (epsilon, variance) or (delta, variance): compare delta or epsilon, respectively
same eta and bound   (epsilon, eta, D) or (delta, eta, D): compare delta or epsilon, respectively
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from countveil.accounting.composition import Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.errors import ParameterError, RequestError
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.privacy import epsilon_order
from countveil.literature.member import Member
from countveil.mechanism.certificate import typical_count
from countveil.numeric.exact_numbers import Number, exp_bounds, integer, log_upper, number

LARGEST_D, LARGEST_ANSWERS = 2000, 1000


class Shared(Enum):
    """What all mechanisms of a comparison have in common."""

    GUARANTEE = "guarantee"
    VARIANCE = "variance"
    ETA = "eta and D"


@dataclass(frozen=True)
class Basis:
    """The terms of one comparison. If one of epsilon and delta is None, it is measured for each mechanism.

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
    answers: int = 1

    def judge(self, member: Member) -> tuple[Fraction, Fraction]:
        """Two figures of a mechanism. It has enough noise if the first is at most the second."""
        if self.shared is Shared.VARIANCE:
            return self.variance or Fraction(0), typical_law(member).variance
        if self.shared is Shared.ETA:
            return typical_law(member).eta, self.eta or Fraction(1)
        return self.delta_of(member), self.delta or Fraction(0)

    def noisy_enough(self, member: Member) -> bool:
        """Whether a mechanism has at least the noise that the terms require; more noise never makes this false."""
        first, second = self.judge(member)
        return first <= second

    def delta_of(self, member: Member) -> Fraction:
        """The delta of all answers of a mechanism at the shared epsilon, cut-off tails included.

        **Guarantee.** One answer is measured exactly; for many, this is the certified upper bound of their composition.
        """
        if self.answers > 1:
            return self._composed_delta(member)
        order, _ = exp_bounds(self.epsilon or Fraction(0))
        return member.delta(order, self.sensitivity)

    def _composed_delta(self, member: Member) -> Fraction:
        measured_on = member.laws if member.source is None else LawsByCount(member.source)
        answer = answer_of(measured_on, self.sensitivity)
        answer = replace(
            answer, slack=answer.slack + member.cut, symmetric=answer.symmetric or _is_mirrored(measured_on)
        )
        return Fraction(Composition([(answer, self.answers)]).upper(self.epsilon or Fraction(0)))

    def privacy_of(self, member: Member) -> tuple[Fraction | None, Fraction]:
        """The (epsilon, delta) of a mechanism: the shared terms give one of the two, the other is measured.

        **Guarantee.** The measured number is rounded up. epsilon is None if no epsilon has the given delta.
        """
        if self.epsilon is not None:
            return self.epsilon, self.delta_of(member)
        target = self.delta or Fraction(0)
        measured_on = member.laws if member.source is None else LawsByCount(member.source)
        order = epsilon_order(measured_on, target, self.sensitivity)
        if order is None:
            return None, target
        # Cut-off tails may raise delta by cut * (1 + E), E up to 2 * order: the law must meet a delta smaller by that.
        spared = target - member.cut * (1 + 2 * order)
        safe = epsilon_order(measured_on, spared, self.sensitivity) if spared > 0 else None
        return (None, target) if safe is None or safe > 2 * order else (log_upper(safe), target)


def typical_law(member: Member) -> Law:
    """The law of the noise at the stationary count or, if counts are limited to a range, in its middle."""
    low, high = member.counts
    return member.laws.law(typical_count(member.laws, low, high))


def _is_mirrored(laws: Laws) -> bool:
    """Whether the law of n mirrors that of hi - n for all n, so that adding a person mirrors removing one."""
    high = laws.hi
    return high is not None and all(laws.law(n) == laws.law(high - n).mirror() for n in range(high // 2 + 1))


def parse(
    epsilon: Number | None,
    delta: Number | None,
    variance: Number | None,
    eta: Number | None,
    D: object,
    sensitivity: object,
    largest_count: object,
    answers: object = 1,
) -> Basis:
    """Check every argument by itself, and then that all together are the terms of one kind of comparison."""
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
            f"got {', '.join(names) or 'nothing'}, which is no basis for a comparison; give (epsilon, delta), "
            "(epsilon, variance), (delta, variance), (epsilon, eta, D) or (delta, eta, D)"
        )
    several = integer("answers", answers, 1, LARGEST_ANSWERS)
    if several > 1 and (shared is not Shared.GUARANTEE or bound is not None):
        raise RequestError("several answers are compared at the same guarantee; give epsilon and delta, without D")
    return Basis(
        shared=shared,
        D=bound,
        sensitivity=integer("sensitivity", sensitivity, 1, 10),
        largest_count=integer("largest_count", largest_count, 2, 300),
        answers=several,
        **values,
    )


def _within(argument: str, given: Number | None, low: str, high: str, allowed: str) -> Fraction | None:
    if given is None:
        return None
    value = number(argument, given, allowed)
    if not Fraction(low) <= value <= Fraction(high):
        raise ParameterError(argument, given, allowed)
    return value
