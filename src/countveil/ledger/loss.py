"""Settling what was lost, so that it can never be spent twice; whatever database keeps the ledger.

A ledger that reaches its anchor has lost nothing. One that ends before it has lost some entries: any of them may have
been a charge of any pool, and any open charge may have been answered since. So every pool, and every pool planned
later, is charged with as many answers as entries were lost (never more than it has), and open charges are void.

Where a plan may be among them, its answers came from a mechanism that nobody knows any more: the entry says so, and
from then on no epsilon is stated.
"""

from __future__ import annotations

from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Mark
from countveil.ledger.checking import check_anchor
from countveil.ledger.records import Entry, canonical, changes_plans, sealed

EVERYTHING = 10**9
"""Entries lost where nobody knows how many: no pool has more answers."""


def lost_entries(
    entries: list[Entry], mark: Mark | None, *, accept_loss: bool, latest: bool, hosts: bool = False
) -> int:
    """How many entries a ledger lacks; a loss must be accepted, another branch or another ledger is refused.

    With several `hosts`, one that had seen less may have settled first. Where the others' anchors then left the
    history, nobody knows: all that they remember counts as lost.
    """
    lost = _lost(entries, mark, latest, hosts)
    if lost and not accept_loss:
        what = f"{lost} entries would be lost" if mark else "without an anchor nobody knows what is missing"
        hint = "" if mark else ", or --latest if nothing is"
        raise RequestError(f"{what}; add --accept-loss to charge every pool for what may be missing{hint}")
    return lost


def _lost(entries: list[Entry], mark: Mark | None, latest: bool, hosts: bool) -> int:
    if mark is None:
        return 0 if latest else EVERYTHING
    if latest:
        raise RequestError("--latest is for a lost anchor; this anchor is there and knows")
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
    last: Entry, mark: Mark | None, lost: int, time: str
) -> tuple[Entry, list[tuple[str, tuple[object, ...]]]]:
    """The entry that puts a restore on the record, and the statements of its one transaction.

    They spend what may have been spent since, and void every charge that may have been answered.
    """
    anchor = [mark.seq, mark.hash] if mark else None
    body = {"lost": lost, "anchor": anchor, "plan_lost": lost > 0 and not _knows_plans(last, mark)}
    seq = last.seq + lost + 1  # past all that may be missing, so that no older copy will ever count as less of a loss
    entry = sealed(last, time, "restore", body, seq)
    row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
    spend = "UPDATE pool SET spent = CASE WHEN spent + ? < answers THEN spent + ? ELSE answers END"
    statements: list[tuple[str, tuple[object, ...]]] = [
        ("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row),
        (spend, (lost, lost)),
    ]
    if lost or mark is None:
        statements.append(("UPDATE charge SET void = 1 WHERE id NOT IN (SELECT charge FROM answer)", ()))
        statements.append(("DELETE FROM request WHERE charge IN (SELECT id FROM charge WHERE void = 1)", ()))
    return entry, statements


def _knows_plans(last: Entry, mark: Mark | None) -> bool:
    """Whether every plan that the anchor remembers is in a ledger that ends before the anchor."""
    return mark is not None and mark.plan is not None and mark.plan <= last.seq < mark.seq


def settled_mark(entries: list[Entry], last: Entry) -> Mark:
    """Where the anchor is after a settlement."""
    plans = [each.seq for each in (*entries, last) if changes_plans(each.kind, each.body)]
    return Mark(str(entries[0].body["ledger"]), last.seq, last.hash, max(plans, default=0))
