"""`countveil inspect`: the curator sees in 80 columns how the data fit the schema."""

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


def test_values_outside_the_domains_are_shown(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age", "note"], [(*row, "n") for row in ROWS])
    written(tmp_path)
    done = run()
    assert (done.code, done.err) == (0, "")
    assert "people: 5 rows" in done.out
    assert "outside region, most frequent: " in done.out
    assert "Atlantis (1)" in done.out
    assert "\x1b" not in done.out
    assert "3 people; at most 2 rows of one person" in done.out
    assert "not declared, so no query can use: note" in done.out
    assert "1 row without a person in column person; never counted" in done.out
    assert "people with more than 1 row: 1" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_json_counts_the_values_inside_and_outside_the_domains(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], ROWS)
    written(tmp_path)
    (dataset,) = json.loads(run("people", "--json").out)["datasets"]
    region, age = dataset["columns"]
    assert (region["rows"], region["inside"], region["null"], region["outside"]) == (5, 3, 0, 2)
    assert (age["inside"], age["null"], age["outside"]) == (2, 1, 2)
    assert dataset["bounds"]["declared"]["rows_per_person"] == 1
    assert dataset["people"] == {"people": 3, "rows": 5, "unnamed": 1, "most_rows": 2, "over": 1}


def test_guessed_domains_are_marked_and_listed_on_one_line(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    columns = 'region = { values = ["North"], guessed = true }\nage = { min = 0, max = 9, guessed = true }'
    written(tmp_path, config_text(columns=columns))
    out = run().out
    assert "text (guessed)" in out
    assert "integer (guessed)" in out
    assert "guessed domains to confirm in the file: region, age" in out


def test_long_names_and_values_fit_80_columns(run: Run, tmp_path: Path) -> None:
    name = "a" * 150
    write_rows(tmp_path / "people.csv", ["person", name], [(i, f"{'v' * 300} {i}") for i in range(20)])
    written(tmp_path, config_text(columns=f'{name} = ["x"]'))
    done = run()
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_inspect_creates_no_ledger(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["countveil.toml", "people.csv"]


@pytest.mark.parametrize(
    ("text", "words", "code", "message"),
    [
        (config_text(), ["nope"], 2, "nope is not declared"),
        (config_text(), ["-c", "gone.toml"], 2, "cannot be read"),
        (config_text(columns=COLUMNS + "sex = [1]"), [], 5, "column sex is declared"),
        (config_text(columns='part = { from = "Age", bands = [0, 9] }'), [], 5, "capitals count: write age"),
        (
            config_text(columns='part = { from = "gone", bands = [0, 9] }'),
            [],
            5,
            "gone is read by a derived column, but",
        ),
        (config_text(unit="nobody"), [], 5, "unit nobody is declared"),
        (config_text(source="gone.csv"), [], 6, "matches no file"),
        (config_text(source="broken.parquet"), [], 6, "could not be opened"),
        (config_text(source="zoned.parquet", columns="day = { min = 2026-01-01, max = 2026-01-02 }"), [], 5, "zone"),
        (
            config_text(
                source="zoned.parquet", columns='m = { from = "day", by = "month", min = "2026-01", max = "2026-02" }'
            ),
            *([], 5, 'group it with by and zone, such as zone = "Europe/Berlin"'),
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(
    text: str, words: list[str], code: int, message: str, run: Run, tmp_path: Path
) -> None:
    people(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 none PAR1")
    when = pa.array([0, 1], pa.timestamp("us", tz="Europe/Prague"))
    pq.write_table(pa.table({"person": [1, 2], "day": when}), tmp_path / "zoned.parquet")
    written(tmp_path, text)
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_columns_may_have_the_names_that_generated_sql_uses(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["u", "v", "n\x1b[2J"], [(1, 2, 3), (1, 9, 3)])
    written(tmp_path, config_text(unit="u", columns="v = { min = 0, max = 5 }"))
    done = run()
    assert (done.code, done.err) == (0, "")
    assert "outside v, most frequent: 9 (1)" in done.out
    assert "1 people; at most 2 rows" in done.out
    assert "\x1b" not in done.out


# Contribution bounds


VISITS = [(i, "North", 5) for i in range(300) for _ in range(2)] + [(i + 1000, "South", 5) for i in range(300)]


def test_the_declared_bounds_are_compared_with_other_bounds(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], VISITS)
    written(tmp_path, config_text(columns=COLUMNS.splitlines()[0]))
    done = run()
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "+ 1 x 1 66.7 % 50.0 % ±2 33.3 % 0.4 % left out" in lines
    assert "* 2 x 1 100.0 % 100.0 % ±3 0.0 % 0.7 % noise" in lines
    assert "1 x 1 ########## 33.8 % <- declared" in lines
    assert "The declared bounds 1 x 1 leave out 33.3 % of all rows; most of these cells:" in lines
    assert "50.0 % of 600 rows: region = North" in lines
    assert "people with more than 1 row: 300; rows above the bounds are not counted" in " ".join(lines)
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_json_lists_the_compared_bounds_and_the_cells_that_lose_most(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], VISITS)
    written(tmp_path)
    (dataset,) = json.loads(run("--json", "--by", "region").out)["datasets"]
    bounds = dataset["bounds"]
    assert bounds["tables"] == [["region"]]
    assert [(c["rows_per_person"], c["cells_per_person"]) for c in bounds["choices"]] == [(1, 1), (2, 1)]
    assert bounds["worst_cells"] == [{"by": ["region"], "labels": ["North"], "rows": 600, "left_out": 0.5}]
    assert bounds["declared"]["worst_left_out"] == 0.5


def test_without_a_budget_bounds_are_compared_without_their_noise(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], VISITS)
    written(tmp_path, config_text().split("[dataset.people.budget]")[0])
    done = run()
    assert done.code == 0
    assert "no budget is declared, so the noise of these choices is unknown" in " ".join(done.out.split())
    assert "±" not in done.out


def test_if_every_row_is_one_person_there_are_no_bounds_to_compare(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path, config_text(unit="row"))
    assert "Bounds" not in run().out
    done = run("--by", "region")
    assert (done.code, done.out) == (2, "")
    assert "every row is one person" in done.err


@pytest.mark.parametrize("words", [["--by", "nope"], ["--by", "region,region"]])
def test_an_unknown_table_is_refused(words: list[str], run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert "out of: region, age" in done.err


def test_guessed_bounds_are_reported_as_guessed(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path, config_text(more="bounds_guessed = true"))
    assert "the bounds are guessed: confirm them in the file" in " ".join(run().out.split())


def test_names_of_cells_cannot_control_the_terminal(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "place"], [(1, "\x1b[31mred")] * 5)
    written(tmp_path, config_text(columns='place = ["\\u001b[31mred"]'))
    done = run()
    assert done.code == 0
    assert "of 5 rows: 'place = \\x1b[31mred'" in done.out
    assert "\x1b" not in done.out


def test_a_weekly_job_stops_when_a_new_region_appears(run: Run, tmp_path: Path) -> None:
    """The new region has one row in eight: `--strict` fails with its share, and says nothing while the data fits."""
    config = tmp_path / "countveil.toml"
    config.write_text(
        '[dataset.people]\nsource = "people.csv"\nunit = "row"\n'
        '[dataset.people.columns]\nregion = ["North", "South"]\n'
        'area = { from = "region", map = "areas.csv" }\n'
        '[dataset.people.budget]\nepsilon = "3"\ndelta = "1e-6"\nanswers = 2\n'
    )
    (tmp_path / "areas.csv").write_text("region,area\nNorth,top\nSouth,bottom\n")
    data = tmp_path / "people.csv"
    data.write_text("region\n" + "North\n" * 400 + "South\n" * 300)
    assert run("--strict").code == 0
    data.write_text(data.read_text() + "West\n" * 100)
    stopped = run("--strict", "--json")
    assert stopped.code == 5
    assert "people, region: 12.5 % of rows are outside the domain" in stopped.err
    assert "people, area: 12.5 % of rows are outside the domain; at most 0.1 % may be" in stopped.err
    assert json.loads(stopped.out)["datasets"][0]["columns"][0]["outside"] == 100
    assert run("--strict", "--share", "0.2").code == 0
    assert run("--strict", "--share", "2").code == 2
    assert run().code == 0


@pytest.mark.parametrize("unit", ["row", "person"])
def test_a_source_without_rows_stops_the_weekly_job(unit: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("person,region,age\n")
    written(tmp_path, config_text(unit=unit))
    assert run().code == 0
    stopped = run("--strict")
    assert stopped.code == 5
    assert stopped.err == "countveil: people: the source has no rows; with --strict it needs at least one\n"


def test_a_region_that_is_suddenly_blank_stops_the_weekly_job(run: Run, tmp_path: Path) -> None:
    """Only columns with more NULLs than last time are named. Data that a person accepted is the next measure."""

    def write(blank: int) -> None:
        regions = [""] * blank + ["North"] * (2000 - blank)
        rows = [(i, region, "" if i % 4 else 5) for i, region in enumerate(regions)]
        write_rows(tmp_path / "people.csv", ["person", "region", "age"], rows)

    written(tmp_path)
    write(100)
    assert run("--strict", "--since").code == 0
    write(102)
    assert run("--strict", "--since").code == 0
    write(501)
    assert run("--strict").code == 0
    stopped = run("--strict", "--since")
    assert stopped.code == 5
    advice = "accept it by an inspection with --since and without --strict"
    assert stopped.err == (
        "countveil: people, region: 25.1 % of rows are NULL, 5.1 % at the last inspection; "
        f"at most 0.1 % more may be NULL: mend the data, or {advice}\n"
    )
    assert run("--strict", "--since", "--share", "0.1").code == 5
    assert run("--since").code == 0
    assert run("--strict", "--since").code == 0


def test_a_column_without_an_earlier_inspection_may_have_any_share_of_nulls(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], [(1, "", 5), (2, "", 6)])
    written(tmp_path, config_text(columns="age = { min = 0, max = 9 }"))
    assert run("--strict", "--since").code == 0
    written(tmp_path)
    assert run("--strict", "--since").code == 0


def test_the_option_share_is_refused_without_the_option_strict(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    for words in ([], ["--since"]):
        done = run("--share", "0.5", *words)
        assert (done.code, done.out) == (2, "")
        assert "share: got 0.5, allowed is nothing without --strict; add --strict" in done.err


def test_rows_outside_the_possible_cells_are_counted_and_stop_the_weekly_job(run: Run, tmp_path: Path) -> None:
    """The list has no children in South. Rows outside a column's domain are counted with that column, not here."""
    columns = 'region = ["North", "South"]\nyears = { from = "age", bands = [0, 18] }'
    written(tmp_path, config_text(columns=columns, more='cells = "possible.csv"'))
    (tmp_path / "possible.csv").write_text("years,region\n0-17,North\n18+,North\n18+,South\n")
    rows = [(i, "NS"[i % 2].replace("N", "North").replace("S", "South"), 5 + 30 * (i % 2)) for i in range(95)]
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], [*rows, (95, "West", 5), (96, "South", "")])
    (dataset,) = json.loads(run("--since", "--strict", "--share", "0.02", "--json").out)["datasets"]
    assert dataset["impossible"] == 0
    children = [(97, "South", 3), (98, "South", 4), (99, "South", 17)]
    write_rows(
        tmp_path / "people.csv", ["person", "region", "age"], [*rows, (95, "West", 5), (96, "South", ""), *children]
    )
    note = "3 rows in no possible cell; no table by all columns of the list of possible cells counts them"
    assert note in " ".join(run().out.split())
    stopped = run("--since", "--strict", "--share", "0.02", "--json")
    assert stopped.code == 5
    assert "people, cells: 3 % of rows are in no possible cell; at most 2 % may be" in stopped.err
    (dataset,) = json.loads(stopped.out)["datasets"]
    assert dataset["impossible"] == 3
    assert any(
        line.endswith("rows in no possible cell: 0 -> 3") for line in json.loads(stopped.out)["changes"]["people"]
    )


def test_bounds_can_be_compared_in_tables_by_derived_columns(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], VISITS)
    written(tmp_path, config_text(columns='region = ["North", "South"]\nyears = { from = "age", bands = [0, 18] }'))
    (dataset,) = json.loads(run("--json", "--by", "years,region").out)["datasets"]
    assert dataset["bounds"]["worst_cells"][0]["labels"] == ["0-17", "North"]
    assert [column["inside"] for column in dataset["columns"]] == [900, 900]


# Since the last inspection


def test_the_option_since_shows_what_changed_and_keeps_its_record_private(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], [(1, "North", 5), (2, "South", 6)])
    written(tmp_path)
    assert "no earlier inspection is recorded" in " ".join(run("--since").out.split())
    record = tmp_path / "countveil.ledger.inspected"
    assert record.stat().st_mode & 0o777 == 0o600
    changes = json.loads(run("--since", "--json").out)["changes"]["people"]
    assert len(changes) == 1
    assert changes[0].endswith(": nothing changed")
    rows = [(1, "North", 5, "x"), (2, "Atlantis", 6, "x"), (3, "South", "", "x")]
    write_rows(tmp_path / "people.csv", ["person", "region", "age", "note"], rows)
    lines = json.loads(run("--since", "--json").out)["changes"]["people"]
    assert all(line.startswith("since 20") for line in lines)
    assert [line.split(": ", 1)[1] for line in lines] == [
        *("rows: 2 -> 3", "people: 2 -> 3", "region, outside: 0 -> 1", "age, NULL: 0 -> 1"),
        "new column that is not declared: note",
    ]


