"""P-tables of the cell-key method: judge those of statistical offices, and make better ones.

    table         the internal form of every table: one law of the noise per true count, as integers
    formats       detect, read and write any of the formats
    delimited     the formats of tau-Argus and SAS
    cellkey       the YAML of R's cellKey
    integer_keys  the format with one line per count and cell key
    lines         strict parsing of lines and numbers; errors carry the line number
    bounds        rows given as cumulative upper bounds, as in files
    readings      the exact delta of a table in four readings
    audit         how much a table protects, in numbers and in sentences
    program       the linear program of least delta
    grid          rounds rows to the probabilities that a file can store
    design        the table of least delta for D, V, pstay and js; R's table of largest entropy
    export        a countveil mechanism as a p-table

All figures of a table are measured on the integers that are written, never copied from the request.
"""

from __future__ import annotations

from pathlib import Path

from countveil.ptables.audit import Audit, audit
from countveil.ptables.design import Designed, design
from countveil.ptables.export import Exported, export
from countveil.ptables.formats import NAMES, format_named, read as _read, save as _save
from countveil.ptables.lines import PTableError
from countveil.ptables.table import PTable, Row

__all__ = [
    "NAMES",
    "Audit",
    "Designed",
    "Exported",
    "PTable",
    "PTableError",
    "Row",
    "audit",
    "design",
    "export",
    "read",
    "save",
]


def read(path: str | Path, format: str | None = None) -> PTable:
    """Read a p-table file; without `format`, detect the format from the content."""
    table, _ = _read(path, format)
    return table


def save(table: PTable, path: str | Path, format: str = "tau-argus") -> None:
    """Write a table to a file; it must be rounded for the format, as `design` and `export` do."""
    _save(table, path, format_named(format))
