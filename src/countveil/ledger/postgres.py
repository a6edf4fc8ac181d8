"""The ledger in a PostgreSQL database, for several curators on several hosts.

    CREATE ROLE curator LOGIN PASSWORD '...';
    CREATE DATABASE ledger OWNER curator;
    REVOKE CONNECT, TEMPORARY ON DATABASE ledger FROM PUBLIC;

Every change is one transaction that first takes the ledger's lock, so that the entries form one chain. A condition in
each charging statement and a CHECK constraint protect the budget even without the lock. A commit is on disk when it
returns: a server that does not wait for the disk is refused, when the ledger is opened and in every change. A commit
whose outcome is unknown counts as failed; asking again returns the charge, or makes it if there is none.

The anchor is a local file of each host and records how far that host has seen the ledger. A new host without an anchor
creates one from the ledger that it finds. Messages of the server are never shown, because they can quote questions and
passwords.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from countveil.errors import LedgerError, MissingExtraError, RequestError, shorten
from countveil.ledger import anchor as anchors
from countveil.ledger.anchor import Anchor
from countveil.ledger.ledger import Ledger
from countveil.ledger.loss import lost_entries, settled_mark, settlement
from countveil.ledger.records import LATEST, Entry
from countveil.ledger.store import NONE_EARLIER, Earlier, Rows, now
from countveil.ledger.verification import check_anchor, check_rows

LOCK = 0x636F756E747665
"""The number of the ledger's lock among the advisory locks of its database."""
DUMP = "a ledger on PostgreSQL is backed up with pg_dump and restored with pg_restore"
HERE = (
    "(SELECT system_identifier || '/' || d.oid || '/' || CAST('countveil.entry' AS regclass)::oid || "
    "CASE WHEN format > 1 THEN '/' || (SELECT xmin FROM countveil.entry WHERE seq = 1) ELSE '' END "
    "FROM pg_control_system(), pg_database AS d WHERE d.datname = current_database())"
)
"""SQL text that identifies the server, the ledger's table and (from format 2 on) the transaction of its first entry.

The value is stored in table `place`, to detect a restored dump: a dump creates another table, or fills the tables in
another transaction.
"""
_SETTINGS = (
    "SELECT current_setting('fsync'), current_setting('server_encoding'), "
    "set_config('synchronous_commit', 'on', false), set_config('search_path', 'countveil, pg_temp', false), "
    "set_config('lock_timeout', ?, false), "
    "set_config('idle_in_transaction_session_timeout', '60s', false), set_config('statement_timeout', '0', false), "
    "set_config('bytea_output', 'hex', false)"
)
_SCHEMA = """
SELECT 'column', c.relname, a.attname,
  format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || a.attidentity::text
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'countveil'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) || ' ' || convalidated::text
FROM pg_constraint WHERE connamespace = 'countveil'::regnamespace AND contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'countveil'
UNION ALL
SELECT 'trigger', t.tgrelid::regclass::text, t.tgname, pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'countveil'::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'rule', tablename, rulename, definition FROM pg_rules WHERE schemaname = 'countveil'
UNION ALL
SELECT 'policy', tablename, policyname, cmd FROM pg_policies WHERE schemaname = 'countveil'
UNION ALL
SELECT 'relation', relname, relkind::text, relpersistence::text FROM pg_class
WHERE relnamespace = 'countveil'::regnamespace
UNION ALL
SELECT 'function', proname, prorettype::regtype::text, prosrc FROM pg_proc
WHERE pronamespace = 'countveil'::regnamespace
"""


