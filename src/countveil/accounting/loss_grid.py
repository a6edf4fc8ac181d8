"""Privacy losses on a grid of step h: laws that dominate a pair of neighbouring laws, and laws that the pair dominates.

A pair (P, Q) of laws dominates another if it has at least the other's delta at every order E = e^epsilon.

**Above** (connecting the dots, Doroshenko et al. 2022). The curve delta(E) of a pair is convex in E, so straight lines
between its values at the orders e^(jh) give a larger curve, whose losses are on the grid. An outcome of loss l between
two grid points is split between them; the split keeps its P- and its Q-probability. For several possible pairs the
lines join the maximum of their curves, which dominates every pair at every order, orders below 1 included.

**Below.** Merging outcomes is post-processing, which cannot raise a curve. An outcome is merged with enough of the
outcomes of larger loss for the merged outcome to have a loss on the grid.

Both change the mean loss by terms of second order only, so the step can be coarse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from countveil.accounting.privacy_loss import LOSS_ERROR, Floats, Pair


@dataclass(frozen=True, eq=False)
class Losses:
    """The law of the privacy loss of one answer on a grid: `p` are the probabilities of the losses step * position.

    `infinite` is the probability of an infinite loss; `error` bounds the relative error of all these probabilities.
    """

    step: float
    position: np.typing.NDArray[np.int64]
    p: Floats
    infinite: float
    error: float

    @cached_property
    def loss(self) -> Floats:
        return np.multiply(self.position, self.step, dtype=np.float64)

    @cached_property
    def reach(self) -> float:
        """The largest |loss|."""
        return float(np.abs(self.loss).max(initial=0.0))


def above(pairs: Sequence[Pair], step: float) -> Losses:
    """The law of a loss on the grid that dominates all the pairs: its delta is at least theirs at every epsilon."""
    split = [_split(pair, step) for pair in pairs]
    infinite = max(pair.infinite for pair in pairs)
    if len(split) == 1:
        position, p = split[0]
        return Losses(step, position, p, infinite, 2.0**-48)
    low = min(int(position[0]) for position, _ in split)
    high = max(int(position[-1]) for position, _ in split)
    orders = np.exp(step * np.arange(low, high + 1))
    gaps = np.diff(orders)
    largest = np.zeros(high - low + 1)
    for (position, p), pair in zip(split, pairs, strict=True):
        q = np.zeros(high - low + 1)
        q[position - low] = p / orders[position - low]
        tail = np.cumsum(q[::-1])[::-1]  # Q-probability at or above each order
        rest = np.append(np.cumsum((tail[1:] * gaps)[::-1])[::-1], 0.0)
        np.maximum(largest, rest + pair.infinite, out=largest)
    slopes = np.append((largest[:-1] - largest[1:]) / gaps, 0.0)
    first = (1.0 - largest[0]) / orders[0]  # from delta(0) = 1
    q = np.maximum(0.0, np.concatenate(([first], slopes[:-1])) - slopes)
    kept = q > 0
    if not kept.any():
        infinite = 1.0  # every common outcome underflows: on the safe side, all losses are infinite
    position = np.arange(low, high + 1)[kept]
    return Losses(step, position, q[kept] * orders[kept], infinite, (high - low + 16) * 2.0**-51)


def _split(pair: Pair, step: float) -> tuple[np.typing.NDArray[np.int64], Floats]:
    loss = pair.loss + LOSS_ERROR * (1 + np.abs(pair.loss))  # upwards: a larger loss is a larger curve
    near = np.rint(loss / step)
    on_grid = np.abs(loss - near * step) <= 4 * LOSS_ERROR * (1 + np.abs(loss))
    below = np.where(on_grid, near, np.floor(loss / step))
    excess = np.where(on_grid, 0.0, np.maximum(0.0, loss - below * step))
    upper_q = np.minimum(1.0, np.expm1(excess) / math.expm1(step))
    upper = pair.p * upper_q * np.exp(np.minimum(step, step - excess))
    lower = np.maximum(0.0, pair.p - upper)
    position = np.concatenate((below, below + 1)).astype(np.int64)
    p = np.concatenate((lower, upper))
    first = int(position.min())
    if int(position.max()) - first < WIDEST:
        masses = np.bincount(position - first, p).astype(np.float64)
        kept = np.flatnonzero(masses).astype(np.int64)
        return kept + first, masses[kept]
    positions, where = np.unique(position[p > 0], return_inverse=True)
    return positions, np.bincount(where, p[p > 0], len(positions)).astype(np.float64)


WIDEST = 2**23
"""If the extreme losses are less than this many grid points apart, an array with an entry for each is affordable."""


SEARCHED, LONGEST = 2000.0, 2**16
"""The grid of `heaviest_loss` has SEARCHED steps in a standard deviation, but at most LONGEST in the largest loss."""
ROUNDED = 1e-7
"""Losses with a smaller relative difference differ only by rounding; the largest of them is put on the grid."""


def heaviest_loss(pairs: Sequence[Pair], deviation: float) -> float:
    """The size of the likeliest loss in a law that dominates all pairs.

    It is the exact loss of one of the pairs, not a grid point.
    """
    if len(pairs) == 1 or deviation <= 0:
        return pairs[0].heaviest_loss
    extent = max(float(np.abs(pair.loss).max()) for pair in pairs)
    step = max(deviation / SEARCHED, extent / LONGEST)
    law = above(pairs, step)
    top = abs(float(law.loss[int(law.p.argmax())])) if len(law.p) else 0.0
    near = Pair(np.concatenate([pair.p for pair in pairs]), np.concatenate([pair.loss for pair in pairs]), 0.0)
    heaviest = near.heaviest_between(top - step, top + step) or pairs[0].heaviest_loss
    sizes = np.abs(near.loss)
    return float(sizes[sizes <= heaviest * (1 + ROUNDED)].max(initial=heaviest))


def below(pair: Pair, step: float) -> Losses:
    """The law of a loss on the grid that the pair dominates: its delta is at most the pair's at every epsilon.

    Each outcome is merged with outcomes of larger loss, as far as needed to bring its loss onto the grid.
    """
    losses = pair.loss - LOSS_ERROR * (1 + np.abs(pair.loss))
    cells = np.ceil(losses / step - 1e-9)
    q = pair.p * np.exp(-losses)
    order = np.exp(cells * step)
    lacking = np.maximum(0.0, order * q - pair.p)  # P-probability to add for the loss to be on the grid
    outcomes = [array.tolist() for array in (pair.p, q, cells, order, lacking)]
    if pair.infinite:
        for values, last in zip(outcomes, (pair.infinite * (1 - 2.0**-50), 0.0, 0.0, 1.0, 0.0), strict=True):
            values.append(last)
    positions: list[float] = []
    masses: list[float] = []
    following = zip(*outcomes, strict=True)
    p, other, cell, reach, lack = next(following)
    for next_p, next_q, next_cell, next_reach, next_lack in following:
        spare = next_p - reach * next_q
        if spare <= lack:
            p, other, lack = p + next_p, other + next_q, lack - spare
        else:
            share = lack / spare
            positions.append(cell)
            masses.append(p + share * next_p)
            p, other, lack = (1 - share) * next_p, (1 - share) * next_q, (1 - share) * next_lack
            cell, reach = next_cell, next_reach
    if other > 0:  # the last outcome has no outcome above it to merge with: round its loss down
        loss = math.log(p / other)
        last = math.floor((loss + 4 * LOSS_ERROR * (1 + abs(loss))) / step)
        positions.append(last)
        masses.append(min(p, other * math.exp(last * step)))
        p = 0.0
    different, where = np.unique(np.array(positions, dtype=np.int64), return_inverse=True)
    merged = np.bincount(where, masses, len(different)).astype(np.float64)
    return Losses(step, different, merged, p, (len(losses) + 1) * 2.0**-50)
