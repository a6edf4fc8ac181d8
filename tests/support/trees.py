"""Random trees of tables, true counts on them, and noise at its extremes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.consistency.reconciler import Reconciler
from countveil.consistency.tree import TOTAL, Ints, Tree
from countveil.laws.law import Law

SIZES = (0, 1, 3, 40, 5000, 2**53 - 12345)
"""Totals of the true counts."""


def three_point_law(D: int, bits: int) -> Law:
    """Noise -D, 0 or D: 0 all but twice in 2**bits."""
    gap = (0,) * (D - 1)
    return Law((1, *gap, 2**bits - 2, *gap, 1), D, bits)


@dataclass(frozen=True)
class Example:
    """A tree with its laws, true counts of all nodes, and noise for the measured tables."""

    tree: Tree
    laws: dict[str, Law]
    truth: list[Ints]
    noise: list[Ints | None]

    @property
    def measurements(self) -> dict[str, Ints]:
        """The measurements in declared order; structural zeros have garbage, which nobody may read."""
        given = {}
        for level, n, z in zip(self.tree.levels, self.truth, self.noise, strict=True):
            if z is not None:
                cells = level.restore(n + z)
                zeros = np.ones(level.size, dtype=bool)
                zeros[np.arange(level.size) if level.declared is None else level.declared] = False
                cells = cells.copy()
                cells[zeros] = 10**6
                given[level.name] = cells
        return given

    def fix(self) -> Reconciler:
        return Reconciler.of(self.tree, self.laws, tuple(self.laws))


def random_tree(rng: np.random.Generator) -> Tree:
    """Up to four tables in a random shape: uneven, ragged, with structural zeros, or of a single cell.

    Now and then there is one more table, all of whose cells are structural zeros, perhaps with a finer one below it.
    """
    tables: dict[str, tuple[str | None, Any]] = {}
    sizes = {None: 1}
    zeros = {}
    for i in range(int(rng.integers(1, 5))):
        above = list(sizes)[int(rng.integers(0, len(sizes)))]
        size = int(rng.choice([1, 2, sizes[above], 3 * sizes[above], 7 * sizes[above]]))
        name = f"table{i}"
        parents = rng.integers(0, sizes[above], size)
        if rng.random() < 0.5:
            parents.sort()
        tables[name], sizes[name] = (above, parents), size
        if rng.random() < 0.3:
            zeros[name] = rng.random(size) < 0.2
            zeros[name][0] = False
    aside = rng.spawn(1)[0]  # draws that leave all other trees as they are
    above = max(sizes, key=lambda name: sizes[name])
    if sizes[above] > 1 and aside.random() < 0.15:
        tables["empty"], zeros["empty"] = (above, [0, 0]), np.ones(2, dtype=bool)
        if aside.random() < 0.5:
            tables["below"] = ("empty", [0, 1, 1])
    from countveil.errors import RequestError

    try:
        return Tree.from_parents(tables, zeros=zeros)
    except RequestError:  # every cell is a structural zero
        return Tree.from_parents(tables)


def divide(rng: np.random.Generator, n: int, parts: int) -> Ints:
    """A count divided at random, often with zeros."""
    shares = rng.dirichlet(np.full(parts, rng.choice([0.05, 0.5, 5.0])))
    counts = np.floor(shares * n).astype(np.int64)
    rest = n - int(counts.sum())
    if 0 < rest <= 10 * parts:
        counts += np.bincount(rng.integers(0, parts, rest), minlength=parts)
    else:
        counts[int(rng.integers(0, parts))] += rest
    if (counts < 0).any():
        counts = np.zeros(parts, dtype=np.int64)
        counts[0] = n
    return counts


def random_truth(rng: np.random.Generator, tree: Tree, total: int) -> list[Ints]:
    """True counts that add up: every family divides the count of its parent."""
    truth = [np.array([total])]
    for level in tree.levels[1:]:
        above = truth[level.above][level.filled]
        parts = [divide(rng, int(n), int(w)) for n, w in zip(above, level.widths, strict=True)]
        truth.append(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64))
    return truth


def random_example(seed: int) -> Example:
    """A random tree with extreme noise."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    truth = random_truth(rng, tree, int(rng.choice(SIZES)))
    laws: dict[str, Law] = {}
    noise: list[Ints | None] = []
    kind = int(rng.integers(0, 4))
    for i, level in enumerate(tree.levels):
        divided = not tree.find_leaves(i).any()
        if divided and rng.random() < (0.7 if level.name == TOTAL else 0.3):
            noise.append(None)
            continue
        law = three_point_law(int(rng.choice([1, 4, 30])), int(rng.integers(3, 8)))
        laws[level.name] = law
        signs = {0: [-1], 1: [1], 2: [-1, 1], 3: [-1, 0, 1]}[kind]
        noise.append(law.left * rng.choice(signs, len(level)))
    return Example(tree, laws, truth, noise)


def sum_errors(tree: Tree, counts: list[Ints]) -> int:
    """How many families do not add up to their parent."""
    wrong = 0
    for level, values in zip(tree.levels[1:], counts[1:], strict=True):
        wrong += int((level.sum_families(values) != counts[level.above][level.filled]).sum())
    return wrong
