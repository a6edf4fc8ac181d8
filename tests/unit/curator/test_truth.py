"""Every answer on this machine says what it counts and within which bounds: Python, the command line and every file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from countveil.curator.curator import Curator
from countveil.curator.overview import CHANGED
from countveil.curator.results import CONSISTENT, Table
from countveil.curator.table_files import to_csv
from tests.support.curated import Run, config_text, people, runner, with_plan, written

BOUNDS = "rows_per_person = 3\ncells_per_person = 2"
TEXT = "rows of people; at most 3 rows each in a cell, 2 cells each"
WITHIN = "interval for the count within these bounds"
FULL = f"{TEXT}; {WITHIN}; a person is all rows with one value of person"
BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    path = written(tmp_path, config_text(more=BOUNDS))
    with_plan(path)
    return path


def test_tables_dry_runs_and_receipts_have_the_unit_and_the_bounds(config: Path) -> None:
    with Curator.open(config) as curator:
        dry_run, table = curator.dry_run(BY_REGION), curator.count(BY_REGION)
        receipt = curator.receipt(table.receipt.id)
        assert dry_run.truth == table.truth == curator.question(BY_REGION).truth
        assert receipt == table.receipt
    assert table.truth is not None
    assert (table.truth.text, table.truth.interval) == (TEXT, WITHIN)
    assert (table.truth.unit, table.truth.rows_per_person, table.truth.cells_per_person) == ("person", 3, 2)
    assert table.receipt.truth == FULL
    assert any("of the count within these bounds in 95 % of releases" in note for note in dry_run.notes)
    assert table.describe()["truth"]["interval"] == WITHIN


def test_if_a_person_counts_in_several_cells_a_sum_is_not_called_the_total(config: Path) -> None:
    """The sum counts a person in each of two cells, a question for the total once: neither is the other's truth."""
    by_age = "SELECT age, count(*) FROM people GROUP BY age"
    rows = "the sum counts up to 3 rows of a person in each of up to 2 cells; a question for the total counts up to 3"
    once = "the sum counts a person once in each of up to 2 cells; a question for the total counts a person once"
    with Curator.open(config) as curator:
        for sql, words in ((by_age, rows), (by_age.replace("*", "DISTINCT person"), once)):
            notes = curator.dry_run(sql).notes
            assert any(note.startswith(words) for note in notes)
            assert not any("question of its own" in note or ("sum" in note and "truth" in note) for note in notes)
            total = curator.count(sql).total()
            assert words in total.note
            assert "more accurate" not in total.note
        parts = curator.count("SELECT region, age, count(*) FROM people GROUP BY region, age")
        assert all(rows in part.note for _, part in parts.subtotals("region"))
        single = [part.note for _, part in curator.count(by_age).subtotals("age")]
        assert single == [CONSISTENT] * 12


def test_the_screen_does_not_advise_a_total_that_counts_something_else(config: Path, count: Run) -> None:
    words = " ".join(count(BY_REGION).out.split())
    assert "a question for the total counts up to 3 rows of a person: these are different numbers" in words
    assert "more accurate" not in words


def test_after_the_bounds_have_changed_an_old_receipt_does_not_claim_the_new_ones(config: Path) -> None:
    with Curator.open(config) as curator:
        id = curator.count(BY_REGION).receipt.id
    config.write_text(config_text(more="rows_per_person = 2\ncells_per_person = 2"))
    with Curator.open(config) as curator:
        receipt = curator.receipt(id)
    assert receipt is not None
    assert receipt.truth == CHANGED


def test_the_statement_of_what_is_counted_depends_on_the_schema_only(config: Path) -> None:
    """Other rows, other people, no rows: the same words and bounds."""
    truths = []
    for regions in ("N", "NNNNSSEEWW", ""):
        people(config.parent, regions)
        with Curator.open(config) as curator:
            truths.append((curator.dry_run(BY_REGION).truth, curator.count(BY_REGION).truth))
    assert len(set(truths)) == 1


def test_the_metadata_of_parquet_files_says_what_a_large_table_counts(config: Path, tmp_path: Path) -> None:
    with Curator.open(config) as curator:
        table = curator.count_to_parquet(BY_REGION, output=tmp_path / "tables")
    assert (table.truth.text, table.receipt.truth) == (TEXT, FULL)
    metadata = pq.read_schema(table.files[0]).metadata
    assert json.loads(metadata[b"countveil"])["truth"]["text"] == TEXT


def test_the_csv_column_that_says_what_is_counted_has_a_name_of_its_own(config: Path) -> None:
    with Curator.open(config) as curator:
        table = curator.count(BY_REGION)
    table.columns[0] = "COUNT_OF"
    header, *rows = csv.reader(to_csv(table).splitlines())
    assert header == ["COUNT_OF", "count", "count_low", "count_high", "count_of_what"]
    assert {row[-1] for row in rows} == {FULL}


def test_a_table_from_an_earlier_service_does_not_say_what_it_counts(config: Path) -> None:
    with Curator.open(config) as curator:
        table: Table = curator.count(BY_REGION)
    object.__setattr__(table, "truth", None)
    assert table.describe()["truth"] is None
    assert to_csv(table).splitlines()[1].endswith(",")


# The command line


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys, "count")


def test_the_screen_states_the_bounds_beside_the_intervals(config: Path, count: Run) -> None:
    for words in (["--dry-run"], []):
        out = count(BY_REGION, *words).out
        assert f"counts {TEXT}; {WITHIN}" in " ".join(out.split())
        assert all(len(line) <= 80 for line in out.splitlines())


def test_json_on_the_screen_and_in_files_states_the_bounds(config: Path, count: Run, tmp_path: Path) -> None:
    count(BY_REGION, "-o", "table.json")
    documents = [
        json.loads((tmp_path / "table.json").read_text()),
        json.loads(count(BY_REGION, "--dry-run", "--json").out),
        json.loads(count(BY_REGION, "--json").out),
        json.loads(count(BY_REGION, "-o", "table.csv", "--json").out),
    ]
    for document in documents:
        assert (document["truth"]["text"], document["truth"]["interval"]) == (TEXT, WITHIN)
    assert [document["receipt"]["truth"] for document in documents if "receipt" in document] == [FULL] * 3


def test_csv_and_parquet_files_state_the_bounds(config: Path, count: Run, tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        assert count(BY_REGION, "-o", f"table.{ending}").code == 0
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [row[-1] for row in csv.reader(file)] == ["count_of", *[FULL] * 4]
    frame = pq.read_table(tmp_path / "table.parquet")
    assert frame.column_names == ["region", "count", "count_low", "count_high"]
    facts = json.loads(frame.schema.metadata[b"countveil"])
    assert (facts["truth"]["text"], facts["receipt"]["truth"]) == (TEXT, FULL)


def test_if_every_row_is_one_person_the_screen_states_no_bounds(tmp_path: Path, count: Run) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(unit="row"))
    with_plan(path)
    out = count(BY_REGION, "-c", path).out
    assert "counts rows; every row is one person\n" in out
    with Curator.open(path) as curator:
        assert curator.count(BY_REGION).receipt.truth == "rows; every row is one person"
    assert "within" not in out
