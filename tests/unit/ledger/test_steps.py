"""Many works in one thread: their changes in one transaction, and each of them as if it were alone."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from countveil.errors import BudgetError, ConfigError, LedgerError
from countveil.ledger import Asked, Charge, grouping
from countveil.ledger.grouping import Waiting
from countveil.ledger.sqlite import SqliteLedger
from countveil.ledger.steps import Change, Done, Steps, alone, together
from tests.support.ledgers import opened, plan

ANSWERS = 500


@pytest.fixture
def begun() -> list[str]:
    """What the ledger was about to do."""
    return []


@pytest.fixture
def ledger(tmp_path: Path, begun: list[str]) -> Iterator[SqliteLedger]:
    made = opened(tmp_path, step=begun.append)
    made.open_plan(plan(ANSWERS))
    begun.clear()
    yield made
    made.close()


def answering(ledger: SqliteLedger, question: str, log: list[str] | None = None, **more: Any) -> Steps[Charge]:
    charge = yield from ledger.charging(Asked("people", "people", 1, question, question, "ann"), **more)
    if log is not None:
        log.append(f"charged {question}")
    if charge.payload is None:
        charge = yield from ledger.recording(charge, question.encode())
    return charge


def ended(ledger: SqliteLedger, works: list[Steps[Any]]) -> dict[int, Done]:
    return {done.number: done for stage in together(ledger, works) for done in stage}


def transactions(begun: list[str]) -> int:
    return sum(name.endswith(":begin") for name in begun)


@pytest.mark.parametrize("many", [1, 2, 60])
def test_many_works_take_two_transactions(ledger: SqliteLedger, begun: list[str], many: int) -> None:
    log: list[str] = []
    found = ended(ledger, [answering(ledger, f"{i}", log) for i in range(many)])
    assert transactions(begun) == 2
    assert [found[i].value.payload for i in range(many)] == [f"{i}".encode() for i in range(many)]
    assert log == [f"charged {i}" for i in range(many)]
    assert ledger.standing("people").spent == many
    ledger.verify()


@pytest.mark.parametrize("most", [1, 3])
def test_more_works_than_a_transaction_takes(
    ledger: SqliteLedger, begun: list[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(grouping, "MOST", most)
    found = ended(ledger, [answering(ledger, f"{i}") for i in range(9)])
    assert transactions(begun) == 2 * 9 // most
    assert {found[i].value.payload for i in range(9)} == {f"{i}".encode() for i in range(9)}


def test_the_same_question_twice_is_charged_once_and_has_one_answer(ledger: SqliteLedger) -> None:
    found = ended(ledger, [answering(ledger, "same") for _ in range(5)])
    assert len({done.value.id for done in found.values()}) == 1
    assert ledger.standing("people").spent == 1
    assert len(list(ledger.charges())) == 1
    ledger.verify()


def test_one_that_is_refused_leaves_the_others_alone(ledger: SqliteLedger) -> None:
    found = ended(ledger, [answering(ledger, f"{i}", most=2) for i in range(5)])
    assert [type(found[i].error) for i in range(5)] == [type(None)] * 2 + [BudgetError] * 3
    assert ledger.standing("people").spent == 2


def test_those_that_are_done_are_told_before_the_others_go_on(ledger: SqliteLedger) -> None:
    alone(ledger, answering(ledger, "known"))

    def wrong() -> Steps[None]:
        raise ConfigError("dataset", "wrong")
        yield None

    stages = list(together(ledger, [answering(ledger, "new"), answering(ledger, "known"), wrong()]))
    assert [[each.number for each in stage] for stage in stages] == [[1, 2], [0]]
    assert isinstance(stages[0][1].error, ConfigError)


def test_a_slow_one_is_left_where_it_is_and_goes_on_elsewhere(ledger: SqliteLedger) -> None:
    def slow() -> Steps[Charge]:
        yield None
        return (yield from answering(ledger, "slow"))

    works: list[Steps[Charge]] = [slow(), answering(ledger, "quick")]
    found = ended(ledger, works)
    assert found[0] == Done(0, slow=True)
    assert found[1].value.payload == b"quick"
    assert alone(ledger, works[0]).payload == b"slow"
    assert alone(ledger, slow()).payload == b"slow"


def test_a_fault_of_the_ledger_reaches_every_work_where_it_waits(ledger: SqliteLedger) -> None:
    caught: list[str] = []

    def full() -> None:
        raise LedgerError("full")

    def careful(i: int) -> Steps[str]:
        try:
            yield Change("charge", full)
        except LedgerError:
            caught.append(f"{i}")
            raise
        return ""

    found = ended(ledger, [careful(0), careful(1), answering(ledger, "with them")])
    assert caught == ["0", "1"]
    assert {type(done.error) for done in found.values()} == {LedgerError}
    assert ledger.standing("people").spent == 0
    assert alone(ledger, answering(ledger, "after")).payload == b"after"


@pytest.mark.parametrize("stage", ["charge", "record"])
def test_a_ledger_that_cannot_be_had_is_a_fault_of_all_and_of_nobody_later(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The lock of the anchor could not be opened: every work is told where it waits, and ends."""
    real, ends = os.open, []

    def careful(question: str) -> Steps[Charge]:
        try:
            return (yield from answering(ledger, question, log))
        except BaseException as error:
            ends.append(type(error))
            raise

    class Log(list[str]):
        def append(self, line: str) -> None:
            full()

    def refused(path: Any, *more: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *more)

    def full() -> None:
        monkeypatch.setattr(os, "open", refused)

    log = Log() if stage == "record" else None
    if stage == "charge":
        full()
    found = ended(ledger, [careful(f"{i}") for i in range(5)])
    monkeypatch.setattr(os, "open", real)
    assert ends == [LedgerError] * 5
    assert {type(done.error) for done in found.values()} == {LedgerError}
    alone(ledger, answering(ledger, "other"))  # with which nothing is made of what was said to have failed
    assert ledger.standing("people").spent == (6 if stage == "record" else 1)
    assert [charge.text for charge in ledger.charges() if charge.answered] == ["other"]
    again = ended(ledger, [answering(ledger, f"{i}") for i in range(5)])
    assert [again[i].value.payload for i in range(5)] == [f"{i}".encode() for i in range(5)]
    assert ledger.standing("people").spent == 6
    ledger.verify()