class PostgresLedger(Ledger):
    """A ledger on a PostgreSQL server, and the anchor of this host. `clock` and `step` are as in `Store`.

    With `check=False` the ledger is not checked; `settle` opens it so.
    """

    order = "made"

    def __init__(
        self,
        location: str,
        anchor: Path,
        *,
        create: bool = True,
        check: bool = True,
        earlier: Earlier = NONE_EARLIER,
        clock: Callable[[], str] = now,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("psycopg", "postgres") from None
        self._driver = psycopg
        self.faults = (psycopg.Error, UnicodeDecodeError)
        super().__init__(Anchor(anchor), clock, step)
        self.location, self._inside, self._earlier = location, False, earlier
        try:
            if not anchor.parent.is_dir():
                raise LedgerError(f"the folder {anchor.parent} of the anchor does not exist; make it first")
            with self._using():
                self._follow_forks()
                self._migrate(create, check)
                if check:
                    self._check_place("open")
                    if self.anchor.read() is None:
                        with self._moment():
                            self._read_checked()  # first, so that no anchor is made for an invalid ledger
                    self.anchor.begin(self.identity)  # a new anchor is at entry 0; `verify` moves it forward
                    self.verify()
                    self._load_secret()
        except BaseException:
            self.close()
            raise

    # -- opening -----------------------------------------------------------------------------------------------------

    @property
    def display_name(self) -> str:
        """The server and the database, for messages; never a password or another part of the address."""
        try:
            parts = self._driver.conninfo.conninfo_to_dict(self.location)
        except self._driver.Error:
            return "postgresql://"
        host, port, name = (str(parts.get(key, "")) for key in ("host", "port", "dbname"))
        place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port.strip(",") else "")
        return shorten(f"postgresql://{place}/{name}", 100)

    def _open(self) -> Any:
        options: dict[str, Any] = {"connect_timeout": 30, "client_encoding": "UTF8", "application_name": "countveil"}
        options |= {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "tcp_user_timeout": 60_000}
        wait = str(int(anchors.WAIT * 1000))
        try:
            db: Any = self._driver.connect(self.location, autocommit=True, prepare_threshold=None, **options)
        except (self._driver.Error, ValueError, UnicodeError):
            raise LedgerError(
                f"the ledger's server {self.display_name} could not be reached; nothing was answered; "
                "check the address, the role and its password, and ask again"
            ) from None
        try:
            fsync, encoding = db.execute(_translate(_SETTINGS), (wait,)).fetchone()[:2]
            check_disk(fsync)
            if encoding != "UTF8":
                raise LedgerError("the ledger's database cannot store all text; create one with ENCODING 'UTF8'")
        except BaseException:
            db.close()
            raise
        return db

    @property
    def _db(self) -> Any:
        """The connection. A lost connection is opened again, but never in the middle of a change."""
        lost = self._connection is not None and self._connection.closed
        if lost and not self._inside and not self._closed:
            self._connection = None
        return super()._db

    def _has_tables(self) -> bool:
        """Whether the ledger has tables, from the rows of PostgreSQL's catalogue.

        Looking up a table by its name would use a cache that taking the lock does not refresh.
        """
        return self._execute("SELECT 1 FROM pg_tables WHERE schemaname = 'countveil'").fetchone() is not None

    def _format(self) -> int:
        """The format number of the ledger; a newer format than this version knows is refused."""
        format = int(self._execute("SELECT format FROM place").fetchone()[0])
        if format > LATEST:
            raise LedgerError(f"the ledger has format {format}, this countveil knows {LATEST}; update countveil")
        return format

    def _upgrade(self) -> None:
        """Check the history of a ledger of an earlier format and migrate it to the latest, in one transaction."""
        with self._transaction("migrate"):
            version = self._format()
            if version == LATEST:
                return  # another process was first
            self._check_place("migrate")
            entries, mark = self._read_checked(), self.anchor.read()
            if version == 1 and (mark is None or mark.seq == 0):
                raise LedgerError(
                    f"a ledger of format {version} does not record whether it was restored from a dump, and this "
                    "host has no anchor; if it is the latest, confirm it with: countveil ledger restore --latest"
                )
            if mark is not None:
                check_anchor(entries, mark)
            for number in range(version + 1, LATEST + 1):
                self._change("migrate", migration(number))
            self._change("migrate", "UPDATE place SET format = ?", (LATEST,))
            self._change("migrate", f"UPDATE place SET here = {HERE}")
            if version == 1:
                self._key_versions()

    def _migrate(self, create: bool, upgrade: bool) -> None:
        """Create the ledger's tables if there are none. Migrate an earlier format to the latest only if `upgrade`."""
        if self._has_tables():
            if self._format() < LATEST and upgrade:
                self._upgrade()
            return
        with self._transaction("migrate"):
            if self._has_tables():
                return  # another process was first
            mark = self.anchor.read()
            if mark is not None and mark.seq > 0:
                raise LedgerError(
                    f"the ledger on {self.display_name} is gone, but its anchor remembers {mark.seq} entries; "
                    "restore a dump with pg_restore, then: countveil ledger restore"
                )
            self._check_beginning(create, f"on {self.display_name}")
            for number in range(1, LATEST + 1):
                self._change("migrate", migration(number))
            self._change("migrate", f"INSERT INTO place (format, here) VALUES ({LATEST}, '')")
            self._begin(mark.ledger if mark else uuid.uuid4().hex, self.display_name)
            self._change("migrate", f"UPDATE place SET here = {HERE}")

    # -- database operations ----------------------------------------------------------------------------------------

    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """Run a statement. If the connection was lost, retry once on a new one, but not in the middle of a change."""
        db = self._db
        try:
            return self._run(db, sql, values)
        except self._driver.OperationalError:
            if self._inside or not db.closed:
                raise
            return self._run(self._db, sql, values)

    def _run(self, db: Any, sql: str, values: tuple[object, ...]) -> Any:
        return db.cursor(row_factory=_row).execute(_translate(sql), [_encode(value) for value in values] or None)

    def _in_change(self) -> bool:
        return self._inside and not self._connection.closed

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        self._change(f"{name}:begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        with self._transaction_block() as db:
            # READ COMMITTED: reads after the lock see the last committed change
            self._execute("SELECT set_config('synchronous_commit', 'on', true), pg_advisory_xact_lock(?)", (LOCK,))
            if name != "migrate":
                self._check_place(name)
            yield
            self._step(f"{name}:commit")
            if self._run(db, "COMMIT", ()).statusmessage != "COMMIT":
                raise LedgerError("the ledger could not be written; nothing was answered")

    @contextmanager
    def _moment(self) -> Iterator[None]:
        self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with self._transaction_block() as db:
            yield
            self._run(db, "ROLLBACK", ())

    @contextmanager
    def _transaction_block(self) -> Iterator[Any]:
        """One transaction on one connection; any error rolls it back or closes the connection."""
        db, self._inside = self._connection, True
        try:
            yield db
        except BaseException:
            try:
                db.execute("ROLLBACK")
            except self._driver.Error:
                db.close()  # the server then rolls back
            raise
        finally:
            self._inside = False

    def _check_place(self, name: str) -> None:
        """Check that this is the same ledger in its latest format, and that it contains the entry in this host's
        anchor."""
        changing = name not in ("open", "migrate", "restore")
        secret = "(SELECT value FROM secret)" if changing else "NULL"
        query = f"SELECT format, here = {HERE}, current_setting('fsync'), {secret} FROM place"
        version, here, fsync, value = self._execute(query).fetchone()
        check_disk(fsync)
        if version != LATEST and name not in ("migrate", "restore"):  # an older format is settled first, then migrated
            raise LedgerError("another version of countveil changed the ledger's format; nothing was answered; update")
        if name == "restore":
            return
        if not here:
            raise LedgerError("the ledger was restored from a dump; settle it with: countveil ledger restore")
        if changing and value != self._secret.export():
            raise LedgerError(
                "the ledger's secret changed while the ledger was open; nothing was answered; start again"
            )
        if changing:
            self._check_holds(self.anchor.require())

    def _read_checked(self) -> list[Entry]:
        format = self._format()
        if schema(self._execute(_SCHEMA).fetchall()) != expected_schema(format):
            raise LedgerError(
                "the ledger was changed: its tables, triggers or constraints are not the expected ones; "
                "restore a backup"
            )
        return check_rows(lambda sql: self._execute(sql).fetchall(), self.order, format)

    def _fault(self, error: Exception) -> LedgerError:
        errors, lost = self._driver.errors, self._driver.OperationalError
        if isinstance(error, errors.LockNotAvailable):
            return LedgerError("the ledger is busy with other processes; try again")
        if isinstance(error, errors.DiskFull):
            return LedgerError("the ledger could not be written: the disk is full; nothing was answered")
        if isinstance(error, (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)):
            return LedgerError("the ledger cannot be written; check the role and that the server is not a standby")
        if isinstance(error, lost) and (self._connection is None or self._connection.closed):
            return LedgerError("the connection to the ledger's server was lost; nothing was answered; ask again")
        return LedgerError("the ledger could not be read or written; nothing was answered")

    def backup(self, target: Path) -> int:
        raise RequestError(f"{DUMP}; run pg_dump with --format custom --file {target}")

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, *, accept_loss: bool = False, latest: bool = False) -> int:
        """Count as spent the entries that this host's anchor remembers but the ledger lacks; return their number."""
        with self.anchor.lock(), self._using():  # no process on this host can answer until this is done
            with self._changing("restore"):
                entries, mark = self._read_checked(), self.anchor.read()
                if mark is not None and mark.seq == 0:  # a host stopped while it joined: its anchor says nothing
                    check_anchor(entries, mark)
                    mark = None
                lost = lost_entries(entries, mark, accept_loss=accept_loss, latest=latest, hosts=True)
                last, statements = settlement(entries[-1], mark, lost, self._clock(), self._format())
                for sql, values in statements:
                    self._change("restore", sql, values)
                self._change("restore", f"UPDATE place SET here = {HERE}")
            self._step("restore:anchor")
            self.anchor.write(settled_mark(entries, last))
        return lost


