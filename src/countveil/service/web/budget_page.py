"""The page of the budget: what is left, what was asked and by whom, and whether the chain holds."""

from __future__ import annotations

from typing import Any

from countveil.answers import PoolBudget
from countveil.curator import Curator
from countveil.errors import CountveilError
from countveil.keys import Key
from countveil.service.problems import problem
from countveil.service.routes import pools

MOST_ASKED = 200


def page(curator: Curator, key: Key, verify: bool) -> dict[str, Any]:
    """What the page shows. Curators see everyone's questions, analysts their own."""
    who = None if key.role == "curator" else key.name
    asked = list(curator.ledger.charges(analyst=who))
    values: dict[str, Any] = {
        "key": key,
        "pools": _pools(curator, key),
        "asked": asked[::-1][:MOST_ASKED],
        "older": max(0, len(asked) - MOST_ASKED),
        "entries": None,
        "broken": None,
    }
    if verify:
        try:
            values["entries"] = curator.ledger.verify()
        except CountveilError as error:
            values["broken"] = problem(error)
    return values


def _pools(curator: Curator, key: Key) -> list[dict[str, Any]]:
    """The budgets that a key sees: a curator the whole of each, others their own part of it, None if they have none."""
    found = []
    for seen, whole in zip(pools(curator, key), curator.budget(), strict=True):
        left, own = seen["answers_left"], _own(whole, key)
        if key.role == "curator":
            left, own = whole.answers_left, whole.answers_total
        found.append({**seen, "answers_left": left, "own": own, "whole_left": whole.answers_left})
    return found


def _own(pool: PoolBudget, key: Key) -> int | None:
    """How many answers of a pool a key is for: its share where there are shares, and no more than the key's limit."""
    if pool.shares and key.name not in pool.shares:
        return None
    most = pool.shares[key.name].answers if pool.shares else pool.answers_total
    return most if key.answers is None else min(most, key.answers)
