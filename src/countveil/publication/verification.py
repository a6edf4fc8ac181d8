"""What can be checked of an edition from its files alone.

- every file has the SHA-256 of the manifest;
- the laws are certified again, and have the hashes of the manifest;
- every family of cells adds up to the cell that it is part of;
- no count is negative (estimate "nearest"), every count is within its interval and its certain bounds, and these are
  the certain bounds that follow from the measurements and the laws;
- a published count differs from its measurement by at most 2 D.

What cannot be checked is the draw: that the noise came from the laws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.consistency.bounds import bound_counts
from countveil.consistency.reconciler import read_law
from countveil.consistency.tree import Tree
from countveil.errors import CountveilError
from countveil.laws.law import Law
from countveil.mechanism.mechanism import Mechanism
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


def _check_numbers(folder: Folder) -> Iterator[Finding]:
    manifest = folder.manifest
    entries = manifest["tables"]
    columns = {each["name"]: folder.columns(each["name"]) for each in entries}
    laws: dict[str, Law] = {}
    for each in entries:
        if each["law"]:
            mechanism = Mechanism.from_text(folder.content(each["law"]["file"]).decode())
            if mechanism.hash != each["law"]["mechanism"]:
                yield Finding(each["law"]["file"], "is another mechanism than the manifest names")
            laws[each["name"]] = read_law(each["name"], mechanism)
    for each in entries:
        yield from _check_table(each, columns, laws.get(each["name"]), manifest["estimate"])
    yield from _check_bounds(entries, columns, laws)


def _check_table(entry: Any, columns: dict[str, Any], law: Law | None, estimate: str) -> Iterator[Finding]:
    own, file = columns[entry["name"]], entry["file"]
    count, low, high = own["count"], own["low"], own["high"]
    if estimate == "nearest" and bool((count < 0).any()):
        yield Finding(file, "has a negative count")
    if bool(((count < low) | (count > high)).any()):
        yield Finding(file, "has a count outside of its interval")
    if estimate == "nearest" and bool(((count < own["certain_low"]) | (count > own["certain_high"])).any()):
        yield Finding(file, "has a count outside of its certain bounds")
    if law is not None and estimate == "nearest":
        reach = 2 * max(-law.least, law.greatest)
        if bool((np.abs(count - own["measured"]) > reach).any()):
            yield Finding(file, f"has a count further than {reach} from its measurement")
    if entry["coarser"] is not None:
        above = columns[entry["coarser"]]["count"]
        sums = np.zeros(len(above), dtype=np.int64)
        np.add.at(sums, own["part_of"], count)
        divided = np.bincount(own["part_of"], minlength=len(above)) > 0
        if bool((sums != above)[divided].any()):
            yield Finding(file, f"does not add up to table {entry['coarser']}")


def _check_bounds(entries: Any, columns: dict[str, Any], laws: dict[str, Law]) -> Iterator[Finding]:
    """Compute the certain bounds again from the measurements."""
    tables = {
        each["name"]: (None if each["coarser"] == "total" else each["coarser"], columns[each["name"]]["part_of"])
        for each in entries
        if each["coarser"] is not None
    }
    tree = Tree.from_parents(tables)
    given = [level.select(columns[level.name]["measured"]) if level.name in laws else None for level in tree.levels]
    reach = [(laws[name].least, laws[name].greatest) if name in laws else None for name in tree.names]
    bounds = bound_counts(tree, given, reach)
    for each, level, low, high in zip(entries, tree.levels, bounds.low, bounds.high, strict=True):
        own = columns[each["name"]]
        same = np.array_equal(level.restore(low), own["certain_low"])
        if not same or not np.array_equal(level.restore(high), own["certain_high"]):
            yield Finding(each["file"], "has other certain bounds than its measurements and laws give")
