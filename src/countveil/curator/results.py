"""Result types: tables of released counts with margins, and dry runs. They contain only released and public values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from typing import Any, Literal, get_args

from countveil.curator.estimates import Estimates
from countveil.curator.grid import Grid, lay_out
from countveil.curator.receipts import GradeBudget, Receipt
from countveil.display.cards import Card, Drawable, Shown, draw_interval
from countveil.errors import EngineError, MissingExtraError, ParameterError, RequestError, ServiceError
from countveil.ledger import STANDARD, Charge
from countveil.mechanism.intervals import Intervals, Ints
from countveil.mechanism.mechanism import Mechanism
from countveil.mechanism.sum_bias import bias_of_sum
from countveil.numeric.exact_numbers import decimal_text
from countveil.query import Question
from countveil.query.schema import Column
from countveil.query.truth import Truth

MOST_DRAWN = 40
"""The most cells in a picture of a table."""
MOST_COLLECTED = 20_000_000
"""The most cells of a table that is collected in memory."""
FrameKind = Literal["pandas", "polars", "pyarrow"]
KINDS: tuple[FrameKind, ...] = get_args(FrameKind)
AGREE = "sums of released cells: parts and totals agree by construction"
CONSISTENT = (
    f"{AGREE}; a total that is asked for and paid for on its own is more accurate, and need not agree with its parts"
)


@dataclass(frozen=True, repr=False)
class DryRun(Shown):
    """The cost and accuracy of a question. A dry run spends nothing and counts nothing."""

    question: str
    text: str
    dataset: str
    pool: str
    cells: int
    cost: int
    answers_left: int
    """How many answers of `grade` the analyst can still pay for."""
    margin_95: int
    worst_error: int
    eta: str
    useful_from: int
    sum_bias: str
    """An upper bound on the bias of the sum of all cells. In the worst case all cells are small."""
    notes: tuple[str, ...]
    grade: str = STANDARD
    """The grade that pays, or that has paid if the answer is recorded."""
    grades: tuple[GradeBudget, ...] = ()
    """Every grade of the pool, with the number of answers that the analyst can still pay for."""
    truth: Truth | None = None
    """What is counted, and what the intervals are for. None if the service has an earlier version that does not say."""

    def _line(self) -> str:
        return f"{self.cells} cells ±{self.margin_95}, costs {self.cost} of {self.answers_left}: {self.text}"

    def _card(self) -> Card:
        facts = {
            "question": self.text,
            "costs": f"{self.cost} of {self.answers_left} answers left ({self.grade})",
            "gives": f"{self.cells:,} counts, {describe_margin(self)}",
            "counts": None if self.truth is None else self.truth.sentence,
        }
        return Card("Dry run", facts, notes=self.notes)


def describe_margin(result: DryRun | Table) -> str:
    """The accuracy of the counts of a result, in words. The interval of one count can be narrower than this margin."""
    margin, worst = f"{result.margin_95:,}", f"{result.worst_error:,}"
    return f"at most ±{margin} for any count in 95 % of releases, never more than {worst} off"


@dataclass(frozen=True, repr=False)
class Total(Shown):
    """A sum of released cells. It is within `margin_95` of the true sum in 95 % of releases, and within `worst_error`
    always."""

    value: int
    cells: int
    margin_95: int
    worst_error: int
    note: str = CONSISTENT
    """Why this need not be the answer to a question for the total."""

    def _line(self) -> str:
        return f"{self.value:,} ±{self.margin_95:,}, the sum of {self.cells:,} cells"


@dataclass(frozen=True, repr=False)
class Table(Estimates, Drawable):
    """The answer to a question, from a Curator or a service: a released count for every cell.

    The cells are all combinations of the labels of the group columns, in order, the last column changing fastest. Group
    columns that are derived from one source column (a hierarchy) count as one: only the combinations of their labels
    that exist are cells.
    """

    columns: list[str]
    """The names of the columns: group columns, the count, and the two ends of its 95 % interval."""
    kinds: list[str]
    """The kind of each column: text, integer, boolean or date."""
    labels: tuple[list[Any], ...] = field(repr=False)
    """For each group column, its label in every bin of its axis; see `Grid`."""
    released: Ints = field(repr=False)
    low: Ints = field(repr=False)
    high: Ints = field(repr=False)
    margin_95: int
    worst_error: int
    receipt: Receipt
    replayed: bool
    kind: FrameKind | None = None
    """The kind of frame that the caller wants; None for any."""
    intervals: Intervals | None = field(default=None, repr=False)
    """The intervals of the mechanism that answered. A table from a service has `stated_margins` instead."""
    stated_margins: Mapping[int, int] = field(default_factory=dict, repr=False)
    truth: Truth | None = None
    """What is counted, and what the intervals are for. None if the service has an earlier version that does not say."""
    axes: tuple[int, ...] | None = field(default=None, repr=False)
    """For each group column, the number of its axis, from 0. None if each column has an axis of its own."""
    declared: tuple[Column, ...] = field(default=(), repr=False)
    """The group columns as the schema declares them. Empty for a table from a service."""

    def _line(self) -> str:
        columns = ", ".join(self.columns[:-2])
        return f"{self.cells} cells ±{self.margin_95}: {columns}; receipt {self.receipt.id}"

    def _card(self) -> Card:
        end = float(self.high.max()) if len(self.high) else 1.0
        rows = ((*row[:-2], f"{row[-2]:,} to {row[-1]:,}", draw_interval(*_ends(row), end)) for row in self.rows)
        notes = [describe_margin(self)]
        notes += [] if self.truth is None else [self.truth.sentence]
        notes.append(f"receipt {self.receipt.id}: {self.receipt.answers_left} answers left")
        head = (*self.columns[:-2], "95 % interval", "")
        return Card(f"Table of {self.cells:,} cells", {}, "", head, rows, self.cells, notes)

    def _chart(self) -> Any:
        """The picture of `plot`."""
        from countveil.plots.released import released_chart

        return released_chart(self.columns, islice(self.rows, MOST_DRAWN), self.margin_95)

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.labels, tuple(range(len(self.labels))) if self.axes is None else self.axes)

    @property
    def mechanism(self) -> Mechanism:
        if self.intervals is None:
            raise ServiceError("a service does not send its mechanism; its hash is receipt.mechanism")
        return self.intervals.mechanism

    @property
    def cells(self) -> int:
        return len(self.released)

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The cells one by one, as (labels ..., count, low, high)."""
        counts = (self.released.tolist(), self.low.tolist(), self.high.tolist())
        for place, *cell in zip(self.grid.places(), *counts, strict=True):
            yield (*place, *cell)

    @cached_property
    def frame(self) -> Any:
        """The table as a frame of the requested kind, else of the source's kind, else of a kind that is installed."""
        return self.to(self.kind or choose_frame_kind())

    def to(self, kind: FrameKind) -> Any:
        """The table as a frame.

        Args:
            kind: "pandas", "polars" or "pyarrow".

        Returns:
            Group columns, counts, and the ends of their 95 % intervals.

        Raises:
            ParameterError: Another kind.
            MissingExtraError, EngineError: The package is not installed.

        >>> curator.count(by="sex").to("pyarrow").column_names
        ['sex', 'count', 'count_low', 'count_high']
        """
        import narwhals as nw

        check_kind(kind)
        data: dict[str, Any] = {}
        for i, (name, labels) in enumerate(zip(self.columns, self.labels, strict=False)):
            data[name] = nw.new_series(name, labels, backend=kind)[self.grid.positions(i)]
        for name, values in zip(self.columns[-3:], (self.released, self.low, self.high), strict=True):
            data[name] = nw.new_series(name, values, backend=kind)
        return nw.from_dict(data, backend=kind).to_native()

    def total(self) -> Total:
        """The sum of all released cells. This is free.

        Returns:
            The sum with its margin.

        >>> curator.count(by="sex").total().cells
        2
        """
        return self._sum(self.released)

    def subtotals(self, by: str | Sequence[str]) -> list[tuple[tuple[Any, ...], Total]]:
        """The sum for every combination of labels of some group columns, each with its own margin. This is free.

        Args:
            by: A group column of the table, or a list of them.

        Returns:
            Pairs of labels and their total.

        Raises:
            ParameterError: A name that is not a group column of the table.

        >>> [(labels, total.cells) for labels, total in curator.count(by=["sex", "region"]).subtotals("sex")]
        [(('female',), 4), (('male',), 4)]
        """
        names, groups = [by] if isinstance(by, str) else list(by), self.columns[:-3]
        for name in names:
            if name not in groups or names.count(name) > 1:
                raise ParameterError("by", name, "a group column of the table, named once: " + ", ".join(groups))
        parts = self.grid.split([groups.index(name) for name in names])
        return [(place, self._sum(self.released[cells])) for place, cells in parts]

    @property
    def sum_margins(self) -> dict[int, int]:
        """For every number of cells that a subtotal can have: the 95 % margin of a sum of that many cells."""
        return {size: self._margin_of_sum(size) for size in sorted(self.grid.sum_sizes())}

    def _margin_of_sum(self, cells: int) -> int:
        if self.intervals is not None:
            return min(self.intervals.of_sum(cells), cells * self.worst_error)
        if cells not in self.stated_margins:
            raise ServiceError("this service is an older version, which does not state the margins of subtotals")
        return self.stated_margins[cells]

    def _sum(self, cells: Ints) -> Total:
        value = sum(cells.tolist()) if len(cells) < 1000 else int(cells.astype(object).sum())
        counted = "" if self.truth is None else self.truth.describe_sum(len(cells))
        note = f"{AGREE}; {counted}" if counted else CONSISTENT
        return Total(value, len(cells), self._margin_of_sum(len(cells)), len(cells) * self.worst_error, note)

    def describe(self) -> dict[str, Any]:
        """The table as plain JSON values."""
        return {
            "schema_version": 1,
            "columns": self.columns,
            "rows": [[v if isinstance(v, str | int | bool) else str(v) for v in row] for row in self.rows],
            "margin_95": self.margin_95,
            "worst_error": self.worst_error,
            "truth": None if self.truth is None else dict(vars(self.truth)),
            "total": dict(vars(self.total())),
            "receipt": asdict(self.receipt),
            "replayed": self.replayed,
        }


