"""Lines of fields: separators, quotes and padding, for tau-Argus and SAS files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from countveil.errors import shortened
from countveil.ptables.bounds import Entry
from countveil.ptables.lines import PTableError

_NUMBER = re.compile(r'[\s"]*[+-]?[\d.,]+([eE][+-]?\d+)?[\s"]*\Z', re.ASCII)


def separator(header: str) -> str:
    """The character between the fields, by the header: a semicolon, a comma or a tab."""
    return max(";,\t", key=header.count)


def fields(line: str, mark: str) -> list[str]:
    """The fields of a line, without blanks and quotes around them."""
    return [field.strip().strip('"').strip() for field in line.split(mark)]


def width(lines: list[str]) -> int:
    """How many fields the header has, 1 if it has no separator at all."""
    return len(fields(lines[0], separator(lines[0])))


SHOWN = {"upper": "p_ub", "lower": "p_lb"}


def entries(lines: list[str], names: tuple[str, ...]) -> Iterator[Entry]:
    """The entries below the header, whose names vary and are ignored, as the tools do; fields go by their place."""
    mark = separator(lines[0])
    header = fields(lines[0], mark)
    wanted = f"{len(names)}: " + ";".join(SHOWN.get(name, name) for name in names)
    if all(_NUMBER.match(name) for name in header):
        raise PTableError("the header is missing; the tools skip the first line", 1)
    if len(header) != len(names):
        raise PTableError(f"{len(header)} fields in the header, expected {wanted}", 1)
    for number, line in enumerate(lines[1:], start=2):
        found = fields(line, mark)
        if len(found) != len(names):
            seen = f"{len(found)} fields ({shortened(line, 40)})" if line.strip() else "a blank line"
            raise PTableError(f"{seen}, expected {wanted}", number)
        texts = dict(zip(names, found, strict=True))
        yield Entry(number, texts["i"], texts["j"], texts["upper"], texts.get("p"), texts.get("v"), texts.get("lower"))
