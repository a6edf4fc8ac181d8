"""Helpers that all commands share: common options, printing (one JSON object, or a short page for people), progress."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from countveil.numeric.exact_numbers import decimal_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from countveil.client.connection import Connection
    from countveil.curator.curator import Curator

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CONFIG = click.option("-c", "--config", metavar="FILE", help="The configuration file (default: countveil.toml).")
NEW_LEDGER = click.option(
    "--new-ledger", is_flag=True, help="Begin a ledger in place of the one used before; the new one records it."
)
URL = click.option("--url", metavar="URL", help="Ask the service at this address; the API key is in COUNTVEIL_KEY.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Command(click.Command):
    """A command that refuses an option given twice. This includes flags: --prices --no-prices is a contradiction.

    A group, and a command that can do nothing without values, show their help if no word follows their name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.no_args_is_help and not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)  # as it is; the one line of an error would join its lines
            ctx.exit(2)
        if not ctx.resilient_parsing:  # shell completion must not fail
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if isinstance(parameter, click.Option) and times > 1 and not parameter.multiple:
                    names = " or ".join((*parameter.opts, *parameter.secondary_opts))
                    raise click.UsageError(f"{names} is given {times} times; give it once.", ctx)
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group of commands; its commands and subgroups refuse an option given twice."""

    command_class = Command
    group_class = type


def plot_option(words: str, metavar: str = "FILE") -> Callable[[F], F]:
    """Make the option --plot. It refuses a file that cannot be drawn before anything is computed."""
    return click.option("--plot", metavar=metavar, help=words, callback=_check_plot)


def _check_plot(context: click.Context, option: click.Parameter, file: str | None) -> str | None:
    if file is not None:
        from countveil.plots import check

        check(file)
    return file


def open_curator_or_service(config: str | None, url: str | None, *, new_ledger: bool = False) -> Curator | Connection:
    """Connect to the service at `url` or, without a URL, open the curator of a configuration on this machine."""
    if url is not None:
        from countveil.client.connection import connect

        return connect(url)
    return open_curator(config, new_ledger=new_ledger)


def open_curator(config: str | None, *, new_ledger: bool = False) -> Curator:
    """Open the curator of a configuration on this machine."""
    from countveil.curator.curator import Curator

    curator = Curator.open(config, new_ledger=new_ledger)
    print_new_ledger(curator.ledger.begun)
    return curator


def print_json(result: Mapping[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2))


def print_new_ledger(ledger: str | None) -> None:
    """Print where a ledger was just created; nothing if none was."""
    if ledger is not None:
        click.echo(f"created a new ledger: {ledger}; keep it and its anchor, they record the budget", err=True)


def describe_loss(lost: int | None) -> str:
    """Say how many answers lost history may have given, which the epsilon covers too; `lost` is None if unknown."""
    if lost == 0:
        return ""
    many = "an unknown number" if lost is None else f"up to {lost} more"
    return f", including {many} that lost history may have given"


@contextmanager
def show_spinner(message: str, after: float = 0.0) -> Iterator[Callable[[], None]]:
    """Show a spinner on stderr if the block runs for more than `after` seconds; nothing if stderr is not a terminal.

    The block gets a function that ends the spinner early, to be called before something else is shown.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console

    status = Console(stderr=True).status(message)
    timer = threading.Timer(after, status.start)
    timer.daemon = True
    timer.start()

    def stop() -> None:
        timer.cancel()
        timer.join()
        status.stop()

    try:
        yield stop
    finally:
        stop()


def show_progress(things: Iterable[T], message: str) -> Iterator[T]:
    """Yield each of `things` while a progress bar on stderr shows the current one; no bar if it is not a terminal."""
    if not sys.stderr.isatty():
        yield from things
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(message), BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        items = list(things)
        task = bar.add_task("", total=len(items))
        for thing in items:
            bar.update(task, description=str(thing))
            yield thing
            bar.advance(task)


def clip(text: str, digits: int = 4, rounding: str = "nearest") -> str:
    """Round a decimal text to a few significant digits for display.

    >>> clip("0.458171886623647"), clip("9.99999900000608e-7", 6, "up"), clip("14")
    ('0.4582', '1e-6', '14')
    """
    return decimal_text(Fraction(text), digits, rounding)


