"""The ledger's secret, which keys every fingerprint of data.

A hash of the data would let someone who knows everybody else's rows test one person's row with certainty. So the ledger
stores and compares HMAC-SHA256(secret, hash). The secret is drawn once and lives in a table of the ledger's database,
so that copies have it; it is in no entry. The chain holds a keyed check value, which tells a missing or different
secret, and a nonce of 256 bits that is never printed: nobody who knows what the entries say can compute their hashes.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NewType

from countveil.errors import LedgerError

Keyed = NewType("Keyed", str)
"""A value that nobody can compute without the secret."""


def new_charge_id() -> str:
    """The public name of a charge: random, so that it says nothing about the data or how many charges there are."""
    return _token(12)


class Secret:
    """A secret of 256 bits, as text."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def draw(cls) -> Secret:
        return cls(_token(32))

    def export(self) -> str:
        """The secret itself, for the table that keeps it."""
        return self._value

    def keyed(self, text: str) -> Keyed:
        """HMAC-SHA256 of a text."""
        return Keyed(hmac.new(self._value.encode(), text.encode(), hashlib.sha256).hexdigest())

    def seal(self) -> dict[str, str]:
        """What the chain holds of the secret: a fresh nonce and a check value."""
        nonce = _token(32)
        return {"nonce": nonce, "check": self._check(nonce)}

    def test(self, nonce: str, check: str) -> None:
        """Refuse to go on unless this is the secret that the chain was sealed with."""
        if not hmac.compare_digest(self._check(nonce), check):
            raise LedgerError("the ledger's secret is not the one that its entries were made with; restore a backup")

    def _check(self, nonce: str) -> str:
        return self.keyed(f"the secret of a ledger\n{nonce}")

    def __repr__(self) -> str:
        return "<Secret>"


def only_secret(rows: list[tuple[str]]) -> Secret:
    """The secret of a ledger from its table."""
    if len(rows) != 1:
        raise LedgerError(
            "the ledger's secret is missing: without it no data can be recognised; restore a backup that has it"
        )
    return Secret(rows[0][0])


def _token(size: int) -> str:
    from countveil.sampling.entropy import token  # loads numpy, which a ledger that is only read does not need

    return token(size)
