"""The budget page in a real browser: answers left, a spent budget, shares, and a changed ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from countveil.config.configuration import load
from countveil.ledger.sqlite import SqliteLedger
from tests.support.browsing import ASK, COST, Visit, Watch, asked, enter
from tests.support.served import Served

AGES = "SELECT count(*) FROM people WHERE age >= {}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A new service for each test, because these tests spend the whole budget."""
    service = Served(tmp_path, answers=4)
    yield service
    service.stop()


def pool(page: Page, name: str) -> str:
    return page.locator(".pool", has=page.get_by_role("heading", name=name)).inner_text()


def test_a_spent_budget_refuses_new_questions_and_replays_old_ones(visit: Visit, served: Served, watch: Watch) -> None:
    watch.refusals = {402}
    page, late = visit("/login"), visit("/login")
    enter(page, served.key("ana"))
    enter(late, served.key("ben"))
    late.locator("#sql").fill(AGES.format(99))
    late.get_by_role("button", name=COST).click()
    expect(late.locator("#dry h2")).to_have_text("Costs 1 of 4 answers left")
    for i, left in enumerate((3, 2, 1, 0)):
        asked(page, AGES.format(i))
        expect(page.locator("#answer h2")).to_contain_text(f"{left} left for you")
    counts = page.locator("#answer tbody").inner_text()
    late.get_by_role("button", name=ASK).click()  # the dry run was accepted, but the budget has been spent since
    expect(late.get_by_role("alert").get_by_role("heading")).to_have_text("The budget is spent")
    message = "the budget of people is spent, all 4 answers; questions asked before stay free"
    expect(late.get_by_role("alert").locator("p")).to_have_text(message)
    assert late.locator("#answer").count() == 0
    page.locator("#sql").fill(AGES.format(50))
    page.get_by_role("button", name=COST).click()
    expect(page.get_by_role("alert").locator("p")).to_have_text(message)  # a dry run is refused like the question
    expect(page.get_by_role("button", name=ASK)).to_have_count(0)
    assert len(served.charges()) == 4
    asked(page, AGES.format(3))  # a replay stays free
    expect(page.locator("#answer h2")).to_contain_text("From the record, free")
    assert page.locator("#answer tbody").inner_text() == counts
    page.get_by_role("link", name="Budget").click()
    assert "0 of 4 answers left for you" in pool(page, "people")
    assert "The budget is spent." in pool(page, "people")
    assert len(served.charges()) == 4


def test_a_key_is_refused_after_its_own_answers_are_spent(visit: Visit, served: Served, watch: Watch) -> None:
    watch.refusals = {402}
    page, other = visit("/login"), visit("/login")
    enter(page, served.key("ana", answers=1))
    enter(other, served.key("ben"))
    page.locator("#sql").fill(AGES.format(1))
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry h2")).to_have_text("Costs 1 of 1 answers left")
    page.get_by_role("button", name=ASK).click()
    expect(page.locator("#answer h2")).to_contain_text("0 left for you")
    page.locator("#sql").fill(AGES.format(2))
    page.get_by_role("button", name=COST).click()
    expect(page.get_by_role("alert").locator("p")).to_contain_text("the share of this key in")
    expect(page.get_by_role("button", name=ASK)).to_have_count(0)
    page.goto(f"{served.url}/budget")
    assert "0 of 1 answers left for you" in pool(page, "people")
    assert "You have no answer left here." in pool(page, "people")
    other.goto(f"{served.url}/budget")
    assert "3 of 4 answers left for you" in pool(other, "people")


def test_the_budget_page_shows_pools_shares_questions_and_the_verified_chain(visit: Visit, served: Served) -> None:
    ana, cora = visit("/login"), visit("/login")
    enter(ana, served.key("ana"), "/budget")
    expect(ana.get_by_text("Nothing yet.")).to_be_visible()
    assert "4 of 4 answers left for you" in pool(ana, "people")
    assert "no share for you" in pool(ana, "visits")
    assert "answers left" not in pool(ana, "visits")
    ana.goto(f"{served.url}/ask")
    receipt = asked(ana, AGES.format(7))
    enter(cora, served.key("cora", "curator"), "/budget")
    assert "3 of 4 answers left\n" in pool(cora, "people") + "\n"
    assert "3 of 3 answers left\n" in pool(cora, "visits") + "\n", "curators see the whole pool, not a share"
    share = cora.get_by_role("row", name="vera")
    assert share.get_by_role("cell").all_inner_texts() == ["vera", "2", "2"]
    expect(cora.get_by_role("img", name="3 of 4 left")).to_be_visible()
    row = cora.get_by_role("row").filter(has_text="ana")
    expect(row).to_contain_text("age >= 7")
    config = load(served.config, {})
    ledger = SqliteLedger(config.ledger, config.anchor, create=False)
    entries = ledger.verify()
    ledger.close()
    expect(cora.get_by_text("Chain verified")).to_contain_text(f"{entries} entries")
    with cora.expect_download() as download:
        row.get_by_role("link").click()
    assert download.value.suggested_filename == f"{receipt}.csv"


def test_an_analyst_sees_and_spends_only_their_own_share(visit: Visit, served: Served) -> None:
    vera = visit("/login")
    enter(vera, served.key("vera"), "/budget")
    assert "2 of 2 answers left for you" in pool(vera, "visits")
    assert "4 of 4 answers left for you" in pool(vera, "people")
    vera.goto(f"{served.url}/ask")
    for place in ("clinic", "hospital"):
        asked(vera, f"SELECT count(*) FROM visits WHERE place = '{place}'")
    vera.goto(f"{served.url}/budget")
    assert "0 of 2 answers left for you" in pool(vera, "visits")
    assert "You have no answer left here." in pool(vera, "visits")


def test_a_changed_ledger_is_reported_on_the_page_and_in_the_log(visit: Visit, served: Served) -> None:
    page = visit("/login")
    enter(page, served.key("cora", "curator"))
    asked(page, AGES.format(5))
    page.get_by_role("link", name="Budget").click()
    expect(page.get_by_text("Chain verified")).to_be_visible()
    with sqlite3.connect(load(served.config, {}).ledger) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute("UPDATE charge SET analyst = 'nobody'")
    connection.close()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The chain does not hold.")
    assert page.get_by_text("Chain verified").count() == 0
    assert "ledger" in [line.get("problem") for line in served.lines()], "the log reports it too"


def test_a_missing_source_is_reported_on_the_page_and_in_the_log(visit: Visit, served: Served, watch: Watch) -> None:
    watch.refusals = {503}
    page = visit("/login")
    enter(page, served.key("cora", "curator"))
    page.get_by_role("link", name="Ask").click()
    (served.folder / "people.csv").unlink()
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.get_by_role("alert")).to_contain_text("ask again, or tell the curator")
    page.reload()
    assert "engine" in [line.get("problem") for line in served.lines()]
