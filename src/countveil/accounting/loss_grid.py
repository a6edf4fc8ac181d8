"""Losses on a grid of step h: laws that dominate a pair, and laws that a pair dominates.

**Above** (connecting the dots, Doroshenko et al. 2022). The curve delta(E) of a pair is convex in E, so joining its
values at the orders e^(jh) by straight lines gives a larger curve, whose losses are on the grid. An outcome of loss l
between two grid points is split between them so that both its P- and its Q-probability are kept. Where several pairs
are possible their curves' maximum is joined: it dominates every one of them, at every order, below 1 too.

**Below.** Merging outcomes is post-processing, which cannot raise a curve. An outcome is merged with just so much of
the outcomes above it that the loss of the merged one is on the grid.

Both change the mean loss by no more than second order: the step can be coarse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.accounting.pairs import LOSS_ERROR, Floats, Pair


@dataclass(frozen=True, eq=False)
class Losses:
    """P-probabilities of losses h * position, and of infinite loss; `error` bounds their relative error."""

    step: float
    position: np.typing.NDArray[np.int64]
    p: Floats
    infinite: float
    error: float

    @property
    def loss(self) -> Floats:
        return np.multiply(self.position, self.step, dtype=np.float64)

    @property
    def reach(self) -> float:
        """The largest |loss|."""
        return float(np.abs(self.loss).max(initial=0.0))


def above(pairs: Sequence[Pair], step: float) -> Losses:
    """A law on the grid that dominates every pair."""
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
        infinite = 1.0  # nothing that both neighbours have is heavy enough to be seen
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
    found, where = np.unique(position[p > 0], return_inverse=True)
    return found, np.bincount(where, p[p > 0], len(found)).astype(np.float64)


SEARCHED, LONGEST = 2000.0, 2**16
"""Steps in a standard deviation and in all losses, to find the heaviest one."""
ROUNDED = 1e-7
"""Losses that differ by less are one, rounded: the largest is on the grid, so that no other is rounded up."""


def heaviest_loss(pairs: Sequence[Pair], deviation: float) -> float:
    """The |loss| that weighs most in the law above all pairs: theirs, not one that is merely on a grid."""
    if len(pairs) == 1 or deviation <= 0:
        return pairs[0].heaviest_loss
    extent = max(float(np.abs(pair.loss).max()) for pair in pairs)
    step = max(deviation / SEARCHED, extent / LONGEST)
    law = above(pairs, step)
    top = abs(float(law.loss[int(law.p.argmax())])) if len(law.p) else 0.0
    near = Pair(np.concatenate([pair.p for pair in pairs]), np.concatenate([pair.loss for pair in pairs]), 0.0)
    found = near.heaviest_between(top - step, top + step) or pairs[0].heaviest_loss
    sizes = np.abs(near.loss)
    return float(sizes[sizes <= found * (1 + ROUNDED)].max(initial=found))


def below(pair: Pair, step: float) -> Losses:
    """A law on the grid that the pair dominates: outcomes merged with part of the next until they meet the grid."""
    losses = pair.loss - LOSS_ERROR * (1 + np.abs(pair.loss))
    outcomes = [(p, p * math.exp(-loss)) for p, loss in zip(pair.p.tolist(), losses.tolist(), strict=True)]
    if pair.infinite:
        outcomes.append((pair.infinite * (1 - 2.0**-50), 0.0))
    masses: dict[int, float] = {}
    p, q = outcomes[0]
    for next_p, next_q in outcomes[1:]:
        position = math.ceil(math.log(p / q) / step - 1e-9)
        order = math.exp(position * step)
        lacking, spare = max(0.0, order * q - p), next_p - order * next_q
        if spare <= lacking:
            p, q = p + next_p, q + next_q
        else:
            share = lacking / spare
            masses[position] = masses.get(position, 0.0) + p + share * next_p
            p, q = (1 - share) * next_p, (1 - share) * next_q
    if q > 0:  # nothing is above the last outcome: round its loss down
        loss = math.log(p / q)
        position = math.floor((loss + 4 * LOSS_ERROR * (1 + abs(loss))) / step)
        masses[position] = masses.get(position, 0.0) + min(p, q * math.exp(position * step))
        p = 0.0
    positions = np.array(sorted(masses), dtype=np.int64)
    return Losses(step, positions, np.array([masses[i] for i in positions.tolist()]), p, len(outcomes) * 2.0**-50)
