"""A run of the server: its workers share one configuration and end with it; its metrics agree with the charges."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import EngineError
from countveil.ledger import Request
from tests.support.curated import runner
from tests.support.loads import all_there, kill, workers
from tests.support.servers import wait_until
from tests.support.serving import place, serving

BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
ALL = "SELECT count(*) FROM people"


def has_exited(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        all_there(server, 2)
        pids = workers(server)
        assert len(pids) == 2
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
        wait_until(lambda: all(map(has_exited, pids)), 30)


def test_a_replaced_worker_has_the_configuration_of_the_run(tmp_path: Path) -> None:
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


def test_invalid_certificate_files_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, file = place(tmp_path), tmp_path / "no.pem"
    file.write_text("no certificate")
    options = ["--tls-certificate", str(file), "--tls-key", str(file)]
    code, out, err = runner(monkeypatch, capsys, "serve")("-c", config, "--port", "0", *options)
    assert (code, out) == (2, "")
    assert "cannot be used for TLS; give a certificate and its own key" in err
    assert err.count("\n") == 1


def test_concurrent_requests_for_one_question_are_charged_once(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        ann, bob, curator = server.key("ann"), server.key("bob"), server.key("office", "curator")
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda i: server.count(BY_REGION, bob if i % 2 else ann).json(), range(16)))
        assert [answer["replayed"] for answer in answers].count(False) == 1
        assert len({json.dumps(answer["rows"]) for answer in answers}) == 1
        exposition = server.get("/metrics", curator).body.decode()
        answer_counts = dict(re.findall(r'^countveil_answers_total\{how="(\w+)"\} (\S+)$', exposition, re.MULTILINE))
        assert {how: float(n) for how, n in answer_counts.items()} == {"charged": 1.0, "replayed": 15.0}


def test_an_infeasible_design_is_refused(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        body = {"eta": "0.5", "D": 2, "delta": "0.1", "unbiased_from": 0}
        answer = server.ask("POST", "/v1/design", body=body, key=server.key("ann"))
        assert answer.status == 422
        assert "no epsilon up to 100" in answer.json()["detail"]


def test_the_anchor_is_at_the_last_entry_after_an_answer_and_after_a_failed_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older copy can lose neither an answer with an idempotency key nor a charge whose count failed."""
    with Curator.open(load(place(tmp_path))) as curator:
        curator.count(BY_REGION, request=Request("k" * 64, "b" * 64))
        *_, charge, request, last = curator.ledger.entries()
        assert (charge.kind, request.kind, last.kind) == ("charge", "request", "answer")
        assert curator.ledger.anchor.require().seq == last.seq  # type: ignore[attr-defined]

        def fail(*given: object, **named: object) -> None:
            raise EngineError("the source could not be read")

        monkeypatch.setattr(DuckDBEngine, "count", fail)
        with pytest.raises(EngineError):
            curator.count(ALL)
        last = list(curator.ledger.entries())[-1]
        assert (last.kind, curator.ledger.anchor.require().seq) == ("charge", last.seq)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/count", {"sql": "a\0b"}, "body.sql: give text without NUL characters"),
        ("/v1/design", {"epsilon": "one"}, "body.epsilon: give a number as text, such as 1, 0.5 or 1e-6"),
        ("/v1/receipts/mine", None, "path.id: give the 24 hexadecimal digits of a receipt"),
    ],
)
def test_invalid_members_of_a_body_are_refused_with_the_allowed_values(
    tmp_path: Path, path: str, body: object, words: str
) -> None:
    with serving(place(tmp_path)) as server:
        reply = server.ask("GET" if body is None else "POST", path, body, key=server.key("ann"))
        assert (reply.status, reply.json()["detail"]) == (422, words)
