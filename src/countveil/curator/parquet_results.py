"""Answers in files: Parquet parts, written once, and a manifest that lists them. The ledger stores the manifest.

An answer is recorded when all of its parts are on disk; the manifest has their names, sizes and SHA-256. Asking again
returns the same files, or an error if they are missing or changed: the noise of a recorded answer is never drawn again.

Until the answer is recorded, its files are in a hidden folder that only the owner can enter (`.release-...`, mode 700).
If the process dies before the record, the files stay there and are never returned; asking again draws new noise. If the
process dies after the record, asking again moves the files to their final folder.

Up to `COLLECTED` cells, this process collects the counts and draws the noise. Above that, the workers of the engine
draw it, if the engine has workers. The manifest says which of the two drew the noise.
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

from countveil.curator.receipts import Receipt
from countveil.curator.recorded_counts import draw_counts, is_manifest, unpack_counts
from countveil.curator.table_files import METADATA, describe_truth
from countveil.data.cell_labels import count_name, labels_of
from countveil.data.engines import Engine, Snapshot
from countveil.errors import EngineError, MissingExtraError, ParameterError, RequestError, shorten
from countveil.files.durable_files import sync_folder
from countveil.ledger import Asked, Charge, PlanRecord
from countveil.mechanism.intervals import Intervals
from countveil.mechanism.mechanism import Mechanism
from countveil.query import Question
from countveil.query.truth import Truth

COLLECTED = 5_000_000
"""The most cells whose noise this process draws. For more, an engine's workers are faster (benchmarks/scale.py)."""
FORMAT = "countveil-release"
UNWRITTEN = "the table could not be written: is the disk full? the charge is kept; ask again"
_CELLS_OF_A_GROUP = 1 << 20


@dataclass(frozen=True)
class Part:
    """One file of an answer."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of an answer, and the name of their folder. `drawn` says where the noise was drawn: "driver" or
    "workers"."""

    folder: str
    cells: int
    drawn: str
    count: str
    parts: tuple[Part, ...]

    def to_bytes(self) -> bytes:
        """The manifest as bytes, which the ledger stores as the answer."""
        return json.dumps({"format": FORMAT, "version": 1, **asdict(self)}, sort_keys=True).encode()

    @staticmethod
    def read(payload: bytes) -> Manifest:
        body = json.loads(payload)
        if (body.pop("format"), body.pop("version")) != (FORMAT, 1):
            raise EngineError("the recorded answer has the format of another countveil version; update countveil")
        return Manifest(**{**body, "parts": tuple(Part(**part) for part in body["parts"])})


@dataclass(frozen=True)
class ParquetTable:
    """A released table in Parquet files, not collected in memory: one row for each cell, in the order of cells."""

    question: Question
    path: Path
    manifest: Manifest
    intervals: Intervals
    receipt: Receipt
    replayed: bool
    engine: Engine

    @property
    def files(self) -> list[str]:
        """The paths of the Parquet files, in the order of cells."""
        return [str(self.path / part.name) for part in self.manifest.parts]

    @property
    def cells(self) -> int:
        return self.manifest.cells

    @property
    def truth(self) -> Truth:
        """What is counted, and the bounds on what one person adds."""
        return self.question.truth

    @property
    def drawn(self) -> str:
        """Where the noise was drawn: "driver" (this process) or "workers" (of the engine)."""
        return self.manifest.drawn

    @cached_property
    def frame(self) -> Any:
        """The files as a Spark DataFrame or, without Spark, as a pyarrow table: group columns as asked for, then
        counts.

        Reading the files draws nothing, because they contain the noise. In Spark, several files have no order of rows.
        """
        columns = {column.name: column.name for column in self.question.shown} | {
            self.question.name: self.manifest.count
        }
        if self.engine.writes_files:
            return self.engine.read_release(self.files, columns)
        pa, pq = _arrow()
        parts = pa.concat_tables([pq.read_table(file, partitioning=None) for file in self.files])
        return pa.table({new: parts.column(old) for new, old in columns.items()})


# -- writing -----------------------------------------------------------------------------------------------------------


def check_output(output: object) -> Path:
    """Create the output folder if it is missing, check that it can be written, and return its path."""
    allowed = "the path of a folder that can be written"
    if not isinstance(output, str | os.PathLike) or not str(output):
        raise ParameterError("output", output, allowed)
    try:
        path = Path(output).expanduser().resolve()
        path.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=".countveil-", dir=path)).rmdir()
        _arrow()
    except (OSError, ValueError, RuntimeError):
        raise ParameterError("output", str(output), allowed) from None
    return path


def new_folder(output: Path, charge: str) -> Path:
    """A path for a new folder of files, with a name that no other evaluation of the charge uses."""
    return output / f"release-{charge}-{uuid.uuid4().hex[:8]}"


def _hidden_folder(folder: Path) -> Path:
    """The hidden folder that contains the files until they are recorded."""
    return folder.with_name(f".{folder.name}") / "table"


def write_counts(question: Question, released: NDArray[np.int64], folder: Path) -> str:
    """Write released counts and their labels to one Parquet file; return the name of the column of counts."""
    pa, pq = _arrow()
    names = [*(column.name for column in question.by), count_name(question)]
    lookups = [labels.lookup() for labels in labels_of(question)]
    metadata = {METADATA: json.dumps(describe_truth(question.truth))}
    try:
        folder.mkdir()
        with ExitStack() as opened:
            for start in range(0, len(released), _CELLS_OF_A_GROUP):
                part = released[start : start + _CELLS_OF_A_GROUP]
                cells = np.arange(start, start + len(part), dtype=np.int64)
                table = pa.table([*(lookup(cells) for lookup in lookups), pa.array(part)], names=names)
                table = table.replace_schema_metadata(metadata)
                if not start:
                    writer = opened.enter_context(pq.ParquetWriter(folder / "part-00000.parquet", table.schema))
                writer.write_table(table)
    except OSError:
        raise EngineError(UNWRITTEN) from None
    return names[-1]


