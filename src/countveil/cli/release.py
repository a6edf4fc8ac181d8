"""`countveil release`: a finished table of counts, released with noise and margins of error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from countveil.cli.commands import Command
from countveil.cli.output import busy, print_json, short


@click.command(cls=Command)
@click.argument("table")
@click.option("--column", required=True, metavar="NAME", help="The column with the counts.")
@click.option("-m", "--mechanism", "file", required=True, metavar="FILE", help="A mechanism made by countveil design.")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the released table goes; same format.")
@click.option("--null-as-zero", is_flag=True, help="Count NULL (in CSV: an empty field) as 0 instead of refusing it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def release(table: str, column: str, file: str, output: str, null_as_zero: bool, as_json: bool) -> None:
    """Release the counts of TABLE, a CSV (UTF-8, with a header) or Parquet file of any size.

    OUT has noisy counts in place of the true ones, which are written nowhere. The other columns and the order of the
    rows stay as they are. Three columns are added: margin_95 (the error is within it with probability 95 % or more),
    certain_low and certain_high (the true count is never outside). OUT appears only when it is complete.

    Releasing the same counts again spends privacy again: release once, and publish that one table.

    \b
    Examples:
      countveil release table.csv --column n -m mechanism.json -o noisy.csv
      countveil release table.parquet --column n -m mechanism.json -o noisy.parquet --null-as-zero --json
    """
    from countveil.mechanism import Mechanism
    from countveil.tables import release_table

    with busy("certifying the mechanism"):
        mechanism = Mechanism.load(file)
    with _bar() as progress:
        rows = release_table(mechanism, table, column, output, null_as_zero=null_as_zero, progress=progress)
    m = mechanism.describe()
    result = {
        "schema_version": 1,
        "output": output,
        "rows": rows,
        "column": column,
        "mechanism_hash": m["hash"],
        "epsilon": m["epsilon"],
        "delta": m["delta"],
        "sensitivity": m["sensitivity"],
        "margin_95": mechanism.margin_95,
    }
    _explain(result)
    if as_json:
        print_json(result)


def _explain(r: dict[str, Any]) -> None:
    """What was released and what that guarantees, in words, on stderr."""
    pair = f"epsilon {r['epsilon']}, delta {short(r['delta'], 6, 'up')}"
    words = (
        f"released {r['rows']} counts of column {r['column']} to {r['output']}, ±{r['margin_95']} in 95 % of cases",
        f"guarantee: {pair} for each person who is counted in one row and adds at most {r['sensitivity']} to it;",
        "  a person counted in k rows has k times both; the other columns are published as they are",
        "releasing the same counts again spends privacy again: publish this table, and keep it",
    )
    click.echo("\n".join(words), err=True)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr that goes away when done; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("releasing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("releasing", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
