"""What every SQL engine shares: check the columns, run the generated statement, complete the cells with zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from countveil.engines.dialect import UNITS, Dialect, Family, check_readable
from countveil.engines.statement import Compiler, Statement
from countveil.errors import DataError
from countveil.query import Question
from countveil.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SqlEngine:
    """An engine that speaks SQL; a subclass opens the source and implements `columns` and `run`."""

    dialect: Dialect
    relation: str
    garbled: str | None = None
    """What the source puts in the place of text that cannot be read; people named with it are not counted."""

    def columns(self) -> Mapping[str, Family]:
        """The source's columns and the families of their types."""
        raise NotImplementedError

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        """The columns of a statement's result; every fault is an EngineError with a fixed text."""
        raise NotImplementedError

    def close(self) -> None:
        """Let the source go."""

    def describe(self) -> Mapping[str, str]:
        return self.columns()

    def compiler(self) -> Compiler:
        return Compiler(self.dialect, self.relation, self.columns(), self.garbled)

    def check(self, schema: Schema) -> None:
        check_columns(schema, self.columns())

    def count(self, question: Question, *, key: bytes) -> NDArray[np.int64]:
        """The true count of every cell."""
        import numpy as np

        found = self.run(self.compiler().count(question, key.hex()))
        counts = np.zeros(question.cells, dtype=np.int64)
        counts[found["cell"].astype(np.int64)] = found["n"].astype(np.int64)
        return counts


def check_columns(schema: Schema, families: Mapping[str, Family]) -> None:
    """Refuse a source that lacks a declared column or holds a type that cannot be read as declared."""
    for column in schema.columns:
        if column.name not in families:
            raise DataError(f"column {column.name} is declared, but the source has no column of that name")
        check_readable(column, families[column.name])
    if schema.unit_is_row:
        return
    if schema.unit not in families:
        raise DataError(f"unit {schema.unit} is declared, but the source has no column of that name")
    if families[schema.unit] not in UNITS:
        raise DataError(
            f"unit {schema.unit}: people are identified by integers or text, not {families[schema.unit]} values"
        )
