"""Access control: valid keys are accepted, all others are refused, and a refusal reveals nothing."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from countveil.errors import ConfigError, CountveilError, ParameterError, RequestError
from countveil.service.api_keys import Key, Keyring
from countveil.service.rate_limits import Rates
from countveil.service.server import Place, _listen
from tests.support.certificates import certificate
from tests.support.curated import Run, charged, runner
from tests.support.serving import (
    ALL,
    BY_REGION,
    SOME,
    UNLIMITED,
    WAIT,
    Answer,
    Client,
    Server,
    clean,
    place,
    raw,
    serving,
)

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
FOREIGN = f"cvk_{'0' * 10}_{'1' * 64}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers, so that every property is tested on both."""
    with serving(place(tmp_path_factory.mktemp("access")), "--workers", "2") as started:
        yield started


@pytest.fixture(scope="module")
def ann(server: Server) -> str:
    return server.key("ann")


@pytest.fixture(scope="module")
def boss(server: Server) -> str:
    return server.key("boss", "curator")


def operations(server: Server, *, open_too: bool = False) -> list[tuple[str, str]]:
    """Method and address of every operation that needs a key, from the OpenAPI document."""
    listed = []
    for path, methods in server.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            security = operation.get("security", [{}])
            if {} not in security or (open_too and {"key": []} in security):
                values = {"id": "0" * 24, "name": "yearbook", "edition": 1, "file": "report.html"}
                listed.append((method.upper(), path.format(**values)))
    return listed


def shape(answer: Answer) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """Everything that a client sees of a response, except the date."""
    return answer.status, answer.body, tuple((n, "" if n == "date" else value) for n, value in answer.headers)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_every_refusal_for_lack_of_a_valid_key_is_the_same(server: Server, ann: str, tmp_path: Path) -> None:
    revoked = server.key("rita")
    assert server.get("/v1/budget", revoked).status == 200
    server.keyring.revoke("rita")
    foreign = Keyring(tmp_path / "other.keys").add("ann")[1]
    id, secret = ann.split("_")[1:]
    other = "0" if secret[-1] != "0" else "1"
    values = {
        "none": None,
        "empty": "",
        "the word alone": "Bearer",
        "no key": "Bearer ",
        "wrong secret": f"Bearer cvk_{id}_{secret[:-1]}{other}",
        "empty secret": f"Bearer cvk_{id}_",
        "only the public part": f"Bearer cvk_{id}",
        "another's secret": f"Bearer cvk_{id}_{foreign.split('_')[2]}",
        "unknown": f"Bearer {FOREIGN}",
        "foreign": f"Bearer {foreign}",
        "revoked": f"Bearer {revoked}",
        "longer": f"Bearer {ann}0",
        "shorter": f"Bearer {ann[:-1]}",
        "capitals": f"Bearer {ann.upper()}",
        "two keys": f"Bearer {ann} {ann}",
        "comma": f"Bearer {ann},{ann}",
        "without the word": ann,
        "another word": f"Token {ann}",
        "basic": "Basic " + base64.b64encode(f"ann:{ann}".encode()).decode(),
        "not ASCII": f"Bearer {ann[:-1]}\xb2",
        "long": "Bearer " + "x" * 20_000,
        "injection": "Bearer cvk_' OR '1'='1_" + "0" * 64,
        "null": "Bearer null",
    }
    seen: dict[Any, list[str]] = {}
    for method, path in operations(server):
        client = Client(server)
        for name, value in values.items():
            headers = {} if value is None else {"Authorization": value}
            bodies: list[object] = [None] if method == "GET" else [{"sql": ALL}, b"not JSON", b"x" * 300_000]
            for body in bodies:
                answer = client.ask(method, path, body, headers)
                seen.setdefault(shape(answer), []).append(f"{method} {path} {name}")
                if answer.header("connection") == "close" or body == bodies[-1]:
                    client.close()
                    client = Client(server)
        client.close()
    assert len(seen) == 1, {str(key)[:300]: names[:5] for key, names in seen.items()}
    ((status, body, headers),) = seen
    assert status == 401
    assert Answer(status, list(headers), body).problem == "unauthorized"
    assert ("www-authenticate", 'Bearer realm="countveil"') in headers
    assert sum(map(len, seen.values())) > 200


def test_the_word_bearer_is_accepted_in_any_case(server: Server, ann: str) -> None:
    """The counterpart of the refusals above: the same requests with a valid key are accepted."""
    for value in (f"Bearer {ann}", f"bearer {ann}", f"BEARER  {ann} "):
        assert server.ask("GET", "/v1/budget", headers={"Authorization": value}).status == 200


def test_every_route_needs_a_key_except_a_fixed_list(server: Server) -> None:
    """The list is fixed here, so that every new route needs a decision."""
    needed = {
        "/v1/datasets",
        "/v1/dry-run",
        "/v1/plan",
        "/v1/count",
        "/v1/budget",
        "/v1/asked",
        "/v1/receipts/" + "0" * 24,
        "/v1/publications",
        "/v1/publications/yearbook/1",
        "/v1/publications/yearbook/1/report.html",
        "/v1/verify",
        "/metrics",
    }
    assert {path for _, path in operations(server)} == needed
    assert {path for _, path in operations(server, open_too=True)} - needed == {"/v1/design", "/v1/compare"}
    assert server.get("/healthz").status == server.get("/openapi.json").status == 200


