"""Full disks and failing syncs: the answer is withheld, the charge is kept, restart works."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from countveil.errors import LedgerError
from tests import support
from tests.support.ledger_workers import Place, Workers, audit, plan
from tests.support.needs import miss, need

CONFIG = """
[dataset.people]
source = "people.csv"
unit = "row"
[dataset.people.columns]
region = ["North", "South"]
[dataset.people.budget]
epsilon = "2"
delta = "1e-6"
answers = 5
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers on a disk that can be told to fail."""
    if not Path("/proc/self/fd").exists():
        miss("/proc is missing: it exists on Linux")
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    source = Path(support.__file__).with_name("faulty.c")
    done = subprocess.run([need("cc"), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=False)
    if done.returncode != 0:
        miss("the C compiler makes no shared libraries: make test-system, or apt-get install gcc libc6-dev")
    with Workers(environment={"LD_PRELOAD": str(library)}) as started:
        yield started


@pytest.mark.parametrize("kind", ["syncs", "writes"])
def test_no_answer_is_sent_if_any_sync_or_write_fails(faulty: Workers, tmp_path: Path, kind: str) -> None:
    """Syncs fail with EIO from the k-th on, or writes with ENOSPC, for every k up to those an answer needs."""
    place, tell = Place(tmp_path).make(), tmp_path / "told"
    withheld = 0
    for k in range(100):
        task = {"task": "disk_fault", "folder": str(tmp_path), "tell": str(tell), "question": f"{k}", kind: k}
        assert faulty.run(task) == [0]
        told = json.loads(tell.read_text().splitlines()[-1])
        found = audit(place, complete=False)
        if told["sent"]:
            assert told["tried"] <= k
            break
        withheld += 1
        assert told["said"].endswith(("nothing was answered", "try again")), told
        assert found["charges"] <= withheld
        assert found["sent"] == 0
    assert withheld >= 3, "at least the log for a charge, the log and the anchor for its answer"
    audit(place)


def test_each_step_of_an_answer_is_on_disk_before_the_next_step_begins(faulty: Workers, tmp_path: Path) -> None:
    """The data is read only after the charge is on disk; an answer is sent only after ledger and anchor have it on
    disk.
    """
    place, notes = Place(tmp_path).make(), tmp_path / "notes"
    assert faulty.run({"task": "order_of_syncs", "folder": str(tmp_path), "notes": str(notes)}) == [0]
    names = {
        f"sync {place.ledger}-wal": "log",
        f"sync {place.anchor}": "anchor",
    }
    order = [names.get(line, line) for line in notes.read_text().splitlines()]
    assert order == ["log", "look at the data", "log", "anchor", "send"]


def test_a_full_disk_loses_no_charge(workers: Workers, tmp_path: Path) -> None:
    place, tell = Place(tmp_path).make(), tmp_path / "told"
    for room in (1, 1000, 5000, 20_000, 60_000, 200_000):
        assert workers.run({"task": "out_of_room", "folder": str(tmp_path), "room": room, "tell": str(tell)}) == [0]
        told = json.loads(tell.read_text().splitlines()[-1])
        assert told["said"] is not None
        audit(place)
    assert told["sent"] > 0


def test_an_anchor_that_cannot_be_replaced_stops_answers(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(5))
    charge = ledger.charge("people", "people", 1, "a", "", "ann")
    part = place.anchor.with_name(f".x.anchor.{os.getpid()}.part")
    part.mkdir()
    place.anchor.write_bytes(place.anchor.read_bytes().replace(b" \n", b"\n"))  # does not fit, so a new file is made
    with pytest.raises(LedgerError, match=r"^the anchor could not be written \(.+\); nothing was answered$"):
        ledger.record(charge, b"never sent")
    with pytest.raises(LedgerError, match="nothing was answered"):
        ledger.charge("people", "people", 1, "a", "", "ann")
    ledger.close()
    with pytest.raises(LedgerError, match="nothing was answered"):
        place.open()
    part.rmdir()
    assert audit(place) == {"charges": 1, "open": 0, "sent": 0}


def test_an_anchor_that_disappears_stops_answers_until_it_is_restored(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(5))
    kept = place.anchor.read_bytes()
    place.anchor.unlink()
    charge = ledger.charge("people", "people", 1, "a", "", "ann")
    with pytest.raises(LedgerError, match="the anchor is missing"):
        ledger.record(charge, b"never sent")
    place.anchor.write_bytes(kept)
    assert not ledger.charge("people", "people", 1, "a", "", "ann").fresh
    shutil.rmtree(place.anchor.parent)
    with pytest.raises(LedgerError, match=r"the anchor could not be written \(No such file or directory\)"):
        ledger.charge("people", "people", 1, "b", "", "ann")
    ledger.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_anchor_without_write_permission_stops_answers(tmp_path: Path) -> None:
    place = Place(tmp_path).make()
    ledger = place.open()
    ledger.open_plan(plan(5))
    charge = ledger.charge("people", "people", 1, "a", "", "ann")
    place.anchor.chmod(0o400)
    with pytest.raises(LedgerError, match=r"the anchor could not be written \(Permission denied\)"):
        ledger.record(charge, b"never sent")
    place.anchor.chmod(0o600)
    ledger.close()


def test_a_curator_on_a_full_disk_answers_nothing(tmp_path: Path) -> None:
    """If the disk fills between the charge and the answer, the charge is kept and answered later, once."""
    from countveil.config.configuration import load
    from countveil.curator.curator import Curator
    from countveil.ledger.sqlite import SqliteLedger

    (tmp_path / "countveil.toml").write_text(CONFIG)
    (tmp_path / "people.csv").write_text("region\n" + "North\nSouth\n" * 50)
    config = load(tmp_path / "countveil.toml")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    full_at: list[str] = []

    def step(name: str) -> None:
        if name in full_at:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = SqliteLedger(config.ledger, config.anchor, step=step)
    with Curator(config, ledger) as curator:
        try:
            for spent, where in enumerate(("charge:begin", "charge:commit", "answer:begin", "answer:anchor")):
                sql = f"SELECT count(*) FROM people WHERE region = '{'North' if spent % 2 else 'South'}'"
                curator.dry_run(sql)
                full_at[:] = [where]
                with pytest.raises(LedgerError, match="nothing was answered"):
                    curator.count(sql)
                full_at.clear()
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                answers = [curator.count(sql).released.tolist() for _ in range(2)]
                assert answers[0] == answers[1]
                if spent == 1:
                    (tmp_path / "people.csv").write_text("region\n" + "North\nSouth\n" * 60)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert ledger.standing("people").spent == 4
        assert len(list(ledger.charges())) == 4
        ledger.verify()
