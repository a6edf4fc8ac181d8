"""Write an edition to its folder: tables, margins, laws, report, registry entry, and the manifest of them all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countveil.mechanism.mechanism import Mechanism
from countveil.publication.edition import Edition, PublishedMargin, PublishedTable
from countveil.publication.folder import (
    DEPLOYMENT,
    FORMAT,
    MANIFEST,
    REPORT,
    VERSION,
    Folder,
    new_folder,
    write_columns,
    write_file,
)
from countveil.publication.manifest import (
    describe_edition,
    describe_file,
    describe_law,
    describe_margin,
    describe_table,
    describe_version,
)
from countveil.publication.registry import describe_deployment
from countveil.publication.report import write_report


@dataclass(frozen=True)
class Facts:
    """What the manifest says of an edition besides its numbers. Nothing of this depends on the data."""

    edition: int
    version: int
    time: str
    receipts: tuple[str, ...]
    guarantee: Mapping[str, Any]
    truth: Mapping[str, Any]


def write_edition(target: Path, edition: Edition, facts: Facts, style: str) -> Folder:
    """Write an edition to a new folder, whole or not at all."""
    tables, margins = edition.tables, edition.margins  # before any folder exists
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": edition.layout.name,
        "dataset": edition.layout.declared.dataset,
        "edition": facts.edition,
        "data_version": facts.version,
        "time": facts.time,
        "made_with": describe_version(),
        "guarantee": dict(facts.guarantee),
        "truth": dict(facts.truth),
        **describe_edition(edition),
        "tables": [],
        "margins": [],
    }
    with new_folder(target) as part:
        for place, table in enumerate(tables):
            entry = describe_table(table, place, style)
            about = describe_file(manifest, table.name)
            entry["sha256"] = write_columns(part / entry["file"], table.columns, style, about)
            entry["law"] = None
            if table.measured:
                entry["law"] = _write_law(part, table, place, edition.mechanisms[table.name])
                entry["receipt"] = edition.receipt_of[table.name]
                entry["cells_per_person"] = _count_cells(edition, table.name)
            manifest["tables"].append(entry)
        for place, margin in enumerate(margins):
            entry = describe_margin(margin, place, style)
            about = describe_file(manifest, margin.name)
            entry["sha256"] = write_columns(part / entry["file"], margin.columns, style, about)
            manifest["margins"].append(entry)
        pages = make_pages(manifest, tables, margins)
        manifest["files"] = {name: write_file(part / name, content) for name, content in pages.items()}
        write_file(part / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    return Folder.open(target)


def make_pages(
    manifest: Mapping[str, Any], tables: Sequence[PublishedTable], margins: Sequence[PublishedMargin]
) -> dict[str, bytes]:
    """The report and the registry entry of an edition: they follow from its manifest and its tables."""
    deployment = json.dumps(describe_deployment(manifest), indent=2, ensure_ascii=False) + "\n"
    return {REPORT: write_report(manifest, tables, margins).encode(), DEPLOYMENT: deployment.encode()}


def _write_law(part: Path, table: PublishedTable, place: int, mechanism: Mechanism) -> dict[str, Any]:
    """Write the mechanism of a table; returns its entry in the manifest."""
    entry = describe_law(table, place, mechanism)
    return {**entry, "sha256": write_file(part / entry["file"], mechanism.to_text().encode())}


def _count_cells(edition: Edition, name: str) -> int:
    """In how many cells of a table one person can be, as the privacy of its measurement was composed."""
    table = next(each for each in edition.layout.tables if each.name == name)
    return edition.layout.sensitivity_of(table)[1]
