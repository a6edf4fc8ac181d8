"""Counting in PostgreSQL: the server counts in one read-only transaction, with a role that can read and nothing else.

    CREATE ROLE countveil LOGIN PASSWORD '...';
    GRANT USAGE ON SCHEMA public TO countveil;
    GRANT SELECT ON people TO countveil;

The table and the role are checked when the source is opened and again in every transaction that reads rows (see
`postgres_checks`). Tables that are evaluated while they are counted are refused, and so are roles that could write or
bypass the access rules. A statement that takes too long is cancelled. The server's error messages are discarded,
because they can quote the data.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from countveil.data.engines.engine import UNREADABLE, SqlEngine
from countveil.data.engines.families import Family
from countveil.data.engines.postgres_checks import MAY_NOT_LOOK, REFUSALS, TREE, check_statement
from countveil.data.engines.postgres_sql import NUMBERS, PostgresDialect, family_of
from countveil.data.engines.sql import Compiler, Statement
from countveil.data.source import Source
from countveil.errors import CountveilError, DataError, EngineError, MissingExtraError, shorten
from countveil.query.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIMEOUT = 3600
"""Seconds after which a statement is cancelled."""
CHANGED = "the source's columns or its kind of table changed since it was opened; ask again"
BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; "
    "SET LOCAL statement_timeout = {timeout}; SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'"
)
"""Begins a read-only transaction whose settings override those of the role, the database and a connection pooler."""
FIND = """
SELECT n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm', 'v', 'f') AND concat(n.nspname, '.', c.relname) = %(name)s
"""
TRACE = f"""
WITH RECURSIVE {TREE}
SELECT CAST(c.relkind AS text), CAST(c.oid AS bigint), CAST(c.relfilenode AS bigint),
    s.n_tup_ins, s.n_tup_upd, s.n_tup_del, CAST(pg_postmaster_start_time() AS text),
    CAST((SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()) AS text),
    CAST((SELECT stats_reset FROM pg_stat_bgwriter) AS text),
    CASE WHEN pg_is_in_recovery() THEN CAST(pg_last_wal_replay_lsn() AS text) END
FROM tree JOIN pg_class AS c ON c.oid = tree.oid LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
ORDER BY tree.root DESC, c.oid
"""
"""Reads the server's change counters of a table, and when these were last reset: the crash of one session resets
all counters."""
CONTENT = (
    "SELECT count(*), CAST(sum(hashtextextended(concat(tableoid, '|', ctid, '|', xmin), 0)) AS text) FROM {relation}"
)


class PostgresCompiler(Compiler):
    """Builds statements in which NaN is missing, and a text too long to be parsed is no person's id."""

    def __init__(self, engine: PostgresEngine) -> None:
        super().__init__(engine.dialect, engine.relation, engine.columns(), engine.garbled, engine.scales())
        self.engine = engine

    def raw(self, name: str) -> str:
        column = super().raw(name)
        return f"NULLIF({column}, 'NaN')" if name in self.engine.numbers else column

    def person(self, name: str) -> str:
        column = super().person(name)
        return self.engine.dialect.if_short(column, column) if self.families[name] == "text" else column

    def hash(self, unit: str, salt: str) -> str:
        """SQL for the hash of person, cell and salt. PostgreSQL's hash functions are chained: the hash of the person is
        the seed for the hash of the cell."""
        function = "hashtextextended" if self.families[unit] == "text" else "hashint8extended"
        if self.families[unit] == "integer" and unit in self.engine.numbers:
            function = "hash_numeric_extended"
        return f"hashint8extended(cell, {function}(u, CAST({salt} AS BIGINT)))"


