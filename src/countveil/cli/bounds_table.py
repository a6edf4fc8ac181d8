"""Prints the choices of contribution bounds as a table and a chart, for `countveil init` and `countveil inspect`."""

from __future__ import annotations

from countveil.cli.output import make_table, print_notes, print_rich
from countveil.config.bounds import FROM_DATA, BoundsChoice, BoundsTable
from countveil.errors import shorten

WIDTH = 30
"""The length of a bar that stands for all rows of the median cell."""


def print_choices(bounds: BoundsTable) -> None:
    """Print, for every choice worth showing, what it keeps and how much noise it needs."""
    from rich.text import Text

    heads = ("rows\nx cells", "rows\nkept", "people\nkept", "95 %\nmargin", "left\nout", "\nnoise", "\nlarger")
    table = make_table(*heads, title="Bounds of one person, and what they cost", no_wrap=True)
    table.columns[-1].justify = "left"
    for choice in bounds.efficient:
        margin = "" if choice.margin_95 is None else f"±{choice.margin_95:,}"
        noise = "" if choice.noise is None else _percent(choice.noise)
        larger = "" if choice.noise is None else choice.larger
        kept = _percent(choice.rows_kept), _percent(choice.people_kept)
        name = f"{_sign(choice, bounds)} {_name(choice)}".strip()
        table.add_row(*map(Text, (name, *kept, margin, _percent(choice.left_out), noise, larger)))
    print_rich(table)
    by = "; ".join(", ".join(names) or "no column" for names in bounds.tables)
    best = bounds.best
    notes = [
        f"averages of tables by: {shorten(by, 300)}; other tables: --by A,B",
        "people kept: none of their rows is left out; the margin is an estimate",
        "left out, noise: the two errors of a median cell, in per cent of its rows",
        f"* least error: {_name(best)}" + (f"; + declared: {_name(bounds.declared)}" if bounds.declared else ""),
        FROM_DATA,
    ]
    if bounds.one_in > 1:
        notes.insert(1, f"from one in {bounds.one_in:,} people, chosen by a hash")
    print_notes(notes)


def print_chart(bounds: BoundsTable) -> None:
    """Print a bar for the total error of every choice worth showing, and list the cells that lose most."""
    width = max(len(_name(choice)) for choice in bounds.efficient)
    print_rich("Error of a median cell: # rows left out, + noise", style="bold")
    for choice in bounds.efficient:
        lost = round(WIDTH * choice.left_out)
        noise = min(WIDTH, round(WIDTH * (choice.left_out + (choice.noise or 0.0)))) - lost
        bar = "#" * lost + "+" * noise
        print_rich(
            f"{_name(choice):>{width}}  {bar:<{WIDTH}} {_percent(choice.error):>8} {_mark(choice, bounds)}".rstrip()
        )
    chosen, which = bounds.declared or bounds.best, "declared" if bounds.declared else "proposed"
    words = f"The {which} bounds {_name(chosen)} leave out {_percent(1 - chosen.rows_kept)} of all rows"
    print_rich(f"{words}; most of these cells:" if bounds.worst_cells else words, style="bold")
    for cell in bounds.worst_cells:
        place = ", ".join(f"{name} = {label}" for name, label in zip(cell.by, cell.labels, strict=True)) or "all rows"
        plain = place if place.isprintable() else ascii(place)
        print_rich(f"{_percent(cell.left_out):>8} of {cell.rows:,} rows: {shorten(plain, 40)}")


def _name(choice: BoundsChoice) -> str:
    return f"{choice.rows_per_person:,} x {choice.cells_per_person:,}"


def _mark(choice: BoundsChoice, bounds: BoundsTable) -> str:
    """Words that mark the choice with the least error, the declared choice, or both; empty for other choices."""
    named = (("declared", bounds.declared), ("best", bounds.best))
    words = [word for word, other in named if other is not None and other.bounds == choice.bounds]
    return f"<- {', '.join(words)}" if words else ""


def _sign(choice: BoundsChoice, bounds: BoundsTable) -> str:
    """`*` for the choice with the least error, `+` for the declared choice; empty for other choices."""
    declared = bounds.declared is not None and choice.bounds == bounds.declared.bounds
    return ("+" if declared else "") + ("*" if choice.bounds == bounds.best.bounds else "")


def _percent(share: float) -> str:
    return "> 999 %" if share > 9.99 else f"{100 * share:.1f} %"
