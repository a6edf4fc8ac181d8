"""Lists what `countveil init` guessed from the data, and writes a configuration in which a guess is confirmed.

Guarantee: confirming a guess removes one mark from the file and changes nothing else, except for labels that are added.
The result is parsed and compared with the original, so comments and layout can be anything.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from countveil.config.configuration import Config, Dataset
from countveil.errors import ConfigError, shorten

SHOWN = 60
"""The most values of a domain that are shown."""
_DOMAIN = re.compile(r"""(,)?[ \t]*(["']?)guessed\2[ \t]*=[ \t]*true(?(1)|[ \t]*,?[ \t]*)""")
_BOUNDS = re.compile(
    r"""^[ \t]*(["']?)bounds_guessed\1[ \t]*=[ \t]*true[ \t]*(?:#.*)?(?:\n|\Z)(?:[ \t]{8,}#.*(?:\n|\Z))*""",
    re.MULTILINE,
)
"""Finds the line that marks contribution bounds as guessed, with the comment that explains it in the lines below."""


@dataclass(frozen=True)
class Guess:
    """A guess that is not confirmed: the domain of `column`, or the contribution bounds if `column` is None."""

    dataset: str
    column: str | None
    summary: str
    codes: tuple[int, ...] = ()
    """The values of a column that has only two codes and a place for their labels; empty for other columns."""

    @property
    def key(self) -> str:
        """The key of the guess in the configuration."""
        return f"dataset.{self.dataset}." + ("bounds_guessed" if self.column is None else f"columns.{self.column}")


def list_guesses(config: Config) -> list[Guess]:
    """All guesses that are not confirmed, in the order of the file."""
    return [guess for dataset in config.datasets.values() for guess in _guesses_of(dataset)]


def _guesses_of(dataset: Dataset) -> Iterator[Guess]:
    schema = dataset.schema
    if dataset.bounds_guessed:
        summary = f"rows_per_person = {schema.rows_per_person}, cells_per_person = {schema.cells_per_person}"
        yield Guess(dataset.name, None, summary)
    for column in schema.columns:
        if column.guessed and column.is_listed:
            shown = ", ".join(shorten(value) for value in column.values[:SHOWN])
            more = ", ..." if len(column.values) > SHOWN else ""
            codes = tuple(value for value in column.values if type(value) is int)
            is_coded = len(codes) == len(column.values) == 2 and not column.labels
            summary = f"{len(column.values):,} values: {shown}{more}"
            yield Guess(dataset.name, column.name, summary, codes if is_coded else ())
        elif column.guessed:
            summary = f"every {column.kind} from {column.value(column.low)} to {column.value(column.high)}"
            yield Guess(dataset.name, column.name, summary)


def confirm(text: str, guess: Guess, labels: Sequence[str] = ()) -> str:
    """The text of a configuration, without the mark of a guess and, if given, with labels for its codes."""
    wanted: dict[str, Any] = copy.deepcopy(tomllib.loads(text))
    entry = wanted["dataset"][guess.dataset]
    if guess.column is None:
        del entry["bounds_guessed"]
    else:
        entry = entry["columns"][guess.column]
        del entry["guessed"]
        if labels:
            entry["labels"] = list(labels)
    written = f"labels = {json.dumps(list(labels), ensure_ascii=False)}" if labels else ""
    substitutes = (f", {written}", f"{written}, ", written) if written else ("",)
    marks = (_BOUNDS if guess.column is None else _DOMAIN).finditer(text)
    for mark, substitute in itertools.product(marks, substitutes):
        changed = text[: mark.start()] + substitute + text[mark.end() :]
        try:
            if tomllib.loads(changed) == wanted:
                return changed
        except ValueError:  # of TOML: not this mark
            continue
    key = "bounds_guessed" if guess.column is None else "guessed"
    raise ConfigError(guess.key, f"this command cannot remove the mark `{key} = true`; delete it in the file by hand")
