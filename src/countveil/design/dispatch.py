"""Which designer takes a request: the closed forms, the linear program or the remap.

`auto` takes closed forms wherever they are valid. For policy nonnegative it takes the linear program while the
noise bound is moderate, and the remap beyond, and says so in the notes.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from countveil.design import whole
from countveil.design.linear import NoSolution
from countveil.design.optimal import least_delta
from countveil.design.remapping import Remapper
from countveil.design.request import Question, Request
from countveil.design.signed import SPARE, Signed
from countveil.errors import CountveilError, InfeasibleError, RequestError, SolverError
from countveil.mechanism import Mechanism, annotate
from countveil.search import least_positive

LARGEST_AUTO_PROGRAM_D = 40
LEAST_VISIBLE = Decimal("1e-16")


def dispatch(request: Request) -> Mechanism:
    """The best mechanism for a request, by the designer that its policy and method call for."""
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
            f"method {request.method} is for noise that does not depend on n: promise counts of at least D "
            "(--counts D:), or use --policy floor or --policy signed"
        )
    signed = Signed(replace(request, method="auto", objective="delta"), SPARE)
    if request.method == "remap":
        return _remap(request, signed)
    if request.method == "program":
        return whole.design(request, signed)
    return _choose(request, signed)


def _remap(request: Request, signed: Signed) -> Mechanism:
    try:
        return request.ask(Remapper(request, signed))
    except NoSolution:
        words = "the solver found no map for this law; ask for a larger delta or D, or use method program"
        raise SolverError(words) from None


def _choose(request: Request, signed: Signed) -> Mechanism:
    """The program while it is at its best; the remap where the noise bound is large or the program falls behind."""

    def remapped(why: str) -> Mechanism:
        return annotate(_remap(request, signed), f"auto chose method remap: {why}")

    D = _expected_D(request, signed)
    only_program = request.promised or request.objective != "delta" or request.epsilon == 0
    largest = LARGEST_AUTO_PROGRAM_D if request.sensitivity == 1 else whole.LARGEST_FREE_D
    if not only_program and largest < D:
        return remapped(f"D about {D} is large, and remapping costs no privacy and no time")
    try:
        found = whole.design(request, signed)
    except (SolverError, InfeasibleError) as error:
        if only_program:
            raise
        try:
            return remapped("the program's solver found nothing")
        except CountveilError:
            raise error from None
    if not only_program and request.question is Question.LEAST_DELTA:
        try:
            other = remapped("its delta is far below the program's at this D")
            if 2 * other.delta < found.delta:
                return other
        except CountveilError:
            pass
    return annotate(found, "auto chose method program: P2 and P3 exact for every n from unbiased_from on")


def _expected_D(request: Request, signed: Signed) -> int:
    """The noise bound that matters: D as far as it lowers delta visibly, or the one that signed noise would need."""
    if request.D is None:
        return signed.parameters.D
    if not request.epsilon or request.eta is None:
        return request.D
    step, eta = request.epsilon / request.sensitivity, request.eta
    return least_positive(lambda D: least_delta(step, eta, D) < LEAST_VISIBLE, request.D)


def _noise_never_reaches_zero(independent: Signed) -> bool:
    """Whether the promise n >= D makes every closed form valid."""
    request = independent.request
    low, _ = request.counts
    if low == 0 or request.cap or request.unbiased_from is not None or request.method in ("program", "remap"):
        return False
    try:
        return low >= (independent.parameters.D if request.D is None else request.D)
    except CountveilError:
        return False
