"""By how much sums of published cells exceed the true sums on average: the price of numbers that are never negative.

This excess, the gap, depends on the true counts, most of all on how many are 0, so the public tree alone does not tell
the gap. Before a publication it is simulated around a public guess, such as the last census. After it, the gap needs no
guess: the sum of the published cells minus the unbiased estimate has the gap as its mean, whatever the true counts are
(`MarginTable`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.consistency.bounds import bound_counts, find_reference
from countveil.consistency.reconciler import LawsOfTables, Reconciler
from countveil.consistency.rounding import round_tables
from countveil.consistency.simulation import Progress
from countveil.consistency.sums import Groups, read_groups
from countveil.consistency.tree import Floats, Ints, Tree
from countveil.consistency.uniforms import Uniforms
from countveil.display.cards import Shown
from countveil.errors import ParameterError, RequestError


@dataclass(frozen=True, eq=False, repr=False)
class ExpectedGaps(Shown):
    """For each group of cells the mean gap, and the standard error of that mean over the runs.

    The gap is the sum of the published cells minus the true sum.
    """

    mean: Floats
    error: Floats

    def _line(self) -> str:
        return f"of {len(self.mean)} sums"


def expect_gaps(
    tree: Tree,
    guess: Mapping[str, Any],
    laws: LawsOfTables,
    table: str,
    groups: Any,
    *,
    runs: int = 100,
    progress: Progress = iter,
) -> ExpectedGaps:
    """By how much sums of published cells will exceed the true sums on average, if the true counts are like a guess.

    In each run noise is added to the guess, and the result is made into tables as for a publication. The guess must be
    public: never the counts to be published.

    Args:
        tree: The tree of tables.
        guess: For each table to be measured its guessed counts, in the form of measurements; they must add up.
        laws: As for `reconcile`.
        table: The table whose cells are added.
        groups: The group of each cell of the table, as for `Reconciliation.margin`.
        runs: The number of runs, at least 2.
        progress: Wraps the numbers of runs, to show progress.

    Returns:
        The ExpectedGaps of all groups.

    Raises:
        ParameterError: A table, the guess, a law, the groups or the runs are not allowed.

    >>> import countveil as cv
    >>> tree = cv.Tree.from_parents({"town": (None, [0] * 50)})
    >>> law = cv.design(epsilon="1", delta="1e-6", policy="signed")
    >>> gaps = expect_gaps(tree, {"town": [100] + [0] * 49}, law, "town", [0] + [1] * 49)
    >>> bool(gaps.mean[1] > 5 * gaps.error[1])  # the empty towns together come out too large
    True
    """
    if runs < 2:
        raise ParameterError("runs", runs, "a number of at least 2")
    fixed = Reconciler.of(tree, laws, tuple(guess))
    place = tree.place(table)
    numbers, size = read_groups(tree.levels[place], groups)
    chosen = Groups.of(place, tree.levels[place].select(numbers), size)
    truth = add_up(fixed, guess)
    gaps = np.empty((runs, size))
    for run in progress(range(runs)):
        noise = fixed.simulation.draw(1)
        given = [None if z is None else n + z[0] for n, z in zip(truth, noise, strict=True)]
        bounds, reference, estimates = fixed.bound_and_estimate(given)
        published = list(round_tables(fixed.fit, estimates, reference, bounds, Uniforms()))
        gaps[run] = chosen.sum(published[place] - truth[place])
    return ExpectedGaps(gaps.mean(axis=0), gaps.std(axis=0, ddof=1) / math.sqrt(runs))


def add_up(fixed: Reconciler, guess: Mapping[str, Any]) -> list[Ints]:
    """The guess extended to the counts of all tables; raises ParameterError if the guessed tables do not add up."""
    given = fixed.read(guess)
    try:
        bounds = bound_counts(fixed.tree, given, [None if y is None else (0, 0) for y in given])
    except RequestError:
        allowed = "one whose counts add up, none of them negative"
        raise ParameterError("guess", "a guess that does not add up, or has negative counts", allowed) from None
    return find_reference(fixed.tree, bounds)
