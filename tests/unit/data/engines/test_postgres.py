"""The PostgreSQL engine on a real server: the types it reads, the roles it accepts, and faults of the server."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from countveil.curator.curator import Curator
from countveil.data.engines import Source, open_engine, postgres as module, postgres_sql
from countveil.data.engines.postgres import CHANGED, UNREADABLE, PostgresEngine
from countveil.data.engines.postgres_checks import GRANT, MAY_NOT_LOOK
from countveil.data.engines.postgres_sql import LONGEST, family_of
from countveil.data.engines.sql import Statement
from countveil.data.guesses import guess_column
from countveil.data.survey import survey_column, survey_people
from countveil.errors import CountveilError, DataError, EngineError
from countveil.query import ask
from countveil.query.schema import Column, Schema
from tests.support.curated import charged, config_text, with_plan, written
from tests.support.servers import Postgres, postgres, wait_until

psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'countveil[postgres]'")
SALT = b"a salt"


@pytest.fixture
def server() -> Postgres:
    return postgres()


def new(kind: str = "t") -> str:
    return f"{kind}_{uuid.uuid4().hex[:12]}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def made(server: Postgres, columns: str, rows: Sequence[Sequence[object]] = (), name: str | None = None) -> str:
    """A table that the reader may read."""
    name = name or new()
    with psycopg.connect(server.admin, autocommit=True) as db:
        db.execute(f"CREATE TABLE {quoted(name)} ({columns})")
        db.execute(f"GRANT SELECT ON {quoted(name)} TO reader")
        for row in rows:
            places = ", ".join(["%s"] * len(row))
            db.execute(f"INSERT INTO {quoted(name)} VALUES ({places})", row)
        flush(db)
    return name


def flush(db: Any) -> None:
    """Update the server's change counters at once; they may otherwise be seconds late."""
    if db.info.server_version >= 150000:
        db.execute("SELECT pg_stat_force_next_flush()")
    else:
        time.sleep(1)


def change(server: Postgres, statement: str) -> None:
    """Change a table, and update the server's change counters."""
    with psycopg.connect(server.admin, autocommit=True) as db:
        db.execute(statement)
        flush(db)


@contextmanager
def opened(server: Postgres, table: str, *columns: Column, url: str = "", **more: Any) -> Iterator[Callable[..., Any]]:
    """An engine for a table, as a function that counts by columns and with a condition."""
    schema = Schema("people", columns, **more)
    with closing(open_engine(Source(url or server.url, table=table), schema)) as engine:

        def count(*by: str, where: str | None = None, people: bool = False) -> list[int]:
            question = ask(schema, dataset="people", by=by, where=where, people=people)
            return engine.count(question, salt=SALT).tolist()

        count.engine = engine  # type: ignore[attr-defined]
        yield count


def column(server: Postgres, kind: str, values: Sequence[object], declared: Column, name: str = "x") -> list[int]:
    """The cells of one column, and last how many rows are missing."""
    table = made(server, f"{quoted(name)} {kind}", [(value,) for value in values])
    with opened(server, table, declared) as count:
        return [*count(declared.name), *count(where=f"{quoted(name)} IS NULL")]


