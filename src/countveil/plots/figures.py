"""The paper's figures drawn: each from the points of `countveil.paper_figures`, as a chart of one or more panels.

Lines that share a panel differ in colour, lightness, dashes and the shape of their marks: readers can distinguish them
without colour. Where the paper's theorem fails, the delta that it states is dotted, on a grey background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from countveil.errors import ParameterError
from countveil.plots import altair as alt, theme
from countveil.plots.theme import DASH_DOT, Style, curves, encodings, ground, headline, log_y

Points = Sequence[Mapping[str, Any]]

PANEL_WIDTH, PANEL_HEIGHT = 236, 270
HALF_WIDTH = 360
GAUSSIAN_LEAST = 1e-8
"""The lower end of the delta axis of the Gaussian figure; all its curves are above."""

PAPER = Style("as the paper plots it: (2D+1) delta*", theme.MIDDLE, theme.DASHED, "circle")
FAILS = Style("as the paper plots it, where its theorem fails", theme.MIDDLE, [1, 3], "cross", 2.8)
EXACT = Style("exact delta of the paper's law", theme.LIGHT, theme.SOLID, "square", 3.2)
OPTIMUM = Style("our optimum: the least exact delta", theme.DARK, theme.SOLID, "triangle-up", 1.8)
LOOKS = (
    (theme.LIGHT, theme.SOLID, "square"),
    (theme.MIDDLE, theme.DASHED, "circle"),
    (theme.DARK, theme.SOLID, "triangle-up"),
)
"""Colour, dashes and mark for each of three curves."""
STYLES = {"paper": PAPER, "fails": FAILS, "exact": EXACT, "optimum": OPTIMUM}


def chart(name: str, points: Points) -> alt.TopLevelMixin:
    """Draw the figure of this name from its points."""
    if name not in CHARTS:
        raise ParameterError("figure", name, "one of " + ", ".join(CHARTS))
    picture: alt.TopLevelMixin = CHARTS[name](points)
    return picture


# The paper's five


def noise(points: Points) -> alt.TopLevelMixin:
    """The figure of the noise: P(Z = z) on a log scale, as stems side by side, with marks of different shapes."""
    styles = {
        "paper": Style("the paper's law", theme.MIDDLE, theme.SOLID, "circle"),
        "gaussian-parameter": Style(
            "discrete Gaussian as the paper makes it (by parameter)", theme.QUIET, theme.SOLID, "cross"
        ),
        "gaussian-variance": Style("discrete Gaussian at equal variance", theme.LIGHT, theme.SOLID, "square"),
        "optimum": Style("our optimum: the least exact delta", theme.DARK, theme.SOLID, "triangle-up"),
    }
    least = 1e-9
    rows = [
        {"z": point["z"] + 0.16 * (i - 1.5), "p": float(point["probability"]), "series": style.label, "floor": least}
        for i, (series, style) in enumerate(styles.items())
        for point in points
        if point["series"] == series and point["probability"] > least
    ]
    x = alt.X("z:Q", title="noise z: published minus true count (people); the law is symmetric")
    x = x.scale(domain=[-0.5, 6.5], nice=False).axis(values=list(range(7)), format="d", grid=False)
    y = log_y("p", "probability P(Z = z), log scale", least)
    colour, shape = encodings(list(styles.values()), columns=2)
    base = alt.Chart(theme.data(rows))
    stems = base.mark_rule(strokeWidth=2).encode(x=x, y=y, y2=alt.Y2("floor:Q"), color=colour)
    marks = base.mark_point(size=70, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape)
    heading = headline(
        "The noise at epsilon 2.18, eta 0.8, D 6",
        "The paper's law ends at 3; the optimum, with the same exact delta, at 2. The Gaussian falls too steeply from "
        "1 to 2; if made as in the paper, it also has less variance.",
        width=100,
    )
    return alt.LayerChart(layer=[stems, marks], title=heading, width=560, height=280)


def against_epsilon(points: Points) -> alt.TopLevelMixin:
    """The figure of delta against epsilon, with a panel for each noise bound D."""
    return _three_curves(
        points,
        "epsilon",
        "privacy loss epsilon",
        [0, 3],
        1e-9,
        "delta against epsilon at eta 0.5",
        "Right of the knee (dotted line) the paper states about twice the true delta of its law; the delta of the "
        "optimum is a third to an eighth of the true one. Left of it eta 0.5 is too large, and both laws have the "
        "same delta.",
        knee=_knee_epsilon(0.5),
    )


def against_eta(epsilon: str, least: float) -> Callable[[Points], alt.TopLevelMixin]:
    """A function that draws the figure of delta against eta at this epsilon, with a panel for each noise bound D.

    `least` is the lower end of the delta axis.
    """

    def draw(points: Points) -> alt.TopLevelMixin:
        return _three_curves(
            points,
            "eta",
            "eta: probability that the exact count is published",
            [0, 1],
            least,
            f"delta against eta at epsilon {epsilon}",
            f"The knee is tanh(epsilon/2) = {math.tanh(float(epsilon) / 2):.4f} (dotted line). On grey ground, eta is "
            "so small that the paper's theorem fails; the delta that it states is soon below the true delta.",
            knee=math.tanh(float(epsilon) / 2),
        )

    return draw


def against_gaussian(points: Points) -> alt.TopLevelMixin:
    """The figure of delta against epsilon for the paper's law, the optimum and two Gaussians, in one panel."""
    styles = {
        "gaussian-variance": Style("discrete Gaussian at equal variance", "#b9b9b9", theme.SOLID, "diamond", 5),
        "gaussian-parameter": Style(
            "discrete Gaussian as the paper makes it (by parameter)", theme.INK, DASH_DOT, "cross", 1.6
        ),
        "paper": PAPER,
        "exact": EXACT,
        "optimum": OPTIMUM,
    }
    rows = _curve_rows(points, "epsilon", styles, least=GAUSSIAN_LEAST)
    x = alt.X("at:Q", title="privacy loss epsilon").scale(domain=[0, 3], nice=False).axis(grid=False)
    y = log_y("delta", "delta, log scale", GAUSSIAN_LEAST)
    heading = headline(
        "Against the discrete Gaussian at eta 0.5, D 6",
        "At every epsilon the Gaussians have the variance of the paper's law at that epsilon. Parameter and variance "
        "hardly differ here, so both Gaussians lie on one line.",
        width=100,
    )
    layers = curves(rows, list(styles.values()), x, y, columns=2)
    return alt.LayerChart(layer=layers, title=heading, width=560, height=320)


