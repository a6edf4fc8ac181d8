"""A heavy-tailed file, 200,000 visits of 31,490 people: which bounds `init` proposes, and what the intervals cover."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from countveil.config.bounds import BoundsChoice
from countveil.config.configuration import load
from countveil.config.draft import Draft, propose
from countveil.curator.curator import Curator
from countveil.curator.recorded_counts import draw_counts
from countveil.data.engines import Engine, Source, open_engine
from countveil.mechanism.intervals import Ints
from countveil.query import Question, ask
from tests.support import visits

RELEASES = 400
TINY = 1e-9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    visits.write_visits(folder)
    return folder


@pytest.fixture(scope="module")
def draft(folder: Path) -> Draft:
    return propose(Source("visits.parquet", directory=folder), unit="person", answers=10)


def choice_of(draft: Draft, rows: int, cells: int) -> BoundsChoice:
    assert draft.bounds is not None
    return next(each for each in draft.bounds.choices if each.bounds == (rows, cells))


def test_the_file_of_visits_has_a_heavy_tail() -> None:
    counts = visits.visits_of_people()
    assert (counts.sum(), len(counts), counts.max()) == (visits.VISITS, visits.PEOPLE, visits.MOST)
    assert np.median(counts) == 1
    assert counts[:1000].sum() > visits.VISITS / 3  # 3 % of the people have over a third of the visits


def test_the_proposed_bounds_keep_far_more_rows_than_one_row_per_person(draft: Draft) -> None:
    assert draft.bounds is not None
    best, narrow = draft.bounds.best, choice_of(draft, 1, 1)
    assert narrow.rows_kept == pytest.approx(visits.PEOPLE / visits.VISITS)
    assert narrow.larger == "left out"
    assert best.rows_kept > 4 * narrow.rows_kept
    assert best.people_kept > 0.9
    assert best.error < 0.6 * narrow.error
    assert (best.rows_per_person, best.cells_per_person) in {(10, 20), (10, 50), (20, 20)}


def test_the_proposed_bounds_have_the_least_error_of_the_grid(draft: Draft) -> None:
    assert draft.bounds is not None
    assert draft.bounds.best.error == min(choice.error for choice in draft.bounds.choices)


def test_bounds_are_proposed_within_five_seconds(folder: Path) -> None:
    began = time.process_time()
    propose(Source("visits.parquet", directory=folder), unit="person")
    assert time.process_time() - began < 5


# Coverage


def confirm(folder: Path, text: str, name: str) -> Path:
    """The configuration with its guesses confirmed, and a ledger of its own."""
    path = folder / name
    ledger = f'[ledger]\npath = "{name}.ledger"\n'
    path.write_text(ledger + text.replace(", guessed = true", "").replace("bounds_guessed = true", ""))
    Curator.open(path, new_ledger=True).close()
    return path


def cover(config: Path, truth_of: Callable[[Engine, Question], Ints]) -> tuple[int, int]:
    """The number of intervals that cover the truth in many releases, and the number of all intervals."""
    dataset = load(config, {}).dataset("visits")
    engine = open_engine(dataset.source, dataset.schema)
    covered = tried = 0
    try:
        with Curator.open(config) as curator:
            for column in ("region", "ward", "month"):
                table, question = curator.count(by=column), ask(dataset.schema, dataset="visits", by=column)
                assert table.truth is not None
                assert table.truth.interval == "interval for the count within these bounds"
                assert table.intervals is not None
                bounded, truth = engine.count(question, salt=b"salt"), truth_of(engine, question)
                for _ in range(RELEASES):
                    low, high = table.intervals.of(draw_counts(table.mechanism, bounded, question.cells))
                    covered += int(((low <= truth) & (truth <= high)).sum())
                    tried += question.cells
    finally:
        engine.close()
    return covered, tried


def count_within_bounds(engine: Engine, question: Question) -> Ints:
    return engine.count(question, salt=b"salt")


def count_rows(engine: Engine, question: Question) -> Ints:
    """The number of rows in each cell, without any bounds."""
    schema = replace(question.schema, unit="row", rows_per_person=1, cells_per_person=1)
    return engine.count(ask(schema, dataset="visits", by=[column.name for column in question.by]), salt=b"salt")


@pytest.mark.slow  # a plan for 10 rows in 20 cells, and 400 releases of three tables
def test_the_intervals_cover_the_count_within_the_proposed_bounds(folder: Path, draft: Draft) -> None:
    assert draft.bounds is not None
    config = confirm(folder, draft.text, "proposed.toml")
    covered, tried = cover(config, count_within_bounds)
    assert stats.binomtest(covered, tried, 0.95, alternative="less").pvalue > TINY
    with Curator.open(config) as curator:
        margin = curator.dry_run(by="ward").margin_95
    assert draft.bounds.best.margin_95 == pytest.approx(margin, rel=0.1)  # the estimate that the curator saw


@pytest.mark.slow  # a plan, and 400 releases of three tables
def test_with_the_narrowest_bounds_hardly_an_interval_covers_the_number_of_all_rows(folder: Path, draft: Draft) -> None:
    """So an answer has to state its bounds beside the interval; the binomial test detects the difference."""
    narrow = re.sub("(rows|cells)_per_person = [0-9]+", r"\1_per_person = 1", draft.text)
    config = confirm(folder, narrow, "narrow.toml")
    covered, tried = cover(config, count_within_bounds)
    assert stats.binomtest(covered, tried, 0.95, alternative="less").pvalue > TINY
    covered, tried = cover(config, count_rows)
    assert covered < 0.1 * tried
    assert stats.binomtest(covered, tried, 0.95, alternative="less").pvalue < TINY
