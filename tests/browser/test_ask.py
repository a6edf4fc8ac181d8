"""Ask in a real browser: logging in, fields and SQL, the price before the answer, refusals, and access."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from countveil.curator.curator import Curator
from countveil.curator.results import Table
from countveil.curator.table_files import to_csv
from tests.support.browsing import ASK, COST, Visit, Watch, asked, enter
from tests.support.needs import explain, find, miss
from tests.support.served import Served

ALL = "SELECT count(*) FROM people"


@pytest.fixture(scope="module")
def keys(served: Served) -> dict[str, str]:
    return {"ana": served.key("ana"), "ben": served.key("ben"), "cora": served.key("cora", "curator")}


def sql(page: Page) -> str:
    return page.locator("#sql").input_value()


def expect_sql(page: Page, text: str) -> None:
    expect(page.locator("#sql")).to_have_value(text)


def write(page: Page, text: str) -> None:
    """Type SQL and leave the text field, and wait until the fields are updated."""
    page.locator("#sql").fill(text)
    page.locator("#sql").blur()
    expect(page.locator("input[name=sql_was]")).to_have_value(text)


def read_recorded(served: Served, receipt: str) -> Table:
    """The answer of a receipt, read from the ledger."""
    with Curator.open(served.config) as curator:
        charge = curator.ledger.charge_of(receipt)
        assert charge is not None
        table = curator.read_recorded_table(charge)
    assert table is not None
    return table


# -- logging in --------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_key_is_sent_once_and_stored_nowhere(visit: Visit, served: Served, keys: dict[str, str]) -> None:
    page, key = visit("/ask"), keys["ana"]
    assert "/login?to=%2Fask" in page.url
    requests: list[str] = []
    page.on("request", lambda request: requests.append(f"{request.url} {request.post_data} {request.headers}"))
    assert page.get_by_label("Your key").get_attribute("type") == "password"
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ask")
    expect(page.get_by_text("ana (analyst)")).to_be_visible()
    sources = [page.content()]
    asked(page, ALL)
    sources.append(page.content())
    page.get_by_role("link", name="Budget").click()
    expect(page.get_by_role("heading", name="What you asked")).to_be_visible()
    secret = key.rpartition("_")[2]
    (login,) = (line for line in requests if secret in line)
    assert "/login " in login
    storage = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, history.state, document.cookie])")
    for text in (*sources, page.content(), page.url, storage, served.log, str(page.context.cookies())):
        assert secret not in text
        assert hashlib.sha256(secret.encode()).hexdigest() not in text
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    while "/login" not in page.url:
        page.go_back()
    assert page.get_by_label("Your key").input_value() == ""


@pytest.mark.parametrize("wrong", ["hello", "cvk_" + "0" * 10 + "_" + "f" * 64, "<b>cvk_</b>"])
def test_a_wrong_key_is_refused_and_not_shown_or_stored(visit: Visit, watch: Watch, wrong: str) -> None:
    watch.refusals = {401}
    page = visit("/login?to=/budget")
    page.get_by_label("Your key").fill(wrong)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This key is not valid. Ask the curator for a key.")
    assert page.get_by_label("Your key").input_value() == ""
    assert wrong not in page.content()
    assert page.context.cookies() == []
    page.goto(page.url.replace("/login", "/budget"))
    assert "/login" in page.url


def test_logging_in_never_redirects_to_another_site(visit: Visit, served: Served, keys: dict[str, str]) -> None:
    for to in ("//elsewhere.example/", "https://elsewhere.example/", "/\\elsewhere.example"):
        page = visit("/login?to=" + quote(to, safe=""))
        page.get_by_label("Your key").fill(keys["ana"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{served.url}/ask")


def test_logging_out_ends_the_session(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log in")).to_be_visible()
    assert page.context.cookies() == []
    page.get_by_role("link", name="Ask").click()
    assert "/login" in page.url


def test_a_revoked_key_ends_the_session(visit: Visit, served: Served, watch: Watch) -> None:
    watch.refusals = {401}
    page, other = visit("/login"), visit("/login")
    key = served.key("dan")
    enter(page, key)
    enter(other, key, "/budget")
    served.keyring.revoke("dan")
    before = len(served.charges())
    page.get_by_role("button", name=COST).click()
    page.wait_for_url(
        re.compile(r"/login\?to=%2Fask")
    )  # the request was for a part of the page, the redirect is for the whole page
    other.reload()
    assert "/login" in other.url
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert len(served.charges()) == before


# -- fields and SQL ----------------------------------------------------------------------------------------------------


def test_a_changed_field_rewrites_the_sql(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    expect_sql(page, ALL)
    group = page.locator("fieldset", has_text="region")
    group.get_by_label("group by it").check()
    expect_sql(page, "SELECT region, count(*) FROM people GROUP BY region")
    group.get_by_label("North").check()
    group.get_by_label("East").check()
    expect_sql(page, "SELECT region, count(*) FROM people WHERE region IN ('North', 'East') GROUP BY region")
    group.get_by_label("North").uncheck()
    group.get_by_label("group by it").uncheck()
    expect_sql(page, "SELECT count(*) FROM people WHERE region = 'East'")
    ages = page.locator("fieldset", has_text="age")
    ages.get_by_label("from").fill("18")
    ages.get_by_label("to").fill("64")
    page.locator("fieldset", has_text="works").get_by_label("true").check()
    born = page.locator("fieldset", has_text="born")
    born.get_by_label("from").fill("1950-06-01")
    born.get_by_label("from").press("Enter")
    expect_sql(
        page,
        "SELECT count(*) FROM people WHERE region = 'East' AND age >= 18 AND age <= 64 AND works = TRUE "
        "AND born >= DATE '1950-06-01'",
    )
    assert page.locator("[role=alert]").count() == 0


def test_changed_sql_updates_the_fields(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    write(
        page, "select sex, count(*) from people where age between 30 and 49 and region in ('West','North') group by sex"
    )
    ages, regions = page.locator("fieldset", has_text="age"), page.locator("fieldset", has_text="region")
    expect(ages.get_by_label("from")).to_have_value("30")
    expect(ages.get_by_label("to")).to_have_value("49")
    expect(page.locator("fieldset", has_text="sex").get_by_label("group by it")).to_be_checked()
    for name, checked in {"North": True, "West": True, "East": False, "South": False}.items():
        expect(regions.get_by_label(name)).to_be_checked(checked=checked)
    ages.get_by_label("to").fill("")  # a changed field rewrites the SQL
    ages.get_by_label("to").press("Tab")
    expect_sql(page, "SELECT sex, count(*) FROM people WHERE region IN ('North', 'West') AND age >= 30 GROUP BY sex")
    note = page.get_by_text("The SQL says more than fields can show")
    assert note.count() == 0
    write(page, "SELECT count(*) FROM people WHERE region = 'North' OR age < 18")
    expect(note).to_be_visible()
    write(page, "SELECT count(*) FROM people WHERE born IS NULL")
    expect(note).to_be_visible()
    write(page, ALL)
    expect(note).to_have_count(0)


def test_a_changed_field_overwrites_sql_that_fields_cannot_express(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    more = "SELECT sex, count(*) FROM people WHERE region = 'North' OR age < 18 GROUP BY sex"
    note = page.get_by_text("The SQL says more than fields can show")
    write(page, more)
    expect(note).to_be_visible()
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry")).to_be_visible()
    expect_sql(page, more)  # no field was changed
    page.locator("fieldset", has_text="works").get_by_label("group by it").check()
    expect_sql(page, "SELECT sex, works, count(*) FROM people GROUP BY sex, works")
    expect(note).to_have_count(0)
    write(page, more)
    expect(note).to_be_visible()
    page.get_by_role("button", name="Write the fields as SQL").click()
    expect_sql(page, "SELECT sex, count(*) FROM people GROUP BY sex")
    write(page, more)
    expect(note).to_be_visible()
    page.get_by_label("Dataset").select_option("visits")
    expect_sql(page, "SELECT count(*) FROM visits")
    assert page.locator("[role=alert]").count() == 0


def test_a_chart_states_how_many_cells_it_shows(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    asked(page, "SELECT sex, works, age, region, count(*) FROM people GROUP BY sex, works, age, region")
    expect(page.locator("#answer figcaption")).to_have_text("The first 40 of 192 cells are drawn.")
    flag = page.locator("#answer .flag").first
    expect(flag).to_have_attribute("title", "The 95 % interval reaches more than 10 % of the count to either side")
    places = page.locator("#answer figure text").evaluate_all("texts => texts.map(t => t.getBBox().x)")
    assert min(places) >= 0
    asked(page, "SELECT sex, count(*) FROM people GROUP BY sex")
    assert page.locator("#answer figcaption").count() == 0


def test_choosing_another_dataset_shows_the_fields_of_that_dataset(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    page.locator("fieldset", has_text="region").get_by_label("North").check()
    expect_sql(page, "SELECT count(*) FROM people WHERE region = 'North'")
    page.get_by_label("Dataset").select_option("visits")
    expect_sql(page, "SELECT count(*) FROM visits")
    assert page.locator("[role=alert]").count() == 0
    page.get_by_label("count people, not rows").check()
    expect_sql(page, "SELECT count(DISTINCT person) FROM visits")
    write(page, "SELECT region, count(*) FROM people GROUP BY region")
    expect(page.get_by_label("Dataset")).to_have_value("people")
    expect(page.locator("fieldset", has_text="region").get_by_label("group by it")).to_be_checked()


def test_a_click_right_after_typing_is_not_lost(visit: Visit, keys: dict[str, str], watch: Watch) -> None:
    """Leaving the SQL field updates the fields; the update must not replace a button that is being clicked."""
    page = visit("/login")
    enter(page, keys["ana"])
    page.locator("#sql").press("Control+a")
    page.keyboard.type(
        "SELECT count(*) FROM people WHERE age >= 30"
    )  # the change event fires when the field loses focus
    box = page.get_by_role("button", name=COST).bounding_box()
    assert box is not None
    before = len(watch.asked)
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.wait_for_timeout(500)  # a slow click
    assert watch.asked[before:] == []
    page.mouse.up()
    expect(page.locator("#dry")).to_be_visible()
    expect(page.locator("fieldset", has_text="age").get_by_label("from")).to_have_value("30")


def test_text_typed_during_an_update_of_the_page_is_not_lost(visit: Visit, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    page.context.route("**/ask", lambda route: (page.wait_for_timeout(400), route.continue_()))  # a slow connection
    ages = page.locator("fieldset", has_text="age")
    ages.get_by_label("from").focus()
    page.keyboard.type("20")
    page.keyboard.press("Tab")
    page.wait_for_timeout(300)  # the update of the page is under way
    page.keyboard.type("4")
    page.wait_for_timeout(300)
    page.keyboard.type("0")
    page.wait_for_timeout(800)
    assert ages.get_by_label("to").input_value() == "40"
    assert ages.get_by_label("to").evaluate("field => field === document.activeElement")
    page.keyboard.press("Tab")
    expect_sql(page, "SELECT count(*) FROM people WHERE age >= 20 AND age <= 40")


# -- the price, then the answer ----------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_price_and_asking_shows_the_recorded_answer(
    visit: Visit, served: Served, keys: dict[str, str], tmp_path: Path
) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    before = len(served.charges())
    page.locator("fieldset", has_text="region").get_by_label("group by it").check()
    page.locator("fieldset", has_text="age").get_by_label("group by it").check()
    text = "SELECT region, age, count(*) FROM people GROUP BY region, age"
    expect_sql(page, text)
    page.get_by_role("button", name=COST).click()
    dry = page.locator("#dry")
    left = 40 - before
    expect(dry.get_by_role("heading")).to_have_text(f"Costs 1 of {left} answers left")
    with Curator.open(served.config) as curator:
        expected = curator.dry_run(text, analyst="ana")
    for fact in (str(expected.cells), f"±{expected.margin_95}", f"±{expected.worst_error}", *expected.notes):
        expect(dry).to_contain_text(fact)
    assert len(served.charges()) == before, "a dry run spends nothing"
    page.get_by_role("button", name="Ask, for 1 answer").click()
    answer = page.locator("#answer")
    expect(answer.get_by_role("heading").first).to_contain_text(f"Answered, for 1 answer · {left - 1} left for you")
    (charge,) = served.charges()[before:]
    assert (charge.analyst, charge.dataset) == ("ana", "people")
    table = read_recorded(served, charge.id)
    rows = [(r, a, f"{y:,}", f"{low:,} to {high:,}") for r, a, y, low, high in table.rows]
    shown_rows = answer.locator("tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].slice(0, 4).map(cell => cell.textContent))"
    )
    assert [tuple(row) for row in shown_rows] == rows
    small = [10 * max(high - y, y - low) > y for _, _, y, low, high in table.rows]
    assert {True, False} <= set(small), "the data should have useful cells and others"
    flags = answer.locator("tbody tr").evaluate_all("rows => rows.map(r => r.querySelector('.flag') !== null)")
    assert flags == small
    chart = answer.get_by_role("img", name=re.compile("^Published counts"))
    assert chart.locator("path.error").count() == min(40, len(rows))
    expect(answer).to_contain_text(f"Sum of the cells: {table.total().value:,}")
    files = {}
    for ending in ("CSV", "JSON"):
        with page.expect_download() as download:
            answer.get_by_role("link", name=ending, exact=True).click()
        files[ending] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[ending])
    with files["CSV"].open(newline="") as file:
        assert file.read() == to_csv(table)
    assert json.loads(files["JSON"].read_text())["rows"] == [list(row) for row in table.rows]
    receipt = answer.locator("details", has_text=charge.id)
    receipt.locator("summary").click()
    for value in (table.receipt.mechanism, table.receipt.question, table.receipt.time):
        expect(receipt).to_contain_text(value)


def test_a_repeated_question_is_free_and_shows_the_recorded_answer(
    visit: Visit, served: Served, keys: dict[str, str]
) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    text = "SELECT sex, count(*) FROM people GROUP BY sex"
    receipt = asked(page, text)
    counts, charges = page.locator("#answer tbody").inner_text(), len(served.charges())
    left = page.locator("#answer h2").inner_text().partition("·")[2]
    page.locator("#sql").fill("select  SEX , COUNT(*) from people group by sex")
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry h2")).to_have_text("Free: asked before")
    page.get_by_role("button", name="Show it again, free").click()
    expect(page.locator("#answer h2")).to_contain_text("From the record, free")
    assert page.locator("#answer tbody").inner_text() == counts
    assert page.locator("#answer h2").inner_text().partition("·")[2] == left
    expect(page.locator("#answer")).to_contain_text(receipt)
    assert len(served.charges()) == charges


def test_the_shown_python_and_curl_lines_give_the_same_answer(
    visit: Visit, served: Served, keys: dict[str, str]
) -> None:
    import subprocess

    import countveil as cv

    page = visit("/login")
    enter(page, keys["ana"])
    receipt = asked(page, "SELECT works, count(*) FROM people WHERE region = 'North' GROUP BY works")
    rows = [list(row) for row in read_recorded(served, receipt).rows]
    page.get_by_text("The same in Python and with curl").click()
    names = {"cv": cv, "URL": served.url, "KEY": keys["ana"]}
    exec(page.get_by_label("Python", exact=True).inner_text(), names)
    assert [list(row) for row in names["table"].rows] == rows  # type: ignore[attr-defined]
    names["service"].close()  # type: ignore[attr-defined]
    assert find("curl") or miss(explain("curl"))
    line = page.get_by_label("curl", exact=True).inner_text().replace("URL", served.url, 1)
    environment = {"PATH": "/usr/bin:/bin", "COUNTVEIL_KEY": keys["ana"]}
    done = subprocess.run(line, shell=True, env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["rows"] == rows


def test_a_question_changed_after_its_dry_run_is_priced_before_it_is_asked(
    visit: Visit, served: Served, keys: dict[str, str]
) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    page.locator("#sql").fill("SELECT count(*) FROM people WHERE age = 31")
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry")).to_contain_text("Costs 1")
    before = len(served.charges())
    page.locator("#sql").fill("SELECT region, count(*) FROM people WHERE age = 32 GROUP BY region")
    page.get_by_role("button", name=ASK).click()  # the page still shows the price of the other question
    expect(page.locator("#dry .fact").first).to_have_text(re.compile("^4"))
    assert len(served.charges()) == before
    page.get_by_role("button", name=ASK).click()
    expect(page.locator("#answer")).to_be_visible()
    assert len(served.charges()) == before + 1


def test_opening_an_address_never_asks_a_question(visit: Visit, served: Served, keys: dict[str, str]) -> None:
    page = visit("/login")
    enter(page, keys["ana"])
    before = len(served.charges())
    text = "SELECT count(*) FROM people WHERE age = 77"
    with Curator.open(served.config) as curator:
        priced = curator.question(text).sha256
    page.goto(f"{served.url}/ask?dataset=people&do=count&priced={priced}&sql={quote(text)}")
    expect_sql(page, text)
    assert page.locator("#answer").count() == 0
    assert len(served.charges()) == before


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT count(*) FROM people WHERE height > 3", "height"),
        ("SELECT count(*) FROM people WHERE region = 'Nowhere' AND age > 3", "'Nowhere'"),
        ("SELECT count(*) FROM people WHERE sqrt(age) > 3", "sqrt"),
        ("SELECT count(*) FROM people WHERE age > 'x<script>alert(1)</script>'", "'x<script>alert(1)</script>'"),
        ("SELECT count(*) FROM people WHERE age > 3.25 AND sex = 'f'", "3.25"),
        ("SELECT avg(age) FROM people", "avg"),
        ("SELECT count(*) FROM people WHERE age >", "(here)"),
    ],
)
def test_a_bad_filter_is_refused_with_the_word_marked(
    visit: Visit, served: Served, keys: dict[str, str], watch: Watch, text: str, word: str
) -> None:
    watch.refusals = {422}
    page = visit("/login")
    enter(page, keys["ben"])
    before = len(served.charges())
    page.locator("#sql").fill(text)
    page.get_by_role("button", name=COST).click()
    refusal = page.get_by_role("alert")
    expect(refusal.get_by_role("heading")).to_have_text("Not allowed")
    assert "\n" not in refusal.locator("p").inner_text()
    with Curator.open(served.config) as curator, pytest.raises(Exception) as raised:  # noqa: PT011
        curator.dry_run(text)
    assert refusal.locator("p").inner_text() == str(raised.value)
    marked = page.locator("#marked")
    assert marked.inner_text().replace("(here)", "") == text
    mark = page.locator("mark").inner_text()
    position = getattr(raised.value, "position", None)
    assert position is not None
    assert text[position - 1 :].startswith(mark) or (mark == "(here)" and position > len(text))
    assert mark == word
    expect_sql(page, text)
    assert page.locator("#sql").get_attribute("aria-invalid") == "true"
    assert len(served.charges()) == before
    page.locator("#sql").fill(ALL)
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry")).to_be_visible()
    assert page.locator("#marked").count() == 0


def test_an_invalid_value_in_a_field_is_refused_and_marked(visit: Visit, keys: dict[str, str], watch: Watch) -> None:
    watch.refusals = {422}
    page = visit("/login")
    enter(page, keys["ben"])
    ages = page.locator("fieldset", has_text="age")
    ages.get_by_label("from").fill("old")
    ages.get_by_label("from").press("Tab")
    expect(page.locator("mark")).to_have_text("old")
    ages.get_by_label("from").fill("65")
    ages.get_by_label("from").press("Tab")
    expect_sql(page, "SELECT count(*) FROM people WHERE age >= 65")
    expect(page.get_by_role("alert")).to_have_count(0)


# -- access -----------------------------------------------------------------------------------------------------------


def test_analysts_see_their_own_questions_and_curators_see_all(
    visit: Visit, served: Served, keys: dict[str, str], watch: Watch
) -> None:
    watch.refusals = {404}
    ana, ben, cora = visit("/login"), visit("/login"), visit("/login")
    enter(ana, keys["ana"])
    enter(ben, keys["ben"])
    hers = "SELECT count(*) FROM people WHERE age >= 91"
    receipt = asked(ana, hers)
    asked(ben, "SELECT count(*) FROM people WHERE age >= 92")
    for page, key, visible in ((ana, "ana", True), (ben, "ben", False), (cora, "cora", True)):
        enter(page, keys[key], "/budget")
        page.wait_for_load_state("networkidle")
        assert ("age &gt;= 91" in page.content()) is visible, key
        assert (receipt[:8] in page.content()) is visible, key
        assert ("age &gt;= 92" in page.content()) is (key != "ana"), key
        status = page.request.get(f"{served.url}/ask/{receipt}.csv").status
        assert status == (200 if visible else 404), key
    expect(cora.get_by_role("columnheader", name="who")).to_be_visible()
    expect(ben.get_by_role("columnheader", name="who")).to_have_count(0)


def test_an_answer_that_someone_else_paid_for_can_be_downloaded(
    visit: Visit, served: Served, keys: dict[str, str], tmp_path: Path
) -> None:
    ana, ben = visit("/login"), visit("/login")
    enter(ana, keys["ana"])
    enter(ben, keys["ben"])
    text = "SELECT region, count(*) FROM people WHERE age < 50 GROUP BY region"
    receipt = asked(ana, text)
    assert asked(ben, text) == receipt
    with ben.expect_download() as download:
        ben.locator("#answer").get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        assert file.read() == to_csv(read_recorded(served, receipt))
