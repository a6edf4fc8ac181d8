"""The formats of p-tables behind one interface: detect, read, write.

tau-argus   i;j;p;v;p_ub                  tau-Argus
sas         i;j;p;v;p_lb;p_ub             SAS programs
cellkey     YAML, columns as lists        R's cellKey
ons         pcv,ckey,pvalue               ONS, PyPI cell-key-perturbation
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from countveil.durable_files import open_output
from countveil.errors import ParameterError, shortened
from countveil.ptables import cellkey, integer_keys
from countveil.ptables.delimited import SAS, TAU_ARGUS
from countveil.ptables.lines import PTableError, read_bytes, text_lines
from countveil.ptables.table import PTable


class Format(Protocol):
    """What each format has: a module, or an object."""

    @property
    def NAME(self) -> str:
        """What users call it."""

    @property
    def WORDS(self) -> str:
        """Its name in a sentence."""

    def fits(self, lines: list[str]) -> bool:
        """Whether the first lines of a file look like it."""

    def parse(self, data: bytes) -> PTable:
        """The table of a file's content, or a PTableError that names the line."""

    def write(self, table: PTable) -> Iterator[str]:
        """The content of a file, in pieces."""


FORMATS: tuple[Format, ...] = (cellkey, integer_keys, TAU_ARGUS, SAS)
NAMES = tuple(sorted(fmt.NAME for fmt in FORMATS))


def format_named(name: object) -> Format:
    for fmt in FORMATS:
        if name == fmt.NAME:
            return fmt
    raise ParameterError("format", name, ", ".join(NAMES))


def detect(data: bytes) -> Format:
    """The format of a file's content, by its header."""
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
    """The table of a file and its format, found by its content unless it is named; errors name file and line."""
    try:
        data = read_bytes(path)
        fmt = detect(data) if format is None else format_named(format)
        return fmt.parse(data), fmt
    except PTableError as error:
        raise PTableError(error.reason, error.line, shortened(str(path), 200)) from None


def save(table: PTable, path: str | Path, fmt: Format) -> None:
    """Write a file; it takes its name when it is complete."""
    with open_output(path) as file:
        file.writelines(piece.encode() for piece in fmt.write(table))
