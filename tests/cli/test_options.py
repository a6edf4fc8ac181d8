"""Every command: an option that takes one value and is given twice is refused in one line that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import pytest

from countveil import cli


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The command line as a tree: every group and command with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


def options(multiple: bool) -> list[tuple[tuple[str, ...], click.Option]]:
    found = []
    for path, command in commands(cli.cli):
        parameters = command.get_params(click.Context(command))
        found += [(path, p) for p in parameters if isinstance(p, click.Option) and p.multiple is multiple]
    return found


def named(given: tuple[tuple[str, ...], click.Option]) -> str:
    path, option = given
    return " ".join((*path, option.opts[0]))


def words(option: click.Option, name: str) -> list[str]:
    """An option as it is typed; the value does not matter."""
    return [name] if option.is_flag or option.nargs == 0 else [name, "1"]


def refusal(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says when it refuses."""
    monkeypatch.setattr(sys, "argv", ["countveil", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    text = capsys.readouterr()
    assert stopped.value.code == 2
    assert text.out == ""
    assert text.err.count("\n") == 1
    return text.err


def test_the_walk_finds_every_command() -> None:
    paths = [path for path, _ in commands(cli.cli)]
    assert {(), ("release",), ("ledger", "restore"), ("ptable", "audit"), ("keys", "add")} <= set(paths)
    assert len(options(multiple=False)) > 100


@pytest.mark.parametrize("given", options(multiple=False), ids=named)
def test_options_given_twice_are_refused(
    given: tuple[tuple[str, ...], click.Option], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, option = given
    for name in (*option.opts, *option.secondary_opts):  # -o and --output are one option, --x and --no-x too
        said = refusal([*path, *words(option, option.opts[0]), *words(option, name)], monkeypatch, capsys)
        assert name in said
        assert "is given 2 times; give it once" in said


@pytest.mark.parametrize("given", options(multiple=True), ids=named)
def test_options_that_may_repeat(
    given: tuple[tuple[str, ...], click.Option], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, option = given
    twice = [*words(option, option.opts[0]), *words(option, option.opts[-1])]
    said = refusal([*path, *twice, "--no-such-option"], monkeypatch, capsys)
    assert "No such option" in said


def test_completion_in_a_shell_refuses_nothing() -> None:
    command = cli.cli.commands["design"]
    command.make_context("design", ["--epsilon", "1", "--epsilon", "2"], resilient_parsing=True)
    with pytest.raises(click.UsageError, match="--epsilon is given 2 times"):
        command.make_context("design", ["--epsilon", "1", "--epsilon", "2"])
