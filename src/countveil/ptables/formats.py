"""The formats of p-tables behind one interface: detect, read, write.

i is the true count, j the published count, v = j - i, p the probability, p_lb and p_ub are cumulative bounds.

tau-argus   i;j;p;v;p_ub                  tau-Argus
sas         i;j;p;v;p_lb;p_ub             SAS programs
cellkey     YAML, columns as lists        R's cellKey
ons         pcv,ckey,pvalue               ONS, PyPI cell-key-perturbation
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from countveil.errors import ParameterError, shorten
from countveil.files.durable_files import open_output
from countveil.ptables import cellkey, integer_keys
from countveil.ptables.delimited import SAS, TAU_ARGUS
from countveil.ptables.lines import PTableError, read_bytes, text_lines
from countveil.ptables.table import PTable


class Format(Protocol):
    """The interface of a format; a module or an object can implement it."""

    @property
    def NAME(self) -> str:
        """The name of the format as the option `--format` takes it."""

    @property
    def WORDS(self) -> str:
        """The name of the format as it is written in a sentence."""

    def fits(self, lines: list[str]) -> bool:
        """Whether the first lines of a file look like this format."""

    def parse(self, data: bytes) -> PTable:
        """The table in the content of a file; raises PTableError with the line of an error."""

    def write(self, table: PTable) -> Iterator[str]:
        """Yield the content of a table's file in pieces."""


FORMATS: tuple[Format, ...] = (cellkey, integer_keys, TAU_ARGUS, SAS)
NAMES = tuple(sorted(fmt.NAME for fmt in FORMATS))


def format_named(name: object) -> Format:
    for fmt in FORMATS:
        if name == fmt.NAME:
            return fmt
    raise ParameterError("format", name, ", ".join(NAMES))


def detect(data: bytes) -> Format:
    """The format of a file, detected from its header."""
    head = text_lines(data[: data.rfind(b"\n", 0, 65536)] if len(data) > 65536 else data)
    for fmt in FORMATS:
        if fmt.fits(head):
            return fmt
    raise PTableError(
        "not a p-table: expected the header i;j;p;v;p_ub (tau-Argus), i;j;p;v;p_lb;p_ub (SAS), pcv,ckey,pvalue (ONS), "
        "or params: (cellKey)",
        1,
    )


def read(path: str | Path, format: str | None = None) -> tuple[PTable, Format]:
    """Read a table and its format, which is detected unless given; errors name the file and the line."""
    try:
        data = read_bytes(path)
        fmt = detect(data) if format is None else format_named(format)
        return fmt.parse(data), fmt
    except PTableError as error:
        raise PTableError(error.reason, error.line, shorten(str(path), 200)) from None


def save(table: PTable, path: str | Path, fmt: Format) -> None:
    """Write a table to a file, which appears under its name only when it is complete."""
    with open_output(path) as file:
        file.writelines(piece.encode() for piece in fmt.write(table))
