"""The rows of a comparison: the figures of each mechanism, measured on its integer weights."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.comparison.basis import Basis, typical_law
from countveil.display.cards import Shown
from countveil.laws.law import Law, distinct_counts
from countveil.laws.remap import Remap
from countveil.literature.member import NEGLIGIBLE, Member
from countveil.numeric.exact_numbers import decimal_text

SHOWN_COUNTS = (0, 1, 2, 5)
SHOWN_NOISE = 40
LARGEST_SCAN = 64


@dataclass(frozen=True, repr=False)
class ComparisonRow(Shown):
    """The measured figures of one mechanism of a comparison.

    `epsilon` is None if the mechanism does not have the given delta at any epsilon, `worst_error` is None if the noise
    is unbounded. eta, variance, mean absolute error and within_3 are those of a typical count; `bias_at` is the exact
    bias of small counts.
    """

    mechanism: str
    name: str
    epsilon: Fraction | None
    delta: Fraction
    eta: Fraction
    variance: Fraction
    mean_absolute_error: Fraction
    within_3: Fraction
    worst_error: int | None
    bias_at: dict[int, Fraction]
    never_negative: bool
    parameters: dict[str, str]
    notes: tuple[str, ...]
    law: Law
    only_up_to: int | None = None
    """The largest count that the mechanism is defined for; None if it is defined for all counts."""

    def _line(self) -> str:
        return f"{self.name}: variance={decimal_text(self.variance, 6)} worst_error={self.worst_error} {self.kind}"

    @property
    def cells(self) -> tuple[object, ...]:
        """The cells of this row in the card of a comparison."""
        epsilon = "none" if self.epsilon is None else decimal_text(self.epsilon, 4, "up")
        numbers = (decimal_text(x, 4) for x in (self.eta, self.variance, self.within_3))
        largest = "none" if self.worst_error is None else str(self.worst_error)
        return (self.name, self.kind, epsilon, decimal_text(self.delta, 3, "up"), *numbers, largest)

    @property
    def kind(self) -> str:
        """The kind of promise: "only 0..N", "never negative", "bounded" or "unbounded".

        Mechanisms of one kind promise the same about what is released, and for which counts.
        """
        if self.only_up_to is not None:
            return "only 0..N"
        if self.never_negative:
            return "never negative"
        return "unbounded" if self.worst_error is None else "bounded"

    def describe(self) -> dict[str, object]:
        """The row as plain JSON values; probabilities are decimal texts."""
        return {
            "mechanism": self.mechanism,
            "name": self.name,
            "kind": self.kind,
            "epsilon": None if self.epsilon is None else decimal_text(self.epsilon, rounding="up"),
            "delta": decimal_text(self.delta, rounding="up"),
            "eta": decimal_text(self.eta),
            "variance": decimal_text(self.variance),
            "mean_absolute_error": decimal_text(self.mean_absolute_error),
            "within_3": decimal_text(self.within_3),
            "worst_error": self.worst_error,
            "bias_at": {str(n): decimal_text(bias) for n, bias in self.bias_at.items()},
            "never_negative": self.never_negative,
            "parameters": self.parameters,
            "notes": list(self.notes),
            "law": {
                str(z): decimal_text(Fraction(w, self.law.total))
                for z, w in self.law.items()
                if w and abs(z) <= SHOWN_NOISE
            },
        }


def measure(key: str, member: Member, basis: Basis) -> ComparisonRow:
    """Measure all figures of one mechanism; `key` is its name in the list of contenders."""
    epsilon, delta = basis.privacy_of(member)
    law = typical_law(member)
    high = member.counts[1]
    return ComparisonRow(
        mechanism=key,
        name=member.name,
        epsilon=epsilon,
        delta=delta,
        eta=law.eta,
        variance=law.variance,
        mean_absolute_error=law.mean_absolute_error,
        within_3=law.within(3),
        worst_error=worst_error(member),
        bias_at={n: _bias(member, n) for n in SHOWN_COUNTS if high is None or n <= high},
        never_negative=never_negative(member),
        parameters=member.parameters,
        notes=member.notes,
        law=law,
        only_up_to=high,
    )


def worst_error(member: Member) -> int | None:
    """The largest |Y - n| over all counts, or None if the ideal noise is unbounded (its far tails are cut off here)."""
    if member.cut >= NEGLIGIBLE and member.counts[1] is None:
        return None
    laws = member.laws
    if isinstance(laws, Remap):
        return laws.D
    each = [laws.law(n) for n in distinct_counts(laws)]
    if member.cut:  # the ideal law is positive on the whole support, even where its weight rounds to 0
        return max(max(law.left, law.right) for law in each)
    return max(law.worst_error for law in each)


def never_negative(member: Member) -> bool:
    """Whether every count from 0 on is released as a non-negative number."""
    laws = member.laws
    if isinstance(laws, Remap):
        return True
    counts = distinct_counts(laws)
    return all(n + laws.law(n).least >= 0 for n in (*counts[:LARGEST_SCAN], counts[-1]))


def _bias(member: Member, n: int) -> Fraction:
    laws = member.laws
    if isinstance(laws, Remap) and n < laws.stationary_from:
        return laws.profiles[n].bias
    return laws.law(n).mean
