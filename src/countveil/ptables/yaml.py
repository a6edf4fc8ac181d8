"""The little of YAML that cellKey files need: mappings by indentation, scalars, and lists of scalars.

Lists are written in brackets (on one line or several) or as lines of "- item". Anchors, tags, block scalars, nested
lists and everything else are refused. Every scalar keeps its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from countveil.errors import shortened
from countveil.ptables.lines import PTableError

_KEY = re.compile(r"[A-Za-z_.][\w.\- ]{0,60}\Z", re.ASCII)
DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    line: int


@dataclass(slots=True)
class Node:
    """A mapping, a list or a scalar that a key has; one of the three."""

    line: int
    keys: dict[str, Node] = field(default_factory=dict)
    items: list[Scalar] | None = None
    scalar: Scalar | None = None


def parse(lines: list[str]) -> Node:
    """The mapping of a document."""
    reader = _Reader(lines)
    root = Node(1)
    reader.mapping(root, 0, 0)
    if reader.at < len(lines):
        raise PTableError(f"not understood: {shortened(lines[reader.at], 40)}", reader.at + 1)
    return root


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def _skip(self) -> None:
        """Past blank lines, comments and the mark of a document's start."""
        while self.at < len(self.lines):
            plain = self.lines[self.at].strip()
            if plain and not plain.startswith("#") and not (plain == "---" and self.at < 20):
                return
            self.at += 1

    def mapping(self, node: Node, indent: int, depth: int) -> None:
        """The keys that begin at this indentation."""
        if depth > DEEPEST:
            raise PTableError(f"nested deeper than {DEEPEST}", self.at + 1)
        while True:
            self._skip()
            if self.at == len(self.lines):
                return
            line = self.lines[self.at]
            name, colon, rest = line.strip().partition(":")
            name = _unquoted(name.strip())
            if not colon or (rest and rest[0] != " ") or not _KEY.match(name):
                return
            if len(line) - len(line.lstrip(" ")) != indent:
                return
            if name in node.keys:
                raise PTableError(f"{name} occurs twice", self.at + 1)
            node.keys[name] = child = Node(self.at + 1)
            rest = _uncommented(rest.strip())
            self.at += 1
            if rest.startswith("["):
                child.items = self._bracketed(rest)
            elif rest:
                child.scalar = Scalar(_unquoted(rest), child.line)
            else:
                self._block(child, indent, depth)

    def _block(self, node: Node, indent: int, depth: int) -> None:
        """What stands below a key: lines of "- item", or a mapping with more indentation."""
        self._skip()
        if self.at == len(self.lines):
            return
        line = self.lines[self.at]
        deeper = len(line) - len(line.lstrip(" "))
        if deeper >= indent and line.lstrip(" ").startswith("- "):
            self._dashes(node, deeper)
        elif deeper > indent:
            self.mapping(node, deeper, depth + 1)

    def _dashes(self, node: Node, indent: int) -> None:
        start = " " * indent + "- "
        node.items = []
        while self.at < len(self.lines) and self.lines[self.at].startswith(start):
            text = _uncommented(self.lines[self.at][len(start) :].strip())
            if text.startswith(("[", "{", "- ")):
                raise PTableError("a list inside a list", self.at + 1)
            node.items.append(Scalar(_unquoted(text), self.at + 1))
            self.at += 1

    def _bracketed(self, rest: str) -> list[Scalar]:
        """A list in brackets that began on the line before `at`."""
        first = self.at
        items: list[Scalar] = []
        number, text, dangling = first, rest[1:], False
        while True:
            body, end, after = text.partition("]")
            if "[" in body or "{" in body or (end and after.strip()):
                raise PTableError("a list inside a list, or something after its end", number)
            pieces = [_unquoted(piece.strip()) for piece in body.split(",")]
            if not pieces[-1]:
                pieces.pop()
            if any(not piece for piece in pieces):
                raise PTableError("an empty item in a list", number)
            if pieces and dangling:
                raise PTableError("a comma is missing at the end of the line before", number)
            items += [Scalar(piece, number) for piece in pieces]
            if end:
                return items
            dangling = dangling or bool(pieces)
            dangling = dangling and not body.rstrip().endswith(",")
            if self.at == len(self.lines):
                raise PTableError("the list has no end", first)
            text = _uncommented(self.lines[self.at])
            self.at += 1
            number = self.at


def _uncommented(text: str) -> str:
    """Without a comment at its end."""
    return text.split(" #")[0].rstrip() if " #" in text else text.rstrip()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
