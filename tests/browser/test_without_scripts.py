"""The pages work without JavaScript, by links, forms and buttons."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import countveil as cv
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from tests.support.browsing import Visit, Watch
from tests.support.served import Served


@pytest.fixture(scope="module")
def key(served: Served) -> str:
    return served.key("ana")


def log_in(visit: Visit, key: str, to: str) -> Page:
    page = visit(to, scripts=False)
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    return page


def press(page: Page, name: str) -> None:
    """Press a button and wait for the next page."""
    with page.expect_navigation():
        page.get_by_role("button", name=name).click()


def test_a_question_can_be_written_priced_asked_and_replayed(
    visit: Visit, served: Served, key: str, watch: Watch, tmp_path: Path
) -> None:
    watch.refusals = {422}
    page = log_in(visit, key, "/ask")
    page.locator("fieldset", has_text="region").get_by_label("group by it").check()
    page.locator("fieldset", has_text="sex").get_by_label("f", exact=True).check()
    page.locator("fieldset", has_text="age").get_by_label("from").fill("30")
    press(page, "Write the fields as SQL")
    text = "SELECT region, count(*) FROM people WHERE age >= 30 AND sex = 'f' GROUP BY region"
    expect(page.locator("#sql")).to_have_value(text)
    page.locator("#sql").fill(text.replace("30", "40").replace("'f'", "'m'"))
    press(page, "Read the fields from SQL")
    expect(page.locator("fieldset", has_text="age").get_by_label("from")).to_have_value("40")
    expect(page.locator("fieldset", has_text="sex").get_by_label("m", exact=True)).to_be_checked()
    expect(page.locator("fieldset", has_text="sex").get_by_label("f", exact=True)).not_to_be_checked()
    page.locator("#sql").fill("SELECT count(*) FROM people WHERE heigth = 3")
    press(page, "What would it cost?")
    expect(page.locator("mark")).to_have_text("heigth")
    press(page, "What would it cost?")  # an unchanged form keeps its SQL and is refused again
    expect(page.locator("mark")).to_have_text("heigth")
    expect(page.locator("#sql")).to_have_value("SELECT count(*) FROM people WHERE heigth = 3")
    page.locator("fieldset", has_text="age").get_by_label("from").fill("50")
    press(page, "What would it cost?")
    expect(page.locator("#sql")).to_have_value(text.replace("30", "50").replace("'f'", "'m'"))
    page.locator("#sql").fill(text)
    press(page, "What would it cost?")
    expect(page.locator("#dry h2")).to_have_text("Costs 1 of 40 answers left")
    assert served.charges() == []
    press(page, "Ask, for 1 answer")
    assert len(served.charges()) == 1
    assert page.locator("#answer tbody tr").count() == 4
    counts = page.locator("#answer tbody").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().startswith("region,count,count_low,count_high")
    press(page, "What would it cost?")
    expect(page.locator("#dry h2")).to_have_text("Free: asked before")
    press(page, "Show it again, free")
    assert page.locator("#answer tbody").inner_text() == counts
    assert len(served.charges()) == 1
    page.get_by_label("Dataset").select_option("visits")
    press(page, "Write the fields as SQL")
    expect(page.locator("#sql")).to_have_value("SELECT count(*) FROM visits")
    page.get_by_role("link", name="Budget").click()
    expect(page.get_by_text("39 of 40 answers left for you")).to_be_visible()
    expect(page.get_by_role("link", name="Verify it now")).to_have_count(0)
    expect(page.locator("td code")).to_contain_text("region")
    press(page, "Log out")
    expect(page.get_by_role("link", name="Log in")).to_be_visible()


def test_curators_can_verify_the_ledger_without_scripts(visit: Visit, served: Served) -> None:
    page = log_in(visit, served.key("cora", "curator"), "/budget")
    page.get_by_role("link", name="Verify it now").click()
    expect(page.get_by_text("Chain verified")).to_be_visible()


def test_a_wrong_key_is_refused(visit: Visit, watch: Watch) -> None:
    watch.refusals = {401}
    page = log_in(visit, "cvk_no", "/budget")
    expect(page.get_by_role("alert")).to_have_text("This key is not valid. Ask the curator for a key.")


def test_designs_can_be_explored_and_downloaded(visit: Visit, tmp_path: Path) -> None:
    page = visit("/explore", scripts=False)
    for dead in page.locator(".needs-script").all():
        expect(dead).to_be_hidden()  # controls that need scripts are hidden
    page.get_by_label("epsilon: privacy loss", exact=True).fill("0.5")
    press(page, "Show")
    m = cv.design(epsilon="0.5", delta="1e-6", method="remap")
    expect(page.locator("#fact-D")).to_have_text(f"±{m.certificate.worst_error}")
    expect(page.locator("#fact-eta")).to_have_text(f"{decimal_text(100 * m.eta, 3, 'down')} %")
    with page.expect_download() as download:
        page.get_by_role("link", name="mechanism.json").click()
    download.value.save_as(tmp_path / "m.json")
    assert Mechanism.load(tmp_path / "m.json").hash == m.hash
    page.get_by_role("link", name="The whole guarantee").click()
    expect(page.get_by_role("heading", name="The guarantee at every epsilon")).to_be_visible()
    expect(page.get_by_role("img", name="delta at every epsilon")).to_be_visible()
    expect(page.get_by_role("link", name="Budget")).to_be_visible()  # the response is a whole page
    page.get_by_role("link", name="Back to the noise").click()
    expect(page.locator("#fact-D")).to_have_text(f"±{m.certificate.worst_error}")
    page.get_by_label("epsilon: privacy loss", exact=True).fill("lots")
    press(page, "Show")
    expect(page.get_by_role("alert")).to_contain_text("epsilon")
    page.get_by_role("link", name="Parameters of statistical offices").click()
    page.get_by_label("D: largest change", exact=True).fill("4")
    press(page, "Show")
    expect(page.get_by_label("Command", exact=True)).to_contain_text("--D 4")
