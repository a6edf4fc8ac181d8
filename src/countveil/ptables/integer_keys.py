"""P-tables with integer cell keys (ONS, PyPI `cell-key-perturbation`).

A file has a line pcv,ckey,pvalue for each true count pcv in 1..750 and cell key ckey in 0..K-1. The tool adds pvalue to
a count whose cell has this cell key. It sets K = max(ckey) + 1, adds no noise where a pair is missing, and uses row ((n
- 1) mod 250) + 501 for counts n above 750: the last 250 rows in turn. A count of 0 has no row.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

from countveil.errors import ParameterError
from countveil.numeric.exact_numbers import Number, integer
from countveil.ptables.delimited import fields, separator
from countveil.ptables.lines import LARGEST_LINES, PTableError, text_lines, whole
from countveil.ptables.table import PTable, Row

NAME = "ons"
WORDS = "ONS integer keys"
FIELDS = ("pcv", "ckey", "pvalue")
ROWS = 750
REPEAT = 250
KEYS = 4096
LARGEST_KEYS = 5000
LARGEST_NOISE = 10_000


def fits(lines: list[str]) -> bool:
    header = [name.lower() for name in fields(lines[0], separator(lines[0]))]
    return sorted(header) == sorted(FIELDS)


def parse(data: bytes) -> PTable:
    import numpy as np

    table = _numbers(data)
    pcv, ckey, pvalue = table[:, 0], table[:, 1], table[:, 2]
    for name, column, low, high in (
        ("pcv", pcv, 1, ROWS),
        ("ckey", ckey, 0, LARGEST_KEYS - 1),
        ("pvalue", pvalue, -LARGEST_NOISE, LARGEST_NOISE),
    ):
        _refuse_where(column < low, f"{name} is below {low}" + (_ZERO if name == "pcv" else ""))
        _refuse_where(column > high, f"{name} is above {high}")
    _refuse_where(pcv + pvalue < 0, "the published count pcv + pvalue is negative")
    keys = int(ckey.max()) + 1
    pairs = pcv * keys + ckey
    order = np.argsort(pairs, kind="stable")
    is_duplicate = np.zeros(len(pairs), dtype=bool)
    is_duplicate[order[1:]] = pairs[order[1:]] == pairs[order[:-1]]
    _refuse_where(is_duplicate, "this pair of pcv and ckey occurs twice")
    present = np.bincount(pcv, minlength=ROWS + 1)
    if (gaps := np.flatnonzero(present[1:] == 0)).size:
        gap = int(gaps[0]) + 1
        _refuse_where(pcv > gap, f"pcv {gap} is missing; the tool would add no noise to that count")
        raise PTableError(f"the last pcv is {gap - 1}, not {ROWS}; the tool would add no noise above it", len(pcv) + 1)
    low = int(pvalue.min())
    width = max(int(pvalue.max()), 0) - min(low, 0) + 1
    low = min(low, 0)
    counts = np.bincount(pcv * width + (pvalue - low), minlength=(ROWS + 1) * width).reshape(ROWS + 1, width)
    counts[:, -low] += keys - present  # no noise where a pair is missing
    rows = [Row.of(dict(enumerate(map(int, row), start=low)), keys) for row in counts[1:]]
    missing = ROWS * keys - len(pcv)
    notes = (
        (f"{missing} of {ROWS * keys} pairs of pcv and ckey are missing; the tool adds no noise for them",)
        if missing
        else ()
    )
    return PTable((Row(0, (keys,), keys), *rows), repeat=REPEAT, keys=keys, notes=notes)


_ZERO = "; empty cells all have cell key 0, so the tool adds no noise to them"


def _numbers(data: bytes) -> Any:
    """The three columns of a file as integers, in the order of FIELDS, parsed by numpy in one call."""
    import numpy as np

    end = data.find(b"\n")
    header = text_lines(data[: end if end >= 0 else len(data)])[0]
    mark = separator(header)
    names = [name.lower() for name in fields(header, mark)]
    if sorted(names) != sorted(FIELDS):
        raise PTableError(f"the header must be {','.join(FIELDS)}", 1)
    body = data[end + 1 :] if end >= 0 else b""
    if not body.strip():
        raise PTableError("the file has no rows", 2)
    lines = body.rstrip().count(b"\n") + 1
    plain = body.replace(b'"', b"") if b'"' in body else body
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            numbers = np.loadtxt(io.BytesIO(plain), delimiter=mark, dtype=np.int64, comments=None, ndmin=2)
        if numbers.shape == (lines, len(FIELDS)):
            return numbers[:, [names.index(name) for name in FIELDS]]
    except (ValueError, OverflowError, UserWarning, UnicodeDecodeError):
        pass
    raise _first_fault(data, mark, names)


def _first_fault(data: bytes, mark: str, names: list[str]) -> PTableError:
    """The error in the first line of a file that numpy could not read."""
    for number, line in enumerate(text_lines(data, LARGEST_LINES)[1:], start=2):
        texts = fields(line, mark)
        if len(texts) != len(FIELDS):
            return PTableError(f"{len(texts)} fields, expected {mark.join(names)}", number)
        for name, text in zip(names, texts, strict=True):
            try:
                whole(name, text, number, -(10**15), 10**15)
            except PTableError as error:
                return error
            if "." in text or "+" in text:
                return PTableError(f"{name} is {text[:30]}, not a plain whole number", number)
    return PTableError("every line must have three whole numbers")


def _refuse_where(where: Any, reason: str) -> None:
    if where.any():
        raise PTableError(reason, int(where.argmax()) + 2)


def units(keys: Number | None) -> int:
    """The number of cell keys, checked; it is the total of every row."""
    return integer("keys", KEYS if keys is None else keys, 2, LARGEST_KEYS, "the tool's own tables have 256 or 4096")


def write(table: PTable) -> Iterator[str]:
    """Yield the lines of a table's file for the counts 1..750; noise ascends with the cell key."""
    if table.last > ROWS:
        raise ParameterError(
            "table", f"{table.last} rows", f"at most {ROWS} rows in format {NAME}", "use another format"
        )
    yield '"pcv","ckey","pvalue"\n'
    for i in range(1, ROWS + 1):
        noise = [v for v, w in table.row(i).items() for _ in range(w)]
        yield "".join(f"{i},{key},{v}\n" for key, v in enumerate(noise))
