"""`design` and `make_nonnegative`, and the choice of the designer: closed forms, the linear program or the remap.

`auto` takes closed forms wherever they are valid. For policy nonnegative it takes the linear program if the noise bound
is moderate, else the remap, and the notes say so. The designers import numpy, so they are imported when they are first
needed.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from countveil.design.closed_form import least_delta
from countveil.design.request import DesignMethod, DesignObjective, DesignQuestion, DesignRequest, parse
from countveil.errors import CountveilError, InfeasibleError, RequestError, SolverError
from countveil.mechanism.certificate import Policy
from countveil.mechanism.mechanism import Mechanism, annotate
from countveil.numeric.exact_numbers import Number
from countveil.numeric.search import least_positive

if TYPE_CHECKING:
    from countveil.design.signed import Signed

LARGEST_AUTO_PROGRAM_D = 40
LEAST_VISIBLE = Decimal("1e-16")


def design(
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    eta: Number | None = None,
    D: int | None = None,
    policy: Policy = "nonnegative",
    unbiased_from: int | None = None,
    method: DesignMethod = "auto",
    objective: DesignObjective = "delta",
    max_variance: Number | None = None,
    sensitivity: int = 1,
    counts: str | tuple[int, int | None] | None = None,
    cap: bool = False,
    bits: int | None = None,
) -> Mechanism:
    """A certified mechanism for those of epsilon, delta, eta and D that are given, by the objectives of the question.

    Numbers are exact: decimal texts, ints, Fractions; a float stands for its shortest decimal.

    Args:
        epsilon, delta: The guarantee.
        eta: P(Y = n), the probability that the exact count is released.
        D: The noise bound: a release is at most D away from the count n (with policy floor, from max(n, D)).
        policy: "nonnegative" (never a negative release), "signed" (negative releases are possible) or "floor" (never a
            negative release, because every count below D is treated as D).
        unbiased_from: For policy nonnegative, the count from which on the bias is zero.
        method: How the law is computed; "auto" chooses.
        objective: The property to optimise: "delta", "singleton" (the paper's delta) or "variance".
        max_variance: With objective delta, the largest allowed variance.
        sensitivity: How much one person can change the count.
        counts: The promised range of true counts, as "low:high" or (low, high).
        cap: Whether releases must be at most the promised largest count.
        bits: Weights sum to 2^bits; 64, 96 or 128. The default is the least that is precise enough.

    Returns:
        A Mechanism whose certificate was measured on its integer weights.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: The arguments do not determine one mechanism.
        InfeasibleError: No mechanism has these properties; the message names the nearest.
        SolverError: The linear program was not solved.

    >>> m = design(epsilon="2.18", eta="0.8", D=6, policy="signed", method="paper")
    >>> print(m.describe()["delta"], m.describe()["delta_paper_bound"])
    0.0153693741279118 0.0643216812955984
    """
    return dispatch(
        parse(
            epsilon=epsilon,
            delta=delta,
            eta=eta,
            D=D,
            policy=policy,
            unbiased_from=unbiased_from,
            method=method,
            objective=objective,
            max_variance=max_variance,
            sensitivity=sensitivity,
            counts=counts,
            cap=cap,
            bits=bits,
        )
    )


def make_nonnegative(
    signed: Mechanism, *, unbiased_from: int | None = None, max_bias: Number | None = None
) -> Mechanism:
    """The signed mechanism followed by a fixed random map to 0, 1, 2, ...: the same epsilon and delta.

    Without `unbiased_from` and `max_bias`, the map only pulls small releases down, and the bias is tiny from about two
    standard deviations on. With one of them, a linear program finds the map of least total mean squared error whose
    bias is small enough. Laws too wide for that program get a simpler map.

    Args:
        signed: A mechanism of policy signed.
        unbiased_from: The bias is at most `max_bias` from this count on. Default, if `max_bias` is given: 1.5 standard
            deviations.
        max_bias: The largest allowed bias. Default, if `unbiased_from` is given: 1e-8 or, where that raises errors too
            much, the least bias tried with which no count has a mean squared error above 5/4 of the variance.

    Returns:
        The mechanism that releases never-negative counts.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: The mechanism is not signed.
        InfeasibleError: No map has so little bias.

    >>> signed = design(epsilon="0.2", delta="1e-6", policy="signed")
    >>> m = make_nonnegative(signed, unbiased_from=8)
    >>> m.certificate.never_negative, m.certificate.nearly_unbiased_from, m.delta == signed.delta
    (True, 8, True)
    """
    from countveil.design.remap import postprocessing

    return postprocessing.make_nonnegative(signed, unbiased_from=unbiased_from, max_bias=max_bias)


def dispatch(request: DesignRequest) -> Mechanism:
    """The best mechanism for a request, from the designer for its policy and method."""
    from countveil.design import whole_domain
    from countveil.design.signed import SPARE, Signed

    independent = Signed(request)
    if request.policy != "nonnegative":
        return independent.design()
    if _noise_never_reaches_zero(independent):
        return annotate(
            independent.design(),
            f"counts are promised to be at least D, so noise independent of n is never negative; counts below "
            f"{request.counts[0]} are treated as {request.counts[0]}, so privacy holds for every dataset all the same",
        )
    if request.method in ("paper", "optimal"):
        raise RequestError(
            f"method {request.method} is for noise that does not depend on n; promise counts of at least D "
            "(--counts D:), or use --policy floor or --policy signed"
        )
    signed = Signed(replace(request, method="auto", objective="delta"), SPARE)
    if request.method == "remap":
        return _remap(request, signed)
    if request.method == "program":
        return whole_domain.design(request, signed)
    return _choose(request, signed)


def _remap(request: DesignRequest, signed: Signed) -> Mechanism:
    from countveil.design.remap.designer import Remapper
    from countveil.numeric.linear_program import NoSolution

    try:
        return request.ask(Remapper(request, signed))
    except NoSolution:
        message = "the solver found no map for this law; raise delta or D, or use method program"
        raise SolverError(message) from None


def _choose(request: DesignRequest, signed: Signed) -> Mechanism:
    """The mechanism for method auto: that of the linear program, or in two cases that of the remap.

    The remap is taken if D is large, or if the program's delta is more than twice that of the remap.
    """
    from countveil.design import whole_domain

    def remap(why: str) -> Mechanism:
        return annotate(_remap(request, signed), f"auto chose method remap: {why}")

    D = _expected_D(request, signed)
    only_program = request.has_promise or request.objective != "delta" or request.epsilon == 0
    largest = LARGEST_AUTO_PROGRAM_D if request.sensitivity == 1 else whole_domain.LARGEST_FREE_D
    if not only_program and largest < D:
        return remap(f"D about {D} is large, and remapping costs no privacy and no time")
    try:
        by_program = whole_domain.design(request, signed)
    except (SolverError, InfeasibleError) as error:
        if only_program:
            raise
        try:
            return remap("the program's solver found nothing")
        except CountveilError:
            raise error from None
    if not only_program and request.question is DesignQuestion.LEAST_DELTA:
        try:
            other = remap("its delta is far below the program's at this D")
            if 2 * other.delta < by_program.delta:
                return other
        except CountveilError:
            pass
    return annotate(by_program, "auto chose method program: P2 and P3 exact for every n from unbiased_from on")


def _expected_D(request: DesignRequest, signed: Signed) -> int:
    """The noise bound that the design will need: as much of the given D as lowers delta visibly.

    If D is not given, it is the noise bound of the signed design.
    """
    if request.D is None:
        return signed.parameters.D
    if not request.epsilon or request.eta is None:
        return request.D
    step, eta = request.epsilon / request.sensitivity, request.eta
    return least_positive(lambda D: least_delta(step, eta, D) < LEAST_VISIBLE, request.D)


def _noise_never_reaches_zero(independent: Signed) -> bool:
    """Whether the signed design answers the request: all counts are promised to be at least D.

    False if the request asks for what only laws that depend on n have (`cap`, `unbiased_from`, method program or
    remap), or if there is no such signed design.
    """
    request = independent.request
    low, _ = request.counts
    if low == 0 or request.cap or request.unbiased_from is not None or request.method in ("program", "remap"):
        return False
    try:
        return low >= (independent.parameters.D if request.D is None else request.D)
    except CountveilError:
        return False
