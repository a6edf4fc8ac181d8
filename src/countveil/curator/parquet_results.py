"""Answers that are files: Parquet parts, written once, and the manifest of them that the ledger keeps as the answer.

A release is recorded when all of its parts are on disk, as their names, sizes and SHA-256. Asking again gives the same
files, and nothing if they are gone or changed: the noise of a recorded charge is never drawn again.

Until it is recorded, a release lies in a hidden folder that only its owner can enter (`.release-...`, mode 700). If the
process dies before the record it stays there and is never handed out; asking again draws anew. If it dies after the
record, asking again brings the files out.

Up to `COLLECTED` cells the counts are collected and the noise is drawn in this process; beyond, the workers of an
engine that has workers draw it. Which of the two it was is in the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.answers import Receipt, draw_counts, is_manifest, unpack_counts
from countveil.durable_files import sync_folder
from countveil.engines import Engine, Snapshot
from countveil.engines.labels import count_name, labels_of
from countveil.errors import EngineError, MissingExtraError, ParameterError, RequestError, shortened
from countveil.intervals import Intervals
from countveil.ledger import Asked, Charge, PlanRecord
from countveil.query import Question

COLLECTED = 5_000_000
"""Cells up to which the driver draws: see benchmarks/scale.py for where the two ways cross."""
FORMAT = "countveil-release"
UNWRITTEN = "the table could not be written: is the disk full? the charge is kept; ask again"
_CELLS_OF_A_GROUP = 1 << 20


@dataclass(frozen=True)
class Part:
    """One file of a release."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of a release: a folder's name and what is in it. `drawn` says where: "driver" or "workers"."""

    folder: str
    cells: int
    drawn: str
    count: str
    parts: tuple[Part, ...]

    def written(self) -> bytes:
        """As the ledger keeps it."""
        return json.dumps({"format": FORMAT, "version": 1, **asdict(self)}, sort_keys=True).encode()

    @staticmethod
    def read(payload: bytes) -> Manifest:
        body = json.loads(payload)
        if (body.pop("format"), body.pop("version")) != (FORMAT, 1):
            raise EngineError("the recorded answer is of another version of countveil; update it")
        return Manifest(**{**body, "parts": tuple(Part(**part) for part in body["parts"])})


@dataclass(frozen=True)
class Release:
    """A released table that is not collected: Parquet files in `path`, one row for each cell, in the order of cells."""

    question: Question
    path: Path
    manifest: Manifest
    intervals: Intervals
    receipt: Receipt
    replayed: bool
    engine: Engine

    @property
    def files(self) -> list[str]:
        """The parts, in the order of cells."""
        return [str(self.path / part.name) for part in self.manifest.parts]

    @property
    def cells(self) -> int:
        return self.manifest.cells

    @property
    def drawn(self) -> str:
        """Where the noise was drawn: "driver" or "workers"."""
        return self.manifest.drawn

    @cached_property
    def frame(self) -> Any:
        """The files as a Spark DataFrame, or without Spark as a pyarrow table: group columns as asked for, then counts.

        Reading them draws nothing: the noise is in the files. As ever in Spark, a frame of several files has no order.
        """
        columns = {column.name: column.name for column in self.question.shown} | {
            self.question.name: self.manifest.count
        }
        if self.engine.writes_files:
            return self.engine.read_release(self.files, columns)
        pa, pq = _arrow()
        found = pa.concat_tables([pq.read_table(file, partitioning=None) for file in self.files])
        return pa.table({new: found.column(old) for new, old in columns.items()})


# -- writing -----------------------------------------------------------------------------------------------------------


def check_output(output: object) -> Path:
    """The folder under which releases are written, made if there is none; a folder is really made in it, to try."""
    allowed = "the path of a folder that can be written"
    if not isinstance(output, str | os.PathLike) or not str(output):
        raise ParameterError("output", output, allowed)
    try:
        path = Path(output).expanduser().resolve()
        path.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=".countveil-", dir=path)).rmdir()
        _arrow()
    except (OSError, ValueError):
        raise ParameterError("output", str(output), allowed) from None
    return path


def new_folder(output: Path, charge: str) -> Path:
    """A name that no other evaluation uses."""
    return output / f"release-{charge}-{uuid.uuid4().hex[:8]}"


def _hidden(folder: Path) -> Path:
    """Where the files of a folder lie until they are on the record."""
    return folder.with_name(f".{folder.name}") / "table"


