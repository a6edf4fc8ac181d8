"""Everything about one mechanism on a page: six pictures under one line of facts."""

from __future__ import annotations

from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt, theme
from countveil.plots.curve import curve_chart
from countveil.plots.knee import knee_chart
from countveil.plots.noise import noise_chart
from countveil.plots.small_counts import small_counts_chart
from countveil.plots.suspicion import suspicion_chart
from countveil.plots.usefulness import usefulness_chart

PICTURES = (noise_chart, small_counts_chart, curve_chart, knee_chart, suspicion_chart, usefulness_chart)


def mechanism_page(mechanism: Mechanism) -> alt.ConcatChart:
    """Six pictures of a mechanism in two columns: what it does, what it guarantees, and what that means."""
    heading = alt.TitleParams(
        headline(mechanism), subtitle=fine_print(mechanism), fontSize=18, offset=22, subtitleFontSize=12
    )
    page = alt.concat(*(picture(mechanism) for picture in PICTURES), columns=2, spacing={"row": 34, "column": 48})
    page = page.properties(title=heading)
    chart: alt.ConcatChart = page.resolve_scale(color="independent", strokeDash="independent")
    return chart


def headline(mechanism: Mechanism) -> str:
    """The epsilon, delta, eta and D of a mechanism in one line; delta is rounded up."""
    c = mechanism.certificate
    return (
        f"epsilon {decimal_text(c.epsilon, 6)}, delta {decimal_text(c.delta, 3, 'up')}, "
        f"eta {theme.percent(c.eta)}, D = {mechanism.D}"
    )


def fine_print(mechanism: Mechanism) -> str:
    """The policy, method, sensitivity, promised counts and hash of a mechanism, in one line."""
    c = mechanism.certificate
    low, high = mechanism.counts
    promise = (
        "all counts" if not low and high is None else f"counts from {low} {'on' if high is None else f'to {high}'}"
    )
    return (
        f"policy {mechanism.policy}, method {mechanism.method}, sensitivity {c.sensitivity}, {promise}; "
        f"weights over 2^{c.bits}, hash {mechanism.hash[:12]}"
    )
