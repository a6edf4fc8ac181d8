"""Processor seconds and memory of every step of a publication, from 10^5 to 10^7 cells.

    python benchmarks/consistency.py [--quick] [--save]

Four tables: total, 1/500 of the cells, 1/20 of the cells, the cells, with uneven fan-outs and two thirds of the counts
0; the two finer tables and the coarsest are measured. Each size runs in a process of its own. Memory is the high-water
mark of that process, the inputs of the benchmark included. `--quick` leaves out 10^7. `--save` writes the output, with
date and machine, to benchmarks/results/consistency.txt.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import numpy as np
from sampling import HERE, PAGE, high_water, machine, run, say

import countveil as cv
from countveil.consistency.bounds import bound_counts, find_reference
from countveil.consistency.least_squares import solve
from countveil.consistency.reconciler import Reconciler
from countveil.consistency.rounding import round_tables
from countveil.consistency.split import split_budget
from countveil.consistency.tree import Tree
from countveil.consistency.unbiased import round_exactly
from countveil.consistency.uniforms import Uniforms
from countveil.sampling.randomness import NoiseKey

SIZES = (10**5, 10**6, 10**7)
STEPS = ("tree", "split", "least squares", "bounds", "whole numbers", "margins", "reconcile", "unbiased")
EPSILONS = {"region": "0.1", "town": "0.3", "cell": "0.6"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/consistency.txt")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.alone)))
        return
    say(f"{date.today()}, {machine()}")
    say("Processor seconds, of both cores together; in brackets the high-water mark of memory in MB after each step")
    say(f"  {'cells':>10s}" + "".join(f"{step:>20s}" for step in STEPS))
    before: dict[str, list[float]] = {}
    for size in SIZES[: 2 if options.quick else 3]:
        start = time.perf_counter()
        steps = json.loads(run(sys.executable, __file__, "--alone", size, limit=7200))
        say(f"  {size:10,d}" + "".join(f"{f'{s:.2f} ({m:,.0f})':>20s}" for s, m in steps.values()))
        say(f"  {'':10s}  {time.perf_counter() - start:,.0f} s on the clock, the making of the input included")
        if before:
            growth = (math.log10(max(steps[step][0], 1e-3) / max(before[step][0], 1e-3)) for step in STEPS)
            say(f"  {'exponent':>10s}" + "".join(f"{g:20.2f}" for g in growth))
        before = steps
    say("split: for weights of the cells. margins: the simulation of 10,000 runs, once for all editions. reconcile:")
    say("everything but the margins. unbiased: exact rational numbers.")
    if options.save:
        (HERE / "results" / "consistency.txt").write_text("\n".join(PAGE) + "\n")


def measure(size: int) -> dict[str, tuple[float, float]]:
    """Seconds and high-water mark of every step."""
    rng = np.random.default_rng(1)
    parents, tables = np.zeros(max(1, size // 500), dtype=np.int64), {}
    tables["region"] = (None, parents)
    towns = np.sort(rng.integers(0, len(parents), size // 20))
    tables["town"] = ("region", towns)
    cells = np.sort(rng.integers(0, len(towns), size))
    tables["cell"] = ("town", cells)
    laws = {name: cv.design(epsilon=epsilon, delta="1e-8", policy="signed") for name, epsilon in EPSILONS.items()}
    steps: dict[str, tuple[float, float]] = {}

    @contextmanager
    def clock(step: str) -> Iterator[None]:
        start = time.process_time()
        yield
        steps[step] = (time.process_time() - start, high_water() / 1e6)

    with clock("tree"):
        tree = Tree.from_parents(tables, zeros=empty_zeros(tables))
    truth = rng.poisson(np.where(rng.random(size) < 2 / 3, 0, 6))
    measurements = {}
    for name, level in zip(("cell", "town", "region"), tree.levels[:0:-1], strict=True):
        measurements[name] = laws[name].sampler.release(truth, NoiseKey())
        above = np.zeros(tree.levels[level.above].size, dtype=np.int64)
        np.add.at(above, tables[name][1] if name != "region" else parents, truth)
        truth = above
    with clock("split"):
        split_budget(tree, weights={"cell": 1})
    with clock("least squares"):
        fit = solve(tree, [None, *(float(laws[name].certificate.variance) for name in EPSILONS)])
    fixed = Reconciler.of(tree, laws, tuple(laws))
    given = fixed.read(measurements)
    with clock("bounds"):
        bounds = bound_counts(tree, given, [None, *((-laws[name].D, laws[name].D) for name in EPSILONS)])
        reference = find_reference(tree, bounds)
    with clock("whole numbers"):
        differences = [None if y is None else (y - r) * 1.0 for y, r in zip(given, reference, strict=True)]
        published = list(round_tables(fit, fit.estimate(differences), reference, bounds, Uniforms()))
    del published, differences, bounds, reference, fit
    with clock("margins"):
        fixed.simulate()
    with clock("reconcile"):
        fixed.reconcile(measurements)
    with clock("unbiased"):
        round_exactly(fixed.fit, given, Uniforms())
    return steps


def empty_zeros(tables: dict[str, tuple[str | None, np.typing.NDArray[np.int64]]]) -> dict[str, object]:
    """Regions and towns without cells cannot exist."""
    towns = np.bincount(tables["cell"][1], minlength=len(tables["town"][1])) == 0
    alive = np.bincount(tables["town"][1], ~towns, minlength=len(tables["region"][1]))
    return {"town": towns, "region": alive == 0}


if __name__ == "__main__":
    main()
