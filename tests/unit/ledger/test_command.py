"""`countveil ledger`: what it prints, in words and as JSON, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ledgers import answered, filled, opened

CONFIG = """
[ledger]
path = "x.ledger"
anchor = "x.anchor"
[dataset.people]
source = "people.csv"
unit = "row"
[dataset.people.columns]
region = ["North", "South"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "countveil.toml").write_text(CONFIG)
    filled(tmp_path)
    return tmp_path


def run(folder: Path, *words: str, code: int = 0) -> str:
    """The output of a command that succeeds, or the one line of its error."""
    command = [sys.executable, "-m", "countveil", "ledger", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert done.stderr == ""
        return done.stdout
    assert done.stdout == ""
    assert done.stderr.startswith("countveil: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_verify_reports_an_intact_ledger_and_refuses_a_changed_one(folder: Path) -> None:
    assert run(folder, "verify") == "15 entries; the hash chain is intact, the tables and the anchor agree with it\n"
    found = json.loads(run(folder, "verify", "--json"))
    assert found == {"schema_version": 1, "holds": True, "entries": 15, "warnings": []}
    content = bytearray((folder / "x.ledger").read_bytes())
    content[content.index(b"text of a") + 8] = ord("z")
    (folder / "x.ledger").write_bytes(content)
    assert "the ledger was changed" in run(folder, "verify", code=1)


def test_verify_creates_no_ledger(folder: Path) -> None:
    for name in ("x.ledger", "x.anchor"):
        (folder / name).unlink()
    assert "there is no ledger x.ledger" in run(folder, "verify", code=1)
    assert "cannot be read" in run(folder, "verify", "-c", "nothing.toml", code=2)


def test_log_lists_every_entry_without_answers_or_control_characters(folder: Path) -> None:
    ledger = opened(folder)
    ledger.extend("people", 1, "2", "line\x1b[31m\nbreak")
    ledger.close()
    lines = run(folder, "log").splitlines()
    assert len(lines) == 16
    assert "people: 10 answers, epsilon 1, delta 1e-6 together" in lines[1]
    assert lines[7].endswith("charge   ann: text of a")
    assert "\x1b" not in lines[-1]
    entries = json.loads(run(folder, "log", "--json"))["entries"]
    assert [entry["seq"] for entry in entries] == list(range(1, 17))
    assert "answer to a" not in json.dumps(entries)


@pytest.mark.slow  # opens the ledger again and again
def test_restoring_a_backup_charges_the_lost_entries(folder: Path) -> None:
    assert run(folder, "backup", "b1") == "15 entries in b1\n"
    assert "exists" in run(folder, "backup", "b1", code=2)
    assert json.loads(run(folder, "backup", "b2", "--json")) == {"schema_version": 1, "file": "b2", "entries": 15}
    assert run(folder, "restore", "b1") == "nothing was lost\n"
    ledger = opened(folder)
    answered(ledger, "e")
    ledger.close()
    assert "3 entries would be lost; add --accept-loss" in run(folder, "restore", "b1", code=2)
    done = run(folder, "restore", "b1", "--accept-loss")
    assert done == "3 entries were lost; every grade of every pool is charged for as many answers\n"
    told = json.loads(run(folder, "restore", "b1", "--accept-loss", "--json"))
    assert told == {"schema_version": 1, "lost": 4, "plan_lost": False}
    assert "is not a file" in run(folder, "restore", "nothing", code=2)


def test_without_its_anchor_a_ledger_needs_a_confirmed_restore(folder: Path) -> None:
    (folder / "x.anchor").unlink()
    assert "countveil ledger restore --latest" in run(folder, "verify", code=1)
    assert "or --latest if nothing is missing" in run(folder, "restore", code=2)
    assert run(folder, "restore", "--latest") == "nothing was lost\n"
    (folder / "x.anchor").unlink()
    done = run(folder, "restore", "--accept-loss")
    assert done.startswith(
        "the number of lost entries is unknown; every pool counts as spent\na plan may have been lost"
    )
    run(folder, "verify")
