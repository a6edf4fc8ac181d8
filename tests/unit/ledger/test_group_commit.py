"""Changes that wait together share a transaction: each is made whole or not at all, and is durable before its thread
goes on.

To make changes wait, a test locks the ledger until all of them are queued.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from countveil.errors import BudgetError, ConflictError, LedgerError
from countveil.ledger import Charge, Request, group_commit
from countveil.ledger.group_commit import CommitQueue, QueuedChange
from countveil.ledger.records import charge_id
from countveil.ledger.sqlite import SqliteLedger
from countveil.ledger.sqlite_connection import ReaderPool
from tests.support.ledgers import opened, plan

Task = Callable[[], Any]


class Steps:
    """Counts the steps of the ledger, and can make one fail."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.fails: dict[str, BaseException] = {}

    def __call__(self, name: str) -> None:
        self.seen[name] += 1
        if name in self.fails:
            raise self.fails.pop(name)

    @property
    def transactions(self) -> int:
        return sum(n for name, n in self.seen.items() if name.endswith(":begin"))


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def ledger(tmp_path: Path, steps: Steps) -> Iterator[SqliteLedger]:
    made = opened(tmp_path, step=steps)
    made.open_plan(plan(10_000))
    steps.seen.clear()
    yield made
    steps.fails.clear()
    made.verify()
    made.close()


def ask(ledger: SqliteLedger, question: str, analyst: str = "ann", **more: Any) -> Charge:
    return ledger.charge("people", "people", 1, question, "how many?", analyst, **more)


@contextmanager
def waiting(ledger: SqliteLedger, tasks: list[Task]) -> Iterator[list[Any]]:
    """Within this block every task is queued; afterwards the list has the result or the error of each task."""
    came: list[Any] = [None] * len(tasks)

    def work(i: int) -> None:
        try:
            came[i] = tasks[i]()
        except BaseException as error:
            came[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(tasks))]
    with ledger._lock:
        for i, thread in enumerate(threads):  # one by one, so that they stand in the order of the tasks
            thread.start()
            while len(ledger._queue._queue) < i + 1:
                time.sleep(0.001)
        yield came
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a change was never made"


def together(ledger: SqliteLedger, tasks: list[Task]) -> list[Any]:
    with waiting(ledger, tasks) as came:
        pass
    return came


def charges(ledger: SqliteLedger) -> list[str]:
    return [charge.question for charge in ledger.charges()]


# -- one transaction for many ------------------------------------------------------------------------------------------


def test_changes_that_wait_share_one_transaction(ledger: SqliteLedger, steps: Steps) -> None:
    came = together(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(100)])
    assert steps.transactions == 1
    assert (steps.seen["group:commit"], steps.seen["group:anchor"]) == (1, 0), "nothing goes out with a charge"
    assert all(charge.fresh for charge in came)
    assert len({charge.id for charge in came}) == 100
    assert charges(ledger) == [f"{i}" for i in range(100)], "made in the order in which they came"
    together(ledger, [lambda c=c: ledger.record(c, c.id.encode()) for c in came])
    assert (steps.transactions, steps.seen["group:commit"], steps.seen["group:anchor"]) == (2, 2, 1)
    assert ledger.standing("people").spent == 100


def test_a_transaction_with_one_change_reports_its_steps_under_the_name_of_that_change(
    ledger: SqliteLedger, steps: Steps
) -> None:
    ledger.record(ask(ledger, "a"), b"x")
    assert steps.seen["charge:begin"] == steps.seen["answer:begin"] == steps.transactions // 2 == 1


@pytest.mark.parametrize(("most", "changes", "expected"), [(128, 198, 2), (5, 23, 5), (1, 9, 9)])
def test_no_transaction_has_more_changes_than_the_limit(
    ledger: SqliteLedger, steps: Steps, monkeypatch: pytest.MonkeyPatch, most: int, changes: int, expected: int
) -> None:
    assert group_commit.MOST == 128
    monkeypatch.setattr(group_commit, "MOST", most)
    came = together(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(changes)])
    assert sum(charge.fresh for charge in came) == changes
    assert steps.transactions == expected
    assert charges(ledger) == [f"{i}" for i in range(changes)]


