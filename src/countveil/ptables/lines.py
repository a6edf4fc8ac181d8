"""Read text files within size limits and parse their numbers strictly; errors name the line.

The size and the number of lines are checked before anything is parsed, so a file of 10^7 lines is refused in a fraction
of a second with at most `LARGEST_FILE` bytes of memory.
"""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path

from countveil.errors import CertificateError, shorten

LARGEST_FILE = 128 * 1024 * 1024
LARGEST_LINES = 4_000_000
"""The most lines of any file: enough for 750 rows of 4096 cell keys."""
MOST_ENTRIES = 300_000
"""The most entries of a text file: enough for noise up to some hundreds in as many rows."""
MOST_CELLS = 1_000_000
"""The most published counts that all rows together may span, because a few lines of a file can span very many."""
LARGEST_COUNT = 1_000_000
MOST_DIGITS = 40
"""The most decimals of a bound; more are a mistake and would slow down all arithmetic."""

_LONGEST = 100
_INTEGER = re.compile(r"[+-]?\d{1,15}(\.0{0,15})?\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE]([+-]?\d{1,4}))?\Z", re.ASCII)


class PTableError(CertificateError):
    """A p-table file is invalid; `line` counts from 1 and is None if the error concerns the whole file."""

    def __init__(self, reason: str, line: int | None = None, path: object = None) -> None:
        self.reason = reason
        self.line = line
        where = [str(path)] if path is not None else []
        where += [f"line {line}"] if line is not None else []
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file without byte-order mark; raises PTableError if it is too large or has too many lines."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > LARGEST_FILE else file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise PTableError(f"cannot be read ({error.strerror}); give the path of a p-table") from None
    except (ValueError, TypeError):
        raise PTableError("cannot be read; give the path of a p-table") from None
    if size > LARGEST_FILE or len(data) > LARGEST_FILE:
        raise PTableError(f"larger than {LARGEST_FILE >> 20} MB, the limit for a p-table")
    check_lines(data, LARGEST_LINES)
    return data.removeprefix(b"\xef\xbb\xbf")


def check_lines(data: bytes, limit: int) -> None:
    """Raise PTableError if there are more than `limit` lines."""
    if max(data.count(b"\n"), data.count(b"\r")) > limit:
        raise PTableError(f"more than {limit} lines, the limit for a p-table of this format", limit + 1)


def text_lines(data: bytes, limit: int = 8 * MOST_ENTRIES) -> list[str]:
    """Decode UTF-8 and split into lines, without blank lines at the end; raises PTableError if nothing is left."""
    check_lines(data, limit)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PTableError("not a UTF-8 text file", data.count(b"\n", 0, error.start) + 1) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise PTableError("the file is empty")
    return lines


def whole(name: str, text: str, line: int, low: int = 0, high: int = LARGEST_COUNT) -> int:
    """Parse a whole number from low to high, which may be padded or quoted; an error names the field and the line."""
    plain = text.strip().strip('"').strip()
    if not _INTEGER.match(plain):
        raise PTableError(f"{name} is {shorten(text, 30)}, not a whole number", line)
    value = int(plain.split(".")[0])
    if not low <= value <= high:
        problem = "is negative" if value < 0 <= low else f"is outside {low}..{high}"
        raise PTableError(f"{name} {value} {problem}", line)
    return value


def probability(name: str, text: str, line: int) -> tuple[int, int]:
    """Parse a decimal number from 0 to 1, exactly, as a pair (digits, decimals).

    Its value is digits / 10**decimals.
    """
    plain = text.strip().strip('"').strip()
    match = _DECIMAL.match(plain) if len(plain) <= _LONGEST else None
    if not match:
        raise PTableError(f"{name} is {shorten(text, 30)}, not a number", line)
    figures = match.group(1).replace(",", ".")
    before, _, after = figures.partition(".")
    decimals = len(after) - int(match.group(2) or 0)
    digits = int(before + after or "0")
    if digits:
        while digits % 10 == 0:
            digits, decimals = digits // 10, decimals - 1
    else:
        decimals = 0
    if decimals < 0:
        digits, decimals = (digits * 10**-decimals, 0) if decimals >= -2 else (2, 0)  # above 1 in any case
    if decimals > MOST_DIGITS:
        raise PTableError(f"{name} has more than {MOST_DIGITS} decimals", line)
    if (plain.startswith("-") and digits) or digits > 10**decimals:
        raise PTableError(f"{name} is {shorten(text, 30)}, not a probability from 0 to 1", line)
    return digits, decimals


def fraction(value: tuple[int, int]) -> Fraction:
    return Fraction(value[0], 10 ** value[1])
