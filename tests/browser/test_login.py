"""Logging in: a separate rate limit, and the requested page or question after it."""

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


def submit_key(page: Page, key: str) -> None:
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_a_question_in_an_address_is_shown_after_logging_in(visit: Visit, served: Served, scripts: bool) -> None:
    page = visit(f"/ask?sql={quote(TEXT)}", scripts=scripts)
    assert parse_qs(urlsplit(page.url).query)["to"] == [f"/ask?sql={quote(TEXT)}"]
    submit_key(page, served.key(f"ana-{scripts}"))
    expect(page.locator("#sql")).to_have_value(TEXT)
    expect(page.locator("fieldset", has_text="age").get_by_label("from")).to_have_value("40")
    assert page.locator("#answer").count() == 0
    assert served.charges() == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_a_typed_question_is_restored_after_the_session_ended(
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
    submit_key(page, served.key(f"{name}-again"))
    expect(page.locator("#sql")).to_have_value(TEXT)


@pytest.mark.parametrize(
    "text", ["SELECT count(*) -- " + "x" * 3000, "cvk_" + "0" * 10, ""], ids=["long", "key", "none"]
)
def test_long_texts_and_keys_are_not_put_into_an_address(served: Served, text: str) -> None:
    form = urllib.parse.urlencode({"sql": text, "do": "plan"}).encode()
    assert read_redirect(f"{served.url}/ask", form) == "/login?to=%2Fask"


def test_an_unreadable_form_is_redirected_without_its_content(served: Served) -> None:
    assert read_redirect(f"{served.url}/ask", b"sql=\xff") == "/login?to=%2Fask"
    assert read_redirect(f"{served.url}/budget?x={'y' * 3000}") == "/login?to=%2Fbudget"


def read_redirect(address: str, body: bytes | None = None) -> str:
    """The address to which a request without a session is redirected."""

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
    """A service with a low rate limit."""
    service = Served(Path(tmp_path_factory.mktemp("slow")), rate=30)
    yield service
    service.stop()


def status(address: str, body: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(address, body, 60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_requests_to_explore_do_not_use_up_the_rate_limit_of_logging_in(slow: Served) -> None:
    key = slow.key("ana")
    statuses = [status(f"{slow.url}/explore/nothing.txt") for _ in range(12)]
    assert statuses[-1] == 429
    form = urllib.parse.urlencode({"key": key, "to": "/login"}).encode()
    assert status(f"{slow.url}/login", form) == 200
    assert 429 in [status(f"{slow.url}/login", b"key=wrong") for _ in range(12)]
