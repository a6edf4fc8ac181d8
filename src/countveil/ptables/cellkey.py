"""cellKey YAML (R): the columns of the table as lists below params, ptable; bounds are called lb and ub."""

from __future__ import annotations

from collections.abc import Iterator

from countveil.exact import Number
from countveil.ptables import yaml
from countveil.ptables.bounds import UNITS, Entry, cells, table_of
from countveil.ptables.lines import MOST_ENTRIES, PTableError, text_lines
from countveil.ptables.table import PTable

NAME = "cellkey"
WORDS = "cellKey YAML"
ENDING = ".yaml"
NEEDED = ("i", "j", "ub")
OPTIONAL = ("p", "v", "lb", "type")
_FIELDS = {"i": "i", "j": "j", "ub": "upper", "p": "p", "v": "v", "lb": "lower"}
_TAIL = "type: cnts\nversion: 1.0.2\nptype: params_cnts\n"


def fits(lines: list[str]) -> bool:
    """Whether the first line that says something is a key of YAML."""
    for line in lines[:50]:
        plain = line.strip()
        if plain and plain != "---" and not plain.startswith("#"):
            return ":" in plain and ";" not in plain and plain.split(":")[0].strip("\"' ").replace("_", "a").isalnum()
    return False


def parse(data: bytes) -> PTable:
    if data.count(b",") > 8 * MOST_ENTRIES:
        raise PTableError(f"lists of more than {MOST_ENTRIES} items; no p-table has so many")
    root = yaml.parse(text_lines(data))
    kind = root.keys.get("type")
    if kind is not None and kind.scalar is not None and kind.scalar.text != "cnts":
        raise PTableError(f"type is {kind.scalar.text[:30]}; only tables of counts (cnts) are read", kind.line)
    params = root.keys.get("params")
    node = params.keys.get("ptable") if params else None
    if node is None or not node.keys:
        raise PTableError("params, ptable is missing", params.line if params else 1)
    columns: dict[str, list[yaml.Scalar]] = {}
    for name in (*NEEDED, *OPTIONAL):
        column = node.keys.get(name)
        if column is None:
            if name in NEEDED:
                raise PTableError(f"the column {name} is missing", node.line)
            continue
        columns[name] = column.items if column.items is not None else [column.scalar] if column.scalar else []
        if len(columns[name]) != len(columns["i"]):
            counts = f"{len(columns[name])} items, but i has {len(columns['i'])}"
            raise PTableError(f"the column {name} has {counts}", column.line)
    for item in columns.get("type", []):
        if item.text != "all":
            raise PTableError(f"type is {item.text[:30]}; only type all is for counts", item.line)
    seen = [0]
    try:
        return table_of(_entries(columns, seen))
    except PTableError as error:
        raise PTableError(f"{error.reason} (item {seen[0]} of the lists)", error.line) from None


def _entries(columns: dict[str, list[yaml.Scalar]], seen: list[int]) -> Iterator[Entry]:
    """The entries, with the line of each field; `seen` counts them."""
    absent: list[yaml.Scalar | None] = [None] * len(columns["i"])
    for found in zip(*(columns.get(name, absent) for name in _FIELDS), strict=True):
        seen[0] += 1
        texts = {_FIELDS[name]: item.text for name, item in zip(_FIELDS, found, strict=True) if item}
        lines = {_FIELDS[name]: item.line for name, item in zip(_FIELDS, found, strict=True) if item}
        p, v, lower = (texts.get(name) for name in ("p", "v", "lower"))
        yield Entry(lines["i"], texts["i"], texts["j"], texts["upper"], p, v, lower, lines)


def units(keys: Number | None) -> int:
    return UNITS


def write(table: PTable) -> Iterator[str]:
    found = list(cells(table))
    yield "params:\n  ptable:\n"
    for name, values in (
        ("i", (str(cell.i) for cell in found)),
        ("j", (str(cell.j) for cell in found)),
        ("p", (_real(cell.p) for cell in found)),
        ("v", (str(cell.v) for cell in found)),
        ("lb", (_real(cell.lower) for cell in found)),
        ("ub", (_real(cell.upper) for cell in found)),
        ("type", ("all" for _ in found)),
    ):
        yield f"    {name}: [{', '.join(values)}]\n"
    yield _TAIL


def _real(text: str) -> str:
    """1 as 1.0, so that a column of numbers has one type."""
    return text if "." in text else text + ".0"
