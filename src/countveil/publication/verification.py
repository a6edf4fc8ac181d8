"""What can be checked of an edition from its files alone.

- the manifest has the form of `manifest`, the folder has the files that it names and no others, each with the SHA-256
  that it states, and none is a link to another place;
- the laws are certified again, and are those that the manifest describes; the law of each table covers what one person
  adds within the stated bounds, and the stated epsilon and delta are no less than what this edition alone costs;
- the receipts are those of the measured tables;
- everything that is published is derived again from the measurements, the laws, the receipts and the labels: counts,
  intervals, certain bounds, quality marks, sums across the tree, the report and the registry entry. It has to be the
  same;
- tables add up, and a cell lies in a coarser cell with the same labels.

**What cannot be checked.** Whoever invents measurements, or leaves out a measured table with its receipt, a margin or a
table that was not measured, can derive everything else again and make a folder in which nothing is wrong. The same
holds for labels that are changed in all tables and margins alike, for the draw (that the noise came from these laws),
and for what only the curator knows: names, edition, version of the data, time, pool, its number of answers and what
else they covered, the name of the column of persons, and who made the folder. So compare the SHA-256 of the manifest
with that which the curator states: it settles all of these but the draw. Equal receipts say which charges paid, and not
that the numbers are those of the curator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
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
from countveil.publication.edition import (
    RULE,
    Columns,
    PublishedMargin,
    PublishedTable,
    make_seed,
    number_columns,
    sum_columns,
    widest_margin,
)
from countveil.publication.folder import MANIFEST, Folder
from countveil.publication.manifest import (
    check_form,
    describe_file,
    describe_intervals,
    describe_law,
    describe_margin,
    describe_table,
    describe_version,
)
from countveil.publication.writing import make_pages
from countveil.query.schema import Schema
from countveil.query.truth import truth_of


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a file of a publication."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def check_folder(folder: Folder) -> list[Finding]:
    """Everything that is wrong with the files of an edition. Raises nothing, whatever the files contain."""
    found = [Finding(MANIFEST, problem) for problem in check_form(folder.manifest)]
    try:
        return found or [*_check_files(folder)] or [*_check_promise(folder)] or [*_check_numbers(folder)]
    except (CountveilError, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        return [Finding(MANIFEST, f"does not describe its files: {shorten(str(error), 200)}")]


def _check_files(folder: Folder) -> Iterator[Finding]:
    """Check that the folder has the files of the manifest, unchanged, and no others."""
    if folder.find_file(MANIFEST) is None:
        yield Finding(MANIFEST, "is a link to another place; its folder has to have the file itself")
    yield from check_hashes(folder)
    for name in folder.find_unlisted():
        yield Finding(shorten(name, 200), "is not a file of this edition: the manifest does not name it")


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
    for finding in (*(Finding(MANIFEST, each) for each in check_form(folder.manifest)), *check_hashes(folder)):
        raise RequestError(f"{finding}; {hint}")
    margins = [each["name"] for each in folder.manifest["margins"]]
    formats = {Path(each["file"]).suffix for each in folder.manifest["tables"]}
    if style is not None and formats != {f".{style}"}:
        raise RequestError(f"{shorten(str(folder.path), 200)} has this edition in another format; {hint}")
    if folder.manifest["estimate"] != declared.estimate or margins != [each.name for each in declared.margins]:
        raise RequestError(f"{shorten(str(folder.path), 200)} has another estimate or other margins; {hint}")


def _check_promise(folder: Folder) -> Iterator[Finding]:
    """Check laws, receipts, bounds on what one person adds, and the guarantee that all of these give."""
    manifest = folder.manifest
    measured = [each for each in manifest["tables"] if each["law"]]
    receipts = [each["receipt"] for each in measured]
    if receipts != manifest["receipts"] or len(set(receipts)) < len(receipts):
        yield Finding(MANIFEST, "has other receipts than those of the measured tables")
    truth = manifest["truth"]
    if truth not in _list_truths(truth):
        yield Finding(MANIFEST, "describes what was counted in other words than its bounds mean")
    charged = []
    for each in measured:
        mechanism = read_law(folder, each)
        bounds = mechanism.certificate.sensitivity, each["cells_per_person"]
        if bounds != _find_bounds(manifest, each["name"]):
            yield Finding(MANIFEST, f"states other bounds on one person than those of the law of table {each['name']}")
        charged.append((mechanism, each["cells_per_person"]))
    guarantee = manifest["guarantee"]
    if guarantee["answers"] < len(charged):
        yield Finding(MANIFEST, "states fewer answers than this edition has measured tables")
    if not guarantee["epsilon"].startswith("unknown"):
        composed = compose(charged, neighbours=guarantee["neighbours"])
        if composed.delta(Fraction(guarantee["epsilon"])).lower > Fraction(guarantee["delta"]):
            yield Finding(MANIFEST, "states a smaller epsilon or delta than this edition alone costs")


def read_law(folder: Folder, entry: Mapping[str, Any]) -> Mechanism:
    """The mechanism that a table was measured with, certified again."""
    return Mechanism.from_text(folder.content(entry["law"]["file"]).decode())


def _list_truths(truth: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The descriptions of what can be counted within the bounds of a description."""
    rows, cells = truth["rows_per_person"], truth["cells_per_person"]
    schema = Schema("", (), truth["unit"], rows, cells)
    return [asdict(truth_of(schema, people, most)) for people in (False, True) for most in (cells, cells + 1)]


