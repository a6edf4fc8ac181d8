"""The workflow on real files and ledgers: pay, count, draw, record, answer. Refusals are free, repeats are replays."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import countveil as cv
from countveil.accounting import compose
from countveil.accounting.privacy_loss import float_below
from countveil.curator.curator import Curator
from countveil.data.engines import Source, open_engine
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import (
    BudgetError,
    ConfigError,
    CountveilError,
    DataError,
    EngineError,
    ParameterError,
    QueryError,
    RequestError,
)
from countveil.mechanism.sum_bias import bias_of_sum
from countveil.numeric.exact_numbers import decimal_text
from countveil.query import Question
from tests.support.curated import COLUMNS, MANY, QUICK, charged, config_text, people, with_plan, write_rows, written

BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
TOTAL = "SELECT count(*) FROM people"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    return path


@pytest.fixture
def curator(config: Path) -> Iterator[Curator]:
    with Curator.open(config) as opened:
        yield opened


def left(curator: Curator) -> int:
    (budget,) = curator.budget("people")
    return budget.answers_left


def test_count_returns_bounded_counts_and_charges_one_answer(curator: Curator) -> None:
    table = curator.count(BY_REGION)
    counts = {region: y for region, y, _, _ in table.rows}
    assert list(counts) == ["North", "South", "East", "West"]
    worst = table.mechanism.certificate.worst_error
    for region, n in {"North": 3, "South": 2, "East": 1, "West": 1}.items():
        assert 0 <= counts[region] <= n + worst
    assert not table.replayed
    assert left(curator) == 3


def test_as_many_empty_cells_are_released_as_0_as_the_law_says(config: Path) -> None:
    """480 cells, nearly all empty: as many are released as 0 as the law says, up to p = 1e-9."""
    written(config.parent, config_text(columns=COLUMNS.replace(", step = 10", "")))
    with Curator.open(config) as curator:
        table = curator.count("SELECT region, age, count(*) FROM people GROUP BY region, age")
    law = table.mechanism.law(0)
    exact = int((table.released == 0).sum())
    assert len(table.released) == 480
    assert stats.binomtest(exact, 480, float(law.eta)).pvalue > 1e-9
    assert 0 < exact < 480


def test_without_a_declared_budget_every_request_is_refused(tmp_path: Path) -> None:
    people(tmp_path)
    with Curator.open(written(tmp_path, config_text().split("[dataset.people.budget]")[0])) as curator:
        for request in (lambda: curator.budget(), lambda: curator.budget("people"), lambda: curator.dry_run(TOTAL)):
            with pytest.raises(ConfigError, match="budget"):
                request()


def test_the_receipt_states_question_mechanism_and_budget(curator: Curator) -> None:
    table = curator.count(BY_REGION, analyst="ann")
    receipt, record = table.receipt, curator.ledger.plan("people")
    assert record is not None
    assert receipt.question == curator.question(BY_REGION).sha256
    assert receipt.text == BY_REGION
    assert receipt.mechanism == record.grades[0].mechanism == cv.Mechanism.from_text(record.grades[0].document).hash
    assert (receipt.epsilon, receipt.delta, receipt.answers, receipt.answers_left) == ("10", "0.01", 4, 3)
    assert (receipt.dataset, receipt.pool, receipt.version) == ("people", "people", 1)
    assert receipt.time.endswith("+00:00")
    (charge,) = curator.ledger.charges()
    assert (charge.id, charge.analyst) == (receipt.id, "ann")


def test_the_planned_mechanism_meets_epsilon_and_delta_for_all_answers(config: Path) -> None:
    with Curator.open(config) as curator:
        record = curator.ledger.plan("people")
        assert record is not None
        mechanism = cv.Mechanism.from_text(record.grades[0].document)
        together = compose(mechanism, record.answers).delta(float_below(Fraction(record.epsilon)))
        assert together.upper <= Fraction(record.delta)


def test_the_first_question_records_the_plan(tmp_path: Path) -> None:
    people(tmp_path)
    with Curator.open(written(tmp_path)) as curator:
        assert curator.ledger.plan("people") is None
        curator.count(TOTAL)
        assert curator.ledger.plan("people") is not None


def test_dry_runs_and_budget_queries_record_no_plan(tmp_path: Path) -> None:
    """A dry run and a look at the budget leave the curator free to choose another epsilon."""
    people(tmp_path)
    text = config_text(budget=QUICK + "shares = { ann = 2 }")
    with Curator.open(written(tmp_path, text)) as curator:
        dry_run = curator.dry_run(BY_REGION, analyst="ann")
        assert (dry_run.cost, dry_run.answers_left) == (1, 2)
        (budget,) = curator.budget()
        assert (budget.answers_total, budget.answers_left, budget.shares["ann"].left) == (4, 4, 2)
        assert curator.ledger.plan("people") is None
        before = dry_run.margin_95
    with Curator.open(written(tmp_path, text.replace('"10"', '"12"'))) as curator:
        assert curator.count(BY_REGION, analyst="ann").receipt.epsilon == "12"
        assert curator.dry_run(TOTAL, analyst="ann").margin_95 <= before


# Dry runs


def test_a_dry_run_states_the_accuracy_of_the_answer(curator: Curator) -> None:
    entries = len(list(curator.ledger.entries()))
    dry_run = curator.dry_run(BY_REGION)
    table = curator.count(BY_REGION)
    assert entries + 4 == len(list(curator.ledger.entries()))  # version, dataset, charge, answer: no dry run
    assert (dry_run.question, dry_run.text, dry_run.dataset, dry_run.pool) == (
        table.receipt.question,
        table.receipt.text,
        "people",
        "people",
    )
    assert (dry_run.cells, dry_run.cost, dry_run.answers_left) == (4, 1, 4)
    assert (dry_run.margin_95, dry_run.worst_error) == (
        table.mechanism.margin_95,
        table.mechanism.certificate.worst_error,
    )
    assert f"within {table.total().margin_95} of the count within these bounds" in " ".join(dry_run.notes)
    sums = bias_of_sum(table.mechanism, 4)
    assert sums.high > 0
    assert sums.note in dry_run.notes
    assert dry_run.sum_bias == decimal_text(sums.largest, 6, "up")


def test_a_dry_run_spends_nothing(curator: Curator) -> None:
    for _ in range(10):
        curator.dry_run(BY_REGION)
    assert left(curator) == 4
    assert not list(curator.ledger.charges())


def test_a_dry_run_of_a_question_asked_before_costs_nothing(curator: Curator) -> None:
    curator.count(BY_REGION)
    dry_run = curator.dry_run("SELECT region, count(*) AS n FROM people WHERE region IS NOT NULL GROUP BY region")
    assert dry_run.cost == 0
    assert "asked before: the answer is on the record, and free" in dry_run.notes


def test_a_dry_run_warns_if_no_declared_value_satisfies_the_condition(curator: Curator) -> None:
    assert any("noise around zero" in note for note in curator.dry_run(f"{TOTAL} WHERE age < 0").notes)


def test_a_dry_run_is_refused_when_the_budget_is_spent(curator: Curator) -> None:
    for age in (1, 2, 3, 4):
        curator.count(f"{TOTAL} WHERE age > {age}")
    with pytest.raises(BudgetError) as refused:
        curator.dry_run(BY_REGION)
    with pytest.raises(BudgetError, match=str(refused.value)):
        curator.count(BY_REGION)
    assert curator.dry_run(f"{TOTAL} WHERE age > 1").cost == 0
    assert curator.count(f"{TOTAL} WHERE age > 1").replayed


# Repeats are replays


SAME = [
    BY_REGION,
    "select Region , COUNT( * ) from PEOPLE group by REGION",
    'SELECT "region", count(*) AS "how many" FROM people GROUP BY "region"',
    "SELECT region, count(DISTINCT person) FROM people GROUP BY region",
    "SELECT region, count(*) FROM people WHERE NOT region IS NULL GROUP BY region",
    "SELECT region, count(*) FROM people WHERE region IN ('North','South','East','West') GROUP BY region",
    "SELECT region, count(*) FROM people WHERE region <> 'North' OR region = 'North' GROUP BY region",
]


def test_equal_questions_written_differently_are_one_question(curator: Curator) -> None:
    first = curator.count(BY_REGION)
    for sql in SAME:
        again = curator.count(sql)
        assert again.replayed
        assert again.released.tobytes() == first.released.tobytes()
        assert again.receipt == first.receipt
    again = curator.count(dataset="people", by="region")
    assert again.replayed
    assert again.receipt == first.receipt
    assert left(curator) == 3


def test_a_replay_in_another_process_is_the_same_byte_for_byte(config: Path) -> None:
    with Curator.open(config) as curator:
        first = json.dumps(curator.count(BY_REGION).describe())
    code = (
        "import json, sys, countveil as cv\n"
        "with cv.Curator.open(sys.argv[1]) as c: t = c.count(sys.argv[2])\n"
        "assert t.replayed\nprint(json.dumps({**t.describe(), 'replayed': False}))"
    )
    where = {**os.environ, "PYTHONPATH": str(Path(cv.__file__).parents[1])}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(config), BY_REGION], capture_output=True, text=True, check=True, env=where
        )
        assert done.stdout.strip() == first
    assert charged(config) == 1


def test_columns_come_in_the_order_asked(curator: Curator) -> None:
    one = curator.count("SELECT region, age, count(*) FROM people GROUP BY region, age")
    two = curator.count("SELECT age, region, count(*) AS n FROM people GROUP BY age, region")
    assert two.replayed
    assert two.columns == ["age", "region", "n", "n_low", "n_high"]
    assert {(r, a): rest for r, a, *rest in one.rows} == {(r, a): rest for a, r, *rest in two.rows}
    assert [row[0] for row in two.rows][:5] == ["0-9"] * 4 + ["10-19"]


def test_the_column_of_counts_can_have_any_name(curator: Curator) -> None:
    table = curator.count(dataset="people", by="region", name="n")
    assert table.columns == ["region", "n", "n_low", "n_high"]


# New data


def test_new_data_is_a_new_version_of_the_same_plan(config: Path) -> None:
    old = (config.parent / "people.csv").read_bytes()
    with Curator.open(config) as curator:
        first = curator.count(BY_REGION)
        people(config.parent, "N" * 50 + "W" * 60)
        second = curator.count(BY_REGION)
        assert (second.receipt.version, second.replayed) == (2, False)
        assert second.receipt.mechanism == first.receipt.mechanism
        assert abs(dict(list(row)[:2] for row in second.rows)["West"] - 60) <= second.mechanism.certificate.worst_error
        assert curator.count(BY_REGION).released.tobytes() == second.released.tobytes()
        assert left(curator) == 2
        (config.parent / "people.csv").write_bytes(old)
        back = curator.count(BY_REGION)
        assert (back.receipt.version, back.replayed, back.receipt.id) == (1, True, first.receipt.id)
        assert back.released.tobytes() == first.released.tobytes()
        assert left(curator) == 2


def test_the_version_number_is_read_again_when_the_plan_record_changes(
    curator: Curator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore may change the number; it also adds an entry, and so changes the plan record of the pool."""
    calls, version = [], curator.ledger.version
    monkeypatch.setattr(curator.ledger, "version", lambda *content: calls.append(content) or version(*content))
    for age in (10, 20):
        curator.count(f"{TOTAL} WHERE age >= {age}")
    assert len(calls) == 1
    curator.extend_budget("people", 1, "for another record")
    assert curator.count(f"{TOTAL} WHERE age >= 30").receipt.version == 1
    assert len(calls) == 2


