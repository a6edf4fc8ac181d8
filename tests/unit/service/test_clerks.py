"""Counts that wait together are answered together; who takes long holds nobody up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from countveil.errors import BudgetError
from countveil.ledger.grouping import Waiting
from countveil.ledger.steps import Change, Steps
from countveil.service import clerks
from countveil.service.clerks import Clerks


class Made:
    """A ledger that keeps nothing but how many changes came together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def made(self, changes: Sequence[Change]) -> list[Waiting[Any]]:
        self.gate.wait(30)
        self.sizes.append(len(changes))
        line = [Waiting(*change) for change in changes]
        for each in line:
            try:
                each.run()
            except BudgetError as error:
                each.fail(error)
        return line


def work(i: int, change: Callable[[], Any] | None = None) -> Steps[str]:
    found = yield Change("charge", change or (lambda: i))
    return f"{found} in {threading.current_thread().name}"


def run(main: Callable[[Clerks, Made], Any]) -> Made:
    made = Made()

    async def within() -> None:
        here = Clerks(made)
        try:
            await asyncio.wait_for(main(here, made), 30)
        finally:
            here.close()

    asyncio.run(within())
    return made


def test_what_waits_together_is_done_together() -> None:
    async def main(here: Clerks, made: Made) -> None:
        made.gate.clear()
        first = asyncio.create_task(here.value(work(0)))
        await asyncio.sleep(0.02)
        others = [asyncio.create_task(here.value(work(i))) for i in range(1, 31)]
        await asyncio.sleep(0.02)
        made.gate.set()
        found = [(await task).split(" in ") for task in (first, *others)]
        assert [value for value, _ in found] == [f"{i}" for i in range(31)]
        assert len({thread for _, thread in found}) == 1

    assert run(main).sizes == [1, 30]


def test_a_refusal_is_its_own() -> None:
    async def main(here: Clerks, made: Made) -> None:
        def refused() -> None:
            raise BudgetError("people", 0)

        found = await asyncio.gather(here.value(work(1, refused)), here.value(work(2)), return_exceptions=True)
        assert isinstance(found[0], BudgetError)
        assert str(found[1]).startswith("2 in")

    run(main)


def test_what_says_that_it_is_slow_has_a_thread_of_its_own() -> None:
    async def main(here: Clerks, made: Made) -> None:
        go = threading.Event()

        def slow() -> Steps[str]:
            yield None
            go.wait(20)
            return (yield from work(1))

        late = asyncio.create_task(here.value(slow()))
        await asyncio.sleep(0.01)
        begun = time.monotonic()
        quick = await here.value(work(2))
        assert time.monotonic() - begun < 5
        assert not late.done()
        go.set()
        assert (await late).partition(" in ")[0] == "1"
        assert (await late).partition(" in ")[2] != quick.partition(" in ")[2]

    run(main)


def test_a_clerk_that_is_held_up_is_joined_by_another_which_is_then_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clerks, "LONG", 0.02)

    async def main(here: Clerks, made: Made) -> None:
        go = threading.Event()

        def stuck() -> Steps[str]:
            go.wait(20)
            yield from work(1)
            return threading.current_thread().name

        late = asyncio.create_task(here.value(stuck()))
        await asyncio.sleep(0.01)
        others = {(await here.value(work(i))).partition(" in ")[2] for i in range(20)}
        assert not late.done(), "the other came meanwhile"
        assert len(others) == 1, "and stays"
        go.set()
        assert await late not in others
        for _ in range(100):
            if here._clerks == 1:
                break
            await asyncio.sleep(0.02)
        assert here._clerks == 1
        assert (await here.value(work(3))).partition(" in ")[2] in others

    run(main)


def test_no_thread_to_be_had_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clerk that there is stays, and another comes once it can."""
    monkeypatch.setattr(clerks, "LONG", 0.02)

    async def main(here: Clerks, made: Made) -> None:
        go, tried, real = threading.Event(), threading.Event(), threading.Thread.start

        def refused(self: threading.Thread) -> None:
            tried.set()
            raise RuntimeError("can't start new thread")

        def stuck() -> Steps[str]:
            go.wait(20)
            return (yield from work(1))

        monkeypatch.setattr(threading.Thread, "start", refused)
        late = asyncio.create_task(here.value(stuck()))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(here.value(work(2)))
        while not tried.is_set():
            await asyncio.sleep(0.01)
        assert here._clerks == 1
        monkeypatch.setattr(threading.Thread, "start", real)
        assert (await waiting).startswith("2 in")
        assert not late.done()
        go.set()
        assert (await late).startswith("1 in")
        assert (await here.value(work(3))).startswith("3 in")

    run(main)


def test_who_no_longer_waits_does_not_disturb_the_others() -> None:
    async def main(here: Clerks, made: Made) -> None:
        made.gate.clear()
        gone, stays = (asyncio.create_task(here.value(work(i))) for i in range(2))
        await asyncio.sleep(0.02)
        gone.cancel()
        await asyncio.sleep(0)
        made.gate.set()
        assert (await stays).startswith("1 in")

    run(main)


def test_a_fault_of_the_thread_reaches_everyone_and_the_clerk_goes_on() -> None:
    async def main(here: Clerks, made: Made) -> None:
        def fault() -> None:
            raise MemoryError

        found = await asyncio.gather(here.value(work(1, fault)), return_exceptions=True)
        assert isinstance(found[0], RuntimeError)
        assert (await here.value(work(2))).startswith("2 in")

    run(main)


def test_close_ends_the_clerks() -> None:
    before = threading.active_count()

    async def main(here: Clerks, made: Made) -> None:
        await here.value(work(1))

    run(main)
    for _ in range(200):
        if threading.active_count() <= before:
            break
        time.sleep(0.02)
    assert threading.active_count() <= before
