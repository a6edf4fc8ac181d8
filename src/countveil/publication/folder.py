"""The folder of an edition: one file for each table, one for each margin, the laws, a manifest and a report.

    manifest.json     guarantee, tree, receipts, accuracy, and the SHA-256 of every other file; see `manifest`
    tables/           labels, count, interval (low, high), certain bounds, measured, quality, part_of
    margins/          sums across the tree: estimate, interval, sum of published cells, expected gap
    laws/             the mechanism that each table was measured with
    report.html       a page for people
    deployment.json   an entry for public registries of differentially private releases

`part_of` is the row, from 0, of the cell in the next coarser table. The folder appears whole or not at all: it is
written under a hidden name, synced and renamed.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import CountveilError, MissingExtraError, ParameterError, RequestError, shorten
from countveil.files.durable_files import replace_file, sync_folder

FORMAT, VERSION = "countveil-publication", 1
MANIFEST, REPORT, DEPLOYMENT = "manifest.json", "report.html", "deployment.json"
FORMATS = ("csv", "parquet")
LARGEST_MANIFEST = 64 << 20
UNREADABLE = "the folder of a publication, as countveil publish writes it"
FILE = r"([a-z]{1,20}/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}"
"""The form of the names of files: none leads out of the folder."""
AGAIN = "its numbers are on record: publish again, which is free"

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Folder:
    """A published folder that is open for reading; nothing in it is trusted."""

    path: Path
    manifest: Mapping[str, Any]
    sha256: str
    """The SHA-256 of the manifest, which has those of all other files: two folders with the same one are the same."""

    @staticmethod
    def open(path: str | Path) -> Folder:
        """Read the manifest of a folder."""
        try:
            place = Path(path).expanduser()
            with (place / MANIFEST).open("rb") as file:
                content = file.read(LARGEST_MANIFEST)
            manifest = read_manifest(content)
        except (OSError, ValueError, RuntimeError):
            raise ParameterError("folder", shorten(str(path), 200), UNREADABLE) from None
        return Folder(place, manifest, hashlib.sha256(content).hexdigest())

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file that the manifest names."""
        return list_hashes(self.manifest)

    def find_file(self, name: str) -> Path | None:
        """The path of the manifest or of a file that it names; None if there is no such file, or only a link to one."""
        if name != MANIFEST and name not in self.hashes:
            return None
        place = self.path / name
        return place if place.resolve() == self.path.resolve() / name and place.is_file() else None

    def entry(self, name: str) -> Mapping[str, Any]:
        """The entry of a table or a margin in the manifest."""
        entries = {each["name"]: each for each in (*self.manifest["tables"], *self.manifest["margins"])}
        if name not in entries:
            raise ParameterError("table", name, "one of " + ", ".join(entries))
        return dict(entries[name])

    def columns(self, name: str) -> dict[str, NDArray[Any]]:
        """The columns of a table or a margin: labels as they were written, numbers as integers."""
        entry = self.entry(name)
        try:
            return read_columns(self.path / entry["file"], entry["kinds"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, csv.Error):
            raise RequestError(
                f"{shorten(entry['file'])} is missing or damaged; restore it, or publish again"
            ) from None

    def is_written(self, name: str, columns: Columns, facts: Mapping[str, Any]) -> bool:
        """Whether the file of a table or a margin is what `write_columns` writes."""
        place = self.path / self.entry(name)["file"]
        if place.suffix == ".csv":
            return bool(place.read_bytes() == _format_csv(columns))
        import pyarrow.parquet as pq

        return bool(pq.read_table(place, partitioning=None).equals(_make_arrow(columns, facts), check_metadata=True))

    def find_unlisted(self) -> Iterator[str]:
        """The files, folders and links that are in the folder, but not in its manifest."""
        listed = {MANIFEST, *self.hashes}
        known = {name.split("/")[0] for name in listed if "/" in name}
        for place, folders, files in os.walk(self.path):
            inside = Path(place).relative_to(self.path)
            yield from (name for name in sorted((inside / file).as_posix() for file in files) if name not in listed)
            unknown = [name for name in folders if place != str(self.path) or name not in known]
            yield from sorted(f"{(inside / name).as_posix()}/" for name in unknown)
            folders[:] = sorted(set(folders) - set(unknown))

    def content(self, name: str) -> bytes:
        """The bytes of a file of the folder."""
        _check_name(name)
        try:
            place = self.path / name
            if place.resolve() != self.path.resolve() / name:
                raise OSError  # a link to a file elsewhere
            return place.read_bytes()
        except OSError:
            raise RequestError(f"{shorten(name)} is missing; restore it, or publish again") from None


def read_manifest(content: bytes) -> dict[str, Any]:
    """The manifest in a file; raises ValueError if it is not one, or names files that are not inside its folder."""
    try:
        manifest: dict[str, Any] = json.loads(content, object_pairs_hook=_make_object)
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise ValueError
        for entry in (*manifest["tables"], *manifest["margins"]):
            tuple(entry["by"])
        for name in list_hashes(manifest):
            _check_name(name)
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError from None
    return manifest


def _make_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one with a member twice, of which readers would see either, is refused."""
    if len(dict(members)) < len(members):
        raise ValueError
    return dict(members)


def list_hashes(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of every file that a manifest names.

    The report and the registry entry are always listed; if the manifest does not name them, with an empty text.
    """
    laws = [each["law"] for each in manifest["tables"] if each["law"]]
    listed = {each["file"]: each["sha256"] for each in (*manifest["tables"], *manifest["margins"], *laws)}
    return {**listed, REPORT: "", DEPLOYMENT: "", **manifest["files"]}


def _check_name(name: object) -> None:
    """Refuse a file that is not inside the folder."""
    if not isinstance(name, str) or not re.fullmatch(FILE, name) or name == MANIFEST:
        raise ValueError


@contextmanager
def new_folder(target: Path, hint: str = AGAIN) -> Iterator[Path]:
    """A hidden folder, which gets the name of the target when the `with` block ends without an error.

    `hint` says what to do where the folder cannot be written.
    """
    hidden = target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex}.part")
    part = hidden / "edition"
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            hidden.mkdir(mode=0o700)
            part.mkdir()
            yield part
            for place in (*(each for each in part.iterdir() if each.is_dir()), part):
                sync_folder(place)
            os.rename(part, target)
            sync_folder(target.parent)
        except CountveilError:
            raise
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise RequestError(
                f"the publication could not be written to {shorten(str(target), 200)} ({reason}); {hint}"
            ) from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def read_target(output: str | Path) -> Path:
    """The absolute path of an output folder; refused if no folder can have it."""
    try:
        place = Path(output).expanduser().absolute()
        place.exists()
    except (OSError, ValueError, RuntimeError, TypeError):
        raise ParameterError("output", shorten(str(output), 200), "the path of a folder that can be made") from None
    return place


