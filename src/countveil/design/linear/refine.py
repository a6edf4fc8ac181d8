"""Iterative refinement: from one basis of the float solver to the next, with exact residuals in between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from countveil.design.linear.fixed import BITS, Bits, Exact, Floats, exponent_of, from_floats, to_floats, top, zeros
from countveil.design.linear.highs import COLD, HINTED, WARM, Attempts, NoSolution, Solver
from countveil.design.linear.point import BASIC, LOWER, UPPER, Basis, Data, Point, Scale, scale_of

SOLVE_BITS = 220
TOLERANCE_BITS = 180
MAX_ROUNDS = 40
MAX_GROWTH = 40
LEAST_GROWTH = 1
MAX_COST = 2.0**60


def refine(data: Data, start: Point, sizes: Exact) -> tuple[Point, int]:
    """The best point that refinement reaches, and the number of float programs solved."""
    solver = Solver(data.matrix)
    scale = scale_of(data.matrix, sizes)
    primal_bits, dual_bits = 0, 0
    if data.cost.any():
        dual_bits = -exponent_of(to_floats(abs(data.cost), scale.columns - BITS))
    attempts = COLD
    if sizes.any():
        attempts = (WARM if start.z.any() else HINTED, *COLD)
    best = point = _corrected(solver, start, scale, primal_bits, dual_bits, attempts)
    growth = MAX_GROWTH
    for rounds in range(1, MAX_ROUNDS):
        if best.violation.bit_length() <= 2 * BITS - TOLERANCE_BITS:
            return best, rounds
        scale = scale_of(data.matrix, point.z)
        primal_bits = _magnification(point.primal_exponent(scale), primal_bits, growth)
        dual_bits = _magnification(point.dual_exponent(scale), dual_bits, growth)
        try:
            point = _corrected(solver, point, scale, primal_bits, dual_bits, (WARM, *COLD))
        except NoSolution as stop:
            if growth <= LEAST_GROWTH:
                if stop.reason == "infeasible":
                    raise
                return best, rounds
            growth, primal_bits, dual_bits = growth // 2, primal_bits // 2, dual_bits // 2
        best = min(best, point, key=lambda candidate: candidate.violation)
    return best, MAX_ROUNDS


def _magnification(exponent: int, before: int, growth: int) -> int:
    """The power of two that brings a violation to about one, within limits; unchanged if there is none."""
    return before if exponent < -TOLERANCE_BITS else max(0, min(-exponent, before + growth))


def _corrected(
    solver: Solver, point: Point, scale: Scale, primal_bits: int, dual_bits: int, attempts: Attempts
) -> Point:
    """The solution of the basis that is optimal in the program magnified around a point."""
    data = point.data
    cost = np.clip(to_floats(point.reduced, scale.columns + (dual_bits - 2 * BITS)), -MAX_COST, MAX_COST)
    shift = (primal_bits - BITS) - scale.columns
    lower, upper = to_floats(data.lower - point.z, shift), to_floats(data.upper - point.z, shift)
    right = to_floats(point.residual, scale.rows + (primal_bits - 2 * BITS))
    solver.load(scale, cost, lower, upper, right)
    basis = solver.solve(point.basis, attempts)
    return _basic_point(data, Basis(data.at_present_bounds(basis.columns), basis.rows), solver, scale)


def _basic_point(data: Data, basis: Basis, solver: Solver, scale: Scale) -> Point:
    """The solution that a basis determines."""
    wide_cost = data.cost << BITS
    z = _improved(
        np.where(basis.columns == LOWER, data.lower, np.where(basis.columns == UPPER, data.upper, 0)),
        lambda z: np.where(basis.rows == BASIC, 0, -data.matrix.times(z)),
        lambda residual: np.ldexp(solver.basis_solve(residual), scale.columns),
        scale.rows,
    )
    y = _improved(
        zeros(len(basis.rows)),
        lambda y: np.where(basis.columns == BASIC, wide_cost - data.matrix.transposed_times(y), 0),
        lambda residual: np.ldexp(solver.transposed_solve(residual), scale.rows),
        scale.columns,
    )
    return Point(data, basis, z, y)


def _improved(
    value: Exact, residual_of: Callable[[Exact], Exact], step: Callable[[Floats], Floats], scale: Bits
) -> Exact:
    """Add float steps for the scaled residual, magnified to size one, for as long as it keeps shrinking."""
    residual = residual_of(value)
    while top(abs(residual)).bit_length() > 2 * BITS - SOLVE_BITS:
        scaled = to_floats(residual, scale - 2 * BITS)
        exponent = exponent_of(abs(scaled))
        trial = value + from_floats(step(np.ldexp(scaled, -exponent)), exponent + BITS)
        residual = residual_of(trial)
        if exponent_of(abs(to_floats(residual, scale - 2 * BITS))) >= exponent:
            break
        value = trial
    return value
