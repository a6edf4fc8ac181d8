"""The count columns of one table that are released: their noise, their names, and the guarantee of all together.

**Guarantee.** Every column has its own noise key, and row r is cell r - 1 of that key: no two counts of a release share
noise. A person may be counted in every column, so the stated guarantee of k columns is the certified composition of k
answers. If the caller states that each person is counted in only one of the columns, it is the guarantee of one column.
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
from countveil.mechanism.mechanism import LARGEST_COUNT, Mechanism
from countveil.sampling.count_arrays import as_counts
from countveil.sampling.randomness import NoiseKey

ADDED = ("margin_95", "certain_low", "certain_high")
Counts = NDArray[np.int64]


def compose_columns(mechanism: Mechanism, columns: int) -> tuple[Fraction, Fraction]:
    """The guarantee (epsilon, delta) of several columns released by one mechanism.

    It holds for a person who may be counted in all of them. Delta is the number of columns times the mechanism's delta;
    epsilon is the least certified for that delta, at most the number of columns times the mechanism's epsilon.
    **Guarantee.** Both are rounded up, and never larger than basic composition.
    """
    epsilon, delta = columns * mechanism.epsilon, min(Fraction(1), columns * mechanism.delta)
    if columns == 1 or not 0 < delta < 1:
        return epsilon, delta
    bounds = compose(mechanism, columns).epsilon(delta)
    return (epsilon if bounds is None else min(epsilon, Fraction(bounds.upper))), delta


@dataclass
class NoisyColumns:
    """The count columns of a running release, with their noise keys and the number of rows drawn so far."""

    mechanism: Mechanism
    names: tuple[str, ...]
    null_as_zero: bool
    rows: int = 0
    unchanged: tuple[str, ...] = ()
    keys: tuple[NoiseKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise ParameterError("column", f"{join_names(twice)} more than once", "each column once")
        if not self.names:
            raise ParameterError("column", "none", "one or more columns with counts")
        self.keys = tuple(NoiseKey() for _ in self.names)

    def draw(self, values: Sequence[NDArray[Any]]) -> list[tuple[Counts, Counts, Counts]]:
        """Check the next rows of every column and add noise.

        For each column: the released counts, and the least and the largest true count that can be behind each of them.
        """
        drawn = []
        for column, (given, key) in enumerate(zip(values, self.keys, strict=True)):
            counts = as_counts(given, self.largest, self.rows + 1, self._argument(column))
            y = self.mechanism.sampler.release(counts, key, first=self.rows)
            drawn.append((y, *self.mechanism.bounds(y)))
        self.rows += len(values[0])
        return drawn

    @property
    def largest(self) -> int:
        """The largest true count whose released count and certain range fit into 64 bits, whatever noise is drawn."""
        return LARGEST_COUNT - 2 * self.mechanism.certificate.worst_error

    @property
    def allowed_counts(self) -> str:
        return f"whole numbers from 0 to {self.largest}"

    def refusal(self, column: int, index: int, given: str, allowed: str, hint: str = "") -> ParameterError:
        """The error for an invalid count in row `index` of the next batch, rows counted from 0."""
        return ParameterError(f"{self._argument(column)} in row {self.rows + 1 + index}", given, allowed, hint)

    def _argument(self, column: int) -> str:
        return "count" if len(self.names) == 1 else f"count of {plain(self.names[column], 40)}"

    @property
    def added_names(self) -> list[str]:
        """The names of the columns that a release adds: three for each count column.

        If there are several count columns, the name of the count column comes first.
        """
        if len(self.names) == 1:
            return list(ADDED)
        return [f"{name}_{added}" for name in self.names for added in ADDED]

    def find(self, names: Sequence[str]) -> list[int]:
        """The positions of the count columns among the columns `names` of the table.

        Raises ParameterError if a name is repeated or missing, or if the table already has a column that the release
        adds.
        """
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ParameterError("table", f"more than one column {join_names(twice)}", "columns with distinct names")
        for name in self.names:
            if name not in names:
                other = len(names) == 1 and any(mark in names[0] for mark in ";\t|")
                hint = " (a CSV table must be separated by commas)" if other else ""
                raise ParameterError("column", plain(name), f"a column of the table: {join_names(names)}{hint}")
        taken = [name for name in self.added_names if name in names]
        if taken:
            allowed = f"a table without {join_names(self.added_names)}, which the release adds"
            raise ParameterError("table", f"a table with the column {join_names(taken)}", allowed)
        self.unchanged = tuple(name for name in names if name not in self.names)
        return [names.index(name) for name in self.names]


def join_names(names: Sequence[str], limit: int = 20) -> str:
    """The names of columns on one line; beyond `limit` names only their number."""
    shown = ", ".join(plain(name, 40) or "''" for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def plain(text: str, limit: int = 100) -> str:
    """Text of a file on one line: unprintable characters become ?, and text beyond `limit` is cut."""
    line = "".join(character if character.isprintable() else "?" for character in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"
