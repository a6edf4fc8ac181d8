"""What comes back: a table of released counts with margins, a receipt, dry runs, budgets. Only y and public facts."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from countveil.errors import EngineError, MissingExtraError, ParameterError, RequestError, ServiceError
from countveil.exact import decimal_text
from countveil.intervals import Intervals, Ints
from countveil.ledger import Charge, PlanRecord, Standing
from countveil.mechanism import Mechanism
from countveil.query import Question
from countveil.sampling.entropy import Key
from countveil.sum_bias import bias_of_sum

MOST_COLLECTED = 20_000_000
"""Cells of the largest table that is collected."""
KINDS = ("pandas", "polars", "pyarrow")
CONSISTENT = (
    "sums of released cells: parts and totals agree by construction; a total that is asked for and paid for on its own "
    "is more accurate, and need not agree with its parts"
)
EPSILON = {"description": "A number, or what begins with unknown after history was lost."}
LOST = {"description": "Answers that lost history may have given beyond these, and epsilon covers; null: nobody knows."}
"""Words about members of results, which the service's OpenAPI document shows."""


@dataclass(frozen=True)
class Receipt:
    """What was paid for: enough to check the promise, nothing about the data."""

    id: str
    dataset: str
    version: int
    question: str
    text: str
    mechanism: str
    pool: str
    epsilon: str = field(metadata=EPSILON)
    delta: str
    answers: int
    answers_left: int
    time: str
    answers_lost: int | None = field(default=0, metadata=LOST)


