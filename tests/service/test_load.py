"""Many clients, several workers, a tight budget; killed workers; a server that is shut down.

No answer without a charge, no two answers for one charge, none lost, and never more than planned.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from countveil.service.server import GRACE
from tests.support.loads import (
    Asked,
    Crowd,
    all_there,
    ask_all,
    audit,
    datasets,
    kill,
    numbered,
    questions,
    shared_out,
    workers,
)
from tests.support.servers import wait_until
from tests.support.serving import Client, Server, serving

CLIENTS, WORKERS = 64, 4
TIGHT = 40
KILLS = 20
PLAN = 'epsilon = "{}"\ndelta = "0.01"\nanswers = {}\n'
KILLED = 900
"""Questions that are asked while workers are killed; fewer than the plan has answers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("load")
    plans = {"tight": TIGHT, "last": 3, "same": 3, "named": 3}
    config = datasets(folder, {name: PLAN.format("10", answers) for name, answers in plans.items()})
    with serving(config, "--workers", f"{WORKERS}") as running:
        all_there(running, WORKERS)
        yield running


@pytest.fixture(scope="module")
def keys(server: Server) -> list[str]:
    return [server.key(f"analyst{i}") for i in range(8)]


def crowd_of(keys: list[str], asked: list[list[Asked]]) -> list[tuple[str, list[Asked]]]:
    return [(keys[i % len(keys)], each) for i, each in enumerate(asked)]


def test_64_clients_on_4_workers_get_exactly_40_answers(server: Server, keys: list[str]) -> None:
    asked = [Asked(sql) for sql in questions("tight", 200)]
    replies = ask_all(server, crowd_of(keys, shared_out(asked, CLIENTS)))
    assert Counter(reply.status for reply in replies) == {200: TIGHT, 402: 200 - TIGHT}
    answers = [reply for reply in replies if reply.status == 200]
    assert not any(reply.body["replayed"] for reply in answers)
    assert len({reply.receipt for reply in answers}) == TIGHT
    assert {reply.body["error"]["name"] for reply in replies if reply.status == 402} == {"budget-exhausted"}
    totals = audit(server.config, replies, "tight")
    assert totals == (TIGHT, TIGHT, 0, TIGHT, TIGHT), "no answer is lost: every charge is answered and received"
    assert min(reply.body["receipt"]["answers_left"] for reply in answers) == 0
    again = ask_all(server, crowd_of(keys, shared_out(asked, CLIENTS)))
    assert {reply.asked.sql: reply.status for reply in again} == {reply.asked.sql: reply.status for reply in replies}
    assert all(reply.body["replayed"] for reply in again if reply.status == 200)
    assert audit(server.config, again, "tight") == totals, "paid questions stay free, refused ones stay refused"


def test_one_of_64_clients_gets_the_last_answer(server: Server, keys: list[str]) -> None:
    before, rest = questions("last", 2), questions("last", 2 + CLIENTS)[2:]
    for sql in before:
        assert server.count(sql, keys[0]).status == 200
    replies = ask_all(server, crowd_of(keys, [[Asked(sql)] for sql in rest]))
    assert Counter(reply.status for reply in replies) == {200: 1, 402: CLIENTS - 1}
    (winner,) = (reply for reply in replies if reply.status == 200)
    assert not winner.body["replayed"]
    assert winner.body["receipt"]["answers_left"] == 0
    assert audit(server.config, replies, "last") == (3, 3, 0, 3, 1)


def test_one_question_from_64_clients_is_charged_once(server: Server, keys: list[str]) -> None:
    (sql,) = questions("same", 1)
    replies = ask_all(server, crowd_of(keys, [[Asked(sql)] * 3] * CLIENTS))
    assert Counter(reply.status for reply in replies) == {200: 3 * CLIENTS}
    assert len({reply.receipt for reply in replies}) == 1
    assert len({tuple(reply.counts) for reply in replies}) == 1
    assert len({str(reply.body["rows"]) for reply in replies}) == 1
    assert audit(server.config, replies, "same") == (1, 1, 2, 1, 3 * CLIENTS)


def test_one_idempotency_key_from_64_clients_is_charged_once(server: Server, keys: list[str]) -> None:
    """The same request a thousand times is one charge; another question with its idempotency key is refused."""
    first, other = questions("named", 2)
    asked = [[Asked(first, "mine")] * 16] * (CLIENTS - 4) + [[Asked(other, "mine")] * 16] * 4
    replies = ask_all(server, [(keys[0], each) for each in asked])
    by_question = defaultdict(list)
    for reply in replies:
        by_question[reply.asked.sql].append(reply)
    accepted = [sql for sql, group in by_question.items() if {reply.status for reply in group} == {200}]
    assert len(accepted) == 1, "the first question keeps the idempotency key"
    (refused,) = set(by_question) - set(accepted)
    assert {reply.status for reply in by_question[refused]} == {409}
    assert len({(reply.receipt, *reply.counts) for reply in by_question[accepted[0]]}) == 1
    assert audit(server.config, replies, "named") == (1, 1, 2, 1, len(by_question[accepted[0]]))


