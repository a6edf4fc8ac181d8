"""Comparing mechanisms on equal terms, each measured by the same exact code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.errors import CountveilError, InfeasibleError, ParameterError
from countveil.exact import Number, decimal_text
from countveil.plots import plot_comparison

if TYPE_CHECKING:
    from countveil.comparison.basis import Basis
    from countveil.comparison.table import Row

__all__ = ["Comparison", "compare"]

Progress = Callable[[Iterable[str]], Iterable[str]]
"""Wraps the names of what is being worked on, to show how far it is."""

SORT_KEYS: dict[str, Callable[[Row], Fraction]] = {
    "epsilon": lambda row: Fraction(10**9) if row.epsilon is None else row.epsilon,
    "delta": lambda row: row.delta,
    "eta": lambda row: -row.eta,
    "variance": lambda row: row.variance,
    "mean_absolute_error": lambda row: row.mean_absolute_error,
    "within_3": lambda row: -row.within_3,
    "worst_error": lambda row: Fraction(10**9 if row.worst_error is None else row.worst_error),
}


@dataclass(frozen=True)
class Comparison:
    """Mechanisms on equal terms, best first; `left_out` says who could not meet the terms, and why."""

    basis: Basis
    rows: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]
    sorted_by: str

    def describe(self) -> dict[str, object]:
        """As plain JSON values."""
        basis = self.basis
        given = {name: getattr(basis, name) for name in ("epsilon", "delta", "variance", "eta")}
        return {
            "schema_version": 1,
            "shared": basis.shared.value,
            **{name: None if value is None else decimal_text(value) for name, value in given.items()},
            "D": basis.D,
            "sensitivity": basis.sensitivity,
            "largest_count": basis.largest_count,
            "sorted_by": self.sorted_by,
            "rows": [row.describe() for row in self.rows],
            "left_out": [{"mechanism": name, "reason": reason} for name, reason in self.left_out],
        }

    def plot(self, path: str | Path) -> None:
        """Save a picture of the comparison as SVG, PNG or HTML."""
        shared = self.basis.shared.value
        measured = None if shared == "guarantee" or self.basis.epsilon is not None else "epsilon"
        plot_comparison([vars(row) for row in self.rows], shared, measured, path)


def compare(
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    variance: Number | None = None,
    eta: Number | None = None,
    D: int | str | None = None,
    sensitivity: int | str = 1,
    largest_count: int | str = 100,
    mechanisms: Sequence[str] | None = None,
    sort: str | None = None,
    progress: Progress = iter,
) -> Comparison:
    """Compare mechanisms at the same guarantee, the same variance, or the same eta and D.

    >>> table = compare(epsilon="1", delta="1e-6", mechanisms=["discrete-gaussian", "geometric"])
    >>> [(row.name, round(float(row.variance), 2)) for row in table.rows]
    [('geometric', 1.84), ('discrete Gaussian', 17.9)]
    """
    from countveil.comparison.basis import parse
    from countveil.comparison.contenders import CONTENDERS, NOT_ASKED
    from countveil.comparison.table import measured

    basis = parse(epsilon, delta, variance, eta, D, sensitivity, largest_count)
    order = _sort_key(sort, basis)
    rows, left_out = [], []
    for key in progress(_chosen(mechanisms, list(CONTENDERS))):
        try:
            rows.append(measured(key, CONTENDERS[key](basis), basis))
        except CountveilError as error:
            if mechanisms is not None or key not in NOT_ASKED:
                left_out.append((key, str(error)))
    if not rows:
        raise InfeasibleError("no mechanism meets these terms: " + "; ".join(reason for _, reason in left_out))
    rows.sort(key=SORT_KEYS[order])
    return Comparison(basis, tuple(rows), tuple(left_out), order)


def _chosen(mechanisms: Sequence[str] | None, known: list[str]) -> list[str]:
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
