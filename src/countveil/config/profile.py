"""`countveil inspect`: how the data fits what was declared. For the curator's eyes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from countveil.config import Dataset
from countveil.engines import SqlEngine, open_engine
from countveil.engines.survey import ColumnSurvey, PeopleSurvey, count_rows, survey_column, survey_people
from countveil.errors import EngineError


@dataclass(frozen=True)
class Inspection:
    """What was found in the source of one dataset; `undeclared` are columns that nobody can ask about."""

    dataset: str
    rows: int
    columns: tuple[ColumnSurvey, ...]
    people: PeopleSurvey | None
    undeclared: tuple[str, ...]
    guessed: tuple[str, ...]
    notes: tuple[str, ...]

    def describe(self) -> dict[str, object]:
        """As plain JSON values."""
        columns = [asdict(c) | {"outside": c.outside, "examples": [list(e) for e in c.examples]} for c in self.columns]
        names = {name: list(getattr(self, name)) for name in ("undeclared", "guessed", "notes")}
        return {"schema_version": 1, **asdict(self), "columns": columns, **names}


def inspect(dataset: Dataset) -> Inspection:
    """Look at the source of a dataset; a source without a declared column is a DataError."""
    schema = dataset.schema
    engine = open_engine(dataset.source, schema, dataset.engine)
    if not isinstance(engine, SqlEngine):
        raise EngineError("source: this engine cannot be inspected")
    try:
        columns = tuple(survey_column(engine, column) for column in schema.columns)
        people = None if schema.unit_is_row else survey_people(engine, schema)
        declared = {column.name for column in schema.columns} | {schema.unit}
        undeclared = tuple(name for name in engine.columns() if name not in declared)
        rows = columns[0].rows if columns else count_rows(engine)
    finally:
        engine.close()
    guessed = tuple(column.name for column in schema.columns if column.guessed)
    return Inspection(schema.name, rows, columns, people, undeclared, guessed, tuple(_notes(dataset, columns, people)))


def _notes(dataset: Dataset, columns: tuple[ColumnSurvey, ...], people: PeopleSurvey | None) -> list[str]:
    notes = [
        f"{column.name}: {_rows(column.outside)} outside the domain; no question on it counts them"
        for column in columns
        if column.outside
    ]
    if people is not None and people.unnamed:
        notes.append(f"{_rows(people.unnamed)} without a person in {dataset.schema.unit}; never counted")
    if people is not None and people.over:
        bound = dataset.schema.rows_per_person * dataset.schema.cells_per_person
        notes.append(f"people with more than {_rows(bound)}: {people.over}; what is above the bounds is not counted")
    if dataset.budget is None:
        notes.append("no budget is declared, so nothing will be answered")
    return notes


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
