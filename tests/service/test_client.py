"""`cv.connect` against a real service: the frames and errors of a local Curator, and a key that never leaks."""

from __future__ import annotations

import datetime
import json
import pickle
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pandas.testing
import polars as pl
import polars.testing
import pyarrow as pa
import pytest

import countveil as cv
from countveil.client import exchange, responses
from countveil.client.transport import parse_address
from countveil.curator.results import Receipt, Table
from countveil.errors import ProblemKind
from tests.support.certificates import LOCALHOST, certificate
from tests.support.curated import Run, charged, config_text, runner, with_plan, write_rows, written
from tests.support.serving import BY_REGION, SOME, UNLIMITED, Server, place, serving

MANY = 'epsilon = "100"\ndelta = "0.1"\nanswers = 1000\n'
COLUMNS = """
region = ["North", "South", "it's", "Größe"]
level = [5, -1, 9223372036854775807]
ok = { type = "boolean" }
day = { type = "date", values = ["2026-01-31", "1999-12-31", "0001-01-01"] }
week = { min = 2026-01-01, max = 2026-01-03 }
month = { min = 2026-01-01, max = 2026-03-31, step = 31 }
age = { min = 0, max = 25, step = 10 }
year = { min = -1, max = 1 }
"""
KEY = "cvk_0123456789_" + 64 * "a"
FRAMES: dict[str, Callable[[Any, Any], None]] = {
    "pandas": pandas.testing.assert_frame_equal,
    "polars": polars.testing.assert_frame_equal,
    "pyarrow": lambda a, b: None if a.equals(b) and a.schema.equals(b.schema) else pytest.fail(f"{a} is not {b}"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("service")
    days = [(f"2026-0{1 + i % 3}-0{1 + i % 9}", i % 3 - 1) for i in range(60)]
    header = ["person", "region", "level", "ok", "day", "week", "month", "age", "year"]
    rows = [
        (i, "North" if i % 3 else "it's", 5 if i % 2 else -1, i % 5 == 0, "2026-01-31", f"2026-01-0{1 + i % 3}", *when)
        for i, when in enumerate((day, i % 26, year) for i, (day, year) in enumerate(days))
    ]
    write_rows(folder / "people.csv", header, rows)
    config = written(folder, config_text(columns=COLUMNS, budget=MANY) + UNLIMITED)
    with_plan(config)
    with serving(config) as running:
        yield running


@pytest.fixture(scope="module")
def key(server: Server) -> str:
    return server.key("alice")


@pytest.fixture
def service(server: Server, key: str) -> Iterator[cv.Connection]:
    with cv.connect(server.url, key) as connected:
        yield connected


@pytest.fixture
def curator(server: Server) -> Iterator[cv.Curator]:
    with cv.Curator.open(server.config) as opened:
        yield opened


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the waits before retries instead of sleeping."""
    waits: list[float] = []
    monkeypatch.setattr(exchange, "time", SimpleNamespace(sleep=waits.append))
    return waits


# -- the same answers --------------------------------------------------------------------------------------------------

GROUPS = [
    *([], ["region"], ["level"], ["ok"], ["day"], ["week"], ["month"], ["age"], ["year"]),
    *(["year", "region"], ["day", "ok", "age", "level"]),
]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("by", GROUPS, ids=" ".join)
def test_frames_from_a_service_equal_those_of_a_curator(
    by: list[str], kind: str, service: cv.Connection, curator: cv.Curator
) -> None:
    there = service.count(by=by, frame=kind)
    here = curator.count(by=by, frame=kind)
    assert type(there.frame) is type(here.frame)
    FRAMES[kind](there.frame, here.frame)
    FRAMES[kind](there.to(kind), here.to(kind))
    assert there.columns == here.columns
    assert list(there.rows) == list(here.rows)
    assert there.cells == here.cells == len(there.frame)
    assert there.total() == here.total()
    for names in ([], by, by[:1], by[1:]):
        assert there.subtotals(names) == here.subtotals(names)
    assert type(there) is type(here) is Table
    assert there.receipt == here.receipt
    assert isinstance(there.receipt, Receipt)


def test_the_comparison_of_frames_detects_other_labels(service: cv.Connection) -> None:
    table = service.count(by="day")
    for kind, same in FRAMES.items():
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            same(table.to(kind), replace(table, labels=(["x"] * 3,)).to(kind))


def test_values_from_a_service_have_their_python_types(service: cv.Connection) -> None:
    (day, ok, *_) = next(iter(service.count(by=["day", "ok"]).rows))
    assert (day, ok) == (datetime.date(2026, 1, 31), False)
    assert type(ok) is bool


def test_the_frame_has_the_requested_kind(service: cv.Connection) -> None:
    assert isinstance(service.count(by="region").frame, pd.DataFrame)
    assert isinstance(service.count(by="region", frame="polars").frame, pl.DataFrame)
    assert isinstance(service.count(by="region").to("pyarrow"), pa.Table)
    for wrong in ("excel", 5):
        with pytest.raises(cv.ParameterError, match="frame: got"):
            service.count(by="region", frame=wrong)  # type: ignore[arg-type]


QUESTIONS: list[dict[str, Any]] = [
    {"question": "SELECT region, count(*) AS n FROM people WHERE ok = TRUE GROUP BY region"},
    {"by": "region", "where": cv.col("ok") == True, "name": "n"},  # noqa: E712
    {"by": ["year", "region"], "where": "age >= 10 OR day = DATE '2026-01-31'"},
    {
        "dataset": "people",
        "by": ("age",),
        "where": (cv.col("day") > datetime.date(2000, 1, 1)) & ~cv.col("age").is_null(),
    },
    {"where": cv.col("region").isin(["it's", "Größe"]) | (cv.col("level") == 2**63 - 1), "people": True},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
def test_every_form_of_a_question_gets_the_same_answer_as_from_a_curator(
    question: dict[str, Any], service: cv.Connection, curator: cv.Curator
) -> None:
    assert service.dry_run(**question) == curator.dry_run(**question)
    service.count(**question)
    again, here = service.count(**question), curator.count(**question)
    assert again.replayed
    assert again.describe() == here.describe()
    assert service.dry_run(**question) == curator.dry_run(**question)
    assert service.dry_run(**question).cost == 0
    assert service.count(curator.question(**question)).receipt.question == here.receipt.question


def test_datasets_history_and_receipts_equal_those_of_a_curator(
    server: Server, curator: cv.Curator, service: cv.Connection
) -> None:
    table = service.count(by="region", where="age >= 7")
    (there,), (here,) = service.datasets(), curator.datasets()
    assert there == replace(here, max_cells=1_000_000)  # a service answers no larger table
    mine = service.history()
    assert mine == [entry for entry in curator.history() if entry.analyst == mine[0].analyst]
    assert mine[-1].id == table.receipt.id
    receipt = service.receipt(table.receipt.id)
    assert receipt is not None
    assert receipt == curator.receipt(table.receipt.id)
    assert receipt.question == table.receipt.question
    assert service.receipt("0" * 24) is curator.receipt("0" * 24) is None
    with cv.connect(server.url, server.key("stranger")) as stranger:
        assert stranger.history() == []
        assert stranger.receipt(table.receipt.id) is None
    for source in (service, curator):
        for wrong in ("../asked", "0" * 23, "G" * 24, 5):
            with pytest.raises(cv.ParameterError, match=r"id: got .*, allowed is the 24 hexadecimal digits"):
                source.receipt(wrong)  # type: ignore[arg-type]


def test_subtotals_from_a_service_equal_those_of_a_curator(curator: cv.Curator, service: cv.Connection) -> None:
    here, there = curator.count(by=["region", "ok"]), service.count(by=["region", "ok"])
    assert there.subtotals("ok") == here.subtotals("ok")
    assert there.subtotals(["ok", "region"]) == here.subtotals(["ok", "region"])


def test_the_old_address_of_dry_runs_works_and_says_that_it_is_deprecated(server: Server) -> None:
    key = server.key("old")
    old, new = (server.ask("POST", path, {"by": ["region"]}, key=key) for path in ("/v1/plan", "/v1/dry-run"))
    assert (old.status, old.json()) == (200, new.json())
    assert old.header("deprecation") == "@1794960000"
    assert old.header("link") == '</v1/dry-run>; rel="successor-version"'
    assert new.header("deprecation") is None
    paths = server.get("/openapi.json").json()["paths"]
    assert paths["/v1/plan"]["post"]["deprecated"] is True
    assert "deprecated" not in paths["/v1/dry-run"]["post"]


def test_budgets_from_a_service_equal_those_of_a_curator(
    server: Server, curator: cv.Curator, service: cv.Connection
) -> None:
    local = curator.budget()
    assert service.budget() == service.budget("people") == local
    with pytest.raises(cv.ConfigError) as there:
        service.budget("nothing")
    with pytest.raises(cv.ConfigError) as here:
        curator.budget("nothing")
    assert str(there.value) == str(here.value)


def test_threads_share_a_connection(server: Server, service: cv.Connection) -> None:
    before = charged(server.config)
    wheres = [cv.col("age") == i for i in range(8)] * 3
    with ThreadPoolExecutor(8) as threads:
        tables = list(threads.map(lambda where: service.count(where=where), wheres))
    rows_by_question: dict[str, set[tuple[Any, ...]]] = {}
    for table in tables:
        rows_by_question.setdefault(table.receipt.question, set()).update(table.rows)
    assert len(rows_by_question) == 8
    assert all(len(rows) == 1 for rows in rows_by_question.values())
    assert charged(server.config) - before == 8


# -- the same refusals -------------------------------------------------------------------------------------------------

BAD: list[dict[str, Any]] = [
    {"question": "SELECT region, count(*) FROM people GROUP BY region HAVING count(*) < 5"},
    {"question": "DROP TABLE people"},
    {"question": ""},
    {"question": " \n"},
    {"question": "SELECT \x00"},
    {"question": "\ud800"},
    {"question": 5},
    {"question": b"SELECT"},
    {"question": BY_REGION, "by": "region"},
    {"by": "nothing"},
    {"by": 5},
    {"by": [5]},
    {"by": ["age", "age"]},
    {"by": "age", "name": "age"},
    {"name": ""},
    {"name": 5},
    {"dataset": "nothing"},
    {"dataset": 5},
    {"where": ""},
    {"where": 5},
    {"where": cv.col("age")},
    {"where": "age >= 'old'"},
    {"where": "nothing = 1"},
    {"where": cv.col("nothing") == 1},
    {"where": cv.col("Age") == 1},
    {"where": cv.col("age") == "old"},
    {"where": cv.col("region").isin([])},
    {"where": cv.col("region") == "Nort"},
]


@pytest.mark.parametrize("question", BAD, ids=str)
@pytest.mark.parametrize("call", ["count", "dry_run"])
def test_refusals_from_a_service_equal_those_of_a_curator(
    call: str, question: dict[str, Any], server: Server, service: cv.Connection, curator: cv.Curator
) -> None:
    before = charged(server.config)
    with pytest.raises(cv.CountveilError) as there:
        getattr(service, call)(**question)
    with pytest.raises(cv.CountveilError) as here:
        getattr(curator, call)(**question)
    assert type(there.value) is type(here.value) is cv.QueryError
    assert str(there.value) == str(here.value)
    assert vars(there.value) == vars(here.value)
    assert charged(server.config) == before


def test_too_long_texts_and_bad_idempotency_keys_are_refused(service: cv.Connection) -> None:
    with pytest.raises(cv.RequestError, match=r"body\.sql"):
        service.count("SELECT count(*) FROM people WHERE age = 1" + " " * 100_000)
    with pytest.raises(cv.ParameterError, match="idempotency_key"):
        service.count(by="age", idempotency_key="two words")


def test_a_spent_budget_and_a_missing_source_raise_their_errors(tmp_path: Path) -> None:
    config = place(tmp_path, budget=SOME)
    with serving(config) as server, cv.connect(server.url, server.key("bob", answers=1)) as bob:
        first = bob.count(BY_REGION)
        with pytest.raises(cv.BudgetError, match="the share of this key in people is spent, its one answer") as spent:
            bob.count(by="age")
        assert (spent.value.pool, spent.value.answers, spent.value.exit_code) == ("people", 1, 4)
        assert bob.budget()[0].answers_left == 0
        assert list(bob.count(BY_REGION).rows) == list(first.rows)
        (tmp_path / "people.csv").rename(tmp_path / "elsewhere.csv")
        with pytest.raises(cv.EngineError, match="the data cannot be reached now: what was charged stays charged"):
            bob.count(BY_REGION)


def test_an_idempotency_key_is_refused_for_another_question(server: Server, service: cv.Connection) -> None:
    before = charged(server.config)
    one = service.count(where="age = 11", idempotency_key="mine")
    assert list(service.count(where="age = 11", idempotency_key="mine").rows) == list(one.rows)
    with pytest.raises(cv.ConflictError, match="used for another question"):
        service.count(where="age = 12", idempotency_key="mine")
    assert charged(server.config) - before == 1


def test_unknown_and_revoked_keys_are_refused(server: Server) -> None:
    revoked = server.key("gone")
    server.keyring.revoke("gone")
    for wrong in (KEY, "cvk_", "x", revoked):
        with cv.connect(server.url, wrong) as service, pytest.raises(cv.AccessError) as refused:
            service.count(by="age")
        assert str(refused.value) == f"{server.url} does not know this key; ask its curator for one"


def test_every_problem_kind_becomes_its_error_class() -> None:
    for kind in ProblemKind:
        error = responses.read_refusal(kind.title, "because", {"name": kind.slug})
        assert type(error) is kind.error
        assert "because" in str(error)
        if type(error) is not cv.ServiceError:
            assert error.exit_code == kind.code


# -- the key -----------------------------------------------------------------------------------------------------------


def test_the_key_is_read_from_the_environment(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COUNTVEIL_KEY", raising=False)
    with pytest.raises(cv.RequestError, match="no key: set COUNTVEIL_KEY"):
        cv.connect(server.url)
    monkeypatch.setenv("COUNTVEIL_KEY", f"{key}\n")
    with cv.connect(server.url) as service:
        assert service.budget()


@pytest.mark.parametrize("wrong", ["", " ", "two words", "a\nb", "schlüssel", 5, b"cvk_", "x" * 201])
def test_invalid_keys_are_refused_and_not_quoted(wrong: Any, server: Server) -> None:
    with pytest.raises(cv.RequestError) as refused:
        cv.connect(server.url, wrong)
    assert "\n" not in str(refused.value)
    assert not str(wrong).strip() or str(wrong) not in str(refused.value)


def test_the_key_is_in_no_repr_pickle_traceback_or_log(server: Server, key: str, service: cv.Connection) -> None:
    assert repr(service) == f"<Connection {server.url}>"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(service)
    with pytest.raises(cv.QueryError) as refused:
        service.count("SELECT")
    assert key not in "".join(traceback.format_exception(refused.value))
    assert key not in repr(service.count(by="age"))
    assert key[-64:] not in server.log


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422, 429, 500, 503])
def test_a_key_that_the_service_repeats_in_an_error_is_not_shown(status: int, quick: list[float]) -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        for name in (*responses.REFUSALS, "unheard-of"):
            fake.prepare(status, problem(name, f"Bearer {KEY}\n {KEY}"), {"Retry-After": "99"})
            with pytest.raises(cv.CountveilError) as refused:
                service.count(by="age")
            shown = "".join(traceback.format_exception(refused.value))
            assert KEY not in shown
            assert len(str(refused.value).splitlines()) == 1


# -- the address -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "url: got an empty text, allowed is an address such as"),
        ("counts.example.org", "url: got counts.example.org, allowed is"),
        ("ftp://counts.example.org", "url: got ftp"),
        ("https://", "url: got https"),
        ("https://a..b", "url: got"),
        ("https://[::1", "url: got"),
        ("https://host:port", "url: got"),
        ("https://host:99999", "url: got"),
        ("https://host:0", "url: got"),
        ("https://höst", "url: got"),
        ("https://ho st/", "url: got"),
        ("https://host/a\nb", "url: got"),
        ("https://host/?x=1", "without ? and #"),
        ("https://host/#x", "without ? and #"),
        (5, "url: got 5"),
        (None, "url: got None"),
        ("https://user:secret@host", "leave out the user name and password"),
        ("https://user:secret@host:99999", "leave out the user name and password"),
        (f"https://host/{KEY}", "url: contains a key"),
        ("http://192.0.2.1:8000", "192.0.2.1 is another machine"),
        ("http://counts.example.org", "counts.example.org is another machine"),
        ("http://localhost.example.org", "is another machine"),
        ("http://127.0.0.1.example.org", "is another machine"),
        ("http://[2001:db8::1]", "is another machine"),
    ],
)
def test_invalid_addresses_are_refused_in_one_line(url: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: pytest.fail("a connection was made"))
    with pytest.raises(cv.CountveilError) as refused:
        cv.connect(url, KEY)
    shown = str(refused.value)
    assert words in shown
    assert refused.value.exit_code == 2
    assert not {"secret", KEY} & set(shown.replace("/", " ").replace("@", " ").replace(":", " ").split())
    assert len(shown.splitlines()) == 1


def test_valid_addresses_are_accepted() -> None:
    for url in ("http://localhost:8000", "http://127.1.2.3", "http://[::1]:80/", "https://counts.example.org/office/"):
        parse_address(url)
    assert str(parse_address("http://192.0.2.1", insecure=True)) == "http://192.0.2.1"
    assert str(parse_address(" HTTPS://Counts.Example.org:443/office/ ")) == "https://counts.example.org/office"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "1", True, None])
def test_invalid_timeouts_are_refused(timeout: Any) -> None:
    with pytest.raises(cv.ParameterError, match="timeout: got"):
        cv.connect("http://localhost:1", KEY, timeout=timeout)


def test_a_refused_connection_raises_a_service_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(cv.ServiceError, match=f"^http://127.0.0.1:{port} cannot be reached: Connection refused$"):
        cv.connect(f"http://127.0.0.1:{port}", KEY)


def test_a_silent_server_times_out(quick: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(cv.ServiceError, match=r"no response within 0\.1 s$"):
            cv.connect(url, KEY, timeout=0.1)


def test_another_kind_of_server_is_refused_and_gets_no_key(server: Server) -> None:
    with pytest.raises(cv.ServiceError, match="there is nothing here"):
        cv.connect(f"{server.url}/elsewhere", KEY)
    with pytest.raises(cv.ServiceError, match="TLS failed"):
        cv.connect(server.url.replace("http:", "https:"), KEY)
    for status, body in ((200, b"<html>"), (200, b'{"info": {"title": "other"}}'), (200, b"[]"), (404, b"nothing")):
        with Fake(probe=(status, body)) as fake:
            with pytest.raises(cv.ServiceError, match="did not respond like a countveil service"):
                cv.connect(fake.url, KEY)
            assert fake.seen == []
            assert not any("authorization" in headers for headers in fake.probes)


def test_redirects_are_refused() -> None:
    with Fake() as other, Fake(probe=(302, b""), location=other.url) as fake:
        with pytest.raises(cv.ServiceError, match="redirects, and the key is not sent to other addresses"):
            cv.connect(fake.url, KEY)
        assert other.probes == []
        with cv.connect(other.url, KEY) as service:
            for status in (301, 302, 303, 307, 308):
                other.prepare(status, b"", {"Location": fake.url})
                with pytest.raises(cv.ServiceError, match="redirects, and the key is not sent to other addresses"):
                    service.count(by="age")
        assert fake.seen == []


def test_tls_certificates_are_verified(tmp_path: Path) -> None:
    chain, secret = certificate(tmp_path, LOCALHOST)
    config = place(tmp_path / "served")
    with serving(config, "--tls-certificate", str(chain), "--tls-key", str(secret)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(cv.ServiceError, match="its certificate is not valid"):
            cv.connect(url, KEY)
        with cv.connect(url, server.key("alice"), cafile=chain) as service:
            assert service.count(BY_REGION).cells == 4
        with pytest.raises(cv.ServiceError, match="its certificate is not valid"):
            cv.connect(server.url, KEY, cafile=chain)  # issued for localhost, not for 127.0.0.1
    for wrong in (tmp_path / "none.pem", secret, 5):
        with pytest.raises(cv.ParameterError, match="cafile: got"):
            cv.connect(url, KEY, cafile=wrong)  # type: ignore[arg-type]


# -- network failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "kept"), [(20, 0), (21, 100), (22, -1)], ids=["nothing", "a part", "all but one byte"])
def test_an_answer_lost_on_the_way_is_paid_for_once(
    age: int, kept: int, server: Server, key: str, curator: cv.Curator, quick: list[float]
) -> None:
    before, where = charged(server.config), f"age = {age}"
    with Proxy(server) as proxy, cv.connect(proxy.url, key) as service:
        proxy.cut(3, kept)
        table = service.count(where=where, by="ok")
        assert proxy.uncut == 0
    assert charged(server.config) - before == 1
    assert list(table.rows) == list(curator.count(where=where, by="ok").rows)
    assert len(quick) == 3


def test_a_retry_after_the_data_changed_returns_the_recorded_answer(tmp_path: Path, quick: list[float]) -> None:
    config = place(tmp_path)

    def change() -> None:
        with (tmp_path / "people.csv").open("a") as file:
            file.write("99,North,10\n")

    with serving(config) as server, Proxy(server) as proxy, cv.connect(proxy.url, server.key("alice")) as service:
        proxy.cut(1, 0, then=change)
        assert service.count(BY_REGION).receipt.version == 1
        assert charged(config) == 1
        assert service.count(BY_REGION).receipt.version == 2
        assert charged(config) == 2


def test_an_answer_that_is_always_lost_is_paid_for_once(server: Server, key: str, quick: list[float]) -> None:
    before = charged(server.config)
    with Proxy(server) as proxy, cv.connect(proxy.url, key) as service:
        proxy.cut(100, 0)
        with pytest.raises(cv.ServiceError, match=r"if it was charged, the same question is now free$"):
            service.count(where="year = 0")
        proxy.cut(0, 0)
        assert service.count(where="year = 0").replayed
    assert charged(server.config) - before == 1
    assert len(quick) == len(exchange.WAITS)


def test_a_closed_idle_connection_is_replaced(server: Server, key: str, quick: list[float]) -> None:
    with Proxy(server) as proxy, cv.connect(proxy.url, key) as service:
        service.budget()
        proxy.drop()
        assert service.budget()
    assert quick == [0.0]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_with_the_same_idempotency_key(status: int, quick: list[float]) -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        fake.prepare(status, problem("too-many-requests", "later"), {"Retry-After": "7"}, times=2)
        fake.append(200, json.dumps(TABLE).encode())
        assert service.count(by="age").cells == 2
        keys = {headers["idempotency-key"] for headers in fake.seen}
        assert (len(fake.seen), len(keys)) == (3, 1)
        fake.prepare(200, json.dumps(TABLE).encode())
        service.count(by="age")
        assert fake.seen[-1]["idempotency-key"] not in keys
    assert quick == [7, 7]


def test_a_service_that_stays_busy_raises_its_error(quick: list[float]) -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        fake.prepare(429, problem("too-many-requests", "ask again in 2 s"), {"Retry-After": "2"}, times=99)
        with pytest.raises(cv.ServiceError, match="ask again in 2 s"):
            service.budget()
        assert quick == [2, 2, 2, 4]
        fake.prepare(503, b"<html>", {}, times=99)
        with pytest.raises(cv.ServiceError, match=r"not respond like a countveil service \(status 503\)"):
            service.budget()
        assert quick == [2, 2, 2, 4, *exchange.WAITS]


def test_final_refusals_are_not_retried(quick: list[float]) -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        for status, name, after in ((503, "ledger", None), (429, "too-many-requests", "3600"), (500, "internal", "1")):
            fake.prepare(status, problem(name, "words"), {} if after is None else {"Retry-After": after})
            with pytest.raises(cv.CountveilError, match="words"):
                service.budget()
    assert quick == []


RECEIPT = {
    **dict.fromkeys(("id", "dataset", "question", "text", "mechanism", "pool", "epsilon", "delta", "time"), "x"),
    "version": 1,
    "answers": 1,
    "answers_left": 1,
}
TABLE: dict[str, Any] = {
    "schema_version": 1,
    "columns": ["day", "count", "count_low", "count_high"],
    "kinds": ["date", "integer", "integer", "integer"],
    "rows": [["2026-01-31", 1, 0, 2], ["2026-02-01", 3, 2, 4]],
    "margin_95": 1,
    "worst_error": 2,
    "total": {"value": 4, "cells": 2, "margin_95": 1, "worst_error": 2, "note": ""},
    "receipt": RECEIPT,
    "replayed": False,
    "of a later version": 1,
}


@pytest.mark.parametrize(
    "wrong",
    [
        *([], None, "text", {}),
        *({**TABLE, "schema_version": 2}, {**TABLE, "rows": []}, {**TABLE, "rows": [[]]}, {**TABLE, "rows": 5}),
        {**TABLE, "rows": [["2026-01-31", 1, 0, 2], ["2026-02-01", 3, 2]]},
        {**TABLE, "rows": [["2026-01-32", 1, 0, 2]]},
        {**TABLE, "rows": [["2026-01-31", 1.0, 0, 2]]},
        {**TABLE, "rows": [["2026-01-31", True, 0, 2]]},
        {**TABLE, "rows": [["2026-01-31", 2**63, 0, 2]]},
        {**TABLE, "rows": [[None, 1, 0, 2]]},
        {**TABLE, "kinds": ["date", "integer", "integer", "text"]},
        {**TABLE, "kinds": ["date", "integer", "integer"]},
        {**TABLE, "kinds": ["float", "integer", "integer", "integer"]},
        {**TABLE, "columns": ["day", "count", "count", "count_high"]},
        {**TABLE, "columns": [1, "count", "count_low", "count_high"]},
        {**TABLE, "rows": [["2026-01-31", 1, 0, 2], ["2026-01-31", 3, 2, 4]]},
        {**TABLE, "sum_margins": {"2": "1"}},
        {**TABLE, "sum_margins": {"all": 1}},
        {**TABLE, "sum_margins": [1]},
        {**TABLE, "receipt": {}},
        {**TABLE, "total": None},
        {name: value for name, value in TABLE.items() if name != "replayed"},
    ],
)
def test_invalid_responses_raise_a_service_error(wrong: Any) -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        fake.prepare(200, json.dumps(wrong).encode(), times=3)
        for call in (service.count, service.dry_run, service.budget):
            with pytest.raises(cv.ServiceError, match="sent a response that this version of countveil cannot read"):
                call()


def test_asking_for_subtotals_or_a_mechanism_that_the_service_did_not_send_is_refused() -> None:
    with Fake() as fake, cv.connect(fake.url, KEY) as service:
        fake.prepare(200, json.dumps(TABLE).encode())  # an older version states only the margin of the total
        table = service.count(by="day")
    assert table.total().margin_95 == 1
    with pytest.raises(cv.ServiceError, match="does not state the margins of subtotals"):
        table.subtotals("day")
    with pytest.raises(cv.ServiceError, match="does not send its mechanism"):
        _ = table.mechanism


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys, "count")


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys, "budget")


@pytest.mark.parametrize("options", [(), ("--json",), ("--format", "csv"), ("--dry-run",), ("--dry-run", "--json")])
def test_count_prints_the_same_for_a_service_as_locally(
    options: tuple[str, ...], server: Server, key: str, count: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTVEIL_KEY", key)
    question = "SELECT day, ok, age, count(*) FROM people GROUP BY day, ok, age"
    count(question, "--url", server.url)
    there, here = count(question, "--url", server.url, *options), count(question, "-c", server.config, *options)
    assert there == here
    assert there.code == 0


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_files_from_a_service_equal_local_files(
    ending: str, server: Server, key: str, count: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTVEIL_KEY", key)
    question = "SELECT day, ok, age, count(*) FROM people GROUP BY day, ok, age"
    count(question, "--url", server.url)
    assert count(question, "--url", server.url, "-o", tmp_path / f"there.{ending}").code == 0
    assert count(question, "-c", server.config, "-o", tmp_path / f"here.{ending}").code == 0
    assert (tmp_path / f"there.{ending}").read_bytes() == (tmp_path / f"here.{ending}").read_bytes()


def test_budget_prints_the_same_for_a_service_as_locally(
    server: Server, key: str, budget: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTVEIL_KEY", key)
    there, here = budget("--url", server.url, "--json"), budget("-c", server.config, "--json")
    assert there == here
    assert "of 1000 answers left for this key" in budget("people", "--url", server.url).out


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("--url", "http://192.0.2.1"), "is another machine", 2),
        (("--url", "nothing"), "url: got nothing", 2),
        (("--url", "http://localhost:1", "-c", "x.toml"), "leave out", 2),
        (("--url", "http://localhost:1", "--analyst", "x"), "leave out", 2),
        (("--url", "http://localhost:1"), "cannot be reached", 6),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: tuple[str, ...], message: str, code: int, count: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTVEIL_KEY", KEY)
    done = count("SELECT count(*) FROM people", *words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert KEY not in done.err


def test_budget_options_for_curators_are_refused_for_a_service(server: Server, budget: Run) -> None:
    done = budget("people", "--url", server.url, "--extend", "5", "--reason", "more")
    assert (done.code, done.out) == (2, "")
    assert "leave out --config, --extend, --replan and --new-ledger" in done.err


# -- stand-ins ---------------------------------------------------------------------------------------------------------


def problem(name: str, detail: str) -> bytes:
    body = {"type": f"urn:countveil:problem:{name}", "title": detail, "detail": detail, "error": {"name": name}}
    return json.dumps(body).encode()


class Fake:
    """A server that sends prepared responses; `seen` has the headers of requests, `probes` those of the first check."""

    def __init__(
        self, probe: tuple[int, bytes] = (200, b'{"info": {"title": "countveil"}}'), location: str = ""
    ) -> None:
        self.seen: list[dict[str, str]] = []
        self.probes: list[dict[str, str]] = []
        queue: list[tuple[int, bytes, dict[str, str]]] = []
        fake, self._queue = self, queue

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.rfile.read(int(headers.get("content-length", 0)))
                if self.path == "/openapi.json":
                    fake.probes.append(headers)
                    status, body, more = *probe, {"Location": location}
                else:
                    fake.seen.append(headers)
                    status, body, more = queue.pop(0)
                self.send_response(status)
                for name, value in {**more, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def prepare(self, status: int, body: bytes, headers: dict[str, str] | None = None, times: int = 1) -> None:
        """Replace the queue of responses."""
        self._queue.clear()
        self.append(status, body, headers, times)

    def append(self, status: int, body: bytes, headers: dict[str, str] | None = None, times: int = 1) -> None:
        self._queue.extend([(status, body, headers or {})] * times)

    def __enter__(self) -> Fake:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Proxy:
    """Forwards requests and replies one by one, and can drop replies after the service has sent them."""

    def __init__(self, server: Server) -> None:
        self._there = (server.host, server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut(0, 0)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def cut(self, replies: int, kept: int, then: Callable[[], None] = lambda: None) -> None:
        """Drop the next replies after `kept` bytes (-1: all but the last byte); `then` runs before each cut."""
        self.uncut, self._kept, self._then = replies, kept, then

    def drop(self) -> None:
        """Close all open connections, as a server closes idle ones."""
        for each in self._open:
            each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Proxy:
        self._threads.append(threading.Thread(target=self._listen))
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._pass, args=(connection,)))
            self._threads[-1].start()

    def _pass(self, connection: socket.socket) -> None:
        self._open.append(connection)
        with connection, socket.create_connection(self._there) as there:
            while request := _message(connection):
                there.sendall(request)
                reply = _message(there)
                if self.uncut and request.startswith(b"POST"):
                    self.uncut -= 1
                    self._then()
                    connection.sendall(reply[: self._kept])
                    break
                connection.sendall(reply)
        self._open.remove(connection)


def _message(connection: socket.socket) -> bytes:
    """One HTTP message with a Content-Length, or b"" at the end of the stream."""
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            chunk = connection.recv(1 << 16)
        except OSError:
            return b""
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body
