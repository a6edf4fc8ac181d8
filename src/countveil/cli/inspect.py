"""`countveil inspect`: for the curator, how the data fits the declared schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from countveil.cli.output import CONFIG, JSON, Command, busy, make_table, print_json, print_notes, print_rich

if TYPE_CHECKING:
    from countveil.inspecting import Inspection


@click.command(cls=Command)
@click.argument("dataset", required=False)
@CONFIG
@JSON
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
    from rich.text import Text

    print_rich(f"{found.dataset}: {found.rows:,} rows", style="bold")
    heads = ("column", "declared", "source", "in domain", "NULL", "outside")
    table = make_table(*heads, left=3, no_wrap=True)
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    for column in found.columns:
        mark = " (guessed)" if column.name in found.guessed else ""
        counts = [f"{n:,}" for n in (column.inside, column.null, column.outside)]
        table.add_row(*(Text(cell) for cell in (column.name, f"{column.declared}{mark}", column.held, *counts)))
    print_rich(table)
    for column in found.columns:
        if column.examples:
            examples = ", ".join(f"{_shown(value)} ({n:,})" for value, n in column.examples)
            print_rich(f"outside {column.name}, most frequent: {examples}")
    if found.people is not None:
        people = found.people
        rows = "1 row" if people.most_rows == 1 else f"{people.most_rows:,} rows"
        print_rich(f"{people.people:,} people; at most {rows} of one person")
    if found.undeclared:
        print_rich(f"not declared, so nobody can ask about: {', '.join(map(_shown, found.undeclared))}")
    if found.guessed:
        print_rich(f"guessed domains to confirm in the file: {', '.join(found.guessed)}", style="yellow")
    print_notes(found.notes)


def _shown(value: str) -> str:
    plain = value if value.isprintable() else ascii(value)
    return plain if len(plain) <= 30 else plain[:29] + "…"
