"""Compares choices of contribution bounds: what each leaves out, how much noise it needs, and which has the least
error.

For every table that is compared, the **total error** of a choice describes the median cell (of the cells with rows). It
is the number of rows left out plus the 95 % margin of a planned answer, as a share of the cell's rows, at most 1. The
choice with the least error on average over the tables is proposed. Everything here is computed from the data, so it is
for the curator only. The choice of bounds should rest on public or earlier knowledge too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from countveil.accounting import Neighbours
from countveil.config.configuration import MOST_CELLS_PER_PERSON, MOST_ROWS
from countveil.data.contributions import MOST_SURVEYED, Group, TableContributions, survey_contributions
from countveil.data.engines import Engine
from countveil.errors import ParameterError, shorten
from countveil.planning.margins import estimate_margin
from countveil.planning.shapes import LARGEST_D
from countveil.query.schema import Column

GRID = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
MOST_TABLES = 8
"""If no tables are named, there is one table for each of the first columns, up to this number of tables."""
MOST_LABELS = 10_000
"""Tables with more cells than this are compared only if they are named."""
WORST = 5
"""How many cells are listed as those that lose most."""
LARGEST_MARGIN = LARGEST_D // 4
"""Bounds under which answers would have a larger margin are not proposed: designing a plan for them could fail."""
NO_NOISE = "no budget is declared, so the noise of these choices is unknown"
FROM_DATA = "bounds chosen from the data reveal a little about it: they should rest on public or earlier knowledge"


@dataclass(frozen=True)
class PlannedAnswers:
    """The answers that a budget plans. Their noise limits how wide the bounds can reasonably be."""

    epsilon: float
    delta: float
    answers: int
    neighbours: Neighbours = "add-remove"

    def margin(self, rows: int, cells: int) -> int:
        """An estimate of the answers' 95 % margin if the bounds are `rows` rows per person and `cells` cells per
        person."""
        return estimate_margin(
            self.epsilon, self.delta, self.answers, cells=cells, sensitivity=rows, neighbours=self.neighbours
        )


@dataclass(frozen=True)
class BoundsChoice:
    """One choice of contribution bounds, and what follows from it.

    The shares of rows and people are averages over the compared tables.
    """

    rows_per_person: int
    cells_per_person: int
    rows_kept: float
    people_kept: float
    """The share of people who lose no row."""
    worst_left_out: float
    """The largest share of its rows that a cell loses, among cells with at least as many rows as the median cell."""
    left_out: float
    """The share of its rows that the median cell loses."""
    margin_95: int | None
    """An estimate of the 95 % margin of an answer; None without a budget."""
    noise: float | None
    """The margin as a share of the median cell's rows; None without a budget."""
    error: float
    """The total error of the median cell: rows left out and noise together, at most 1."""

    @property
    def bounds(self) -> tuple[int, int]:
        return self.rows_per_person, self.cells_per_person

    @property
    def larger(self) -> str:
        """Which part of the median cell's error is larger: the noise, or the rows left out."""
        return "noise" if (self.noise or 0.0) > self.left_out else "left out"


@dataclass(frozen=True)
class CellLoss:
    """A cell, its number of rows, and the share of them that is left out."""

    by: tuple[str, ...]
    labels: tuple[str, ...]
    rows: int
    left_out: float


@dataclass(frozen=True)
class BoundsTable:
    """The choices of contribution bounds for a dataset, compared in some tables."""

    tables: tuple[tuple[str, ...], ...]
    one_in: int
    """Only one person in this many was surveyed; 1 if everyone was."""
    best: BoundsChoice
    declared: BoundsChoice | None
    choices: tuple[BoundsChoice, ...]
    """All choices that were compared."""
    worst_cells: tuple[CellLoss, ...]
    """The cells that lose the largest shares under the declared bounds; if none are declared, under the best choice."""

    @property
    def efficient(self) -> list[BoundsChoice]:
        """The choices worth showing, sorted by noise: no other choice keeps more rows with as little noise.

        A choice is left out if it keeps hardly more rows (less than a percentage point) than the one before, or if its
        error is as large as the count itself. The best and the declared choice are always shown.
        """
        better: list[BoundsChoice] = []
        for each in sorted(self.choices, key=lambda c: (c.margin_95 or 0, -c.rows_kept, c.bounds)):
            if not better or each.rows_kept > better[-1].rows_kept + 1e-9:
                better.append(each)
        named = {each.bounds: each for each in (self.best, self.declared) if each is not None}
        shown: list[BoundsChoice] = []
        for each in better:
            if not shown or (each.error < 1 and each.rows_kept >= shown[-1].rows_kept + 0.01):
                shown.append(each)
        kept = {each.bounds: each for each in shown} | named
        return sorted(kept.values(), key=lambda c: (c.margin_95 or 0, c.rows_kept, c.bounds))

    def describe(self) -> dict[str, object]:
        """The comparison as plain JSON values."""
        facts = {name: list(getattr(self, name)) for name in ("tables", "choices", "worst_cells")}
        plain = {name: [_plain(each) for each in values] for name, values in facts.items()}
        declared = None if self.declared is None else _plain(self.declared)
        return {"one_in": self.one_in, "best": _plain(self.best), "declared": declared, **plain}