def _ends(row: tuple[Any, ...]) -> tuple[float, float, float]:
    """The low end, the count and the high end of a row."""
    return float(row[-2]), float(row[-3]), float(row[-1])


def make_table(
    question: Question,
    released: Ints,
    intervals: Intervals,
    receipt: Receipt,
    replayed: bool,
    kind: FrameKind | None = None,
) -> Table:
    """Make the table of a question from its released counts, which are in the order of the question's axes."""
    shown, mechanism = question.shown, intervals.mechanism
    grid, released = lay_out(question, released)
    groups, ends = [column.name for column in shown], [f"{question.name}_low", f"{question.name}_high"]
    while {group.casefold() for group in groups} & {end.casefold() for end in ends}:
        ends = [f"{end}_95" for end in ends]
    return Table(
        [*groups, question.name, *ends],
        [*(column.label_kind for column in shown), "integer", "integer", "integer"],
        grid.labels,
        released,
        *intervals.of(released),
        mechanism.margin_95,
        mechanism.certificate.worst_error,
        receipt,
        replayed,
        kind,
        intervals,
        truth=question.truth,
        axes=grid.axes,
        declared=shown,
    )


def make_dry_run(
    question: Question,
    pool: str,
    grade: str,
    grades: tuple[GradeBudget, ...],
    intervals: Intervals,
    found: Charge | None,
) -> DryRun:
    """Make the dry run of a question in a grade. `found` is the question's charge in that grade, if it was asked
    before."""
    mechanism = intervals.mechanism
    worst, useful = mechanism.certificate.worst_error, max(1, 10 * mechanism.margin_95)
    truth = question.truth
    summed = truth.describe_sum(question.cells)
    sums = bias_of_sum(mechanism, question.cells, can_ask_total=not summed)
    meant = "count within these bounds" if truth.bounded else "truth"
    notes = [
        f"within {mechanism.margin_95} of the {meant} in 95 % of releases, never more than {worst} away",
        f"counts from about {useful} {truth.counted} on are right to 10 %",
    ]
    if question.cells > 1:
        margin = min(intervals.of_sum(question.cells), question.cells * worst)
        meant = "sum of the counts that the cells are for" if summed else meant
        notes.append(f"the sum of all cells is free, and within {margin} of the {meant} in 95 % of releases")
        notes += [summed] if summed else []
        notes.append(sums.note)
    if found is not None:
        ready = "the answer is on the record" if found.payload is not None else "it is paid for, not yet answered"
        notes.append(f"asked before: {ready}, and free")
    if question.cells > MOST_COLLECTED:
        notes.append("too large to collect: count_to_parquet(..., output=...) writes it to files")
    if question.never:
        notes.append("no declared value satisfies the condition: the answer would be noise around zero")
    return DryRun(
        question.sha256,
        question.text,
        question.schema.name,
        pool,
        question.cells,
        0 if found is not None else 1,
        sum(each.answers_left for each in grades if each.name == grade),
        mechanism.margin_95,
        worst,
        decimal_text(mechanism.eta, 6),
        useful,
        decimal_text(sums.largest, 6, "up"),
        tuple(notes),
        grade,
        grades,
        truth,
    )


