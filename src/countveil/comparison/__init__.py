"""Mechanisms side by side on equal terms, each measured by the same exact code.

basis           the terms that all mechanisms share: a guarantee, a variance, or eta and D
contenders      the mechanisms of the literature, each tuned to the shared terms
recent_contenders  mechanisms of the newest papers, each tuned to the shared terms
tuning          the member of a family with the least noise that meets the shared terms
own_mechanisms  our mechanisms, designed for the same terms
table           one row of measured figures for each mechanism
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from countveil.display.cards import Card, Drawable
from countveil.errors import CountveilError, InfeasibleError, ParameterError
from countveil.numeric.exact_numbers import Number, decimal_text

if TYPE_CHECKING:
    from countveil.comparison.basis import Basis
    from countveil.comparison.table import ComparisonRow

__all__ = ["Comparison", "compare"]

Progress = Callable[[Iterable[str]], Iterable[str]]
"""A function that wraps the names of the mechanisms as they are iterated over, to show progress."""

SORT_KEYS: dict[str, Callable[[ComparisonRow], Fraction]] = {
    "epsilon": lambda row: Fraction(10**9) if row.epsilon is None else row.epsilon,
    "delta": lambda row: row.delta,
    "eta": lambda row: -row.eta,
    "variance": lambda row: row.variance,
    "mean_absolute_error": lambda row: row.mean_absolute_error,
    "within_3": lambda row: -row.within_3,
    "worst_error": lambda row: Fraction(10**9 if row.worst_error is None else row.worst_error),
}


@dataclass(frozen=True, repr=False)
class Comparison(Drawable):
    """Mechanisms on equal terms, best first; `left_out` names those that cannot meet the terms, with the reason."""

    basis: Basis
    rows: tuple[ComparisonRow, ...]
    left_out: tuple[tuple[str, str], ...]
    sorted_by: str

    def _line(self) -> str:
        return f"of {len(self.rows)} mechanisms, by {self.sorted_by}: {', '.join(row.name for row in self.rows)}"

    def _card(self) -> Card:
        head = ("mechanism", "kind", "epsilon", "delta", "eta", "variance", "within 3", "largest error")
        rows, names = [row.cells for row in self.rows], ", ".join(name for name, _ in self.left_out)
        notes = (f"left out: {names}",) if names else ()
        return Card(f"Comparison, best {self.sorted_by} first", {}, "", head, rows, len(rows), notes)

    @property
    def leaders(self) -> tuple[ComparisonRow, ...]:
        """The first row of each kind of mechanism (`ComparisonRow.kind`), in the order of `rows`."""
        best: dict[str, ComparisonRow] = {}
        for row in self.rows:
            best.setdefault(row.kind, row)
        return tuple(best.values())

    def describe(self) -> dict[str, object]:
        """The comparison as plain JSON values."""
        basis = self.basis
        given = {name: getattr(basis, name) for name in ("epsilon", "delta", "variance", "eta")}
        return {
            "schema_version": 1,
            "shared": basis.shared.value,
            **{name: None if value is None else decimal_text(value) for name, value in given.items()},
            "D": basis.D,
            "sensitivity": basis.sensitivity,
            "answers": basis.answers,
            "largest_count": basis.largest_count,
            "sorted_by": self.sorted_by,
            "leaders": [row.mechanism for row in self.leaders],
            "rows": [row.describe() for row in self.rows],
            "left_out": [{"mechanism": name, "reason": reason} for name, reason in self.left_out],
        }

    def _chart(self) -> Any:
        """The picture of `plot`."""
        from countveil.plots.comparison import comparison_chart

        shared = self.basis.shared.value
        measured = None if shared == "guarantee" or self.basis.epsilon is not None else "epsilon"
        return comparison_chart([vars(row) for row in self.rows], basis=shared, figure=measured)


def compare(
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    variance: Number | None = None,
    eta: Number | None = None,
    D: int | str | None = None,
    sensitivity: int | str = 1,
    largest_count: int | str = 100,
    answers: int | str = 1,
    mechanisms: Sequence[str] | None = None,
    sort: str | None = None,
    progress: Progress = iter,
) -> Comparison:
    """Compare mechanisms at the same guarantee, the same variance, or the same eta and D.

    Args:
        epsilon, delta, variance, eta, D: The shared terms: epsilon and delta, one of them with a variance, or one of
            them with eta and D.
        sensitivity: How much one person can change the count.
        largest_count: The N of the mechanisms that are defined for true counts 0..N only.
        answers: How many answers of a mechanism have the guarantee together; needs epsilon and delta.
        mechanisms: Names of the mechanisms. Default: all that can meet the terms.
        sort: The figure by which rows are sorted, best first.
        progress: A function that wraps the list of names, to show progress.

    Returns:
        A Comparison: a row for each mechanism, and why others were left out.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: The terms are incomplete or contradictory.
        InfeasibleError: No mechanism meets the terms.

    >>> table = compare(epsilon="1", delta="1e-6", mechanisms=["discrete-gaussian", "geometric"])
    >>> [(row.name, round(float(row.variance), 2)) for row in table.rows]
    [('geometric', 1.84), ('discrete Gaussian', 17.9)]
    """
    from countveil.comparison.basis import parse
    from countveil.comparison.contenders import CONTENDERS, NOT_ASKED
    from countveil.comparison.table import measure

    basis = parse(epsilon, delta, variance, eta, D, sensitivity, largest_count, answers)
    order = _sort_key(sort, basis)
    rows, left_out = [], []
    for key in progress(_choose_mechanisms(mechanisms, list(CONTENDERS))):
        try:
            rows.append(measure(key, CONTENDERS[key](basis), basis))
        except CountveilError as error:
            if mechanisms is not None or key not in NOT_ASKED:
                left_out.append((key, str(error)))
    if not rows:
        raise InfeasibleError("no mechanism meets these terms: " + "; ".join(reason for _, reason in left_out))
    rows.sort(key=SORT_KEYS[order])
    return Comparison(basis, tuple(rows), tuple(left_out), order)


def _choose_mechanisms(mechanisms: Sequence[str] | None, known: list[str]) -> list[str]:
    if mechanisms is None:
        return known
    if isinstance(mechanisms, str):
        raise ParameterError("mechanisms", mechanisms, "a list of names, each one of " + ", ".join(known))
    for key in mechanisms:
        if key not in known:
            raise ParameterError("mechanism", key, "one of " + ", ".join(known))
    return list(dict.fromkeys(mechanisms))


def _sort_key(sort: str | None, basis: Basis) -> str:
    if sort is None:
        if basis.epsilon is not None and basis.delta is not None:
            return "variance"
        return "delta" if basis.delta is None else "epsilon"
    if sort not in SORT_KEYS:
        raise ParameterError("sort", sort, "one of " + ", ".join(SORT_KEYS))
    return sort
