"""A bound on the work that one question may cost: what needs more is refused, not waited for.

Steps are counted where the work is done, less than a microsecond each: a refusal depends on the question and the schema
alone, never on the machine or the data.
"""

from __future__ import annotations

from countveil.errors import QueryError

MAX_EFFORT = 2_000_000


class Effort:
    """Steps left to spend."""

    __slots__ = ("left",)

    def __init__(self, limit: int | None = None) -> None:
        self.left = MAX_EFFORT if limit is None else limit

    def spend(self, steps: int) -> None:
        """Count steps, or refuse the question."""
        self.left -= steps
        if self.left < 0:
            raise QueryError("a condition too tangled to compare with others", "write it shorter, or ask in parts")
