"""A folder that was changed, with all hashes made to fit, is not what its measurements give."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import countveil as cv
from countveil.curator.curator import Curator
from countveil.errors import ParameterError
from countveil.publication.publication import Publication
from tests.support.editions import make_edition, write_small
from tests.support.published import copy_place

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("published")
    config = copy_place(place, more='margins = [["sex"]]')
    with Curator.open(config) as curator:
        return curator.publish("census", output=place / "out").path


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "out")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is verified in a few milliseconds."""
    return write_small(tmp_path_factory.mktemp("small") / "out", make_edition(ages=2), delta="0.01").path


def change(folder: Path, entry: Manifest, column: str, value: Callable[[str], str]) -> None:
    """Change a column of a file, and make the manifest fit."""
    path = folder / entry["file"]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row[column] = value(row[column])
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


def table(manifest: Manifest, name: str) -> Manifest:
    return next(each for each in [*manifest["tables"], *manifest["margins"]] if each["name"] == name)


def zero(folder: Path, manifest: Manifest) -> None:
    manifest["estimate"] = "unbiased"
    for each in manifest["tables"]:
        for column in ("count", "low", "high"):
            change(folder, each, column, lambda _: "0")


CHANGES: dict[str, Callable[[Path, Manifest], None]] = {
    "every count is 0": zero,
    "an interval is narrow": lambda folder, m: change(folder, table(m, "town"), "low", lambda low: str(int(low) + 1)),
    "quality": lambda folder, m: change(folder, table(m, "town*sex"), "quality", lambda _: "A"),
    "a label": lambda folder, m: change(
        folder, table(m, "town*sex"), "town", lambda town: "b" if town == "a" else town
    ),
    "a sum": lambda folder, m: change(folder, table(m, "sex"), "estimate", lambda y: str(int(y) + 5)),
    "sum of cells": lambda folder, m: change(folder, table(m, "sex"), "sum_of_cells", lambda y: str(int(y) + 5)),
    "epsilon": lambda folder, m: m["guarantee"].update(epsilon="0.001"),
    "neighbours and delta": lambda folder, m: m["guarantee"].update(delta="1e-300"),
    "receipts": lambda folder, m: m["receipts"].reverse(),
    "digest": lambda folder, m: m.update(digest="0" * 64),
    "D of a law": lambda folder, m: table(m, "town*sex")["law"].update(D=1),
    "margin of a law": lambda folder, m: table(m, "town*sex")["law"].update(margin_95=1),
    "published margin": lambda folder, m: table(m, "town*sex").update(margin_published=1),
    "rows": lambda folder, m: table(m, "town").update(rows=1),
    "a table is dropped": lambda folder, m: m["tables"].pop(),
    "the finest table is dropped with its files": lambda folder, m: drop(folder, m, "town*sex"),
    "the receipt of a table": lambda folder, m: table(m, "town").update(receipt="00"),
    "one receipt twice": lambda folder, m: reuse_receipt(m),
    "gap": lambda folder, m: change(folder, table(m, "sex"), "gap", lambda gap: str(int(gap) + 1)),
    "columns of a table": lambda folder, m: table(m, "county").update(by=["province"]),
    "another column": lambda folder, m: add_column(folder, table(m, "town")),
    "equal labels": lambda folder, m: change(folder, table(m, "town*sex"), "sex", lambda _: "f"),
    "labels of one table": lambda folder, m: change(folder, table(m, "town*sex"), "sex", lambda sex: "fm"[sex == "f"]),
    "estimate": lambda folder, m: m.update(estimate="other"),
    "a table twice": lambda folder, m: m["tables"].append(dict(table(m, "county"))),
    "rows is true": lambda folder, m: table(m, "total").update(rows=True),
    "intervals": lambda folder, m: m.update(intervals="99.9 % for each cell; certain bounds hold always"),
    "rule of the quality marks": lambda folder, m: m.update(quality="all are fine"),
    "a file that is not listed": lambda folder, m: (folder / "tables" / "9-other.csv").write_text("count\n1\n"),
    "a folder that is not listed": lambda folder, m: (folder / "more" / "tables").mkdir(parents=True),
    "a margin that is not listed": lambda folder, m: m["margins"].clear(),
    "the table of a margin": lambda folder, m: table(m, "sex").update(table="town"),
    "another hash in files": lambda folder, m: m["files"].update({table(m, "town")["file"]: "0" * 64}),
    "names of files": lambda folder, m: rename(folder, table(m, "town")),
    "a number in another form": lambda folder, m: change(folder, table(m, "town"), "high", lambda y: f" {y}"),
    "bounds on one person": lambda folder, m: m["truth"].update(cells_per_person=2),
    "bounds in words": lambda folder, m: m["truth"].update(text="people"),
    "cells of one person": lambda folder, m: table(m, "town*sex").update(cells_per_person=2),
    "fewer answers": lambda folder, m: m["guarantee"].update(answers=1),
    "a part of no cell": lambda folder, m: change(folder, table(m, "town"), "part_of", lambda _: str(2**62)),
    "a part of a negative cell": lambda folder, m: change(folder, table(m, "town"), "part_of", lambda _: "-1"),
    "a measurement": lambda folder, m: change(folder, table(m, "town"), "measured", lambda y: str(int(y) + 1)),
    "a huge measurement": lambda folder, m: change(folder, table(m, "town"), "measured", lambda _: str(2**62)),
    "no table": lambda folder, m: m["tables"].clear(),
}
PAGES = ("report.html", "deployment.json")


