"""`countveil budget`: what is left, and opening more."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import (
    CONFIG,
    JSON,
    URL,
    Command,
    busy,
    lost_words,
    open_counts,
    print_json,
    print_rich,
    short,
)

if TYPE_CHECKING:
    from countveil.answers import PoolBudget


@click.command(cls=Command)
@click.argument("name", required=False)
@CONFIG
@URL
@click.option("--open", "more", metavar="N", help="Open N more answers of the pool's mechanism; stays on the record.")
@click.option("--replan", is_flag=True, help="Make a new plan as it is configured now; stays on the record.")
@click.option("--reason", metavar="TEXT", help="With --open or --replan: why, for the record.")
@JSON
def budget(
    name: str | None, more: str | None, replan: bool, reason: str | None, as_json: bool, **where: str | None
) -> None:
    """Show what is left of the budget of NAME (a dataset or a pool), or of all.

    \b
    Examples:
      countveil budget
      countveil budget people --json
      countveil budget people --open 10 --reason "second edition of the yearbook"
      countveil budget people --replan --reason "people now have up to three visits"
      countveil budget --url https://counts.example.org
    """
    from countveil.errors import RequestError

    changed = (more is not None) + replan
    if changed != (reason is not None) or (changed and name is None):
        raise RequestError('to open more or to plan anew, name the pool, --open N or --replan, and --reason "why"')
    if where["url"] is not None and (where["config"] is not None or changed):
        raise RequestError("with --url the service has the budget: leave out --config, --open and --replan")
    with busy("planning" if replan else "reading the ledger"), open_counts(**where) as here:
        found = here.budget(name) if not changed else [_change(here, str(name), more, str(reason))]
    if replan:
        click.echo("a service that runs with this configuration must be restarted", err=True)
    if as_json:
        pools = [_plain(each) for each in found]
        print_json({"schema_version": 1, **(pools[0] if len(pools) == 1 else {}), "pools": pools})
        return
    for each in found:
        _print(each, yours=where["url"] is not None)


def _change(curator: Any, pool: str, more: str | None, reason: str) -> PoolBudget:
    """A pool with more answers opened, or planned anew."""
    changed: PoolBudget = (
        curator.replan_budget(pool, reason) if more is None else curator.open_budget(pool, more, reason)
    )
    return changed


def _plain(found: PoolBudget) -> dict[str, object]:
    shares = {who: {"answers": s.answers, "left": max(0, s.left)} for who, s in found.shares.items()}
    return {**asdict(found), "datasets": list(found.datasets), "shares": shares, "notes": list(found.notes)}


def _print(found: PoolBudget, *, yours: bool) -> None:
    """`yours`: what is left is what the holder of a key can still ask for, and what others spent is not known."""
    from rich.text import Text

    of = "" if found.datasets == (found.pool,) else f" ({', '.join(found.datasets)})"
    whose = " for this key" if yours else ""
    width = 30
    filled = width - (width * found.answers_left) // max(1, found.answers_total)
    print_rich(f"{found.pool}{of}", style="bold")
    bar = Text("#" * filled, style="red").append("." * (width - filled), style="green")
    print_rich(Text("  ").append(bar).append(f"  {found.answers_left} of {found.answers_total} answers left{whose}"))
    promise = f"epsilon {found.epsilon}, delta {short(found.delta, 3, 'up')} for all of them together"
    promise += lost_words(found.answers_lost)
    spent = "" if yours else f"{found.answers_total - found.answers_left} spent; "
    print_rich(f"  {spent}{promise}")
    print_rich(f"  each count ±{found.margin_95} in 95 % of releases")
    for who, share in found.shares.items():
        print_rich(f"  {who}: {max(0, share.left)} of {share.answers} left")
    for note in found.notes:
        print_rich(f"  - {note}", "dim")
