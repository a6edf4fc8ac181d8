"""A run as a whole: its workers share one configuration and end with it; what it counts of answers is what was paid."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from countveil.config import load
from countveil.curator import Curator
from countveil.engines.duckdb import DuckDBEngine
from countveil.errors import EngineError
from countveil.ledger import Request
from tests.support.curated import runner
from tests.support.loads import all_there, kill, workers
from tests.support.servers import wait_until
from tests.support.serving import place, serving

BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
ALL = "SELECT count(*) FROM people"


def gone(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        all_there(server, 2)
        left = workers(server)
        assert len(left) == 2
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
        wait_until(lambda: all(map(gone, left)), 30)


def test_a_worker_that_comes_later_has_the_configuration_of_the_run(tmp_path: Path) -> None:
    config = place(tmp_path)
    with serving(config, "--workers", "2") as server:
        all_there(server, 2)
        key, before = server.key("ann"), config.read_text()
        assert "West" in before
        config.write_text(before.replace("West", "Elsewhere"))
        kill(workers(server)[0])
        wait_until(lambda: len(workers(server)) == 2, 60)
        all_there(server, 2)
        answers = [server.count(BY_REGION, key) for _ in range(12)]
        assert {answer.status for answer in answers} == {200}
        assert {answer.json()["rows"][3][0] for answer in answers} == {"West"}


def test_files_that_are_no_certificate_are_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, file = place(tmp_path), tmp_path / "no.pem"
    file.write_text("no certificate")
    options = ["--tls-certificate", str(file), "--tls-key", str(file)]
    code, out, err = runner(monkeypatch, capsys, "serve")("-c", config, "--port", "0", *options)
    assert (code, out) == (2, "")
    assert "cannot be used for TLS; give a certificate and its own key" in err
    assert err.count("\n") == 1


def test_one_of_many_that_ask_the_same_at_once_pays(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        ann, bob, curator = server.key("ann"), server.key("bob"), server.key("office", "curator")
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda i: server.count(BY_REGION, bob if i % 2 else ann).json(), range(16)))
        assert [answer["replayed"] for answer in answers].count(False) == 1
        assert len({json.dumps(answer["rows"]) for answer in answers}) == 1
        told = server.get("/metrics", curator).body.decode()
        counted = dict(re.findall(r'^countveil_answers_total\{how="(\w+)"\} (\S+)$', told, re.MULTILINE))
        assert {how: float(n) for how, n in counted.items()} == {"charged": 1.0, "replayed": 15.0}


def test_a_design_that_is_not_to_be_had_is_refused(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        body = {"eta": "0.5", "D": 2, "delta": "0.1", "unbiased_from": 0}
        answer = server.ask("POST", "/v1/design", body=body, key=server.key("ann"))
        assert answer.status == 422
        assert "no epsilon up to 100" in answer.json()["detail"]


def test_the_anchor_has_what_was_said_of_a_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer with its idempotency key, and a charge whose counting failed: neither is lost with an older copy."""
    with Curator.open(load(place(tmp_path))) as curator:
        curator.count(BY_REGION, request=Request("k" * 64, "b" * 64))
        *_, charge, request, last = curator.ledger.entries()
        assert (charge.kind, request.kind, last.kind) == ("charge", "request", "answer")
        assert curator.ledger.anchor.found().seq == last.seq  # type: ignore[attr-defined]

        def fails(*given: object, **named: object) -> None:
            raise EngineError("the source could not be read")

        monkeypatch.setattr(DuckDBEngine, "count", fails)
        with pytest.raises(EngineError):
            curator.count(ALL)
        last = list(curator.ledger.entries())[-1]
        assert (last.kind, curator.ledger.anchor.found().seq) == ("charge", last.seq)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/count", {"sql": "a\0b"}, "body.sql: give text without NUL characters"),
        ("/v1/design", {"epsilon": "one"}, "body.epsilon: give a number as text, such as 1, 0.5 or 1e-6"),
        ("/v1/receipts/mine", None, "path.id: give the 24 hexadecimal digits of a receipt"),
    ],
)
def test_what_is_allowed_is_said_in_words(tmp_path: Path, path: str, body: object, words: str) -> None:
    with serving(place(tmp_path)) as server:
        reply = server.ask("GET" if body is None else "POST", path, body, key=server.key("ann"))
        assert (reply.status, reply.json()["detail"]) == (422, words)
