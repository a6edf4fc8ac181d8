"""P-tables of R's cellKey, in YAML: each column of the table is a list under params: ptable:.

The columns are i (true count), j (published count), p (probability), v = j - i, and the cumulative bounds lb and ub.
PyYAML parses the syntax; every scalar keeps its text and its line. Mappings, scalars and lists of scalars are accepted;
anchors, aliases, tags and duplicate YAML keys are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from countveil.errors import MissingExtraError, shorten
from countveil.ptables.bounds import CellEntry, cells, table_of
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
class YamlNode:
    """The value of a YAML key: a scalar, a list of scalars, or a mapping; `line` is where the YAML key stands."""

    line: int
    value: Scalar | list[Scalar] | dict[str, YamlNode]

    @property
    def keys(self) -> dict[str, YamlNode]:
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Scalar]:
        """The scalars of a list; a single scalar counts as a list of one, a mapping as an empty list."""
        if isinstance(self.value, Scalar):
            return [self.value]
        return self.value if isinstance(self.value, list) else []


def read_yaml(lines: list[str]) -> YamlNode:
    """Parse a YAML document that is a mapping; raises PTableError with the line of an error."""
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
            raise PTableError("the list is not closed; add ]", context.line + 1) from None
        mark = context if context and str(error.context).startswith("while scanning") else problem
        raise _syntax_error(lines, mark.line + 1) from None
    except PTableError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError):  # the last two for escapes beyond Unicode
        raise PTableError("the file has characters that YAML does not allow") from None
    if not isinstance(root.value, dict):
        raise _syntax_error(lines, root.line)
    return root


def _syntax_error(lines: list[str], line: int) -> PTableError:
    line = min(line, len(lines))
    return PTableError(f"not valid YAML for a p-table: {shorten(lines[line - 1], 40)}", line)


class _Reader:
    """Builds the nodes of a document from PyYAML's events one by one: an error ends it before the rest is parsed."""

    def __init__(self, yaml: Any, text: str) -> None:
        self.yaml = yaml
        self.events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def document(self) -> YamlNode:
        next(self.events)  # start of the stream
        start = next(self.events)
        if isinstance(start, self.yaml.StreamEndEvent):
            return YamlNode(1, [])
        root = self.node(self.next_event(), 1, 0)
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, self.yaml.StreamEndEvent):
            raise PTableError("a second YAML document; only one is allowed", after.start_mark.line + 1)
        return root

    def next_event(self) -> Any:
        """The next event of PyYAML; raises PTableError if it has an anchor or a tag, or is an alias."""
        event = next(self.events)
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise PTableError(
                "an anchor, alias or tag is not allowed; write the value itself", event.start_mark.line + 1
            )
        return event

    def node(self, event: Any, line: int, depth: int) -> YamlNode:
        if isinstance(event, self.yaml.ScalarEvent):
            return YamlNode(line, Scalar(event.value, event.start_mark.line + 1))
        if isinstance(event, self.yaml.SequenceStartEvent):
            return YamlNode(line, self.sequence())
        if depth > DEEPEST:
            raise PTableError(f"the YAML is nested deeper than {DEEPEST} levels", event.start_mark.line + 1)
        return YamlNode(line, self.mapping(depth))

    def sequence(self) -> list[Scalar]:
        scalars = []
        while not isinstance(event := self.next_event(), self.yaml.SequenceEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, self.yaml.ScalarEvent):
                raise PTableError("a list inside a list; only scalars are allowed there", line)
            if event.end_mark.line >= line:
                raise PTableError("a comma is missing at the end of the previous line", line + 1)
            scalars.append(Scalar(event.value, line))
        return scalars

    def mapping(self, depth: int) -> dict[str, YamlNode]:
        nodes: dict[str, YamlNode] = {}
        while not isinstance(key := self.next_event(), self.yaml.MappingEndEvent):
            line = key.start_mark.line + 1
            if not isinstance(key, self.yaml.ScalarEvent):
                raise PTableError("a YAML key is not text", line)
            if key.value in nodes:
                raise PTableError(f"the YAML key {shorten(key.value, 40)} occurs twice", line)
            nodes[key.value] = self.node(self.next_event(), line, depth + 1)
        return nodes


def fits(lines: list[str]) -> bool:
    """Whether a file may be YAML: its first line that is neither blank nor a comment starts with a YAML key."""
    for line in lines[:50]:
        plain = line.strip()
        if plain and plain != "---" and not plain.startswith("#"):
            return ":" in plain and ";" not in plain and plain.split(":")[0].strip("\"' ").replace("_", "a").isalnum()
    return False


def parse(data: bytes) -> PTable:
    if data.count(b",") > 8 * MOST_ENTRIES:
        raise PTableError(f"the lists have more than {MOST_ENTRIES} items, which is the limit for a p-table")
    root = read_yaml(text_lines(data))
    kind = root.keys.get("type")
    if kind is not None and isinstance(kind.value, Scalar) and kind.value.text != "cnts":
        raise PTableError(
            f"type is {shorten(kind.value.text, 30)}; only tables of counts (type cnts) can be read", kind.line
        )
    params = root.keys.get("params")
    node = params.keys.get("ptable") if params else None
    if node is None or not node.keys:
        raise PTableError("the mapping ptable is missing under params", params.line if params else 1)
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
            raise PTableError(f"type is {shorten(item.text, 30)}; only type all is allowed for counts", item.line)
    item_count = [0]
    try:
        return table_of(_entries(columns, item_count))
    except PTableError as error:
        raise PTableError(f"{error.reason} (item {item_count[0]} of the lists)", error.line) from None


def _entries(columns: dict[str, list[Scalar]], item_count: list[int]) -> Iterator[CellEntry]:
    """Yield the entries of the table, each field with its line; `item_count[0]` counts the entries yielded so far."""
    absent: list[Scalar | None] = [None] * len(columns["i"])
    for items in zip(*(columns.get(name, absent) for name in _FIELDS), strict=True):
        item_count[0] += 1
        texts = {_FIELDS[name]: item.text for name, item in zip(_FIELDS, items, strict=True) if item}
        lines = {_FIELDS[name]: item.line for name, item in zip(_FIELDS, items, strict=True) if item}
        p, v, lower = (texts.get(name) for name in ("p", "v", "lower"))
        yield CellEntry(lines["i"], texts["i"], texts["j"], texts["upper"], p, v, lower, lines)


def write(table: PTable) -> Iterator[str]:
    entries = list(cells(table))
    yield "params:\n  ptable:\n"
    for name in ("i", "j", "p", "v", "lb", "ub"):
        values = (cell[_FIELDS[name]] for cell in entries)
        yield f"    {name}: [{', '.join(values if name in _WHOLE else map(_real, values))}]\n"
    yield f"    type: [{', '.join(['all'] * len(entries))}]\n{_TAIL}"


def _real(text: str) -> str:
    """The text of a number, with .0 added to a whole number, so that all numbers of a column have one type."""
    return text if "." in text else text + ".0"
