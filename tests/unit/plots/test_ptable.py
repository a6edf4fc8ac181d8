"""The pictures of a p-table: four readings on the left, the cells on the right."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from countveil import ptables
from countveil.plots.chart_files import save
from countveil.plots.ptable import MOST_ROWS, STYLES, cell_rows, curve_rows, ptable_chart


@pytest.fixture(scope="module")
def audit() -> ptables.Audit:
    return ptables.audit(ptables.design(D=5, V=3, js=2).table, curve=True)


def test_rows_have_every_reading_and_cell(audit: ptables.Audit) -> None:
    rows = curve_rows(audit)
    assert {row["series"] for row in rows} == {style.label for style in STYLES.values()}
    assert len(rows) == 4 * 41
    cells = cell_rows(audit.table)
    for i in range(audit.table.last + 1):
        assert sum(cell["p"] for cell in cells if cell["i"] == i) == pytest.approx(1)
    assert not any(cell["j"] in (1, 2) for cell in cells)


def test_long_tables_show_their_first_rows(audit: ptables.Audit) -> None:
    table = ptables.PTable(audit.table.rows + audit.table.rows[-1:] * 100)
    assert max(cell["i"] for cell in cell_rows(table)) == MOST_ROWS - 1
    assert f"of {table.last + 1}" in str(ptable_chart(ptables.audit(table, curve=True), "x").to_dict())


def test_axes_have_titles(audit: ptables.Audit) -> None:
    left, right = ptable_chart(audit, "table.txt").to_dict()["hconcat"]
    for picture, titles in ((left, ("epsilon", "delta")), (right, ("published count", "true count"))):
        text = str(picture)
        assert all(title in text for title in titles)


def test_tables_without_noise_are_drawn(tmp_path: Path) -> None:
    frozen = ptables.PTable((ptables.Row(0, (1,), 1),))
    path = tmp_path / "none.svg"
    save(ptable_chart(ptables.audit(frozen, curve=True), "none"), path)
    ElementTree.fromstring(path.read_text())