# Two figures that the paper lacks


def failure(points: Points) -> alt.TopLevelMixin:
    """The figure of where the paper's theorem fails.

    Left: boundaries in the plane of epsilon and eta. Right: the true delta divided by the delta that the paper states.
    """
    left = alt.LayerChart(layer=_boundaries(points), width=HALF_WIDTH, height=290)
    right = alt.LayerChart(layer=_ratios(points), width=HALF_WIDTH, height=290)
    heading = headline(
        "Where the paper's theorem fails",
        "Left: below its line, for each D, the paper's law is less private than the theorem says; on grey ground, "
        "for D 6, even the bound (2D+1) delta* is below the true delta. Right: by how much, for D 6.",
    )
    page = alt.hconcat(left, right, spacing=44).properties(title=heading)
    chart: alt.HConcatChart = page.resolve_scale(color="independent", shape="independent", y="independent")
    return chart


def zero_bias(points: Points) -> alt.TopLevelMixin:
    """The figure of what zero bias from a count n0 on costs.

    Left: the largest eta against n0. Right: the loss of eta relative to the signed optimum, on a log scale.
    """
    epsilons = sorted({point["epsilon"] for point in points})
    styles = {e: Style(f"epsilon {float(e):g}", *look) for e, look in zip(epsilons, LOOKS, strict=True)}
    drawn = [point for point in points if point["n0"] is not None and point["eta"] is not None]
    rows = [
        {
            "n0": point["n0"],
            "eta": float(point["eta"]),
            "loss": 100 * float(1 - point["share"]),
            "series": styles[point["epsilon"]].label,
            "mark": True,
        }
        for point in drawn
    ]
    last = max(row["n0"] for row in rows)
    x = alt.X("n0:Q", title="n0: the count from which on there is no bias")
    x = x.scale(domain=[0.7, last + 0.3], nice=False).axis(values=list(range(1, last + 1)), format="d", grid=False)
    y = alt.Y("eta:Q", title="largest eta: probability of the exact count")
    y = y.scale(domain=[0, 0.9], nice=False).axis(format="~%")
    rules = [theme.rule("y", float(point["eta"]), theme.DOTTED) for point in points if point["n0"] is None]
    missing = [point["n0"] for point in points if point["status"] == "impossible"]
    words = [theme.label(n0 - 0.2, 0.03, "epsilon 0.5: impossible at 1") for n0 in missing]
    left = [*rules, *words, *curves(rows, list(styles.values()), x, y, columns=3, size=70)]
    shown = [row for row in rows if row["loss"] > 1e-4]
    loss = log_y("loss", "eta lost (% of the signed optimum), log scale", 1e-4, 100)
    right = [
        theme.rule("y", 2, theme.DOTTED),
        theme.label(last + 0.25, 2, "2 %: limit for the default n0", align="right", dy=-9),
        *curves(shown, list(styles.values()), x, loss, columns=3, size=70),
    ]
    charts = [alt.LayerChart(layer=layer, width=HALF_WIDTH, height=290) for layer in (left, right)]
    heading = headline(
        "What zero bias from n0 on costs, at delta 1e-6",
        "Counts that are never negative cannot be unbiased at every small count. Dotted on the left: the optimum of "
        "signed counts, which are unbiased everywhere and can be negative. At epsilon 0.5, n0 = 1 is impossible; "
        "from n0 = 2 on eta is at least the shown value, because the tails of large counts are tied there.",
    )
    page = alt.hconcat(*charts, spacing=44).properties(title=heading)
    chart: alt.HConcatChart = page.resolve_scale(y="independent")
    return chart


