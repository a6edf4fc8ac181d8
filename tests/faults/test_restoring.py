"""After kill -9 at any line of a restore, the ledger is refused or settled, and no budget is regained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from countveil.errors import LedgerError
from countveil.ledger.restoration import restore
from tests.support.ledger_workers import KILLED, Place, Workers, plan

SPENT, LATER, ANSWERS = 3, 2, 20


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a backup after 3 answers, 2 later answers, and a log that is not yet copied into the file."""
    folder = tmp_path_factory.mktemp("crashed")
    place = Place(folder / "living").make()
    ledger = place.open()
    ledger.open_plan(plan(ANSWERS))
    for i in range(SPENT):
        ledger.record(ledger.charge("people", "people", 1, f"{i}", "", "ann"), b"x")
    ledger.backup(folder / "living" / "backup")
    for i in range(LATER):
        ledger.record(ledger.charge("people", "people", 1, f"later {i}", "", "ann"), b"y")
    shutil.copytree(place.folder, folder / "dead")
    ledger.close()
    return folder / "dead"


@pytest.mark.parametrize("anchored", [True, False], ids=["with its anchor", "without an anchor"])
def test_a_restore_killed_at_any_line_regains_no_budget(
    workers: Workers, crashed: Path, tmp_path: Path, anchored: bool
) -> None:
    lost = 2 * LATER
    least = SPENT + lost if anchored else ANSWERS
    whole, tell = tmp_path / "whole", tmp_path / "told"

    def prepared(name: str) -> Place:
        place = Place(shutil.copytree(crashed, tmp_path / name))
        if not anchored:
            place.anchor.unlink()
        return place

    def task(place: Place, line: int) -> dict[str, object]:
        copy = str(place.folder / "backup")
        named = {"folder": str(place.folder), "copy": copy, "accept_loss": True, "line": line}
        return {"task": "restoring", **named, "tell": str(tell)}

    assert workers.run(task(prepared(whole.name), 10**9)) == [0]
    total = json.loads(tell.read_text())["lines"]
    outcomes = {"as before": 0, "refused": 0, "settled": 0}
    before = SPENT + LATER
    for line in range(1, total + 1):
        place = prepared(f"{line}")
        assert workers.run(task(place, line)) == [KILLED]
        try:
            ledger = place.open(create=False)
        except LedgerError:
            outcomes["refused"] += 1
        else:
            spent = ledger.standing("people").spent
            assert spent == before or spent >= least, f"budget regained by a kill at line {line}"
            outcomes["as before" if spent == before else "settled"] += 1
            ledger.close()
        lost_now = restore(place.folder / "backup", place.ledger, place.anchor, accept_loss=True)
        ledger = place.open(create=False)
        assert ledger.standing("people").spent == min(ANSWERS, SPENT + lost_now) >= least
        ledger.close()
        shutil.rmtree(place.folder)
    assert outcomes["settled"] > 5
    assert outcomes["refused"] > 0
    assert outcomes["refused"] + outcomes["as before"] > 50
