"""The ledger in a PostgreSQL database, for several curators on several hosts.

    CREATE ROLE curator LOGIN PASSWORD '...';
    CREATE DATABASE ledger OWNER curator;
    REVOKE CONNECT, TEMPORARY ON DATABASE ledger FROM PUBLIC;

Every change is one transaction that first takes the ledger's lock, so that the chain is serial; the guarded statement
and the CHECK hold all the same. Commits are on disk when they return, and a server that does not write to disk is
refused, at the start and in every change. A commit whose outcome is unknown counts as a failure: asking again finds its
charge, or makes one.

The anchor is a local file of each host, and remembers how far that host has seen the ledger. A host without one joins:
its anchor begins with what it sees. What the server says goes nowhere: it can quote questions and passwords.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from countveil.errors import LedgerError, MissingExtraError, RequestError, shortened
from countveil.ledger import anchor as anchors
from countveil.ledger.anchor import Anchor
from countveil.ledger.book import Ledger
from countveil.ledger.checking import check_anchor, check_rows
from countveil.ledger.records import LATEST, Entry
from countveil.ledger.settling import lost_entries, settled_mark, settlement
from countveil.ledger.store import Rows, now

LOCK = 0x636F756E747665
"""The ledger's lock, among the advisory locks of its database."""
DUMP = "a ledger on PostgreSQL is copied with pg_dump and brought back with pg_restore"
HERE = (
    "(SELECT system_identifier || '/' || d.oid || '/' || CAST('countveil.entry' AS regclass)::oid || "
    "CASE WHEN format > 1 THEN '/' || (SELECT xmin FROM countveil.entry WHERE seq = 1) ELSE '' END "
    "FROM pg_control_system(), pg_database AS d WHERE d.datname = current_database())"
)
"""Which table of which server the ledger is, and (from format 2 on) which transaction wrote its first entry; for a row
of `place`. A dump that was brought back is another table, and the data of one, brought back into the tables that were
there, was written by another transaction."""
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
    """A ledger on a server and this host's anchor. `clock` and `step` as everywhere; `check` is off to settle it."""

    order = "made"

    def __init__(
        self,
        location: str,
        anchor: Path,
        *,
        create: bool = True,
        check: bool = True,
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
        self.location, self._inside = location, False
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
                            self._checked()  # so that who cannot join has no anchor that seems to know something
                    self.anchor.begin(self.identity)  # at 0, if this host has none; checked from there
                    self.verify()
                    self._load_secret()
        except BaseException:
            self.close()
            raise

    # -- opening -----------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        """The server and the database for messages: never a password, or whatever else an address carries."""
        try:
            found = self._driver.conninfo.conninfo_to_dict(self.location)
        except self._driver.Error:
            return "postgresql://"
        host, port, name = (str(found.get(key, "")) for key in ("host", "port", "dbname"))
        place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port.strip(",") else "")
        return shortened(f"postgresql://{place}/{name}", 100)

    def _open(self) -> Any:
        options: dict[str, Any] = {"connect_timeout": 30, "client_encoding": "UTF8", "application_name": "countveil"}
        options |= {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "tcp_user_timeout": 60_000}
        wait = str(int(anchors.WAIT * 1000))
        try:
            db: Any = self._driver.connect(self.location, autocommit=True, prepare_threshold=None, **options)
        except (self._driver.Error, ValueError, UnicodeError):
            raise LedgerError(
                f"the ledger's server {self.shown} could not be reached; nothing was answered; "
                "check the address, the role and its password, and ask again"
            ) from None
        try:
            fsync, encoding = db.execute(_translated(_SETTINGS), (wait,)).fetchone()[:2]
            check_disk(fsync)
            if encoding != "UTF8":
                raise LedgerError("the ledger's database does not hold all text; make one with ENCODING 'UTF8'")
        except BaseException:
            db.close()
            raise
        return db

    @property
    def _db(self) -> Any:
        """A connection that was lost is opened again, but never in the middle of a change."""
        lost = self._connection is not None and self._connection.closed
        if lost and not self._inside and not self._closed:
            self._connection = None
        return super()._db

    def _found(self) -> bool:
        """Asked of the catalogue's rows: names are looked up in a cache, which the lock does not refresh."""
        return self._execute("SELECT 1 FROM pg_tables WHERE schemaname = 'countveil'").fetchone() is not None

    def _format(self) -> int:
        """The format of the ledger; one that this version does not know is refused."""
        found = int(self._execute("SELECT format FROM place").fetchone()[0])
        if found > LATEST:
            raise LedgerError(f"the ledger has format {found}, this countveil knows {LATEST}; update countveil")
        return found

    def _upgrade(self) -> None:
        """Bring a ledger of an earlier format to the latest, in one transaction, if its history holds."""
        with self._transaction("migrate"):
            version = self._format()
            if version == LATEST:
                return  # another process was first
            self._check_place("migrate")
            entries, mark = self._checked(), self.anchor.read()
            if mark is None or mark.seq == 0:
                raise LedgerError(
                    f"a ledger of format {version} does not show whether it was brought back from a dump, and this "
                    "host has no anchor that knows; if it is the latest, say so with: countveil ledger restore --latest"
                )
            check_anchor(entries, mark)
            for number in range(version + 1, LATEST + 1):
                self._change("migrate", migration(number))
            self._change("migrate", "UPDATE place SET format = ?", (LATEST,))
            self._change("migrate", f"UPDATE place SET here = {HERE}")
            if version == 1:
                self._key_versions()

    def _migrate(self, create: bool, upgrade: bool) -> None:
        """Make the ledger's tables, or bring them to the latest format; one that is to be settled stays as it is."""
        if self._found():
            if self._format() < LATEST and upgrade:
                self._upgrade()
            return
        with self._transaction("migrate"):
            if self._found():
                return  # another process was first
            mark = self.anchor.read()
            if mark is not None and mark.seq > 0:
                raise LedgerError(
                    f"the ledger on {self.shown} is gone, but its anchor remembers {mark.seq} entries; bring back a "
                    "dump with pg_restore, then: countveil ledger restore"
                )
            if not create:
                raise LedgerError(f"there is no ledger on {self.shown}")
            for number in range(1, LATEST + 1):
                self._change("migrate", migration(number))
            self._change("migrate", f"INSERT INTO place (format, here) VALUES ({LATEST}, '')")
            ledger = mark.ledger if mark else uuid.uuid4().hex
            self._append("open", {"ledger": ledger, **self._draw_secret()})
            self._change("migrate", f"UPDATE place SET here = {HERE}")
            self.begun = self.shown

    # -- what the rules of a ledger need -----------------------------------------------------------------------------

    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """Outside of a change there are only statements that may be repeated, once, on a new connection."""
        db = self._db
        try:
            return self._run(db, sql, values)
        except self._driver.OperationalError:
            if self._inside or not db.closed:
                raise
            return self._run(self._db, sql, values)

    def _run(self, db: Any, sql: str, values: tuple[object, ...]) -> Any:
        return db.cursor(row_factory=_row).execute(_translated(sql), [_stored(value) for value in values] or None)

    def _in_change(self) -> bool:
        return self._inside and not self._connection.closed

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        self._change(f"{name}:begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        with self._begun() as db:
            # READ COMMITTED: what is read after the lock is what the last holder left
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
        with self._begun() as db:
            yield
            self._run(db, "ROLLBACK", ())

    @contextmanager
    def _begun(self) -> Iterator[Any]:
        """Until it is over, one transaction on one connection: what fails in between is undone, or was lost."""
        db, self._inside = self._connection, True
        try:
            yield db
        except BaseException:
            try:
                db.execute("ROLLBACK")
            except self._driver.Error:
                db.close()  # the server undoes what it did not commit
            raise
        finally:
            self._inside = False

    def _check_place(self, name: str) -> None:
        """The ledger is where it was made, has our format, and holds what this host has seen of it."""
        changing = name not in ("open", "migrate", "restore")
        secret = "(SELECT value FROM secret)" if changing else "NULL"
        asked = f"SELECT format, here = {HERE}, current_setting('fsync'), {secret} FROM place"
        version, here, fsync, value = self._execute(asked).fetchone()
        check_disk(fsync)
        if version != LATEST and name not in ("migrate", "restore"):  # an older one is settled first, then migrated
            raise LedgerError("another version of countveil changed the ledger's format; nothing was answered; update")
        if name == "restore":
            return
        if not here:
            raise LedgerError("the ledger was brought back from a dump; settle it with: countveil ledger restore")
        if changing and value != self._secret.export():
            raise LedgerError(
                "the ledger's secret is not the one it was opened with; nothing was answered; start again"
            )
        if changing:
            self._check_holds(self.anchor.found())

    def _checked(self) -> list[Entry]:
        format = self._format()
        if schema(self._execute(_SCHEMA).fetchall()) != written_schema(format):
            raise LedgerError(
                "the ledger was changed: its tables, triggers or limits are not its own; restore a backup"
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
        raise RequestError(f"{DUMP}; give pg_dump this file name")

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, *, accept_loss: bool = False, latest: bool = False) -> int:
        """Settle the ledger that is there with this host's anchor, on the record; how many entries were lost."""
        with self.anchor.held(), self._using():  # nobody on this host gets an answer out until this is done
            with self._changing("restore"):
                entries, mark = self._checked(), self.anchor.read()
                if mark is not None and mark.seq == 0:  # left by a host that began to join: it remembers nothing
                    check_anchor(entries, mark)
                    mark = None
                lost = lost_entries(entries, mark, accept_loss=accept_loss, latest=latest, hosts=True)
                last, statements = settlement(entries[-1], mark, lost, self._clock())
                for sql, values in statements:
                    self._change("restore", sql, values)
                self._change("restore", f"UPDATE place SET here = {HERE}")
            self._step("restore:anchor")
            self.anchor.write(settled_mark(entries, last))
        return lost


def settle(location: str, anchor: Path, *, accept_loss: bool = False, latest: bool = False) -> int:
    """Settle a ledger that lost history, or was brought back from a dump, where it is; then check it."""
    with closing(PostgresLedger(location, anchor, create=False, check=False)) as ledger:
        lost = ledger.settle(accept_loss=accept_loss, latest=latest)
    PostgresLedger(location, anchor, create=False).close()
    return lost


def check_disk(fsync: str) -> None:
    """Refuse a server whose commits are not on disk when they return; this can be set while it runs."""
    if fsync != "on":
        raise LedgerError(
            "the ledger's server does not write to disk (fsync = off); nothing was answered; set it to on"
        )


def migration(number: int) -> str:
    """The statements of a migration."""
    return _resource(f"{number:04d}.sql")


def schema(rows: Rows) -> list[str]:
    """Every column, constraint, index, trigger and function of a ledger, a line each."""
    return sorted(" | ".join(map(str, row)) for row in rows)


def written_schema(format: int) -> list[str]:
    """What they should be after so many migrations."""
    return sorted(_resource(f"{format:04d}.txt").splitlines())


def _resource(name: str) -> str:
    return files("countveil.ledger").joinpath(f"migrations/postgres/{name}").read_text(encoding="utf-8")


def _translated(sql: str) -> str:
    return sql.replace("?", "%s")


def _stored(value: object) -> object:
    """PostgreSQL's text has no NUL: it is written as SUB 0, and SUB as SUB 1."""
    return value.translate({0: "\x1a0", 0x1A: "\x1a1"}) if isinstance(value, str) else value


def _row(cursor: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Rows as they were before they were stored."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and "\x1a" in value:
            return re.sub("\x1a([01])", lambda found: "\x00\x1a"[int(found[1])], value)
        return value

    return lambda values: tuple(map(read, values))