def test_a_source_rewritten_with_the_same_bytes_keeps_its_version(config: Path) -> None:
    with Curator.open(config) as curator:
        first = curator.count(BY_REGION)
        people(config.parent)
        assert curator.count(BY_REGION).receipt.id == first.receipt.id


def test_files_of_a_glob_may_be_renamed(tmp_path: Path) -> None:
    people(tmp_path, "NNN", "part-1.csv")
    people(tmp_path, "SSS", "part-2.csv")
    path = written(tmp_path, config_text(source="part-*.csv"))
    with_plan(path)
    with Curator.open(path) as curator:
        curator.count(BY_REGION)
        (tmp_path / "part-2.csv").rename(tmp_path / "part-3.csv")
        assert curator.count(TOTAL).receipt.version == 1
        people(tmp_path, "E", "part-4.csv")
        assert curator.count(TOTAL).receipt.version == 2


class Meanwhile(DuckDBEngine):
    """An engine that calls `happens` after it counted, to change the source meanwhile."""

    happens: Any = None

    def count(self, question: Question, *, salt: bytes) -> Any:
        counts = super().count(question, salt=salt)
        if Meanwhile.happens:
            Meanwhile.happens()
        return counts


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countveil.data.engines.engine.open_engine", lambda source, schema: Meanwhile(source, schema))


