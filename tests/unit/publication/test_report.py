"""The page of an edition: what it says, that no label escapes, and that it stays small."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countveil.publication.edition import PublishedMargin, PublishedTable, mark_quality
from countveil.publication.folder import Folder
from countveil.publication.report import write_report
from tests.support.editions import make_edition, write_small

HOSTILE = ("<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "]]></svg></title>&amp;", "W" * 5_000)
VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """A page as a strict reader has it: its elements, its text, and elements that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.in_tables: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)
        if "table" in self.open and "svg" not in self.open:
            self.in_tables.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def read(folder: Folder) -> str:
    return folder.content("report.html").decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_small(tmp_path_factory.mktemp("small") / "out")


def test_the_page_says_what_was_published_and_what_is_guaranteed(folder: Folder) -> None:
    text = Page(read(folder)).text
    total, finest = folder.columns("total"), folder.columns("region*age")
    for words in (
        *("yearbook", "Edition 1", "epsilon = 3, delta = 1e-6", "grows at most by a factor of 20.1, plus 1e-6"),
        *("If any one person is added to the data or removed", folder.manifest["truth"]["text"]),
        *("all rows with the same id", "6 answers of pool people", folder.manifest["quality"]),
        *("countveil publish verify FOLDER", "aa11", "bb22", "cc33", f"{total['count'][0]:,}"),
    ):
        assert words in text
    marks = [int((finest["quality"] == mark).sum()) for mark in "ABCD"]
    assert "region*age" + "".join(f"{number:,}" for number in marks) in "".join(Page(read(folder)).in_tables)
    margin = folder.columns("age")
    for row in range(3):
        words = f"{margin['age'][row]}{margin['estimate'][row]:,}{margin['low'][row]:,} to {margin['high'][row]:,}"
        assert words in text
    weakest = int(np.flatnonzero(finest["quality"] == max(finest["quality"]))[0])
    assert finest["region"][weakest] in text


def test_every_count_of_a_small_edition_is_in_the_treemap(folder: Folder) -> None:
    page, finest = read(folder), folder.columns("region*age")
    shown = set(re.findall(r"<title>([^<]*): ([\d,]+) \(([\d,]+) to ([\d,]+)\), quality (.)</title>", page))
    for row in np.flatnonzero(finest["count"] > 0).tolist():
        count, low, high = (f"{finest[name][row]:,}" for name in ("count", "low", "high"))
        assert (f"{finest['region'][row]} · {finest['age'][row]}", count, low, high, finest["quality"][row]) in shown


def test_labels_are_escaped_and_shortened(tmp_path: Path) -> None:
    page = read(write_small(tmp_path / "out", make_edition(HOSTILE)))
    reader = Page(page)
    assert {tag for tag, _ in reader.elements}.isdisjoint({"script", "img", "iframe", "object"})
    assert not [name for _, given in reader.elements for name in given if name.startswith("on")]
    assert "<script>alert(1)</script>" in reader.text
    assert "W" * 100 not in page


def test_the_page_loads_nothing_and_runs_no_script(folder: Folder) -> None:
    page = read(folder)
    reader = Page(page)
    assert not re.search(r"https?:|url\(|@import|javascript:", page)
    assert not [given for _, given in reader.elements if "src" in given or "style" in given]
    policy = [given["content"] for tag, given in reader.elements if given.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    links = {given["href"] for tag, given in reader.elements if tag == "a"}
    assert links == {each["file"] for kind in ("tables", "margins") for each in folder.manifest[kind]}


def test_equal_editions_have_equal_pages(folder: Folder, tmp_path: Path) -> None:
    assert read(write_small(tmp_path / "again")) == read(folder)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"neighbours": "replace"}, "If any one person's data is replaced by anything else"),
        ({"epsilon": "unknown, at most 9 answers"}, "no number is stated for all answers together"),
    ],
)
def test_the_page_states_the_guarantee_in_words(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    assert words in Page(read(write_small(tmp_path / "out", make_edition(margins=False), **changed))).text


def test_negative_counts_have_no_area_but_a_place_in_the_chart(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "out", make_edition(estimate="unbiased", ages=8))
    assert (folder.columns("region*age")["count"] < 0).any()
    reader = Page(read(folder))
    assert "can be negative" in reader.text
    sizes = [float(str(g[name])) for tag, g in reader.elements if tag == "rect" for name in ("width", "height")]
    assert min(sizes) >= 0


def make_table(by: tuple[str, ...], counts: Any, parts: Any, coarser: str | None) -> PublishedTable:
    half = 5 + np.arange(len(counts)) % 30
    low, high = np.maximum(counts - half, 0), counts + half
    columns: dict[str, Any] = {name: np.array([f"{name} {i}" for i in range(len(counts))], dtype=object) for name in by}
    columns |= {"count": counts, "low": low, "high": high, "quality": mark_quality(counts, low, high)}
    if coarser is not None:
        columns["part_of"] = parts
    return PublishedTable("*".join(by) or "total", by, columns, coarser, True, 35)


def test_the_page_of_an_edition_with_many_cells_is_small(folder: Folder) -> None:
    """The page shows samples: 100 times as many cells hardly change its size."""
    sizes = []
    for towns, jobs in ((400, 5), (4_000, 50)):
        fine = np.arange(towns * jobs, dtype=np.int64) % 997
        coarse = fine.reshape(towns, jobs).sum(axis=1)
        tables = [
            make_table((), np.array([coarse.sum()]), None, None),
            make_table(("town",), coarse, np.zeros(towns, dtype=np.int64), "total"),
            make_table(("town", "job"), fine, np.repeat(np.arange(towns), jobs), "town"),
        ]
        entries = [{**folder.manifest["tables"][0], "name": t.name, "by": list(t.by), "rows": len(t)} for t in tables]
        numbers = {"job": tables[2].columns["job"], "gap": fine}
        numbers |= dict.fromkeys(("estimate", "low", "high", "sum_of_cells"), fine)
        margin = {"name": "job", "by": ["job"], "rows": len(fine), "file": "margins/1-job.csv"}
        manifest = {**folder.manifest, "tables": entries, "margins": [margin]}
        page = write_report(manifest, tables, [PublishedMargin("job", ("job",), numbers, "town*job")])
        assert f"{towns - 300:,} smaller cells" in page
        sizes.append(len(page.encode()))
    assert sizes[1] < 1.1 * sizes[0] < 200_000
