"""Summaries for `datasets` and `history`: public facts of datasets, and charged questions. Nothing about the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from countveil.config.configuration import Dataset
from countveil.curator.receipts import EPSILON, GRADES, GradeBudget, PoolBudget
from countveil.display.cards import Card, Shown
from countveil.ledger import STANDARD, Charge
from countveil.mechanism.mechanism import Mechanism
from countveil.query.schema import Column


@dataclass(frozen=True, repr=False)
class ColumnSummary(Shown):
    """A declared column: its kind, and its declared values or range."""

    name: str
    kind: str
    keys: int = field(metadata={"description": "How many groups there are."})
    values: tuple[str | int | bool, ...] | None = field(
        default=None, metadata={"description": "The declared values, if they are listed."}
    )
    min: str | None = None
    max: str | None = None
    step: int | None = field(default=None, metadata={"description": "The width of a bin when grouped by this column."})
    labels: tuple[str, ...] | None = field(
        default=None, metadata={"description": "The texts that are shown in place of the values, if there are any."}
    )
    source: str | None = field(
        default=None, metadata={"description": "The column that this one is a function of, if it is derived."}
    )

    def _line(self) -> str:
        return f"{self.name}: {self.kind}, {self.keys} groups"


@dataclass(frozen=True)
class MechanismSummary:
    """The accuracy of a mechanism."""

    hash: str
    policy: str
    eta: str
    D: int
    margin_95: int
    worst_error: int


@dataclass(frozen=True, repr=False)
class DatasetSummary(Shown):
    """A dataset that answers questions: its public schema, its pool, and the mechanisms of its answers."""

    name: str
    unit: str
    rows_per_person: int
    cells_per_person: int
    neighbours: str
    max_cells: int
    columns: tuple[ColumnSummary, ...]
    pool: str
    answers_total: int
    epsilon: str = field(metadata=EPSILON)
    delta: str
    mechanism: MechanismSummary
    """The mechanism of the grade that pays for a question that names none."""
    grades: tuple[GradeBudget, ...] = field(default=(), metadata=GRADES)

    def _line(self) -> str:
        return f"{self.name}: {', '.join(column.name for column in self.columns)}"

    def _card(self) -> Card:
        bounds = f"{self.rows_per_person} rows in a cell, {self.cells_per_person} cells"
        facts = {"unit": self.unit, "one person adds at most": bounds, "pool": self.pool}
        rows = [(column.name, column.kind, column.keys) for column in self.columns]
        return Card(f"Dataset {self.name}", facts, "", ("column", "kind", "groups"), rows, len(rows))


@dataclass(frozen=True)
class HistoryEntry:
    """A question that was charged. `id` is the id of its receipt, and `answered` is the time of its answer."""

    id: str
    pool: str
    dataset: str
    version: int
    text: str
    analyst: str
    time: str
    answered: str | None
    grade: str = STANDARD


def summarise_dataset(dataset: Dataset, pool: PoolBudget, mechanism: Mechanism) -> DatasetSummary:
    """Summarise the public facts of a dataset, its pool and its mechanism."""
    schema = dataset.schema
    return DatasetSummary(
        schema.name,
        schema.unit,
        schema.rows_per_person,
        schema.cells_per_person,
        schema.neighbours,
        schema.max_cells,
        tuple(_summarise_column(column) for column in schema.columns),
        pool.pool,
        pool.answers_total,
        pool.epsilon,
        pool.delta,
        MechanismSummary(
            mechanism.hash,
            mechanism.policy,
            str(mechanism.describe()["eta"]),
            mechanism.D,
            mechanism.margin_95,
            mechanism.certificate.worst_error,
        ),
        pool.grades,
    )


def _summarise_column(column: Column) -> ColumnSummary:
    facts: dict[str, Any] = column.describe()
    values = facts.get("values")
    return ColumnSummary(
        column.name,
        column.kind,
        column.keys,
        None if values is None else tuple(values),
        facts.get("min"),
        facts.get("max"),
        facts.get("step"),
        column.labels or None,
        None if column.source is None else column.source.name,
    )


def summarise_charge(charge: Charge) -> HistoryEntry:
    """Make the history entry of a charge."""
    return HistoryEntry(
        charge.id,
        charge.pool,
        charge.dataset,
        charge.version,
        charge.text,
        charge.analyst,
        charge.time,
        charge.answered,
        charge.grade,
    )
