"""Design p-tables: least delta at one epsilon under a limit on the variance of every row, or largest entropy as in R.

The linear program proposes rows, the rows are rounded to the probabilities that the format can store, and delta,
variances and bias are measured on the rounded table. If rounding makes a variance exceed the limit, the program is
solved again with a smaller limit. If the stored probabilities are coarse (multiples of 1/K for K cell keys), the
program is also solved for smaller epsilons, which leave room for rounding; the best table is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from countveil.display.cards import Shown
from countveil.errors import InfeasibleError, ParameterError, RequestError, SolverError
from countveil.laws.rounding import SCALE
from countveil.literature.maximum_entropy import maximum_entropy
from countveil.numeric.exact_numbers import Number, decimal_text, exp_bounds, integer, number
from countveil.numeric.linear_program import NoSolution
from countveil.ptables.audit import list_worse_readings
from countveil.ptables.export import RowProposal, grid_of, propose_rows, rank_table, table_from, warnings
from countveil.ptables.formats import Format, format_named
from countveil.ptables.program import Spec, TableProgram
from countveil.ptables.readings import readings
from countveil.ptables.table import PTable

OBJECTIVES = ("delta", "entropy")
LARGEST_D = 40
LARGEST_EPSILON = Fraction(16)
FINE = 10**6
_COARSE = ("1", "0.97", "0.94", "0.9", "0.85", "0.8", "0.7")
"""If stored probabilities are coarse, the program is solved for epsilon times each of these."""
_FAR = 16
"""If a format of many decimals cuts off tails of the best law, smaller epsilons give longer tails: up to this noise."""
_ATTEMPTS = 6


@dataclass(frozen=True, repr=False)
class Designed(Shown):
    """A table designed for the requirements `spec`, as it will be written; its figures are measured on its integers."""

    table: PTable
    spec: Spec
    objective: str
    format: Format
    notes: tuple[str, ...]

    def _line(self) -> str:
        return f"for {self.objective}: {self.table!r}"

    @property
    def largest_variance(self) -> Fraction:
        return max(row.variance for row in self.table.rows)

    def describe(self) -> dict[str, object]:
        """The request and the resulting variance, as plain JSON values."""
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
    """The table of least delta: noise at most D, variance at most V in every row, nothing published in 1..js, no bias.

    `pstay` fixes the probability that a count stays as it is. With `unimodal`, no row's probabilities fall towards the
    true count. With an incumbent table (`against`), D, V and js default to the incumbent's; where a delta is larger
    than the incumbent's, a note says so.

    >>> designed = design(D=7, V=4)
    >>> [i for i, row in enumerate(designed.table.rows) if row.mean], designed.largest_variance <= 4
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
        table, skipped = _best_table(spec, fmt, units)
    except InfeasibleError:
        if spec.zero_delta is None:
            raise
        notes.append("with these parameters the pair of counts 0 and 1 cannot be kept within the incumbent's delta")
        spec = replace(spec, zero_delta=None)
        table, skipped = _best_table(spec, fmt, units)
    notes += [*_notes(spec, table, units), *skipped]
    if against is not None:
        notes += list_worse_readings(table, against, spec.epsilon)
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
        js = _largest_js(against) if js is None else js
    if D is None or V is None:
        raise RequestError("D or V is missing; give --D and --V, or --against FILE to use those of that table")
    bound = integer("D", D, 1, LARGEST_D)
    cap = number("V", V, "a positive decimal number")
    if not 0 < cap <= bound * bound:
        raise ParameterError("V", V, f"a decimal number above 0, up to D^2 = {bound * bound}")
    stay = None if pstay is None else number("pstay", pstay, "a probability above 0 and below 1")
    if stay is not None and not 0 < stay < 1:
        raise ParameterError("pstay", pstay, "a probability above 0 and below 1")
    hint = "js must be less than D, so that the count 1 can still have noise"
    blocked = integer("js", 0 if js is None else js, 0, bound - 1, hint)
    spec = Spec(loss, bound, cap, stay, blocked, freeze_zero)
    return replace(spec, unbiased_from=integer("unbiased_from", unbiased_from, 1, spec.last))


def _largest_js(table: PTable) -> int:
    """The largest js for which no row of the table publishes any of the counts 1..js."""
    published = {i + v for i, row in enumerate(table.rows) for v, _ in row.items()}
    js = 0
    while js + 1 not in published and js + 1 < table.D:
        js += 1
    return js


def _zero_delta(against: PTable, epsilon: Fraction) -> Fraction:
    """The incumbent's delta if 0 is always published as 0, minus a small margin for rounding."""
    delta = readings(against, exp_bounds(epsilon)[0])["zero_frozen"].value
    return delta * (1 - Fraction(1, 10**5))


def _best_table(spec: Spec, fmt: Format, units: int) -> tuple[PTable, list[str]]:
    """The table of least delta among those that are rounded for the format and keep to the limit on the variance.

    With it come the notes of its linear program.
    """
    _check(spec)
    tables: list[tuple[PTable, list[str]]] = []
    failure: InfeasibleError | SolverError | None = None
    for epsilon in _epsilons(spec, units):
        try:
            table = _solve_and_round(spec, epsilon, fmt, units)
        except (InfeasibleError, SolverError) as error:
            failure = failure or error
            continue
        tables += [table] if table else []
    if not tables:
        raise failure or InfeasibleError(
            f"found no table with probabilities in steps of 1/{units} and variance at most "
            f"{decimal_text(spec.max_variance, 8)}",
            "raise V or the number of cell keys",
        )
    return min(tables, key=lambda each: rank_table(each[0], spec.epsilon))


