"""What happens to small counts: the probability of every published count, for each small true count.

At small counts the law of the noise changes with the count, so that nothing negative is published and small counts are
not raised more than needed. If the noise is large, only every k-th true count has a row, and neighbouring published
counts are joined into groups, all of one size.
"""

from __future__ import annotations

from fractions import Fraction

from countveil.mechanism.mechanism import Mechanism
from countveil.plots import altair as alt, theme

ROWS = 13
WIDE = 20
"""Up to this 95 % margin every true count has a row; above it, only every second, third, ... one."""
MOST_COLUMNS = 42
READABLE_COLUMNS = 30
SHOWN_MASS = Fraction(1, 50)
"""At each side of every row, published counts of this total probability may be outside the picture."""
LEAST_PRINTED = 0.005


def small_count_rows(mechanism: Mechanism) -> theme.Rows:
    """Rows {n, y, last, p, exact} for the first promised counts n.

    p is the probability that n is published as a count from y to `last`; `exact` says whether n itself is from y to
    `last`.
    """
    low, high = mechanism.counts
    step = max(1, -(-mechanism.certificate.typical_margin_95 // WIDE))
    counts = [n for n in range(low, low + ROWS * step, step) if high is None or n <= high]
    laws = {n: mechanism.law(n) for n in counts}
    first = min(n + _quantile(laws[n].weights, laws[n].total, SHOWN_MASS) - laws[n].left for n in counts)
    last = max(n - _quantile(laws[n].weights[::-1], laws[n].total, SHOWN_MASS) + laws[n].right for n in counts)
    group = step * -(-(last - first + 1) // (step * MOST_COLUMNS))
    start = low + (first - low) // group * group
    rows = []
    for n in counts:
        law = laws[n]
        for y in range(start, last + 1, group):
            inside = law.weights[max(0, y - n + law.left) : max(0, y - n + law.left + group)]
            p = float(Fraction(sum(inside), law.total))
            rows.append({"n": n, "y": y, "last": y + group - 1, "p": p, "exact": y <= n < y + group})
    return rows


def _quantile(weights: tuple[int, ...], total: int, mass: Fraction) -> int:
    """How many weights from the beginning together weigh less than the share `mass` of the total."""
    seen = 0
    for slot, weight in enumerate(weights):
        seen += weight
        if seen >= mass * total:
            return slot
    return len(weights)


def small_counts_chart(mechanism: Mechanism) -> alt.LayerChart:
    """A table with true counts downwards and published counts to the right.

    The darker a cell, the likelier; probabilities are printed where they fit.
    """
    rows = small_count_rows(mechanism)
    published = sorted({row["y"] for row in rows})
    group = rows[0]["last"] - rows[0]["y"] + 1
    largest = max(row["p"] for row in rows)
    every = 1 if len(published) <= 22 else 2 if len(published) <= 32 else 5
    ticks = [y for i, y in enumerate(published) if (y % every == 0 if group == 1 else i % 4 == 0)]
    grouped = "" if group == 1 else f", in groups of {group}"
    x = alt.X("y:O", title=f"published count y (people{grouped})").scale(paddingInner=0.04)
    x = x.axis(labelAngle=0, values=ticks, labelExpr=_group_label(group), domain=False, ticks=False)
    y = alt.Y("n:O", title="true count n (people)").scale(paddingInner=0.06).axis(domain=False, ticks=False)
    colour = alt.Color("p:Q", title="probability")
    colour = colour.scale(type="sqrt", range=theme.SHADES, domain=[0, largest], interpolate="rgb")
    colour = colour.legend(
        format="~%", gradientLength=200, gradientThickness=9, titleOrient="left", tickCount=4, labelSeparation=8
    )
    table = alt.Chart(theme.data(rows))
    layers: list[alt.Chart] = [table.mark_rect(stroke="#e3e3e3", strokeWidth=0.4).encode(x=x, y=y, color=colour)]
    outline = table.transform_filter("datum.exact").mark_rect(filled=False, stroke=theme.MIDDLE, strokeWidth=1.6)
    layers.append(outline.encode(x=x, y=y))
    if len(published) <= READABLE_COLUMNS:
        size = 10 if len(published) <= 22 else 8
        dark = alt.condition(alt.datum.p > 0.22 * largest, alt.value("white"), alt.value(theme.INK))
        shown = [{**row, "text": f"{100 * row['p']:.0f}"} for row in rows if row["p"] >= LEAST_PRINTED]
        layers.append(
            alt.Chart(theme.data(shown)).mark_text(fontSize=size).encode(x=x, y=y, text=alt.Text("text:N"), color=dark)
        )
    exact = "the exact count" if group == 1 else "the group of the exact count"
    words = [_policy(mechanism), f"Outlined: {exact}."]
    if len(layers) == 3:
        words.append("Numbers are percent, below 0.5 left out.")
    return theme.picture(theme.title("What happens to small counts", *words), *layers)


def _group_label(group: int) -> str:
    return "datum.value" if group == 1 else f"datum.value + '–' + (datum.value + {group - 1})"


def _policy(mechanism: Mechanism) -> str:
    """What the mechanism's policy does near zero, in a sentence."""
    c = mechanism.certificate
    if mechanism.policy == "floor":
        return f"Counts below {mechanism.laws.lo} are treated as {mechanism.laws.lo}."
    if mechanism.policy == "signed":
        return "The noise does not depend on the count, so small counts can come out negative."
    if c.unbiased_from is None:
        return "Nothing negative is published."
    return f"Nothing negative is published; right on average from n = {c.unbiased_from} on."