@pytest.mark.slow  # many threads and processes
def test_independent_threads_share_transactions(ledger: SqliteLedger, steps: Steps) -> None:
    """16 threads with 25 questions each wait only for the disk."""
    went: list[int] = []

    def work(me: int) -> None:
        for i in range(25):
            charge = ledger.record(ask(ledger, f"{me}.{i}"), os.urandom(8))
            mark = ledger.anchor.require()
            went.append(mark.seq - next(e.seq for e in ledger.entries() if charge_id(e) == charge.id))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(went) == 16 * 25
    assert min(went) > 0, "the anchor has both entries of an answer before anyone gets it"
    assert steps.transactions < 2 * 16 * 25
    assert sum(charge.answered is not None for charge in ledger.charges()) == 16 * 25


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refused_change_leaves_no_trace_and_the_others_go_on(ledger: SqliteLedger, steps: Steps) -> None:
    """Every third change is refused."""
    before = len(list(ledger.entries()))
    tasks: list[Task] = []
    for i in range(30):
        more: dict[str, Any] = {"analyst": "bob", "most": 1} if i % 3 == 0 else {}
        tasks.append(lambda i=i, more=more: ask(ledger, f"{i}", **more))
    came = together(ledger, tasks)
    assert steps.transactions == 1
    refused = [i for i, what in enumerate(came) if isinstance(what, BudgetError)]
    assert refused == list(range(3, 30, 3)), "bob may ask once"
    assert charges(ledger) == [f"{i}" for i in range(30) if i not in refused]
    entries = list(ledger.entries())
    assert len(entries) == before + 21
    assert [entry.seq for entry in entries] == list(range(1, before + 22))
    assert ledger.standing("people").spent == ledger.verify() - before == 21


def test_a_change_refused_after_it_has_written_fails_the_whole_transaction(ledger: SqliteLedger) -> None:
    """It cannot be undone alone, so the transaction is rolled back. No change of the ledger writes before it is
    refused.
    """

    def late() -> None:
        ledger._append("share", {"pool": "people", "analyst": "eve", "answers": 1})
        raise BudgetError("people", 0)

    before = ledger.verify()
    came = together(ledger, [lambda: ask(ledger, "a"), lambda: ledger._commit("share", late), lambda: ask(ledger, "b")])
    assert {type(what) for what in came} == {LedgerError}
    assert (ledger.verify(), charges(ledger)) == (before, [])


def test_the_last_answers_go_to_the_changes_that_were_queued_first(tmp_path: Path, steps: Steps) -> None:
    ledger = opened(tmp_path, step=steps)
    ledger.open_plan(plan(10))
    came = together(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(50)])
    assert [isinstance(what, Charge) for what in came] == [True] * 10 + [False] * 40
    assert {type(what) for what in came[10:]} == {BudgetError}
    assert (ledger.standing("people").left, len(charges(ledger))) == (0, 10)
    ledger.verify()
    ledger.close()


def test_a_share_is_not_exceeded_by_changes_of_one_transaction(ledger: SqliteLedger) -> None:
    ledger.set_share("people", "ann", 3)
    ledger.set_share("people", "bob", 4)
    who = ["ann", "bob", "eve"] * 5
    came = together(ledger, [lambda i=i, w=w: ask(ledger, f"{i}", w) for i, w in enumerate(who)])
    given = Counter(w for w, what in zip(who, came, strict=True) if isinstance(what, Charge))
    assert given == {"ann": 3, "bob": 4}
    assert {type(what) for what in came} == {Charge, BudgetError}


def test_one_question_and_one_idempotency_key_are_charged_once_in_a_transaction(ledger: SqliteLedger) -> None:
    key, other = Request("k" * 64, "b" * 64), Request("k" * 64, "c" * 64)
    tasks: list[Task] = [lambda: ask(ledger, "a", request=key)] * 20 + [lambda: ask(ledger, "b", request=other)] * 5
    came = together(ledger, tasks)
    assert {what.id for what in came[:20]} == {came[0].id}
    assert sum(what.fresh for what in came[:20]) == 1
    assert {type(what) for what in came[20:]} == {ConflictError}
    assert charges(ledger) == ["a"], "a request that is refused for its key has charged nothing"
    assert [entry.kind for entry in ledger.entries()].count("request") == 1


def test_of_several_answers_to_one_charge_in_a_transaction_the_first_is_kept(ledger: SqliteLedger) -> None:
    charge = ask(ledger, "a")
    came = together(ledger, [lambda i=i: ledger.record(charge, b"%d" % i) for i in range(20)])
    assert {what.payload for what in came} == {b"0"}
    assert [entry.kind for entry in ledger.entries()].count("answer") == 1


# -- faults ------------------------------------------------------------------------------------------------------------

LOST = ("group:begin", "charge:entry", "charge:spend", "charge:row", "group:commit")
FAULTS = (sqlite3.OperationalError("disk I/O error"), sqlite3.OperationalError("database or disk is full"))


