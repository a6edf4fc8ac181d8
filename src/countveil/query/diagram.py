"""The canonical form of a condition: a reduced ordered decision diagram over the columns.

The columns are tested in a fixed order. A node tests one column: each of its edges has a set of values and the next
node, and every other value, *outside* values included, goes to `rest`. Equal nodes are shared, and nodes that make no
difference are removed. Then the diagram depends only on which rows are counted (Bryant 1986, for many-valued
variables), so two questions are equal exactly when their diagrams are equal, however they were written.
"""

from __future__ import annotations

from dataclasses import dataclass

from countveil.query.condition import All, Effort, Membership, Typed
from countveil.query.points import Points, overlay, size, union_all
from countveil.query.schema import Column

TRUE, FALSE = 1, 0


@dataclass(frozen=True, slots=True)
class Node:
    """Test `column`: a value in edges[i][0] goes to node edges[i][1], any other value to `rest`."""

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
        if isinstance(condition, Membership):
            self.columns[condition.column.name] = condition.column
            return self.node(condition.column.name, [(condition.points, TRUE)], FALSE)
        conjunction = isinstance(condition, All)
        parts = [self.of(part) for part in condition.parts]
        while len(parts) > 1:  # join in pairs: the intermediate diagrams stay small
            pairs = [self.join(conjunction, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
        return parts[0] if parts else int(conjunction)

    def node(self, column: str, edges: list[tuple[Points, int]], rest: int) -> int:
        """The number of a reduced node: edges to the same node are merged, and a node without edges is its `rest`."""
        intervals: dict[int, list[tuple[int, int]]] = {}
        for points, target in edges:
            if points and target != rest:
                intervals.setdefault(target, []).extend(points)
        self.spend(10 + 4 * sum(map(len, intervals.values())))
        if not intervals:
            return rest
        ordered = tuple(sorted((union_all(pieces), target) for target, pieces in intervals.items()))
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
            node = self._join_same_column(conjunction, left, right)
        else:
            top, other = (left, b) if left.column < right.column else (right, a)
            edges = [(points, self.join(conjunction, target, other)) for points, target in top.edges]
            node = self.node(top.column, edges, self.join(conjunction, top.rest, other))
        self.joined[conjunction, a, b] = node
        return node

    def _join_same_column(self, conjunction: bool, left: Node, right: Node) -> int:
        """Join two nodes that test the same column: split its values by the edges of both."""
        a, b = _pieces(left), _pieces(right)
        self.spend(10 * (len(a) + len(b)))
        split: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for low, high, one, other in overlay(a, b, left.rest, right.rest):
            split.setdefault((one, other), []).append((low, high))
        edges = [(tuple(pieces), self.join(conjunction, *targets)) for targets, pieces in split.items()]
        return self.node(left.column, edges, self.join(conjunction, left.rest, right.rest))


def _pieces(node: Node) -> list[tuple[int, int, int]]:
    """The intervals of a node in order, each with its next node."""
    return sorted((low, high, target) for points, target in node.edges for low, high in points)


def canonical(condition: Typed, effort: Effort | None = None) -> list[object]:
    """The diagram as plain JSON values, with nodes numbered as visited: equal exactly for equal conditions.

    The first entry is the root; every other is [column, [[set, number], ...], rest].
    """
    diagram = Diagram(effort)
    root = diagram.of(condition)
    numbers = {FALSE: 0, TRUE: 1}
    listing: list[object] = [root if root in numbers else 2]
    order: list[int] = []

    def visit(number: int) -> int:
        if number not in numbers:
            numbers[number] = len(numbers)
            order.append(number)
        return numbers[number]

    visit(root)
    for number in order:  # `visit` appends to it
        node = diagram.nodes[number]
        assert node is not None
        column = diagram.columns[node.column]
        by_value = column.is_listed and not column.declared
        diagram.spend(10 * sum(size(points) if by_value else len(points) for points, _ in node.edges))
        edges = [[column.describe_points(points), visit(target)] for points, target in node.edges]
        listing.append([node.column, edges, visit(node.rest)])
    return listing
