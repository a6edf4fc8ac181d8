"""`countveil budget`: show what is left of a budget, or add to it."""

from __future__ import annotations

from dataclasses import asdict
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
    open_curator_or_service,
    print_json,
    print_rich,
    show_spinner,
)

if TYPE_CHECKING:
    from countveil.curator.receipts import GradeBudget, PoolBudget


@click.command(cls=Command, short_help="Show what is left of a budget, or add to it.")
@click.argument("name", required=False)
@CONFIG
@URL
@click.option("--extend", "more", metavar="N", help="Add N answers of the pool's mechanism; the ledger records it.")
@click.option("--open", "old_more", hidden=True)
@click.option("--replan", is_flag=True, help="Make a new plan from the current configuration; the ledger records it.")
@click.option("--grade", metavar="NAME", help="With --extend: the grade, needed if the budget has several.")
@click.option("--reason", metavar="TEXT", help="With --extend or --replan: the reason, which the ledger records.")
@NEW_LEDGER
@JSON
def budget(
    name: str | None,
    more: str | None,
    old_more: str | None,
    replan: bool,
    grade: str | None,
    reason: str | None,
    new_ledger: bool,
    as_json: bool,
    **where: str | None,
) -> None:
    """Show what is left of the budget of NAME (a dataset or a pool), or of every budget.

    \b
    Examples:
      countveil budget
      countveil budget people --json
      countveil budget people --extend 10 --reason "second edition of the yearbook"
      countveil budget people --extend 2 --grade fine --reason "two more headline figures"
      countveil budget people --replan --reason "people now have up to three visits"
      countveil budget --url https://counts.example.org
    """
    from countveil.errors import RequestError

    if old_more is not None:
        click.echo("--open is deprecated; use --extend", err=True)
    changed = (more is not None) + (old_more is not None) + replan
    more = more if old_more is None else old_more
    if changed > 1 or changed != (reason is not None) or (changed and name is None):
        raise RequestError('to change a budget, give the pool, one of --extend N and --replan, and --reason "why"')
    if grade is not None and more is None:
        raise RequestError("--grade is only for --extend; leave it out, and every grade is shown")
    if where["url"] is not None and (where["config"] is not None or changed or new_ledger):
        raise RequestError(
            "with --url the budget is on the service: leave out --config, --extend, --replan and --new-ledger"
        )
    words = "planning" if replan else "reading the ledger"
    with show_spinner(words), open_curator_or_service(**where, new_ledger=new_ledger) as source:
        budgets = source.budget(name) if not changed else [_change(source, str(name), more, grade, str(reason))]
    if replan:
        click.echo("restart every service that runs with this configuration", err=True)
    if as_json:
        pools = [_to_dict(each) for each in budgets]
        print_json({"schema_version": 1, **(pools[0] if len(pools) == 1 else {}), "pools": pools})
        return
    for each in budgets:
        _print(each, yours=where["url"] is not None)


def _change(curator: Any, pool: str, more: str | None, grade: str | None, reason: str) -> PoolBudget:
    """Add answers to a grade of a pool, or make a new plan for it."""
    if more is None:
        replanned: PoolBudget = curator.replan_budget(pool, reason)
        return replanned
    extended: PoolBudget = curator.extend_budget(pool, more, reason, grade=grade)
    return extended


def _to_dict(pool: PoolBudget) -> dict[str, object]:
    shares = {who: share.describe() for who, share in pool.shares.items()}
    grades = [asdict(each) for each in pool.grades]
    lists = {"datasets": list(pool.datasets), "notes": list(pool.notes), "grades": grades}
    return {**asdict(pool), "shares": shares, **lists}


def _print(pool: PoolBudget, *, yours: bool) -> None:
    """Print what is left of one pool. With `yours`, the numbers are those of one key's owner, who may not see others'
    charges."""
    from rich.text import Text

    of = "" if pool.datasets == (pool.pool,) else f" ({', '.join(pool.datasets)})"
    whose = " for this key" if yours else ""
    width = 30
    filled = width - (width * pool.answers_left) // max(1, pool.answers_total)
    print_rich(f"{pool.pool}{of}", style="bold")
    bar = Text("#" * filled, style="red").append("." * (width - filled), style="green")
    print_rich(Text("  ").append(bar).append(f"  {pool.answers_left} of {pool.answers_total} answers left{whose}"))
    promise = f"epsilon {pool.epsilon}, delta {clip(pool.delta, 3, 'up')} for all of them together"
    promise += describe_loss(pool.answers_lost)
    spent = "" if yours else f"{pool.answers_total - pool.answers_left} spent; "
    print_rich(f"  {spent}{promise}")
    if len(pool.grades) > 1:
        for grade in pool.grades:
            print_rich(f"  {_describe_grade(grade, pool)}")
    else:
        print_rich(f"  each count ±{pool.margin_95} in 95 % of releases")
    for who, share in pool.shares.items():
        named = share.grades if len(pool.grades) > 1 else {}
        parts = [f"{max(0, each.left)} of {each.answers} {name}" for name, each in named.items()]
        print_rich(f"  {who}: {', '.join(parts) or f'{max(0, share.left)} of {share.answers}'} left")
    for note in pool.notes:
        print_rich(f"  - {note}", "dim")


def _describe_grade(grade: GradeBudget, pool: PoolBudget) -> str:
    """Describe one of several grades in one line."""
    default = ", unless another grade is named" if grade.name == pool.default_grade else ""
    left = f"{grade.answers_left} of {grade.answers_total} left"
    return f"{grade.name}: each count ±{grade.margin_95} in 95 % of releases, {left}{default}"
