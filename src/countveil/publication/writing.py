"""Write an edition to its folder: tables, margins, laws, report, registry entry, and the manifest of them all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import countveil
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.edition import RULE, Edition, PublishedTable
from countveil.publication.folder import (
    DEPLOYMENT,
    FORMAT,
    MANIFEST,
    REPORT,
    VERSION,
    Folder,
    kinds_of,
    name_file,
    new_folder,
    write_columns,
    write_file,
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
    manifest = describe_edition(edition, facts)
    with new_folder(target) as part:
        receipts = dict(zip(edition.mechanisms, facts.receipts, strict=True))
        for place, table in enumerate(tables):
            file = name_file("tables", place, table.by, style)
            truth = {"publication": edition.layout.name, "table": table.name, "truth": facts.truth}
            entry = {**_describe_table(table), "file": file, "kinds": kinds_of(table.columns)}
            entry["sha256"] = write_columns(part / file, table.columns, style, truth)
            entry["law"] = None
            if table.measured:
                entry["law"] = _write_law(part, place, table, edition.mechanisms[table.name])
                entry["receipt"] = receipts[table.name]
            manifest["tables"].append(entry)
        for place, margin in enumerate(margins, start=1):
            file = name_file("margins", place, margin.by, style)
            entry = {"name": margin.name, "by": list(margin.by), "rows": len(margin.columns["estimate"]), "file": file}
            entry["kinds"] = kinds_of(margin.columns)
            entry["sha256"] = write_columns(part / file, margin.columns, style, {"truth": facts.truth})
            manifest["margins"].append(entry)
        deployment = json.dumps(describe_deployment(manifest), indent=2, ensure_ascii=False) + "\n"
        manifest["files"] = {
            REPORT: write_file(part / REPORT, write_report(manifest, tables, margins).encode()),
            DEPLOYMENT: write_file(part / DEPLOYMENT, deployment.encode()),
        }
        write_file(part / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    return Folder.open(target)


def describe_edition(edition: Edition, facts: Facts) -> dict[str, Any]:
    """The manifest of an edition, without its tables and margins."""
    declared = edition.layout.declared
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": declared.name,
        "dataset": declared.dataset,
        "edition": facts.edition,
        "data_version": facts.version,
        "time": facts.time,
        "made_with": f"countveil {countveil.__version__}",
        "guarantee": dict(facts.guarantee),
        "truth": dict(facts.truth),
        "estimate": declared.estimate,
        "intervals": f"95 % for {edition.reconciliation.claim}; certain bounds hold always",
        "quality": RULE,
        "digest": edition.layout.digest,
        "receipts": list(facts.receipts),
        "uniform": edition.reconciliation.uniform,
        "tables": [],
        "margins": [],
    }


def _describe_table(table: PublishedTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "by": list(table.by),
        "rows": len(table),
        "coarser": table.coarser,
        "measured": table.measured,
        "margin_published": table.margin_published,
    }


def _write_law(part: Path, place: int, table: PublishedTable, mechanism: Mechanism) -> dict[str, Any]:
    """Write the mechanism of a table; returns its entry in the manifest."""
    file = name_file("laws", place, table.by, "json")
    return {
        "file": file,
        "sha256": write_file(part / file, mechanism.to_text().encode()),
        "mechanism": mechanism.hash,
        "margin_95": mechanism.margin_95,
        "D": mechanism.D,
    }
