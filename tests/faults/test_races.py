"""Many processes and a tight budget: exactly as many answers as planned; one question: one charge, one answer."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from countveil.errors import BudgetError, LedgerError
from countveil.ledger.sqlite import SqliteLedger
from tests.support.ledger_workers import Place, Workers, audit, lines, plan

PROCESSES = 32
ANSWERS = 7


def race(workers: Workers, folder: Path, questions: list[list[str]], **more: object) -> None:
    go = str(folder / "go")
    common = {"task": "at_once", "folder": str(folder), "go": go, "answers": ANSWERS, **more}
    tasks = [{**common, "questions": each} for each in questions]
    assert workers.run(*tasks, {"task": "begin", "go": go}) == [0] * (len(tasks) + 1)


def test_32_processes_get_exactly_7_answers(workers: Workers, tmp_path: Path) -> None:
    """The processes race to create the ledger, the plan and the version, and for the answers."""
    place = Place(tmp_path).make()
    race(workers, tmp_path, [[f"{i}.{j}" for j in range(3)] for i in range(PROCESSES)])
    found = audit(place)
    assert found == {"charges": ANSWERS, "open": 0, "sent": ANSWERS}
    refused = sum(len(file.read_text().splitlines()) for file in tmp_path.glob("refused*"))
    assert refused == 3 * PROCESSES - ANSWERS
    ledger = place.open()
    assert [e.kind for e in ledger.entries()].count("plan") == 1
    assert [e.kind for e in ledger.entries()].count("version") == 1
    ledger.close()


def test_32_processes_get_exactly_the_last_answers_of_two_grades(workers: Workers, tmp_path: Path) -> None:
    """Every process asks for both grades, half of them for grade fine first; each grade gives exactly its answers."""
    place = Place(tmp_path).make()
    order = (("fine", "standard", "fine"), ("standard", "fine", "standard"))
    asked = [[f"{i}.{j}@{grade}" for j, grade in enumerate(order[i % 2])] for i in range(PROCESSES)]
    race(workers, tmp_path, asked, others={"fine": 3})
    assert audit(place) == {"charges": ANSWERS + 3, "open": 0, "sent": ANSWERS + 3}
    ledger = place.open()
    grades = [charge.grade for charge in ledger.charges()]
    assert (grades.count("standard"), grades.count("fine")) == (ANSWERS, 3)
    assert all(each.left == 0 for each in ledger.standings("people").values())
    ledger.close()
    refused = sum(len(file.read_text().splitlines()) for file in tmp_path.glob("refused*"))
    assert refused == 3 * PROCESSES - ANSWERS - 3


def test_one_question_of_32_processes_is_charged_once(workers: Workers, tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    race(workers, tmp_path, [["the same"]] * PROCESSES)
    assert audit(place) == {"charges": 1, "open": 0, "sent": PROCESSES}
    assert len({line["payload"] for line in lines(tmp_path)}) == 1
    assert sum(line["fresh"] for line in lines(tmp_path)) <= 1


def test_a_share_of_3_pays_for_exactly_3_of_12_questions(workers: Workers, tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    race(workers, tmp_path, [[f"{i}"] for i in range(12)], share=3)
    assert audit(place) == {"charges": 3, "open": 0, "sent": 3}


CONFIG = """
[dataset.people]
source = "people.csv"
unit = "row"
[dataset.people.columns]
region = ["North", "South"]
age = { min = 0, max = 9 }
[dataset.people.budget]
epsilon = "2"
delta = "1e-6"
answers = 6
"""


@pytest.fixture(scope="module")
def curators() -> object:
    with Workers("countveil.curator.curator", {"OMP_NUM_THREADS": "1"}) as started:
        started.run()
        yield started


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, its data, and a ledger in which the pool is planned and one question is asked."""
    from countveil.curator.curator import Curator

    folder = tmp_path_factory.mktemp("planned")
    (folder / "countveil.toml").write_text(CONFIG)
    rows = [f"{'North' if i % 3 else 'South'},{i % 10}" for i in range(300)]
    (folder / "people.csv").write_text("region,age\n" + "\n".join(rows) + "\n")
    with Curator.open(folder / "countveil.toml") as curator:
        assert curator.count("SELECT count(*) FROM people").receipt.answers_left == 5
    return folder


