"""A new ledger in place of the one used before would give its budget back: it is begun only on the record."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from countveil.config.configuration import load
from countveil.config.ledger_places import MEMORY
from countveil.curator.curator import Curator
from countveil.errors import ConfigError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor
from tests.support.curated import config_text, people, runner, with_plan, written
from tests.support.ledgers import database

TOTAL = "SELECT count(*) FROM people"
NOTE = "this ledger was begun in place of an earlier one, whose answers are not in epsilon: countveil ledger log"


def configure(folder: Path, ledger: str = "", name: str = "countveil.toml") -> Path:
    """The configuration with this [ledger] section."""
    return written(folder, f"[ledger]\n{ledger}\n{config_text()}", name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ledger has one answer left of four."""
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    with_plan(configure(tmp_path))
    with Curator.open(configure(tmp_path)) as curator:
        for age in (1, 2, 3):
            curator.count(f"{TOTAL} WHERE age > {age}")
    return tmp_path


def refuse(path: Path, before: str) -> None:
    """Check that no ledger is begun, and that nothing is left of the attempt."""
    files = sorted(os.listdir(path.parent))
    with pytest.raises(
        ConfigError, match=rf"there is no ledger .*, and this configuration used {before} before:"
    ) as error:
        Curator.open(path)
    assert "\n" not in str(error.value)
    assert "begin a new one on the record with --new-ledger" in str(error.value)
    assert sorted(os.listdir(path.parent)) == files


def check_begun(path: Path, before: list[str]) -> None:
    """Check that a ledger is begun if a curator says so, and says it in its first entry and with every budget."""
    with Curator.open(path, new_ledger=True) as curator:
        assert next(iter(curator.ledger.entries())).body["instead_of"] == before
        assert curator.budget()[0].notes == (NOTE,)
    with Curator.open(path) as curator:
        assert curator.budget()[0].notes == (NOTE,)
        assert curator.ledger.verify() > 0
    with pytest.raises(RequestError, match="exists already; leave out --new-ledger"):
        Curator.open(path, new_ledger=True)


def test_another_file_is_no_new_budget(folder: Path) -> None:
    path = configure(folder, 'path = "other.ledger"')
    refuse(path, "countveil.ledger")
    check_begun(path, ["countveil.ledger"])
    with Curator.open(configure(folder)) as curator:  # the first ledger is used as before
        assert (curator.budget()[0].answers_left, curator.budget()[0].notes) == (1, ())
    refuse(configure(folder, 'path = "third.ledger"'), "countveil.ledger, other.ledger")


@pytest.mark.postgres
def test_a_ledger_on_a_server_is_no_new_budget(folder: Path) -> None:
    location = database()
    server = f'path = "{location}"\nanchor = "server.anchor"'
    refuse(configure(folder, server), "countveil.ledger")
    check_begun(folder / "countveil.toml", ["countveil.ledger"])
    refuse(configure(folder, f'path = "{database()}"\nanchor = "next.anchor"'), "countveil.ledger, postgresql://.*")
    with Curator.open(configure(folder, server)) as curator:
        assert curator.ledger.begun is None


@pytest.mark.parametrize(
    "first", ['path = "mine.ledger"\nanchor = "elsewhere/mine.anchor"', 'path = "elsewhere/mine.ledger"']
)
def test_a_ledger_that_was_used_before_is_remembered_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with_plan(configure(tmp_path, first))
    Curator.open(configure(tmp_path, first)).close()
    refuse(configure(tmp_path, 'path = "other.ledger"'), "(elsewhere/)?mine.ledger")
    refuse(configure(tmp_path), "(elsewhere/)?mine.ledger")
    monkeypatch.setenv("COUNTVEIL_LEDGER", str(tmp_path / "elsewhere" / "next.ledger"))
    monkeypatch.setenv("COUNTVEIL_ANCHOR", str(tmp_path / "elsewhere" / "next.anchor"))
    refuse(configure(tmp_path), "(elsewhere/)?mine.ledger")
    assert stat.S_IMODE((tmp_path / MEMORY).stat().st_mode) == 0o600


