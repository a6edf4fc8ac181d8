"""The paper's five figures: its parameters, its curves, and beside them the exact delta and the optimum."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from countveil.design import paper
from countveil.design.closed_form import knee
from countveil.literature.gaussian import discrete_gaussian, parameter_for_variance
from countveil.numeric.exact_numbers import decimal_text, exp_bounds
from countveil.numeric.search import bisect
from countveil.paper_figures.curves import Three, three
from countveil.paper_figures.failure import boundary
from countveil.paper_figures.points import Figure, Point, as_written

BOUNDS = (4, 6, 8)
"""The values of D that the paper's text names: supports of 9, 13 and 17 values."""
NEAR = tuple(Fraction(i, 2000) for i in (-32, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32))
"""Points are closer together around a kink: at these distances from it, as fractions of the whole axis."""


def noise() -> Figure:
    """The points of the noise figure: P(Z = 0..6) of the paper's law, two discrete Gaussians and the optimum."""
    epsilon, eta, D = Fraction("2.18"), Fraction("0.8"), 6
    curves = three(epsilon, eta, D)
    variance = curves.law.variance
    as_printed = discrete_gaussian(variance)
    equal = discrete_gaussian(parameter_for_variance(variance))
    laws = {
        "paper": curves.law,
        "gaussian-parameter": as_printed.laws.stationary,
        "gaussian-variance": equal.laws.stationary,
        "optimum": curves.best,
    }
    points: list[Point] = [
        {"series": series, "z": z, "probability": law.probability(z)} for series, law in laws.items() for z in range(7)
    ]
    order, _ = exp_bounds(epsilon)
    facts = {
        "paper_delta_singleton": decimal_text(Fraction(paper.closed_form(epsilon, eta, D).delta_star)),
        "paper_delta_stated": decimal_text(curves.stated),
        "paper_delta_exact": _up(curves.exact),
        "optimum_delta": _up(curves.least),
        "gaussian_parameter_delta": _up(as_printed.delta(order)),
        "gaussian_variance_delta": _up(equal.delta(order)),
        "paper_variance": decimal_text(variance),
        "gaussian_parameter_variance": decimal_text(as_printed.laws.stationary.variance),
        "gaussian_variance_variance": decimal_text(equal.laws.stationary.variance),
        "optimum_variance": decimal_text(curves.best.variance),
    }
    title = "Noise of the paper's law and of the discrete Gaussian: epsilon 2.18, eta 0.8, D 6"
    return Figure("noise", title, ("series", "z", "probability"), tuple(points), facts)


def against_epsilon() -> Figure:
    """The points of the figure of delta against epsilon, at eta 0.5."""
    eta = Fraction(1, 2)
    kink = Fraction(decimal_text(_knee_epsilon(eta), 10))
    grid = {Fraction(i, 20) for i in range(1, 61)} | {kink + 3 * step for step in NEAR}
    points: list[Point] = []
    for D in BOUNDS:
        for epsilon in sorted(grid):
            curves = three(epsilon, eta, D)
            points += _rows(curves, D=D, epsilon=epsilon)
    at = three(Fraction("1.1"), eta, 8)
    within = three(Fraction("1.5"), eta, 8).law.within(3)
    facts = {**_facts(at, "D_8_epsilon_1.1"), "D_8_epsilon_1.5_within_3": decimal_text(within)}
    columns = ("series", "D", "epsilon", "delta", "theorem_holds")
    return Figure("epsilon", "delta against epsilon at eta 0.5", columns, tuple(points), facts)


