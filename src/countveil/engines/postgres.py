"""Counting in PostgreSQL: one read-only transaction, on the server, with a role that can read and nothing else.

    CREATE ROLE countveil LOGIN PASSWORD '...';
    GRANT USAGE ON SCHEMA public TO countveil;
    GRANT SELECT ON people TO countveil;

The role is checked at the start: one that could write, or that is above the rules, is refused. A statement that takes
too long is cancelled. What the server says goes nowhere: it can quote the data.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countveil.engines.dialect import Dialect, Family
from countveil.engines.source import Source
from countveil.engines.sql_engine import SqlEngine
from countveil.engines.statement import Statement
from countveil.errors import DataError, EngineError, MissingExtraError
from countveil.schema import Kind, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIMEOUT = 3600
"""Seconds that one statement may take."""
UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"
GRANT = "use a role of its own: GRANT SELECT ON the table TO it, and nothing else"
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["int2", "int4", "int8"], "integer"),
    **dict.fromkeys(["float4", "float8"], "float"),
    **dict.fromkeys(["text", "varchar", "bpchar", "uuid", "name", "citext"], "text"),
    "numeric": "decimal",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "zoned",
}
TYPES: dict[Kind, str] = {"text": "text", "integer": "bigint", "boolean": "boolean", "date": "date"}
_LOW, _HIGH = -(2**63), 2**63 - 1


class PostgresDialect(Dialect):
    """PostgreSQL's spelling. It has no TRY_CAST: what is cast has been checked to be castable first."""

    text_type = "text"

    def characters(self, raw: str) -> str:
        return f'(CAST({raw} AS text) COLLATE "C")'

    def parameter(self, key: str) -> str:
        return f"%({key})s"

    def matches(self, expression: str, pattern: str) -> str:
        return f"{expression} ~ '{pattern}'"

    def read_integer(self, family: Family, raw: str) -> str:
        if family == "integer":
            return raw
        if family == "text":
            text = self.trimmed(f"CAST({raw} AS text)")
            number = f"CAST({text} AS numeric)"
            fits = f"CASE WHEN {number} BETWEEN {_LOW} AND {_HIGH} THEN CAST({number} AS bigint) END"
            return f"CASE WHEN {self.matches(text, self.integer_text)} THEN {fits} END"
        if family == "float":
            inside = f"{raw} >= CAST({_LOW} AS float8) AND {raw} < CAST(9223372036854775808 AS float8)"
            return f"CASE WHEN {inside} THEN CASE WHEN {raw} = trunc({raw}) THEN CAST({raw} AS bigint) END END"
        return f"CASE WHEN {raw} BETWEEN {_LOW} AND {_HIGH} AND {raw} = trunc({raw}) THEN CAST({raw} AS bigint) END"

    def read_date(self, family: Family, raw: str) -> str:
        if family == "date":
            return raw
        if family == "timestamp":
            return f"CAST({raw} AS date)"
        text = self.trimmed(f"CAST({raw} AS text)")
        year, month, day = (f"CAST(substr({text}, {at}, {size}) AS integer)" for at, size in ((1, 4), (6, 2), (9, 2)))
        leap = f"({year} % 4 = 0 AND ({year} % 100 <> 0 OR {year} % 400 = 0))".replace("%", "%%")
        days = f"CASE {month} WHEN 2 THEN CASE WHEN {leap} THEN 29 ELSE 28 END "
        days += "WHEN 4 THEN 30 WHEN 6 THEN 30 WHEN 9 THEN 30 WHEN 11 THEN 30 ELSE 31 END"
        exists = f"{year} >= 1 AND {month} BETWEEN 1 AND 12 AND {day} BETWEEN 1 AND {days}"
        made = f"CASE WHEN {exists} THEN make_date({year}, {month}, {day}) END"
        return f"CASE WHEN {self.matches(text, self.date_text)} THEN {made} END"

    def read_boolean(self, family: Family, raw: str) -> str:
        return super().read_boolean(family, f"CAST({raw} AS text)" if family == "text" else raw)

    def missing(self, family: Family, raw: str) -> str:
        return f"({raw} IS NULL OR {raw} = 'NaN')" if family in ("float", "decimal") else f"{raw} IS NULL"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        return f"{expression} = ANY (CAST({parameter} AS {TYPES[kind]}[]))"

    def listed(self, parameter: str, kind: Kind) -> str:
        values = f"unnest(CAST({parameter} AS {TYPES[kind]}[])) WITH ORDINALITY AS listed (v, i)"
        return f"(SELECT v, i - 1 AS i FROM {values})"

    def digest(self, expression: str) -> str:
        return f'md5({expression}) COLLATE "C"'

    def whole(self, a: str, b: str) -> str:
        return f"({a} / {b})"