@dataclass(frozen=True)
class DryRun:
    """What a question would cost and give. Spends nothing, looks at nothing."""

    question: str
    text: str
    dataset: str
    pool: str
    cells: int
    cost: int
    answers_left: int
    margin_95: int
    worst_error: int
    eta: str
    useful_from: int
    sum_bias: str
    """The most that the sum of all cells can be off on average: where they are all small."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PoolBudget:
    """What is left of a pool."""

    pool: str
    datasets: tuple[str, ...]
    answers_total: int
    answers_left: int
    epsilon: str = field(metadata=EPSILON)
    delta: str
    mechanism: str
    margin_95: int
    shares: Mapping[str, Standing]
    answers_lost: int | None = field(default=0, metadata=LOST)
    notes: tuple[str, ...] = field(default=(), metadata={"description": "What was decided after answers were seen."})


@dataclass(frozen=True)
class Total:
    """A sum of released cells: right within `margin_95` in 95 % of releases, and within `worst_error` always."""

    value: int
    cells: int
    margin_95: int
    worst_error: int
    note: str = CONSISTENT


@dataclass(frozen=True)
class Table:
    """Released counts of every cell of a question, as a Curator or a service gave them.

    The cells are all combinations of the labels of the group columns, in order, the last column changing fastest.
    """

    columns: list[str]
    """Group columns, the count, and the ends of its 95 % interval."""
    kinds: list[str]
    """Of the values of each column: text, integer, boolean or date."""
    labels: tuple[list[Any], ...] = field(repr=False)
    """Of each group column."""
    released: Ints = field(repr=False)
    low: Ints = field(repr=False)
    high: Ints = field(repr=False)
    margin_95: int
    worst_error: int
    receipt: Receipt
    replayed: bool
    kind: str | None = None
    """Of the frame that the caller wants."""
    intervals: Intervals | None = field(default=None, repr=False)
    """Of the mechanism that answered. A service keeps it, and states the margins of sums instead."""
    stated_margins: Mapping[int, int] = field(default_factory=dict, repr=False)

    @property
    def mechanism(self) -> Mechanism:
        if self.intervals is None:
            raise ServiceError("a service does not send its mechanism; the receipt has the hash of it")
        return self.intervals.mechanism

    @property
    def cells(self) -> int:
        return len(self.released)

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The cells as plain values: labels, count, low, high."""
        counts = (self.released.tolist(), self.low.tolist(), self.high.tolist())
        for place, *cell in zip(product(*self.labels), *counts, strict=True):
            yield (*place, *cell)

    @cached_property
    def frame(self) -> Any:
        """The table as a frame of the kind that was asked for, of the source's kind, or of what is installed."""
        return self.to(self.kind or installed())

    def to(self, kind: Any) -> Any:
        """The table as a pandas, polars or pyarrow frame."""
        import narwhals as nw

        check_kind(kind)
        data: dict[str, Any] = {}
        for i, (name, labels) in enumerate(zip(self.columns, self.labels, strict=False)):
            keys = np.arange(self.cells) // math.prod(map(len, self.labels[i + 1 :])) % len(labels)
            data[name] = nw.new_series(name, labels, backend=kind)[keys]
        for name, values in zip(self.columns[-3:], (self.released, self.low, self.high), strict=True):
            data[name] = nw.new_series(name, values, backend=kind)
        return nw.from_dict(data, backend=kind).to_native()

    def total(self) -> Total:
        """The sum of all cells, free: nothing new is asked of the data."""
        return self._sum(self.released)

    def subtotals(self, by: str | Sequence[str]) -> list[tuple[tuple[Any, ...], Total]]:
        """Sums over all group columns but these, free; each with the error that the sum has."""
        names, groups = [by] if isinstance(by, str) else list(by), self.columns[:-3]
        for name in names:
            if name not in groups or names.count(name) > 1:
                raise ParameterError("by", name, "group columns of the table: " + ", ".join(groups))
        kept = [groups.index(name) for name in names]
        cube = np.moveaxis(self.released.reshape([len(each) for each in self.labels]), kept, range(len(kept)))
        places = product(*(self.labels[i] for i in kept))
        parts = cube.reshape(math.prod(cube.shape[: len(kept)]), -1)
        return [(place, self._sum(part)) for place, part in zip(places, parts, strict=True)]

    @property
    def sum_margins(self) -> dict[int, int]:
        """The 95 % margin of a sum of so many cells, for every number of cells that a subtotal can have."""
        sizes = {1}
        for labels in self.labels:
            sizes |= {size * len(labels) for size in sizes}
        return {size: self._margin_of_sum(size) for size in sorted(sizes)}

    def _margin_of_sum(self, cells: int) -> int:
        if self.intervals is not None:
            return min(self.intervals.of_sum(cells), cells * self.worst_error)
        if cells not in self.stated_margins:
            raise ServiceError("this service does not state the margins of subtotals; it is of an older version")
        return self.stated_margins[cells]

    def _sum(self, cells: Ints) -> Total:
        value = sum(cells.tolist()) if len(cells) < 1000 else int(cells.astype(object).sum())
        return Total(value, len(cells), self._margin_of_sum(len(cells)), len(cells) * self.worst_error)

    def describe(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "schema_version": 1,
            "columns": self.columns,
            "rows": [[v if isinstance(v, str | int | bool) else str(v) for v in row] for row in self.rows],
            "margin_95": self.margin_95,
            "worst_error": self.worst_error,
            "total": dict(vars(self.total())),
            "receipt": dict(vars(self.receipt)),
            "replayed": self.replayed,
        }


def make_table(
    question: Question,
    released: Ints,
    intervals: Intervals,
    receipt: Receipt,
    replayed: bool,
    kind: str | None = None,
) -> Table:
    """The table of a question from its released counts, which are in the order of the declared columns."""
    shown, mechanism = question.shown, intervals.mechanism
    axes = [question.by.index(column) for column in shown]
    released = np.ascontiguousarray(released.reshape(question.shape).transpose(axes)).reshape(-1)
    groups, ends = [column.name for column in shown], [f"{question.name}_low", f"{question.name}_high"]
    while {group.casefold() for group in groups} & {end.casefold() for end in ends}:
        ends = [f"{end}_95" for end in ends]
    return Table(
        [*groups, question.name, *ends],
        [*(column.kind if column.step == 1 else "text" for column in shown), "integer", "integer", "integer"],
        tuple(column.key_labels() for column in shown),
        released,
        *intervals.of(released),
        mechanism.margin_95,
        mechanism.certificate.worst_error,
        receipt,
        replayed,
        kind,
        intervals,
    )


