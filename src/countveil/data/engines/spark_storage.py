"""Rows of Spark's, stored before anything is asked of them: Parquet files in a folder of mode 700, deleted afterwards.

A DataFrame is a program. Spark pushes the condition of a question below its joins and filters, so that for one question
it fails on a row that it never meets for another: whether a charged question fails would tell of one person. Therefore
a frame is evaluated once, whole, as the curator gave it and before the charge; if it fails, it fails for every
question. What is counted and what tells versions apart is read from the files:

    c0, c1, ...   the unit and the declared columns, nothing else
    h             a hash of the whole row, undeclared columns too

A frame is stored once for a curator, and its rows are those until the curator is closed. A table of the catalogue is
stored again when its files have changed, or cannot be looked at. Only tables of Parquet files are taken: views are
refused as on other engines, and what has another format can be given as a frame.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from countveil.engines.engine import check_columns
from countveil.engines.source import Source, is_recent, read_trace
from countveil.engines.spark_session import (
    PrivateFolder,
    noted,
    ours,
    plain,
    plain_session,
    quiet,
    session_of,
    user_session,
)
from countveil.engines.spark_sql import SparkDialect, family_of
from countveil.engines.sql import Family
from countveil.errors import DataError, EngineError
from countveil.schema import Schema

LIMITS = "it reads no time stamps in nanoseconds, no times of day and no decimals of more than 38 digits"
UNSTORED = (
    "source: Spark could not evaluate and store {}, so nothing can be asked; nothing was charged; the curator can see "
    "why with: frame.write.parquet(...)"
)
LOST = (
    "source: the stored rows could not be read back; set TMPDIR to a folder that all machines of the cluster see; "
    "nothing was charged"
)
ROWS = ("count(1) AS n", "sum(CAST(h AS DECIMAL(20, 0))) AS a", "bit_xor(h) AS b")
"""What is known of all rows together, whatever their order."""
_quote = SparkDialect().name
Trace = tuple[tuple[object, ...], ...]


class StoredRows:
    """Rows in files. The folder goes with its last user, by `remove`, or when this process ends."""

    def __init__(self, folder: PrivateFolder, schema: Any, families: Mapping[str, Family], names: list[str]) -> None:
        self.families = families
        self._folder, self._schema, self._names, self.remove = folder, schema, names, folder.remove
        self.paths = tuple(sorted(str(path) for path in (folder.path / "rows").glob("part-*")))
        self.fingerprint = ""
        """What all rows hold, whatever their order, but for columns of types that cannot be declared, on which no
        answer depends. The hash of a row has 64 bits, and rows are added up. Data that was made to collide would be
        taken for the same: a stale replay, never a leak."""

    def files(self, session: Any) -> Any:
        """The files as they are."""
        return session.read.schema(self._schema).parquet(*map(plain, self.paths))

    def read(self, session: Any) -> Any:
        """The columns that were stored, by their names."""
        return self.files(session).drop("h").toDF(*self._names)

    def exist(self) -> bool:
        """Nobody has cleaned up among temporary files."""
        return all(map(os.path.isfile, self.paths))


class Storage:
    """The stored rows of a curator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], tuple[Source, Trace | None, StoredRows]] = {}
        """With the source, so that no other frame gets the same identity."""

    def rows(self, source: Source) -> StoredRows:
        """The rows of a frame or table: stored now, unless they are for sure."""
        key = (id(source.frame), source.location, source.schema)
        with self._lock:  # so that two threads do not store the same frame
            trace = None if source.frame is not None else trace_of(source)
            if key in self._known:
                _, before, rows = self._known[key]
                if rows.exist() and (source.frame is not None or (trace is not None and trace == before)):
                    session_of(source.frame, shown=source.allow_spark_ui)
                    return rows
            rows = store(source)
            self._known[key] = source, trace, rows
            return rows

    def close(self) -> None:
        with self._lock:
            for *_, rows in self._known.values():
                rows.remove()
            self._known.clear()


def store(source: Source) -> StoredRows:
    """Evaluate a frame or a table and store it; errors say nothing about its values."""
    user = session_of(source.frame, shown=source.allow_spark_ui)
    with quiet(user, UNSTORED.format("the frame" if source.frame is not None else source.shown)):
        return _evaluate(source, user)


