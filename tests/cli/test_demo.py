"""`countveil demo`: four questions from end to end, the report, and a second run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from countveil.demo import census, run, visitors
from countveil.publication.publication import Publication

VOID = {"meta", "rect", "line", "circle", "path"}


pytestmark = pytest.mark.slow  # a census of 100,000 people


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first_run(folder: Path) -> dict[str, Any]:
    """The JSON output of the first run, with the text of its report."""
    output: dict[str, Any] = json.loads(command(folder, "--json").stdout)
    return {**output, "page": (folder / "report.html").read_text()}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "countveil", "demo", "--out", str(folder), *words],
        capture_output=True,
        text=True,
        check=True,
    )


def test_of_the_four_questions_two_are_paid_and_one_is_refused_and_one_is_replayed(first_run: dict[str, Any]) -> None:
    first, second, refused, again = first_run["asked"]
    assert [a["answer"]["replayed"] for a in (first, second, again)] == [False, False, True]
    assert refused["answer"] is None
    assert "position" in refused["refusal"]
    assert second["answer"]["rows"] == again["answer"]["rows"]
    assert (first_run["budget"]["answers_left"], first_run["budget"]["answers_total"]) == (8, 10)
    sizes = {town: size for town, _, size in census.TOWNS}
    reach = first["answer"]["worst_error"]
    for town, y, low, high in first["answer"]["rows"]:
        assert max(0, sizes[town] - reach) <= y <= sizes[town] + reach
        assert low <= y <= high


def test_the_demo_ends_with_a_publication_that_adds_up(first_run: dict[str, Any], folder: Path) -> None:
    published = Publication.open(first_run["publication"])
    assert published.verify() == []
    assert published["region"]["count"].sum() == published["total"]["count"][0]
    true = visitors.count_regions()
    columns = published["region"]
    for region, low, high in zip(*(columns[name] for name in ("region", "certain_low", "certain_high")), strict=True):
        assert low <= true[region] <= high
    words = command(folder).stdout
    assert "tables that add up" in words
    assert "countveil publish verify" in words


def test_the_census_has_100000_people_and_is_the_same_every_time() -> None:
    people = list(census.people())
    assert len(people) == 100_000
    assert {size for _, _, size in census.TOWNS} >= {90, 50_000}
    assert people == list(census.people())


def test_the_report_is_one_valid_page_without_external_files(first_run: dict[str, Any]) -> None:
    page = first_run["page"]
    assert not re.search(r"<script|https?://|src=|url\(|@import|<link", page)
    assert page.count("<svg") == 4  # the budget, and a plot for each answered question
    assert re.search(r"The sum of 12 cells can be up to [0-9.]+ too high on average, if every count is 0; for", page)
    for words in ("refused, nothing charged", "replayed, free", "paid: one answer", "Larkspur", "What is promised"):
        assert words in page
    open_tags: list[str] = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in VOID:
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in VOID:
                assert open_tags.pop() == tag

    Balanced().feed(page)
    assert not open_tags


def test_a_second_run_replays_the_answers(folder: Path, first_run: dict[str, Any]) -> None:
    before = run(folder)
    assert all(asked.table is None or asked.table.replayed for asked in before.asked)
    screen = command(folder).stdout
    assert "asked before" in screen
    assert "Larkspur" in screen
    assert "8 of 10 answers left" in screen
    assert max(len(line) for line in screen.splitlines() if str(folder) not in line) <= 120


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "countveil", "demo", "--out", str(tmp_path / "x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("countveil: out: got")
