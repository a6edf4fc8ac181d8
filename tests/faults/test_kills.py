"""After hundreds of kill -9: no answer without a charge, no double charge, no second draw of noise, and a restart
works.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger_workers import KILLED, Place, Workers, audit, plan

AT_RANDOM = 140
AT_LINES = 120
CYCLES: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def enough() -> Iterator[None]:
    """After all three tests, in whatever order they ran, check that there were many kills."""
    yield
    if len(CYCLES) == 3:
        assert sum(CYCLES.values()) >= 300, CYCLES


def test_a_kill_at_any_statement_charges_nothing_twice(workers: Workers, tmp_path: Path) -> None:
    """One kill at each statement, from the first one of an empty ledger to the last one of a replay. The pool has two
    grades, with shares of both.
    """
    questions = ["a", "b@fine", "a"]
    task = {"task": "answering", "questions": questions, "answers": 5, "others": {"fine": 2}, "share": 1}
    whole = Place(tmp_path / "whole").make()
    tell = str(tmp_path / "told")
    assert workers.run({**task, "folder": str(whole.folder), "tell": tell}) == [0]
    steps = json.loads(Path(tell).read_text())["steps"]
    expected = {"open:entry", "plan:entry", "plan:pool", "plan:grade", "share:entry", "share:row", "version:entry"}
    expected |= {"version:row", "charge:begin", "charge:entry", "charge:spend", "charge:share", "charge:row"}
    expected |= {"charge:commit", "answer:begin", "answer:entry", "answer:row", "answer:commit"}
    assert expected | {"answer:anchor", "migrate", "migrate:commit", "verify:anchor"} <= set(steps)
    for k in range(1, len(steps) + 1):
        place = Place(tmp_path / f"step{k}").make()
        assert workers.run({**task, "folder": str(place.folder), "die_at_step": k}) == [KILLED]
        audit(place)
        assert workers.run({**task, "folder": str(place.folder)}) == [0]
        found = audit(place)
        assert found["charges"] == 2
        assert found["sent"] >= 3
        ledger = place.open()
        assert {name: (each.answers, each.spent) for name, each in ledger.standings("people").items()} == {
            "standard": (5, 1),
            "fine": (2, 1),
        }
        ledger.close()
        CYCLES["statements"] += 1


def test_a_kill_at_any_line_charges_nothing_twice(workers: Workers, tmp_path: Path) -> None:
    """Also between statements: in the code of the anchor, before and after its file is renamed."""
    task = {"task": "answering", "questions": ["a", "b", "a"], "answers": 5}
    tell = tmp_path / "told"
    whole = Place(tmp_path / "whole").make()
    assert workers.run({**task, "folder": str(whole.folder), "line": 10**9, "tell": str(tell)}) == [0]
    total = json.loads(tell.read_text())["lines"]
    assert total > 1000
    for k in range(AT_LINES):
        place = Place(tmp_path / f"line{k}").make()
        line = 1 + k * (total - 1) // AT_LINES
        assert workers.run({**task, "folder": str(place.folder), "line": line}) == [KILLED]
        audit(place)
        assert workers.run({**task, "folder": str(place.folder)}) == [0]
        assert audit(place)["charges"] == 2
        CYCLES["lines"] += 1


def test_kills_at_random_moments_charge_nothing_twice(workers: Workers, tmp_path: Path) -> None:
    """Three processes on one ledger, with questions in common, killed together at a random moment, again and again."""
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    ledger.close()
    rng = random.Random(5)
    sent = charges = 0
    for cycle in range(AT_RANDOM):
        questions = [f"{cycle}.{i}" for i in range(400)]
        tasks = [
            {"task": "answering", "folder": str(tmp_path), "questions": rng.sample(questions, len(questions))}
            for _ in range(3)
        ]
        begun = cycle % 2 == 0  # about every other time while they still open the ledger
        when = {"kill_after": rng.uniform(0, 0.01 if begun else 0.1), "once_sent": rng.randint(1, 6) if begun else 0}
        assert workers.run(*tasks, **when) == [KILLED] * 3
        found = audit(place, complete=cycle % 4 == 3)
        assert found["sent"] >= sent
        assert found["charges"] >= charges
        sent, charges = found["sent"], found["charges"]
        CYCLES["random"] += 1
    assert sent >= AT_RANDOM // 2
