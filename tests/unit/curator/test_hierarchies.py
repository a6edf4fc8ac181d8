"""A hierarchy of derived columns from the configuration to the table: the cells that exist, and exact subtotals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import countveil as cv
from countveil.client.responses import read_table
from countveil.errors import ConfigError, ParameterError, RequestError
from countveil.service.routes import describe_table

CONFIG = """\
[dataset.people]
source = "people.parquet"
unit = "row"

[dataset.people.columns]
country      = { from = "region", map = "geography.csv" }
region       = { from = "municipality", map = "geography.csv" }
municipality = { from = "district", map = "geography.csv" }
district     = { values = "geography.csv" }
age_group    = { from = "age", bands = [0, 5, 15, 25, 45, 65, 75, 85] }
sex          = { values = [1, 2], labels = ["male", "female"] }

[dataset.people.budget]
epsilon = "3"
delta = "1e-6"
answers = 5
"""
LEVELS = ["country", "region", "municipality", "district"]
DISTRICTS = 3_000


def place(i: int) -> tuple[str, str, str, str]:
    """The country, region, municipality and district of a number: 2, 12, 300 and 3,000 of them."""
    return f"country {i // 10 // 25 // 6}", f"region {i // 10 // 25}", f"municipality {i // 10}", f"district {i}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hierarchy")
    (made / "countveil.toml").write_text(CONFIG)
    lines = [",".join(place(i)) for i in range(DISTRICTS)]
    (made / "geography.csv").write_text("\n".join([",".join(LEVELS), *lines]) + "\n")
    draw, n = np.random.default_rng(20261118), 100_000
    columns = {
        "district": pa.array([f"district {i}" for i in draw.integers(0, DISTRICTS, n)]),
        "age": pa.array(draw.integers(0, 100, n)),
        "sex": pa.array(draw.integers(1, 3, n)),
    }
    pq.write_table(pa.table(columns), made / "people.parquet")
    return made


@pytest.fixture(scope="module")
def curator(folder: Path) -> cv.Curator:
    return cv.Curator.open(folder / "countveil.toml")


@pytest.fixture(scope="module")
def table(curator: cv.Curator) -> cv.Table:
    return curator.count(by=[*LEVELS, "age_group", "sex"])


def test_a_deep_hierarchy_is_declared_briefly_and_has_only_the_cells_that_exist(table: cv.Table) -> None:
    assert len(CONFIG) < 2_000
    assert table.cells == DISTRICTS * 8 * 2 == 48_000
    rows = list(table.rows)
    assert [row[:4] for row in rows[::16]] == [place(i) for i in range(DISTRICTS)]
    assert rows[0][4:6] == ("0-4", "male")
    assert rows[-1][4:6] == ("85+", "female")


def test_the_columns_of_a_hierarchy_may_be_asked_for_in_any_order(curator: cv.Curator, table: cv.Table) -> None:
    shuffled = curator.count(by=["sex", "district", "age_group", *LEVELS[:3]])
    assert shuffled.replayed
    assert shuffled.receipt.id == table.receipt.id  # what is left may differ: other tests ask questions too
    order = [table.columns.index(name) for name in shuffled.columns]
    assert sorted(tuple(row[i] for i in order) for row in table.rows) == sorted(shuffled.rows)


def test_subtotals_of_a_hierarchy_add_up(table: cv.Table) -> None:
    frame, margins = table.to("pandas"), table.sum_margins
    for by in (["country"], ["region", "sex"], ["sex", "municipality"], ["country", "region", "age_group"]):
        expected = frame.groupby(by)["count"].agg(["sum", "size"]).to_dict("index")
        subtotals = table.subtotals(by)
        assert len(subtotals) == len(expected)
        for labels, total in subtotals:
            row = expected[labels if len(by) > 1 else labels[0]]
            assert (total.value, total.cells) == (row["sum"], row["size"])
            assert total.margin_95 == margins[total.cells]
    with pytest.raises(ParameterError):
        table.subtotals("age")


@pytest.fixture(scope="module")
def listed(folder: Path) -> cv.Curator:
    """The same people, with a list of possible cells: men under 5 in all municipalities, women of 85 in region 3."""
    lines = ["sex,region,age_group", *(f"male,region {i},0-4" for i in range(12)), "female,region 3,85+"]
    here = folder / "listed"  # a configuration and its ledger have a folder of their own
    here.mkdir()
    (here / "possible.csv").write_text("\n".join(lines) + "\n")
    text = CONFIG.replace('unit = "row"', 'unit = "row"\ncells = "possible.csv"').replace("people]", "listed]")
    text = text.replace("dataset.people", "dataset.listed")
    for name in ("people.parquet", "geography.csv"):
        text = text.replace(f'"{name}"', f'"../{name}"')
    (here / "countveil.toml").write_text(text)
    return cv.Curator.open(here / "countveil.toml")


def test_a_table_by_a_hierarchy_has_no_cell_outside_the_list_of_possible_cells(
    listed: cv.Curator, folder: Path
) -> None:
    table = listed.count(by=["age_group", "district", "country", "sex"])
    assert table.cells == DISTRICTS + 250
    rows = [row[:4] for row in table.rows]
    assert rows[:1] + rows[-1:] == [
        ("0-4", "district 0", "country 0", "male"),
        ("85+", "district 999", "country 0", "female"),
    ]
    people = pq.read_table(folder / "people.parquet").to_pandas()
    true = ((people.age < 5) & (people.sex == 1)).sum()
    (young, old) = table.subtotals(["sex"])
    assert (young[0], young[1].cells, old[0], old[1].cells) == (("male",), DISTRICTS, ("female",), 250)
    assert abs(young[1].value - true) <= 2 * young[1].margin_95


def test_files_and_json_have_exactly_the_possible_cells_of_the_table(listed: cv.Curator, tmp_path: Path) -> None:
    import json

    table = listed.count(by=["region", "sex", "age_group"])
    assert table.cells == 13
    released = listed.count_to_parquet(by=["region", "sex", "age_group"], output=tmp_path)
    written = list(zip(*(released.frame.column(i).to_pylist() for i in range(4)), strict=True))
    assert sorted(written) == sorted(row[:4] for row in table.rows)
    received = read_table(json.loads(json.dumps(describe_table(table))), None)
    assert list(received.rows) == list(table.rows)
    assert received.subtotals(["sex"]) == table.subtotals(["sex"])
    assert listed.dry_run(by=["municipality", "sex"]).cells == 300 + 25


@pytest.mark.slow  # 48,000 cells as JSON and back
def test_a_table_by_a_hierarchy_is_the_same_after_it_was_sent_as_json(table: cv.Table) -> None:
    import json

    received = read_table(json.loads(json.dumps(describe_table(table))), None)
    assert list(received.rows) == list(table.rows)
    assert received.subtotals(["region", "sex"]) == table.subtotals(["region", "sex"])
    damaged = describe_table(table)
    damaged["rows"][0], damaged["rows"][16] = damaged["rows"][16], damaged["rows"][0]
    with pytest.raises(ValueError):  # noqa: PT011
        read_table(damaged, None)


def test_an_answer_in_files_is_refused_to_an_equal_question_with_other_columns(
    curator: cv.Curator, tmp_path: Path
) -> None:
    first = curator.count_to_parquet(by="municipality", output=tmp_path)
    assert first.frame.column_names == ["municipality", "count"]
    with pytest.raises(RequestError, match="files with the columns municipality; ask with these columns"):
        curator.count_to_parquet(by=["country", "municipality"], output=tmp_path)


def test_a_missing_or_changed_file_is_refused_with_its_key(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "countveil.toml").write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"geography.csv cannot be read; give the path of a CSV file"):
        cv.Curator.open(tmp_path / "countveil.toml")
    lines = (folder / "geography.csv").read_text() + "country 9,region 0,municipality 0,district 3000\n"
    (tmp_path / "geography.csv").write_text(lines)
    with pytest.raises(ConfigError, match=r"line 3002: region 0 belongs to country 9 here, and to country 0 in line 2"):
        cv.Curator.open(tmp_path / "countveil.toml")
