"""The canonical form of a condition: a reduced ordered decision diagram over the columns.

A condition asks, of each row, in which set the value of each column lies. Fix an order of the columns and ask them one
after another: a node holds, for each set of values that leads on differently, the node to go on with; everything else,
*outside* values among them, goes to `rest`. With equal nodes shared and idle nodes dropped, the diagram depends only on
which rows are counted (Bryant 1986, for many-valued variables). So two questions are equal exactly when their diagrams
are, however they were written.
"""

from __future__ import annotations

from dataclasses import dataclass

from countveil.errors import QueryError
from countveil.query import sets
from countveil.query.condition import All, Member, Typed, null_of
from countveil.query.sets import Points
from countveil.schema import Column

MAX_STEPS = 50_000

TRUE, FALSE = 1, 0


@dataclass(frozen=True, slots=True)
class Node:
    """Ask `column`; a value in edges[i][0] goes to node edges[i][1], any other value to `rest`."""

    column: str
    edges: tuple[tuple[Points, int], ...]
    rest: int


class Diagram:
    """Shared nodes under construction: node 0 is false, node 1 is true, equal nodes have one number."""

    def __init__(self) -> None:
        self.nodes: list[Node | None] = [None, None]
        self.numbers: dict[Node, int] = {}
        self.columns: dict[str, Column] = {}
        self.joined: dict[tuple[bool, int, int], int] = {}
        self.steps = 0

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
        merged: dict[int, Points] = {}
        for points, target in edges:
            if points and target != rest:
                merged[target] = sets.union(merged[target], points) if target in merged else points
        if not merged:
            return rest
        ordered = tuple(sorted((points, target) for target, points in merged.items()))
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
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise QueryError("a condition too tangled to compare with others", "write it shorter, or ask in parts")
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
        edges: list[tuple[Points, int]] = []
        unseen = [(points, target) for points, target in right.edges]
        for points, target in left.edges:
            for i, (others, other) in enumerate(right.edges):
                common = sets.intersection(points, others)
                if common:
                    edges.append((common, self.join(conjunction, target, other)))
                    points = sets.difference(points, common)
                    unseen[i] = (sets.difference(unseen[i][0], common), other)
            if points:
                edges.append((points, self.join(conjunction, target, right.rest)))
        edges += [(points, self.join(conjunction, left.rest, other)) for points, other in unseen if points]
        return self.node(left.column, edges, self.join(conjunction, left.rest, right.rest))


def canonical(condition: Typed) -> list[object]:
    """The diagram as plain JSON values, nodes numbered in the order they are met: equal for equal conditions only."""
    diagram = Diagram()
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
        edges = [[_written(points, column), meet(target)] for points, target in node.edges]
        listing.append([node.column, edges, meet(node.rest)])
    return listing


def _written(points: Points, column: Column) -> dict[str, object]:
    """A set in terms of values, so that the hash does not depend on how points are numbered."""
    null = null_of(column)
    inside = sets.difference(points, null)
    shown = [[str(column.value(low)), str(column.value(high))] for low, high in inside] if not column.listed else None
    if shown is None:
        members = (point for low, high in inside for point in range(low, high + 1))
        return {"null": inside != points, "values": sorted(str(column.value(point)) for point in members)}
    return {"null": inside != points, "ranges": shown}
