"""Publications of Dallas county: error by voting precinct, beside what TopDown published from the same blocks.

    python benchmarks/publication.py [--runs N] [--data FOLDER] [--save]

Tables by county, tract, block group and block, each for four groups of adults, with (epsilon, 1e-6) in total for a
person replaced by another, certified by composition. A precinct is the sum of its blocks and crosses block groups. Two
sets of public cells: all 44,113 blocks, and the 25,801 that have adults. The second is taken from the truth, so it
knows more than a publication may; TopDown knows which blocks have dwellings, and its list is not in the data.

For every method the root mean square error over the 766 inhabited precincts and all runs, and in brackets the mean
error of precincts with fewer than 20 of the group:

    TopDown          the published runs of the US Census Bureau's engine, pure epsilon
    blocks           only blocks are measured, signed; a precinct is the sum of its blocks
    blocks, cut      the same, negative counts set to 0
    equal split      least squares with equal epsilon for the four tables: signed, unbiased
    planned          countveil's split for precincts, least squares: the estimates of margins across the tree
    published        the same, published: never negative, whole, additive; sums of published cells

The data is the folder that --data names; without it, the folder data/dallas that is shared beside the project. `--save`
writes the output, with date and machine, to benchmarks/results/publication.txt.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
from sampling import HERE, PAGE, high_water, machine, say

import countveil as cv
from countveil.consistency.reconciler import Reconciler
from countveil.consistency.split import BudgetSplit, split_budget
from countveil.consistency.tree import Ints, Tree
from countveil.sampling.randomness import NoiseKey

GROUPS = ("hispanic", "white", "black", "other")
SHOWN = ("hispanic", "white", "black", "all")
EPSILONS = ("0.25", "0.5", "1", "2")
TABLES = ("county", "tract", "block_group", "block")
DELTA = 1e-6
FOLDERS = (HERE.parent.parent / "shared" / "data" / "dallas",)


class Dallas:
    """The blocks as a tree of four tables with four groups each, and the truth."""

    def __init__(self, folder: Path, inhabited_only: bool) -> None:
        with open(folder / "blocks.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        if inhabited_only:
            rows = [row for row in rows if any(int(row[group]) for group in GROUPS)]
        self.blocks = len(rows)
        self.precincts, precinct = np.unique([row["precinct"] for row in rows], return_inverse=True)
        self.precinct = np.tile(precinct, len(GROUPS))
        self.group = np.repeat(np.arange(len(GROUPS)), len(rows))
        adults = np.concatenate([[int(row[group]) for row in rows] for group in GROUPS])
        parents: dict[str, tuple[str | None, Ints]] = {"county": (None, np.zeros(len(GROUPS), dtype=np.int64))}
        self.truth: dict[str, Ints] = {"block": adults, "county": np.bincount(self.group, adults).astype(np.int64)}
        above, size = np.zeros(len(rows), dtype=np.int64), 1
        for name, coarser in (("tract", "county"), ("block_group", "tract")):
            _, first, place = np.unique([row[name] for row in rows], return_index=True, return_inverse=True)
            cells = (self.group * len(first)).reshape(len(GROUPS), -1) + place
            self.truth[name] = np.bincount(cells.ravel(), adults).astype(np.int64)
            parents[name] = (coarser, np.concatenate([above[first] + g * size for g in range(len(GROUPS))]))
            above, size = place, len(first)
        parents["block"] = ("block_group", np.concatenate([above + g * size for g in range(len(GROUPS))]))
        self.tree = Tree.from_parents(parents)
        self.own = {group: self.sum_precincts(adults)[i] for i, group in enumerate(GROUPS)}
        self.own["all"] = self.sum_precincts(adults).sum(axis=0)

    def sum_precincts(self, blocks: Ints) -> Ints:
        """The sums of precincts, groups in rows."""
        sums = np.bincount(self.group * len(self.precincts) + self.precinct, blocks)
        return sums.reshape(len(GROUPS), -1)


class Errors:
    """The errors of a method over runs, for each shown group."""

    def __init__(self, dallas: Dallas) -> None:
        self.dallas, self.runs = dallas, {group: [] for group in SHOWN}

    def add(self, blocks: Ints) -> None:
        sums = self.dallas.sum_precincts(blocks)
        for i, group in enumerate(GROUPS[:3]):
            self.runs[group].append(sums[i] - self.dallas.own[group])
        self.runs["all"].append(sums.sum(axis=0) - self.dallas.own["all"])

    def figures(self) -> list[tuple[float, float]]:
        inhabited = self.dallas.own["all"] > 0
        rows = []
        for group in SHOWN:
            errors = np.array(self.runs[group])
            small = inhabited & (self.dallas.own[group] < 20)
            rows.append((float(np.sqrt((errors[:, inhabited] ** 2).mean())), float(errors[:, small].mean())))
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=FOLDERS[0])
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/publication.txt")
    options = parser.parse_args()
    if not (options.data / "blocks.csv").exists():
        say(f"{options.data}: the blocks of Dallas are not here; nothing is measured")
        return
    say(f"{date.today()}, {machine()}, {options.runs} runs")
    say("TopDown answers 252 cells of every block, not 4, and knows which blocks have dwellings.")
    say()
    everywhere = Dallas(options.data, inhabited_only=False)
    topdown = dict(read_topdown(options.data, everywhere))
    for dallas, title in (
        (everywhere, "all {} blocks are public cells"),
        (Dallas(options.data, inhabited_only=True), "the {} blocks with adults are public cells: knows more"),
    ):
        say(f"== {title.format(f'{dallas.blocks:,}')}: {dallas.tree!r}")
        start = time.perf_counter()
        precincts = np.where(dallas.group == 0, dallas.precinct, -1)  # of the first group: the groups are alike
        split = split_budget(dallas.tree, weights={"precinct": 1}, margins={"precinct": ("block", precincts)})
        shares = ", ".join(f"{name} {share:.3f}" for name, share in split.shares.items())
        say(f"  the split for precincts, from the public tree alone: {shares} ({time.perf_counter() - start:.0f} s)")
        for epsilon in EPSILONS:
            start = time.perf_counter()
            measure(dallas, epsilon, split, options.runs, topdown[epsilon])
            say(f"  ({time.perf_counter() - start:.0f} s for this epsilon)")
        say()
    say(f"Peak memory {high_water() / 1e6:,.0f} MB")
    if options.save:
        (HERE / "results" / "publication.txt").write_text("\n".join(PAGE) + "\n")


def read_topdown(folder: Path, dallas: Dallas) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The figures of TopDown's runs, for each epsilon."""
    place = {name: i for i, name in enumerate(dallas.precincts)}
    counts: dict[tuple[str, str, str], Ints] = {}
    with gzip.open(folder / "topdown_equal.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            run = counts.setdefault((row["epsilon"], row["group"], row["run"]), np.zeros(len(place), dtype=np.int64))
            run[place[row["precinct"]]] = int(row["count"])
    for epsilon in EPSILONS:
        errors = Errors(dallas)
        for (of, group, _), sums in counts.items():
            if of == epsilon and group in SHOWN:
                errors.runs[group].append(sums - dallas.own[group])
        yield epsilon, errors.figures()


def measure(dallas: Dallas, epsilon: str, split: BudgetSplit, runs: int, topdown: list[tuple[float, float]]) -> None:
    """Print one table."""
    start = time.perf_counter()
    planned = make_laws(epsilon, {name: share for name, share in split.shares.items() if share})
    seconds_plan = time.perf_counter() - start
    equal = make_laws(epsilon, dict.fromkeys(TABLES, 0.25))
    alone = make_laws(epsilon, {"block": 1.0})
    ours, even = (Reconciler.of(dallas.tree, laws, tuple(laws)) for laws in (planned, equal))
    start = time.perf_counter()
    ours.simulate()
    seconds_margins = time.perf_counter() - start
    names = ("blocks", "blocks, cut", "equal split", "planned", "published")
    errors = {name: Errors(dallas) for name in names}
    seconds, inside, widths = 0.0, [], []
    for _ in range(runs):
        noisy = draw(dallas, alone)["block"]
        errors["blocks"].add(noisy)
        errors["blocks, cut"].add(np.maximum(noisy, 0))
        errors["equal split"].add(estimate(dallas, even, draw(dallas, equal)))
        measurements = draw(dallas, planned)
        start = time.perf_counter()
        result = ours.reconcile(measurements)
        seconds += time.perf_counter() - start
        blocks = result["block"]
        errors["planned"].add(blocks.estimate)
        errors["published"].add(blocks.count)
        truth = dallas.truth["block"]
        inside.append(float(((blocks.low <= truth) & (truth <= blocks.high)).mean()))
        widths.append(float((blocks.high - blocks.low + 1).mean()))
        assert all(np.abs(result[t].count - dallas.truth[t]).max() <= 2 * planned[t].D for t in planned)
    say(f"epsilon {epsilon}: D " + ", ".join(f"{name} {m.D}" for name, m in planned.items()))
    say("  " + " " * 26 + "".join(f"{group:>18s}" for group in SHOWN))
    rows = {"TopDown": topdown} | {name: errors[name].figures() for name in names}
    for name, figures in rows.items():
        say(f"  {dallas.blocks:6,d} {epsilon:4s} {name:14s}" + show(figures))
    say(
        f"  intervals of blocks: {100 * np.mean(inside):.2f} % contain the truth, mean width {np.mean(widths):.2f}; "
        f"laws {seconds_plan:.1f} s, margins {seconds_margins:.1f} s, one reconciliation {seconds / runs:.2f} s"
    )


def make_laws(epsilon: str, shares: dict[str, float]) -> dict[str, cv.Mechanism]:
    """Signed laws with epsilon in these proportions, certified together for a person replaced by another.

    Replacing a person moves one cell of every table up and one down.
    """
    total = float(epsilon)

    def at(scale: float) -> dict[str, cv.Mechanism]:
        return {
            name: cv.design(epsilon=f"{total * share * scale:.6g}", delta="2e-8", policy="signed")
            for name, share in shares.items()
        }

    low, high = 0.45, 0.7
    laws = at(low)
    for _ in range(8):
        scale = (low + high) / 2
        trial = at(scale)
        composition = cv.compose([(m, 1) for m in trial.values()], neighbours="replace")
        if composition.delta(epsilon).upper <= DELTA:
            low, laws = scale, trial
        else:
            high = scale
    assert cv.compose([(m, 1) for m in laws.values()], neighbours="replace").delta(epsilon).upper <= DELTA
    return laws


def draw(dallas: Dallas, laws: dict[str, cv.Mechanism]) -> dict[str, Ints]:
    """Measurements of the tables that have laws."""
    return {name: mechanism.sampler.release(dallas.truth[name], NoiseKey()) for name, mechanism in laws.items()}


def estimate(dallas: Dallas, fixed: Reconciler, measurements: dict[str, Ints]) -> Ints:
    """The least-squares estimates of blocks."""
    given = fixed.read(measurements)
    estimates = fixed.fit.estimate([None if y is None else y.astype(np.float64) for y in given])
    return dallas.tree.levels[-1].restore(estimates[-1])


def show(figures: list[tuple[float, float]]) -> str:
    return "".join(f"{f'{error:.1f} ({bias:+.1f})':>18s}" for error, bias in figures)


if __name__ == "__main__":
    main()