def test_a_request_without_a_key_is_refused_before_its_body_is_read(server: Server) -> None:
    """The refusal is sent although the body never arrives."""
    head = f"POST /v1/count HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((server.host, server.port), WAIT) as connection:
        connection.sendall(f"{head}Content-Length: 200000\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401 ")


def test_a_wrong_key_is_refused_even_where_no_key_is_needed(server: Server, ann: str) -> None:
    wanted = {"epsilon": "1", "eta": "0.5", "D": 3}
    assert server.ask("POST", "/v1/design", wanted).status == 200
    assert server.ask("POST", "/v1/design", wanted, key=ann).status == 200
    assert server.ask("POST", "/v1/design", wanted, key=FOREIGN).problem == "unauthorized"


def test_designs_can_be_restricted_to_requests_with_a_key(tmp_path: Path) -> None:
    with serving(place(tmp_path, service=UNLIMITED + "open_design = false\n")) as closed:
        key = closed.key("ann")
        assert {"/v1/design", "/v1/compare"} <= {path for _, path in operations(closed)}
        for path in ("/v1/design", "/v1/compare"):
            refused = closed.ask("POST", path, {"epsilon": "1", "eta": "0.5", "D": 3})
            assert shape(refused) == shape(closed.ask("GET", "/v1/budget", key=FOREIGN))
            assert refused.status == 401
        assert closed.ask("POST", "/v1/design", {"epsilon": "1", "eta": "0.5", "D": 3}, key=key).status == 200


@pytest.mark.parametrize("encoded", ["", "c", "cvk_0123456789abcdef"])
@pytest.mark.parametrize(
    "path", ["/v1/receipts/{}", "/{}", "/v1/budget?key={}", "/v1/budget?x=1&access_token={}", "/?{}=1", "/healthz?{}"]
)
def test_a_key_in_an_address_is_refused_even_if_another_is_in_the_header(
    server: Server, ann: str, boss: str, path: str, encoded: str
) -> None:
    for key in (ann, FOREIGN, ann.upper()):
        address = path.format("".join(f"%{ord(c):02X}" if c in encoded else c for c in key))
        shapes = {shape(server.get(address, header)) for header in (None, boss)}
        assert len(shapes) == 1
        answer = server.get(address, boss)
        assert (answer.status, answer.problem) == (400, "bad-request")
        assert b"revoke the key" in answer.body
        assert key.split("_")[2].lower().encode() not in answer.body.lower()


def test_analysts_are_refused_on_routes_for_curators(server: Server, ann: str, boss: str) -> None:
    shapes = {shape(server.get(path, ann)) for path in ("/v1/verify", "/metrics")}
    assert len(shapes) == 1
    refused = server.get("/v1/verify", ann)
    assert (refused.status, refused.problem) == (403, "forbidden")
    assert server.get("/v1/verify", boss).json()["holds"] is True
    assert server.get("/metrics", boss).status == 200


