"""`countveil design`: design a certified mechanism for a question about epsilon, delta, eta and D."""

from __future__ import annotations

from typing import Any

import click

import countveil as cv
from countveil.cli.output import JSON, Command, plot_option, print_json, print_mechanism, show_spinner


@click.command(
    cls=Command, short_help="Design a certified mechanism for epsilon, delta, eta and D.", no_args_is_help=True
)
@click.option("--epsilon", metavar="E", help="Privacy loss, a decimal number; 0 is allowed.")
@click.option("--delta", metavar="D", help="Probability that the guarantee may fail, for instance 1e-6.")
@click.option("--eta", metavar="P", help="Probability of releasing the exact count.")
@click.option(
    "-D", "--noise-bound", "D", metavar="N", help="No released count differs from the true count by more than this."
)
@click.option(
    "--policy",
    default="nonnegative",
    show_default=True,
    help="nonnegative: never below 0. signed: noise independent of n. floor: max(n, D) + noise.",
)
@click.option(
    "--unbiased-from", metavar="N0", help="Zero bias from this count on (default: chosen; see the price list)."
)
@click.option("--method", default="auto", show_default=True, help="auto, paper, optimal, program or remap.")
@click.option(
    "--objective", default="delta", show_default=True, help="delta (exact), singleton (the paper's) or variance."
)
@click.option("--max-variance", metavar="V", help="Allow no more variance than this.")
@click.option(
    "--sensitivity",
    default="1",
    show_default=True,
    metavar="d",
    help="The most by which one person can change a count.",
)
@click.option("--counts", metavar="LO:HI", help="Publicly known bounds of the true counts, for instance 1:500 or 100:")
@click.option("--cap", is_flag=True, help="Never release more than HI of --counts.")
@click.option(
    "--bits", metavar="K", help="Weights over 2^K: 64, 96 or 128 (default: the smallest that is fine enough)."
)
@click.option("-o", "--output", metavar="FILE", help="Save the mechanism with its certificate.")
@plot_option("Save plots to this file (.svg, .png or .html).")
@JSON
def design(output: str | None, plot: str | None, as_json: bool, **given: Any) -> None:
    """Design a certified mechanism for the values that you give of epsilon, delta, eta and D.

    \b
    Give                  and get
      epsilon, delta        the largest eta, then the least D
      epsilon, delta, D     the largest eta
      epsilon, delta, eta   the least D
      epsilon, eta, D       the least delta (the paper's question)
      delta, eta, D         the least epsilon
      all four              the least variance within them (--objective variance)

    \b
    Examples:
      countveil design --epsilon 1 --delta 1e-6
      countveil design --epsilon 1 --delta 1e-6 -o mechanism.json
      countveil design --epsilon 2.18 --eta 0.8 -D 6 --policy signed --method paper --json
      countveil design --epsilon 0.01 --delta 1e-6 --method remap
      countveil design --epsilon 1 --delta 1e-6 --policy signed --plot mechanism.svg
      countveil design --epsilon 1 --eta 0.5 -D 2 --counts 1:3 --objective singleton
    """
    with show_spinner("designing"):
        mechanism = cv.design(**given)
    if output is not None:
        mechanism.save(output)
    if plot is not None:
        with show_spinner("drawing"):
            cv.plot(mechanism, plot)
        click.echo(f"plots saved to {plot}", err=True)
    show(mechanism, output, as_json)


def show(mechanism: cv.Mechanism, output: str | None, as_json: bool) -> None:
    """Print a mechanism, as JSON or as a page for people. The page also says where the mechanism was saved."""
    if as_json:
        print_json(mechanism.describe())
        return
    print_mechanism(mechanism.describe())
    if output is not None:
        click.echo(f"saved to {output}; prove it again with: countveil certify {output}", err=True)
