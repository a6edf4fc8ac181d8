"""Sums of the noise of whole families, drawn at once.

The sum of f independent noises of one law has the f-fold convolution of that law. It is drawn by one uniform number,
so a simulation need not draw the noise of every cell of the finest table. These are floats, for simulation only: their
errors of about 1e-13 do not matter beside the doubt of a simulated quantile.
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
"""Families are summed at once where they have at least so many nodes on average."""


@dataclass(frozen=True, eq=False)
class SumLaw:
    """The law of a sum of `size` noises: its cumulated probabilities from `least` on, and a guide into them."""

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
        """The sums for uniform numbers in [0, 1)."""
        slot = (uniform * (1 << GUIDE_BITS)).astype(np.int64)
        place, last = self.guide[slot], self.guide[slot + 1]
        open_ends = np.flatnonzero(place != last)
        place[open_ends] = np.searchsorted(self.ends, uniform[open_ends], side="right")
        return np.minimum(place, len(self.ends) - 1) + self.least


class FamilySums:
    """Draws of the sums of all families of a level that nothing divides."""

    def __init__(self, level: Level, law: Law, uniforms: Uniforms) -> None:
        self.level, self.law, self.uniforms = level, law, uniforms
        order = np.argsort(level.widths, kind="stable")
        sizes, first = np.unique(level.widths[order], return_index=True)
        self.by_size = list(zip(sizes.tolist(), np.split(order, first[1:]), strict=True))
        self.laws: dict[int, SumLaw] = {}

    @staticmethod
    def pays(level: Level, law: Law) -> bool:
        """Whether sums are cheaper than the noise of every node."""
        sizes = np.unique(level.widths)
        table = int(sizes.sum()) * (len(law.weights) - 1)
        return len(level) >= LEAST_GAIN * len(level.starts) and 0 < table <= LARGEST_TABLE

    def sum_law(self, size: int) -> SumLaw:
        if size not in self.laws:
            self.laws[size] = SumLaw.of(self.law, size)
        return self.laws[size]

    def draw(self, runs: int) -> Ints:
        """One sum for each family, runs in rows."""
        sums = np.empty((runs, len(self.level.starts)), dtype=np.int64)
        for size, families in self.by_size:
            sums[:, families] = self._draw(self.sum_law(size), runs * len(families)).reshape(runs, len(families))
        return sums

    def draw_with(self, nodes: Ints, runs: int) -> tuple[Ints, Ints, Ints]:
        """The noise of some nodes of different families, their families, and the sums of all families.

        Nodes are the same in every run, or (as a column) one for each run.
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
