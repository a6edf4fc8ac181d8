"""`countveil demo`: the whole workflow on an invented census."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from countveil.cli.output import JSON, Command, make_table, print_json, print_rich, show_spinner

if TYPE_CHECKING:
    from countveil.demo import Demo, DemoQuestion


@click.command(cls=Command, short_help="Show the whole workflow on an invented census.")
@click.option("--out", default="countveil-demo", show_default=True, metavar="DIR", help="The folder for all files.")
@JSON
def demo(out: str, as_json: bool) -> None:
    """Invent a census of 100,000 people, plan a budget, ask four questions, write a report, publish a yearbook.

    One question is refused, and one is free because it was asked before. A second run replays every answer from the
    ledger and costs nothing. Delete the folder to start again.

    \b
    Examples:
      countveil demo
      countveil demo --out /tmp/demo --json
    """
    from countveil.demo import run
    from countveil.errors import ParameterError

    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ParameterError("out", out, "a folder")
    try:
        with show_spinner("inventing a census, planning a budget, asking four questions, publishing a yearbook"):
            result = run(folder)
    except OSError as error:
        raise ParameterError("out", out, f"a folder that can be written ({error.strerror})") from None
    if as_json:
        print_json(_to_dict(result))
        return
    shown: set[str] = set()
    for number, asked in enumerate(result.asked, start=1):
        _print(number, asked, shown)
    b = result.budget
    click.echo(
        f"\n{b.answers_left} of {b.answers_total} answers left; all together epsilon {b.epsilon}, delta {b.delta}"
    )
    click.echo(f"the report, with plots: {result.report}")
    _print_publication(result)
    click.echo(f'ask more: cd {folder} && countveil count "SELECT sex, count(*) FROM people GROUP BY sex"')


def _to_dict(result: Demo) -> dict[str, object]:
    asked = [
        {"title": a.title, "sql": a.sql, "refusal": a.refusal, "answer": a.table.describe() if a.table else None}
        for a in result.asked
    ]
    budget = {**asdict(result.budget), "datasets": list(result.budget.datasets), "shares": {}}
    return {
        "schema_version": 1,
        "folder": str(result.folder),
        "report": str(result.report),
        "asked": asked,
        "budget": budget,
        "publication": str(result.publication.path),
    }


def _print_publication(result: Demo) -> None:
    published, guarantee = result.publication, result.publication.manifest["guarantee"]
    print_rich("\nA publication of other invented people: visitors, in tables that add up", style="bold")
    print_rich(f"   {', '.join(published.tables)}", style="dim")
    shown = make_table("region", "published", "95 % interval", "true (invented)", "off by", left=1)
    columns = published["region"]
    for label, y, low, high, n in zip(
        *(columns[name].tolist() for name in ("region", "count", "low", "high")), result.visitors, strict=True
    ):
        off = f"{y - n:+d}" if y != n else "exact"
        shown.add_row(str(label), f"{y:,}", f"{low:,} to {high:,}", f"{n:,}", off)
    print_rich(shown)
    total = int(published["total"]["count"][0])
    click.echo(
        f"they add up to the published total of {total:,}; epsilon {guarantee['epsilon']}, delta {guarantee['delta']} "
        "for all tables of four editions"
    )
    click.echo(f"its report: {published.path / 'report.html'}")
    click.echo(f"check it: countveil publish verify {published.path}")


def _print(number: int, asked: DemoQuestion, seen: set[str]) -> None:
    from rich.text import Text

    print_rich(f"\n{number}. {asked.title}", style="bold")
    print_rich(f"   {asked.sql}", style="dim")
    if asked.table is None:
        print_rich(f"   refused: {asked.refusal}", style="yellow")
        return
    if asked.table.replayed:
        print_rich("   asked before: the recorded answer, free", style="green")
    if asked.table.receipt.question in seen:
        return
    seen.add(asked.table.receipt.question)
    shown = make_table("town", "released", "95 % interval", "true (invented)", "off by", left=1)
    for (label, y, low, high), n in zip(asked.table.rows, asked.truth, strict=True):
        off = f"{y - n:+d}" if y != n else "exact"
        shown.add_row(Text(str(label)), f"{y:,}", f"{low:,} to {high:,}", f"{n:,}", off)
    print_rich(shown)
    if asked.table.truth is not None:
        print_rich(f"   counts {asked.table.truth.sentence}", style="dim")
