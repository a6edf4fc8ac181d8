"""P-tables as delimited text with one header line, the format of tau-Argus and SAS files.

Fields are separated by semicolons, commas or tabs, and may be quoted or padded: i is the true count, j the published
count, p the probability, v = j - i; the others are cumulative lower and upper bounds.

tau-argus   i;j;p;v;p_int_ub              0;0;1;0;1
sas         i;j;p;v;p_int_lb;p_int_ub     0;0;1;0;0;1
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from countveil.errors import shorten
from countveil.ptables.bounds import CellEntry, cells, table_of
from countveil.ptables.lines import MOST_ENTRIES, PTableError, text_lines
from countveil.ptables.table import PTable

_NUMBER = re.compile(r'[\s"]*[+-]?[\d.,]+([eE][+-]?\d+)?[\s"]*\Z', re.ASCII)


def separator(header: str) -> str:
    """The field separator of a header line: a semicolon, a comma or a tab."""
    return max(";,\t", key=header.count)


def fields(line: str, mark: str) -> list[str]:
    """The fields of a line, without surrounding blanks and quotes."""
    return [field.strip().strip('"').strip() for field in line.split(mark)]


SHOWN = {"upper": "p_ub", "lower": "p_lb"}


def entries(lines: list[str], names: tuple[str, ...]) -> Iterator[CellEntry]:
    """Yield the entries below the header line.

    Fields are identified by position; like the tools, this ignores the names in the header.
    """
    mark = separator(lines[0])
    header = fields(lines[0], mark)
    wanted = f"{len(names)}: " + ";".join(SHOWN.get(name, name) for name in names)
    if all(_NUMBER.match(name) for name in header):
        raise PTableError("the header is missing; the tools skip the first line, so add a header line", 1)
    if len(header) != len(names):
        raise PTableError(f"the header has {len(header)} fields, expected {wanted}", 1)
    for number, line in enumerate(lines[1:], start=2):
        values = fields(line, mark)
        if len(values) != len(names):
            content = f"{len(values)} fields ({shorten(line, 40)})" if line.strip() else "a blank line"
            raise PTableError(f"{content}, expected {wanted}", number)
        texts = dict(zip(names, values, strict=True))
        yield CellEntry(
            number, texts["i"], texts["j"], texts["upper"], texts.get("p"), texts.get("v"), texts.get("lower")
        )


@dataclass(frozen=True)
class Delimited:
    """A text format with one line per entry; `FIELDS` are the names of its fields in file order."""

    NAME: str
    WORDS: str
    FIELDS: tuple[str, ...]

    def fits(self, lines: list[str]) -> bool:
        return len(fields(lines[0], separator(lines[0]))) == len(self.FIELDS)

    def parse(self, data: bytes) -> PTable:
        return table_of(entries(text_lines(data, MOST_ENTRIES + 1), self.FIELDS))

    def write(self, table: PTable) -> Iterator[str]:
        yield ";".join(_HEADER.get(name, name) for name in self.FIELDS) + "\n"
        for cell in cells(table):
            yield ";".join(cell[name] for name in self.FIELDS) + "\n"


_HEADER = {"upper": "p_int_ub", "lower": "p_int_lb"}
TAU_ARGUS = Delimited("tau-argus", "tau-Argus text", ("i", "j", "p", "v", "upper"))
SAS = Delimited("sas", "SAS", ("i", "j", "p", "v", "lower", "upper"))
