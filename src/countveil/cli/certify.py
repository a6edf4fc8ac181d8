"""`countveil certify`: prove a saved mechanism again, from its weights alone."""

from __future__ import annotations

import click

from countveil.cli.output import JSON, Command, clip, plot_option, print_json, print_mechanism, show_spinner


@click.command(cls=Command, short_help="Prove a saved mechanism again.")
@click.argument("file")
@click.option(
    "--epsilon",
    "epsilons",
    multiple=True,
    metavar="E",
    help="Also print the exact delta at this epsilon (may repeat; may be negative).",
)
@click.option(
    "--delta", "deltas", multiple=True, metavar="D", help="Also print the least epsilon for this delta (may repeat)."
)
@click.option(
    "--profile", is_flag=True, help="With --json: also bias, P(exact) and mean squared error of every small count."
)
@plot_option("Save plots to this file (.svg, .png or .html).", "OUT")
@JSON
def certify(
    file: str, epsilons: tuple[str, ...], deltas: tuple[str, ...], profile: bool, plot: str | None, as_json: bool
) -> None:
    """Recompute everything FILE claims from its integer weights, and refuse it if a claim does not hold.

    \b
    Examples:
      countveil certify mechanism.json
      countveil certify mechanism.json --epsilon 0.5 --epsilon 2 --delta 1e-9
      countveil certify mechanism.json --profile --json
      countveil certify mechanism.json --plot mechanism.html
    """
    from countveil.mechanism.mechanism import Mechanism
    from countveil.numeric.exact_numbers import decimal_text, number

    with show_spinner("certifying"):
        mechanism = Mechanism.load(file)
        at_epsilon = {
            decimal_text(number("epsilon", e)): decimal_text(mechanism.delta_at(e), rounding="up") for e in epsilons
        }
        orders = {decimal_text(number("delta", d)): mechanism.epsilon_at(d) for d in deltas}
    at_delta = {d: None if e is None else decimal_text(e, rounding="up") for d, e in orders.items()}
    result = mechanism.describe()
    result["holds"] = True
    result["notes"] = [f"from the file, not certified: {note}" for note in mechanism.notes]
    result["delta_at"] = at_epsilon
    result["epsilon_at"] = at_delta
    if profile:
        result["profile"] = [
            {"n": p.n, "bias": decimal_text(p.bias), "exact": decimal_text(p.exact), "mse": decimal_text(p.mse)}
            for p in mechanism.profile()
        ]
    if plot is not None:
        from countveil.plots import plot as draw

        with show_spinner("drawing"):
            draw(mechanism, plot)
        click.echo(f"plots saved to {plot}", err=True)
    if as_json:
        print_json(result)
        return
    print_mechanism(result)
    for e, delta in at_epsilon.items():
        click.echo(f"delta at epsilon {e}: {clip(delta, 6, 'up')}")
    for d, least in at_delta.items():
        words = "no epsilon is enough" if least is None else f"least epsilon {clip(least, 6, 'up')}"
        click.echo(f"{words} for delta {d}")
    click.echo("every claim holds for the weights in the file")