def make_manifest(folder: Path, name: str, question: Question, drawn: str, count: str) -> Manifest:
    """Sync the Parquet files of a folder to disk and return their manifest. Files that lack cells are refused."""
    _, pq = _arrow()
    try:
        for other in [*folder.glob("_*"), *folder.glob(".*")]:  # Spark's markers and checksums, a late task's folder
            shutil.rmtree(other) if other.is_dir() else other.unlink()
        files = sorted(folder.glob("part-*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        parts = tuple(Part(file.name, file.stat().st_size, sync_and_hash(file)) for file in files)
        for place in (folder, folder.parent):
            sync_folder(place)
    except (OSError, ValueError):
        raise EngineError("the written table could not be read back; the charge is kept; ask again") from None
    if rows != question.cells:
        raise EngineError("the written table is incomplete: can all workers reach the folder? the charge is kept")
    return Manifest(name, question.cells, drawn, count, parts)


def sync_and_hash(file: Path) -> str:
    """Sync a file to disk and return its SHA-256."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        return hashlib.file_digest(opened, "sha256").hexdigest()


# -- the record --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """A question that is ready to be charged: what the ledger is `asked` to charge, and what is needed to count."""

    asked: Asked
    record: PlanRecord
    engine: Engine
    snapshot: Snapshot


def evaluate(
    engine: Engine,
    mechanism: Mechanism,
    charge: Charge,
    question: Question,
    folder: Path,
    *,
    salt: bytes,
    unchanged: Callable[[], None],
    record: Callable[[Charge, bytes], Charge],
) -> Charge:
    """Count, draw noise with the mechanism of the charge, write the files and record them; return the charge with its
    answer.

    If another process has recorded an answer before, that is the answer, and the files of this process are deleted.
    """
    hidden = _hidden_folder(folder)
    try:
        hidden.parent.mkdir(mode=0o700)
        if question.cells > COLLECTED and engine.writes_files:
            drawn, document = "workers", mechanism.to_text()
            count = engine.write_release(question, hidden, salt=salt, mechanism=document, unchanged=unchanged)
        else:
            drawn, counts = "driver", engine.count(question, salt=salt)
            unchanged()
            count = write_counts(question, draw_counts(mechanism, counts, question.cells), hidden)
        ours = make_manifest(hidden, folder.name, question, drawn, count).to_bytes()
    except BaseException as fault:
        shutil.rmtree(hidden.parent, ignore_errors=True)
        if isinstance(fault, OSError):
            raise EngineError(UNWRITTEN) from None
        raise
    answered = record(charge, ours)  # the answer may be recorded even if this raises, so the files stay
    if answered.payload != ours:
        shutil.rmtree(hidden.parent, ignore_errors=True)  # another process recorded first
    return answered


def open_recorded(charge: Charge, question: Question, output: Path) -> tuple[Path, Manifest]:
    """The folder and manifest of a recorded answer, after a check of its files.

    If the ledger stores the counts themselves, they are written to new files.
    """
    payload = charge.payload or b""
    if not is_manifest(payload):
        return _write_recorded(question, unpack_counts(payload, question.cells), new_folder(output, charge.id))
    manifest = Manifest.read(payload)
    folder = output / manifest.folder
    if not folder.exists() and _hidden_folder(folder).is_dir():
        with suppress(OSError):  # another process is moving them
            os.rename(_hidden_folder(folder), folder)
        shutil.rmtree(_hidden_folder(folder).parent, ignore_errors=True)
    if not folder.is_dir():
        raise RequestError(
            f"the answer to this question is in the files of {manifest.folder}, which are not in "
            f"{shorten(str(output), 200)}; give the folder they were written to, or restore them from a copy"
        )
    for part in manifest.parts:
        if not _matches_record(folder / part.name, part):
            raise RequestError(
                f"{manifest.folder}/{part.name} is missing or changed; restore it from a copy: "
                "the noise is not drawn again"
            )
    _check_columns(folder / manifest.parts[0].name, question)
    return folder, manifest


def _check_columns(part: Path, question: Question) -> None:
    """Refuse files whose columns lack a group column of the question.

    An equal question can have been asked with other columns of the same hierarchy.
    """
    _, pq = _arrow()
    names = pq.read_schema(part).names[:-1]
    if not {column.name for column in question.by} <= set(names):
        raise RequestError(
            f"this question was answered before, in files with the columns {shorten(', '.join(names), 100)}; "
            "ask with these columns after GROUP BY to get the files"
        )


def _matches_record(file: Path, part: Part) -> bool:
    try:
        return file.is_file() and file.stat().st_size == part.size and sync_and_hash(file) == part.sha256
    except OSError:
        raise EngineError("the files of the answer could not be read; check their permissions") from None


def _write_recorded(question: Question, counts: NDArray[np.int64], folder: Path) -> tuple[Path, Manifest]:
    """Write recorded counts to files, completely or not at all."""
    try:
        count = write_counts(question, counts, folder)
        return folder, make_manifest(folder, folder.name, question, "driver", count)
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
