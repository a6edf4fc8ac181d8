"""From columns to a tree: which table is coarser than which is read from the cells that can exist.

A table is a grouping of the finest cells. Table A is coarser than B if every cell of B lies in one cell of A. Tables
make a tree if the coarser tables of each table are a chain, and if any two tables have their common part among the
tables: the finest grouping that is coarser than both. A missing common part is added as a table that is not measured.
Two tables of which neither is coarser, but which have a common finer table, cross: such tables are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import ParameterError, RequestError

TOTAL = "total"
NUMBERS = ("count", "low", "high", "certain_low", "certain_high")
"""The columns of numbers of a reconciled table; columns of labels cannot have these names."""
Ints = NDArray[np.int64]
Labels = Mapping[str, NDArray[Any]]
"""The labels of the cells of a table: for every column an array with one value for each declared cell."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Tables sorted by their number of cells, coarse to fine.

    For each table, `above` is the index of the next coarser table, and `parents` has for each cell the number of the
    cell in that table that it is part of. `added` names the tables that were not asked for.
    """

    names: list[str]
    above: list[int]
    parents: list[Ints]
    labels: list[Labels]
    added: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Grouping:
    """A table as a grouping of rows, one row for each finest cell.

    `groups` is the group of every row, `first` the first row of every group, and `columns` are the columns of the
    table.
    """

    name: str
    groups: Ints
    first: Ints
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.first)

    def is_coarser(self, other: Grouping) -> bool:
        """Whether each group of `other` lies in one group of this grouping."""
        return len(self) <= len(other) and bool(np.array_equal(self.groups[other.first][other.groups], self.groups))


def read_hierarchy(cells: Any, tables: Sequence[Sequence[str] | str], names: Sequence[str]) -> Hierarchy:
    """The hierarchy of the tables by these columns, with missing common parts added; see `Tree.from_columns`."""
    columns = read_columns(cells)
    rows = len(next(iter(columns.values())))
    wanted = [(table,) if isinstance(table, str) else tuple(table) for table in tables]
    if names and len(names) != len(wanted):
        raise ParameterError("names", f"{len(names)} names", f"one name for each of the {len(wanted)} tables")
    codes = {name: _number_values(values) for name, values in columns.items() if name not in NUMBERS}
    groupings: list[Grouping] = []
    for i, table in enumerate(wanted):
        unknown = [name for name in table if name not in columns]
        if unknown:
            raise ParameterError("table", unknown[0], "a list of columns of the cells: " + ", ".join(columns))
        taken = [name for name in table if name in NUMBERS]
        if taken:
            allowed = "a list of columns with other names than " + ", ".join(NUMBERS)
            raise ParameterError("table", taken[0], allowed, "rename the column")
        name = names[i] if names else "*".join(table) or TOTAL
        groupings.append(group_rows(name, [codes[column] for column in table], rows, table))
    for i, one in enumerate(groupings):
        for other in groupings[:i]:
            if len(one) == len(other) and one.is_coarser(other):
                raise RequestError(f"tables {other.name} and {one.name} have the same cells: leave one of them out")
    added = complete(groupings, codes)
    groupings.sort(key=len)
    if len(groupings[0]) > 1:
        groupings.insert(0, group_rows(TOTAL, [], rows, ()))
        added.append(TOTAL)
    twice = [name for name, times in Counter(grouping.name for grouping in groupings).items() if times > 1]
    if twice:
        own = f"; {twice[0]} is the name of a table that is added" if twice[0] in added else ""
        raise RequestError(f"two tables are called {twice[0]}: give them different names{own}")
    above = find_coarser_tables(groupings)
    parents = [np.zeros(1, dtype=np.int64)]
    for i, grouping in enumerate(groupings[1:], start=1):
        parents.append(groupings[above[i]].groups[grouping.first])
    labels: list[Labels] = [{name: columns[name][g.first] for name in g.columns} for g in groupings]
    return Hierarchy([g.name for g in groupings], above, parents, labels, tuple(added))


def read_columns(cells: Any) -> dict[str, NDArray[Any]]:
    """The columns of a frame or a mapping, as arrays of equal length."""
    if isinstance(cells, Mapping):
        columns = {str(name): read_array(f"column {name}", values) for name, values in cells.items()}
    else:
        import narwhals as nw
        from narwhals.exceptions import DuplicateError

        try:
            frame = nw.from_native(cells, eager_only=True)
            columns = {name: frame[name].to_numpy() for name in frame.columns}
        except DuplicateError:
            raise ParameterError("cells", "two columns of one name", "columns with different names") from None
        except TypeError:
            raise ParameterError("cells", type(cells).__name__, "a frame, or a mapping of columns") from None
    lengths = {values.shape for values in columns.values()}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1 or not next(iter(lengths))[0]:
        allowed = "a frame or a mapping with columns of one length, at least 1"
        raise ParameterError("cells", f"columns of shapes {sorted(lengths)}", allowed)
    return columns


def read_array(argument: str, given: Any) -> NDArray[Any]:
    """The given values as an array; lists of unequal lengths are none."""
    try:
        return np.asarray(given)
    except ValueError:
        raise ParameterError(argument, "lists of unequal lengths", "one list of single values") from None


def group_rows(name: str, codes: Sequence[Ints], rows: int, columns: tuple[str, ...]) -> Grouping:
    """Group the rows that have equal values in all codes; groups are numbered in the order of their first rows."""
    groups = np.zeros(rows, dtype=np.int64)
    for code in codes:
        groups = _number_values(groups * (int(code.max()) + 1) + code)
    first = np.full(int(groups.max()) + 1, rows)
    np.minimum.at(first, groups, np.arange(rows))
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Grouping(name, rank[groups], first[order], columns)


def complete(groupings: list[Grouping], codes: Mapping[str, Ints]) -> list[str]:
    """Append the missing common parts of all pairs of tables to `groupings`; returns their names.

    The common part of two tables is the finest table that is coarser than both.
    """
    added: list[str] = []
    pairs = [(i, j) for j in range(len(groupings)) for i in range(j)]
    while pairs:
        i, j = pairs.pop(0)
        one, other = groupings[i], groupings[j]
        if one.is_coarser(other) or other.is_coarser(one):
            continue
        for finer in groupings:
            if one.is_coarser(finer) and other.is_coarser(finer):
                raise RequestError(
                    f"tables {one.name} and {other.name} cross, and {finer.name} is finer than both: "
                    "leave out one of the three, or publish it as a margin across the tree"
                )
        common = join_groupings(one, other, codes)
        if not any(len(g) == len(common) and g.is_coarser(common) for g in groupings):
            groupings.append(common)
            added.append(common.name)
            pairs += [(k, len(groupings) - 1) for k in range(len(groupings) - 1)]
    return added


def join_groupings(one: Grouping, other: Grouping, codes: Mapping[str, Ints]) -> Grouping:
    """The finest grouping that is coarser than both: groups that share a row become one."""
    label = np.arange(len(one))
    while True:  # the least label of all rows in a group of either grouping, until nothing changes
        across = np.full(len(other), len(one))
        np.minimum.at(across, other.groups, label[one.groups])
        fresh = label.copy()
        np.minimum.at(fresh, one.groups, across[other.groups])
        if np.array_equal(fresh, label):
            break
        label = fresh
    rows = len(one.groups)
    groups = group_rows("", [label[one.groups]], rows, ())
    candidates = {column: group_rows("", [code], rows, (column,)) for column, code in codes.items()}
    columns = tuple(name for name, grouping in candidates.items() if grouping.is_coarser(groups))
    name = f"common part of {one.name} and {other.name}"
    if columns and len(group_rows("", [codes[column] for column in columns], rows, ())) == len(groups):
        least = [c for c in columns if len(candidates[c]) == len(groups)][:1]  # one column can have all the groups
        columns = tuple(least) or columns
        name = "*".join(columns)
    else:
        columns = ()
    if len(groups) == 1:
        name, columns = TOTAL, ()
    return Grouping(name, groups.groups, groups.first, columns)


def find_coarser_tables(groupings: Sequence[Grouping]) -> list[int]:
    """For each table the index of its next coarser table; `groupings` must be sorted by their number of cells.

    Raises RequestError if two tables cross.
    """
    above = [-1]
    for i in range(1, len(groupings)):
        coarser = [j for j in range(i) if groupings[j].is_coarser(groupings[i])]
        above.append(coarser[-1])
        for j, k in pairwise(coarser):
            if not groupings[j].is_coarser(groupings[k]):
                one, other, finer = groupings[j].name, groupings[k].name, groupings[i].name
                raise RequestError(
                    f"tables {one} and {other} cross, and {finer} is finer than both: "
                    "leave out one of the three, or publish it as a margin across the tree"
                )
    return above


def _number_values(values: NDArray[Any]) -> Ints:
    """Each value replaced by a number: the different values are numbered 0, 1, 2, ... in ascending order."""
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values):
            wide = values.astype(np.int64)
            places = wide - wide[values.argmin()]
            seen = np.zeros(high - low + 1, dtype=np.int64)
            seen[places] = 1
            numbers: Ints = (np.cumsum(seen) - 1)[places]
            return numbers
    try:
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        raise ParameterError("cells", "a column with values of several types", "one type in each column") from None