def test_what_failed_is_out_of_line_before_someone_else_leads(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone stood between two of ours, and leads next: ours are not made with theirs."""
    group, others = ledger._group, []
    join = group.join

    def joined(*change: Any) -> Waiting[Any]:
        mine = join(*change)
        if not others:
            others.append(join("settle", lambda: None))
        return mine

    def refused(self: SqliteLedger) -> None:
        raise LedgerError("busy")

    monkeypatch.setattr(group, "join", joined)
    monkeypatch.setattr(SqliteLedger, "_turn", refused)
    found = ended(ledger, [answering(ledger, f"{i}") for i in range(3)])
    assert {type(done.error) for done in found.values()} == {LedgerError}
    assert others[0].leads
    assert group.take() == others
    group.leave(*others)


def test_works_that_nobody_goes_on_with_are_ended_at_once(ledger: SqliteLedger) -> None:
    left: list[int] = []

    def work(i: int) -> Steps[int]:
        try:
            if i == 0:
                return 0
            yield Change("settle", lambda: None)
        finally:
            left.append(i)
        return i

    stages = together(ledger, [work(i) for i in range(3)])
    assert [done.number for done in next(stages)] == [0]
    stages.close()  # type: ignore[attr-defined]
    assert left == [0, 1, 2]


def test_an_interrupt_ends_a_work_where_it_waits(ledger: SqliteLedger) -> None:
    left: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def work() -> Steps[None]:
        try:
            yield Change("charge", interrupted)
        finally:
            left.append("left")

    with pytest.raises(KeyboardInterrupt):
        alone(ledger, work())
    assert left == ["left"]
    with pytest.raises(KeyboardInterrupt):
        ended(ledger, [answering(ledger, "a"), work(), answering(ledger, "b")])
    assert left == ["left"] * 2
    assert ledger.standing("people").spent == 0
    assert alone(ledger, answering(ledger, "after")).payload == b"after"


def test_threads_that_work_on_many_and_threads_that_work_on_one(ledger: SqliteLedger) -> None:
    """They share the line; nobody is forgotten, nothing is charged twice."""
    came: list[Done | Charge] = []

    def many(first: int) -> Callable[[], object]:
        return lambda: came.extend(ended(ledger, [answering(ledger, f"{first + i}") for i in range(10)]).values())

    def single(i: int) -> Callable[[], object]:
        return lambda: came.append(alone(ledger, answering(ledger, f"{i}")))

    tasks = [*(many(first) for first in range(0, 200, 10)), *(single(i) for i in range(180, 230))]
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(came) == 200 + 50
    assert all(each.error is None for each in came if isinstance(each, Done))
    assert ledger.standing("people").spent == 230
    ledger.verify()
