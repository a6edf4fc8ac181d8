"""Pictures of mechanisms: what they do to counts, and what they guarantee.

    chart_files   saves charts as SVG, PNG or a self-contained HTML page, written whole or not at all
    theme         fonts, colours and sizes, in one place
    altair        the package altair, imported when the first chart is drawn
    svg           shapes, scales and axes as text, for pages that draw without altair
    noise, small_counts, curve, knee, suspicion, usefulness  one picture of a mechanism each: rows, and their chart
    page          these six pictures on one page
    comparison    several mechanisms side by side
    prices        the price list of a plan
    ptable        a p-table: its guarantee in four readings, and its probabilities
    figures       the paper's figures
    composition   the figure of many answers

Everything drawn comes from the exact weights of the mechanism and becomes a float only to be drawn. altair and
vl-convert are the extra `plots`; importing this package does not import them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.plots.chart_files import check, save as _save

if TYPE_CHECKING:
    from countveil.mechanism.mechanism import Mechanism
    from countveil.ptables.audit import Audit

__all__ = ["check", "plot", "plot_comparison", "plot_ptable"]


def plot(mechanism: Mechanism, path: str | Path) -> None:
    """Draw the page of a mechanism: its noise, its guarantee, and what it does to small counts.

    Args:
        mechanism: The mechanism.
        path: A file that ends in .svg, .png or .html.

    Raises:
        ParameterError: The file has another ending or cannot be written.
        MissingExtraError: The extra `plots` is not installed.

    >>> import countveil as cv
    >>> plot(cv.design(epsilon="1", delta="1e-6", policy="signed"), "page.pdf")
    Traceback (most recent call last):
    countveil.errors.ParameterError: plot: got page.pdf, allowed is a name that ends in .svg, .png or .html
    """
    from countveil.plots.page import mechanism_page

    check(path)
    _save(mechanism_page(mechanism), path)


def plot_comparison(rows: Sequence[Mapping[str, Any]], basis: str, figure: str | None, path: str | Path) -> None:
    """Draw the rows of a comparison and save the picture as .svg, .png or .html.

    `basis` names what the mechanisms share, and `figure` the figure to show (None for the usual one).
    """
    from countveil.plots.comparison import comparison_chart

    check(path)
    _save(comparison_chart(rows, basis=basis, figure=figure), path)


def plot_ptable(audit: Audit, path: str | Path, name: str = "") -> None:
    """Draw the audit of a p-table (made with curve=True) and save the picture as .svg, .png or .html."""
    from countveil.plots.ptable import ptable_chart

    check(path)
    _save(ptable_chart(audit, name), path)