@pytest.mark.usefixtures("meanwhile")
def test_a_source_replaced_while_counting_keeps_the_charge_and_gives_no_answer(config: Path) -> None:
    with Curator.open(config) as curator:
        Meanwhile.happens = lambda: people(config.parent, "NNNN")
        try:
            with pytest.raises(EngineError, match="the source changed while it was counted; the charge is kept"):
                curator.count(BY_REGION)
        finally:
            Meanwhile.happens = None
        assert left(curator) == 3
        assert [charge.answered for charge in curator.ledger.charges()] == [None]
        assert curator.count(BY_REGION).receipt.version == 2
        assert left(curator) == 2
        people(config.parent)  # the old content again: its charge was kept, so its answer is paid for
        assert curator.dry_run(BY_REGION).cost == 0
        assert "paid for, not yet answered" in " ".join(curator.dry_run(BY_REGION).notes)
        assert curator.count(BY_REGION).receipt.version == 1
        assert left(curator) == 2


@pytest.mark.parametrize("back", [True, False], ids=["and back", "for good"])
def test_a_source_written_while_it_is_opened_charges_nothing(
    config: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """An engine must read the content that was fingerprinted; otherwise nothing is charged."""

    def opening(source: Source, schema: Any) -> Any:
        people(config.parent, "EEEEEEEE")
        opened = open_engine(source, schema)
        if back:
            people(config.parent)
        return opened

    with Curator.open(config) as curator:
        os.utime(config.parent / "people.csv", (1, 1))  # old enough for its modification time to be trusted
        with monkeypatch.context() as patched:
            patched.setattr("countveil.data.engines.engine.open_engine", opening)
            with pytest.raises(EngineError, match="data changed while it was opened; nothing was charged; ask again"):
                curator.count(BY_REGION)
        assert list(curator.ledger.charges()) == []
        assert not curator._engines._current, "the engine is not cached"
        people(config.parent)
        assert curator.count(BY_REGION).receipt.version == 1


@pytest.mark.slow  # many processes
@pytest.mark.parametrize("source", ["now.csv", "part-*.csv"], ids=["another target of a link", "one file more"])
def test_a_path_whose_files_change_while_they_are_opened_counts_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The files that were fingerprinted and charged are counted, also if the path names them again afterwards."""
    few, many = people(tmp_path, "N", "part-1.csv"), people(tmp_path, "N" * 500, "many.csv")
    os.utime(few, (1, 1))  # old enough for its modification time to be trusted
    os.utime(many, (1, 1))
    time.sleep(2.1)
    now, config = tmp_path / "now.csv", written(tmp_path, config_text(source=source, unit="row", budget=MANY))
    now.symlink_to(few)
    with_plan(config)

    def opening(source: Source, schema: Any) -> Any:
        now.unlink()
        now.symlink_to(many)
        (tmp_path / "part-2.csv").hardlink_to(many)
        try:
            return open_engine(source, schema)
        finally:
            (tmp_path / "part-2.csv").unlink()
            now.unlink()
            now.symlink_to(few)

    with Curator.open(config) as curator:
        with monkeypatch.context() as patched:
            patched.setattr("countveil.data.engines.engine.open_engine", opening)
            tables = [curator.count(f"{TOTAL} WHERE age >= {age}") for age in (0, 5, 10)]
        assert [table.receipt.version for table in tables] == [1, 1, 1]
        assert all(abs(int(table.released[0]) - 1) <= table.worst_error < 400 for table in tables)


def test_an_engine_that_was_opened_just_after_a_write_is_not_used_again(config: Path) -> None:
    """Its files could have been written twice with the same modification time."""
    with Curator.open(config) as curator:
        source = curator._source(curator.config.dataset("people"))
        fresh, again = curator._fingerprints.look(source), curator._fingerprints.look(source)
        assert fresh.fingerprint == again.fingerprint
        assert fresh.state != again.state
        time.sleep(2.1)
        assert curator._fingerprints.look(source).state == curator._fingerprints.look(source).state


@pytest.mark.usefixtures("meanwhile")
def test_a_file_deleted_while_counting_keeps_the_charge(config: Path) -> None:
    with Curator.open(config) as curator:
        Meanwhile.happens = (config.parent / "people.csv").unlink
        try:
            with pytest.raises(EngineError):
                curator.count(BY_REGION)
        finally:
            Meanwhile.happens = None
        assert left(curator) == 3


# Refused before counting, so nothing is charged


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"question": "SELECT count(*) FROM nothing"}, QueryError),
        ({"question": "SELECT name, count(*) FROM people GROUP BY name"}, QueryError),
        ({"question": "SELECT avg(age) FROM people"}, QueryError),
        ({"question": f"{TOTAL} WHERE 1/0 = 1"}, QueryError),
        ({"question": TOTAL, "by": "region"}, QueryError),
        ({"dataset": "people", "by": ["region", "region"]}, QueryError),
        ({"dataset": "people", "by": "region", "name": "region"}, QueryError),
        ({"question": TOTAL, "analyst": ""}, ParameterError),
        ({"question": TOTAL, "analyst": "a\nb"}, ParameterError),
        ({"question": TOTAL, "analyst": None}, ParameterError),
        ({"question": TOTAL, "analyst": "x" * 101}, ParameterError),
        ({"question": TOTAL, "frame": "excel"}, ParameterError),
        ({"question": TOTAL, "frame": ["pandas"]}, ParameterError),
    ],
)
def test_bad_questions_cost_nothing(form: dict[str, Any], error: type[CountveilError], curator: Curator) -> None:
    before = list(curator.ledger.entries())
    with pytest.raises(error):
        curator.count(**form)
    assert list(curator.ledger.entries()) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (config_text(source="gone.csv"), EngineError),
        (config_text(source="people.xls"), EngineError),
        (config_text(source="gone-*.parquet"), EngineError),
        (config_text(source="broken.parquet"), EngineError),
        (config_text(source="people.csv", columns=COLUMNS + "sex = [1, 2]"), DataError),
        (config_text(source="people.csv", unit="nobody"), DataError),
        (config_text(source="zoned.parquet", columns="day = { min = 2026-01-01, max = 2026-01-31 }"), DataError),
        (config_text(source="zoned.parquet", columns="a = [1]", unit="day"), DataError),
        (config_text(columns='region = { values = ["North"], guessed = true }'), ConfigError),
        (config_text().split("[dataset.people.budget]")[0], ConfigError),
        (config_text(more='engine = "nope"'), EngineError),
    ],
)
def test_bad_sources_cost_nothing(text: str, error: type[CountveilError], tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none PAR1")
    when = pa.array([0, 1], pa.timestamp("us", tz="UTC"))
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"person": [1, 2], "day": when, "a": [1, 1], "ratio": [0.5, 1.0]}), tmp_path / "zoned.parquet"
    )
    with Curator.open(written(tmp_path, text)) as curator:
        with pytest.raises(error) as refused:
            curator.count(TOTAL)
        assert "broken.parquet' is too small" not in str(refused.value)
        assert curator.ledger.plan("people") is None
        assert not list(curator.ledger.charges())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (('"10"', '"11"'), "dataset.people.budget"),
        (('"0.01"', '"0.02"'), "dataset.people.budget"),
        (("answers = 4", "answers = 5"), "dataset.people.budget"),
        (("answers = 4", "answers = 4\npolicy = 'signed'"), "dataset.people.budget"),
        (("answers = 4", "answers = 4\nobjective = 'eta'"), "dataset.people.budget"),
        (('unit = "person"', 'unit = "person"\nrows_per_person = 2'), "dataset.people"),
        (('unit = "person"', 'unit = "person"\ncells_per_person = 2'), "dataset.people"),
        (('unit = "person"', 'unit = "person"\nneighbours = "replace"'), "dataset.people"),
    ],
)
def test_a_configuration_that_differs_from_the_recorded_plan_is_refused(
    change: tuple[str, str], key: str, config: Path
) -> None:
    changed = written(config.parent, config_text().replace(*change))
    with Curator.open(changed) as curator:
        for request in (lambda: curator.count(TOTAL), lambda: curator.dry_run(TOTAL), lambda: curator.budget()):
            with pytest.raises(ConfigError) as refused:
                request()
            assert refused.value.key == key
    assert charged(changed) == 0


def test_the_same_budget_in_other_digits_is_accepted(config: Path) -> None:
    with Curator.open(
        written(config.parent, config_text().replace('"10"', '"1e1"').replace("0.01", "1e-2"))
    ) as curator:
        assert left(curator) == 4


# Budgets


def test_new_questions_are_refused_when_the_budget_is_spent(curator: Curator) -> None:
    for age in range(4):
        curator.count(f"{TOTAL} WHERE age > {age}")
    with pytest.raises(BudgetError) as refused:
        curator.count(BY_REGION)
    assert (refused.value.pool, refused.value.answers) == ("people", 4)
    assert curator.count(f"{TOTAL} WHERE age > 2").replayed


def test_shares_limit_each_analyst(tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(budget=QUICK + "shares = { ann = 2, bob = 1 }"))
    with_plan(path)
    with Curator.open(path) as curator:
        curator.count(f"{TOTAL} WHERE age > 1", analyst="bob")
        with pytest.raises(BudgetError, match="share of bob"):
            curator.count(BY_REGION, analyst="bob")
        with pytest.raises(BudgetError, match="eve has no share"):
            curator.count(BY_REGION, analyst="eve")
        assert curator.dry_run(BY_REGION, analyst="ann").answers_left == 2
        curator.count(BY_REGION, analyst="ann")
        assert curator.count(BY_REGION, analyst="bob").replayed  # what is on record is free for everyone
        (budget,) = curator.budget()
        assert {who: (s.answers, s.left) for who, s in budget.shares.items()} == {"ann": (2, 1), "bob": (1, 0)}
        assert budget.answers_left == 2
    with Curator.open(written(tmp_path, config_text(budget=QUICK + "shares = { ann = 2, bob = 2 }"))) as curator:
        curator.count(TOTAL, analyst="bob")
        assert curator.ledger.verify() > 0
    with Curator.open(written(tmp_path, config_text(budget=QUICK + "shares = { ann = 2, bob = 1 }"))) as curator:
        assert curator.left(curator.config.dataset("people"), "bob") == 0  # bob has spent more than the lowered share
        with pytest.raises(BudgetError, match="share of bob"):
            curator.count(f"{TOTAL} WHERE age > 2", analyst="bob")
        assert curator.ledger.verify() > 0


def test_threads_with_one_question_get_one_answer(curator: Curator) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: curator.count(BY_REGION).released.tobytes(), range(16)))
    assert len(set(answers)) == 1
    assert left(curator) == 3


def test_a_pool_keeps_its_unit_when_another_dataset_takes_its_place(tmp_path: Path) -> None:
    people(tmp_path)
    write_rows(tmp_path / "homes.csv", ["home", "region", "age"], [(1, "North", 5), (2, "South", 50)])
    text = config_text(budget=QUICK + 'pool = "all"\n')
    with Curator.open(written(tmp_path, text)) as curator:
        curator.count(TOTAL)
    homes = text.replace("dataset.people", "dataset.homes").replace("people.csv", "homes.csv").replace("person", "home")
    written(tmp_path, homes)
    with Curator.open(tmp_path / "countveil.toml") as curator:
        for ask in (curator.count, curator.dry_run):
            with pytest.raises(ConfigError, match="unit: is home, and that of people in the same pool all is person"):
                ask("SELECT count(*) FROM homes")
        assert len(curator.history()) == 1


def test_two_datasets_of_a_pool_share_its_budget(tmp_path: Path) -> None:
    people(tmp_path)
    text = config_text(budget=QUICK + 'pool = "all"\n')
    more = text.replace("dataset.people", "dataset.visits").replace(
        'unit = "person"', 'unit = "person"\ncells_per_person = 3'
    )
    path = written(tmp_path, text + more)
    with Curator.open(path) as curator:
        curator.count(TOTAL)
        curator.count("SELECT count(*) FROM visits")
        (budget,) = curator.budget()
        assert (budget.pool, budget.datasets, budget.answers_left) == ("all", ("people", "visits"), 2)
        assert curator.budget("visits") == curator.budget("people") == curator.budget("all")
        record = curator.ledger.plan("all")
        assert record is not None
        assert record.cells == 3  # the plan covers the most that any dataset of the pool lets a person do
        assert curator.count(TOTAL).replayed
        curator.count("SELECT count(*) FROM visits WHERE age > 5")
        curator.count("SELECT count(*) FROM visits WHERE age > 6")
        with pytest.raises(BudgetError):
            curator.count(BY_REGION)


@pytest.mark.slow  # many processes
@pytest.mark.parametrize("terms", ["", "cells_per_person = 2\nneighbours = 'replace'"])
def test_an_extended_budget_is_certified_and_recorded(terms: str, tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(more=terms))
    with_plan(path)
    with Curator.open(path) as curator:
        curator.count(TOTAL)
        opened = curator.extend_budget("people", 3, "second  edition\n\x1b[31m")
        assert (opened.answers_total, opened.answers_left) == (7, 6)
        record = curator.ledger.plan("people")
        assert record is not None
        composed = compose(
            cv.Mechanism.from_text(record.grades[0].document), 7, neighbours=record.neighbours, cells=record.cells
        )
        assert composed.delta(float_below(Fraction(opened.epsilon))).upper <= Fraction(record.delta)
        assert Fraction(opened.epsilon) > Fraction(record.epsilon)
        assert curator.count(BY_REGION).receipt.epsilon == opened.epsilon
        again = curator.extend_budget("people", "2", "third")
        assert again.answers_total == 9
        assert Fraction(again.epsilon) > Fraction(opened.epsilon)
        reasons = [entry.body["reason"] for entry in curator.ledger.entries() if entry.kind == "extend"]
        assert reasons[1] == "third"
        assert reasons[0].startswith("second edition")
        assert reasons[0].isprintable()
    with Curator.open(path) as curator:
        (budget,) = curator.budget()
        assert (budget.answers_total, budget.epsilon) == (9, again.epsilon)


@pytest.mark.parametrize("delta", ["1e-5", "0.007", "1e-3"])
def test_the_delta_of_an_extended_budget_is_rounded_down(delta: str, tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(budget=f'epsilon = "10"\ndelta = "{delta}"\nanswers = 2'))
    with Curator.open(path) as curator:
        opened = curator.extend_budget("people", 2, "more")
        record = curator.ledger.plan("people")
        assert record is not None
        upper = (
            compose(cv.Mechanism.from_text(record.grades[0].document), 4)
            .delta(float_below(Fraction(opened.epsilon)))
            .upper
        )
        assert Fraction(upper) <= Fraction(delta)


@pytest.mark.parametrize("answers", [0, -1, "x", 2.5, True, None, 10**7])
def test_invalid_answers_and_reasons_add_no_budget(answers: Any, curator: Curator) -> None:
    with pytest.raises(ParameterError):
        curator.extend_budget("people", answers, "why")
    for reason in ("", "  ", None):
        with pytest.raises(ParameterError):
            curator.extend_budget("people", 1, reason)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="neither a dataset with a budget nor a pool"):
        curator.extend_budget("nope", 1, "why")
    assert left(curator) == 4


def test_an_extension_by_more_answers_than_delta_allows_is_refused(curator: Curator) -> None:
    with pytest.raises(RequestError, match="no epsilon covers 100000 more answers"):
        curator.extend_budget("people", 10**5, "everything")
    assert left(curator) == 4


# Frames in memory


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_source_frame_gives_a_result_frame_of_the_same_kind(kind: str, tmp_path: Path) -> None:
    data = {"person": [1, 2, 3, 4], "region": ["North", "North", "East", None], "age": [5, 15, 15, 200]}
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind](data)
    path = written(tmp_path)
    with_plan(path)
    with Curator.open(path, sources={"people": frame}) as curator:
        table = curator.count(BY_REGION)
        assert type(table.frame) is type(frame)
        y = dict(zip(table.to("pandas")["region"], table.to("pandas")["count"], strict=True))
        assert abs(y["North"] - 2) <= table.mechanism.certificate.worst_error
        assert curator.count(BY_REGION, frame="polars").frame.equals(table.to("polars"))
        assert curator.count(BY_REGION).released.tobytes() == table.released.tobytes()
    with Curator.open(path, sources={"people": frame}) as curator:
        assert curator.count(BY_REGION).replayed
    data["age"][0] = 6
    other = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind](data)
    with Curator.open(path, sources={"people": other}) as curator:
        assert curator.count(BY_REGION).receipt.version == 2


def test_a_frame_that_changes_is_a_new_version(tmp_path: Path) -> None:
    path = written(tmp_path)
    with_plan(path)
    frame = pd.DataFrame({"person": [1, 2], "region": ["North", "South"], "age": [1, 2]})
    with Curator.open(path, sources={"people": frame}) as curator:
        assert curator.count(BY_REGION).receipt.version == 1
        frame.loc[0, "region"] = "West"
        assert curator.count(BY_REGION).receipt.version == 2


def test_frames_for_unknown_datasets_and_of_unknown_kinds_are_refused(config: Path) -> None:
    with pytest.raises(ConfigError, match="nope is not declared"):
        Curator.open(config, sources={"nope": pd.DataFrame()})
    with Curator.open(config, sources={"people": object()}) as curator, pytest.raises(ParameterError):
        curator.count(BY_REGION)
    assert charged(config) == 0


# True counts never leave the curator


PRIMES = {"North": 104729, "South": 99991, "East": 86028121 % 100003, "West": 15485863 % 99999}


@pytest.mark.slow  # many processes
def test_true_counts_are_in_no_output_log_or_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The true counts are large primes: no text, log, entry or file contains one unless it was released."""
    rows = [(region,) for region, n in PRIMES.items() for _ in range(n)]
    write_rows(tmp_path / "people.csv", ["region"], rows)
    columns = 'region = ["North", "South", "East", "West"]'
    path = written(tmp_path, config_text(unit="row", columns=columns, budget=MANY))
    with_plan(path)
    canaries = {str(n) for n in (*PRIMES.values(), sum(PRIMES.values()), len(rows))}
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG), Curator.open(path) as curator:
        for i in range(3):
            sql = f"SELECT region, count(*) AS c{i} FROM people GROUP BY region"
            table = curator.count(sql)
            for shown in (curator.dry_run(sql), table.receipt, *curator.budget()):
                seen += [repr(shown), repr(vars(shown)), shown._repr_html_()]
        released = {str(y) for y in table.released.tolist()} | {str(table.total().value)}
        for sql in (f"{BY_REGION} HAVING count(*) > 99991", "SELECT count(*) FROM people WHERE region = 'x'"):
            with pytest.raises(QueryError) as refused:
                curator.count(sql)
            seen.append(str(refused.value).replace("99991", ""))
        seen += [repr(entry) for entry in curator.ledger.entries()]
        ledger = curator.config.ledger
    seen += [repr(record.__dict__) for record in caplog.records if record.name.startswith("countveil")]
    assert any("answered charge=" in str(r.msg) for r in caplog.records)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith(ledger.name))
    for canary in canaries - released:  # as a number of its own: five digits come up in a hash now and then
        number = rf"(?<![0-9a-f.]){canary}(?![0-9a-f])"
        assert not any(re.search(number, text) for text in seen)
        assert not re.search(number.encode(), files)
        assert int(canary).to_bytes(8, "little") not in files


