"""`countveil keys`: who may ask the service."""

from __future__ import annotations

from typing import Any

import click

from countveil.cli.output import CONFIG, JSON, Group, print_json


@click.group(cls=Group)
def keys() -> None:
    """Keys for `countveil serve`: each has a name, a role and, if you like, a number of answers.

    \b
    Examples:
      countveil keys add alice --answers 10
      countveil keys add office --role curator
      countveil keys list
      countveil keys revoke alice
    """


@keys.command()
@click.argument("name")
@click.option("--answers", metavar="K", help="At most so many answers of each budget (default: all there are).")
@click.option("--role", default="analyst", show_default=True, help="analyst: asks. curator: also sees who asked what.")
@CONFIG
@JSON
def add(name: str, answers: str | None, role: str, config: str | None, as_json: bool) -> None:
    """Make a key for NAME. It is shown now and never again: the file keeps only its hash."""
    key, text = _ring(config).add(name, role, answers)
    if as_json:
        print_json({"schema_version": 1, "name": key.name, "role": key.role, "answers": key.answers, "key": text})
        return
    click.echo(text)
    most = "all answers there are" if key.answers is None else f"{key.answers} answers of each budget"
    click.echo(f"the key of {key.name} ({key.role}, {most}): hand it over, it is not shown again", err=True)


@keys.command("list")
@CONFIG
@JSON
def list_keys(config: str | None, as_json: bool) -> None:
    """Every key: its holder, role and answers; never the key itself."""
    found = _ring(config).keys()
    if as_json:
        names = ("name", "role", "answers", "id", "created", "revoked")
        print_json({"schema_version": 1, "keys": [{name: getattr(key, name) for name in names} for key in found]})
        return
    if not found:
        click.echo("nobody has a key; give one with: countveil keys add NAME")
    for key in found:
        most = "all" if key.answers is None else str(key.answers)
        state = f"revoked {key.revoked[:10]}" if key.revoked else f"since {key.created[:10]}"
        click.echo(f"{key.name:20s} {key.role:8s} answers {most:>6s}   {state}")


@keys.command()
@click.argument("name")
@CONFIG
@JSON
def revoke(name: str, config: str | None, as_json: bool) -> None:
    """Refuse the key of NAME from now on, in servers that are running too. What was charged stays charged."""
    key = _ring(config).revoke(name)
    if as_json:
        print_json({"schema_version": 1, "name": key.name, "revoked": key.revoked})
        return
    click.echo(f"the key of {key.name} is refused from now on")


def _ring(config: str | None) -> Any:
    from countveil.config import load
    from countveil.keys import Keyring

    return Keyring(load(config).service.keys)
