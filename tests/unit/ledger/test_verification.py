"""Every change of a ledger's rows or bytes is detected, or changes nothing that the ledger says."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from countveil.errors import LedgerError
from countveil.ledger.anchor import LENGTH, Anchor, Mark
from countveil.ledger.records import Entry, canonical, entry_hash, seal
from countveil.ledger.verification import replay_entries
from tests.support.ledgers import answered, filled, opened, seen

FLIPS = 2000
TABLES = ("entry", "pool", "grade", "share", "version", "charge", "answer")
Change = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    filled(folder)
    assert sorted(file.name for file in folder.iterdir()) == [".x.anchor.lock", "x.anchor", "x.ledger"]
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return copy(original, tmp_path / "copy")


def copy(original: Path, target: Path) -> Path:
    return Path(shutil.copytree(original, target))


def edit(folder: Path, change: Change) -> None:
    """Edit the file as anyone with SQLite can: without triggers and constraints, and with the original schema
    afterwards.
    """
    with closing(sqlite3.connect(folder / "x.ledger", isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("PRAGMA ignore_check_constraints = ON")
        change(db)
        for _, sql in triggers:
            db.execute(sql)


def refused(folder: Path) -> str:
    anchor = (folder / "x.anchor").read_bytes()
    with pytest.raises(LedgerError) as error:
        opened(folder, create=False)
    assert (folder / "x.anchor").read_bytes() == anchor, "a ledger that is refused moves no anchor"
    assert "\n" not in str(error.value)
    return str(error.value)


def cells(original: Path) -> Iterator[tuple[str, int, str, object]]:
    with closing(sqlite3.connect(f"file:{original}/x.ledger?immutable=1", uri=True)) as db:
        for table in TABLES:
            rows = db.execute(f"SELECT rowid AS place, * FROM {table}")
            names = [column[0] for column in rows.description]
            for row in rows:
                for name, value in list(zip(names, row, strict=True))[1:]:
                    yield table, row[0], name, value


@pytest.mark.slow  # opens the ledger again and again
def test_a_change_in_any_column_of_any_row_is_detected(original: Path, tmp_path: Path) -> None:
    """In every table; values are replaced by another text, number and bytes."""
    changed = edited = 0
    for table, rowid, column, value in cells(original):
        for new in others(value):
            changed += 1
            folder = copy(original, tmp_path / f"{changed}")
            sql = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            try:
                edit(folder, lambda db, sql=sql, new=new, rowid=rowid: db.execute(sql, (new, rowid)))
            except sqlite3.IntegrityError:  # UNIQUE, which cannot be switched off
                continue
            assert refused(folder), (table, rowid, column)
            edited += 1
    assert changed >= edited + 1
    assert edited > 150


def others(value: object) -> list[object]:
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, bytes):
        return [bytes([value[0] ^ 1]) + value[1:], value + b"x"]
    assert isinstance(value, str)
    return [value + " ", chr(ord(value[0]) ^ 1) + value[1:]]


@pytest.mark.slow  # opens the ledger again and again
def test_a_flipped_byte_of_the_file_is_detected_or_changes_no_meaning(original: Path, tmp_path: Path) -> None:
    """The file is refused, or everything that the ledger says is as before."""
    whole, meant = (original / "x.ledger").read_bytes(), seen(original)
    rng = random.Random(11)
    used = [i for i, byte in enumerate(whole) if byte]
    places = sorted({*range(100), *rng.sample(used, FLIPS - 400), *rng.sample(range(len(whole)), 300)})
    folder = copy(original, tmp_path / "copy")
    outcomes = {"refused": 0, "no meaning": 0}
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        for file in folder.glob("x.ledger*"):
            file.unlink()
        (folder / "x.ledger").write_bytes(damaged)
        (folder / "x.anchor").write_bytes((original / "x.anchor").read_bytes())
        try:
            said = seen(folder)
        except LedgerError:
            outcomes["refused"] += 1
        else:
            assert said == meant, place
            outcomes["no meaning"] += 1
    assert sum(outcomes.values()) > 1900
    assert outcomes["refused"] > 1000


@pytest.mark.slow  # opens the ledger again and again
def test_a_changed_byte_of_the_anchor_is_detected(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bit of every byte is flipped, and every digit is replaced by every other digit."""
    monkeypatch.setattr("countveil.ledger.anchor.time.sleep", lambda seconds: None)  # nobody is moving it
    whole, meant, refused = (original / "x.anchor").read_bytes(), Anchor(original / "x.anchor").read(), 0
    folder = copy(original, tmp_path / "copy")
    for place in range(len(whole)):
        for new in {whole[place] ^ 1 << bit for bit in range(8)} | {*b"0123456789"} - {whole[place]}:
            flipped = whole[:place] + bytes([new]) + whole[place + 1 :]
            (folder / "x.anchor").write_bytes(flipped)
            try:
                mark = Anchor(folder / "x.anchor").read()
            except LedgerError:
                refused += 1
                if refused % 100 == 0:  # for a few, check that opening the ledger reads the anchor
                    with pytest.raises(LedgerError, match="anchor"):
                        seen(folder)
                continue
            assert mark == meant
            assert json.loads(flipped) == json.loads(whole), "only white space may change"
    assert refused > 2500


