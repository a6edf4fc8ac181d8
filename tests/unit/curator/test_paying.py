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
from countveil.accounting.privacy_loss import float_below
from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import BudgetError, ConfigError, LedgerError, RequestError
from countveil.ledger import Charge
from countveil.ledger.anchor import Anchor
from countveil.ledger.records import seal
from countveil.ledger.restoration import restore
from countveil.ledger.verification import replay_entries
from countveil.mechanism.mechanism import Mechanism
from countveil.query import Question
from countveil.sampling.randomness import NoiseKey
from countveil.sampling.sampler import Sampler
from countveil.service import schemas
from countveil.service.api_keys import Key
from countveil.service.routes import describe_table, list_pools
from countveil.service.web import budget_page, views
from tests.support.curated import MANY, config_text, people, runner, with_plan, written


def ask(curator: Curator, i: int, **more: Any) -> Any:
    return curator.count(f"SELECT count(*) FROM people WHERE age >= {i}", **more)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    return path


def count_answered(config: Path, first: int, tries: int = 12) -> int:
    """How many new questions are still answered."""
    answered = 0
    with Curator.open(config) as curator:
        for i in range(first, first + tries):
            try:
                ask(curator, i)
            except BudgetError:
                break
            answered += 1
    return answered


def test_lost_answers_are_deducted_from_answers_opened_later(config: Path) -> None:
    assert count_answered(config, 1) == 4
    with Curator.open(config) as curator:
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        curator.extend_budget("people", 3, "more")
    assert count_answered(config, 20) == 3
    ledger = config.parent / "countveil.ledger"
    lost = restore(config.parent / "old", ledger, ledger.with_name("countveil.ledger.anchor"), accept_loss=True)
    assert lost > 3
    with Curator.open(config) as curator:
        assert curator.ledger.debt("people") == lost
        budget = curator.extend_budget("people", 3, "again")
        assert (budget.answers_total, budget.answers_left) == (7, 0)
        assert float(budget.epsilon) > 10
    assert count_answered(config, 40) == 0


def spend_and_restore(config: Path, entries: int = 0, *, anchor: bool = True) -> int:
    """Spend all, back up, open and spend three more, write some entries, restore the backup; returns the loss."""
    loaded = load(config)
    assert count_answered(config, 1) == 4
    with Curator.open(config) as curator:
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        curator.extend_budget("people", 3, "more")
        for i in range(entries):
            curator.ledger.version("other", f"{i:064d}")
    assert count_answered(config, 20) == 3
    if not anchor:
        loaded.anchor.unlink()
    return restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True)