def choose_frame_kind() -> FrameKind:
    """The kind of frame if the caller names none: the first library that is installed."""
    for kind in KINDS:
        if find_spec(kind):
            return kind
    raise MissingExtraError("pandas, polars or pyarrow, for a frame (table.rows needs none of them),", "parquet")


def check_kind(kind: object) -> None:
    """Raise an error if a kind of frame is not known or not installed."""
    if kind not in KINDS:
        raise ParameterError("frame", kind, "one of " + ", ".join(KINDS))
    if not find_spec(str(kind)):
        if kind == "pyarrow":
            raise MissingExtraError("pyarrow", "parquet")
        raise EngineError(f"{kind} is not installed; run: pip install {kind}")


def kind_of(frame: object) -> FrameKind | None:
    """The library of a frame in memory; None if results cannot be frames of that library."""
    library = type(frame).__module__.split(".")[0]
    return next((kind for kind in KINDS if kind == library), None)


def check_collectable(question: Question, workers: bool = False) -> None:
    """Raise an error if a table is too large for one process, unless the engine has workers that can write it."""
    if question.cells > MOST_COLLECTED and not workers:
        raise RequestError(
            f"a table of {question.cells:,} cells is too large to collect (at most {MOST_COLLECTED:,} cells); "
            "in Spark, count_to_parquet(..., output=...) writes it to files"
        )
