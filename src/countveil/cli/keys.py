"""`countveil keys`: add, list and revoke the API keys of the service."""

from __future__ import annotations

from typing import Any

import click

from countveil.cli.output import CONFIG, JSON, Group, print_json


@click.group(cls=Group, short_help="Add, list and revoke API keys of the service.")
def keys() -> None:
    """API keys for `countveil serve`: each has a name, a role and, if you like, a limit of answers.

    \b
    Examples:
      countveil keys add alice --answers 10
      countveil keys add bob --answers fine=1 --answers standard=5
      countveil keys add office --role curator
      countveil keys list
      countveil keys revoke alice
    """


@keys.command()
@click.argument("name")
@click.option(
    "--answers",
    metavar="K",
    multiple=True,
    help="The most answers that the key may use of each budget (default: no limit); or GRADE=K, once for each grade.",
)
@click.option("--role", default="analyst", show_default=True, help="analyst: asks. curator: also sees who asked what.")
@CONFIG
@JSON
def add(name: str, answers: tuple[str, ...], role: str, config: str | None, as_json: bool) -> None:
    """Make a key for NAME. It is shown only now: the key file stores only its hash."""
    key, text = _load_keyring(config).add(name, role, _read_limits(answers))
    if as_json:
        print_json({"schema_version": 1, "name": key.name, "role": key.role, "answers": key.answers, "key": text})
        return
    click.echo(text)
    most = "no limit on answers" if key.answers is None else f"{_describe_limit(key.answers)} answers of each budget"
    click.echo(f"the key of {key.name} ({key.role}, {most}): give it to them now, it is not shown again", err=True)


@keys.command("list", short_help="List every key: its name, role and limit of answers.")
@CONFIG
@JSON
def list_keys(config: str | None, as_json: bool) -> None:
    """List every key: its name, its role and its limit of answers; never the key itself."""
    api_keys = _load_keyring(config).keys()
    if as_json:
        names = ("name", "role", "answers", "id", "created", "revoked")
        print_json({"schema_version": 1, "keys": [{name: getattr(key, name) for name in names} for key in api_keys]})
        return
    if not api_keys:
        click.echo("there is no key yet; add one with: countveil keys add NAME")
    for key in api_keys:
        most = "all" if key.answers is None else _describe_limit(key.answers)
        state = f"revoked {key.revoked[:10]}" if key.revoked else f"since {key.created[:10]}"
        click.echo(f"{key.name:20s} {key.role:8s} answers {most:>6s}   {state}")


@keys.command()
@click.argument("name")
@CONFIG
@JSON
def revoke(name: str, config: str | None, as_json: bool) -> None:
    """Revoke the key of NAME, at once and in running servers too. Its charges stay charged."""
    key = _load_keyring(config).revoke(name)
    if as_json:
        print_json({"schema_version": 1, "name": key.name, "revoked": key.revoked})
        return
    click.echo(f"the key of {key.name} is refused from now on")


def _read_limits(given: tuple[str, ...]) -> str | dict[str, str] | None:
    """Read the limits of a key from the options: one number, or a number for each named grade."""
    from countveil.errors import ParameterError

    if not given:
        return None
    named = dict(each.split("=", 1) for each in given if "=" in each)
    if len(named) == len(given):
        return named
    if named or len(given) > 1:
        raise ParameterError("answers", " ".join(given), "one number, or GRADE=K once for each grade")
    return given[0]


def _describe_limit(most: Any) -> str:
    return str(most) if isinstance(most, int) else ", ".join(f"{many} {grade}" for grade, many in most.items())


def _load_keyring(config: str | None) -> Any:
    from countveil.config.configuration import load
    from countveil.service.api_keys import Keyring

    return Keyring(load(config).service.keys)
