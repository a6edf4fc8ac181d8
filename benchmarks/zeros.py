"""The price of numbers that are never negative: cells that are truly 0, and sums across the tree.

    python benchmarks/zeros.py [--runs N] [--save]

60 regions, 3,000 districts, six categories from common to rare, with signed noise of epsilon 0.1, 0.3 and 0.6 for the
three tables. For every true count of a cell the mean error of what is published, of the unbiased estimate, and of the
measured cell with negative counts set to 0. For every category, whose sum over all districts crosses the tree, the sum
of the published cells and the margin, in percent of the true sum; the mean gap that the margins state; and the gap that
`cv.expect_gaps` expects from the truth, and from a guess: other people with the same mean counts. `--save` writes the
output, with date and machine, to benchmarks/results/zeros.txt; `python -m tests.support.figures` draws it.
"""

from __future__ import annotations

import argparse
from datetime import date

import numpy as np
from sampling import HERE, PAGE, machine, say

import countveil as cv
from countveil.consistency.reconciler import Reconciler
from countveil.sampling.randomness import NoiseKey

MEANS = (12.0, 6.0, 3.0, 1.5, 0.7, 0.3)
"""The mean count of each category in a district."""
REGIONS, DISTRICTS = 60, 3000
EPSILONS = {"region": "0.1", "district": "0.3", "cell": "0.6"}
LARGEST = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/zeros.txt")
    options = parser.parse_args()
    size = len(MEANS)
    above = np.arange(DISTRICTS) * REGIONS // DISTRICTS
    tree = cv.Tree.from_parents(
        {
            "region": (None, np.zeros(REGIONS, dtype=np.int64)),
            "district": ("region", above),
            "cell": ("district", np.repeat(np.arange(DISTRICTS), size)),
        }
    )
    cells = np.random.default_rng(1).poisson(np.tile(MEANS, DISTRICTS))
    category = np.tile(np.arange(size), DISTRICTS)
    laws = {name: cv.design(epsilon=epsilon, delta="1e-8", policy="signed") for name, epsilon in EPSILONS.items()}
    fixed = Reconciler.of(tree, laws, tuple(laws))
    truth = sum_tables(cells, above)
    say(f"{date.today()}, {machine()}, {options.runs} runs, {tree!r}")
    say("D " + ", ".join(f"{name} {m.D}" for name, m in laws.items()))
    errors = {name: np.zeros(len(cells)) for name in ("published", "estimate", "cut at 0")}
    for _ in range(options.runs):
        given = {name: laws[name].sampler.release(counts, NoiseKey()) for name, counts in truth.items()}
        result = fixed.reconcile(given)["cell"]
        for name, counts in zip(errors, (result.count, result.estimate, np.maximum(given["cell"], 0)), strict=True):
            errors[name] += (counts - cells) / options.runs
    say("Mean error of a cell, by its true count")
    say(f"  {'count':>5s} {'cells':>7s}" + "".join(f"{name:>12s}" for name in errors))
    for n in range(LARGEST + 1):
        here = cells == n
        means = "".join(f"{error[here].mean():+12.2f}" for error in errors.values())
        say(f"  {n:5d} {int(here.sum()):7,d}{means}")
    say("Sums of a category over all districts: mean error in percent of the true sum, and gaps in people")
    columns = ("published %", "estimate %", "stated gap", "from truth", "from guess")
    say(f"  {'mean':>5s} {'sum':>7s}" + "".join(f"{column:>13s}" for column in columns))
    other = sum_tables(np.random.default_rng(2).poisson(np.tile(MEANS, DISTRICTS)), above)
    known, guessed = (cv.expect_gaps(tree, guess, laws, "cell", category).mean for guess in (truth, other))
    for i, mean in enumerate(MEANS):
        total = int(cells[category == i].sum())
        over, off = (float(errors[name][category == i].sum()) for name in ("published", "estimate"))
        figures = f" {100 * over / total:+12.2f} {100 * off / total:+12.2f} {over - off:+12,.0f}"
        say(f"  {mean:5.1f} {total:7,d}{figures} {known[i]:+12,.0f} {guessed[i]:+12,.0f}")
    if options.save:
        (HERE / "results" / "zeros.txt").write_text("\n".join(PAGE) + "\n")


def sum_tables(cells: np.typing.NDArray[np.int64], above: np.typing.NDArray[np.int64]) -> dict[str, object]:
    """The counts of all three tables."""
    districts = cells.reshape(DISTRICTS, -1).sum(axis=1)
    return {"region": np.bincount(above, districts).astype(np.int64), "district": districts, "cell": cells}


if __name__ == "__main__":
    main()
