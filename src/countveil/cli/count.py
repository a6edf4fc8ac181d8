"""`countveil count`: ask a count query and pay for the answer."""

from __future__ import annotations

import os
import sys
import textwrap
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import (
    CONFIG,
    JSON,
    NEW_LEDGER,
    URL,
    Command,
    clip,
    describe_loss,
    make_table,
    open_curator_or_service,
    print_json,
    print_rich,
    show_spinner,
)

if TYPE_CHECKING:
    from countveil.curator.results import DryRun, Table
    from countveil.query.truth import Truth

MOST_ROWS = 60


@click.command(cls=Command, short_help="Answer a count query, within the budget.")
@click.argument("sql")
@CONFIG
@URL
@click.option("--dry-run", is_flag=True, help="Show the cost and the accuracy; ask and pay nothing.")
@click.option(
    "--grade", metavar="NAME", help="The grade that pays (default: an answer on record, or the default grade)."
)
@click.option("--analyst", metavar="NAME", help="The name that the ledger records as the analyst (default: curator).")
@NEW_LEDGER
@click.option("-o", "--output", metavar="FILE", help="Write the table to a file (.csv, .parquet or .json).")
@click.option("--format", "style", type=click.Choice(["csv", "parquet", "json"]), help="The format of the table.")
@JSON
def count(
    sql: str,
    config: str | None,
    url: str | None,
    dry_run: bool,
    grade: str | None,
    analyst: str | None,
    new_ledger: bool,
    output: str | None,
    style: str | None,
    as_json: bool,
) -> None:
    """Answer a count query from a configured dataset, within its budget. Asking the same question again is free.

    \b
    The query language is this part of SQL and no more:
      SELECT columns, count(*) FROM dataset WHERE condition GROUP BY columns
      count(DISTINCT unit) counts people; a condition has = <> < <= > >=, IN, BETWEEN, IS NULL, AND, OR, NOT

    \b
    Examples:
      countveil count "SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region" --dry-run
      countveil count "SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region"
      countveil count "SELECT count(*) FROM people" --grade fine
      countveil count "SELECT region, sex, count(*) FROM people GROUP BY region, sex" -o table.csv
      countveil count "SELECT count(*) FROM people" --url https://counts.example.org
    """
    from countveil.curator.results import DryRun
    from countveil.errors import RequestError

    if url is not None and (config is not None or analyst is not None or new_ledger):
        raise RequestError(
            "with --url the service has data and ledger, and the key names the analyst: leave out --config, --analyst "
            "and --new-ledger"
        )
    if dry_run and (output is not None or style is not None):
        raise RequestError("a dry run makes no table: leave out --output and --format")
    if as_json and output is None and style is not None and style != "json":
        raise RequestError(f"--json prints JSON: leave out --format {style}, or give a file with -o")
    style = style or _choose_format(output)
    _check_output(output, style)
    who: dict[str, Any] = {} if analyst is None else {"analyst": analyst}
    with show_spinner("asking"), open_curator_or_service(config, url, new_ledger=new_ledger) as source:
        result = source.dry_run(sql, grade=grade, **who) if dry_run else source.count(sql, grade=grade, **who)
    if isinstance(result, DryRun):
        _print_dry_run(result, as_json)
    else:
        _print_table(result, output, "json" if as_json and output is None else style, as_json)


def _choose_format(output: str | None) -> str | None:
    """The format that belongs to the ending of the output file; None if there is no output file."""
    from countveil.errors import ParameterError

    if output is None:
        return None
    ending = Path(output).suffix.lower().lstrip(".")
    if ending not in ("csv", "parquet", "json"):
        allowed = "a name that ends in .csv, .parquet or .json"
        raise ParameterError("output", output, allowed, "for another name, give the format too: --format csv")
    return ending


def _check_output(output: str | None, style: str | None) -> None:
    """Refuse an output file that cannot be written, before anything is charged."""
    from countveil.curator.results import check_kind
    from countveil.errors import ParameterError

    if style == "parquet":
        check_kind("pyarrow")
        if output is None:
            raise ParameterError("format", "parquet", "csv or json on the screen", "give a file with -o")
    if output is None:
        return
    folder = Path(output).absolute().parent
    if not folder.is_dir() or Path(output).is_dir():
        raise ParameterError("output", output, "a file in a folder that exists")
    if not os.access(folder, os.W_OK):
        raise ParameterError("output", output, "a file in a folder that can be written")


