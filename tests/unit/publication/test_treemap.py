"""The treemap: areas in proportion to counts, parts inside their group, and the largest cells of many."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from countveil.publication.edition import PublishedTable
from countveil.publication.treemap import MOST, Area, Box, choose_chain, draw_treemap, find_areas, lay_out_areas
from tests.support.editions import make_edition

TABLES = make_edition(margins=False).tables


def total(box: Box) -> float:
    return box.width * box.height


@pytest.mark.parametrize("sizes", [[1], [6, 6, 4, 3, 2, 2, 1], list(range(300, 0, -1)), [10**9, 1, 1]])
def test_rectangles_fill_the_picture_in_proportion(sizes: list[int]) -> None:
    boxes = lay_out_areas(sizes, Box(1.0, 2.0, 60.0, 40.0))
    assert [total(box) for box in boxes] == pytest.approx([2400 * size / sum(sizes) for size in sizes], rel=1e-6)
    for i, a in enumerate(boxes):
        assert min(a.x - 1, a.y - 2, 61 - a.x - a.width, 42 - a.y - a.height) > -1e-4
        for b in boxes[:i]:
            across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
            down = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
            assert min(across, down) < 1e-4


def test_rectangles_are_squarish() -> None:
    """The example of the paper: a row stops growing as soon as its worst rectangle would become longer."""
    boxes = lay_out_areas([6, 6, 4, 3, 2, 2, 1], Box(0.0, 0.0, 6.0, 4.0))
    assert (boxes[0].width, boxes[0].height) == (3, 2)
    assert max(max(b.width / b.height, b.height / b.width) for b in boxes) < 3


def test_the_parts_of_an_area_add_up_to_it_and_descend() -> None:
    areas = find_areas(choose_chain(TABLES))
    assert [area.label for area in areas] == [
        str(label) for _, label in sorted(zip(-TABLES[1].columns["count"], TABLES[1].columns["region"], strict=True))
    ]
    for area in areas:
        assert sum(part.count for part in area.parts) == area.count
        assert all(a.count >= b.count for a, b in pairwise(area.parts))


def test_the_largest_of_many_cells_are_shown_and_the_rest_together() -> None:
    counts = np.arange(MOST + 50, dtype=np.int64)
    columns = dict.fromkeys(("town", "count", "low", "high"), counts)
    columns |= {"quality": np.full(len(counts), "A", dtype=object), "part_of": np.zeros_like(counts)}
    town = PublishedTable("town", ("town",), columns, "total", True, 0)
    areas = find_areas(choose_chain([TABLES[0], town]))
    assert {area.label for area in areas} == {str(i) for i in range(50, MOST + 50)} | {"50 smaller cells"}
    assert sum(area.count for area in areas) == counts.sum()


def test_the_chosen_chain_of_tables_has_the_most_cells_that_fit() -> None:
    total_, region, age = TABLES
    assert choose_chain(TABLES) == [region, age]
    assert choose_chain([total_]) == []
    wide = replace(age, columns={name: np.repeat(values, 30) for name, values in age.columns.items()})
    assert choose_chain([total_, region, wide]) == [region]


def test_empty_cells_have_no_rectangle() -> None:
    empty = Area("none", "none: 0", 0, "D")
    picture = draw_treemap([Area("all", "all: 5", 5, "A", (Area("some", "some: 5", 5, "A"), empty)), empty], 90.0, 60.0)
    assert picture.count("<rect") == 2
    assert "none" not in picture
