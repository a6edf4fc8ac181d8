"""`countveil release`: add noise to a finished table of counts, with margins of error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from countveil.cli.output import JSON, Command, clip, print_json, show_spinner
from countveil.numeric.exact_numbers import decimal_text


@click.command(cls=Command, short_help="Add noise to the counts of a finished table.")
@click.argument("table")
@click.option(
    "--column", "columns", required=True, multiple=True, metavar="NAME", help="A column with counts (may repeat)."
)
@click.option("-m", "--mechanism", "file", required=True, metavar="FILE", help="A mechanism made by countveil design.")
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="The file for the released table, in the same format."
)
@click.option("--disjoint", is_flag=True, help="Each person is counted in one of the columns, not in several.")
@click.option("--null-as-zero", is_flag=True, help="Count NULL (in CSV: an empty field) as 0 instead of refusing it.")
@JSON
def release(
    table: str, columns: tuple[str, ...], file: str, output: str, disjoint: bool, null_as_zero: bool, as_json: bool
) -> None:
    """Release the counts of TABLE, a CSV (UTF-8, with a header) or Parquet file of any size.

    OUT has noisy counts in place of the true ones, which are written nowhere. Every other column is copied unchanged,
    and the rows keep their order. Three columns are added: margin_95 (the error is within it with probability 95 % or
    more), certain_low and certain_high (a true count for which the mechanism was designed is always between them); for
    several columns, three each, as in NAME_margin_95. OUT appears only when it is complete.

    For several columns the guarantee covers all of them together, for a person who may be counted in each.

    Releasing the same counts again spends privacy again: release once, and publish that one table.

    \b
    Examples:
      countveil release table.csv --column n -m mechanism.json -o noisy.csv
      countveil release table.csv --column F --column M --disjoint -m mechanism.json -o noisy.csv
      countveil release table.parquet --column n -m mechanism.json -o noisy.parquet --null-as-zero --json
    """
    from countveil.mechanism.mechanism import Mechanism
    from countveil.release.table_files import release_table

    with show_spinner("certifying the mechanism"):
        mechanism = Mechanism.load(file)
    with _show_progress_bar() as progress:
        done = release_table(
            mechanism, table, columns, output, disjoint=disjoint, null_as_zero=null_as_zero, progress=progress
        )
    m = mechanism.describe()
    result = {
        "schema_version": 1,
        "output": output,
        "rows": done.rows,
        "columns": list(done.columns),
        "unchanged_columns": list(done.unchanged),
        "disjoint": done.disjoint,
        "mechanism_hash": m["hash"],
        "epsilon": decimal_text(done.epsilon, rounding="up"),
        "delta": decimal_text(done.delta, rounding="up"),
        "per_column": {"epsilon": m["epsilon"], "delta": m["delta"]},
        "sensitivity": m["sensitivity"],
        "margin_95": mechanism.margin_95,
    }
    for line in _describe(result):
        click.echo(line, err=True)
    if as_json:
        print_json(result)


def _describe(r: dict[str, Any]) -> Iterator[str]:
    """Describe what was released and with which guarantee, line by line."""
    from countveil.release.columns import join_names

    several, names, others = len(r["columns"]) > 1, join_names(r["columns"]), r["unchanged_columns"]
    what = f"each of the {len(r['columns'])} columns {names}" if several else f"column {names}"
    yield f"released {r['rows']} counts of {what} to {r['output']}, ±{r['margin_95']} in 95 % of cases"
    number = {0: "no other column is", 1: "1 other column is"}.get(len(others), f"{len(others)} other columns are")
    yield f"{number} published unchanged" + (f": {join_names(others)}" if others else "")
    pair = f"epsilon {clip(r['epsilon'], 6, 'up')}, delta {clip(r['delta'], 6, 'up')}"
    together = several and not r["disjoint"]
    yield f"guarantee{' of all columns together' * together}: {pair}"
    where = "one row of one of the columns" if r["disjoint"] else "one row of each column" if several else "one row"
    yield f"  for each person who is counted in {where} and adds at most {r['sensitivity']} there;"
    yield "  for a person counted in k rows, multiply both by k"
    yield "releasing the same counts again spends privacy again: publish this table and keep it"


@contextmanager
def _show_progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr and remove it at the end; nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("releasing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("releasing", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
