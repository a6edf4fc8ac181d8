"""The part of a statement that bounds people: at most so many cells of each, with at most so many rows in each.

**Guarantee.** The rows that are kept of a person depend on that person's rows and the salt alone. Removing a person
removes exactly the rows that were kept of that person: at most `cells_per_person` cells change, each by at most
`rows_per_person`, and no other person's rows change. This holds for every salt, known or not, and every hash, also for
a constant: the hash only decides how evenly the cells are chosen. Three rules make it true:

- people are told apart by their value and never by its hash, because two people with one hash would move each other;
- a person's cells are ordered by (hash, number of the cell), so equal hashes leave nothing to the order in which rows
  arrive, and a task that runs twice keeps the same cells;
- no expression can overflow or fail for any value.

**The choice.** A *word* is a 64-bit integer for a cell of a person: the high bits of the hash of person, cell and salt,
then the number of the cell, then its rows less one. The least words of a person are its cells with the least hashes,
and a word says which cell it is, so one aggregate chooses, or a window in an engine that has no fast one. In a table of
2,000,000 cells a word has 42 bits of the hash; cells for which these bits are equal are ordered by their numbers.

Where a person may be in every cell there is no choice. Rows are never chosen: the least of their number and the bound
is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from countveil.errors import EngineError

SALT_BITS = 63
"""The bits of a salt: a 64-bit integer of every engine that is not negative."""


def number_of(salt: bytes) -> int:
    """The salt of one evaluation as an integer."""
    return int.from_bytes(hashlib.sha256(salt).digest()[:8], "big") >> (64 - SALT_BITS)


@dataclass(frozen=True)
class ContributionBounds:
    """The bounds of a question of so many cells, as SQL on the relation `placed` of a person u and a cell in each row.

    Every method returns further relations of the statement by name, and its result (cell, n).
    """

    cells: int
    cells_per_person: int
    rows: int
    whole: Callable[[str, str], str]
    """The quotient of two non-negative integers, rounded down."""

    def __post_init__(self) -> None:
        if self._bits >= SALT_BITS:
            raise EngineError(f"{self.cells} cells with {self.rows} rows of a person in each are too many to count")

    @property
    def keep_all(self) -> bool:
        """Whether a person may be in every cell, so that there is nothing to choose."""
        return self.cells_per_person >= self.cells

    def select_all(self) -> tuple[dict[str, str], str]:
        """Count every cell of every person."""
        if self.rows == 1:
            return {"pairs": "SELECT DISTINCT u, cell FROM placed"}, "SELECT cell, count(*) AS n FROM pairs GROUP BY 1"
        pairs = f"SELECT cell, least(count(*), {self.rows}) AS n FROM placed GROUP BY u, cell"
        return {"pairs": pairs}, "SELECT cell, CAST(sum(n) AS BIGINT) AS n FROM pairs GROUP BY 1"

    def select_some(self, hashed: str, least: str | None, *, ignores_repeats: bool) -> tuple[dict[str, str], str]:
        """Count at most `cells_per_person` cells of each person.

        `hashed` is the hash of u, cell and salt. `least` unnests the least w of a group, which it holds in memory;
        without it, a window over all rows finds them, which takes longer. Both may ignore repeats of a w.
        """
        words = f"SELECT u, {self._word(hashed)} AS w FROM placed"
        kept = f"SELECT {least} AS w FROM words GROUP BY u"
        if self.cells_per_person == 1:
            kept = "SELECT min(w) AS w FROM words GROUP BY u"
        elif least is None:
            ranked = "SELECT u, w, dense_rank() OVER (PARTITION BY u ORDER BY w) AS place FROM words"
            kept = f"SELECT w FROM ({ranked}) AS ranked WHERE place <= {self.cells_per_person} GROUP BY u, w"
        if self.rows > 1 or not (self.cells_per_person == 1 or ignores_repeats):
            words += " GROUP BY u, cell"  # otherwise every row of a cell has the same word, so repeats do no harm
        return {"words": words, "kept": kept}, self._count_words()

    def _count_words(self) -> str:
        """The result: cells and rows of the words that were kept."""
        low = f"(w & {(1 << self._bits) - 1})"
        if self.rows == 1:
            return f"SELECT {low} AS cell, count(*) AS n FROM kept GROUP BY 1"
        n = f"CAST(sum((w & {self._step - 1}) + 1) AS BIGINT)"
        return f"SELECT {self.whole(low, str(self._step))} AS cell, {n} AS n FROM kept GROUP BY 1"

    def _word(self, hashed: str) -> str:
        low = "cell" if self.rows == 1 else f"(cell * {self._step} + least(count(*), {self.rows}) - 1)"
        return f"(({hashed} & -{1 << self._bits}) | {low})"

    @property
    def _step(self) -> int:
        """A power of two, at least the number of rows that can be kept in a cell."""
        return 1 << (self.rows - 1).bit_length()

    @property
    def _bits(self) -> int:
        """The bits of a word that are not the hash's."""
        return (self.cells * self._step - 1).bit_length()
