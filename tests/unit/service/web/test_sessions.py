"""Sessions: a cookie that does not contain the key, cannot be forged, and expires."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from countveil.service.api_keys import Key, Keyring
from countveil.service.web import sessions


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "countveil.keys")


def request(ring: Keyring, cookie: str = "", secret: str = "s", **headers: str) -> Request:
    state = SimpleNamespace(keyring=ring, secret=secret, settings=SimpleNamespace(secure=False))
    given = [(b"host", b"localhost:8000"), *((n.replace("_", "-").encode(), v.encode()) for n, v in headers.items())]
    if cookie:
        given.append((b"cookie", f"{sessions.COOKIE}={cookie}".encode()))
    scope: dict[str, Any] = {"type": "http", "headers": given, "app": SimpleNamespace(state=state), "method": "POST"}
    return Request(scope)


def log_in(ring: Keyring, key: Key) -> str:
    response = Response()
    sessions.begin(request(ring), response, key)
    line = response.headers["set-cookie"]
    assert "HttpOnly" in line
    assert "SameSite=strict" in line
    return line.partition("=")[2].partition(";")[0]


def test_the_cookie_of_a_session_leads_to_its_key_and_contains_no_secret(ring: Keyring) -> None:
    key, text = ring.add("alice")
    cookie = log_in(ring, key)
    assert text.rpartition("_")[2] not in cookie
    assert key.sha256 not in cookie
    assert sessions.current_key(request(ring, cookie)) == key


def test_forged_sessions_are_refused(ring: Keyring) -> None:
    key, _ = ring.add("alice")
    other, _ = ring.add("bob")
    cookie = log_in(ring, key)
    _, until, signature = cookie.split(".")
    for wrong in (
        "",
        "x",
        "..",
        f"{other.id}.{until}.{signature}",
        f"{key.id}.{int(until) + 1}.{signature}",
        f"{key.id}.{until}.{'0' * 64}",
        f"{key.id}.{until}.",
        f"{key.id}.-1.{signature}",
        f"{key.id}.²{until}.{signature}",
    ):
        assert sessions.current_key(request(ring, wrong.encode("utf-8").decode("latin-1"))) is None
    assert sessions.current_key(request(ring, cookie, secret="another run")) is None


def test_a_session_ends_when_its_key_is_revoked_or_its_time_is_over(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = ring.add("alice")
    cookie = log_in(ring, key)
    now = time.time()
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: now + sessions.SECONDS + 2)
        assert sessions.current_key(request(ring, cookie)) is None
    assert sessions.current_key(request(ring, cookie)) == key
    ring.revoke("alice")
    assert sessions.current_key(request(ring, cookie)) is None


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"sec_fetch_site": "same-origin", "origin": "http://localhost:8000"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "same-site"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://localhost:9000"}, False),
        ({"origin": "null"}, False),
        ({"sec_fetch_site": "same-origin", "origin": "null"}, False),
    ],
)
def test_forms_of_other_sites_are_recognised(ring: Keyring, headers: dict[str, str], own: bool) -> None:
    assert sessions.is_own_page(request(ring, **headers)) is own


@pytest.mark.parametrize(
    ("to", "where"),
    [
        ("/budget", "/budget"),
        ("//evil.example", "/ask"),
        ("/\\evil.example", "/ask"),
        ("https://evil.example", "/ask"),
        ("", "/ask"),
        ("/a\r\nSet-Cookie: x", "/ask"),
    ],
)
def test_the_address_after_logging_in_is_on_this_site(to: str, where: str) -> None:
    assert sessions.local_address(to) == where
