"""The ledger: what may be spent, what was spent, and every answer given.

    records             entries in a hash chain, plans, charges, and the secret key for fingerprints of the data
    ledger              charges, answers and requests: `Ledger`, the same for every database
    budgets             plans of pools and their grades, extensions, shares
    store               one connection, durable changes, the hash chain and its anchor
    group_commit        queued changes share one transaction and one sync
    anchor              a small file, kept elsewhere, that records the last entry of the ledger
    verification        replays the entries; checks the hash chain, the tables and the anchor
    loss                counts lost history as spent
    restoration         how a copy of a file replaces the ledger
    sqlite              the ledger in one file, one writer at a time
    sqlite_connection   connections to that file, and its schema
    postgres            the ledger in a database, for curators on several hosts
    migrations          the schemas, and how one format becomes the next

Rules that every ledger keeps: A question is paid for before it is answered, and asking it again replays its answer. A
charge is one SQL statement that cannot overspend. A charge has at most one answer. The same question on the same
version of the data is charged once in each grade. Nothing is refunded. A ledger's history is checked before it is used.
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
