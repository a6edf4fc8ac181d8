"""The points of the figures: the paper's printed numbers, independent computations, and the order of curves."""

from __future__ import annotations

import csv
import io
import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest

from countveil.design import paper
from countveil.design.closed_form import knee
from countveil.errors import ParameterError
from countveil.numeric.exact_numbers import decimal_text
from countveil.paper_figures import NAMES, figure
from countveil.paper_figures.curves import three
from countveil.paper_figures.failure import boundary, false_below
from countveil.paper_figures.points import Figure

TINY = Fraction(1, 10**30)
"""The measured deltas of two laws with the same delta may differ by this, as weights are rounded to 2**-192."""


@cache
def computed_figure(name: str) -> Figure:
    return figure(name)


def value(name: str, column: str, **where: object) -> Fraction:
    (point,) = computed_figure(name).select(**where)
    number = point[column]
    assert isinstance(number, Fraction)
    return number


# The paper's printed numbers


def test_the_figure_of_noise_has_the_printed_probabilities() -> None:
    printed = {("paper", 1): "0.08987", ("paper", 2): "0.00960", ("gaussian-parameter", 1): "0.11685"}
    for (series, z), text in printed.items():
        assert f"{float(value('noise', 'probability', series=series, z=z)):.5f}" == text
    assert f"{float(value('noise', 'probability', series='gaussian-parameter', z=2)):.6f}" == "0.000416"
    ratio = value("noise", "probability", series="paper", z=1) / value("noise", "probability", series="paper", z=2)
    assert f"{float(ratio):.4f}" == "9.3617"
    assert [z for z in range(7) if computed_figure("noise").select(series="paper", z=z)[0]["probability"]] == [
        0,
        1,
        2,
        3,
    ]


def test_a_gaussian_at_the_same_parameter_has_another_variance() -> None:
    facts = computed_figure("noise").facts
    assert facts["paper_variance"].startswith("0.2660")
    assert facts["gaussian_parameter_variance"].startswith("0.2370")
    assert facts["gaussian_variance_variance"] == facts["paper_variance"]
    assert facts["paper_delta_exact"].startswith("0.0153693741")
    assert facts["paper_delta_singleton"].startswith("0.00494782")
    assert facts["paper_delta_stated"].startswith("0.0643216")


def test_gaussian_probabilities_equal_an_independent_computation() -> None:
    s2 = float(computed_figure("noise").facts["paper_variance"])
    total = sum(math.exp(-z * z / (2 * s2)) for z in range(-40, 41))
    for z in range(7):
        probability = float(value("noise", "probability", series="gaussian-parameter", z=z))
        assert probability == pytest.approx(math.exp(-z * z / (2 * s2)) / total, rel=1e-9)


def test_deltas_are_within_the_bounds_of_the_papers_text() -> None:
    for point in computed_figure("epsilon").select(series="paper", D=8):
        if point["epsilon"] >= Fraction("1.1"):
            assert point["delta"] <= Fraction("0.001")
    assert value("eta-1.1", "delta", series="paper", D=8, eta=Fraction("0.5")) <= Fraction("1e-3")
    assert value("eta-2.2", "delta", series="paper", D=8, eta=Fraction("0.8")) <= Fraction("5e-7")
    assert f"{float(computed_figure('epsilon').facts['D_8_epsilon_1.5_within_3']):.4f}" == "0.9945"


def test_figures_agree_at_shared_points() -> None:
    for series in ("paper", "exact", "optimum"):
        delta = value("epsilon", "delta", series=series, D=8, epsilon=Fraction("1.1"))
        assert delta == value("eta-1.1", "delta", series=series, D=8, eta=Fraction("0.5"))
        at = Fraction("1.5")
        assert value("gaussian", "delta", series=series, epsilon=at) == value(
            "epsilon", "delta", series=series, D=6, epsilon=at
        )
    assert computed_figure("eta-1.1").facts["D_8_eta_0.5_optimum"].startswith("7.553491255")
    assert computed_figure("eta-2.2").facts["D_8_eta_0.8_exact"].startswith("1.297032530")