ROWS: dict[str, Change] = {
    "an entry is removed": lambda db: db.execute("DELETE FROM entry WHERE seq = 9"),
    "the last entry is removed": lambda db: db.execute("DELETE FROM entry WHERE seq = (SELECT max(seq) FROM entry)"),
    "all entries are removed": lambda db: db.execute("DELETE FROM entry"),
    "the first entry is removed": lambda db: db.execute("DELETE FROM entry WHERE seq = 1"),
    "a charge is removed": lambda db: db.execute("DELETE FROM charge WHERE question = 'c'"),
    "an answer is removed": lambda db: db.execute("DELETE FROM answer WHERE rowid = 1"),
    "a version is removed": lambda db: db.execute("DELETE FROM version WHERE number = 2"),
    "a share is removed": lambda db: db.execute("DELETE FROM share WHERE analyst = 'bob'"),
    "a pool is removed": lambda db: db.execute("DELETE FROM pool WHERE name = 'other'"),
    "a plan is added": lambda db: db.execute("INSERT INTO plan VALUES ('other', '{}')"),
    "a grade is removed": lambda db: db.execute("DELETE FROM grade WHERE pool = 'other'"),
    "a grade is added": lambda db: db.execute("INSERT INTO grade VALUES ('people', 'more', 5, 0)"),
    "budgets are refilled": lambda db: db.execute("UPDATE grade SET spent = 0"),
    "budgets are raised": lambda db: db.execute("UPDATE grade SET answers = answers + 100"),
    "a charge is of another grade": lambda db: db.execute("UPDATE charge SET grade = 'fine' WHERE question = 'c'"),
    "a charge is void": lambda db: db.execute("UPDATE charge SET void = 1 WHERE question = 'c'"),
    "a share is added": lambda db: db.execute("INSERT INTO share VALUES ('people', 'eve', 'standard', 5, 0)"),
    "a pool is added": lambda db: db.execute("INSERT INTO pool VALUES ('new')"),
    "a charge is added": lambda db: db.execute(
        "INSERT INTO charge SELECT 'forged', pool, dataset, version, 'z', text, analyst, time, 0, grade "
        "FROM charge LIMIT 1"
    ),
    "an answer is added": lambda db: db.execute(
        "INSERT INTO answer SELECT id, time, x'00' FROM charge WHERE question = 'c'"
    ),
    "a table is added": lambda db: db.execute("CREATE TABLE more (x)"),
    "a trigger is added": lambda db: db.execute(
        "CREATE TRIGGER refill AFTER INSERT ON answer BEGIN UPDATE grade SET spent = 0; END"
    ),
    "an index is dropped": lambda db: db.execute("DROP INDEX charge_once"),
    "another format": lambda db: db.execute("PRAGMA user_version = 7"),
    "no format": lambda db: db.execute("PRAGMA user_version = 0"),
}


