"""A member of a family of mechanisms: its columns as integer weights, and how far those are from the ideal law.

The mechanisms of the literature are given by formulas with irrational values and, often, unbounded noise. To be
measured by the same exact code as ours, each is written as integer columns. What that changes is stated: `cut` is at
least the total variation distance between a column and the ideal law of Y - n, tails cut off and rounding together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from countveil import privacy
from countveil.law import ColumnFamily, Columns, Law

BITS = 192
"""Weights of comparators are over 2**192: rounding is far below every delta that is compared."""

NEGLIGIBLE = Fraction(1, 2**100)
"""Unbounded laws are cut off where the mass of both tails together is at most this."""


@dataclass(frozen=True)
class Member:
    """One mechanism of a family, ready to be measured.

    `counts` are the true counts it is defined for: (0, None) for all, (0, N) for mechanisms on a bounded range.
    `source`, where given, is the law of the noise of which the columns are a post-processing. Delta is then measured on
    it: post-processing cannot raise it, and counts that the map does not reach attain it.
    """

    family: str
    name: str
    columns: ColumnFamily
    cut: Fraction
    parameters: dict[str, str]
    notes: tuple[str, ...] = ()
    counts: tuple[int, int | None] = field(default=(0, None))
    source: Law | None = None

    def delta(self, order: Fraction, sensitivity: int = 1) -> Fraction:
        """The exact delta of the columns (of the source, where there is one) plus cut * (1 + E).

        **Guarantee.** An upper bound for the ideal mechanism: moving a share t of both laws of a pair changes their
        divergence at order E by at most t * (1 + E).
        """
        measured_on = self.columns if self.source is None else Columns(self.source)
        measured = privacy.delta(measured_on, order, sensitivity).value
        return min(Fraction(1), measured + self.cut * (1 + order))
