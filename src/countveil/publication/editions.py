"""The editions of a publication that are in its declared output, and their summaries."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from countveil.config.publications import DeclaredPublication
from countveil.errors import ParameterError, RequestError
from countveil.publication.folder import MANIFEST, Folder


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of an edition, as it was stated when it was published."""

    epsilon: str
    delta: str
    neighbours: str
    answers: int
    pool: str
    covers: str


@dataclass(frozen=True)
class TableSummary:
    """A published table: its columns, its cells, and the 95 % margin of its numbers."""

    name: str
    by: tuple[str, ...]
    rows: int
    margin_published: int
    file: str


@dataclass(frozen=True)
class EditionSummary:
    """An edition of a publication."""

    edition: int
    time: str
    data_version: int
    guarantee: Guarantee
    tables: tuple[TableSummary, ...]


@dataclass(frozen=True)
class PublicationSummary:
    """A declared publication, and the editions that can be read."""

    name: str
    dataset: str
    editions: tuple[EditionSummary, ...] = field(metadata={"description": "Oldest first."})
    unreadable: tuple[str, ...] = field(
        default=(), metadata={"description": "Entries named like editions that cannot be read."}
    )


def summarise_publication(declared: DeclaredPublication) -> PublicationSummary:
    """A declared publication with the editions in its output."""
    editions, unreadable = _read_editions(declared)
    return PublicationSummary(declared.name, declared.dataset, tuple(map(_summarise, editions.values())), unreadable)


def find_editions(declared: DeclaredPublication) -> dict[int, Folder]:
    """The folders of the editions in the declared output by their numbers, oldest first.

    A folder `edition-N` counts if its manifest says that it is this edition of this publication. Links do not count,
    nor do folders that are still being written.
    """
    return _read_editions(declared)[0]


def _read_editions(declared: DeclaredPublication) -> tuple[dict[int, Folder], tuple[str, ...]]:
    """The folders of the editions by their numbers, and the names of the entries that cannot be read: each hides itself
    only."""
    places: dict[int, Path] = {}
    with suppress(OSError):  # without the folder there are no editions
        for place in declared.output.iterdir():
            if number := re.fullmatch(r"edition-([1-9][0-9]{0,5})", place.name):
                places[int(number[1])] = place
    editions, unreadable = {}, []
    for edition, place in sorted(places.items()):
        try:
            if place.is_symlink():
                continue
            folder = Folder.open(place)
            own = folder.manifest["name"], _summarise(folder).edition
            if own == (declared.name, edition) and folder.find_file(MANIFEST) is not None:
                editions[edition] = folder
        except (OSError, ParameterError, KeyError, TypeError, ValueError, OverflowError):
            unreadable.append(place.name)
    return editions, tuple(unreadable)


def choose_edition(publication: PublicationSummary, edition: object) -> EditionSummary:
    """An edition by its number, by default the newest; refuses one that is not present."""
    present = {each.edition: each for each in publication.editions}
    unreadable = ", ".join(publication.unreadable)
    advice = (
        f"{unreadable} cannot be read; move it away and publish again, free while the data is the same"
        if unreadable
        else ""
    )
    if not present:
        what = f"that can be read; {advice}" if advice else "yet; countveil publish makes one"
        raise RequestError(f"publication {publication.name} has no edition {what}")
    chosen = max(present) if edition is None else edition
    if type(chosen) is not int or chosen not in present:
        raise ParameterError("edition", edition, "one of " + ", ".join(map(str, present)), advice)
    return present[chosen]


def _summarise(folder: Folder) -> EditionSummary:
    """The summary of an edition; raises KeyError, TypeError or ValueError for a manifest of another form."""
    manifest = folder.manifest
    given, tables = manifest["guarantee"], manifest["tables"]
    return EditionSummary(
        int(manifest["edition"]),
        str(manifest["time"]),
        int(manifest["data_version"]),
        Guarantee(
            str(given["epsilon"]),
            str(given["delta"]),
            str(given["neighbours"]),
            int(given["answers"]),
            str(given["pool"]),
            str(given["covers"]),
        ),
        tuple(
            TableSummary(
                str(each["name"]),
                tuple(map(str, each["by"])),
                int(each["rows"]),
                int(each["margin_published"]),
                each["file"],
            )
            for each in tables
        ),
    )
