"""End to end on real people: a PUMS extract, which is not in the repository.

Every test fails for a sound sampler with probability at most 1e-9, so none is retried.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import countveil as cv
from countveil.curator.curator import Curator
from countveil.laws.law import Law
from countveil.mechanism.intervals import Intervals
from tests.support.curated import with_plan

PUMS = Path(__file__).parents[3] / "shared" / "data" / "pums" / "PUMS.csv"
pytestmark = pytest.mark.skipif(not PUMS.exists(), reason=f"the PUMS extract is missing: {PUMS}")
TINY = 1e-9
DRAWS = 10_000

CONFIG = """
[dataset.pums]
source = {source!r}
unit = "row"

[dataset.pums.columns]
age = {{ min = 0, max = 119, step = 10 }}
sex = [0, 1]
educ = {{ min = 1, max = 16 }}
race = {{ min = 1, max = 6 }}
income = {{ min = 0, max = 999999, step = 50000 }}
married = [0, 1]

[dataset.pums.budget]
epsilon = "3"
delta = "1e-6"
answers = 50
"""
Person = dict[str, int]
QUESTIONS: list[tuple[str, Callable[[Person], bool], Callable[[Person], tuple[object, ...]]]] = [
    ("SELECT count(*) FROM pums", lambda p: True, lambda p: ()),
    ("SELECT sex, count(*) FROM pums GROUP BY sex", lambda p: True, lambda p: (p["sex"],)),
    ("SELECT educ, count(*) FROM pums GROUP BY educ", lambda p: True, lambda p: (p["educ"],)),
    ("SELECT age, count(*) FROM pums GROUP BY age", lambda p: True, lambda p: (decade(p["age"]),)),
    (
        "SELECT age, sex, count(*) FROM pums WHERE married = 0 AND income >= 50000 GROUP BY age, sex",
        lambda p: p["married"] == 0 and p["income"] >= 50000,
        lambda p: (decade(p["age"]), p["sex"]),
    ),
    (
        "SELECT educ, sex, count(*) FROM pums WHERE NOT (age BETWEEN 20 AND 64) GROUP BY educ, sex",
        lambda p: not 20 <= p["age"] <= 64,
        lambda p: (p["educ"], p["sex"]),
    ),
    (
        "SELECT race, age, count(*) FROM pums WHERE educ IN (9, 13) OR sex = 1 GROUP BY race, age",
        lambda p: p["educ"] in (9, 13) or p["sex"] == 1,
        lambda p: (p["race"], decade(p["age"])),
    ),
    ("SELECT count(*) FROM pums WHERE income > 900000", lambda p: p["income"] > 900_000, lambda p: ()),
]


def decade(age: int) -> str:
    return f"{age // 10 * 10}-{age // 10 * 10 + 9}"


@pytest.fixture(scope="module")
def everyone() -> list[Person]:
    with PUMS.open(newline="") as file:
        return [{name: int(float(value)) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def curator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curator]:
    folder = tmp_path_factory.mktemp("pums")
    path = folder / "countveil.toml"
    path.write_text(CONFIG.format(source=os.path.relpath(PUMS, folder)))
    with_plan(path)
    with Curator.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def mechanism(curator: Curator) -> cv.Mechanism:
    return curator.count(QUESTIONS[0][0]).mechanism


@pytest.fixture(scope="module")
def cells(everyone: list[Person]) -> list[int]:
    """The different true counts of all cells of all tables, among them 0."""
    found = {0}
    for _, where, key in QUESTIONS:
        found |= set(Counter(key(person) for person in everyone if where(person)).values())
    return sorted(found)


def test_tables_of_real_people_are_within_the_worst_error_and_their_intervals_hold(
    curator: Curator, everyone: list[Person]
) -> None:
    """Every release is within the worst error and never negative; 95 % of the intervals contain the true count."""
    held = cells = 0
    for sql, where, key in QUESTIONS:
        truth = Counter(key(person) for person in everyone if where(person))
        table = curator.count(sql)
        worst = table.mechanism.certificate.worst_error
        rows = {tuple(row[:-3]): row[-3:] for row in table.rows}
        assert set(truth) <= set(rows)
        assert len(rows) == table.cells
        for label, (y, low, high) in rows.items():
            n = truth[label]
            assert y >= 0
            assert abs(y - n) <= worst
            held += low <= n <= high
            cells += 1
        total = table.total()
        assert abs(total.value - sum(truth.values())) <= total.worst_error
    assert cells > 150
    assert stats.binomtest(held, cells, 0.95, "less").pvalue > TINY


def test_the_noise_of_answers_has_the_planned_law(curator: Curator, everyone: list[Person]) -> None:
    """About 700 cells of 35 tables are exact as often as designed, and have the mean and variance of the laws."""
    exact = tried = 0
    centred: list[float] = []
    squared: list[float] = []
    noise: list[float] = []
    for step in range(35):
        table = curator.count(f"SELECT age, sex, count(*) FROM pums WHERE income >= {250 * step} GROUP BY age, sex")
        truth = Counter((decade(p["age"]), p["sex"]) for p in everyone if p["income"] >= 250 * step)
        for age, sex, y, _, _ in table.rows:
            n = truth[age, sex]
            law = table.mechanism.law(n)
            mean, variance = float(law.mean), float(law.variance)
            fourth = sum((z - mean) ** 4 * weight / law.total for z, weight in law.items())
            centred.append((y - n - mean) / variance**0.5)
            squared.append((y - n - mean) ** 2 / variance)
            noise.append(fourth / variance**2 - 1)
            if n >= table.mechanism.certificate.eta_from:
                exact, tried = exact + (y == n), tried + 1
    limit = stats.norm.isf(TINY / 2)
    assert tried > 200
    assert stats.binomtest(exact, tried, float(table.mechanism.eta)).pvalue > TINY
    assert abs(sum(centred)) <= limit * len(centred) ** 0.5
    assert abs(sum(squared) - len(squared)) <= limit * sum(noise) ** 0.5


def draws(mechanism: cv.Mechanism, n: int) -> NDArray[np.int64]:
    return np.asarray(mechanism.release(np.full(DRAWS, n, dtype=np.int64)))


def mean_is(errors: NDArray[np.int64], mean: float, deviation: float, allowed: float, tests: int) -> bool:
    """Whether the mean is as expected, up to `allowed` and the error of so many draws."""
    z = stats.norm.isf(TINY / tests / 2)
    return abs(errors.mean() - mean) <= allowed + z * deviation / DRAWS**0.5


def variance_is(errors: NDArray[np.int64], law: Law, tests: int) -> bool:
    """Whether the variance is that of the law, up to the error of so many draws (from the law's fourth moment)."""
    mean, variance = float(law.mean), float(law.variance)
    fourth = sum((z - mean) ** 4 * weight / law.total for z, weight in law.items())
    found = float(((errors - mean) ** 2).mean())
    return abs(found - variance) <= stats.norm.isf(TINY / tests / 2) * ((fourth - variance**2) / DRAWS) ** 0.5


def test_ten_thousand_draws_have_the_certified_bias_eta_and_largest_error(
    mechanism: cv.Mechanism, cells: list[int]
) -> None:
    """The mean and the variance are those of the law at every count; from the certificate's n0 on there is no bias."""
    c = mechanism.certificate
    assert c.nearly_unbiased_from is not None
    deviation = float(c.variance) ** 0.5
    assert sum(n >= c.nearly_unbiased_from for n in cells) >= 20
    cells = sorted({*cells, *range(c.nearly_unbiased_from, c.stationary_from + 2)})
    for n in cells:
        y = draws(mechanism, n)
        assert y.min() >= 0
        assert np.abs(y - n).max() <= c.worst_error
        law = mechanism.law(n)
        assert mean_is(y - n, float(law.mean), float(law.variance) ** 0.5, 0, len(cells))
        assert variance_is(y - n, law, len(cells))
        if n >= c.nearly_unbiased_from:
            assert mean_is(y - n, 0, deviation, deviation / 1000, len(cells))
        if n >= c.eta_from:
            exact = int((y == n).sum())
            assert stats.binomtest(exact, DRAWS, float(c.eta)).pvalue > TINY / len(cells)


@pytest.mark.parametrize("stretch", [0.7, 1.3])
def test_the_checks_of_noise_reject_other_noise(stretch: float, mechanism: cv.Mechanism) -> None:
    """It rejects noise that is 30 % too small or large, a shift by a fifth of a deviation, half and twice the eta."""
    c, n = mechanism.certificate, 10**6
    law, deviation = mechanism.law(n), float(c.variance) ** 0.5
    errors = draws(mechanism, n) - n
    assert variance_is(errors, law, 100)
    assert not variance_is(np.rint(errors * stretch).astype(np.int64), law, 100)
    assert not mean_is(errors + np.int64(round(deviation / 5)), 0, deviation, deviation / 1000, 100)
    wrong = stats.binomtest(round(DRAWS * float(c.eta) * (2 if stretch > 1 else 0.5)), DRAWS, float(c.eta))
    assert wrong.pvalue < TINY / 100


def test_intervals_contain_real_counts_with_95_percent(mechanism: cv.Mechanism, cells: list[int]) -> None:
    intervals = Intervals(mechanism)
    for n in cells:
        low, high = intervals.of(draws(mechanism, n))
        held = int(((low <= n) & (n <= high)).sum())
        assert stats.binomtest(held, DRAWS, 0.95, "less").pvalue > TINY / len(cells)
