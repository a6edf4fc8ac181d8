"""`countveil init --confirm`: ask the curator about each guess of a configuration, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

T = TypeVar("T")
REPLIES = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "q": "quit", "quit": "quit"}
TRIES = 3
"""The number of replies to one question after which the command ends, if none of them is allowed."""


def confirm_guesses(path: str) -> None:
    """Ask about each guess in the configuration at `path`; write the file each time a guess is confirmed."""
    from countveil.config.configuration import load
    from countveil.config.confirmation import confirm, list_guesses
    from countveil.errors import ConfigError
    from countveil.files.durable_files import open_output

    config = load(path)
    guesses = list_guesses(config)
    for i, guess in enumerate(guesses, start=1):
        name = "the bounds" if guess.column is None else guess.column
        click.echo(f"{i} of {len(guesses)}, {guess.dataset}, {_plain(name)}: {_plain(guess.summary)}")
        asked = "are these the values that are publicly known to be possible?"
        if guess.column is None:
            asked = "do these bounds rest on public or earlier knowledge?"
        answer = _ask(f"{asked} (yes, no or quit; no leaves it open)", _read_answer, "yes, no or quit, or y, n or q")
        if answer == "quit":
            break
        if answer == "no":
            continue
        labels = _ask_labels(guess.codes) if guess.codes else []
        fresh = load(path)
        if (fresh.text, fresh.dataset(guess.dataset)) != (config.text, config.dataset(guess.dataset)):
            raise ConfigError(
                guess.key, "the file changed after it was shown; nothing was written; run the command again"
            )
        text = confirm(config.text, guess, labels)
        with open_output(path) as file:
            file.write(text.encode())
        config = load(path)
    guesses = list_guesses(config)
    if guesses:
        names = ", ".join("the bounds" if each.column is None else _plain(each.column) for each in guesses)
        click.echo(f"still guessed in {path}, so nothing is answered: {names}")
    else:
        click.echo(f"nothing in {path} is guessed; next: countveil inspect")


def _read_answer(text: str) -> str | None:
    return REPLIES.get(text.lower())


def _ask_labels(codes: tuple[int, ...]) -> list[str]:
    """Ask for the texts that stand for codes; none if the curator gives none."""

    def read(text: str) -> list[str] | None:
        labels = [part.strip() for part in text.split(",")] if text else []
        is_allowed = len(set(labels)) == len(labels) in (0, len(codes)) and all(map(str.isprintable, labels))
        return labels if is_allowed else None

    shown = " and ".join(map(str, codes))
    allowed = f"{len(codes)} different texts, with a comma between, or Enter for none"
    return _ask(f"labels for {shown}, such as no, yes (Enter: none)", read, allowed)


def _ask(question: str, read: Callable[[str], T | None], allowed: str) -> T:
    """Ask until `read` understands the reply, at most `TRIES` times."""
    from countveil.errors import ParameterError

    for left in reversed(range(TRIES)):
        try:
            reply = input(f"  {question}: ").strip()
        except EOFError:
            click.echo()
            raise ParameterError("reply", "the end of the input", allowed, "what was confirmed is written") from None
        value = read(reply)
        if value is not None:
            return value
        if left:
            click.echo(f"  allowed is {allowed}")
    raise ParameterError("reply", reply, allowed, "this was the third reply; what was confirmed is written")


def _plain(text: str) -> str:
    return text if text.isprintable() else ascii(text)
