"""What all commands share: options are given once, and results are one JSON object or a short page for people."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from countveil.exact import decimal_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from countveil.client import Connection
    from countveil.curator import Curator

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CONFIG = click.option("-c", "--config", metavar="FILE", help="The configuration (default: countveil.toml).")
URL = click.option("--url", metavar="URL", help="Ask the service there instead; the key is in COUNTVEIL_KEY.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Command(click.Command):
    """A command that refuses an option given twice; flags too, since --prices --no-prices says nothing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion in a shell refuses nothing
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if isinstance(parameter, click.Option) and times > 1 and not parameter.multiple:
                    names = " or ".join((*parameter.opts, *parameter.secondary_opts))
                    raise click.UsageError(f"{names} is given {times} times; give it once.", ctx)
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group whose commands and groups are of these classes too."""

    command_class = Command
    group_class = type


def plot_option(words: str, metavar: str = "FILE") -> Callable[[F], F]:
    """The option --plot; a file that cannot be drawn is refused before anything is computed."""
    return click.option("--plot", metavar=metavar, help=words, callback=_check_plot)


def _check_plot(context: click.Context, option: click.Parameter, file: str | None) -> str | None:
    if file is not None:
        from countveil.plots import check

        check(file)
    return file


def open_counts(config: str | None, url: str | None) -> Curator | Connection:
    """Whoever answers: the service at `url`, or the curator of a configuration on this machine."""
    if url is not None:
        from countveil.client import connect

        return connect(url)
    from countveil.curator import Curator

    curator = Curator.open(config)
    print_begun(curator.ledger.begun)
    return curator


def print_json(result: Mapping[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2))


def print_begun(ledger: str | None) -> None:
    """Say that a ledger began, if one did."""
    if ledger is not None:
        click.echo(f"a new ledger begins: {ledger}; keep it and its anchor, they are the budget", err=True)


def lost_words(lost: int | None) -> str:
    """What an epsilon covers beyond the answers that were opened."""
    if lost == 0:
        return ""
    many = "an unknown number" if lost is None else f"up to {lost} more"
    return f", including {many} that lost history may have given"


@contextmanager
def busy(message: str) -> Iterator[None]:
    """A spinner on stderr while something takes a while; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield


def steps(things: Iterable[T], message: str) -> Iterator[T]:
    """The things one by one, with a progress bar on stderr that shows which is at work; none without a terminal."""
    if not sys.stderr.isatty():
        yield from things
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(message), BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        listed = list(things)
        task = bar.add_task("", total=len(listed))
        for thing in listed:
            bar.update(task, description=str(thing))
            yield thing
            bar.advance(task)


def short(text: str, digits: int = 4, rounding: str = "nearest") -> str:
    """A decimal text cut to a few significant digits for reading.

    >>> short("0.458171886623647"), short("9.99999900000608e-7", 6, "up"), short("14")
    ('0.4582', '1e-6', '14')
    """
    return decimal_text(Fraction(text), digits, rounding)


# -- pages for people: rich is imported when something is printed, because that takes long -----------------------------


def print_rich(shown: str | Text | Table, style: str = "") -> None:
    """Print words as they are, whatever marks they have, or a table, as wide as the terminal."""
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(shown, style=style) if isinstance(shown, str) else shown)


def print_notes(notes: Iterable[str], style: str = "dim") -> None:
    for note in notes:
        print_rich(f"- {note}", style)


def make_table(*heads: str, title: str | None = None, left: int = 0, no_wrap: bool = False, **options: Any) -> Table:
    """An empty table with these columns, the first `left` of them for words and the others for numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", **options)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right", no_wrap=no_wrap)
    return table


def print_mechanism(m: Mapping[str, Any]) -> None:
    """The page of one mechanism, from `Mechanism.describe()`."""
    from rich.table import Table
    from rich.text import Text

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
