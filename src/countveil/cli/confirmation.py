"""`countveil init --confirm`: ask the curator about each guess of a configuration, one by one."""

from __future__ import annotations

import click


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
        answer = click.prompt(f"  {asked} (no: leave it open)", type=click.Choice(["yes", "no", "quit"]))
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


def _ask_labels(codes: tuple[int, ...]) -> list[str]:
    """Ask for the texts that stand for codes; none if the curator gives none."""
    shown = " and ".join(map(str, codes))
    while True:
        text = click.prompt(f"  labels for {shown}, such as no, yes (Enter: none)", default="", show_default=False)
        labels = [part.strip() for part in text.split(",")]
        if not text.strip() or (len(set(labels)) == len(codes) == len(labels) and all(map(str.isprintable, labels))):
            return labels if text.strip() else []
        click.echo(f"  give {len(codes)} different texts, with a comma between")


def _plain(text: str) -> str:
    return text if text.isprintable() else ascii(text)
