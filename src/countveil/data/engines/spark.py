"""Counting in Spark: Parquet files, or the stored rows of a DataFrame or table; counts are returned through Arrow.

Spark reads exactly the Parquet files that were listed and hashed. To ensure this, wildcards in their names are escaped,
a file that Spark would skip is refused, and the cache of the user's session is not used. All files must have the same
columns of the same types. A DataFrame or a table of the catalogue is stored before it is counted: see `spark_storage`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from countveil.data.cell_labels import arrow_values
from countveil.data.engines.bounding import number_of
from countveil.data.engines.engine import UNREADABLE, SqlEngine
from countveil.data.engines.families import Family
from countveil.data.engines.spark_session import alive, local, ours, plain, quiet, session, session_of
from countveil.data.engines.spark_sql import SparkDialect, bind_value, family_of, scales_of
from countveil.data.engines.spark_storage import LIMITS, StoredRows, store
from countveil.data.engines.sql import Compiler, Statement
from countveil.data.engines.steps import bins_by_value
from countveil.data.source import Source, check_alike
from countveil.errors import DataError, EngineError, MissingExtraError, shorten
from countveil.query import Question
from countveil.query.axes import Axis
from countveil.query.joint_axes import JointAxis
from countveil.query.schema import Column, Kind, Schema, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GARBLED = "?"
"""What DuckDB puts in place of bytes that are not text. As with DuckDB, people whose id contains it are not counted."""
FEW_CELLS, FEW_VALUES = 10_000, 1_000
"""The driver finds the cell of each count if a table has at most so many cells, and each listed column so many values.

In larger tables, a join in Spark finds the cells. In so small a table, the join would cost more than everything else.
"""
WRITTEN = 50_000
"""The longest list, in characters, that is written into the statement instead of being bound as a parameter."""


def is_own_index(column: Column) -> bool:
    """Whether the index of a value is the value minus the low end of its range, so that it need not be looked up."""
    return not column.is_listed and column.kind == "integer" and column.step == 1


class SparkCompiler(Compiler):
    """Builds Spark's statements; lists of values become small tables in the driver's memory, joined without another
    job."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__(engine.dialect, engine.relation, engine.columns(), engine.garbled, engine.scales())
        self.engine = engine

    def listing(self, axis: Axis) -> str:
        return self.engine.list_values(*bins_by_value(axis), axis.source.kind)

    def numbering(self, axis: JointAxis) -> str:
        return self.engine.list_values(axis.numbers.tolist(), list(range(axis.size)), "integer")

    def bind(self, value: object) -> str:
        """Write integers as digits and short lists as hexadecimal text, because every bound value costs milliseconds;
        bind only other values."""
        if type(value) is int:
            return str(value)
        if isinstance(value, list) and len(text := str(bind_value(value))) <= WRITTEN:
            return f"CAST(X'{text.encode().hex()}' AS STRING)"
        return super().bind(value)

    def count_keys(self, question: Question) -> Statement:
        """A statement that returns the keys of each axis and the count n, at most one row for each cell.

        A key is a value, or the index of a bin or date. No axis may have derived columns. The condition mentions n, so
        that Spark evaluates it after counting, for groups and not for rows.
        """
        shown, tests = [], []
        counted = self.select_counts(question, [self.key(axis) for axis in question.parts], people=False)
        for i, axis in enumerate(question.parts):
            column = axis.source
            if column.is_listed:
                text, kind = column.kind == "text", self.dialect.types[column.kind]
                shown.append(f"k{i}" if text else f"{self.dialect.try_cast(f'k{i}', kind)} AS k{i}")
                tests.append(self.dialect.among(f"k{i}", self.bind(list(column.values)), column.kind))
            elif is_own_index(column):
                shown.append(f"k{i}")  # `select_counts` has only keys within the range
            else:
                shown.append(f"CAST({self.index(axis, f'k{i}')} AS BIGINT) AS k{i}")
        keys, inside = ", ".join(shown), " AND ".join(tests)
        return self.statement(f"SELECT {keys}, n FROM ({counted}) WHERE CASE WHEN n > 0 THEN {inside} END")


