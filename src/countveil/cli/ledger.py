"""`countveil ledger`: check, read, copy and bring back what was charged and answered."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import CONFIG, JSON, Group, busy, print_json
from countveil.ledger.records import Entry, charge_id

if TYPE_CHECKING:
    from countveil.config import Config
    from countveil.ledger import Ledger

_SHOWN = {
    "open": (),
    "secret": (),
    "plan": (
        *("pool", "epsilon", "delta", "answers", "neighbours", "cells", "sensitivity", "policy", "objective"),
        *("mechanism", "document", "reason", "total", "charges", "after"),
    ),
    "extend": ("pool", "answers", "epsilon", "reason"),
    "share": ("pool", "analyst", "answers"),
    "version": ("dataset", "number"),
    "dataset": ("dataset", "pool", "unit"),
    "charge": ("id", "pool", "dataset", "version", "question", "text", "analyst"),
    "request": ("analyst", "key", "body", "charge"),
    "answer": ("charge", "sha256"),
    "restore": ("lost", "plan_lost"),
}
"""What is printed of each kind of entry. Never a fingerprint, a hash of an entry, a nonce, or the ledger's identity:
with them, someone who knows everybody else's rows could test one person's."""


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
@CONFIG
@JSON
def verify(config: str | None, as_json: bool) -> None:
    """Walk the whole chain again; check every table against it, and its end against the anchor.

    Warns of files of the ledger, of its anchor and of the keys that others than their owner can read.
    """
    from countveil.durable_files import find_exposed

    with busy("verifying"), _open(config) as (loaded, opened):
        entries = opened.verify()
    exposed = find_exposed([loaded.ledger, loaded.anchor, loaded.service.keys])
    warnings = [
        f"{file.name} has mode {mode:04o}, so that others may read it; run: chmod 600 {shlex.quote(str(file))}"
        for file, mode in exposed.items()
    ]
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json({"schema_version": 1, "holds": True, "entries": entries, "warnings": warnings})
        return
    click.echo(f"{entries} entries; the chain holds, the tables follow from it, the anchor agrees")


@ledger.command()
@CONFIG
@JSON
def log(config: str | None, as_json: bool) -> None:
    """Every entry, oldest first: plans, charges, answers, what was opened and restored. Never a count, nor a hash of
    the data."""
    with _open(config) as (_, opened):
        entries = list(opened.entries())
    if as_json:
        print_json({"schema_version": 1, "entries": [_shown(entry) for entry in entries]})
        return
    for entry in entries:
        click.echo(f"{entry.seq:6d}  {entry.time[:19]}  {entry.kind:8s} {_words(_shown(entry))}")


@contextmanager
def _open(config: str | Config | None) -> Iterator[tuple[Config, Ledger]]:
    """A configuration, and its ledger for as long as it is needed."""
    from countveil.config import Config, load
    from countveil.ledger.opening import open_ledger

    loaded = config if isinstance(config, Config) else load(config)
    with closing(open_ledger(loaded.ledger, loaded.anchor, loaded.server, create=False)) as opened:
        yield loaded, opened


def _shown(entry: Entry) -> dict[str, Any]:
    """What may be printed of an entry."""
    body = {**entry.body, "id": charge_id(entry)} if entry.kind == "charge" else entry.body
    shown = {name: body[name] for name in _SHOWN[entry.kind] if name in body}
    return {"seq": entry.seq, "time": entry.time, "kind": entry.kind, **shown}


def _words(entry: dict[str, Any]) -> str:
    """What an entry says, in a line."""
    shown = {
        "open": "the ledger begins",
        "secret": "the ledger has a secret: from here on its hashes are keyed and charges have random ids",
        "plan": "{pool}: {answers} answers, epsilon {epsilon}, delta {delta} together",
        "extend": "{pool}: {answers} more answers, epsilon {epsilon} together: {reason}",
        "share": "{pool}: {answers} answers for {analyst}",
        "version": "{dataset} is at version {number}",
        "dataset": "{dataset} is paid for by {pool}; a person is a {unit}",
        "charge": "{analyst}: {text}",
        "request": "of {analyst}: gets charge {charge}",
        "answer": "of charge {charge}",
        "restore": "a copy took the ledger's place; {lost} entries lost and charged to every pool",
    }[entry["kind"]]
    if "total" in entry:
        shown = (
            "{pool}: a new plan after {charges} answers were paid for: {answers} answers, with all before them "
            "epsilon {total}, delta {delta} together: {reason}"
        )
    if entry.get("plan_lost"):
        shown += "; a plan may have been among them"
    words = shown.format(**entry)
    return "".join(character if character.isprintable() else "\ufffd" for character in words)


@ledger.command()
@click.argument("file")
@CONFIG
@JSON
def backup(file: str, config: str | None, as_json: bool) -> None:
    """Copy the ledger of this moment to FILE, while others go on asking. Keep it on another machine."""
    with _open(config) as (_, opened):
        entries = opened.backup(Path(file))
    if as_json:
        print_json({"schema_version": 1, "file": file, "entries": entries})
        return
    click.echo(f"{entries} entries in {file}")


@ledger.command()
@click.argument("file", required=False)
@click.option("--accept-loss", is_flag=True, help="There is no later copy: charge every pool for what may be missing.")
@click.option("--latest", is_flag=True, help="The anchor is lost, and nothing else: this copy is the latest.")
@CONFIG
@JSON
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
    with _open(loaded) as (_, opened):
        plan_lost = opened.plan_lost()
    if as_json:
        print_json({"schema_version": 1, "lost": lost if lost < EVERYTHING else None, "plan_lost": plan_lost})
        return
    if lost >= EVERYTHING:
        click.echo("nobody knows what was lost; every pool counts as spent")
    elif lost:
        entries = "1 entry was lost" if lost == 1 else f"{lost} entries were lost"
        click.echo(f"{entries}; every pool is charged for as many answers")
    else:
        click.echo("nothing was lost")
    if plan_lost:
        click.echo("a plan may have been lost with its mechanism: from now on the epsilon of every pool is unknown")
