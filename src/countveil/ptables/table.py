"""The internal form of a p-table, the same for every file format: for each true count i the law of the noise v = j - i.

j is the published count. Weights are integers over one total, so every probability is an exact Fraction. The total is
10**digits for formats with decimal bounds, K for formats with K equally likely cell keys. Counts beyond the last row
reuse the last `repeat` rows in turn, translated: one row in most formats, 250 rows with integer keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from countveil.display.cards import Shown


@dataclass(frozen=True, slots=True)
class Row:
    """The law of the noise v on least..greatest, as integer weights that sum to `total`; the outermost are positive.

    >>> row = Row.of({-1: 1, 0: 2, 1: 1, 5: 0}, 4)
    >>> row.greatest, row.stay, row.mean, row.variance
    (1, Fraction(1, 2), Fraction(0, 1), Fraction(1, 2))
    """

    least: int
    weights: tuple[int, ...]
    total: int

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0 or sum(self.weights) != self.total:
            raise ValueError("a row needs non-negative integer weights that sum to its total")
        if not self.weights[0] or not self.weights[-1]:
            raise ValueError("the weights at both ends of a row must be positive")

    @classmethod
    def of(cls, weights: Mapping[int, int], total: int) -> Row:
        """Make a row from a mapping of noise v to weight; weights of zero are dropped."""
        support = [v for v, w in weights.items() if w]
        if not support:
            raise ValueError("a row needs a positive weight")
        low, high = min(support), max(support)
        return cls(low, tuple(weights.get(v, 0) for v in range(low, high + 1)), total)

    @property
    def greatest(self) -> int:
        return self.least + len(self.weights) - 1

    def items(self) -> list[tuple[int, int]]:
        """Pairs (noise v, weight) with positive weight, v ascending."""
        return [(v, w) for v, w in enumerate(self.weights, start=self.least) if w]

    def weight(self, v: int) -> int:
        slot = v - self.least
        return self.weights[slot] if 0 <= slot < len(self.weights) else 0

    @property
    def stay(self) -> Fraction:
        """The probability that the count stays as it is, P(v = 0); also called pstay or eta."""
        return Fraction(self.weight(0), self.total)

    @property
    def mean(self) -> Fraction:
        """E[v], the mean of the noise, which is the bias of the published count."""
        return Fraction(sum(v * w for v, w in self.items()), self.total)

    @property
    def mse(self) -> Fraction:
        """E[v^2], the mean squared error of the published count."""
        return Fraction(sum(v * v * w for v, w in self.items()), self.total)

    @property
    def variance(self) -> Fraction:
        return self.mse - self.mean**2

    @property
    def reach(self) -> int:
        """The largest |v|, the largest error that the row allows."""
        return max(abs(self.least), abs(self.greatest))


@dataclass(frozen=True, slots=True, repr=False)
class PTable(Shown):
    """A p-table: rows for the true counts 0..last, over one total; `keys` is K if a file has K integer cell keys."""

    rows: tuple[Row, ...]
    repeat: int = 1
    keys: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rows or not 1 <= self.repeat <= len(self.rows):
            raise ValueError("a table needs at least one row, and repeat must be between 1 and the number of rows")
        if any(row.total != self.total for row in self.rows):
            raise ValueError("all rows of a table must have the same total")
        if any(i + row.least < 0 for i, row in enumerate(self.rows)):
            raise ValueError("a published count must not be negative")

    def _line(self) -> str:
        return f"of {len(self.rows)} rows: D={self.D} units={self.total}"

    @property
    def total(self) -> int:
        return self.rows[0].total

    @property
    def last(self) -> int:
        """The largest true count that has a row of its own."""
        return len(self.rows) - 1

    def row(self, n: int) -> Row:
        """The row that the true count n uses."""
        if n <= self.last:
            return self.rows[n]
        first = self.last - self.repeat + 1
        return self.rows[first + (n - first) % self.repeat]

    @property
    def D(self) -> int:
        """The noise bound: the largest |v| of all rows."""
        return max(row.reach for row in self.rows)

    @property
    def is_zero_frozen(self) -> bool:
        """Whether the table always publishes 0 as 0."""
        return self.rows[0].items() == [(0, self.total)]

    def freeze_zero(self) -> PTable:
        """The table as the tools apply it: 0 is published as 0, whatever row 0 says."""
        if self.is_zero_frozen:
            return self
        zero = Row(0, (self.total,), self.total)
        again = self.rows[:1] if self.repeat > self.last else ()  # row 0 is used for larger counts too
        return replace(self, rows=(zero, *self.rows[1:], *again))
