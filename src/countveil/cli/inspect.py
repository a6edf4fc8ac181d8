"""`countveil inspect`: show the curator how the data fits the declared schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from countveil.cli.output import CONFIG, JSON, Command, make_table, print_json, print_notes, print_rich, show_spinner

if TYPE_CHECKING:
    from fractions import Fraction

    from countveil.config.profile import Inspection


@click.command(cls=Command, short_help="Show how the data fits the declared schema.")
@click.argument("dataset", required=False)
@CONFIG
@click.option(
    "--by", multiple=True, metavar="A,B", help="Compare bounds in tables by these columns; give it for each table."
)
@click.option("--strict", is_flag=True, help="Fail (exit code 5) if the data no longer fits: for scheduled jobs.")
@click.option(
    "--share", metavar="S", help="With --strict: the share that may be left out, or newly NULL (default: 0.001)."
)
@click.option("--since", is_flag=True, help="Compare with the last inspection with --since, and record this one.")
@JSON
def inspect(
    dataset: str | None,
    config: str | None,
    by: tuple[str, ...],
    strict: bool,
    share: str | None,
    since: bool,
    as_json: bool,
) -> None:
    """Show how the data of DATASET fits its public schema: types, values outside the domain, rows per person.

    For people with several rows, the contribution bounds are compared with other choices: how many rows each choice
    leaves out, overall and in the worst cells, and how much noise it needs. This is computed for tables by one column,
    or for the tables of --by.

    The output contains true counts and values from the data, so it is for the curator only. Nothing is charged.

    With --strict the command fails if the source has no rows, if more than --share of the rows is outside of a column's
    domain, in no possible cell or without a person, or if more than --share of the people have more rows than one table
    counts. With --since it also fails if the share of NULLs in a column is more than --share above that of the last
    inspection with --since.

    With --since it also shows what changed since the last inspection with --since, whose counts are recorded beside the
    ledger, in a file that only its owner can read: it is as secret as the data. Data that --strict refuses is not
    recorded.

    \b
    Examples:
      countveil inspect
      countveil inspect people --json
      countveil inspect visits --by region --by region,month
      countveil inspect people --strict --share 0.01
      countveil inspect people --since
    """
    from countveil.config.configuration import load
    from countveil.config.drift import SHARE, check_drift
    from countveil.config.inspections import list_changes, read_inspections, record_path, write_inspections
    from countveil.config.profile import inspect as inspect_dataset
    from countveil.errors import ParameterError

    if share is not None and not strict:
        raise ParameterError("share", share, "nothing without --strict", "add --strict")
    allowed = read_share(SHARE if share is None else share)
    loaded = load(config)
    chosen = [loaded.dataset(dataset)] if dataset else list(loaded.datasets.values())
    record = record_path(loaded.ledger)
    earlier = read_inspections(record) if since else {}
    with show_spinner("looking at the data"):
        inspections = [inspect_dataset(each, by) for each in chosen]
    changes = {each.dataset: list_changes(each, earlier.get(each.dataset)) for each in inspections} if since else {}
    if as_json:
        more = {"changes": changes} if since else {}
        print_json({"schema_version": 1, "datasets": [each.describe() for each in inspections], **more})
    else:
        for each in inspections:
            _print(each)
            print_notes(changes.get(each.dataset, []))
    if strict:
        check_drift(inspections, allowed, earlier)
    if since:
        write_inspections(record, inspections, earlier)


def read_share(text: str) -> Fraction:
    """Read the share of rows that an option gives, from 0 to 1."""
    from countveil.errors import ParameterError
    from countveil.numeric.exact_numbers import number

    share = number("share", text)
    if not 0 <= share < 1:
        raise ParameterError("share", text, "a number from 0 to below 1, such as 0.001")
    return share


def _print(inspection: Inspection) -> None:
    from rich.text import Text

    from countveil.cli.bounds_table import print_chart, print_choices

    print_rich(f"{inspection.dataset}: {inspection.rows:,} rows", style="bold")
    heads = ("column", "declared", "source", "in domain", "NULL", "outside")
    table = make_table(*heads, left=3, no_wrap=True)
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    for column in inspection.columns:
        mark = " (guessed)" if column.name in inspection.guessed else ""
        counts = [f"{n:,}" for n in (column.inside, column.null, column.outside)]
        table.add_row(*(Text(cell) for cell in (column.name, f"{column.declared}{mark}", column.held, *counts)))
    print_rich(table)
    for column in inspection.columns:
        if column.examples:
            examples = ", ".join(f"{_shorten(value)} ({n:,})" for value, n in column.examples)
            print_rich(f"outside {column.name}, most frequent: {examples}")
    if inspection.people is not None:
        people = inspection.people
        rows = "1 row" if people.most_rows == 1 else f"{people.most_rows:,} rows"
        print_rich(f"{people.people:,} people; at most {rows} of one person")
    if inspection.undeclared:
        print_rich(f"not declared, so no query can use: {', '.join(map(_shorten, inspection.undeclared))}")
    if inspection.guessed:
        print_rich(f"guessed domains to confirm in the file: {', '.join(inspection.guessed)}", style="yellow")
    if inspection.bounds is not None:
        print_choices(inspection.bounds)
        print_chart(inspection.bounds)
    print_notes(inspection.notes)


def _shorten(value: str) -> str:
    plain = value if value.isprintable() else ascii(value)
    return plain if len(plain) <= 30 else plain[:29] + "…"