def ask_at_once(
    curators: Workers, planned: Path, folder: Path, questions: list[str], grades: tuple[str, ...] = ()
) -> list[dict[str, object]]:
    """The results of curators that ask at once, for the `grades` in turn or without a grade."""
    shutil.copytree(planned, folder, dirs_exist_ok=True)
    config, go = folder / "countveil.toml", str(folder / "go")
    common = {"task": "asking", "config": str(config), "go": go, "out": str(folder)}
    tasks = [{**common, "sql": sql} for sql in questions]
    for i, task in enumerate(tasks if grades else ()):
        task["grade"] = grades[i % len(grades)]
    assert curators.run(*tasks, {"task": "begin", "go": go}) == [0] * (len(tasks) + 1)
    return [json.loads(file.read_text()) for file in folder.glob("got.*")]


def test_32_curators_get_exactly_5_answers(curators: Workers, planned: Path, tmp_path: Path) -> None:
    questions = [f"SELECT count(*) FROM people WHERE age = {i % 10} AND region = 'North'" for i in range(10)]
    questions += [f"SELECT region, count(*) FROM people WHERE age <= {i} GROUP BY region" for i in range(8)]
    questions += [f"SELECT count(*) FROM people WHERE age >= {i} AND region = 'South'" for i in range(1, 9)]
    questions += [f"SELECT age, count(*) FROM people WHERE age IN ({i}, 9) GROUP BY age" for i in range(6)]
    assert len(set(questions)) == PROCESSES
    got = ask_at_once(curators, planned, tmp_path, questions)
    answered = [each for each in got if "charge" in each]
    assert len(answered) == len({each["charge"] for each in answered}) == 5
    assert {each["refused"] for each in got if "refused" in each} == {"BudgetError"}
    assert len(got) == PROCESSES
    ledger = SqliteLedger(tmp_path / "countveil.ledger", tmp_path / "countveil.ledger.anchor")
    assert ledger.standing("people").left == 0
    assert len(list(ledger.charges())) == 6
    ledger.close()


GRADED = CONFIG.replace(
    "answers = 6", "[dataset.people.budget.grades]\nfine = { answers = 2, weight = 4 }\nstandard = { answers = 4 }"
)


def test_32_curators_get_exactly_the_last_answers_of_two_grades(
    curators: Workers, planned: Path, tmp_path: Path
) -> None:
    from countveil.curator.curator import Curator

    shutil.copy(planned / "people.csv", tmp_path)
    (tmp_path / "countveil.toml").write_text(GRADED)
    with Curator.open(tmp_path / "countveil.toml") as curator:
        assert curator.count("SELECT count(*) FROM people").receipt.grade == "standard"
    questions = [f"SELECT count(*) FROM people WHERE age <= {i % 9} AND region = 'North'" for i in range(PROCESSES)]
    got = ask_at_once(curators, tmp_path, tmp_path / "race", questions, ("fine", "standard", "fine"))
    assert len(got) == PROCESSES
    assert {each["refused"] for each in got if "refused" in each} <= {"BudgetError"}
    charges = {each["charge"]: each["grade"] for each in got if "charge" in each}
    assert sorted(charges.values()) == ["fine"] * 2 + ["standard"] * 3
    ledger = SqliteLedger(tmp_path / "race" / "countveil.ledger", tmp_path / "race" / "countveil.ledger.anchor")
    assert {name: each.left for name, each in ledger.standings("people").items()} == {"fine": 0, "standard": 0}
    ledger.close()


def test_one_question_of_32_curators_is_charged_once(curators: Workers, planned: Path, tmp_path: Path) -> None:
    got = ask_at_once(curators, planned, tmp_path, ["SELECT region, count(*) FROM people GROUP BY region"] * PROCESSES)
    assert len(got) == PROCESSES
    assert len({json.dumps(each, sort_keys=True) for each in got}) == 1
    assert "rows" in got[0]


# -- threads and forks -------------------------------------------------------------------------------------------------


def test_8_threads_get_exactly_the_planned_answers(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(50))
    answered: list[bytes | None] = []
    refused: list[str] = []

    def work(me: int) -> None:
        for i in range(10):
            try:
                charge = ledger.charge("people", "people", 1, f"{me}.{i}", "", "ann")
                answered.append(ledger.record(charge, os.urandom(8)).payload)
                ledger.standing("people")
                ledger.verify() if i == 5 else None
            except BudgetError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answered), len(refused)) == (50, 30)
    ledger.close()
    assert audit(place)["charges"] == 50


