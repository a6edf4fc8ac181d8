"""Releases tables that are too large for one machine: Spark's workers draw the noise, and the result is written once.

    1. the true counts are written to Parquet in a private folder beside the table, which is removed afterwards: after
       this step the source is not read again, even if tasks are retried
    2. the counts are read back; if their number and sum are not those that were written, nothing is drawn; otherwise
       cells without rows are added, and all cells of the public domain are split into sorted ranges
    3. every worker draws the noise of its cells from a stream keyed by the release's noise key, adds it to the counts,
       and adds the labels
    4. the result is written to Parquet, once; every later read of the table reads these files

**Guarantee.** The random bits for a cell's noise depend only on the noise key and the number of the cell; the count of
the cell depends only on the files of step 1. So if a task fails after drawing, runs twice, or is lost with its machine,
no number changes: every attempt writes the same cells. The noise key is drawn for one call, leaves the driver only
inside the tasks of that call, and is discarded when the call returns. Large public values are broadcast separately,
because Spark writes large values to disk.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from countveil.data.cell_labels import Labels, count_name, labels_of
from countveil.data.engines.spark_session import observe, plain, quiet
from countveil.data.engines.spark_sql import SparkDialect
from countveil.errors import EngineError, ParameterError
from countveil.mechanism.mechanism import Mechanism
from countveil.query import Question
from countveil.sampling.count_arrays import as_counts
from countveil.sampling.randomness import NoiseKey

CELLS_OF_A_PART = 4_000_000
"""The largest number of cells in one file."""
CELLS_OF_A_TASK = 100_000
"""The smallest number of cells for which it is worth starting another task."""
WORKERS = (
    "the Spark workers run another Python, or one without countveil; set PYSPARK_PYTHON to the Python of this process "
    "before Spark is started, and install countveil on every machine"
)
FAILED = "Spark could not finish the table; the charge is kept; ask again"
LOST = "the workers' counts could not be read back; use an output folder that all machines see; the charge is kept"
NO_COUNTS = "the engine returned values that cannot be counts; the charge is kept"
COUNTS = ("count(1) AS cells", "sum(n) AS total")
_FOREIGN = ("PYTHON_VERSION_MISMATCH", "No module named", "Cannot run program", "PYTHON_WORKER_EXITED")

Draw = Callable[[Iterator[Any]], Iterator[Any]]
Public = tuple[str, tuple[Labels, ...]]
"""What every worker needs besides the counts, all of it public: the text of the mechanism's file, and the labels."""


