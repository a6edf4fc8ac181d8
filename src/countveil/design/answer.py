"""Which designer answers a request.

`auto` takes closed forms wherever they are valid. For policy nonnegative it takes the linear program while the
noise bound is moderate, and the remap beyond, and says so in the notes.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from countveil.design import remapping, signed, whole
from countveil.design.optimal import least_delta
from countveil.design.request import Question, Request
from countveil.design.signed import Solver, least_holding
from countveil.design.sizing import LARGEST_FREE_D
from countveil.errors import CountveilError, InfeasibleError, RequestError, SolverError
from countveil.mechanism import Mechanism, annotate

LARGEST_AUTO_PROGRAM_D = 40
LEAST_VISIBLE = Decimal("1e-16")


def answer(request: Request) -> Mechanism:
    """Route a request to the closed forms, the program or the remap."""
    if request.policy != "nonnegative":
        return signed.answer(request)
    if _noise_never_reaches_zero(request):
        return annotate(
            signed.answer(request),
            f"counts are promised to be at least D, so noise independent of n is never negative; counts below "
            f"{request.counts[0]} are treated as {request.counts[0]}, so privacy holds for every dataset all the same",
        )
    if request.method in ("paper", "optimal"):
        raise RequestError(
            f"method {request.method} is for noise that does not depend on n: promise counts of at least D "
            "(--counts D:), or use --policy floor or --policy signed"
        )
    if request.method == "remap":
        return remapping.answer(request)
    if request.method == "program":
        return whole.answer(request)
    return _automatic(request)


def _automatic(request: Request) -> Mechanism:
    """The program while it is at its best; the remap where the noise bound is large or the program falls behind."""
    D = _expected_D(request)
    only_program = request.promised or request.objective != "delta" or request.epsilon == 0
    largest = LARGEST_AUTO_PROGRAM_D if request.sensitivity == 1 else LARGEST_FREE_D
    if not only_program and largest < D:
        return _remapped(request, f"D about {D} is large, and remapping costs no privacy and no time")
    try:
        found = whole.answer(request)
    except (SolverError, InfeasibleError) as error:
        if only_program:
            raise
        try:
            return _remapped(request, "the program's solver found nothing")
        except CountveilError:
            raise error from None
    if not only_program and request.question is Question.LEAST_DELTA:
        try:
            other = _remapped(request, "its delta is far below the program's at this D")
            if 2 * other.delta < found.delta:
                return other
        except CountveilError:
            pass
    return annotate(found, "auto chose method program: P2 and P3 exact for every n from unbiased_from on")


def _remapped(request: Request, why: str) -> Mechanism:
    return annotate(remapping.answer(replace(request, method="remap")), f"auto chose method remap: {why}")


def _expected_D(request: Request) -> int:
    """The noise bound that matters: D as far as it lowers delta visibly, or the one that signed noise would need."""
    if request.D is None:
        return Solver(replace(request, policy="signed", method="auto", cap=False)).parameters()[2]
    if request.epsilon and request.eta is not None:
        step = request.epsilon / request.sensitivity
        useful = least_holding(lambda D: least_delta(step, request.eta or Fraction(0), D) < LEAST_VISIBLE, request.D)
        return min(request.D, useful)
    return request.D


def _noise_never_reaches_zero(request: Request) -> bool:
    """Whether the promise n >= D makes every closed form valid."""
    low, _ = request.counts
    if low == 0 or request.cap or request.unbiased_from is not None or request.method in ("program", "remap"):
        return False
    if request.D is not None:
        return low >= request.D
    try:
        return low >= _expected_D(request)
    except CountveilError:
        return False
