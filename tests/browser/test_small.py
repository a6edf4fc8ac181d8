"""Details of the pages: window size, sliders, cancellation, and small screens."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from playwright.sync_api import Page, expect

import countveil as cv
from tests.support.browsing import Visit, asked, enter, slider, until
from tests.support.served import Served

OUTSIDE = "e => { const r = e.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth; }"


def scrolls_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def test_the_curve_follows_the_width_of_the_window_and_the_theme(visit: Visit) -> None:
    page = visit("/explore")
    picture = page.get_by_role("img", name="delta at every epsilon")
    expect(picture).to_be_visible()
    for width in (390, 1280, 700):
        page.set_viewport_size({"width": width, "height": 900})
        until(
            page,
            "(h => Math.abs(h.querySelector('svg').getBoundingClientRect().width - h.clientWidth) < 2)"
            "(document.querySelector('.curve'))",
        )
        assert not scrolls_sideways(page), width
    colour = "getComputedStyle(document.querySelector('.curve .line')).stroke"
    before = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    until(page, f"before => {colour} !== before", before)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_pointing_at_the_curve_shows_delta_rounded_up(visit: Visit, scripts: bool) -> None:
    page = visit(f"/explore{'' if scripts else '/more'}?epsilon=1&delta=1e-6", scripts=scripts)
    m = cv.design(epsilon="1", delta="1e-6", method="remap")
    points = page.locator(".curve .point")
    expect(points.first).to_be_visible()
    labels = dict(re.findall(r"epsilon (\S+): delta (\S+)", " ".join(points.locator("title").all_text_contents())))
    assert len(labels) > 10
    for epsilon, delta in labels.items():
        assert Fraction(delta) >= m.delta_at(Fraction(epsilon)), "the shown delta is never below the true one"
    assert Fraction(labels["0"]) <= m.delta_at(0) * Fraction(102, 100)
    point = points.nth(len(labels) // 2)
    expect(point.locator(".mark")).to_have_css("opacity", "0")
    point.locator(".strip").hover()
    expect(point.locator(".mark")).to_have_css("opacity", "1")


@pytest.mark.parametrize("name", ["D", "eta", "n0"])
def test_a_slider_overrides_a_computed_value_and_a_button_computes_it_again(visit: Visit, name: str) -> None:
    page = visit("/explore")
    page.get_by_text("More: eta, D").click()
    back = page.get_by_role("button", name=f"{name}: compute it again")
    expect(back).to_be_hidden()
    facts = page.locator(".facts").inner_text()
    slider(page, name).focus()
    page.keyboard.press("ArrowRight")
    until(page, "name => new URLSearchParams(location.search).has(name)", name)
    expect(page.locator("#view [role=alert]")).to_have_count(0)
    back.click()
    until(page, "name => !new URLSearchParams(location.search).has(name)", name)
    expect(page.locator(".facts")).to_have_text(facts, use_inner_text=True)
    assert page.locator(f"#{name}").input_value() == ""
    assert slider(page, name).get_attribute("aria-valuetext") == "found"
    expect(back).to_be_hidden()


def test_after_cancellation_the_page_says_that_the_pictures_are_the_previous_ones(visit: Visit) -> None:
    page = visit("/explore")
    until(page, "!document.querySelector('#more')")
    notice = page.locator("#told")
    page.locator("#answers").fill("777")
    page.locator("#answers").press("Enter")
    page.get_by_role("button", name="Cancel").click()
    expect(notice).to_be_visible()
    expect(notice).to_have_text("Cancelled: the pictures show the previous settings.")
    assert notice.get_attribute("role") == "status"
    page.locator("#answers").fill("1")
    page.locator("#answers").press("Enter")
    expect(notice).to_be_hidden()


def test_loading_the_curve_can_be_cancelled(visit: Visit) -> None:
    page = visit("/login")
    page.route("**/explore/more?*", lambda route: None)  # no response
    page.goto(page.url.replace("/login", "/explore"))
    waiting = page.locator("#more")
    expect(waiting.get_by_text("Computing the curve")).to_be_visible()
    until(page, "document.querySelector('#more').classList.contains('htmx-request')")
    aborted: list[str] = []
    page.on("requestfailed", lambda request: aborted.append(request.url))
    waiting.get_by_role("button", name="Cancel").click()
    expect(waiting.get_by_role("status")).to_have_text("Cancelled: the curve and the comparison are not shown.")
    expect(waiting.get_by_text("Computing the curve")).to_be_hidden()
    expect(waiting.get_by_role("link")).to_be_visible()
    until(page, "!document.querySelector('#more').classList.contains('htmx-request')")
    assert [url for url in aborted if "/explore/more" in url]


def test_flags_of_imprecise_counts_and_long_questions_fit_on_a_phone(visit: Visit, served: Served) -> None:
    page = visit("/login", phone=True)
    enter(page, served.key("cora", "curator"))
    for label in page.locator("label:has(> input[type=checkbox]), summary").all():
        box = label.bounding_box()
        assert box is None or box["height"] >= 24
    asked(page, "SELECT region, age, count(*) FROM people WHERE works = TRUE GROUP BY region, age")
    flags = page.locator(".flag")
    assert flags.count() > 3
    for flag in flags.all()[:5]:
        assert not flag.evaluate(OUTSIDE)
    assert not scrolls_sideways(page)
    page.goto(f"{served.url}/budget")
    box = page.locator("td code").first.bounding_box()
    assert box is not None
    assert box["width"] > 250
    assert not scrolls_sideways(page)


def test_long_values_are_wrapped_on_a_phone(visit: Visit, served: Served) -> None:
    page = visit("/login", phone=True)
    enter(page, served.key("x" * 60))
    page.locator("legend").first.evaluate("e => { e.textContent = 'w'.repeat(200); }")
    page.locator(".values label").first.evaluate("e => e.append('w'.repeat(200))")
    assert not scrolls_sideways(page)
