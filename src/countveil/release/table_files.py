"""Releases of finished count tables: CSV and Parquet files in, the same kind of file with noisy counts out.

**Guarantee.** No true count of a count column is written anywhere, not even to a temporary file: the output has n + Z.
The other columns and the order of the rows are kept. The added columns `margin_95`, `certain_low` and `certain_high`
are functions of the mechanism and the released count alone. The true count is within the certain range if it is inside
the range that the mechanism was designed for.

The module `columns` adds the noise, and states the guarantee for all columns of counts together. Rows are read, checked
and written in batches, so a file may be larger than memory. A value that is not a count is refused, with its row (the
first row after the header is row 1). The output file appears when it is complete, or not at all.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from countveil.errors import MissingExtraError, ParameterError
from countveil.files.durable_files import open_output
from countveil.mechanism.mechanism import LARGEST_COUNT, Mechanism
from countveil.release.columns import Counts, NoisyColumns, compose_columns, plain

CSV_BATCH = 50_000
PARQUET_BATCH = 122_880
_BUFFER = 1 << 20
_DIGITS = re.compile(r"\+?[0-9]+\Z", re.ASCII)
_BOM = b"\xef\xbb\xbf"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TableRelease:
    """The result of a release: number of rows, names of columns, and the guarantee of all columns together."""

    rows: int
    columns: tuple[str, ...]
    unchanged: tuple[str, ...]
    """The other columns of the table, copied without noise."""
    disjoint: bool
    epsilon: Fraction
    delta: Fraction


def release_table(
    mechanism: Mechanism,
    source: str | Path,
    columns: str | Sequence[str],
    target: str | Path,
    *,
    disjoint: bool = False,
    null_as_zero: bool = False,
    progress: Progress | None = None,
) -> TableRelease:
    """Copy a table to `target` with noisy counts in `columns` (one name or several), and add margins for each.

    The extension, .csv or .parquet, gives the format; both files must have the same. `disjoint` states that each person
    is counted in at most one of the columns. `null_as_zero` counts empty fields and NULLs as 0. `progress(done, total)`
    is called after every batch; it counts bytes of a CSV file, rows of a Parquet file. Every call of this function is
    a separate release and spends privacy again.
    """
    read, copy = Path(source), _format(source, target)
    _check_paths(read, target)
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    release = NoisyColumns(mechanism, names, null_as_zero)
    if disjoint and len(names) == 1:
        raise ParameterError("disjoint", "one column", "two columns or more", "leave out disjoint for one column")
    epsilon, delta = compose_columns(mechanism, 1 if disjoint else len(names))
    with open_output(target) as file:
        copy(release, read, file, progress or (lambda done, total: None))
    return TableRelease(release.rows, names, release.unchanged, disjoint, epsilon, delta)


# CSV: the csv module, as text; values are copied unchanged, quotes are written where needed


def _copy_csv(release: NoisyColumns, source: Path, file: BinaryIO, progress: Progress) -> None:
    with _reading(source):
        opened = source.open("rb")
    with opened as raw:
        first_line = raw.readline(1 << 16)
        raw.seek(0)
        encoding = "utf-8-sig" if first_line.startswith(_BOM) else "utf-8"
        # undecodable bytes become surrogates, which cannot be encoded: writing reports them with their row
        text = io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")
        rows = csv.reader(text, strict=True)
        header = _header(source, rows)
        positions = release.find(header)
        total = os.fstat(raw.fileno()).st_size
        out = io.TextIOWrapper(file, encoding=encoding, newline="")
        try:
            writer = csv.writer(_Lines(out, "\r\n" if first_line.endswith(b"\r\n") else "\n"))
            writer.writerow([*header, *release.added_names])
            for batch in _csv_batches(source, rows, len(header)):
                first = release.rows + 1
                _replace(release, batch, positions)
                _write_rows(writer, batch, first)
                progress(raw.tell(), total)
            out.flush()
        finally:
            out.detach()  # the file stays open


def _header(source: Path, rows: Iterator[list[str]]) -> list[str]:
    try:
        header = next(rows, [])
    except csv.Error as error:
        raise ParameterError("header", plain(str(error)), "column names separated by commas") from None
    if not header:
        raise ParameterError("table", str(source), "a file with a header line (the first line is empty)")
    if _undecodable(header):
        raise ParameterError("header", "bytes that are not UTF-8", "a CSV file in UTF-8")
    return header


def _csv_batches(source: Path, rows: Iterator[list[str]], width: int) -> Iterator[list[list[str]]]:
    """Yield the data rows in batches; every row must have as many fields as the header, which has `width`."""
    number, batch = 0, []
    try:
        with _reading(source):
            for number, row in enumerate(rows, start=1):
                if len(row) != width:
                    given = f"{len(row)} field{'s' * (len(row) != 1)}" if row else "an empty line"
                    raise ParameterError(f"row {number}", given, f"{width} fields, as in the header")
                batch.append(row)
                if len(batch) == CSV_BATCH:
                    yield batch
                    batch = []
    except csv.Error as error:
        raise ParameterError(f"row {number + 1}", plain(str(error)), "well-formed CSV, every quote closed") from None
    if batch:
        yield batch


def _replace(release: NoisyColumns, batch: list[list[Any]], positions: list[int]) -> None:
    """Replace the true counts in a batch of rows by noisy ones, and append the columns of 95 % margins and certain
    ranges to each row."""
    texts = ([row[position] for row in batch] for position in positions)
    drawn = release.draw([_parse_counts(release, column, given) for column, given in enumerate(texts)])
    margin = release.mechanism.margin_95
    for position, (y, low, high) in zip(positions, drawn, strict=True):
        for row, noisy, least, most in zip(batch, y.tolist(), low.tolist(), high.tolist(), strict=True):
            row[position] = noisy
            row += (margin, least, most)


def _parse_counts(release: NoisyColumns, column: int, texts: list[str]) -> Counts:
    """Parse texts as integers: digits, with an optional + in front. int() alone would also accept 1_000 and ' 7'."""
    together = "".join(texts)
    if together.isascii() and together.isdigit():
        try:
            return np.array([int(text) for text in texts], dtype=np.int64)
        except (ValueError, OverflowError):  # an empty text or too large a number: reported with its row below
            pass
    return np.array([_count(release, column, index, text) for index, text in enumerate(texts)], dtype=np.int64)


def _count(release: NoisyColumns, column: int, index: int, text: str) -> int:
    if not text:
        if release.null_as_zero:
            return 0
        raise release.refusal(column, index, "an empty field", release.allowed_counts, "--null-as-zero counts it as 0")
    if not _DIGITS.match(text):
        raise release.refusal(
            column, index, plain(text), f"{release.allowed_counts}, in plain digits, such as 12 or +12"
        )
    digits = text.lstrip("+0")
    if len(digits) > len(str(LARGEST_COUNT)) or int(digits or "0") > release.largest:
        raise release.refusal(column, index, text, release.allowed_counts)
    return int(digits or "0")


def _write_rows(writer: Any, batch: list[list[Any]], first: int) -> None:
    try:
        writer.writerows(batch)
    except UnicodeEncodeError:
        row = first + next(i for i, fields in enumerate(batch) if _undecodable(fields))
        raise ParameterError(f"row {row}", "bytes that are not UTF-8", "a CSV file in UTF-8") from None


def _undecodable(fields: Sequence[Any]) -> bool:
    return any("\udc80" <= character <= "\udcff" for text in fields for character in str(text))


class _Lines:
    r"""Ends every row like the source. The csv writer itself ends rows with \r\n, or it would not quote a lone \r."""

    def __init__(self, file: IO[str], end: str) -> None:
        self.file = file
        self.end = end

    def write(self, row: str) -> None:
        self.file.write(row.removesuffix("\r\n") + self.end)


# Parquet: pyarrow, one batch of records at a time


def _copy_parquet(release: NoisyColumns, source: Path, file: BinaryIO, progress: Progress) -> None:
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    with _reading(source, pa.ArrowException):
        # with read-ahead, pyarrow would keep every byte in memory until the end (apache/arrow#39808)
        options = {"pre_buffer": False, "buffer_size": _BUFFER, "page_checksum_verification": True}
        table = pq.ParquetFile(str(source), **options)
    with table:
        fields = list(table.schema_arrow)
        positions = release.find([f.name for f in fields])
        for position in positions:
            _check_type(pa, fields[position])
            fields[position] = pa.field(fields[position].name, pa.int64())
        # the metadata of the file is not copied: it may reveal true counts
        schema = pa.schema([*fields, *(pa.field(name, pa.int64()) for name in release.added_names)])
        with pq.ParquetWriter(file, schema) as writer:
            for batch in _parquet_batches(pa, table, source):
                given = (batch.column(position) for position in positions)
                drawn = release.draw([_numbers(pa, release, i, column) for i, column in enumerate(given)])
                arrays = list(batch.columns)
                for position, (y, low, high) in zip(positions, drawn, strict=True):
                    arrays[position] = pa.array(y)
                    arrays += [pa.array(added) for added in (np.full_like(y, release.mechanism.margin_95), low, high)]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                progress(release.rows, table.metadata.num_rows)


def _check_type(pa: Any, column: Any) -> None:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        given = f"{plain(column.name)} of type {plain(str(column.type))}"
        raise ParameterError("column", given, "a column of integers, or of floats with whole values")


def _parquet_batches(pa: Any, table: Any, source: Path) -> Iterator[Any]:
    with _reading(source, pa.ArrowException):
        batches = table.iter_batches(batch_size=PARQUET_BATCH)
    while True:
        with _reading(source, pa.ArrowException):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _numbers(pa: Any, release: NoisyColumns, column: int, given: Any) -> NDArray[Any]:
    """The values of a Parquet column as numbers. NULLs become 0 if the release says so; otherwise they are refused.

    NaN is neither NULL nor a count, and is always refused.
    """
    if given.null_count:
        if not release.null_as_zero:
            index = int(np.flatnonzero(given.is_null().to_numpy(zero_copy_only=False))[0])
            raise release.refusal(column, index, "NULL", release.allowed_counts, "--null-as-zero counts it as 0")
        given = given.fill_null(pa.scalar(0, given.type))
    values: NDArray[Any] = given.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise release.refusal(column, int(np.isnan(values).argmax()), "NaN", release.allowed_counts)
    return values


# Files


Copy = Callable[[NoisyColumns, Path, BinaryIO, Progress], None]
_FORMATS: dict[str, Copy] = {".csv": _copy_csv, ".parquet": _copy_parquet}


def _format(source: str | Path, target: str | Path) -> Copy:
    given, wanted = Path(source).suffix.lower(), Path(target).suffix.lower()
    for argument, path, suffix in (("table", source, given), ("output", target, wanted)):
        if suffix not in _FORMATS:
            raise ParameterError(argument, str(path), f"a name that ends in {' or '.join(_FORMATS)}")
    if given != wanted:
        raise ParameterError("output", str(target), f"the format of the table, a name that ends in {given}")
    return _FORMATS[given]


def _check_paths(source: Path, target: str | Path) -> None:
    if not os.path.isfile(source):
        why = "this is not a file" if os.path.exists(source) else "there is no such file"
        raise ParameterError("table", str(source), f"the path of a CSV or Parquet file ({why})")
    if os.path.exists(target) and os.path.samefile(source, target):
        raise ParameterError("output", str(target), "a file other than the table; the true counts would be lost")
    if os.path.isdir(target):
        raise ParameterError("output", str(target), "a path that can be written (this is a folder)")


@contextmanager
def _reading(source: Path, *others: type[Exception]) -> Iterator[None]:
    """Report a failure to read the source as a ParameterError of one line."""
    expected: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except expected as error:
        kind = "Parquet" if others else "CSV"
        raise ParameterError("table", str(source), f"a {kind} file that can be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return plain(getattr(error, "strerror", None) or str(error) or type(error).__name__)