class PostgresEngine(SqlEngine):
    """Counts on one table through a connection of its own, opened again when it was lost."""

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
        self._lock = threading.Lock()
        self._connection: Any = None
        self._columns: dict[str, Family] | None = None
        self.relation = ".".join(self.dialect.name(part) for part in source.table.split("."))
        try:
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
        options = f"-c default_transaction_read_only=on -c statement_timeout={TIMEOUT * 1000} -c timezone=UTC"
        try:
            return self._driver.connect(
                self._source.location, options=options, connect_timeout=30, application_name="countveil"
            )
        except (self._driver.Error, ValueError, UnicodeError):
            words = "could not be reached; check the address, the role and its password"
            raise EngineError(f"source: {self._source.shown} {words}") from None

    def _fetch(self, sql: str, values: Mapping[str, object] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names and rows of a statement, in a read-only transaction of its own."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = self._open()
            try:
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    cursor.execute(sql, dict(values or {}))
                    return [column.name for column in cursor.description], cursor.fetchall()
            except (self._driver.Error, OSError, UnicodeError):
                self._connection.close()
                raise EngineError(UNREADABLE) from None

    def _check_role(self) -> None:
        """The role can read the table, and can do nothing else to it."""
        _, rows = self._fetch(
            "SELECT r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolbypassrls, "
            "has_table_privilege(t.oid, 'SELECT'), "
            "has_table_privilege(t.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES'), "
            "pg_has_role(c.relowner, 'MEMBER'), c.relkind::text "
            "FROM pg_roles AS r, (SELECT to_regclass(%(table)s) AS oid) AS t LEFT JOIN pg_class AS c ON c.oid = t.oid "
            "WHERE r.rolname = current_user",
            {"table": self.relation},
        )
        above, reads, writes, owns, kind = rows[0] if rows else (None,) * 5
        if reads is None:
            raise DataError(f"source: {self._source.shown} has no table {self._source.table} that this role can see")
        if not reads:
            raise DataError(f"source: this role may not read {self._source.table}; {GRANT}")
        if above or writes or owns:
            raise DataError(f"source: this role can do more than read {self._source.table}; {GRANT}")
        if kind not in (
            "r",
            "p",
            "m",
            b"r",
            b"p",
            b"m",
        ):  # what is evaluated while it is counted can fail for some rows
            words = "is a view or a foreign table, which is evaluated while it is counted"
            raise DataError(f"source: {self._source.table} {words}; make it a MATERIALIZED VIEW or a table")

    # -- the protocol ------------------------------------------------------------------------------------------------

    def columns(self) -> Mapping[str, Family]:
        if self._columns is None:
            _, rows = self._fetch(
                "SELECT a.attname, t.typname, t.typtype, a.atttypmod "
                "FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid "
                "WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                {"table": self.relation},
            )
            self._columns = {name: _family(kind, sort, modifier) for name, kind, sort, modifier in rows}
        return self._columns

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
        """What the server counts of changes to the table: other numbers, other content."""
        _, rows = self._fetch(
            "SELECT c.oid::bigint, c.relfilenode::bigint, s.n_tup_ins, s.n_tup_upd, s.n_tup_del "
            "FROM pg_partition_tree(to_regclass(%(table)s)) AS t JOIN pg_class AS c ON c.oid = t.relid "
            "LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid "
            "UNION SELECT c.oid::bigint, c.relfilenode::bigint, s.n_tup_ins, s.n_tup_upd, s.n_tup_del "
            "FROM pg_class AS c LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid "
            "WHERE c.oid = to_regclass(%(table)s) ORDER BY 1",
            {"table": self.relation},
        )
        return hashlib.sha256(f"{self._source.table} {rows}".encode()).hexdigest()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def _family(kind: str, sort: str, modifier: int) -> Family:
    """An enumeration is text, a numeric without decimals an integer."""
    if kind == "numeric" and modifier >= 4 and (modifier - 4) & 0x7FF == 0:
        return "integer"
    return "text" if sort == "e" else FAMILIES.get(kind, "other")
