"""The figure of many answers: independent computations, what must be in order, and the picture that the page shows."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import countveil as cv
from countveil.accounting.composition import Composition
from countveil.accounting.pairs import answer_of
from countveil.errors import ParameterError
from countveil.figures import MORE, NAMES, _chosen, figure
from countveil.figures.composed import COLUMNS, COUNTS, advanced, basic, bracket, peer, tuned, zcdp
from countveil.figures.points import Figure
from countveil.plots.composed import COST, NEED, composition_chart
from countveil.plots.save import save

PAGE = Path(__file__).parents[3] / "docs" / "composition.md"


@cache
def made() -> Figure:
    return figure("composition")


def value(series: str, answers: int, column: str) -> float:
    (point,) = made().select(series=series, answers=answers)
    found = point[column]
    assert isinstance(found, Fraction)
    return float(found)


def composed_delta(p: np.ndarray, k: int, epsilon: float) -> float:
    """delta of k answers of a law against its shift, by convolution of the laws' logarithms in plain floats.

    The k-fold product over outcomes, with losses rounded to multiples of 1e-4: good to about k * 1e-4 in epsilon.
    """
    ahead, behind = np.append(p, 0.0), np.append(0.0, p)
    lost = float(ahead[behind == 0].sum())
    kept = (ahead > 0) & (behind > 0)
    at = np.rint(np.log(ahead[kept] / behind[kept]) / 1e-4).astype(int)
    one = np.bincount(at - at.min(), ahead[kept])
    total, first = np.ones(1), 0
    for _ in range(k):
        total, first = np.convolve(total, one), first + int(at.min())
    loss = (np.arange(len(total)) + first) * 1e-4
    return float(total @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - loss)))) + 1 - (1 - lost) ** k


# Formulas


def test_zcdp() -> None:
    assert zcdp(0.5) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * math.log(1e6)))


def test_basic_and_advanced_are_bounds() -> None:
    m = cv.design(epsilon="0.1", delta="1e-12", policy="signed")
    assert float(basic(m, 1)) == pytest.approx(0.1, rel=1e-4)
    assert basic(m, 7) <= Fraction(7, 10)
    assert advanced(m, 3) == pytest.approx(0.3)
    mean, spread = 1000 * 0.1 * math.tanh(0.05), 0.1 * math.sqrt(2000 * math.log(1e6))
    assert advanced(m, 1000) == pytest.approx(mean + spread, rel=1e-4)


# What k answers cost


@pytest.mark.slow  # computes whole figures
def test_a_bracket_encloses_an_independent_computation() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    low, high = (float(x) for x in bracket(answer_of(m.family, 1), 3))
    assert 0 < low < high < low * (1 + 1e-4)
    law = m.column(0)
    p = np.array([float(law.probability(z)) for z in range(-law.left, law.right + 1)])
    assert composed_delta(p, 3, low - 1e-3) > 1e-6 > composed_delta(p, 3, high + 1e-3)


@pytest.mark.slow  # computes whole figures
def test_exact_is_never_above_a_bound() -> None:
    for k in COUNTS:
        exact = value("exact", k, "epsilon")
        assert exact <= value("basic", k, "epsilon") * (1 + 1e-6)
        assert exact <= value("advanced", k, "epsilon") * (1 + 1e-6)
        assert value("gaussian", k, "epsilon") <= value("gaussian-zcdp", k, "epsilon")
        for series in ("exact", "gaussian"):
            assert 0 < value(series, k, "epsilon") / value(series, k, "epsilon_lower") - 1 < 1e-4


@pytest.mark.slow  # computes whole figures
def test_more_answers_cost_more() -> None:
    for series in COST:
        costs = [value(series, k, "epsilon") for k in COUNTS]
        assert all(a < b for a, b in pairwise(costs))


@pytest.mark.slow  # computes whole figures
def test_the_gaussian_is_worse_for_few_and_better_for_many() -> None:
    assert value("gaussian", 1, "epsilon") > 2 * value("exact", 1, "epsilon")
    assert value("gaussian", 1000, "epsilon") < 0.7 * value("exact", 1000, "epsilon")


# What a budget needs


def test_a_tuned_law_is_certified_and_no_wider_than_needed() -> None:
    member = tuned(2, 10)
    answer = peer(member)
    assert answer.slack == member.cut > 0
    assert Composition([(answer, 10)]).upper(3.0) <= 1e-6 * (1 + 1e-6)
    assert Composition([(answer, 10)]).lower(3.0 * (1 - 1e-3)) > 1e-6
    assert float(tuned(1, 1).columns.stationary.variance) == pytest.approx(0.11028, rel=1e-4)


@pytest.mark.slow  # computes whole figures
def test_plans_are_best() -> None:
    for k in COUNTS:
        assert value("plan", k, "ratio") == 1
        for series in NEED:
            assert value(series, k, "ratio") > 0.9995, "bounds cost next to nothing"
        assert value("basic-need", k, "variance") >= value("geometric-need", k, "variance") * (1 - 1e-3)
        assert value("zcdp-need", k, "variance") > value("gaussian-need", k, "variance")
    best = min(value("geometric-need", 10, "ratio"), value("gaussian-need", 10, "ratio"))
    assert best > 1.05, "better than both where they meet"


# As a figure


def test_it_is_made_only_when_named() -> None:
    assert MORE == ("composition",)
    assert _chosen(None) == list(NAMES)
    assert _chosen(["composition", "noise"]) == ["noise", "composition"]
    with pytest.raises(ParameterError, match="zero-bias, composition"):
        _chosen(["compose"])


@pytest.mark.slow  # computes whole figures
def test_csv() -> None:
    lines = made().csv().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 1 + len(COUNTS) * (len(COST) + len(NEED))


@pytest.mark.slow  # computes whole figures
def test_the_page_shows_it(tmp_path: Path) -> None:
    assert "](figures/composition.svg)" in PAGE.read_text(encoding="utf-8")
    shown = PAGE.parent / "figures" / "composition.svg"
    assert shown.stat().st_size < 200_000
    save(composition_chart(made().points), tmp_path / "composition.svg")

    def texts(path: Path) -> list[str]:
        return ["".join(part.itertext()) for part in ElementTree.parse(path).iter() if part.tag.endswith("text")]

    assert texts(shown) == texts(tmp_path / "composition.svg"), (
        "copy the SVG of `countveil figures --only composition` to docs/figures"
    )
    words = " ".join(texts(shown))
    for style in (*COST.values(), *NEED.values()):
        assert style.label in words
    for styles in (COST, NEED):
        assert len({style.shape for style in styles.values()}) == len(styles), "told apart without colour"
