"""`countveil init`: propose a configuration file for a source."""

from __future__ import annotations

import json
from typing import Any

import click

from countveil.cli.output import JSON, Command, busy, print_json


@click.command(cls=Command)
@click.argument("file")
@click.option("--table", metavar="T", help="The table, where FILE is a DuckDB database.")
@click.option("--delimiter", metavar="C", help="What separates the fields of a CSV file (default: a comma).")
@click.option("--name", metavar="NAME", help="The dataset's name (default: from the file's).")
@click.option("--unit", metavar="COLUMN", help='Who is a person: a column, or "row" if every row is one.')
@click.option("--epsilon", default="3", show_default=True, metavar="E", help="Privacy loss of all answers together.")
@click.option("--delta", default="1e-6", show_default=True, metavar="D", help="Delta of all answers together.")
@click.option("--answers", default=50, show_default=True, metavar="K", help="How many tables are planned.")
@click.option(
    "-o", "--output", default="countveil.toml", show_default=True, metavar="OUT", help="Where to write; - to print."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@JSON
def init(
    file: str, table: str | None, delimiter: str | None, output: str, force: bool, as_json: bool, **wanted: Any
) -> None:
    """Propose a countveil.toml for FILE: a CSV or Parquet file, a glob of them, or a DuckDB database.

    Domains are guessed from the data and marked: nothing can be answered before a curator has confirmed them.

    \b
    Examples:
      countveil init people.parquet --unit person_id
      countveil init "visits/*.parquet" --name visits --unit patient
      countveil init warehouse.duckdb --table people --unit row -o -
    """
    import os
    from pathlib import Path

    from countveil.durable_files import open_output
    from countveil.engines import Source
    from countveil.errors import ParameterError
    from countveil.proposing import propose

    if not file or not _readable(file):
        raise ParameterError("file", file, "the path of a file, in UTF-8")
    target = Path(output)
    if output != "-" and not target.absolute().parent.is_dir():
        raise ParameterError("output", output, "a file in a folder that exists")
    if output != "-" and target.exists() and not force:
        raise ParameterError("output", output, "a new file", "use --force to replace it")
    location = file
    if output != "-" and "://" not in file and not os.path.isabs(file):
        location = os.path.relpath(file, target.parent)
    delimiter = "\t" if delimiter == "\\t" else delimiter  # as a shell passes it on
    source = Source(location, table, delimiter, directory=Path() if output == "-" else target.parent)
    with busy(f"looking at {file}"):
        text = propose(source, **wanted)
    if output == "-":
        click.echo(json.dumps({"schema_version": 1, "text": text}, indent=2) if as_json else text)
        return
    with open_output(output) as fresh:
        fresh.write(text.encode())
    if as_json:
        print_json({"schema_version": 1, "config": output})
        return
    click.echo(f"wrote {output}; next: confirm the domains marked guessed, then: countveil inspect")


def _readable(path: str) -> bool:
    """A name that can be written into a file of text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in path
