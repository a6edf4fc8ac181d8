"""p-tables by design: least delta at one epsilon, under a variance cap for every row; or R's, of largest entropy.

The program proposes, the rows are rounded to the format's grid, and the rounded table is measured: its delta, its
variances, its bias. Where rounding breaks the cap, the program is solved again with a little less. On coarse grids (K
keys) the program is also solved for somewhat smaller epsilons, whose slack rounding may use up, and the best is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from countveil.design.linear import NoSolution
from countveil.errors import InfeasibleError, ParameterError, RequestError, SolverError
from countveil.exact import Number, decimal_text, exp_bounds, integer, number
from countveil.families.maximum_entropy import maximum_entropy
from countveil.ptables.audit import compared
from countveil.ptables.export import Proposal, columns, grid_of, judged, table_from, warnings
from countveil.ptables.formats import Format, format_named
from countveil.ptables.measure import readings
from countveil.ptables.program import Spec, TableProgram
from countveil.ptables.table import PTable
from countveil.rounding import SCALE

OBJECTIVES = ("delta", "entropy")
LARGEST_D = 40
LARGEST_EPSILON = Fraction(16)
FINE = 10**6
_COARSE = ("1", "0.97", "0.94", "0.9", "0.85", "0.8", "0.7")
"""Shares of epsilon that are tried on a coarse grid."""
_FAR = 16  # noise up to which a fine grid is treated as coarse, where it cuts off the best law's tails
_ATTEMPTS = 6


@dataclass(frozen=True)
class Designed:
    """A table made to a `Spec`, as it will be written; everything said of it is measured on its integers."""

    table: PTable
    spec: Spec
    objective: str
    format: Format
    notes: tuple[str, ...]

    @property
    def largest_variance(self) -> Fraction:
        return max(row.variance for row in self.table.rows)

    def describe(self) -> dict[str, object]:
        """What was asked for and made, as plain JSON values."""
        spec = self.spec
        return {
            "format": self.format.NAME,
            "units": self.table.total,
            "objective": self.objective,
            "epsilon": decimal_text(spec.epsilon),
            "max_variance": decimal_text(spec.max_variance),
            "pstay": None if spec.pstay is None else decimal_text(spec.pstay),
            "js": spec.js,
            "freeze_zero": spec.freeze_zero,
            "unbiased_from": spec.unbiased_from,
            "unimodal": spec.unimodal,
            "variance": decimal_text(self.largest_variance, rounding="up"),
        }


def design(
    *,
    epsilon: Number = "1",
    D: Number | None = None,
    V: Number | None = None,
    pstay: Number | None = None,
    js: Number | None = None,
    freeze_zero: bool = True,
    unbiased_from: Number = 1,
    unimodal: bool = False,
    objective: str = "delta",
    format: str = "tau-argus",
    keys: Number | None = None,
    against: PTable | None = None,
) -> Designed:
    """The table of least delta with noise at most D, variance at most V in every row, no outputs 1..js, zero bias.

    `unimodal` asks that no row's probabilities fall towards the true count. Given an incumbent (`against`), D, V and js
    are its own unless they are given, and no reading may be worse than its.

    >>> found = design(D=7, V=4)
    >>> [i for i, row in enumerate(found.table.rows) if row.mean], found.largest_variance <= 4
    ([], True)
    """
    fmt = format_named(format)
    units = grid_of(fmt, keys)
    if objective not in OBJECTIVES:
        raise ParameterError("objective", objective, " or ".join(OBJECTIVES))
    spec = replace(_spec(epsilon, D, V, pstay, js, freeze_zero, unbiased_from, against), unimodal=unimodal)
    if objective == "entropy":
        return _entropy(spec, fmt, units)
    notes: list[str] = []
    if against is not None and freeze_zero:
        spec = replace(spec, zero_delta=_zero_delta(against, spec.epsilon))
    try:
        table = _best(spec, fmt, units)
    except InfeasibleError:
        if spec.zero_delta is None:
            raise
        notes.append("the pair of counts 0 and 1 cannot be held at the incumbent's delta with these parameters")
        spec = replace(spec, zero_delta=None)
        table = _best(spec, fmt, units)
    notes += _remarks(spec, table, units)
    if against is not None:
        notes += compared(table, against, spec.epsilon)
    return Designed(table, spec, objective, fmt, (*notes, *warnings(table, fmt)))


def _spec(
    epsilon: object,
    D: object,
    V: object,
    pstay: object,
    js: object,
    freeze_zero: bool,
    unbiased_from: object,
    against: PTable | None,
) -> Spec:
    loss = number("epsilon", epsilon, f"a decimal number above 0, up to {LARGEST_EPSILON}")
    if not 0 < loss <= LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"a decimal number above 0, up to {LARGEST_EPSILON}")
    if against is not None:
        D = against.D if D is None else D
        V = against.row(against.last).variance if V is None else V
        js = _blocked(against) if js is None else js
    if D is None or V is None:
        raise RequestError("give --D and --V (or --against FILE, which has them)")
    bound = integer("D", D, 1, LARGEST_D)
    cap = number("V", V, "a positive decimal number")
    if not 0 < cap <= bound * bound:
        raise ParameterError("V", V, f"a decimal number above 0, up to D^2 = {bound * bound}")
    stay = None if pstay is None else number("pstay", pstay, "a probability above 0 and below 1")
    if stay is not None and not 0 < stay < 1:
        raise ParameterError("pstay", pstay, "a probability above 0 and below 1")
    hint = "some noise must stay possible for the count 1, so js is less than D"
    blocked = integer("js", 0 if js is None else js, 0, bound - 1, hint)
    spec = Spec(loss, bound, cap, stay, blocked, freeze_zero)
    return replace(spec, unbiased_from=integer("unbiased_from", unbiased_from, 1, spec.last))


def _blocked(table: PTable) -> int:
    """The largest js for which no row publishes 1..js."""
    published = {i + v for i, row in enumerate(table.rows) for v, _ in row.items()}
    js = 0
    while js + 1 not in published and js + 1 < table.D:
        js += 1
    return js


def _zero_delta(against: PTable, epsilon: Fraction) -> Fraction:
    """What the incumbent has for zero frozen, less a little that rounding may need."""
    found = readings(against, exp_bounds(epsilon)[0])["zero_frozen"].value
    return found * (1 - Fraction(1, 10**5))


def _best(spec: Spec, fmt: Format, units: int) -> PTable:
    """The best table on the grid that keeps the variance cap."""
    _check(spec)
    found: list[PTable] = []
    failure: InfeasibleError | SolverError | None = None
    for epsilon in _epsilons(spec, units):
        try:
            table = _within(spec, epsilon, fmt, units)
        except (InfeasibleError, SolverError) as error:
            failure = failure or error
            continue
        found += [table] if table else []
    if not found:
        raise failure or InfeasibleError(
            f"no table on the grid of 1/{units} was found with variance at most {decimal_text(spec.max_variance, 8)}",
            "raise V or the number of keys",
        )
    return min(found, key=lambda table: judged(table, spec.epsilon))


def _epsilons(spec: Spec, units: int) -> list[Fraction]:
    """The epsilons to solve for: smaller ones, too, where the grid is too coarse for the best law's tails."""
    if units < FINE:
        return [spec.epsilon * Fraction(share) for share in _COARSE]
    near, far = math.floor(math.log(units) / float(spec.epsilon)) + 1, min(spec.D, _FAR)
    others = sorted({near, (near + far) // 2, far}) if near <= far else []
    return [spec.epsilon, *(Fraction(math.floor(1000 * math.log(units) / k), 1000) for k in others)]


def _within(spec: Spec, epsilon: Fraction, fmt: Format, units: int) -> PTable | None:
    """The rounded table of a program; with a smaller cap where rounding went over the one that was asked for."""
    cap = spec.max_variance
    cut = replace(spec, epsilon=epsilon, D=_reach(spec, epsilon, units))
    cut = replace(cut, unbiased_from=min(spec.unbiased_from, cut.last))
    for _ in range(_ATTEMPTS):
        try:
            rows = TableProgram(cut, cap).solve()
        except NoSolution as error:
            if cap < spec.max_variance:
                return None
            if error.reason == "infeasible" and _may_be_infeasible(spec):
                raise InfeasibleError(*_refusal(spec)) from None
            raise SolverError("the linear-programming solver gave up; change epsilon, V or D a little") from None
        try:
            table = table_from(_proposals(rows, cut), spec.epsilon, fmt, units)
        except InfeasibleError:
            return None
        excess = max(row.variance for row in table.rows) - spec.max_variance
        if excess <= 0:
            return table
        cap -= 2 * excess
        if cap <= 0:
            return None
    return None


def _may_be_infeasible(spec: Spec) -> bool:
    """Whether anything but single rows, which `_check` has seen, can make the program infeasible."""
    return spec.zero_delta is not None or spec.unimodal or spec.unbiased_from > 1


def _reach(spec: Spec, epsilon: Fraction, units: int) -> int:
    """D, or, on a fine grid, where the probabilities of the best law fall below it: the solver need not go there."""
    if units < FINE:
        return spec.D
    return max(spec.js + 1, min(spec.D, math.floor(math.log(units) / float(epsilon))))


def _proposals(rows: Sequence[dict[int, Fraction]], spec: Spec) -> list[Proposal]:
    found = []
    for i, row in enumerate(rows):
        weights = {v: int(p * (1 << SCALE)) for v, p in row.items()}
        stays = spec.pstay is not None and i > spec.js
        unbiased = i >= spec.unbiased_from or (i == 0 and spec.freeze_zero)
        found.append(Proposal(weights, 1 << SCALE, unbiased, stays))
    return found


def _check(spec: Spec) -> None:
    """Refuse what no row can have: the least variance of a row is that of its two nearest outputs."""
    for i in range(spec.unbiased_from, spec.last + 1):
        outputs = spec.outputs(i)
        stays = i in outputs
        if stays and spec.pstay is None:
            continue
        below = max(j for j in outputs if j < i)
        above = min(j for j in outputs if j > i)
        least = (i - below) * (above - i) * (1 - (spec.pstay or Fraction(0)) if stays else Fraction(1))
        if least > spec.max_variance:
            raise InfeasibleError(
                f"row {i} has variance {decimal_text(least, 6)} or more: its nearest outputs are {below} and {above}",
                "raise V, or block fewer outputs (js)",
            )


def _refusal(spec: Spec) -> tuple[str, str]:
    asked = f"D {spec.D}, V {decimal_text(spec.max_variance, 8)}, js {spec.js}"
    if spec.pstay is not None:
        asked += f", pstay {decimal_text(spec.pstay, 8)}"
    return f"no table has {asked} and unbiased rows", "raise V or D, lower js, or leave pstay free"


def _entropy(spec: Spec, fmt: Format, units: int) -> Designed:
    """What R's ptable makes of the same words."""
    if not spec.freeze_zero or spec.unbiased_from != 1 or spec.unimodal:
        raise RequestError("tables of largest entropy freeze zero and are unbiased from 1 on; leave such options out")
    V = spec.max_variance
    try:
        member = maximum_entropy(spec.D, V, spec.pstay, spec.js, exact_variance=True)
    except InfeasibleError:
        member = maximum_entropy(spec.D, V, spec.pstay, spec.js)
    table = table_from(columns(member.columns, Fraction(-1)), spec.epsilon, fmt, units)
    return Designed(table, spec, "entropy", fmt, (*member.notes, *warnings(table, fmt)))


def _remarks(spec: Spec, table: PTable, units: int) -> list[str]:
    found = []
    if spec.freeze_zero:
        floor = decimal_text(1 / (1 + spec.max_variance), 3, "down")
        found.append(
            f"with zero frozen, row 1 unbiased and its variance at most V, no table has a delta below 1/(1 + V) = "
            f"{floor}: the delta of counts >= 1 was made small first"
        )
    else:
        found.append("the tools freeze zero whatever row 0 says: what is designed holds where row 0 is really used")
    if table.D < spec.D and _reach(spec, spec.epsilon, units) < spec.D:
        found.append(f"noise beyond ±{table.D} is not used: probabilities there would be about 1/{units} or below")
    if spec.pstay is not None and (stays := {row.stay for row in table.rows[spec.js + 1 :]}) != {spec.pstay}:
        found.append(f"pstay is rounded to {' and '.join(decimal_text(stay, 10) for stay in sorted(stays))}")
    return found
