"""The difference of two editions of a publication, with the error of the difference.

Both editions are measured with the same laws, so the noise of a difference of measurements has the law of Z1 - Z2, with
Z1 and Z2 independent. It is computed exactly, and the margins of the differences are simulated as those of an edition.
The difference of the true counts is within the certain bounds always.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.reconciler import Reconciler, read_law
from countveil.consistency.reconciliation import round_outward
from countveil.consistency.simulation import OUTWARD
from countveil.consistency.tree import Ints, Tree
from countveil.errors import RequestError
from countveil.laws.law import Law
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.folder import Folder

MOST_BITS = 128


@dataclass(frozen=True, eq=False)
class TableChange:
    """The change of every cell of a table: the difference of the published counts, and an interval for the true one.

    The true difference is within `low` and `high` with probability at least 95 %, and within `certain_low` and
    `certain_high` always. `clear` says whether 0 is outside of the interval.
    """

    labels: Mapping[str, NDArray[Any]]
    difference: Ints
    low: Ints
    high: Ints
    certain_low: Ints
    certain_high: Ints

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the interval leaves out 0."""
        return (self.low > 0) | (self.high < 0)

    def __len__(self) -> int:
        return len(self.difference)


def compare_editions(first: Folder, second: Folder) -> dict[str, TableChange]:
    """The change of every table between two editions."""
    _check_comparable(first, second)
    entries = first.manifest["tables"]
    before = {each["name"]: first.columns(each["name"]) for each in entries}
    after = {each["name"]: second.columns(each["name"]) for each in entries}
    for each in entries:
        _check_cells(each, before[each["name"]], after[each["name"]])
    tree = Tree.from_parents(
        {
            each["name"]: (None if each["coarser"] == "total" else each["coarser"], before[each["name"]]["part_of"])
            for each in entries
            if each["coarser"] is not None
        }
    )
    laws = {each["name"]: _read_law(first, each) for each in entries if each["law"]}
    seed = hashlib.sha256("\n".join([*first.manifest["receipts"], *second.manifest["receipts"]]).encode()).digest()
    reconciler = Reconciler.of(tree, {name: subtract(law) for name, law in laws.items()}, tuple(laws), seed)
    given = [
        None if name not in laws else level.select(after[name]["measured"] - before[name]["measured"])
        for name, level in zip(tree.names, tree.levels, strict=True)
    ]
    estimates = reconciler.fit.estimate([None if y is None else y.astype(np.float64) for y in given])
    margins = reconciler.simulate().margins
    changes = {}
    for each, level, estimate, margin in zip(entries, tree.levels, estimates, margins, strict=True):
        old, new = before[each["name"]], after[each["name"]]
        difference = new["count"] - old["count"]
        least, most = new["certain_low"] - old["certain_high"], new["certain_high"] - old["certain_low"]
        whole = np.rint(estimate)
        low, high = round_outward(whole.astype(np.int64), estimate - whole, margin * OUTWARD)
        low, high = np.maximum(level.restore(low), least), np.minimum(level.restore(high), most)
        labels = {name: old[name] for name in each["by"]}
        changes[each["name"]] = TableChange(
            labels, difference, np.minimum(low, difference), np.maximum(high, difference), least, most
        )
    return changes


def subtract(law: Law) -> Law:
    """The law of Z1 - Z2, if Z1 and Z2 are independent and have the given law.

    **Guarantee**: the result is symmetric, so its mean is 0; and for every t its probability of |Z1 - Z2| > t is at
    least the exact one. Weights that would need more than 128 bits are rounded down, the middle one to a number that
    leaves an even rest; each end gets half of the rest.

    >>> subtract(Law((1, 1), 0, 1)).weights
    (1, 2, 1)
    """
    size, width = len(law.weights), 2 * law.bits + len(law.weights).bit_length()
    product = _pack(law.weights, width) * _pack(law.weights[::-1], width)
    mask = (1 << width) - 1
    cut = max(0, 2 * law.bits - MOST_BITS)
    weights = [(product >> (i * width) & mask) >> cut for i in range(2 * size - 1)]
    weights[size - 1] -= sum(weights) % 2  # the total is even
    rest = (1 << (2 * law.bits - cut)) - sum(weights)
    weights[0] += rest // 2
    weights[-1] += rest // 2
    return Law(tuple(weights), size - 1, 2 * law.bits - cut)


def _pack(weights: Sequence[int], width: int) -> int:
    """Pack weights into one integer, `width` bits each: one product of integers then is a whole convolution."""
    return sum(weight << (i * width) for i, weight in enumerate(weights))


def _read_law(folder: Folder, entry: Mapping[str, Any]) -> Law:
    mechanism = Mechanism.from_text(folder.content(entry["law"]["file"]).decode())
    return read_law(entry["name"], mechanism)


def _check_comparable(first: Folder, second: Folder) -> None:
    """Refuse editions that were not measured in the same way."""
    if first.manifest["digest"] != second.manifest["digest"]:
        raise RequestError(
            "these are not two editions of one publication: their tables, columns, hierarchies or accuracies differ"
        )
    laws = [[each["law"] and each["law"]["mechanism"] for each in f.manifest["tables"]] for f in (first, second)]
    if laws[0] != laws[1]:
        raise RequestError("these editions were measured under different plans, with different laws")
    if first.manifest["receipts"] == second.manifest["receipts"]:
        raise RequestError("these are the same edition: give an earlier one and a later one")


def _check_cells(entry: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    names = [*entry["by"], *(["part_of"] if entry["coarser"] is not None else [])]
    if not all(np.array_equal(before[name], after[name]) for name in names):
        raise RequestError(f"table {entry['name']} has other cells in the second edition")