@pytest.mark.parametrize("fault", FAULTS, ids=("io", "full"))
@pytest.mark.parametrize("at", LOST)
def test_after_a_fault_no_change_of_the_transaction_is_made(
    ledger: SqliteLedger, steps: Steps, at: str, fault: Exception
) -> None:
    ask(ledger, "before")
    tasks: list[Task] = [lambda i=i: ask(ledger, f"{i}") for i in range(20)]
    tasks.insert(5, lambda: ask(ledger, "bob's", "bob", most=0))
    entries = ledger.verify()
    steps.fails[at] = fault
    came = together(ledger, tasks)
    assert {type(what) for what in came} == {LedgerError}, "and a refusal may rest on what did not happen"
    assert not steps.fails
    assert (charges(ledger), ledger.verify(), ledger.anchor.require().seq) == (["before"], entries, entries)
    came = together(ledger, tasks)
    assert sum(isinstance(what, Charge) and what.fresh for what in came) == 20
    assert isinstance(came[5], BudgetError)


def test_a_fault_after_the_commit_keeps_the_charges_and_sends_no_answer(ledger: SqliteLedger, steps: Steps) -> None:
    """A charge that is on disk but not covered by the anchor is paid for; asking again returns it and costs nothing."""
    tasks: list[Task] = [lambda i=i: ask(ledger, f"{i}") for i in range(20)]
    paid = together(ledger, tasks)
    steps.fails["group:anchor"] = LedgerError("the anchor could not be written; nothing was answered")
    came = together(ledger, [lambda c=c: ledger.record(c, c.id.encode()) for c in paid])
    assert {type(what) for what in came} == {LedgerError}
    assert len(charges(ledger)) == 20
    behind = ledger.anchor.require().seq
    came = together(ledger, tasks)
    assert behind < ledger.anchor.require().seq == list(ledger.entries())[-1].seq, "before anyone gets an answer"
    assert not any(what.fresh for what in came)
    assert [what.payload for what in came] == [what.id.encode() for what in paid]
    assert ledger.standing("people").spent == len(charges(ledger)) == 20
    assert ledger.anchor.require().seq == ledger.verify()


def test_an_interrupted_leader_fails_the_other_changes_and_leaves_the_ledger_valid(
    ledger: SqliteLedger, steps: Steps
) -> None:
    steps.fails["charge:row"] = KeyboardInterrupt()
    came = together(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(10)])
    assert isinstance(came[0], KeyboardInterrupt)
    assert {type(what) for what in came[1:]} == {LedgerError}
    assert charges(ledger) == []
    assert ask(ledger, "after").fresh


@pytest.mark.parametrize("stage", ["charge", "record"])
def test_a_lock_that_cannot_be_opened_fails_every_queued_change_once(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Every thread gets the error, no failed change is made later, and asking again works."""
    real = os.open

    def refuse(path: Any, *more: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *more)

    paid = [ask(ledger, f"{i}") for i in range(5)] if stage == "record" else []
    tasks: list[Task] = [lambda i=i: ask(ledger, f"{i}") for i in range(5)]
    if stage == "record":
        tasks = [lambda c=c: ledger.record(c, c.question.encode()) for c in paid]
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        came = together(ledger, tasks)
    assert {type(what) for what in came} == {LedgerError}
    ledger.record(ask(ledger, "other"), b"other")
    assert ledger.standing("people").spent == (6 if stage == "record" else 1)
    assert [charge.question for charge in ledger.charges() if charge.answered] == ["other"]
    again = [ledger.record(ask(ledger, f"{i}"), f"{i}".encode()) for i in range(5)]
    assert [charge.payload for charge in again] == [f"{i}".encode() for i in range(5)]
    assert ledger.standing("people").spent == 6


def test_a_leader_that_failed_leaves_the_queue_before_the_next_one_leads(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of a thread that was queued later is made without the failed one."""
    queue, other = ledger._queue, QueuedChange("settle", lambda: None)
    join = queue.join

    def join_before_another(mine: QueuedChange[Any]) -> None:
        join(mine)
        join(other)

    def refuse(self: SqliteLedger) -> None:
        raise LedgerError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(queue, "join", join_before_another)
        patch.setattr(SqliteLedger, "_turn", refuse)
        with pytest.raises(LedgerError, match="busy"):
            ask(ledger, "a")
    assert other.leads
    assert queue.take() == [other]
    queue.leave(other)


def test_a_closed_ledger_refuses_every_queued_change(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.open_plan(plan(100))
    with waiting(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(10)]) as came:
        ledger.close()
    assert {str(what) for what in came} == {"the ledger is closed"}


# -- forks -------------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], bool]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_drops_the_changes_queued_by_threads_of_the_parent(ledger: SqliteLedger) -> None:
    with waiting(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(20)]) as came:
        assert in_child(lambda: ask(ledger, "in the child").fresh) == 0
    assert all(charge.fresh for charge in came)
    assert charges(ledger) == ["in the child", *(f"{i}" for i in range(20))]


