"""The ledger: what may be spent, what was spent, and every answer given. Pay first; a repeat is a replay.

    records       entries in a hash chain, plans, charges, and the secret that keys fingerprints of data
    anchor        how far the ledger had come, kept elsewhere
    store         one connection, durable changes, the chain and its anchor
    group_commit  changes that wait at the same time share one transaction and one sync
    budgets       plans of pools, what was opened in them, shares
    book          charges, answers and requests: `Ledger`, whatever database keeps it
    sqlite        one file, one writer at a time, durable before anything is answered; connection: how it is opened
    postgres      one database for curators on several hosts; opening: which of the two a configuration means
    checking      what the entries add up to; chain, tables and anchor against one another
    settling      what was lost is spent; restoring: bringing back a copy of a file

Rules that every ledger keeps: a charge is one guarded statement; a charge has at most one answer; the same question on
the same version of the data is charged once; nothing is refunded; history is checked before the first question.
"""

from countveil.ledger.book import Ledger
from countveil.ledger.records import Asked, Charge, Entry, Keyed, PlanRecord, Request, Standing

__all__ = ["Asked", "Charge", "Entry", "Keyed", "Ledger", "PlanRecord", "Request", "Standing"]