@pytest.mark.faults
def test_killed_workers_lose_no_answer_and_charge_nothing_twice(tmp_path: Path) -> None:
    """Two clients ask every question with different idempotency keys; interrupted requests are sent again."""
    config, rng = datasets(tmp_path, {"killed": PLAN.format("100", 1000)}), random.Random(10)
    asked = questions("killed", KILLED)
    with serving(config, "--workers", f"{WORKERS}") as server:
        keys = [server.key(f"analyst{i}") for i in range(16)]
        tasks = [
            (key, numbered(f"c{i}", lambda n, i=i: asked[(8 * n + i // 2) % KILLED])) for i, key in enumerate(keys)
        ]
        crowd, killed, seen = Crowd(server, tasks), 0, 0
        pids: set[int] = set()
        while killed < KILLS:
            if len(crowd.replies) < seen + 5:
                assert not crowd.faults, crowd.faults
                assert server.process.poll() is None, server.log
                time.sleep(0.005)
                continue
            time.sleep(rng.uniform(0, 0.05))
            there = workers(server)
            if there and kill(victim := rng.choice(there)):
                killed, seen = killed + 1, len(crowd.replies)
                pids.add(victim)
        crowd.stopped.set()
        replies, cut_short = crowd.finish(), crowd.cut_short
        assert len(pids) == KILLS
        assert len(cut_short) >= KILLS // 4, "the kills interrupted running requests"
        assert {reply.status for reply in replies} == {200}, Counter(reply.status for reply in replies)

        totals = audit(config, replies, "killed")
        assert totals.found == len(replies)
        assert totals.charges >= len({reply.asked.sql for reply in replies})
        answers = defaultdict(set)
        for reply in replies:
            answers[reply.asked.sql].add((reply.receipt, str(reply.body["rows"])))
        assert {len(each) for each in answers.values()} == {1}, "one question, one charge, one answer"

        by_request = {(reply.asked, _whose(reply.asked)): reply for reply in replies}
        retried = [(each, who) for each, who in by_request if each in set(cut_short)]
        retried += rng.sample(sorted(by_request), min(60, len(by_request)))
        for each, who in retried:
            client = Client(server, keys[who])
            again = client.ask(
                "POST", "/v1/count", {"sql": each.sql}, headers={"Idempotency-Key": each.repeatable or ""}
            )
            client.close()
            assert again.status == 200
            body, before = again.json(), by_request[each, who].body
            assert body["replayed"]
            assert (body["receipt"]["id"], body["rows"]) == (before["receipt"]["id"], before["rows"])
        assert audit(config, [], "killed").charges == totals.charges, "a retry costs nothing"
        for sql in {each.sql for each in cut_short}:  # unanswered charges can be completed by anyone
            assert server.count(sql, keys[0]).status == 200
        assert server.stop() == 0
    done = audit(config, replies, "killed")
    assert done.answered == done.charges == len({*answers, *(each.sql for each in cut_short)})


def _whose(asked: Asked) -> int:
    assert asked.repeatable is not None
    return int(asked.repeatable[1:].partition("-")[0])


def test_a_server_finishes_running_requests_on_sigterm(tmp_path: Path) -> None:
    config = datasets(tmp_path, {"ended": PLAN.format("100", 1000)})
    asked = questions("ended", KILLED)
    with serving(config, "--workers", f"{WORKERS}") as server:
        keys = [server.key(f"analyst{i}") for i in range(16)]
        # the questions repeat, so that clients keep asking until the server has ended
        tasks = [(key, numbered(f"c{i}", lambda n, i=i: asked[(16 * n + i) % KILLED])) for i, key in enumerate(keys)]
        crowd = Crowd(server, tasks)
        while len(crowd.replies) < 40:
            assert not crowd.faults, crowd.faults
            time.sleep(0.005)
        family = server.family()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(GRACE + 30)  # plus 30 s for a busy machine
        crowd.stopped.set()
        replies = crowd.finish()
        assert code == 0
        assert {reply.status for reply in replies} == {200}
        wait_until(lambda: not server.left(family))  # no process is left
        assert "Traceback" not in server.log
    totals = audit(config, replies, "ended")
    assert totals.found == len(replies) >= 40
    assert totals.answered == totals.charges, "every charge was answered"
