"""`countveil demo`: the main job from end to end, on invented people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from countveil.cli.output import JSON, Command, busy, make_table, print_json, print_rich

if TYPE_CHECKING:
    from countveil.demo import Asked, Demo


@click.command(cls=Command)
@click.option("--out", default="countveil-demo", show_default=True, metavar="DIR", help="Where everything is written.")
@JSON
def demo(out: str, as_json: bool) -> None:
    """Invent a census of 100,000 people, plan a budget, ask four questions, write a report.

    One question is refused, and one is free because it was asked before. Run it again: everything is replayed, because
    the ledger remembers. Delete the folder to start anew.

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
        with busy("inventing a census, planning a budget, asking four questions"):
            done = run(folder)
    except OSError as error:
        raise ParameterError("out", out, f"a folder that can be written ({error.strerror})") from None
    if as_json:
        print_json(_plain(done))
        return
    shown: set[str] = set()
    for number, asked in enumerate(done.asked, start=1):
        _print(number, asked, shown)
    b = done.budget
    click.echo(
        f"\n{b.answers_left} of {b.answers_total} answers left; all together epsilon {b.epsilon}, delta {b.delta}"
    )
    click.echo(f"the report, with plots: {done.report}")
    click.echo(f'ask more: cd {folder} && countveil count "SELECT sex, count(*) FROM people GROUP BY sex"')


def _plain(done: Demo) -> dict[str, object]:
    asked = [
        {"title": a.title, "sql": a.sql, "refusal": a.refusal, "answer": a.table.describe() if a.table else None}
        for a in done.asked
    ]
    budget = {**asdict(done.budget), "datasets": list(done.budget.datasets), "shares": {}}
    return {
        "schema_version": 1,
        "folder": str(done.folder),
        "report": str(done.report),
        "asked": asked,
        "budget": budget,
    }


def _print(number: int, asked: Asked, seen: set[str]) -> None:
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
