"""`countveil inspect`: for the curator, how the data fits the declared schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from countveil.cli.output import Command, busy, print_json

if TYPE_CHECKING:
    from countveil.inspecting import Inspection


@click.command(cls=Command)
@click.argument("dataset", required=False)
@click.option("-c", "--config", metavar="FILE", help="The configuration (default: countveil.toml).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(dataset: str | None, config: str | None, as_json: bool) -> None:
    """Show how the data of DATASET fits its public schema: types, values outside the domain, rows per person.

    What it prints is the data: for the curator only. Nothing is charged.

    \b
    Examples:
      countveil inspect
      countveil inspect people --json
    """
    from countveil.config import load
    from countveil.inspecting import inspect as look

    loaded = load(config)
    chosen = [loaded.dataset(dataset)] if dataset else list(loaded.datasets.values())
    with busy("looking at the data"):
        found = [look(each) for each in chosen]
    if as_json:
        print_json({"schema_version": 1, "datasets": [each.describe() for each in found]})
        return
    for each in found:
        _print(each)


def _print(found: Inspection) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{found.dataset}: {found.rows:,} rows", style="bold"))
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("column", overflow="fold")
    for head, side in (("declared", "left"), ("source", "left"), ("in domain", "right"), ("NULL", "right")):
        table.add_column(head, justify=side, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("outside", justify="right", no_wrap=True)
    for column in found.columns:
        mark = " (guessed)" if column.name in found.guessed else ""
        counts = [f"{n:,}" for n in (column.inside, column.null, column.outside)]
        table.add_row(*(Text(cell) for cell in (column.name, f"{column.declared}{mark}", column.held, *counts)))
    console.print(table)
    for column in found.columns:
        if column.examples:
            examples = ", ".join(f"{_shown(value)} ({n:,})" for value, n in column.examples)
            console.print(Text(f"outside {column.name}, most frequent: {examples}"))
    if found.people is not None:
        people = found.people
        rows = "1 row" if people.most_rows == 1 else f"{people.most_rows:,} rows"
        console.print(Text(f"{people.people:,} people; at most {rows} of one person"))
    if found.undeclared:
        console.print(Text(f"not declared, so nobody can ask about: {', '.join(map(_shown, found.undeclared))}"))
    if found.guessed:
        console.print(Text(f"guessed domains to confirm in the file: {', '.join(found.guessed)}", style="yellow"))
    for note in found.notes:
        console.print(Text(f"- {note}", style="dim"))


def _shown(value: str) -> str:
    plain = value if value.isprintable() else ascii(value)
    return plain if len(plain) <= 30 else plain[:29] + "…"