def against_eta(text: str) -> Figure:
    """The points of the figure of delta against eta, at one epsilon."""
    epsilon = Fraction(text)
    points: list[Point] = []
    for D in BOUNDS:
        edge = boundary(epsilon, D)
        grid = {Fraction(i, 100) for i in range(1, 100)} | {Fraction(i, 1000) for i in (2, 5)}
        grid |= {knee(epsilon) + step for step in NEAR} | {edge * share for share in (1 - _HAIR, 1 + _HAIR)}
        grid |= {edge * Fraction(i, 20) for i in range(10, 22)}
        for eta in sorted({as_written(eta) for eta in grid}):
            points += _rows(three(epsilon, eta, D), D=D, eta=eta)
    shown = {"1.1": Fraction(1, 2), "2.2": Fraction("0.8")}[text]
    facts = {
        **_facts(three(epsilon, shown, 8), f"D_8_eta_{decimal_text(shown)}"),
        "knee": decimal_text(knee(epsilon)),
        **{f"theorem_fails_below_D_{D}": decimal_text(boundary(epsilon, D)) for D in BOUNDS},
    }
    columns = ("series", "D", "eta", "delta", "theorem_holds")
    return Figure(f"eta-{text}", f"delta against eta at epsilon {text}", columns, tuple(points), facts)


def against_gaussian() -> Figure:
    """The points of the figure against the Gaussian, at eta 0.5 and D 6.

    They are (epsilon, delta) of the paper's law, of the optimum, and of discrete Gaussians with the variance of the
    paper's law.
    """
    eta, D = Fraction(1, 2), 6
    kink = Fraction(decimal_text(_knee_epsilon(eta), 10))
    points: list[Point] = []
    for epsilon in sorted({Fraction(i, 20) for i in range(1, 61)} | {kink + 3 * step for step in NEAR}):
        curves = three(epsilon, eta, D)
        variance = curves.law.variance
        order, _ = exp_bounds(epsilon)
        for row, law in zip(_rows(curves, epsilon=epsilon), (curves.law, curves.law, curves.best), strict=True):
            points.append({**row, "variance": law.variance})
        for series, s2 in (("gaussian-parameter", variance), ("gaussian-variance", parameter_for_variance(variance))):
            member = discrete_gaussian(s2)
            measured = {"delta": member.delta(order), "variance": member.laws.stationary.variance}
            points.append({"series": series, "epsilon": epsilon, **measured, "theorem_holds": None})
    points.sort(key=lambda point: _SERIES.index(str(point["series"])))
    at = Fraction(2)
    facts = {
        f"epsilon_2_{str(point['series']).replace('-', '_')}_{name}": _up(value)
        for point in points
        if point["epsilon"] == at
        for name in ("delta", "variance")
        if isinstance(value := point[name], Fraction)
    }
    columns = ("series", "epsilon", "delta", "variance", "theorem_holds")
    title = "(epsilon, delta) against the discrete Gaussian: eta 0.5, D 6"
    return Figure("gaussian", title, columns, tuple(points), facts)


_HAIR = Fraction(1, 10**9)
_SERIES = ("paper", "exact", "optimum", "gaussian-parameter", "gaussian-variance")


def _rows(curves: Three, **at: Fraction | int) -> Iterator[Point]:
    """The points of three curves at one value of the parameter: the paper's delta, the exact one, the optimum."""
    holds = "yes" if curves.holds else "no"
    yield {"series": "paper", **at, "delta": curves.stated, "theorem_holds": holds}
    yield {"series": "exact", **at, "delta": curves.exact, "theorem_holds": holds}
    yield {"series": "optimum", **at, "delta": curves.least, "theorem_holds": None}


def _facts(curves: Three, at: str) -> dict[str, str]:
    return {
        f"{at}_paper": decimal_text(curves.stated),
        f"{at}_exact": _up(curves.exact),
        f"{at}_optimum": _up(curves.least),
    }


def _knee_epsilon(eta: Fraction) -> Fraction:
    """The epsilon with tanh(epsilon/2) = eta."""
    return bisect(lambda epsilon: knee(epsilon) >= eta, Fraction(0), Fraction(50), steps=60)[1]


def _up(x: Fraction) -> str:
    return decimal_text(x, rounding="up")
