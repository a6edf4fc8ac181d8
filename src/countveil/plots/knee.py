"""The knee: how often counts can be exact before the guarantee becomes weak.

For noise that does not depend on the count, with given epsilon and D, the least delta is almost nothing up to eta =
tanh(epsilon/2), and rises steeply beyond. A design belongs at this knee or to the left of it.
"""

from __future__ import annotations

from fractions import Fraction

from countveil.design.closed_form import knee, least_delta
from countveil.mechanism.mechanism import Mechanism
from countveil.plots import altair as alt, theme

EVEN_POINTS = 50
NEAR_POINTS = 10
REACH = 5
LEAST_SHOWN = 1e-4
"""The line is cut off where it is below this fraction of the mechanism's delta."""


def largest_shown(mechanism: Mechanism) -> Fraction:
    """The end of the eta axis: 1, or less if both the knee and the mechanism's eta are near 0."""
    end = REACH * max(knee(mechanism.epsilon), mechanism.eta)
    return end if end < Fraction(4, 5) else Fraction(1)


def knee_rows(mechanism: Mechanism) -> theme.Rows:
    """Rows {eta, delta}: for each eta = P(Z = 0) the least delta of signed noise up to D, at sensitivity 1."""
    at, top = knee(mechanism.epsilon), largest_shown(mechanism)
    gap = top / EVEN_POINTS
    etas = {gap * i for i in range(1, EVEN_POINTS)} | {gap / 4, top - gap / 4}
    etas |= {at + sign * gap / 2**i for i in range(NEAR_POINTS) for sign in (-1, 1)} | {at, mechanism.eta}
    points = ((eta, least_delta(mechanism.epsilon, eta, mechanism.D)) for eta in sorted(etas) if 0 < eta < top)
    return [{"eta": float(eta), "delta": float(delta)} for eta, delta in points]


def knee_chart(mechanism: Mechanism) -> alt.LayerChart:
    """The least delta against eta on a log scale, with a line at the knee and a dot where this mechanism is."""
    rows = knee_rows(mechanism)
    top = float(largest_shown(mechanism))
    at, eta, delta = float(knee(mechanism.epsilon)), float(mechanism.eta), float(mechanism.delta)
    least = max(min(row["delta"] for row in rows), delta * LEAST_SHOWN)
    ticks = theme.decades([least, max(row["delta"] for row in rows), delta])
    x = alt.X("eta:Q", title="eta: probability that the exact count is published").scale(domain=[0, top], nice=False)
    x = x.axis(format="~%", grid=False)
    y = alt.Y("delta:Q", title="least delta (log scale)").scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    y = y.axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    line = alt.Chart(theme.data(rows)).mark_line(color=theme.DARK, strokeWidth=2.5, clip=True).encode(x=x, y=y)
    text = f"knee: {theme.percent(at)}"
    if at <= 0.8 * top:  # to the right the line is high
        words = theme.label(at, ticks[0], text, dx=5, dy=-8)
    else:  # to the left it is low
        words = theme.label(at, ticks[-1], text, dx=-5, dy=8, align="right")
    layers: list[alt.Chart | alt.LayerChart] = [line, theme.rule("x", at), words]
    if delta > 0:
        layers.append(theme.dot(eta, delta))
    line_is = "the least delta of noise independent of the count"
    if mechanism.certificate.sensitivity > 1:
        line_is = "a lower bound on delta (that of sensitivity 1)"
    heading = theme.title(
        "How exact can counts be?",
        f"Line: {line_is}, at this epsilon and D = {mechanism.D}.",
        "Dashed: the knee, tanh(epsilon/2). Dot: this mechanism.",
    )
    return theme.picture(heading, *layers)