def _find_bounds(manifest: Mapping[str, Any], table: str) -> tuple[int, int]:
    """By how much one person changes a cell of a table at most, and in how many cells; see `layout`.

    A table that is finer than all others has the finest cells.
    """
    truth = manifest["truth"]
    rows, cells = 1 if truth["counted"] == "people" else truth["rows_per_person"], truth["cells_per_person"]
    coarser = {each["coarser"] for each in manifest["tables"]}
    leaves = [each["name"] for each in manifest["tables"] if each["name"] not in coarser]
    return (rows, cells) if cells == 1 or leaves == [table] else (rows * cells, 1)


def _check_numbers(folder: Folder) -> Iterator[Finding]:
    """Derive everything that is published from the measurements, and compare."""
    manifest = folder.manifest
    columns = {each["name"]: folder.columns(each["name"]) for each in (*manifest["tables"], *manifest["margins"])}
    mechanisms = {each["name"]: read_law(folder, each) for each in manifest["tables"] if each["law"]}
    coarser = {each["name"]: each["coarser"] for each in manifest["tables"][1:]}
    parents = {name: (None if up == TOTAL else up, columns[name]["part_of"]) for name, up in coarser.items()}
    seed = make_seed(manifest["digest"], manifest["receipts"])
    reconciler = Reconciler.of(Tree.from_parents(parents), mechanisms, tuple(mechanisms), seed)
    measured = {name: columns[name]["measured"] for name in mechanisms}
    result = reconciler.reconcile(measured, estimate=manifest["estimate"])
    about: dict[str, Any] = {"uniform": result.uniform, "intervals": describe_intervals(result.claim), "quality": RULE}
    yield from _compare_members(manifest, about, "of the edition")
    style = Path(manifest["tables"][0]["file"]).suffix[1:]
    tables, margins = [], []
    for place, each in enumerate(manifest["tables"]):
        yield from _check_labels(each, columns)
        table = _derive_table(each, columns[each["name"]], reconciler, result)
        about = describe_table(table, place, style)
        if each["law"]:
            law = describe_law(table, place, mechanisms[table.name])
            about["law"] = {**law, "sha256": each["law"]["sha256"]}
        yield from _compare_members(each, about, f"of table {table.name}")
        yield from _compare_columns(folder, each, table.columns, columns)
        tables.append(table)
    for place, each in enumerate(manifest["margins"]):
        margin = _derive_margin(each, columns, result)
        yield from _compare_members(each, describe_margin(margin, place, style), f"of margin {margin.name}")
        yield from _compare_columns(folder, each, margin.columns, columns)
        margins.append(margin)
    for name, content in make_pages(manifest, tables, margins).items():
        if folder.content(name) != content:
            made = manifest["made_with"]
            other = (
                "" if made == describe_version() else f"; it was made with {shorten(made)}: verify with this version"
            )
            yield Finding(name, f"is not what follows from the manifest and the tables{other}")


