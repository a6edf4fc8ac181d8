"""The tables of rivals in README and docs are what the code measures."""

from __future__ import annotations

import pytest

from tests.support.rivals import PAGES, measure_all, read_table, render_table


@pytest.mark.slow  # tunes every mechanism for one answer, for ten and for thirty
def test_the_pages_show_the_table_of_rivals_as_it_is_measured() -> None:
    measured = measure_all()
    for page, mechanisms in PAGES.items():
        assert read_table(page) == render_table(measured, mechanisms), "run: python -m tests.support.rivals"
    one, ten, thirty = measured
    for rows in measured:
        ours = rows["countveil-signed"].variance
        bounded = [row.variance for row in rows.values() if row.kind == "bounded"]
        assert min(bounded) >= ours * (1 - 10**-9)
    assert ten["countveil-signed"].variance < ten["renyi"].variance
    assert thirty["renyi"].variance < thirty["countveil-signed"].variance < thirty["renyi"].variance * 1.0005
    others = [row.variance for key, row in one.items() if key != "finite-set"]
    assert one["canonical"].variance <= min(others) * (1 + 10**-9)
