"""Rows of a p-table given as cumulative upper bounds in file order: tau-Argus, SAS and cellKey files share them.

An entry of such a file belongs to a true count i and a published count j; v is j - i, p the probability, and p_ub the
upper bound, the sum of all p of the row up to here. For a cell key k, uniform on [0, 1), the tools take the first entry
of row i with k < p_ub. So the probability of an entry is the difference between its bound and the bound before, and
entries with the same (i, j) are added up, because "shuffled" tables repeat (i, j). The printed p is only checked
against the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from countveil.numeric.exact_numbers import decimal_text
from countveil.ptables.lines import LARGEST_COUNT, MOST_CELLS, PTableError, fraction, probability, whole
from countveil.ptables.table import PTable, Row

UNITS = 10**8
"""Bounds are written with eight decimals, so probabilities are multiples of 1/UNITS."""
_MISPRINT = Fraction(1, 10**4)
"""Printed figures are rounded: a printed p or lower bound may differ from the upper bounds by at most this."""
_ROUNDING = Fraction(1, 10**8)


@dataclass(frozen=True, slots=True)
class CellEntry:
    """One entry of a p-table file, as texts: i is the true count, j the published count, v = j - i.

    p is the probability, `upper` and `lower` are the cumulative bounds; p, v and `lower` may be missing.
    """

    line: int
    i: str
    j: str
    upper: str
    p: str | None = None
    v: str | None = None
    lower: str | None = None
    lines: Mapping[str, int] | None = None

    def at(self, name: str) -> int:
        """The number of the line that has this field; in YAML every field has a line of its own."""
        return self.line if self.lines is None else self.lines.get(name, self.line)


class _RowOfBounds:
    """Collects the bounds of one row in file order, and checks each bound against the one before."""

    def __init__(self, i: int) -> None:
        self.i = i
        self.steps: list[tuple[int, tuple[int, int]]] = []
        self.bound = Fraction(0)
        self.line = 0
        self.least, self.greatest = LARGEST_COUNT, 0

    def add(self, entry: CellEntry, j: int) -> Fraction:
        """Add an entry for the published count j; return by how much its printed p differs from the bounds."""
        upper = probability("the upper bound", entry.upper, entry.at("upper"))
        bound = fraction(upper)
        if bound < self.bound:
            raise PTableError(
                f"the upper bound {entry.upper.strip()} is below the previous bound of its row", entry.at("upper")
            )
        if entry.lower is not None:
            lower = fraction(probability("the lower bound", entry.lower, entry.at("lower")))
            if abs(lower - self.bound) > _MISPRINT:
                before = decimal_text(self.bound, 10)
                message = f"the lower bound is {entry.lower.strip()}, but the previous upper bound is {before}"
                raise PTableError(message, entry.at("lower"))
        misprint = Fraction(0)
        if entry.p is not None:
            misprint = abs(fraction(probability("p", entry.p, entry.at("p"))) - (bound - self.bound))
            if misprint > _MISPRINT:
                mass = decimal_text(bound - self.bound, 10)
                raise PTableError(f"p is {entry.p.strip()}, but the bounds give {mass}", entry.at("p"))
        self.steps.append((j - self.i, upper))
        self.least, self.greatest = min(self.least, j), max(self.greatest, j)
        self.bound, self.line = bound, entry.at("upper")
        return misprint

    def check(self) -> None:
        if self.bound != 1:
            raise PTableError(
                f"the last bound of row {self.i} is {decimal_text(self.bound, 12)}, not exactly 1", self.line
            )

    @property
    def decimals(self) -> int:
        return max(places for _, (_, places) in self.steps)

    def row(self, decimals: int) -> Row:
        weights: dict[int, int] = {}
        before = 0
        for v, (digits, places) in self.steps:
            bound = digits * 10 ** (decimals - places)
            weights[v] = weights.get(v, 0) + bound - before
            before = bound
        return Row.of(weights, 10**decimals)


def table_of(entries: Iterable[CellEntry]) -> PTable:
    """Build the table from the entries of a file; raises PTableError with the line of the first error."""
    rows: list[_RowOfBounds] = []
    worst = Fraction(0)
    span = 0
    for entry in entries:
        i = whole("i", entry.i, entry.at("i"))
        j = whole("j", entry.j, entry.at("j"))
        if not rows or i != rows[-1].i:
            if rows:
                rows[-1].check()
            _check_next(i, len(rows), entry.at("i"))
            rows.append(_RowOfBounds(i))
        if entry.v is not None and whole("v", entry.v, entry.at("v"), -LARGEST_COUNT) != j - i:
            raise PTableError(f"v is {entry.v.strip()}, but j - i is {j - i}", entry.at("v"))
        span -= max(0, rows[-1].greatest - rows[-1].least)
        worst = max(worst, rows[-1].add(entry, j))
        span += rows[-1].greatest - rows[-1].least
        if span > MOST_CELLS:
            raise PTableError(f"the rows together span more than {MOST_CELLS} published counts", entry.at("j"))
    if not rows:
        raise PTableError("the file has no rows")
    rows[-1].check()
    decimals = max(row.decimals for row in rows)
    notes: tuple[str, ...] = ()
    if worst > _ROUNDING:
        notes = (f"the printed p differ from the bounds by up to {decimal_text(worst, 2, 'up')}; the bounds are used",)
    return PTable(tuple(row.row(decimals) for row in rows), notes=notes)


def _check_next(i: int, expected: int, line: int) -> None:
    if i == expected:
        return
    if not expected:
        raise PTableError(f"the first row is i = {i}; rows must start at i = 0", line)
    if i < expected:
        raise PTableError(f"i = {i} occurs again; all lines of a row must be consecutive", line)
    raise PTableError(f"i = {i} follows {expected - 1}; rows must have no gaps", line)


def cells(table: PTable) -> Iterable[dict[str, str]]:
    """The entries of a table as texts, by the field names of `CellEntry`.

    In each row the published counts ascend, and the last bound is 1.
    """
    digits = _decimals(table.total)
    for i, row in enumerate(table.rows):
        bound = 0
        for v, weight in row.items():
            lower, bound = bound, bound + weight
            p, low, high = (_text(units, digits) for units in (weight, lower, bound))
            yield {"i": str(i), "j": str(i + v), "p": p, "v": str(v), "lower": low, "upper": high}


def _decimals(total: int) -> int:
    digits = len(str(total)) - 1
    if total != 10**digits:
        raise ValueError("only tables over a power of ten can be written with decimal bounds")
    return digits


def _text(weight: int, digits: int) -> str:
    """weight / 10**digits as a decimal text without trailing zeros, never in scientific notation."""
    whole_part, rest = divmod(weight, 10**digits)
    return f"{whole_part}.{rest:0{digits}d}".rstrip("0").rstrip(".") if digits else str(whole_part)