def _plain(value: object) -> object:
    """A choice, a cell or the column names of a table as JSON values; shares are rounded to four digits."""
    if isinstance(value, tuple):
        return list(value)
    facts = asdict(value)  # type: ignore[call-overload]
    if isinstance(value, BoundsChoice):
        facts["larger"] = value.larger
    return {name: round(each, 4) if isinstance(each, float) else each for name, each in facts.items()}


def choose_tables(columns: Sequence[Column], by: Sequence[str] = ()) -> list[Group]:
    """The tables to compare: one for each string of `by`, which names the columns of that table with commas between
    them. If `by` is empty, one for each of the first columns."""
    if not by:
        few = [(column,) for column in columns if column.keys <= MOST_LABELS]
        return [*few[:MOST_TABLES]] or [()]
    known = {column.name: column for column in columns}
    tables: list[Group] = []
    for names in by:
        words = [word.strip() for word in names.split(",") if word.strip()]
        for word in words:
            if word not in known or words.count(word) > 1:
                declared = shorten(", ".join(known), 200)
                raise ParameterError("by", names, f"a list, with commas, of different columns out of: {declared}")
        group = tuple(known[word] for word in words)
        if all(set(group) != set(other) for other in tables):
            tables.append(group)
    return tables


def compare_bounds(
    engine: Engine,
    unit: str,
    tables: Sequence[Group],
    rows: int,
    planned: PlannedAnswers | None,
    declared: tuple[int, int] | None = None,
) -> BoundsTable:
    """Survey a source that has `rows` rows, and compare choices of contribution bounds in these tables."""
    one_in = -(-rows // MOST_SURVEYED) or 1
    coarse = [[g for g in GRID if g <= most] for most in (MOST_ROWS, MOST_CELLS_PER_PERSON)]
    grids = [sorted({*grid, *([declared[i]] if declared else [])}) for i, grid in enumerate(coarse)]
    surveys = survey_contributions(engine, unit, tables, grids[0], grids[1], one_in)
    surveys = [each for each in surveys if each.rows.sum() > 0]
    needed = [max((getattr(each, name) for each in surveys), default=1) for name in ("most_rows", "most_cells")]
    useful = [grid[: bisect_left(grid, most) + 1] for grid, most in zip(coarse, needed, strict=True)]
    choices = {
        (r, c): _judge(surveys, (r, c), (grids[0].index(r), grids[1].index(c)), planned, one_in)
        for r, c in {*product(useful[0], useful[1]), *([declared] if declared else [])}
    }
    possible = [
        each for each in choices.values() if (each.margin_95 or 0) <= LARGEST_MARGIN and set(each.bounds) <= set(GRID)
    ]
    best = min(possible or [choices[1, 1]], key=_order)
    chosen = choices[declared] if declared else best
    place = grids[0].index(chosen.rows_per_person), grids[1].index(chosen.cells_per_person)
    return BoundsTable(
        tuple(tuple(column.name for column in table) for table in tables),
        one_in,
        best,
        choices[declared] if declared else None,
        tuple(choices[bounds] for bounds in sorted(choices)),
        tuple(_worst_cells(surveys, place, one_in)),
    )


def _order(choice: BoundsChoice) -> tuple[float, float, int, int]:
    """A sort key for choices: by error, then by error before it is limited to 1, then by how narrow the bounds are."""
    rows, cells = choice.bounds
    return round(choice.error, 9), round((choice.noise or 0.0) + choice.left_out, 9), rows * cells, rows


def _judge(
    surveys: Sequence[TableContributions],
    bounds: tuple[int, int],
    place: tuple[int, int],
    planned: PlannedAnswers | None,
    one_in: int,
) -> BoundsChoice:
    """What a choice of bounds leaves out and how much noise it needs, averaged over the tables.

    `place` has the indexes of the bounds among the choices in the surveys.
    """
    margin = None if planned is None else planned.margin(*bounds)
    kept, whole, worst, losses, noises, errors = [], [], [0.0], [], [], []
    for survey in surveys:
        rows, lost = survey.rows, survey.rows - survey.count_kept_rows(*place)
        middle, loss = float(np.median(rows)), float(np.median(lost))
        kept.append(1 - lost.sum() / rows.sum())
        whole.append(survey.whole(*place))
        worst.append(float((lost / rows)[rows >= middle].max()))
        losses.append(loss / middle)
        noises.append(0.0 if margin is None else margin / (middle * one_in))
        errors.append(min(1.0, losses[-1] + noises[-1]))

    def mean(values: Sequence[float], default: float = 0.0) -> float:
        return float(np.clip(np.mean(values), 0.0, None)) if values else default

    return BoundsChoice(
        *bounds,
        mean(kept, 1.0),
        mean(whole, 1.0),
        max(worst),
        mean(losses),
        margin,
        None if margin is None else mean(noises),
        mean(errors),
    )


def _worst_cells(surveys: Sequence[TableContributions], place: tuple[int, int], one_in: int) -> list[CellLoss]:
    """The cells that lose the largest shares of their rows, among those with at least as many rows as the median."""
    losses: list[CellLoss] = []
    for survey in surveys:
        shares = 1 - survey.count_kept_rows(*place) / survey.rows
        large = np.flatnonzero(survey.rows >= np.median(survey.rows))
        losses += [
            CellLoss(survey.by, survey.labels[i], round(survey.rows[i]) * one_in, float(shares[i]))
            for i in large[np.argsort(-shares[large], kind="stable")][:WORST]
        ]
    losses.sort(key=lambda cell: -cell.left_out)
    return [cell for cell in losses[:WORST] if cell.left_out > 1e-9]
