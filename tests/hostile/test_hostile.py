"""Hostile text: every query of the corpus is refused by the language itself, with a position, before any engine.

queries.txt has one query per line (# starts a heading); queries with line breaks or other special characters are made
here. The second half opens real engines: if a dangerous statement reached one, its locked connection would refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.sql import Statement
from countveil.errors import EngineError, QueryError
from countveil.query import ask, parse_condition
from countveil.query.declarations import parse_column
from countveil.query.schema import Column, Schema

SCHEMA = Schema(
    "people",
    (
        Column("age", "integer", low=0, high=120),
        parse_column("born", {"min": "1900-01-01", "max": "2026-01-01"}, "born"),
        Column("small", "integer", (1, 2, 3)),
        Column("region", "text", ("North", "South", "it's", 'a "b"')),
        Column("ok", "boolean", (False, True)),
    ),
    unit="person",
    rows_per_person=2,
)
START = "SELECT count(*) FROM people WHERE "
LINES = [
    line
    for line in (Path(__file__).parent / "queries.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
MADE = {
    "empty": "",
    "blank": " \n\t ",
    "NUL": START + "age = 1\x00",
    "NUL in a text": START + "region = 'North\x00'",
    "NUL in a name": START + '"age\x00" = 1',
    "NUL first": "\x00" + START + "age = 1",
    "lone surrogate": START + "\ud800 = 1",
    "lone surrogate in a text": START + "region = 'North\udfff'",
    "lone surrogate in a name": START + '"\ud83d" = 1',
    "escape sequence": START + "region = '\x1b[2J\x1b]0;owned\x07'",
    "escape sequence in a name": START + '"\x1b[31mage" = 1',
    "newlines in a text": START + "region = 'North\n\nlevel=ERROR msg=forged'",
    "right-to-left override": START + "region = '\u202ehtroN'",
    "right-to-left override in code": START + "\u202eage = 1",
    "zero-width space": START + "a\u200bge = 1",
    "zero-width in a text": START + "region = 'North\u200b'",
    "no-break space": START + "age\u00a0= 1",
    "ideographic space": START + "age\u3000= 1",
    "byte order mark": "\ufeff" + START + "age = 1",
    "full-width digit": START + "age = \uff11",
    "full-width letters": "\uff33ELECT count(*) FROM people",
    "Kelvin sign": START + "o\u212a = TRUE",
    "Kelvin sign in quotes": START + '"o\u212a" = TRUE',
    "dotless i": START + "reg\u0131on = 'North'",
    "combining letter": START + "region = 'North\u0301'",
    "vertical tab": START + "age\x0b= 1",
    "form feed": START + "age\x0c= 1",
    "line separator": START + "age\u2028= 1",
    "comment over lines": "SELECT count(*) -- x\nFROM people",
    "10^400": START + "age = 1" + "0" * 400,
    "a million digits": START + "age = " + "9" * 400_000,
    "minus 10^400": START + "age = -1" + "0" * 400,
    "digits and a letter": START + "age = " + "9" * 5000 + "x",
    "IN list of 10^6": START + "age IN (" + ", ".join(["1"] * 10**6) + ")",
    "IN list of 10,001": START + "age IN (" + ", ".join(["1"] * 10_001) + ")",
    "IN list of texts that are not there": START + "region IN (" + ", ".join(f"'v{i}'" for i in range(9000)) + ")",
    "10k parentheses": START + "(" * 10_000 + "age = 1" + ")" * 10_000,
    "10k open parentheses": START + "(" * 10_000,
    "100k open parentheses": START + "(" * 100_000,
    "10k NOT": START + "NOT " * 10_000 + "age = 1",
    "10k NOT (": START + "NOT (" * 10_000 + "age = 1" + ")" * 10_000,
    "10k minus signs": START + "age = " + "- " * 10_000 + "1",
    "10k semicolons": "SELECT count(*) FROM people" + ";" * 10_000,
    "100k comparisons": START + " OR ".join(["age = 1"] * 100_000),
    "100k columns": "SELECT " + "region, " * 100_000 + "count(*) FROM people",
    "10k columns": "SELECT " + ", ".join(f"c{i}" for i in range(10_000)) + ", count(*) FROM people",
    "a text of 10^6": START + "region = '" + "x" * 10**6 + "'",
    "a text of 400,000": START + "region = '" + "x" * 400_000 + "'",
    "a text of quotes": START + "region = '" + "''" * 200_000,
    "a name of 400,000": START + "x" * 400_000 + " = 1",
    "a quoted name of 400,000": START + '"' + "x" * 400_000 + '" = 1',
    "an alias of 400,000": "SELECT count(*) AS " + "x" * 400_000 + " FROM people",
    "an alias with an escape": 'SELECT count(*) AS "\x1b[2J" FROM people',
    "blanks": " " * 10**6,
    "nested subqueries": "SELECT count(*) FROM " + "(SELECT * FROM " * 5000 + "people" + ")" * 5000,
    "nested CTEs": "WITH a AS (" * 5000 + "SELECT 1" + ") SELECT 1" * 5000,
    "nested comments": "/*" * 10_000 + "*/" * 10_000,
    "nested CASE": START + "CASE WHEN " * 10_000,
    "UNION of 5,000": " UNION ALL ".join(["SELECT count(*) FROM people"] * 5000),
}
CORPUS = [pytest.param(line, id=f"line-{i}") for i, line in enumerate(LINES)] + [
    pytest.param(text, id=name.replace(" ", "-")) for name, text in MADE.items()
]


def test_the_page_on_reliability_states_the_size_of_the_corpus() -> None:
    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    assert f"| hostile query texts | {len(CORPUS)}: all refused" in page.read_text()


class RecordingEngine(DuckDBEngine):
    """A real engine that records every statement it is asked to run."""

    def __init__(self, *arguments: Any) -> None:
        self.ran: list[Statement] = []
        super().__init__(*arguments)

    def run(self, statement: Statement) -> Any:
        self.ran.append(statement)
        return super().run(statement)


@pytest.fixture(scope="module")
def recording() -> Iterator[RecordingEngine]:
    table = pa.table({"person": [1], "age": [1], "born": ["1990-01-01"], "small": [1], "region": ["North"], "ok": [1]})
    engine = RecordingEngine(Source(frame=table), SCHEMA)
    yield engine
    engine.close()


def test_the_corpus_is_large_and_has_no_duplicates() -> None:
    assert len(set(LINES) | set(MADE.values())) == len(CORPUS) >= 400


@pytest.mark.parametrize("text", CORPUS)
def test_hostile_text_is_refused_with_a_position_and_reaches_no_engine(text: str, recording: RecordingEngine) -> None:
    before = len(recording.ran)
    with pytest.raises(QueryError) as refused:
        recording.count(ask(SCHEMA, text), salt=b"salt")
    assert len(recording.ran) == before
    error, message = refused.value, str(refused.value)
    assert error.position is not None
    assert 1 <= error.position <= len(text) + 1
    assert error.construct
    assert error.allowed
    assert len(message) < 300
    assert message.isprintable(), "one line, nothing that a terminal or a log would act on"
    assert message.encode()


@pytest.mark.parametrize("text", [line for line in LINES if line.startswith(START)])
def test_hostile_text_is_refused_as_a_condition_too(text: str) -> None:
    with pytest.raises(QueryError):
        ask(SCHEMA, dataset="people", where=text.removeprefix(START))


def test_the_recording_engine_records_allowed_statements(recording: RecordingEngine) -> None:
    before = len(recording.ran)
    assert recording.count(ask(SCHEMA, START + "region = 'North'"), salt=b"salt").tolist() == [1]
    assert len(recording.ran) == before + 1


@pytest.mark.parametrize(
    "value",
    ["it's", 'a "b"'],
)
def test_declared_values_with_quotes_are_bound_as_parameters(value: str, recording: RecordingEngine) -> None:
    question = ask(SCHEMA, START + "region = '" + value.replace("'", "''") + "'")
    recording.count(question, salt=b"salt")
    assert value not in recording.ran[-1].sql
    assert value in recording.ran[-1].values.values()


@pytest.mark.parametrize("given", [None, 5, b"SELECT count(*) FROM people", ["SELECT"], {}, float("nan")])
def test_a_query_that_is_not_text_is_refused(given: Any) -> None:
    with pytest.raises(QueryError):
        parse_condition(given)
    if given is not None:
        with pytest.raises(QueryError):
            ask(SCHEMA, given)


# -- the locked engine ------------------------------------------------------------------------------------------------

SECRET = "the-secret-of-another-file"
LOCKED = {
    "read another CSV": "SELECT * FROM read_csv('{other}')",
    "read another CSV as text": "SELECT * FROM read_text('{other}')",
    "read a file as bytes": "SELECT * FROM read_blob('{other}')",
    "read a file by its name": "SELECT * FROM '{other}'",
    "read JSON": "SELECT * FROM read_json('{other}')",
    "read Parquet": "SELECT * FROM read_parquet('{other}')",
    "sniff": "SELECT * FROM sniff_csv('{other}')",
    "glob read": "SELECT * FROM read_csv('{folder}/*.csv')",
    "path with dots": "SELECT * FROM read_text('{folder}/../{folder_name}/other.csv')",
    "list files": "SELECT * FROM glob('{folder}/*')",
    "read the system": "SELECT * FROM read_text('/etc/passwd')",
    "read the network": "SELECT * FROM read_csv('https://127.0.0.1:1/x.csv')",
    "copy out": "COPY (SELECT 1) TO '{folder}/out.csv'",
    "copy out without a temporary file": "COPY (SELECT 1) TO '{folder}/out.csv' (USE_TMP_FILE false)",
    "copy over another file": "COPY (SELECT 1) TO '{other}' (USE_TMP_FILE false)",
    "export": "EXPORT DATABASE '{folder}/export'",
    "import": "IMPORT DATABASE '{folder}'",
    "attach": "ATTACH '{folder}/new.duckdb' AS extra",
    "attach a database": "ATTACH '{folder}/second.duckdb' AS extra",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "load a file": "LOAD '{folder}/x.duckdb_extension'",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "make a secret": "CREATE SECRET (TYPE s3)",
    "set": "SET threads = 1",
    "set global": "SET GLOBAL allowed_paths = ['/etc/passwd']",
    "unlock": "SET lock_configuration = false",
    "reset the lock": "RESET lock_configuration",
    "open the outside": "SET enable_external_access = true",
    "replacements": "SET python_enable_replacements = true",
    "profiling to a file": "PRAGMA profiling_output = '{folder}/profile'",
    "profiling": "PRAGMA enable_profiling",
    "memory": "PRAGMA memory_limit = '1GB'",
    "logging to a file": "CALL enable_logging(storage = 'file', storage_path = '{folder}')",
    "environment": "SELECT getenv('HOME')",
    "a variable of Python": "SELECT * FROM local_frame",
    "sqlite": "SELECT * FROM sqlite_scan('{other}', 't')",
    "postgres": "SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')",
}
WRITES = {
    "insert": "INSERT INTO {relation} VALUES (3)",
    "update": "UPDATE {relation} SET age = 1",
    "delete": "DELETE FROM {relation}",
    "drop": "DROP TABLE {relation}",
    "alter": "ALTER TABLE {relation} ADD COLUMN x INTEGER",
    "truncate": "TRUNCATE {relation}",
    "create": "CREATE TABLE {relation}_2 (i INTEGER)",
    "view": "CREATE VIEW {relation}_2 AS SELECT 1",
    "attach itself to write": "ATTACH '{source}' AS again (READ_WRITE)",
}
OVERWRITES = {
    "overwrite": "COPY (SELECT 1 AS age) TO '{source}'",
    "overwrite in place": "COPY (SELECT 1 AS age) TO '{source}' (FORMAT csv, USE_TMP_FILE false)",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text("age\n1\n2\n")
    (tmp_path / "other.csv").write_text(f"secret\n{SECRET}\n")
    for name in ("people.duckdb", "second.duckdb"):
        connection = duckdb.connect(str(tmp_path / name))
        connection.execute("CREATE TABLE people AS SELECT 1 AS age UNION ALL SELECT 2")
        connection.close()
    return tmp_path


def opened(kind: str, folder: Path) -> DuckDBEngine:
    source = {
        "csv": Source(str(folder / "people.csv")),
        "duckdb": Source(str(folder / "people.duckdb"), table="people"),
        "frame": Source(frame=pa.table({"age": [1, 2]})),
    }[kind]
    return DuckDBEngine(source)


def filled(statement: str, kind: str, folder: Path) -> str:
    places: Mapping[str, object] = {
        "folder": folder,
        "folder_name": folder.name,
        "other": folder / "other.csv",
        "source": folder / ("people.duckdb" if kind == "duckdb" else "people.csv"),
    }
    return statement.format_map(places)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", LOCKED)
@pytest.mark.parametrize("kind", ["csv", "duckdb", "frame"])
def test_the_locked_connection_refuses_dangerous_statements(kind: str, name: str, folder: Path) -> None:
    local_frame = pa.table({"secret": [SECRET]})
    before = files(folder)
    engine = opened(kind, folder)
    try:
        with pytest.raises(duckdb.Error) as refused:
            engine._connection.execute(filled(LOCKED[name], kind, folder)).fetchall()
        assert SECRET not in str(refused.value)
    finally:
        engine.close()
    assert files(folder) == before
    assert local_frame.num_rows == 1


@pytest.mark.parametrize("name", WRITES)
def test_an_engine_cannot_change_its_database(name: str, folder: Path) -> None:
    before = files(folder)
    engine = opened("duckdb", folder)
    try:
        relation = engine.relation.replace('"', "")
        with pytest.raises(duckdb.Error):
            engine._connection.execute(filled(WRITES[name].replace("{relation}", relation), "duckdb", folder))
        assert engine._connection.execute(f"SELECT count(*) FROM {relation}").fetchall() == [(2,)]
    finally:
        engine.close()
    assert files(folder) == before


@pytest.mark.parametrize("kind", ["csv", "duckdb"])
def test_an_engine_cannot_overwrite_its_source(kind: str, folder: Path) -> None:
    assert_unharmed(OVERWRITES["overwrite"], kind, folder)


@pytest.mark.parametrize("kind", ["csv", "duckdb"])
def test_an_engine_cannot_overwrite_its_source_in_place(kind: str, folder: Path) -> None:
    assert_unharmed(OVERWRITES["overwrite in place"], kind, folder)


def assert_unharmed(statement: str, kind: str, folder: Path) -> None:
    before = files(folder)
    engine = opened(kind, folder)
    try:
        with pytest.raises(EngineError) as refused:
            engine.run(Statement(filled(statement, kind, folder), {}))
        assert str(folder) not in str(refused.value)
    finally:
        engine.close()
    assert files(folder) == before


@pytest.mark.parametrize("name", LOCKED)
@pytest.mark.parametrize("kind", ["csv", "duckdb", "frame"])
def test_messages_of_the_engine_are_not_shown(kind: str, name: str, folder: Path) -> None:
    engine = opened(kind, folder)
    try:
        with pytest.raises(EngineError) as refused:
            engine.run(Statement(filled(LOCKED[name], kind, folder), {}))
        assert str(folder) not in str(refused.value)
        assert SECRET not in str(refused.value)
        assert engine.run(Statement(f"SELECT count(*) AS n FROM {engine.relation}", {}))["n"].tolist() == [2]
    finally:
        engine.close()
