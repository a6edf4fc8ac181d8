"""Tables too large for one machine: the noise is drawn by Spark's workers, and written once.

    1. the true counts are written to Parquet in a private folder beside the table, which is removed afterwards: from
       here on the source is not read again, whatever becomes of a task
    2. they are read back: as many, with the same sum, as were written, or nothing is drawn; then they are completed to
       all cells of the public domain, split by ranges of cells and sorted
    3. every worker draws the noise of its cells from the release's keyed stream and adds the labels
    4. the result is written to Parquet, once; whoever asks for the table reads these files

**Guarantee.** The bits that decide a cell's noise are a function of the key and the number of the cell, and its count
is a function of the files of step 1. So a task that fails after drawing, one that runs twice, or a lost machine changes
no number: every attempt writes the same cells. The key is drawn for one call, leaves the driver inside the tasks of
that call only (the large public values travel apart from it, because Spark puts large values on disk), and is forgotten
when the call returns.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from countveil.engines.labels import Labels, count_name, labels_of
from countveil.engines.spark_session import noted, plain, quiet
from countveil.engines.spark_sql import SparkDialect
from countveil.errors import EngineError, ParameterError
from countveil.mechanism import Mechanism
from countveil.query import Question
from countveil.releasing import as_counts
from countveil.sampling.entropy import Key

if TYPE_CHECKING:
    from countveil.engines.spark import SparkEngine

CELLS_OF_A_PART = 4_000_000
"""At most so many cells in one file."""
CELLS_OF_A_TASK = 100_000
"""A smaller task is not worth starting."""
WORKERS = (
    "the Spark workers run another Python, or one without countveil; set PYSPARK_PYTHON to the Python of this process "
    "before Spark is started, and install countveil on every machine"
)
FAILED = "Spark could not finish the table; the charge is kept; ask again"
LOST = "the workers' counts could not be read back: do all machines see the output folder? the charge is kept"
NO_COUNTS = "the engine returned what cannot be counts; the charge is kept"
COUNTS = ("count(1) AS cells", "sum(n) AS total")
_FOREIGN = ("PYTHON_VERSION_MISMATCH", "No module named", "Cannot run program", "PYTHON_WORKER_EXITED")

Draw = Callable[[Iterator[Any]], Iterator[Any]]
Public = tuple[str, tuple[Labels, ...]]
"""What every worker needs and everybody may know: the mechanism's file, and the labels."""


def drawing(public: Callable[[], Public], secret: bytes) -> Draw:
    """What a worker does: batches of (cell, n) in, labels and released counts out."""

    def draw(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        document, labels_of_columns = public()
        mechanism, key = mechanism_of(document), Key(secret)
        lookups = [labels.lookup() for labels in labels_of_columns]
        names = [*(f"k{i}" for i in range(len(lookups))), "y"]
        for batch in batches:
            cells, counts = (np.ascontiguousarray(batch.column(i).to_numpy(zero_copy_only=False)) for i in (0, 1))
            columns = [lookup(cells) for lookup in lookups]
            columns.append(pa.array(drawn(mechanism, cells, counts, key)))
            yield pa.RecordBatch.from_arrays(columns, names)

    return draw


def drawn(mechanism: Mechanism, cells: NDArray[np.int64], counts: NDArray[np.int64], key: Key) -> NDArray[np.int64]:
    """The release of some cells; runs of consecutive cells are drawn at once."""
    try:
        checked = as_counts(counts, mechanism.largest_count)
    except ParameterError:  # its words would quote a count
        raise EngineError(NO_COUNTS) from None
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    runs = zip(np.split(cells, breaks), np.split(checked, breaks), strict=True)
    return np.concatenate([mechanism.sampler.release(n, key, first=int(run[0])) if len(run) else n for run, n in runs])


@lru_cache(maxsize=4)
def mechanism_of(text: str) -> Mechanism:
    """The mechanism of a file, rebuilt and checked once in every worker process."""
    return Mechanism.from_text(text)


def write(
    engine: SparkEngine,
    question: Question,
    folder: Path,
    *,
    key: bytes,
    mechanism: str,
    unchanged: Callable[[], None],
    around: Callable[[Draw], Draw] = lambda draw: draw,
    noise: Key | None = None,
) -> str:
    """Count, draw and write a question into a folder that does not exist yet; the name of the column of counts.

    `key` chooses cells of people who are in too many, `unchanged` raises if the source is no longer what was paid for.
    Tests put faults `around` the drawing and fix the `noise`; nothing else may.
    """
    try:
        private = Path(tempfile.mkdtemp(prefix="counts-", dir=folder.parent))  # mode 700
    except OSError:
        raise EngineError(FAILED) from None
    try:
        counts, session = private / "counts", engine.session
        with _withhold_errors(session):
            frame, seen = noted(engine.counted(question, key=key), COUNTS)
            frame.write.parquet(str(counts))
            expected = seen()  # as the tasks that wrote them say
        unchanged()
        with _withhold_errors(session):
            written = session.read.schema("cell BIGINT, n BIGINT").parquet(plain(str(counts)))
            (found,) = written.selectExpr(*COUNTS).collect()
            if list(found) != expected:
                raise EngineError(LOST)
            shared = session.sparkContext.broadcast((mechanism, labels_of(question)))
            try:
                draw = around(drawing(lambda: shared.value, (noise or Key()).export()))
                _draw(session, question, written, draw).write.parquet(str(folder))
            finally:
                shared.destroy()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return count_name(question)


def _draw(session: Any, question: Question, counts: Any, draw: Draw) -> Any:
    """The released table of counts, which nothing has evaluated yet."""
    columns = [f"k{i} {SparkDialect.types[labels.kind]}" for i, labels in enumerate(labels_of(question))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of pandas, which is not used
        noisy = completed(session, question.cells, counts).mapInArrow(draw, ", ".join([*columns, "y BIGINT"]))
    return noisy.toDF(*(column.name for column in question.by), count_name(question))


def completed(session: Any, cells: int, counts: Any) -> Any:
    """Every cell of the domain with its count, zeros included, in ranges, sorted."""
    every = session.range(0, cells).withColumnRenamed("id", "every")
    joined = every.join(counts, every["every"] == counts["cell"], "left")
    whole = joined.selectExpr("every AS cell", "coalesce(n, 0L) AS n")
    return whole.repartitionByRange(parts_of(session, cells), "cell").sortWithinPartitions("cell")


def parts_of(session: Any, cells: int) -> int:
    """How many tasks draw, and files are written: as many as there are cores, where the cells suffice."""
    useful = min(int(session.sparkContext.defaultParallelism), -(-cells // CELLS_OF_A_TASK))
    return max(1, useful, -(-cells // CELLS_OF_A_PART))


@contextmanager
def _withhold_errors(session: Any) -> Iterator[None]:
    """Run jobs; what Spark says is withheld, because it can quote the data."""
    try:
        with quiet(session):
            yield
    except EngineError:
        raise
    except Exception as error:
        text = str(error)
        said = NO_COUNTS if NO_COUNTS in text else FAILED
        raise EngineError(WORKERS if any(word in text for word in _FOREIGN) else said) from None
