"""The part of a statement that bounds what each person adds: in how many cells a person counts, with how many rows.

**Guarantee.** Which of a person's rows are kept depends on that person's rows and the salt alone. Removing a person
removes exactly the rows that were kept of that person: at most `cells_per_person` cells change, each by at most
`rows_per_person`, and no other person's rows change. This holds for every salt, known or not, and for every hash
function, even a constant one: the hash only decides how evenly the cells are chosen. Three rules make it true:

- people are told apart by their value and never by its hash, because two people with the same hash would affect each
  other;
- a person's cells are ordered by (hash, number of the cell). So if hashes are equal, the order still does not depend on
  the order in which rows arrive, and a task that runs twice keeps the same cells;
- no expression can overflow or fail for any value.

**The choice.** A *word* is a 64-bit integer for one cell of a person: first the high bits of the hash of person, cell
and salt, then the number of the cell, then the number of rows less one. A person's smallest words belong to the cells
with the smallest hashes, and a word contains the number of its cell. So one aggregate chooses the cells, or a window in
an engine that has no fast aggregate. In a table of 2,000,000 cells a word has 42 bits of the hash; cells for which
these bits are equal are ordered by their numbers.

If a person may count in every cell, there is nothing to choose. Rows within a cell are never chosen either: the smaller
of their number and the bound is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from countveil.errors import EngineError

SALT_BITS = 63
"""The number of bits in a salt. As a 64-bit integer, which every engine has, a salt is then not negative."""


def number_of(salt: bytes) -> int:
    """Convert a salt, which is new for every evaluation of a question, to an integer."""
    return int.from_bytes(hashlib.sha256(salt).digest()[:8], "big") >> (64 - SALT_BITS)


@dataclass(frozen=True)
class ContributionBounds:
    """The contribution bounds of a question, as SQL.

    The SQL reads a relation `placed`, which has a row (u, cell) for each person u and row of the source. Each method
    returns the relations that the statement needs in addition, by name, and a SELECT of the result (cell, n).
    """

    cells: int
    cells_per_person: int
    rows: int
    whole: Callable[[str, str], str]
    """A function that writes SQL for the quotient of two non-negative integers, rounded down."""

    def __post_init__(self) -> None:
        if self._bits >= SALT_BITS:
            rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
            words = "are too many to count; group by fewer columns"
            raise EngineError(f"{self.cells} cells, with up to {rows} of a person in each, {words}")

    @property
    def keep_all(self) -> bool:
        """Whether a person may count in every cell, so that there is nothing to choose."""
        return self.cells_per_person >= self.cells

    def select_all(self) -> tuple[dict[str, str], str]:
        """SQL that counts every person in every cell, with at most `rows` rows."""
        if self.rows == 1:
            return {"pairs": "SELECT DISTINCT u, cell FROM placed"}, "SELECT cell, count(*) AS n FROM pairs GROUP BY 1"
        pairs = f"SELECT cell, least(count(*), {self.rows}) AS n FROM placed GROUP BY u, cell"
        return {"pairs": pairs}, "SELECT cell, CAST(sum(n) AS BIGINT) AS n FROM pairs GROUP BY 1"

    def select_some(self, hashed: str, least: str | None, *, ignores_repeats: bool) -> tuple[dict[str, str], str]:
        """SQL that counts every person in at most `cells_per_person` cells, with at most `rows` rows in each.

        `hashed` is SQL for the hash of u, cell and salt. `least` is SQL that holds the words w of a group in memory and
        unnests the smallest; if it is None, a window over all rows finds them, which takes longer. `ignores_repeats`
        says whether `least` leaves out a w that is repeated.
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
        """SQL for the result (cell, n), read back from the words that were kept."""
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
        """The number of values that a word can store for the rows of a cell: a power of two, at least `rows`."""
        return 1 << (self.rows - 1).bit_length()

    @property
    def _bits(self) -> int:
        """How many low bits of a word store the cell and its rows; the other bits are the hash."""
        return (self.cells * self._step - 1).bit_length()
