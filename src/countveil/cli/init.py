"""`countveil init`: propose a configuration file for a source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import JSON, Command, make_table, print_json, print_rich, show_spinner

if TYPE_CHECKING:
    from countveil.config.draft import ColumnProposal


@click.command(cls=Command, short_help="Propose a configuration file for your data.")
@click.argument("file", required=False)
@click.option("--table", metavar="T", help="The table to use, if FILE is a DuckDB database.")
@click.option("--delimiter", metavar="C", help="The field separator of a CSV file (default: a comma).")
@click.option("--name", metavar="NAME", help="The dataset's name (default: from the file name).")
@click.option(
    "--unit", metavar="COLUMN", help='The column that identifies a person, or "row" if every row is one person.'
)
@click.option("--epsilon", default="3", show_default=True, metavar="E", help="Privacy loss of all answers together.")
@click.option("--delta", default="1e-6", show_default=True, metavar="D", help="Delta of all answers together.")
@click.option("--answers", default=50, show_default=True, metavar="K", help="How many answers (tables) are planned.")
@click.option(
    "-o", "--output", default="countveil.toml", show_default=True, metavar="OUT", help="Where to write; - to print."
)
@click.option(
    "--by", multiple=True, metavar="A,B", help="Choose the bounds for tables by these columns; give it for each table."
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--confirm", is_flag=True, help="Ask about each guess in OUT, and remove the marks of those confirmed.")
@JSON
def init(
    file: str | None,
    table: str | None,
    delimiter: str | None,
    output: str,
    force: bool,
    confirm: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Propose a countveil.toml for FILE: a CSV or Parquet file, a glob of them, or a DuckDB database.

    The output says for each column why it is proposed or not. Columns of ids and index columns are not proposed. Long
    lists of values go to a CSV file beside OUT, decimals get bins, and dates get months.

    Domains are guessed from the data and marked as guessed, and so are the contribution bounds: those on a coarse grid
    that have the least total error in tables by one column, or in the tables of --by. No query is answered until the
    curator confirms all of them: --confirm asks about each. All output contains facts about the data, so it is for
    the curator only.

    \b
    Examples:
      countveil init people.parquet --unit person_id
      countveil init "visits/*.parquet" --name visits --unit patient --by region --by region,month
      countveil init warehouse.duckdb --table people --unit row -o -
      countveil init --confirm
    """
    import os
    from dataclasses import asdict
    from fnmatch import fnmatch
    from pathlib import Path

    from countveil.cli.bounds_table import print_choices
    from countveil.cli.confirmation import confirm_guesses
    from countveil.config.draft import propose
    from countveil.data.engines import Source
    from countveil.errors import ParameterError
    from countveil.files.durable_files import PRIVATE, open_output

    if confirm:
        _refuse_other_options()
        confirm_guesses(output)
        return
    if not file or not _is_plain_text(file):
        raise ParameterError("file", file, "the path of a file, in UTF-8")
    target = Path(output)
    if output != "-" and not target.absolute().parent.is_dir():
        raise ParameterError("output", output, "a file in a folder that exists")
    if output != "-" and target.exists() and not force:
        raise ParameterError("output", output, "a new file", "use --force to replace it")
    location = file
    if output != "-" and "://" not in file and not os.path.isabs(file):
        location = os.path.relpath(file, target.parent)
    delimiter = "\t" if delimiter == "\\t" else delimiter  # a shell passes \t as two characters
    source = Source(location, table, delimiter, directory=Path() if output == "-" else target.parent)
    with show_spinner(f"looking at {file}"):
        draft = propose(source, with_files=output != "-", **wanted)
    bounds = None if draft.bounds is None else draft.bounds.describe()
    columns = {name: asdict(proposal) for name, proposal in draft.columns.items()}
    if output == "-":
        document = {"schema_version": 1, "text": draft.text, "columns": columns, "bounds": bounds}
        click.echo(json.dumps(document, indent=2) if as_json else draft.text)
        return
    files = {target.parent / name: text for name, text in draft.files.items()}
    for path in files:
        if fnmatch(os.path.abspath(path), os.path.abspath(target.parent / location)):
            raise ParameterError("output", output, f"another folder; {path.name} would become a part of the source")
        if path.exists() and not force:
            raise ParameterError("output", str(path), "a new file", "use --force to replace it")
    for path, text in files.items():
        with open_output(path, PRIVATE) as fresh:
            fresh.write(text.encode())
    with open_output(target) as fresh:
        fresh.write(draft.text.encode())
    if as_json:
        written = {"config": output, "files": list(map(str, files)), "columns": columns, "bounds": bounds}
        print_json({"schema_version": 1, **written})
        return
    _print_columns(draft.columns)
    guesses = "domains"
    if draft.bounds is not None:
        print_choices(draft.bounds)
        guesses = "domains and bounds"
    click.echo(f"wrote {output}; next: confirm the {guesses} marked guessed: countveil init --confirm")


def _print_columns(columns: Mapping[str, ColumnProposal]) -> None:
    from rich.text import Text

    table = make_table("column", "proposed", "why", left=3)
    for name, each in columns.items():
        words = (name if name.isprintable() else ascii(name), "yes" if each.proposed else "no", each.reason)
        table.add_row(*map(Text, words))
    print_rich(table)


def _refuse_other_options() -> None:
    """Refuse options that --confirm does not use: with it, only the configuration is read and written."""
    from click.core import ParameterSource

    from countveil.errors import ParameterError

    context = click.get_current_context()
    for name, value in context.params.items():
        if name not in ("output", "confirm") and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            hint = "--confirm reads and writes only the configuration that -o names"
            raise ParameterError(name.removeprefix("as_"), value, "nothing", hint)


def _is_plain_text(path: str) -> bool:
    """Whether a path can be written as UTF-8 text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in path
