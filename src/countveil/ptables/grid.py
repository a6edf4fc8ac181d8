"""Round a row to multiples of 1/units; the sum stays exactly 1, and a zero mean stays exactly zero.

Files store eight decimals, or K equally likely cell keys. Every probability is rounded to the nearest unit; then the
ones with the largest rounding error gain or lose a unit until the sum is right. Then units move between outcomes, with
the smallest relative change, until the mean is zero. Probabilities below half a unit become 0 or, with `keep`, one
unit; the caller measures which is better for privacy. Nothing here guarantees privacy: the rounded table is measured
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from countveil.errors import InfeasibleError
from countveil.ptables.table import Row

_CANDIDATES = 48
"""To correct the mean, units may move between this many outcomes, the likeliest ones."""


def nearest_even(weight: int, total: int, units: int) -> int:
    """weight / total as a number of units, rounded so that the rest of `units` can be split into two equal sides."""
    parity = units % 2
    return min(units, max(0, 2 * round(Fraction(weight * units - parity * total, 2 * total)) + parity))


def round_row(
    weights: Mapping[int, int], total: int, units: int, *, unbiased: bool, centre: int | None = None, keep: bool = False
) -> Row:
    """The row with probabilities weights[v] / total of the noise v, rounded to multiples of 1/units.

    **Guarantee.** The new weights sum to `units`; with `unbiased` their mean is exactly zero; `centre`, where given, is
    exactly the weight of v = 0. A weight of zero stays zero.

    >>> round_row({-1: 1, 0: 1, 1: 1}, 3, 100, unbiased=True)
    Row(least=-1, weights=(33, 34, 33), total=100)
    """
    given = {v: w for v, w in weights.items() if w > 0}
    if centre is None and units > 1 and 0 in given and _is_symmetric(given):
        centre = nearest_even(given[0], total, units)
        if keep:
            centre = max(units % 2, min(centre, units - len(given) + 1))
    if centre is not None and (units - centre) % 2 == 0 and _is_symmetric(given):
        side = _apportion({v: w for v, w in given.items() if v > 0}, total, (units - centre) // 2, units, keep)
        cells = {0: centre} | side | {-v: w for v, w in side.items()}
    else:
        others = given if centre is None else {v: w for v, w in given.items() if v}
        cells = _apportion(others, total, units - (centre or 0), units, keep)
        if unbiased:
            _correct_mean(cells, others, total, units)
        if centre is not None:
            cells[0] = centre
    if min(cells.values(), default=0) < 0 or not any(cells.values()):
        raise InfeasibleError(f"a row cannot be written with probabilities in steps of 1/{units}", "use more cell keys")
    return Row.of(cells, units)


def _is_symmetric(given: Mapping[int, int]) -> bool:
    return all(given.get(-v) == w for v, w in given.items())


def _apportion(given: Mapping[int, int], total: int, share: int, units: int, keep: bool) -> dict[int, int]:
    """Round the weights to whole units that sum to `share`.

    Each is rounded to the nearest unit; then weights are corrected by one unit, largest error first.
    """
    cells = {v: (2 * w * units + total) // (2 * total) or int(keep) for v, w in given.items()}
    missing = share - sum(cells.values())
    while missing:
        step = 1 if missing > 0 else -1
        able = [v for v, n in cells.items() if n >= (1 if step > 0 else 2)]
        able = able or [v for v, n in cells.items() if n >= (0 if step > 0 else 1)]
        if not able:
            raise InfeasibleError(
                f"a row cannot be written with probabilities in steps of 1/{units}", "use more cell keys"
            )
        able.sort(key=lambda v: (step * (cells[v] * total - given[v] * units), abs(v), v))
        for v in able[: abs(missing)]:
            cells[v] += step
            missing -= step
    return cells


def _correct_mean(cells: dict[int, int], given: Mapping[int, int], total: int, units: int) -> None:
    """Move units between outcomes until the mean is zero; each move has the least cost per change of the mean.

    Moving k units from a to b changes the first moment by k (b - a); k is 1 unless the moment is large. The cost of an
    outcome is its squared rounding error relative to its exact weight (`_strain`). If every single move would
    overshoot, a chain of moves in both directions is used.
    """
    heavy = sorted((v for v, w in cells.items() if w), key=lambda v: (-cells[v], abs(v), v))[:_CANDIDATES]
    exact = {v: given[v] * units / total for v in heavy}
    moment = sum(v * w for v, w in cells.items())
    while moment:
        far = max(heavy) - min(heavy) + 1
        k = max(1, abs(moment) // (4 * far))
        sign = -1 if moment > 0 else 1
        steps = [d for d in _steps(heavy) if 0 < k * d * sign <= abs(moment)]
        for step in [None] if steps else _chain(moment, _steps(heavy), 4 * far):
            wanted = set(steps) if step is None else {step}
            a, b = _cheapest_move(cells, exact, wanted, k)
            cells[a] -= k
            cells[b] += k
            moment += k * (b - a)


def _steps(cells: Sequence[int]) -> set[int]:
    return {b - a for a in cells for b in cells if a != b}


def _cheapest_move(cells: Mapping[int, int], exact: Mapping[int, float], steps: set[int], k: int) -> tuple[int, int]:
    """The move of k units from a to b, b - a in `steps`, of least cost per |b - a|; no outcome loses all its units."""
    gain = {v: _strain(cells[v] + k, x) - _strain(cells[v], x) for v, x in exact.items()}
    loss = {v: _strain(cells[v] - k, x) - _strain(cells[v], x) for v, x in exact.items() if cells[v] > k}
    moves = [((gain[b] + loss[a]) / abs(b - a), a, b) for a in loss for b in gain if b - a in steps]
    if not moves:
        raise InfeasibleError("a row has too few units for a mean of exactly zero", "use more cell keys")
    _, a, b = min(moves)
    return a, b


def _chain(moment: int, steps: set[int], limit: int) -> list[int]:
    """The shortest list of steps that takes `moment` to zero, with no moment on the way larger in size than `limit`."""
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
        raise InfeasibleError("no moves between the cells of a row make its mean exactly zero", "use more cell keys")
    chain, at = [], 0
    while at != moment:
        at, step = before[at]
        chain.append(step)
    return chain[::-1]


def _strain(weight: int, exact: float) -> float:
    return (weight - exact) ** 2 / (exact + 1)
