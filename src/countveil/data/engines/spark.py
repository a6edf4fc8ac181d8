"""Counting in Spark: Parquet files, or the stored rows of a DataFrame or table; the counts come back through Arrow.

Parquet files are those that were listed and hashed, no others: their names are not opened as wildcards, a file that
Spark would pass over is refused, all of them have the same columns of the same types, and what the user's session has
cached of them is not used. A DataFrame or a table of the catalogue is stored before it is counted: see `spark_storage`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from countveil.engines.engine import UNREADABLE, SqlEngine
from countveil.engines.labels import arrow_values
from countveil.engines.source import Source, check_alike
from countveil.engines.spark_session import alive, local, ours, plain, quiet, session, session_of
from countveil.engines.spark_sql import SparkDialect, bind_value, family_of
from countveil.engines.spark_storage import LIMITS, StoredRows, store
from countveil.engines.sql import Compiler, Family, Statement
from countveil.errors import DataError, EngineError, MissingExtraError, shortened
from countveil.query import Question
from countveil.schema import Column, Kind, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GARBLED = "?"
"""What DuckDB puts for bytes of a Parquet file that are no text: people so named are not counted on either engine."""
FEW_CELLS, FEW_VALUES = 10_000, 1_000
"""Up to here, keys are looked up in the driver: a join costs Spark more than all the rest of a small table."""
WRITTEN = 50_000
"""Characters of a list up to which it is written into the statement."""


def unplaced(column: Column) -> bool:
    """The key is the value itself and its index the distance from the low end, which the driver takes."""
    return not column.listed and column.kind == "integer" and column.step == 1


class SparkCompiler(Compiler):
    """Listed values are small tables in the driver's memory, which Spark joins without a job of their own."""

    engine: SparkEngine

    def listing(self, column: Column) -> str:
        return self.engine.listing(column)

    def bind(self, value: object) -> str:
        """Integers are written as digits, short lists as hexadecimal ones: parameters cost Spark milliseconds."""
        if type(value) is int:
            return str(value)
        if isinstance(value, list) and len(text := str(bind_value(value))) <= WRITTEN:
            return f"CAST(X'{text.encode().hex()}' AS STRING)"
        return super().bind(value)

    def keyed(self, question: Question) -> Statement:
        """Values of keys as they are, bins and dates as indexes, and counts n: at most one row for each cell.

        The condition names n, so that Spark tests groups and not rows: what needs a count is done after counting.
        """
        shown, tests = [], []
        counted = self.counted(question, [self.key(column) for column in question.by], people=False)
        for i, column in enumerate(question.by):
            if column.listed:
                text, kind = column.kind == "text", self.dialect.types[column.kind]
                shown.append(f"k{i}" if text else f"{self.dialect.try_cast(f'k{i}', kind)} AS k{i}")
                tests.append(self.dialect.among(f"k{i}", self.bind(list(column.values)), column.kind))
            elif unplaced(column):
                shown.append(f"k{i}")  # within its range, as all that were counted
            else:
                shown.append(f"CAST({self.index(column, f'k{i}')} AS BIGINT) AS k{i}")
        keys, inside = ", ".join(shown), " AND ".join(tests)
        return self.statement(f"SELECT {keys}, n FROM ({counted}) WHERE CASE WHEN n > 0 THEN {inside} END")


