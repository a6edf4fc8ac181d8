"""P-tables of the cell-key method: judge the tables that statistical offices use, and hand them better ones.

    table        the one internal form: a law of the noise for each true count, as integers
    formats      detect, read and write: delimited (tau-Argus, SAS), cellkey (YAML), integer_keys
    lines, bounds  reading strictly, with line numbers
    measure      the exact delta of a table, in four readings
    audit        what a table protects, what that means, what breaks it
    program      the linear program of least delta; grid rounds its rows to what a file can hold
    design       the best table for D, V, pstay and js; R's table of largest entropy
    export       any mechanism of ours as a table

Whatever is said of a table is measured on the integers that are written, never on what was asked for.
"""

from __future__ import annotations

from pathlib import Path

from countveil.ptables.audit import Audit, audit
from countveil.ptables.design import Designed, design
from countveil.ptables.export import Exported, export
from countveil.ptables.formats import NAMES, format_named
from countveil.ptables.formats import read as _read
from countveil.ptables.formats import save as _save
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
    """The table of a file, in the format that its content shows unless one is named."""
    table, _ = _read(path, format)
    return table


def save(table: PTable, path: str | Path, format: str = "tau-argus") -> None:
    """Write a table whose rows are on the format's grid already, as those of `design` and `export` are."""
    _save(table, path, format_named(format))
