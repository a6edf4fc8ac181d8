"""`countveil init`: every draft loads, and no question is answered before a curator confirms the domains."""

from __future__ import annotations

import datetime
import io
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.errors import ConfigError
from tests.support.curated import Run, people, runner, write_rows


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capsys, "init")


def test_a_draft_answers_only_after_its_guessed_domains_are_confirmed(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    done = run("people.csv", "--unit", "person", "--epsilon", "10", "--delta", "0.01", "--answers", "4")
    assert (done.code, done.err) == (0, "")
    last = "wrote countveil.toml; next: confirm the domains and bounds marked guessed: countveil init --confirm\n"
    assert done.out.endswith(last)
    config = load(tmp_path / "countveil.toml", {})
    dataset = config.dataset("people")
    assert {c.name: (c.kind, c.guessed) for c in dataset.schema.columns} == {
        "region": ("text", True),
        "age": ("integer", True),
    }
    assert dataset.schema.by_name["region"].values == ("East", "North", "South", "West")
    with pytest.raises(ConfigError, match="guessed"):
        dataset.check_confirmed()
    with Curator.open(config) as curator, pytest.raises(ConfigError, match="guessed"):
        curator.count("SELECT count(*) FROM people")
    text = (tmp_path / "countveil.toml").read_text()
    text = text.replace(", guessed = true", "")
    (tmp_path / "countveil.toml").write_text(text)
    with Curator.open(tmp_path / "countveil.toml") as curator, pytest.raises(ConfigError, match="bounds_guessed"):
        curator.count("SELECT count(*) FROM people")
    (tmp_path / "countveil.toml").write_text(text.replace("bounds_guessed = true", ""))
    with Curator.open(tmp_path / "countveil.toml") as curator:
        assert len(list(curator.count("SELECT region, count(*) FROM people GROUP BY region").rows)) == 4


def test_a_draft_without_a_unit_asks_for_one(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    assert run("people.csv").code == 0
    assert 'who is a person? perhaps "person"' in (tmp_path / "countveil.toml").read_text()
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "countveil.toml", {})
    assert refused.value.key == "dataset.people.unit"


def test_an_existing_file_is_replaced_only_with_force(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "countveil.toml").write_text("mine")
    done = run("people.csv", "--unit", "row")
    assert (done.code, done.out) == (2, "")
    assert "use --force to replace it" in done.err
    assert (tmp_path / "countveil.toml").read_text() == "mine"
    assert run("people.csv", "--unit", "row", "--force").code == 0
    assert load(tmp_path / "countveil.toml", {}).dataset("people").schema.unit == "row"


def test_the_draft_can_be_printed_as_toml_or_json(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    assert tomllib.loads(run("people.csv", "-o", "-").out)["dataset"]["people"]["source"] == "people.csv"
    assert "[dataset.people]" in json.loads(run("people.csv", "-o", "-", "--json").out)["text"]
    columns = {
        "person": {"proposed": False, "reason": "it may identify people"},
        "region": {"proposed": True, "reason": "a few values"},
        "age": {"proposed": True, "reason": "whole numbers"},
    }
    written = {"schema_version": 1, "config": "countveil.toml", "files": [], "columns": columns, "bounds": None}
    assert json.loads(run("people.csv", "--json").out) == written


def test_source_paths_are_relative_to_the_configuration_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "etc").mkdir()
    people(tmp_path / "data")
    assert run("data/people.csv", "--unit", "row", "-o", "etc/c.toml").code == 0
    config = load(tmp_path / "etc" / "c.toml", {})
    assert config.dataset("people").source.location == os.path.join("..", "data", "people.csv")
    assert config.dataset("people").source.paths() == [str(tmp_path / "data" / "people.csv")]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["gone.csv"], 6, "matches no file"),
        (["people.xls"], 6, "countveil cannot read people.xls"),
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
        (["people.csv", "--unit", "person", "--by", "nope"], 2, "by: got nope"),
        (["people.csv", "--unit", "row", "--by", "region"], 2, "give --unit"),
        (["broken.parquet"], 6, "could not be opened"),
        (["broken.csv.gz"], 6, "could not be read"),
        (["latin.csv"], 6, "could not be read as UTF-8"),
        (["twice.csv"], 5, "a different name for every column"),
        (["empty.csv"], 5, "a different name for every column"),
        (["some.duckdb"], 6, 'needs table = "..."'),
        (["some.duckdb", "--table", "nope"], 6, "countveil inspect"),
    ],
)
def test_bad_input_is_refused_and_writes_no_file(
    words: list[str], code: int, message: str, run: Run, tmp_path: Path
) -> None:
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
    assert message in done.err
    assert done.err.startswith("countveil: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "countveil.toml").exists()


def weird() -> dict[str, Any]:
    """Columns whose names or values once gave invalid configuration files."""
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


def test_columns_with_special_names_and_values_give_a_valid_draft(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table(weird()), tmp_path / "weird.parquet")
    done = run("weird.parquet", "--unit", "row")
    assert done.code == 0
    config = load(tmp_path / "countveil.toml", {})
    columns = config.dataset("weird").schema.by_name
    assert columns["a.b"].kind == "integer"
    assert set(columns['quo"te'].values) == {"x", "'", '"'}
    assert set(columns["ünï 東京"].values) == {"ä", "\u2028", ""}
    assert set(columns["back\\slash"].values) == {"\\", "\\u0041", "\t"}
    assert set(columns["control"].values) == {"\x7f", "\x01", "\x1b"}
    assert columns["#comment"].values == ("# x", "]", "}")
    assert columns["half"].source is not None
    assert columns["whole"].kind == "integer"
    assert columns["yes"].kind == "boolean"
    for name in ("new\nline", "del\x7f", "nul", "big", "wide", "far", "zoned", "none", "x" * 300, "list"):
        assert name not in columns
    assert len({"straße", "STRASSE"} & set(columns)) == 1
    assert all(column.guessed for column in columns.values())
    with pytest.raises(ConfigError, match="guessed"):
        config.dataset("weird").check_confirmed()


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
def test_the_dataset_is_named_after_the_file(file: str, name: str, run: Run, tmp_path: Path) -> None:
    people(tmp_path, name=file)
    assert run(f"./{file}", "--unit", "row").code == 0
    (dataset,) = load(tmp_path / "countveil.toml", {}).datasets.values()
    assert dataset.name == name
    assert dataset.source.paths() == [str(tmp_path / file)]


def test_every_column_left_out_of_the_draft_is_listed_with_a_reason(run: Run, tmp_path: Path) -> None:
    rows = [(i, i // 9, 1000 + i, f"person {i}", f"note {i // 6}", i % 7, "") for i in range(900)]
    header = ["__index_level_0__", "house_id", "case", "name", "note", "day", "empty"]
    write_rows(tmp_path / "people.csv", header, rows)
    done = run("people.csv", "--unit", "row", "--json")
    reasons = {name: each["reason"] for name, each in json.loads(done.out)["columns"].items() if not each["proposed"]}
    assert reasons == {
        "__index_level_0__": "an index that a program wrote",
        "house_id": "named like an id, with over 60 values",
        "case": "an id: nearly every row has its own value; if it is a measurement, give it bands",
        "name": "an id: nearly every row has its own value; if it is a measurement, give it bands",
        "note": "names or free text: fewer than 10 rows per value",
        "empty": "it has no values",
    }
    text = (tmp_path / "countveil.toml").read_text()
    assert all(f"# {name} = [...]   # not proposed: {reason}\n" in text for name, reason in reasons.items())
    assert list(load(tmp_path / "countveil.toml", {}).dataset("people").schema.by_name) == ["day"]


def test_a_long_list_of_values_is_written_to_a_file_and_marked_as_guessed(run: Run, tmp_path: Path) -> None:
    rows = [(f'district "{i % 70}", x',) for i in range(1400)] + [("",)]
    write_rows(tmp_path / "people.csv", ["Old District"], rows)
    assert "give -o FILE" in run("people.csv", "--unit", "row", "-o", "-").out
    assert run("people.csv", "--unit", "row").code == 0
    assert len((tmp_path / "countveil.toml").read_text()) < 1500
    assert (tmp_path / "people_old_district.values.csv").read_text().startswith('"Old District"\n"district ""0"", x"\n')
    column = load(tmp_path / "countveil.toml", {}).dataset("people").schema.by_name["Old District"]
    assert (len(column.values), column.values[9], column.guessed) == (70, 'district "9", x', True)
    (tmp_path / "countveil.toml").unlink()
    done = run("people.csv", "--unit", "row")
    assert (done.code, done.out) == (2, "")
    assert "people_old_district.values.csv, allowed is a new file; use --force" in done.err
    assert run("people.csv", "--unit", "row", "--force").code == 0


def test_the_files_of_listed_values_belong_to_their_owner_only(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["district"], [(f"district {i % 70}",) for i in range(700)])
    listed = tmp_path / "people_district.values.csv"
    for words in ((), ("--force",)):
        assert run("people.csv", "--unit", "row", *words).code == 0
        assert listed.stat().st_mode & 0o777 == 0o600
        listed.chmod(0o644)


def test_a_second_column_that_identifies_people_is_not_listed(run: Run, tmp_path: Path) -> None:
    """Each of 150 people has 20 rows, an insurance number and a name, but shares a town with others."""
    people = [(p, 300_000_000 + p * 4999, f"Name {p}", f"town {p % 75}", 1000 + p % 30 * 70) for p in range(150)]
    write_rows(tmp_path / "visits.csv", ["patient", "ssn", "called", "town", "code"], people * 20)
    done = run("visits.csv", "--unit", "patient", "--json")
    columns = json.loads(done.out)["columns"]
    reason = "an id: nearly every value belongs to one person only"
    refused = {name: each["reason"] for name, each in columns.items() if not each["proposed"]}
    assert refused == {"ssn": reason, "called": reason}
    assert [path.name for path in tmp_path.glob("*.values.csv")] == ["visits_town.values.csv"]
    text = (tmp_path / "countveil.toml").read_text()
    assert f"# ssn = [...]   # not proposed: {reason}\n" in text
    assert "300004999" not in text


def test_many_codes_are_listed_as_whole_numbers_in_a_file(run: Run, tmp_path: Path) -> None:
    rows = [(i % 70 * 1000, f"{i % 70 * 100:05}") for i in range(1400)]
    write_rows(tmp_path / "people.csv", ["code", "post"], rows)
    assert run("people.csv", "--unit", "row").code == 0
    assert '"code"\n"0"\n"1000"\n' in (tmp_path / "people_code.values.csv").read_text()
    columns = load(tmp_path / "countveil.toml", {}).dataset("people").schema.by_name
    assert columns["code"].values == tuple(range(0, 70_000, 1000))
    assert columns["post"].values[:2] == ("00000", "00100")
    assert columns["code"].guessed
    assert columns["post"].guessed


def test_a_list_of_values_is_not_written_to_a_path_that_the_source_would_match(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "p.csv", ["district"], [(f"district {i % 70}",) for i in range(700)])
    done = run("*.csv", "--unit", "row")
    assert (done.code, done.out) == (2, "")
    assert "would become a part of the source" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv"]


def test_decimals_get_bins_and_dates_get_months_and_codes_get_room_for_labels(run: Run, tmp_path: Path) -> None:
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(i) for i in range(100)]
    table = {
        "income": [float("nan"), float("inf"), -3.5, *(1000.0 + 37.25 * i for i in range(97))],
        "same": [0.25] * 100,
        "day": days,
        "sex": [1 + i % 2 for i in range(100)],
    }
    pq.write_table(pa.table(table), tmp_path / "people.parquet")
    assert run("people.parquet", "--unit", "row").code == 0
    columns = load(tmp_path / "countveil.toml", {}).dataset("people").schema.by_name
    assert columns["income"].values == (
        *("under 1000", "1000 to under 1500", "1500 to under 2000", "2000 to under 2500", "2500 to under 3000"),
        *("3000 to under 3500", "3500 to under 4000", "4000+"),
    )
    assert columns["same"].values == ("0+",)
    assert columns["day_month"].values == ("2026-01", "2026-02", "2026-03", "2026-04")
    assert (columns["sex"].values, columns["sex"].labels) == ((1, 2), ())
    assert {name for name, column in columns.items() if column.guessed} == {"income", "same", "day", "sex"}
    assert 'labels = ["...", "..."] shows words instead' in (tmp_path / "countveil.toml").read_text()


def test_a_file_with_semicolons_is_refused_with_its_delimiter(run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text('person;"region";age\n1;"North, or so";20\n')
    for words in ([], ["--unit", "person"]):
        done = run("people.csv", *words)
        assert (done.code, done.out) == (5, "")
        assert 'columns: countveil init --delimiter ";", or delimiter = ";" in countveil.toml' in done.err
    assert run("people.csv", "--unit", "person", "--delimiter", ";").code == 0
    assert load(tmp_path / "countveil.toml", {}).dataset("people").source.delimiter == ";"


def test_the_table_option_is_refused_when_the_source_is_a_file(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    done = run("people.csv", "--table", "x")
    assert (done.code, done.out) == (2, "")
    assert "table: got x, allowed is nothing; a csv source has no tables to choose from; remove table" in done.err


def test_a_source_without_rows_gives_a_draft_without_columns(run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("person,region\n")
    assert run("people.csv", "--unit", "person").code == 0
    with pytest.raises(ConfigError, match="no column is declared"):
        load(tmp_path / "countveil.toml", {})


def test_a_table_of_a_database_can_be_drafted(run: Run, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "some.duckdb")) as db:
        db.execute("CREATE TABLE \"Odd Table\" AS SELECT 1 AS a, DATE '2026-01-31' AS d")
    assert run("some.duckdb", "--table", "Odd Table", "--unit", "row").code == 0
    dataset = load(tmp_path / "countveil.toml", {}).dataset("odd_table")
    assert dataset.source.table == "Odd Table"
    assert dataset.schema.by_name["d"].kind == "date"


@pytest.mark.parametrize("file", ["", "caf\udce9.csv"])
def test_a_file_name_that_is_not_text_is_refused(file: str, run: Run, tmp_path: Path) -> None:
    done = run(file)
    assert (done.code, done.out) == (2, "")
    assert "file: got" in done.err
    assert "internal" not in done.err


def test_the_column_that_is_likely_the_unit_is_commented_out(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person_id", "age"], [(1, 5), (2, 6)])
    run("people.csv")
    text = (tmp_path / "countveil.toml").read_text()
    assert "\n# person_id = [...]" in text
    assert "\nage = " in text


def test_the_spelling_of_a_tab_that_a_refusal_advises_is_accepted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tab.csv").write_text("id\tregion\n1\tN\n2\tS\n")
    assert '--delimiter "\\t"' in run("tab.csv", "--unit", "id", "-o", "-").err
    done = run("tab.csv", "--unit", "id", "-o", "-", "--delimiter", "\\t")
    assert (done.code, 'delimiter = "\\t"' in done.out) == (0, True)


# Contribution bounds


def write_visits(folder: Path) -> None:
    """2,000 people with three visits each in one region, and one person with 500."""
    rows = [(i, "NS"[i % 2], j) for i in range(2000) for j in range(3)] + [(9999, "N", j % 3) for j in range(500)]
    write_rows(folder / "visits.csv", ["person", "region", "month"], rows)


def test_bounds_are_proposed_from_the_data_and_marked_as_guessed(run: Run, tmp_path: Path) -> None:
    write_visits(tmp_path)
    done = run("visits.csv", "--unit", "person", "--by", "region")
    assert (done.code, done.err) == (0, "")
    dataset = load(tmp_path / "countveil.toml", {}).dataset("visits")
    assert (dataset.schema.rows_per_person, dataset.schema.cells_per_person) == (3, 1)
    assert dataset.bounds_guessed
    assert not dataset.ready
    words = " ".join(done.out.split())
    assert "1 x 1 30.8 %" in words  # 2,001 of 6,500 rows
    assert "* 3 x 1 92.4 % 100.0 % ±65 7.6 % 2.0 % left out" in words  # of 3,250 rows, 248.5 are left out
    assert "tables by: region; other tables: --by A,B" in words
    assert "should rest on public or earlier knowledge" in words
    assert all(len(line) <= 80 for line in done.out.splitlines()[:-1])


def test_the_proposed_bounds_depend_on_the_tables_given_with_the_option_by(run: Run, tmp_path: Path) -> None:
    write_visits(tmp_path)
    for by, bounds in (("region", (3, 1)), ("month", (1, 3)), ("region,month", (1, 3))):
        done = run("visits.csv", "--unit", "person", "--by", by, "--json", "--force")
        best = json.loads(done.out)["bounds"]["best"]
        assert (best["rows_per_person"], best["cells_per_person"]) == bounds


def test_the_draft_file_does_not_state_how_many_rows_the_bounds_leave_out(run: Run, tmp_path: Path) -> None:
    """The configuration is shown to others; what is known from the data is only printed."""
    write_visits(tmp_path)
    run("visits.csv", "--unit", "person")
    text = (tmp_path / "countveil.toml").read_text()
    for fact in (" %", "6,500", "6500", "2,001", "2001"):
        assert fact not in text


def test_for_a_smaller_budget_narrower_bounds_are_proposed(run: Run, tmp_path: Path) -> None:
    write_visits(tmp_path)
    bounds = []
    for epsilon in ("3", "0.01"):
        done = run("visits.csv", "--unit", "person", "--by", "region", "--epsilon", epsilon, "--json", "--force")
        bounds.append(json.loads(done.out)["bounds"]["best"]["rows_per_person"])
    assert bounds == [3, 1]


# Confirming


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the lines that the next command reads."""
    return lambda *lines: monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_guesses_are_confirmed_one_by_one(run: Run, answer: Callable[..., None], tmp_path: Path) -> None:
    rows = [(i, "NS"[i % 2], i % 2) for i in range(8)]
    write_rows(tmp_path / "people.csv", ["person", "region", "sex"], rows)
    run("people.csv", "--unit", "person")
    answer("Y", "maybe", "", "No", "y", "male", "male, female")
    done = run("--confirm")
    assert done.code == 0
    assert "1 of 3, people, the bounds: rows_per_person = 1, cells_per_person = 1" in done.out
    assert "2 of 3, people, region: 2 values: N, S" in done.out
    assert "still guessed in countveil.toml, so nothing is answered: region" in done.out
    dataset = load(tmp_path / "countveil.toml", {}).dataset("people")
    assert dataset.guesses == ("columns.region",)
    assert dataset.schema.by_name["sex"].labels == ("male", "female")
    answer("quit")
    assert run("--confirm").code == 0
    assert load(tmp_path / "countveil.toml", {}).dataset("people").guesses == ("columns.region",)
    answer("yes")
    assert "nothing in countveil.toml is guessed" in run("--confirm").out
    load(tmp_path / "countveil.toml", {}).dataset("people").check_confirmed()


@pytest.mark.parametrize(
    ("replies", "given"),
    [(["yes"], "the end of the input"), (["yes", "yess", "", " YES! ", "yes", "yes"], "YES!")],
    ids=["end", "wrong"],
)
def test_three_wrong_replies_or_the_end_of_the_input_end_the_command_and_keep_what_was_confirmed(
    run: Run, answer: Callable[..., None], tmp_path: Path, replies: list[str], given: str
) -> None:
    people(tmp_path)
    run("people.csv", "--unit", "person")
    answer(*replies)
    done = run("--confirm")
    assert done.code == 2
    assert done.err.startswith(f"countveil: reply: got {given}, allowed is yes, no or quit, or y, n or q; ")
    assert (done.out.count("allowed is yes"), done.err.count("\n")) == (2 if len(replies) > 1 else 0, 1)
    assert load(tmp_path / "countveil.toml", {}).dataset("people").guesses == ("columns.region", "columns.age")


def test_three_wrong_labels_end_the_command(run: Run, answer: Callable[..., None], tmp_path: Path) -> None:
    """`yes y |` ends."""
    write_rows(tmp_path / "people.csv", ["person", "sex"], [(i, i % 2) for i in range(8)])
    run("people.csv", "--unit", "person")
    answer(*"y" * 100)
    done = run("--confirm")
    assert done.code == 2
    assert "reply: got y, allowed is 2 different texts" in done.err
    assert load(tmp_path / "countveil.toml", {}).dataset("people").guesses == ("columns.sex",)


def test_the_option_confirm_is_refused_beside_other_options(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    for words in (["people.csv", "--confirm"], ["--confirm", "--unit", "row"]):
        done = run(*words)
        assert (done.code, done.out) == (2, "")
        assert "allowed is nothing; --confirm reads" in done.err
    assert "cannot be read" in run("--confirm").err


def test_ids_that_are_floats_are_proposed_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One missing value makes floats of the integers that pandas writes."""
    ids = pa.array([1.0, 2.0**53, None])
    pq.write_table(pa.table({"person": ids, "region": ["a", "b", "a"]}), tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    done = runner(monkeypatch, capsys, "init")("people.parquet", "--unit", "person", "-o", "-")
    assert "# the ids are floats: those of 2^53 and more identify nobody; store ids as text" in done.out