def write_counts(question: Question, released: NDArray[np.int64], folder: Path) -> str:
    """Released counts as one Parquet file with their labels; the name of the column of counts."""
    pa, pq = _arrow()
    names = [*(column.name for column in question.by), count_name(question)]
    lookups = [labels.lookup() for labels in labels_of(question)]
    try:
        folder.mkdir()
        with ExitStack() as opened:
            for start in range(0, len(released), _CELLS_OF_A_GROUP):
                part = released[start : start + _CELLS_OF_A_GROUP]
                cells = np.arange(start, start + len(part), dtype=np.int64)
                table = pa.table([*(lookup(cells) for lookup in lookups), pa.array(part)], names=names)
                if not start:
                    writer = opened.enter_context(pq.ParquetWriter(folder / "part-00000.parquet", table.schema))
                writer.write_table(table)
    except OSError:
        raise EngineError(UNWRITTEN) from None
    return names[-1]


def sealed(folder: Path, name: str, question: Question, drawn: str, count: str) -> Manifest:
    """The manifest of a folder's parts, all of them on disk; refused unless they hold every cell."""
    _, pq = _arrow()
    try:
        for other in [*folder.glob("_*"), *folder.glob(".*")]:  # Spark's marks and checksums, or a late task's folder
            shutil.rmtree(other) if other.is_dir() else other.unlink()
        files = sorted(folder.glob("part-*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        parts = tuple(Part(file.name, file.stat().st_size, settled_hash(file)) for file in files)
        for place in (folder, folder.parent):
            sync_folder(place)
    except (OSError, ValueError):
        raise EngineError("the written table could not be read again; the charge is kept; ask again") from None
    if rows != question.cells:
        raise EngineError("the written table is incomplete: do all workers see the folder? the charge is kept")
    return Manifest(name, question.cells, drawn, count, parts)


def settled_hash(file: Path) -> str:
    """The SHA-256 of a file that is on disk when this returns."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        return hashlib.file_digest(opened, "sha256").hexdigest()


# -- the record --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """A question that can be charged, as the ledger is `asked` for it, and what it takes to answer it."""

    asked: Asked
    record: PlanRecord
    intervals: Intervals
    engine: Engine
    snapshot: Snapshot


def evaluated(
    ready: Ready,
    charge: Charge,
    question: Question,
    folder: Path,
    *,
    key: bytes,
    unchanged: Callable[[], None],
    record: Callable[[Charge, bytes], Charge],
) -> Charge:
    """Count, draw, write, record; the charge with what is on the record then: ours, or of whoever was first."""
    engine, hidden = ready.engine, _hidden(folder)
    try:
        hidden.parent.mkdir(mode=0o700)
        if question.cells > COLLECTED and engine.writes_files:
            drawn, document = "workers", ready.record.document
            count = engine.write_release(question, hidden, key=key, mechanism=document, unchanged=unchanged)
        else:
            drawn, counts = "driver", engine.count(question, key=key)
            unchanged()
            count = write_counts(question, draw_counts(ready.intervals.mechanism, counts, question.cells), hidden)
        ours = sealed(hidden, folder.name, question, drawn, count).written()
    except BaseException as fault:
        shutil.rmtree(hidden.parent, ignore_errors=True)
        if isinstance(fault, OSError):
            raise EngineError(UNWRITTEN) from None
        raise
    answered = record(charge, ours)  # if this fails it may be on the record all the same: the files stay
    if answered.payload != ours:
        shutil.rmtree(hidden.parent, ignore_errors=True)  # another process was first; its answer is the answer
    return answered


def opened(charge: Charge, question: Question, output: Path) -> tuple[Path, Manifest]:
    """The files of a recorded answer, checked; an answer that was collected is written out, its numbers as recorded."""
    payload = charge.payload or b""
    if not is_manifest(payload):
        return _written_out(question, unpack_counts(payload, question.cells), new_folder(output, charge.id))
    manifest = Manifest.read(payload)
    folder = output / manifest.folder
    if not folder.exists() and _hidden(folder).is_dir():
        with suppress(OSError):  # someone else is bringing them out
            os.rename(_hidden(folder), folder)
        shutil.rmtree(_hidden(folder).parent, ignore_errors=True)
    if not folder.is_dir():
        raise RequestError(
            f"this question is answered by the files of {manifest.folder}, which are not in "
            f"{shortened(str(output), 200)}; give the folder they were written to, or bring them back"
        )
    for part in manifest.parts:
        if not _as_recorded(folder / part.name, part):
            raise RequestError(
                f"{manifest.folder}/{part.name} is gone or was changed since it was released; bring back a copy: "
                "the noise is not drawn again"
            )
    return folder, manifest


def _as_recorded(file: Path, part: Part) -> bool:
    try:
        return file.is_file() and file.stat().st_size == part.size and settled_hash(file) == part.sha256
    except OSError:
        raise EngineError("the files of the release could not be read; may this process read them?") from None


def _written_out(question: Question, counts: NDArray[np.int64], folder: Path) -> tuple[Path, Manifest]:
    """Recorded counts as files, whole or not at all."""
    try:
        count = write_counts(question, counts, folder)
        return folder, sealed(folder, folder.name, question, "driver", count)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow, which writes Parquet,", "parquet") from None
    return pyarrow, pyarrow.parquet