@pytest.mark.parametrize("name", ROWS)
def test_edited_rows_are_detected(folder: Path, name: str) -> None:
    edit(folder, ROWS[name])
    refused(folder)


@pytest.mark.parametrize("table", TABLES)
def test_swapped_rows_are_detected(folder: Path, table: str) -> None:
    """The contents of two rows are exchanged, first without their keys and then with them."""

    def swap(db: sqlite3.Connection) -> None:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        rows = db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()
        (first, *one), (second, *two) = rows[-2], rows[-1]
        db.execute(f"DELETE FROM {table} WHERE rowid IN (?, ?)", (first, second))
        marks = ", ".join("?" * (len(names) + 1))
        for place, row in ((first, two), (second, one)):
            if table == "entry":
                row = [place, *row[1:]]
            elif table in ("grade", "answer", "pool", "version"):
                key = one if place == first else two
                row = [*key[:1], *row[1:]] if table != "version" else [*key[:2], *row[2:]]
            db.execute(f"INSERT INTO {table} (rowid, {', '.join(names)}) VALUES ({marks})", (place, *row))

    def distinct(db: sqlite3.Connection) -> None:
        if table == "pool":  # it has only names
            db.execute("UPDATE pool SET name = 'another' WHERE name = 'other'")
        swap(db)

    if table == "share":
        pytest.skip("shares have no order")
    edit(folder, distinct)
    refused(folder)


