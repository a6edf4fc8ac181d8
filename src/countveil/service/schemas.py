"""Request and response bodies, as the OpenAPI document shows them. Responses extend the types of `curator`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from countveil.curator import receipts, results
from countveil.curator.summaries import DatasetSummary, HistoryEntry
from countveil.design.request import DesignMethod, DesignObjective
from countveil.mechanism.certificate import Policy
from countveil.publication.editions import PublicationSummary
from countveil.query.truth import Truth
from countveil.service.publications import FILE_PATTERN, NAME_PATTERN

TEXT = r"^[^\x00]+$"
DECIMAL = r"^[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?$"
VISIBLE = r"^[!-~]+$"
RECEIPT = f"^{receipts.RECEIPT}$"
WORDS = {
    TEXT: "text without NUL characters",
    DECIMAL: "a number as text, such as 1, 0.5 or 1e-6",
    VISIBLE: "visible ASCII characters without spaces",
    RECEIPT: "the 24 hexadecimal digits of a receipt",
    NAME_PATTERN: "the name of a publication",
    FILE_PATTERN: "the name of a file, as the manifest gives it",
}
"""What each pattern allows, in words, for error messages."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=TEXT)]
Short = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=TEXT)]
Decimal = Annotated[
    str,
    StringConstraints(max_length=40, pattern=DECIMAL),
    Field(examples=["1"], description="A decimal number as text: privacy parameters are exact."),
]


def _to_list(value: object) -> object:
    """Turn a single name into a list with this name; leave other values unchanged."""
    if not isinstance(value, str | list):
        raise ValueError("give the name of a column or a list of names")
    return [value] if isinstance(value, str) else value


def _allow_one(schema: dict[str, Any]) -> None:
    """Show in the OpenAPI document that a single entry may be given in place of a list."""
    array = {name: schema.pop(name) for name in ("type", "items", "maxItems")}
    schema["anyOf"] = [array["items"], array]


class Strict(BaseModel):
    """A request body in which unknown members are refused and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(Strict):
    """A question. Give `sql`, or `dataset` with the other members."""

    sql: Text | None = Field(None, examples=["SELECT region, count(*) FROM people GROUP BY region"])
    dataset: Short | None = None
    by: Annotated[list[Short], BeforeValidator(_to_list), Field(max_length=64, json_schema_extra=_allow_one)] = Field(
        [], description="Group columns: a list, or the name of one."
    )
    where: Text | None = Field(None, examples=["age >= 65"], description="A condition in the query language.")
    people: bool = Field(False, description="Count people instead of rows.")
    name: Short | None = Field(None, description="The name of the count in the answer.")
    grade: Short | None = Field(
        None, description="The grade that pays. Without it: an answer on record, or the pool's default grade."
    )


class Design(Strict):
    """Give some of epsilon, delta, eta and D: the others are computed."""

    epsilon: Decimal | None = None
    delta: Decimal | None = None
    eta: Decimal | None = None
    D: Annotated[int, Field(ge=1, le=20_000)] | None = None
    policy: Policy = "nonnegative"
    unbiased_from: Annotated[int, Field(ge=0, le=20_000)] | None = None
    method: DesignMethod = "auto"
    objective: DesignObjective = "delta"
    max_variance: Decimal | None = None
    sensitivity: Annotated[int, Field(ge=1, le=20)] = 1


class Compare(Strict):
    """Terms that all mechanisms share: epsilon and delta, or one of these two with a variance or with eta and D."""

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
    position: int | None = Field(None, description="The position in the query, counted from 1.")
    pool: str | None = Field(None, description="The pool whose budget is spent.")
    answers: int | None = Field(None, description="How many answers the pool, grade or share had.")
    grade: str | None = Field(None, description="The grade that is spent, if the pool has several.")


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: Error


class Datasets(BaseModel):
    schema_version: int
    datasets: list[DatasetSummary]


@dataclass(frozen=True, kw_only=True)
class DryRunResponse(results.DryRun):
    schema_version: int


class TableResponse(BaseModel):
    schema_version: int
    columns: list[str]
    kinds: list[Literal["text", "integer", "boolean", "date"]]
    rows: list[list[Any]]
    margin_95: int
    worst_error: int
    truth: Truth = Field(description="What is counted, and what the intervals are for.")
    total: results.Total
    receipt: receipts.Receipt
    replayed: bool
    axes: list[int] = Field(
        description="The axis of each group column: columns of one axis have only the combinations that exist."
    )
    sum_margins: dict[int, int] = Field(
        description="The 95 % margin of a sum by its number of cells, for every subtotal."
    )


class GradeShare(BaseModel):
    answers: int
    left: int


class ShareResponse(BaseModel):
    answers: int
    left: int
    grades: dict[str, GradeShare]


@dataclass(frozen=True)
class Pool(receipts.PoolBudget):
    answers_left: int = field(metadata={"description": "Answers that the holder of this key can still ask for."})
    shares: dict[str, ShareResponse] | None = field(  # type: ignore[assignment]
        default=None, metadata={"description": "For curators."}
    )


class BudgetResponse(BaseModel):
    schema_version: int
    pools: list[Pool]


class History(BaseModel):
    schema_version: int
    asked: list[HistoryEntry]


class Publications(BaseModel):
    schema_version: int
    publications: list[PublicationSummary]


class ReceiptDocument(BaseModel):
    schema_version: int
    receipt: receipts.Receipt
    analyst: str
    answered: bool


class Verified(BaseModel):
    schema_version: int
    holds: bool
    entries: int


class Health(BaseModel):
    status: str
