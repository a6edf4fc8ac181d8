"""Metrics and logs: correct across workers, parseable, and without information about the data."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.curated import charged, write_rows
from tests.support.servers import wait_until
from tests.support.serving import ALL, BY_REGION, WAIT, Client, Server, place, raw, serving

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PRIME = 7919
"""How many people live in the North: only the noisy count may be close to it."""
ROUTES = {
    "/v1/datasets",
    "/v1/dry-run",
    "/v1/plan",
    "/v1/count",
    "/v1/budget",
    "/v1/asked",
    "/v1/receipts/{id}",
    "/v1/verify",
    "/v1/design",
    "/v1/compare",
    "/healthz",
    "/metrics",
    "other",
}
METHODS = {"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "other"}
STATUSES = {200, 400, 401, 402, 403, 404, 405, 409, 413, 415, 421, 422, 429, 500, 503}


def samples(text: bytes) -> Samples:
    """Every sample of an exposition by its name and labels; refuses duplicates."""
    values: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            name = sample.name, tuple(sorted(sample.labels.items()))
            assert name not in values, name
            values[name] = sample.value
    return values


def requests(values: Samples) -> Counter[tuple[str, str, int]]:
    numbers: Counter[tuple[str, str, int]] = Counter()
    for (name, labels), value in values.items():
        if name == "countveil_requests_total":
            by_name = dict(labels)
            numbers[by_name["method"], by_name["route"], int(by_name["status"])] += int(value)
    return numbers


def answers(values: Samples, how: str) -> int:
    return int(values.get(("countveil_answers_total", (("how", how),)), 0))


@pytest.fixture(params=["1", "2"], ids=["one worker", "two workers"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "metrics"
    folder.mkdir()
    rows = [(i, "North" if i < PRIME else "South", i % 120) for i in range(PRIME + 1000)]
    write_rows(folder / "people.csv", ["person", "region", "age"], rows)
    with serving(place(folder, source="people.csv"), "--workers", str(request.param)) as started:
        yield started


def test_metrics_and_logs_agree_with_the_requests_and_reveal_nothing(server: Server) -> None:
    """Exactly the requests that were sent are counted and logged."""
    ann, boss = server.key("ann"), server.key("boss", "curator")
    sent: Counter[tuple[str, str, int]] = Counter()
    seen: list[bytes] = []

    def send(times: int, method: str, path: str, route: str, status: int, key: str | None, body: object = None) -> None:
        def one(_: int) -> None:
            answer = server.ask(method, path, body, key=key)
            assert answer.status == status, answer
            if path != "/openapi.json":
                seen.append(answer.body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(times)))
        sent[method, route, status] += times

    send(1, "POST", "/v1/count", "/v1/count", 200, ann, {"sql": BY_REGION})
    send(40, "POST", "/v1/count", "/v1/count", 200, ann, {"sql": BY_REGION})
    send(2, "POST", "/v1/count", "/v1/count", 422, ann, {"sql": "SELECT secretword FROM people"})
    send(20, "POST", "/v1/dry-run", "/v1/dry-run", 200, ann, {"sql": ALL})
    send(20, "GET", "/v1/budget", "/v1/budget", 200, ann)
    send(20, "GET", "/v1/budget", "/v1/budget", 401, None)
    send(5, "GET", "/v1/receipts/" + "0" * 24, "/v1/receipts/{id}", 404, ann)
    send(5, "GET", "/v1/verify", "/v1/verify", 403, ann)
    send(5, "GET", "/secretword", "other", 404, None)
    send(5, "GET", "/healthz?secretword", "/healthz", 200, None)
    send(1, "POST", "/v1/design", "/v1/design", 200, None, {"epsilon": "1", "eta": "0.5", "D": 3})

    def count_requests() -> Counter[tuple[str, str, int]]:
        """Requests except for metrics; a request is counted shortly after its response is sent."""
        numbers = requests(samples(server.get("/metrics", boss).body))
        return Counter({each: number for each, number in numbers.items() if each[1] != "/metrics"})

    for _ in range(10):  # to reach both workers
        wait_until(lambda: count_requests() == sent, WAIT)
    exposition = server.get("/metrics", boss)
    assert exposition.status == 200
    assert (exposition.header("content-type") or "").startswith("text/plain; version=0.0.4")
    values = samples(exposition.body)
    assert (answers(values, "charged"), answers(values, "replayed")) == (1, 40)
    assert values["countveil_answers_left", (("grade", "standard"), ("pool", "people"))] == 19
    metrics = ("requests_total", "answers_total", "answers_left")
    assert {name for name, _ in values} == {f"countveil_{name}" for name in metrics}

    names = {"route", "method", "status", "how", "pool", "grade"}
    for _, labels in values:
        assert {name for name, _ in labels} <= names
    for method, route, status in requests(values):
        assert (method in METHODS, route in ROUTES, status in STATUSES) == (True, True, True)

    rows = {row[0]: row[1] for row in json.loads(seen[0])["rows"]}
    assert abs(rows["North"] - PRIME) < 50
    secrets = [str(PRIME), str(PRIME + 1000), str(rows["North"]), "secretword", "people.csv", "North", "cvk_"]
    for text in (exposition.body.decode(), server.log):
        numbers = re.findall(r"\d+", text)
        for secret in secrets:
            assert secret not in (numbers if secret.isdigit() else text), secret

    lines = [line for line in server.lines() if line["route"] != "/metrics"]
    logged: Counter[tuple[str, str, int]] = Counter()
    for line in lines:
        assert list(line) == ["time", "method", "route", "status", "who"]
        logged[line["method"], line["route"], line["status"]] += 1
        assert line["who"] in (None, "ann", "boss", "anyone")
        assert (line["who"] is None) == (line["status"] == 401 or line["route"] in ("other", "/healthz"))
        assert (line["who"] == "anyone") == (line["route"] == "/v1/design")
        age = datetime.now(UTC) - datetime.fromisoformat(line["time"])
        assert timedelta(seconds=-5) < age < timedelta(hours=1)
    assert logged == sent


def test_malformed_http_is_logged_without_its_content(server: Server) -> None:
    before = len(server.lines())
    for request in (
        b"secretword\r\n\r\n",
        b"GET /secretword HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /secretword HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"BREW /secretword HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: secretword\r\nConnection: close\r\n\r\n",
        b"GET /%0a%7b%22secretword HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ):
        raw(server, request)
    wait_until(lambda: len(server.lines()) >= before + 6, WAIT)  # a line is written after its response
    lines = server.lines()[before:]
    for line in lines:
        assert set(line) in ({"time", "method", "route", "status", "who"}, {"time", "level", "server"})
        if "server" not in line:
            assert line["route"] in ROUTES
            assert line["method"] in METHODS
            assert line["status"] in STATUSES
    assert {"other"} <= {line.get("method") for line in lines}
    assert any("server" in line for line in lines)
    assert "secretword" not in server.log


def test_healthz_reports_ok(server: Server) -> None:
    answer = server.get("/healthz")
    assert (answer.status, answer.body) == (200, b'{"status": "ok"}')
    assert server.ask("HEAD", "/healthz").status == 200
    assert server.ask("PUT", "/healthz").status == 405


def test_healthz_fails_if_the_ledger_cannot_be_read(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        key = server.key("ann")
        assert server.get("/healthz").status == 200
        ledger = sqlite3.connect(tmp_path / "countveil.ledger", isolation_level=None)
        ledger.execute("ALTER TABLE entry RENAME TO elsewhere")
        bodies = {server.get("/healthz").body, server.get("/v1/budget", key).body, server.count(ALL, key).body}
        answer = server.get("/healthz")
        assert (answer.status, answer.problem) == (503, "ledger")
        assert bodies == {answer.body}, "the same message for everyone"
        assert not [word for word in (b"entry", b"table", str(tmp_path).encode()) if word in answer.body]
        ledger.execute("ALTER TABLE elsewhere RENAME TO entry")
        ledger.close()
        assert server.get("/healthz").status == 200
        assert server.count(ALL, key).status == 200


def test_killed_workers_are_replaced_and_their_counts_kept(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        key, boss = server.key("ann"), server.key("boss", "curator")
        assert server.count(BY_REGION, key).status == 200
        for _ in range(20):
            assert server.get("/v1/budget", key).status == 200

        def read_samples() -> Samples:
            return samples(server.get("/metrics", boss).body)

        wait_until(
            lambda: requests(read_samples())["GET", "/v1/budget", 200] == 20, WAIT
        )  # counted after their responses are sent
        workers = [pid for pid in server.family() if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not set(workers) & set(server.family()), WAIT)
        assert requests(read_samples())["GET", "/v1/budget", 200] == 20
        assert answers(read_samples(), "charged") == 1
        replayed = server.count(BY_REGION, key).json()
        assert replayed["replayed"] is True
        assert charged(server.config) == 1


def test_a_stopped_server_finishes_requests_and_removes_its_files(tmp_path: Path) -> None:
    """Running requests are answered, idle connections are closed, and no metrics file is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with serving(place(tmp_path), "--workers", "2", environment={"TMPDIR": str(scratch)}) as server:
        key = server.key("ann")
        idle = Client(server, key)
        assert idle.ask("GET", "/v1/budget").status == 200
        assert [entry.name.startswith("countveil-serve-") for entry in scratch.iterdir()].count(True) == 1
        assert server.count(BY_REGION, key).status == 200
        family = server.family()
        assert server.stop() == 0
        idle.close()
    assert not [entry for entry in scratch.iterdir() if entry.name.startswith("countveil-")]
    wait_until(lambda: not server.left(family), WAIT)
    assert "Traceback" not in server.log
    assert charged(server.config) == 1
