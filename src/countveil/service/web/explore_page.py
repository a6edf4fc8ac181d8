"""The explore page: the mechanism that the sliders choose, and the numbers of its pictures. The page needs no data and
no key.

Everything here runs in the helper process (`service.design_worker`), in two steps: first `make_view`, then what takes
longer. `make_guarantee` computes the whole curve of delta and what an attacker can suspect; `compare_others` compares
other mechanisms at the same guarantee.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from countveil.accounting import compose
from countveil.comparison import compare
from countveil.design import design
from countveil.errors import ParameterError, RequestError
from countveil.mechanism.mechanism import Mechanism
from countveil.mechanism.sum_bias import SHOWN_CELLS, bias_of_sum
from countveil.numeric.exact_numbers import decimal_text, integer, number
from countveil.planning import plan
from countveil.plots.curve import curve_rows
from countveil.plots.noise import noise_rows
from countveil.plots.small_counts import small_count_rows
from countveil.plots.suspicion import order_leaving, posterior
from countveil.plots.usefulness import useful_from, usefulness_rows

FIELDS = ("epsilon", "delta", "answers", "eta", "D", "policy", "n0", "method")
DEFAULTS = {"epsilon": "1", "delta": "1e-6", "answers": "1", "policy": "nonnegative", "method": "quick"}
MOST_ANSWERS = 10_000
CURVE_POINTS = 24
EXCEPTIONS = 0.01
"""The share of releases in which an attacker's suspicion may exceed the bound that is shown."""
FARTHEST, REFINED = 500.0, 3


@dataclass(frozen=True)
class Made:
    """A mechanism for a number of answers, and the guarantee of all these answers together."""

    mechanism: Mechanism
    answers: int
    epsilon: Fraction
    delta: Fraction


def make_mechanism(fields: Mapping[str, str]) -> Made:
    """Make the mechanism that the fields of the page describe."""
    return _make_mechanism(tuple(sorted(fields.items())))


def write_command(fields: Mapping[str, str]) -> str:
    """The command that makes this mechanism, even if the service cannot make it in time."""
    call, given = _choose_call(fields)
    names = {"D": "-D", "unbiased_from": "--unbiased-from"}
    words = [f"{names.get(name, '--' + name)} {shlex.quote(str(value))}" for name, value in given.items()]
    return " ".join(["countveil", call, *words, "-o mechanism.json"])


def write_python(fields: Mapping[str, str]) -> str:
    """Python code that makes this mechanism."""
    call, given = _choose_call(fields)
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    end = ".mechanism" if call == "plan" else ""
    return f"import countveil as cv\n\nmechanism = cv.{call}({arguments}){end}\nmechanism.release(1234)"


