"""Pictures of mechanisms: what they do to counts, and what they guarantee.

    chart_files   saves charts as SVG, PNG or a self-contained HTML page, written whole or not at all
    theme         fonts, colours and sizes, in one place
    altair        the package altair, imported when the first chart is drawn
    noise, small_counts, curve, knee, suspicion, usefulness  one picture of a mechanism each: rows, and their chart
    page          these six pictures on one page
    comparison    several mechanisms side by side
    prices        the price list of a plan
    together      the guarantee of many answers
    released      a released table with its intervals
    ptable        a p-table: its guarantee in four readings, and its probabilities
    figures       the paper's figures
    composition   the figure of many answers

Everything drawn comes from the exact weights of the mechanism and becomes a float only to be drawn. altair and
vl-convert are the extra `plots`; importing this package does not import them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from countveil.errors import ParameterError
from countveil.plots.chart_files import Chart, check

__all__ = ["Chart", "check", "plot"]


def plot(shown: Any, path: str | Path | None = None) -> Chart:
    """A picture of a mechanism, a comparison, a plan, a composition, a table or an audit of a p-table.

    Args:
        shown: What is drawn. The picture of a mechanism has its noise, its guarantee, and what it does to small counts.
        path: A file that ends in .svg, .png or .html, to save the picture too.

    Returns:
        The chart, which a notebook shows inline: `chart.save(path)` saves it, `chart.altair` is the altair chart.

    Raises:
        ParameterError: There is no picture of such an object, or the file has another ending or cannot be written.
        MissingExtraError: The extra `plots` is not installed.

    >>> import countveil as cv
    >>> plot(cv.design(epsilon="1", delta="1e-6", policy="signed"), "page.pdf")
    Traceback (most recent call last):
    countveil.errors.ParameterError: plot: got page.pdf, allowed is a name that ends in .svg, .png or .html
    """
    check(path)
    chart = Chart(_draw(shown))
    if path is not None:
        chart.save(path)
    return chart


def _draw(shown: Any) -> Any:
    """The altair chart of an object. Classes of packages above this one make their own, by their method `_chart`."""
    from countveil.accounting.composition import Composition
    from countveil.mechanism.mechanism import Mechanism
    from countveil.planning.plans import Plan
    from countveil.ptables.audit import Audit, audit

    if isinstance(shown, Mechanism):
        from countveil.plots.page import mechanism_page

        return mechanism_page(shown)
    if isinstance(shown, Plan):
        from countveil.plots.prices import plan_chart

        return plan_chart(shown)
    if isinstance(shown, Composition):
        from countveil.plots.together import together_chart

        return together_chart(shown)
    if isinstance(shown, Audit):
        from countveil.plots.ptable import ptable_chart

        if not shown.curve:
            shown = audit(shown.table, epsilons=[*shown.deltas["designed"]], n0=shown.n0, curve=True)
        return ptable_chart(shown, "")
    if not hasattr(shown, "_chart"):
        raise ParameterError("plot", type(shown).__name__, "a mechanism, comparison, plan, composition, table or audit")
    return shown._chart()
