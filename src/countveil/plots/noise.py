"""The noise of a typical count: how far published counts are from the truth, and how often they are exact."""

from __future__ import annotations

from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt, theme

MOST_BARS = 161


def noise_rows(mechanism: Mechanism) -> theme.Rows:
    """Rows {z, p, within} for noise z from -D to D at a typical count: P(Z = z), and whether z is in the 95 % band."""
    law = mechanism.law(mechanism.certificate.typical)
    margin = mechanism.certificate.typical_margin_95
    reach = range(-max(mechanism.D, -law.least), max(mechanism.D, law.greatest) + 1)
    return [{"z": z, "p": float(law.probability(z)), "within": abs(z) <= margin} for z in reach]


def noise_chart(mechanism: Mechanism) -> alt.LayerChart:
    """P(Z = z) as bars, with the 95 % band shaded, a line at -D and at D, and eta written above z = 0."""
    c, D = mechanism.certificate, mechanism.D
    rows = noise_rows(mechanism)
    eta, top = float(c.eta), max(row["p"] for row in rows) * 1.16
    edge = rows[-1]["z"] + max(0.5, 0.03 * D)
    x = alt.X("z:Q", title="noise z: published minus true count (people)").scale(domain=[-edge, edge], nice=False)
    x = x.axis(grid=False, tickMinStep=1)
    y = alt.Y("p:Q", title="probability P(Z = z)").scale(domain=[0, top], nice=False).axis(format="~%")
    band = alt.Chart(theme.data([{"low": -c.typical_margin_95 - 0.5, "high": c.typical_margin_95 + 0.5}]))
    shade = band.mark_rect(color=theme.BAND).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    if len(rows) <= MOST_BARS:
        thick = max(1.5, min(16.0, 0.75 * theme.WIDTH / len(rows)))
        pmf = alt.Chart(theme.data(rows)).mark_bar(color=theme.DARK, width=thick).encode(x=x, y=y)
    else:
        step = -(-len(rows) // (2 * theme.WIDTH))
        kept = [row for row in rows if row["z"] % step == 0 or abs(row["z"]) == 1]
        pmf = alt.Chart(theme.data(kept)).mark_area(color=theme.DARK, interpolate="step").encode(x=x, y=y)
    within = mechanism.law(c.typical).within(c.typical_margin_95)
    often = f"within ±{c.typical_margin_95} (shaded) in {theme.percent(within)} of its releases"
    heading = theme.title(
        "What is added to a count",
        f"Exact with probability eta, {often}, never further off than D;",
        f"variance {decimal_text(c.variance, 4)}. The law of a typical count ({_which(mechanism)}).",
    )
    return theme.picture(
        heading,
        shade,
        pmf,
        theme.rule("x", -D),
        theme.rule("x", D),
        theme.label(-D, top, f"−D = −{D}", dx=6, dy=9),
        theme.label(D, top, f"D = {D}", dx=-6, dy=9, align="right"),
        theme.label(0, eta, f"eta = {theme.percent(c.eta)}", dy=-9, align="center"),
    )


def _which(mechanism: Mechanism) -> str:
    c = mechanism.certificate
    low, high = mechanism.counts
    more = " or more" if high is None and c.typical in (c.stationary_from, low) else ""
    return f"n = {c.typical}{more}"
