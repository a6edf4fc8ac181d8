"""The ledger on PostgreSQL: its commits are durable whatever the role's settings, and it is refused if history was
changed or lost.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from countveil.config.configuration import Config, Service, load
from countveil.errors import BudgetError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.loss import EVERYTHING
from countveil.ledger.postgres import PostgresLedger, settle
from countveil.ledger.records import LATEST
from tests.support.curated import runner
from tests.support.ledgers import answered, database, format1, plan
from tests.support.servers import postgres, wait_until

psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'countveil[postgres]'")
LOST = "the connection to the ledger's server was lost; nothing was answered; ask again"


class Ground:
    """A database with a ledger of two pools and three answers, and the anchors of its hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.location = folder, database()
        ledger = self.open()
        ledger.open_plan(plan(20))
        ledger.open_plan(plan(3, "other"))
        ledger.version("people", "first")
        for question in "abc":
            answered(ledger, question)
        ledger.close()

    @property
    def name(self) -> str:
        return self.location.rpartition("/")[2]

    def open(self, host: str = "x", **more: Any) -> PostgresLedger:
        return PostgresLedger(self.location, self.folder / f"{host}.anchor", **more)

    def sql(self, *statements: str, triggers: bool = False) -> None:
        """Run a statement as the owner of the database, who can change anything."""
        with psycopg.connect(self.location) as db:
            db.execute("SET search_path = countveil")
            for table in () if triggers else ("entry", "answer"):
                db.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_is_never_changed")
            for statement in statements:
                db.execute(statement)
            for table in () if triggers else ("entry", "answer"):
                db.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_is_never_changed")

    def forget(self, seq: int) -> None:
        """Reset the ledger to an earlier entry with all of its tables, like a restored disk."""
        self.sql(
            "CREATE TEMP TABLE gone AS SELECT body::json->>'id' AS id "
            f"FROM entry WHERE seq > {seq} AND kind = 'charge'",
            f"DELETE FROM answer WHERE charge IN (SELECT body::json->>'charge' FROM entry WHERE seq > {seq})",
            "UPDATE grade SET spent = spent - (SELECT count(*) FROM charge AS c WHERE c.pool = grade.pool "
            "AND c.grade = grade.name AND id IN (TABLE gone))",
            "DELETE FROM charge WHERE id IN (TABLE gone)",
            "CREATE TEMP TABLE unplanned AS SELECT body::json->>'pool' AS pool "
            f"FROM entry WHERE seq > {seq} AND kind = 'plan'",
            "DELETE FROM grade WHERE pool IN (TABLE unplanned)",
            "DELETE FROM pool WHERE name IN (TABLE unplanned)",
            f"DELETE FROM entry WHERE seq > {seq}",
        )

    def spent(self, host: str = "x") -> int:
        with closing(self.open(host)) as ledger:
            return ledger.standing("people").spent

    def settle(self, host: str = "x", **more: bool) -> int:
        return settle(self.location, self.folder / f"{host}.anchor", **more)


END = 10
"""Entries of the ledger: opened, two plans, a version, three charges, three answers."""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_commits_are_durable_whatever_the_settings_of_the_role(ground: Ground) -> None:
    for setting in ("synchronous_commit = off", "default_transaction_isolation = serializable", "search_path = public"):
        postgres().sql(f"ALTER ROLE writer IN DATABASE {ground.name} SET {setting}")
    seen = []

    def step(name: str) -> None:
        if name == "charge:row":
            names = ("synchronous_commit", "transaction_isolation", "fsync")
            seen.append([ledger._execute(f"SHOW {name}").fetchone()[0] for name in names])

    ledger = ground.open(step=step)
    answered(ledger, "d")
    ledger.close()
    assert seen == [["on", "read committed", "on"]]


@contextmanager
def setting(text: str, name: str, value: str) -> Iterator[None]:
    def shown() -> str:
        with psycopg.connect(postgres().admin) as db:
            return str(db.execute(f"SHOW {name}").fetchone()[0])

    before = shown()
    try:
        postgres().sql(f"ALTER SYSTEM SET {text}")
        postgres().sql("SELECT pg_reload_conf()")
        wait_until(lambda: shown() == value)
        yield
    finally:
        postgres().sql(f"ALTER SYSTEM RESET {name}")
        postgres().sql("SELECT pg_reload_conf()")
        wait_until(lambda: shown() == before)


