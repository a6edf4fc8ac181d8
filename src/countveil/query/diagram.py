"""The canonical form of a condition: a reduced ordered decision diagram over the columns.

A condition asks, of each row, in which set the value of each column lies. Fix an order of the columns and ask them one
after another: a node holds, for each set of values that leads on differently, the node to go on with; everything else,
*outside* values among them, goes to `rest`. With equal nodes shared and idle nodes dropped, the diagram depends only on
which rows are counted (Bryant 1986, for many-valued variables). So two questions are equal exactly when their diagrams
are, however they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from countveil.query.condition import All, Effort, Member, Points, Typed, difference, null_of, union_all
from countveil.schema import Column

TRUE, FALSE = 1, 0


@dataclass(frozen=True, slots=True)
class Node:
    """Ask `column`; a value in edges[i][0] goes to node edges[i][1], any other value to `rest`."""

    column: str
    edges: tuple[tuple[Points, int], ...]
    rest: int


class Diagram:
    """Shared nodes under construction: node 0 is false, node 1 is true, equal nodes have one number."""

    def __init__(self, effort: Effort | None = None) -> None:
        self.spend = (effort or Effort()).spend
        self.nodes: list[Node | None] = [None, None]
        self.numbers: dict[Node, int] = {}
        self.columns: dict[str, Column] = {}
        self.joined: dict[tuple[bool, int, int], int] = {}

    def of(self, condition: Typed) -> int:
        """The node of a condition."""
        if isinstance(condition, Member):
            self.columns[condition.column.name] = condition.column
            return self.node(condition.column.name, [(condition.points, TRUE)], FALSE)
        conjunction = isinstance(condition, All)
        parts = [self.of(part) for part in condition.parts]
        while len(parts) > 1:  # join in pairs: the intermediate diagrams stay small
            pairs = [self.join(conjunction, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
        return parts[0] if parts else int(conjunction)

    def node(self, column: str, edges: list[tuple[Points, int]], rest: int) -> int:
        """The number of a node, reduced: sets that lead to one place are one set, an idle node is its `rest`."""
        found: dict[int, list[tuple[int, int]]] = {}
        for points, target in edges:
            if points and target != rest:
                found.setdefault(target, []).extend(points)
        self.spend(10 + 4 * sum(map(len, found.values())))
        if not found:
            return rest
        ordered = tuple(sorted((union_all(pieces), target) for target, pieces in found.items()))
        node = Node(column, ordered, rest)
        number = self.numbers.get(node)
        if number is None:
            number = self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def join(self, conjunction: bool, a: int, b: int) -> int:
        """The node of `a and b`, or of `a or b`."""
        absorbing = FALSE if conjunction else TRUE
        neutral = 1 - absorbing
        if a in (b, absorbing) or b == neutral:
            return a
        if b == absorbing or a == neutral:
            return b
        a, b = min(a, b), max(a, b)
        known = self.joined.get((conjunction, a, b))
        if known is not None:
            return known
        self.spend(20)
        left, right = self.nodes[a], self.nodes[b]
        assert left is not None
        assert right is not None
        if left.column == right.column:
            found = self._together(conjunction, left, right)
        else:
            top, other = (left, b) if left.column < right.column else (right, a)
            edges = [(points, self.join(conjunction, target, other)) for points, target in top.edges]
            found = self.node(top.column, edges, self.join(conjunction, top.rest, other))
        self.joined[conjunction, a, b] = found
        return found

    def _together(self, conjunction: bool, left: Node, right: Node) -> int:
        """Both nodes ask the same column: split its values by both."""
        a, b = _pieces(left), _pieces(right)
        self.spend(10 * (len(a) + len(b)))
        split: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for low, high, one, other in overlay(a, b, left.rest, right.rest):
            split.setdefault((one, other), []).append((low, high))
        edges = [(tuple(pieces), self.join(conjunction, *targets)) for targets, pieces in split.items()]
        return self.node(left.column, edges, self.join(conjunction, left.rest, right.rest))


def _pieces(node: Node) -> list[tuple[int, int, int]]:
    """The intervals of a node in order, each with where it leads."""
    return sorted((low, high, target) for points, target in node.edges for low, high in points)


def overlay(
    a: Sequence[tuple[int, int, int]], b: Sequence[tuple[int, int, int]], no_a: int, no_b: int
) -> Iterator[tuple[int, int, int, int]]:
    """Two rows of labelled intervals, each sorted and disjoint, as one: every interval with both of its labels.

    >>> list(overlay([(0, 5, 1)], [(4, 8, 2)], 0, 0))
    [(0, 3, 1, 0), (4, 5, 1, 2), (6, 8, 0, 2)]
    """
    i = j = 0
    at: int | None = None  # everything below has been given
    while i < len(a) or j < len(b):
        next_a = _from(a[i][0], at) if i < len(a) else None
        next_b = _from(b[j][0], at) if j < len(b) else None
        if next_b is None or (next_a is not None and next_a < next_b):
            low, high = next_a, a[i][1] if next_b is None else min(a[i][1], next_b - 1)
            labels = a[i][2], no_b
        elif next_a is None or next_b < next_a:
            low, high = next_b, b[j][1] if next_a is None else min(b[j][1], next_a - 1)
            labels = no_a, b[j][2]
        else:
            low, high = next_a, min(a[i][1], b[j][1])
            labels = a[i][2], b[j][2]
        assert low is not None
        yield low, high, *labels
        at = high + 1
        i += i < len(a) and a[i][1] <= high
        j += j < len(b) and b[j][1] <= high


def _from(low: int, at: int | None) -> int:
    return low if at is None or low > at else at


def canonical(condition: Typed, effort: Effort | None = None) -> list[object]:
    """The diagram as plain JSON values, nodes numbered in the order they are met: equal for equal conditions only.

    The first entry is the root; every other is [column, [[set, number], ...], rest].
    """
    diagram = Diagram(effort)
    root = diagram.of(condition)
    numbers = {FALSE: 0, TRUE: 1}
    listing: list[object] = [root if root in numbers else 2]
    order: list[int] = []

    def meet(number: int) -> int:
        if number not in numbers:
            numbers[number] = len(numbers)
            order.append(number)
        return numbers[number]

    meet(root)
    for number in order:  # grows while it is walked
        node = diagram.nodes[number]
        assert node is not None
        column = diagram.columns[node.column]
        diagram.spend(10 * sum(len(points) for points, _ in node.edges))
        edges = [[_written(points, column), meet(target)] for points, target in node.edges]
        listing.append([node.column, edges, meet(node.rest)])
    return listing


def _written(points: Points, column: Column) -> dict[str, object]:
    """A set by the first and last value of each of its intervals, listed values in the order declared."""
    inside = difference(points, null_of(column))
    shown = [[str(column.value(low)), str(column.value(high))] for low, high in inside]
    return {"null": inside != points, "values": shown}
