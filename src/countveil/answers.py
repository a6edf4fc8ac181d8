"""What comes back: a table of released counts with margins, a receipt, budgets. Only y and public facts are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import EngineError, MissingExtraError, ParameterError
from countveil.intervals import Intervals
from countveil.ledger import Standing
from countveil.mechanism import Mechanism
from countveil.query import Question
from countveil.schema import Column

KINDS = ("pandas", "polars", "pyarrow")
CONSISTENT = (
    "sums of released cells: parts and totals agree by construction; a total that is asked for and paid for on its own "
    "is more accurate, and need not agree with its parts"
)


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
    epsilon: str
    delta: str
    answers: int
    answers_left: int
    time: str
    answers_lost: int | None = 0
    """Answers that lost history may have given beyond these, and epsilon covers; None: nobody knows how many."""


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
    epsilon: str
    delta: str
    mechanism: str
    margin_95: int
    shares: Mapping[str, Standing]
    answers_lost: int | None = 0
    """Answers that lost history may have given beyond these, and epsilon covers; None: nobody knows how many."""
    notes: tuple[str, ...] = ()
    """What was decided after answers were seen."""


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
    """Released counts of every cell of a question, in the declared order."""

    question: Question
    released: NDArray[np.int64]
    intervals: Intervals
    receipt: Receipt
    replayed: bool
    kind: str | None = None

    @property
    def mechanism(self) -> Mechanism:
        return self.intervals.mechanism

    @property
    def cells(self) -> int:
        return self.question.cells

    @property
    def margin_95(self) -> int:
        return self.mechanism.margin_95

    @property
    def worst_error(self) -> int:
        return self.mechanism.certificate.worst_error

    @cached_property
    def _shown(self) -> NDArray[np.int64]:
        """The cells in the order of the columns as they were asked for."""
        question = self.question
        if question.shown == question.by:
            return self.released
        axes = [question.by.index(column) for column in question.shown]
        return np.ascontiguousarray(self.released.reshape(question.shape).transpose(axes)).reshape(-1)

    @property
    def columns(self) -> list[str]:
        """Group columns, the count, and the ends of its 95 % interval."""
        groups, name = [column.name for column in self.question.shown], self.question.name
        taken, ends = {group.casefold() for group in groups}, [f"{name}_low", f"{name}_high"]
        while taken & {end.casefold() for end in ends}:
            ends = [f"{end}_95" for end in ends]
        return [*groups, name, *ends]

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The cells as plain values: labels, count, low, high."""
        labels = [column.key_labels() for column in self.question.shown]
        low, high = self.intervals.of(self._shown)
        for place, *cell in zip(product(*labels), self._shown.tolist(), low.tolist(), high.tolist(), strict=True):
            yield (*place, *cell)

    def _keys(self, i: int) -> NDArray[np.int64]:
        """Which key of the i-th shown column each cell has."""
        sizes = [column.keys for column in self.question.shown]
        after = int(np.prod(sizes[i + 1 :], dtype=np.int64))
        before = int(np.prod(sizes[:i], dtype=np.int64))
        return np.tile(np.repeat(np.arange(sizes[i]), after), before)

    @cached_property
    def frame(self) -> Any:
        """The table as a frame of the caller's kind: the kind of the source, or what is installed."""
        return self.to(self.kind or installed())

    def to(self, kind: Any) -> Any:
        """The table as a pandas, polars or pyarrow frame."""
        import narwhals as nw

        check_kind(kind)
        low, high = self.intervals.of(self._shown)
        data: dict[str, Any] = {}
        for i, column in enumerate(self.question.shown):
            labels = nw.new_series(column.name, column.key_labels(), backend=kind)
            data[column.name] = labels[self._keys(i)]
        for name, values in zip(self.columns[-3:], (self._shown, low, high), strict=True):
            data[name] = nw.new_series(name, values, backend=kind)
        return nw.from_dict(data, backend=kind).to_native()

    def total(self) -> Total:
        """The sum of all cells, free: nothing new is asked of the data."""
        return self._sum(self.released)

    def subtotals(self, by: str | Sequence[str]) -> list[tuple[tuple[Any, ...], Total]]:
        """Sums over all group columns but these, free; each with the error that the sum has."""
        names = [by] if isinstance(by, str) else list(by)
        known = {column.name: i for i, column in enumerate(self.question.by)}
        for name in names:
            if name not in known or names.count(name) > 1:
                raise ParameterError("by", name, "group columns of the table: " + ", ".join(known))
        kept: list[Column] = [self.question.by[known[name]] for name in names]
        cube = self.released.reshape(self.question.shape)
        order = [known[name] for name in names] + [i for i in range(cube.ndim) if i not in {known[n] for n in names}]
        parts = cube.transpose(order).reshape(*(column.keys for column in kept), -1)
        labels = [column.key_labels() for column in kept]
        return [
            (tuple(labels[j][k] for j, k in enumerate(place)), self._sum(parts[place]))
            for place in np.ndindex(*(column.keys for column in kept))
        ]

    def _sum(self, cells: NDArray[np.int64]) -> Total:
        value = sum(cells.tolist()) if len(cells) < 1000 else int(cells.astype(object).sum())
        reach = self.worst_error
        return Total(value, len(cells), min(self.intervals.of_sum(len(cells)), len(cells) * reach), len(cells) * reach)

    def describe(self) -> dict[str, Any]:
        """As plain JSON values."""
        rows = plain(self.rows)
        return {
            "schema_version": 1,
            "columns": self.columns,
            "rows": rows,
            "margin_95": self.margin_95,
            "worst_error": self.worst_error,
            "total": dict(vars(self.total())),
            "receipt": dict(vars(self.receipt)),
            "replayed": self.replayed,
        }


def plain(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as JSON values: dates as text."""
    return [[v if isinstance(v, str | int | bool) else str(v) for v in row] for row in rows]


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
