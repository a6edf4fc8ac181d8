"""`countveil ledger`: verify, read, back up and restore the ledger."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import CONFIG, JSON, Group, print_json, show_spinner
from countveil.ledger.records import STANDARD, Entry, charge_id

if TYPE_CHECKING:
    from countveil.config.configuration import Config
    from countveil.ledger import Ledger

_PRINTED_FIELDS = {
    "open": ("instead_of",),
    "secret": (),
    "plan": (
        *("pool", "epsilon", "delta", "answers", "neighbours", "cells", "sensitivity", "policy", "objective"),
        *("mechanism", "document", "grades", "reason", "total", "charges", "after"),
    ),
    "extend": ("pool", "grade", "answers", "epsilon", "reason"),
    "share": ("pool", "analyst", "grade", "answers"),
    "version": ("dataset", "number"),
    "dataset": ("dataset", "pool", "unit"),
    "charge": ("id", "pool", "dataset", "version", "question", "text", "analyst", "grade"),
    "request": ("analyst", "key", "body", "charge"),
    "answer": ("charge", "sha256"),
    "restore": ("lost", "plan_lost"),
}
"""For each kind of entry, the fields that may be printed.

A fingerprint, a hash of an entry, a nonce and the ledger's identity are never printed: with them, someone who knows all
rows but those of one person could test guesses about that person.
"""


@click.group(cls=Group, short_help="Verify, read, back up and restore the ledger.")
def ledger() -> None:
    """The record of every charge and answer: append-only, hash-chained, anchored outside its file.

    \b
    Examples:
      countveil ledger verify
      countveil ledger log
      countveil ledger backup ledger-2026-11-16.backup
      countveil ledger restore ledger-2026-11-16.backup
    """


@ledger.command(short_help="Verify the hash chain, the tables and the anchor.")
@CONFIG
@JSON
def verify(config: str | None, as_json: bool) -> None:
    """Verify every entry of the hash chain, every table against the chain, and the end of the chain against the anchor.

    Warns if users other than the owner can read the files of the ledger, of the anchor or of the keys.
    """
    from countveil.files.durable_files import find_exposed

    with show_spinner("verifying"), _open_ledger(config) as (loaded, opened):
        entries = opened.verify()
    exposed = find_exposed([loaded.ledger, loaded.anchor, loaded.service.keys])
    warnings = [
        f"{file.name} has mode {mode:04o}, so other users may read it; run: chmod 600 {shlex.quote(str(file))}"
        for file, mode in exposed.items()
    ]
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json({"schema_version": 1, "holds": True, "entries": entries, "warnings": warnings})
        return
    click.echo(f"{entries} entries; the hash chain is intact, the tables and the anchor agree with it")


@ledger.command(short_help="Print every entry, oldest first.")
@CONFIG
@JSON
def log(config: str | None, as_json: bool) -> None:
    """Print every entry, oldest first: plans, added answers, charges, answers, restores. Never a count or a hash of
    the data."""
    with _open_ledger(config) as (_, opened):
        entries = list(opened.entries())
    if as_json:
        print_json({"schema_version": 1, "entries": [_select_fields(entry) for entry in entries]})
        return
    for entry in entries:
        click.echo(f"{entry.seq:6d}  {entry.time[:19]}  {entry.kind:8s} {_describe(_select_fields(entry))}")


@contextmanager
def _open_ledger(config: str | Config | None) -> Iterator[tuple[Config, Ledger]]:
    """Load a configuration and open its ledger, which is closed at the end of the block."""
    from countveil.config.configuration import Config, load

    loaded = config if isinstance(config, Config) else load(config)
    with closing(loaded.open_ledger(create=False)) as opened:
        yield loaded, opened


def _select_fields(entry: Entry) -> dict[str, Any]:
    """The fields of an entry that may be printed."""
    body = {**entry.body, "id": charge_id(entry)} if entry.kind == "charge" else entry.body
    shown = {name: body[name] for name in _PRINTED_FIELDS[entry.kind] if name in body}
    if "grades" in shown:  # the files of mechanisms are long, and the hash of each is beside it
        shown["grades"] = [{name: each[name] for name in each if name != "file"} for each in shown["grades"]]
        shown["answers"] = sum(each["answers"] for each in shown["grades"])
    return {"seq": entry.seq, "time": entry.time, "kind": entry.kind, **shown}


def _describe(entry: dict[str, Any]) -> str:
    """Describe an entry in one line."""
    several = [f"{each['answers']} {each['name']}" for each in entry.get("grades", ())]
    grades = f" ({', '.join(several)})" if len(several) > 1 else ""
    named = "" if entry.get("grade", STANDARD) == STANDARD else " of grade {grade}"
    shown = {
        "open": "the ledger is created",
        "secret": "the ledger has a secret: from here on its hashes are keyed and charges have random ids",
        "plan": "{pool}: {answers} answers" + grades + ", epsilon {epsilon}, delta {delta} together",
        "extend": "{pool}: {answers} more answers" + named + ", epsilon {epsilon} together: {reason}",
        "share": "{pool}: {answers} answers" + named + " for {analyst}",
        "version": "{dataset} is at version {number}",
        "dataset": "{dataset} is paid for by {pool}; a person is a {unit}",
        "charge": "{analyst}" + (", grade {grade}" if named else "") + ": {text}",
        "request": "an idempotency key of {analyst} belongs to charge {charge}",
        "answer": "to charge {charge}",
        "restore": "the ledger was restored from a copy; {lost} entries lost and charged to every grade",
    }[entry["kind"]]
    if "instead_of" in entry:
        shown = "the ledger is created with --new-ledger in place of: " + (
            ", ".join(entry["instead_of"]) or "none known"
        )
        shown = shown.replace("{", "{{").replace("}", "}}")
    if "total" in entry:
        shown = (
            "{pool}: a new plan after {charges} charged answers: {answers} more answers"
            + grades
            + ", with the earlier "
            "ones epsilon {total}, delta {delta} together: {reason}"
        )
    if entry.get("plan_lost"):
        shown += "; a plan may be among the lost entries"
    words = shown.format(**entry)
    return "".join(character if character.isprintable() else "\ufffd" for character in words)


@ledger.command()
@click.argument("file")
@CONFIG
@JSON
def backup(file: str, config: str | None, as_json: bool) -> None:
    """Copy the current ledger to FILE, even while the service runs. Keep the copy on another machine."""
    with _open_ledger(config) as (_, opened):
        entries = opened.backup(Path(file))
    if as_json:
        print_json({"schema_version": 1, "file": file, "entries": entries})
        return
    click.echo(f"{entries} entries in {file}")


@ledger.command(short_help="Restore the ledger from a backup.")
@click.argument("file", required=False)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="There is no later copy: charge every grade for the entries that may be missing.",
)
@click.option("--latest", is_flag=True, help="Only the anchor is lost: this copy is the latest.")
@CONFIG
@JSON
def restore(file: str | None, accept_loss: bool, latest: bool, config: str | None, as_json: bool) -> None:
    """Restore the ledger from the backup FILE (without FILE: settle the current ledger against its anchor).

    A backup that ends before the anchor has lost history: every grade is charged for all entries that may be missing.
    """
    from countveil.config.configuration import load
    from countveil.ledger.loss import EVERYTHING

    loaded = load(config)
    lost = loaded.restore_ledger(Path(file) if file else None, accept_loss=accept_loss, latest=latest)
    with _open_ledger(loaded) as (_, opened):
        plan_lost = opened.plan_lost()
    if as_json:
        print_json({"schema_version": 1, "lost": lost if lost < EVERYTHING else None, "plan_lost": plan_lost})
        return
    if lost >= EVERYTHING:
        click.echo("the number of lost entries is unknown; every pool counts as spent")
    elif lost:
        entries = "1 entry was lost" if lost == 1 else f"{lost} entries were lost"
        click.echo(f"{entries}; every grade of every pool is charged for as many answers")
    else:
        click.echo("nothing was lost")
    if plan_lost:
        click.echo("a plan may have been lost with its mechanism: from now on the epsilon of every pool is unknown")