def test_a_key_is_refused_as_soon_as_it_is_revoked(server: Server) -> None:
    key = server.key("lou")
    clients = [Client(server, key) for _ in range(8)]
    assert {client.ask("GET", "/v1/budget").status for client in clients} == {200}
    assert charged(server.config) == 0 or server.count(ALL, key).status == 200
    done = subprocess.run(
        [sys.executable, "-m", "countveil", "keys", "revoke", "lou", "-c", str(server.config)],
        env=clean(),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"the key of lou is refused from now on\n"
    assert {client.ask("GET", "/v1/budget").status for client in clients} == {401}
    assert server.count(ALL, key).problem == "unauthorized"
    again = server.key("lou")
    assert again != key
    assert (server.get("/v1/budget", key).status, server.get("/v1/budget", again).status) == (401, 200)
    for client in clients:
        client.close()


def test_a_damaged_file_of_keys_lets_nobody_in(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        key, file = server.key("ann"), tmp_path / "countveil.keys"
        good = file.read_bytes()
        assert server.get("/v1/budget", key).status == 200
        file.write_bytes(good[:-20])
        refused = {shape(server.get("/v1/budget", k)) for k in (key, FOREIGN, None)}
        assert len(refused) == 1
        assert server.get("/v1/budget", key).problem == "not-ready"
        assert {line["problem"] for line in server.lines() if line["status"] == 503} == {"not-ready: service.keys"}
        assert not [line for line in server.lines() if line["status"] != 503 and "problem" in line]
        file.unlink()
        assert server.get("/v1/budget", key).problem == "unauthorized"
        file.write_bytes(good)
        assert server.get("/v1/budget", key).status == 200


# -- keys do not leak --------------------------------------------------------------------------------------------------


def test_keys_are_in_no_log_file_command_line_or_environment(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        analyst, curator = server.key("ann"), server.key("boss", "curator")
        secrets = [key.split("_")[2].encode() for key in (analyst, curator, FOREIGN)]
        assert server.count(BY_REGION, analyst, "once").status == 200
        assert server.ask("POST", "/v1/design", {"epsilon": "1", "eta": "0.5", "D": 3}, key=analyst).status == 200
        for path in ("/v1/budget", f"/v1/receipts/{analyst}", f"/{analyst}?{analyst}", "/metrics", "/v1/%ff"):
            for key in (analyst, curator, FOREIGN, f"{analyst}x"):
                server.get(path, key)
                server.ask("POST", path, {analyst: analyst}, key=key, headers={"Idempotency-Key": analyst})
        raw(server, f"GET /v1/budget HTTP/1.1\r\nAuthorization: Bearer {analyst}\r\nbroken {analyst}\r\n\r\n".encode())
        raw(server, f"{analyst}\r\n\r\n".encode())
        family = server.family()
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family]
        assert sum(b"spawn_main" in command for command in commands) >= 2, "both workers are checked"
        assert any(b"countveil.service.design_worker" in command for command in commands), "and a helper"
        for pid, command in zip(family, commands, strict=True):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"PATH=" in environment
            assert not any(secret in command + environment for secret in secrets)
            assert b"cvk_" not in command + environment
        log = server.log.encode()
        assert b'"who": "ann"' in log
        assert b'"who": "boss"' in log
    log = server.log.encode()
    assert b"cvk_" not in log
    assert not any(secret in log for secret in secrets)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {tmp_path / "countveil.keys", tmp_path / "countveil.ledger"} <= set(files)
    for file, content in files.items():
        assert not any(secret in content for secret in secrets), file.name
    assert b"ann" in files[tmp_path / "countveil.keys"]


# -- limits of answers -------------------------------------------------------------------------------------------------


def ages(count: int, test: str = ">=") -> list[str]:
    """Different questions."""
    return [f"SELECT count(*) FROM people WHERE age {test} {10 * i + 10}" for i in range(count)]


def left(server: Server, key: str) -> int:
    return int(server.get("/v1/budget", key).json()["pools"][0]["answers_left"])


def test_a_key_limited_to_3_answers_pays_for_exactly_3(server: Server) -> None:
    capped, other = server.key("carl", answers=3), server.key("dora")
    before, of_all = charged(server.config), left(server, other)
    seen, rows = [left(server, capped)], []
    for sql in ages(3):
        answer = server.count(sql, capped)
        assert answer.status == 200
        rows.append(answer.json()["rows"])
        seen.append(left(server, capped))
    assert seen == [3, 2, 1, 0]
    fourth = "SELECT region, count(*) FROM people WHERE age < 50 GROUP BY region"
    refused = server.count(fourth, capped)
    assert (refused.status, refused.problem) == (402, "budget-exhausted")
    assert "all 3 answers" in refused.json()["detail"]
    assert "countveil budget" not in refused.json()["detail"], "an analyst cannot open more"
    assert left(server, other) == of_all - 3
    assert charged(server.config) == before + 3
    assert [server.count(sql, capped).json()["rows"] for sql in ages(3)] == rows, "what was asked before stays free"
    assert server.count(fourth, other).json()["replayed"] is False
    assert server.count(fourth, capped).json()["replayed"] is True, "and so is what others asked"

    server.keyring.revoke("carl")
    renewed = server.key("carl", answers=4)
    assert left(server, renewed) == 1, "what was paid for under a name stays paid"
    assert [server.count(sql, renewed).status for sql in ages(5)[3:]] == [200, 402]
    assert charged(server.config) == before + 5


def test_the_limit_of_a_key_is_exact_under_concurrent_requests(server: Server) -> None:
    key, before = server.key("fred", answers=3), charged(server.config)
    with ThreadPoolExecutor(11) as pool:
        statuses = [answer.status for answer in pool.map(lambda sql: server.count(sql, key), ages(11, "="))]
    assert (statuses.count(200), statuses.count(402)) == (3, 8)
    assert charged(server.config) == before + 3


def test_shares_limit_each_key(tmp_path: Path) -> None:
    shares = SOME + "[dataset.people.budget.shares]\nann = 2\nboss = 1\n"
    with serving(place(tmp_path, budget=shares)) as server:
        ann, bob, boss = server.key("ann"), server.key("bob"), server.key("boss", "curator")
        assert [server.count(sql, ann).status for sql in ages(3)] == [200, 200, 402]
        refused = server.count(BY_REGION, bob)
        assert refused.status == 402
        assert "no share" in refused.json()["detail"]
        assert "bob" not in refused.json()["detail"]
        assert server.count(ages(1)[0], bob).status == 200, "a repeat costs nobody anything"
        (mine,) = server.get("/v1/budget", ann).json()["pools"]
        assert (mine["answers_left"], mine["shares"]) == (0, None)
        (everyone,) = server.get("/v1/budget", boss).json()["pools"]
        assert everyone["shares"] == {
            "ann": {"answers": 2, "left": 0, "grades": {"standard": {"answers": 2, "left": 0}}},
            "boss": {"answers": 1, "left": 1, "grades": {"standard": {"answers": 1, "left": 1}}},
        }
        assert charged(server.config) == 2


def test_receipts_of_others_are_not_found(server: Server, ann: str, boss: str) -> None:
    eve = server.key("eve")
    answer = server.count("SELECT count(*) FROM people WHERE region = 'East'", ann).json()
    path = f"/v1/receipts/{answer['receipt']['id']}"
    mine = server.get(path, ann)
    assert mine.status == 200
    assert mine.json()["receipt"]["id"] == answer["receipt"]["id"]
    assert mine.json()["analyst"] == "ann"
    assert server.get(path, boss).body == mine.body
    refused = server.get(path, eve)
    assert (refused.status, refused.problem) == (404, "not-found")
    assert shape(refused) == shape(server.get("/v1/receipts/" + "0" * 24, eve))
    asked = [each["id"] for each in server.get("/v1/asked", eve).json()["asked"]]
    assert answer["receipt"]["id"] not in asked
    assert answer["receipt"]["id"] in [each["id"] for each in server.get("/v1/asked", boss).json()["asked"]]


# -- rate limits -------------------------------------------------------------------------------------------------------


def test_each_key_and_each_address_has_its_own_rate_limit(tmp_path: Path) -> None:
    """The rate is one a minute. Ten seconds' worth is less than one request, but one is always allowed."""
    with serving(place(tmp_path, service="[service]\nrate = 1\n")) as server:
        ann, bob, eve = server.key("ann"), server.key("bob"), server.key("eve")
        assert server.count(BY_REGION, ann).status == 200
        refused = server.get("/v1/budget", ann)
        assert (refused.status, refused.problem) == (429, "too-many-requests")
        assert 1 <= int(refused.header("retry-after") or 0) <= 60
        assert server.count(ALL, ann).status == 429
        assert charged(server.config) == 1
        assert server.get("/v1/budget", bob).status == 200, "each key has its own rate"
        assert server.ask("POST", "/v1/count", b"not JSON", key=eve).status == 400
        assert server.get("/v1/budget", eve).status == 429, "invalid requests count too"
        assert server.ask("POST", "/v1/design", {}).status == 422
        assert server.ask("POST", "/v1/design", {}).status == 429, "a client without a key has the limit of its address"
        assert {server.get("/v1/budget", FOREIGN).status for _ in range(20)} == {401}
        assert server.get("/healthz").status == 200


def test_a_rate_limit_allows_exactly_its_rate() -> None:
    now = 0.0
    rates = Rates(60, lambda: now)
    assert [rates.take("a") for _ in range(11)] == [0.0] * 10 + [1.0]
    now = 0.5
    assert rates.take("a") == 0.5
    assert rates.take("b") == 0.0
    now = 1.0
    assert [rates.take("a") for _ in range(2)] == [0.0, 1.0]
    now = 1000.0
    assert [rates.take("a") for _ in range(11)] == [0.0] * 10 + [1.0], "no more than ten seconds' worth is saved up"


# -- limits of requests ------------------------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    body = json.dumps({"sql": ALL}).encode()
    return body + b" " * (size - len(body))


def test_a_body_has_at_most_256_kib(server: Server, ann: str) -> None:
    assert server.ask("POST", "/v1/dry-run", padded(256 * 1024), key=ann).status == 200
    refused = server.ask("POST", "/v1/dry-run", padded(256 * 1024 + 1), key=ann)
    assert (refused.status, refused.problem) == (413, "too-large")
    head = (
        f"POST /v1/dry-run HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {ann}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    ).encode()
    body = padded(256 * 1024)
    chunks = [b"%x\r\n%s\r\n" % (len(body[i : i + 9999]), body[i : i + 9999]) for i in range(0, len(body), 9999)]
    assert raw(server, head, *chunks, b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert raw(server, head, *chunks, b"1\r\n \r\n0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_body_is_nested_at_most_32_deep(server: Server, ann: str) -> None:
    refused_as_deep = {}
    for depth in (31, 32):  # within the object
        body = b'{"by": ' + b"[" * depth + b"]" * depth + b"}"
        answer = server.ask("POST", "/v1/dry-run", body, key=ann)
        assert (answer.status, answer.problem) == (422, "bad-parameter")
        refused_as_deep[depth] = "more than 32 deep" in answer.json()["detail"]
    assert refused_as_deep == {31: False, 32: True}
    brackets = {"sql": "SELECT count(*) FROM people WHERE region = '" + '[{\\"' * 50 + "'"}
    assert server.ask("POST", "/v1/dry-run", brackets, key=ann).problem == "query-not-allowed", (
        "brackets in strings do not count"
    )


def test_max_cells_of_the_service_limits_every_question(tmp_path: Path) -> None:
    with serving(place(tmp_path, service=UNLIMITED + "max_cells = 12\n")) as server:
        key = server.key("ann")
        assert server.get("/v1/datasets", key).json()["datasets"][0]["max_cells"] == 12
        assert len(server.count("SELECT age, count(*) FROM people GROUP BY age", key).json()["rows"]) == 12
        sql = "SELECT region, age, count(*) FROM people GROUP BY region, age"
        for path in ("/v1/dry-run", "/v1/count"):
            refused = server.ask("POST", path, {"sql": sql}, key=key)
            assert (refused.status, refused.problem) == (422, "query-not-allowed")
            assert "48" in refused.json()["detail"]
        assert charged(server.config) == 1


def test_an_answer_on_record_above_max_cells_of_the_service_keeps_its_receipt_download_and_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place(tmp_path, service=UNLIMITED + "max_cells = 12\n")
    sql = "SELECT region, age, count(*) FROM people GROUP BY region, age"
    count = runner(monkeypatch, capsys, "count")
    answered = json.loads(count(sql, "--config", str(config), "--json").out)
    assert len(answered["rows"]) == 48
    id = answered["receipt"]["id"]
    with serving(config) as server:
        boss, ann = server.key("boss", "curator"), server.key("ann")
        receipt = server.get(f"/v1/receipts/{id}", boss).json()["receipt"]
        assert receipt["truth"] == answered["receipt"]["truth"]
        form = urlencode({"key": boss, "to": "/ask"}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
        cookie = (server.ask("POST", "/login", form, headers=headers).header("set-cookie") or "").partition(";")[0]
        download = server.ask("GET", f"/ask/{id}.json", headers={"Cookie": cookie})
        assert (download.status, download.json()["rows"]) == (200, answered["rows"])
        assert server.ask("POST", "/v1/dry-run", {"sql": sql}, key=ann).json()["cost"] == 0
        for key in ("once", None):
            headers = {} if key is None else {"Idempotency-Key": key}
            replay = server.ask("POST", "/v1/count", {"sql": sql}, key=ann, headers=headers).json()
            assert (replay["replayed"], replay["rows"]) == (True, answered["rows"])
        other = sql.replace("GROUP BY", "WHERE age >= 20 GROUP BY")
        refused = server.ask("POST", "/v1/count", {"sql": other}, key=ann)
        assert (refused.status, refused.problem) == (422, "query-not-allowed")
        assert "a table of 48 cells; at most 12 are allowed at this service" in refused.json()["detail"]
        assert charged(config) == 1


def test_a_body_of_another_type_than_json_is_refused(server: Server, ann: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "multipart/form-data"):
        refused = server.ask("POST", "/v1/dry-run", {"sql": ALL}, key=ann, headers={"Content-Type": kind})
        assert (refused.status, refused.problem) == (415, "unsupported-media-type")
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert server.ask("POST", "/v1/dry-run", {"sql": ALL}, key=ann, headers={"Content-Type": kind}).status == 200


# -- headers, other sites, other hosts ---------------------------------------------------------------------------------


def test_every_response_has_the_security_headers(server: Server, ann: str, boss: str) -> None:
    own = {"Host": f"{server.host}:{server.port}"}
    cases = [
        (200, "GET", "/healthz", None, None, own),
        (200, "GET", "/openapi.json", None, None, own),
        (200, "GET", "/v1/budget", None, ann, own),
        (200, "POST", "/v1/dry-run", {"sql": ALL}, ann, own),
        (200, "GET", "/metrics", None, boss, own),
        (400, "GET", f"/{ann}", None, ann, own),
        (400, "POST", "/v1/count", b"{", ann, own),
        (400, "GET", "/" + "x" * 9000, None, ann, own),
        (401, "GET", "/v1/budget", None, None, own),
        (403, "GET", "/metrics", None, ann, own),
        (404, "GET", "/nowhere", None, ann, own),
        (404, "GET", "/v1/budget/", None, ann, own),
        (405, "DELETE", "/v1/budget", None, ann, own),
        (405, "OPTIONS", "/v1/count", None, ann, own),
        (413, "POST", "/v1/count", b"x" * 300_000, ann, own),
        (415, "POST", "/v1/count", b"{}", ann, {**own, "Content-Type": "text/plain"}),
        (421, "GET", "/healthz", None, ann, {"Host": "evil.example"}),
        (422, "POST", "/v1/count", {"sql": "DROP TABLE people"}, ann, own),
        (422, "GET", "/v1/receipts/x", None, ann, own),
    ]
    for status, method, path, body, key, headers in cases:
        answer = server.ask(method, path, body, key=key, headers=headers)
        assert answer.status == status, (path, answer)
        sent = dict(answer.headers)
        assert {name: sent.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS, path
        assert "server" not in sent
        assert "strict-transport-security" not in sent, "this is not TLS"
        assert not [name for name in sent if name.startswith("access-control")]
        assert len(answer.names) == len(set(answer.names))
        if status >= 400:
            assert answer.problem


def test_no_response_allows_cross_origin_requests(server: Server, ann: str) -> None:
    """Without CORS headers a browser gives the response to no page of another site, and sends no key for one."""
    for method, path in [("GET", "/v1/budget"), ("GET", "/healthz"), ("OPTIONS", "/v1/count"), ("POST", "/v1/count")]:
        answer = server.ask(
            method,
            path,
            {"sql": BY_REGION} if method == "POST" else None,
            key=ann,
            headers={
                "Origin": "https://evil.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization",
            },
        )
        assert answer.status == (405 if method == "OPTIONS" else 200)
        assert not [name for name in answer.names if name.startswith("access-control")]


def test_requests_for_other_host_names_are_refused(server: Server, ann: str) -> None:
    """DNS rebinding: a page of another site whose name resolves to this machine gets nothing."""
    port = server.port
    for host in (f"127.0.0.1:{port}", "localhost", f"LOCALHOST:{port}", f"[::1]:{port}", "[::1]"):
        assert server.ask("GET", "/v1/budget", key=ann, headers={"Host": host}).status == 200
    others = [
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost:1:2",
        "localhost@evil",
        "::1",
    ]
    shapes = {shape(server.ask("GET", "/v1/budget", key=ann, headers={"Host": host})) for host in others}
    shapes |= {shape(server.ask("GET", "/nowhere", headers={"Host": "x"}))}
    assert len(shapes) == 1
    refused = server.ask("GET", "/v1/budget", key=ann, headers={"Host": others[0]})
    assert (refused.status, refused.problem) == (421, "misdirected")
    without = f"GET /v1/budget HTTP/1.0\r\nAuthorization: Bearer {ann}\r\n\r\n".encode()
    assert raw(server, without).split(b"\r\n")[0].endswith(b" 421 Misdirected Request")


def test_the_option_name_adds_a_host_name(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--name", "counts.example.org", "--behind-proxy") as server:
        statuses = [
            server.ask("GET", "/healthz", headers={"Host": host}).status
            for host in ("counts.example.org", "Counts.Example.org:443", "localhost", "example.org")
        ]
        assert statuses == [200, 200, 200, 421]
        assert server.ask("POST", "/v1/design", {}).status == 401, "behind a proxy, clients may be on other machines"


# -- options of the server ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "127.0.0.1.example.org", "2130706433"]
)
def test_a_public_address_needs_tls_or_a_proxy(host: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="keys would be sent unencrypted"):
        Place(host).check()
    Place(host, behind_proxy=True).check()
    chain, private = certificate(tmp_path)
    Place(host, certificate=str(chain), key=str(private)).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_loopback_address_needs_neither_tls_nor_a_proxy(host: str) -> None:
    Place(host).check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, and keys would be sent unencrypted"),
        (["--host", "::"], ":: can be reached from other machines"),
        (["--tls-certificate", "chain.pem"], "TLS needs both"),
        (["--tls-key", "key.pem"], "TLS needs both"),
        (["--tls-certificate", "gone.pem", "--tls-key", "gone.pem"], "tls-certificate: got gone.pem"),
        (["--workers", "0"], "--workers"),
        (["--port", "70000"], "--port"),
        (["--host", "192.0.2.1", "--behind-proxy"], "192.0.2.1 port 0 cannot be used"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place(tmp_path)
    port = [] if "--port" in options else ["--port", "0"]
    code, out, err = runner(monkeypatch, capsys, "serve")("-c", config, *port, *options)
    assert (code, out) == (2, "")
    assert err.startswith("countveil: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_damaged_file_of_keys_is_reported_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place(tmp_path)
    (tmp_path / "countveil.keys").write_text("{")
    code, out, err = runner(monkeypatch, capsys, "serve")("-c", config, "--port", "0")
    assert (code, out) == (2, "")
    assert err == "countveil: service.keys: countveil.keys is not a file of keys, or it is damaged\n"


def test_a_port_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = runner(monkeypatch, capsys, "serve")("-c", config, "--port", port)
    assert code == 2
    assert err.startswith(f"countveil: 127.0.0.1 port {port} cannot be used")


def test_the_listening_socket_is_tcp_and_accepts_connections() -> None:
    """A response is two writes; asyncio sets TCP_NODELAY, which avoids a delay of the second, only with IPPROTO_TCP."""
    with _listen(Place(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with socket.create_connection(listener.getsockname(), WAIT) as client:
            assert client.getpeername() == listener.getsockname(), "the socket listens before it is announced"


def test_over_tls_responses_have_strict_transport_security(tmp_path: Path) -> None:
    chain, private = certificate(tmp_path)
    with serving(place(tmp_path), "--tls-certificate", str(chain), "--tls-key", str(private)) as server:
        server.trust = chain
        key = server.key("ann")
        assert server.url.startswith("https://")
        answer = server.count(BY_REGION, key)
        assert answer.status == 200
        assert len(answer.json()["rows"]) == 4
        for response in (answer, server.get("/v1/budget")):
            assert response.header("strict-transport-security") == "max-age=31536000"
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(server.url, context=ssl.create_default_context(), timeout=WAIT)
        with pytest.raises(OSError, match=r"reset|Remote end closed"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=WAIT)
        assert server.get("/healthz").status == 200


# -- the file of keys --------------------------------------------------------------------------------------------------


def ring(folder: Path) -> Keyring:
    return Keyring(folder / "x.keys")


def all_keys(folder: Path) -> list[Key]:
    return ring(folder).keys()


def test_a_key_is_recognised_and_its_file_holds_only_its_hash(tmp_path: Path) -> None:
    import hashlib

    key, text = ring(tmp_path).add("ann", answers=7)
    secret = text.split("_")[2]
    assert ring(tmp_path).recognise(text) == key
    assert (key.name, key.role, key.answers, key.revoked) == ("ann", "analyst", 7, None)
    content = (tmp_path / "x.keys").read_text()
    assert secret not in content
    assert hashlib.sha256(secret.encode()).hexdigest() in content
    assert len(bytes.fromhex(secret)) == 32
    other = ring(tmp_path).add("bob")[1]
    assert other.split("_")[2] != secret
    for wrong in ("", text[:-1], text + "0", text.upper(), " " + text, f"{text[:15]}{other[15:]}", "cvk_" + "0" * 75):
        assert ring(tmp_path).recognise(wrong) is None


def test_only_its_owner_can_read_the_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "x.keys"
    before = os.umask(0)
    try:
        left = tmp_path / f".x.keys.{os.getpid()}.part"
        left.write_text("left by a process that died")
        left.chmod(0o666)
        ring(tmp_path).add("ann")
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o644)
        ring(tmp_path).revoke("ann")
        assert file.stat().st_mode & 0o777 == 0o600
        assert not left.exists()
    finally:
        os.umask(before)


def test_a_name_can_have_only_one_valid_key(tmp_path: Path) -> None:
    first = ring(tmp_path).add("ann")[1]
    with pytest.raises(RequestError, match="ann has a key; revoke it first"):
        ring(tmp_path).add("ann")
    revoked = ring(tmp_path).revoke("ann")
    assert revoked.revoked is not None
    assert ring(tmp_path).recognise(first) is None
    with pytest.raises(RequestError, match="ann has no key"):
        ring(tmp_path).revoke("ann")
    second = ring(tmp_path).add("ann")[1]
    assert [key.revoked is None for key in all_keys(tmp_path)] == [False, True]
    assert ring(tmp_path).recognise(second) is not None


def test_a_keyring_sees_changes_made_by_other_processes(tmp_path: Path) -> None:
    here, there = ring(tmp_path), ring(tmp_path)
    assert here.keys() == []
    text = there.add("ann")[1]
    assert here.recognise(text) is not None
    there.revoke("ann")
    assert here.recognise(text) is None
    (tmp_path / "x.keys").unlink()
    assert here.keys() == []


ADD = """
import sys
from pathlib import Path
from countveil.errors import RequestError
from countveil.service.api_keys import Keyring

ring = Keyring(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
won = 0
for i in range(20):
    ring.add(f"{sys.argv[2]}{i}")
    try:
        ring.add(f"same{i}")
        won += 1
    except RequestError:
        pass
print(won)
"""


def test_two_processes_can_add_keys_at_once(tmp_path: Path) -> None:
    """All keys of both are in the file, and a name that both wanted was given to one of them."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, str(tmp_path / "x.keys"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate()[0]) for process in started]
    assert sum(won) == 20
    names = sorted(key.name for key in all_keys(tmp_path))
    assert names == sorted(f"{who}{i}" for who in ("a", "b", "same") for i in range(20))
    assert not list(tmp_path.glob("*.part"))


def entry(**changes: object) -> dict[str, object]:
    good = {"name": "ann", "role": "analyst", "answers": None, "id": "0" * 10, "sha256": "0" * 64}
    return {**good, "created": "2026-01-01T00:00:00+00:00", "revoked": None, **changes}


def written(entries: object, **changes: object) -> bytes:
    return json.dumps({"format": "countveil-keys", "version": 1, "keys": entries, **changes}).encode()


def test_a_valid_file_of_keys_is_read(tmp_path: Path) -> None:
    """The counterpart of the damaged files below."""
    (tmp_path / "x.keys").write_bytes(written([entry(), entry(id="1" * 10, revoked="2026-01-01T00:00:00+00:00")]))
    assert [key.name for key in all_keys(tmp_path)] == ["ann", "ann"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"countveil-keys"',
        b"\xff\xfe",
        b"\x00" * 100,
        b"[" * 100_000,
        written([], format="other"),
        written([], version=2),
        written([], version="1"),
        written(None),
        written({"a": 1}),
        written(["ann"]),
        written([{}]),
        written([entry(more=1)]),
        written([entry(name="")]),
        written([entry(name=7)]),
        written([entry(name="a b")]),
        written([entry(name="a\n")]),
        written([entry(role="root")]),
        written([entry(role=None)]),
        written([entry(answers=0)]),
        written([entry(answers=True)]),
        written([entry(answers="3")]),
        written([entry(answers=1.5)]),
        written([entry(id=[])]),
        written([entry(id=7)]),
        written([entry(id="")]),
        written([entry(sha256="")]),
        written([entry(sha256="0" * 63)]),
        written([entry(sha256="0" * 64 + "\n")]),
        written([entry(sha256=None)]),
        written([entry(created=7)]),
        written([entry(revoked=True)]),
        written([entry(revoked="")]),
        written([entry(), entry(name="bob")]),
    ],
)
def test_a_damaged_file_of_keys_is_refused_and_not_overwritten(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.keys").write_bytes(content)
    for use in (
        lambda: ring(tmp_path).keys(),
        lambda: ring(tmp_path).recognise(FOREIGN),
        lambda: ring(tmp_path).add("eve"),
        lambda: ring(tmp_path).revoke("ann"),
    ):
        with pytest.raises(ConfigError, match=r"^service\.keys: x\.keys is not a file of keys, or it is damaged$"):
            use()
    assert (tmp_path / "x.keys").read_bytes() == content, "the file is not overwritten"


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.keys").mkdir()
    with pytest.raises(ConfigError, match=r"x\.keys cannot be read"):
        ring(tmp_path).keys()
    with pytest.raises(ConfigError, match=r"y\.keys cannot be written"):
        Keyring(tmp_path / "nowhere" / "y.keys").add("ann")


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        (("",), "name"),
        (("a b",), "name"),
        (("-ann",), "name"),
        (("x" * 65,), "name"),
        (("ann\n",), "name"),
        (("ånn",), "name"),
        ((None,), "name"),
        (("curator",), "name"),
        (("ann", "root"), "role"),
        (("ann", ""), "role"),
        (("ann", "analyst", 0), "answers"),
        (("ann", "analyst", -1), "answers"),
        (("ann", "analyst", "2.5"), "answers"),
        (("ann", "analyst", "ten"), "answers"),
        (("ann", "analyst", True), "answers"),
        (("ann", "analyst", 10**6 + 1), "answers"),
        (("ann", "analyst", float("nan")), "answers"),
    ],
)
def test_invalid_names_roles_and_answers_are_refused(arguments: tuple[Any, ...], argument: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError) as refused:
        ring(tmp_path).add(*arguments)
    assert refused.value.argument == argument
    assert not (tmp_path / "x.keys").exists()


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in [name for name in os.environ if name.startswith("COUNTVEIL")]:
        monkeypatch.delenv(name)
    place(tmp_path)
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capsys, "keys")


def test_the_command_keys_adds_and_lists_and_revokes_keys(keys: Run, tmp_path: Path) -> None:
    assert keys("list").out == "there is no key yet; add one with: countveil keys add NAME\n"
    added = keys("add", "ann", "--answers", 3)
    assert added.code == 0
    text = added.out.rstrip("\n")
    assert added.out.count("\n") == 1
    recognised = Keyring(tmp_path / "countveil.keys").recognise(text)
    assert recognised is not None
    assert (recognised.name, recognised.role, recognised.answers) == ("ann", "analyst", 3)
    assert "cvk_" not in added.err
    assert "not shown again" in added.err
    made = json.loads(keys("add", "boss", "--role", "curator", "--json").out)
    assert {name: made[name] for name in ("schema_version", "name", "role", "answers")} == {
        "schema_version": 1,
        "name": "boss",
        "role": "curator",
        "answers": None,
    }
    assert keys("revoke", "ann").out == "the key of ann is refused from now on\n"
    listed = keys("list")
    assert [line.split()[:4] for line in listed.out.splitlines()] == [
        ["ann", "analyst", "answers", "3"],
        ["boss", "curator", "answers", "all"],
    ]
    assert ["revoked" in line for line in listed.out.splitlines()] == [True, False]
    as_json = keys("list", "--json").out
    entries = json.loads(as_json)["keys"]
    assert [set(each) for each in entries] == [{"name", "role", "answers", "id", "created", "revoked"}] * 2
    for key in (text, made["key"]):
        assert key.split("_")[2] not in listed.out + as_json
    for stored in json.loads((tmp_path / "countveil.keys").read_text())["keys"]:
        assert stored["sha256"] not in listed.out + as_json
    revoked = json.loads(keys("revoke", "boss", "--json").out)
    assert (revoked["schema_version"], revoked["name"]) == (1, "boss")
    assert Keyring(tmp_path / "countveil.keys").recognise(made["key"]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add",), "Missing argument 'NAME'"),
        (("add", "a b"), "name: got a b, allowed is"),
        (("add", ""), "name: got an empty text"),
        (("add", "curator"), "the command line asks as curator"),
        (("add", "ann", "--answers", "0"), "answers: got 0"),
        (("add", "ann", "--answers", "many"), "answers: got many"),
        (("add", "ann", "--answers", "1e400"), "answers: got 1e400"),
        (("add", "ann", "--role", "root"), "role: got root, allowed is analyst or curator"),
        (("add", "ann\x1b[2J"), "name: got ann�[2J"),
        (("revoke", "nobody"), "nobody has no key; see: countveil keys list"),
        (("revoke", "\x1b[2J"), "�[2J has no key"),
        (("add", "ann", "-c", "nowhere.toml"), "nowhere.toml: is missing or cannot be read"),
        (("list", "ann"), "unexpected extra argument"),
        (("remove", "ann"), "No such command 'remove'"),
    ],
)
def test_the_command_keys_refuses_bad_input_in_one_line(
    words: tuple[str, ...], message: str, keys: Run, tmp_path: Path
) -> None:
    done = keys(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("countveil: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.err
    assert not (tmp_path / "countveil.keys").exists()


def test_the_command_keys_reports_a_damaged_file(keys: Run, tmp_path: Path) -> None:
    (tmp_path / "countveil.keys").write_text('{"format": "countveil-keys", "version": 1, "keys": [{"id": []}]}')
    for words in (("list",), ("add", "ann"), ("revoke", "ann"), ("list", "--json")):
        done = keys(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err == "countveil: service.keys: countveil.keys is not a file of keys, or it is damaged\n"


def test_every_error_of_the_library_has_an_http_status() -> None:
    """The HTTP status of each class; a new class needs a decision here."""
    from countveil import errors
    from countveil.service.problem_json import to_problem

    made = {
        "BudgetError": errors.BudgetError("people", 3),
        "CertificateError": errors.CertificateError("x"),
        "ConfigError": ConfigError("secret.path", "x"),
        "ConflictError": errors.ConflictError("x"),
        "DataError": errors.DataError("secret.path"),
        "EngineError": errors.EngineError("secret.path"),
        "InfeasibleError": errors.InfeasibleError("x"),
        "LedgerError": errors.LedgerError("secret.path"),
        "MissingExtraError": errors.MissingExtraError("secret.path", "x"),
        "ParameterError": ParameterError("D", 0, "1 or more"),
        "QueryError": errors.QueryError("x", "y", 3),
        "RequestError": RequestError("x"),
        "SolverError": errors.SolverError("x"),
    }
    statuses = {name: to_problem(error).status_code for name, error in made.items()}
    assert statuses == {
        "BudgetError": 402,
        "CertificateError": 422,
        "ConfigError": 503,
        "ConflictError": 409,
        "DataError": 503,
        "EngineError": 503,
        "InfeasibleError": 422,
        "LedgerError": 503,
        "MissingExtraError": 503,
        "ParameterError": 422,
        "QueryError": 422,
        "RequestError": 422,
        "SolverError": 422,
    }
    ours = {each.__name__ for each in CountveilError.__subclasses__()} - {"AccessError", "ServiceError"}
    assert ours == set(made), "only a client raises the other two"
    for name, error in made.items():
        answer = to_problem(error)
        assert answer.kind.code == error.exit_code or name == "ConfigError"
        assert b"secret.path" not in bytes(answer.response().body), "messages for the curator are not sent to clients"
