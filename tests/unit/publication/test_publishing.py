"""Publications from a configuration to a folder: tables add up, bounds hold, editions are numbered and replayed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countveil as cv
from countveil.curator.curator import Curator
from countveil.errors import BudgetError, ConfigError, ParameterError, RequestError
from countveil.mechanism.mechanism import Mechanism
from tests.support.curated import write_rows
from tests.support.editions import make_edition, write_small
from tests.support.published import TABLES, TOWNS, config_text, copy_place, rows, write_people, write_place


def true_counts(number: int = 400) -> dict[str, Counter[Any]]:
    people = rows(number)
    return {
        "total": Counter(() for _ in people),
        "county": Counter((TOWNS[town],) for _, town, _, _ in people),
        "town": Counter((town,) for _, town, _, _ in people),
        "town*sex": Counter((town, sex) for _, town, sex, _ in people),
    }


def labels(publication: cv.Publication, table: str) -> list[tuple[Any, ...]]:
    entry = publication.folder.entry(table)
    columns = publication[table]
    return list(zip(*(columns[name] for name in entry["by"]), strict=True)) or [()]


def test_published_tables_add_up_and_are_within_their_certain_bounds(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        publication = curator.publish("census", output=tmp_path / "out")
        assert publication.verify() == []
    truth = true_counts()
    for table in publication.tables:
        columns = publication[table]
        true = np.array([truth[table][each] for each in labels(publication, table)])
        assert ((columns["certain_low"] <= true) & (true <= columns["certain_high"])).all()
        assert (columns["count"] >= 0).all()
        law = publication.folder.entry(table)["law"]
        if law is not None:
            assert (abs(columns["count"] - true) <= 2 * law["D"]).all()
            assert (abs(columns["measured"] - true) <= law["D"]).all()
    towns, both = publication["town"], publication["town*sex"]
    assert (np.bincount(both["part_of"], weights=both["count"]) == towns["count"]).all()


def test_a_replay_writes_the_same_bytes_and_is_free(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        first = curator.publish("census", output=tmp_path / "one")
        second = curator.publish("census", output=tmp_path / "two")
        left = {grade.name: grade.answers_left for grade in curator.budget()[0].grades}
    assert (first.replayed, second.replayed) == (False, True)
    assert set(left.values()) == {1}
    files = sorted(path.relative_to(first.path) for path in first.path.rglob("*") if path.is_file())
    assert len(files) >= 10
    assert all((first.path / each).read_bytes() == (second.path / each).read_bytes() for each in files)


def test_new_data_gives_a_new_edition_until_none_is_left(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    for edition, number in enumerate((400, 450), start=1):
        write_people(tmp_path, number)
        with Curator.open(config) as curator:
            published = curator.publish("census")
        assert published.manifest["edition"] == edition
        assert published.path == tmp_path / "publications" / "census" / f"edition-{edition}"
    write_people(tmp_path, 500)
    with Curator.open(config) as curator, pytest.raises(BudgetError, match="census-") as spent:
        curator.publish("census")
    assert "raise editions in countveil.toml and make a new plan: countveil budget people --replan" in str(spent.value)
    assert "--extend" not in str(spent.value)


@pytest.mark.slow  # a plan is designed
def test_single_questions_and_publications_share_one_plan(tmp_path: Path) -> None:
    config = write_place(tmp_path, config_text(budget="answers = 3"))
    with Curator.open(config) as curator:
        (budget,) = curator.budget()
        names = [grade.name for grade in budget.grades]
        assert names[0] == "standard"
        assert names[-1] == "census-4"
        assert (budget.epsilon, budget.answers_total) == ("5", 3 + 2 * (len(names) - 1))
        curator.publish("census", output=tmp_path / "out")
        table = curator.count(by="county")
        assert table.receipt.grade == "standard"
        with pytest.raises(ParameterError, match="allowed is a grade of single questions"):
            curator.count(by="sex", grade="census-2")


def test_a_budget_for_publications_only_refuses_single_questions(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        with pytest.raises(RequestError, match="pays for publications only"):
            curator.count(by="county")
        assert curator.budget()[0].default_grade.startswith("census-")


def test_the_margins_of_error_are_as_asked_for_and_as_stated_before_publishing(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        outlook = curator.plan_publication("census")
        published = curator.publish("census", output=tmp_path / "out")
    margins = {table.name: table.margin_published for table in outlook.tables}
    assert 7 <= margins["town*sex"] <= 9
    stated = {each["name"]: each["margin_published"] for each in published.manifest["tables"]}
    assert all(abs(stated[name] - margins[name]) <= 1 for name in margins)


def test_the_interval_of_a_margin_that_is_no_table_contains_its_estimate(tmp_path: Path) -> None:
    config = copy_place(tmp_path, more='margins = [["sex"], ["county", "sex"]]')
    with Curator.open(config) as curator:
        notes = " ".join(curator.plan_publication("census").notes)
        published = curator.publish("census", output=tmp_path / "out")
    assert "margin sex goes across the tree" in notes
    assert published.margins == ("sex", "county*sex")
    sums, cells = published["county*sex"], published["town*sex"]
    assert (sums["low"] <= sums["estimate"]).all()
    assert (sums["estimate"] <= sums["high"]).all()
    assert sums["sum_of_cells"].sum() == cells["count"].sum()


@pytest.mark.slow  # a plan is designed
def test_cells_that_cannot_exist_are_not_measured_and_not_published(tmp_path: Path) -> None:
    text = config_text(more='cells = "cells.csv"')
    (tmp_path / "cells.csv").write_text("sex,town,county\nf,a,A\nm,a,A\nf,d,B\nm,d,B\nf,e,B\n")
    config = write_place(tmp_path, text)
    with Curator.open(config) as curator:
        outlook = curator.plan_publication("census")
        published = curator.publish("census", output=tmp_path / "out")
    assert [table.cells for table in outlook.tables] == [1, 2, 3, 5]
    assert published["town"]["town"].tolist() == ["a", "d", "e"]
    assert published.verify() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sex,town,county\nf,a,B\n", "cells.csv, line 2: no cell has the labels a, B"),
        ("sex,town,county\nf,a,A\nx,a,A\n", "cells.csv, line 3: no cell has the labels x"),
        ("sex,town\nf,a\n", "has the columns sex, town; give"),
        ("sex,town,county\n", "at least one record"),
        ('sex,town,county\nf,"a"b,A\n', "line 2"),
    ],
)
def test_a_list_of_cells_with_a_fault_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "cells.csv").write_text(content)
    config = write_place(tmp_path, config_text(more='cells = "cells.csv"'))
    with pytest.raises(ConfigError, match=message), Curator.open(config) as curator:
        curator.plan_publication("census")


def test_tables_that_cross_are_named_before_anything_is_charged(tmp_path: Path) -> None:
    tables = '[{ by = ["county"] }, { by = ["sex"] }, { by = ["town", "sex"] }]'
    config = write_place(tmp_path, config_text(tables=tables))
    with Curator.open(config) as curator:
        with pytest.raises(ConfigError, match=r"tables county and sex cross, and town\*sex is finer than both"):
            curator.publish("census", output=tmp_path / "out")
        assert curator.history() == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tables", "more", "message"),
    [
        ('[{ by = ["Total"] }]', "", r"tables\[1\]\.by: Total is the name of the table without columns, rename it"),
        ('[{ by = ["county"] }]', 'margins = [["Total"]]', r"margins\[1\]\.by: Total is the name of the table"),
        ('[{ by = ["county"] }]', "margins = [[]]", "margins: total is a table of the publication, also if"),
        (
            '[{ by = ["county", "sex"] }, { by = ["county", "Total"] }]',
            'margins = [["county"]]',
            "margins: county is a table of the publication, also if it was added; leave it out here",
        ),
        ('[{ by = ["county", "sex"] }, { by = ["county*sex"] }]', "", r"tables: two tables are called county\*sex"),
    ],
)
def test_two_tables_or_margins_of_one_name_are_refused_before_anything_is_charged(
    tmp_path: Path, tables: str, more: str, message: str
) -> None:
    other = "Tall" if "margins: county" in message else "Total"
    columns = '"county*sex" = { from = "age", bands = [0, 50] }\nTotal = ["x", "y"]'
    head = "[dataset.people.budget]"
    text = config_text(tables=tables, more=more).replace(head, f"{columns}\n{head}")
    config = write_place(tmp_path, text.replace("Total", other))
    with pytest.raises(ConfigError, match=message), Curator.open(config) as curator:
        curator.publish("census", output=tmp_path / "out")
    if (tmp_path / "countveil.ledger").exists():
        with Curator.open(config) as curator:
            assert curator.history() == []


def test_another_publication_than_the_plan_was_made_for_is_refused(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    changed = config_text(tables='[{ by = [] }, { by = ["town"] }]')
    for name, text in (("census", changed), ("other", changed.replace("publication.census", "publication.other"))):
        config.write_text(text)
        with Curator.open(config) as curator, pytest.raises(ConfigError, match="recorded plan of pool people"):
            curator.publish(name)


def test_a_hierarchy_that_changed_between_editions_is_refused(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        curator.publish("census", output=tmp_path / "out")
    towns = (tmp_path / "towns.csv").read_text()
    (tmp_path / "towns.csv").write_text(towns.replace("c,A", "c,B"))
    with Curator.open(config) as curator, pytest.raises(ConfigError, match="has another version of this publication"):
        curator.publish("census", output=tmp_path / "next")


def test_a_folder_with_other_files_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note.txt").write_text("mine")
    with Curator.open(config) as curator:
        with pytest.raises(ParameterError, match="a folder that does not exist yet, or is empty"):
            curator.publish("census", output=tmp_path / "out")
        assert curator.history() == []
    assert (tmp_path / "out" / "note.txt").read_text() == "mine"


def test_a_published_folder_that_was_changed_is_not_accepted_as_a_replay(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        published = curator.publish("census", output=tmp_path / "out")
        file = published.path / published.folder.entry("town")["file"]
        file.write_text(file.read_text().replace("a,", "b,", 1))
        with pytest.raises(RequestError, match="was changed"):
            curator.publish("census", output=tmp_path / "out")
        manifest = {name: value for name, value in published.manifest.items() if name != "estimate"}
        (published.path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(RequestError, match="estimate is missing"):
            curator.publish("census", output=tmp_path / "out")


def test_a_publication_of_unbiased_estimates_verifies_and_states_no_worst_error(tmp_path: Path) -> None:
    config = copy_place(tmp_path, more='estimate = "unbiased"')
    with Curator.open(config) as curator:
        published = curator.publish("census", output=tmp_path / "out")
        assert published.verify() == []
        assert {each.worst_error for each in curator.plan_publication("census").tables} == {None}
    assert "/2^" in json.loads((published.path / "manifest.json").read_text())["uniform"]


def test_parquet_tables_have_the_same_columns(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        plain = curator.publish("census", output=tmp_path / "plain")
        packed = curator.publish("census", output=tmp_path / "packed", format="parquet")
        assert packed.verify() == []
    for table in plain.tables:
        assert {n: c.tolist() for n, c in plain[table].items()} == {n: c.tolist() for n, c in packed[table].items()}
    assert packed.to("town", "pandas").columns.tolist() == list(plain["town"])


@pytest.mark.slow  # a plan is designed
@pytest.mark.parametrize("rows_per_person", [1, 2])
def test_people_in_several_cells_move_coarser_tables_by_all_of_their_rows(tmp_path: Path, rows_per_person: int) -> None:
    dataset = f"rows_per_person = {rows_per_person}\ncells_per_person = 3"
    config = write_place(tmp_path, config_text(dataset=dataset, tables='[{ by = [] }, { by = ["town", "sex"] }]'))
    people = [(1, town, sex, 20) for town in TOWNS for sex in "fm" for _ in range(3)]  # one person, 30 rows in 10 cells
    write_rows(tmp_path / "people.csv", ["id", "town", "sex", "age"], people)
    with Curator.open(config) as curator:
        _, ready, layout = curator._lay_out("census")
        record = curator._plans.of(ready, opened=True)
        mechanisms = [Mechanism.from_text(grade.document) for grade in record.grades]
        published = curator.publish("census", output=tmp_path / "out")
        with curator._prepare(layout.question, ready, "curator", "census-1") as opened:
            counts = opened.engine.count(layout.question, salt=b"salt")
    assert [each["cells_per_person"] for each in published.manifest["tables"]] == [1, 3]
    sensitivities = [(grade.terms["sensitivity"], grade.terms["cells"]) for grade in record.grades]
    assert sensitivities == [(str(3 * rows_per_person), "1"), (str(rows_per_person), "3")]
    assert [each.certificate.sensitivity for each in mechanisms] == [3 * rows_per_person, rows_per_person]
    assert (counts.max(), counts.sum()) == (rows_per_person, 3 * rows_per_person)
    assert published.manifest["truth"]["text"].startswith(f"rows of people; at most {rows_per_person} row")
    assert published.verify() == []


def test_tables_of_people_are_refused_if_a_person_may_be_in_several_cells(tmp_path: Path) -> None:
    config = write_place(
        tmp_path, config_text(dataset="rows_per_person = 2\ncells_per_person = 3", more='count = "people"')
    )
    advice = 'each person is in one cell, and dataset.people.cells_per_person is 3; set it to 1, or count = "rows"'
    with pytest.raises(ConfigError, match=f"tables of people add up only if {advice}"):
        Curator.open(config)


@pytest.mark.slow  # a plan is designed
def test_a_dry_run_of_a_publication_needs_no_data_and_adds_no_ledger_entry(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    (tmp_path / "people.csv").unlink()
    with Curator.open(config) as curator:
        plain = curator.plan_publication("census")
        finer = curator.plan_publication("census", table=2, margin=6)
        cheaper = curator.plan_publication("census", epsilon="4")
        assert curator.history() == []
    margin = {table.name: table.margin_published for table in plain.tables}
    assert {table.name: table.margin_published for table in finer.tables}["county"] <= 6
    assert {table.name: table.margin_published for table in cheaper.tables}["town"] >= margin["town"]
    assert "4" in cheaper.notes[-1]
    config.write_text(config.read_text().replace('epsilon = "5"', 'epsilon = "4"'))
    with Curator.open(config) as curator:
        assert curator.replan_budget("people", "less noise").epsilon == cheaper.epsilon
    assert float(cheaper.epsilon) > 5


@pytest.mark.slow  # a plan is designed
def test_the_error_for_a_margin_that_is_too_small_names_the_table_and_a_margin_that_fits(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    message = "nearest margin of table county of publication census alone is about ±"
    with Curator.open(config) as curator, pytest.raises(cv.InfeasibleError, match=message):
        curator.plan_publication("census", epsilon="0.1", table="county", margin=1)


def test_the_difference_of_two_editions_has_an_interval(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    editions = []
    for number in (400, 700):
        write_people(tmp_path, number)
        with Curator.open(config) as curator:
            editions.append(curator.publish("census"))
    change = editions[0].change(editions[1])
    before, after = true_counts(400), true_counts(700)
    for table, cells in change.items():
        true = np.array([after[table][each] - before[table][each] for each in labels(editions[0], table)])
        assert ((cells.certain_low <= true) & (true <= cells.certain_high)).all()
        assert ((cells.low <= cells.difference) & (cells.difference <= cells.high)).all()
    assert change["total"].clear.all()
    with pytest.raises(RequestError, match="same edition"):
        editions[0].change(editions[0])


def test_a_publication_is_shown_in_a_notebook_by_a_line_and_a_card(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        outlook, published = curator.plan_publication("census"), curator.publish("census", output=tmp_path / "out")
    assert repr(published) == "<Publication census, edition 1: total, county, town, town*sex>"
    assert repr(outlook).startswith("<PublicationOutlook census: total ±")
    for card in (published._repr_html_(), outlook._repr_html_()):
        assert "town*sex" in card
        assert "epsilon 5" in card


@pytest.mark.slow  # two plans are designed
def test_after_a_new_plan_the_same_data_gives_a_new_edition_from_new_measurements(tmp_path: Path) -> None:
    """Another plan can measure other tables; their measurements are never mixed with those of the plan before."""
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        first = curator.publish("census")
    config.write_text(config_text(budget="answers = 30", tables=TABLES.replace("9", "20")))
    with Curator.open(config) as curator:
        curator.replan_budget("people", "more questions")
        second = curator.publish("census")
        (budget,) = curator.budget()
    assert (first.manifest["edition"], second.manifest["edition"]) == (1, 2)
    assert not set(first.manifest["receipts"]) & set(second.manifest["receipts"])
    assert (second.replayed, second.verify(), second.path.name) == (False, [], "edition-2")
    assert second.guarantee["epsilon"] == budget.epsilon
    assert float(budget.epsilon) > float(first.manifest["guarantee"]["epsilon"])
    truth = true_counts()
    for table in second.tables:
        true = np.array([truth[table][each] for each in labels(second, table)])
        assert ((second[table]["certain_low"] <= true) & (true <= second[table]["certain_high"])).all()


def test_a_folder_of_another_edition_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        curator.publish("census", output=tmp_path / "out")
    write_people(tmp_path, 450)
    with Curator.open(config) as curator:
        with pytest.raises(ParameterError, match="a folder that does not exist yet, or is empty"):
            curator.publish("census", output=tmp_path / "out")
        assert {grade.answers_left for grade in curator.budget()[0].grades} == {1}


def test_receipts_are_those_of_the_tables_coarse_to_fine_however_tables_are_declared(tmp_path: Path) -> None:
    edition = make_edition(order=(2, 0, 1))
    published = cv.Publication(write_small(tmp_path / "out", edition, delta="0.01"))
    assert published.manifest["receipts"] == ["bb22", "cc33", "aa11"]
    assert published.verify() == []


def test_another_format_or_estimate_of_a_published_edition_needs_another_folder(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        curator.publish("census", output=tmp_path / "out")
        assert curator.publish("census", output=tmp_path / "out").replayed
        with pytest.raises(RequestError, match="in another format; give another folder"):
            curator.publish("census", output=tmp_path / "out", format="parquet")
    config.write_text(config_text(more='estimate = "unbiased"'))
    with Curator.open(config) as curator, pytest.raises(RequestError, match="another estimate or other margins"):
        curator.publish("census", output=tmp_path / "out")


@pytest.mark.parametrize("output", ["x" * 300, "~nobody-of-this-name/x"])
def test_a_path_that_no_folder_can_have_is_refused_in_one_line(tmp_path: Path, output: str) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        with pytest.raises(ParameterError, match="the path of a folder that can be made"):
            curator.publish("census", output=output)
        assert curator.history() == []


def test_the_grade_of_one_published_table_is_not_extended_alone(tmp_path: Path) -> None:
    config = copy_place(tmp_path)
    with Curator.open(config) as curator:
        curator.publish("census", output=tmp_path / "out")
        grade = curator.budget()[0].grades[0].name
        with pytest.raises(RequestError, match="pays for one table of a publication; for more editions"):
            curator.extend_budget("people", 1, "one more", grade=grade)
