"""The count columns of one table that are released: their noise, their names, and the guarantee of all together.

**Guarantee.** Every column has a key of its own, and row r is cell r - 1 of it: no two counts of a release share
noise. A person may be counted in every column, so what is stated for k columns is the certified composition of k
answers; only where the caller says that each person is in one of them it is the guarantee of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.accounting import compose
from countveil.errors import ParameterError
from countveil.mechanism import LARGEST_COUNT, Mechanism
from countveil.releasing import as_counts
from countveil.sampling.entropy import Key

ADDED = ("margin_95", "certain_low", "certain_high")
Counts = NDArray[np.int64]


def compose_columns(mechanism: Mechanism, columns: int) -> tuple[Fraction, Fraction]:
    """(epsilon, delta) of k columns released by one mechanism, for a person who may be counted in all of them.

    Delta is k times the mechanism's, epsilon the least that is certified for it, k times the mechanism's at most.
    **Guarantee.** Both are rounded up; with basic composition as the limit they hold whatever the bounds are worth.
    """
    epsilon, delta = columns * mechanism.epsilon, min(Fraction(1), columns * mechanism.delta)
    if columns == 1 or not 0 < delta < 1:
        return epsilon, delta
    bounds = compose(mechanism, columns).epsilon(delta)
    return (epsilon if bounds is None else min(epsilon, Fraction(bounds.upper))), delta


@dataclass
class NoisyColumns:
    """The columns of one release in the making: their keys, and how many rows have been drawn."""

    mechanism: Mechanism
    names: tuple[str, ...]
    null_as_zero: bool
    rows: int = 0
    unchanged: tuple[str, ...] = ()
    keys: tuple[Key, ...] = field(init=False)

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise ParameterError("column", f"{listed(twice)} twice", "each column once")
        if not self.names:
            raise ParameterError("column", "none", "one or more columns with counts")
        self.keys = tuple(Key() for _ in self.names)

    def draw(self, values: Sequence[NDArray[Any]]) -> list[tuple[Counts, Counts, Counts]]:
        """The next rows of every column: checked, then y, and the certain range of n given y."""
        drawn = []
        for column, (given, key) in enumerate(zip(values, self.keys, strict=True)):
            counts = as_counts(given, self.largest, self.rows + 1, self._argument(column))
            y = self.mechanism.sampler.release(counts, key, first=self.rows)
            drawn.append((y, *self.mechanism.bounds(y)))
        self.rows += len(values[0])
        return drawn

    @property
    def largest(self) -> int:
        """The largest count whose certain range fits into 64 bits, whatever is drawn."""
        return LARGEST_COUNT - 2 * self.mechanism.certificate.worst_error

    @property
    def allowed(self) -> str:
        return f"whole numbers from 0 to {self.largest}"

    def refusal(self, column: int, index: int, given: str, allowed: str, hint: str = "") -> ParameterError:
        """What to raise for row `index` of the batch to be drawn next."""
        return ParameterError(f"{self._argument(column)} in row {self.rows + 1 + index}", given, allowed, hint)

    def _argument(self, column: int) -> str:
        return "count" if len(self.names) == 1 else f"count of {plain(self.names[column], 40)}"

    @property
    def added(self) -> list[str]:
        """The names of the added columns: three for each released one, with its name in front if there are several."""
        if len(self.names) == 1:
            return list(ADDED)
        return [f"{name}_{added}" for name in self.names for added in ADDED]

    def find(self, names: Sequence[str]) -> list[int]:
        """Where the count columns are in the table, whose columns must be distinct and leave room for ours."""
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ParameterError("table", f"more than one column {listed(twice)}", "columns with distinct names")
        for name in self.names:
            if name not in names:
                other = len(names) == 1 and any(mark in names[0] for mark in ";\t|")
                hint = " (a CSV table is separated by commas: write it so)" if other else ""
                raise ParameterError("column", plain(name), f"a column of the table: {listed(names)}{hint}")
        taken = [name for name in self.added if name in names]
        if taken:
            allowed = f"a table without {listed(self.added)}, which are added"
            raise ParameterError("table", f"a table with the column {listed(taken)}", allowed)
        self.unchanged = tuple(name for name in names if name not in self.names)
        return [names.index(name) for name in self.names]


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Names of columns on one line."""
    shown = ", ".join(plain(name, 40) or "''" for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def plain(text: str, limit: int = 100) -> str:
    """Text of a file on one line: control characters shown as ?, the rest cut."""
    line = "".join(character if character.isprintable() else "?" for character in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"
