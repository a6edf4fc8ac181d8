"""A publication as its readers have it: the tables and margins of one edition, from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from countveil.consistency.frames import make_frame
from countveil.display.cards import Card, Shown
from countveil.publication.change import TableChange, compare_editions
from countveil.publication.folder import Folder
from countveil.publication.verification import Finding, check_folder


class Publication(Shown):
    """One published edition; open its folder with `Publication.open`, or get it from `Curator.publish`.

    `publication["county*sex"]` are the columns of a table or of a margin, as arrays.
    """

    def __init__(
        self, folder: Folder, replayed: bool | None = None, guarantee: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.replayed = replayed
        """Whether its numbers were on record before; None for a folder that was only opened."""
        self.guarantee = folder.manifest.get("guarantee", {}) if guarantee is None else guarantee
        """What all answers of the pool cost together: now, if a curator published it; else when the folder was written.
        """

    @staticmethod
    def open(folder: str | Path) -> Publication:
        """The publication in a folder.

        Args:
            folder: The folder that `countveil publish` wrote.

        Returns:
            The publication. Nothing but its manifest is read yet; `verify` checks all files.

        Raises:
            ParameterError: The folder has no publication.

        >>> publication = curator.publish("yearbook", output="yearbook")
        >>> Publication.open("yearbook").tables
        ('total', 'region', 'region*town*purpose')
        """
        return Publication(Folder.open(folder))

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Guarantee, tree, receipts, accuracy, and the hashes of all files."""
        return self.folder.manifest

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, coarse to fine."""
        return tuple(each["name"] for each in self.manifest["tables"])

    @property
    def margins(self) -> tuple[str, ...]:
        """The names of the sums across the tree."""
        return tuple(each["name"] for each in self.manifest["margins"])

    def _line(self) -> str:
        return f"{self.name}, edition {self.manifest['edition']}: {', '.join(self.tables)}"

    def _card(self) -> Card:
        guarantee = self.guarantee
        facts = {
            "guarantee": f"epsilon {guarantee['epsilon']}, delta {guarantee['delta']} for all answers of its pool",
            "folder": str(_shorten_path(self.path)),
        }
        tables = [(t["name"], t["rows"], f"±{t['margin_published']}") for t in self.manifest["tables"]]
        rows = [*tables, *((m["name"], m["rows"], "across the tree") for m in self.manifest["margins"])]
        head = ("table", "cells", "margin (95 %)")
        return Card(f"Publication {self.name}, edition {self.manifest['edition']}", facts, "", head, rows, len(rows))

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self.folder.columns(name)

    def to(self, name: str, kind: str) -> Any:
        """A table or a margin as a frame.

        Args:
            name: The name of a table or of a margin.
            kind: "pandas", "polars" or "pyarrow".

        Returns:
            A frame with the columns of the file.

        Raises:
            ParameterError: There is no such table, or the package of the frame is not installed.
            RequestError: The file is missing or damaged.

        >>> curator.publish("yearbook", output="yearbook").to("region", "pyarrow").column_names[:4]
        ['region', 'count', 'low', 'high']
        """
        return make_frame(self[name], kind)

    def verify(self) -> list[Finding]:
        """What is wrong with the files of this edition: their hashes, laws, sums and bounds.

        Returns:
            The findings, in the order of the manifest; an empty list if nothing is wrong.

        >>> curator.publish("yearbook", output="yearbook").verify()
        []
        """
        return check_folder(self.folder)

    def change(self, later: Publication) -> Mapping[str, TableChange]:
        """What changed from this edition to a later one, with the error of the difference.

        Args:
            later: Another edition of the same publication, with the same tables and cells.

        Returns:
            For each table the differences of its cells.

        Raises:
            RequestError: The editions have other tables, cells or laws.

        >>> edition = curator.publish("yearbook", output="yearbook")
        >>> edition.change(edition)
        Traceback (most recent call last):
        countveil.errors.RequestError: these are the same edition: give an earlier one and a later one
        """
        return compare_editions(self.folder, later.folder)


def _shorten_path(path: Path) -> Path:
    """A path, relative to the current folder if it is inside that folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
