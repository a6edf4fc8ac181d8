"""Counting in Spark: a table of its catalogue, Parquet files, or a DataFrame; the counts come back through Arrow.

Parquet files are those that were listed and hashed, no others: their names are not opened as wildcards, a file that
Spark would pass over is refused, and all of them have the same columns of the same types.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse
from zlib import crc32

from countveil.engines.dialect import Dialect, Family
from countveil.engines.source import Source
from countveil.engines.spark_session import alive, local, ours, plain, quiet, session
from countveil.engines.sql_engine import SqlEngine
from countveil.engines.statement import Compiler, Statement
from countveil.errors import DataError, EngineError, MissingExtraError, shortened
from countveil.query import Question
from countveil.schema import Column, Kind, Schema, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"
LIMITS = "it reads no time stamps in nanoseconds, no times of day and no decimals of more than 38 digits"
STOPPED = "source: the Spark session of this DataFrame was stopped; give a frame of one that is running"
CONNECT = "source: a DataFrame of Spark Connect cannot be counted; give one of a session in this process, or files"
GARBLED = "?"
"""What DuckDB puts for bytes of a Parquet file that are no text: people so named are not counted on either engine."""
FEW_CELLS, FEW_VALUES = 10_000, 1_000
"""Up to here, keys are looked up in the driver: a join costs Spark more than all the rest of a small table."""
BUCKETS = 128
"""Parts of a list of values, of which a value is looked for in one."""
WRITTEN = 50_000
"""Characters of a list up to which it is written into the statement."""
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["tinyint", "smallint", "int", "bigint"], "integer"),
    **dict.fromkeys(["float", "double"], "float"),
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "zoned",
}
TYPES: dict[Kind, str] = {"text": "STRING", "integer": "BIGINT", "boolean": "BOOLEAN", "date": "DATE"}


class SparkDialect(Dialect):
    """Spark's spelling."""

    text_type = "STRING"

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def parameter(self, key: str) -> str:
        return f":{key}"

    def matches(self, expression: str, pattern: str) -> str:
        whole = pattern.removesuffix("$") + r"\z"  # Java's $ is also true before a last line break
        return f"{expression} RLIKE r'{whole}'"

    def read_integer(self, family: Family, raw: str) -> str:
        if family == "integer":
            return raw
        if family == "text":
            text = self.trimmed(raw)
            digits = self.try_cast(f"split_part({text}, '.', 1)", "BIGINT")
            return f"CASE WHEN {self.matches(text, self.integer_text)} THEN {digits} END"
        whole = self.try_cast(raw, "BIGINT")
        if family == "float":
            inside = f"{raw} >= -9.223372036854775808E18D AND {raw} < 9.223372036854775808E18D"
            return f"CASE WHEN {inside} THEN CASE WHEN CAST({whole} AS DOUBLE) = {raw} THEN {whole} END END"
        return f"CASE WHEN {whole} = {raw} THEN {whole} END"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """The list is JSON text, because Spark takes no long or extreme arrays as arguments; and in buckets, because
        Spark looks through an array from its beginning. See `bucketed`."""
        buckets, value = f"from_json({parameter}, 'ARRAY<ARRAY<STRING>>')", expression
        if kind != "text":
            buckets, value = f"CAST({buckets} AS ARRAY<ARRAY<{TYPES[kind]}>>)", self.try_cast(value, TYPES[kind])
        spread = {"text": f"crc32(CAST({value} AS BINARY))", "integer": value}.get(kind, "0")
        return f"array_contains(element_at({buckets}, CAST(pmod({spread}, {BUCKETS}) AS INT) + 1), {value})"

    def legible(self, text: str) -> list[str]:
        return [f"is_valid_utf8({text})"]

    def days(self, later: str, earlier: str) -> str:
        return f"datediff({later}, {earlier})"

    def whole(self, a: str, b: str) -> str:
        return f"({a} DIV {b})"


