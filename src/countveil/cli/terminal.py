"""Pages for people: words, tables and mechanisms, as wide as the terminal. Imported when something is printed, because
rich takes long to import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from countveil.cli.output import short

__all__ = ["Text", "make_table", "print_mechanism", "print_notes", "print_rich"]


def print_rich(shown: str | Text | Table, style: str = "") -> None:
    """Print words as they are, whatever marks they have, or a table."""
    Console(highlight=False).print(Text(shown, style=style) if isinstance(shown, str) else shown)


def print_notes(notes: Iterable[str], style: str = "dim") -> None:
    for note in notes:
        print_rich(f"- {note}", style)


def make_table(*heads: str, title: str | None = None, left: int = 0, no_wrap: bool = False, **options: Any) -> Table:
    """An empty table with these columns, the first `left` of them for words and the others for numbers."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", **options)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right", no_wrap=no_wrap)
    return table


def print_mechanism(m: Mapping[str, Any]) -> None:
    """The page of one mechanism, from `Mechanism.describe()`."""
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, words in _facts(m):
        facts.add_row(name, Text(words))
    print_rich(facts)
    if m["mse_at"]:
        heads = ("true count", "P(exact)", "bias", "mean squared error")
        small = make_table(*heads, title="What happens to small counts")
        for n in m["mse_at"]:
            small.add_row(n, short(m["exact_at"][n]), short(m["bias_at"][n]), short(m["mse_at"][n]))
        print_rich(small)
    if len(m["price_list"]) > 1:
        _print_prices(m["price_list"])
    print_notes(m["notes"])


def _facts(m: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    people = "one person" if m["sensitivity"] == 1 else f"up to {m['sensitivity']} per person"
    pair = f"epsilon {m['epsilon']}, delta {short(m['delta'], 6, 'up')}"
    yield "guarantee", f"{pair}: certified, for every dataset (add or remove {people})"
    if m["delta_paper_bound"] is not None:
        yield "", f"the paper would state delta {short(m['delta_paper_bound'], 6)} for its law at this eta and D"
    never = "never negative" if m["never_negative"] else "can be negative"
    exact = f"exact with probability {short(m['eta'])} (eta)"
    yield "released", f"a whole number, {never}, {exact}" + (f" from n = {m['eta_from']} on" if m["eta_from"] else "")
    far = "" if m["worst_error"] <= m["D"] else f"; at small counts up to {m['worst_error']}"
    typical = "" if m["typical_margin_95"] == m["margin_95"] else f" (a typical count ±{m['typical_margin_95']})"
    often = f"±{m['margin_95']} in 95 % of releases{typical}; within ±3 with probability {short(m['within_3'])}"
    yield "error", f"at most {m['D']} (D){far}; {often}"
    if m["unbiased_from"] is None:
        yield "bias", f"at most {short(m['bias_below'], 4, 'up')}"
    else:
        below = f"; at most {short(m['bias_below'], 4, 'up')} below" if m["unbiased_from"] > m["counts"]["low"] else ""
        yield "bias", f"exactly zero from n = {m['unbiased_from']} on{below}"
        nearly = m["nearly_unbiased_from"]
        if nearly is not None and nearly < m["unbiased_from"]:
            yield "", f"at most a thousandth of the standard deviation from n = {nearly} on"
        if "bias_from_n0" in m:
            yield "", f"at most {short(m['bias_from_n0'], 4, 'up')} from n = {m['n0']} on"
    yield "variance", short(m["variance"], 6)
    yield "made by", f"method {m['method']}, policy {m['policy']}, weights over 2^{m['bits']}, hash {m['hash'][:12]}"


def _print_prices(prices: list[Mapping[str, Any]]) -> None:
    keys = [key for key in prices[0] if key != "chosen"]
    table = make_table(*(key.replace("_", " ") for key in keys), title="The price of being unbiased from n on")
    table.add_column("")
    for row in prices:
        cells = ["impossible" if row[key] is None else short(str(row[key])) for key in keys]
        table.add_row(*cells, "<- chosen" if row["chosen"] else "")
    print_rich(table)