def _epsilons(spec: Spec, units: int) -> list[Fraction]:
    """The epsilons to solve the program for.

    Smaller epsilons than the requested one are included if stored probabilities are too coarse for the tails of the
    best law.
    """
    if units < FINE:
        return [spec.epsilon * Fraction(share) for share in _COARSE]
    near, far = math.floor(math.log(units) / float(spec.epsilon)) + 1, min(spec.D, _FAR)
    others = sorted({near, (near + far) // 2, far}) if near <= far else []
    return [spec.epsilon, *(Fraction(math.floor(1000 * math.log(units) / k), 1000) for k in others)]


def _solve_and_round(spec: Spec, epsilon: Fraction, fmt: Format, units: int) -> tuple[PTable, list[str]] | None:
    """The rounded table of the program at this epsilon; None if no rounded table keeps to the limit on the variance.

    While rounding makes a variance exceed the limit, the program is solved for a smaller limit.
    """
    cap = spec.max_variance
    cut = replace(spec, epsilon=epsilon, D=_reach(spec, epsilon, units))
    cut = replace(cut, unbiased_from=min(spec.unbiased_from, cut.last))
    for _ in range(_ATTEMPTS):
        try:
            program = TableProgram(cut, cap)
            rows = program.solve()
        except NoSolution as error:
            if cap < spec.max_variance:
                return None
            if error.reason == "infeasible" and _may_be_infeasible(spec):
                raise InfeasibleError(*_refusal(spec)) from None
            raise SolverError("the linear-programming solver failed; change epsilon, V or D a little") from None
        try:
            table = table_from(_proposals(rows, cut), spec.epsilon, fmt, units)
        except InfeasibleError:
            return None
        excess = max(row.variance for row in table.rows) - spec.max_variance
        if excess <= 0:
            return table, program.program.notes
        cap -= 2 * excess
        if cap <= 0:
            return None
    return None


def _may_be_infeasible(spec: Spec) -> bool:
    """Whether the program can be infeasible although `_check` found that every single row can meet the limits."""
    return spec.zero_delta is not None or spec.unimodal or spec.unbiased_from > 1


def _reach(spec: Spec, epsilon: Fraction, units: int) -> int:
    """The largest noise to solve for: D, or less if the best law rounds to 0 beyond it in a format of many decimals."""
    if units < FINE:
        return spec.D
    return max(spec.js + 1, min(spec.D, math.floor(math.log(units) / float(epsilon))))


def _proposals(rows: Sequence[dict[int, Fraction]], spec: Spec) -> list[RowProposal]:
    proposals = []
    for i, row in enumerate(rows):
        weights = {v: int(p * (1 << SCALE)) for v, p in row.items()}
        stays = spec.pstay is not None and i > spec.js
        unbiased = i >= spec.unbiased_from or (i == 0 and spec.freeze_zero)
        proposals.append(RowProposal(weights, 1 << SCALE, unbiased, stays))
    return proposals


def _check(spec: Spec) -> None:
    """Refuse a limit on the variance that some row cannot meet.

    The least variance of an unbiased row is that of its two nearest published counts.
    """
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
                f"row {i} has variance at least {decimal_text(least, 6)}: its nearest outputs are {below} and {above}",
                "raise V or lower js",
            )


def _refusal(spec: Spec) -> tuple[str, str]:
    asked = f"D {spec.D}, V {decimal_text(spec.max_variance, 8)}, js {spec.js}"
    if spec.pstay is not None:
        asked += f", pstay {decimal_text(spec.pstay, 8)}"
    return f"no table with unbiased rows has {asked}", "raise V or D, lower js, or leave pstay out"


def _entropy(spec: Spec, fmt: Format, units: int) -> Designed:
    """The table of largest entropy, which R's ptable makes for the same parameters."""
    if not spec.freeze_zero or spec.unbiased_from != 1 or spec.unimodal:
        raise RequestError(
            "tables of largest entropy always freeze zero and are unbiased from 1 on; leave out freeze_zero, "
            "unbiased_from and unimodal"
        )
    V = spec.max_variance
    try:
        member = maximum_entropy(spec.D, V, spec.pstay, spec.js, exact_variance=True)
    except InfeasibleError:
        member = maximum_entropy(spec.D, V, spec.pstay, spec.js)
    table = table_from(propose_rows(member.laws, Fraction(-1)), spec.epsilon, fmt, units)
    return Designed(table, spec, "entropy", fmt, (*member.notes, *warnings(table, fmt)))


def _notes(spec: Spec, table: PTable, units: int) -> list[str]:
    remarks = []
    if spec.freeze_zero:
        floor = decimal_text(1 / (1 + spec.max_variance), 3, "down")
        remarks.append(
            f"with zero frozen, row 1 unbiased and its variance at most V, no table has a delta below 1/(1 + V) = "
            f"{floor}: the delta of counts >= 1 was minimised first"
        )
    else:
        remarks.append(
            "the tools publish 0 as 0 whatever row 0 says; the delta as designed holds only if the tool uses row 0"
        )
    if table.D < spec.D and _reach(spec, spec.epsilon, units) < spec.D:
        remarks.append(f"noise beyond ±{table.D} is not used: its probabilities would be about 1/{units} or less")
    if spec.pstay is not None and (stays := {row.stay for row in table.rows[spec.js + 1 :]}) != {spec.pstay}:
        remarks.append(f"pstay is rounded to {' and '.join(decimal_text(stay, 10) for stay in sorted(stays))}")
    return remarks