def bucketed(members: Sequence[Value]) -> list[list[str]]:
    """The members of a list: texts by their CRC-32, integers by their remainder, all others together."""
    buckets: list[list[str]] = [[] for _ in range(BUCKETS)]
    for member in members:
        spread = 0
        if isinstance(member, str):
            spread = crc32(member.encode())
        elif type(member) is int:
            spread = member
        buckets[spread % BUCKETS].append(str(_bound(member)))
    return buckets


def unplaced(column: Column) -> bool:
    """The key is the value itself and its index the distance from the low end, which the driver takes."""
    return not column.listed and column.kind == "integer" and column.step == 1


class SparkCompiler(Compiler):
    """Listed values are small tables in the driver's memory, which Spark joins without a job of their own."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__(engine.dialect, engine.relation, engine.columns(), engine.garbled)
        self._engine = engine

    def listing(self, column: Column) -> str:
        return self._engine.listing(column)

    def bind(self, value: object) -> str:
        """Integers are written as digits, short lists as hexadecimal ones: parameters cost Spark milliseconds."""
        if type(value) is int:
            return str(value)
        if isinstance(value, list) and len(text := str(_bound(value))) <= WRITTEN:
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
                text = column.kind == "text"
                shown.append(f"k{i}" if text else f"{self.dialect.try_cast(f'k{i}', TYPES[column.kind])} AS k{i}")
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

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        if type(source.frame).__module__.startswith("pyspark.sql.connect"):
            raise EngineError(CONNECT)
        self._source = source
        self._lock = threading.Lock()
        self._columns: dict[str, Family] | None = None
        self._listings: dict[tuple[Kind, tuple[object, ...]], str] = {}
        self._view = f"countveil_{uuid.uuid4().hex}"
        frame: Any = source.frame
        try:
            self._user = session() if frame is None else frame.sparkSession
            if not alive(self._user):
                raise EngineError(STOPPED)
            self._session = ours(self._user)
            with quiet(self._session):
                self.relation = self._opened()
        except (EngineError, DataError, MissingExtraError):
            raise
        except Exception:
            raise EngineError(f"source: {source.shown} could not be opened by Spark; {LIMITS}") from None
        if schema is not None:
            self.check(schema)

    def _opened(self) -> str:
        """The source as a view of our session, or one that all sessions share."""
        if self._source.files:
            self.garbled = GARBLED
            _parquet(self._session, self._source.paths()).createOrReplaceTempView(self._view)
            return self._view
        frame: Any = self._source.frame
        if frame is None:
            names = self._source.location.partition("://")[2].split(".")
            frame = self._user.table(".".join(self.dialect.name(name) for name in names))
        frame.createOrReplaceGlobalTempView(self._view)
        return f"{self.dialect.name(self._session.conf.get('spark.sql.globalTempDatabase'))}.{self._view}"

    def columns(self) -> Mapping[str, Family]:
        if self._columns is None:
            try:
                with quiet(self._session):
                    fields = self._session.table(self.relation).schema.fields
            except Exception:
                raise EngineError(UNREADABLE) from None
            self._columns = {field.name: _family(field.dataType.simpleString()) for field in fields}
        return self._columns

    def compiler(self) -> SparkCompiler:
        if not self._source.files and self._source.frame is None:
            try:
                with quiet(self._session):
                    self._opened()  # a table may have been written anew, with the same rows in other files
            except Exception:
                raise EngineError(UNREADABLE) from None
        return SparkCompiler(self)

    def listing(self, column: Column) -> str:
        """A view (v, i) of a column's listed values and their indexes."""
        import pyarrow as pa

        key = (column.kind, column.values)
        with self._lock:
            if key not in self._listings:
                values, view = _values(column), f"{self._view}_{len(self._listings)}"
                table = pa.table({"v": values, "i": pa.array(range(len(values)), pa.int64())})
                try:
                    with quiet(self._session):
                        local(self._session, table).createOrReplaceTempView(view)
                except Exception:
                    raise EngineError(UNREADABLE) from None
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
            index = pc.index_in(keys, value_set=_values(column)) if column.listed else pc.cast(keys, pa.int64())
            cells = cells * column.keys + (index.to_numpy() - (column.low if unplaced(column) else 0))
        counts[cells] = found.column("n").to_numpy()
        return counts

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        found = self._arrow(statement)
        return {name: found.column(name).to_numpy() for name in found.column_names}

    def _arrow(self, statement: Statement) -> Any:
        try:
            with quiet(self._session):
                return self._evaluable(statement).toArrow()
        except Exception:
            raise EngineError(UNREADABLE) from None

    def _evaluable(self, statement: Statement) -> Any:
        return self._session.sql(statement.sql, args={name: _bound(value) for name, value in statement.values.items()})

    def alive(self) -> bool:
        return alive(self._session)

    # -- tables that stay in Spark -----------------------------------------------------------------------------------

    @property
    def session(self) -> Any:
        """The session of our statements."""
        return self._session

    def counted(self, question: Question, *, key: bytes) -> Any:
        """The cells that have rows and their true counts, as a DataFrame (cell, n) that nothing has evaluated yet."""
        return self._evaluable(self.compiler().count(question, key.hex()))

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
            catalog = self._session.catalog
            for view in (*self._listings.values(), self._view):
                catalog.dropTempView(view)
            if not self._source.files:
                catalog.dropGlobalTempView(self._view)


