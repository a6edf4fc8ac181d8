"""Counting in Spark: a table of its catalogue, Parquet files, or a DataFrame; the counts come back through Arrow.

A session that is already running is used; otherwise one is started, with the Python of this process for its workers and
its log switched off, because a failed task's log can quote the data.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.engines.dialect import Dialect, Family
from countveil.engines.source import Source
from countveil.engines.sql_engine import SqlEngine
from countveil.engines.statement import Statement
from countveil.errors import EngineError, MissingExtraError
from countveil.query import Question
from countveil.schema import Kind, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"
JAVA = "Spark needs Java 17 or later; install it, and set JAVA_HOME if it is not on the path"
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
        return f"array_contains({self.array(parameter, kind)}, CAST({expression} AS {TYPES[kind]}))"

    def listed(self, parameter: str, kind: Kind) -> str:
        return f"(SELECT posexplode({self.array(parameter, kind)}) AS (i, v))"

    def array(self, parameter: str, kind: Kind) -> str:
        """A bound list: bound as JSON text, because Spark takes no long or extreme arrays as arguments."""
        return f"CAST(from_json({parameter}, 'ARRAY<STRING>') AS ARRAY<{TYPES[kind]}>)"

    def days(self, later: str, earlier: str) -> str:
        return f"datediff({later}, {earlier})"

    def whole(self, a: str, b: str) -> str:
        return f"({a} DIV {b})"


class SparkEngine(SqlEngine):
    """Counts on one source through a Spark session."""

    dialect = SparkDialect()

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self._session = session()
        self._columns: dict[str, Family] | None = None
        self._view: str | None = None
        self.relation = self._relation(source)
        if schema is not None:
            self.check(schema)

    def _relation(self, source: Source) -> str:
        if source.frame is None and source.scheme == "spark":
            table = source.location.partition("://")[2]
            return ".".join(self.dialect.name(part) for part in table.split("."))
        try:
            frame: Any = source.frame if source.frame is not None else self._session.read.parquet(*source.paths())
            self._view = f"countveil_{uuid.uuid4().hex}"
            frame.createOrReplaceTempView(self._view)
        except EngineError:
            raise
        except Exception:
            raise EngineError(f"source: {source.shown} could not be opened by Spark") from None
        return self._view

    def columns(self) -> Mapping[str, Family]:
        if self._columns is None:
            try:
                fields = self._session.table(self.relation).schema.fields
            except Exception:
                raise EngineError(UNREADABLE) from None
            self._columns = {field.name: _family(field.dataType.simpleString()) for field in fields}
        return self._columns

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        try:
            values = {key: _bound(value) for key, value in statement.values.items()}
            found = self._session.sql(statement.sql, args=values).toArrow()
        except Exception:
            raise EngineError(UNREADABLE) from None
        return {name: found.column(name).to_numpy() for name in found.column_names}

    # -- tables that stay in Spark -----------------------------------------------------------------------------------

    @property
    def session(self) -> Any:
        return self._session

    def counted(self, question: Question, *, key: bytes) -> Any:
        """The cells that have rows and their true counts, as a DataFrame (cell, n) that nothing has evaluated yet."""
        statement = self.compiler().count(question, key.hex())
        return self._session.sql(statement.sql, args={name: _bound(v) for name, v in statement.values.items()})

    def write_release(
        self, question: Question, folder: Path, *, key: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw by the workers and write Parquet files, once; see `spark_release`."""
        from countveil.engines.spark_release import write

        return write(self, question, folder, key=key, mechanism=mechanism, unchanged=unchanged)

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> Any:
        """A DataFrame of released files: `columns` are the names to show, and those in the files."""
        shown = [f"{self.dialect.name(old)} AS {self.dialect.name(new)}" for new, old in columns.items()]
        return self._session.read.parquet(*files).selectExpr(*shown)

    def close(self) -> None:
        if self._view is not None:
            self._session.catalog.dropTempView(self._view)
            self._view = None


def content_hash(source: Source) -> str:
    """What a DataFrame or a table of Spark's holds now, whatever the order of its rows: one pass over all of them.

    The hash of a row has 64 bits, and rows are added up. Data that was made to collide would be taken for the same: a
    stale replay, never a leak.
    """
    engine = SparkEngine(source)
    try:
        shape = [(field.name, field.dataType.simpleString()) for field in engine.session.table(engine.relation).schema]
        row = ", ".join(engine.dialect.name(name) for name, _ in shape)
        hashed = f"SELECT xxhash64({row}) AS h FROM {engine.relation}"
        sums = f"count(*) AS n, sum(CAST(h AS DECIMAL(20, 0))) AS a, bit_xor(h) AS b FROM ({hashed})"
        found = engine.session.sql(f"SELECT {sums}").collect()[0]
    except EngineError:
        raise
    except Exception:
        raise EngineError(UNREADABLE) from None
    finally:
        engine.close()
    return hashlib.sha256(json.dumps([shape, [str(value) for value in found]]).encode()).hexdigest()


def _bound(value: object) -> object:
    """A value as Spark takes it: lists as JSON, dates as text, because not all of Python's are Java's."""
    if isinstance(value, list):
        return json.dumps([str(_bound(member)) for member in value])
    return value.isoformat() if isinstance(value, datetime.date) else value


def _family(kind: str) -> Family:
    if kind.startswith("decimal"):
        return "integer" if kind.endswith(",0)") else "decimal"
    return "text" if kind.startswith(("char", "varchar")) else FAMILIES.get(kind, "other")


def session() -> Any:
    """The Spark session of this process, started if there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it quotes queries and values
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise EngineError(JAVA)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        started = (
            SparkSession.builder.appName("countveil")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        started.sparkContext.setLogLevel("OFF")
    except Exception:
        raise EngineError(JAVA) from None
    return started
