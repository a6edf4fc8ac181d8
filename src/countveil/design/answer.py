"""Which designer answers a request.

`auto` takes closed forms wherever they are valid. For policy nonnegative it takes the linear program while the
noise bound is moderate, and the remap beyond, and says so in the notes.
"""

from __future__ import annotations

from dataclasses import replace

from countveil.certify import annotate
from countveil.design import remapping, signed, whole
from countveil.design.request import Request
from countveil.design.signed import Solver
from countveil.errors import CountveilError, RequestError, SolverError
from countveil.mechanism import Mechanism

LARGEST_AUTO_PROGRAM_D = 40


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
    D = _expected_D(request)
    if request.promised or request.objective == "singleton" or D <= LARGEST_AUTO_PROGRAM_D or request.epsilon == 0:
        try:
            mechanism = whole.answer(replace(request, method="program"))
            return annotate(mechanism, "auto chose method program: P2 and P3 exact for every n from unbiased_from on")
        except SolverError:
            why = "the program's solver gave up"
    else:
        why = f"D about {D} is large, and remapping costs no privacy and no time"
    return annotate(remapping.answer(replace(request, method="remap")), f"auto chose method remap: {why}")


def _expected_D(request: Request) -> int:
    """D, or the one that signed noise would need."""
    if request.D is not None:
        return request.D
    return Solver(replace(request, policy="signed", method="auto", cap=False)).parameters()[2]


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
