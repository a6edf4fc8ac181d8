"""Our laws as p-tables of any format: rounded to its grid, then measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.errors import InfeasibleError, RequestError
from countveil.exact import Number, decimal_text, exp_bounds
from countveil.families.maximum_entropy import spans
from countveil.law import ColumnFamily
from countveil.mechanism import Mechanism
from countveil.ptables import integer_keys
from countveil.ptables.bounds import UNITS
from countveil.ptables.formats import Format, format_named
from countveil.ptables.grid import nearest_even, rounded
from countveil.ptables.lines import MOST_ENTRIES
from countveil.ptables.measure import readings
from countveil.ptables.table import PTable, Row


@dataclass(frozen=True)
class Proposal:
    """One row before rounding: v -> weight over `total`; `eta` asks that P(v = 0) is rounded alike in all rows."""

    weights: Mapping[int, int]
    total: int
    unbiased: bool
    eta: bool = False


@dataclass(frozen=True)
class Exported:
    """A rounded table, the format it is for, and the mechanism's own delta before rounding."""

    table: PTable
    format: Format
    epsilon: Fraction
    delta_before: Fraction
    notes: tuple[str, ...]


def export(mechanism: Mechanism, format: str = "tau-argus", *, keys: Number | None = None) -> Exported:
    """The table of a mechanism, rounded as the format demands; zero bias stays exactly zero."""
    fmt = format_named(format)
    units = grid_of(fmt, keys)
    table = table_from(columns(mechanism.family, mechanism.eta), mechanism.epsilon, fmt, units)
    notes = warnings(table, fmt)
    if (most := mechanism.certificate.sensitivity) > 1:
        changes = f"the mechanism's own delta is for a person who changes a count by up to {most}"
        notes = (f"{changes}; the table's are for a change of 1", *notes)
    return Exported(table, fmt, mechanism.epsilon, mechanism.delta, notes)


def grid_of(fmt: Format, keys: Number | None) -> int:
    """The total of the format's rows; keys are for the format that has them."""
    if fmt.NAME == integer_keys.NAME:
        return integer_keys.units(keys)
    if keys is not None:
        raise RequestError(f"keys belong to format {integer_keys.NAME}; {fmt.NAME} has bounds of eight decimals")
    return UNITS


def columns(family: ColumnFamily, eta: Fraction) -> list[Proposal]:
    """The rows 0..M of a family of columns; refused where a p-table cannot hold them."""
    if family.hi is not None:
        raise RequestError(
            "a p-table uses its last row, translated, for all larger counts; a mechanism with a largest count "
            "(--counts LO:HI) treats them otherwise, so it cannot be written as one"
        )
    last = family.stationary_from
    width = len(family.stationary.weights)
    if (last + 1) * width > MOST_ENTRIES:
        raise RequestError(
            f"{last + 1} rows of up to {width} cells are more than {MOST_ENTRIES}; a larger epsilon or a smaller D "
            "needs fewer"
        )
    found = []
    for n in range(last + 1):
        law = family.column(n)
        if n + law.least < 0:
            raise RequestError(
                f"the count {n} can be published as {n + law.least}, and p-tables have no negative j; use policy "
                "nonnegative or floor, or make this one never negative: countveil nonnegative MECHANISM"
            )
        weights = {z: w for z, w in law.items() if w}
        found.append(Proposal(weights, law.total, law.mean == 0, n > 0 and law.eta == eta))
    return found


def judged(table: PTable, epsilon: Fraction) -> tuple[Fraction, ...]:
    """What tables are ranked by: the delta of counts >= 1, then of all, then of the last row."""
    found = readings(table, exp_bounds(epsilon)[0])
    return tuple(found[name].value for name in ("from_n0", "designed", "last_row"))


def table_from(proposals: Sequence[Proposal], epsilon: Fraction, fmt: Format, units: int) -> PTable:
    """The rounded table: of two ways to round tails below the grid, the one with the smaller delta."""
    candidates, failure = [], None
    for keep in (False, True):
        try:
            rows = [_rounded(proposal, units, keep) for proposal in proposals]
        except InfeasibleError as error:
            failure = error
            continue
        candidates.append(_framed(rows, fmt))
    if not candidates:
        raise failure or InfeasibleError("the table cannot be rounded")
    return min(candidates, key=lambda table: judged(table, epsilon))


def _rounded(proposal: Proposal, units: int, keep: bool) -> Row:
    weights, total = proposal.weights, proposal.total
    centre = nearest_even(weights.get(0, 0), total, units) if proposal.eta else None
    return rounded(weights, total, units, unbiased=proposal.unbiased, centre=centre, keep=keep)


def _framed(rows: list[Row], fmt: Format) -> PTable:
    """The rows as the format uses them: integer keys have 750 rows, of which the last 250 repeat."""
    if fmt.NAME != integer_keys.NAME:
        return PTable(tuple(rows))
    if len(rows) > integer_keys.ROWS + 1:
        raise RequestError(
            f"format {fmt.NAME} has {integer_keys.ROWS} rows, and this law changes up to count {len(rows) - 1}"
        )
    rows += rows[-1:] * (integer_keys.ROWS + 1 - len(rows))
    return PTable(tuple(rows), repeat=integer_keys.REPEAT, keys=rows[0].total)


def warnings(table: PTable, fmt: Format) -> tuple[str, ...]:
    """What writing to a format has done to a table."""
    found = []
    if table.keys is not None:
        floor = decimal_text(Fraction(1, table.keys), 3, "up")
        found.append(f"with {table.keys} equally likely keys no delta is below 1/{table.keys} = {floor}")
    if fmt.NAME == integer_keys.NAME:
        found.append("the format has no row for 0, and the tool suppresses counts below its threshold (10 by default)")
        if not table.is_zero_frozen:
            found.append(
                "the first reading needs a row for 0, which the file cannot hold: the file itself has the second"
            )
    biased = [i for i, row in enumerate(table.rows) if row.mean]
    if biased:
        worst = max(abs(table.rows[i].mean) for i in biased)
        found.append(f"rows with a bias: {spans(biased)}; at most {decimal_text(worst, 3, 'up')}")
    return tuple(found)
