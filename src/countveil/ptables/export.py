"""Countveil's laws as p-tables: rounded to the probabilities that a format can store, then measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.errors import InfeasibleError, RequestError
from countveil.laws.law import Laws
from countveil.literature.maximum_entropy import spans
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import Number, decimal_text, exp_bounds
from countveil.ptables import integer_keys
from countveil.ptables.bounds import UNITS
from countveil.ptables.formats import Format, format_named
from countveil.ptables.grid import nearest_even, round_row
from countveil.ptables.lines import MOST_ENTRIES
from countveil.ptables.readings import readings
from countveil.ptables.table import PTable, Row


@dataclass(frozen=True)
class RowProposal:
    """One row before rounding: `weights` maps the noise v to its weight, and the weights sum to `total`.

    All rows with `eta` get the same rounded probability of v = 0.
    """

    weights: Mapping[int, int]
    total: int
    unbiased: bool
    eta: bool = False


@dataclass(frozen=True)
class Exported:
    """A mechanism as a rounded table, with the format, and the mechanism's delta before rounding."""

    table: PTable
    format: Format
    epsilon: Fraction
    delta_before: Fraction
    notes: tuple[str, ...]


def export(mechanism: Mechanism, format: str = "tau-argus", *, keys: Number | None = None) -> Exported:
    """The p-table of a mechanism, rounded for a format. A row without bias has exactly no bias after rounding."""
    fmt = format_named(format)
    units = grid_of(fmt, keys)
    table = table_from(propose_rows(mechanism.laws, mechanism.eta), mechanism.epsilon, fmt, units)
    notes = warnings(table, fmt)
    if (most := mechanism.certificate.sensitivity) > 1:
        changes = f"the mechanism's delta is for a person who changes a count by up to {most}"
        notes = (f"{changes}; the table's deltas are for a change of 1", *notes)
    return Exported(table, fmt, mechanism.epsilon, mechanism.delta, notes)


def grid_of(fmt: Format, keys: Number | None) -> int:
    """The total of the weights of each row; RequestError if `keys` is given for a format without cell keys."""
    if fmt.NAME == integer_keys.NAME:
        return integer_keys.units(keys)
    if keys is not None:
        raise RequestError(
            f"keys is only for format {integer_keys.NAME}; leave it out for {fmt.NAME}, which has no integer keys"
        )
    return UNITS


def propose_rows(laws: Laws, eta: Fraction) -> list[RowProposal]:
    """The rows for the counts from 0 to the stationary one; RequestError if a p-table cannot represent the laws."""
    if laws.hi is not None:
        raise RequestError(
            "a p-table uses its last row, translated, for all larger counts; a mechanism with a largest count "
            "(--counts LO:HI) treats them differently; design it without --counts"
        )
    last = laws.stationary_from
    width = len(laws.stationary.weights)
    if (last + 1) * width > MOST_ENTRIES:
        raise RequestError(
            f"{last + 1} rows of up to {width} cells are more than {MOST_ENTRIES} cells; use a larger epsilon or a "
            "smaller D"
        )
    proposals = []
    for n in range(last + 1):
        law = laws.law(n)
        if n + law.least < 0:
            raise RequestError(
                f"the count {n} can be published as {n + law.least}, and p-tables have no negative j; use policy "
                "nonnegative or floor, or convert this mechanism: countveil nonnegative MECHANISM"
            )
        weights = {z: w for z, w in law.items() if w}
        proposals.append(RowProposal(weights, law.total, law.mean == 0, n > 0 and law.eta == eta))
    return proposals


def rank_table(table: PTable, epsilon: Fraction) -> tuple[Fraction, ...]:
    """The key by which tables are sorted: the delta of counts >= 1, then of all counts, then of the last row."""
    divergences = readings(table, exp_bounds(epsilon)[0])
    return tuple(divergences[name].value for name in ("from_n0", "designed", "last_row"))


def table_from(proposals: Sequence[RowProposal], epsilon: Fraction, fmt: Format, units: int) -> PTable:
    """Round the proposed rows in two ways, and return the table of smaller delta.

    Probabilities too small for the format become zero in one way, and the smallest possible in the other.
    """
    candidates, failure = [], None
    for keep in (False, True):
        try:
            rows = [_round_proposal(proposal, units, keep) for proposal in proposals]
        except InfeasibleError as error:
            failure = error
            continue
        candidates.append(_fit_format(rows, fmt))
    if not candidates:
        raise failure or InfeasibleError("the table cannot be rounded to the grid of the format")
    return min(candidates, key=lambda table: rank_table(table, epsilon))


def _round_proposal(proposal: RowProposal, units: int, keep: bool) -> Row:
    weights, total = proposal.weights, proposal.total
    centre = nearest_even(weights.get(0, 0), total, units) if proposal.eta else None
    return round_row(weights, total, units, unbiased=proposal.unbiased, centre=centre, keep=keep)


def _fit_format(rows: list[Row], fmt: Format) -> PTable:
    """The table in the shape that the format needs: with integer keys, 750 rows, of which the last 250 repeat."""
    if fmt.NAME != integer_keys.NAME:
        return PTable(tuple(rows))
    if len(rows) > integer_keys.ROWS + 1:
        raise RequestError(
            f"format {fmt.NAME} has {integer_keys.ROWS} rows, but this law changes up to count {len(rows) - 1}; use "
            "another format"
        )
    rows += rows[-1:] * (integer_keys.ROWS + 1 - len(rows))
    return PTable(tuple(rows), repeat=integer_keys.REPEAT, keys=rows[0].total)


def warnings(table: PTable, fmt: Format) -> tuple[str, ...]:
    """Warnings about a rounded table: limits of its format, and rows with a bias."""
    texts = []
    if table.keys is not None:
        floor = decimal_text(Fraction(1, table.keys), 3, "up")
        texts.append(f"with {table.keys} equally likely cell keys no delta is below 1/{table.keys} = {floor}")
    if fmt.NAME == integer_keys.NAME:
        texts.append("the format has no row for 0, and the tool suppresses counts below its threshold (10 by default)")
        if not table.is_zero_frozen:
            texts.append(
                "the reading designed needs a row for 0, which this format does not have; for files use zero_frozen"
            )
    biased = [i for i, row in enumerate(table.rows) if row.mean]
    if biased:
        worst = max(abs(table.rows[i].mean) for i in biased)
        texts.append(f"rows with a bias: {spans(biased)}; at most {decimal_text(worst, 3, 'up')}")
    return tuple(texts)