def test_gaussian_deltas_equal_the_formula() -> None:
    """delta_G = P(Z > eps s2 - 1/2) - e^eps P(Z > eps s2 + 1/2), as the paper computes it, in floats."""
    variances = {point["epsilon"]: point["variance"] for point in computed_figure("gaussian").select(series="paper")}
    for point in computed_figure("gaussian").select(series="gaussian-parameter"):
        epsilon, s2 = float(point["epsilon"]), float(variances[point["epsilon"]])
        law = {z: math.exp(-z * z / (2 * s2)) for z in range(-60, 61)}
        total = sum(law.values())
        tails = [sum(p for z, p in law.items() if z > epsilon * s2 + side) / total for side in (-0.5, 0.5)]
        assert float(point["delta"]) == pytest.approx(tails[0] - math.exp(epsilon) * tails[1], rel=1e-8)


# The order of the curves, and the exact delta


@pytest.mark.parametrize("name", ["epsilon", "eta-1.1", "eta-2.2", "gaussian"])
def test_the_optimum_is_at_most_the_exact_delta_which_is_at_most_the_stated_one(name: str) -> None:
    axis = "eta" if name.startswith("eta") else "epsilon"
    stated, exact, best = (
        {(p.get("D"), p[axis]): p for p in computed_figure(name).select(series=series)}
        for series in ("paper", "exact", "optimum")
    )
    assert stated.keys() == exact.keys() == best.keys()
    fails = 0
    for key, point in stated.items():
        assert best[key]["delta"] <= exact[key]["delta"] + TINY
        if point["theorem_holds"] == "yes":
            assert exact[key]["delta"] <= point["delta"]
        else:
            fails += 1
    assert bool(fails) == name.startswith("eta"), "eta 0.5 is large enough at every epsilon"


def test_between_edge_and_knee_the_exact_delta_is_D_times_delta_star() -> None:
    for epsilon, eta, D in (("1.1", "0.5", 8), ("2.2", "0.3", 6), ("0.7", "0.2", 4)):
        curves = three(Fraction(epsilon), Fraction(eta), D)
        assert curves.holds
        assert float(curves.stated / curves.exact) == pytest.approx((2 * D + 1) / D, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "eta", "D", "ratio"),
    [("0.5", "0.1165", 6, 6.9306), ("0.1", "0.15", 2, 2.8940), ("0.5", "0.15", 2, 2.5255), ("0.5", "0.2", 2, 2)],
)
def test_the_rise_from_p0_to_p1_increases_delta_just_above_the_papers_failure_edge(
    epsilon: str, eta: str, D: int, ratio: float
) -> None:
    curves = three(Fraction(epsilon), Fraction(eta), D)
    star = curves.stated / (2 * D + 1)
    assert curves.holds
    assert float(curves.exact / star) == pytest.approx(ratio, rel=1e-3)
    first = curves.law.probability(1) - Fraction(math.exp(float(epsilon))) * curves.law.eta
    assert float(curves.exact) == pytest.approx(float(D * star + max(0, first)), rel=1e-12)


@pytest.mark.parametrize("D", [1, 2, 6, 20])
def test_up_to_the_knee_the_exact_delta_is_at_most_D_plus_1_times_delta_star(D: int) -> None:
    for text in ("0.1", "0.5", "1.1", "2.2"):
        epsilon, edge = Fraction(text), boundary(Fraction(text), D)
        for i in range(1, 20):
            eta = edge + (knee(epsilon) - edge) * Fraction(i, 20)
            if not edge < eta < knee(epsilon):
                continue
            curves = three(epsilon, eta, D)
            star = curves.stated / (2 * D + 1) if curves.stated < 1 else None
            if star is not None:
                assert D * (1 - 1e-12) <= float(curves.exact / star) <= (D + 1) * (1 + 1e-12)


def test_at_the_edge_the_exact_delta_is_D_plus_1_times_delta_star() -> None:
    for epsilon, D in (("0.5", 2), ("0.5", 6), ("1.1", 6)):
        curves = three(Fraction(epsilon), boundary(Fraction(epsilon), D), D)
        assert curves.holds
        assert float(curves.exact * (2 * D + 1) / curves.stated) == pytest.approx(D + 1, rel=1e-6)