class SparkEngine(SqlEngine):
    """Counts on one source through a session beside the user's; see `spark_session`."""

    dialect = SparkDialect()
    writes_files = True

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._lock = threading.Lock()
        self._listings: dict[tuple[Kind, tuple[object, ...]], str] = {}
        self.relation = f"countveil_{uuid.uuid4().hex}"
        self._stored: StoredRows | None = source.stored if isinstance(source.stored, StoredRows) else None
        self._owned = self._stored is None
        self._unsafe: frozenset[str] = frozenset()
        try:
            self._user = session_of(source.frame, shown=source.allow_spark_ui)
            self.session = ours(self._user)
            if self._stored is None and not source.files:
                self._stored = store(replace(source, schema=schema))
            with quiet(self.session):
                self._columns = self._create_view(source)
        except (EngineError, DataError, MissingExtraError):
            raise
        except Exception:
            raise EngineError(f"source: {source.shown} could not be opened by Spark; {LIMITS}") from None
        if schema is not None:
            self.check(schema)

    def _create_view(self, source: Source) -> Mapping[str, Family]:
        """Make the rows a view of our session; the source's columns."""
        if self._stored is not None:
            self._stored.read(self.session).createOrReplaceTempView(self.relation)
            return self._stored.families
        self.garbled = GARBLED
        found, kinds = _parquet(self.session, source.paths())
        found.createOrReplaceTempView(self.relation)
        self._unsafe = frozenset(name for name, (_, kind) in kinds.items() if "timeUnit=milliseconds" in kind)
        types = {field.name: field.dataType.simpleString() for field in found.schema.fields}
        return {name: "other" if name in self._unsafe else family_of(kind) for name, kind in types.items()}

    def check(self, schema: Schema) -> None:
        for column in schema.columns:
            if column.name in self._unsafe:
                words = "Spark fails on time stamps in milliseconds that are far away, so that one row could be seen"
                raise DataError(f"column {column.name}: {words}; write microseconds or dates, or count with DuckDB")
        super().check(schema)

    def columns(self) -> Mapping[str, Family]:
        return self._columns

    def compiler(self) -> SparkCompiler:
        return SparkCompiler(self)

    def listing(self, column: Column) -> str:
        """A view (v, i) of a column's listed values and their indexes."""
        import pyarrow as pa

        key = (column.kind, column.values)
        with self._lock:
            if key not in self._listings:
                values, view = arrow_values(column.values, column.kind), f"{self.relation}_{len(self._listings)}"
                table = pa.table({"v": values, "i": pa.array(range(len(values)), pa.int64())})
                with quiet(self.session, UNREADABLE):
                    local(self.session, table).createOrReplaceTempView(view)
                self._listings[key] = view
            return self._listings[key]

    def count(self, question: Question, *, key: bytes) -> NDArray[np.int64]:
        listed = [column for column in question.by if column.listed]
        few = question.cells <= FEW_CELLS and all(column.keys <= FEW_VALUES for column in listed)
        if question.schema.unit_is_row and listed and few:
            return self._looked_up(question)
        return super().count(question, key=key)

    def _looked_up(self, question: Question) -> NDArray[np.int64]:
        """The true count of every cell of a small table, the keys looked up here."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self._arrow(self.compiler().keyed(question))
        cells, counts = np.zeros(len(found), dtype=np.int64), np.zeros(question.cells, dtype=np.int64)
        for i, column in enumerate(question.by):
            keys = found.column(f"k{i}")
            listed = arrow_values(column.values, column.kind)
            index = pc.index_in(keys, value_set=listed) if column.listed else pc.cast(keys, pa.int64())
            cells = cells * column.keys + (index.to_numpy() - (column.low if unplaced(column) else 0))
        counts[cells] = found.column("n").to_numpy()
        return counts

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        found = self._arrow(statement)
        return {name: found.column(name).to_numpy() for name in found.column_names}

    def _arrow(self, statement: Statement) -> Any:
        with quiet(self.session, UNREADABLE):
            return self._frame(statement).toArrow()

    def _frame(self, statement: Statement) -> Any:
        """The result of a statement, which nothing has evaluated yet."""
        values = {name: bind_value(value) for name, value in statement.values.items()}
        return self.session.sql(statement.sql, args=values)

    def alive(self) -> bool:
        return alive(self.session)

    # -- tables that stay in Spark -----------------------------------------------------------------------------------

    def counted(self, question: Question, *, key: bytes) -> Any:
        """The cells that have rows and their true counts, as a DataFrame (cell, n) that nothing has evaluated yet."""
        return self._frame(self.compiler().count(question, key.hex()))

    def write_release(
        self, question: Question, folder: Path, *, key: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw by the workers and write Parquet files, once; see `spark_release`."""
        from countveil.engines.spark_release import write

        return write(self, question, folder, key=key, mechanism=mechanism, unchanged=unchanged)

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> Any:
        """A DataFrame of released files, in the user's session: `columns` are the names to show, and in the files."""
        user = self._user if alive(self._user) else session()
        found = user.read.parquet(*map(plain, files))
        return found.select(*(found[self.dialect.name(old)].alias(new) for new, old in columns.items()))

    def close(self) -> None:
        with suppress(Exception):  # a session that was stopped has no views any more
            for view in (*self._listings.values(), self.relation):
                self.session.catalog.dropTempView(view)
        if self._owned and self._stored is not None:
            self._stored.remove()
        self._stored = None


def _parquet(session: Any, paths: list[str]) -> tuple[Any, dict[str, tuple[str, str]]]:
    """These files and no others, and their types; see `duckdb` for why they have the same columns."""
    for name in (Path(path).name for path in paths):
        if name.startswith(("_", ".")) or name.endswith("._COPYING_") or ":" in name:
            raise DataError(f"source: Spark reads no file that is called {shortened(name, 60)}; give it another name")
    kinds = check_alike(paths, _kinds)
    unlike = {"countveil": uuid.uuid4().hex}  # anything that someone has cached
    found = session.read.options(**unlike).parquet(*map(plain, paths))
    if sorted(unquote(urlparse(file).path) for file in found.inputFiles()) != sorted(paths):
        raise EngineError("source: Spark would read other files than those that are meant; give them plain names")
    return found, kinds


def _kinds(path: str) -> dict[str, tuple[str, str]]:
    """The columns of a Parquet file and their types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = [file.schema.column(i) for i in range(len(file.schema))]
    except (OSError, pa.ArrowException):
        raise EngineError(f"source: {shortened(path, 100)} could not be read as a Parquet file") from None
    return {column.path: (column.physical_type, str(column.logical_type)) for column in columns}
