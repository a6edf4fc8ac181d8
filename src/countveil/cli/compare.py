"""`countveil compare`: compare mechanisms at the same guarantee, variance or eta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from countveil.cli.output import (
    JSON,
    Command,
    clip,
    make_table,
    plot_option,
    print_json,
    print_notes,
    print_rich,
    show_progress,
)


@click.command(cls=Command, short_help="Compare our mechanisms with those of the literature.", no_args_is_help=True)
@click.option(
    "--epsilon", metavar="E", help="The epsilon that all mechanisms have (leave it out to measure epsilon at --delta)."
)
@click.option(
    "--delta", metavar="D", help="The delta that all mechanisms have (leave it out to measure delta at --epsilon)."
)
@click.option("--variance", metavar="V", help="Compare at this variance.")
@click.option("--eta", metavar="P", help="Compare at this probability of the exact count (with -D).")
@click.option("-D", "--noise-bound", "D", metavar="N", help="Noise bound of the mechanisms that have one.")
@click.option(
    "--sensitivity",
    default="1",
    show_default=True,
    metavar="d",
    help="The most by which one person can change a count.",
)
@click.option(
    "--largest-count",
    default="100",
    show_default=True,
    metavar="N",
    help="The largest count N, for mechanisms on 0..N.",
)
@click.option(
    "--answers",
    default="1",
    show_default=True,
    metavar="K",
    help="How many answers have the guarantee together (with --epsilon and --delta).",
)
@click.option(
    "-m",
    "--only",
    "--mechanism",
    "mechanisms",
    multiple=True,
    metavar="NAME",
    help="Only this mechanism (may repeat, or several names joined by commas; default: all).",
)
@click.option(
    "--sort",
    metavar="KEY",
    help="epsilon, delta, eta, variance, mean_absolute_error, within_3 or worst_error (default: the measured one).",
)
@plot_option("Also draw the comparison to this file (.svg, .png or .html).")
@JSON
def compare(mechanisms: tuple[str, ...], plot: str | None, as_json: bool, **terms: Any) -> None:
    """Compare our mechanisms with those of the literature, each measured by the same exact code.

    \b
    Give                          and compare
      epsilon, delta                the noise that each needs for this guarantee
      epsilon, delta, answers       the noise that each answer needs if all of them together have this guarantee
      epsilon, variance             the delta that each has at this variance (or: delta, variance: the epsilon)
      epsilon, eta, D               the delta that each has at this eta and bound (or: delta, eta, D: the epsilon)

    \b
    Mechanisms: countveil, countveil-signed, countveil-variance (signed, least variance), paper, discrete-gaussian,
    discrete-gaussian-parameter (its parameter, not its variance, is V), geometric, truncated-geometric,
    clamped-geometric, folded-geometric, unbiased-geometric, explicit-fair, staircase (sensitivity above 1),
    rounded-laplace, truncated-laplace, bounded-laplace, canonical, truncated-gaussian, offset-gaussian, renyi, cactus,
    doubly-exponential, skellam, finite-set (small counts), p-table (maximum entropy, zero frozen). docs/related-work.md
    says whose they are.

    \b
    Examples:
      countveil compare --epsilon 1 --delta 1e-6
      countveil compare --epsilon 3 --delta 1e-6 --answers 30
      countveil compare --epsilon 1 --delta 1e-6 --only canonical,geometric,countveil-signed
      countveil compare --epsilon 2.18 --variance 0.266 -D 6 --sort eta
      countveil compare --epsilon 1 --eta 0.4 -D 8 -m countveil -m paper -m truncated-geometric
      countveil compare --epsilon 1 --delta 1e-6 --plot comparison.svg
    """
    from countveil.comparison import compare as library_compare

    comparison = library_compare(
        **terms, mechanisms=_split(mechanisms) or None, progress=partial(show_progress, message="comparing")
    )
    if plot is not None:
        comparison.plot(plot)
        click.echo(f"plot saved to {plot}", err=True)
    if as_json:
        print_json(comparison.describe())
    else:
        _print(comparison.describe())


def _split(mechanisms: tuple[str, ...]) -> list[str]:
    """Split the values of the option -m at commas into a list of names."""
    return [name.strip() for names in mechanisms for name in names.split(",") if name.strip()]


def _print(comparison: Mapping[str, Any]) -> None:
    from rich.text import Text

    names = ("epsilon", "delta", "variance", "eta", "D")
    given = ", ".join(f"{name} {comparison[name]}" for name in names if comparison[name] is not None)
    if comparison["answers"] > 1:
        given += f", {comparison['answers']} answers"

    style: dict[str, Any] = {"left": 1, "no_wrap": True, "pad_edge": False, "collapse_padding": True}
    heads = (_measured_parameter(comparison), "eta", "variance", "E|Z|", "|Z|<=3", "worst")
    noise = make_table("mechanism", *heads, title=f"At the same {comparison['shared']}: {given}", **style)
    biases = ("bias at 0", "at 1", "at 2", "at 5", "below zero")
    small = make_table("mechanism", *biases, title="What happens to small counts", **style)
    leaders = comparison["leaders"]
    first = [row for row in comparison["rows"] if row["mechanism"] in leaders]
    others = [row for row in comparison["rows"] if row["mechanism"] not in leaders]
    for row in first + others:
        if others and row is others[0]:
            noise.add_section()
            small.add_section()
        name = Text(row["name"], style="bold" if row["mechanism"].startswith("countveil") else "")
        measured = row[_measured_parameter(comparison)]
        noise.add_row(
            name,
            "none" if measured is None else _format_privacy(measured),
            clip(row["eta"]),
            clip(row["variance"]),
            clip(row["mean_absolute_error"], 3),
            clip(row["within_3"]),
            "-" if row["worst_error"] is None else str(row["worst_error"]),
        )
        below = "never" if row["never_negative"] else "can be"
        small.add_row(name, *(_format_bias(row["bias_at"].get(n)) for n in ("0", "1", "2", "5")), below)
    print_rich(noise)
    print_rich(small)
    print_notes(_write_remarks(comparison))


def _measured_parameter(comparison: Mapping[str, Any]) -> str:
    return "epsilon" if comparison["epsilon"] is None else "delta"


def _format_privacy(text: str) -> str:
    """Format an epsilon or delta. A delta that comes only from cutting off the tails is shown as ~0."""
    return "~0" if float(text) < 1e-25 else clip(text, 4, "up")


def _format_bias(text: str | None) -> str:
    if text is None:
        return "-"
    return "0" if text == "0" else f"{float(text):.2g}" if abs(float(text)) >= 1e-4 else "~0"


def _write_remarks(comparison: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"sorted by {comparison['sorted_by']}, after the best of each kind: never negative, bounded, unbounded, for "
        f"counts 0..N only"
    )
    yield (
        f"delta is certified on integer weights, for every dataset (add or remove "
        f"one person, sensitivity {comparison['sensitivity']})"
        + ("; for all answers together, by certified composition" if comparison["answers"] > 1 else "")
    )
    if any(row["worst_error"] is None for row in comparison["rows"]):
        yield (
            "worst -: unbounded noise; its tails of probability 2^-100 are cut off and added to delta (~0: delta is "
            "nothing else)"
        )
    limited = [row["name"] for row in comparison["rows"] if row["mechanism"] in ("explicit-fair", "bounded-laplace")]
    if limited:
        yield (
            f"{' and '.join(limited)}: for counts 0..{comparison['largest_count']} (--largest-count), which bounds the "
            "error; the figures are for counts in the middle"
        )
    if any(row["mechanism"] == "finite-set" for row in comparison["rows"]):
        yield "finite-set noise is for few counts, modulo their number: counts at one end may be published at the other"
    if comparison["shared"] == "variance":
        yield "countveil has the least delta with at most this variance; without -D, a larger D would not lower it"
    if comparison["answers"] > 1:
        yield "countveil and countveil signed are plans for this number of answers; variance is of one answer"
    elif comparison["shared"] == "guarantee":
        yield "countveil and countveil signed have the largest eta, countveil variance the least variance"
    for item in comparison["left_out"]:
        yield f"left out: {item['mechanism']} ({item['reason']})"