def refused(url: str, table: str, schema: Schema | None = None) -> str:
    """The message with which a source is refused."""
    with pytest.raises(CountveilError) as error:
        open_engine(Source(url, table=table), schema).close()
    assert "\n" not in str(error.value)
    assert isinstance(error.value, DataError)
    return str(error.value)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def blind(server: Postgres) -> str:
    """A collation for which ab, AB and Ab are equal."""
    name = new("collation")
    server.sql(f"CREATE COLLATION {name} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    return name


def test_text_is_compared_by_bytes_whatever_its_collation(server: Postgres, blind: str) -> None:
    words = ["ab", "AB", "Ab", "aB", None]
    for kind in (f"text COLLATE {blind}", f"varchar(9) COLLATE {blind}"):
        assert column(server, kind, words, Column("x", "text", ("ab", "AB"))) == [1, 1, 1]
    many = Column("x", "text", ("ab", "AB", *(f"v{i}" for i in range(40))))
    table = made(server, f"x text COLLATE {blind}", [(word,) for word in words])
    with opened(server, table, many) as count:
        assert count(where="x <> 'ab'") == [1]
        assert count(where=f"x IN ('AB', {', '.join(repr(f'v{i}') for i in range(39))})") == [1]


def test_text_of_any_collation_is_read_as_integers_and_booleans_and_dates(server: Postgres, blind: str) -> None:
    kind = f"text COLLATE {blind}"
    assert column(server, kind, ["1", " 2 ", "3.0", "x", None], Column("x", "integer", low=1, high=3)) == [1, 1, 1, 1]
    assert column(server, kind, ["TRUE", "t", "F", "0", "1.", "no"], Column("x", "boolean", (False, True))) == [2, 3, 0]
    days = Column("x", "date", (datetime.date(2024, 2, 29),))
    assert column(server, kind, ["2024-02-29", " 2024-02-29", "2023-02-29", "0000-01-01", None], days) == [2, 1]


def test_ids_of_people_are_compared_by_bytes(server: Postgres, blind: str) -> None:
    server.sql("CREATE EXTENSION IF NOT EXISTS citext")
    names = ["ab", "ab", "AB", "Ab", None]
    for kind in (f"text COLLATE {blind}", "citext"):
        table = made(server, f"id {kind}, x text", [(name, "a") for name in names])
        with opened(server, table, Column("x", "text", ("a", "b")), unit="id") as count:
            assert count("x") == [3, 0]
            assert count("x", people=True) == [3, 0]


def test_citext_is_compared_by_bytes(server: Postgres) -> None:
    server.sql("CREATE EXTENSION IF NOT EXISTS citext")
    assert column(server, "citext", ["ab", "AB", "Ab", None], Column("x", "text", ("ab", "AB"))) == [1, 1, 1]
    assert column(server, "citext", ["1", "TRUE", "f", "2"], Column("x", "boolean", (False, True))) == [1, 2, 0]


def test_blanks_that_pad_a_char_are_ignored(server: Postgres) -> None:
    declared = Column("x", "text", ("ab", "ab  "))
    assert column(server, "char(4)", ["ab", "ab  ", None], declared) == [2, 0, 1]
    assert column(server, "varchar(4)", ["ab", "ab  ", None], declared) == [1, 1, 1]


@pytest.mark.parametrize("kind", ["numeric(10, 0)", "numeric", "numeric(10, 2)", "real", "double precision"])
def test_nan_is_counted_as_a_missing_number(server: Postgres, kind: str) -> None:
    values = [1, 2, "NaN", "NaN", None]
    assert column(server, kind, values, Column("x", "integer", low=1, high=3)) == [1, 1, 0, 3]
    assert column(server, kind, [1, 0, "NaN"], Column("x", "boolean", (False, True))) == [1, 1, 1]
    if kind == "numeric(10, 0)":
        assert column(server, kind, values, Column("x", "text", ("1", "NaN"))) == [1, 0, 3]
        table = made(server, f"id {kind}, x text", [(value, "a") for value in values])
        with opened(server, table, Column("x", "text", ("a", "b")), unit="id") as count:
            assert count("x") == [2, 0]


def test_no_length_of_a_text_makes_a_question_fail(server: Postgres) -> None:
    """The server lacks the memory to trim, or to match, hundreds of millions of characters."""
    table = made(server, "x text")
    server.sql(f"INSERT INTO {table} VALUES ('3'), (repeat('0', {LONGEST - 1}) || '3'), (repeat('9', {LONGEST}))")
    server.sql(f"INSERT INTO {table} VALUES ('3' || repeat(' ', 140000000))")
    server.sql(f"INSERT INTO {table} VALUES ('-' || repeat('0', 20000) || '3'), ('3.' || repeat('0', 20000)), ('3.1')")
    with opened(server, table, Column("x", "integer", low=-3, high=3)) as count:
        assert count("x") == [1, 0, 0, 0, 0, 0, 3]
        assert count(where="x IS NULL") == [0]
    for other in (Column("x", "boolean", (False, True)), Column("x", "date", low=700000, high=700001)):
        with opened(server, table, other) as count:
            assert count("x") == [0, 0]


def test_an_id_that_is_too_long_identifies_nobody(server: Postgres) -> None:
    """It does not fit into the text that is hashed: this person is not counted; other counts do not change."""
    table = made(server, "id text, x text")
    server.sql(
        f"INSERT INTO {table} VALUES ('1', 'a'), (repeat('i', {LONGEST}), 'a'), (repeat('i', {LONGEST + 1}), 'a')"
    )
    declared = Column("x", "text", ("a", "b"))
    with opened(server, table, declared, unit="id") as count:
        assert count("x") == [2, 0]
        assert survey_people(count.engine, Schema("people", (declared,), "id")).unnamed == 1


@pytest.mark.parametrize("name", ["100%", "%(p0)s", "%s", "a%%b", 'a"b%', "{0}"])
def test_names_that_look_like_parameters_are_quoted(server: Postgres, name: str) -> None:
    with psycopg.connect(server.admin, autocommit=True) as db:
        table = f"{name}.{new()}"
        place = f"public.{quoted(table)}"
        db.execute(f"CREATE TABLE {place} ({quoted(name)} text, d text)")
        db.execute(f"INSERT INTO {place} VALUES ('1', '2024-02-29'), (NULL, '2023-02-29')")
        db.execute(f"GRANT SELECT ON {place} TO reader")
    schema = Schema("people", (Column(name, "integer", low=0, high=1), Column("d", "date", low=738945, high=738945)))
    with closing(open_engine(Source(server.url, table=f"public.{table}"), schema)) as engine:
        question = ask(schema, dataset="people", by=name, where=f"{quoted(name)} = 1 AND d = DATE '2024-02-29'")
        assert engine.count(question, salt=SALT).tolist() == [0, 1]
        assert engine.fingerprint() == engine.fingerprint()  # type: ignore[attr-defined]


def test_a_column_name_may_contain_a_percent_sign(server: Postgres) -> None:
    days = Column("50%", "date", (datetime.date(2024, 2, 29),))
    assert column(server, "text", ["2024-02-29", "2023-02-29", None], days, "50%") == [1, 1]


@pytest.mark.parametrize("value", ["a\0b", "\udc80", "ok\ud800"])
def test_a_declared_value_that_no_database_can_store_is_refused(server: Postgres, value: str) -> None:
    table = made(server, "x text")
    said = refused(server.url, table, Schema("people", (Column("x", "text", ("fine", value)),)))
    assert said.startswith("column x: a declared value has NUL or a character outside the encoding")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_databases_of_other_encodings_are_counted(server: Postgres, encoding: str) -> None:
    name = new("db")
    server.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with psycopg.connect(server.admin.replace("/postgres", f"/{name}"), client_encoding="UTF8") as db:
        db.execute("CREATE TABLE t (x text)")
        db.execute("INSERT INTO t VALUES ('é'), ('e')")
        db.execute("GRANT SELECT ON t TO reader")
    url = server.url.replace("/postgres", f"/{name}")
    with opened(server, "t", Column("x", "text", ("é", "e")), url=url) as count:
        assert count("x") == [1, 1]
    if encoding == "LATIN1":
        said = refused(url, "t", Schema("people", (Column("x", "text", ("é", "€")),)))
        assert said.startswith("column x: a declared value has NUL or a character outside the encoding")


@pytest.mark.parametrize("value", ["no\0table", "\ud800", "missing", "no.such.table", "x" * 100, "pg_class_oid_index"])
def test_a_missing_table_is_refused(server: Postgres, value: str) -> None:
    assert "has no table" in refused(server.url, value)


def test_user_defined_types_with_built_in_names_are_not_read(server: Postgres) -> None:
    server.sql("CREATE SCHEMA IF NOT EXISTS odd")
    for statement in ("CREATE TYPE odd.citext AS (a text)", "CREATE DOMAIN odd.int4 AS text CHECK (length(VALUE) > 0)"):
        server.sql(statement)
    server.sql("CREATE TYPE odd.mood AS ENUM ('sad', 'happy')")
    table = made(server, "a odd.citext, b odd.int4, c odd.mood, d json, e timestamptz, f numeric(10, -2)")
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        assert list(engine.columns().values()) == ["other", "other", "text", "other", "zoned", "decimal"]
    assert family_of("int4", "b", -1, True, computed=True) == "other"


def test_a_survey_does_not_depend_on_the_settings_of_the_role(server: Postgres) -> None:
    table = made(
        server,
        "x numeric(10, 0), d date, f float8, n numeric(6, 2)",
        [(1, "2026-01-31", 0.5, 0.5), (2, "2026-02-28", "Infinity", 8.5), ("NaN", None, "NaN", "NaN")],
    )
    server.sql("ALTER ROLE reader SET datestyle = 'German'")
    try:
        with closing(PostgresEngine(Source(server.url, table=table))) as engine:
            found = survey_column(engine, Column("x", "integer", low=1, high=1))
            assert (found.rows, found.inside, found.null, found.examples) == (3, 1, 1, (("2", 1),))
            guessed = guess_column(engine, "d").column
            assert guessed is not None
            assert guessed.value(guessed.last) == datetime.date(2026, 2, 28)
            assert guess_column(engine, "f").bins == ("0",)
            assert guess_column(engine, "n").bins == ("0", "1", "2", "3", "4", "5", "6", "7", "8")
    finally:
        server.sql("ALTER ROLE reader RESET ALL")


def test_codes_of_a_table_are_guessed_as_lists_and_padded_numbers_as_texts(server: Postgres) -> None:
    rows = [(i % 70 * 1000, f"{i % 7:05}", f"p{i % 70}") for i in range(700)]
    table = made(server, "code int, post text, person text", rows)
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        code, post = guess_column(engine, "code").column, guess_column(engine, "post", "person").column
        assert guess_column(engine, "code", "person").column is None  # each code belongs to one person
    assert code is not None
    assert code.values == tuple(range(0, 70_000, 1000))
    assert post is not None
    assert post.values == tuple(f"{i:05}" for i in range(7))


# -- where the table is ------------------------------------------------------------------------------------------------


def test_functions_of_other_schemas_are_never_called(server: Postgres) -> None:
    """A function with better fitting argument types would be called instead of the built-in one if its schema were
    searched.
    """
    table = made(server, "id text, x text", [("1", "a"), ("2", "b"), ("2", "a")])
    fault = "AS $$ BEGIN RAISE EXCEPTION 'not ours'; END $$ LANGUAGE plpgsql"
    others = ["concat(text, text, text, text, text)", "starts_with(text, varchar)", "md5(varchar)"]
    for function in others:
        server.sql(f"CREATE FUNCTION public.{function} RETURNS text {fault}")
    server.sql("ALTER ROLE reader SET search_path = public, pg_catalog")
    try:
        with opened(server, table, Column("x", "text", ("a", "b")), unit="id") as count:
            assert sum(count("x")) == 2
            assert sum(count("x", people=True)) == 2
    finally:
        server.sql("ALTER ROLE reader RESET ALL")
        for function in others:
            server.sql(f"DROP FUNCTION public.{function}")


def test_a_table_without_a_schema_is_in_public(server: Postgres) -> None:
    name, other = new(), new("s")
    server.sql(f"CREATE SCHEMA {other}")
    server.sql(f"CREATE TABLE {other}.{name} AS SELECT 'b' AS x")
    server.sql(f"GRANT SELECT ON {other}.{name} TO reader")
    server.sql(f"ALTER ROLE reader SET search_path = {other}, public")
    try:
        assert "has no table" in refused(server.url, name)
        assert f"may not read {other}.{name}; GRANT USAGE ON SCHEMA" in refused(server.url, f"{other}.{name}")
        server.sql(f"GRANT USAGE ON SCHEMA {other} TO reader")
        made(server, "x text", [("a",)], name)
        declared = Column("x", "text", ("a", "b"))
        with opened(server, name, declared) as one, opened(server, f"{other}.{name}", declared) as two:
            assert (one("x"), two("x")) == ([1, 0], [0, 1])
    finally:
        server.sql("ALTER ROLE reader RESET ALL")


def test_views_and_foreign_tables_and_tables_with_row_security_are_refused(server: Postgres) -> None:
    table, names = made(server, "x int"), [new() for _ in range(4)]
    server.sql(f"CREATE VIEW {names[0]} AS SELECT 1 / x AS x FROM {table}")
    wrapper = new("w")
    server.sql(f"CREATE FOREIGN DATA WRAPPER {wrapper}")
    server.sql(f"CREATE SERVER {wrapper} FOREIGN DATA WRAPPER {wrapper}")
    server.sql(f"CREATE FOREIGN TABLE {names[1]} (x int) SERVER {wrapper}")
    server.sql(f"CREATE TABLE {names[2]} (x int) PARTITION BY LIST (x)")
    server.sql(f"CREATE FOREIGN TABLE {names[2]}_1 PARTITION OF {names[2]} FOR VALUES IN (1) SERVER {wrapper}")
    for name in names[:3]:
        server.sql(f"GRANT SELECT ON {name} TO reader")
        assert "evaluated while it is counted; make it a MATERIALIZED VIEW or a table" in refused(server.url, name)
    server.sql(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    assert "has row security" in refused(server.url, table)
    server.sql(f"CREATE MATERIALIZED VIEW {names[3]} AS SELECT x FROM {table}")
    server.sql(f"GRANT SELECT ON {names[3]} TO reader")
    PostgresEngine(Source(server.url, table=names[3])).close()


# -- the role ----------------------------------------------------------------------------------------------------------

ABOVE, MEMBER, OWNS, WRITES, CREATES, FOREIGN, SETS, LARGE, LATER = (
    "a role with superuser",
    "a member of a predefined role",
    "owns an object",
    "may write to a table or pass a grant on",
    "may create objects",
    "may use foreign servers",
    "may set server parameters",
    "may write large objects",
    "default privileges give it more than SELECT",
)
TOO_MUCH = {
    **{f"table {p}": (WRITES, f"GRANT {p} ON {{t}} TO {{r}}") for p in ("INSERT", "UPDATE", "DELETE", "TRUNCATE")},
    **{f"table {p}": (WRITES, f"GRANT {p} ON {{t}} TO {{r}}") for p in ("TRIGGER", "REFERENCES")},
    **{f"column {p}": (WRITES, f"GRANT {p} (x) ON {{t}} TO {{r}}") for p in ("INSERT", "UPDATE", "REFERENCES")},
    "another table": (WRITES, "CREATE TABLE {o} (x int); GRANT DELETE ON {o} TO {r}"),
    "a column of another table": (WRITES, "CREATE TABLE {o} (x int); GRANT UPDATE (x) ON {o} TO {r}"),
    "a sequence": (WRITES, "CREATE SEQUENCE {o}; GRANT USAGE ON SEQUENCE {o} TO {r}"),
    "everyone writes": (WRITES, "CREATE TABLE {o} (x int); GRANT INSERT ON {o} TO PUBLIC"),
    "grant option": (WRITES, "GRANT SELECT ON {t} TO {r} WITH GRANT OPTION"),
    "a catalogue": (WRITES, "GRANT UPDATE ON pg_settings TO {r}"),
    "member that writes": (WRITES, "CREATE ROLE {o}; GRANT INSERT ON {t} TO {o}; GRANT {o} TO {r}"),
    "not inherited": (
        WRITES,
        "CREATE ROLE {o}; GRANT UPDATE ON {t} TO {o}; ALTER ROLE {r} NOINHERIT; GRANT {o} TO {r}",
    ),
    "member of a superuser": (ABOVE, "CREATE ROLE {o} SUPERUSER; GRANT {o} TO {r}"),
    "two steps": (ABOVE, "CREATE ROLE {o} NOINHERIT; CREATE ROLE {o}2 CREATEDB; GRANT {o}2 TO {o}; GRANT {o} TO {r}"),
    **{
        word: (ABOVE, f"ALTER ROLE {{r}} {word}")
        for word in ("SUPERUSER", "CREATEROLE", "CREATEDB", "REPLICATION", "BYPASSRLS")
    },
    **{
        f"pg_{name}": (MEMBER, f"GRANT pg_{name} TO {{r}}")
        for name in (
            *("execute_server_program", "write_server_files", "read_server_files", "signal_backend"),
            *("read_all_data", "write_all_data", "monitor"),
        )
    },
    "schema": (CREATES, "CREATE SCHEMA {o}; GRANT CREATE ON SCHEMA {o} TO {r}"),
    "schema, grant option": (CREATES, "CREATE SCHEMA {o}; GRANT USAGE ON SCHEMA {o} TO {r} WITH GRANT OPTION"),
    "everyone creates": (CREATES, "CREATE SCHEMA {o}; GRANT CREATE ON SCHEMA {o} TO PUBLIC"),
    "database": (CREATES, "GRANT CREATE ON DATABASE postgres TO {r}"),
    "owner of the schema": (OWNS, "CREATE SCHEMA {o} AUTHORIZATION {r}"),
    "owner of the table": (OWNS, "ALTER TABLE {t} OWNER TO {r}"),
    "owner of another table": (OWNS, "CREATE TABLE {o} (x int); ALTER TABLE {o} OWNER TO {r}"),
    "owner of a function": (OWNS, "CREATE FUNCTION {o}() RETURNS int RETURN 1; ALTER FUNCTION {o} OWNER TO {r}"),
    "member of an owner": (OWNS, "CREATE ROLE {o}; ALTER TABLE {t} OWNER TO {o}; GRANT {o} TO {r}"),
    "foreign server": (FOREIGN, "CREATE FOREIGN DATA WRAPPER {o}; GRANT USAGE ON FOREIGN DATA WRAPPER {o} TO {r}"),
    "files": (FOREIGN, "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {r}"),
    "connections to elsewhere": (
        FOREIGN,
        "CREATE SCHEMA {o}; CREATE EXTENSION dblink SCHEMA {o}; "
        "GRANT EXECUTE ON FUNCTION {o}.dblink_connect_u(text) TO {r}",
    ),
    "machine code": (
        FOREIGN,
        "CREATE SCHEMA {o}; CREATE FUNCTION {o}.f() RETURNS int LANGUAGE internal AS 'pg_backend_pid'; "
        "REVOKE EXECUTE ON FUNCTION {o}.f() FROM PUBLIC; GRANT EXECUTE ON FUNCTION {o}.f() TO {r}",
    ),
    "SET": (SETS, "GRANT SET ON PARAMETER log_statement TO {r}"),
    "ALTER SYSTEM": (SETS, "GRANT ALTER SYSTEM ON PARAMETER shared_buffers TO {r}"),
    "large object": (LARGE, "SELECT lo_create(4711); GRANT UPDATE ON LARGE OBJECT 4711 TO {r}"),
    "default privileges": (LATER, "ALTER DEFAULT PRIVILEGES GRANT INSERT ON TABLES TO {r}"),
    "default privileges of sequences": (
        LATER,
        "CREATE SCHEMA {o}; ALTER DEFAULT PRIVILEGES IN SCHEMA {o} GRANT USAGE ON SEQUENCES TO {r}",
    ),
}


@pytest.fixture
def role(server: Postgres) -> Iterator[tuple[str, str, str, str]]:
    """A role, its address, a table that it may read, and the name of another object; all are dropped afterwards."""
    name, table, other = new("role"), made(server, "x int", [(1,)]), new("other")
    server.sql(f"CREATE ROLE {name} LOGIN")
    server.sql(f"GRANT SELECT ON {table} TO {name}")
    yield name, server.url.replace("reader@", f"{name}@"), table, other
    for kind in ("TABLE", "SEQUENCE", "SCHEMA", "FOREIGN DATA WRAPPER"):
        try:
            server.sql(f"DROP {kind} IF EXISTS {other} CASCADE")
        except psycopg.errors.WrongObjectType:
            continue


@pytest.mark.parametrize("case", TOO_MUCH)
def test_a_role_that_can_do_more_than_read_is_refused(
    server: Postgres, role: tuple[str, str, str, str], case: str
) -> None:
    name, url, table, other = role
    PostgresEngine(Source(url, table=table)).close()
    reason, statements = TOO_MUCH[case]
    for statement in statements.format(r=name, t=table, o=other).split("; "):
        server.sql(statement)
    said = refused(url, table)
    assert said.startswith(f"source: this role can do more than read {table}: ")
    assert reason in said
    assert said.endswith(GRANT)


def test_the_role_that_logged_in_is_checked_too(server: Postgres, role: tuple[str, str, str, str]) -> None:
    name, url, table, other = role
    server.sql(f"CREATE ROLE {other} LOGIN SUPERUSER")
    server.sql(f"ALTER ROLE {other} SET role = {name}")
    assert ABOVE in refused(url.replace(f"{name}@", f"{other}@"), table)


def test_a_role_that_can_only_read_is_accepted(server: Postgres, role: tuple[str, str, str, str]) -> None:
    """It may read other present and future tables and large objects, also through another role, and use temporary
    tables.
    """
    name, url, table, other = role
    server.sql(f"CREATE TABLE {other} (x int)")
    server.sql(f"CREATE ROLE {other}")
    for statement in (
        f"GRANT SELECT ON {other} TO {other}",
        f"GRANT {other} TO {name}",
        f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {name}",
        f"ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {name}",
        "SELECT lo_create(4712)",
        f"GRANT SELECT ON LARGE OBJECT 4712 TO {name}",
        f"GRANT EXECUTE ON FUNCTION pg_backend_pid() TO {name}",
    ):
        server.sql(statement)
    with psycopg.connect(url) as own:
        own.execute("CREATE TEMP TABLE mine (x int)")
        own.commit()
        for each in (table, other):
            PostgresEngine(Source(url, table=each)).close()


def test_a_role_that_may_not_read_the_table_is_refused(server: Postgres, role: tuple[str, str, str, str]) -> None:
    name, url, table, _ = role
    server.sql(f"REVOKE SELECT ON {table} FROM {name}")
    assert f"this role may not read {table}; GRANT USAGE" in refused(url, table)


def test_a_role_that_may_not_read_the_identity_of_the_server_is_refused(
    server: Postgres, role: tuple[str, str, str, str]
) -> None:
    name, url, table, _ = role
    functions = "FUNCTION pg_control_system(), pg_control_checkpoint()"
    server.sql(f"REVOKE EXECUTE ON {functions} FROM PUBLIC")
    try:
        assert refused(url, table) == f"source: {MAY_NOT_LOOK}"
        server.sql(f"GRANT EXECUTE ON {functions} TO {name}")
        PostgresEngine(Source(url, table=table)).close()
    finally:
        server.sql(f"GRANT EXECUTE ON {functions} TO PUBLIC")


# -- the connection ----------------------------------------------------------------------------------------------------


def test_transactions_of_the_engine_cannot_write(server: Postgres) -> None:
    """Not even through a function that runs with the rights of its owner."""
    table, function = made(server, "x int"), new("f")
    insert = f"INSERT INTO public.{table} VALUES (1)"
    server.sql(f"CREATE FUNCTION {function}() RETURNS void SECURITY DEFINER LANGUAGE sql AS $$ {insert} $$")
    with psycopg.connect(server.url) as allowed:
        allowed.execute(f"SELECT {function}()")
    with opened(server, table, Column("x", "integer", low=1, high=2)) as count:
        with pytest.raises(EngineError):
            count.engine.run(Statement(f"SELECT public.{function}() AS v", {}))
        settings = "transaction_read_only", "transaction_isolation", "search_path", "statement_timeout"
        shown = ", ".join(f"current_setting('{name}') AS {name}" for name in settings)
        found = count.engine.run(Statement(f"SELECT {shown}", {}))
        assert [found[name][0] for name in settings] == ["on", "repeatable read", "pg_catalog, pg_temp", "1h"]
        assert count("x") == [1, 0]


def test_messages_of_the_server_are_neither_logged_nor_returned(
    server: Postgres, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    table = made(server, "x text", [("a secret",)])
    caplog.set_level(logging.WARNING)
    with opened(server, table, Column("x", "text", ("a",))) as count:
        for sql in (f"SELECT CAST(x AS integer) AS n FROM {count.engine.relation}", "SELECT 1 / 0 AS n", "nonsense"):
            with pytest.raises(EngineError) as error:
                count.engine.run(Statement(sql, {}))
            assert str(error.value) == UNREADABLE
            assert error.value.__suppress_context__
        assert count("x") == [0]
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_an_unreachable_server_is_reported_without_its_password() -> None:
    with pytest.raises(EngineError) as error:
        PostgresEngine(Source("postgresql://reader:s3cret@127.0.0.1:1/x?application_name=hidden", table="t"))
    assert str(error.value) == (
        "source: postgresql://127.0.0.1:1/x could not be reached; check the address, the role and its password"
    )
    with pytest.raises(EngineError, match="needs table"):
        PostgresEngine(Source("postgresql://127.0.0.1:1/x"))


def backend(engine: PostgresEngine) -> int:
    return int(engine.run(Statement("SELECT pg_backend_pid() AS n", {}))["n"][0])


def test_a_connection_lost_between_questions_is_reopened(server: Postgres) -> None:
    table = made(server, "x int", [(1,)])
    with opened(server, table, Column("x", "integer", low=1, high=2)) as count:
        first = backend(count.engine)
        server.sql(f"SELECT pg_terminate_backend({first}, 5000)")
        assert count("x") == [1, 0]
        assert backend(count.engine) != first


def test_the_connection_detects_a_dead_server(server: Postgres) -> None:
    with closing(PostgresEngine(Source(server.url, table=made(server, "x int")))) as engine:
        options = {option.keyword: option.val for option in engine._connection.pgconn.info}
    wanted = {"keepalives": b"1", "keepalives_idle": b"20", "keepalives_interval": b"5", "tcp_user_timeout": b"60000"}
    assert {name.decode(): value for name, value in options.items() if name.decode() in wanted} == wanted


def in_child(work: Callable[[], bool]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # rather than wait for the parent's locks for ever
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_process_opens_its_own_connection(server: Postgres) -> None:
    table = made(server, "x int", [(1,)])
    with opened(server, table, Column("x", "integer", low=1, high=2)) as count:
        ours = backend(count.engine)

        def child() -> bool:
            fine = backend(count.engine) != ours and count("x") == [1, 0]
            count.engine.close()
            return fine

        for _ in range(3):
            assert in_child(child) == 0
            assert in_child(lambda: count.engine.close() is None) == 0
            with count.engine._lock:  # as if another thread were counting
                assert in_child(child) == 0
            assert backend(count.engine) == ours
        assert count("x") == [1, 0]


# -- the curator -------------------------------------------------------------------------------------------------------


def configured(server: Postgres, folder: Path, table: str) -> Path:
    columns = 'region = ["North", "South"]\n'
    text = config_text(source=server.url, columns=columns, more=f'table = "{table}"')
    with_plan(written(folder, text))
    return folder / "countveil.toml"


def people(server: Postgres) -> str:
    return made(server, "person int, region text", [(1, "North"), (2, "North"), (3, "South")])


@pytest.mark.smoke
def test_a_changed_table_is_a_new_version_and_an_unchanged_one_replays(server: Postgres, tmp_path: Path) -> None:
    table = people(server)
    path = configured(server, tmp_path, table)
    with Curator.open(path) as curator:
        first = curator.count(by="region")
        assert (len(first.released), first.replayed, first.receipt.version) == (2, False, 1)
        again = curator.count("SELECT region, count(*) FROM people GROUP BY region")
        assert again.replayed
        assert again.released.tolist() == first.released.tolist()
    with Curator.open(path) as curator:  # another process
        assert curator.dry_run(by="region").cost == 0
        assert curator.count(by="region").replayed
        assert charged(path) == 1
        change(server, f"INSERT INTO {table} VALUES (4, 'South')")
        changed = curator.count(by="region")
        assert (changed.replayed, changed.receipt.version, charged(path)) == (False, 2, 2)
        assert curator.count(by="region").replayed
        server.sql(f"ALTER TABLE {table} DROP COLUMN region")
        with pytest.raises(DataError, match="column region is declared, but the source has no column of that name"):
            curator.count(by="region")
        assert charged(path) == 2


def test_a_refused_role_is_not_charged(server: Postgres, tmp_path: Path) -> None:
    table = people(server)
    path = configured(server, tmp_path, table)
    server.sql(f"GRANT INSERT ON {table} TO reader")
    try:
        with Curator.open(path) as curator, pytest.raises(DataError, match="can do more than read"):
            curator.count(by="region")
    finally:
        server.sql(f"REVOKE INSERT ON {table} FROM reader")
    assert charged(path) == 0


LATER_REFUSED = {
    "row security": (
        "has row security",
        "CREATE POLICY p ON {t} USING (1 / (person - 2) >= -1); ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {t} DISABLE ROW LEVEL SECURITY",
    ),
    "a foreign heir": (
        "a foreign table, or has one as a partition",
        "CREATE FOREIGN DATA WRAPPER {o}; CREATE SERVER {o} FOREIGN DATA WRAPPER {o}; "
        "CREATE FOREIGN TABLE {o} () INHERITS ({t}) SERVER {o}",
        "DROP FOREIGN DATA WRAPPER {o} CASCADE",
    ),
    "a view": (
        "a view or a foreign table",
        "ALTER TABLE {t} RENAME TO {o}; CREATE VIEW {t} AS SELECT 1 / (person - 2) AS person, region FROM {o}; "
        "GRANT SELECT ON {t} TO reader",
        "DROP VIEW {t}; ALTER TABLE {o} RENAME TO {t}",
    ),
    "a grant": ("may write to a table", "GRANT INSERT ON {t} TO reader", "REVOKE INSERT ON {t} FROM reader"),
    "a parameter": (
        "may set server parameters",
        "GRANT SET ON PARAMETER log_statement TO reader",
        "REVOKE SET ON PARAMETER log_statement FROM reader",
    ),
    "a grant to come": (
        "default privileges give it more than SELECT",
        "ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO reader",
        "ALTER DEFAULT PRIVILEGES REVOKE DELETE ON TABLES FROM reader",
    ),
    "a cast": (
        "column region: its type has user-defined casts",
        "CREATE FUNCTION {o}({e}) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT CAST(1 / (length($1::char) - 5) AS "
        "text) $$; CREATE CAST ({e} AS text) WITH FUNCTION {o}({e})",
        "DROP FUNCTION {o} CASCADE",
    ),
    "a cast of counts": (
        "has user-defined casts between built-in types",
        "CREATE FUNCTION {o}(bigint) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT format('%s', 1 / ($1 - 2)) $$; "
        "CREATE CAST (bigint AS text) WITH FUNCTION {o}(bigint)",
        "DROP FUNCTION {o} CASCADE",
    ),
}


def test_a_table_that_becomes_inadmissible_is_refused_at_every_count(server: Postgres, tmp_path: Path) -> None:
    """Before the charge, when the source is looked at, and in the transaction of a running count."""
    kind, other = new("mood"), new("other")
    server.sql(f"CREATE TYPE {kind} AS ENUM ('North', 'South')")
    table = made(server, f"person int, region {kind}", [(1, "North"), (2, "North"), (3, "South")])
    path, declared = configured(server, tmp_path, table), Column("region", "text", ("North", "South"))

    def run(statements: str) -> None:
        for statement in statements.format(t=table, o=other, e=kind).split("; "):
            server.sql(statement)

    with Curator.open(path) as curator, opened(server, table, declared) as count:
        curator.count(by="region")
        for case, (said, statements, undo) in LATER_REFUSED.items():
            run(statements)
            try:
                with pytest.raises(DataError) as error:
                    curator.count(by="region", where="region = 'North'")
                assert said in str(error.value), case
                assert "\n" not in str(error.value)
                with pytest.raises((DataError, EngineError)) as error:  # an engine that was open before
                    count("region")
                assert str(error.value) == CHANGED if case == "a cast" else said in str(error.value)
            finally:
                run(undo)
            assert curator.count(by="region").replayed, case
            assert charged(path) == 1


def test_no_policy_can_be_added_between_the_check_and_the_count(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, tried = made(server, "x int", [(1,)]), list[str]()
    with opened(server, table, Column("x", "integer", low=1, high=2)) as count:
        real = count.engine._check

        def check(cursor: Any) -> object:
            look = real(cursor)
            with psycopg.connect(server.admin, options="-c lock_timeout=100ms") as db:
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    db.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
                tried.append(table)
            return look

        monkeypatch.setattr(count.engine, "_check", check)
        assert count("x") == [1, 0]
        count.engine.fingerprint()
        assert len(tried) == 2


def test_a_materialized_view_that_became_a_table_is_not_counted_without_its_lock(server: Postgres) -> None:
    view = new()
    server.sql(f"CREATE MATERIALIZED VIEW {view} AS SELECT 1 AS x")
    server.sql(f"GRANT SELECT ON {view} TO reader")
    with opened(server, view, Column("x", "integer", low=1, high=2)) as count:
        assert count("x") == [1, 0]
        server.sql(f"DROP MATERIALIZED VIEW {view}")
        made(server, "x int", [(1,)], view)
        with pytest.raises(EngineError, match=CHANGED):
            count("x")


def test_user_defined_casts_on_undeclared_columns_are_allowed(server: Postgres) -> None:
    kind, function = new("mood"), new("f")
    server.sql(f"CREATE TYPE {kind} AS ENUM ('a')")
    server.sql(f"CREATE FUNCTION {function}({kind}) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'b' $$")
    table = made(server, f"x text, y {kind}", [("a", "a")])
    before = fingerprint(server, table)
    server.sql(f"CREATE CAST ({kind} AS text) WITH FUNCTION {function}({kind})")
    assert fingerprint(server, table) != before
    with opened(server, table, Column("x", "text", ("a", "b"))) as count:
        assert count("x") == [1, 0]
    for schema in (
        Schema("people", (Column("y", "text", ("a",)),)),
        Schema("people", (Column("x", "text", ("a",)),), "y"),
    ):
        assert "column y: its type has user-defined casts" in refused(server.url, table, schema)


def fingerprint(server: Postgres, table: str) -> str:
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        return engine.fingerprint()


def test_every_change_of_rows_changes_the_fingerprint(server: Postgres) -> None:
    table, twin = people(server), people(server)
    server.sql(f"CREATE INDEX {table}_i ON {table} (person)")
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        seen = [fingerprint(server, twin), engine.fingerprint()]
        for statement in (
            f"INSERT INTO {table} VALUES (4, 'South')",
            f"UPDATE {table} SET region = 'South' WHERE person = 1",
            f"DELETE FROM {table} WHERE person = 4",
            f"ALTER TABLE {table} ADD COLUMN y int",
            f"ALTER TABLE {table} RENAME COLUMN y TO z",
            f"VACUUM FULL {table}",
            f"VACUUM FULL {table}",  # which moves no row
            f"CLUSTER {table} USING {table}_i",
            f"TRUNCATE {table}",
            f"DROP TABLE {table}; CREATE TABLE {table} (person int, region text); GRANT SELECT ON {table} TO reader",
        ):
            change(server, statement)
            seen.append(engine.fingerprint())
            assert engine.fingerprint() == seen[-1] == fingerprint(server, table), statement
        assert len(set(seen)) == len(seen)
        server.sql(f"DROP TABLE {table}")
        with pytest.raises(EngineError, match="could not be read"):
            engine.fingerprint()


SILENT = {
    "a column again": ("text", "ALTER TABLE {t} DROP COLUMN x; ALTER TABLE {t} ADD COLUMN x text"),
    "another default": (
        "text",
        "ALTER TABLE {t} DROP COLUMN x, ADD COLUMN x text DEFAULT 'a'",
        "ALTER TABLE {t} DROP COLUMN x, ADD COLUMN x text DEFAULT 'b'",
        "ALTER TABLE {t} DROP COLUMN x, ADD COLUMN x text DEFAULT 'a'",
    ),
    "swapped labels": (
        "{e}",
        "ALTER TYPE {e} RENAME VALUE 'a' TO 'c'; ALTER TYPE {e} RENAME VALUE 'b' TO 'a'; "
        "ALTER TYPE {e} RENAME VALUE 'c' TO 'b'",
    ),
    "swapped columns": (
        "text",
        "ALTER TABLE {t} RENAME x TO z; ALTER TABLE {t} RENAME y TO x; ALTER TABLE {t} RENAME z TO y",
    ),
}


@pytest.mark.parametrize("case", SILENT)
@pytest.mark.parametrize("child", ["", "PARTITION OF {t} DEFAULT"])
def test_changes_that_write_no_row_change_the_fingerprint(server: Postgres, case: str, child: str) -> None:
    kind, table, enum = SILENT[case][0], new(), new("e")
    server.sql(f"CREATE TYPE {enum} AS ENUM ('a', 'b')")
    kind = kind.format(e=enum)
    part = " PARTITION BY LIST (i)" if child else ""
    server.sql(f"CREATE TABLE {table} (i int, x {kind} DEFAULT 'a', y {kind} DEFAULT 'b'){part}")
    server.sql(f"GRANT SELECT ON {table} TO reader")
    if child:
        server.sql(f"CREATE TABLE {table}_1 {child.format(t=table)}")
    change(server, f"INSERT INTO {table} VALUES (1), (2)")
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        seen = [engine.fingerprint()]
        for statements in SILENT[case][1:]:
            for statement in statements.format(t=table, e=enum).split("; "):
                server.sql(statement)
            seen.append(engine.fingerprint())
            assert seen[-1] == engine.fingerprint() == fingerprint(server, table)
        assert len(set(seen)) == len(seen)


def test_a_partition_changed_while_it_was_detached_changes_the_fingerprint(server: Postgres) -> None:
    """A partition is detached, its column is dropped and added again, and it is attached again: no row is written."""
    table = new()
    server.sql(f"CREATE TABLE {table} (i int, x text) PARTITION BY LIST (i)")
    server.sql(f"CREATE TABLE {table}_1 (i int, x text)")
    server.sql(f"GRANT SELECT ON {table} TO reader")
    server.sql(f"ALTER TABLE {table} ATTACH PARTITION {table}_1 DEFAULT")
    change(server, f"INSERT INTO {table} VALUES (1, 'a')")
    before = fingerprint(server, table)
    for step in (
        f"ALTER TABLE {table} DETACH PARTITION {table}_1",
        f"ALTER TABLE {table}_1 DROP COLUMN x, ADD COLUMN x text DEFAULT 'b'",
        f"ALTER TABLE {table} ATTACH PARTITION {table}_1 DEFAULT",
    ):
        server.sql(step)
    assert fingerprint(server, table) != before
    with opened(server, table, Column("x", "text", ("a", "b"))) as count:
        assert count("x") == [0, 1]


SCRIPT = (
    "CREATE TABLE people (person int, region text)",
    "GRANT SELECT ON people TO reader",
    "INSERT INTO people VALUES (1, 'North'), (2, 'North'), (3, 'South')",
)


@pytest.mark.slow
def test_the_same_rows_on_another_server_or_after_another_history_have_another_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two servers built by one script, a server recovered to an earlier state, and one whose counters were lost."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2**29:
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
    first, twin = (Postgres(postgres().programs) for _ in range(2))
    try:
        for server in (first, twin):
            for statement in SCRIPT:
                change(server, statement)
        assert fingerprint(first, "people") != fingerprint(twin, "people")

        lost_counters(first)

        first.stop()
        subprocess.run(["cp", "-a", first.data, first.folder / "copy"], check=True)
        first.start()
        change(first, "UPDATE people SET region = 'South' WHERE person = 1")
        before = fingerprint(first, "people")
        first.stop()
        shutil.rmtree(first.data)
        (first.folder / "copy").rename(first.data)
        (first.data / "recovery.signal").touch()
        with (first.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("restore_command = 'false'\n")
        first.start()
        wait_until(lambda: recovered(first))
        change(first, "UPDATE people SET region = 'North' WHERE person = 1")
        assert fingerprint(first, "people") != before
    finally:
        first.remove()
        twin.remove()


def lost_counters(server: Postgres) -> None:
    """Crash a session: all counters are reset, although the server was not restarted."""
    with closing(PostgresEngine(Source(server.url, table="people"))) as engine:
        before = engine.fingerprint()
        with suppressed(), psycopg.connect(server.admin) as crashed:
            os.kill(crashed.info.backend_pid, signal.SIGKILL)
            wait_until(lambda: not reachable(server, crashed.info.backend_pid))
            crashed.execute("SELECT 1")
        wait_until(lambda: reachable(server, 0))
        change(server, "INSERT INTO people VALUES (4, 'North'), (5, 'North'), (6, 'South')")  # as many as before
        assert engine.fingerprint() != before


def recovered(server: Postgres) -> bool:
    with psycopg.connect(server.admin) as db:
        return db.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


def reachable(server: Postgres, backend: int) -> bool:
    """Whether the server answers and has this session."""
    try:
        with psycopg.connect(server.admin) as db:
            return (
                db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s OR %s = 0", [backend] * 2).fetchone()
                is not None
            )
    except psycopg.OperationalError:
        return False


def test_rows_of_partitions_and_inheriting_tables_are_counted(server: Postgres) -> None:
    for child in ("PARTITION OF {t} FOR VALUES IN (1)", "() INHERITS ({t})"):
        table = new()
        server.sql(f"CREATE TABLE {table} (x int)" + (" PARTITION BY LIST (x)" if "PARTITION" in child else ""))
        server.sql(f"GRANT SELECT ON {table} TO reader")
        with opened(server, table, Column("x", "integer", low=1, high=2)) as count:
            seen = [count.engine.fingerprint()]
            server.sql(f"CREATE TABLE {table}_1 {child.format(t=table)}")
            change(server, f"INSERT INTO {table}_1 VALUES (1)")
            seen.append(count.engine.fingerprint())
            change(server, f"INSERT INTO {table}_1 VALUES (1)")
            seen.append(count.engine.fingerprint())
            assert len(set(seen)) == 3
            assert count("x") == [2, 0]


def test_reset_counters_do_not_change_the_fingerprint(server: Postgres) -> None:
    table = people(server)
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        before = engine.fingerprint()
        server.sql("SELECT pg_stat_reset()")
        server.sql(f"VACUUM FREEZE ANALYZE {table}")
        assert engine.fingerprint() == before
        server.sql(f"DELETE FROM {table} WHERE person = 3")  # three rows were inserted, as before, and one is gone
        server.sql("SELECT pg_stat_reset()")
        server.sql(f"INSERT INTO {table} SELECT 3, 'North'")
        assert engine.fingerprint() != before


def test_the_rows_are_read_again_only_if_the_counters_change(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    table, read = people(server), list[str]()
    with closing(PostgresEngine(Source(server.url, table=table))) as engine:
        real = engine._lock_table  # before rows are read
        monkeypatch.setattr(engine, "_lock_table", lambda cursor, kind: read.append(kind) or real(cursor, kind))
        for _ in range(3):
            engine.fingerprint()
        assert read == ["r"]


@contextmanager
def locked(server: Postgres, table: str) -> Iterator[None]:
    """Lock a table, so that every count of it waits."""
    with psycopg.connect(server.admin) as db:
        db.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def counting(curator: Curator) -> tuple[threading.Thread, list[str]]:
    said: list[str] = []

    def ask_once() -> None:
        try:
            curator.count(by="region")
        except CountveilError as error:
            said.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=ask_once)
    thread.start()
    return thread, said


def waits(server: Postgres, table: str) -> list[int]:
    """The sessions that wait for a table."""
    with psycopg.connect(server.admin) as db:
        found = db.execute("SELECT pid FROM pg_locks WHERE NOT granted AND relation = %s::regclass", [table])
        return [pid for (pid,) in found.fetchall()]


def test_a_connection_lost_while_counting_keeps_the_charge(
    server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    table = people(server)
    path = configured(server, tmp_path, table)
    with Curator.open(path) as curator:
        curator.count(by="region", where="region = 'North'")
        with locked(server, table):
            thread, said = counting(curator)
            wait_until(lambda: waits(server, table))
            server.sql(f"SELECT pg_terminate_backend({waits(server, table)[0]}, 5000)")
            thread.join(30)
        assert said == [f"EngineError: {UNREADABLE}"]
        assert charged(path) == 2
        answer = curator.count(by="region")
        assert (answer.replayed, charged(path)) == (False, 2)
    assert not [record for record in caplog.records if "psycopg" in record.name]
    assert capfd.readouterr() == ("", "")


def test_a_statement_that_takes_too_long_is_cancelled(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people(server)
    path = configured(server, tmp_path, table)
    with Curator.open(path) as curator:
        curator.count(by="region", where="region = 'North'")
        monkeypatch.setattr(module, "TIMEOUT", 0.5)
        with locked(server, table):
            began = time.monotonic()
            thread, said = counting(curator)
            thread.join(30)
            assert time.monotonic() - began < 20
        assert said == [f"EngineError: {UNREADABLE}"]
        monkeypatch.undo()
        assert charged(path) == 2
        curator.count(by="region")
        assert charged(path) == 2


def test_a_question_is_charged_once_although_the_server_crashes_while_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server loses its counters, but the rows are unchanged, so the question is the same and already paid for."""
    programs, memory = postgres().programs, Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2**29:
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
    server = Postgres(programs)
    try:
        table = people(server)
        path = configured(server, tmp_path, table)
        with Curator.open(path) as curator:
            first = curator.count(by="region", where="region = 'North'")
            with suppressed(), locked(server, table):
                thread, said = counting(curator)
                wait_until(lambda: waits(server, table))
                server.stop("immediate")
                thread.join(30)
            assert said == [f"EngineError: {UNREADABLE}"]
            with pytest.raises(EngineError, match=f"^({UNREADABLE}|source: .* could not be reached; .*)$"):
                curator.count(by="region")
            assert charged(path) == 2
            server.start()
            again = curator.count(by="region", where="region = 'North'")
            assert (again.replayed, again.released.tolist()) == (True, first.released.tolist())
            curator.count(by="region")
            assert charged(path) == 2
    finally:
        server.remove()


@contextmanager
def suppressed() -> Iterator[None]:
    """Ignore the error of the session that holds the lock, which is lost too."""
    try:
        yield
    except psycopg.OperationalError:
        return


def test_the_docs_state_the_longest_text_that_is_parsed() -> None:
    page = (Path(__file__).parents[4] / "docs" / "postgres.md").read_text()
    assert f"{postgres_sql.LONGEST:,} bytes" in page


# -- floats that are integers ------------------------------------------------------------------------------------------


def test_floats_are_accepted_as_ids_and_codes_only_while_they_are_exact_integers(server: Postgres) -> None:
    ids = [2.0**53, 2.0**53 + 2, 2.0**53 - 1, 1.5, float("inf"), float("nan"), None, 7.0, 7.0, -0.0]
    table = made(server, "person float8, x float8, y float4", [(i, 5.0, 5.0) for i in ids])
    declared = Column("x", "text", ("5", "5.0")), Column("y", "text", ("5",))
    with opened(server, table, *declared, unit="person") as count:
        assert count() == [3]
        assert (count("x"), count("y")) == ([3, 0], [3])
    with pytest.raises(DataError, match="people are identified by integers or text, not single values"):
        open_engine(Source(server.url, table=table), Schema("people", declared[:1], unit="y"))