class SparkEngine(SqlEngine):
    """Counts on one source with Spark, in a session with settings of its own; see `spark_session`."""

    dialect = SparkDialect()
    writes_files = True

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._lock = threading.Lock()
        self._listings: dict[tuple[object, ...], str] = {}
        self._scales: Mapping[str, int] = {}
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
            raise EngineError(f"source: {source.display_name} could not be opened by Spark; {LIMITS}") from None
        if schema is not None:
            self.check(schema)

    def _create_view(self, source: Source) -> Mapping[str, Family]:
        """Create a view of the rows in our session; return the source's columns."""
        if self._stored is not None:
            rows = self._stored.read(self.session)
            rows.createOrReplaceTempView(self.relation)
            self._scales = scales_of({field.name: field.dataType.simpleString() for field in rows.schema.fields})
            return self._stored.families
        self.garbled = GARBLED
        frame, kinds = _parquet(self.session, source.paths())
        frame.createOrReplaceTempView(self.relation)
        self._unsafe = frozenset(name for name, (_, kind) in kinds.items() if "timeUnit=milliseconds" in kind)
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        self._scales = scales_of(types)
        return {name: "other" if name in self._unsafe else family_of(kind) for name, kind in types.items()}

    def check(self, schema: Schema) -> None:
        for column in schema.sources:
            if column.name in self._unsafe:
                words = "Spark fails on time stamps in milliseconds that are out of range, which would reveal a row"
                raise DataError(f"column {column.name}: {words}; write microseconds or dates, or count with DuckDB")
        super().check(schema)

    def columns(self) -> Mapping[str, Family]:
        return self._columns

    def scales(self) -> Mapping[str, int]:
        return self._scales

    def compiler(self) -> SparkCompiler:
        return SparkCompiler(self)

    def list_values(self, listed: Sequence[Value], bins: Sequence[int], kind: Kind) -> str:
        """The name of a view (v, i) of values and the bin of each; the view is created if it does not exist."""
        import pyarrow as pa

        key = (kind, tuple(listed), tuple(bins))
        with self._lock:
            if key not in self._listings:
                values, view = arrow_values(listed, kind), f"{self.relation}_{len(self._listings)}"
                table = pa.table({"v": values, "i": pa.array(bins, pa.int64())})
                with quiet(self.session, UNREADABLE):
                    local(self.session, table).createOrReplaceTempView(view)
                self._listings[key] = view
            return self._listings[key]

    def count(self, question: Question, *, salt: bytes) -> NDArray[np.int64]:
        listed = [column for column in question.by if column.is_listed]
        few = question.cells <= FEW_CELLS and all(column.keys <= FEW_VALUES for column in listed)
        plain_axes = all(axis.is_plain for axis in question.axes)
        if question.schema.unit_is_row and listed and few and plain_axes:
            return self._count_by_lookup(question)
        return super().count(question, salt=salt)

    def _count_by_lookup(self, question: Question) -> NDArray[np.int64]:
        """The true count of every cell of a small table. The driver, not Spark, finds the cell of each count."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        result = self._arrow(self.compiler().count_keys(question))
        cells, counts = np.zeros(len(result), dtype=np.int64), np.zeros(question.cells, dtype=np.int64)
        for i, axis in enumerate(question.parts):
            column = axis.source
            keys = result.column(f"k{i}")
            listed = arrow_values(column.values, column.kind)
            index = pc.index_in(keys, value_set=listed) if column.is_listed else pc.cast(keys, pa.int64())
            cells = cells * column.keys + (index.to_numpy() - (column.low if is_own_index(column) else 0))
        counts[cells] = result.column("n").to_numpy()
        return counts

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        cells = self._arrow(statement)
        return {name: cells.column(name).to_numpy() for name in cells.column_names}

    def _arrow(self, statement: Statement) -> Any:
        with quiet(self.session, UNREADABLE):
            return self._frame(statement).toArrow()

    def _frame(self, statement: Statement) -> Any:
        """The result of a statement as a DataFrame that is not evaluated yet."""
        values = {name: bind_value(value) for name, value in statement.values.items()}
        return self.session.sql(statement.sql, args=values)

    def alive(self) -> bool:
        return alive(self.session)

    # -- tables that stay in Spark -----------------------------------------------------------------------------------

    def count_cells(self, question: Question, *, salt: bytes) -> Any:
        """The true counts of the cells that have rows, as a DataFrame (cell, n) that is not evaluated yet."""
        return self._frame(self.compiler().count(question, number_of(salt)))

    def write_release(
        self, question: Question, folder: Path, *, salt: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw the noise in the workers and write Parquet files, once; see `spark_release`."""
        from countveil.data.engines.spark_release import write

        return write(self, question, folder, salt=salt, mechanism=mechanism, unchanged=unchanged)

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> Any:
        """Open released files as a DataFrame in the user's session.

        `columns` maps the names of the frame's columns to those in the files.
        """
        user = self._user if alive(self._user) else session()
        frame = user.read.parquet(*map(plain, files))
        return frame.select(*(frame[self.dialect.name(old)].alias(new) for new, old in columns.items()))

    def close(self) -> None:
        with suppress(Exception):  # the views of a stopped session no longer exist
            for view in (*self._listings.values(), self.relation):
                self.session.catalog.dropTempView(view)
        if self._owned and self._stored is not None:
            self._stored.remove()
        self._stored = None


def _parquet(session: Any, paths: list[str]) -> tuple[Any, dict[str, tuple[str, str]]]:
    """A DataFrame of exactly these files, and the types of their columns, which must be the same in all files."""
    for name in (Path(path).name for path in paths):
        if name.startswith(("_", ".")) or name.endswith("._COPYING_") or ":" in name:
            raise DataError(f"source: Spark does not read a file with the name {shorten(name, 60)}; rename it")
    kinds = check_alike(paths, _kinds)
    unique = {"countveil": uuid.uuid4().hex}  # an option that differs from every cached read, so no cache is used
    frame = session.read.options(**unique).parquet(*map(plain, paths))
    if sorted(unquote(urlparse(file).path) for file in frame.inputFiles()) != sorted(paths):
        raise EngineError(
            "source: Spark would read other files than the source has; rename files with special characters"
        )
    return frame, kinds


def _kinds(path: str) -> dict[str, tuple[str, str]]:
    """The columns of a Parquet file and their types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = [file.schema.column(i) for i in range(len(file.schema))]
    except (OSError, pa.ArrowException):
        raise EngineError(f"source: {shorten(path, 100)} could not be read as a Parquet file") from None
    return {column.path: (column.physical_type, str(column.logical_type)) for column in columns}