def _choose_call(fields: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The library function to call for these fields, with its arguments: `design`, or `plan` for several answers."""
    answers = integer("answers", fields.get("answers", "1"), 1, MOST_ANSWERS)
    policy, method = fields.get("policy", "nonnegative"), fields.get("method", "quick")
    if method not in ("quick", "program"):
        raise ParameterError("method", method, "quick or program")
    given: dict[str, Any] = {name: fields[name] for name in ("epsilon", "delta", "eta", "D") if name in fields}
    if "D" in given:
        given["D"] = integer("D", given["D"], 1, 2000)
    given["policy"] = policy
    if "n0" in fields and policy == "nonnegative":
        given["unbiased_from"] = integer("n0", fields["n0"], 0, 1000)
    if answers > 1:
        return "plan", _plan_arguments(given, answers, method)
    given["method"] = method if method == "program" else {"nonnegative": "remap"}.get(policy, "optimal")
    return "design", given


@lru_cache(maxsize=64)
def _make_mechanism(items: tuple[tuple[str, str], ...]) -> Made:
    call, given = _choose_call(dict(items))
    if call == "design":
        mechanism = design(**given)
        return Made(mechanism, 1, mechanism.epsilon, mechanism.delta)
    planned = plan(**given)
    delta, epsilon = Fraction(planned.certified.upper), number("epsilon", given["epsilon"])
    return Made(planned.mechanism, given["answers"], epsilon, delta)


def _plan_arguments(given: dict[str, Any], answers: int, method: str) -> dict[str, Any]:
    for name in ("eta", "D"):
        if name in given:
            raise RequestError(f"for several answers {name} is computed from epsilon and delta: leave {name} empty")
    for name in ("epsilon", "delta"):
        if name not in given:
            raise RequestError(f"for several answers give both epsilon and delta: {name} is empty")
    return {**given, "answers": answers, **({"method": method} if method == "program" else {})}


# -- first step --------------------------------------------------------------------------------------------------------


def make_view(fields: Mapping[str, str]) -> dict[str, Any]:
    """The facts about the mechanism, and the numbers of the first three pictures."""
    choice = make_mechanism(fields)
    m = choice.mechanism
    c = m.certificate
    useful = useful_from(m)
    exactly, nearly = c.unbiased_from, c.nearly_unbiased_from
    is_nearly = nearly is not None and (exactly is None or nearly < exactly)
    facts = {
        "epsilon": decimal_text(choice.epsilon, 6, "up"),
        "delta": decimal_text(choice.delta, 3, "up"),
        "answers": choice.answers,
        "eta": decimal_text(c.eta, 4, "down"),
        "eta_percent": decimal_text(100 * c.eta, 3, "down"),
        "eta_from": c.eta_from,
        "D": m.D,
        "worst_error": c.worst_error,
        "margin_95": m.margin_95,
        "typical_margin_95": c.typical_margin_95,
        "variance": decimal_text(c.variance, 4),
        "deviation": f"{float(c.variance) ** 0.5:.3g}",
        "unbiased_from": nearly if is_nearly else exactly,
        "nearly": is_nearly,
        "bias_below": decimal_text(c.bias_below, 2, "up"),
        "sums": bias_of_sum(m, SHOWN_CELLS).sentence,
        "useful_from": useful,
        "policy": m.policy,
        "method": m.method,
        "never_negative": c.never_negative,
        "ptable": c.never_negative,
        "hash": m.hash,
    }
    return {
        "facts": facts,
        "noise": _thin(noise_rows(m)),
        "small": small_count_rows(m),
        "useful": usefulness_rows(m),
        "sentences": sentences(facts),
        "python": write_python(fields),
        "command": write_command(fields),
    }


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """Statements in plain words about the counts that the mechanism publishes."""
    many = facts["answers"] > 1
    statements = [
        f"“Each published count is within {facts['margin_95']} of the truth in at least 95 % of releases, and never "
        f"further off than {facts['worst_error']}.”",
        f"“It is exactly right with probability {facts['eta_percent']} %"
        + (f", from {_people(facts['eta_from'])} on.”" if facts["eta_from"] else ", whatever the count is.”"),
    ]
    if facts["unbiased_from"]:
        kind = "to a thousandth of the noise" if facts["nearly"] else "exactly"
        statements.append(f"“Counts from {facts['unbiased_from']} on are right on average, {kind}.”")
    statements.append(f"“{facts['sums']}”")
    if facts["never_negative"]:
        statements.append("“No published count is negative.”")
    if facts["useful_from"] is not None:
        statements.append(f"“Cells of {_people(facts['useful_from'])} or more are right to 10 %.”")
    whole = f"all {facts['answers']:,} answers together have" if many else "one answer has"
    statements.append(
        f"“Whatever else someone knows, {whole} privacy loss at most {facts['epsilon']}, but for a probability of "
        f"{facts['delta']}.”"
    )
    return statements


def _people(n: int) -> str:
    return "1 person" if n == 1 else f"{n:,} people"


def _thin(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most about 400 of the bars, so that the picture stays small; the bar of z = 0 is always among them."""
    step = -(-len(rows) // 400)
    return [row for row in rows if row["z"] % step == 0]


# -- second step -------------------------------------------------------------------------------------------------------


def make_guarantee(fields: Mapping[str, str]) -> dict[str, Any]:
    """The guarantee at every epsilon, and how strong an attacker's suspicion can become."""
    choice = make_mechanism(fields)
    m = choice.mechanism
    if choice.answers == 1:
        curve = curve_rows(m)
        t, tv = order_leaving(m), m.delta_at(0)
    else:
        composed = compose(m, choice.answers)
        top = float(choice.epsilon) * 2
        points = [top * i / CURVE_POINTS for i in range(CURVE_POINTS + 1)]
        deltas = [composed.upper(e) for e in points]
        curve = [{"epsilon": e, "delta": delta} for e, delta in zip(points, deltas, strict=True) if delta > 0]
        t, tv = math.exp(loss_leaving(composed.upper, points)), Fraction(deltas[0])
    return {
        "curve": curve,
        "certified": {"epsilon": float(choice.epsilon), "delta": float(choice.delta)},
        "suspicion": {"order": None if math.isinf(t) else t, "half": posterior(0.5, t)},
        "guess": decimal_text(100 * (1 + tv) / 2, 4, "up"),
    }


def loss_leaving(delta_at: Callable[[float], float], points: Sequence[float], share: float = EXCEPTIONS) -> float:
    """A privacy loss that is exceeded in at most this share of releases; infinite if none was found.

    Let L be the privacy loss. For e' < e, delta(e') = E(1 - exp(e' - L))+ >= P(L > e) (1 - exp(e' - e)). So P(L > e) <=
    share if

        e = e' - log(1 - delta(e') / share)    and    delta(e') < share.

    Every e' gives such a bound e. The smallest bound of all e' that are tried is returned; first `points` are tried,
    then values between them. **Guarantee.** Never too low if delta_at is never too low.
    """
    points = list(points)

    def bound(e: float) -> float:
        delta = delta_at(e)
        return e - math.log1p(-delta / share) if delta < share else math.inf

    losses = [bound(e) for e in points]
    while math.isinf(min(losses)) and points[-1] < FARTHEST:
        points.append(2 * points[-1])
        losses.append(bound(points[-1]))
    for _ in range(REFINED):
        best = losses.index(min(losses))
        low, high = points[max(0, best - 1)], points[min(len(points) - 1, best + 1)]
        finer = [low + (high - low) * i / 9 for i in range(1, 9)]
        tried = sorted({**dict(zip(points, losses, strict=True)), **{e: bound(e) for e in finer}}.items())
        points, losses = [e for e, _ in tried], [b for _, b in tried]
    return min(losses) * (1 + 1e-12)


def compare_others(fields: Mapping[str, str]) -> dict[str, Any]:
    """Compare our law with the discrete Gaussian and the geometric law: how much noise each needs for the same
    guarantee."""
    choice = make_mechanism(fields)
    c = choice.mechanism.certificate
    rows = [
        {
            "name": "countveil",
            "variance": float(c.variance),
            "margin_95": choice.mechanism.margin_95,
            "worst_error": f"{c.worst_error:,}",
            "negative": "never" if c.never_negative else "can be",
        }
    ]
    if choice.answers == 1:
        terms = {"epsilon": choice.epsilon, "delta": choice.delta}
        for row in compare(**terms, mechanisms=["discrete-gaussian", "geometric"]).rows:  # type: ignore[arg-type]
            margin = row.law.margin(Fraction(95, 100))
            rows.append(_other(row.name, float(row.variance), margin, row.worst_error))
    else:
        rows += _powers(choice)
    return {"rows": rows, "note": None if choice.answers == 1 else "The other laws are cut off where that costs least."}


def _powers(choice: Made) -> list[dict[str, Any]]:
    from countveil.planning.shape_search import margin_of, search_power
    from countveil.planning.shapes import Target

    target = Target(float(choice.epsilon), float(choice.delta), choice.answers)
    rows = []
    for power, name in ((2.0, "discrete Gaussian"), (1.0, "geometric")):
        law = search_power(power, target)
        if law is not None:
            rows.append(_other(name, law.variance, margin_of(law.half), len(law.half) - 1))
    return rows


def _other(name: str, variance: float, margin: int, worst: int | None) -> dict[str, Any]:
    shown = "none" if worst is None else f"{worst:,}"
    return {"name": name, "variance": variance, "margin_95": margin, "worst_error": shown, "negative": "can be"}


# -- downloads ---------------------------------------------------------------------------------------------------------


def render_document(fields: Mapping[str, str]) -> dict[str, Any]:
    """The text of the mechanism's file, for download."""
    return {"text": make_mechanism(fields).mechanism.to_text()}


def render_ptable(fields: Mapping[str, str]) -> dict[str, Any]:
    """The text of a p-table of tau-Argus for the mechanism, for download."""
    from countveil.ptables import export

    exported = export(make_mechanism(fields).mechanism)
    return {"text": "".join(exported.format.write(exported.table))}
