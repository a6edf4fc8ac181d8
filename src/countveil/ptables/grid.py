"""Rounding a law to a grid of 1/units, keeping its sum, and its mean where that is zero, exact.

Files hold eight decimals, or K equally likely keys. Every cell is rounded to the nearest, and the cells that are
furthest from their value take what is then missing or too much. What is then wrong with the mean is mended by moving
units between cells that feel it least. Cells below half a unit vanish, or (`keep`) have one unit: which is better for
privacy is measured by the caller. Nothing here is a guarantee of privacy: the rounded table is measured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from countveil.errors import InfeasibleError
from countveil.ptables.table import Row

_CANDIDATES = 48
"""Cells that may take part in mending the mean: the heaviest."""


def nearest_even(weight: int, total: int, units: int) -> int:
    """weight / total in units, with the parity of `units`: then two equal sides can share the rest."""
    parity = units % 2
    return min(units, max(0, 2 * round(Fraction(weight * units - parity * total, 2 * total)) + parity))


def rounded(
    weights: Mapping[int, int], total: int, units: int, *, unbiased: bool, centre: int | None = None, keep: bool = False
) -> Row:
    """The law v -> weight / total as a row over `units`.

    **Guarantee.** The weights sum to `units`; with `unbiased` their mean is exactly zero; `centre`, where given, is
    exactly the weight of v = 0. No cell that was zero is positive.

    >>> rounded({-1: 1, 0: 1, 1: 1}, 3, 100, unbiased=True)
    Row(least=-1, weights=(33, 34, 33), total=100)
    """
    given = {v: w for v, w in weights.items() if w > 0}
    if centre is None and units > 1 and 0 in given and _is_symmetric(given):
        centre = nearest_even(given[0], total, units)
        if keep:
            centre = max(units % 2, min(centre, units - len(given) + 1))
    if centre is not None and (units - centre) % 2 == 0 and _is_symmetric(given):
        side = _apportioned({v: w for v, w in given.items() if v > 0}, total, (units - centre) // 2, units, keep)
        found = {0: centre} | side | {-v: w for v, w in side.items()}
    else:
        others = given if centre is None else {v: w for v, w in given.items() if v}
        found = _apportioned(others, total, units - (centre or 0), units, keep)
        if unbiased:
            _mend(found, others, total, units)
        if centre is not None:
            found[0] = centre
    if min(found.values(), default=0) < 0 or not any(found.values()):
        raise InfeasibleError(f"a row cannot be written with probabilities in steps of 1/{units}", "use more keys")
    return Row.of(found, units)


def _is_symmetric(given: Mapping[int, int]) -> bool:
    return all(given.get(-v) == w for v, w in given.items())


def _apportioned(given: Mapping[int, int], total: int, share: int, units: int, keep: bool) -> dict[int, int]:
    """Whole units, `share` of them together: to the nearest, then one more or less where it is due most."""
    found = {v: (2 * w * units + total) // (2 * total) or int(keep) for v, w in given.items()}
    missing = share - sum(found.values())
    while missing:
        step = 1 if missing > 0 else -1
        able = [v for v, n in found.items() if n >= (1 if step > 0 else 2)]
        able = able or [v for v, n in found.items() if n >= (0 if step > 0 else 1)]
        if not able:
            raise InfeasibleError(f"a row cannot be written with probabilities in steps of 1/{units}", "use more keys")
        able.sort(key=lambda v: (step * (found[v] * total - given[v] * units), abs(v), v))
        for v in able[: abs(missing)]:
            found[v] += step
            missing -= step
    return found


def _mend(found: dict[int, int], given: Mapping[int, int], total: int, units: int) -> None:
    """Move units between cells until the mean is zero, each time where the cells feel it least for what it mends.

    A move of k units from a to b mends k (b - a); k is 1 unless much is wrong. Cells feel a change in proportion to the
    square of how far they are then from their value, relative to it. Where no move mends so little as is wrong, a chain
    of moves in both directions does.
    """
    heavy = sorted((v for v, w in found.items() if w), key=lambda v: (-found[v], abs(v), v))[:_CANDIDATES]
    exact = {v: given[v] * units / total for v in heavy}
    moment = sum(v * w for v, w in found.items())
    while moment:
        far = max(heavy) - min(heavy) + 1
        k = max(1, abs(moment) // (4 * far))
        sign = -1 if moment > 0 else 1
        steps = [d for d in _steps(heavy) if 0 < k * d * sign <= abs(moment)]
        for step in [None] if steps else _chain(moment, _steps(heavy), 4 * far):
            wanted = set(steps) if step is None else {step}
            a, b = _least_felt(found, exact, wanted, k)
            found[a] -= k
            found[b] += k
            moment += k * (b - a)


def _steps(cells: Sequence[int]) -> set[int]:
    return {b - a for a in cells for b in cells if a != b}


def _least_felt(found: Mapping[int, int], exact: Mapping[int, float], steps: set[int], k: int) -> tuple[int, int]:
    """The move of k units, by one of these steps, that is felt least for what it mends; no cell is emptied."""
    gain = {v: _strain(found[v] + k, x) - _strain(found[v], x) for v, x in exact.items()}
    loss = {v: _strain(found[v] - k, x) - _strain(found[v], x) for v, x in exact.items() if found[v] > k}
    moves = [((gain[b] + loss[a]) / abs(b - a), a, b) for a in loss for b in gain if b - a in steps]
    if not moves:
        raise InfeasibleError("a row has too few units to have a mean of exactly zero", "use more keys")
    _, a, b = min(moves)
    return a, b


def _chain(moment: int, steps: set[int], limit: int) -> list[int]:
    """The fewest steps that add up to -moment, none of the sums on the way beyond the limit."""
    before: dict[int, tuple[int, int]] = {}
    reached = [moment]
    while reached and 0 not in before:
        ahead = []
        for at in reached:
            for step in sorted(steps, key=abs):
                there = at + step
                if abs(there) <= limit and there != moment and there not in before:
                    before[there] = (at, step)
                    ahead.append(there)
        reached = ahead
    if 0 not in before:
        raise InfeasibleError("a row has no cells that can make its mean exactly zero", "use more keys")
    chain, at = [], 0
    while at != moment:
        at, step = before[at]
        chain.append(step)
    return chain[::-1]


def _strain(weight: int, exact: float) -> float:
    return (weight - exact) ** 2 / (exact + 1)
