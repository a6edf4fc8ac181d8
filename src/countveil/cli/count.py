"""`countveil count`: ask how many, and pay for the answer."""

from __future__ import annotations

import csv
import json
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
    URL,
    Command,
    busy,
    lost_words,
    make_table,
    open_counts,
    print_json,
    print_rich,
    short,
)

if TYPE_CHECKING:
    from countveil.answers import DryRun, Table

MOST_ROWS = 60


@click.command(cls=Command)
@click.argument("sql")
@CONFIG
@URL
@click.option("--dry-run", is_flag=True, help="Say what it costs and how accurate it will be; ask nothing.")
@click.option("--analyst", metavar="NAME", help="Who asks, for the record (default: curator).")
@click.option("-o", "--output", metavar="FILE", help="Write the table to a file (.csv, .parquet or .json).")
@click.option("--format", "style", type=click.Choice(["csv", "parquet", "json"]), help="The format of the table.")
@JSON
def count(
    sql: str,
    config: str | None,
    url: str | None,
    dry_run: bool,
    analyst: str | None,
    output: str | None,
    style: str | None,
    as_json: bool,
) -> None:
    """Answer a count query from a configured dataset, within its budget. The same question twice is free.

    \b
    The language, and nothing else of SQL:
      SELECT columns, count(*) FROM dataset WHERE condition GROUP BY columns
      count(DISTINCT unit) counts people; a condition has = <> < <= > >=, IN, BETWEEN, IS NULL, AND, OR, NOT

    \b
    Examples:
      countveil count "SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region" --dry-run
      countveil count "SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region"
      countveil count "SELECT region, sex, count(*) FROM people GROUP BY region, sex" -o table.csv
      countveil count "SELECT count(*) FROM people" --url https://counts.example.org
    """
    from countveil.answers import DryRun
    from countveil.errors import RequestError

    if url is not None and (config is not None or analyst is not None):
        raise RequestError(
            "with --url the service has the data, and the key says who asks: leave out --config and --analyst"
        )
    if dry_run and (output is not None or style is not None):
        raise RequestError("a dry run gives no table: leave out --output and --format")
    if as_json and output is None and style is not None and style != "json":
        raise RequestError(f"--json prints JSON; leave out --format {style}, or name a file with -o")
    style = style or _style(output)
    _check_output(output, style)
    who: dict[str, Any] = {} if analyst is None else {"analyst": analyst}
    with busy("asking"), open_counts(config, url) as here:
        found = here.dry_run(sql, **who) if dry_run else here.count(sql, **who)
    if isinstance(found, DryRun):
        _print_dry_run(found, as_json)
    else:
        _print_table(found, output, "json" if as_json and output is None else style, as_json)


def _style(output: str | None) -> str | None:
    """The format that a file's name asks for."""
    from countveil.errors import ParameterError

    if output is None:
        return None
    ending = Path(output).suffix.lower().lstrip(".")
    if ending not in ("csv", "parquet", "json"):
        raise ParameterError("output", output, "a name that ends in .csv, .parquet or .json, or --format")
    return ending


def _check_output(output: str | None, style: str | None) -> None:
    """Refuse a file that cannot be written, before anything is paid."""
    from countveil.answers import check_kind
    from countveil.errors import ParameterError

    if style == "parquet":
        check_kind("pyarrow")
        if output is None:
            raise ParameterError("format", "parquet", "csv or json on the screen", "name a file with -o")
    if output is None:
        return
    folder = Path(output).absolute().parent
    if not folder.is_dir() or Path(output).is_dir():
        raise ParameterError("output", output, "a file in a folder that exists")
    if not os.access(folder, os.W_OK):
        raise ParameterError("output", output, "a file in a folder that can be written")


def _print_dry_run(found: DryRun, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"schema_version": 1, **asdict(found), "notes": list(found.notes)})
        return
    click.echo(f"question   {found.text}")
    price = f"1 answer of {found.answers_left} left" if found.cost else "nothing: it was asked before"
    click.echo(f"costs      {price}")
    click.echo(f"gives      {found.cells:,} count{'s' if found.cells != 1 else ''}, each ±{found.margin_95} (95 %)")
    for note in found.notes:
        click.echo(textwrap.fill(note, 80, initial_indent="- ", subsequent_indent="  "))


def _print_table(table: Table, output: str | None, style: str | None, as_json: bool) -> None:
    if output is not None:
        _write(table, Path(output), style or "csv")
        _print_receipt(table, as_json, output)
    elif style == "json":
        print_json(table.describe())
    elif style == "csv":
        click.echo(_csv(table), nl=False)
    else:
        _print_rich(table)
        _print_receipt(table, False, None)


def _write(table: Table, target: Path, style: str) -> None:
    from countveil.durable_files import open_output

    with open_output(target) as file:
        if style == "json":
            file.write(json.dumps(table.describe(), indent=1).encode())
        elif style == "csv":
            file.write(_csv(table).encode())
        else:
            import pyarrow.parquet as pq

            pq.write_table(table.to("pyarrow"), file)


def _csv(table: Table) -> str:
    lines = _Lines()
    writer = csv.writer(lines)  # with its own line ends, so that every kind of line end in a label is quoted
    writer.writerow(table.columns)
    writer.writerows([str(v).lower() if isinstance(v, bool) else v for v in row] for row in table.rows)
    return "".join(lines)


class _Lines(list[str]):
    """The lines of a CSV file, each with a plain line end."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _print_rich(table: Table) -> None:
    from rich.text import Text

    shown = make_table()
    *groups, counted, _, _ = table.columns
    for name in groups:
        shown.add_column(Text(name), overflow="fold")
    shown.add_column(Text(counted), justify="right", style="bold", no_wrap=True)
    shown.add_column("95 % interval", justify="right", no_wrap=True)
    for *labels, y, low, high in islice(table.rows, MOST_ROWS):
        shown.add_row(*(Text(_label(v)) for v in labels), f"{y:,}", f"{low:,} to {high:,}")
    print_rich(shown)
    if table.cells > MOST_ROWS:
        more = table.cells - MOST_ROWS
        print_rich(f"and {more:,} more cells; write all of them with -o table.csv", style="dim")
    if table.cells > 1:
        total = table.total()
        print_rich(f"sum of the cells {total.value:,} ±{total.margin_95:,} (95 %; free, and agrees with them)")
        print_rich("a total asked for on its own costs an answer, is closer, need not agree", style="dim")


def _label(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isprintable() and text and text == text.strip() else repr(text)


def _print_receipt(table: Table, as_json: bool, output: str | None) -> None:
    from dataclasses import asdict

    receipt = table.receipt
    if as_json:
        found = {"output": output, "columns": table.columns, "cells": table.cells}
        print_json({"schema_version": 1, **found, "receipt": asdict(receipt), "replayed": table.replayed})
        return
    where = f"{table.cells:,} counts in {output}; " if output else ""
    paid = "free: asked before" if table.replayed else "paid: 1 answer"
    left = f"{receipt.answers_left} of {receipt.answers} left"
    promise = f"all together epsilon {receipt.epsilon}, delta {short(receipt.delta, 3, 'up')}"
    promise += lost_words(receipt.answers_lost)
    click.echo(f"{where}{paid}, {left} ({promise})", err=output is None and not sys.stdout.isatty())
    words = f"±{table.margin_95} in 95 % of releases, never more than ±{table.worst_error}; receipt {receipt.id}"
    click.echo(words, err=output is None and not sys.stdout.isatty())