def _evaluate(source: Source, user: Any) -> StoredRows:
    frame: Any = source.frame
    view = f"countveil_{uuid.uuid4().hex}"
    if frame is None:
        session = plain_session(user)
        table_of(source, user, session).createOrReplaceTempView(view)
        return _write(session, view, source.schema, ours(user))
    session = user_session(user)
    frame.createOrReplaceGlobalTempView(view)  # which all sessions of the context share
    try:
        database = session.conf.get("spark.sql.globalTempDatabase")
        return _write(session, f"{_quote(database)}.{view}", source.schema, ours(user))
    finally:
        session.catalog.dropGlobalTempView(view)


def _write(session: Any, relation: str, schema: Schema | None, reader: Any) -> StoredRows:
    """Store a relation of a session; another session reads back what was written."""
    shape = [(field.name, field.dataType.simpleString()) for field in session.table(relation).schema]
    exact = str(session.conf.get("spark.sql.caseSensitive")).lower() == "true"
    if len({name if exact else name.lower() for name, _ in shape}) < len(shape):
        raise DataError("source: two columns have the same name, as Spark compares names here; rename or drop one")
    families = {name: family_of(kind) for name, kind in shape}
    known = [name for name, kind in shape if family_of(kind) != "other"]
    kept = known
    if schema is not None:
        check_columns(schema, families)
        wanted = {column.name for column in schema.columns} | ({schema.unit} - {"row"})
        kept = [name for name in known if name in wanted]
    row = ", ".join(f"{_quote(name)} IS NULL, {_quote(name)}" for name in known)  # NULL alone has no hash
    shown = [f"{_plain_column(name, families[name])} AS c{i}" for i, name in enumerate(kept)]
    shown.append(f"xxhash64({row or 0}) AS h")
    found = session.sql(f"SELECT {', '.join(shown)} FROM {relation}")
    try:
        folder = PrivateFolder("countveil-rows-")
    except OSError:
        raise EngineError("source: the folder for temporary files cannot be written; set TMPDIR to another") from None
    try:
        observed, seen = noted(found, ROWS)
        observed.write.parquet(str(folder.path / "rows"))
        rows = StoredRows(folder, found.schema, families, kept)
        (read,) = rows.files(reader).selectExpr(*ROWS).collect()
        if seen() != list(read):
            raise EngineError(LOST)
    except BaseException:
        folder.remove()
        raise
    rows.fingerprint = hashlib.sha256(json.dumps([shape, [str(value) for value in read]]).encode()).hexdigest()
    return rows


def _plain_column(name: str, family: Family) -> str:
    """A column without what its table says of it beside its type, such as the length of a text."""
    return f"CAST({_quote(name)} AS STRING)" if family == "text" else _quote(name)


# -- tables of the catalogue -------------------------------------------------------------------------------------------


def table_of(source: Source, user: Any, session: Any) -> Any:
    """A table as another session reads it, by its full name; views and what is not in Parquet files are refused."""
    given = source.location.partition("://")[2]
    parts = ".".join(map(_quote, given.split(".")))
    try:
        found = json.loads(user.sql(f"DESCRIBE TABLE EXTENDED {parts} AS JSON").collect()[0][0])
    except Exception:
        if not user.catalog.tableExists(parts):
            raise EngineError(f"source: {source.shown} is no table that Spark knows; check its name") from None
        found = {"type": "VIEW" if user.catalog.getTable(parts).isTemporary else "OTHER"}
    if found.get("type") not in ("MANAGED", "EXTERNAL") or str(found.get("provider")).lower() != "parquet":
        words = "no table of Parquet files; store it as one"
        if found.get("type") == "VIEW":
            words = "a view, which is evaluated while it is counted; store it as a table"
        raise DataError(f"source: {source.shown} is {words}, or give it as a DataFrame, which is stored first")
    full = [found["catalog_name"], *found["namespace"], found["table_name"]]
    unlike = {"countveil": uuid.uuid4().hex}  # anything that someone has cached
    return session.read.options(**unlike).table(".".join(map(_quote, full)))


def trace_of(source: Source) -> Trace | None:
    """What shows that the files of a table were touched; None if that cannot be told."""
    user = session_of(None, shown=source.allow_spark_ui)
    try:
        with quiet(user):
            table = table_of(source, user, plain_session(user))
            files = [urlparse(file) for file in table.inputFiles()]
    except (DataError, EngineError):
        raise
    except Exception:
        return None
    try:
        traces = {path: read_trace(path) for path in (unquote(file.path) for file in files if file.scheme == "file")}
    except EngineError:
        return None
    if len(traces) < len(files) or any(map(is_recent, traces.values())):
        return None
    return ((table.schema.json(),), *sorted((path, *trace) for path, trace in traces.items()))
