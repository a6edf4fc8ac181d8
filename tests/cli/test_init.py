"""`countveil init`: proposals that can always be read, and answer nothing before a curator has confirmed them."""

from __future__ import annotations

import datetime
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.config import load
from countveil.curator import Curator
from countveil.errors import ConfigError
from tests.support.curated import Run, people, runner, write_rows


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capsys, "init")


def test_a_proposal(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    done = run("people.csv", "--unit", "person", "--epsilon", "10", "--delta", "0.01", "--answers", "4")
    assert (done.code, done.err) == (0, "")
    assert done.out == "wrote countveil.toml; next: confirm the domains marked guessed, then: countveil inspect\n"
    config = load(tmp_path / "countveil.toml", {})
    people_ = config.dataset("people")
    assert {c.name: (c.kind, c.guessed) for c in people_.schema.columns} == {
        "region": ("text", True),
        "age": ("integer", True),
    }
    assert people_.schema.by_name["region"].values == ("East", "North", "South", "West")
    with pytest.raises(ConfigError, match="guessed"):
        people_.confirmed()
    with Curator.open(config) as curator, pytest.raises(ConfigError, match="guessed"):
        curator.count("SELECT count(*) FROM people")
    text = (tmp_path / "countveil.toml").read_text()
    (tmp_path / "countveil.toml").write_text(text.replace(", guessed = true", ""))
    with Curator.open(tmp_path / "countveil.toml") as curator:
        assert len(list(curator.count("SELECT region, count(*) FROM people GROUP BY region").rows)) == 4


def test_without_a_unit_the_file_asks_for_one(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    assert run("people.csv").code == 0
    assert 'who is a person? perhaps "person"' in (tmp_path / "countveil.toml").read_text()
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "countveil.toml", {})
    assert refused.value.key == "dataset.people.unit"


def test_an_existing_file_is_kept(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "countveil.toml").write_text("mine")
    done = run("people.csv", "--unit", "row")
    assert (done.code, done.out) == (2, "")
    assert "use --force to replace it" in done.err
    assert (tmp_path / "countveil.toml").read_text() == "mine"
    assert run("people.csv", "--unit", "row", "--force").code == 0
    assert load(tmp_path / "countveil.toml", {}).dataset("people").schema.unit == "row"


def test_to_the_screen_and_as_json(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    assert tomllib.loads(run("people.csv", "-o", "-").out)["dataset"]["people"]["source"] == "people.csv"
    assert "[dataset.people]" in json.loads(run("people.csv", "-o", "-", "--json").out)["text"]
    assert json.loads(run("people.csv", "--json").out) == {"schema_version": 1, "config": "countveil.toml"}


def test_paths_start_from_the_folder_of_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "etc").mkdir()
    people(tmp_path / "data")
    assert run("data/people.csv", "--unit", "row", "-o", "etc/c.toml").code == 0
    config = load(tmp_path / "etc" / "c.toml", {})
    assert config.dataset("people").source.location == os.path.join("..", "data", "people.csv")
    assert config.dataset("people").source.paths() == [str(tmp_path / "data" / "people.csv")]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["gone.csv"], 6, "matches no file"),
        (["people.xls"], 6, "of no known kind"),
        (["people.csv", "--unit", "nope"], 2, "unit: got nope"),
        (["people.csv", "--unit", "a\nb"], 2, "unit: "),
        (["people.csv", "--name", "a b"], 2, "name: got a b"),
        (["people.csv", "--name", ""], 2, "name: "),
        (["people.csv", "--epsilon", "0"], 2, "epsilon: got 0"),
        (["people.csv", "--epsilon", "nan"], 2, "epsilon: got nan"),
        (["people.csv", "--delta", "1e-400"], 2, "delta: got 1e-400"),
        (["people.csv", "--answers", "0"], 2, "answers: got 0"),
        (["people.csv", "--answers", "many"], 2, "--answers"),
        (["people.csv", "-o", "no/where.toml"], 2, "a file in a folder that exists"),
        (["people.csv", "--delimiter", ";;"], 2, "delimiter"),
        (["broken.parquet"], 6, "could not be opened"),
        (["broken.csv.gz"], 6, "could not be read"),
        (["latin.csv"], 6, "could not be read as UTF-8"),
        (["twice.csv"], 5, "a different name for every column"),
        (["empty.csv"], 5, "a different name for every column"),
        (["some.duckdb"], 6, 'needs table = "..."'),
        (["some.duckdb", "--table", "nope"], 6, "countveil inspect"),
    ],
)
def test_what_is_refused(words: list[str], code: int, said: str, run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "people.xls").write_text("x")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 none PAR1")
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8b none")
    (tmp_path / "latin.csv").write_bytes(b"\xe9t\xe9,a\n1,2\n")
    (tmp_path / "twice.csv").write_text("a,A\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    with duckdb.connect(str(tmp_path / "some.duckdb")) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.startswith("countveil: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "countveil.toml").exists()


