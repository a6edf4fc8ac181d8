"""A folder that was changed, with all hashes made to fit, is not what its measurements give."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countveil.curator.curator import Curator
from countveil.publication.publication import Publication
from tests.support.published import copy_place

Manifest = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = copy_place(tmp_path, more='margins = [["sex"]]')
    with Curator.open(config) as curator:
        return curator.publish("census", output=tmp_path / "out").path


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
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_change_with_fitting_hashes_is_detected(folder: Path, changed: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    CHANGES[changed](folder, manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert Publication.open(folder).verify()


def test_a_link_to_a_file_elsewhere_is_not_part_of_a_folder(folder: Path, tmp_path: Path) -> None:
    file = folder / "report.html"
    file.rename(tmp_path / "report.html")
    file.symlink_to(tmp_path / "report.html")
    assert next(iter(Publication.open(folder).verify())).file == "report.html"