def test_exact_deltas_equal_brute_force() -> None:
    for epsilon, eta, D in ((1.1, "0.01", 6), (2.2, "0.85", 4), (0.5, "0.05", 6)):
        curves = three(Fraction(str(epsilon)), Fraction(eta), D)
        for law, claimed in ((curves.law, curves.exact), (curves.best, curves.least)):
            p = {z: w / law.total for z, w in law.items()}
            brute = sum(max(0.0, p.get(y, 0) - math.exp(epsilon) * p.get(y - 1, 0)) for y in range(-D, D + 2))
            assert float(claimed) == pytest.approx(brute, rel=1e-9)


# Where the theorem fails


def float_condition(epsilon: float, eta: float, D: int) -> bool:
    """The theorem's missing condition in floats, with delta* by its definition: the largest lower bound."""
    E, B, C = math.exp(epsilon), 2 / (1 - eta), 2 * eta / (1 - eta)
    bounds = [
        (C * sum(E**j for j in range(k)) - E**k) / (B * sum((j + 1) * E**j for j in range(k))) for k in range(1, D + 1)
    ]
    bounds.append(1 / (B * sum((D - j) * E**j for j in range(D))))
    star = max(bounds)
    first = (C - B * star) / E if bounds.index(star) < D else B * star * sum(E**j for j in range(D))
    return first <= E * C + B * star


@pytest.mark.slow  # computes whole figures
@pytest.mark.parametrize("D", [2, 6])
def test_the_boundary_equals_an_independent_computation(D: int) -> None:
    points = computed_figure("failure").select(series="theorem fails below", D=D)
    assert len(points) > 60
    for point in points[::5]:
        epsilon, eta = float(point["epsilon"]), float(point["eta"])
        assert not float_condition(epsilon, eta * (1 - 1e-6), D)
        assert float_condition(epsilon, eta * (1 + 1e-6), D)


@pytest.mark.slow  # computes whole figures
@pytest.mark.parametrize("D", [2, 6, 100])
def test_the_boundary_equals_its_closed_form(D: int) -> None:
    for point in computed_figure("failure").select(series="theorem fails below", D=D)[::9]:
        E = math.exp(float(point["epsilon"]))
        sums = [sum(E**j for j in range(k)) for k in range(D + 1)]
        C = sums[D - 1] / sum(sums)
        assert float(point["eta"]) == pytest.approx(C / (2 + C), rel=1e-9)


@pytest.mark.parametrize("D", [1, 2, 6, 20])
def test_the_values_of_eta_at_which_the_theorem_fails_are_an_interval(D: int) -> None:
    for text in ("0.1", "0.7", "1.1", "2.2", "5"):
        epsilon = Fraction(text)
        edge = boundary(epsilon, D)
        assert D > 1 or edge < Fraction(1, 10**11), "with D = 1 the theorem always holds"
        for i in range(1, 300):
            eta = Fraction(i, 300)
            assert paper.closed_form(epsilon, eta, D).holds == (eta >= edge)


def test_the_stated_delta_is_false_on_an_interval_below_the_boundary() -> None:
    for text in ("0.5", "1.1", "2.2"):
        epsilon = Fraction(text)
        edge = false_below(epsilon, 6)
        assert edge is not None
        assert edge < boundary(epsilon, 6)
        for i in range(1, 100):
            eta = Fraction(i, 500)
            curves = three(epsilon, eta, 6)
            assert (curves.exact > curves.stated) == (eta < edge)
    assert false_below(Fraction("0.02"), 6) is None


@pytest.mark.slow  # designs at many points of a figure
def test_the_exact_delta_is_26_times_the_stated_one_at_eta_0_01() -> None:
    assert computed_figure("failure").facts["D_6_epsilon_1.1_eta_0.01_stated"].startswith("0.0117845")
    assert computed_figure("failure").facts["D_6_epsilon_1.1_eta_0.01_exact"].startswith("0.3074366")
    where = {"series": "ratio", "epsilon": Fraction("1.1"), "eta": Fraction("0.01")}
    assert value("failure", "ratio", **where) > 26