def test_one_person_changes_one_cell_by_one(tmp_path: Path) -> None:
    """A person with a thousand rows counts once; the bound is enforced, not assumed."""
    rows = [(1, region, age) for region in ("North", "South", "East", "West") for age in range(120) for _ in range(2)]
    write_rows(tmp_path / "people.csv", ["person", "region", "age"], rows)
    path = written(tmp_path, config_text(more="rows_per_person = 2\ncells_per_person = 3"))
    with_plan(path)
    with Curator.open(path) as curator:
        engine = DuckDBEngine(curator.config.dataset("people").source, curator.config.dataset("people").schema)
        counts = engine.count(
            curator.question("SELECT region, age, count(*) FROM people GROUP BY region, age"), salt=b"s"
        )
        engine.close()
    assert np.count_nonzero(counts) == 3
    assert counts.max() == 2


@pytest.mark.parametrize("asking", ["count", "dry_run", "question"])
@pytest.mark.parametrize("where", ["secret = 'zz'", "secret = 'alice'", "secret < 5", "age > 1"])
def test_refusals_never_name_values_of_guessed_domains(asking: str, where: str, tmp_path: Path) -> None:
    """Guessed domains are data until a curator confirms them: no refusal may name one of their values."""
    columns = 'secret = { values = ["alice-ill", "bob-well"], guessed = true }\nage = { min = 0, max = 99 }\n'
    write_rows(tmp_path / "people.csv", ["person", "secret", "age"], [(1, "alice-ill", 3)])
    path = written(tmp_path, config_text(columns=columns))
    with Curator.open(path) as curator:
        for sql in (f"SELECT count(*) FROM people WHERE {where}", f"SELECT count(*) FROM PEOPLE WHERE {where}"):
            with pytest.raises(ConfigError, match="guessed from the data") as refused:
                getattr(curator, asking)(sql)
            assert "ill" not in str(refused.value)
        with pytest.raises(ConfigError, match="guessed from the data"):
            getattr(curator, asking)(dataset="people", by=["nothing"])