# Parts


def _three_curves(
    points: Points,
    axis: str,
    axis_title: str,
    domain: list[float],
    least: float,
    title: str,
    words: str,
    *,
    knee: float,
) -> alt.HConcatChart:
    rows = _curve_rows(points, axis, STYLES, least=least)
    used = {row["series"] for row in rows}
    styles = [style for style in STYLES.values() if style.label in used]
    panels = []
    for i, D in enumerate(sorted({point["D"] for point in points})):
        x = alt.X("at:Q", title=axis_title if i == 1 else " ").scale(domain=domain, nice=False)
        x = x.axis(grid=False, tickCount=6)
        y = log_y("delta", "delta, log scale" if i == 0 else None, least)
        here = [row for row in rows if row["D"] == D]
        edge = max((p[axis] for p in points if p["D"] == D and p.get("theorem_holds") == "no"), default=None)
        layers: list[Any] = []
        if edge is not None:
            layers.append(ground([{"from": 0.0, "to": float(edge)}], "from", "to"))
        layers += [theme.rule("x", knee, theme.DOTTED), *curves(here, styles, x, y, columns=2)]
        panels.append(
            alt.LayerChart(
                layer=layers,
                width=PANEL_WIDTH,
                height=PANEL_HEIGHT,
                title=alt.TitleParams(f"D = {D}", fontSize=12, anchor="middle", offset=6),
            )
        )
    return alt.hconcat(*panels, spacing=14).properties(title=headline(title, words))