# What zero bias costs


@pytest.mark.slow  # computes whole figures
def test_zero_bias_eta_grows_with_n0_up_to_the_signed_optimum() -> None:
    for epsilon in ("0.5", "1", "2"):
        points = computed_figure("zero-bias").select(series=f"epsilon {epsilon}")
        etas = [point["eta"] for point in points if point["eta"] is not None]
        E = math.exp(float(epsilon))
        signed = value("zero-bias", "eta", series="signed optimum", epsilon=Fraction(epsilon))
        assert float(signed) == pytest.approx((2e-6 + E - 1) / (E + 1), rel=1e-12)
        assert all(a <= b * (1 + TINY) for a, b in pairwise(etas)), "later is never worse"
        assert etas[-1] <= signed * (1 + TINY)
        for point in points:
            n0, D = point["n0"], point["D"]
            floor = (n0 + 1 - E * n0) / (n0 + 1 + D)
            assert (point["status"] == "impossible") == (floor > 1e-6)
            assert point["status"] in ("at least" if epsilon == "0.5" else "ok", "impossible"), "tied laws are a bound"


@pytest.mark.slow  # computes whole figures
def test_the_figure_of_zero_bias_agrees_with_design() -> None:
    import countveil as cv

    m = cv.design(epsilon="1", delta="1e-6", D=14, unbiased_from=2)
    assert float(m.eta) == pytest.approx(float(computed_figure("zero-bias").facts["epsilon_1_n0_2"]), rel=3e-6)
    for n0, text in ((1, "0.358"), (2, "0.445"), (3, "0.458"), (5, "0.4618")):
        assert computed_figure("zero-bias").facts[f"epsilon_1_n0_{n0}"].startswith(text)


# As rows


@pytest.mark.slow  # computes whole figures
@pytest.mark.parametrize("name", NAMES)
def test_the_csv_of_a_figure_has_every_point(name: str) -> None:
    chart = computed_figure(name)
    rows = list(csv.DictReader(io.StringIO(chart.csv())))
    assert len(rows) == len(chart.points) > 20
    for row, point in zip(rows, chart.points, strict=True):
        assert tuple(row) == chart.columns
        assert set(point) == set(chart.columns)
        for column, text in row.items():
            expected = point[column]
            if isinstance(expected, Fraction):
                assert abs(Fraction(text) - expected) <= abs(expected) / 10**14
            else:
                assert text == ("" if expected is None else str(expected))


@pytest.mark.slow  # computes whole figures
@pytest.mark.parametrize("name", ["epsilon", "eta-1.1", "eta-2.2", "gaussian", "failure"])
def test_parameters_are_written_exactly_in_the_csv(name: str) -> None:
    """Values computed at a point hold for the epsilon and eta in the CSV."""
    chart = computed_figure(name)
    for point in chart.points:
        for column in ("epsilon", "eta"):
            if isinstance(point.get(column), Fraction) and (name != "failure" or point["series"] == "ratio"):
                assert Fraction(chart.text(point, column)) == point[column]


def test_deltas_in_the_csv_hold_at_the_eta_in_the_csv() -> None:
    chart = computed_figure("eta-2.2")
    rows = [row for row in csv.DictReader(io.StringIO(chart.csv())) if row["series"] == "exact" and row["D"] == "8"]
    for row in rows[::10]:
        exact = three(Fraction("2.2"), Fraction(row["eta"]), 8).exact
        assert exact <= Fraction(row["delta"]) <= exact * (1 + Fraction(1, 10**14))


def test_measured_deltas_are_rounded_up() -> None:
    chart = computed_figure("epsilon")
    (point,) = chart.select(series="exact", D=8, epsilon=Fraction("1.5"))
    delta = point["delta"]
    assert isinstance(delta, Fraction)
    assert chart.text(point, "delta") == decimal_text(delta, rounding="up")
    assert Fraction(chart.text(point, "delta")) >= delta


def test_unknown_figure_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="figure: got six, allowed is one of noise, epsilon"):
        figure("six")
