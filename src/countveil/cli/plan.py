"""`countveil plan`: search for the best mechanism for k answers within a budget; the cost of answers of a mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import (
    JSON,
    Command,
    clip,
    make_table,
    plot_option,
    print_json,
    print_mechanism,
    print_notes,
    print_rich,
    show_progress,
    show_spinner,
)
from countveil.numeric.exact_numbers import decimal_text

if TYPE_CHECKING:
    from countveil.planning.grades import Grade
    from countveil.planning.plans import Plan

PATIENCE = 2.0
"""How many seconds a plan may take before a spinner shows that it is being computed."""
DEFAULTS = {"--policy": "nonnegative", "--method": "remap", "--objective": "variance", "--sensitivity": "1"}
DESIGN_OPTIONS = (*DEFAULTS, "--unbiased-from", "--max-bias", "--plot", "-o")
"""Options that design or draw a mechanism, so they make no sense with -m."""


@click.command(cls=Command, short_help="Plan a number of answers within epsilon and delta.")
@click.option("--epsilon", metavar="E", help="Privacy loss of all answers together.")
@click.option("--delta", metavar="D", help="Delta of all answers together.")
@click.option("--answers", metavar="K", help="How many answers (tables) are planned, all of one accuracy.")
@click.option(
    "--grade",
    "grades",
    multiple=True,
    metavar="NAME=KxW | NAME=K@M",
    help="Instead of --answers, once for each grade: K answers of weight W (default 1), or of 95 % margin M; also "
    "@variance:V, @eta:P, @D:D; then /POLICY if it differs.",
)
@click.option("--policy", default="nonnegative", show_default=True, help="nonnegative, signed or floor.")
@click.option(
    "--method",
    default="remap",
    show_default=True,
    help="How to avoid negative counts: remap, or program (a law for each small count; noise up to 48).",
)
@click.option("--objective", default="variance", show_default=True, help="What to optimise: variance, eta or margin.")
@click.option(
    "--neighbours",
    default="add-remove",
    show_default=True,
    help="add-remove: a person more or less. replace: one person instead of another.",
)
@click.option(
    "--cells",
    default="1",
    show_default=True,
    metavar="M",
    help="The number of cells of a table that one person can be in.",
)
@click.option(
    "--people", default="1", show_default=True, metavar="G", help="With -m: protect groups of so many people."
)
@click.option(
    "--sensitivity",
    default="1",
    show_default=True,
    metavar="d",
    help="The most by which one person can change a count.",
)
@click.option("--unbiased-from", metavar="N0", help="Bias at most B from this count on (default: chosen).")
@click.option(
    "--max-bias", metavar="B", help="The largest bias from N0 on (default: 1e-8, or more where 1e-8 costs accuracy)."
)
@click.option(
    "--adaptive", is_flag=True, help="With -m: the mechanisms were chosen adaptively (basic composition only)."
)
@click.option(
    "-m", "--mechanism", metavar="FILE", help="Design nothing: compute the cost of answers of this mechanism."
)
@click.option(
    "--prices/--no-prices",
    default=True,
    help="Also compute the price list of other numbers of answers (takes some seconds).",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Save the planned mechanism; of several grades, each as FILE with its name."
)
@plot_option("Draw the price list to this file (.svg, .png or .html).")
@JSON
def plan(
    epsilon: str | None,
    delta: str | None,
    answers: str | None,
    grades: tuple[str, ...],
    neighbours: str,
    cells: str,
    people: str,
    adaptive: bool,
    mechanism: str | None,
    prices: bool,
    output: str | None,
    plot: str | None,
    as_json: bool,
    **design: Any,
) -> None:
    """Search for the best mechanism for K answers within (epsilon, delta), certified for all of them.

    \b
    With -m FILE, give two of epsilon, delta and answers and get the third:
      epsilon, delta     how many answers of this mechanism the budget pays for
      answers, delta     the epsilon that so many answers cost
      answers, epsilon   the delta that so many answers cost

    \b
    Examples:
      countveil plan --epsilon 3 --delta 1e-6 --answers 30
      countveil plan --epsilon 3 --delta 1e-6 --answers 30 --policy signed --no-prices -o mechanism.json
      countveil plan --epsilon 3 --delta 1e-6 --answers 10 --unbiased-from 6
      countveil plan --epsilon 3 --delta 1e-6 --answers 5 --method program
      countveil plan --epsilon 3 --delta 1e-6 --grade fine=2@3 --grade standard=10 --grade coarse=40x0.25
      countveil plan -m mechanism.json --epsilon 3 --delta 1e-6
      countveil plan -m mechanism.json --answers 100 --delta 1e-6 --neighbours replace
    """
    from countveil.errors import RequestError

    terms: dict[str, Any] = {"neighbours": neighbours, "cells": cells}
    if mechanism is not None:
        if grades:
            raise RequestError("--grade: not allowed with -m, which takes the mechanism as it is; leave it out")
        _refuse_design_options({**design, "plot": plot, "o": output})
        terms |= {"people": people, "adaptive": adaptive}
        _account(mechanism, epsilon, delta, answers, terms, as_json)
        return
    from countveil.planning import plan as library_plan

    if epsilon is None or delta is None or (answers is None and not grades):
        raise RequestError(
            "a plan needs --epsilon, --delta and --answers or --grade "
            "(with -m FILE: two of --epsilon, --delta and --answers)"
        )
    if people != "1":
        raise RequestError(
            "--people is allowed only with -m FILE; a plan always protects one person, so leave --people out"
        )
    if adaptive:
        raise RequestError(
            "--adaptive is allowed only with -m FILE; a plan fixes its mechanisms in advance, so leave --adaptive out"
        )
    if grades and plot is not None:
        raise RequestError("--plot needs --answers, a plan of answers of one accuracy; with --grade, leave --plot out")
    terms |= {"prices": prices or plot is not None, **design}
    with show_spinner("planning", after=PATIENCE) as stop:

        def progress(things: Iterable[Any]) -> Iterator[Any]:
            stop()
            return show_progress(things, "prices")

        terms["progress"] = progress
        plan = library_plan(epsilon=epsilon, delta=delta, answers=answers, grades=_read_grades(grades), **terms)
    files = _save(plan, output) if output is not None else []
    if plot is not None:
        plan.plot(plot)
        click.echo(f"plot saved to {plot}", err=True)
    if as_json:
        print_json(plan.describe())
        return
    _print(plan.describe())
    if files:
        click.echo(
            f"saved to {', '.join(files)}; to see what answers cost: countveil plan -m {files[0]} --answers K "
            "--delta D",
            err=True,
        )


def _read_grades(texts: Sequence[str]) -> dict[str, Grade] | None:
    """Read the grades that the options give; None if there are none."""
    from countveil.errors import RequestError
    from countveil.planning.grades import read_grade

    named = [read_grade(text) for text in texts]
    names = [name for name, _ in named]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise RequestError(f"--grade names {', '.join(twice)} more than once; give every grade its own name")
    return dict(named) or None


def _save(plan: Plan, output: str) -> list[str]:
    """Save the mechanism of every grade; return the files. With several grades, a file has the grade's name before its
    ending."""
    if len(plan.grades) == 1:
        plan.grades[0].mechanism.save(output)
        return [output]
    path = Path(output)
    files = [str(path.with_name(f"{path.stem}-{grade.name}{path.suffix}")) for grade in plan.grades]
    for grade, file in zip(plan.grades, files, strict=True):
        grade.mechanism.save(file)
    return files


def _print(plan: Mapping[str, Any]) -> None:
    from rich.text import Text

    who = "one person more or less" if plan["neighbours"] == "add-remove" else "one person instead of another"
    often = "" if plan["cells"] == 1 else f", in up to {plan['cells']} cells of each table"
    together = f" together: epsilon {plan['epsilon']}, delta {clip(plan['delta'], 6, 'up')} ({who}{often})"
    print_rich(Text.assemble((f"{plan['answers']} answers", "bold"), together))
    if plan["per_answer"] is None:
        _print_grades(plan)
    else:
        print_rich("\nEach answer", "bold")
        print_mechanism(plan["per_answer"])
        if plan["price_list"] and "grade" not in plan["price_list"][0]:
            _print_prices(plan["price_list"])
    print_notes(plan["notes"])


def _print_prices(prices: Sequence[Mapping[str, Any]]) -> None:
    heads = ("answers", "variance", "95 % margin", "eta", "D", "")
    table = make_table(*heads, title="What a number of answers costs")
    for row in prices:
        figures = (clip(row["variance"]), f"±{row['margin_95']}", clip(row["eta"]), str(row["D"]))
        table.add_row(str(row["answers"]), *figures, "<- planned" if row["chosen"] else "")
    print_rich(table)


def _print_grades(plan: Mapping[str, Any]) -> None:
    """Print the grades, and what one more answer of each grade costs the others."""
    table = make_table("grade", "answers", "95 % margin", "typical", "variance", "eta", "D", "policy")
    for grade in plan["grades"]:
        margin = f"±{grade['margin_95']}"
        figures = (
            f"±{grade['typical_margin_95']}",
            clip(grade["variance"]),
            clip(grade["eta"]),
            str(grade["D"]),
            grade["policy"],
        )
        table.add_row(grade["name"], str(grade["answers"]), margin, *figures)
    print_rich(table)
    if not plan["price_list"]:
        return
    table = make_table("one more answer of", "then typically", title="What one more answer costs (estimates)")
    for row in plan["price_list"]:
        others = row["others"]
        cost = "does not fit" if others is None else "every other grade has a target, which is kept"
        if others:
            cost = ", ".join(f"{name} ±{other['typical_margin_95']}" for name, other in others.items())
        table.add_row(row["grade"], cost)
    print_rich(table)


def _refuse_design_options(given: Mapping[str, Any]) -> None:
    """Refuse options for designing and drawing, which would be ignored because -m gives a finished mechanism."""
    from countveil.errors import RequestError

    unused = [name for name in DESIGN_OPTIONS if given[name.lstrip("-").replace("-", "_")] != DEFAULTS.get(name)]
    if unused:
        raise RequestError(
            f"{', '.join(unused)}: not allowed with -m, which takes the mechanism as it is; leave out these options"
        )


def _account(
    file: str, epsilon: str | None, delta: str | None, answers: str | None, known: Mapping[str, Any], as_json: bool
) -> None:
    """Compute whichever of epsilon, delta and answers is not given from the other two, and print it."""
    from countveil.accounting import LARGEST_ANSWERS, affordable_answers, compose, delta_given, epsilon_given
    from countveil.errors import RequestError
    from countveil.mechanism.mechanism import Mechanism
    from countveil.numeric.exact_numbers import integer

    if sum(given is not None for given in (epsilon, delta, answers)) != 2:
        raise RequestError("with -m give exactly two of --epsilon, --delta and --answers; the third is computed")
    mechanism = Mechanism.load(file)
    with show_spinner("composing"):
        if answers is None:
            count = affordable_answers(mechanism, str(epsilon), str(delta), **known)
        else:
            count = integer("answers", answers, 1, LARGEST_ANSWERS)
        composition = compose(mechanism, max(1, count), fine=True, **known)
        numbers = {name: integer(name, known[name], 1, 10**6) for name in ("cells", "people")}
        result: dict[str, Any] = {"schema_version": 1, "answers": count, "mechanism": mechanism.hash}
        result |= {"neighbours": known["neighbours"], **numbers, "sensitivity": mechanism.certificate.sensitivity}
        result |= {"adaptive": known["adaptive"], "notes": [composition.note]}
        if count == 0:
            result |= {"epsilon": epsilon, "delta": delta, "delta_lower": None}
        elif epsilon is None:
            bounds = composition.epsilon(delta_given(str(delta)))
            result |= {"delta": delta, "epsilon": None if bounds is None else _format_number(bounds.upper, "up")}
            result |= {"epsilon_lower": None if bounds is None else _format_number(bounds.lower, "down")}
        else:
            figures = composition.delta(epsilon_given(epsilon))
            result |= {"epsilon": epsilon, "delta": _format_number(figures.upper, "up")}
            result |= {"delta_lower": _format_number(figures.lower, "down")}
    if as_json:
        print_json(result)
        return
    for line in _describe(result):
        click.echo(line)


def _format_number(x: float, rounding: str) -> str:
    return decimal_text(Fraction(x), 12, rounding)


def _describe(result: Mapping[str, Any]) -> Iterator[str]:
    if not result["answers"]:
        yield "not even one answer of this mechanism is within that budget"
        return
    many = "1 answer" if result["answers"] == 1 else f"{result['answers']} answers"
    yield f"{many} of this mechanism together"
    if result["epsilon"] is None:
        why = "outcomes that only one of two neighbouring counts can have are likelier"
        yield f"no epsilon is enough for delta {result['delta']}: {why}"
        return
    if float(result["delta"]) >= 1:
        yield f"  no guarantee at epsilon {result['epsilon']}"
        yield from (f"- {note}" for note in result["notes"])
        return
    yield f"  epsilon {clip(result['epsilon'], 6, 'up')}, delta {clip(result['delta'], 6, 'up')} (certified)"
    for key in ("delta_lower", "epsilon_lower"):
        if key in result:
            yield f"  {key.removesuffix('_lower')} cannot be below {clip(result[key], 6, 'down')}"
    yield from (f"- {note}" for note in result["notes"])