def _derive_table(
    entry: Mapping[str, Any], own: Columns, reconciler: Reconciler, result: Reconciliation
) -> PublishedTable:
    """A table with the labels and the measurement of its file; all its other numbers are derived again."""
    name, numbers = entry["name"], number_columns(result[entry["name"]], own.get("measured"))
    labels = {column: values for column, values in own.items() if column not in (*numbers, "part_of")}
    parents = {"part_of": own["part_of"]} if "part_of" in own else {}
    columns = {**labels, **numbers, **parents}
    margin = widest_margin(reconciler, name)
    return PublishedTable(name, tuple(entry["by"]), columns, entry["coarser"], entry["measured"], margin)


def _derive_margin(entry: Mapping[str, Any], columns: Mapping[str, Columns], result: Reconciliation) -> PublishedMargin:
    """A margin with the labels of its file; its numbers are derived again from the cells of the table that it names."""
    by, cells = tuple(entry["by"]), columns[entry["table"]]
    labels = {column: columns[entry["name"]][column] for column in by}
    places = {each: i for i, each in enumerate(zip(*labels.values(), strict=True))}
    groups = np.array([places.get(each, -1) for each in zip(*(cells[name] for name in by), strict=True)])
    if len(places) < entry["rows"] or set(groups.tolist()) != set(range(entry["rows"])):
        raise RequestError(f"margin {entry['name']} has other labels than table {entry['table']}")
    return PublishedMargin(
        entry["name"], by, labels | sum_columns(result.margin(entry["table"], groups)), entry["table"]
    )


def _check_labels(entry: Mapping[str, Any], columns: Mapping[str, Columns]) -> Iterator[Finding]:
    """Check that labels differ, and that cells add up to their coarser cells and have the same labels."""
    own = columns[entry["name"]]
    by = [own[column].tolist() for column in entry["by"]]
    if by and len(set(zip(*by, strict=True))) < len(by[0]):
        yield Finding(entry["file"], "has two cells with the same labels")
    if entry["coarser"] is None:
        return
    above, part_of = columns[entry["coarser"]], own["part_of"]
    sums = np.zeros(len(above["count"]), dtype=np.int64)
    np.add.at(sums, part_of, own["count"])
    divided = np.bincount(part_of, minlength=len(sums)) > 0
    if bool((sums != above["count"])[divided].any()):
        yield Finding(entry["file"], f"does not add up to table {entry['coarser']}")
    for column in [*own][: [*own].index("count")]:
        if column in above and not np.array_equal(above[column][part_of], own[column]):
            yield Finding(entry["file"], f"has cells whose {column} is not that of their coarser cell")


def _compare_members(stated: Mapping[str, Any], about: Mapping[str, Any], what: str) -> Iterator[Finding]:
    """Compare what the manifest states with what it has to state."""
    for name, value in about.items():
        if json.dumps(stated[name], sort_keys=True) != json.dumps(value, sort_keys=True):
            yield Finding(MANIFEST, f"states another {name} {what} than its files give")


def _compare_columns(
    folder: Folder, entry: Mapping[str, Any], again: Columns, columns: Mapping[str, Columns]
) -> Iterator[Finding]:
    """Compare the file of a table or a margin with the columns that it has to have."""
    own = columns[entry["name"]]
    wrong = [name for name, values in again.items() if not np.array_equal(values, own[name])]
    if wrong:
        yield Finding(entry["file"], f"has other values of {', '.join(wrong)} than its measurements give")
    elif not folder.is_written(entry["name"], again, describe_file(folder.manifest, entry["name"])):
        yield Finding(entry["file"], "has the right numbers, but is written in another way than countveil writes them")
