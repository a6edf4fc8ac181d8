"""A budget is never regained and never moved: not by a restore, not by an edited configuration."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from countveil.accounting import compose
from countveil.accounting.pairs import float_below
from countveil.config import load
from countveil.curator import Curator
from countveil.engines.duckdb import DuckDBEngine
from countveil.errors import BudgetError, ConfigError, RequestError
from countveil.keys import Key
from countveil.ledger import Charge
from countveil.ledger.anchor import Anchor
from countveil.ledger.checking import replayed
from countveil.ledger.records import sealed
from countveil.ledger.restoring import restore
from countveil.mechanism import Mechanism
from countveil.query import Question
from countveil.service import models
from countveil.service.page import budgets, views
from countveil.service.routes import described, pools
from tests.support.curated import MANY, config_text, people, runner, with_plan, written


def ask(curator: Curator, i: int, **more: Any) -> Any:
    return curator.count(f"SELECT count(*) FROM people WHERE age >= {i}", **more)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    return path


def answers(config: Path, first: int, tries: int = 12) -> int:
    """How many new questions are still answered."""
    given = 0
    with Curator.open(config) as curator:
        for i in range(first, first + tries):
            try:
                ask(curator, i)
            except BudgetError:
                break
            given += 1
    return given


def test_what_was_lost_is_taken_from_what_is_opened_later(config: Path) -> None:
    assert answers(config, 1) == 4
    with Curator.open(config) as curator:
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        curator.open_budget("people", 3, "more")
    assert answers(config, 20) == 3
    ledger = config.parent / "countveil.ledger"
    lost = restore(config.parent / "old", ledger, ledger.with_name("countveil.ledger.anchor"), accept_loss=True)
    assert lost > 3
    with Curator.open(config) as curator:
        assert curator.ledger.debt("people") == lost
        found = curator.open_budget("people", 3, "again")
        assert (found.answers_total, found.answers_left) == (7, 0)
        assert float(found.epsilon) > 10
    assert answers(config, 40) == 0


def lossy(config: Path, entries: int = 0, *, anchor: bool = True) -> int:
    """Spend all, back up, open and spend three more, write some entries; bring back the copy. What was lost."""
    loaded = load(config)
    assert answers(config, 1) == 4
    with Curator.open(config) as curator:
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        curator.open_budget("people", 3, "more")
        for i in range(entries):
            curator.ledger.version("other", f"{i:064d}")
    assert answers(config, 20) == 3
    if not anchor:
        loaded.anchor.unlink()
    return restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True)


def stated(config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The epsilon that budget, receipt and replay state: in Python, on the command line, over HTTP, on the page."""
    monkeypatch.chdir(config.parent)
    count, budget = (runner(monkeypatch, capsys, command) for command in ("count", "budget"))
    sql = "SELECT count(*) FROM people WHERE age >= 1"
    with Curator.open(config) as curator:
        (found,) = curator.budget()
        table = curator.count(sql)
        key = Key("ann", "analyst", None, "0", "0", "now")
        (served,) = models.Budget(schema_version=1, pools=pools(curator, key)).pools
        given = models.Table(**described(table)).receipt
        page = views._templates.get_template("budget.html").render(
            who=key, path="/", **budgets.page(curator, key, False)
        )
        shown = re.search(r"together, including (.*) that lost history may have given: epsilon (.*), delta", page)
        assert shown is not None
        assert served.answers_lost == given.answers_lost == found.answers_lost
        kept = curator.receipt(table.receipt.id)
        assert kept is not None
        assert table.replayed
        assert found.answers_lost == table.receipt.answers_lost == kept[1].answers_lost
        lost = "an unknown number" if found.answers_lost is None else f"up to {found.answers_lost} more"
        assert found.answers_lost is None or found.answers_lost > 3
        assert shown[1] == lost
        texts = {found.epsilon, table.receipt.epsilon, kept[1].epsilon, served.epsilon, given.epsilon, shown[2]}
    for told in (budget().out, count(sql).err):
        words = " ".join(told.split())
        assert f"including {lost} that lost history may have given" in words
        texts.add(words.partition("epsilon ")[2].rpartition(", delta")[0])
    texts.add(json.loads(budget("--json").out)["epsilon"])
    texts.add(json.loads(count(sql, "--json").out)["receipt"]["epsilon"])
    return texts


