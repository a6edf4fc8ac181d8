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