def test_data_that_the_option_strict_refuses_is_not_recorded(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    run("--since")
    record = (tmp_path / "countveil.ledger.inspected").read_bytes()
    people(tmp_path, regions="NNSS")
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], [(1, "Atlantis", 5)])
    assert run("--since", "--strict").code == 5
    assert (tmp_path / "countveil.ledger.inspected").read_bytes() == record


def test_without_the_option_since_nothing_is_recorded_or_compared(run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    (tmp_path / "countveil.ledger.inspected").write_text("not read")
    assert run().code == 0
    assert "changes" not in json.loads(run("--json").out)
    assert (tmp_path / "countveil.ledger.inspected").read_text() == "not read"


RECORDS = [
    *("", "x", "[]", "{}", '{"schema_version": 1, "datasets": 3}', '{"schema_version": 2, "datasets": {}}'),
    '{"schema_version": 1, "datasets": {"people": {"inspected": "2026-01-01T00:00:00", "rows": "x"}}}',
    '{"schema_version": 1, "datasets": {"people": {"inspected": 3}}}',
]


@pytest.mark.parametrize("text", RECORDS)
def test_since_refuses_a_file_that_is_no_record_of_inspections(text: str, run: Run, tmp_path: Path) -> None:
    people(tmp_path)
    written(tmp_path)
    (tmp_path / "countveil.ledger.inspected").write_text(text)
    done = run("--since")
    assert (done.code, done.out) == (2, "")
    assert "is not a record of inspections; move it away" in done.err
    assert (tmp_path / "countveil.ledger.inspected").read_text() == text