class PostgresEngine(SqlEngine):
    """Counts on one table of a PostgreSQL server, through one connection.

    The connection is opened again after it was lost, or after the process has forked.
    """

    dialect = PostgresDialect()
    _connection: Any = None

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("psycopg", "postgres") from None
        if not source.table:
            raise EngineError(f'source: {source.display_name} needs table = "..."')
        self._driver = psycopg
        self._source = source
        self._shown = shorten(source.table, 100)
        self._lock = threading.Lock()
        self._content: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] | None = None
        _OPEN.add(self)
        try:
            self._place = self._find(source.table)
            self.relation = ".".join(self.dialect.name(part) for part in self._place.values())
            with self._transaction() as cursor:
                self._look: Any = self._check(cursor)
            if schema is not None:
                self.check(schema)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self._drop()

    # -- the connection ----------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        options: dict[str, Any] = {"connect_timeout": 30, "client_encoding": "UTF8", "application_name": "countveil"}
        options |= {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "tcp_user_timeout": 60_000}
        try:
            return self._driver.connect(self._source.location, autocommit=True, prepare_threshold=None, **options)
        except (self._driver.Error, ValueError, UnicodeError):
            words = "could not be reached; check the address, the role and its password"
            raise EngineError(f"source: {self._source.display_name} {words}") from None

    def _begin(self) -> Any:
        """Begin a read-only transaction and return its connection. If the connection was lost, it is opened again."""
        begin = BEGIN.format(timeout=int(TIMEOUT * 1000))
        if self._connection is not None:
            try:
                self._connection.execute(begin)
                return self._connection
            except self._driver.OperationalError:
                self._drop()
        self._connection = self._open()
        self._connection.execute(begin)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def forget(self) -> None:
        """Give up the connection and the lock in a process that was just forked: both belong to the parent."""
        self._lock = threading.Lock()
        if self._connection is not None:
            _INHERITED.append(self._connection)
            self._connection = None

    @contextmanager
    def _transaction(self, unwritable: str = "") -> Iterator[Any]:
        """A cursor in a new transaction. `unwritable` is the error message for values that the server cannot represent.

        The server's own error messages are discarded, because they can quote the data.
        """
        with self._lock:
            try:
                with self._begin().cursor() as cursor:
                    yield cursor
                    cursor.execute("COMMIT")
            except BaseException as error:
                self._drop()  # the server ends the transaction
                if isinstance(error, CountveilError) or not isinstance(error, Exception):
                    raise
                if unwritable and isinstance(error, (self._driver.DataError, UnicodeError)):
                    raise DataError(unwritable) from None
                raise EngineError(UNREADABLE) from None

    def _fetch(self, sql: str, values: Mapping[str, object], unwritable: str = "") -> list[tuple[Any, ...]]:
        """Run a statement that does not read the counted table, and return its rows."""
        with self._transaction(unwritable) as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(sql, values).fetchall()
            return rows

    # -- checks, when the source is opened and at every count --------------------------------------------------------

    def _find(self, table: str) -> dict[str, str]:
        """Find the schema and name of the table; without a schema in its name, `public` is searched."""
        name = table if "." in table else f"public.{table}"
        unknown = f"source: {self._source.display_name} has no table {self._shown} that this role can see"
        rows = self._fetch(FIND, {"name": name}, unknown)
        if len(rows) != 1:
            raise DataError(unknown if not rows else f"source: several tables have the name {self._shown}")
        ((schema, table),) = rows
        return {"schema": schema, "table": table}

    def _lock_table(self, cursor: Any, kind: object) -> None:
        """Lock the table: until the transaction ends, nobody can change its columns or add a policy to it.

        This is called before the first statement, so that the transaction's snapshot is taken under the lock.
        Materialized views are not locked: they have no policies, and PostgreSQL has no such lock for them.
        """
        if kind in ("r", "p"):
            cursor.execute(f"LOCK TABLE ONLY {self.relation} IN ACCESS SHARE MODE", {})

    def _check(self, cursor: Any) -> tuple[object, ...]:
        """Refuse a table that may not be counted, or not by this role.

        Returns the table's kind, its server, its columns, and a hash of how its rows are stored.
        """
        try:
            cursor.execute(check_statement(cursor.connection.info.server_version), self._place)
        except self._driver.errors.InsufficientPrivilege:
            raise DataError(f"source: {MAY_NOT_LOOK}") from None
        reason, *look = cursor.fetchone()
        if look[0] is None:
            raise EngineError(UNREADABLE)
        if reason is not None:
            words = REFUSALS[reason].format(table=self._shown, schema=shorten(self._place["schema"]))
            raise DataError(f"source: {words}")
        return tuple(look)

    def check(self, schema: Schema) -> None:
        """Check the schema as every SQL engine does. Also refuse types with user-defined casts, and declared values
        that the database cannot represent."""
        cast = {name for name, *_, cast in self._look[2] if cast}
        for name in [column.name for column in schema.sources] + [schema.unit] * (not schema.unit_is_row):
            if name in cast:
                words = "user-defined casts (CREATE CAST), which are evaluated while it is counted"
                raise DataError(f"column {name}: its type has {words}; DROP CAST, or store it in a type without casts")
        super().check(schema)
        for column in schema.sources:
            if column.kind == "text":
                words = "a declared value has NUL or a character outside the encoding of this database; remove it"
                sql = "SELECT count(*) FROM unnest(CAST(%(values)s AS text[])) AS v"
                self._fetch(sql, {"values": list(column.values)}, f"column {column.name}: {words}")

    # -- the methods of an engine ------------------------------------------------------------------------------------

    def columns(self) -> Mapping[str, Family]:
        return {name: family_of(*kind) for name, *kind, _ in self._look[2]}

    def scales(self) -> Mapping[str, int]:
        """The scale to which cuts are rounded up: for every numeric column 18, the most digits of an edge.

        The columns may have more digits after the point: PostgreSQL compares numbers of any scale exactly.
        """
        return {name: 18 for name, kind, *_ in self._look[2] if kind == "numeric"}

    def compiler(self) -> PostgresCompiler:
        return PostgresCompiler(self)

    @property
    def numbers(self) -> set[str]:
        """The columns that can hold NaN, including numeric columns that are read as integers."""
        return {name for name, kind, *_ in self._look[2] if kind in NUMBERS}

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        import numpy as np

        with self._transaction() as cursor:
            self._lock_table(cursor, self._look[0])
            kind, _, columns, _ = self._check(cursor)
            if (kind, columns) != (self._look[0], self._look[2]):  # the statement was made for other columns
                raise EngineError(CHANGED)
            rows = cursor.execute(statement.sql, dict(statement.values)).fetchall()
            names = [column.name for column in cursor.description or ()]
        types = [np.int64 if name in ("cell", "n") else object for name in names]
        return {name: np.array([row[i] for row in rows], dtype=types[i]) for i, name in enumerate(names)}

    def fingerprint(self) -> str:
        """A hash of the server, the table's columns, and for every row its position and the transaction that wrote it.

        Rows are read again only if the server's change counters differ or may have been reset. The counters can be
        seconds late. A change that they do not show yet is missed: the result is a stale replay, never a leak.
        """
        trace = self._fetch(TRACE, self._place)  # before the rows: a change in between is detected the next time
        if not trace:
            raise EngineError(UNREADABLE)
        known = self._content
        with self._transaction() as cursor:
            if known is not None and known[0] == trace:
                look = self._check(cursor)
            else:
                self._lock_table(cursor, trace[0][0])
                look = self._check(cursor)
                known = self._content = trace, cursor.execute(CONTENT.format(relation=self.relation), {}).fetchall()
        return hashlib.sha256(repr((self._place, look, known[1])).encode()).hexdigest()

    def close(self) -> None:
        with self._lock:
            self._drop()


_OPEN: weakref.WeakSet[PostgresEngine] = weakref.WeakSet()
_INHERITED: list[Any] = []
"""Connections of the parent process. They are kept open in the child, because closing one would end the parent's
session."""


def _after_fork() -> None:
    for engine in list(_OPEN):
        engine.forget()


os.register_at_fork(after_in_child=_after_fork)