def _curve_rows(points: Points, axis: str, styles: Mapping[str, Style], *, least: float) -> theme.Rows:
    """Rows for `curves`, with a mark at every ninth point.

    The paper's curve becomes two series: where its theorem holds, and where it fails.
    """
    rows = []
    seen: dict[tuple[object, str], int] = {}
    for point in points:
        series = str(point["series"])
        if series == "paper" and point.get("theorem_holds") == "no":
            series = "fails"
        if series not in styles or point["delta"] < least / 10:
            continue
        key = (point.get("D"), series)
        seen[key] = seen.get(key, -1) + 1
        rows.append(
            {
                "at": float(point[axis]),
                "delta": float(point["delta"]),
                "series": styles[series].label,
                "D": point.get("D"),
                "mark": point["delta"] >= least and seen[key] % 9 == (0 if series == "gaussian-parameter" else 4),
            }
        )
    return rows


def _plain_rows(points: Points, across: str, up: str, series: str, every: int) -> theme.Rows:
    """Rows for `curves` from two columns of a figure: `across` for the x axis, `up` for the y axis.

    Every `every`-th point has a mark; `series` is the pattern for the name of a curve.
    """
    rows = []
    for i, point in enumerate(points):
        name = series.format(D=point["D"], epsilon=float(point["epsilon"]))
        values = {"at": float(point[across]), "delta": float(point[up])}
        rows.append({**values, "series": name, "mark": i % every == every // 2})
    return rows


def _boundaries(points: Points) -> list[Any]:
    lines = [point for point in points if point["series"] == "theorem fails below"]
    bounds = sorted({point["D"] for point in lines})
    styles = [Style(f"D = {D}", *look) for D, look in zip(bounds, (LOOKS[0], LOOKS[2], LOOKS[1]), strict=True)]
    rows = _plain_rows(lines, "epsilon", "eta", "D = {D}", 11)
    x = alt.X("at:Q", title="privacy loss epsilon").scale(domain=[0, 4], nice=False).axis(grid=False)
    y = alt.Y("delta:Q", title="eta: probability that the exact count is published")
    y = y.scale(domain=[0, 0.16], nice=False).axis(format="~%")
    false = [
        {"at": float(point["epsilon"]), "delta": float(point["eta"])}
        for point in points
        if point["series"] == "stated delta false below"
    ]
    area = alt.Chart(theme.data(false)).mark_area(color=theme.GROUND).encode(x=x, y=y)
    words = theme.label(0.45, 0.03, "D 6: the stated delta is false")
    holds = theme.label(3.9, 0.12, "the theorem holds", align="right")
    return [area, *curves(rows, styles, x, y, columns=4), words, holds]


def _ratios(points: Points) -> list[Any]:
    ratios = [point for point in points if point["series"] == "ratio"]
    epsilons = sorted({point["epsilon"] for point in ratios})
    styles = [Style(f"epsilon {float(e):g}", *look) for e, look in zip(epsilons, LOOKS, strict=True)]
    rows = _plain_rows(ratios, "eta", "ratio", "epsilon {epsilon:g}", 5)
    x = alt.X("at:Q", title="eta: probability that the exact count is published")
    x = x.scale(domain=[0, 0.15], nice=False).axis(format="~%", grid=False, tickCount=6)
    y = log_y("delta", "true delta / stated (2D+1) delta*, log scale", 0.1, 1e4)
    return [
        theme.rule("y", 1, theme.DOTTED),
        theme.label(0.149, 150, "above 1: the paper understates delta", align="right"),
        *curves(rows, styles, x, y, columns=3),
    ]


def _knee_epsilon(eta: float) -> float:
    return 2 * math.atanh(eta)


CHARTS: dict[str, Callable[[Points], Any]] = {
    "noise": noise,
    "epsilon": against_epsilon,
    "eta-1.1": against_eta("1.1", 1e-5),
    "eta-2.2": against_eta("2.2", 1e-9),
    "gaussian": against_gaussian,
    "failure": failure,
    "zero-bias": zero_bias,
}
