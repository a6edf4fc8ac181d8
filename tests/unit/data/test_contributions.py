"""The survey of contributions reads the source once; see tests/contract for its numbers on every engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from countveil.data.contributions import survey_contributions
from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.sql import Statement
from countveil.query.schema import Column


class RecordingEngine(DuckDBEngine):
    """An engine that records its statements."""

    def __init__(self, source: Source) -> None:
        self.statements: list[Statement] = []
        super().__init__(source)

    def run(self, statement: Statement):  # type: ignore[no-untyped-def]
        self.statements.append(statement)
        return super().run(statement)

    def explain(self, statement: Statement) -> str:
        (_, plan), *_ = self._connection.execute(f"EXPLAIN {statement.sql}", dict(statement.values)).fetchall()
        return str(plan)


def test_many_tables_are_surveyed_in_one_scan_of_the_source(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1, 2, 3], "a": [0, 1, 1, 0], "b": [5, 5, 6, 7], "c": ["x", "y", "x", "y"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    a, b = Column("a", "integer", low=0, high=1), Column("b", "integer", low=5, high=7)
    c = Column("c", "text", ("x", "y"))
    engine = RecordingEngine(Source("rows.parquet", directory=tmp_path))
    try:
        engine.columns()
        engine.statements.clear()
        surveys = survey_contributions(engine, "id", [(a,), (b,), (c,), (a, c), (a, b, c)], (1, 2), (1, 2))
        (statement,) = engine.statements
        assert engine.explain(statement).count("READ_PARQUET") == 1
    finally:
        engine.close()
    assert [survey.rows.sum() for survey in surveys] == [4, 4, 4, 4, 4]
