"""All pages: no request leaves the host, the content security policy holds, and refusals are readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browsing import Visit, Watch, enter, opened, until
from tests.support.served import Served


def test_the_watch_reports_a_request_to_another_host(browser: Browser, served: Served) -> None:
    """Without the content security policy, a request to another host is reported."""
    watch, context = Watch(served.url), opened(browser)
    watch.over(context)
    context.route("http://elsewhere.example/**", lambda route: route.fulfill(body=""))
    page = context.new_page()
    page.goto(served.url + "/login")
    watch.check()
    away = "<img src=http://elsewhere.example/x.png>"
    page.route("**/docs", lambda route: route.fulfill(content_type="text/html", body=away))
    page.goto(served.url + "/docs")
    context.close()
    assert watch.elsewhere == ["http://elsewhere.example/x.png"]
    with pytest.raises(AssertionError, match="left the host"):
        watch.check()


@pytest.mark.parametrize(
    "script",
    [
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)",
        "const i = new Image(); i.src = 'http://elsewhere.example/x.png'",
        "fetch('http://elsewhere.example/').catch(() => 0)",
        "const d = document.createElement('div'); d.setAttribute('style', 'color: red'); document.body.append(d)",
        "const a = document.createElement('a'); a.setAttribute('onclick', 'window.ran = 1'); document.body.append(a);"
        "a.click()",
    ],
)
def test_the_content_security_policy_blocks_inline_scripts_and_other_hosts(
    browser: Browser, served: Served, script: str
) -> None:
    """The browser blocks inline scripts, inline styles and other hosts, and `Watch` records the error."""
    watch, context = Watch(served.url), opened(browser)
    watch.over(context)
    page = context.new_page()
    page.goto(served.url + "/login")
    page.evaluate(f"() => {{ {script} }}")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    context.close()
    assert any("Content Security Policy" in error for error in watch.errors)


def test_no_page_contains_inline_scripts_or_styles(visit: Visit, served: Served) -> None:
    page = visit("/login")
    enter(page, served.key("cora", "curator"))
    for path in ("/explore", "/explore?words=agency", "/ask", "/budget", "/docs", "/login"):
        reply = page.request.get(served.url + path)
        policy = reply.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        text = reply.text().lower()
        for inline in ("<style", " style=", "javascript:", " onclick=", " onload=", "http://", "https://"):
            assert inline not in text, (path, inline)
        assert text.count("<script") == text.count('<script src="/static/'), path


def test_too_many_requests_are_refused_with_a_readable_message(browser: Browser, tmp_path: Path) -> None:
    served = Served(tmp_path, rate=60)  # a burst of ten requests
    watch, context = Watch(served.url), opened(browser)
    try:
        watch.refusals = {429}
        watch.over(context)
        page = context.new_page()
        page.goto(served.url + "/explore?epsilon=1&delta=1e-6")
        until(page, "!!document.querySelector('.curve svg')")
        for i in range(12):
            page.locator("#epsilon").fill(f"1.{i}")
            with page.expect_response("**/explore?*"):
                page.locator("#epsilon").press("Enter")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("ask again in")
        assert "{" not in page.locator("#view").inner_text(), "the page shows JSON"
        expect(page.locator("#controls")).to_be_visible()
        page.goto(served.url + "/explore")
        expect(page.get_by_role("alert")).to_contain_text("ask again in")
        expect(page.get_by_role("link", name="Explore")).to_be_visible()
        watch.check()
    finally:
        context.close()
        served.stop()


def test_a_missing_page_is_html_for_browsers_and_problem_json_for_programs(
    visit: Visit, served: Served, watch: Watch
) -> None:
    watch.refusals = {404}
    page = visit("/login")
    page.goto(served.url + "/nowhere")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("link", name="Explore")).to_be_visible()
    reply = page.request.get(served.url + "/nowhere", headers={"Accept": "*/*"})
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
