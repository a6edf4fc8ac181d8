"""Grades on the pages: a grade is chosen from a list, its price is shown and paid, and its answers left are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browsing import ASK, COST, Visit, enter, findings
from tests.support.curated import config_text, people, with_plan, written
from tests.support.served import Served
from tests.support.serving import Server

GRADED = """epsilon = "50"
delta = "0.1"
[dataset.people.budget.grades]
fine = { answers = 1, weight = 4 }
standard = { answers = 8 }
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    people(tmp_path)
    config = written(tmp_path, config_text(budget=GRADED))
    with_plan(config)
    service = Server(config)
    yield service
    service.stop()


def test_a_question_can_be_priced_and_paid_in_a_chosen_grade(visit: Visit, served: Served) -> None:
    page = visit("/login")
    enter(page, served.key("ana"))
    page.locator("#sql").fill("SELECT count(*) FROM people")
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry h2")).to_have_text("Costs 1 of 8 answers left, grade standard")
    page.get_by_label("Grade").select_option("fine")
    page.get_by_role("button", name=ASK).click()  # the price was that of another grade
    expect(page.locator("#dry h2")).to_have_text("Costs 1 of 1 answers left, grade fine")
    assert page.locator("#answer").count() == 0
    assert findings(page) == []
    page.get_by_role("button", name=ASK).click()
    expect(page.locator("#answer h2")).to_contain_text("Answered, for 1 answer, grade fine")
    assert findings(page) == []
    page.goto(f"{served.url}/budget")
    rows = page.locator("table.grades tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("fine")
    assert rows.nth(0).locator("td").all_inner_texts()[2:] == ["0", "1"]
    assert rows.nth(1).locator("td").all_inner_texts()[2:] == ["8", "8"]
    assert findings(page) == []
