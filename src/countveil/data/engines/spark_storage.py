"""Rows of a Spark frame or table, stored before they are counted: Parquet files that only the owner can read.

A DataFrame is a program. Spark pushes the condition of a question below the frame's joins and filters, so that one
question may fail on a row that another never reads. If a charged question failed, the failure could reveal something
about one person. Therefore the whole frame is evaluated once, before the charge and without any condition; if it fails,
it fails for every question. Counts and fingerprints are computed from the stored files, with these columns:

    c0, c1, ...   the unit and the declared columns, nothing else
    h             a hash of the whole row, undeclared columns too

A frame is stored once for a curator, and the stored rows are used until the curator is closed. A table of the catalogue
is stored again if its files have changed, or if that cannot be determined. Only tables of Parquet files are accepted:
views are refused as on other engines, and a table in another format can be given as a frame.
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

from countveil.data.engines.engine import check_columns
from countveil.data.engines.families import Family
from countveil.data.engines.spark_session import (
    PrivateFolder,
    observe,
    ours,
    plain,
    plain_session,
    quiet,
    session_of,
    user_session,
)
from countveil.data.engines.spark_sql import SparkDialect, family_of
from countveil.data.source import Source, is_recent, read_trace
from countveil.errors import DataError, EngineError
from countveil.query.schema import Schema

LIMITS = "Spark cannot read time stamps in nanoseconds, times of day, or decimals of more than 38 digits"
UNSTORED = (
    "source: Spark could not evaluate and store {}, so it cannot be counted; nothing was charged; the curator can see "
    "why with: frame.write.parquet(...)"
)
LOST = (
    "source: the stored rows could not be read back; set TMPDIR to a folder that all machines of the cluster see; "
    "nothing was charged"
)
ROWS = ("count(1) AS n", "sum(CAST(h AS DECIMAL(20, 0))) AS a", "bit_xor(h) AS b")
"""SQL for sums over all rows, which do not depend on the order of the rows."""
_quote = SparkDialect().name
Trace = tuple[tuple[object, ...], ...]


class StoredRows:
    """Rows stored in files. `remove` deletes their folder, and so does the end of this object or of the process."""

    def __init__(self, folder: PrivateFolder, schema: Any, families: Mapping[str, Family], names: list[str]) -> None:
        self.families = families
        self._folder, self._schema, self._names, self.remove = folder, schema, names, folder.remove
        self.paths = tuple(sorted(str(path) for path in (folder.path / "rows").glob("part-*")))
        self.fingerprint = ""
        """A hash of all rows that does not depend on their order. Columns of types that cannot be declared are left
        out.

        The 64-bit hashes of rows are added, so someone could construct other data with the same fingerprint. The result
        would be a stale replay, never a leak.
        """

    def files(self, session: Any) -> Any:
        """The stored files as a frame with the columns c0, c1, ... and h."""
        return session.read.schema(self._schema).parquet(*map(plain, self.paths))

    def read(self, session: Any) -> Any:
        """The stored columns as a frame, with the names that they have in the source."""
        return self.files(session).drop("h").toDF(*self._names)

    def exist(self) -> bool:
        """Whether all files are still there; other programs may delete temporary files."""
        return all(map(os.path.isfile, self.paths))


class Storage:
    """All rows that a curator has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], tuple[Source, Trace | None, StoredRows]] = {}
        """For each stored frame or table: the source, the traces of its files, and the stored rows.

        The source is kept alive so that no other frame can get the same `id`.
        """

    def rows(self, source: Source) -> StoredRows:
        """The stored rows of a frame or table. They are stored now, unless earlier stored rows are certainly still
        current."""
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
    """Evaluate a frame or a table and store its rows; error messages say nothing about its values."""
    user = session_of(source.frame, shown=source.allow_spark_ui)
    with quiet(user, UNSTORED.format("the frame" if source.frame is not None else source.display_name)):
        return _evaluate(source, user)