def drop(folder: Path, manifest: Manifest, name: str) -> None:
    entry = table(manifest, name)
    for file in (entry["file"], entry["law"]["file"], *(each["file"] for each in manifest["margins"])):
        (folder / file).unlink()
    (folder / "margins").rmdir()
    manifest["tables"].remove(entry)
    manifest["margins"] = []


def reuse_receipt(manifest: Manifest) -> None:
    manifest["receipts"] = [manifest["receipts"][0]] * len(manifest["receipts"])
    for each in manifest["tables"]:
        if each["law"]:
            each["receipt"] = manifest["receipts"][0]


def add_column(folder: Path, entry: Manifest) -> None:
    path = folder / entry["file"]
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{head},true", *(f"{line},7" for line in lines), ""]))
    entry["kinds"]["true"] = "integer"
    entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


def rename(folder: Path, entry: Manifest) -> None:
    (folder / entry["file"]).rename(folder / "tables" / "2-other.csv")
    entry["file"] = "tables/2-other.csv"


@pytest.mark.parametrize("changed", CHANGES)
def test_a_change_with_fitting_hashes_is_detected(folder: Path, changed: str) -> None:
    """Also if the report and the registry entry are made to fit."""
    manifest = json.loads((folder / "manifest.json").read_text())
    CHANGES[changed](folder, manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    findings = Publication.open(folder).verify()
    assert changed == "digest" or any(each.file not in PAGES for each in findings)
    assert all(str(each).isprintable() for each in findings)


@pytest.mark.parametrize("page", PAGES)
def test_another_report_or_registry_entry_is_detected(folder: Path, page: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / page).write_text("{}")
    manifest["files"][page] = hashlib.sha256(b"{}").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (finding,) = Publication.open(folder).verify()
    assert (finding.file, "follows from the manifest" in finding.problem) == (page, True)


WRONG: tuple[Any, ...] = (None, "", 0, -1, [], {}, "1/0", "1e999", True, 10**400, 1.5)


def find_leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of everything in a manifest."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*place, key)
            yield from find_leaves(each, (*place, key))


@pytest.mark.parametrize("wrong", [*WRONG, "missing", "more"], ids=lambda wrong: str(wrong)[:9] or "empty")
def test_every_malformed_manifest_has_findings_and_no_error(small: Path, tmp_path: Path, wrong: Any) -> None:
    """A folder whose files cannot even be named is refused; all others have findings."""
    folder = shutil.copytree(small, tmp_path / "out")
    assert Publication.open(folder).verify() == []
    content = (small / "manifest.json").read_text()
    verified = 0
    for *above, last in find_leaves(json.loads(content)):
        manifest = json.loads(content)
        inside = functools.reduce(lambda value, key: value[key], above, manifest)
        if wrong == "missing":
            del inside[last]
        elif wrong == "more" and isinstance(inside, dict):
            inside[f"{last}."] = inside[last]
        elif json.dumps(inside[last]) == json.dumps(wrong):
            continue
        else:
            inside[last] = wrong
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with suppress(ParameterError):
            assert Publication.open(folder).verify(), (above, last)
            verified += 1
    assert verified > 90


def test_a_margin_of_a_column_that_no_table_has_is_derived_again(tmp_path: Path) -> None:
    """The file of the table whose cells are added has their labels."""
    towns = "town,county,coast\na,A,yes\nb,A,no\nc,A,no\nd,B,yes\ne,B,no\n"
    config = copy_place(tmp_path, more='margins = [["coast"]]')
    (tmp_path / "towns.csv").write_text(towns)
    config.write_text(config.read_text().replace("sex =", 'coast = { from = "town", map = "towns.csv" }\nsex ='))
    with Curator.open(config) as curator:
        published = curator.publish("census", output=tmp_path / "out", format="parquet")
        plain = curator.publish("census", output=tmp_path / "plain").path
    assert published["town"]["coast"].tolist() == ["yes", "no", "no", "yes", "no"]
    assert published.verify() == []
    manifest = json.loads((plain / "manifest.json").read_text())
    change(plain, table(manifest, "town"), "coast", lambda label: "yes" if label == "no" else "no")
    (plain / "manifest.json").write_text(json.dumps(manifest))
    assert {each.file for each in Publication.open(plain).verify()} >= {"margins/1-coast.csv"}


@pytest.mark.slow  # mechanisms are designed
def test_an_epsilon_that_leaves_out_cells_of_one_person_is_too_small(tmp_path: Path) -> None:
    edition = make_edition(rows=2, cells=3)
    laws, delta = list(edition.mechanisms.values()), "0.01"
    assert [law.certificate.sensitivity for law in laws] == [6, 6, 2]
    alone = cv.compose([(law, 1) for law in laws]).epsilon(delta)
    spent = cv.compose([*((law, 1) for law in laws[:2]), (laws[2], 3)]).epsilon(delta)
    assert alone is not None
    assert spent is not None
    assert alone.upper < spent.lower
    for epsilon, expected in ((spent.upper, []), ((alone.upper + spent.lower) / 2, ["manifest.json"])):
        folder = write_small(tmp_path / str(epsilon), edition, epsilon=str(epsilon), delta=delta)
        findings = Publication.open(folder.path).verify()
        assert [each.file for each in findings] == expected
    assert "smaller epsilon" in findings[0].problem


def test_a_link_instead_of_the_manifest_is_detected(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    (folder / "manifest.json").symlink_to(tmp_path / "manifest.json")
    assert [each.file for each in Publication.open(folder).verify()] == ["manifest.json"]


def test_a_manifest_with_a_member_twice_is_refused(folder: Path) -> None:
    file = folder / "manifest.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 1, "version": 1'))
    with pytest.raises(ParameterError, match="the folder of a publication"):
        Publication.open(folder)


def test_a_link_to_a_file_elsewhere_is_not_part_of_a_folder(folder: Path, tmp_path: Path) -> None:
    file = folder / "report.html"
    file.rename(tmp_path / "report.html")
    file.symlink_to(tmp_path / "report.html")
    assert next(iter(Publication.open(folder).verify())).file == "report.html"
