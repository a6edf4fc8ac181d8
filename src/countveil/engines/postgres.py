"""Counting in PostgreSQL: one read-only transaction, on the server, with a role that can read and nothing else.

    CREATE ROLE countveil LOGIN PASSWORD '...';
    GRANT USAGE ON SCHEMA public TO countveil;
    GRANT SELECT ON people TO countveil;

The role is checked at the start: one that could write, or that is above the rules, is refused. A statement that takes
too long is cancelled. What the server says goes nowhere: it can quote the data.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countveil.engines.dialect import Family
from countveil.engines.postgres_role import EXCESS, GRANT, REASONS
from countveil.engines.postgres_sql import NUMBERS, PostgresCompiler, PostgresDialect, family_of
from countveil.engines.source import Source
from countveil.engines.sql_engine import SqlEngine
from countveil.engines.statement import Statement
from countveil.errors import DataError, EngineError, MissingExtraError, shortened
from countveil.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIMEOUT = 3600
"""Seconds that one statement may take."""
UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"
BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; "
    "SET LOCAL statement_timeout = {timeout}; SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'"
)
"""Whatever the role, the database or a pooler has set."""
FIND = """
SELECT n.nspname, c.relname, CAST(c.relkind AS text), row_security_active(c.oid),
    has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm', 'v', 'f') AND concat(n.nspname, '.', c.relname) = %(name)s
"""
TREE = """
WITH RECURSIVE tree (oid) AS (
    SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
    UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN tree ON i.inhparent = tree.oid
)
"""
"""A table, its partitions, and those that inherit from it: a count of it is a count of them all."""
FOREIGN = TREE + "SELECT 1 FROM tree JOIN pg_class AS c ON c.oid = tree.oid WHERE c.relkind = 'f' LIMIT 1"
COLUMNS = """
SELECT a.attname, t.typname, CAST(t.typtype AS text), a.atttypmod, t.typnamespace = 'pg_catalog'::regnamespace,
    CAST(a.attgenerated AS text) = 'v'
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid JOIN pg_class AS c ON c.oid = a.attrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
TRACE = (
    TREE
    + """
SELECT CAST(c.oid AS bigint), CAST(c.relfilenode AS bigint), s.n_tup_ins, s.n_tup_upd, s.n_tup_del,
    CAST(pg_postmaster_start_time() AS text),
    CAST((SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()) AS text),
    CASE WHEN pg_is_in_recovery() THEN CAST(pg_last_wal_replay_lsn() AS text) END
FROM tree JOIN pg_class AS c ON c.oid = tree.oid LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid ORDER BY 1
"""
)
CONTENT = (
    "SELECT count(*), CAST(sum(hashtextextended(concat(tableoid, '|', ctid, '|', xmin), 0)) AS text) FROM {relation}"
)