@pytest.mark.slow  # plans are searched for
def test_what_is_stated_after_a_restore_covers_what_was_lost(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = lossy(config)
    (epsilon,) = stated(config, monkeypatch, capsys)
    with Curator.open(config) as curator:
        record = curator.ledger.plan("people")
        assert record is not None
        composed = compose(Mechanism.from_text(record.document), 4 + lost)
        assert composed.delta(float_below(Fraction(epsilon))).upper <= Fraction(record.delta)
        assert composed.delta(float_below(Fraction(epsilon)) * 0.99).upper > Fraction(record.delta)
        more = curator.open_budget("people", lost + 2, "again")  # what is opened pays for what was lost
        assert (more.answers_left, more.answers_lost) == (2, 0)
        composed = compose(Mechanism.from_text(record.document), 4 + lost + 2)
        assert composed.delta(float_below(Fraction(more.epsilon))).upper <= Fraction(record.delta)
        assert composed.delta(float_below(Fraction(more.epsilon)) * 0.99).upper > Fraction(record.delta)


def test_where_no_epsilon_holds_for_what_was_lost_it_is_unknown(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = lossy(config, 150)
    assert stated(config, monkeypatch, capsys) == {f"unknown, at most {4 + lost} answers"}
    with Curator.open(config) as curator, pytest.raises(RequestError, match="more answers have no epsilon at delta"):
        curator.open_budget("people", 1, "again")


@pytest.mark.parametrize("lost", [10**4 + 5, 10**6 - 1, 10**7])
def test_where_too_much_was_lost_to_compose_epsilon_is_unknown(config: Path, lost: int) -> None:
    """Stated at once, and not refused, whatever a command wants to know."""
    loaded = load(config)
    assert answers(config, 1) == 4
    anchor = Anchor(loaded.anchor)
    anchor.write(replace(anchor.found(), seq=anchor.found().seq + lost, hash="0" * 64))
    assert restore(None, loaded.ledger, loaded.anchor, accept_loss=True) == lost
    with Curator.open(config) as curator:
        assert curator.budget()[0].epsilon == f"unknown, at most {4 + lost} answers"
        assert ask(curator, 1).receipt.answers_lost == lost


def test_where_nobody_knows_what_was_lost_so_is_epsilon(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy(config, anchor=False)
    assert stated(config, monkeypatch, capsys) == {"unknown"}
    with Curator.open(config) as curator, pytest.raises(RequestError, match="a plan may have been lost"):
        curator.open_budget("people", 1, "again")


def rewrite(config: Path, *change: str) -> None:
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change))


@pytest.mark.parametrize("forgotten", [False, True], ids=["anchor", "anchor of before"])
def test_where_a_new_plan_was_lost_epsilon_is_unknown(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forgotten: bool
) -> None:
    """Its answers came from a mechanism that nobody knows; also where the loss is less than what was left."""
    loaded, larger = load(config), ('epsilon = "10"', 'epsilon = "20"')
    with Curator.open(config) as curator:
        ask(curator, 1)
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
    if not forgotten:
        rewrite(config, *larger)
        with Curator.open(config) as curator:
            curator.replan_budget("people", "closer")
        rewrite(config, *larger[::-1])
    else:
        with Curator.open(config) as curator:
            curator.ledger.version("other", curator.ledger.keyed("x"))
        anchor = Anchor(loaded.anchor)
        anchor.write(replace(anchor.found(), plan=None))
    assert restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True) == 1
    assert stated(config, monkeypatch, capsys) == {"unknown"}
    with Curator.open(config) as curator:
        (found,) = curator.budget()
        assert (found.answers_left > 0, found.answers_lost) == (True, None)
        assert any("a plan may have been lost" in note for note in found.notes)
        assert ask(curator, 3).receipt.epsilon == "unknown"
        for refused in (lambda: curator.open_budget("people", 1, "x"), lambda: curator.replan_budget("people", "x")):
            with pytest.raises(RequestError, match="stays free; for people who are in none"):
                refused()
        assert curator.ledger.verify() > 0
    # an older copy of the same, and a copy of what was settled, know it too
    settled = config.parent / "settled"
    with Curator.open(config) as curator:
        curator.ledger.backup(settled)  # type: ignore[attr-defined]
        ask(curator, 4)
    for copy in (settled, config.parent / "old"):
        restore(copy, loaded.ledger, loaded.anchor, accept_loss=True)
        with Curator.open(config) as curator:
            assert curator.budget()[0].epsilon == "unknown"


def test_where_the_first_plan_was_lost_epsilon_is_unknown(tmp_path: Path) -> None:
    people(tmp_path)
    config = written(tmp_path)
    loaded = load(config)
    with Curator.open(config) as curator:
        curator.ledger.backup(tmp_path / "empty")  # type: ignore[attr-defined]
    with_plan(config)
    with Curator.open(config) as curator:
        ask(curator, 1)
    restore(tmp_path / "empty", loaded.ledger, loaded.anchor, accept_loss=True)
    with Curator.open(config) as curator:
        assert curator.budget()[0].epsilon == "unknown"
    with_plan(config)
    with Curator.open(config) as curator:
        assert curator.budget()[0].epsilon == "unknown"


