"""The budget page: answers left, the questions asked and by whom, and whether the ledger is intact."""

from __future__ import annotations

from typing import Any

from countveil.curator.curator import Curator
from countveil.curator.receipts import PoolBudget
from countveil.errors import CountveilError
from countveil.service.api_keys import Key
from countveil.service.problem_json import to_problem
from countveil.service.routes import list_pools

MOST_ASKED = 200


def build_page(curator: Curator, key: Key, verify: bool) -> dict[str, Any]:
    """The values that the page shows. Curators see everyone's questions, analysts their own."""
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
            values["broken"] = to_problem(error)
    return values


def _pools(curator: Curator, key: Key) -> list[dict[str, Any]]:
    """The budgets that the holder of a key sees: curators see whole pools, others their share of each pool.

    `own` is None for an analyst without a share of a pool. `answers_left` counts only grades of single questions;
    `pays` names the publication for which each other grade pays.
    """
    budgets = []
    for visible, whole in zip(list_pools(curator, key), curator.budget(), strict=True):
        published = {grade: each.name for each in curator.config.publications_of(whole.pool) for grade in each.grades}
        single = [each for each in whole.grades if each.name not in published]
        total, whole_left = sum(each.answers_total for each in single), sum(each.answers_left for each in single)
        left, own = visible["answers_left"], _answers_of_key(whole, key, total)
        if key.role == "curator":
            left, own = whole_left, total
            visible = {**visible, "grades": whole.grades}
        more = {"answers_left": left, "own": own, "whole_left": whole_left, "single": len(single), "pays": published}
        budgets.append({**visible, **more})
    return budgets


def _answers_of_key(pool: PoolBudget, key: Key, total: int) -> int | None:
    """How many answers of a pool a key may pay for: its share, if the pool has shares, but at most the key's own limit.

    None if the pool has shares and the key has none.
    """
    if pool.shares and key.name not in pool.shares:
        return None
    most = pool.shares[key.name].answers if pool.shares else total
    if key.answers is None:
        return most
    return min(most, key.answers if isinstance(key.answers, int) else sum(key.answers.values()))
