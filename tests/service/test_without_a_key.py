"""Attacks without a key, or by an analyst beyond their rights, on sessions, log-ins and the record."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from countveil.config.configuration import load
from countveil.errors import ParameterError, RequestError
from countveil.ledger.sqlite import SqliteLedger
from countveil.service.server import Place
from tests.support.serving import ALL, BY_REGION, WAIT, Answer, Server, place, serving

DESIGN = {"epsilon": "1", "eta": "0.5", "D": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the default rate: 600 a minute, 100 at once."""
    with serving(place(tmp_path_factory.mktemp("keyless"), service=""), "--behind-proxy") as started:
        yield started


def ask(
    server: Server,
    method: str,
    path: str,
    *,
    form: dict[str, str] | None = None,
    body: object = None,
    source: str = "127.0.0.1",
    **headers: str,
) -> Answer:
    """One request from an address of this machine."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT, source_address=(source, 0))
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    content = None
    if form is not None:
        content, sent = urlencode(form), {"Content-Type": "application/x-www-form-urlencoded", **sent}
    elif body is not None:
        content, sent = json.dumps(body), {"Content-Type": "application/json", **sent}
    try:
        connection.request(method, path, content, sent)
        response = connection.getresponse()
        return Answer(
            response.status, [(name.lower(), value) for name, value in response.getheaders()], response.read()
        )
    finally:
        connection.close()


def log_in(server: Server, key: str, source: str = "127.0.0.1", **headers: str) -> str:
    """The cookie of a session."""
    answer = ask(server, "POST", "/login", form={"key": key, "to": "/budget"}, source=source, **headers)
    assert (answer.status, answer.header("location")) == (303, "/budget"), answer
    return (answer.header("set-cookie") or "").partition(";")[0]


# -- rate limits -------------------------------------------------------------------------------------------------------


def test_200_wrong_log_ins_limit_only_their_own_address(server: Server) -> None:
    key = server.key("alice")
    wrong = f"{key[:-1]}{'0' if key[-1] != '0' else '1'}"
    sent = [ask(server, "POST", "/login", form={"key": wrong}, source="127.0.0.66") for _ in range(200)]
    assert {answer.status for answer in sent} == {401, 429}
    assert int(sent[-1].header("retry-after") or 0) >= 1
    assert ask(server, "POST", "/login", form={"key": key}, source="127.0.0.66").status == 429
    cookie = log_in(server, key, "127.0.0.1")
    assert ask(server, "GET", "/budget", cookie=cookie).status == 200
    assert ask(server, "GET", "/docs", source="127.0.0.66").status == 200, "log-ins have their own limit"
    assert server.get("/v1/budget", key).status == 200


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service behind proxies that allows each client five requests at once."""
    config = place(tmp_path_factory.mktemp("slow"), service="[service]\nrate = 30\nopen_design = true\n")
    with serving(config, "--behind-proxy", "--proxy", "127.0.0.7", "--proxy", "127.0.1.0/24") as started:
        yield started


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/explore/nothing.txt"), ("GET", "/docs"), ("GET", "/ask"), ("POST", "/v1/design"), ("POST", "/logout")],
)
def test_pages_and_designs_without_a_key_are_limited_by_address(slow: Server, method: str, path: str) -> None:
    own, other = (f"2001:db8:{len(path):x}:{i}::" for i in (1, 2))

    def status(client: str, method: str = method, path: str = path) -> int:
        body = DESIGN if path == "/v1/design" else None
        form = {} if path == "/logout" else None
        return ask(slow, method, path, body=body, form=form, source="127.0.0.7", x_forwarded_for=client).status

    seen = [status(f"6.6.6.{i}, {own}{i}") for i in range(8)]
    assert 429 not in seen[:5]
    assert seen[-1] == 429, "one /64 is one client, and X-Forwarded-For of the client is not trusted"
    assert status(f"{other}1") == seen[0]
    assert status(f"{own}1", "GET", "/login") == 200, "log-ins have their own limit"
    key = slow.key(f"ann{len(path)}")
    headers = {"X-Forwarded-For": f"{own}1"}
    assert slow.ask("POST", "/v1/design", DESIGN, key=key, headers=headers).status == 200


