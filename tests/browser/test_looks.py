"""Each view on a desktop and on a phone, in light and dark: screenshots, axe-core checks, and keyboard use.

COUNTVEIL_SCREENSHOTS=folder keeps the pictures. axe-core is in vendor/, for these tests only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import ASK, COST, Visit, Watch, asked, enter, findings, until
from tests.support.served import Served

CONTROLS = "a[href], button:enabled, input:enabled:not([type=hidden]), select, textarea, summary, [tabindex='0']"


def views(visit: Visit, served: Served, key: str, watch: Watch, **look: bool) -> Iterator[tuple[str, Page]]:
    """Every view, one after the other."""
    watch.refusals = {401, 402, 422}
    page = visit("/explore", **look)
    until(page, "!!document.querySelector('.curve svg') && !!document.querySelector('.more, [aria-label^=variance]')")
    yield "explore", page
    page.locator("summary").first.click()
    page.locator("#policy").select_option("signed")
    expect(page.get_by_label("Command", exact=True)).to_contain_text("signed")
    until(page, "!!document.querySelector('.curve svg')")
    yield "explore-more-fields", page
    page.goto(f"{served.url}/explore?epsilon=20&delta=0.01&answers=4")
    until(page, "!!document.querySelector('.curve svg')")
    yield "explore-answers", page
    page.goto(f"{served.url}/explore?epsilon=no")
    yield "explore-refused", page
    page.goto(f"{served.url}/explore?words=agency")
    yield "explore-agency", page
    page.goto(f"{served.url}/explore/more?epsilon=1&delta=1e-6")
    yield "guarantee", page
    page.goto(f"{served.url}/login")
    yield "login", page
    page.get_by_label("Your key").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    yield "login-refused", page
    enter(page, key)
    yield "ask", page
    page.locator("#sql").fill("SELECT region, age, count(*) FROM people WHERE works GROUP BY region, age")
    page.get_by_role("button", name=COST).click()
    expect(page.locator("mark")).to_be_visible()
    yield "ask-refused", page
    page.locator("#sql").fill("SELECT region, age, count(*) FROM people WHERE works = TRUE GROUP BY region, age")
    page.get_by_role("button", name=COST).click()
    expect(page.locator("#dry")).to_be_visible()
    yield "ask-dry-run", page
    page.get_by_role("button", name=ASK).click()
    expect(page.locator("#answer")).to_be_visible()
    for details in page.locator("#answer summary").all():
        details.click()
    yield "ask-answered", page
    asked(page, "SELECT count(*) FROM people WHERE age > 100")
    page.goto(f"{served.url}/budget")
    expect(page.get_by_text("Chain verified")).to_be_visible()
    yield "budget", page
    page.goto(f"{served.url}/docs")
    yield "docs", page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_every_view_fits_the_screen_and_passes_axe_core(
    visit: Visit, served: Served, watch: Watch, tmp_path: Path, phone: bool, dark: bool
) -> None:
    folder = Path(os.environ.get("COUNTVEIL_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    key = served.key(f"cora-{phone}-{dark}", "curator")
    names, problems = [], []
    for name, page in views(visit, served, key, watch, phone=phone, dark=dark):
        path = folder / f"{name}-{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}.png"
        page.screenshot(path=path, full_page=True)
        assert path.stat().st_size > 5_000
        names.append(name)
        wide, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        if wide > room:
            problems.append((name, f"{wide} pixels wide, room for {room}"))
        problems += [(name, *each) for each in findings(page)]
    assert problems == []
    assert len(names) == 14


def test_axe_core_detects_planted_faults(visit: Visit) -> None:
    """Planted faults are reported."""
    page = visit("/login")
    assert findings(page) == []
    page.evaluate(
        "() => { const p = document.createElement('p'); p.textContent = 'hardly to be read'; p.style.color = '#ddd';"
        " p.style.background = '#fff'; const i = document.createElement('input'); main.append(p, i); }"
    )
    assert {rule for rule, _, _ in findings(page)} >= {"color-contrast", "label"}


# -- by keyboard -------------------------------------------------------------------------------------------------------


def tab_through(page: Page) -> list[dict[str, Any]]:
    """Every element that Tab reaches from the top of the page, and whether its focus is visible."""
    page.evaluate(
        "controls => { document.body.tabIndex = -1; document.body.focus(); window.scrollTo(0, 0);"
        " document.body.removeAttribute('tabindex');"
        " [...document.querySelectorAll(controls)].forEach((e, i) => { e.dataset.stop = i; }); }",
        CONTROLS,
    )
    stops: list[dict[str, Any]] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();"
            " return { stop: e.dataset.stop ?? null, body: e === document.body, html: e.outerHTML.slice(0, 120),"
            " shows: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,"
            " inside: r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth }; }"
        )
        if at["body"] or (stops and at["stop"] == stops[0]["stop"]):
            return stops
        stops.append(at)
    raise AssertionError("Tab never comes to an end")


def reachable(page: Page) -> set[str]:
    """The visible controls."""
    stops: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('[data-stop]')].filter(e => e.checkVisibility({visibilityProperty: true})"
        " && (e.getClientRects().length > 0)).map(e => e.dataset.stop)"
    )
    return set(stops)


@pytest.mark.parametrize("path", ["/explore?epsilon=1&delta=1e-6&policy=signed", "/ask", "/budget", "/login", "/docs"])
def test_tab_reaches_every_control_and_its_focus_is_visible(visit: Visit, served: Served, path: str) -> None:
    page = visit("/login")
    if path in ("/ask", "/budget"):
        enter(page, served.key(f"tab-{path[1:]}", "curator"))
        asked(page, "SELECT region, count(*) FROM people GROUP BY region")
    if path != "/ask":
        page.goto(served.url + path)
    page.wait_for_load_state("networkidle")
    stops = tab_through(page)
    assert "Skip to the content" in stops[0]["html"]
    assert reachable(page) - {stop["stop"] for stop in stops} == set()
    assert [stop["html"] for stop in stops if not stop["shows"]] == [], "focus does not show"
    assert [stop["html"] for stop in stops if not stop["inside"]] == [], "focus is out of sight"


def test_the_skip_link_moves_the_focus_to_the_content(visit: Visit) -> None:
    page = visit("/explore")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_question_can_be_asked_by_keyboard_alone(visit: Visit, served: Served) -> None:
    page = visit("/login")
    page.get_by_label("Your key").focus()
    page.keyboard.type(served.key("keys-only"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/ask")
    box = page.locator("fieldset", has_text="region").get_by_label("group by it")
    box.focus()
    page.keyboard.press("Space")
    expect(page.locator("#sql")).to_have_value("SELECT region, count(*) FROM people GROUP BY region")
    expect(box).to_be_focused()  # the page was updated
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("#sql")).to_have_value(
        "SELECT region, count(*) FROM people WHERE region = 'North' GROUP BY region"
    )
    expect(page.locator("fieldset", has_text="region").get_by_label("North")).to_be_focused()
    cost = page.get_by_role("button", name=COST)
    for _ in range(40):
        page.keyboard.press("Tab")
        if cost.evaluate("button => button === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#dry")).to_be_visible()
    expect(cost).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=ASK)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('#answer').contains(document.activeElement)")
