"""`countveil count` and `countveil budget`: formats, JSON keys, exit codes, and that refusals cost nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import countveil as cv
from tests.support.curated import (
    COLUMNS,
    QUICK,
    Run,
    charged,
    config_text,
    people,
    runner,
    with_plan,
    write_rows,
    written,
)

BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
TOTAL = "SELECT count(*) FROM people"
TRUTH = (
    "people; at most 1 row each in a cell, 1 cell each; interval for the count within these bounds"
    "; a person is all rows with one value of person"
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    return path


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys, "count")


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys, "budget")


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# Output formats


def test_a_new_ledger_is_announced_once_by_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: Run, budget: Run
) -> None:
    message = "created a new ledger: countveil.ledger; keep it and its anchor, they record the budget\n"
    for name, first in (("a", budget), ("b", count)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        people(folder)
        written(folder)
        words = (TOTAL,) if first is count else ()
        assert first(*words, "--json").err == message
        assert (first(*words, "--json").err, budget("--json").err, count(TOTAL, "--json").err) == ("", "", "")


def test_json_has_rows_and_a_receipt_and_a_replay_prints_the_same_ones(config: Path, count: Run) -> None:
    done = count(BY_REGION, "--json")
    assert (done.code, done.err) == (0, "")
    table = json.loads(done.out)
    assert table["columns"] == ["region", "count", "count_low", "count_high"]
    assert [row[0] for row in table["rows"]] == ["North", "South", "East", "West"]
    assert all(type(number) is int for row in table["rows"] for number in row[1:])
    assert table["replayed"] is False
    keys = {"id", "dataset", "version", "question", "mechanism", "epsilon", "delta", "answers", "answers_left", "time"}
    assert keys <= set(table["receipt"])
    again = json.loads(count(BY_REGION, "--json").out)
    assert again == {**table, "replayed": True}


def test_the_screen_shows_intervals_the_sum_and_the_price_in_80_columns(config: Path, count: Run) -> None:
    done = count(BY_REGION)
    assert done.code == 0
    assert "95 % interval" in done.out
    assert "sum of the cells" in done.out
    assert "more accurate, but can differ from" in " ".join(done.out.split())
    assert "paid: 1 answer, 3 of 4 left (all together epsilon 10, delta 0.01)" in done.err  # stdout is no terminal
    assert "free: asked before, 3 of 4 left" in count(BY_REGION).err
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_csv_and_json_on_stdout_have_the_same_rows(config: Path, count: Run) -> None:
    plain = count(BY_REGION, "--format", "csv")
    assert plain.err == ""
    header, *rows = csv.reader(io.StringIO(plain.out))
    assert header == ["region", "count", "count_low", "count_high", "count_of"]
    described = json.loads(count(BY_REGION, "--format", "json").out)
    assert [[*map(str, row), TRUTH] for row in described["rows"]] == rows


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_each_file_format_holds_the_rows_of_the_table(ending: str, config: Path, count: Run, tmp_path: Path) -> None:
    rows = json.loads(count(BY_REGION, "--json").out)["rows"]
    done = count(BY_REGION, "-o", f"table.{ending}")
    assert (done.code, done.err) == (0, "")
    assert f"4 counts in table.{ending}; free: asked before" in done.out
    target = tmp_path / f"table.{ending}"
    if ending == "json":
        values = json.loads(target.read_text())["rows"]
    elif ending == "csv":
        values = [[row[0], *map(int, row[1:-1])] for row in read_csv(target)[1:]]
    else:
        values = [list(row.values()) for row in pq.read_table(target).to_pylist()]
    assert values == rows
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]


def test_json_describes_the_table_written_to_a_file(config: Path, count: Run, tmp_path: Path) -> None:
    summary = json.loads(count(BY_REGION, "-o", "table.csv", "--json").out)
    assert (summary["output"], summary["columns"][0], summary["cells"]) == ("table.csv", "region", 4)
    assert {"receipt", "replayed"} <= set(summary)
    assert (tmp_path / "table.csv").exists()


def test_the_option_format_overrides_the_file_name(config: Path, count: Run, tmp_path: Path) -> None:
    assert count(BY_REGION, "-o", "table", "--format", "csv").code == 0
    assert (tmp_path / "table").read_text().startswith("region,count")


AWKWARD = [
    "plain",
    "a,b",
    'say "no"',
    "two\nlines",
    "car\rriage",
    "dos\r\nlines",
    "Žižkov 東京 🎈",
    " padded ",
    "",
    "[b]x",
]


@pytest.fixture
def awkward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [(text, "true", "2026-01-31") for text in AWKWARD]
    write_rows(tmp_path / "people.csv", ["place", "ok", "day"], rows)
    columns = f"place = {json.dumps(AWKWARD, ensure_ascii=False)}\nok = {{ type = 'boolean' }}\n"
    columns += "day = { min = 2026-01-30, max = 2026-02-01 }"
    path = written(tmp_path, config_text(unit="row", columns=columns))
    with_plan(path)
    return path


def test_labels_with_special_characters_are_kept_in_every_format(awkward: Path, count: Run, tmp_path: Path) -> None:
    sql = "SELECT place, ok, day, count(*) FROM people GROUP BY place, ok, day"
    described = json.loads(count(sql, "--json").out)
    assert [row[0] for row in described["rows"]][::6] == AWKWARD
    assert described["rows"][0][1:3] == [False, "2026-01-30"]
    assert described["rows"][3][1] is True
    count(sql, "-o", "table.csv")
    _, *rows = read_csv(tmp_path / "table.csv")
    assert [row[0] for row in rows][::6] == AWKWARD
    assert {row[1] for row in rows} == {"true", "false"}
    count(sql, "-o", "table.parquet")
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.schema.types[:3] == [pa.string(), pa.bool_(), pa.date32()]
    assert table["place"].to_pylist()[::6] == AWKWARD
    screen = count("SELECT place, count(*) FROM people GROUP BY place").out
    for label in ("two\\nlines", "car\\rriage", "' padded '", "''", "[b]x"):
        assert label in screen


def test_a_large_table_is_truncated_on_the_screen_only(config: Path, count: Run) -> None:
    written(config.parent, config_text(columns=COLUMNS.replace(", step = 10", "")))
    sql = "SELECT age, count(*) FROM people GROUP BY age"
    done = count(sql)
    assert "and 60 more cells; write all of them with -o table.csv" in done.out
    assert len(count(sql, "--format", "csv").out.splitlines()) == 121
    assert len(json.loads(count(sql, "--json").out)["rows"]) == 120


def test_long_labels_are_wrapped_and_numbers_are_not(config: Path, count: Run, tmp_path: Path) -> None:
    long = "a label that goes on and on " * 6
    written(tmp_path, config_text(columns=f'region = ["North", "{long}"]\nage = ["{long}", "x"]'))
    out = count("SELECT region, age, count(*) FROM people GROUP BY region, age").out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.count(" to ") == 4


def test_no_color_turns_colours_off(config: Path) -> None:
    where = {**os.environ, "PYTHONPATH": str(Path(cv.__file__).parents[1]), "NO_COLOR": "1"}
    words = [sys.executable, "-m", "countveil", "count", BY_REGION]
    done = subprocess.run(words, capture_output=True, text=True, env=where, cwd=config.parent)
    assert done.returncode == 0
    assert "\x1b[3" not in done.stdout


# Dry runs


def test_a_dry_run_shows_the_price_and_charges_nothing(config: Path, count: Run) -> None:
    done = count(BY_REGION, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"question   {BY_REGION}\ncosts      1 answer of 4 left\ngives      4 counts, each ±")
    assert all(len(line) <= 80 for line in done.out.splitlines())
    dry_run = json.loads(count(BY_REGION, "--dry-run", "--json").out)
    assert {"schema_version", "question", "cells", "cost", "answers_left", "margin_95", "worst_error"} <= set(dry_run)
    assert charged(config) == 0
    count(BY_REGION)
    assert "costs      nothing: this question was asked before" in count(BY_REGION, "--dry-run").out


def test_a_dry_run_states_the_bias_of_a_sum_of_small_cells(config: Path, count: Run) -> None:
    by_both = "SELECT region, age, count(*) FROM people GROUP BY region, age"
    words = " ".join(count(by_both, "--dry-run").out.split())
    sentence = re.search(
        r"the sum of 48 cells can be up to ([0-9.]+) too high on average, if every count is 0; ", words
    )
    assert sentence is not None
    assert "for sums use policy signed, or ask for the total as a question of its own" in words
    dry_run = json.loads(count(by_both, "--dry-run", "--json").out)
    assert 0.5 <= float(dry_run["sum_bias"]) <= float(sentence[1]) <= 1.01 * float(dry_run["sum_bias"])


def test_a_dry_run_on_a_spent_budget_is_refused_like_the_question(config: Path, count: Run) -> None:
    for age in range(4):
        assert count(f"{TOTAL} WHERE age > {age}").code == 0
    done = count(BY_REGION, "--dry-run")
    assert done == count(BY_REGION)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("countveil: the budget of people is spent, all 4 answers; ")


# Exit codes


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["SELECT count(*) FROM nothing"], 3, "query not allowed at position 22: the dataset nothing"),
        (["SELECT name, count(*) FROM people GROUP BY name"], 3, "at position 8: the column name is not declared"),
        ([f"{TOTAL} WHERE age = 'x'"], 3, "at position 41"),
        ([f"{TOTAL} WHERE 1/0 = 1"], 3, "at position"),
        (["DROP TABLE people"], 3, "query not allowed at position 1"),
        ([""], 3, "query not allowed"),
        ([TOTAL, "--analyst", ""], 2, "analyst"),
        ([TOTAL, "--analyst", "a\nb"], 2, "analyst"),
        ([TOTAL, "-c", "gone.toml"], 2, "cannot be read"),
        ([TOTAL, "-o", "nowhere/table.csv"], 2, "a file in a folder that exists"),
        ([TOTAL, "-o", "folder.csv"], 2, "a file in a folder that exists"),
        ([TOTAL, "-o", "table.xls"], 2, "ends in .csv, .parquet or .json"),
        ([TOTAL, "--format", "parquet"], 2, "give a file with -o"),
        ([TOTAL, "--format", "xml"], 2, "--format"),
        ([TOTAL, "--dry-run", "-o", "table.csv"], 2, "a dry run makes no table"),
        ([TOTAL, "--json", "--format", "csv"], 2, "--json prints JSON"),
        ([], 2, "SQL"),
        ([TOTAL, "--colour"], 2, "--colour"),
    ],
)
def test_refusals_cost_nothing(words: list[str], code: int, message: str, config: Path, count: Run) -> None:
    (config.parent / "folder.csv").mkdir()
    done = count(*words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.startswith("countveil: ")
    assert done.err.count("\n") == 1
    assert charged(config) == 0


BAD_CONFIGS = {
    "syntax": "[dataset",
    "empty": "",
    "unknown key": config_text(more="colour = 1"),
    "no unit": config_text().replace('unit = "person"\n', ""),
    "no budget": config_text().split("[dataset.people.budget]")[0],
    "guessed": config_text(columns='region = { values = ["North"], guessed = true }'),
    "twice": config_text(columns='region = ["North", "North"]'),
    "changed budget": config_text().replace('"10"', '"11"'),
    "more rows": config_text(more="rows_per_person = 2"),
    **{f"epsilon {v}": config_text().replace('"10"', v) for v in ('"0"', '"-1"', '"nan"', '"inf"', "true", "[1]", "1")},
    **{f"delta {v}": config_text().replace('"0.01"', v) for v in ('"0"', '"1e-400"', '"1"', "1e-2")},
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_configuration_is_refused_in_one_line(name: str, config: Path, count: Run, budget: Run) -> None:
    bad = written(config.parent, BAD_CONFIGS[name], "bad.toml")
    done = count(TOTAL, "-c", bad)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert charged(config) == 0
    if name != "guessed":
        assert budget("people", "-c", bad).code == 2


def test_a_configuration_that_is_not_utf_8_is_refused(config: Path, count: Run) -> None:
    (config.parent / "bad.toml").write_bytes(config_text().encode("utf-16"))
    done = count(TOTAL, "-c", "bad.toml")
    assert (done.code, "is not UTF-8 text" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (config_text(columns=COLUMNS + "sex = [1, 2]"), 5, "column sex is declared"),
        (config_text(unit="nobody"), 5, "unit nobody"),
        (config_text(source="zoned.parquet", columns="day = { min = 2026-01-01, max = 2026-01-31 }"), 5, "zone"),
        (config_text(source="gone.csv"), 6, "matches no file"),
        (config_text(source="people.xls"), 6, "countveil cannot read people.xls"),
        (config_text(source="broken.parquet"), 6, "could not be opened"),
        (config_text(source="cut.parquet"), 6, "could not be opened"),
        (config_text(source="folder.csv"), 6, "matches no file"),
        (config_text(source="secret.csv"), 6, "could not be"),
        (config_text(source="postgresql://user:secret@x"), 6, "postgresql://x needs table"),
        (config_text(source="mysql://user:secret@x"), 6, "no engine for mysql:// is installed"),
        (config_text(more='engine = "nope"'), 6, "engine nope is not installed"),
    ],
)
def test_a_bad_source_is_refused_without_quoting_data(
    text: str, code: int, message: str, config: Path, count: Run
) -> None:
    folder = config.parent
    (folder / "folder.csv").mkdir()
    (folder / "people.xls").write_text("secret value")
    (folder / "broken.parquet").write_bytes(b"PAR1 secret value PAR1")
    (folder / "secret.csv").write_bytes(b"person,r\xe9gion\n1,secret value\n")
    when = pa.array([0, 1], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"person": [1, 2], "day": when}), folder / "zoned.parquet")
    (folder / "cut.parquet").write_bytes((folder / "zoned.parquet").read_bytes()[:-20])
    written(folder, text)
    done = count(TOTAL)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    for word in ("secret", "duckdb.", "Error:", "Traceback", "magic", "footer"):
        assert word not in done.err.replace("secret.csv", "")
    assert charged(config) == 0


def test_a_spent_budget_refuses_new_questions_and_replays_old_ones(config: Path, count: Run) -> None:
    for age in range(4):
        count(f"{TOTAL} WHERE age > {age}")
    done = count(BY_REGION)
    assert (done.code, done.out) == (4, "")
    assert "the budget of people is spent" in done.err
    assert count(f"{TOTAL} WHERE age > 3").code == 0


def test_parquet_without_pyarrow_is_refused_before_paying(config: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import sys\nclass No:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'pyarrow': raise ModuleNotFoundError(name)\n"
        "import importlib.util\nreal = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'pyarrow' else real(name, package)\n"
        "sys.meta_path.insert(0, No())\n"
    )
    paths = os.pathsep.join([str(tmp_path / "hidden"), str(Path(cv.__file__).parents[1])])
    where = {**os.environ, "PYTHONPATH": paths}
    words = [sys.executable, "-m", "countveil", "count", BY_REGION]
    done = subprocess.run([*words, "-o", "t.parquet"], capture_output=True, text=True, env=where, cwd=tmp_path)
    assert (done.returncode, "pip install" in done.stderr) == (6, True)
    assert charged(config) == 0
    done = subprocess.run([*words, "-o", "t.csv"], capture_output=True, text=True, env=where, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# The environment


def test_environment_variables_set_the_configuration_ledger_anchor_and_source(
    config: Path, count: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    people(other, "W" * 80, "elsewhere.csv")
    monkeypatch.chdir(other)
    monkeypatch.setenv("COUNTVEIL_CONFIG", str(config))
    monkeypatch.setenv("COUNTVEIL_LEDGER", str(other / "book"))
    monkeypatch.setenv("COUNTVEIL_ANCHOR", str(other / "mark"))
    monkeypatch.setenv("COUNTVEIL_SOURCE_PEOPLE", str(other / "elsewhere.csv"))
    assert "this configuration used countveil.ledger before" in count(BY_REGION, "--json").err
    table = json.loads(count(BY_REGION, "--json", "--new-ledger").out)
    assert dict(row[:2] for row in table["rows"])["West"] > 50
    assert (other / "book").exists()
    assert (other / "mark").exists()
    assert charged(config) == 0


# Budgets


def test_budget_prints_the_answers_left_as_json(config: Path, count: Run, budget: Run) -> None:
    count(TOTAL)
    description = json.loads(budget("people", "--json").out)
    assert (
        description["answers_left"],
        description["answers_total"],
        description["epsilon"],
        description["delta"],
    ) == (3, 4, "10", "0.01")
    assert description["pools"][0]["pool"] == "people"
    assert json.loads(budget("--json").out) == description


def test_budget_prints_answers_left_and_shares_in_80_columns(config: Path, count: Run, budget: Run) -> None:
    written(config.parent, config_text(budget=QUICK + 'shares = { ann = 2, "bob b" = 1 }'))
    assert count(TOTAL, "--analyst", "ann").code == 0
    out = budget().out
    assert "3 of 4 answers left" in out
    assert "ann: 1 of 2 left" in out
    assert "bob b: 1 of 1 left" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_budget_extend_adds_answers_and_needs_a_dataset_and_a_reason(config: Path, budget: Run) -> None:
    done = budget("people", "--extend", "2", "--reason", "second edition", "--json")
    assert done.code == 0
    assert json.loads(done.out)["answers_total"] == 6
    for words in (
        ["--extend", "2"],
        ["people", "--extend", "2"],
        ["people", "--reason", "x"],
        ["--extend", "1", "--reason", "x"],
    ):
        assert budget(*words).code == 2
    for words in (["people", "--extend", "0"], ["people", "--extend", "x"], ["nope", "--extend", "1"]):
        assert budget(*words, "--reason", "x").code == 2
    assert budget("nope").code == 2
    assert json.loads(budget("--json").out)["answers_total"] == 6


def test_no_command_prints_a_true_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: Run
) -> None:
    """The true count is a large prime: no output contains it, unless the released number equals it."""
    prime = 99991
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "people.csv", ["region"], [("North",)] * prime)
    path = written(tmp_path, config_text(unit="row", columns='region = ["North", "South"]'))
    with_plan(path)
    table = json.loads(count(BY_REGION, "--json").out)
    released = {str(row[1]) for row in table["rows"]} | {str(v) for row in table["rows"] for v in row[2:]}
    released.add(str(table["total"]["value"]))
    ledger = runner(monkeypatch, capsys, "ledger")
    texts = [count(BY_REGION, "--dry-run").out, count(f"{BY_REGION} LIMIT 1").err]
    texts += [json.dumps({**table["receipt"], "columns": table["columns"]})]
    texts += [ledger("log").out, ledger("log", "--json").out, ledger("verify").out]
    assert all(texts)
    if str(prime) not in released:
        assert not any(str(prime) in text for text in texts)


# A CSV file that one record breaks


def test_a_csv_file_with_one_broken_record_is_refused_with_the_line_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader that tolerates the broken record would count 150 instead of 1000 people in each region."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{('North', 'South')[i % 2]},{i % 100}\n" for i in range(2000)]
    whole = "".join(["person,region,age\n", *rows])
    broken = "".join(["person,region,age\n", *rows[:300], '9001,No"rth,"50\n', *rows[300:]])
    config = written(tmp_path, config_text(columns='region = ["North", "South"]\n'))
    with_plan(config)
    count, inspect, init = (runner(monkeypatch, capsys, name) for name in ("count", "inspect", "init"))
    (tmp_path / "people.csv").write_text(broken)
    for done in (count(BY_REGION), count(TOTAL), inspect(), init("people.csv", "-o", "-")):
        assert (done.code, done.out) == (5, "")
        assert "people.csv is not CSV by RFC 4180, line 302: a quote inside a field that is not quoted" in done.err
        assert done.err.count("\n") == 1
    assert charged(config) == 0
    (tmp_path / "people.csv").write_text(whole)
    table = json.loads(count(BY_REGION, "--json").out)
    assert all(abs(row[1] - 1000) <= table["worst_error"] for row in table["rows"])
    (tmp_path / "people.csv").write_text(broken)
    assert count(BY_REGION).code == 5, "refused although the question was answered before"


# Integers stored as floats because one value is missing


def test_a_missing_id_or_code_in_a_pandas_file_does_not_change_the_other_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pandas stores integers as floats if one is missing; the counts equal those without that row."""
    monkeypatch.chdir(tmp_path)
    config = written(tmp_path, config_text(source="people.parquet", columns='zip = ["101", "102"]\nage = [1, 2]\n'))
    with_plan(config)
    rows = [(i, 101 + i % 2, 1 + i % 2) for i in range(1000)]
    count, inspect = (runner(monkeypatch, capsys, name) for name in ("count", "inspect"))
    for extra in ([], [(None, 101, 1)], [(1000, None, None)]):
        frame = pd.DataFrame([*rows, *extra], columns=["person", "zip", "age"])
        assert (frame.dtypes == "float64").any() == bool(extra)
        frame.to_parquet("people.parquet")
        done = count("SELECT zip, count(*) FROM people WHERE age <= 2 GROUP BY zip", "--json")
        assert (done.code, done.err) == (0, "")
        table = json.loads(done.out)
        assert all(abs(row[1] - 500) <= table["worst_error"] for row in table["rows"])
    assert inspect().code == 0
