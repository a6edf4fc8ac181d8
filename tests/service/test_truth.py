"""Over HTTP, in the client and on the page, every answer says what it counts and within which bounds."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

import countveil as cv
from tests.support.served import CONFIG, Served
from tests.support.serving import Answer

TEXT = "rows of people; at most 3 rows each in a cell, 1 cell each"
WITHIN = "interval for the count within these bounds"
FULL = f"{TEXT}; {WITHIN}; a person is all rows with one value of person"
ASKED = "SELECT place, count(*) FROM visits GROUP BY place"
PEOPLE = "SELECT count(DISTINCT person) FROM visits"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("truth"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def key(served: Served) -> str:
    return served.key("vera")


def test_answers_over_http_state_the_bounds_within_which_they_count(served: Served, key: str) -> None:
    dry_run = served.ask("POST", "/v1/dry-run", {"sql": ASKED}, key=key).json()
    table = served.count(ASKED, key).json()
    receipt = served.get(f"/v1/receipts/{table['receipt']['id']}", key).json()["receipt"]
    assert dry_run["truth"] == table["truth"]
    assert (table["truth"]["text"], table["truth"]["interval"]) == (TEXT, WITHIN)
    assert (table["truth"]["unit"], table["truth"]["rows_per_person"]) == ("person", 3)
    assert receipt["truth"] == table["receipt"]["truth"] == FULL


def test_a_connection_states_the_same_bounds_as_a_local_curator(served: Served, key: str) -> None:
    with cv.connect(served.url, key) as service:
        table, dry_run = service.count(ASKED), service.dry_run(ASKED)
        people = service.dry_run(PEOPLE)
    with cv.Curator.open(served.config) as curator:
        assert table.truth == dry_run.truth == curator.question(ASKED).truth
        assert people.truth == curator.question(PEOPLE).truth
    assert table.receipt.truth == FULL
    assert people.truth is not None
    assert not people.truth.bounded


def test_the_page_states_the_bounds_in_the_dry_run_the_answer_and_its_files(served: Served, key: str) -> None:
    cookie = (post(served, "/login", {"key": key, "to": "/ask"}).header("set-cookie") or "").partition(";")[0]
    form = {"dataset": "visits", "sql": ASKED, "do": "plan"}
    dry = post(served, "/ask", form, cookie)
    assert f"Counts {TEXT}; {WITHIN}." in unescape(dry.body.decode())
    with cv.connect(served.url, key) as service:
        receipt = service.count(ASKED).receipt
    answer = unescape(post(served, "/ask", {**form, "do": "count", "priced": receipt.question}, cookie).body.decode())
    assert f"Counts {TEXT}; {WITHIN}." in answer
    assert f"<dt>truth</dt><dd>{FULL}</dd>" in answer
    file = served.ask("GET", f"/ask/{receipt.id}.csv", headers={"Cookie": cookie}).body.decode()
    assert file.startswith("place,count,count_low,count_high,count_of\n")
    assert FULL in file


def test_the_page_does_not_call_a_total_more_accurate_that_counts_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = "rows_per_person = 3\ncells_per_person = 2"
    monkeypatch.setattr("tests.support.served.CONFIG", CONFIG.replace("rows_per_person = 3", bounds))
    server = Served(tmp_path)
    try:
        vera = server.key("vera")
        cookie = (post(server, "/login", {"key": vera, "to": "/ask"}).header("set-cookie") or "").partition(";")[0]
        with cv.connect(server.url, vera) as service:
            table = service.count(ASKED)
        form = {"dataset": "visits", "sql": ASKED, "do": "count", "priced": table.receipt.question}
        page = unescape(post(server, "/ask", form, cookie).body.decode())
    finally:
        server.stop()
    words = "the sum counts up to 3 rows of a person in each of up to 2 cells; a question for the total counts up to 3 "
    assert words in page
    assert words in table.total().note
    assert "more accurate" not in page


def post(served: Served, path: str, form: dict[str, str], cookie: str = "") -> Answer:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": served.url, "Cookie": cookie}
    return served.ask("POST", path, urlencode(form).encode(), headers=headers)


def test_the_openapi_document_describes_the_bounds(served: Served, key: str) -> None:
    schemas = served.get("/openapi.json").json()["components"]["schemas"]
    assert {"text", "interval", "rows_per_person", "cells_per_person"} <= set(schemas["Truth"]["properties"])
