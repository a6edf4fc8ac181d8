"""Pictures of a mechanism: what it does to counts, what it guarantees, and what it is good for.

    save        SVG, PNG or a self-contained HTML page, written whole or not at all
    theme       fonts, colours and sizes, in one place
    altair      the package of that name, imported when the first chart is drawn
    svg         shapes, scales and axes as text, for pages that draw without altair
    noise, small_counts, curve, knee, suspicion, usefulness
                one picture each: the data as rows, which need no altair, and the chart
    page        the six together
    comparison  several mechanisms side by side
    ptable      a p-table: its guarantee in four readings, and its cells

Everything drawn comes from the exact weights of the mechanism and becomes a float only to be drawn. altair and
vl-convert are the extra `plots`; importing this package does not import them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.plots.save import check
from countveil.plots.save import save as _save

if TYPE_CHECKING:
    from countveil.mechanism import Mechanism
    from countveil.ptables.audit import Audit

__all__ = ["check", "plot", "plot_comparison", "plot_ptable"]


def plot(mechanism: Mechanism, path: str | Path) -> None:
    """Draw the page of a mechanism and save it as .svg, .png or .html."""
    from countveil.plots.page import mechanism_page

    check(path)
    _save(mechanism_page(mechanism), path)


def plot_comparison(rows: Sequence[Mapping[str, Any]], basis: str, figure: str | None, path: str | Path) -> None:
    """Draw the rows of a comparison and save it as .svg, .png or .html."""
    from countveil.plots.comparison import comparison_chart

    check(path)
    _save(comparison_chart(rows, basis=basis, figure=figure), path)


def plot_ptable(audit: Audit, path: str | Path, name: str = "") -> None:
    """Draw an audited p-table (audited with its curve) and save it as .svg, .png or .html."""
    from countveil.plots.ptable import ptable_chart

    check(path)
    _save(ptable_chart(audit, name), path)