def in_child(work: object) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parent_and_child_can_both_charge_after_a_fork(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10))
    first = ledger.charge("people", "people", 1, "before", "", "ann")

    def child() -> bool:
        ledger.record(first, b"by the child")
        return ledger.charge("people", "people", 1, "in the child", "", "ann").fresh

    assert in_child(child) == 0
    assert ledger.record(first, b"by the parent").payload == b"by the child"
    assert ledger.charge("people", "people", 1, "after", "", "ann").fresh
    ledger.close()
    assert audit(place)["charges"] == 3


def test_closing_the_ledger_in_the_parent_keeps_the_log_of_the_child(tmp_path: Path) -> None:
    """Otherwise the parent's close would delete the log that the child writes."""
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10))
    ledger.charge("people", "people", 1, "before", "", "ann")
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ledger.charge("people", "people", 1, "child 1", "", "ann")
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            ledger.charge("people", "people", 1, "child 2", "", "ann")
            code = 0
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    ledger.close()
    other = place.open()
    other.charge("people", "people", 1, "other", "", "ann")
    other.close()
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert audit(place)["charges"] == 4
    for end in (*ready, *go):
        os.close(end)


def test_a_fork_while_other_threads_charge_leaves_no_lock_held(tmp_path: Path) -> None:
    """The child inherits neither the lock of the ledger nor that of the anchor."""
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    stop = threading.Event()

    def charging() -> None:
        i = 0
        while not stop.is_set():
            ledger.charge("people", "people", 1, f"thread {i}", "", "ann")
            i += 1

    thread = threading.Thread(target=charging)
    thread.start()
    for i in range(20):
        question = f"child {i}"
        assert in_child(lambda q=question: ledger.charge("people", "people", 1, q, "", "ann").fresh) == 0
    stop.set()
    thread.join()
    ledger.close()
    audit(place)


def test_a_child_forked_in_the_middle_of_a_change_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    codes: list[int] = []

    def step(name: str) -> None:
        if name == "charge:spend" and not codes:
            codes.append(0)
            codes[0] = in_child(refused)

    def refused() -> bool:
        try:
            ledger.charge("people", "people", 1, "in the child", "", "ann")
        except LedgerError as error:
            return "forked in the middle" in str(error)
        return False

    ledger = place.open(step=step)
    ledger.open_plan(plan(10))
    ledger.charge("people", "people", 1, "a", "", "ann")
    assert codes == [0]
    ledger.close()
    assert audit(place)["charges"] == 1


def test_two_ledgers_open_in_one_process_are_independent(tmp_path: Path) -> None:
    one, two = (Place(tmp_path / name).make() for name in "ab")
    first, second = one.open(), two.open()
    assert first.identity != second.identity
    for ledger, answers in ((first, 1), (second, 2)):
        ledger.open_plan(plan(answers))
        for i in range(answers):
            ledger.charge("people", "people", 1, f"{i}", "", "ann")
        with pytest.raises(BudgetError):
            ledger.charge("people", "people", 1, "more", "", "ann")
    first.close()
    second.close()
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        SqliteLedger(one.ledger, two.anchor)


def test_verify_succeeds_while_other_processes_write(workers: Workers, tmp_path: Path) -> None:
    """Verification reads one snapshot; an anchor that is behind a new charge is not taken for damage."""
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    stop = threading.Event()
    verified: list[int] = []

    def verifying() -> None:
        while not stop.is_set():
            verified.append(ledger.verify())

    thread = threading.Thread(target=verifying)
    thread.start()
    tasks = [
        {"task": "answering", "folder": str(tmp_path), "questions": [f"{i}.{j}" for j in range(40)]} for i in range(4)
    ]
    assert workers.run(*tasks) == [0] * 4
    stop.set()
    thread.join()
    ledger.close()
    assert len(set(verified)) > 3
    assert audit(place)["charges"] == 160


def test_a_busy_ledger_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl
    import sqlite3

    monkeypatch.setattr("countveil.ledger.anchor.WAIT", 0.1)
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10))
    other = sqlite3.connect(place.ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match=r"^the ledger is busy with other processes; try again$"):
        ledger.charge("people", "people", 1, "a", "", "ann")
    other.execute("ROLLBACK")
    other.close()
    with place.anchor.with_name(".x.anchor.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match=r"^the ledger's anchor is busy with other processes; try again$"):
            ledger.charge("people", "people", 1, "a", "", "ann")
    charge = ledger.charge("people", "people", 1, "a", "", "ann")
    assert charge.fresh, "nothing was charged while the anchor was busy"
    ledger.record(charge, b"x")
    ledger.close()
    assert audit(place) == {"charges": 1, "open": 0, "sent": 0}