def forge(db: sqlite3.Connection, kind: str, body: dict[str, object], seq: int | None = None) -> None:
    """Append an entry whose hash fits the chain."""
    last, hash = db.execute("SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
    row = (seq or last + 1, "2026-11-16T12:00:00+00:00", kind, canonical(body), hash)
    sealed = entry_hash(hash, row[0], row[1], row[2], row[3])
    db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", (*row, sealed))


FORGED: dict[str, tuple[str, dict[str, object]]] = {
    "a second plan refills a pool": ("plan", {"pool": "people", "answers": 10, "document": "x"}),
    "answers are taken back": ("extend", {"pool": "people", "answers": -3, "epsilon": "1", "reason": ""}),
    "half an answer": ("extend", {"pool": "people", "answers": 0.5, "epsilon": "1", "reason": ""}),
    "true is no number": ("extend", {"pool": "people", "answers": True, "epsilon": "1", "reason": ""}),
    "no such pool": ("extend", {"pool": "nobody", "answers": 3, "epsilon": "1", "reason": ""}),
    "an answer without a charge": ("answer", {"charge": "0" * 24, "sha256": "0" * 64}),
    "a restore that gives back": ("restore", {"lost": -3, "anchor": None}),
    "a version again": ("version", {"dataset": "people", "number": 1, "keyed_fingerprint": "other"}),
    "an unknown kind": ("refund", {"pool": "people"}),
    "a second beginning": ("open", {"ledger": "another"}),
    "a body without its facts": ("charge", {"pool": "people"}),
}


CHARGE = {"id": "1", "dataset": "d", "version": 1, "question": "q", "text": "", "analyst": "a"}
GRADED: dict[str, tuple[str, dict[str, object]]] = {
    "more fine answers than planned": ("charge", {**CHARGE, "id": "2", "pool": "p", "question": "r", "grade": "fine"}),
    "a grade of another pool": ("charge", {**CHARGE, "id": "2", "pool": "other", "grade": "fine"}),
    "a question paid twice in a grade": ("charge", {**CHARGE, "id": "2", "pool": "p", "grade": "fine"}),
    "a grade that is a number": ("charge", {**CHARGE, "id": "2", "pool": "p", "grade": 1}),
    "more of a closed grade": ("extend", {"pool": "p", "grade": "coarse", "answers": 3}),
    "more of an unknown grade": ("extend", {"pool": "p", "grade": "finest", "answers": 3}),
    "a charge of a closed grade": ("charge", {**CHARGE, "id": "2", "pool": "p", "question": "r", "grade": "coarse"}),
    "a share of an unknown grade": ("share", {"pool": "p", "grade": "finest", "analyst": "a", "answers": 3}),
    "a plan without grades": ("plan", {"pool": "third", "grades": []}),
    "a grade twice": ("plan", {"pool": "third", "grades": [{"name": "fine", "answers": 1}] * 2}),
    "half an answer of a grade": ("plan", {"pool": "third", "grades": [{"name": "fine", "answers": 0.5}]}),
}


@pytest.mark.parametrize("name", GRADED)
def test_a_history_that_breaks_a_rule_of_grades_is_refused(name: str) -> None:
    first = [{"name": "fine", "answers": 1}, {"name": "coarse", "answers": 5}]
    again = {"pool": "p", "reason": "", "charges": 0, "after": None, "grades": [{"name": "fine", "answers": 1}]}
    kinds: list[tuple[str, dict[str, object]]] = [
        ("open", {"ledger": "x", "nonce": "0", "check": "0"}),
        ("plan", {"pool": "p", "grades": first}),
        ("plan", again),
        ("plan", {"pool": "other", "grades": [{"name": "standard", "answers": 1}]}),
        ("charge", {**CHARGE, "pool": "p", "grade": "fine"}),
    ]
    entries: list[Entry] = []
    for kind, body in (*kinds, GRADED[name]):
        entries.append(seal(entries[-1] if entries else None, "t", kind, body))
    assert replay_entries(entries[:-1]).grades == {
        ("p", "fine"): [2, 2],
        ("p", "coarse"): [5, 5],
        ("other", "standard"): [1, 0],
    }
    with pytest.raises((LedgerError, LookupError)):
        replay_entries(entries)


@pytest.mark.parametrize("name", FORGED)
def test_forged_entries_that_break_a_rule_are_refused(folder: Path, name: str) -> None:
    edit(folder, lambda db: forge(db, *FORGED[name]))
    refused(folder)


def test_a_forged_second_answer_is_refused(folder: Path) -> None:
    def again(db: sqlite3.Connection) -> None:
        (charge,) = db.execute("SELECT charge FROM answer LIMIT 1").fetchone()
        forge(db, "answer", {"charge": charge, "sha256": "0" * 64})

    edit(folder, again)
    assert "breaks a rule" in refused(folder)


def test_a_forged_second_charge_of_a_question_is_refused(folder: Path) -> None:
    def again(db: sqlite3.Connection) -> None:
        (written,) = db.execute("SELECT body FROM entry WHERE kind = 'charge' LIMIT 1").fetchone()
        forge(db, "charge", json.loads(written))

    edit(folder, again)
    assert "breaks a rule" in refused(folder)


def test_a_forged_entry_that_skips_numbers_is_refused(folder: Path) -> None:
    edit(folder, lambda db: forge(db, "share", {"pool": "people", "analyst": "ann", "answers": 6}, 99))
    assert "does not follow" in refused(folder)


def test_an_entry_that_is_not_canonical_json_is_refused(folder: Path) -> None:
    def loose(db: sqlite3.Connection) -> None:
        forge(db, "share", {"pool": "people", "analyst": "ann", "answers": 6})
        (seq, time, kind, written, before) = db.execute(
            "SELECT seq, time, kind, body, previous FROM entry ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        spaced = json.dumps(json.loads(written))
        hash = entry_hash(before, seq, time, kind, spaced)
        db.execute("UPDATE entry SET body = ?, hash = ? WHERE seq = ?", (spaced, hash, seq))

    edit(folder, loose)
    assert "cannot be read" in refused(folder)


def test_a_rewritten_history_does_not_fit_the_anchor(folder: Path) -> None:
    """If somebody recomputes the whole chain and all tables without the last charge, only the anchor shows it."""

    def rewrite(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM answer WHERE charge = (SELECT id FROM charge WHERE question = 'd')")
        db.execute("DELETE FROM charge WHERE question = 'd'")
        db.execute("DELETE FROM entry WHERE seq > 13")
        db.execute("UPDATE grade SET spent = 0 WHERE pool = 'other'")

    last = json.loads((folder / "x.anchor").read_bytes())["seq"]
    edit(folder, rewrite)
    assert f"its anchor remembers {last}" in refused(folder)
    for i in range(3):
        edit(folder, lambda db, i=i: forge(db, "share", {"pool": "people", "analyst": "ann", "answers": i}))
        edit(folder, lambda db, i=i: db.execute("UPDATE share SET answers = ? WHERE analyst = 'ann'", (i,)))
    assert "not the one its anchor remembers" in refused(folder)


def test_an_anchor_behind_its_ledger_catches_up(folder: Path) -> None:
    before = (folder / "x.anchor").read_bytes()
    ledger = opened(folder)
    answered(ledger, "e")
    ledger.close()
    after = (folder / "x.anchor").read_bytes()
    (folder / "x.anchor").write_bytes(before)
    opened(folder).close()
    assert (folder / "x.anchor").read_bytes() == after


def test_a_ledger_edited_without_a_change_is_accepted(folder: Path) -> None:
    """The counterpart of the tests above: not every edit is refused."""
    before = seen(folder)
    edit(folder, lambda db: db.execute("UPDATE grade SET spent = spent"))
    assert seen(folder) == before


# -- the anchor moves in place -----------------------------------------------------------------------------------------


def test_the_anchor_is_one_line_of_fixed_length_overwritten_in_place(folder: Path) -> None:
    before = (folder / "x.anchor").stat()
    ledger = opened(folder)
    answered(ledger, "e")
    ledger.close()
    after = (folder / "x.anchor").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size) == (before.st_ino, LENGTH)
    assert LENGTH <= 512, "what a disk writes whole or not at all"


def test_a_torn_line_of_the_anchor_is_refused(folder: Path) -> None:
    """A line torn at any place is refused, or read as the old or the new mark."""
    before = (folder / "x.anchor").read_bytes()
    ledger = opened(folder)
    answered(ledger, "e")
    ledger.close()
    after = (folder / "x.anchor").read_bytes()
    marks = {Anchor(folder / "x.anchor").read()}
    (folder / "x.anchor").write_bytes(before)
    marks.add(Anchor(folder / "x.anchor").read())
    refusals = 0
    for place in range(0, LENGTH, 3):
        for torn in (after[:place] + before[place:], before[:place] + after[place:]):
            (folder / "x.anchor").write_bytes(torn)
            try:
                assert Anchor(folder / "x.anchor").read() in marks
            except LedgerError:
                refusals += 1
    assert refusals > 50


def test_readers_of_a_moving_anchor_never_see_damage(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "x.anchor")
    anchor.begin("a ledger")
    hashes = {seq: hashlib.sha256(str(seq).encode()).hexdigest() for seq in range(1, 400)}
    found: list[Mark] = []
    moving = threading.Thread(
        target=lambda: [anchor.advance(lambda _, n=n: Mark("a ledger", n, hashes[n], n)) for n in hashes]
    )
    moving.start()
    while moving.is_alive():
        found.append(Anchor(tmp_path / "x.anchor").require())
    moving.join()
    assert [mark.seq for mark in found] == sorted(mark.seq for mark in found)
    assert all(mark.hash == hashes.get(mark.seq, "") for mark in found)
    assert Anchor(tmp_path / "x.anchor").require().seq == 399