def test_a_restore_of_before_this_was_recorded_may_have_lost_a_plan() -> None:
    for body, unknown in (({"lost": 2}, True), ({"lost": 0}, False), ({"lost": 2, "plan_lost": False}, False)):
        first = sealed(None, "now", "open", {"ledger": "x"})
        entries = [first, sealed(first, "now", "restore", {"anchor": [4, "0" * 64], **body}, 4)]
        assert replayed(entries).plan_lost is unknown


@pytest.mark.parametrize("change", [("[dataset.people.budget]", '[dataset.people.budget]\npool = "fresh"')])
def test_another_pool_is_no_new_budget(config: Path, change: tuple[str, str]) -> None:
    assert answers(config, 1) == 4
    config.write_text(config.read_text().replace(*change))
    with (
        Curator.open(config) as curator,
        pytest.raises(ConfigError, match=r'restore these values in countveil\.toml: pool = "people"') as refused,
    ):
        ask(curator, 1)
    with Curator.open(config) as curator:
        pool = curator.config.dataset("people").allowed().pool
        for use in (
            lambda: curator.budget(),
            lambda: curator.open_budget(pool, 1, "x"),
            lambda: curator.replan_budget(pool, "x"),
        ):
            with pytest.raises(ConfigError) as told:
                use()
            assert str(told.value) == str(refused.value)


def test_another_name_is_no_new_budget(config: Path) -> None:
    assert answers(config, 1) == 4
    config.write_text(config.read_text().replace("dataset.people", "dataset.folk"))
    with Curator.open(config) as curator, pytest.raises(ConfigError, match="share one pool"):
        curator.count("SELECT count(*) FROM folk")


def test_folders_that_are_columns_are_no_new_budget(tmp_path: Path) -> None:
    """Through another pattern the same files have one column more, and the same people; moved, another version."""
    frame = pd.DataFrame({"person": [1, 2], "region": ["North", "South"], "age": [20, 30]})
    (tmp_path / "year=2026").mkdir()
    frame.to_parquet(tmp_path / "year=2026" / "people.parquet")
    path = written(tmp_path, config_text(source="*/*.parquet"))
    with_plan(path)
    with Curator.open(path) as curator:
        assert ask(curator, 1).receipt.version == 1
    (tmp_path / "year=2026").rename(tmp_path / "year=2025")
    with Curator.open(path) as curator:
        assert ask(curator, 1).receipt.version == 2
        assert curator.ledger.verify()
    text = path.read_text().replace("dataset.people", "dataset.folk")
    for source in ("year=2025/*.parquet", "year=2025/people.parquet"):
        path.write_text(text.replace("*/*.parquet", source))
        with Curator.open(path) as curator, pytest.raises(ConfigError, match="share one pool"):
            curator.count("SELECT count(*) FROM folk")


