"""How long a full comparison of all families takes, and how that grows with the width of the noise.

    python benchmarks/compare.py [--save]

At the same eta and D every mechanism is tuned to the same probability of the exact count, with eta at the knee of an
epsilon that makes D about as wide as the noise needs (D epsilon = 14). Then, at the same guarantee, for smaller and
smaller epsilon. Each column is the share of one mechanism; the last is the growth against the row before.
`--save` writes the output, with date and machine, to benchmarks/results/compare.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import time
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from design import _Tee, machine

import countveil as cv

BOUNDS = (10, 25, 50, 100, 200)
EPSILONS = ("2", "1", "0.5", "0.2", "0.1", "0.05", "0.02", "0.01")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/compare.txt")
    options = parser.parse_args()
    page = io.StringIO()
    with contextlib.redirect_stdout(_Tee(page)):
        print(f"{date.today()}, {machine()}\n")
        at_same_eta()
        at_same_guarantee()
    if options.save:
        target = Path(__file__).parent / "results" / "compare.txt"
        target.write_text(page.getvalue())


def at_same_eta() -> None:
    print("1. Same eta and D (eta at the knee of epsilon = 14/D): all families, seconds")
    before = None
    for D in BOUNDS:
        epsilon = 14 / D
        given = {"epsilon": f"{epsilon:.6g}", "eta": f"{math.tanh(epsilon / 2):.6g}", "D": D}
        before = row(f"D {D:4d}", given, before)
    print()


def at_same_guarantee() -> None:
    print("2. Same guarantee, delta 1e-6: all families, seconds")
    before = None
    for epsilon in EPSILONS:
        before = row(f"epsilon {epsilon:>4}", {"epsilon": epsilon, "delta": "1e-6"}, before)


def row(label: str, given: dict[str, object], before: float | None) -> float:
    seconds: dict[str, float] = {}

    def timed(names: Iterable[str]) -> Iterator[str]:
        for name in names:
            start = time.perf_counter()
            yield name
            seconds[name] = time.perf_counter() - start

    table = cv.compare(progress=timed, **given)  # type: ignore[arg-type]
    total = sum(seconds.values())
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:4]
    parts = ", ".join(f"{name} {seconds[name]:.2f}" for name in slowest)
    growth = "" if before is None else f"   {total / before:4.1f}x"
    print(f"  {label}   {len(table.rows):2d} mechanisms   {total:7.2f} s{growth:9}   most: {parts}", flush=True)
    return total


if __name__ == "__main__":
    main()
