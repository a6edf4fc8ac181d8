"""A canonical form of conditions: two conditions that select the same rows get the same form, however they were
written.

The form is a reduced ordered decision diagram (Bryant 1986, for variables with many values). The columns are tested in
a fixed order, one in each node. An edge of a node has a set of values and leads to the next node; all other values,
including those *outside* the declared domain, lead to the node `rest`. Equal nodes are stored once, and nodes that make
no difference are removed. The diagram then depends only on which rows the condition selects.
"""

from __future__ import annotations

from dataclasses import dataclass

from countveil.query.condition import All, Effort, Membership, Typed
from countveil.query.points import Points, overlay, size, union_all
from countveil.query.schema import Column

TRUE, FALSE = 1, 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node that tests `column`. `edges` has pairs of a set of values and the number of the node that these values
    lead to.

    All other values lead to the node `rest`.
    """

    column: str
    edges: tuple[tuple[Points, int], ...]
    rest: int


class Diagram:
    """A diagram under construction. Node 0 means false, node 1 means true, and equal nodes have the same number."""

    def __init__(self, effort: Effort | None = None) -> None:
        self.spend = (effort or Effort()).spend
        self.nodes: list[Node | None] = [None, None]
        self.numbers: dict[Node, int] = {}
        self.columns: dict[str, Column] = {}
        self.joined: dict[tuple[bool, int, int], int] = {}

    def of(self, condition: Typed) -> int:
        """Add the nodes of a condition; return the number of its first node."""
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
        """The number of the node with these edges. Edges to the same node are merged. If all values lead to `rest`, the
        result is `rest` itself."""
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
        """The number of the node for "a and b" (if `conjunction`) or for "a or b"; a and b are numbers of nodes."""
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
        """Join two nodes that test the same column: its values are divided by the edges of both nodes."""
        a, b = _pieces(left), _pieces(right)
        self.spend(10 * (len(a) + len(b)))
        split: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for low, high, one, other in overlay(a, b, left.rest, right.rest):
            split.setdefault((one, other), []).append((low, high))
        edges = [(tuple(pieces), self.join(conjunction, *targets)) for targets, pieces in split.items()]
        return self.node(left.column, edges, self.join(conjunction, left.rest, right.rest))


def _pieces(node: Node) -> list[tuple[int, int, int]]:
    """The intervals of values on a node's edges in ascending order, as (low, high, number of the next node)."""
    return sorted((low, high, target) for points, target in node.edges for low, high in points)


def canonical(condition: Typed, effort: Effort | None = None) -> list[object]:
    """The diagram of a condition as plain JSON values, equal for exactly those conditions that select the same rows.

    The first entry is the number of the first node. The others are the nodes in the order in which they are reached, as
    [column, [[set of values, number of the next node], ...], number of the node for all other values].
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
    for number in order:  # `visit` appends to `order`
        node = diagram.nodes[number]
        assert node is not None
        column = diagram.columns[node.column]
        by_value = column.is_listed and not column.declared
        diagram.spend(10 * sum(size(points) if by_value else len(points) for points, _ in node.edges))
        edges = [[column.describe_points(points), visit(target)] for points, target in node.edges]
        listing.append([node.column, edges, visit(node.rest)])
    return listing