def test_a_server_that_does_not_write_to_disk_is_refused(ground: Ground) -> None:
    """Also if writing was switched off after the ledger was opened, or after the charge: then there is no charge, or no
    answer.
    """
    with closing(ground.open()) as ledger:
        charge = ledger.charge("people", "people", 1, "d", "", "ann")
        with setting("fsync = off", "fsync", "off"):
            for use in (
                ground.open,
                lambda: ledger.charge("people", "people", 1, "e", "", "ann"),
                lambda: ledger.record(charge, b"answer to d"),
                lambda: ground.settle(),
            ):
                with pytest.raises(LedgerError, match=r"fsync = off"):
                    use()
        assert ledger.find("people", "people", 1, "e") is None
        assert ledger.record(charge, b"answer to d").payload == b"answer to d"
        assert ledger.verify() == END + 2


def test_a_database_that_cannot_store_all_text_is_refused(tmp_path: Path) -> None:
    name = database().rpartition("/")[2] + "_ascii"
    postgres().sql(
        f"CREATE DATABASE {name} OWNER writer ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    with pytest.raises(LedgerError, match="ENCODING 'UTF8'"):
        PostgresLedger(f"postgresql://writer@127.0.0.1:{postgres().port}/{name}", tmp_path / "x.anchor")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET time = ''",
        "DELETE FROM entry",
        "TRUNCATE entry",
        "UPDATE answer SET payload = ''",
        "DELETE FROM answer",
        "UPDATE grade SET spent = answers + 1",
        "UPDATE grade SET spent = -1",
        "INSERT INTO answer SELECT charge, time, '' FROM answer",
        "INSERT INTO answer VALUES ('no such charge', '', '')",
        "INSERT INTO charge (id, pool, dataset, version, question, text, analyst, time, grade) "
        "SELECT 'x' || id, pool, dataset, version, question, text, analyst, time, grade FROM charge",
        "INSERT INTO entry SELECT seq + 100, time, kind, body, previous, 'other' FROM entry",
        "UPDATE charge SET void = 2",
        "UPDATE place SET one = false",
    ],
)
def test_constraints_of_the_database_refuse_forbidden_changes(ground: Ground, statement: str) -> None:
    """Entries are append-only, a charge has one answer, and a question has one charge."""
    with pytest.raises(psycopg.IntegrityError):
        ground.sql(statement, triggers=True)


def test_messages_have_no_password_and_no_server_text(tmp_path: Path) -> None:
    location = f"postgresql://writer:s3cret@127.0.0.1:{postgres().port}/nowhere?application_name=hidden"
    with pytest.raises(LedgerError) as error:
        PostgresLedger(location, tmp_path / "x.anchor")
    assert str(error.value) == (
        f"the ledger's server postgresql://127.0.0.1:{postgres().port}/nowhere could not be reached; nothing was "
        "answered; check the address, the role and its password, and ask again"
    )
    with pytest.raises(LedgerError, match="could not be reached"):
        PostgresLedger("postgresql://[broken:s3cret", tmp_path / "x.anchor")


def test_a_missing_ledger_or_folder_is_refused_and_not_created(tmp_path: Path) -> None:
    location = database()
    with pytest.raises(LedgerError, match=r"there is no ledger on postgresql://127\.0\.0\.1"):
        PostgresLedger(location, tmp_path / "x.anchor", create=False)
    with pytest.raises(LedgerError, match="does not exist; make it first"):
        PostgresLedger(location, tmp_path / "no" / "x.anchor")
    assert not list(tmp_path.iterdir())


def test_a_newer_format_is_refused(ground: Ground) -> None:
    older = ground.open()
    ground.sql(f"UPDATE place SET format = {LATEST + 1}")
    with pytest.raises(LedgerError, match=f"format {LATEST + 1}, this countveil knows {LATEST}; update countveil"):
        ground.open()
    with pytest.raises(LedgerError, match="changed the ledger's format"):
        answered(older, "d")
    older.close()


