"""The tables of rivals in README and docs are what the code measures."""

from __future__ import annotations

import pytest

from tests.support.rivals import (
    DUEL_BEGIN,
    DUEL_END,
    DUEL_PAGE,
    DUEL_TERMS,
    PAGES,
    ROOT,
    measure_all,
    measure_duel,
    read_table,
    render_duel,
    render_table,
)


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
    for rows in (ten, thirty):  # of laws that are never negative, ours is first
        never_negative = [row.variance for row in rows.values() if row.kind == "never negative"]
        assert min(never_negative) == rows["countveil"].variance
    others = [row.variance for key, row in one.items() if key != "finite-set"]
    assert one["canonical"].variance <= min(others) * (1 + 10**-9)
    readme = (ROOT / "README.md").read_text()
    for key, rows, words in (
        ("canonical", one, "canonical noise {:.3f}"),
        ("renyi", ten, "Renyi-optimal {:.2f}"),
        ("renyi", thirty, "Renyi-optimal {:.2f}"),
    ):
        assert words.format(float(rows[key].variance)) in readme


@pytest.mark.slow  # plans for up to thirty answers, and many Renyi-optimal laws for each
def test_renyi_optimal_laws_need_at_most_a_five_hundredth_less_variance_than_ours() -> None:
    measured = measure_duel()
    assert read_table(DUEL_PAGE, DUEL_BEGIN, DUEL_END) == render_duel(measured), "run: python -m tests.support.rivals"
    for terms, rows in zip(DUEL_TERMS, measured, strict=True):
        ours, renyi = rows["countveil-signed"].variance, rows["renyi"].variance
        assert renyi * (1 - 0.001) < ours < renyi * (1 + 0.002), terms
        assert (ours < renyi) == (terms == ("3", 10))
