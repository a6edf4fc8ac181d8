"""`countveil inspect`: how data fits its schema, for the curator, at 80 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.curated import COLUMNS, Run, config_text, people, runner, write_rows, written


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capsys, "inspect")


ROWS = [(1, "North", 5), (1, "North", 200), (2, "Atlantis", "old"), ("", "South", ""), (3, "\x1b[31mred", 7)]


def test_what_is_outside(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age", "note"], [(*row, "n") for row in ROWS])
    written(tmp_path)
    done = run()
    assert (done.code, done.err) == (0, "")
    assert "people: 5 rows" in done.out
    assert "outside region, most frequent: " in done.out
    assert "Atlantis (1)" in done.out
    assert "\x1b" not in done.out
    assert "3 people; at most 2 rows of one person" in done.out
    assert "not declared, so nobody can ask about: note" in done.out
    assert "1 row without a person in person; never counted" in done.out
    assert "people with more than 1 row: 1" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_as_json(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], ROWS)
    written(tmp_path)
    (found,) = json.loads(run("people", "--json").out)["datasets"]
    region, age = found["columns"]
    assert (region["rows"], region["inside"], region["null"], region["outside"]) == (5, 3, 0, 2)
    assert (age["inside"], age["null"], age["outside"]) == (2, 1, 2)
    assert found["people"] == {"people": 3, "rows": 5, "unnamed": 1, "most_rows": 2, "over": 1}


def test_guessed_domains_stay_on_one_line(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    columns = 'region = { values = ["North"], guessed = true }\nage = { min = 0, max = 9, guessed = true }'
    written(tmp_path, config_text(columns=columns))
    out = run().out
    assert "text (guessed)" in out
    assert "integer (guessed)" in out
    assert "guessed domains to confirm in the file: region, age" in out


def test_long_names_and_values(run: Run, tmp_path: Path) -> None:
    name = "a" * 150
    write_rows(tmp_path / "people.csv", ["person", name], [(i, f"{'v' * 300} {i}") for i in range(20)])
    written(tmp_path, config_text(columns=f'{name} = ["x"]'))
    done = run()
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_nothing_is_charged_and_no_ledger_made(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["countveil.toml", "people.csv"]


@pytest.mark.parametrize(
    ("text", "words", "code", "said"),
    [
        (config_text(), ["nope"], 2, "nope is not declared"),
        (config_text(), ["-c", "gone.toml"], 2, "cannot be read"),
        (config_text(columns=COLUMNS + "sex = [1]"), [], 5, "column sex is declared"),
        (config_text(unit="nobody"), [], 5, "unit nobody is declared"),
        (config_text(source="gone.csv"), [], 6, "matches no file"),
        (config_text(source="broken.parquet"), [], 6, "could not be opened"),
        (config_text(source="zoned.parquet", columns="day = { min = 2026-01-01, max = 2026-01-02 }"), [], 5, "zone"),
    ],
)
def test_what_is_refused(text: str, words: list[str], code: int, said: str, run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 none PAR1")
    when = pa.array([0, 1], pa.timestamp("us", tz="Europe/Prague"))
    pq.write_table(pa.table({"person": [1, 2], "day": when}), tmp_path / "zoned.parquet")
    written(tmp_path, text)
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_columns_with_names_of_ours(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["u", "v", "n\x1b[2J"], [(1, 2, 3), (1, 9, 3)])
    written(tmp_path, config_text(unit="u", columns="v = { min = 0, max = 5 }"))
    done = run()
    assert (done.code, done.err) == (0, "")
    assert "outside v, most frequent: 9 (1)" in done.out
    assert "1 people; at most 2 rows" in done.out
    assert "\x1b" not in done.out
