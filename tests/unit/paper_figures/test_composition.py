"""The figure of many answers: independent computations, the order of its curves, and the picture on the page."""

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
from countveil.accounting.privacy_loss import answer_of
from countveil.errors import ParameterError
from countveil.paper_figures import MORE, NAMES, _choose_figures, figure
from countveil.paper_figures.composition import (
    COLUMNS,
    COUNTS,
    advanced_epsilon,
    basic_epsilon,
    bracket,
    peer,
    tune_member,
    zcdp_epsilon,
)
from countveil.paper_figures.points import Figure
from countveil.plots.chart_files import save
from countveil.plots.composition import COST, NEED, composition_chart

PAGE = Path(__file__).parents[3] / "docs" / "composition.md"


@cache
def composition_figure() -> Figure:
    return figure("composition")


def value(series: str, answers: int, column: str) -> float:
    (point,) = composition_figure().select(series=series, answers=answers)
    number = point[column]
    assert isinstance(number, Fraction)
    return float(number)


def composed_delta(p: np.ndarray, k: int, epsilon: float) -> float:
    """The delta of k answers of a law and its shift, by a k-fold convolution of losses in plain floats.

    Losses are rounded to multiples of 1e-4, so the error is about k * 1e-4 in epsilon.
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


def test_zcdp_epsilon_equals_its_formula() -> None:
    assert zcdp_epsilon(0.5) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * math.log(1e6)))


def test_basic_and_advanced_composition_equal_their_formulas() -> None:
    m = cv.design(epsilon="0.1", delta="1e-12", policy="signed")
    assert float(basic_epsilon(m, 1)) == pytest.approx(0.1, rel=1e-4)
    assert basic_epsilon(m, 7) <= Fraction(7, 10)
    assert advanced_epsilon(m, 3) == pytest.approx(0.3)
    mean, spread = 1000 * 0.1 * math.tanh(0.05), 0.1 * math.sqrt(2000 * math.log(1e6))
    assert advanced_epsilon(m, 1000) == pytest.approx(mean + spread, rel=1e-4)


# What k answers cost


@pytest.mark.slow  # computes whole figures
def test_the_bracket_of_an_exact_epsilon_encloses_an_independent_computation() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    low, high = (float(x) for x in bracket(answer_of(m.laws, 1), 3))
    assert 0 < low < high < low * (1 + 1e-4)
    law = m.law(0)
    p = np.array([float(law.probability(z)) for z in range(-law.left, law.right + 1)])
    assert composed_delta(p, 3, low - 1e-3) > 1e-6 > composed_delta(p, 3, high + 1e-3)


@pytest.mark.slow  # computes whole figures
def test_the_exact_epsilon_is_never_above_a_bound() -> None:
    for k in COUNTS:
        exact = value("exact", k, "epsilon")
        assert exact <= value("basic", k, "epsilon") * (1 + 1e-6)
        assert exact <= value("advanced", k, "epsilon") * (1 + 1e-6)
        assert value("gaussian", k, "epsilon") <= value("gaussian-zcdp", k, "epsilon")
        for series in ("exact", "gaussian"):
            assert 0 < value(series, k, "epsilon") / value(series, k, "epsilon_lower") - 1 < 1e-4


@pytest.mark.slow  # computes whole figures
def test_more_answers_cost_more_epsilon_in_every_series() -> None:
    for series in COST:
        costs = [value(series, k, "epsilon") for k in COUNTS]
        assert all(a < b for a, b in pairwise(costs))


@pytest.mark.slow  # computes whole figures
def test_the_gaussian_costs_more_for_few_answers_and_less_for_many() -> None:
    assert value("gaussian", 1, "epsilon") > 2 * value("exact", 1, "epsilon")
    assert value("gaussian", 1000, "epsilon") < 0.7 * value("exact", 1000, "epsilon")


# What a budget needs


def test_a_tuned_law_is_certified_and_has_little_more_noise_than_needed() -> None:
    member = tune_member(2, 10)
    answer = peer(member)
    assert answer.slack == member.cut > 0
    assert Composition([(answer, 10)]).upper(3.0) <= 1e-6 * (1 + 1e-6)
    assert Composition([(answer, 10)]).lower(3.0 * (1 - 1e-3)) > 1e-6
    assert float(tune_member(1, 1).laws.stationary.variance) == pytest.approx(0.11028, rel=1e-4)


@pytest.mark.slow  # computes whole figures
def test_plans_need_the_least_variance() -> None:
    for k in COUNTS:
        assert value("plan", k, "ratio") == 1
        for series in NEED:
            assert value(series, k, "ratio") > 0.9995, "bounds cost next to nothing"
        assert value("basic-need", k, "variance") >= value("geometric-need", k, "variance") * (1 - 1e-3)
        assert value("zcdp-need", k, "variance") > value("gaussian-need", k, "variance")
    best = min(value("geometric-need", 10, "ratio"), value("gaussian-need", 10, "ratio"))
    assert best > 1.05, "better than both where they meet"


# As a figure


def test_the_figure_of_composition_is_computed_only_on_request() -> None:
    assert MORE == ("composition",)
    assert _choose_figures(None) == list(NAMES)
    assert _choose_figures(["composition", "noise"]) == ["noise", "composition"]
    with pytest.raises(ParameterError, match="zero-bias, composition"):
        _choose_figures(["compose"])


@pytest.mark.slow  # computes whole figures
def test_the_csv_of_a_figure_has_a_line_for_every_point() -> None:
    lines = composition_figure().csv().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 1 + len(COUNTS) * (len(COST) + len(NEED))


@pytest.mark.slow  # computes whole figures
def test_the_page_shows_the_current_figure(tmp_path: Path) -> None:
    assert "](figures/composition.svg)" in PAGE.read_text(encoding="utf-8")
    shown = PAGE.parent / "figures" / "composition.svg"
    assert shown.stat().st_size < 200_000
    save(composition_chart(composition_figure().points), tmp_path / "composition.svg")

    def texts(path: Path) -> list[str]:
        return ["".join(part.itertext()) for part in ElementTree.parse(path).iter() if part.tag.endswith("text")]

    assert texts(shown) == texts(tmp_path / "composition.svg"), (
        "copy the SVG of `countveil figures --only composition` to docs/figures"
    )
    words = " ".join(texts(shown))
    for style in (*COST.values(), *NEED.values()):
        assert style.label in words
    for styles in (COST, NEED):
        assert len({style.shape for style in styles.values()}) == len(styles), "distinguishable without colour"