def drawing(public: Callable[[], Public], secret: bytes) -> Draw:
    """Return the function that a worker runs: it turns batches of (cell, n) into labels and released counts."""

    def draw(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        document, labels_of_columns = public()
        mechanism, key = mechanism_of(document), NoiseKey(secret)
        lookups = [labels.lookup() for labels in labels_of_columns]
        names = [*(f"k{i}" for i in range(len(lookups))), "y"]
        for batch in batches:
            cells, counts = (np.ascontiguousarray(batch.column(i).to_numpy(zero_copy_only=False)) for i in (0, 1))
            columns = [lookup(cells) for lookup in lookups]
            columns.append(pa.array(draw_cells(mechanism, cells, counts, key)))
            yield pa.RecordBatch.from_arrays(columns, names)

    return draw


def draw_cells(
    mechanism: Mechanism, cells: NDArray[np.int64], counts: NDArray[np.int64], key: NoiseKey
) -> NDArray[np.int64]:
    """The true counts of these cells with noise added. Noise for consecutive cell numbers is drawn in one call."""
    try:
        checked = as_counts(counts, mechanism.largest_count)
    except ParameterError:  # its message would quote a count
        raise EngineError(NO_COUNTS) from None
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    runs = zip(np.split(cells, breaks), np.split(checked, breaks), strict=True)
    return np.concatenate([mechanism.sampler.release(n, key, first=int(run[0])) if len(run) else n for run, n in runs])


@lru_cache(maxsize=4)
def mechanism_of(text: str) -> Mechanism:
    """The mechanism in the text of its file, rebuilt and checked once in every worker process."""
    return Mechanism.from_text(text)


class CellCounter(Protocol):
    """What `write` needs of an engine: its Spark session, and counts as a DataFrame that is not evaluated yet."""

    @property
    def session(self) -> Any: ...

    def count_cells(self, question: Question, *, salt: bytes) -> Any: ...


def write(
    engine: CellCounter,
    question: Question,
    folder: Path,
    *,
    salt: bytes,
    mechanism: str,
    unchanged: Callable[[], None],
    around: Callable[[Draw], Draw] = lambda draw: draw,
    noise: NoiseKey | None = None,
) -> str:
    """Count a question, draw the noise and write the result into a new folder; return the name of the column of counts.

    `salt` chooses the cells of people with rows in too many. `unchanged` raises an error if the source has changed
    since the charge. `around` and `noise` are for tests only: they inject faults into the drawing, and fix the noise.
    """
    try:
        private = Path(tempfile.mkdtemp(prefix="counts-", dir=folder.parent))  # mode 700
    except OSError:
        raise EngineError(FAILED) from None
    try:
        counts, session = private / "counts", engine.session
        with _withhold_errors(session):
            frame, observed_sums = observe(engine.count_cells(question, salt=salt), COUNTS)
            frame.write.parquet(str(counts))
            expected = observed_sums()  # reported by the tasks that wrote the counts
        unchanged()
        with _withhold_errors(session):
            stored_counts = session.read.schema("cell BIGINT, n BIGINT").parquet(plain(str(counts)))
            (sums,) = stored_counts.selectExpr(*COUNTS).collect()
            if list(sums) != expected:
                raise EngineError(LOST)
            shared = session.sparkContext.broadcast((mechanism, labels_of(question)))
            try:
                draw = around(drawing(lambda: shared.value, (noise or NoiseKey()).export()))
                _draw(session, question, stored_counts, draw).write.parquet(str(folder))
            finally:
                shared.destroy()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return count_name(question)


def _draw(session: Any, question: Question, counts: Any, draw: Draw) -> Any:
    """The table of released counts with their labels, as a DataFrame that is not evaluated yet."""
    columns = [f"k{i} {SparkDialect.types[labels.kind]}" for i, labels in enumerate(labels_of(question))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about pandas, which is not used
        noisy = add_empty_cells(session, question.cells, counts).mapInArrow(draw, ", ".join([*columns, "y BIGINT"]))
    table, name = noisy.toDF(*(column.name for column in question.by), count_name(question)), count_name(question)
    return table.withMetadata(name, {"countveil": question.truth.statement})


def add_empty_cells(session: Any, cells: int, counts: Any) -> Any:
    """Every cell of the domain with its count, zeros included, split into sorted ranges of cells."""
    every = session.range(0, cells).withColumnRenamed("id", "every")
    joined = every.join(counts, every["every"] == counts["cell"], "left")
    whole = joined.selectExpr("every AS cell", "coalesce(n, 0L) AS n")
    return whole.repartitionByRange(parts_of(session, cells), "cell").sortWithinPartitions("cell")


def parts_of(session: Any, cells: int) -> int:
    """The number of tasks that draw noise; each writes one file.

    One task per core, but fewer if a task would have under CELLS_OF_A_TASK cells, and more if it would have over
    CELLS_OF_A_PART.
    """
    useful = min(int(session.sparkContext.defaultParallelism), -(-cells // CELLS_OF_A_TASK))
    return max(1, useful, -(-cells // CELLS_OF_A_PART))


@contextmanager
def _withhold_errors(session: Any) -> Iterator[None]:
    """Replace every error of Spark by a fixed text, because Spark's messages can quote the data."""
    try:
        with quiet(session):
            yield
    except EngineError:
        raise
    except Exception as error:
        text = str(error)
        message = NO_COUNTS if NO_COUNTS in text else FAILED
        raise EngineError(WORKERS if any(word in text for word in _FOREIGN) else message) from None
