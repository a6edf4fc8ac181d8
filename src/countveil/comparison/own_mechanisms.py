"""Our own mechanisms for the shared terms of a comparison: never negative, signed, and signed of least variance."""

from __future__ import annotations

import math
from decimal import localcontext
from fractions import Fraction

from countveil.comparison.basis import Basis, Shared
from countveil.design import design
from countveil.design.closed_form import optimum
from countveil.design.column_program import ColumnProgram, Model
from countveil.design.remap.designer import remap_law
from countveil.design.signed import LARGEST_PROGRAM_D
from countveil.errors import InfeasibleError, RequestError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, exp, proposals, symmetric_law
from countveil.literature.member import Member
from countveil.mechanism.certificate import Policy, Terms
from countveil.mechanism.mechanism import Mechanism, bind
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.linear_program import NoSolution
from countveil.planning import plan

NONNEGATIVE = "countveil"
SIGNED = "countveil signed"
LEAST_VARIANCE = "countveil variance"
LARGEST_FREE_D = 6000
SPARE = 1 - Fraction(1, 10**7)


def ours(basis: Basis) -> Member:
    """Our never-negative mechanism from `design`; for a shared variance, the remapped signed law of least delta."""
    return _as_member(NONNEGATIVE, _best(basis, "nonnegative"))


def ours_signed(basis: Basis) -> Member:
    """Our signed mechanism of least delta or largest eta, by the closed form or the linear program."""
    return _as_member(SIGNED, _best(basis, "signed"))


def _best(basis: Basis, policy: Policy) -> Mechanism:
    if basis.shared is Shared.VARIANCE:
        return _within_variance(basis, policy)
    if basis.answers > 1:
        return plan(
            epsilon=basis.epsilon or 0,
            delta=basis.delta or 0,
            answers=basis.answers,
            policy="signed" if policy == "signed" else "nonnegative",
            sensitivity=basis.sensitivity,
        ).mechanism
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
    return Member(NONNEGATIVE, name, mechanism.laws, Fraction(0), parameters, mechanism.notes[:1], mechanism.counts)


def _bind_law(law: Law, basis: Basis, epsilon: Fraction, policy: Policy) -> Mechanism:
    """The mechanism made of a signed law: unchanged for policy signed, else remapped to be never negative."""
    if policy == "signed":
        return bind(LawsByCount(law), Terms(epsilon, policy, "optimal", law.worst_error, sensitivity=basis.sensitivity))
    laws = remap_law(law)
    return bind(laws, Terms(epsilon, policy, "remap", laws.D, sensitivity=basis.sensitivity))


def _within_variance(basis: Basis, policy: Policy) -> Mechanism:
    """The mechanism with the shared variance and least delta or, if delta is shared, least epsilon.

    The least epsilon is found by bisection.
    """
    if basis.epsilon is not None:
        return _make_within_D(basis, basis.epsilon, policy)
    centre = 2 * math.asinh(1 / math.sqrt(2 * float(basis.variance or 1)))  # of geometric noise with that variance
    low, high = centre / 4, min(20.0, 4 * centre + 1)
    best = None
    for _ in range(24):
        middle = math.sqrt(low * high)
        epsilon = Fraction(decimal_text(Fraction(middle), 8))
        mechanism = _make_within_D(basis, epsilon, policy)
        if mechanism.delta <= (basis.delta or 0):
            high, best = middle, mechanism
        else:
            low = middle
    if best is None:
        raise InfeasibleError(
            "no law of this variance has this delta at any epsilon up to 20", "raise the variance or delta"
        )
    return best


def _make_within_D(basis: Basis, epsilon: Fraction, policy: Policy) -> Mechanism:
    """The mechanism of least delta with at most the shared variance; if D is given, its error is at most D.

    A remap adds to the error, so D of the signed law is lowered until the remapped law fits.
    """
    bound = basis.D or _ample_D(basis, epsilon)
    while True:
        mechanism = _bind_law(_law_of_least_delta(basis, epsilon, bound), basis, epsilon, policy)
        if basis.D is None or mechanism.D <= basis.D:
            return mechanism
        if bound <= 2:
            raise InfeasibleError(f"D = {basis.D} leaves no room for a remap to non-negative counts", "raise D")
        bound = max(2, bound - (mechanism.D - basis.D))


def _ample_D(basis: Basis, epsilon: Fraction) -> int:
    """The D to use if none is given: cutting the noise at D costs a delta of about 1e-24, or far less than is given."""
    edge = 55.0 if basis.delta is None else 8 - math.log(basis.delta)
    return max(4, min(LARGEST_FREE_D, math.ceil(edge * basis.sensitivity / float(epsilon))))


def _law_of_least_delta(basis: Basis, epsilon: Fraction, D: int) -> Law:
    """The symmetric law on [-D, D] of least delta whose variance is at most the shared one; eta is free.

    Without a limit on the variance this is the closed form at the eta where both terms of its delta are equal. If that
    law has too much variance, the linear program computes the law.
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
            f"the solver failed to compute the law of variance {decimal_text(variance, 6)} for epsilon "
            f"{decimal_text(epsilon, 6)} on [-{D}, {D}]",
            "change D, epsilon or the variance a little",
        ) from None
    return symmetric_law(list(values[left:]), 128)


def _free_optimum(epsilon: Fraction, D: int) -> Law:
    """The symmetric law on [-D, D] of least delta over all eta.

    It has eta = c/(1 + c) with c = (E - 1)/2 * E^D/(E^D - 1) and E = e^epsilon, where the two terms of its delta are
    equal.
    """
    with localcontext(PRECISE):
        E = exp(epsilon)
        power = E**D
        c = (E - 1) / 2 * (power / (power - 1))
        eta = Fraction(c / (1 + c))
    return symmetric_law(proposals(optimum(epsilon, eta, D).half), 128)


def bound_for_variance(basis: Basis) -> int:
    """The given D or, if there is none, a D at which truncating geometric noise of this variance hardly changes it."""
    edge = 55.0 if basis.delta is None else 8 - math.log(basis.delta)
    return basis.D or max(4, min(LARGEST_FREE_D, math.ceil(edge * math.sqrt(float(basis.variance or 1) / 2))))


def least_variance(basis: Basis) -> Member:
    """For a shared guarantee: the signed law of least variance, with eta free, by linear program."""
    if basis.shared is not Shared.GUARANTEE:
        raise RequestError("the law of least variance is only compared at the same guarantee; give epsilon and delta")
    if basis.answers > 1:
        raise RequestError("the law of least variance is for one answer; for several, compare countveil-signed")
    epsilon, delta = basis.epsilon or Fraction(1), basis.delta or Fraction(0)
    D = basis.D or _best(basis, "signed").D + 2
    model = Model(
        epsilon, min(D, LARGEST_PROGRAM_D), None, delta * SPARE, 0, sensitivity=basis.sensitivity, signed=True
    )
    try:
        left, values = ColumnProgram(model).least_variance().columns[0]
    except NoSolution:
        raise InfeasibleError(
            "the solver failed to compute the law of least variance", "change D or epsilon a little"
        ) from None
    law = symmetric_law(list(values[left:]), 128)
    mechanism = bind(
        LawsByCount(law), Terms(epsilon, "signed", "program", law.worst_error, sensitivity=basis.sensitivity)
    )
    if mechanism.delta > delta:
        raise InfeasibleError("after rounding, the law of least variance exceeds delta", "change D or delta a little")
    return _as_member(LEAST_VARIANCE, mechanism)