# rich is imported inside functions because its import is slow


def print_rich(shown: str | Text | Table, style: str = "") -> None:
    """Print a table or a text, as wide as the terminal. Brackets in a text are printed, not read as markup of rich."""
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(shown, style=style) if isinstance(shown, str) else shown)


def print_notes(notes: Iterable[str], style: str = "dim") -> None:
    for note in notes:
        print_rich(f"- {note}", style)


def make_table(*heads: str, title: str | None = None, left: int = 0, no_wrap: bool = False, **options: Any) -> Table:
    """Make an empty table with these column heads. The first `left` columns are aligned to the left, as words are, the
    others to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", **options)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right", no_wrap=no_wrap)
    return table


def print_mechanism(m: Mapping[str, Any]) -> None:
    """Print the page of one mechanism, whose facts come from `Mechanism.describe()`."""
    from rich.table import Table
    from rich.text import Text

    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, words in _list_facts(m):
        facts.add_row(name, Text(words))
    print_rich(facts)
    if m["mse_at"]:
        heads = ("true count", "P(exact)", "bias", "mean squared error")
        small = make_table(*heads, title="What happens to small counts")
        for n in m["mse_at"]:
            small.add_row(n, clip(m["exact_at"][n]), clip(m["bias_at"][n]), clip(m["mse_at"][n]))
        print_rich(small)
    if len(m["price_list"]) > 1:
        _print_prices(m["price_list"])
    print_notes(m["notes"])


def _list_facts(m: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    people = "one person" if m["sensitivity"] == 1 else f"up to {m['sensitivity']} per person"
    pair = f"epsilon {m['epsilon']}, delta {clip(m['delta'], 6, 'up')}"
    yield "guarantee", f"{pair}: certified, for every dataset (add or remove {people})"
    if m["delta_paper_bound"] is not None:
        yield (
            "",
            f"the paper would state delta {clip(m['delta_paper_bound'], 6)} for its law at this eta and D",
        )
    never = "never negative" if m["never_negative"] else "can be negative"
    exact = f"exact with probability {clip(m['eta'])} (eta)"
    yield "released", f"a whole number, {never}, {exact}" + (f" from n = {m['eta_from']} on" if m["eta_from"] else "")
    far = "" if m["worst_error"] <= m["D"] else f"; at small counts up to {m['worst_error']}"
    typical = "" if m["typical_margin_95"] == m["margin_95"] else f" (a typical count ±{m['typical_margin_95']})"
    often = f"±{m['margin_95']} in 95 % of releases{typical}; within ±3 with probability {clip(m['within_3'])}"
    yield "error", f"at most {m['D']} (D){far}; {often}"
    if m["unbiased_from"] is None:
        yield "bias", f"at most {clip(m['bias_below'], 4, 'up')}"
    else:
        below = f"; at most {clip(m['bias_below'], 4, 'up')} below" if m["unbiased_from"] > m["counts"]["low"] else ""
        yield "bias", f"exactly zero from n = {m['unbiased_from']} on{below}"
        nearly = m["nearly_unbiased_from"]
        if nearly is not None and nearly < m["unbiased_from"]:
            yield "", f"at most a thousandth of the standard deviation from n = {nearly} on"
        if "bias_from_n0" in m:
            yield "", f"at most {clip(m['bias_from_n0'], 4, 'up')} from n = {m['n0']} on"
    yield "variance", clip(m["variance"], 6)
    yield "made by", f"method {m['method']}, policy {m['policy']}, weights over 2^{m['bits']}, hash {m['hash'][:12]}"


def _print_prices(prices: list[Mapping[str, Any]]) -> None:
    names = [name for name in prices[0] if name != "chosen"]
    table = make_table(*(name.replace("_", " ") for name in names), title="The price of being unbiased from n on")
    table.add_column("")
    for row in prices:
        cells = ["impossible" if row[name] is None else clip(str(row[name])) for name in names]
        table.add_row(*cells, "<- chosen" if row["chosen"] else "")
    print_rich(table)