def weird() -> dict[str, Any]:
    """Columns whose names or values have broken configuration files."""
    return {
        "a.b": [1, 2, 3],
        'quo"te': ["x", "'", '"'],
        "new\nline": [1, 2, 3],
        "ünï 東京": ["ä", "\u2028", ""],
        "back\\slash": ["\\", "\\u0041", "\t"],
        "del\x7f": ["a", "b", "c"],
        "control": ["\x7f", "\x01", "\x1b"],
        "nul": ["a\0b", "c", "d"],
        "#comment": ["]", "}", "# x"],
        "big": pa.array([2**64 - 1, 0, 1], pa.uint64()),
        "wide": pa.array([2**63 - 1, -(2**63), 0], pa.int64()),
        "straße": [1, 2, 3],
        "STRASSE": [1, 2, 3],
        "first day": pa.array([datetime.date(1, 1, 1)] * 3),
        "far": pa.array([2**30, 0, 1], pa.int32()).cast(pa.date32()),
        "zoned": pa.array([1, 2, 3], pa.timestamp("us", tz="UTC")),
        "half": [0.5, 1.0, 2.0],
        "whole": [1.0, float("nan"), 2.0],
        "yes": [True, False, None],
        "none": pa.array([None] * 3, pa.string()),
        "x" * 300: [1, 2, 3],
        "list": [[1], [2], [3]],
        "true": [1, 2, 3],
        "[dataset]": ["a", "b", "c"],
    }


def test_weird_columns_and_values(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table(weird()), tmp_path / "weird.parquet")
    done = run("weird.parquet", "--unit", "row")
    assert done.code == 0
    config = load(tmp_path / "countveil.toml", {})
    found = config.dataset("weird").schema.by_name
    assert found["a.b"].kind == "integer"
    assert set(found['quo"te'].values) == {"x", "'", '"'}
    assert set(found["ünï 東京"].values) == {"ä", "\u2028", ""}
    assert set(found["back\\slash"].values) == {"\\", "\\u0041", "\t"}
    assert set(found["control"].values) == {"\x7f", "\x01", "\x1b"}
    assert found["#comment"].values == ("# x", "]", "}")
    assert found["whole"].kind == "integer"
    assert found["yes"].kind == "boolean"
    for name in ("new\nline", "del\x7f", "nul", "big", "wide", "far", "zoned", "half", "none", "x" * 300, "list"):
        assert name not in found
    assert len({"straße", "STRASSE"} & set(found)) == 1
    assert all(column.guessed for column in found.values())
    with pytest.raises(ConfigError, match="guessed"):
        config.dataset("weird").confirmed()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Übung 2026.csv", "bung_2026"),
        ("東京.csv", "data"),
        ("2026.csv", "data_2026"),
        ("a.b.c.csv", "a"),
        ("-x-.csv", "x"),
        ("x" * 150 + ".csv", "x" * 60),
        ("[a]?.csv", "data"),
        ("new\nline.csv", "new_line"),
        ('quo"te.csv', "quo_te"),
    ],
)
def test_names_of_files(file: str, name: str, run: Run, tmp_path: Path) -> None:
    people(tmp_path, name=file)
    assert run(f"./{file}", "--unit", "row").code == 0
    (dataset,) = load(tmp_path / "countveil.toml", {}).datasets.values()
    assert dataset.name == name
    assert dataset.source.paths() == [str(tmp_path / file)]


def test_columns_of_too_many_values_stay_comments(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["name", "n"], [(f"person {i}", i) for i in range(100)])
    assert run("people.csv", "--unit", "row").code == 0
    assert "# name = [...]" in (tmp_path / "countveil.toml").read_text()
    assert list(load(tmp_path / "countveil.toml", {}).dataset("people").schema.by_name) == ["n"]


def test_a_file_with_semicolons_names_the_delimiter(run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text('person;"region";age\n1;"North, or so";20\n')
    for words in ([], ["--unit", "person"]):
        done = run("people.csv", *words)
        assert (done.code, done.out) == (5, "")
        assert 'use: countveil init --delimiter ";", or delimiter = ";" in countveil.toml' in done.err
    assert run("people.csv", "--unit", "person", "--delimiter", ";").code == 0
    assert load(tmp_path / "countveil.toml", {}).dataset("people").source.delimiter == ";"


def test_a_file_has_no_tables(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    done = run("people.csv", "--table", "x")
    assert (done.code, done.out) == (2, "")
    assert "table: got x, allowed is nothing; a csv source has no tables to choose from; remove table" in done.err


def test_a_source_without_rows(run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("person,region\n")
    assert run("people.csv", "--unit", "person").code == 0
    with pytest.raises(ConfigError, match="no column is declared"):
        load(tmp_path / "countveil.toml", {})


def test_a_table_of_a_database(run: Run, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "some.duckdb")) as db:
        db.execute("CREATE TABLE \"Odd Table\" AS SELECT 1 AS a, DATE '2026-01-31' AS d")
    assert run("some.duckdb", "--table", "Odd Table", "--unit", "row").code == 0
    dataset = load(tmp_path / "countveil.toml", {}).dataset("odd_table")
    assert dataset.source.table == "Odd Table"
    assert dataset.schema.by_name["d"].kind == "date"


@pytest.mark.parametrize("file", ["", "caf\udce9.csv"])
def test_names_that_are_no_text(file: str, run: Run, tmp_path: Path) -> None:
    done = run(file)
    assert (done.code, done.out) == (2, "")
    assert "file: got" in done.err
    assert "internal" not in done.err


def test_the_likely_person_is_nothing_to_ask_about(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person_id", "age"], [(1, 5), (2, 6)])
    run("people.csv")
    text = (tmp_path / "countveil.toml").read_text()
    assert "\n# person_id = [...]" in text
    assert "\nage = " in text


def test_a_tab_is_typed_as_it_is_advised(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tab.csv").write_text("id\tregion\n1\tN\n2\tS\n")
    assert '--delimiter "\\t"' in run("tab.csv", "--unit", "id", "-o", "-").err
    done = run("tab.csv", "--unit", "id", "-o", "-", "--delimiter", "\\t")
    assert (done.code, 'delimiter = "\\t"' in done.out) == (0, True)