def _evaluate(source: Source, user: Any) -> StoredRows:
    frame: Any = source.frame
    view = f"countveil_{uuid.uuid4().hex}"
    if frame is None:
        session = plain_session(user)
        table_of(source, user, session).createOrReplaceTempView(view)
        return _write(session, view, source.schema, ours(user))
    session = user_session(user)
    frame.createOrReplaceGlobalTempView(view)  # shared by all sessions of the context
    try:
        database = session.conf.get("spark.sql.globalTempDatabase")
        return _write(session, f"{_quote(database)}.{view}", source.schema, ours(user))
    finally:
        session.catalog.dropGlobalTempView(view)


def _write(session: Any, relation: str, schema: Schema | None, reader: Any) -> StoredRows:
    """Store the rows of a relation. The session `reader` checks that they can be read back."""
    shape = [(field.name, field.dataType.simpleString()) for field in session.table(relation).schema]
    exact = str(session.conf.get("spark.sql.caseSensitive")).lower() == "true"
    if len({name if exact else name.lower() for name, _ in shape}) < len(shape):
        raise DataError(
            "source: two column names are equal (upper and lower case are the same unless spark.sql.caseSensitive "
            "is set); rename or drop one"
        )
    families = {name: family_of(kind) for name, kind in shape}
    known = [name for name, kind in shape if family_of(kind) != "other"]
    kept = known
    if schema is not None:
        check_columns(schema, families)
        wanted = {column.name for column in schema.sources} | ({schema.unit} - {"row"})
        kept = [name for name in known if name in wanted]
    row = ", ".join(f"{_quote(name)} IS NULL, {_quote(name)}" for name in known)  # NULL alone has no hash
    shown = [f"{_plain_column(name, families[name])} AS c{i}" for i, name in enumerate(kept)]
    shown.append(f"xxhash64({row or 0}) AS h")
    frame = session.sql(f"SELECT {', '.join(shown)} FROM {relation}")
    try:
        folder = PrivateFolder("countveil-rows-")
    except OSError:
        raise EngineError("source: the folder for temporary files cannot be written; set TMPDIR to another") from None
    try:
        observed_frame, observed_sums = observe(frame, ROWS)
        observed_frame.write.parquet(str(folder.path / "rows"))
        rows = StoredRows(folder, frame.schema, families, kept)
        (sums,) = rows.files(reader).selectExpr(*ROWS).collect()
        if observed_sums() != list(sums):
            raise EngineError(LOST)
    except BaseException:
        folder.remove()
        raise
    rows.fingerprint = hashlib.sha256(json.dumps([shape, [str(value) for value in sums]]).encode()).hexdigest()
    return rows


def _plain_column(name: str, family: Family) -> str:
    """SQL that reads a column as a plain type, without properties of its declared type such as the length of a text."""
    return f"CAST({_quote(name)} AS STRING)" if family == "text" else _quote(name)


# -- tables of the catalogue -------------------------------------------------------------------------------------------


def table_of(source: Source, user: Any, session: Any) -> Any:
    """A table of the user's catalogue as a frame of `session`. Views, and tables that are not Parquet files, are
    refused."""
    given = source.location.partition("://")[2]
    parts = ".".join(map(_quote, given.split(".")))
    try:
        description = json.loads(user.sql(f"DESCRIBE TABLE EXTENDED {parts} AS JSON").collect()[0][0])
    except Exception:
        if not user.catalog.tableExists(parts):
            raise EngineError(f"source: Spark has no table {source.display_name}; check its name") from None
        description = {"type": "VIEW" if user.catalog.getTable(parts).isTemporary else "OTHER"}
    if description.get("type") not in ("MANAGED", "EXTERNAL") or str(description.get("provider")).lower() != "parquet":
        words = "not a table of Parquet files; store it as one"
        if description.get("type") == "VIEW":
            words = "a view, which is evaluated while it is counted; store it as a table"
        raise DataError(f"source: {source.display_name} is {words}, or give it as a DataFrame, which is stored first")
    full = [description["catalog_name"], *description["namespace"], description["table_name"]]
    unique = {"countveil": uuid.uuid4().hex}  # an option that differs from every cached read, so no cache is used
    return session.read.options(**unique).table(".".join(map(_quote, full)))


def trace_of(source: Source) -> Trace | None:
    """A table's schema and the traces of its files, to detect changes; None if these might not show every change."""
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
