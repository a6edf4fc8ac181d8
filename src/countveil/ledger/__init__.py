"""The ledger: what may be spent, what was spent, and every answer given. Pay first; a repeat is a replay.

    records   entries in a hash chain, and what they add up to
    secret    what keys the fingerprints of data
    anchor    how far the ledger had come, kept elsewhere
    store     one connection, durable changes, the chain and its anchor
    budgets   plans of pools, what was opened in them, shares
    book      the rules of a ledger, once, whatever database keeps it
    grouping  changes that wait at the same time share one transaction and one sync
    steps     work that stops where it needs a change, so that one thread does many at a time
    sqlite    one file, one writer at a time, durable before anything is answered; connection: how it is opened
    postgres  one database for curators on several hosts; opening: which of the two a configuration means
    checking  chain, tables and anchor against one another
    settling  what was lost is spent; restoring: bringing back a copy of a file

Rules that every ledger keeps: a charge is one guarded statement; a charge has at most one answer; the same question on
the same version of the data is charged once; nothing is refunded; history is checked before the first question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from countveil.ledger.grouping import Waiting
from countveil.ledger.records import Asked, Charge, Entry, PlanRecord, Request, Standing
from countveil.ledger.secret import Keyed
from countveil.ledger.steps import Change, Steps

__all__ = ["Asked", "Charge", "Entry", "Keyed", "Ledger", "PlanRecord", "Request", "Standing"]


class Ledger(Protocol):
    """What the curator needs of a ledger."""

    @property
    def identity(self) -> str:
        """A name that no other ledger has."""
        ...

    @property
    def begun(self) -> str | None:
        """The name of the ledger, if it began with this opening."""
        ...

    def open_plan(self, plan: PlanRecord) -> None:
        """Put a pool's plan on the record; a pool has one plan."""
        ...

    def plan(self, pool: str) -> PlanRecord | None:
        """The plan that new questions of a pool are answered under, with the plans before it."""
        ...

    def plan_of(self, charge: Charge) -> PlanRecord | None:
        """The plan that a charge was made under."""
        ...

    def replan(self, plan: PlanRecord, epsilon: str, reason: str, *, since: PlanRecord) -> None:
        """Put a further plan of a pool on the record; with all that was ever opened in the pool it costs `epsilon`.

        What is left of the plans before can no longer be spent, and what was paid and not answered is void. `since` is
        the plan that there was when `epsilon` was worked out; if it is no longer so, nothing is written.
        """
        ...

    def extend(self, pool: str, answers: int, epsilon: str, reason: str, *, since: int | None = None) -> None:
        """Open more answers of a pool's mechanism; all of them then cost `epsilon` together.

        `since` is how many there were when `epsilon` was worked out; if it is no longer so, nothing is opened.
        """
        ...

    def set_share(self, pool: str, analyst: str, answers: int) -> None: ...

    def settle_anchor(self) -> None:
        """Everything that is on record is within the anchor."""
        ...

    def keyed(self, text: str) -> Keyed:
        """A hash of data, or anything else, as it may be stored: keyed with the ledger's secret."""
        ...

    def version(self, dataset: str, fingerprint: Keyed) -> int:
        """The number of a dataset's content, a new one for new content."""
        ...

    def known_version(self, dataset: str, fingerprint: Keyed) -> int | None:
        """The number of a dataset's content, if it was asked about; nothing is written."""
        ...

    def unkeyed_fingerprints(self) -> Set[str]:
        """The hashes of data that was asked before the ledger had a secret."""
        ...

    def bind(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> None:
        """Put on record which pool pays for a dataset, and who a person is in it; a change is refused."""
        ...

    def check_binding(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> bool:
        """Refuse what `bind` would refuse, without a change; whether the dataset is on record already."""
        ...

    def check_pool(self, dataset: str, pool: str, unit: str) -> Mapping[str, tuple[str, str]]:
        """Refuse another pool or unit than a dataset was asked with, whatever its data; those of all on record."""
        ...

    def debt(self, pool: str) -> int:
        """Answers that lost history may have given beyond all that a pool had."""
        ...

    def lost(self) -> int:
        """Entries that restored copies lacked: every pool that is planned from now on is charged with as many."""
        ...

    def plan_lost(self) -> bool:
        """Whether a plan may have been among those entries; then no pool has an epsilon that can be stated."""
        ...

    def find(self, pool: str, dataset: str, version: int, question: str) -> Charge | None:
        """The charge of a question, with its answer if there is one."""
        ...

    def charge_of(self, id: str) -> Charge | None:
        """A charge by its public name, with its answer if there is one."""
        ...

    def requested(self, analyst: str, request: Request) -> Charge | None:
        """The charge that the same request got before; another request under the same key is refused."""
        ...

    def charge(
        self,
        pool: str,
        dataset: str,
        version: int,
        question: str,
        text: str,
        analyst: str,
        *,
        most: int | None = None,
        request: Request | None = None,
        plan: PlanRecord | None = None,
    ) -> Charge:
        """Pay for a question, once; durable when it returns. A question already paid for is found, not paid again.

        `most` is how many answers of the pool this analyst may pay for; `request` gets this charge from now on. Nothing
        is charged if `plan`, whose mechanism is to answer, is no longer the plan of the pool.
        """
        ...

    def charging(
        self,
        asked: Asked,
        *,
        most: int | None = None,
        request: Request | None = None,
        plan: PlanRecord | None = None,
    ) -> Steps[Charge]:
        """`charge`, step by step."""
        ...

    def record(self, charge: Charge, payload: bytes) -> Charge:
        """Keep the answer of a charge; durable when it returns. The first answer recorded is the answer."""
        ...

    def recording(self, charge: Charge, payload: bytes) -> Steps[Charge]:
        """`record`, step by step."""
        ...

    def made(self, changes: Sequence[Change]) -> list[Waiting[Any]]:
        """Make changes that are wanted at the same time, in one transaction as far as can be; what came of each."""
        ...

    def standing(self, pool: str, analyst: str | None = None) -> Standing: ...

    def spent_by(self, pool: str, analyst: str) -> int:
        """How many answers of a pool an analyst has paid for."""
        ...

    def shares(self, pool: str) -> Mapping[str, Standing]: ...

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterable[Charge]: ...

    def entries(self) -> Iterable[Entry]: ...

    def verify(self) -> int:
        """Walk the whole chain again and check everything against it; the number of entries."""
        ...

    def close(self) -> None: ...