def test_a_ledger_that_was_removed_with_its_anchor_is_no_new_budget(folder: Path) -> None:
    for place in folder.glob("countveil.ledger*"):
        place.unlink()
    refuse(folder / "countveil.toml", "countveil.ledger")
    check_begun(folder / "countveil.toml", ["countveil.ledger"])


@pytest.mark.parametrize("left", ["countveil.ledger", "countveil.ledger.anchor"])
def test_what_lies_at_the_default_place_was_used_before_even_if_nothing_remembers_it(folder: Path, left: str) -> None:
    for place in [folder / MEMORY, *folder.glob("countveil.ledger*")]:
        if place.name != left:
            place.unlink()
    refuse(configure(folder, 'path = "other.ledger"'), left)


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"a": 1}'])
def test_a_memory_that_cannot_be_read_counts_as_a_ledger_used_before(tmp_path: Path, content: bytes) -> None:
    people(tmp_path)
    (tmp_path / MEMORY).write_bytes(content)
    refuse(configure(tmp_path), re.escape(MEMORY))


def test_reading_a_ledger_begins_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(folder, 'path = "other.ledger"')
    ledger = runner(monkeypatch, capsys, "ledger")
    for command in ("verify", "log"):
        assert ledger(command).err == "countveil: there is no ledger other.ledger\n"
    with pytest.raises(LedgerError, match=r"there is no ledger other\.ledger"):
        load(folder / "countveil.toml").open_ledger(create=False)
    assert not list(folder.glob("other.ledger*"))


def test_the_commands_that_begin_ledgers_have_the_option(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, (command, *words) in enumerate([("count", TOTAL, "--dry-run"), ("budget",), ("count", TOTAL)]):
        configure(folder, f'path = "other{i}.ledger"')
        run = runner(monkeypatch, capsys, command)
        refused = run(*words)
        assert (refused.code, refused.out) == (2, "")
        assert "begin a new one on the record with --new-ledger" in refused.err
        begun = run(*words, "--new-ledger")
        assert begun.code == 0
        assert f"created a new ledger: other{i}.ledger" in begun.err
        assert run(*words).code == 0
    assert " ".join(runner(monkeypatch, capsys, "budget")().out.split()).endswith(f"- {NOTE}")
    log = runner(monkeypatch, capsys, "ledger")
    assert "the ledger is created with --new-ledger in place of: countveil.ledger, other0.ledger" in log("log").out
    first = json.loads(log("log", "--json").out)["entries"][0]
    assert first["instead_of"] == ["countveil.ledger", "other0.ledger", "other1.ledger"]
    for command, *words in (("count", TOTAL), ("budget",)):
        refused = runner(monkeypatch, capsys, command)(*words, "--new-ledger", "--url", "http://127.0.0.1:1")
        assert (refused.code, "--new-ledger" in refused.err) == (2, True)


def test_a_ledger_whose_beginning_was_interrupted_is_begun_on_the_record_only(folder: Path) -> None:
    """The file is there, its first entry is not: as after a kill between the two."""
    path = configure(folder, 'path = "other.ledger"')
    loaded = load(path)
    loaded.anchor.parent.mkdir(exist_ok=True)
    Anchor(loaded.anchor).begin("0" * 32)
    loaded.ledger.touch()
    with pytest.raises(ConfigError, match="begin a new one on the record with --new-ledger"):
        Curator.open(path)
    check_begun(path, ["countveil.ledger"])


def test_a_first_ledger_begun_with_the_option_is_in_place_of_none(tmp_path: Path) -> None:
    people(tmp_path)
    with_plan(configure(tmp_path))
    for place in tmp_path.glob("countveil.*ledger*"):
        place.unlink()
    with Curator.open(configure(tmp_path), new_ledger=True) as curator:
        assert "instead_of" not in next(iter(curator.ledger.entries())).body
        assert curator.budget()[0].notes == ()