@pytest.mark.parametrize(("source", "trusted"), [("127.0.0.8", False), ("127.0.0.7", True), ("127.0.1.9", True)])
def test_the_client_address_in_a_header_is_trusted_only_from_listed_proxies(
    slow: Server, source: str, trusted: bool
) -> None:
    clients = [f"192.0.{source.rpartition('.')[2]}.{i}" for i in range(8)]
    seen = [ask(slow, "GET", "/docs", source=source, x_forwarded_for=client).status for client in clients]
    assert (seen == [200] * 8) is trusted


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place(proxies=("127.0.0.1",)), "--proxy needs --behind-proxy: give both"),
        (Place(behind_proxy=True, proxies=("proxy.example",)), "proxy: got proxy.example, allowed is an address"),
        (Place(behind_proxy=True, proxies=("10.0.0.1/8",)), "proxy: got 10.0.0.1/8, allowed is an address"),
        (Place(behind_proxy=True, proxies=("*",)), r"proxy: got \*, allowed is an address"),
    ],
)
def test_a_setting_of_proxies_that_are_no_addresses_is_refused(place: Place, words: str) -> None:
    with pytest.raises((RequestError, ParameterError), match=words):
        place.check()


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_the_secret_that_signs_sessions_is_in_no_environment(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        assert server.ask("POST", "/v1/design", DESIGN).status == 200  # starts the helper
        id, until, signature = log_in(server, server.key("ann")).partition("=")[2].split(".")

        def signs(text: bytes) -> bool:
            made = hmac.new(text, f"{id}.{until}".encode(), hashlib.sha256).hexdigest()
            return hmac.compare_digest(made, signature)

        family = server.family()
        assert len(family) >= 4
        folders = set()
        for pid in family:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"PATH=" in environment
            assert not any(signs(text) for text in re.findall(rb"(?=([0-9a-f]{64}))", environment)), pid
            folders |= set(re.findall(rb"/[^\0\"]*countveil-serve-\w+", environment))
            if b"countveil.service.design_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                assert b"COUNTVEIL" not in environment
        (folder,) = (Path(each.decode()) for each in folders)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir() if file.suffix != ".db"} == {
            "secret": 0o600,
            "countveil.toml": 0o600,
        }
        assert signs((folder / "secret").read_bytes()), "the search would find the secret"
    assert not folder.exists()


@pytest.mark.parametrize("path", ["/login", "/ask", "/logout"])
def test_forms_without_an_origin_are_refused(server: Server, path: str) -> None:
    key = server.key(f"own{path[1:]}")
    cookie = log_in(server, key, origin=f"http://{server.host}:{server.port}")
    refused = ask(server, "POST", path, form={"key": key}, cookie=cookie, origin="null")
    assert (refused.status, refused.problem) == (403, "forbidden")


def test_only_curators_verify_the_ledger(server: Server) -> None:
    analyst, curator = log_in(server, server.key("an")), log_in(server, server.key("cu", "curator"))
    refused = ask(server, "GET", "/budget?verify", cookie=analyst)
    assert (refused.status, refused.problem) == (403, "forbidden")
    shown = ask(server, "GET", "/budget", cookie=analyst)
    assert shown.status == 200
    assert b"verify" not in shown.body
    assert b"/budget?verify" in ask(server, "GET", "/budget", cookie=curator).body
    assert b"Chain verified" in ask(server, "GET", "/budget?verify", cookie=curator).body


# -- the record --------------------------------------------------------------------------------------------------------


def entries(server: Server) -> list[str]:
    config = load(server.config, {})
    ledger = SqliteLedger(config.ledger, config.anchor, create=False)
    try:
        ledger.verify()
        return [entry.kind for entry in ledger.entries()]
    finally:
        ledger.close()


def test_replays_with_new_idempotency_keys_write_nothing(server: Server) -> None:
    ann, bob = server.key("ann"), server.key("bob")
    paid = entries(server).count("request")
    first = server.count(BY_REGION, ann, "paid")
    before = entries(server)
    assert before.count("request") == paid + 1
    dry = server.ask("POST", "/v1/dry-run", {"sql": BY_REGION}, key=bob).json()
    assert dry["cost"] == 0, "a dry run shows whether anyone asked before; the docs say so"
    for key in (ann, bob):
        for i in range(20):
            again = server.count(BY_REGION, key, f"new-{i}")
            assert (again.status, again.json()["replayed"]) == (200, True)
            assert again.json()["rows"] == first.json()["rows"]
    assert server.count(BY_REGION, ann, "paid").json()["rows"] == first.json()["rows"]
    assert entries(server) == before
    assert server.count(ALL, ann, "paid").problem == "conflict", (
        "an idempotency key that paid is refused for another question"
    )
    assert entries(server) == before
    assert server.count(ALL, ann, "new-1").status == 200, "an idempotency key that paid nothing is free"
    assert server.count(BY_REGION, ann, "new-1").problem == "conflict"


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/login", "/healthz", "/openapi.json", "/v1/budget", "/nowhere"])
def test_head_is_answered_as_get_without_a_body(server: Server, path: str) -> None:
    get, head = (ask(server, method, path) for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (get.status, b"")
    assert head.header("location") == get.header("location")
    assert head.header("content-length") == get.header("content-length")
    assert ask(server, "HEAD", "/v1/count").status == 405
    assert {"HEAD", "GET"} <= {line["method"] for line in server.lines()}


def test_one_group_column_may_be_given_without_a_list(server: Server) -> None:
    key = server.key("by")
    one, listed = (
        server.ask("POST", "/v1/dry-run", {"dataset": "people", "by": by}, key=key).json()
        for by in ("region", ["region"])
    )
    assert one == listed
    assert one["cells"] == 4
    headers = {"Idempotency-Key": "by-one"}
    body = {"dataset": "people", "where": "age > 30"}
    for by in ("region", ["region"]):
        answer = server.ask("POST", "/v1/count", {**body, "by": by}, key=key, headers=headers)
        assert (answer.status, answer.json()["columns"][0]) == (200, "region")
    schema = server.get("/openapi.json").json()["components"]["schemas"]["Ask"]["properties"]["by"]
    assert [each["type"] for each in schema["anyOf"]] == ["string", "array"]
