"""After kill -9 anywhere in a publication: no second noise for a recorded measurement, nothing lost, a resume works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from countveil.curator.curator import Curator
from countveil.publication.publication import Publication
from tests.support.published import copy_place, open_place

pytestmark = pytest.mark.faults

WORKER = """
import json, os, signal, sys
from countveil.curator.curator import Curator

folder, at, told = sys.argv[1], int(sys.argv[2]), sys.argv[3]
passed = []

def step(name):
    passed.append(name)
    if len(passed) == at:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(module, name):
    whole = getattr(module, name)
    def watched(*args, **more):
        step(name + ":before")
        result = whole(*args, **more)
        step(name + ":after")
        return result
    setattr(module, name, watched)

import countveil.curator.publishing as publishing
import countveil.data.engines.engine as engine
import countveil.publication.folder as files
import countveil.publication.writing as writing
watch(engine.SqlEngine, "count")
watch(publishing, "draw_counts")
watch(writing, "write_columns")
watch(files.os, "rename")
with Curator.open(folder + "/countveil.toml") as curator:
    curator.ledger._step = step
    curator.publish("census", output=folder + "/out")
with open(told, "w") as file:
    json.dump(passed, file)
"""


def publish(folder: Path, at: int = 0) -> list[str]:
    """Publish in another process, which is killed at the step with this number; the steps that it passed."""
    told = folder.parent / f"{folder.name}.steps"
    ended = subprocess.run([sys.executable, "-c", WORKER, folder, str(at), told], check=False, env=os.environ)
    assert ended.returncode == (-signal.SIGKILL if at else 0)
    return json.loads(told.read_text()) if not at else []


def recorded(folder: Path) -> dict[str, Any]:
    """The payloads on record, by grade."""
    with Curator.open(folder / "countveil.toml") as curator:
        charges = [curator.ledger.charge_of(each.id) for each in curator.ledger.charges()]
    return {charge.grade: charge.payload for charge in charges if charge is not None}


@pytest.fixture(scope="module", autouse=True)
def opened() -> None:
    open_place()


def test_after_a_kill_at_any_step_no_measurement_is_lost_or_drawn_twice(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    copy_place(whole)
    steps = publish(whole)
    assert {"charge:entry", "charge:spend", "count:before", "draw_counts:after", "answer:row"} <= set(steps)
    assert {"write_columns:before", "rename:before", "rename:after"} <= set(steps)
    chosen = sorted({*range(1, steps.index("write_columns:before") + 3), len(steps) - 1, len(steps)})
    for at in chosen:
        folder = tmp_path / f"step{at}"
        copy_place(folder)
        publish(folder, at)
        before = recorded(folder)
        assert len(set(map(bool, before.values()))) <= 1, "all tables are recorded together"
        out = folder / "out"
        assert not out.exists() or not Publication.open(out).verify()
        with Curator.open(folder / "countveil.toml") as curator:
            published = curator.publish("census", output=out)
            assert published.verify() == []
            assert {grade.answers_left for grade in curator.budget()[0].grades} == {1}
        after = recorded(folder)
        assert after.keys() >= before.keys()
        assert all(payload is None or after[grade] == payload for grade, payload in before.items())
        assert published.replayed == (bool(before) and all(before.values()))


def test_processes_that_publish_at_once_publish_the_same_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    copy_place(folder)
    command = "import sys; from countveil.curator.curator import Curator\n"
    command += "with Curator.open(sys.argv[1] + '/countveil.toml') as c: c.publish('census', output=sys.argv[2])"
    outputs = [folder / f"out{i}" for i in range(4)]
    processes = [subprocess.Popen([sys.executable, "-c", command, folder, out]) for out in outputs]
    assert [process.wait() for process in processes] == [0] * 4
    texts = {(out / "manifest.json").read_text() for out in outputs}
    assert len(texts) == 1
    with Curator.open(folder / "countveil.toml") as curator:
        assert {grade.answers_left for grade in curator.budget()[0].grades} == {1}


def test_numbers_recorded_before_the_disk_is_full_are_published_later(tmp_path: Path) -> None:
    """A quota of the process stands for a full disk: files above it cannot be written."""
    import resource

    folder = tmp_path / "place"
    copy_place(folder)
    command = f"""
import resource, signal, sys
from countveil.cli import main
from countveil.publication import folder, writing
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
whole = writing.write_columns
def limited(*args, **more):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, {resource.RLIM_INFINITY}))
    return whole(*args, **more)
writing.write_columns = limited
sys.argv = ["countveil", "publish", "census", "-c", {str(folder / "countveil.toml")!r}, "-o", {str(folder / "out")!r}]
main()
"""
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "could not be written" in ended.stderr
    assert "publish again, which is free" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (folder / "out").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".out")]
    with Curator.open(folder / "countveil.toml") as curator:
        published = curator.publish("census", output=folder / "out")
        assert (published.replayed, published.verify()) == (True, [])
