"""`countveil inspect`: how the data fits the declared schema. The results reveal data: for the curator only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

from countveil.config.bounds import NO_NOISE, BoundsTable, PlannedAnswers, choose_tables, compare_bounds
from countveil.config.configuration import Dataset
from countveil.data.engines import open_engine
from countveil.data.survey import (
    ColumnSurvey,
    PeopleSurvey,
    count_impossible,
    count_rows,
    survey_column,
    survey_people,
)
from countveil.errors import ParameterError


@dataclass(frozen=True)
class Inspection:
    """The survey of one dataset's source. `undeclared` lists the columns of the source that nobody can ask about."""

    dataset: str
    rows: int
    columns: tuple[ColumnSurvey, ...]
    people: PeopleSurvey | None
    undeclared: tuple[str, ...]
    guessed: tuple[str, ...]
    notes: tuple[str, ...]
    bounds: BoundsTable | None = None
    """A comparison of contribution bounds; None if every row is one person."""
    impossible: int | None = None
    """How many rows have only declared values but are in no possible cell; None if possible cells are not listed."""

    def describe(self) -> dict[str, object]:
        """The inspection as plain JSON values."""
        columns = [asdict(c) | {"outside": c.outside, "examples": [list(e) for e in c.examples]} for c in self.columns]
        names = {name: list(getattr(self, name)) for name in ("undeclared", "guessed", "notes")}
        bounds = None if self.bounds is None else self.bounds.describe()
        facts = asdict(replace(self, bounds=None))
        return {"schema_version": 1, **facts, "columns": columns, **names, "bounds": bounds}


def inspect(dataset: Dataset, by: Sequence[str] = ()) -> Inspection:
    """Survey the source of a dataset; raises DataError if the source lacks a declared column.

    Contribution bounds are compared in some tables; each string of `by` names the columns of one of them, see
    `choose_tables`.
    """
    schema = dataset.schema
    engine = open_engine(dataset.source, schema)
    try:
        columns = tuple(survey_column(engine, column) for column in schema.columns)
        people = None if schema.unit_is_row else survey_people(engine, schema)
        declared = {column.name for column in schema.sources} | {schema.unit}
        undeclared = tuple(name for name in engine.columns() if name not in declared)
        rows = columns[0].rows if columns else count_rows(engine)
        impossible = count_impossible(engine, schema)
        bounds = None
        if not schema.unit_is_row:
            tables = choose_tables(schema.columns, by)
            enforced = schema.rows_per_person, schema.cells_per_person
            bounds = compare_bounds(engine, schema.unit, tables, rows, _plan_answers(dataset), enforced)
        elif by:
            raise ParameterError("by", by[0], "nothing", "every row is one person, so no bounds leave rows out")
    finally:
        engine.close()
    guessed = tuple(column.name for column in schema.columns if column.guessed)
    notes = _notes(dataset, columns, people)
    if impossible:
        listed = "the list of possible cells"
        notes.insert(0, f"{_rows(impossible)} in no possible cell; no table by all columns of {listed} counts them")
    return Inspection(schema.name, rows, columns, people, undeclared, guessed, tuple(notes), bounds, impossible)


def _plan_answers(dataset: Dataset) -> PlannedAnswers | None:
    """The answers that the budget of a dataset plans; None if it has no budget."""
    budget, near = dataset.budget, dataset.schema.neighbours
    if budget is None:
        return None
    return PlannedAnswers(float(Fraction(budget.epsilon)), float(Fraction(budget.delta)), budget.answers, near)


def _notes(dataset: Dataset, columns: tuple[ColumnSurvey, ...], people: PeopleSurvey | None) -> list[str]:
    notes = [
        f"{column.name}: {_rows(column.outside)} outside the domain; no question on this column counts them"
        for column in columns
        if column.outside
    ]
    if people is not None and people.unnamed:
        why = "an id is a text or a whole number, in a frame or a float below 2^53: store large ids as text"
        notes.append(f"{_rows(people.unnamed)} without a person in column {dataset.schema.unit}; never counted; {why}")
    if people is not None and people.over:
        bound = dataset.schema.rows_per_person * dataset.schema.cells_per_person
        notes.append(f"people with more than {_rows(bound)}: {people.over}; rows above the bounds are not counted")
    if dataset.bounds_guessed:
        notes.append("the bounds are guessed: confirm them in the file, then remove bounds_guessed = true")
    if dataset.budget is None:
        notes.append("no budget is declared, so nothing will be answered")
        notes += [] if dataset.schema.unit_is_row else [NO_NOISE]
    return notes


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
