"""Pools that pay for publications and for questions: who may pay with which grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import countveil as cv
from tests.support.curated import config_text, people, written
from tests.support.ledgers import database
from tests.support.makers import postgres_table
from tests.support.published import TOWNS, config_text as config_of_place, rows

BUDGET = 'epsilon = "10"\ndelta = "0.01"\nanswers = 1\nshares = { ann = 1 }\n'
PUBLICATION = '[publication.yearbook]\ndataset = "people"\ntables = [{ by = ["region"] }]\n'


@pytest.fixture
def curator(tmp_path: Path) -> Iterator[cv.Curator]:
    people(tmp_path)
    with cv.Curator.open(written(tmp_path, config_text(budget=BUDGET) + PUBLICATION)) as opened:
        yield opened


@pytest.mark.postgres
def test_tables_in_postgresql_are_published_with_a_ledger_in_postgresql(tmp_path: Path) -> None:
    """Charges, the count, noise, records and the replay, with a server on both sides."""
    (tmp_path / "towns.csv").write_text("town,county\n" + "".join(f"{town},{place}\n" for town, place in TOWNS.items()))
    names, types = ("id", "town", "sex", "age"), {"id": "int64", "town": "text", "sex": "text", "age": "int64"}
    source = postgres_table([dict(zip(names, row, strict=True)) for row in rows()], types, tmp_path)
    path = tmp_path / "countveil.toml"
    text = config_of_place(tables='[{ by = ["county"] }, { by = ["town"] }]', more='output = "out"')
    text = text.replace('source = "people.csv"', f'source = "{source.location}"\ntable = "{source.table}"')
    path.write_text(f'[ledger]\npath = "{database()}"\nanchor = "ledger.anchor"\n{text}')
    with cv.Curator.open(path) as curator:
        published = curator.publish("census")
        again = curator.publish("census")
        charges = {charge.id: charge.dataset for charge in curator.ledger.charges()}
    assert (published.replayed, again.replayed, published.verify()) == (False, True, [])
    assert list(charges) == published.manifest["receipts"]
    counties, towns = published["county"], published["town"]
    truth = Counter(TOWNS[row[1]] for row in rows())
    true = [truth[county] for county in counties["county"]]
    assert (counties["certain_low"] <= true).all()
    assert (true <= counties["certain_high"]).all()
    assert (np.bincount(towns["part_of"], weights=towns["count"]) == counties["count"]).all()


def test_in_a_pool_with_shares_editions_are_for_the_curator_and_not_for_analysts(curator: cv.Curator) -> None:
    dataset = curator.config.dataset("people")
    for editions in (1, 0):
        assert curator.plan_publication("yearbook").editions_left == editions
        assert [(each.name, each.answers_left) for each in curator.grades_left(dataset, "ann")] == [
            ("standard", 1),
            ("yearbook-1", 0),
        ]
        assert curator.left(dataset, "ann") == 1
        assert curator.publish("yearbook").replayed is (editions == 0)


def test_answers_added_without_a_grade_go_to_the_only_grade_for_questions(curator: cv.Curator) -> None:
    curator.publish("yearbook")
    after = curator.extend_budget("people", 2, "a second report")
    assert [(each.name, each.answers_total) for each in after.grades] == [("standard", 3), ("yearbook-1", 1)]


def test_a_receipt_states_that_what_it_counted_is_unknown_once_the_publication_has_changed(curator: cv.Curator) -> None:
    id = curator.publish("yearbook").manifest["receipts"][0]
    receipt, config = curator.receipt(id), curator.config.path
    assert receipt is not None
    words = "people; at most 1 row each in a cell, 1 cell each; interval for the count within these bounds"
    assert receipt.truth.startswith(f"{words}; a person is all rows with one value of ")
    written(config.parent, config.read_text().replace("tables =", "editions = 2\ntables ="))
    with cv.Curator.open(config) as changed:
        later = changed.receipt(id)
    assert later is not None
    assert later.truth.startswith("unknown: the schema or the bounds")
