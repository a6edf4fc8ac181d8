"""The public list of the combinations that can exist: a CSV file whose columns are columns of the dataset.

    cells = "possible.csv"      # municipality,age_group,housing: one row for each combination that can exist

A field is a value of its column or a label, as an answer shows it. Columns that are not declared, values outside a
domain, repeated combinations, and combinations in which two columns of one source contradict each other are refused;
the message names the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from countveil.errors import ConfigError, shorten
from countveil.query.declarations import read_value
from countveil.query.derived import point_of
from countveil.query.joint_axes import LARGEST_PRODUCT, common_points
from countveil.query.public_tables import Files
from countveil.query.schema import MAX_VALUES, Column, PossibleCells


def parse_cells(path: str, columns: Sequence[Column], key: str, files: Files) -> PossibleCells:
    """Read the list of possible cells from the public file at `path`."""
    table = files(path, key)
    known = {column.name: column for column in columns}
    for name in table.header:
        if name not in known:
            raise ConfigError(key, f"{table.name}, line 1: {shorten(name)} is not a declared column")
    listed = [known[name] for name in table.header]
    if math.prod(column.keys for column in listed) > LARGEST_PRODUCT:
        raise ConfigError(key, f"{table.name}: more than 2^62 combinations of its columns' values; list fewer columns")
    readers = [_Reader(column, key) for column in listed]
    sources = {
        column.root.name: [i for i, c in enumerate(listed) if c.root.name == column.root.name] for column in listed
    }
    joint = [(places, [listed[i] for i in places]) for places in sources.values() if len(places) > 1]
    seen: dict[tuple[int, ...], int] = {}
    agreed: set[tuple[int, ...]] = set()
    for line, fields in table.records:
        row = []
        for reader, text in zip(readers, fields, strict=True):
            index = reader.read(text)
            if index is None:
                what = f"{shorten(text)} is not a value of {shorten(reader.column.name)}" if text else "an empty field"
                raise ConfigError(key, f"{table.name}, line {line}: {what}")
            row.append(index)
        first = seen.setdefault(tuple(row), line)
        if first != line:
            raise ConfigError(key, f"{table.name}, line {line}: the same combination as line {first}")
        for n, (places, own) in enumerate(joint):
            labels = [row[i] for i in places]
            if (n, *labels) not in agreed and not common_points(own, labels):
                texts = ", ".join(shorten(fields[i], 40) for i in places)
                raise ConfigError(
                    key,
                    f"{table.name}, line {line}: {texts} exclude each other: no {shorten(own[0].root.name)} has both",
                )
            agreed.add((n, *labels))
    return PossibleCells(tuple(listed), tuple(seen))


class _Reader:
    """Reads the values and labels of one column, and remembers each text that it has read."""

    def __init__(self, column: Column, key: str) -> None:
        self.column = column
        self.known: dict[str, int | None] = {}
        if column.label_kind == "text" and not column.is_listed:
            if column.keys > MAX_VALUES:
                raise ConfigError(
                    key, f"{shorten(column.name)} has {column.keys:,} groups; at most {MAX_VALUES:,} can be listed"
                )
            self.known = {str(label): i for i, label in enumerate(column.key_labels())}
        self.is_closed = bool(self.known)

    def read(self, text: str) -> int | None:
        """The index of the bin that a text names, None if the text is neither a value nor a label of the column."""
        if text not in self.known and not self.is_closed:
            self.known[text] = self._find(text)
        return self.known.get(text)

    def _find(self, text: str) -> int | None:
        column = self.column
        value = read_value(text, column.kind)
        point = None if value is None else point_of(column, value)
        if column.labels and text in column.labels:
            return column.index[text] if point is None else point
        return None if point is None else point - column.first
