"""The page of the budget: what is left, what was asked and by whom, and whether the chain holds."""

from __future__ import annotations

from typing import Any

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
            values["broken"] = problem(error).detail
    return values


def _pools(curator: Curator, key: Key) -> list[dict[str, Any]]:
    """The budgets that a key sees, with what is left of the whole; that is also what a curator is shown."""
    found = []
    for seen, whole in zip(pools(curator, key), curator.budget(), strict=True):
        left = whole.answers_left if key.role == "curator" else seen["answers_left"]
        found.append({**seen, "answers_left": left, "whole_left": whole.answers_left})
    return found
