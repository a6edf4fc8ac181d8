"""Our own mechanisms on equal terms: never negative, signed, and signed of least variance."""

from __future__ import annotations

import math
from decimal import localcontext
from fractions import Fraction

from countveil.certificate import Terms
from countveil.comparison.basis import Basis, Shared
from countveil.design import design
from countveil.design.linear import NoSolution
from countveil.design.optimal import optimum
from countveil.design.program import ColumnProgram, Model
from countveil.design.remapping import remap_law
from countveil.design.signed import LARGEST_PROGRAM_D
from countveil.errors import InfeasibleError, RequestError
from countveil.exact import decimal_text
from countveil.families.member import Member
from countveil.law import Columns, Law
from countveil.mechanism import Mechanism, bind
from countveil.rounding import PRECISE, exp, proposals, symmetric_law

NONNEGATIVE = "countveil"
SIGNED = "countveil signed"
LEAST_VARIANCE = "countveil variance"
LARGEST_FREE_D = 6000
SPARE = 1 - Fraction(1, 10**7)


def ours(basis: Basis) -> Member:
    """Never negative, by `design`; within a variance, the signed optimum remapped to the non-negative integers."""
    return _as_member(NONNEGATIVE, _best(basis, "nonnegative"))


def ours_signed(basis: Basis) -> Member:
    """Noise independent of n, of least delta (or largest eta) by the closed form or the signed program."""
    return _as_member(SIGNED, _best(basis, "signed"))


def _best(basis: Basis, policy: str) -> Mechanism:
    if basis.shared is Shared.VARIANCE:
        return _within_variance(basis, policy)
    return design(
        epsilon=basis.epsilon,
        delta=basis.delta,
        eta=basis.eta,
        D=basis.D,
        policy=policy,
        sensitivity=basis.sensitivity,
    )


def _as_member(name: str, mechanism: Mechanism) -> Member:
    parameters = {
        "eta": decimal_text(mechanism.eta, 10),
        "D": str(mechanism.D),
        "method": mechanism.method,
        "unbiased_from": str(mechanism.unbiased_from),
    }
    return Member(NONNEGATIVE, name, mechanism.family, Fraction(0), parameters, mechanism.notes[:1], mechanism.counts)


def _bind_law(law: Law, basis: Basis, epsilon: Fraction, policy: str) -> Mechanism:
    """A signed law as the mechanism of a policy."""
    if policy == "signed":
        return bind(Columns(law), Terms(epsilon, policy, "optimal", law.worst_error, sensitivity=basis.sensitivity))
    family = remap_law(law)
    return bind(family, Terms(epsilon, policy, "remap", family.D, sensitivity=basis.sensitivity))


def _within_variance(basis: Basis, policy: str) -> Mechanism:
    """Of least delta for the given epsilon or, by bisection over the epsilon it is made for, of least epsilon."""
    if basis.epsilon is not None:
        return _made(basis, basis.epsilon, policy)
    centre = 2 * math.asinh(1 / math.sqrt(2 * float(basis.variance or 1)))  # of geometric noise with that variance
    low, high = centre / 4, min(20.0, 4 * centre + 1)
    best = None
    for _ in range(24):
        middle = math.sqrt(low * high)
        epsilon = Fraction(decimal_text(Fraction(middle), 8))
        found = _made(basis, epsilon, policy)
        if found.delta <= (basis.delta or 0):
            high, best = middle, found
        else:
            low = middle
    if best is None:
        raise InfeasibleError("no law of this variance has this delta at any epsilon up to 20", "allow more of both")
    return best


def _made(basis: Basis, epsilon: Fraction, policy: str) -> Mechanism:
    """The finished mechanism, within D where D is given: a map to the range needs some room."""
    bound = basis.D or _ample_D(basis, epsilon)
    while True:
        found = _bind_law(_law_of_least_delta(basis, epsilon, bound), basis, epsilon, policy)
        if basis.D is None or found.D <= basis.D:
            return found
        if bound <= 2:
            raise InfeasibleError(f"D = {basis.D} leaves no room for a map to the non-negative counts", "raise D")
        bound = max(2, bound - (found.D - basis.D))


def _ample_D(basis: Basis, epsilon: Fraction) -> int:
    """Where D is free: so large that its edges do not matter, to delta 1e-24 or the delta given."""
    edge = 55.0 if basis.delta is None else 8 - math.log(basis.delta)
    return max(4, min(LARGEST_FREE_D, math.ceil(edge * basis.sensitivity / float(epsilon))))


def _law_of_least_delta(basis: Basis, epsilon: Fraction, D: int) -> Law:
    """The symmetric law on [-D, D] of least delta whose variance is at most V, eta free.

    Without a limit on the variance it is the closed form at the eta where both of its terms are equal. Where that has
    too much variance, the limit binds and the linear program finds the law.
    """
    variance = basis.variance or Fraction(0)
    if basis.sensitivity == 1:
        law = _free_optimum(epsilon, D)
        if law.variance <= variance:
            return law
        D = min(D, max(4, math.ceil(8 * math.sqrt(variance)), math.ceil(20 / float(epsilon))), LARGEST_PROGRAM_D)
    model = Model(epsilon, D, None, None, 0, sensitivity=basis.sensitivity, max_variance=variance, signed=True)
    try:
        left, values = ColumnProgram(model).solve_in_order().columns[0]
    except NoSolution:
        raise InfeasibleError(
            f"the solver gave up on the law of variance {decimal_text(variance, 6)} for epsilon "
            f"{decimal_text(epsilon, 6)} on [-{D}, {D}]",
            "change D, epsilon or the variance a little",
        ) from None
    return symmetric_law(list(values[left:]), 128)


def _free_optimum(epsilon: Fraction, D: int) -> Law:
    """Least delta over all eta: c/(1 + c) with c = (E - 1)/2 * E^D/(E^D - 1), where cut and chain meet."""
    with localcontext(PRECISE):
        E = exp(epsilon)
        power = E**D
        c = (E - 1) / 2 * (power / (power - 1))
        eta = Fraction(c / (1 + c))
    return symmetric_law(proposals(optimum(epsilon, eta, D).half), 128)


def bound_for_variance(basis: Basis) -> int:
    """D as given, or so large that the edge of geometric noise of this variance does not matter."""
    edge = 55.0 if basis.delta is None else 8 - math.log(basis.delta)
    return basis.D or max(4, min(LARGEST_FREE_D, math.ceil(edge * math.sqrt(float(basis.variance or 1) / 2))))


def least_variance(basis: Basis) -> Member:
    """At a guarantee: the signed law of least variance, eta free, by linear program."""
    if basis.shared is not Shared.GUARANTEE:
        raise RequestError("a law of least variance is for a comparison at the same guarantee")
    epsilon, delta = basis.epsilon or Fraction(1), basis.delta or Fraction(0)
    D = basis.D or _best(basis, "signed").D + 2
    model = Model(
        epsilon, min(D, LARGEST_PROGRAM_D), None, delta * SPARE, 0, sensitivity=basis.sensitivity, signed=True
    )
    try:
        left, values = ColumnProgram(model).least_variance().columns[0]
    except NoSolution:
        raise InfeasibleError(
            "the solver gave up on the law of least variance", "change D or epsilon a little"
        ) from None
    law = symmetric_law(list(values[left:]), 128)
    found = bind(Columns(law), Terms(epsilon, "signed", "program", law.worst_error, sensitivity=basis.sensitivity))
    if found.delta > delta:
        raise InfeasibleError("the law of least variance misses the delta by rounding", "change D or delta a little")
    return _as_member(LEAST_VARIANCE, found)