def stated_epsilons(config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The epsilon that budget, receipt and replay state: in Python, on the command line, over HTTP, on the page."""
    monkeypatch.chdir(config.parent)
    count, budget = (runner(monkeypatch, capsys, command) for command in ("count", "budget"))
    sql = "SELECT count(*) FROM people WHERE age >= 1"
    with Curator.open(config) as curator:
        (pool,) = curator.budget()
        table = curator.count(sql)
        key = Key("ann", "analyst", None, "0", "0", "now")
        (served,) = schemas.BudgetResponse(schema_version=1, pools=list_pools(curator, key)).pools
        receipt = schemas.TableResponse(**describe_table(table)).receipt
        page = views._templates.get_template("budget.html").render(
            who=key, path="/", **budget_page.build_page(curator, key, False)
        )
        sentence = re.search(r"together, including (.*) that lost history may have given: epsilon (.*), delta", page)
        assert sentence is not None
        assert served.answers_lost == receipt.answers_lost == pool.answers_lost
        entry = curator.receipt(table.receipt.id)
        assert entry is not None
        assert table.replayed
        assert pool.answers_lost == table.receipt.answers_lost == entry.answers_lost
        lost = "an unknown number" if pool.answers_lost is None else f"up to {pool.answers_lost} more"
        assert pool.answers_lost is None or pool.answers_lost > 3
        assert sentence[1] == lost
        texts = {pool.epsilon, table.receipt.epsilon, entry.epsilon, served.epsilon, receipt.epsilon, sentence[2]}
    for output in (budget().out, count(sql).err):
        words = " ".join(output.split())
        assert f"including {lost} that lost history may have given" in words
        texts.add(words.partition("epsilon ")[2].rpartition(", delta")[0])
    texts.add(json.loads(budget("--json").out)["epsilon"])
    texts.add(json.loads(count(sql, "--json").out)["receipt"]["epsilon"])
    return texts


@pytest.mark.slow  # plans are searched for
def test_the_epsilon_stated_after_a_restore_includes_lost_answers(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = spend_and_restore(config)
    (epsilon,) = stated_epsilons(config, monkeypatch, capsys)
    with Curator.open(config) as curator:
        record = curator.ledger.plan("people")
        assert record is not None
        composed = compose(Mechanism.from_text(record.grades[0].document), 4 + lost)
        assert composed.delta(float_below(Fraction(epsilon))).upper <= Fraction(record.delta)
        assert composed.delta(float_below(Fraction(epsilon)) * 0.99).upper > Fraction(record.delta)
        more = curator.extend_budget("people", lost + 2, "again")  # new answers first pay for lost ones
        assert (more.answers_left, more.answers_lost) == (2, 0)
        composed = compose(Mechanism.from_text(record.grades[0].document), 4 + lost + 2)
        assert composed.delta(float_below(Fraction(more.epsilon))).upper <= Fraction(record.delta)
        assert composed.delta(float_below(Fraction(more.epsilon)) * 0.99).upper > Fraction(record.delta)


def test_epsilon_is_unknown_if_none_is_large_enough_for_the_lost_answers(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = spend_and_restore(config, 150)
    assert stated_epsilons(config, monkeypatch, capsys) == {f"unknown, at most {4 + lost} answers"}
    with (
        Curator.open(config) as curator,
        pytest.raises(RequestError, match=r"no epsilon covers .* more answers at delta"),
    ):
        curator.extend_budget("people", 1, "again")


@pytest.mark.parametrize("lost", [10**4 + 5, 10**6 - 1, 10**7])
def test_epsilon_is_unknown_if_too_many_answers_were_lost_to_compose(config: Path, lost: int) -> None:
    """The statement takes no time and no request is refused because of it."""
    loaded = load(config)
    assert count_answered(config, 1) == 4
    anchor = Anchor(loaded.anchor)
    anchor.write(replace(anchor.require(), seq=anchor.require().seq + lost, hash="0" * 64))
    assert restore(None, loaded.ledger, loaded.anchor, accept_loss=True) == lost
    with Curator.open(config) as curator:
        assert curator.budget()[0].epsilon == f"unknown, at most {4 + lost} answers"
        assert ask(curator, 1).receipt.answers_lost == lost


def test_epsilon_is_unknown_if_the_loss_is_unknown(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spend_and_restore(config, anchor=False)
    assert stated_epsilons(config, monkeypatch, capsys) == {"unknown"}
    with Curator.open(config) as curator, pytest.raises(RequestError, match="a plan may have been lost"):
        curator.extend_budget("people", 1, "again")


def rewrite(config: Path, *change: str) -> None:
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change))


@pytest.mark.parametrize("forgotten", [False, True], ids=["anchor", "anchor of before"])
def test_epsilon_is_unknown_if_a_new_plan_was_lost(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forgotten: bool
) -> None:
    """The mechanism of its answers is unknown, even if fewer answers were lost than were left."""
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
            curator.ledger.version("other", curator.ledger.make_keyed_hash("x"))
        anchor = Anchor(loaded.anchor)
        anchor.write(replace(anchor.require(), plan=None))
    assert restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True) == 1
    assert stated_epsilons(config, monkeypatch, capsys) == {"unknown"}
    with Curator.open(config) as curator:
        (budget,) = curator.budget()
        assert (budget.answers_left > 0, budget.answers_lost) == (True, None)
        assert any("a plan may have been lost" in note for note in budget.notes)
        assert ask(curator, 3).receipt.epsilon == "unknown"
        for request in (lambda: curator.extend_budget("people", 1, "x"), lambda: curator.replan_budget("people", "x")):
            with pytest.raises(RequestError, match="stay free; for people who are in none"):
                request()
        assert curator.ledger.verify() > 0
    # a copy made after the loss was settled, and an older copy, state it too
    settled = config.parent / "settled"
    with Curator.open(config) as curator:
        curator.ledger.backup(settled)  # type: ignore[attr-defined]
        ask(curator, 4)
    for copy in (settled, config.parent / "old"):
        restore(copy, loaded.ledger, loaded.anchor, accept_loss=True)
        with Curator.open(config) as curator:
            assert curator.budget()[0].epsilon == "unknown"


def test_epsilon_is_unknown_if_the_first_plan_was_lost(tmp_path: Path) -> None:
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


def test_a_restore_entry_of_an_earlier_format_with_lost_entries_counts_as_a_lost_plan() -> None:
    for body, unknown in (({"lost": 2}, True), ({"lost": 0}, False), ({"lost": 2, "plan_lost": False}, False)):
        first = seal(None, "now", "open", {"ledger": "x"})
        entries = [first, seal(first, "now", "restore", {"anchor": [4, "0" * 64], **body}, 4)]
        assert replay_entries(entries).plan_lost is unknown


@pytest.mark.parametrize("change", [("[dataset.people.budget]", '[dataset.people.budget]\npool = "fresh"')])
def test_renaming_the_pool_gives_no_new_budget(config: Path, change: tuple[str, str]) -> None:
    assert count_answered(config, 1) == 4
    config.write_text(config.read_text().replace(*change))
    with (
        Curator.open(config) as curator,
        pytest.raises(ConfigError, match=r'restore these values in countveil\.toml: pool = "people"') as refused,
    ):
        ask(curator, 1)
    with Curator.open(config) as curator:
        pool = curator.config.dataset("people").require_budget().pool
        for use in (
            lambda: curator.budget(),
            lambda: curator.extend_budget(pool, 1, "x"),
            lambda: curator.replan_budget(pool, "x"),
        ):
            with pytest.raises(ConfigError) as error:
                use()
            assert str(error.value) == str(refused.value)


def test_renaming_the_dataset_gives_no_new_budget(config: Path) -> None:
    assert count_answered(config, 1) == 4
    config.write_text(config.read_text().replace("dataset.people", "dataset.folk"))
    with Curator.open(config) as curator, pytest.raises(ConfigError, match="share one pool"):
        curator.count("SELECT count(*) FROM folk")


def test_renamed_partition_folders_and_other_patterns_give_no_new_budget(tmp_path: Path) -> None:
    """Another pattern adds a column to the same files and people; a renamed folder is a new version."""
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


def test_the_unit_of_a_dataset_cannot_change(tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    with Curator.open(path) as curator:
        before = curator.config.dataset("people").schema.unit
        ask(curator, 1)
    path.write_text(path.read_text().replace(f'unit = "{before}"', 'unit = "age"'))
    with Curator.open(path) as curator, pytest.raises(ConfigError, match=f'unit = "{before}"'):
        ask(curator, 2)


def test_a_share_can_be_removed(tmp_path: Path) -> None:
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
        ask(curator, 3, analyst="alice")  # without shares anyone may ask
        curator.ledger.verify()


def test_a_recorded_share_limits_also_a_process_whose_configuration_has_no_shares(tmp_path: Path) -> None:
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
    """Nor is anything answered before it is on disk; for one question and for several in a row."""
    seen: list[str] = []
    count, table = DuckDBEngine.count, Curator._make_table

    def on_disk(what: str) -> int:  # another connection sees only committed rows
        with closing(sqlite3.connect(load(config).ledger)) as other:
            return int(other.execute(f"SELECT {what}").fetchone()[0])

    def count_and_note(self: DuckDBEngine, question: Question, *, salt: bytes) -> Any:
        seen.append(f"{on_disk('spent FROM grade')} charged, {on_disk('count(*) FROM answer')} answered")
        return count(self, question, salt=salt)

    def make_table_and_note(self: Curator, question: Question, charge: Charge, *more: Any) -> Any:
        recorded = on_disk(f"count(*) FROM answer WHERE charge = '{charge.id}'")
        seen.append(f"{recorded} of its answers on record")
        return table(self, question, charge, *more)

    monkeypatch.setattr(DuckDBEngine, "count", count_and_note)
    monkeypatch.setattr(Curator, "_make_table", make_table_and_note)
    with Curator.open(config) as curator:
        for i in range(many):
            ask(curator, i)
    assert seen[::2] == [f"{i + 1} charged, {i} answered" for i in range(many)]
    assert seen[1::2] == ["1 of its answers on record"] * many


@pytest.mark.parametrize("to_parquet", [False, True])
def test_an_answer_that_was_not_recorded_is_evaluated_again_with_new_salt_and_noise(
    config: Path, monkeypatch: pytest.MonkeyPatch, to_parquet: bool
) -> None:
    """No noise key is used for a second count: the first evaluation is dropped with its salt and its noise key."""
    count, release, salts, noise = DuckDBEngine.count, Sampler.release, [], []

    def count_and_note(self: DuckDBEngine, question: Question, *, salt: bytes) -> Any:
        salts.append(salt)
        return count(self, question, salt=salt)

    def release_and_note(self: Sampler, counts: Any, key: NoiseKey, **more: Any) -> Any:
        noise.append(key.export())
        return release(self, counts, key, **more)

    monkeypatch.setattr(DuckDBEngine, "count", count_and_note)
    monkeypatch.setattr(Sampler, "release", release_and_note)
    with Curator.open(config) as curator:

        def answer() -> Any:
            if to_parquet:
                return curator.count_to_parquet(by="region", output=config.parent / "tables")
            return curator.count(by="region")

        with monkeypatch.context() as patched:
            patched.setattr(curator.ledger, "record", lambda *_: (_ for _ in ()).throw(LedgerError("the disk is full")))
            for _ in range(2):
                with pytest.raises(LedgerError, match="the disk is full"):
                    answer()
        assert not answer().replayed
        assert answer().replayed  # from the record: nothing is counted or drawn
        assert curator.ledger.standing("people").spent == 1
    assert len(salts) == len(set(salts)) == len(noise) == len(set(noise)) == 3


def test_two_processes_that_answer_one_charge_return_the_first_answer(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process asks and gets its answer while the first one counts."""
    count, answers = DuckDBEngine.count, []
    sql = "SELECT region, age, count(*) FROM people GROUP BY region, age"

    def count_meanwhile(self: DuckDBEngine, question: Question, *, salt: bytes) -> Any:
        if not answers:
            answers.append(None)
            with Curator.open(config) as other:
                answers.append(other.count(sql))
        return count(self, question, salt=salt)

    monkeypatch.setattr(DuckDBEngine, "count", count_meanwhile)
    with Curator.open(config) as curator:
        late = curator.count(sql)
        assert curator.ledger.standing("people").spent == 1
    first = answers[1]
    assert late.released.tolist() == first.released.tolist(), "48 equal cells are no coincidence"
    assert (late.receipt.id, late.replayed, first.replayed) == (first.receipt.id, True, False)


def test_released_counts_follow_the_law_of_the_mechanism(tmp_path: Path) -> None:
    """40,000 equal cells have the variance of the law; halved or missing noise is far outside."""
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
    law = table.mechanism.law(100)
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
