"""The ledger: what may be spent, what was spent, and every answer given.

    records             entries in a hash chain, plans, charges, and the secret that keys fingerprints of data
    ledger              charges, answers and requests: `Ledger`, the same for every database
    budgets             plans of pools and their grades, extensions, shares
    store               one connection, durable changes, the chain and its anchor
    group_commit        queued changes share one transaction and one sync
    anchor              a file elsewhere that remembers how far the ledger has come
    verification        replay of the entries; checks of chain, tables and anchor
    loss                lost history counts as spent
    restoration         how a copy of a file replaces the ledger
    sqlite              the ledger in one file, one writer at a time
    sqlite_connection   connections to that file, and its schema
    postgres            the ledger in a database, for curators on several hosts
    migrations          the schemas, and how one format becomes the next

Rules that every ledger keeps: a question is paid for before it is answered, and asking it again replays its answer; a
charge is one guarded SQL statement; a charge has at most one answer; the same question on the same version of the data
is charged once in each grade; nothing is refunded; history is checked before the first question.
"""

from countveil.ledger.ledger import Ledger
from countveil.ledger.records import (
    STANDARD,
    Asked,
    Charge,
    Entry,
    GradeRecord,
    Keyed,
    Most,
    PlanRecord,
    Request,
    Standing,
)

__all__ = [
    "STANDARD",
    "Asked",
    "Charge",
    "Entry",
    "GradeRecord",
    "Keyed",
    "Ledger",
    "Most",
    "PlanRecord",
    "Request",
    "Standing",
]
