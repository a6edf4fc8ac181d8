"""Projection and random rounding: nearest, exact in sums, unbiased over u, fair to the declared order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from countveil.consistency import rounding
from countveil.consistency.rounding import UNIT, fit_units, project, round_families
from countveil.consistency.tree import Floats, Ints, Level, Tree
from countveil.consistency.uniforms import Uniforms
from countveil.sampling.randomness import NoiseKey


def families(*widths: int) -> Level:
    parents = np.repeat(np.arange(len(widths)), widths)
    return Tree.from_parents({"a": (None, [0] * len(widths)), "b": ("a", parents)}).levels[2]


def random_problem(seed: int) -> tuple[Level, Floats, Floats, Ints, Ints, Ints]:
    rng = np.random.default_rng(seed)
    level = families(*rng.integers(1, 30, 40))
    low = rng.integers(-5, 5, len(level))
    high = low + rng.integers(0, 8, len(level))
    least, most = level.sum_families(low), level.sum_families(high)
    sums = rng.integers(least, most + 1)
    return level, rng.normal(0, 6, len(level)), rng.uniform(1e-3, 1e3, len(level)), low, high, sums


@pytest.mark.parametrize("seed", range(20))
def test_the_projection_has_the_right_sums_and_is_the_nearest_one(seed: int) -> None:
    level, estimates, variances, low, high, sums = random_problem(seed)
    x = project(level, estimates, variances, low, high, sums)
    assert np.abs(level.sum_families(x) - sums).max() < 1e-6
    assert ((low <= x) & (x <= high)).all()
    pull = (x - estimates) / variances  # one multiplier for a family, but at bounds
    for start, width in zip(level.starts, level.widths, strict=True):
        own = slice(start, start + width)
        inside = (x[own] > low[own] + 1e-9) & (x[own] < high[own] - 1e-9)
        scale = 1e-5 * (1 + np.abs(pull[own]).max())
        if inside.any():
            multiplier = pull[own][inside].mean()
            assert np.abs(pull[own][inside] - multiplier).max() < scale
            assert (pull[own][x[own] <= low[own] + 1e-9] > multiplier - scale).all() or (low[own] == high[own]).any()


@pytest.mark.parametrize("seed", range(20))
def test_rounding_keeps_sums_and_bounds_exactly_and_moves_no_value_by_more_than_one(seed: int) -> None:
    level, estimates, variances, low, high, sums = random_problem(seed)
    x = project(level, estimates, variances, low, high, sums)
    counts = round_families(level, x, low, high, sums, Uniforms())
    assert level.sum_families(counts).tolist() == sums.tolist()
    assert ((low <= counts) & (counts <= high)).all()
    assert (np.abs(counts - x) < 1 + 1e-5).all()


@pytest.mark.parametrize("seed", range(10))
def test_rounding_keeps_sums_and_bounds_even_if_the_projection_failed(seed: int) -> None:
    """Even if the projection failed altogether."""
    level, _, _, low, high, sums = random_problem(seed)
    for x in (low + 0.5, high - 0.5, np.random.default_rng(seed).uniform(low, high + 1e-9), high * 1.0, low * 1.0):
        counts = round_families(level, x, low, high, sums, Uniforms())
        assert level.sum_families(counts).tolist() == sums.tolist()
        assert ((low <= counts) & (counts <= high)).all()


def test_fractions_of_a_family_add_up_to_its_sum_less_the_integer_parts() -> None:
    level = families(3)
    units = np.array([UNIT // 3] * 3)
    low, high = np.zeros(3, dtype=np.int64), np.full(3, 5)
    exact = fit_units(level, np.array([1, 1, 1]), units, low, high, np.array([4]))
    assert int(exact.sum()) == UNIT
    assert np.abs(exact - units).max() <= 1


def test_families_are_rounded_in_random_order() -> None:
    """In declared order, two of four halves would never be rounded up next to each other at the ends."""
    level = families(4)
    low, high, sums = np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64), np.array([2])
    runs = [round_families(level, np.full(4, 0.5), low, high, sums, Uniforms()) for _ in range(200)]
    assert len({tuple(counts.tolist()) for counts in runs}) == 6


class Enumeration(Uniforms):
    """Uniforms that give one chosen number to every family."""

    def __init__(self, u: int) -> None:
        super().__init__(NoiseKey(bytes(32)))  # one order for all u
        self.u = u

    def draw(self, size: int, bits: int = 64) -> np.typing.NDArray[np.uint64]:
        return np.full(size, self.u, dtype=np.uint64) if bits == rounding.UNIT_BITS else super().draw(size, bits)


def test_rounding_is_unbiased_over_all_uniforms() -> None:
    level = families(5, 3)
    x = np.array([0.25, 0.5, 1.75, 2.0, 0.5, 0.125, 0.375, 0.5])
    low, high, sums = np.zeros(8, dtype=np.int64), np.full(8, 9), np.array([5, 1])
    runs = [round_families(level, x, low, high, sums, Enumeration(k * UNIT // 8)) for k in range(8)]
    assert np.mean(runs, axis=0).tolist() == x.tolist()


def largest_remainders(level: Level, x: Floats, low: Ints, high: Ints, sums: Ints, uniforms: Uniforms) -> Ints:
    """The rounding that favours the declared order among equal remainders."""
    counts = np.floor(x + 1e-7).astype(np.int64)
    missing = sums - level.sum_families(counts)
    order = np.lexsort((-np.round(x - counts, 6), level.spread(np.arange(len(level.starts)))))
    rank = level.accumulate(np.ones(len(level), dtype=np.int64))
    up = np.zeros(len(level), dtype=np.int64)
    up[order] = rank < level.spread(missing)
    return np.minimum(counts + up, high)


def test_rounding_favours_no_category_by_its_declared_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal categories have equal mean errors; the largest remainders, which favour the first one, fail the test."""
    from countveil.consistency.reconciler import Reconciler
    from tests.support.trees import three_point_law

    towns, categories = 300, 5
    tree = Tree.from_parents(
        {"town": (None, [0] * towns), "category": ("town", np.repeat(np.arange(towns), categories))}
    )
    law = three_point_law(3, 2)
    fixed = Reconciler.of(tree, law, ("town", "category"))
    fixed.simulation = type(fixed.simulation)(fixed.fit, fixed.laws, runs=20)
    rng = np.random.default_rng(5)

    def judge() -> float:
        errors = []
        for _ in range(6):
            noise = [3 * rng.choice([-1, 0, 0, 1], n) for n in (towns, towns * categories)]
            result = fixed.reconcile({"town": 100 + noise[0], "category": 20 + noise[1]})
            errors.append((result["category"].count - 20).reshape(towns, categories))
        table = np.concatenate(errors)
        return float(stats.f_oneway(*table.T).pvalue)

    assert judge() > 1e-9
    monkeypatch.setattr(rounding, "round_families", largest_remainders)
    assert judge() < 1e-9
