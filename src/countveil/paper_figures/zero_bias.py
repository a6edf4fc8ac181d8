"""The cost of zero bias from a small count n0 on, in the probability of the exact count.

Counts that are never negative can be unbiased only from some n0 on. For each n0 the linear program over the laws of all
counts computes the largest eta at (epsilon, delta). It is compared with the largest eta of signed counts, which may be
negative: (2 delta + E - 1)/(E + 1) with E = e^epsilon. Values are feasible to 40 digits; a design rounds and certifies
them.

The noise does not depend on n from D + 8 on. If D is large, the laws of large counts are given geometric tails instead.
The status of such a point is `at least`, because eta may be larger without this restriction.
"""

from __future__ import annotations

import math
from fractions import Fraction

from countveil.design.closed_form import largest_eta
from countveil.design.column_program import ColumnProgram, Model
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.linear_program import NoSolution
from countveil.paper_figures.points import Figure, Point, Value, point_of

EPSILONS = ("0.5", "1", "2")
DELTA = Fraction(1, 10**6)
LARGEST_N0 = 8
REACH = 14
"""D is REACH/epsilon, rounded up: the least D of the signed optimum, or a little more."""
FREE = 16
"""Up to this D all laws are free; beyond, large counts are given geometric tails."""
WINDOW = 14
COLUMNS = ("series", "epsilon", "n0", "D", "eta", "share", "status")


def zero_bias() -> Figure:
    """The points of the figure: the largest eta for each n0, the count from which on the bias is zero.

    The status of a point is `ok`; `at least`, if a larger eta may exist; `impossible`, if no mechanism exists; or
    `unsolved`, if the solver failed.
    """
    points: list[Point] = []
    facts = {}
    for text in EPSILONS:
        epsilon = Fraction(text)
        signed = largest_eta(epsilon, DELTA)
        program = _program(epsilon)
        at: dict[str, Value] = {"epsilon": epsilon, "D": program.model.D}
        for n0 in range(1, LARGEST_N0 + 1):
            eta, status = _eta(program, n0)
            facts[f"epsilon_{text}_n0_{n0}"] = status if eta is None else decimal_text(eta, 6, "down")
            share = None if eta is None else min(Fraction(1), eta / signed)
            points.append(point_of(COLUMNS, f"epsilon {text}", **at, n0=n0, eta=eta, share=share, status=status))
        facts[f"epsilon_{text}_signed"] = decimal_text(signed, 6, "down")
        points.append(point_of(COLUMNS, "signed optimum", **at, eta=signed, share=Fraction(1), status="ok"))
    title = "What zero bias from n0 on costs: largest eta at delta 1e-6"
    return Figure("zero-bias", title, COLUMNS, tuple(points), facts, {"eta": "down", "share": "down"})


def _program(epsilon: Fraction) -> ColumnProgram:
    D = math.ceil(REACH / epsilon)
    if D <= FREE:
        return ColumnProgram(Model(epsilon=epsilon, D=D, eta=None, delta=DELTA, n0=0, M=D + 8))
    return ColumnProgram(Model(epsilon=epsilon, D=D, eta=None, delta=DELTA, n0=0, window=WINDOW, reach=D))


def _eta(program: ColumnProgram, n0: int) -> tuple[Fraction | None, str]:
    program.set_unbiased_from(n0)
    try:
        return program.optimise()[program.eta], "ok" if program.model.window is None else "at least"
    except NoSolution as no:
        return None, "unsolved" if no.reason == "failed" else "impossible"