def make_dry_run(
    question: Question, record: PlanRecord, intervals: Intervals, found: Charge | None, left: int
) -> DryRun:
    """The dry run of a question, given its charge if it was asked before and the answers that are left."""
    mechanism = intervals.mechanism
    worst, useful = mechanism.certificate.worst_error, max(1, 10 * mechanism.margin_95)
    sums = bias_of_sum(mechanism, question.cells)
    notes = [
        f"within {mechanism.margin_95} of the truth in 95 % of releases, never more than {worst} away",
        f"counts from about {useful} people on are right to 10 %",
    ]
    if question.cells > 1:
        margin = min(intervals.of_sum(question.cells), question.cells * worst)
        notes.append(f"the sum of all cells is free, and within {margin} of the truth in 95 % of releases")
        notes.append(sums.note)
    if found is not None:
        ready = "the answer is on the record" if found.payload is not None else "it is paid for, not yet answered"
        notes.append(f"asked before: {ready}, and free")
    if question.cells > MOST_COLLECTED:
        notes.append("too large to collect: release(..., output=...) writes it to files")
    if question.never:
        notes.append("no declared value satisfies the condition: the answer would be noise around zero")
    return DryRun(
        question.sha256,
        question.text,
        question.schema.name,
        record.pool,
        question.cells,
        0 if found is not None else 1,
        left,
        mechanism.margin_95,
        worst,
        decimal_text(mechanism.eta, 6),
        useful,
        decimal_text(sums.largest, 6, "up"),
        tuple(notes),
    )


def installed() -> str:
    """The kind of frame for callers who named none."""
    return next((kind for kind in KINDS if find_spec(kind)), "pyarrow")


def check_kind(kind: object) -> None:
    """Refuse a kind of frame that is not known or not installed."""
    if kind not in KINDS:
        raise ParameterError("frame", kind, "one of " + ", ".join(KINDS))
    if not find_spec(str(kind)):
        if kind == "pyarrow":
            raise MissingExtraError("pyarrow", "parquet")
        raise EngineError(f"{kind} is not installed; run: pip install {kind}")


def kind_of(frame: object) -> str | None:
    """The library a frame in memory comes from, if answers can be frames of it."""
    kind = type(frame).__module__.split(".")[0]
    return kind if kind in KINDS else None


# -- counts on their way to the record and back ------------------------------------------------------------------------


def check_collectable(question: Question, workers: bool = False) -> None:
    """Refuse a table that is too large for one process, unless the engine has workers that can write it."""
    if question.cells > MOST_COLLECTED and not workers:
        raise RequestError(
            f"a table of {question.cells:,} cells is too large to collect, {MOST_COLLECTED:,} can be; "
            "in Spark, release(..., output=...) writes it to files"
        )


def draw_counts(mechanism: Mechanism, counts: Ints, cells: int) -> Ints:
    """The release of an engine's counts, one draw a cell, with a fresh key that is used once and forgotten."""
    whole = isinstance(counts, np.ndarray) and counts.dtype == np.int64 and counts.shape == (cells,)
    if not whole or (len(counts) and not 0 <= counts.min() <= counts.max() <= mechanism.largest_count):
        raise EngineError("the engine returned what cannot be counts; the charge is kept")
    return mechanism.sampler.release(np.ascontiguousarray(counts), Key())


def pack_counts(released: Ints) -> bytes:
    """Released counts as the ledger keeps them."""
    return zlib.compress(released.astype("<i8").tobytes(), 1)


def unpack_counts(payload: bytes | None, cells: int) -> Ints:
    """Released counts from the record."""
    check_inline(payload)
    counts = np.frombuffer(zlib.decompress(payload or b""), dtype="<i8").astype(np.int64)
    if len(counts) != cells:
        raise EngineError("the recorded answer does not fit the question; verify the ledger")
    return counts


def is_manifest(payload: bytes) -> bool:
    """Whether a recorded answer is the manifest of files: see `releases`."""
    return payload.startswith(b"{")


def check_inline(payload: bytes | None) -> None:
    """Refuse an answer that is in files."""
    if payload is not None and is_manifest(payload):
        folder = json.loads(payload)["folder"]
        raise RequestError(f"this question is answered by the files of {folder}; ask with release(..., output=...)")
