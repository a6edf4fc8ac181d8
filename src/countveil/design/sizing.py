"""How large a whole-domain program is made: which noise bound is used, which columns are explicit, which are tied.

The solver is at its best while deltas are visible to it and columns are few. A smaller noise bound than the promised D
keeps the promise, so D is used only as far as it lowers delta visibly (all of it where method program is asked by name
for the largest eta at D, which creeps up with D in its fourth digit). Up to LARGEST_FREE_D all columns are free;
beyond, columns are tied (see `program`), except for tents, whose sides rise and cannot be tied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from countveil.decimals import decimal
from countveil.design.optimal import is_tent, largest_eta, least_delta
from countveil.design.program import ColumnProgram, Model
from countveil.design.request import Question, Request
from countveil.errors import RequestError

LARGEST_FREE_D = 26
LARGEST_TENT_D = 20
LARGEST_TIED_D = 400
LARGEST_EXPLICIT = 200
LARGEST_TIED_CELLS = 2600
LEAST_DELTA = Fraction(1, 10**16)
THOROUGH_DELTA = Fraction(1, 10**18)
LEAST_SHARE = Fraction(1, 20)


@dataclass(frozen=True)
class Size:
    """By how much D is undercut, for a solver that gave up; and whether all of D is used, however small its cells."""

    spared: int = 0
    thorough: bool = False


def sized_program(
    request: Request,
    epsilon: Fraction,
    D: int,
    eta: Fraction | None,
    delta: Fraction | None,
    size: Size,
    *,
    target: Fraction | None,
    tie: bool,
) -> ColumnProgram:
    """The program for noise up to D, or up to less where more would buy nothing that the solver can see."""
    low, high = request.counts
    if request.cap and low > 0:
        raise RequestError("cap needs counts that begin at 0: say counts 0:HI (--counts 0:500 --cap)")
    small_range = high is not None and high - low <= 2 * _stationary(D) + 2
    if small_range and high is not None and high - low > LARGEST_EXPLICIT:
        raise RequestError(f"counts {low}:{high} with D = {D} is too large for the program; lower D")
    if not small_range:
        D = _useful(request, epsilon, D, eta, target, size)
        if D > LARGEST_TENT_D and eta is not None and epsilon > 0 and is_tent(epsilon, eta, D):
            D = LARGEST_TENT_D  # tied columns cannot rise; a smaller bound keeps the promise
    model = Model(
        epsilon=epsilon,
        D=D,
        eta=eta,
        delta=delta,
        n0=request.unbiased_from or 0,
        lo=low,
        hi=high if small_range else None,
        cap=high if request.cap and small_range else None,
        sensitivity=request.sensitivity,
        singleton=request.objective == "singleton",
        max_variance=request.max_variance,
        symmetric=request.cap and not small_range,
        M=max(low, _stationary(D)),
    )
    can_tie = low == 0 and request.sensitivity == 1 and not model.singleton and epsilon > 0 and D > 4
    if small_range or (D <= LARGEST_FREE_D and not ((tie or (size.thorough and D > 16)) and can_tie)):
        return ColumnProgram(model)
    if not can_tie:
        raise RequestError(
            f"D = {D} is too large for the free program (up to {LARGEST_FREE_D}), which counts LO:, sensitivity "
            "above 1, objective singleton and epsilon 0 need; use method remap or policy signed"
        )
    if D > LARGEST_TIED_D:
        raise RequestError(f"method program goes to D = {LARGEST_TIED_D}; this needs D = {D}: use method remap")
    least = 0 if delta is None else 14 if size.thorough else 8  # tiny deltas want few cells
    window = min(D - 1, max(math.ceil(4 / epsilon), least, (request.unbiased_from or 0) + 2))
    reach = D if size.thorough else min(D, max(math.ceil(10 / epsilon), 3 * least))
    while window * reach > LARGEST_TIED_CELLS and reach > window + 10:
        reach -= 5
    return ColumnProgram(replace(model, window=window, reach=reach, M=None))


def _useful(
    request: Request, epsilon: Fraction, D: int, eta: Fraction | None, target: Fraction | None, size: Size
) -> int:
    """D, or a smaller bound whose delta is far below what is asked for, or below what the solver can see."""
    step = epsilon / request.sensitivity
    least = LEAST_DELTA
    if target is not None:
        least = THOROUGH_DELTA if size.thorough else max(LEAST_DELTA, target * LEAST_SHARE)
    centre = eta if eta is not None else largest_eta(step, least)
    while D > 4 and least_delta(step, centre, D) < decimal(least):
        D -= 1
    return max(D - size.spared, min(D, 2))


def is_thorough(request: Request) -> bool:
    """Whether all of D is worth a try: the method and D are named, and the question is the largest eta."""
    return request.method == "program" and request.question is Question.LARGEST_ETA


def _stationary(D: int) -> int:
    """The stationary count M of the free program: a larger one than D lowers delta a little, until about 2D."""
    return D + (D if D <= 8 else 8 if D <= 16 else 4)