class PostgresEngine(SqlEngine):
    """Counts on one table through a connection of its own, opened again when it was lost, and in a forked process."""

    dialect = PostgresDialect()

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("psycopg", "postgres") from None
        if not source.table:
            raise EngineError(f'source: {source.shown} needs table = "..."')
        self._driver = psycopg
        self._source = source
        self._shown = shortened(source.table, 100)
        self._lock = threading.Lock()
        self._connection: Any = None
        self._columns: dict[str, Family] | None = None
        self._numbers: frozenset[str] = frozenset()
        self._content: tuple[object, object] | None = None
        _OPEN.add(self)
        try:
            self._place = self._find(source.table)
            self.relation = ".".join(self.dialect.name(part) for part in self._place.values())
            self._check_role()
            if schema is not None:
                self.check(schema)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self._connection.close()

    # -- the connection ----------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        options: dict[str, Any] = {"connect_timeout": 30, "client_encoding": "UTF8", "application_name": "countveil"}
        options |= {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "tcp_user_timeout": 60_000}
        try:
            return self._driver.connect(self._source.location, autocommit=True, prepare_threshold=None, **options)
        except (self._driver.Error, ValueError, UnicodeError):
            words = "could not be reached; check the address, the role and its password"
            raise EngineError(f"source: {self._source.shown} {words}") from None

    def _begun(self) -> Any:
        """A connection in a read-only transaction. One that was lost while nothing was asked is opened again."""
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
        """In a process that was just forked: the connection, and whatever held its lock, belong to the parent."""
        self._lock = threading.Lock()
        if self._connection is not None:
            _INHERITED.append(self._connection)
            self._connection = None

    def _fetch(
        self, sql: str, values: Mapping[str, object] | None = None, unwritable: str = ""
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names and rows of a statement, in a transaction of its own; `unwritable` refuses values that it cannot
        take. Whatever goes wrong, its words stay here: they can quote the data."""
        with self._lock:
            try:
                with self._begun().cursor() as cursor:
                    cursor.execute(sql, dict(values or {}))
                    found = [column.name for column in cursor.description or ()], cursor.fetchall()
                    cursor.execute("COMMIT")
                    return found
            except EngineError:
                raise
            except BaseException as error:
                self._drop()  # the server ends the transaction
                if not isinstance(error, Exception):
                    raise
                if unwritable and isinstance(error, (self._driver.DataError, UnicodeError)):
                    raise DataError(unwritable) from None
                raise EngineError(UNREADABLE) from None

    # -- what is checked at the start --------------------------------------------------------------------------------

    def _find(self, table: str) -> dict[str, str]:
        """The schema and name of the table, in `public` if no schema is given."""
        name = table if "." in table else f"public.{table}"
        unknown = f"source: {self._source.shown} has no table {self._shown} that this role can see"
        _, rows = self._fetch(FIND, {"name": name}, unknown)
        if len(rows) != 1:
            raise DataError(unknown if not rows else f"source: there are several tables called {self._shown}")
        ((schema, found, kind, guarded, reads),) = rows
        place = {"schema": schema, "table": found}
        if not reads:
            words = f"GRANT USAGE ON SCHEMA {shortened(schema)} TO it and GRANT SELECT ON {self._shown} TO it"
            raise DataError(f"source: this role may not read {self._shown}; {words}")
        if kind in "vf" or self._fetch(FOREIGN, place)[1]:
            words = "is a view or a foreign table, or has one as a partition, which is evaluated while it is counted"
            raise DataError(f"source: {self._shown} {words}; make it a MATERIALIZED VIEW or a table")
        if guarded:
            words = "has row security, which is evaluated while it is counted"
            raise DataError(f"source: {self._shown} {words}; make a MATERIALIZED VIEW of the rows that may be counted")
        return place

    def _check_role(self) -> None:
        """The role can read, and can do nothing else."""
        _, rows = self._fetch(EXCESS)
        if rows:
            reason = REASONS[rows[0][0]]
            raise DataError(f"source: this role can do more than read {self._shown}: {reason}; {GRANT}")

    def check(self, schema: Schema) -> None:
        """Also refuse declared values that the database cannot hold."""
        super().check(schema)
        for column in schema.columns:
            if column.kind == "text":
                words = "a declared value has a character that this database cannot hold: NUL, or none of its encoding"
                sql = "SELECT count(*) FROM unnest(CAST(%(values)s AS text[])) AS v"
                self._fetch(sql, {"values": list(column.values)}, f"column {column.name}: {words}")

    # -- the protocol ------------------------------------------------------------------------------------------------

    def columns(self) -> Mapping[str, Family]:
        if self._columns is None:
            _, rows = self._fetch(COLUMNS, self._place)
            self._numbers = frozenset(name for name, kind, *_ in rows if kind in NUMBERS)
            self._columns = {name: family_of(*kind) for name, *kind in rows}
        return self._columns

    def compiler(self) -> PostgresCompiler:
        return PostgresCompiler(self.dialect, self.relation, self.columns(), self._numbers)

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        import numpy as np

        names, rows = self._fetch(statement.sql, statement.values)
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
        whole = {"cell", "n"}
        return {
            name: np.array(values, dtype=np.int64 if name in whole else object)
            for name, values in zip(names, columns, strict=True)
        }

    def fingerprint(self) -> str:
        """The columns of the table and the versions of its rows, whatever their order: where each is and who wrote it.

        Rows are read again when the server's counters of changes have moved, or may have begun anew. Counters can be
        seconds late. A change that they do not show yet is not noticed: a stale replay, never a leak.
        """
        _, trace = self._fetch(TRACE, self._place)  # before the rows: a change in between is seen the next time
        if not trace:
            raise EngineError(UNREADABLE)
        if self._content is None or self._content[0] != trace:
            self._content = (trace, self._fetch(CONTENT.format(relation=self.relation)))
        _, shape = self._fetch(COLUMNS, self._place)
        return hashlib.sha256(repr((self._place, shape, self._content[1])).encode()).hexdigest()

    def close(self) -> None:
        with self._lock:
            self._drop()


_OPEN: weakref.WeakSet[PostgresEngine] = weakref.WeakSet()
_INHERITED: list[Any] = []
"""Connections of a parent process. To close one here would end it there."""


def _after_fork() -> None:
    for engine in list(_OPEN):
        engine.forget()


os.register_at_fork(after_in_child=_after_fork)
