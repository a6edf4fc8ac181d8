"""kill -9, hundreds of times: no answer without a charge, no double charge, no second noise, and restart works."""

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
    """Where all three tests have run, in whatever order, there were many kills."""
    yield
    if len(CYCLES) == 3:
        assert sum(CYCLES.values()) >= 300, CYCLES


def test_killed_at_every_statement(workers: Workers, tmp_path: Path) -> None:
    """From the first statement of an empty ledger to the last of a replay, one kill at each."""
    task = {"task": "answering", "questions": ["a", "b", "a"], "answers": 5, "share": 4}
    whole = Place(tmp_path / "whole").make()
    tell = str(tmp_path / "told")
    assert workers.run({**task, "folder": str(whole.folder), "tell": tell}) == [0]
    steps = json.loads(Path(tell).read_text())["steps"]
    expected = {"open:entry", "plan:entry", "plan:pool", "plan:row", "share:entry", "share:row", "version:entry"}
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
        CYCLES["statements"] += 1


def test_killed_at_lines_of_the_code(workers: Workers, tmp_path: Path) -> None:
    """Also between the statements: in the anchor, before and after its file is renamed, while others are read."""
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


def test_killed_at_random(workers: Workers, tmp_path: Path) -> None:
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
        begun = cycle % 2 == 0  # every other time while they still open the ledger, or thereabouts
        when = {"kill_after": rng.uniform(0, 0.01 if begun else 0.1), "once_sent": rng.randint(1, 6) if begun else 0}
        assert workers.run(*tasks, **when) == [KILLED] * 3
        found = audit(place, complete=cycle % 4 == 3)
        assert found["sent"] >= sent
        assert found["charges"] >= charges
        sent, charges = found["sent"], found["charges"]
        CYCLES["random"] += 1
    assert sent >= AT_RANDOM // 2
