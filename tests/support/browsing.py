"""Debian's Chromium with a watch on every request, every error on its console and every failing script."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.support.needs import need

COST, ASK = "What would it cost?", re.compile("^Ask, for 1 answer$|^Show it again")
Visit = Callable[..., Page]
AXE = (Path(__file__).parents[1] / "browser" / "vendor" / "axe.min.js").read_text(encoding="utf-8")
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_STATUS = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
_CHANGED_MIND = re.compile(r"htmx:(afterRequest|sendAbort), \[object HTML\w+\]")
"""The console message of htmx if a newer request replaces an older one, or if the user cancels."""

expect.set_options(timeout=60_000)


@contextmanager
def launched() -> Iterator[Browser]:
    chromium = need("chromium")  # before the driver, which needs libraries that come with Chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Collects faults of a browser: requests to other hosts and errors. `refusals` are HTTP statuses a test expects."""

    def __init__(self, address: str) -> None:
        self.place = urlsplit(address)[:2]
        self.refusals: set[int] = set()
        self.asked: list[str] = []
        self.elsewhere: list[str] = []
        self.errors: list[str] = []

    def over(self, context: BrowserContext) -> None:
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if urlsplit(request.url)[:2] != self.place:
            self.elsewhere.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or _CHANGED_MIND.fullmatch(message.text):
            return
        status = _STATUS.match(message.text)
        if status is None or int(status[1]) not in self.refusals:
            self.errors.append(message.text)

    def check(self) -> None:
        assert self.asked, "nothing was asked of the service"
        assert self.elsewhere == [], f"requests left the host: {self.elsewhere}"
        assert self.errors == [], f"on the console: {self.errors}"


def opened(browser: Browser, *, phone: bool = False, dark: bool = False, scripts: bool = True) -> BrowserContext:
    """A new browser session without cookies or stored data."""
    context = browser.new_context(
        viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
        has_touch=phone,
        is_mobile=phone,
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    context.set_default_timeout(30_000)
    return context


def until(page: Page, expression: str, argument: Any = None, seconds: float = 60) -> Any:
    """Wait until a JavaScript expression is true. It is evaluated from outside, because the page forbids eval."""
    deadline = time.monotonic() + seconds
    while not (found := page.evaluate(expression, argument)):
        assert time.monotonic() < deadline, f"never came true: {expression}"
        page.wait_for_timeout(10)
    return found


def slider(page: Page, name: str) -> Any:
    return page.locator(f"input[data-for={name}]")


@contextmanager
def a_new_view(page: Page) -> Iterator[None]:
    """Wait, after the block has moved a slider, until the page shows the new view."""
    page.evaluate("window.sliderTook = 0")
    yield
    until(page, "window.sliderTook > 0")


def slide(page: Page, name: str, to: int) -> None:
    """Move a slider to a position from 0 to 1000, and wait for the new view."""
    with a_new_view(page):
        slider(page, name).evaluate(
            "(s, to) => { s.value = to; s.dispatchEvent(new Event('input', {bubbles: true})); }", to
        )


def enter(page: Page, key: str, to: str = "/ask") -> None:
    """Log in through the page."""
    page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/", 3)[2] + f"/login?to={to}")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{to}")


def asked(page: Page, text: str) -> str:
    """Make a dry run of a question in SQL, then ask it; returns the id of the receipt."""
    page.locator("#sql").fill(text)
    page.get_by_role("button", name=COST).click()
    page.get_by_role("button", name=ASK).click()
    expect(page.locator("#answer")).to_be_visible()
    found = re.search("[0-9a-f]{24}", page.locator("#answer summary").first.inner_text())
    assert found is not None
    return found[0]


def findings(page: Page) -> list[tuple[str, str, str]]:
    """The serious and critical violations that axe-core reports: rule, element, reason."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(AXE)
    report: dict[str, Any] = page.evaluate("rules => axe.run(document, rules)", RULES)
    assert len(report["passes"]) > 10, "axe-core checked nothing"
    return [
        (each["id"], node["html"][:200], node["failureSummary"])
        for each in report["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
