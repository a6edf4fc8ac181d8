"""Which ledger a configuration means: a file, or a database on a server."""

from __future__ import annotations

from pathlib import Path

from countveil.errors import RequestError
from countveil.ledger.book import Ledger


def open_ledger(path: Path, anchor: Path, server: str | None = None, *, create: bool = True) -> Ledger:
    """The ledger at `server`, if there is one, and otherwise in the file `path`; checked from its first entry."""
    if server is not None:
        from countveil.ledger.postgres import PostgresLedger

        return PostgresLedger(server, anchor, create=create)
    from countveil.ledger.sqlite import SqliteLedger

    return SqliteLedger(path, anchor, create=create)


def settle_ledger(
    copy: Path | None,
    path: Path,
    anchor: Path,
    server: str | None = None,
    *,
    accept_loss: bool = False,
    latest: bool = False,
) -> int:
    """Bring back a copy, or settle the ledger that is there; how many entries were lost."""
    if server is None:
        from countveil.ledger.restoring import restore

        return restore(copy, path, anchor, accept_loss=accept_loss, latest=latest)
    from countveil.ledger.postgres import DUMP, settle

    if copy is not None:
        raise RequestError(f"{DUMP}; then, without a file: countveil ledger restore")
    return settle(server, anchor, accept_loss=accept_loss, latest=latest)
