"""`countveil publish`: publish tables that add up, or check a published folder."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from countveil.cli.output import (
    CONFIG,
    JSON,
    NEW_LEDGER,
    Command,
    clip,
    make_table,
    open_curator,
    print_json,
    print_rich,
    show_progress,
    show_spinner,
)
from countveil.config.publications import VERIFY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countveil.publication.outlook import PublicationOutlook
    from countveil.publication.publication import Publication


@click.command(cls=Command, short_help="Publish tables that add up, or check a published folder.")
@click.argument("name")
@click.argument("folder", required=False)
@CONFIG
@click.option("--dry-run", is_flag=True, help="Show tables, accuracy and cost; look at no data and pay nothing.")
@click.option("-o", "--output", metavar="FOLDER", help="A new folder (default: edition-N in the configured output).")
@click.option("--format", "style", type=click.Choice(["csv", "parquet"]), help="The format of the tables.")
@click.option("--epsilon", metavar="E", help="With --dry-run: what if the budget had this epsilon?")
@click.option("--table", metavar="TABLE", help="With --dry-run: the table of --margin, by its number or its name.")
@click.option("--margin", metavar="M", help="With --dry-run: what if this table had this 95 % margin?")
@NEW_LEDGER
@JSON
def publish(
    name: str,
    folder: str | None,
    config: str | None,
    dry_run: bool,
    output: str | None,
    style: str | None,
    epsilon: str | None,
    table: str | None,
    margin: str | None,
    new_ledger: bool,
    as_json: bool,
) -> None:
    """Publish the tables of [publication.NAME]: they add up, are never negative, and have intervals.

    One charge pays for all tables, under the guarantee of the dataset's budget. Publishing the same data again writes
    the same numbers and is free; publishing new data makes the next edition. "countveil publish verify
    FOLDER" checks the files of a published folder: hashes, laws, sums, bounds.

    \b
    Examples:
      countveil publish census --dry-run
      countveil publish census --dry-run --table 2 --margin 5
      countveil publish census -o out
      countveil publish verify out
    """
    from countveil.errors import RequestError

    if name == VERIFY:
        if config is not None or output is not None or style is not None or dry_run or new_ledger:
            raise RequestError("verify reads a folder and nothing else: countveil publish verify FOLDER")
        _refuse_what_if(epsilon, table, margin)
        _verify(folder, as_json)
        return
    if folder is not None:
        raise RequestError(f"{folder} is one word too many; the folder to write to is given with -o {folder}")
    if dry_run:
        if output is not None or style is not None:
            raise RequestError("a dry run writes nothing: leave out --output and --format")
        with show_spinner("planning"), open_curator(config, new_ledger=new_ledger) as curator:
            outlook = curator.plan_publication(name, epsilon=epsilon, table=table, margin=margin)
        _print_outlook(outlook, as_json)
        return
    _refuse_what_if(epsilon, table, margin)
    with open_curator(config, new_ledger=new_ledger) as curator, show_spinner("counting") as stop:

        def steps(numbers: Iterable[int]) -> Iterator[int]:
            stop()
            return show_progress(numbers, "margins")

        published = curator.publish(name, output=output, format=style, progress=steps)
    _print_published(published, as_json)


def _refuse_what_if(epsilon: str | None, table: str | None, margin: str | None) -> None:
    """Refuse --epsilon, --table and --margin outside of a dry run."""
    from countveil.errors import RequestError

    if (epsilon, table, margin) != (None, None, None):
        raise RequestError("--epsilon, --table and --margin only try out other values: give them with --dry-run")


def _verify(folder: str | None, as_json: bool) -> None:
    from countveil.errors import CertificateError, RequestError
    from countveil.publication.publication import Publication

    if folder is None:
        raise RequestError("give the folder to verify: countveil publish verify FOLDER")
    with show_spinner("verifying"):
        published = Publication.open(folder)
        findings = published.verify()
    sha256 = published.folder.sha256
    if as_json:
        problems = [{"file": each.file, "problem": each.problem} for each in findings]
        facts = {"folder": folder, "valid": not findings, "findings": problems, "manifest_sha256": sha256}
        print_json({"schema_version": 1, **facts})
    for each in findings:
        click.echo(str(each), err=True)
    if findings:
        raise CertificateError(
            f"{folder} is not as it was published; restore it from a copy, or publish again, which costs nothing"
        )
    if not as_json:
        tables = len(published.tables)
        click.echo(
            f"{published.name}, edition {published.manifest['edition']}: {tables} tables are what their measurements, "
            "laws and receipts give\n"
            f"SHA-256 of manifest.json: {sha256}; if the curator states the same, every file is the curator's"
        )


def _print_outlook(outlook: PublicationOutlook, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"schema_version": 1, **asdict(outlook)})
        return
    shown = make_table()
    for head in ("table", "cells", "costs", "measured ±", "published ±", "never more than"):
        if head == "table":
            shown.add_column(head, overflow="fold")
        else:
            shown.add_column(head, justify="right", no_wrap=True)
    for each in outlook.tables:
        measured = "no" if each.margin_measured is None else f"{each.margin_measured:,}"
        worst = "" if each.worst_error is None else f"±{each.worst_error:,}"
        cost = f"{each.answers} ({100 * each.share:.0f} %)" if each.answers else "nothing"
        shown.add_row(each.name, f"{each.cells:,}", cost, measured, f"{each.margin_published:,}", worst)
    print_rich(shown)
    left = f"{outlook.editions_left} edition{'' if outlook.editions_left == 1 else 's'} left"
    promise = f"epsilon {outlook.epsilon}, delta {clip(outlook.delta, 3, 'up')} for all answers of pool {outlook.pool}"
    click.echo(
        f"costs {outlook.cost} answer{'' if outlook.cost == 1 else 's'}, of grade {outlook.name}-N for table N as "
        f"declared (in brackets about their parts of the privacy cost); {left}; {promise}"
    )
    click.echo(f"takes about {outlook.seconds:,} s, and the time to count the data once; margins are of 95 %")
    for note in outlook.notes:
        click.echo(textwrap.fill(note, 80, initial_indent="- ", subsequent_indent="  "))


def _print_published(published: Publication, as_json: bool) -> None:
    manifest = published.manifest
    guarantee = published.guarantee
    if as_json:
        keys = ("name", "dataset", "edition", "receipts", "tables", "margins")
        facts = {"folder": str(published.path), "replayed": published.replayed, "guarantee": guarantee}
        print_json({"schema_version": 1, **facts, **{key: manifest[key] for key in keys}})
        return
    shown = make_table()
    for head in ("table", "cells", "published ±", "file"):
        shown.add_column(head, justify="right" if head in ("cells", "published ±") else "left")
    for each in manifest["tables"]:
        shown.add_row(each["name"], f"{each['rows']:,}", f"{each['margin_published']:,}", each["file"])
    for each in manifest["margins"]:
        shown.add_row(each["name"], f"{each['rows']:,}", "across the tree", each["file"])
    print_rich(shown)
    paid = "free: published before" if published.replayed else f"paid: {len(manifest['receipts'])} answers"
    promise = f"epsilon {guarantee['epsilon']}, delta {clip(guarantee['delta'], 3, 'up')}"
    click.echo(f"edition {manifest['edition']} is in {published.path}; {paid} ({promise} for all answers together)")
    click.echo(f"read {published.path}/report.html; check it: countveil publish verify {published.path}")
