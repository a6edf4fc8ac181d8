"""tau-Argus text: i;j;p;v;p_ub, semicolons and decimal points below one header line.

i;j;p;v;p_int_ub
0;0;1;0;1
1;0;0.73446954;-1;0.73446954
"""

from __future__ import annotations

from collections.abc import Iterator

from countveil.exact import Number
from countveil.ptables.bounds import UNITS, cells, table_of
from countveil.ptables.delimited import entries, width
from countveil.ptables.lines import MOST_ENTRIES, text_lines
from countveil.ptables.table import PTable

NAME = "tau-argus"
WORDS = "tau-Argus text"
ENDING = ".txt"
FIELDS = ("i", "j", "p", "v", "upper")


def fits(lines: list[str]) -> bool:
    return width(lines) == len(FIELDS)


def parse(data: bytes) -> PTable:
    return table_of(entries(text_lines(data, MOST_ENTRIES + 1), FIELDS))


def units(keys: Number | None) -> int:
    return UNITS


def write(table: PTable) -> Iterator[str]:
    yield "i;j;p;v;p_int_ub\n"
    for cell in cells(table):
        yield f"{cell.i};{cell.j};{cell.p};{cell.v};{cell.upper}\n"
