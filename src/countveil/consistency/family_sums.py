"""Sums of the noise of whole families (cells that divide one cell of a coarser table), drawn at once.

The law of a sum of f independent noises is the f-fold convolution of the law of one noise. The sum is drawn by one
uniform number, so a simulation need not draw the noise of every cell of the finest table. The probabilities are floats,
for simulation only: their errors of about 1e-13 are far smaller than the uncertainty of a simulated quantile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.consistency.tree import Floats, Ints, Level
from countveil.consistency.uniforms import Uniforms
from countveil.laws.law import Law

GUIDE_BITS = 14
LARGEST_TABLE = 1 << 22
LEAST_GAIN = 4
"""Sums of families are drawn at once if families have at least this many nodes on average."""


@dataclass(frozen=True, eq=False)
class SumLaw:
    """The law of a sum of independent noises: `ends` are its cumulated probabilities, from the value `least` on.

    `guide` tells where in `ends` to look for a uniform number, given its leading bits.
    """

    least: int
    ends: Floats
    guide: Ints

    @staticmethod
    def of(law: Law, size: int) -> SumLaw:
        weights = np.array([w / law.total for w in law.weights])
        length = size * (len(weights) - 1) + 1
        spectrum = np.fft.rfft(weights, n=1 << max(1, length - 1).bit_length()) ** size
        sums = np.maximum(np.fft.irfft(spectrum)[:length], 0.0) if length > 1 else np.ones(1)
        ends = np.cumsum(sums)
        ends /= ends[-1]
        guide = np.searchsorted(ends, np.arange((1 << GUIDE_BITS) + 1) / (1 << GUIDE_BITS), side="right")
        return SumLaw(-law.left * size, ends, np.minimum(guide, length - 1))

    def draw(self, uniform: Floats) -> Ints:
        """Draw sums: one for each of the given uniform numbers in [0, 1)."""
        slot = (uniform * (1 << GUIDE_BITS)).astype(np.int64)
        place, last = self.guide[slot], self.guide[slot + 1]
        open_ends = np.flatnonzero(place != last)
        place[open_ends] = np.searchsorted(self.ends, uniform[open_ends], side="right")
        return np.minimum(place, len(self.ends) - 1) + self.least


class FamilySums:
    """Draws the sums of the noise of all families of a level that no finer table divides."""

    def __init__(self, level: Level, law: Law, uniforms: Uniforms) -> None:
        self.level, self.law, self.uniforms = level, law, uniforms
        order = np.argsort(level.widths, kind="stable")
        sizes, first = np.unique(level.widths[order], return_index=True)
        self.by_size = list(zip(sizes.tolist(), np.split(order, first[1:]), strict=True))
        self.laws: dict[int, SumLaw] = {}

    @staticmethod
    def pays(level: Level, law: Law) -> bool:
        """Whether drawing sums is cheaper than drawing the noise of every node."""
        sizes = np.unique(level.widths)
        table = int(sizes.sum()) * (len(law.weights) - 1)
        return len(level) >= LEAST_GAIN * len(level.starts) and 0 < table <= LARGEST_TABLE

    def sum_law(self, size: int) -> SumLaw:
        if size not in self.laws:
            self.laws[size] = SumLaw.of(self.law, size)
        return self.laws[size]

    def draw(self, runs: int) -> Ints:
        """Draw one sum for each family; an array with a row for each run."""
        sums = np.empty((runs, len(self.level.starts)), dtype=np.int64)
        for size, families in self.by_size:
            sums[:, families] = self._draw(self.sum_law(size), runs * len(families)).reshape(runs, len(families))
        return sums

    def draw_with(self, nodes: Ints, runs: int) -> tuple[Ints, Ints, Ints]:
        """Draw the noise of some nodes of different families, and the sums of all families.

        The nodes are the same in every run or, if given as a column, one for each run. Returns the noise, the families
        of these nodes, and the sums; noise and sums have a row for each run.
        """
        sums = self.draw(runs)
        family = np.searchsorted(self.level.starts, nodes, side="right") - 1
        shape = np.broadcast_shapes(nodes.shape, (runs, nodes.shape[-1]))
        own = self._draw(self.sum_law(1), shape[0] * shape[1]).reshape(shape)
        others = np.zeros(shape, dtype=np.int64)
        widths = np.broadcast_to(self.level.widths[family], shape)
        for size in np.unique(widths):
            if size > 1:
                here = widths == size
                others[here] = self._draw(self.sum_law(int(size) - 1), int(here.sum()))
        sums[np.arange(runs)[:, None], family] = own + others
        return own, family, sums

    def _draw(self, law: SumLaw, size: int) -> Ints:
        return law.draw((self.uniforms.draw(size, 53)).astype(np.float64) * 2.0**-53)