def _print_dry_run(dry_run: DryRun, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"schema_version": 1, **asdict(dry_run)})
        return
    click.echo(f"question   {dry_run.text}")
    several = len(dry_run.grades) > 1
    price = f"1 answer of {dry_run.answers_left} left" if dry_run.cost else "nothing: this question was asked before"
    click.echo(f"costs      {price}{f', grade {dry_run.grade}' if several else ''}")
    counts = "count" if dry_run.cells == 1 else "counts"
    click.echo(f"gives      {dry_run.cells:,} {counts}, each ±{dry_run.margin_95} (95 %)")
    for each in dry_run.grades if several else ():
        click.echo(f"grade      {each.name}: each ±{each.margin_95} (95 %), {each.answers_left} left")
    _print_truth(dry_run.truth, "counts     ")
    for note in dry_run.notes:
        click.echo(textwrap.fill(note, 80, initial_indent="- ", subsequent_indent="  "))


def _print_table(table: Table, output: str | None, style: str | None, as_json: bool) -> None:
    from countveil.curator.table_files import to_csv

    if output is not None:
        _write(table, Path(output), style or "csv")
        _print_receipt(table, as_json, output)
    elif style == "json":
        print_json(table.describe())
    elif style == "csv":
        click.echo(to_csv(table), nl=False)
    else:
        _print_rich(table)
        _print_truth(table.truth)
        _print_receipt(table, False, None)


def _write(table: Table, target: Path, style: str) -> None:
    from countveil.curator.table_files import to_csv, to_json, write_parquet
    from countveil.files.durable_files import open_output

    with open_output(target) as file:
        if style == "parquet":
            write_parquet(table, file)
        else:
            file.write((to_json(table) if style == "json" else to_csv(table)).encode())


def _print_rich(table: Table) -> None:
    from rich.text import Text

    shown = make_table()
    *groups, counted, _, _ = table.columns
    for name in groups:
        shown.add_column(Text(name), overflow="fold")
    shown.add_column(Text(counted), justify="right", style="bold", no_wrap=True)
    shown.add_column("95 % interval", justify="right", no_wrap=True)
    for *labels, y, low, high in islice(table.rows, MOST_ROWS):
        shown.add_row(*(Text(_format_label(v)) for v in labels), f"{y:,}", f"{low:,} to {high:,}")
    print_rich(shown)
    if table.cells > MOST_ROWS:
        more = table.cells - MOST_ROWS
        print_rich(f"and {more:,} more cells; write all of them with -o table.csv", style="dim")
    if table.cells > 1:
        total = table.total()
        print_rich(f"sum of the cells {total.value:,} ±{total.margin_95:,} (95 %; free, and consistent with the cells)")
        total_query = "a query for the total costs one answer and is more accurate, but can differ from this sum"
        counted = "" if table.truth is None else table.truth.describe_sum(table.cells)
        print_rich(counted or total_query, style="dim")


def _format_label(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isprintable() and text and text == text.strip() else repr(text)


def _print_truth(truth: Truth | None, head: str = "counts ") -> None:
    """Print what is counted and what the intervals are for; nothing if the service is too old to send this."""
    if truth is not None:
        click.echo(textwrap.fill(truth.sentence, 80, initial_indent=head, subsequent_indent=" " * len(head)))


def _print_receipt(table: Table, as_json: bool, output: str | None) -> None:
    from dataclasses import asdict

    from countveil.curator.results import describe_margin

    receipt = table.receipt
    if as_json:
        facts = {"output": output, "columns": table.columns, "cells": table.cells}
        truth = None if table.truth is None else asdict(table.truth)
        answer = {"truth": truth, "receipt": asdict(receipt), "replayed": table.replayed}
        print_json({"schema_version": 1, **facts, **answer})
        return
    where = f"{table.cells:,} counts in {output}; " if output else ""
    several = len(receipt.grades) > 1
    paid = "free: asked before" if table.replayed else "paid: 1 answer"
    if several:
        paid += f" in grade {receipt.grade}"
    left = f"{receipt.answers_left} of {receipt.answers} left"
    promise = f"all together epsilon {receipt.epsilon}, delta {clip(receipt.delta, 3, 'up')}"
    promise += describe_loss(receipt.answers_lost)
    click.echo(f"{where}{paid}, {left} ({promise})", err=output is None and not sys.stdout.isatty())
    click.echo(f"{describe_margin(table)}; receipt {receipt.id}", err=output is None and not sys.stdout.isatty())
    if several:
        grades = ", ".join(f"{each.answers_left} of {each.name} (±{each.margin_95})" for each in receipt.grades)
        click.echo(f"answers left: {grades}", err=output is None and not sys.stdout.isatty())
