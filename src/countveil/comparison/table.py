"""The rows of a comparison: what each mechanism has, measured on its integer weights."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.comparison.basis import Basis, typical_law
from countveil.exact import decimal_text
from countveil.families.member import NEGLIGIBLE, Member
from countveil.law import Law, distinct_counts
from countveil.remap import Remap

SHOWN_COUNTS = (0, 1, 2, 5)
SHOWN_NOISE = 40
LARGEST_SCAN = 64


@dataclass(frozen=True)
class Row:
    """One mechanism. `epsilon` is None where no epsilon has the delta; `worst_error` where the noise is unbounded.

    eta, variance, mean absolute error and within_3 are those of a typical count; `bias_at` is exact for small ones.
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

    def describe(self) -> dict[str, object]:
        """As plain JSON values; probabilities are decimal texts."""
        return {
            "mechanism": self.mechanism,
            "name": self.name,
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


def measured(key: str, member: Member, basis: Basis) -> Row:
    """What a member has."""
    epsilon, delta = basis.privacy_of(member)
    law = typical_law(member)
    high = member.counts[1]
    return Row(
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
    )


def worst_error(member: Member) -> int | None:
    """The largest |Y - n| over all counts, or None: the noise is unbounded (its far tails are cut off here only)."""
    if member.cut >= NEGLIGIBLE and member.counts[1] is None:
        return None
    family = member.columns
    if isinstance(family, Remap):
        return family.D
    laws = [family.column(n) for n in distinct_counts(family)]
    if member.cut:  # ideal laws have all their slots, also those whose weight is below one unit
        return max(max(law.left, law.right) for law in laws)
    return max(law.worst_error for law in laws)


def never_negative(member: Member) -> bool:
    """Whether no count from 0 on is released as a negative number."""
    family = member.columns
    if isinstance(family, Remap):
        return True
    counts = distinct_counts(family)
    return all(n + family.column(n).least >= 0 for n in (*counts[:LARGEST_SCAN], counts[-1]))


def _bias(member: Member, n: int) -> Fraction:
    family = member.columns
    if isinstance(family, Remap) and n < family.stationary_from:
        return family.profiles[n].bias
    return family.column(n).mean
