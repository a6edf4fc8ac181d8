"""How fast designs are: ratios and growth, measured in one run.

    python benchmarks/design.py [--quick] [--save]

1. The paper's general program (singleton delta, n = 1..N): our direct form, one variable per (n, z), against the
   paper's pair form, one variable per (n, i1, i2). Both are built by the same function and solved by the same solver
   with the same options; only the solver is timed, and both must find the same optimum.
2. Closed forms at large D.
3. The whole domain n >= 0 at delta 1e-6: linear program against remap, side by side.
4. How the cost of the program grows with D.

`--save` writes the output, with date and machine, to benchmarks/results/design.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import highspy
import numpy as np

import countveil as cv

D = 8
POINTS = ((1.1, 0.3), (0.5, 0.2), (1.1, 0.5))
LIMIT = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out N = 1000 and epsilon 0.1")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/design.txt")
    options = parser.parse_args()
    page = io.StringIO()
    with contextlib.redirect_stdout(_Tee(page)):
        print(f"{date.today()}, {machine()}\n")
        direct_against_pairs((50, 200) if options.quick else (50, 200, 1000))
        closed_forms()
        whole_domain(("1", "0.5", "0.2") if options.quick else ("1", "0.5", "0.2", "0.1"))
        growth()
    if options.save:
        target = Path(__file__).parent / "results" / "design.txt"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page.getvalue())


# 1. Direct form against pair form


def direct_columns(n: int, eta: float) -> list[dict[int, float]]:
    """One variable per cell z != 0: what it adds to p(y|n)."""
    low = min(n, D)
    return [{n + z: 1.0} for z in range(-low, D + 1) if z]


def pair_columns(n: int, eta: float) -> list[dict[int, float]]:
    """One variable per pair (i1, i2): the three-point law it mixes in, without its fixed mass at 0."""
    rest = 1 - eta
    return [
        {n - i1: rest * i2 / (i1 + i2), n + i2: rest * i1 / (i1 + i2)}
        for i1 in range(1, min(n, D) + 1)
        for i2 in range(1, D + 1)
    ]


def build(
    N: int, epsilon: float, eta: float, columns: Callable[[int, float], list[dict[int, float]]], direct: bool
) -> highspy.Highs:
    """min delta subject to p(y|n) <= E p(y|m) + delta for neighbours, and what makes each column a law."""
    E = math.exp(epsilon)
    starts, indices, values, lower, upper = [0], [], [], [], []
    cells: dict[tuple[int, int], list[tuple[int, float]]] = {}
    count = 1  # variable 0 is delta
    inf = highspy.kHighsInf

    def row(terms: list[tuple[int, float]], low: float, high: float) -> None:
        indices.extend(i for i, _ in terms)
        values.extend(v for _, v in terms)
        starts.append(len(indices))
        lower.append(low)
        upper.append(high)

    for n in range(1, N + 1):
        own = []
        for law in columns(n, eta):
            for y, weight in law.items():
                cells.setdefault((n, y), []).append((count, weight))
            own.append((count, law))
            count += 1
        if direct:
            row([(i, 1.0) for i, _ in own], 1 - eta, 1 - eta)
            row([(i, float(next(iter(law)) - n)) for i, law in own], 0.0, 0.0)
        else:
            row([(i, 1.0) for i, _ in own], 1.0, 1.0)
    for n in range(1, N + 1):
        for m in (n - 1, n + 1):
            if not 1 <= m <= N:
                continue
            for y in range(max(0, n - D), n + D + 1):
                constant = (eta if y == n else 0.0) - E * (eta if y == m else 0.0)
                terms = [(0, -1.0), *cells.get((n, y), []), *((i, -E * v) for i, v in cells.get((m, y), []))]
                row(terms, -inf, -constant)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(lower)
    model.col_cost_ = np.concatenate(([1.0], np.zeros(count - 1)))
    model.col_lower_, model.col_upper_ = np.zeros(count), np.full(count, inf)
    model.row_lower_, model.row_upper_ = np.array(lower), np.array(upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = np.array(starts), np.array(indices)
    model.a_matrix_.value_ = np.array(values)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", LIMIT)
    solver.passModel(model)
    return solver


def direct_against_pairs(sizes: tuple[int, ...]) -> None:
    print(f"1. The paper's general program, D {D}: solver time, one thread")
    print("  epsilon  eta      N   variables direct / pairs      direct        pairs    ratio   optimum direct / pairs")
    totals: dict[int, list[float]] = {}
    for epsilon, eta in POINTS:
        for N in sizes:
            (n1, t1, v1), (n2, t2, v2) = (
                solve(build(N, epsilon, eta, columns, direct))
                for columns, direct in ((direct_columns, True), (pair_columns, False))
            )
            more = "" if v2 is not None else ">"
            both = totals.setdefault(N, [0.0, 0.0])
            both[0], both[1] = both[0] + t1, both[1] + t2
            print(
                f"  {epsilon:7.2f}  {eta:.1f}  {N:5d}   {n1:10d} / {n2:8d}   {t1:8.3f} s   {more:1}{t2:8.3f} s   "
                f"{more:1}{t2 / t1:5.1f}x   {v1 or 0:.8f} / {'stopped' if v2 is None else f'{v2:.8f}'}"
            )
    direct_total, pairs_total = totals[200]
    print(
        f"  all {len(POINTS)} parameter sets at N = 200: direct {direct_total:.3f} s, pairs {pairs_total:.3f} s, "
        f"ratio {pairs_total / direct_total:.1f}x"
    )
    print()


def solve(solver: highspy.Highs) -> tuple[int, float, float | None]:
    """Variables, seconds, optimum (None where the limit was hit)."""
    started = time.perf_counter()
    solver.run()
    taken = time.perf_counter() - started
    done = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getNumCol(), taken, solver.getInfo().objective_function_value if done else None


# 2.-4. Designs


def timed(**request: object) -> tuple[float, cv.Mechanism]:
    best, mechanism = math.inf, None
    started = time.perf_counter()
    while mechanism is None or (time.perf_counter() - started < 1.0 and best < 0.3):
        once = time.perf_counter()
        mechanism = cv.design(**request)  # type: ignore[arg-type]
        best = min(best, time.perf_counter() - once)
    return best, mechanism


def closed_forms() -> None:
    print("2. Closed forms, certificate included (best of several)")
    for name, request in (
        ("paper, D 1000", {"epsilon": "0.02", "eta": "0.0099", "D": 1000, "policy": "signed", "method": "paper"}),
        ("optimal, D 1000", {"epsilon": "0.02", "eta": "0.0099", "D": 1000, "policy": "signed"}),
        ("optimal, D 20000", {"epsilon": "0.001", "eta": "0.0004", "D": 20000, "policy": "signed"}),
        ("target (1, 1e-6)", {"epsilon": "1", "delta": "1e-6", "policy": "signed"}),
        ("target (0.01, 1e-6)", {"epsilon": "0.01", "delta": "1e-6", "policy": "signed"}),
    ):
        taken, m = timed(**request)
        print(f"  {name:22s} {1000 * taken:8.1f} ms   delta {float(m.delta):.6e}")
    print()


def whole_domain(epsilons: tuple[str, ...]) -> None:
    print("3. Whole domain, delta 1e-6, never negative: program against remap")
    print("  epsilon  method       time       eta    knee   unbiased   D     mean squared error at n = 0 1 2 5 10, far")
    for epsilon in (*epsilons, "0.01"):
        for method in ("program", "remap"):
            if method == "program" and epsilon == "0.01":
                continue
            taken, m = timed(epsilon=epsilon, delta="1e-6", method=method)
            errors = " ".join(f"{float(v):8.2f}" for v in m.certificate.mse_at.values())
            print(
                f"  {epsilon:>7}  {method:8s} {taken:8.3f} s   {float(m.eta):.4f}  {math.tanh(float(epsilon) / 2):.4f}"
                f"   from {m.unbiased_from:3d}  {m.D:4d}  {errors} {float(m.certificate.variance):9.2f}"
            )
    print()


def growth() -> None:
    print("4. Growth of the program with D (epsilon 1, eta 0.4, unbiased from 2), and of remap (epsilon 4/D)")
    for bound in (4, 8, 16, 24, 32, 48, 64, 96):
        program, a = timed(epsilon="1", eta="0.4", D=bound, unbiased_from=2, method="program")
        kind = "free" if "geometric tails" not in " ".join(a.notes) else "tied"
        remap, _ = timed(epsilon="1", eta="0.4", D=bound, method="remap")
        print(f"  D {bound:4d}   program ({kind}) {program:8.3f} s   remap {1000 * remap:8.1f} ms")


def machine() -> str:
    solver = highspy.Highs().version()
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, HiGHS {solver}"


class _Tee(io.TextIOBase):
    """Print and keep."""

    def __init__(self, page: io.StringIO) -> None:
        self._page, self._screen = page, sys.stdout

    def write(self, text: str) -> int:
        self._screen.write(text)
        self._screen.flush()
        return self._page.write(text)


if __name__ == "__main__":
    main()