def test_a_grandchild_drops_the_changes_queued_by_threads_of_its_parent(ledger: SqliteLedger) -> None:
    """The threads of the child stay queued; only the queue of the grandchild is empty."""

    def child() -> bool:
        with waiting(ledger, [lambda i=i: ask(ledger, f"{i}") for i in range(5)]) as came:
            found = in_child(lambda: ask(ledger, "in the grandchild").fresh)
        return found == 0 and all(charge.fresh for charge in came)

    assert in_child(child) == 0
    assert charges(ledger) == ["in the grandchild", *(f"{i}" for i in range(5))]


# -- the line ----------------------------------------------------------------------------------------------------------


def stand(group: CommitQueue, n: int) -> list[QueuedChange[int]]:
    line = [QueuedChange("charge", lambda i=i: i) for i in range(n)]
    for each in line:
        group.join(each)
    return line


def test_the_lead_is_passed_to_the_first_queued_thread() -> None:
    group = CommitQueue()
    line = stand(group, 4)
    assert [each.leads for each in line] == [True, False, False, False]
    assert group.take() == line
    later = stand(group, 2)
    assert not any(each.leads for each in later), "the first still leads"
    group.leave(line[0])
    assert [each.leads for each in later] == [True, False]
    assert group.take() == later
    group.leave(later[0])
    assert stand(group, 1)[0].leads, "nobody led"


def test_a_thread_that_gives_up_leaves_the_queue_and_passes_on_the_lead() -> None:
    group = CommitQueue()
    first, second, third = stand(group, 3)
    group.leave(second)
    group.leave(first)
    assert third.leads
    third.wait()
    assert group.take() == [third]


def test_the_queue_of_a_child_is_empty() -> None:
    group = CommitQueue()
    stand(group, 3)
    group.forget()
    assert group.take() == []
    assert stand(group, 1)[0].leads


# -- answers of other processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["requested", "charge_of", "charge"])
def test_a_replay_moves_the_anchor_if_the_recorder_of_the_answer_died_before_moving_it(
    tmp_path: Path, way: str
) -> None:
    """The process that recorded the answer stops before it moves the anchor; another process replays the answer."""
    request, steps = Request("k" * 64, "b" * 64), Steps()
    first = opened(tmp_path, step=steps)
    first.open_plan(plan(10))
    second = opened(tmp_path)
    charge = ask(first, "a", request=request)
    steps.fails["answer:anchor"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        first.record(charge, b"x")
    last = list(second.entries())[-1]
    assert (last.kind, second.anchor.require().seq) == ("answer", last.seq - 3), "the charge, the request, the answer"
    ways: dict[str, Callable[[], Charge | None]] = {
        "requested": lambda: second.find_request("ann", request),
        "charge_of": lambda: second.charge_of(charge.id),
        "charge": lambda: ask(second, "a"),
    }
    found = ways[way]()
    assert found is not None
    assert found.payload == b"x"
    assert second.anchor.require().seq == last.seq
    first.close()
    second.close()


# -- those who read ----------------------------------------------------------------------------------------------------


class Open:
    """A connection that knows whether it is closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_readers_never_wait_and_reuse_connections() -> None:
    made: list[Open] = []
    readers = ReaderPool(lambda: made.append(Open()) or made[-1])  # type: ignore[func-returns-value]
    with readers.borrow() as first, readers.borrow() as second:
        assert first is not second
    with readers.borrow() as third:
        assert third in made
    assert len(made) == 2
    with readers.borrow() as late:
        readers.close()
        assert not late.closed
    assert [each.closed for each in made] == [True, True]
    with pytest.raises(LedgerError, match=r"^the ledger is closed$"), readers.borrow():
        pass


def test_a_fork_does_not_wait_for_a_connection_that_failed_to_open() -> None:
    def broken() -> Open:
        raise sqlite3.OperationalError("unable to open database file")

    readers = ReaderPool(broken)
    with pytest.raises(sqlite3.OperationalError), readers.borrow():
        pass
    readers.close_before_fork()
    readers.resume_after_fork()


@pytest.mark.slow  # many threads and processes
def test_forks_while_threads_read_leave_both_processes_working(ledger: SqliteLedger) -> None:
    over, read = threading.Event(), Counter[int]()

    def work(me: int) -> None:
        while not over.is_set():
            read[me] += ledger.standing("people").left

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for i in range(20):
            assert (
                in_child(lambda i=i: ask(ledger, f"in child {i}").fresh and ledger.standing("people").spent == i + 1)
                == 0
            )
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert len(read) == 4
    assert ledger.standing("people").spent == 20
