"""The ledger on PostgreSQL: processes of several hosts race, and the server is killed under them."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger_workers import Place, Workers, audit, lines, plan
from tests.support.ledgers import database
from tests.support.servers import Postgres, postgres

PROCESSES, HOSTS, ANSWERS = 16, 4, 7
KILLS = 100
SENTENCES = (
    "the connection to the ledger's server was lost; nothing was answered; ask again",
    "the ledger's server postgresql://127.0.0.1:PORT/ledgers could not be reached; nothing was answered; "
    "check the address, the role and its password, and ask again",
    "the ledger could not be read or written; nothing was answered",  # while a server recovers from a crash
)


def placed(folder: Path, server: str, hosts: int) -> list[Place]:
    (folder / "server").write_text(server)
    return [Place(folder, str(host)).make() for host in range(hosts)]


def race(workers: Workers, folder: Path, questions: list[list[str]], **more: object) -> list[Place]:
    places, go = placed(folder, database(), HOSTS), str(folder / "go")
    common = {"task": "at_once", "folder": str(folder), "go": go, "answers": ANSWERS, **more}
    tasks = [{**common, "questions": each, "host": str(i % HOSTS)} for i, each in enumerate(questions)]
    assert workers.run(*tasks, {"task": "begin", "go": go}) == [0] * (len(tasks) + 1)
    return places


def test_16_processes_of_4_hosts_get_exactly_7_answers(workers: Workers, tmp_path: Path) -> None:
    """The processes race to create the ledger, the plan and the version, and for the answers."""
    places = race(workers, tmp_path, [[f"{i}.{j}" for j in range(3)] for i in range(PROCESSES)])
    for place in places:
        assert audit(place) == {"charges": ANSWERS, "open": 0, "sent": ANSWERS}
    refused = sum(len(file.read_text().splitlines()) for file in tmp_path.glob("refused*"))
    assert refused == 3 * PROCESSES - ANSWERS


def test_32_processes_of_4_hosts_get_exactly_the_last_answers_of_two_grades(workers: Workers, tmp_path: Path) -> None:
    order = (("fine", "standard", "fine"), ("standard", "fine", "standard"))
    asked = [[f"{i}.{j}@{grade}" for j, grade in enumerate(order[i // HOSTS % 2])] for i in range(2 * PROCESSES)]
    places = race(workers, tmp_path, asked, others={"fine": 3})
    for place in places:
        assert audit(place) == {"charges": ANSWERS + 3, "open": 0, "sent": ANSWERS + 3}
    ledger = places[0].open()
    grades = [charge.grade for charge in ledger.charges()]
    assert (grades.count("standard"), grades.count("fine")) == (ANSWERS, 3)
    ledger.close()
    refused = sum(len(file.read_text().splitlines()) for file in tmp_path.glob("refused*"))
    assert refused == 3 * 2 * PROCESSES - ANSWERS - 3


def test_one_question_of_16_processes_is_charged_once(workers: Workers, tmp_path: Path) -> None:
    places = race(workers, tmp_path, [["the question"]] * PROCESSES)
    assert audit(places[0]) == {"charges": 1, "open": 0, "sent": PROCESSES}
    assert len({line["payload"] for line in lines(tmp_path)}) == 1


def test_parent_and_child_use_separate_connections_after_a_fork(tmp_path: Path) -> None:
    """Both processes can charge."""
    import os

    (place,) = placed(tmp_path, database(), 1)
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    for i in range(5):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = not ledger.charge("people", "people", 1, f"child {i}", "", "ann").fresh
            finally:
                os._exit(code)
        assert ledger.charge("people", "people", 1, f"parent {i}", "", "ann").fresh
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ledger.close()
    assert audit(place)["charges"] == 10


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """A cluster that only this test kills; in memory, if there is room, because every start syncs every file."""
    programs, memory = postgres().programs, Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2**29:
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
    found = Postgres(programs)
    yield found
    found.remove()


def count(folder: Path) -> int:
    """The number of answers sent."""
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("sent.*"))


@pytest.mark.slow
def test_a_server_killed_100_times_loses_no_charge(workers: Workers, server: Postgres, tmp_path: Path) -> None:
    """Four processes of two hosts ask the same questions while the server is killed again and again."""
    places, stop, rng = placed(tmp_path, server.ledgers, 2), tmp_path / "stop", random.Random(7)
    ledger = places[0].open()
    ledger.open_plan(plan(10**6))
    ledger.close()
    tasks = [{"task": "enduring", "folder": str(tmp_path), "host": str(i % 2), "stop": str(stop)} for i in range(4)]
    codes: list[list[int]] = []
    load = threading.Thread(target=lambda: codes.append(workers.run(*tasks)))
    load.start()
    try:
        for _ in range(KILLS):
            enough, until = count(tmp_path) + rng.randint(1, 12), time.monotonic() + 60
            while count(tmp_path) < enough:
                assert time.monotonic() < until, "no answers since the last kill"
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.03))
            server.stop("immediate")
            server.start()
    finally:
        stop.touch()
        load.join()
    assert codes == [[0] * 4]
    found = [audit(place) for place in places]
    assert found[0]["sent"] >= KILLS
    assert found[1]["charges"] == found[0]["charges"]
    answers = {(line["question"], line["charge"], line["payload"]) for line in lines(tmp_path)}
    assert len(answers) == len({question for question, _, _ in answers}), "two answers to one question"
    said: Counter[str] = Counter()
    for file in tmp_path.glob("said.*"):
        said.update(json.loads(file.read_text()))
    assert set(said) <= {sentence.replace("PORT", str(server.port)) for sentence in SENTENCES}, said
    assert said[SENTENCES[0]] >= KILLS
    print(f"{KILLS} kills, {found}, {said}")
