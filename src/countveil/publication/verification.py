"""What can be checked of an edition from its files alone.

- every file has the SHA-256 of the manifest, and is no link to another place;
- the laws are certified again, and are those that the manifest describes;
- everything that is published is derived again from the measurements, the laws and the receipts: counts, intervals,
  certain bounds, quality marks, and sums across the tree by columns of a table. It has to be the same;
- tables add up, and a cell lies in a coarser cell with the same labels;
- the stated epsilon and delta are no less than what this edition alone costs.

What cannot be checked is the draw (that the noise came from these laws), and that the folder is the curator's: somebody
who invents measurements can make a folder around them. Compare the receipts with those of the curator.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from countveil.accounting import compose
from countveil.config.publications import DeclaredPublication
from countveil.consistency.reconciler import Reconciler
from countveil.consistency.reconciliation import Reconciliation
from countveil.consistency.tree import TOTAL, Tree
from countveil.errors import CountveilError, RequestError, shorten
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.edition import make_seed, mark_quality
from countveil.publication.folder import MANIFEST, Folder


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a file of a publication."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def check_folder(folder: Folder) -> list[Finding]:
    """Everything that is wrong with the files of an edition."""
    changed = [*check_hashes(folder)]
    if changed:
        return changed  # numbers of changed files say nothing
    try:
        return [*_check_numbers(folder)]
    except (CountveilError, KeyError, ValueError, TypeError, IndexError) as error:
        return [Finding(MANIFEST, f"does not describe its files: {error}")]


def check_hashes(folder: Folder) -> Iterator[Finding]:
    """The files that are missing or changed."""
    for name, stated in folder.hashes.items():
        try:
            content = folder.content(name)
        except CountveilError as error:
            yield Finding(name, str(error))
            continue
        if hashlib.sha256(content).hexdigest() != stated:
            yield Finding(name, "was changed: it does not have the SHA-256 of the manifest")


def check_same(folder: Folder, declared: DeclaredPublication, style: str | None) -> None:
    """Refuse a folder whose files were changed, or that has another format, estimate or margins than are asked for."""
    hint = "give another folder with -o: the numbers are on record, and free"
    for finding in check_hashes(folder):
        raise RequestError(f"{finding}; {hint}")
    margins = [each["name"] for each in folder.manifest["margins"]]
    formats = {Path(each["file"]).suffix for each in folder.manifest["tables"]}
    if style is not None and formats != {f".{style}"}:
        raise RequestError(f"{shorten(str(folder.path), 200)} has this edition in another format; {hint}")
    if folder.manifest["estimate"] != declared.estimate or margins != [each.name for each in declared.margins]:
        raise RequestError(f"{shorten(str(folder.path), 200)} has another estimate or other margins; {hint}")


def _check_numbers(folder: Folder) -> Iterator[Finding]:
    manifest = folder.manifest
    entries = manifest["tables"]
    columns = {each["name"]: folder.columns(each["name"]) for each in entries}
    mechanisms: dict[str, Mechanism] = {}
    for each in entries:
        if bool(each["law"]) != each["measured"] or each["rows"] != len(columns[each["name"]]["count"]):
            yield Finding(MANIFEST, f"describes table {each['name']} wrongly")
        if each["law"]:
            mechanism = Mechanism.from_text(folder.content(each["law"]["file"]).decode())
            stated = (each["law"]["mechanism"], each["law"]["margin_95"], each["law"]["D"])
            if (mechanism.hash, mechanism.margin_95, mechanism.D) != stated:
                yield Finding(each["law"]["file"], "is not the mechanism that the manifest describes")
            mechanisms[each["name"]] = mechanism
    yield from _check_guarantee(manifest["guarantee"], mechanisms)
    for each in entries:
        yield from _check_parts(each, columns)
    yield from _derive_again(folder, columns, mechanisms)


def _check_guarantee(guarantee: Any, mechanisms: dict[str, Mechanism]) -> Iterator[Finding]:
    """Compare the stated guarantee with the composition of the measurements of this edition."""
    if str(guarantee["epsilon"]).startswith("unknown"):
        return
    composed = compose([(mechanism, 1) for mechanism in mechanisms.values()], neighbours=guarantee["neighbours"])
    if composed.delta(float(Fraction(guarantee["epsilon"]))).lower > Fraction(guarantee["delta"]):
        yield Finding(MANIFEST, "states a smaller epsilon or delta than this edition alone costs")


def _check_parts(entry: Any, columns: dict[str, Any]) -> Iterator[Finding]:
    """Check that cells add up to the coarser cells that they are part of, and share their labels."""
    if entry["coarser"] is None:
        return
    own, above = columns[entry["name"]], columns[entry["coarser"]]
    sums = np.zeros(len(above["count"]), dtype=np.int64)
    np.add.at(sums, own["part_of"], own["count"])
    divided = np.bincount(own["part_of"], minlength=len(sums)) > 0
    if bool((sums != above["count"])[divided].any()):
        yield Finding(entry["file"], f"does not add up to table {entry['coarser']}")
    for column in entry["by"]:
        if column in above and not np.array_equal(above[column][own["part_of"]], own[column]):
            yield Finding(entry["file"], f"has cells whose {column} is not that of their coarser cell")


def _derive_again(folder: Folder, columns: dict[str, Any], mechanisms: dict[str, Mechanism]) -> Iterator[Finding]:
    """Derive everything that is published from the measurements, and compare."""
    manifest = folder.manifest
    entries = {each["name"]: each for each in manifest["tables"]}
    parents = {
        name: (None if each["coarser"] == TOTAL else each["coarser"], columns[name]["part_of"])
        for name, each in entries.items()
        if each["coarser"] is not None
    }
    seed = make_seed(manifest["digest"], manifest["receipts"])
    reconciler = Reconciler.of(Tree.from_parents(parents), mechanisms, tuple(mechanisms), seed)
    measured = {name: columns[name]["measured"] for name in mechanisms}
    result = reconciler.reconcile(measured, estimate=manifest["estimate"])
    if result.uniform != manifest["uniform"]:
        yield Finding(MANIFEST, "states another random number than its receipts give")
    for name, each in entries.items():
        table, own = result[name], columns[name]
        again = {number: getattr(table, number) for number in ("count", "low", "high", "certain_low", "certain_high")}
        again["quality"] = mark_quality(table.count, table.low, table.high)
        wrong = [number for number, values in again.items() if not np.array_equal(values, own[number])]
        if wrong:
            yield Finding(each["file"], f"has other values of {', '.join(wrong)} than its measurements give")
        if each["margin_published"] != math.ceil(reconciler.margins(name).max(initial=0.0)):
            yield Finding(MANIFEST, f"states another margin of table {name} than its laws give")
    for margin in manifest["margins"]:
        yield from _check_margin(folder, margin, columns, entries, result)


def _check_margin(folder: Folder, margin: Any, columns: Any, entries: Any, result: Reconciliation) -> Iterator[Finding]:
    """Compute the sums of one margin again, if some table has its columns."""
    able = [name for name, each in entries.items() if set(margin["by"]) <= set(each["by"])]
    if not able:
        return
    own, name = folder.columns(margin["name"]), min(able, key=lambda name: len(columns[name]["count"]))
    places = {labels: i for i, labels in enumerate(zip(*(own[column] for column in margin["by"]), strict=True))}
    groups = [places[labels] for labels in zip(*(columns[name][column] for column in margin["by"]), strict=True)]
    sums = result.margin(name, np.array(groups, dtype=np.int64))
    again = {"estimate": sums.estimate, "low": sums.low, "high": sums.high, "sum_of_cells": sums.sum_of_cells}
    wrong = [number for number, values in again.items() if not np.array_equal(values, own[number])]
    if wrong:
        yield Finding(margin["file"], f"has other values of {', '.join(wrong)} than its measurements give")
