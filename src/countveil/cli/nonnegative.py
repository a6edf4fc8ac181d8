"""`countveil nonnegative`: make a signed mechanism never negative, at no privacy cost."""

from __future__ import annotations

from typing import Any

import click

import countveil as cv
from countveil.cli.design import show
from countveil.cli.output import JSON, Command, show_spinner
from countveil.errors import RequestError


@click.command(cls=Command, short_help="Make a signed mechanism never negative.")
@click.argument("file", required=False)
@click.option("--gaussian", metavar="S2", help="Instead of FILE: a discrete Gaussian of this parameter (its variance).")
@click.option("--epsilon", metavar="E", help="With --gaussian: the epsilon at which its delta is stated.")
@click.option(
    "-D",
    "--noise-bound",
    "D",
    metavar="N",
    help="With --gaussian: cut its tails off here (default: where 2^-100 is left).",
)
@click.option("--unbiased-from", metavar="N0", help="Bias at most B from this count on (default: chosen).")
@click.option(
    "--max-bias", metavar="B", help="The largest bias from N0 on (default: 1e-8, or more where 1e-8 costs accuracy)."
)
@click.option("-o", "--output", metavar="OUT", help="Save the mechanism with its certificate.")
@JSON
def nonnegative(
    file: str | None,
    gaussian: str | None,
    epsilon: str | None,
    D: str | None,
    output: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Make the signed mechanism in FILE never negative: the same epsilon and delta, for any number of answers.

    Negative outcomes become 0, and small ones are moved at random so that counts from N0 on keep their mean up to B.
    The field bias_from_n0 of --json is the largest bias left, measured on the integer weights and rounded up.

    \b
    Examples:
      countveil nonnegative signed.json -o mechanism.json
      countveil nonnegative signed.json --unbiased-from 7 --max-bias 1e-4 --json
      countveil nonnegative --gaussian 72 --epsilon 1 --unbiased-from 25 --json
    """
    from countveil.design.remap.postprocessing import gaussian as gaussian_mechanism

    if (file is None) == (gaussian is None):
        raise RequestError("give the FILE of a signed mechanism, or --gaussian S2 with --epsilon E")
    if gaussian is None and (epsilon is not None or D is not None):
        raise RequestError("--epsilon and -D are for --gaussian; the mechanism in FILE has its own: leave them out")
    with show_spinner("mapping"):
        if gaussian is not None:
            if epsilon is None:
                raise RequestError("--gaussian needs --epsilon E, at which its delta is stated")
            signed = gaussian_mechanism(gaussian, epsilon=epsilon, D=D)
        else:
            signed = cv.Mechanism.load(str(file))
        mechanism = cv.make_nonnegative(signed, **limits)
    if output is not None:
        mechanism.save(output)
    show(mechanism, output, as_json)