def settle(location: str, anchor: Path, *, accept_loss: bool = False, latest: bool = False) -> int:
    """Settle a ledger that lost history or was restored from a dump; check it and return the number of lost entries."""
    with closing(PostgresLedger(location, anchor, create=False, check=False)) as ledger:
        lost = ledger.settle(accept_loss=accept_loss, latest=latest)
    PostgresLedger(location, anchor, create=False).close()
    return lost


def check_disk(fsync: str) -> None:
    """Refuse a server whose commits are not on disk when they return. The setting can change while the server runs."""
    if fsync != "on":
        raise LedgerError(
            "the ledger's server does not wait until data is on disk (fsync = off); nothing was answered; turn it on"
        )


def migration(number: int) -> str:
    """The SQL of migration number `number`."""
    return _resource(f"{number:04d}.sql")


def schema(rows: Rows) -> list[str]:
    """The schema of a ledger as sorted lines: one for every column, constraint, index, trigger and function."""
    return sorted(" | ".join(map(str, row)) for row in rows)


def expected_schema(format: int) -> list[str]:
    """The lines that `schema` must return for a ledger of this format."""
    return sorted(_resource(f"{format:04d}.txt").splitlines())


def _resource(name: str) -> str:
    return files("countveil.ledger").joinpath(f"migrations/postgres/{name}").read_text(encoding="utf-8")


def _translate(sql: str) -> str:
    return sql.replace("?", "%s")


def _encode(value: object) -> object:
    """Encode text for PostgreSQL, which cannot store NUL: SUB (0x1A) and a digit stand for NUL (0) or for SUB (1)."""
    return value.translate({0: "\x1a0", 0x1A: "\x1a1"}) if isinstance(value, str) else value


def _row(cursor: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A row factory that decodes what `_encode` has encoded."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and "\x1a" in value:
            return re.sub("\x1a([01])", lambda match: "\x00\x1a"[int(match[1])], value)
        return value

    return lambda values: tuple(map(read, values))
