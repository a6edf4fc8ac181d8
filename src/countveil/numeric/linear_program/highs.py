"""The interface to HiGHS, which pivots in doubles; no other module imports HiGHS."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from countveil.numeric.linear_program.fixed_point import LOWER, Floats, Matrix, Scale, SimplexBasis

Attempts = tuple[dict[str, Any], ...]
CLOSE = 1e-3
WORK = 10**10
"""What all the float programs of one solve may take together: iterations times the entries of the matrix.

It is not in seconds, so that a request has the same result on every machine. An entry took 3 to 7 nanoseconds per
iteration, so this is about a minute. It is ten times what any test needs.
"""

FIXED_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "ipm_iteration_limit": 1_000,
    "presolve": "off",
    "small_matrix_value": 1e-12,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}
# Strategy 1 is the dual simplex method, 4 the primal. HiGHS's own scaling is used
# only where the sizes of the variables are not known.
WARM: dict[str, Any] = {"solver": "simplex", "simplex_strategy": 4, "simplex_scale_strategy": 0}
HINTED: dict[str, Any] = {"solver": "simplex", "simplex_strategy": 1, "simplex_scale_strategy": 0}
COLD: Attempts = (
    {"solver": "simplex", "simplex_strategy": 1, "simplex_scale_strategy": 2},
    {"solver": "simplex", "simplex_strategy": 4, "simplex_scale_strategy": 2},
    {"solver": "ipm", "simplex_strategy": 1, "simplex_scale_strategy": 2},
)


class NoSolution(Exception):  # noqa: N818
    """The program has no optimum, or none was found; ``reason`` is infeasible, unbounded or failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Solver:
    """HiGHS, loaded with the matrix of one program; bounds and costs change from solve to solve."""

    def __init__(self, matrix: Matrix) -> None:
        self._api: Any = importlib.import_module("highspy")
        self._highs = self._api.Highs()
        self._set(FIXED_OPTIONS)
        self._matrix = matrix
        self._iterations = WORK // max(1, len(matrix.values))
        self._basic = np.zeros(0, dtype=np.int32)
        codes = self._api.HighsBasisStatus
        self._codes = (codes.kBasic, codes.kLower, codes.kUpper, codes.kZero)

    def _set(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            self._highs.setOptionValue(name, value)

    def load(self, scale: Scale, cost: Floats, lower: Floats, upper: Floats, right: Floats) -> None:
        """Pass a program to HiGHS. Costs, bounds and right-hand sides must be scaled already; the matrix is not."""
        matrix = self._matrix
        model = self._api.HighsLp()
        model.num_row_, model.num_col_ = matrix.shape
        model.col_cost_, model.col_lower_, model.col_upper_ = cost, lower, upper
        model.row_lower_ = model.row_upper_ = right
        model.a_matrix_.format_ = self._api.MatrixFormat.kRowwise
        model.a_matrix_.start_, model.a_matrix_.index_ = matrix.starts, matrix.columns
        model.a_matrix_.value_ = np.ldexp(matrix.floats, scale.columns[matrix.columns] + scale.rows[matrix.rows])
        self._highs.passModel(model)

    def solve(self, start: SimplexBasis, attempts: Attempts) -> SimplexBasis:
        """An optimal basis, by the first of the `attempts` (sets of options) that succeeds.

        Only the first attempt starts from the basis `start`. Raises NoSolution if two attempts agree that the program
        is infeasible, or that it is unbounded, or if all fail.
        """
        reasons: list[str] = []
        for options in attempts:
            self._set(options)
            if reasons:
                self._highs.clearSolver()
            else:
                self._set_basis(start)
            reason = self._run()
            if not reason:
                return self._get_basis()
            reasons.append(reason)
            if reason != "failed" and reasons.count(reason) == 2:
                break
        raise NoSolution(next((reason for reason in reasons if reason != "failed"), "failed"))

    def _run(self) -> str:
        """Run HiGHS; returns the reason why there is no solution, or an empty text."""
        if self._iterations <= 0:
            raise NoSolution("failed")
        self._highs.setOptionValue("simplex_iteration_limit", self._iterations)
        self._highs.run()
        info, status = self._highs.getInfo(), self._highs.getModelStatus()
        self._iterations -= max(1, info.simplex_iteration_count + info.ipm_iteration_count)
        known = self._api.HighsModelStatus
        if status in (known.kOptimal, known.kModelEmpty) or (status == known.kUnknown and self._is_close()):
            return ""
        return {known.kInfeasible: "infeasible", known.kUnbounded: "unbounded"}.get(status, "failed")

    def _is_close(self) -> bool:
        """Whether a basis that HiGHS did not prove optimal violates the program little enough to be refined."""
        info = self._highs.getInfo()
        return bool(max(info.max_primal_infeasibility, info.max_dual_infeasibility) < CLOSE)

    def _set_basis(self, start: SimplexBasis) -> None:
        basis = self._api.HighsBasis()
        basis.col_status = [self._codes[status] for status in start.columns]
        basis.row_status = [self._codes[status] for status in start.rows]
        basis.valid = True
        self._highs.setBasis(basis)

    def _get_basis(self) -> SimplexBasis:
        number = {code: status for status, code in enumerate(self._codes)}
        basis = self._highs.getBasis()
        if len(basis.row_status):
            self._basic = np.array(self._highs.getBasicVariables()[1])
        return SimplexBasis(
            np.array([number.get(code, LOWER) for code in basis.col_status], dtype=np.int8),
            np.array([number.get(code, LOWER) for code in basis.row_status], dtype=np.int8),
        )

    def basis_solve(self, right: Floats) -> Floats:
        """The change of the basic columns that changes the row values by `right`."""
        step = np.zeros(self._matrix.shape[1])
        structural = self._basic >= 0
        step[self._basic[structural]] = np.asarray(self._highs.getBasisSolve(right)[1])[structural]
        return step

    def transposed_solve(self, costs: Floats) -> Floats:
        """The change of the dual values of the rows that lowers the reduced costs of the basic columns by `costs`."""
        right = np.where(self._basic >= 0, costs[np.maximum(self._basic, 0)], 0.0)
        step: Floats = np.asarray(self._highs.getBasisTransposeSolve(right)[1], dtype=np.float64)
        return step
