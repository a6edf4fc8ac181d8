"""Logging in: a bucket of its own, and what was asked for is there again afterwards."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import COST, Visit, Watch, enter
from tests.support.served import Served

TEXT = "SELECT sex, count(*) FROM people WHERE age >= 40 AND region = 'North' GROUP BY sex"


def key_given(page: Page, key: str) -> None:
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_a_question_in_an_address_is_there_after_logging_in(visit: Visit, served: Served, scripts: bool) -> None:
    page = visit(f"/ask?sql={quote(TEXT)}", scripts=scripts)
    assert parse_qs(urlsplit(page.url).query)["to"] == [f"/ask?sql={quote(TEXT)}"]
    key_given(page, served.key(f"ana-{scripts}"))
    expect(page.locator("#sql")).to_have_value(TEXT)
    expect(page.locator("fieldset", has_text="age").get_by_label("from")).to_have_value("40")
    assert page.locator("#answer").count() == 0
    assert served.charges() == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_what_was_typed_is_there_when_the_session_ended(
    visit: Visit, served: Served, watch: Watch, scripts: bool
) -> None:
    watch.refusals = {401}
    page = visit("/login", scripts=scripts)
    name = f"ben-{scripts}"
    enter(page, served.key(name))
    page.locator("#sql").fill(TEXT)
    served.keyring.revoke(name)
    page.get_by_role("button", name=COST).click()
    page.wait_for_url("**/login?to=*")
    key_given(page, served.key(f"{name}-again"))
    expect(page.locator("#sql")).to_have_value(TEXT)


@pytest.mark.parametrize(
    "text", ["SELECT count(*) -- " + "x" * 3000, "cvk_" + "0" * 10, ""], ids=["long", "key", "none"]
)
def test_what_does_not_go_into_an_address(served: Served, text: str) -> None:
    form = urllib.parse.urlencode({"sql": text, "do": "plan"}).encode()
    assert located(f"{served.url}/ask", form) == "/login?to=%2Fask"


def test_a_form_that_cannot_be_read_goes_to_the_page(served: Served) -> None:
    assert located(f"{served.url}/ask", b"sql=\xff") == "/login?to=%2Fask"
    assert located(f"{served.url}/budget?x={'y' * 3000}") == "/login?to=%2Fbudget"


def located(address: str, body: bytes | None = None) -> str:
    """Where an answer sends a stranger."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.build_opener(Stay).open(address, body, 30)
    answer.value.close()
    assert answer.value.code == 303
    return str(answer.value.headers["location"])


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that takes a few requests a minute of each."""
    found = Served(Path(tmp_path_factory.mktemp("slow")), rate=30)
    yield found
    found.stop()


def status(address: str, body: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(address, body, 60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_who_explores_keeps_nobody_from_logging_in(slow: Served) -> None:
    key = slow.key("ana")
    seen = [status(f"{slow.url}/explore/nothing.txt") for _ in range(12)]
    assert seen[-1] == 429
    form = urllib.parse.urlencode({"key": key, "to": "/login"}).encode()
    assert status(f"{slow.url}/login", form) == 200
    assert 429 in [status(f"{slow.url}/login", b"key=wrong") for _ in range(12)]
