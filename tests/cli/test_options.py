"""Every command refuses an option with one value that is given twice, in one line with the option's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import pytest

from countveil import cli


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every group and command, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


def options(multiple: bool) -> list[tuple[tuple[str, ...], click.Option]]:
    pairs = []
    for path, command in commands(cli.cli):
        parameters = command.get_params(click.Context(command))
        pairs += [(path, p) for p in parameters if isinstance(p, click.Option) and p.multiple is multiple]
    return pairs


def option_name(case: tuple[tuple[str, ...], click.Option]) -> str:
    path, option = case
    return " ".join((*path, option.opts[0]))


def words(option: click.Option, name: str) -> list[str]:
    """An option as typed on the command line; the value does not matter."""
    return [name] if option.is_flag or option.nargs == 0 else [name, "1"]


def refusal(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The message with which the command line refuses these arguments."""
    monkeypatch.setattr(sys, "argv", ["countveil", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    text = capsys.readouterr()
    assert stopped.value.code == 2
    assert text.out == ""
    assert text.err.count("\n") == 1
    return text.err


def test_the_parametrised_tests_run_for_every_command() -> None:
    paths = [path for path, _ in commands(cli.cli)]
    assert {(), ("release",), ("ledger", "restore"), ("ptable", "audit"), ("keys", "add")} <= set(paths)
    assert len(options(multiple=False)) > 100


@pytest.mark.parametrize("case", options(multiple=False), ids=option_name)
def test_an_option_with_one_value_is_refused_if_given_twice(
    case: tuple[tuple[str, ...], click.Option], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, option = case
    for name in (*option.opts, *option.secondary_opts):  # -o and --output are one option, --x and --no-x too
        message = refusal([*path, *words(option, option.opts[0]), *words(option, name)], monkeypatch, capsys)
        assert name in message
        assert "is given 2 times; give it once" in message


@pytest.mark.parametrize("case", options(multiple=True), ids=option_name)
def test_an_option_with_many_values_may_be_repeated(
    case: tuple[tuple[str, ...], click.Option], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, option = case
    twice = [*words(option, option.opts[0]), *words(option, option.opts[-1])]
    message = refusal([*path, *twice, "--no-such-option"], monkeypatch, capsys)
    assert "No such option" in message


def test_shell_completion_accepts_a_repeated_option() -> None:
    command = cli.cli.commands["design"]
    command.make_context("design", ["--epsilon", "1", "--epsilon", "2"], resilient_parsing=True)
    with pytest.raises(click.UsageError, match="--epsilon is given 2 times"):
        command.make_context("design", ["--epsilon", "1", "--epsilon", "2"])


@pytest.mark.parametrize("name", ["", "keys", "ledger", "ptable", "design", "compare"])
def test_a_command_that_needs_more_words_shows_its_help_as_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["countveil", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        text = capsys.readouterr()
        assert not (text.out and text.err)
        return stopped.value.code, text.out + text.err

    code, shown = run(*name.split())
    assert (code, shown) == (2, run(*name.split(), "--help")[1])
    assert shown.startswith("Usage: ")
    assert shown.count("\n") > 10


@pytest.mark.parametrize("name", ["", "keys", "ledger", "ptable"])
def test_no_short_text_of_a_command_is_cut_on_a_screen_of_80_columns(name: str) -> None:
    group = {" ".join(path): command for path, command in commands(cli.cli)}[name]
    assert isinstance(group, click.Group)
    text = group.get_help(click.Context(group, info_name="countveil", terminal_width=80))
    listed = text.partition("Commands:\n")[2].splitlines()
    assert len(listed) == len(group.commands)  # one line each
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
