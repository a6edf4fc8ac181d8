"""How far the sum of many released cells is off on average, and the sentence that is true about it.

Small counts are biased where nothing negative is released, and the bias of a sum is the sum of the biases: k cells that
are all small are off by k times what one of them is, while their noise grows like the square root of k.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.exact import decimal_text
from countveil.mechanism import Mechanism

SHOWN_CELLS = 1000
"""How many cells are meant where no table is at hand."""
WAY_OUT = "for sums use policy signed, or ask for the total as a question of its own"


@dataclass(frozen=True)
class SumBias:
    """The least and the largest E[sum of releases] - sum of counts of so many cells, whatever the counts are.

    They are reached where every count is `low_at` or `high_at`. `promised`: for counts that keep a public promise.
    """

    cells: int
    promised: bool
    low: Fraction
    low_at: int
    high: Fraction
    high_at: int

    @property
    def largest(self) -> Fraction:
        """The size of the worse of the two."""
        return max(abs(self.low), abs(self.high))

    @property
    def note(self) -> str:
        """What is true of such a sum. **Guarantee.** Figures are rounded up."""
        promised = "promised " * self.promised
        if self.largest == 0:
            return f"every {promised}count is right on average, exactly, so sums of many cells stay honest"
        sum_of = f"the sum of {self.cells:,} cells" if self.cells > 1 else "one cell"
        if self.largest < Fraction(1, 2):
            return f"{sum_of} is right on average to within {_shown(self.largest)}, whatever the {promised}counts are"
        sides = []
        if self.high >= Fraction(1, 2):
            sides.append(f"up to {_shown(self.high)} too high on average, if every count is {self.high_at}")
        if self.low <= Fraction(-1, 2):
            sides.append(f"up to {_shown(-self.low)} too low on average, if every count is {self.low_at}")
        return f"{sum_of} can be {', or '.join(sides)}; {WAY_OUT}"

    @property
    def sentence(self) -> str:
        """The note as a sentence."""
        return f"{self.note[0].upper()}{self.note[1:]}."


def bias_of_sum(mechanism: Mechanism, cells: int) -> SumBias:
    """The bias that the sum of so many cells can have, exactly, from the certified laws.

    >>> import countveil as cv
    >>> bias_of_sum(cv.design(epsilon="1", delta="1e-6", policy="signed"), 1000).sentence
    'Every count is right on average, exactly, so sums of many cells stay honest.'
    """
    low, high = mechanism.most_biased
    promised = mechanism.counts != (0, None)
    return SumBias(cells, promised, cells * low.bias, low.n, cells * high.bias, high.n)


def _shown(x: Fraction) -> str:
    """Three digits, rounded up; from 100 on a whole number."""
    return f"{-(-x.numerator // x.denominator):,}" if x >= 100 else decimal_text(x, 3, "up")
