"""How far the sum of many released cells is off on average, and a sentence that says so.

If negative counts are never released, small counts are biased. The bias of a sum is the sum of the biases: for k small
cells it is k times that of one cell, while the noise of their sum grows only like the square root of k.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text

SHOWN_CELLS = 1000
"""If no table is given, the bias is stated for a sum of this many cells."""
SIGNED = "for sums use policy signed"
WAY_OUT = f"{SIGNED}, or ask for the total as a question of its own"


@dataclass(frozen=True)
class SumBias:
    """How far the sum of `cells` released counts can be off on average: E[sum of releases] - (sum of true counts).

    The bias is `low` if every true count is `low_at`, and `high` if every true count is `high_at`; for all other counts
    it is between the two. If `promised`, all this holds for counts that keep a public promise.
    """

    cells: int
    promised: bool
    low: Fraction
    low_at: int
    high: Fraction
    high_at: int
    can_ask_total: bool = True
    """Whether a question for the total counts the same as the sum."""

    @property
    def largest(self) -> Fraction:
        """The larger of |low| and |high|."""
        return max(abs(self.low), abs(self.high))

    @property
    def note(self) -> str:
        """The bias in words. **Guarantee.** Figures are rounded up in size."""
        promised = "promised " * self.promised
        if self.largest == 0:
            return f"every {promised}count is right on average, exactly, so sums of many cells stay honest"
        sum_of = f"the sum of {self.cells:,} cells" if self.cells > 1 else "one cell"
        if self.largest < Fraction(1, 2):
            return (
                f"{sum_of} is right on average to within {_round_up(self.largest)}, whatever the {promised}counts are"
            )
        sides = []
        if self.high >= Fraction(1, 2):
            sides.append(f"up to {_round_up(self.high)} too high on average, if every count is {self.high_at}")
        if self.low <= Fraction(-1, 2):
            sides.append(f"up to {_round_up(-self.low)} too low on average, if every count is {self.low_at}")
        return f"{sum_of} can be {', or '.join(sides)}; {WAY_OUT if self.can_ask_total else SIGNED}"

    @property
    def sentence(self) -> str:
        """The note as a sentence, with a capital letter and a full stop."""
        return f"{self.note[0].upper()}{self.note[1:]}."


def bias_of_sum(mechanism: Mechanism, cells: int, *, can_ask_total: bool = True) -> SumBias:
    """How far a sum of `cells` released counts can be off on average, computed exactly from the certified laws.

    >>> import countveil as cv
    >>> bias_of_sum(cv.design(epsilon="1", delta="1e-6", policy="signed"), 1000).sentence
    'Every count is right on average, exactly, so sums of many cells stay honest.'
    """
    low, high = mechanism.most_biased
    promised = mechanism.counts != (0, None)
    return SumBias(cells, promised, cells * low.bias, low.n, cells * high.bias, high.n, can_ask_total)


def _round_up(x: Fraction) -> str:
    """x as a text, rounded up: with three significant digits, from 100 on as a whole number."""
    return f"{-(-x.numerator // x.denominator):,}" if x >= 100 else decimal_text(x, 3, "up")
