"""`countveil plan`: k answers within a budget, and what answers of a mechanism cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import click

from countveil.cli.output import (
    JSON,
    Command,
    busy,
    make_table,
    plot_option,
    print_json,
    print_mechanism,
    print_notes,
    print_rich,
    short,
    steps,
)
from countveil.exact import decimal_text

DEFAULTS = {"--policy": "nonnegative", "--method": "remap", "--objective": "variance", "--sensitivity": "1"}
DESIGNING = (*DEFAULTS, "--unbiased-from", "--max-bias", "--plot", "-o")
"""Options that design or draw."""


@click.command(cls=Command)
@click.option("--epsilon", metavar="E", help="Privacy loss of all answers together.")
@click.option("--delta", metavar="D", help="Delta of all answers together.")
@click.option("--answers", metavar="K", help="How many answers (tables) are planned.")
@click.option("--policy", default="nonnegative", show_default=True, help="nonnegative or signed.")
@click.option(
    "--method",
    default="remap",
    show_default=True,
    help="Never negative by remap, or by program: a law for each small count (noise up to 48).",
)
@click.option("--objective", default="variance", show_default=True, help="variance, eta or margin: what is best.")
@click.option(
    "--neighbours",
    default="add-remove",
    show_default=True,
    help="add-remove: a person more or less. replace: one person instead of another.",
)
@click.option(
    "--cells", default="1", show_default=True, metavar="M", help="In how many cells of a table a person can be."
)
@click.option(
    "--people", default="1", show_default=True, metavar="G", help="With -m: protect so many persons together."
)
@click.option(
    "--sensitivity", default="1", show_default=True, metavar="d", help="By how much one person can change a count."
)
@click.option("--unbiased-from", metavar="N0", help="Hardly any bias from this count on (default: found).")
@click.option("--max-bias", metavar="B", help="How much bias from N0 on (default: 1e-8, or what is nearly free).")
@click.option("--adaptive", is_flag=True, help="With -m: mechanisms were chosen on the way (basic composition only).")
@click.option("-m", "--mechanism", metavar="FILE", help="Do not design: account for answers of this mechanism.")
@click.option("--prices/--no-prices", default=True, help="The price list of other numbers of answers (some seconds).")
@click.option("-o", "--output", metavar="FILE", help="Save the planned mechanism.")
@plot_option("Draw the price list: a file that ends in .svg, .png or .html.")
@JSON
def plan(
    epsilon: str | None,
    delta: str | None,
    answers: str | None,
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
    """The best mechanism for K answers within (epsilon, delta), certified for all of them together.

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
      countveil plan -m mechanism.json --epsilon 3 --delta 1e-6
      countveil plan -m mechanism.json --answers 100 --delta 1e-6 --neighbours replace
    """
    terms: dict[str, Any] = {"neighbours": neighbours, "cells": cells}
    if mechanism is not None:
        _refuse_design_options({**design, "plot": plot, "o": output})
        terms |= {"people": people, "adaptive": adaptive}
        _account(mechanism, epsilon, delta, answers, terms, as_json)
        return
    from countveil.accounting import plan as library_plan
    from countveil.errors import RequestError

    if epsilon is None or delta is None or answers is None:
        raise RequestError("a plan needs --epsilon, --delta and --answers (or -m FILE and two of them)")
    if people != "1":
        raise RequestError("--people accounts for a mechanism (-m FILE); a plan protects one person")
    if adaptive:
        raise RequestError("--adaptive accounts for a mechanism (-m FILE); a plan fixes the mechanism in advance")
    terms |= {"prices": prices or plot is not None, "progress": partial(steps, message="prices"), **design}
    found = library_plan(epsilon=epsilon, delta=delta, answers=answers, **terms)
    if output is not None:
        found.mechanism.save(output)
    if plot is not None:
        from countveil.plots.prices import plot_prices

        plot_prices(found, plot)
        click.echo(f"picture saved to {plot}", err=True)
    if as_json:
        print_json(found.describe())
        return
    _print(found.describe())
    if output is not None:
        click.echo(f"saved to {output}; what answers cost: countveil plan -m {output} --answers K --delta D", err=True)


def _print(found: Mapping[str, Any]) -> None:
    from rich.text import Text

    who = "one person more or less" if found["neighbours"] == "add-remove" else "one person instead of another"
    often = "" if found["cells"] == 1 else f", in up to {found['cells']} cells of each table"
    together = f" together: epsilon {found['epsilon']}, delta {short(found['delta'], 6, 'up')} ({who}{often})"
    print_rich(Text.assemble((f"{found['answers']} answers", "bold"), together))
    print_rich("\nEach answer", "bold")
    print_mechanism(found["per_answer"])
    if found["price_list"]:
        heads = ("answers", "variance", "95 % margin", "eta", "D", "")
        table = make_table(*heads, title="What a number of answers costs")
        for row in found["price_list"]:
            figures = (short(row["variance"]), f"±{row['margin_95']}", short(row["eta"]), str(row["D"]))
            table.add_row(str(row["answers"]), *figures, "<- planned" if row["chosen"] else "")
        print_rich(table)
    print_notes(found["notes"])


def _refuse_design_options(given: Mapping[str, Any]) -> None:
    """With -m nothing is designed or drawn: options for that are not ignored but refused."""
    from countveil.errors import RequestError

    unused = [name for name in DESIGNING if given[name.lstrip("-").replace("-", "_")] != DEFAULTS.get(name)]
    if unused:
        raise RequestError(f"{', '.join(unused)}: not with -m, which accounts for a mechanism as it is; leave it out")


def _account(
    file: str, epsilon: str | None, delta: str | None, answers: str | None, known: Mapping[str, Any], as_json: bool
) -> None:
    """Two of epsilon, delta and answers for the third."""
    from countveil.accounting import LARGEST_ANSWERS, answers_within, compose, delta_given, epsilon_given
    from countveil.errors import RequestError
    from countveil.exact import integer
    from countveil.mechanism import Mechanism

    if sum(given is not None for given in (epsilon, delta, answers)) != 2:
        raise RequestError("with -m give two of --epsilon, --delta and --answers, and get the third")
    mechanism = Mechanism.load(file)
    with busy("composing"):
        if answers is None:
            count = answers_within(mechanism, str(epsilon), str(delta), **known)
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
            found = composition.epsilon(delta_given(str(delta)))
            result |= {"delta": delta, "epsilon": None if found is None else _text(found.upper, "up")}
            result |= {"epsilon_lower": None if found is None else _text(found.lower, "down")}
        else:
            figures = composition.delta(epsilon_given(epsilon))
            result |= {"epsilon": epsilon, "delta": _text(figures.upper, "up")}
            result |= {"delta_lower": _text(figures.lower, "down")}
    if as_json:
        print_json(result)
        return
    for line in _words(result):
        click.echo(line)


def _text(x: float, rounding: str) -> str:
    return decimal_text(Fraction(x), 12, rounding)


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    if not result["answers"]:
        yield "not even one answer of this mechanism is within that budget"
        return
    yield f"{result['answers']} answers of this mechanism together"
    if result["epsilon"] is None:
        yield f"no epsilon has delta {result['delta']}: outcomes that only one of two neighbours has weigh more"
        return
    if float(result["delta"]) >= 1:
        yield f"  no guarantee at epsilon {result['epsilon']}"
        yield from (f"- {note}" for note in result["notes"])
        return
    yield f"  epsilon {short(result['epsilon'], 6, 'up')}, delta {short(result['delta'], 6, 'up')} (certified)"
    for key in ("delta_lower", "epsilon_lower"):
        if key in result:
            yield f"  {key.removesuffix('_lower')} cannot be below {short(result[key], 6, 'down')}"
    yield from (f"- {note}" for note in result["notes"])
