"""Two passes give what a dense solver gives, and variances are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from countveil.consistency.least_squares import solve
from countveil.consistency.tree import Floats, Tree
from countveil.errors import RequestError
from tests.support.trees import random_example


def solve_densely(tree: Tree, variances: list[float | None]) -> tuple[Floats, Floats]:
    """The matrix from measurements (0 where there are none) to estimates, and the variances, by linear algebra."""
    offsets = np.cumsum([0, *map(len, tree.levels)])
    rows = []
    for i, level in enumerate(tree.levels[1:], start=1):
        for start, width, parent in zip(level.starts, level.widths, level.filled, strict=True):
            row = np.zeros(offsets[-1])
            row[offsets[i] + start : offsets[i] + start + width] = 1
            row[offsets[level.above] + parent] = -1
            rows.append(row)
    _, sizes, vectors = np.linalg.svd(np.array(rows))
    free = vectors[int((sizes > 1e-10).sum()) :].T
    precision = np.concatenate(
        [np.full(len(level), 0 if s is None else 1 / s) for level, s in zip(tree.levels, variances, strict=True)]
    )
    covariance = free @ np.linalg.inv(free.T @ (precision[:, None] * free)) @ free.T
    return covariance * precision, np.diag(covariance)


@pytest.mark.parametrize("part", range(5))
def test_estimates_variances_and_weights_equal_those_of_a_dense_solver(part: int) -> None:
    for seed in range(part, 150, 5):
        example = random_example(seed)
        if not 2 < len(example.tree) < 150:
            continue
        variances = [float(example.laws[n].variance) if n in example.laws else None for n in example.tree.names]
        fit = solve(example.tree, variances)
        matrix, expected = solve_densely(example.tree, variances)
        rng = np.random.default_rng(seed)
        y = [rng.normal(size=len(level)) for level in example.tree.levels]
        given = [None if s is None else values for s, values in zip(variances, y, strict=True)]
        ends = np.cumsum([0, *map(len, y)])
        estimates = np.concatenate(fit.estimate(given))
        scale = max(1.0, np.abs(estimates).max())
        assert np.abs(estimates - matrix @ np.concatenate(y)).max() < 1e-9 * scale  # the dense solver loses digits
        assert np.abs(np.concatenate(fit.variance) / expected - 1).max() < 1e-9
        weights = np.concatenate(fit.weigh([values[None] for values in y]), axis=-1)[0]
        assert np.abs(weights - matrix.T @ np.concatenate(y)).max() < 1e-9 * max(1.0, np.abs(weights).max())
        for i, s in enumerate(variances):
            if s is None:
                assert not weights[ends[i] : ends[i + 1]].any()


def solve_in_fractions(tree: Tree, variances: list[float]) -> list[list[Fraction]]:
    """The variances of all estimates of a tree whose tables are all measured."""
    rising = [[1 / Fraction(s)] * len(level) for level, s in zip(tree.levels, variances, strict=True)]  # precisions
    totals: list[dict[int, Fraction]] = [{} for _ in tree.levels]
    for i in range(len(tree.levels) - 1, -1, -1):
        rising[i] = [1 / precision for precision in rising[i]]
        level = tree.levels[i]
        for node, parent in enumerate(level.parents.tolist() if i else []):
            totals[i][parent] = totals[i].get(parent, Fraction(0)) + rising[i][node]
        for parent, total in totals[i].items():
            rising[level.above][parent] += 1 / total
    found = [rising[0]]
    for i, level in enumerate(tree.levels[1:], start=1):
        pairs = zip(rising[i], level.parents.tolist(), strict=True)
        above = found[level.above]
        found.append([v - (v / totals[i][p]) ** 2 * (totals[i][p] - above[p]) for v, p in pairs])
    return found


@pytest.mark.parametrize("parents", [[0], [0, 0], [0, 1, 1], [0, 0, 0, 1, 2, 2]])
@pytest.mark.parametrize("ratio", [1e-18, 1e-9, 1e-3, 1e3, 1e9, 1e18])
def test_variances_lose_no_digits_at_extreme_ratios(parents: list[int], ratio: float) -> None:
    tree = Tree.from_parents({"a": (None, [0, 0, 0]), "b": ("a", parents), "c": ("b", [0])})
    for variances in ([1.0, ratio, 1.0, 1.0], [ratio, 1.0, ratio, 1.0], [1.0, 1 / ratio, ratio, 1.0]):
        expected = solve_in_fractions(tree, variances)
        for values, exact in zip(solve(tree, list(variances)).variance, expected, strict=True):
            assert np.abs(values / np.array([float(v) for v in exact]) - 1).max() < 1e-14


def test_many_sets_of_measurements_are_estimated_at_once() -> None:
    example = random_example(3)
    fit = example.fix().fit
    rng = np.random.default_rng(1)
    sets = [None if z is None else rng.normal(size=(3, len(z))) for z in example.noise]
    together = fit.estimate(sets)
    for k in range(3):
        alone = fit.estimate([None if z is None else z[k] for z in sets])
        for a, b in zip(together, alone, strict=True):
            assert np.allclose(a[k], b, atol=1e-12)


def test_a_table_that_no_finer_table_divides_must_be_measured() -> None:
    tree = Tree.from_parents({"county": (None, [0, 0]), "town": ("county", [0, 0])})
    with pytest.raises(RequestError, match="table county has cells that no finer table divides"):
        solve(tree, [None, None, 1.0])
    solve(tree, [None, 1.0, 1.0])
