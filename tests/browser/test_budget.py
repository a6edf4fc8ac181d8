"""The budget in a real browser: what is left, what happens at the end of it, and whether the record holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from countveil.config import load
from countveil.ledger.sqlite import SqliteLedger
from tests.support.browsing import ASK, COST, Visit, Watch, asked, enter
from tests.support.served import Served

AGES = "SELECT count(*) FROM people WHERE age >= {}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service for each test: these spend all there is."""
    found = Served(tmp_path, answers=4)
    yield found
    found.stop()


def pool(page: Page, name: str) -> str:
    return page.locator(".pool", has=page.get_by_role("heading", name=name)).inner_text()


def test_the_budget_is_spent_to_the_end(visit: Visit, served: Served, watch: Watch) -> None:
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
    late.get_by_role("button", name=ASK).click()  # it was affordable when it was looked at
    expect(late.get_by_role("alert").get_by_role("heading")).to_have_text("The budget is spent")
    said = "the budget of people is spent, all 4 answers; questions asked before stay free"
    expect(late.get_by_role("alert").locator("p")).to_have_text(said)
    assert late.locator("#answer").count() == 0
    page.locator("#sql").fill(AGES.format(50))
    page.get_by_role("button", name=COST).click()
    expect(page.get_by_role("alert").locator("p")).to_have_text(said)  # a dry run refuses what asking would
    expect(page.get_by_role("button", name=ASK)).to_have_count(0)
    assert len(served.charges()) == 4
    asked(page, AGES.format(3))  # what is on record stays free, for everyone
    expect(page.locator("#answer h2")).to_contain_text("From the record, free")
    assert page.locator("#answer tbody").inner_text() == counts
    page.get_by_role("link", name="Budget").click()
    assert "0 of 4 answers left for you" in pool(page, "people")
    assert "The budget is spent." in pool(page, "people")
    assert len(served.charges()) == 4


def test_a_key_with_few_answers_ends_before_the_pool(visit: Visit, served: Served, watch: Watch) -> None:
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


def test_the_page_of_the_budget(visit: Visit, served: Served) -> None:
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
    assert "3 of 3 answers left\n" in pool(cora, "visits") + "\n", "what is left of the pool, not of a share in it"
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


def test_a_share_is_the_whole_of_who_has_it(visit: Visit, served: Served) -> None:
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


def test_a_record_that_was_changed_is_reported(visit: Visit, served: Served) -> None:
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
    assert "ledger" in [line.get("problem") for line in served.lines()], "whoever reads the log sees it too"


def test_data_that_is_gone_is_named_in_the_log(visit: Visit, served: Served, watch: Watch) -> None:
    watch.refusals = {503}
    page = visit("/login")
    enter(page, served.key("cora", "curator"))
    page.get_by_role("link", name="Ask").click()
    (served.folder / "people.csv").unlink()
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.get_by_role("alert")).to_contain_text("ask again, or tell the curator")
    page.reload()
    assert "engine" in [line.get("problem") for line in served.lines()]
