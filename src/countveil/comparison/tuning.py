"""The member of a family with the least noise that meets the terms of a comparison.

Floats only guide the search. The resulting parameter is a short decimal, and `Basis.noisy_enough` confirms that it
gives enough noise: exactly for one answer, by certified composition for many. For families of two parameters, a few
values of one are tried, each with the value of the other that gives the least noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction

from countveil.comparison.basis import Basis, Shared, typical_law
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.literature.member import Member
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import NoRootError, find_root

Contender = Callable[[Basis], Member]

DIGITS = 12
_CLOSE = 1e-11
_CLOSE_MANY, _NEAR_MANY = 5e-6, 2e-5
"""Tolerances for many answers, in the logarithms of the parameter and of delta: composition is not exact either."""
_WIDEST = 60.0
"""Logarithms of ratios are limited to this size."""
PARAMETERS = (0.01, 1000.0)
"""The range of 1/epsilon that all families support."""
SHARES = (Fraction(1, 1000), Fraction(1, 30), Fraction(1, 3))
"""Shares of delta that the ends of bounded noise may take: the larger, the smaller the bound on the noise."""


def tune(
    basis: Basis, member: Callable[[Fraction], Member], limits: tuple[float, float], guess: float, what: str
) -> Member:
    """The member with the least noise that the shared terms allow; `member(x)` makes the member with parameter x.

    Noise must grow with x. x stays within `limits`; if the member at the lower limit is noisy enough, it is returned.
    """
    first, last = math.log(limits[0]), math.log(limits[1])
    close = _CLOSE if basis.answers == 1 else _CLOSE_MANY
    try:
        x = find_root(
            lambda x: _lack(basis, member(short(x))),
            min(max(math.log(guess), first), last),
            limits=(first, last),
            step=0.25,
            widest=math.inf,
            tolerance=close,
            close=1e-13 if basis.answers == 1 else _NEAR_MANY,
        )
    except NoRootError:
        raise InfeasibleError(
            f"{what} noise of any supported parameter is too little for the guarantee",
            "relax epsilon or delta, or allow a larger D",
        ) from None
    for _ in range(60):
        candidate = member(short(x))
        if basis.noisy_enough(candidate):
            return candidate
        x += close
    raise InfeasibleError(f"no {what} noise meets the guarantee", "relax epsilon or delta, or allow a larger D")


def _lack(basis: Basis, member: Member) -> float:
    """The logarithm of the ratio of the two figures of `judge`; positive if the member needs more noise."""
    first, second = basis.judge(member)
    if not first or not second:
        return _WIDEST if first else -_WIDEST
    ratio = first / second
    log = math.log(ratio.numerator) - math.log(ratio.denominator)
    return max(-_WIDEST, min(_WIDEST, log)) or (1e-16 if ratio > 1 else 0.0)


def short(log: float) -> Fraction:
    return Fraction(decimal_text(Fraction(math.exp(log)), DIGITS, "up"))


def by_epsilon(at: Callable[[Fraction], Member], what: str) -> Contender:
    """The contender of a family whose noise grows as its epsilon falls; `at(epsilon)` makes a member."""
    return lambda basis: tune(basis, lambda x: at(inverse(x)), PARAMETERS, spread(basis), what)


def spread(basis: Basis) -> float:
    """A first guess of 1/epsilon, from geometric noise with the shared terms."""
    if basis.shared is Shared.VARIANCE:
        return max(0.05, math.sqrt(float(basis.variance or 1) / 2))
    if basis.shared is Shared.ETA:
        return max(0.05, 1 / (2 * math.atanh(float(basis.eta or Fraction(1, 2)))))
    widening = 1.0 if basis.answers == 1 else math.sqrt(basis.answers * -math.log(basis.delta or 1e-6))
    return basis.sensitivity * widening / float(basis.epsilon or 1)


def inverse(x: Fraction) -> Fraction:
    """The epsilon 1/x as a short decimal, rounded down, because a smaller epsilon has more noise."""
    return Fraction(decimal_text(1 / x, DIGITS, "down"))


def require_sensitivity_1(basis: Basis, what: str) -> None:
    if basis.sensitivity > 1:
        raise RequestError(f"{what} is for sensitivity 1 only; compare it without a larger sensitivity")


def require_one_answer(basis: Basis, what: str) -> None:
    if basis.answers > 1:
        raise RequestError(f"{what} is compared for one answer only; leave answers out")


def best_of(basis: Basis, members: Iterable[Callable[[], Member]], what: str) -> Member:
    """The best of several members: least variance for a shared guarantee, else least delta or epsilon.

    Each of `members` makes one member; those that raise a CountveilError are left out. `what` names the family in the
    error that is raised if none is left.
    """
    found: list[tuple[Fraction, Member]] = []
    for make in members:
        with suppress(CountveilError):
            member = make()
            found.append((judge(basis, member), member))
    if not found:
        raise InfeasibleError(f"no {what} noise meets the guarantee", "relax epsilon or delta, or allow a larger D")
    return min(found, key=lambda pair: pair[0])[1]


def judge(basis: Basis, member: Member) -> Fraction:
    """The figure by which members of a family are compared: the smaller, the better."""
    if basis.shared is Shared.GUARANTEE:
        return typical_law(member).variance
    epsilon, delta = basis.privacy_of(member)
    return delta if basis.epsilon is not None else Fraction(10**9) if epsilon is None else epsilon


def edge_depth(basis: Basis, share: Fraction) -> float:
    """ln(1/p), where p is the probability that the noise of one answer may have at one end. With this p, the ends of
    all answers together take the given share of delta.
    """
    delta = basis.delta or Fraction(1, 10**24)
    return math.log(basis.answers * basis.sensitivity / float(delta * share))
