"""Trees of tables: which cell of a table is part of which cell of the next coarser table.

A tree is a list of levels, one for each table, coarse to fine. The first one is `total`, a single node. Every other
level has one coarser level, and each of its nodes (cells) has one parent there. Nodes of one level with the same parent
are a *family*: their counts add up to the count of the parent. A level can have several finer levels, so a node can
have several families (by sex, and by age), each of which adds up to it. A node without a family in a level is not
divided there.

Nodes are stored in the order of their parents, so that sums over families are one call of numpy. `Level.declared` is
the way back to the order in which cells were declared. Cells that cannot exist (structural zeros) are not nodes: they
are known to be 0, are never measured, and appear in results as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.hierarchy import TOTAL, Ints, Labels, read_array, read_hierarchy
from countveil.display.cards import Shown
from countveil.errors import ParameterError, RequestError

__all__ = ["TOTAL", "Floats", "Ints", "Labels", "Level", "Tree", "make_tree"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Level(Shown):
    """The nodes of one table, in the order of their parents; a node is a cell that can exist.

    `above` is the index of the coarser level in the tree (-1 for the total), and `parents` has for each node the index
    of its parent in that level. `size` counts declared cells, structural zeros (cells that cannot exist) included;
    `declared` is the declared cell of each node, or None if the nodes are all cells in declared order.
    """

    name: str
    above: int
    parents: NDArray[np.int32]
    size: int
    declared: Ints | None = None
    labels: Labels = field(default_factory=dict)
    filled: Any = field(init=False)
    starts: Ints = field(init=False)
    widths: Ints = field(init=False)

    def __post_init__(self) -> None:
        first = np.ones(len(self.parents), dtype=bool)
        np.not_equal(self.parents[1:], self.parents[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "widths", np.diff(np.append(starts, len(self.parents))))
        object.__setattr__(self, "filled", self.parents[starts])

    def _line(self) -> str:
        return f"{self.name}: {self.size} cells"

    def __len__(self) -> int:
        return len(self.parents)

    def sum_families(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of the values over each family (nodes with the same parent); nodes are the last axis of `values`."""
        sums: NDArray[Any] = np.add.reduceat(values, self.starts, axis=-1)
        return sums

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give the value of each family to all of its nodes."""
        return np.repeat(values, self.widths, axis=-1)

    def accumulate(self, values: Ints) -> Ints:
        """For each node, the sum of the values of the earlier nodes of its family."""
        before: Ints = np.cumsum(values) - values
        before -= self.spread(before[self.starts])
        return before

    def select(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn values of cells in declared order into values of nodes; structural zeros are dropped."""
        return values if self.declared is None else values[..., self.declared]

    def restore(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn values of nodes into values of cells in declared order, with 0 for structural zeros."""
        if self.declared is None:
            return values
        cells = np.zeros((*values.shape[:-1], self.size), dtype=values.dtype)
        cells[..., self.declared] = values
        return cells


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of tables; `levels[0]` is the total. Make one with `from_columns` or `from_parents`."""

    levels: tuple[Level, ...]
    added: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "<Tree " + ", ".join(f"{level.name}: {level.size}" for level in self.levels) + ">"

    def __len__(self) -> int:
        """The number of nodes: the cells that can exist, over all tables."""
        return sum(len(level) for level in self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables, coarse to fine."""
        return tuple(level.name for level in self.levels)

    def place(self, name: str) -> int:
        """The index of a table in `levels`."""
        if name not in self.names:
            raise ParameterError("table", name, "a table of the tree: " + ", ".join(self.names))
        return self.names.index(name)

    def below(self, place: int) -> list[int]:
        """The indices of the levels whose tables divide the nodes of the level with the index `place`."""
        return [i for i, level in enumerate(self.levels) if level.above == place]

    def find_leaves(self, place: int) -> NDArray[np.bool_]:
        """A mask of those nodes of the level with the index `place` that no finer table divides."""
        alone = np.ones(len(self.levels[place]), dtype=bool)
        for i in self.below(place):
            alone[self.levels[i].filled] = False
        return alone

    @staticmethod
    def from_parents(tables: Mapping[str, tuple[str | None, Any]], *, zeros: Mapping[str, Any] | None = None) -> Tree:
        """A tree from arrays that say of which coarser cell each cell is part.

        Args:
            tables: For each table the name of the coarser table, and for each of its cells the index of the cell there
                that it is part of. Coarser tables come first. The coarser table of the coarsest ones is None: they are
                parts of the total, and only the length of their array is used.
            zeros: For a table, which of its cells are impossible: an array of truth values. If a cell is impossible, so
                are its parts; if all parts of a cell in one table are impossible, so is the cell.

        Returns:
            A Tree.

        Raises:
            ParameterError: A table, an array or a parent is not allowed.

        >>> tree = Tree.from_parents({"county": (None, [0, 0]), "town": ("county", [0, 0, 1, 1, 1])})
        >>> tree
        <Tree total: 1, county: 2, town: 5>
        """
        names = [TOTAL]
        above, parents = [-1], [np.zeros(1, dtype=np.int64)]
        for name, (coarser, given) in tables.items():
            if name == TOTAL:
                raise ParameterError("tables", TOTAL, "another name: every tree has a total of its own")
            if coarser is not None and coarser not in names:
                raise ParameterError(f"coarser table of {name}", coarser, "a table before it: " + ", ".join(names))
            place = names.index(TOTAL if coarser is None else coarser)
            array = _read_parents(name, given, 1 if coarser is None else len(parents[place]), coarser is None)
            names.append(name)
            above.append(place)
            parents.append(array)
        possible = _read_possible(names, parents, zeros or {})
        if possible is not None:
            spread_zeros(above, parents, possible)
        return make_tree(names, above, parents, possible)

    @staticmethod
    def from_columns(cells: Any, tables: Sequence[Sequence[str] | str], *, names: Sequence[str] = ()) -> Tree:
        """A tree from columns: the cells that can exist, and the columns that each table is by.

        Which table is coarser than which is read from the cells: if each municipality lies in one county, the table by
        municipality is finer than the one by county. Two tables of which neither is finer need a table that is coarser
        than both; if it is missing, it is added and not measured.

        Args:
            cells: A frame, or a mapping of columns, with one row for each finest cell that can exist.
            tables: For each table its columns; an empty list is the total.
            names: The names of the tables. Default: their columns, joined by "*".

        Returns:
            A Tree; `added` names the tables that were added.

        Raises:
            ParameterError: A table names a column that does not exist.
            RequestError: Two tables cross, or two tables have the same cells.

        >>> cells = {"county": ["A", "A", "B"], "town": ["a", "b", "c"]}
        >>> Tree.from_columns(cells, [[], ["county"], ["town"]])
        <Tree total: 1, county: 2, town: 3>
        """
        read = read_hierarchy(cells, tables, names)
        return make_tree(read.names, read.above, read.parents, labels=read.labels, added=read.added)


def make_tree(
    names: Sequence[str],
    above: Sequence[int],
    parents: Sequence[Ints],
    possible: Sequence[NDArray[np.bool_]] | None = None,
    labels: Sequence[Labels] | None = None,
    added: tuple[str, ...] = (),
) -> Tree:
    """The tree of tables that are given coarse to fine; cells that cannot exist are left out.

    For each table the arguments give: its name; `above`, the position of the next coarser table; `parents`, for each of
    its cells the number of the enclosing cell in that coarser table; `possible`, which cells can exist; and `labels`.
    `added` names tables that were not asked for. The nodes of each table are sorted by their parents."""
    levels: list[Level] = []
    nodes: list[Ints] = []  # the node of each declared cell
    for i, name in enumerate(names):
        size = len(parents[i])
        kept = None if possible is None or bool(possible[i].all()) else np.flatnonzero(possible[i])
        given = parents[i] if kept is None else parents[i][kept]
        mine = given if above[i] < 0 else nodes[above[i]][given]
        order = None
        if len(mine) and bool((mine[1:] < mine[:-1]).any()):
            order = np.argsort(mine, kind="stable")
            mine = mine[order]
        declared = kept if order is None else order if kept is None else kept[order]
        place = np.arange(size) if declared is None else np.full(size, -1)
        if declared is not None:
            place[declared] = np.arange(len(declared))
        nodes.append(place)
        own = {} if labels is None else labels[i]
        levels.append(Level(name, above[i], mine.astype(np.int32), size, declared, own))
    return Tree(tuple(levels), added)


def _read_parents(name: str, given: Any, size: int, only_length: bool) -> Ints:
    array = read_array(f"parents of {name}", given)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise ParameterError(
            f"parents of {name}",
            f"an array of {array.dtype} and shape {array.shape}",
            "a list of whole numbers, at least one",
        )
    if only_length:
        return np.zeros(len(array), dtype=np.int64)
    if int(array.min()) < 0 or int(array.max()) >= size:
        wrong = int(np.flatnonzero((array < 0) | (array >= size))[0])
        raise ParameterError(f"parent of cell {wrong} of {name}", int(array[wrong]), f"a cell from 0 to {size - 1}")
    return array.astype(np.int64)


def _read_possible(
    names: Sequence[str], parents: Sequence[Ints], zeros: Mapping[str, Any]
) -> list[NDArray[np.bool_]] | None:
    """For each table, which declared cells can exist, from the given structural zeros; None if there are none."""
    if not zeros:
        return None
    unknown = [name for name in zeros if name not in names]
    if unknown:
        raise ParameterError("zeros", unknown[0], "a table of the tree: " + ", ".join(names))
    possible = [np.ones(len(array), dtype=bool) for array in parents]
    for name, given in zeros.items():
        mask = read_array(f"zeros of {name}", given)
        place = names.index(name)
        if mask.dtype != np.bool_ or mask.shape != possible[place].shape:
            shown, size = f"an array of {mask.dtype} and shape {mask.shape}", len(possible[place])
            raise ParameterError(f"zeros of {name}", shown, f"one truth value for each of its {size} cells")
        possible[place] &= ~mask
    return possible


def spread_zeros(above: Sequence[int], parents: Sequence[Ints], possible: list[NDArray[np.bool_]]) -> None:
    """Mark as impossible in `possible` all cells that cannot exist because of others.

    If all parts of a cell in one table are impossible, the cell is impossible. If a cell is impossible, so are its
    parts.
    """
    changed = True
    while changed:
        before = sum(int(mask.sum()) for mask in possible)
        for i in range(len(above) - 1, 0, -1):
            size = len(possible[above[i]])
            divided = np.bincount(parents[i], minlength=size) > 0
            some = np.bincount(parents[i], weights=possible[i], minlength=size) > 0
            possible[above[i]] &= some | ~divided
        for i in range(1, len(above)):
            possible[i] &= possible[above[i]][parents[i]]
        changed = sum(int(mask.sum()) for mask in possible) != before
    if not possible[0][0]:
        raise RequestError("every cell is a structural zero: leave some cells possible")