def _parquet(session: Any, paths: list[str]) -> Any:
    """These files and no others; see `duckdb` for why they have the same columns."""
    first = None
    for path in paths:
        name = Path(path).name
        if name.startswith(("_", ".")) or name.endswith("._COPYING_") or ":" in name:
            raise DataError(f"source: Spark reads no file that is called {shortened(name, 60)}; give it another name")
        kinds = _kinds(path)
        first = first or kinds
        if kinds != first:
            raise DataError(
                f"source: {shortened(path, 100)} has other columns or types than {shortened(paths[0], 100)}"
            )
    found = session.read.parquet(*map(plain, paths))
    if sorted(unquote(urlparse(file).path) for file in found.inputFiles()) != sorted(paths):
        raise EngineError("source: Spark would read other files than those that are meant; give them plain names")
    return found


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


def _values(column: Column) -> Any:
    """The listed values of a column, as Arrow has them."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "integer": pa.int64(), "boolean": pa.bool_(), "date": pa.date32()}
    return pa.array(column.values, kinds[column.kind])


def content_hash(source: Source) -> str:
    """What a DataFrame or a table of Spark's holds now, whatever the order of its rows: one pass over all of them.

    Columns of types that cannot be declared are left out, as no answer depends on them. The hash of a row has 64 bits,
    and rows are added up. Data that was made to collide would be taken for the same: a stale replay, never a leak.
    """
    engine = SparkEngine(source)
    try:
        with quiet(engine.session):
            fields = engine.session.table(engine.relation).schema
            shape = [(field.name, field.dataType.simpleString()) for field in fields]
            names = [engine.dialect.name(name) for name, kind in shape if _family(kind) != "other"]
            row = ", ".join(f"{name} IS NULL, {name}" for name in names) or "0"  # the hash of NULL is no hash at all
            hashed = f"SELECT xxhash64({row}) AS h FROM {engine.relation}"
            sums = f"count(*) AS n, sum(CAST(h AS DECIMAL(20, 0))) AS a, bit_xor(h) AS b FROM ({hashed})"
            found = engine.session.sql(f"SELECT {sums}").collect()[0]
    except Exception:
        raise EngineError(UNREADABLE) from None
    finally:
        engine.close()
    return hashlib.sha256(json.dumps([shape, [str(value) for value in found]]).encode()).hexdigest()


def _bound(value: object) -> object:
    """A value as Spark takes it: lists as JSON, dates as text, because not all of Python's are Java's."""
    if isinstance(value, list):
        return json.dumps(bucketed(value))
    return value.isoformat() if isinstance(value, datetime.date) else value


def _family(kind: str) -> Family:
    if kind.startswith("decimal"):
        return "integer" if kind.endswith(",0)") else "decimal"
    return "text" if kind.startswith(("char", "varchar")) else FAMILIES.get(kind, "other")
