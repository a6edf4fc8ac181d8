"""What goes in and out over HTTP, as the OpenAPI document shows it. What goes out are the results of `answers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from countveil import answers

TEXT = r"^[^\x00]+$"
DECIMAL = r"^[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?$"
VISIBLE = r"^[!-~]+$"
RECEIPT = "^[0-9a-f]{24}$"
WORDS = {
    TEXT: "text without NUL characters",
    DECIMAL: "a number as text, such as 1, 0.5 or 1e-6",
    VISIBLE: "visible ASCII characters without spaces",
    RECEIPT: "the 24 hexadecimal digits of a receipt",
}
"""The patterns, for people."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=TEXT)]
Short = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=TEXT)]
Decimal = Annotated[
    str,
    StringConstraints(max_length=40, pattern=DECIMAL),
    Field(examples=["1"], description="A decimal number as text: privacy parameters are exact."),
]


def _listed(value: object) -> object:
    """One name is a list of one."""
    if not isinstance(value, str | list):
        raise ValueError("give the name of a column or a list of names")
    return [value] if isinstance(value, str) else value


def _or_one(schema: dict[str, Any]) -> None:
    """Say in the OpenAPI document that one entry of a list may stand for the list."""
    array = {name: schema.pop(name) for name in ("type", "items", "maxItems")}
    schema["anyOf"] = [array["items"], array]


class Strict(BaseModel):
    """Unknown members are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(Strict):
    """A question: SQL text, or the same as members. Give `sql`, or `dataset` with whatever it takes."""

    sql: Text | None = Field(None, examples=["SELECT region, count(*) FROM people GROUP BY region"])
    dataset: Short | None = None
    by: Annotated[list[Short], BeforeValidator(_listed), Field(max_length=64, json_schema_extra=_or_one)] = Field(
        [], description="Group columns: a list, or the name of one."
    )
    where: Text | None = Field(None, examples=["age >= 65"], description="A condition in the query language.")
    people: bool = Field(False, description="Count people instead of rows.")
    name: Short | None = Field(None, description="The name of the count in the answer.")


class Design(Strict):
    """What is given of epsilon, delta, eta and D: the rest is found."""

    epsilon: Decimal | None = None
    delta: Decimal | None = None
    eta: Decimal | None = None
    D: Annotated[int, Field(ge=1, le=20_000)] | None = None
    policy: Literal["nonnegative", "signed", "floor"] = "nonnegative"
    unbiased_from: Annotated[int, Field(ge=0, le=20_000)] | None = None
    method: Literal["auto", "paper", "optimal", "program", "remap"] = "auto"
    objective: Literal["delta", "singleton", "variance"] = "delta"
    max_variance: Decimal | None = None
    sensitivity: Annotated[int, Field(ge=1, le=20)] = 1


class Compare(Strict):
    """Terms that all mechanisms share: (epsilon, delta), one of them with a variance, or one with eta and D."""

    epsilon: Decimal | None = None
    delta: Decimal | None = None
    variance: Decimal | None = None
    eta: Decimal | None = None
    D: Annotated[int, Field(ge=1, le=300)] | None = None
    sensitivity: Annotated[int, Field(ge=1, le=5)] = 1
    mechanisms: Annotated[list[Short], Field(max_length=20)] | None = None


class Error(BaseModel):
    code: int = Field(description="The exit code of the command line: 1 to 6.")
    name: str
    position: int | None = Field(None, description="Where in the query, counted from 1.")
    pool: str | None = Field(None, description="The budget that is spent.")
    answers: int | None = Field(None, description="How many answers it had.")


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: Error


class Column(BaseModel):
    name: str
    kind: Literal["text", "integer", "boolean", "date"]
    values: list[str | int | bool] | None = Field(None, description="The declared values, if they are listed.")
    min: str | None = None
    max: str | None = None
    step: int | None = Field(None, description="The width of a bin when grouped by this column.")
    keys: int = Field(description="How many groups there are.")


class MechanismFacts(BaseModel):
    hash: str
    policy: str
    eta: str
    D: int
    margin_95: int
    worst_error: int


class Dataset(BaseModel):
    name: str
    unit: str
    rows_per_person: int
    cells_per_person: int
    neighbours: str
    max_cells: int
    columns: list[Column]
    pool: str
    answers_total: int
    epsilon: str = Field(description=answers.EPSILON["description"])
    delta: str
    mechanism: MechanismFacts


class Datasets(BaseModel):
    schema_version: int
    datasets: list[Dataset]


@dataclass(frozen=True, kw_only=True)
class DryRun(answers.DryRun):
    schema_version: int


class Table(BaseModel):
    schema_version: int
    columns: list[str]
    kinds: list[Literal["text", "integer", "boolean", "date"]]
    rows: list[list[Any]]
    margin_95: int
    worst_error: int
    total: answers.Total
    receipt: answers.Receipt
    replayed: bool
    sum_margins: dict[int, int] = Field(description="The 95 % margin of a sum of so many cells, for every subtotal.")


class Share(BaseModel):
    answers: int
    left: int


@dataclass(frozen=True)
class Pool(answers.PoolBudget):
    answers_left: int = field(metadata={"description": "What the holder of this key can still ask for."})
    shares: dict[str, Share] | None = field(  # type: ignore[assignment]
        default=None, metadata={"description": "For curators."}
    )


class Budget(BaseModel):
    schema_version: int
    pools: list[Pool]


class Asked(BaseModel):
    id: str
    pool: str
    dataset: str
    version: int
    text: str
    analyst: str
    time: str
    answered: str | None


class History(BaseModel):
    schema_version: int
    asked: list[Asked]


class ReceiptDocument(BaseModel):
    schema_version: int
    receipt: answers.Receipt
    analyst: str
    answered: bool


class Verified(BaseModel):
    schema_version: int
    holds: bool
    entries: int


class Health(BaseModel):
    status: str
