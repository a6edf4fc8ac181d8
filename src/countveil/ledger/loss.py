"""Settle lost history: charge the budgets for everything that lost entries may have spent.

A ledger that contains the entry in its anchor has lost nothing. A ledger that ends before that entry has lost entries.
Each of them may have been a charge of any grade, or the answer to an open charge. So every grade of every pool is
charged with as many answers as entries were lost (never more than the grade has), and open charges become void. The
same holds for plans that are made after the loss: a lost entry may belong to a pool that the restored ledger does not
have yet.

If a plan may be among the lost entries, the mechanisms of its answers are unknown. The entry of the restore records
this, and from then on no epsilon is stated.
"""

from __future__ import annotations

from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Mark
from countveil.ledger.records import Entry, canonical, changes_plans, seal
from countveil.ledger.verification import check_anchor

EVERYTHING = 10**9
"""The number of lost entries to assume when it is unknown: more than any pool has answers."""


def lost_entries(
    entries: list[Entry], mark: Mark | None, *, accept_loss: bool, latest: bool, hosts: bool = False
) -> int:
    """How many entries a ledger has lost, judged by its anchor (`mark`).

    Without an anchor everything counts as lost, unless the curator states that the ledger is the `latest`. A loss is an
    error unless `accept_loss` is set. An anchor of another ledger or another history is an error, too. But with several
    `hosts`, another host with an older anchor may have settled the ledger first. Then it is unknown where the two
    histories part, so all entries up to the anchor count as lost.
    """
    lost = _lost(entries, mark, latest, hosts)
    if lost and not accept_loss:
        what = f"{lost} entries would be lost" if mark else "without an anchor the number of lost entries is unknown"
        hint = "" if mark else ", or --latest if nothing is missing"
        raise RequestError(f"{what}; add --accept-loss to charge every pool for what may be missing{hint}")
    return lost


def _lost(entries: list[Entry], mark: Mark | None, latest: bool, hosts: bool) -> int:
    if mark is None:
        return 0 if latest else EVERYTHING
    if latest:
        raise RequestError("--latest is for a lost anchor, but this ledger has its anchor; leave out --latest")
    if mark.ledger == entries[0].body["ledger"] and mark.seq > entries[-1].seq:
        return mark.seq - entries[-1].seq
    try:
        check_anchor(entries, mark)
    except LedgerError:
        if not hosts or mark.ledger != entries[0].body["ledger"]:
            raise
        return mark.seq
    return 0


def settlement(
    last: Entry, mark: Mark | None, lost: int, time: str, format: int
) -> tuple[Entry, list[tuple[str, tuple[object, ...]]]]:
    """The entry that records a restore, and the SQL statements that write it, for a ledger of this format.

    The statements also charge every grade for each lost entry. If entries may be lost, they also make every charge
    without an answer void, because its answer may be among the lost entries.
    """
    anchor = [mark.seq, mark.hash] if mark else None
    body = {"lost": lost, "anchor": anchor, "plan_lost": lost > 0 and not _knows_plans(last, mark)}
    seq = last.seq + lost + 1  # past all lost entries, so that restoring an older copy always counts as a larger loss
    entry = seal(last, time, "restore", body, seq)
    row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
    table = "grade" if format > 2 else "pool"
    spend = f"UPDATE {table} SET spent = CASE WHEN spent + ? < answers THEN spent + ? ELSE answers END"
    statements: list[tuple[str, tuple[object, ...]]] = [
        ("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row),
        (spend, (lost, lost)),
    ]
    if lost or mark is None:
        statements.append(("UPDATE charge SET void = 1 WHERE id NOT IN (SELECT charge FROM answer)", ()))
        statements.append(("DELETE FROM request WHERE charge IN (SELECT id FROM charge WHERE void = 1)", ()))
    return entry, statements


def _knows_plans(last: Entry, mark: Mark | None) -> bool:
    """Whether a ledger that ends before its anchor (`mark`) still contains every plan that the anchor knows of."""
    return mark is not None and mark.plan is not None and mark.plan <= last.seq < mark.seq


def settled_mark(entries: list[Entry], last: Entry) -> Mark:
    """The mark that the anchor gets when `last`, the entry of a restore, is written."""
    plans = [each.seq for each in (*entries, last) if changes_plans(each.kind, each.body)]
    return Mark(str(entries[0].body["ledger"]), last.seq, last.hash, max(plans, default=0))