def test_a_busy_ledger_is_reported_in_one_sentence(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    from countveil.ledger.postgres import LOCK

    monkeypatch.setattr("countveil.ledger.anchor.WAIT", 0.1)
    ledger = ground.open()
    with psycopg.connect(ground.location) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        with pytest.raises(LedgerError, match=r"^the ledger is busy with other processes; try again$"):
            answered(ledger, "d")
    assert answered(ledger, "d").payload == b"answer to d"
    ledger.close()


# -- lost connections --------------------------------------------------------------------------------------------------


def cut(ground: Ground) -> None:
    """End every session of the ledger on the server."""
    postgres().sql(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{ground.name}'")


def test_a_connection_lost_between_changes_is_reopened(ground: Ground) -> None:
    ledger = ground.open()
    for use in (lambda: answered(ledger, "d"), lambda: ledger.standing("people"), ledger.verify):
        cut(ground)
        use()
    ledger.close()


STEPS = ("begin", "entry", "spend", "row", "commit", "anchor")


@pytest.mark.parametrize(
    "name", [*(f"charge:{s}" for s in STEPS if s != "anchor"), *(f"answer:{s}" for s in STEPS if s != "spend")]
)
def test_a_connection_lost_in_the_middle_of_a_change_charges_at_most_once(ground: Ground, name: str) -> None:
    """There is no answer, and asking again returns the charge or makes it."""
    cuts: list[str] = []

    def step(now: str) -> None:
        if now == name and not cuts:
            cuts.append(now)
            cut(ground)

    ledger = ground.open(step=step)
    if name.endswith((":begin", ":anchor")):
        answered(ledger, "d")  # nothing was under way: on a new connection
    else:
        with pytest.raises(LedgerError) as error:
            answered(ledger, "d")
        assert str(error.value) == LOST
    assert cuts == [name]
    assert answered(ledger, "d").payload == b"answer to d"
    assert ledger.standing("people").spent == 4
    assert ledger.verify() == END + 2
    ledger.close()


@pytest.mark.parametrize("happened", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("which", ["charge", "answer"])
def test_a_commit_whose_outcome_is_unknown_is_a_failure(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, which: str, happened: bool
) -> None:
    real, names = PostgresLedger._run, list[str]()

    def run(self: PostgresLedger, db: Any, sql: str, values: tuple[object, ...]) -> Any:
        if sql == "COMMIT" and names and names[-1] == f"{which}:commit":
            names.clear()
            if happened:
                real(self, db, sql, values)
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return real(self, db, sql, values)

    ledger = ground.open(step=names.append)
    monkeypatch.setattr(PostgresLedger, "_run", run)
    with pytest.raises(LedgerError, match=LOST):
        answered(ledger, "d")
    monkeypatch.undo()
    found = ledger.find("people", "people", 1, "d")
    assert (found is not None) == (happened or which == "answer")
    assert (found is not None and found.payload is not None) == (happened and which == "answer")
    assert answered(ledger, "d").payload == b"answer to d"
    assert ledger.standing("people").spent == 4
    assert ledger.verify() == END + 2
    ledger.close()


def test_a_commit_that_the_server_turned_into_a_rollback_is_a_failure(ground: Ground) -> None:
    """PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK and no error."""

    def step(name: str) -> None:
        if name == "charge:commit":
            with pytest.raises(psycopg.Error):
                ledger._connection.execute("SELECT 1 / 0")

    ledger = ground.open(step=step)
    with pytest.raises(LedgerError, match="could not be written; nothing was answered"):
        answered(ledger, "d")
    assert ledger.verify() == END
    ledger.close()


# -- what was changed --------------------------------------------------------------------------------------------------

CHANGES = {
    "an entry": "UPDATE entry SET body = replace(body, 'text of a', 'text of b') WHERE kind = 'charge'",
    "an entry removed": "DELETE FROM entry WHERE seq = 5",
    "a budget": "UPDATE grade SET answers = 100",
    "what was spent": "UPDATE grade SET spent = 0",
    "an answer": "UPDATE answer SET payload = 'other'",
    "an answer removed": "DELETE FROM answer",
    "a version": "UPDATE version SET fingerprint = 'other'",
    "a charge": "UPDATE charge SET analyst = 'eve'",
    "a charge made void": "UPDATE charge SET void = 1",
    "a plan": "INSERT INTO plan VALUES ('other', '{}')",
    "the order of charges": "ALTER TABLE charge ALTER made SET GENERATED BY DEFAULT; "
    "UPDATE charge SET made = 10 - made; ALTER TABLE charge ALTER made SET GENERATED ALWAYS",
    "no limit": "ALTER TABLE grade DROP CONSTRAINT grade_check",
    "no index": "DROP INDEX charge_once",
    "no trigger": "DROP TRIGGER entry_is_never_changed ON entry; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql "
    "AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry EXECUTE FUNCTION f()",
    "a trigger that does nothing": "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
    "AS 'BEGIN RETURN NULL; END'",
    "not on disk": "ALTER TABLE answer SET UNLOGGED",
    "one more table": "CREATE TABLE more (x int)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_by_the_owner_of_the_database_are_detected(ground: Ground, change: str) -> None:
    ledger = ground.open()
    anchor = (ground.folder / "x.anchor").read_bytes()
    ground.sql(CHANGES[change])
    for look in (ledger.verify, ground.open):
        with pytest.raises(LedgerError, match=r"^the ledger was changed: .*; restore a backup$"):
            look()
    assert (ground.folder / "x.anchor").read_bytes() == anchor
    ledger.close()


# -- what was lost -----------------------------------------------------------------------------------------------------


def test_an_older_state_is_refused_until_it_is_settled(ground: Ground) -> None:
    running = ground.open()
    ground.forget(6)
    for use in (ground.open, lambda: answered(running, "d"), running.verify):
        with pytest.raises(LedgerError, match="lost history: it ends at entry 6, but its anchor remembers 10"):
            use()
    with psycopg.connect(ground.location) as db:
        assert db.execute("SELECT max(seq) FROM countveil.entry").fetchone() == (6,), "nothing was charged meanwhile"
    with pytest.raises(RequestError, match="4 entries would be lost; add --accept-loss"):
        ground.settle()
    assert ground.settle(accept_loss=True) == 4
    assert ground.spent() == 1 + 4
    assert answered(running, "a").payload == b"answer to a"
    assert running.charge("people", "people", 1, "b", "", "ann").fresh, "what was lost is asked, and paid, again"
    assert running.standing("other").left == 0
    with pytest.raises(BudgetError):
        answered(running, "d", "other")
    running.verify()
    running.close()


def test_the_settlement_of_a_lost_plan_is_recorded(ground: Ground) -> None:
    ground.forget(6)
    ground.settle(accept_loss=True)
    with closing(ground.open()) as ledger:
        assert not ledger.plan_lost(), "both plans are within the first six entries"
        ledger.open_plan(plan(3, "third"))
        last = list(ledger.entries())[-1].seq
    ground.forget(last - 1)
    assert ground.settle(accept_loss=True) == 1
    with closing(ground.open()) as ledger:
        ledger.verify()
        assert ledger.plan_lost()
        assert ledger.plan("people").plan_lost  # type: ignore[union-attr]


def test_an_emptied_or_dropped_ledger_is_refused(ground: Ground) -> None:
    ground.sql("DROP SCHEMA countveil CASCADE", triggers=True)
    with pytest.raises(LedgerError, match="is gone, but its anchor remembers 10 entries; restore a dump"):
        ground.open()


def dumped(ground: Ground) -> str:
    """A ledger restored from a dump into another database by PostgreSQL's own programs."""
    target, file = database(), ground.folder / "dump"
    programs = postgres().programs
    subprocess.run([programs / "pg_dump", "-Fc", "-f", file, ground.location], check=True)
    subprocess.run([programs / "pg_restore", "--no-owner", "-d", target, file], check=True)
    return target


@pytest.mark.parametrize("later", [0, 3])
def test_a_dump_is_settled_before_anyone_uses_it(ground: Ground, later: int) -> None:
    """Not even a host without an anchor, which cannot know what is missing, may use it."""
    copy = dumped(ground)
    with closing(ground.open()) as ledger:
        for i in range(later):
            answered(ledger, f"later {i}")
    ground.location = copy
    for host in ("x", "new"):
        with pytest.raises(LedgerError, match="restored from a dump; settle it with: countveil ledger restore"):
            ground.open(host)
    if later:
        with pytest.raises(RequestError, match=f"{2 * later} entries would be lost"):
            ground.settle()
    assert ground.settle(accept_loss=bool(later)) == 2 * later
    assert ground.spent() == ground.spent("new") == 3 + 2 * later


@pytest.mark.parametrize("emptied", ["TRUNCATE {}", "DELETE FROM {}"])
@pytest.mark.parametrize("without", [(), ("--exclude-table=countveil.place",)], ids=["all tables", "entries"])
def test_a_dump_of_the_data_alone_is_settled_before_anyone_uses_it(
    ground: Ground, emptied: str, without: tuple[str, ...]
) -> None:
    """The data is restored into the existing tables with triggers off, so the server and the tables are the same."""
    programs, file = postgres().programs, ground.folder / "dump"
    subprocess.run([programs / "pg_dump", "-Fc", "--data-only", *without, "-f", file, ground.location], check=True)
    with closing(ground.open()) as ledger:
        answered(ledger, "later")
    admin = ground.location.replace("writer@", "owner@")
    with psycopg.connect(admin) as db:
        db.execute("SET session_replication_role = replica")
        found = "SELECT tablename FROM pg_tables WHERE schemaname = 'countveil'"
        tables = [f"countveil.{name}" for (name,) in db.execute(found) if not (without and name == "place")]
        for each in [", ".join(tables)] if "TRUNCATE" in emptied else tables:
            db.execute(emptied.format(each))
    restore = [programs / "pg_restore", "--data-only", "--disable-triggers", "--single-transaction", "-d", admin, file]
    subprocess.run(restore, check=True)
    for host in ("new", "x"):
        with pytest.raises(LedgerError, match="restored from a dump; settle it with: countveil ledger restore"):
            ground.open(host)
    with pytest.raises(RequestError, match="2 entries would be lost"):
        ground.settle()
    with pytest.raises(RequestError, match="without an anchor the number of lost entries is unknown"):
        ground.settle("new")
    assert ground.settle(accept_loss=True) == 2
    assert ground.spent() == ground.spent("new") == 3 + 2


def test_a_migrated_ledger_detects_data_restored_from_a_dump(tmp_path: Path) -> None:
    location = database()
    config = load(format1(tmp_path, location))
    config.open_ledger().close()
    with psycopg.connect(location.replace("writer@", "owner@")) as db:
        db.execute("SET session_replication_role = replica; SET search_path = countveil")
        db.execute("CREATE TEMP TABLE copy AS TABLE entry; TRUNCATE entry; INSERT INTO entry TABLE copy")
    with pytest.raises(LedgerError, match="restored from a dump"):
        PostgresLedger(location, tmp_path / "new.anchor")


def test_a_new_host_of_an_unmigrated_ledger_needs_a_recorded_confirmation(tmp_path: Path) -> None:
    location, new = database(), tmp_path / "new.anchor"
    format1(tmp_path, location)
    with pytest.raises(LedgerError, match="if it is the latest, confirm it with: countveil ledger restore --latest"):
        PostgresLedger(location, new)
    assert not new.exists()
    assert settle(location, new, latest=True) == 0
    with closing(PostgresLedger(location, new)) as ledger:
        assert "restore" in {entry.kind for entry in ledger.entries()}


def test_maintenance_by_the_server_is_not_taken_for_a_restore(ground: Ground) -> None:
    with psycopg.connect(ground.location.replace("writer@", "owner@"), autocommit=True) as db:
        for statement in ("VACUUM (FREEZE)", "VACUUM (FULL)", "CLUSTER countveil.entry USING entry_pkey", "REINDEX"):
            db.execute(statement if statement != "REINDEX" else "REINDEX SCHEMA countveil")
    assert ground.spent() == ground.spent("new") == 3


def test_other_roles_cannot_connect_to_the_documented_database(tmp_path: Path) -> None:
    """This matters because anyone who can connect can hold the ledger's lock."""
    page = (Path(__file__).parents[3] / "docs" / "budget.md").read_text()
    (statements,) = re.findall(r"```sql\n(CREATE ROLE curator.*?)```", page, re.DOTALL)
    for statement in statements.strip().splitlines():
        postgres().sql(statement)
    location = postgres().ledgers.replace("writer@", "curator@").replace("/ledgers", "/ledger")
    PostgresLedger(location, tmp_path / "x.anchor").close()
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(location.replace("curator@", "reader@"))


def test_a_settlement_interrupted_before_the_anchor_moves_is_kept(ground: Ground) -> None:
    def step(name: str) -> None:
        if name == "restore:anchor":
            raise KeyboardInterrupt

    ground.forget(6)
    with closing(ground.open(create=False, check=False, step=step)) as ledger, pytest.raises(KeyboardInterrupt):
        ledger.settle(accept_loss=True)
    assert ground.spent() == 1 + 4


def test_a_host_without_an_anchor_joins_or_charges_everything(ground: Ground) -> None:
    assert ground.spent("new") == 3
    (ground.folder / "x.anchor").unlink()
    with pytest.raises(RequestError, match="without an anchor the number of lost entries is unknown"):
        ground.settle()
    assert ground.settle(latest=True) == 0
    (ground.folder / "x.anchor").unlink()
    assert ground.settle(accept_loss=True) == EVERYTHING
    assert ground.spent() == ground.spent("new") == 20


def test_a_failed_join_leaves_no_anchor_that_a_restore_trusts(ground: Ground) -> None:
    """Neither a failed join nor a process killed while it joined leaves an anchor that counts."""
    trigger = "TRIGGER entry_is_never_changed"
    ground.sql(f"ALTER TABLE entry DISABLE {trigger}", triggers=True)
    with pytest.raises(LedgerError, match="its tables, triggers or constraints are not the expected ones"):
        ground.open("new")
    ground.sql(f"ALTER TABLE entry ENABLE {trigger}", triggers=True)
    new = Anchor(ground.folder / "new.anchor")
    assert new.read() is None
    with closing(ground.open()) as ledger:
        ledger.charge("people", "people", 1, "d", "", "ann")
        new.begin(ledger.identity)
    for latest, lost in ((True, 0), (False, EVERYTHING)):
        with pytest.raises(RequestError, match="without an anchor the number of lost entries is unknown"):
            ground.settle("new")
        assert ground.settle("new", latest=latest, accept_loss=not latest) == lost
        with closing(ground.open("new")) as ledger:
            assert ledger.standing("people").spent == (20 if lost else 4)
            new.write(Mark(ledger.identity, 0, ""))
    with psycopg.connect(ground.location) as db:
        assert db.execute("SELECT sum(void) FROM countveil.charge").fetchone() == (1,), "it may have been answered"


# -- several hosts -----------------------------------------------------------------------------------------------------


def test_the_anchor_of_a_joined_host_detects_later_losses(ground: Ground) -> None:
    one, two = ground.open(), ground.open("two")
    answered(two, "d")
    answered(one, "e")
    one.close()
    two.close()
    ground.forget(11)
    for host, remembers in (("x", 14), ("two", 12)):
        with pytest.raises(LedgerError, match=f"ends at entry 11, but its anchor remembers {remembers}"):
            ground.open(host)


def test_a_settlement_by_the_host_with_the_latest_anchor_holds_for_all_hosts(ground: Ground) -> None:
    ground.open("two").close()
    with closing(ground.open()) as ledger:
        answered(ledger, "d")
    ground.forget(6)
    assert ground.settle(accept_loss=True) == 6
    assert ground.spent("two") == ground.spent() == 1 + 6


def test_this_hosts_anchor_treats_entries_settled_by_another_host_as_lost(ground: Ground) -> None:
    ground.open("two").close()
    with closing(ground.open()) as ledger:
        answered(ledger, "d")
    ground.forget(6)
    assert ground.settle("two", accept_loss=True) == 4
    with closing(ground.open("two")) as ledger:
        answered(ledger, "e")
    with pytest.raises(LedgerError, match="not the one its anchor remembers"):
        ground.open()
    with pytest.raises(RequestError, match="12 entries would be lost"):
        ground.settle()
    assert ground.settle(accept_loss=True) == 12
    assert ground.spent() == ground.spent("two") == 1 + 4 + 1 + 12


def test_an_anchor_of_another_ledger_is_refused(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Ground(tmp_path / "other")
    other.location = ground.location
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        other.open()
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        other.settle(accept_loss=True)


# -- choosing the ledger ----------------------------------------------------------------------------------------------

CONFIG = """
[ledger]
path = "{}"
[dataset.people]
source = "people.csv"
unit = "row"
[dataset.people.columns]
region = ["North", "South"]
[dataset.people.budget]
epsilon = "10"
delta = "0.01"
answers = 2
"""


def run(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "countveil", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_curator_and_the_commands_use_the_ledger_on_the_server(tmp_path: Path) -> None:
    from countveil.curator.curator import Curator

    location = database()
    (tmp_path / "countveil.toml").write_text(CONFIG.format(location))
    (tmp_path / "people.csv").write_text("region\n" + "North\nSouth\n" * 50)
    asked = "SELECT region, count(*) FROM people GROUP BY region"
    with Curator.open(tmp_path / "countveil.toml") as curator:
        first = curator.count(asked)
    with Curator.open(tmp_path / "countveil.toml") as curator:
        again = curator.count(asked)
        assert again.replayed
        assert again.released.tolist() == first.released.tolist()
        curator.count("SELECT count(*) FROM people")
        with pytest.raises(BudgetError):
            curator.count("SELECT count(*) FROM people WHERE region = 'North'")
    assert (tmp_path / "countveil.ledger.anchor").is_file()
    assert not (tmp_path / "countveil.ledger").exists()
    code, log = run(tmp_path, "ledger", "log")
    assert (code, "people: 2 answers" in log) == (0, True)
    holds = f"{len(log.splitlines())} entries; the hash chain is intact, the tables and the anchor agree with it\n"
    assert run(tmp_path, "ledger", "verify") == (0, holds)
    code, said = run(tmp_path, "ledger", "backup", "copy")
    assert (code, "pg_dump" in said) == (2, True)
    code, said = run(tmp_path, "ledger", "restore", "copy")
    assert (code, "pg_restore" in said) == (2, True)
    assert run(tmp_path, "ledger", "restore") == (0, "nothing was lost\n")


def test_a_new_ledger_is_announced_once_by_its_name_and_never_with_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    location = database()
    secret = location.replace("writer@", "writer:s3?cret@") + "?application_name=a@b"
    config = tmp_path / "countveil.toml"
    config.write_text(CONFIG.format(secret))
    (tmp_path / "people.csv").write_text("region\n" + "North\nSouth\n" * 50)
    count, asked = runner(monkeypatch, capsys, "count"), "SELECT count(*) FROM people"
    said = count(asked, "-c", config, "--dry-run").err
    name = location.replace("writer@", "")
    assert said == f"created a new ledger: {name}; keep it and its anchor, they record the budget\n"
    for more in ((), ("--dry-run",), ()):
        done = count(asked, "-c", config, *more)
        assert (done.code, "new ledger" in done.err) == (0, False)
    assert "new ledger" not in runner(monkeypatch, capsys, "budget")("-c", config).err


def test_a_ledger_opened_by_address_has_no_file_to_back_up_or_restore(ground: Ground, tmp_path: Path) -> None:
    config = Config(tmp_path / "x.toml", {}, tmp_path / "y", tmp_path / "x.anchor", Service(tmp_path), ground.location)
    with closing(config.open_ledger(create=False)) as ledger, pytest.raises(RequestError, match="pg_dump"):
        ledger.backup(tmp_path / "copy")
    with pytest.raises(RequestError, match="pg_restore"):
        config.restore_ledger(tmp_path / "copy")
    assert not os.path.exists(tmp_path / "y")