def test_who_a_person_is_stays(tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    with Curator.open(path) as curator:
        before = curator.config.dataset("people").schema.unit
        ask(curator, 1)
    path.write_text(path.read_text().replace(f'unit = "{before}"', 'unit = "age"'))
    with Curator.open(path) as curator, pytest.raises(ConfigError, match=f'unit = "{before}"'):
        ask(curator, 2)


def test_a_share_can_be_taken_back(tmp_path: Path) -> None:
    people(tmp_path)
    budget = "\n[dataset.people.budget.shares]\nalice = 2\nbob = 2\n"
    path = written(tmp_path, config_text() + budget)
    with_plan(path)
    with Curator.open(path) as curator:
        ask(curator, 1, analyst="alice")
    path.write_text(path.read_text().replace("alice = 2\n", ""))
    with Curator.open(path) as curator:
        with pytest.raises(BudgetError, match="alice has no share"):
            ask(curator, 2, analyst="alice")
        ask(curator, 2, analyst="bob")
    path.write_text(path.read_text().replace(budget.replace("alice = 2\n", ""), ""))
    with Curator.open(path) as curator:
        ask(curator, 3, analyst="alice")  # no shares at all: whoever asks
        curator.ledger.verify()


def test_a_share_is_enforced_whatever_another_process_was_told(tmp_path: Path) -> None:
    people(tmp_path)
    mine = written(tmp_path, config_text() + "\n[dataset.people.budget.shares]\nalice = 1\n", "mine.toml")
    same_ledger = f'[ledger]\npath = "{load(mine).ledger}"\nanchor = "{load(mine).anchor}"\n'
    theirs = written(tmp_path, same_ledger + config_text(), "theirs.toml")
    with_plan(mine)
    with Curator.open(mine) as curator, Curator.open(theirs) as other:
        ask(curator, 1, analyst="alice")
        ask(other, 2, analyst="bob")  # theirs knows no shares
        for who in ("alice", "bob"):
            with pytest.raises(BudgetError):
                ask(curator, 3, analyst=who)


@pytest.mark.parametrize("many", [1, 3])
def test_nothing_is_counted_before_it_is_paid_for(config: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Nor answered before it is on disk; alone, and one after another."""
    seen: list[str] = []
    count, table = DuckDBEngine.count, Curator._make_table

    def on_disk(what: str) -> int:  # another connection sees what is committed, and nothing else
        with closing(sqlite3.connect(load(config).ledger)) as other:
            return int(other.execute(f"SELECT {what}").fetchone()[0])

    def counted(self: DuckDBEngine, question: Question, *, key: bytes) -> Any:
        seen.append(f"{on_disk('spent FROM pool')} charged, {on_disk('count(*) FROM answer')} answered")
        return count(self, question, key=key)

    def shown(self: Curator, question: Question, charge: Charge, *more: Any) -> Any:
        kept = on_disk(f"count(*) FROM answer WHERE charge = '{charge.id}'")
        seen.append(f"{kept} of its answers on record")
        return table(self, question, charge, *more)

    monkeypatch.setattr(DuckDBEngine, "count", counted)
    monkeypatch.setattr(Curator, "_make_table", shown)
    with Curator.open(config) as curator:
        for i in range(many):
            ask(curator, i)
    assert seen[::2] == [f"{i + 1} charged, {i} answered" for i in range(many)]
    assert seen[1::2] == ["1 of its answers on record"] * many


def test_of_two_workers_that_answer_one_charge_the_first_answer_goes_out_twice(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one asks, and is answered, while the first one counts."""
    count, answers = DuckDBEngine.count, []
    sql = "SELECT region, age, count(*) FROM people GROUP BY region, age"

    def count_meanwhile(self: DuckDBEngine, question: Question, *, key: bytes) -> Any:
        if not answers:
            answers.append(None)
            with Curator.open(config) as other:
                answers.append(other.count(sql))
        return count(self, question, key=key)

    monkeypatch.setattr(DuckDBEngine, "count", count_meanwhile)
    with Curator.open(config) as curator:
        late = curator.count(sql)
        assert curator.ledger.standing("people").spent == 1
    first = answers[1]
    assert late.released.tolist() == first.released.tolist(), "48 cells: not by chance"
    assert (late.receipt.id, late.replayed, first.replayed) == (first.receipt.id, True, False)


def test_what_is_released_has_the_law_of_the_mechanism(tmp_path: Path) -> None:
    """40,000 equal cells, so that their spread is the law's: a halved or missing noise is far outside."""
    values = "x = { min = 0, max = 199 }\nz = { min = 0, max = 199 }\n"
    path = written(
        tmp_path, config_text(columns=values, budget=MANY.replace('"100"', '"5"').replace("1000", "40"), unit="row")
    )
    with_plan(path)
    frame = pd.DataFrame({"x": np.repeat(np.arange(200), 200 * 5), "z": np.tile(np.arange(200), 200 * 5)})
    frame = pd.concat([frame] * 20)
    with Curator.open(path, sources={"people": frame}) as curator:
        table = curator.count("SELECT x, z, count(*) FROM people GROUP BY x, z")
    errors = table.released - 100
    law = table.mechanism.column(100)
    spread = float(law.variance)
    fourth = sum(float(law.probability(z)) * z**4 for z in range(-law.left, law.right + 1))
    off = 6.1 * ((fourth - spread**2) / len(errors)) ** 0.5  # p < 1e-9
    assert abs(errors.var() - spread) < off
    assert abs(errors.mean() - float(law.mean)) < 6.1 * (spread / len(errors)) ** 0.5
    assert np.abs(errors).max() <= table.mechanism.certificate.worst_error
    exact = float(law.eta)
    assert abs((errors == 0).mean() - exact) < 6.1 * (exact * (1 - exact) / len(errors)) ** 0.5
    for part in errors.reshape(50, -1).T:  # every fiftieth cell alone, too
        assert abs((part == 0).mean() - exact) < 6.1 * (exact * (1 - exact) / len(part)) ** 0.5