def check_new(target: Path) -> None:
    """Refuse a target that is not a new or an empty folder."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ParameterError("output", str(target), "a folder that does not exist yet, or is empty")


def find_published(target: Path, receipts: Sequence[str]) -> Folder | None:
    """The edition with these receipts in a folder, checked; None if the folder is new or empty.

    A folder with other content is refused.
    """
    if not (target / MANIFEST).is_file():
        check_new(target)
        return None
    folder = Folder.open(target)
    known = folder.manifest.get("receipts")
    if not isinstance(known, list) or sorted(map(str, known)) != sorted(receipts):
        raise ParameterError("output", str(target), "a new folder: this one has another edition or publication")
    return folder


def check_format(style: str) -> None:
    """Refuse a format that is not known, or whose package is not installed."""
    if style not in FORMATS:
        raise ParameterError("format", style, "one of " + ", ".join(FORMATS))
    if style == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise MissingExtraError("pyarrow, which writes Parquet,", "parquet") from None


def write_file(path: Path, content: bytes) -> str:
    """Write a file, synced; returns its SHA-256."""
    path.parent.mkdir(exist_ok=True)
    with replace_file(path) as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


def name_file(folder: str, place: int, by: Iterable[str], style: str) -> str:
    """The name of the file of a table: the number of the table, then the letters and digits of its columns."""
    words = ["".join(c for c in name if c.isascii() and (c.isalnum() or c == "_")) for name in by]
    return f"{folder}/{place}-{'-'.join(word for word in words if word)[:60] or 'total'}.{style}"


# -- tables as files ---------------------------------------------------------------------------------------------------


def write_columns(path: Path, columns: Columns, style: str, facts: Mapping[str, Any]) -> str:
    """Write columns as CSV or Parquet; returns the SHA-256 of the file. `facts` go into the metadata of Parquet."""
    if style == "csv":
        return write_file(path, _format_csv(columns))
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(_make_arrow(columns, facts), buffer)
    return write_file(path, buffer.getvalue())


def _format_csv(columns: Columns) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_write_value, column.tolist()) for column in columns.values()), strict=True))
    return text.getvalue().encode()


def _make_arrow(columns: Columns, facts: Mapping[str, Any]) -> Any:
    import pyarrow as pa

    table = pa.table({name: pa.array(column.tolist()) for name, column in columns.items()})
    return table.replace_schema_metadata({b"countveil": json.dumps(facts)})


def kinds_of(columns: Columns) -> dict[str, str]:
    """The kind of each column, which a reader of the file needs: integer, boolean, date or text."""
    kinds = {}
    for name, column in columns.items():
        first = column[0].item() if isinstance(column[0], np.generic) else column[0]
        kinds[name] = {bool: "boolean", int: "integer", datetime.date: "date"}.get(type(first), "text")
    return kinds


def read_columns(path: Path, kinds: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """The columns of a file that `write_columns` wrote."""
    if path.suffix == ".parquet":
        check_format("parquet")
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path, partitioning=None)
            if table.column_names != list(kinds):
                raise ValueError
            return {name: _array(table.column(name).to_pylist(), kind) for name, kind in kinds.items()}
        except pa.ArrowException:
            raise ValueError from None
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        if header != list(kinds):
            raise ValueError
        columns = list(zip(*reader, strict=True)) or [()] * len(header)
    return {
        name: _array([_READERS[kind](text) for text in column], kind)
        for (name, kind), column in zip(kinds.items(), columns, strict=True)
    }


def _array(values: list[Any], kind: str) -> NDArray[Any]:
    if kind == "integer":
        return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _write_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


_READERS: Mapping[str, Any] = {
    "integer": int,
    "boolean": {"true": True, "false": False}.__getitem__,
    "date": datetime.date.fromisoformat,
    "text": str,
}
