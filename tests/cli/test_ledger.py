"""Neither the output nor the files of a ledger depend on one person, not even through a hash of the data."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import secrets
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countveil.data import source as sources
from tests.support.curated import config_text, people, runner, with_plan, written

BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
NEIGHBOURS = ("NNNSSEW", "NNNSSEWW")


@contextmanager
def same_randomness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the random bytes of the operating system by a fixed sequence."""
    number = itertools.count()

    def coins(size: int = 32) -> bytes:
        return hashlib.shake_256(str(next(number)).encode()).digest(size)

    with monkeypatch.context() as patched:
        patched.setattr(secrets, "token_bytes", coins)
        patched.setattr(secrets, "token_hex", lambda size=32: coins(size).hex())
        patched.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=coins(16)))
        yield


class Session:
    """A curator's session on the command line, with its output and its files."""

    def __init__(self, folder: Path, regions: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        monkeypatch.setattr(sources, "RECENT", 0)  # as if the data had been written long ago
        folder.mkdir()
        self.folder, self.data = folder, people(folder, regions)
        config = written(folder, config_text())
        with_plan(config)
        self.printed = []
        for command, *words in (
            ("count", BY_REGION, "--json"),
            ("count", BY_REGION, "--json"),
            ("count", "SELECT count(*) FROM people WHERE age >= 40"),
            ("budget", "--json"),
            ("ledger", "backup", folder / "backup"),
            ("ledger", "restore", folder / "backup"),
            ("count", BY_REGION, "--json"),
            ("ledger", "verify", "--json"),
            ("ledger", "log"),
            ("ledger", "log", "--json"),
        ):
            done = runner(monkeypatch, capsys, command)(*words, "-c", config)
            assert done.code == 0, done.err
            self.printed.append(re.sub(r"\d{4}-\d\d-\d\dT[\d:]+(\+00:00)?", "TIME", done.out).replace(str(folder), ""))
            if words[-1] == "--json":
                self.log = json.loads(done.out)
        self.receipt = json.loads(self.printed[0])["receipt"]

    @property
    def fingerprint(self) -> str:
        """The fingerprint that anyone with the data can compute."""
        return hashlib.sha256(self.file_hash.encode()).hexdigest()

    @property
    def file_hash(self) -> str:
        return hashlib.sha256(self.data.read_bytes()).hexdigest()

    def recompute(self, fingerprint: str) -> set[str]:
        """The ids of the charges if they were prefixes of the chain's hashes and the data had this fingerprint."""
        previous, ids = "0" * 64, set()
        for entry in self.log["entries"]:
            body = {k: v for k, v in entry.items() if k not in ("seq", "time", "kind", "hash", "id")}
            if entry["kind"] == "version":
                body["fingerprint"] = fingerprint
            text = json.dumps(body, sort_keys=True, separators=(",", ":"))
            whole = f"{previous}\n{entry['seq']}\n{entry['time']}\n{entry['kind']}\n{text}"
            previous = hashlib.sha256(whole.encode()).hexdigest()
            if entry["kind"] == "charge":
                ids.add(previous[:24])
        return ids

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of the ledger's tables without noise, keyed values and hashes of the chain."""
        with closing(sqlite3.connect(self.folder / "countveil.ledger")) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            tables = {name: db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in names}
        hidden = ("keyed_fingerprint", "sha256", "anchor")
        tables["entry"] = [
            (seq, kind, {k: v for k, v in json.loads(body).items() if k not in hidden})
            for seq, _, kind, body, *_ in tables["entry"]
        ]
        tables["version"] = [row[:2] for row in tables["version"]]
        tables["answer"] = [row[:1] for row in tables["answer"]]
        tables["charge"] = [(*row[:7], row[8]) for row in tables["charge"]]
        return tables


class Capture:
    """The output of a command, for fixtures with a longer scope than `capsys`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.readouterr()

    def readouterr(self) -> Any:
        output = SimpleNamespace(out=getvalue(sys.stdout), err=getvalue(sys.stderr))
        self._patch.setattr(sys, "stdout", io.StringIO())
        self._patch.setattr(sys, "stderr", io.StringIO())
        return output


def getvalue(stream: Any) -> str:
    return stream.getvalue() if isinstance(stream, io.StringIO) else ""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Session]:
    """Sessions on two datasets that differ in one person, with the same random bytes."""
    folder, sessions = tmp_path_factory.mktemp("both"), []
    for regions in NEIGHBOURS:
        with pytest.MonkeyPatch.context() as patched, same_randomness(patched):
            sessions.append(Session(folder / regions, regions, patched, Capture(patched)))
    return sessions[0], sessions[1]


def test_ids_cannot_be_recomputed_from_the_log_and_the_data(both: tuple[Session, Session]) -> None:
    """An attacker who knows all other records cannot test for one person with the id of a receipt."""
    for session in both:
        printed = "".join(session.printed)
        for candidate in both:
            for id in session.recompute(candidate.fingerprint):
                assert id not in printed


def test_the_output_for_neighbouring_datasets_differs_only_in_the_released_numbers(
    both: tuple[Session, Session],
) -> None:
    """With the same random bytes, both sessions print the same ids, versions and texts."""
    first, second = both
    for count in (0, 1, 2, 6):
        one, other = (re.sub(r"-?\d+", "N", session.printed[count]) for session in both)
        assert one == other
    assert first.receipt == second.receipt
    assert first.printed[3:6] + first.printed[7:9] == second.printed[3:6] + second.printed[7:9]
    logs = [re.sub(r'"sha256": "[0-9a-f]{64}"', "of the released numbers", session.printed[9]) for session in both]
    assert logs[0] == logs[1]
    members = {name for entry in first.log["entries"] for name in entry}
    assert not members & {"hash", "fingerprint", "keyed_fingerprint", "nonce", "check", "ledger", "anchor"}


def test_the_ledger_tables_of_neighbouring_datasets_differ_only_in_noise_and_keyed_values(
    both: tuple[Session, Session],
) -> None:
    assert both[0].rows() == both[1].rows()


def test_no_file_contains_a_hash_of_the_data(both: tuple[Session, Session]) -> None:
    for session in both:
        files = [file for file in session.folder.iterdir() if file != session.data]
        names = {file.name for file in files}
        assert {"countveil.ledger", "countveil.ledger.anchor", "countveil.ledger.fingerprints", "backup"} <= names
        for hash in (session.file_hash, session.fingerprint):
            for form in (hash.encode(), hash[:24].encode(), bytes.fromhex(hash)):
                assert not [file.name for file in files if form in file.read_bytes()]


def test_the_cache_of_fingerprints_contains_only_keyed_values(both: tuple[Session, Session]) -> None:
    """The cache does not contain the size of the data either."""
    cache = json.loads((both[0].folder / "countveil.ledger.fingerprints").read_bytes())
    assert set(cache) == {"check", "sources"}
    values = [cache["check"], *cache["sources"], *itertools.chain(*cache["sources"].values())]
    assert len(values) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in values)


def test_ids_are_random_and_a_replay_has_the_first_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (Session(tmp_path / name, NEIGHBOURS[0], monkeypatch, capsys) for name in ("one", "other"))
    assert one.receipt["id"] != other.receipt["id"]
    ids = [entry["id"] for entry in one.log["entries"] if entry["kind"] == "charge"]
    assert ids[0] == one.receipt["id"]
    again = json.loads(one.printed[1])
    assert again["replayed"]
    assert again["receipt"]["id"] == one.receipt["id"]


# -- permissions of the files ------------------------------------------------------------------------------------------


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
@pytest.mark.parametrize("links", [True, False])
def test_only_the_owner_can_read_the_files(
    mask: int, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from countveil.ledger import sqlite_connection
    from countveil.ledger.sqlite import SqliteLedger

    def no_links(*paths: object) -> None:
        raise OSError

    copy_modes, real = [], sqlite3.connect

    def connect(path: Any, *rest: Any, **more: Any) -> sqlite3.Connection:
        if isinstance(path, Path):  # a new copy
            copy_modes.append(path.stat().st_mode & 0o777 if path.exists() else -1)
        return real(path, *rest, **more)

    monkeypatch.setattr(sqlite_connection.sqlite3, "connect", connect)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    people(tmp_path)
    config = written(tmp_path, config_text())
    with umask(mask):
        with_plan(config)
        assert runner(monkeypatch, capsys, "count")(BY_REGION, "-c", config).code == 0
        ledger = runner(monkeypatch, capsys, "ledger")
        assert ledger("backup", tmp_path / "backup", "-c", config).code == 0
        assert ledger("restore", tmp_path / "backup", "-c", config).code == 0
        assert runner(monkeypatch, capsys, "keys")("add", "ann", "-c", config).code == 0
        with closing(SqliteLedger(tmp_path / "countveil.ledger", tmp_path / "countveil.ledger.anchor")) as live:
            live.set_share("people", "ann", 1)
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert {
        "countveil.ledger",
        "countveil.ledger-wal",
        "countveil.ledger-shm",
        "countveil.ledger.anchor",
        ".countveil.ledger.anchor.lock",
        "countveil.ledger.replaced",
        "backup",
        "countveil.keys",
        ".countveil.keys.lock",
    } <= set(modes)
    for name in set(modes) - {"people.csv", "countveil.toml"}:
        assert modes[name] == 0o600, name
    assert copy_modes
    assert set(copy_modes) == {0o600}, "a copy has its mode before its first byte"


def test_verify_warns_about_files_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people(tmp_path)
    config = written(tmp_path, config_text())
    with_plan(config)
    runner(monkeypatch, capsys, "keys")("add", "ann", "-c", config)
    run = runner(monkeypatch, capsys, "ledger")
    quiet = run("verify", "-c", config)
    assert (quiet.code, quiet.err) == (0, "")
    exposed = {"countveil.ledger": 0o644, ".countveil.ledger.anchor.lock": 0o620, "countveil.keys": 0o604}
    for name, mode in exposed.items():
        (tmp_path / name).chmod(mode)
    (tmp_path / "countveil.ledger.replaced").touch(mode=0o644)
    (tmp_path / "countveil.ledger.replaced").chmod(0o644)
    done = run("verify", "-c", config)
    assert done.code == 0
    lines = done.err.splitlines()
    assert len(lines) == 4
    for name, mode in {**exposed, "countveil.ledger.replaced": 0o644}.items():
        warning = f"{name} has mode {mode:04o}, so other users may read it; run: chmod 600 {tmp_path / name}"
        assert f"warning: {warning}" in lines
        assert warning in json.loads(run("verify", "--json", "-c", config).out)["warnings"]
