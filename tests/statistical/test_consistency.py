"""Intervals of publications contain the truth at least as often as they say, and are not much wider than they must be.

Each run publishes once and looks at one random cell of every kind, so the runs are independent and a binomial test
applies. The same test rejects intervals that are 30 % narrower.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import countveil as cv
from countveil.consistency.reconciler import Reconciler
from countveil.consistency.reconciliation import MarginTable, ReconciledTable
from countveil.consistency.simulation import Simulation
from countveil.consistency.sums import Groups, find_margins, measure_sums
from countveil.consistency.tree import Ints, Tree
from tests.support.needs import miss
from tests.support.trees import random_truth

DATA = Path(__file__).parents[3] / "shared" / "data" / "dallas" / "blocks.csv"
RUNS = 600
IMPOSSIBLE = 1e-9


def draw(fixed: Reconciler, truth: list[Ints]) -> dict[str, Ints]:
    """Measurements of a truth, by the laws of a reconciler."""
    noise = fixed.simulation.draw(1)
    return {
        level.name: level.restore(n + z[0])
        for level, n, z in zip(fixed.tree.levels, truth, noise, strict=True)
        if z is not None
    }


def judge(hits: list[bool]) -> float:
    """The probability of so few hits if at least 95 % are expected."""
    return float(stats.binom.cdf(sum(hits), len(hits), 0.95))


def sparse_tree() -> tuple[Tree, list[Ints]]:
    """Counties, towns and uneven groups, two thirds of them empty, and a second partition of the towns."""
    rng = np.random.default_rng(8)
    towns = np.repeat(np.arange(4), [2, 5, 9, 14])
    groups = np.repeat(np.arange(30), rng.integers(1, 12, 30))
    ages = np.repeat(np.arange(30), 3)
    tree = Tree.from_parents(
        {"county": (None, [0] * 4), "town": ("county", towns), "group": ("town", groups), "age": ("town", ages)}
    )
    truth = random_truth(rng, tree, 700)
    return tree, truth


def laws() -> dict[str, cv.Mechanism]:
    return {
        name: cv.design(epsilon=epsilon, delta="1e-6", policy="signed")
        for name, epsilon in {"county": "0.2", "group": "0.6", "age": "0.4"}.items()
    }


@pytest.mark.slow  # hundreds of publications
def test_intervals_cover_the_true_counts_of_cells_and_of_zero_cells_in_every_table_and_of_margins() -> None:
    tree, truth = sparse_tree()
    fixed = Reconciler.of(tree, laws(), ("county", "group", "age"))
    fixed.simulate()
    rng = np.random.default_rng(9)
    across = rng.integers(0, 4, tree.levels[3].size)
    chosen = Groups.of(3, tree.levels[3].select(across), 4)
    errors = measure_sums(fixed.fit, fixed.laws, chosen)
    margins = find_margins(fixed.simulation, chosen, errors)
    cells = [level.restore(n) for level, n in zip(tree.levels, truth, strict=True)]
    sums = chosen.sum(truth[3])
    hits: dict[str, list[bool]] = {}
    narrow: dict[str, list[bool]] = {}
    for _ in range(RUNS):
        result = fixed.reconcile(draw(fixed, truth))
        for name, counts in zip(tree.names, cells, strict=True):
            table = result[name]
            kinds = {name: np.arange(len(counts)), f"{name}, zero": np.flatnonzero(counts == 0)}
            for kind, among in kinds.items():
                if len(among):
                    cell = int(rng.choice(among))
                    hits.setdefault(kind, []).append(bool(table.low[cell] <= counts[cell] <= table.high[cell]))
                    half = 0.7 * fixed.quantiles.margins[tree.place(name)][cell]  # type: ignore[union-attr]
                    narrow.setdefault(kind, []).append(bool(abs(table.estimate[cell] - counts[cell]) <= half))
        group = int(rng.integers(0, 4))
        estimate = chosen.sum(result["group"].estimate)[group]
        hits.setdefault("margin", []).append(bool(abs(estimate - sums[group]) <= margins[group]))
    assert len(hits) >= 8
    for kind, inside in hits.items():
        assert judge(inside) > IMPOSSIBLE, f"{kind}: {np.mean(inside)}"
    assert min(judge(inside) for inside in narrow.values()) < IMPOSSIBLE


@pytest.mark.slow  # a publication and the simulation of its margins, many times
def test_intervals_of_published_margins_cover_the_true_sums() -> None:
    tree, truth = sparse_tree()
    fixed = Reconciler.of(tree, laws(), ("county", "group", "age"))
    rng = np.random.default_rng(10)
    across = rng.integers(0, 3, tree.levels[3].size)
    sums = np.bincount(across, tree.levels[3].restore(truth[3]))
    hits = []
    for _ in range(60):
        result = fixed.reconcile(draw(fixed, truth))
        margin: MarginTable = result.margin("group", across)
        group = int(rng.integers(0, 3))
        hits.append(bool(margin.low[group] <= sums[group] <= margin.high[group]))
        assert abs(margin.sum_of_cells.sum() - result["total"].count[0]) == 0
    assert judge(hits) > 1e-6


@pytest.mark.slow  # hundreds of publications, and the simulation of their margins
def test_intervals_of_sums_of_cells_from_several_parents_cover_the_true_sums() -> None:
    """Sums of two cells of different towns, of a cell of every town, and of half of all cells."""
    tree, truth = sparse_tree()
    fixed = Reconciler.of(tree, laws(), ("county", "group", "age"))
    rng = np.random.default_rng(11)
    level, counts = tree.levels[3], tree.levels[3].restore(truth[3])
    of_towns = level.restore(level.parents)
    cells = {
        "pair": np.array([0, len(counts) - 1]),
        "one a town": np.unique(of_towns, return_index=True)[1],
        "half": np.flatnonzero(rng.random(len(counts)) < 0.5),
    }
    margins = {}
    for kind, chosen in cells.items():
        numbers = np.full(len(counts), -1)
        numbers[chosen] = 0
        groups = Groups.of(3, level.select(numbers), 1)
        margins[kind] = find_margins(fixed.simulation, groups, measure_sums(fixed.fit, fixed.laws, groups))[0]
    for kind, chosen in cells.items():
        errors, inside = [], []
        for run in range(2 * RUNS):
            result = draw(fixed, truth)
            estimates = fixed.fit.estimate(fixed.read(result))
            errors.append(abs(level.restore(estimates[3])[chosen].sum() - counts[chosen].sum()))
            if run < 40:
                published = fixed.reconcile(result).sum("group", chosen)
                inside.append(bool(published.low[0] <= counts[chosen].sum() <= published.high[0]))
        assert judge([bool(error <= margins[kind]) for error in errors]) > IMPOSSIBLE, kind
        assert judge([bool(error <= 0.7 * margins[kind]) for error in errors]) < IMPOSSIBLE, kind
        assert judge(inside) > 1e-6, kind


@pytest.mark.slow  # 200,000 runs give quantiles to compare with
def test_margins_are_at_most_ten_percent_wider_than_exact_quantiles() -> None:
    tree, _ = sparse_tree()
    fixed = Reconciler.of(tree, laws(), ("county", "group", "age"))
    margins = fixed.simulate().margins
    sizes: list[list[Ints]] = [[] for _ in tree.levels]
    for _ in range(20):
        for kept, error in zip(sizes, fixed.fit.estimate(fixed.simulation.draw(10_000)), strict=True):  # type: ignore[arg-type]
            kept.append(np.abs(error).astype(np.float32))
    for margin, kept in zip(margins, sizes, strict=True):
        exact = np.quantile(np.concatenate(kept), 0.95, axis=0)
        assert margin.mean() < 1.1 * exact.mean()
        assert (margin > 0.995 * exact).all()


def test_standardised_margins_hold_for_the_cells_of_a_table_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    from countveil.consistency import simulation

    monkeypatch.setattr(simulation, "MOST_CLASSES", 3)
    tree, truth = sparse_tree()
    fixed = Reconciler.of(tree, laws(), ("county", "group", "age"))
    result = fixed.reconcile(draw(fixed, truth))
    assert result.claim == "cells on average"
    errors = fixed.fit.estimate(fixed.simulation.draw(4000))  # type: ignore[arg-type]
    for error, margin in zip(errors, fixed.simulate().margins, strict=True):
        assert (np.abs(error) <= margin).mean() > 0.95 - 0.005


Dallas = tuple[Reconciler, list[Ints], list[str]]


@pytest.fixture(scope="module")
def dallas() -> Dallas:
    """The black adults of all blocks, with laws for three tables; and the precinct of every block."""
    if not DATA.exists():
        miss(f"the blocks of Dallas are missing: {DATA}")
    with open(DATA, newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in ("tract", "block_group", "block")}
    tree = Tree.from_columns(columns, [["tract"], ["block_group"], ["block"]])
    counts = np.array([int(row["black"]) for row in rows])
    truth = [tree.levels[3].select(counts)]
    for level in tree.levels[:0:-1]:
        above = np.zeros(len(tree.levels[level.above]), dtype=np.int64)
        above[level.filled] = level.sum_families(truth[0])
        truth.insert(0, above)
    shares = {"tract": "0.05", "block_group": "0.15", "block": "0.3"}
    noise = {name: cv.design(epsilon=epsilon, delta="1e-7", policy="signed") for name, epsilon in shares.items()}
    fixed = Reconciler.of(tree, noise, tuple(noise))
    return fixed, truth, [row["precinct"] for row in rows]


def judge_dallas(dallas: Dallas, look: Callable[[ReconciledTable, Ints], list[bool]]) -> None:
    fixed, truth, _ = dallas
    tree, tables = fixed.tree, fixed.tree.names[1:]
    fixed.simulate()
    hits: dict[str, list[bool]] = {name: [] for name in tables}
    for _ in range(60):
        result = fixed.reconcile(draw(fixed, truth))
        for name, law in zip(tables, fixed.laws[1:], strict=True):
            own = tree.levels[tree.place(name)].restore(truth[tree.place(name)])
            hits[name] += look(result[name], own)
            assert law is not None
            assert np.abs(result[name].count - own).max() <= 2 * law.greatest
    for name, inside in hits.items():
        assert judge(inside) > IMPOSSIBLE, f"{name}: {np.mean(inside)}"


@pytest.mark.slow  # sixty publications of 46,000 cells
def test_intervals_cover_the_true_counts_of_cells_in_dallas(dallas: Dallas) -> None:
    """Every run looks at 20 random cells, which share next to no noise."""
    rng = np.random.default_rng(3)

    def look(table: ReconciledTable, truth: Ints) -> list[bool]:
        cells = rng.integers(0, len(truth), 20)
        return [bool(table.low[c] <= truth[c] <= table.high[c]) for c in cells]

    judge_dallas(dallas, look)


@pytest.mark.slow  # sixty publications of 46,000 cells
def test_intervals_cover_zero_for_empty_cells_in_dallas(dallas: Dallas) -> None:
    rng = np.random.default_rng(4)

    def look(table: ReconciledTable, truth: Ints) -> list[bool]:
        empty = np.flatnonzero(truth == 0)
        cells = rng.choice(empty, min(20, len(empty)), replace=False)
        return [bool(table.low[c] <= 0) for c in cells]

    judge_dallas(dallas, look)


@pytest.mark.slow  # thousands of runs of 46,000 cells, then sixty publications
def test_intervals_cover_the_true_sums_of_precincts_in_dallas(dallas: Dallas) -> None:
    """A precinct crosses block groups, so its sum is a margin. Every run looks at 20, which share next to no noise."""
    fixed, truth, precincts = dallas
    level = fixed.tree.levels[3]
    names, numbers = np.unique(precincts, return_inverse=True)
    chosen = Groups.of(3, level.select(numbers), len(names))
    errors_of_sums = measure_sums(fixed.fit, fixed.laws, chosen)
    simulation = Simulation.of(fixed.fit, fixed.laws)
    margins = find_margins(simulation, chosen, errors_of_sums)
    sums = chosen.sum(truth[3])
    rng = np.random.default_rng(12)
    hits, narrow = [], []
    for _ in range(60):
        estimates = fixed.fit.estimate(fixed.read(draw(fixed, truth)))
        among = rng.choice(len(names), 20, replace=False)
        errors = np.abs(chosen.sum(estimates[3]) - sums)[among]
        hits += (errors <= margins[among]).tolist()
        narrow += (errors <= 0.7 * margins[among]).tolist()
    assert judge(hits) > IMPOSSIBLE, np.mean(hits)
    assert judge(narrow) < IMPOSSIBLE
    sizes = margins / errors_of_sums.deviations
    assert sizes.mean() < 1.1 * 1.96  # sums of many noises are close to normal
