"""A treemap of the coarsest tables of an edition: areas are counts, one level inside the other, coloured by quality.

The layout is squarified (Bruls, Huizing and van Wijk, 2000): a row of rectangles takes the next one as long as its
worst aspect ratio does not become worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from countveil.display import svg
from countveil.publication.edition import PublishedTable
from countveil.publication.labels import cut_text, write_labels

MOST = 300
"""The most cells of a treemap."""
HEAD, EDGE = 19.0, 2.0
"""The height of the line with the label of a group, and the space around its parts."""


@dataclass(frozen=True)
class Area:
    """A cell of a treemap, and the cells of the next table that it consists of, the largest first."""

    label: str
    title: str
    count: int
    mark: str
    parts: tuple[Area, ...] = ()


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture."""

    x: float
    y: float
    width: float
    height: float


def choose_chain(tables: Sequence[PublishedTable]) -> list[PublishedTable]:
    """A chain of tables below the total, coarse to fine: of all chains with at most `MOST` cells, the largest.

    If there is none, it is the smallest table that divides the total. If there is only the total, it is empty.
    """
    by_name = {table.name: table for table in tables}
    chains: list[list[PublishedTable]] = []
    for table in tables:
        chain: list[PublishedTable] = []
        while table.coarser is not None:
            chain.insert(0, table)
            table = by_name[table.coarser]
        if chain:
            chains.append(chain)
    fitting = [chain for chain in chains if sum(map(len, chain)) <= MOST]
    if fitting:
        return max(fitting, key=lambda chain: (sum(map(len, chain)), len(chain)))
    return min((chain for chain in chains if len(chain) == 1), key=lambda chain: len(chain[0]), default=[])


def find_areas(chain: Sequence[PublishedTable]) -> list[Area]:
    """The cells of the coarsest table of a chain, with their parts.

    If a table has more than `MOST` cells, the smallest ones become one area.
    """
    parts: dict[int, list[Area]] = {}
    for i in range(len(chain) - 1, -1, -1):
        table, numbers = chain[i], chain[i].columns
        by = tuple(name for name in table.by if i == 0 or name not in chain[i - 1].by) or table.by
        largest = np.argsort(-numbers["count"], kind="stable")
        rest = largest[MOST:]
        areas: dict[int, list[Area]] = {}
        for row in largest[:MOST].tolist():
            count, low, high = (int(numbers[name][row]) for name in ("count", "low", "high"))
            mark = str(numbers["quality"][row])
            title = f"{write_labels(numbers, table.by, row)}: {count:,} ({low:,} to {high:,}), quality {mark}"
            area = Area(write_labels(numbers, by, row), title, count, mark, tuple(parts.get(row, ())))
            areas.setdefault(int(numbers["part_of"][row]), []).append(area)
        if len(rest):  # only in the coarsest table, and if it is the only one
            count, words = int(np.maximum(numbers["count"][rest], 0).sum()), f"{len(rest):,} smaller cells"
            areas[0].append(Area(words, f"{words}: {count:,} together", count, "rest"))
        parts = areas
    return sorted(parts.get(0, ()), key=lambda area: -area.count)


def lay_out_areas(sizes: Sequence[float], box: Box) -> list[Box]:
    """A rectangle for each size; sizes are positive and descend, and areas are in proportion to them.

    >>> for box in lay_out_areas([2, 1, 1], Box(0, 0, 4, 2)):
    ...     print(box)
    Box(x=0, y=0.0, width=2.0, height=2.0)
    Box(x=2.0, y=0.0, width=2.0, height=1.0)
    Box(x=2.0, y=1.0, width=2.0, height=1.0)
    """
    boxes: list[Box] = []
    unit = box.width * box.height / sum(sizes)
    areas = [size * unit for size in sizes]
    while len(boxes) < len(areas):
        first = len(boxes)
        side, end = max(min(box.width, box.height), 1e-9), first + 1
        while end < len(areas) and _worst(areas[first : end + 1], side) <= _worst(areas[first:end], side):
            end += 1
        row = areas[first:end]
        thick, along = sum(row) / side, 0.0
        for area in row:
            if box.width >= box.height:
                boxes.append(Box(box.x, box.y + along, thick, area / thick))
            else:
                boxes.append(Box(box.x + along, box.y, area / thick, thick))
            along += area / thick
        if box.width >= box.height:
            box = Box(box.x + thick, box.y, max(box.width - thick, 0.0), box.height)
        else:
            box = Box(box.x, box.y + thick, box.width, max(box.height - thick, 0.0))
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """The worst aspect ratio of the rectangles of a row along a side; areas descend."""
    square = (sum(row) / side) ** 2
    return max(row[0] / square, square / row[-1])


def draw_treemap(areas: Sequence[Area], width: float, height: float) -> str:
    """The treemap as SVG; cells of count 0 have no area."""
    words = "Treemap of the published counts, coloured by quality"
    return svg.draw(_draw_areas(areas, Box(0.0, 0.0, width, height)), words, height, width)


def _draw_areas(areas: Sequence[Area], box: Box) -> Iterator[str]:
    shown = [area for area in areas if area.count > 0]
    if not shown:
        return
    for area, place in zip(shown, lay_out_areas([area.count for area in shown], box), strict=True):
        whole = any(part.count > 0 for part in area.parts)
        kind = "group" if whole else f"q{area.mark}"
        x, y, wide, high = (round(value, 1) for value in (place.x, place.y, place.width, place.height))
        yield svg.rect(x, y, wide, high, kind, area.title)
        named = place.height > (2.5 if whole else 1) * HEAD
        label = cut_text(area.label, place.width - 8) if named else ""
        if label:
            yield svg.text(x + 5, y + 14, label, kind=f"on-{kind}")
        if whole:
            head = HEAD if label else EDGE
            inner = place.width - 2 * EDGE, place.height - head - EDGE
            if min(inner) > 1:
                yield from _draw_areas(area.parts, Box(place.x + EDGE, place.y + head, *inner))
        elif label and place.height > 2 * HEAD:
            number = cut_text(f"{area.count:,}", place.width - 8)
            if "…" not in number:
                yield svg.text(x + 5, y + 30, number, kind=f"on-{kind} number")
