"""`countveil ledger`: check, read, copy and bring back what was charged and answered."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from countveil.cli.commands import Group
from countveil.cli.output import busy, print_json

_CONFIG = click.option("-c", "--config", metavar="FILE", help="The configuration (default: countveil.toml).")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(cls=Group)
def ledger() -> None:
    """The record of every charge and answer: append-only, hash-chained, anchored outside its file.

    \b
    Examples:
      countveil ledger verify
      countveil ledger log
      countveil ledger backup ledger-2026-11-16.backup
      countveil ledger restore ledger-2026-11-16.backup
    """


@ledger.command()
@_CONFIG
@_JSON
def verify(config: str | None, as_json: bool) -> None:
    """Walk the whole chain again; check every table against it, and its end against the anchor."""
    from countveil.config import load
    from countveil.ledger.opening import open_ledger

    loaded = load(config)
    with busy("verifying"), closing(open_ledger(loaded.ledger, loaded.anchor, loaded.server, create=False)) as opened:
        entries = opened.verify()
    if as_json:
        print_json({"schema_version": 1, "holds": True, "entries": entries})
        return
    click.echo(f"{entries} entries; the chain holds, the tables follow from it, the anchor agrees")


@ledger.command()
@_CONFIG
@_JSON
def log(config: str | None, as_json: bool) -> None:
    """Every entry, oldest first: plans, charges, answers, what was opened and restored. Never a count."""
    from countveil.config import load
    from countveil.ledger.opening import open_ledger

    loaded = load(config)
    with closing(open_ledger(loaded.ledger, loaded.anchor, loaded.server, create=False)) as opened:
        entries = list(opened.entries())
    if as_json:
        listed = [{"seq": e.seq, "time": e.time, "kind": e.kind, "hash": e.hash, **e.body} for e in entries]
        print_json({"schema_version": 1, "entries": listed})
        return
    for entry in entries:
        click.echo(f"{entry.seq:6d}  {entry.time[:19]}  {entry.kind:8s} {_words(entry.kind, dict(entry.body))}")


def _words(kind: str, body: dict[str, object]) -> str:
    """What an entry says, in a line."""
    shown = {
        "open": "ledger {ledger}",
        "plan": "{pool}: {answers} answers, epsilon {epsilon}, delta {delta} together",
        "extend": "{pool}: {answers} more answers, epsilon {epsilon} together: {reason}",
        "share": "{pool}: {answers} answers for {analyst}",
        "version": "{dataset} is at version {number}",
        "dataset": "{dataset} is paid for by {pool}; a person is a {unit}",
        "charge": "{analyst}: {text}",
        "request": "of {analyst}: gets charge {charge}",
        "answer": "of charge {charge}",
        "restore": "a copy took the ledger's place; {lost} entries lost and charged to every pool",
    }[kind]
    words = shown.format(**body)
    return "".join(character if character.isprintable() else "\ufffd" for character in words)


@ledger.command()
@click.argument("file")
@_CONFIG
@_JSON
def backup(file: str, config: str | None, as_json: bool) -> None:
    """Copy the ledger of this moment to FILE, while others go on asking. Keep it on another machine."""
    from countveil.config import load
    from countveil.ledger.opening import open_ledger

    loaded = load(config)
    with closing(open_ledger(loaded.ledger, loaded.anchor, loaded.server, create=False)) as opened:
        entries = opened.backup(Path(file))
    if as_json:
        print_json({"schema_version": 1, "file": file, "entries": entries})
        return
    click.echo(f"{entries} entries in {file}")


@ledger.command()
@click.argument("file", required=False)
@click.option("--accept-loss", is_flag=True, help="There is no later copy: charge every pool for what may be missing.")
@click.option("--latest", is_flag=True, help="The anchor is lost, and nothing else: this copy is the latest.")
@_CONFIG
@_JSON
def restore(file: str | None, accept_loss: bool, latest: bool, config: str | None, as_json: bool) -> None:
    """Bring the ledger back from the backup FILE (without FILE: settle the ledger that is there with its anchor).

    A backup that ends before the anchor has lost history: whatever was charged since is charged again, to every pool.
    """
    from countveil.config import load
    from countveil.ledger.opening import settle_ledger
    from countveil.ledger.settling import EVERYTHING

    loaded = load(config)
    copy = Path(file) if file else None
    lost = settle_ledger(copy, loaded.ledger, loaded.anchor, loaded.server, accept_loss=accept_loss, latest=latest)
    if as_json:
        print_json({"schema_version": 1, "lost": lost if lost < EVERYTHING else None})
        return
    if lost >= EVERYTHING:
        click.echo("nobody knows what was lost; every pool counts as spent")
    elif lost:
        click.echo(f"{lost} entries were lost; every pool is charged for as many answers")
    else:
        click.echo("nothing was lost")
