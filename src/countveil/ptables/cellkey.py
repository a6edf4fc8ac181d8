"""cellKey YAML (R): the columns of the table as lists below params, ptable; bounds are called lb and ub.

PyYAML reads the syntax, and every scalar stays the text that it is in the file, with its line. Mappings, scalars and
lists of scalars are read; anchors, aliases, tags and keys that occur twice are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from countveil.errors import MissingExtraError, shortened
from countveil.ptables.bounds import Entry, cells, table_of
from countveil.ptables.lines import MOST_ENTRIES, PTableError, text_lines
from countveil.ptables.table import PTable

NAME = "cellkey"
WORDS = "cellKey YAML"
NEEDED = ("i", "j", "ub")
OPTIONAL = ("p", "v", "lb", "type")
DEEPEST = 8
_FIELDS = {"i": "i", "j": "j", "ub": "upper", "p": "p", "v": "v", "lb": "lower"}
_WHOLE = ("i", "j", "v")
_TAIL = "type: cnts\nversion: 1.0.2\nptype: params_cnts\n"


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Node:
    """What a key has: a scalar, a list of scalars, or a mapping; `line` is the line of the key."""

    line: int
    value: Scalar | list[Scalar] | dict[str, Node]

    @property
    def keys(self) -> dict[str, Node]:
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Scalar]:
        """The scalars of a column; a list of one may be written without brackets."""
        if isinstance(self.value, Scalar):
            return [self.value]
        return self.value if isinstance(self.value, list) else []


def read_yaml(lines: list[str]) -> Node:
    """The mapping of a document, or a PTableError that names the line."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise MissingExtraError("PyYAML, which reads cellKey files,", "ptables") from None
    try:
        reader = _Reader(yaml, "\n".join(lines) + "\n")
        root = reader.document()
    except yaml.MarkedYAMLError as error:
        context, problem = error.context_mark, error.problem_mark
        if error.context == "while parsing a flow sequence" and problem.line >= len(lines):
            raise PTableError("the list has no end", context.line + 1) from None
        mark = context if context and str(error.context).startswith("while scanning") else problem
        raise _not_understood(lines, mark.line + 1) from None
    except PTableError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError):  # the last two for escapes beyond Unicode
        raise PTableError("characters that YAML does not allow") from None
    if not isinstance(root.value, dict):
        raise _not_understood(lines, root.line)
    return root


def _not_understood(lines: list[str], line: int) -> PTableError:
    line = min(line, len(lines))
    return PTableError(f"not understood: {shortened(lines[line - 1], 40)}", line)


class _Reader:
    """Values from PyYAML's events, one after another, so that a refusal comes before the rest is read."""

    def __init__(self, yaml: Any, text: str) -> None:
        self.yaml = yaml
        self.events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def document(self) -> Node:
        next(self.events)  # the stream starts
        start = next(self.events)
        if isinstance(start, self.yaml.StreamEndEvent):
            return Node(1, [])
        root = self.node(self.checked(), 1, 0)
        next(self.events)  # the document ends
        after = next(self.events)
        if not isinstance(after, self.yaml.StreamEndEvent):
            raise PTableError("a second document", after.start_mark.line + 1)
        return root

    def checked(self) -> Any:
        """The next event, if it says something by itself."""
        event = next(self.events)
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise PTableError("an anchor, alias or tag; write the value itself", event.start_mark.line + 1)
        return event

    def node(self, event: Any, line: int, depth: int) -> Node:
        if isinstance(event, self.yaml.ScalarEvent):
            return Node(line, Scalar(event.value, event.start_mark.line + 1))
        if isinstance(event, self.yaml.SequenceStartEvent):
            return Node(line, self.sequence())
        if depth > DEEPEST:
            raise PTableError(f"nested deeper than {DEEPEST}", event.start_mark.line + 1)
        return Node(line, self.mapping(depth))

    def sequence(self) -> list[Scalar]:
        found = []
        while not isinstance(event := self.checked(), self.yaml.SequenceEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, self.yaml.ScalarEvent):
                raise PTableError("a list inside a list", line)
            if event.end_mark.line >= line:
                raise PTableError("a comma is missing at the end of the line before", line + 1)
            found.append(Scalar(event.value, line))
        return found

    def mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not isinstance(key := self.checked(), self.yaml.MappingEndEvent):
            line = key.start_mark.line + 1
            if not isinstance(key, self.yaml.ScalarEvent):
                raise PTableError("a key that is no text", line)
            if key.value in found:
                raise PTableError(f"{shortened(key.value, 40)} occurs twice", line)
            found[key.value] = self.node(self.checked(), line, depth + 1)
        return found


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
    root = read_yaml(text_lines(data))
    kind = root.keys.get("type")
    if kind is not None and isinstance(kind.value, Scalar) and kind.value.text != "cnts":
        raise PTableError(f"type is {shortened(kind.value.text, 30)}; only tables of counts (cnts) are read", kind.line)
    params = root.keys.get("params")
    node = params.keys.get("ptable") if params else None
    if node is None or not node.keys:
        raise PTableError("params, ptable is missing", params.line if params else 1)
    columns: dict[str, list[Scalar]] = {}
    for name in (*NEEDED, *OPTIONAL):
        column = node.keys.get(name)
        if column is None:
            if name in NEEDED:
                raise PTableError(f"the column {name} is missing", node.line)
            continue
        columns[name] = column.items
        if len(columns[name]) != len(columns["i"]):
            counts = f"{len(columns[name])} items, but i has {len(columns['i'])}"
            raise PTableError(f"the column {name} has {counts}", column.line)
    for item in columns.get("type", []):
        if item.text != "all":
            raise PTableError(f"type is {shortened(item.text, 30)}; only type all is for counts", item.line)
    seen = [0]
    try:
        return table_of(_entries(columns, seen))
    except PTableError as error:
        raise PTableError(f"{error.reason} (item {seen[0]} of the lists)", error.line) from None


def _entries(columns: dict[str, list[Scalar]], seen: list[int]) -> Iterator[Entry]:
    """The entries, with the line of each field; `seen` counts them."""
    absent: list[Scalar | None] = [None] * len(columns["i"])
    for found in zip(*(columns.get(name, absent) for name in _FIELDS), strict=True):
        seen[0] += 1
        texts = {_FIELDS[name]: item.text for name, item in zip(_FIELDS, found, strict=True) if item}
        lines = {_FIELDS[name]: item.line for name, item in zip(_FIELDS, found, strict=True) if item}
        p, v, lower = (texts.get(name) for name in ("p", "v", "lower"))
        yield Entry(lines["i"], texts["i"], texts["j"], texts["upper"], p, v, lower, lines)


def write(table: PTable) -> Iterator[str]:
    found = list(cells(table))
    yield "params:\n  ptable:\n"
    for name in ("i", "j", "p", "v", "lb", "ub"):
        values = (cell[_FIELDS[name]] for cell in found)
        yield f"    {name}: [{', '.join(values if name in _WHOLE else map(_real, values))}]\n"
    yield f"    type: [{', '.join(['all'] * len(found))}]\n{_TAIL}"


def _real(text: str) -> str:
    """1 as 1.0, so that a column of numbers has one type."""
    return text if "." in text else text + ".0"
