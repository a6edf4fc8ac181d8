"""`countveil compare`: mechanisms on equal terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from countveil.cli.output import (
    JSON,
    Command,
    make_table,
    plot_option,
    print_json,
    print_notes,
    print_rich,
    short,
    steps,
)


@click.command(cls=Command)
@click.option("--epsilon", metavar="E", help="Privacy loss that all share (or leave it out, and give delta).")
@click.option("--delta", metavar="D", help="Delta that all share (or leave it out, and give epsilon).")
@click.option("--variance", metavar="V", help="Compare at this variance.")
@click.option("--eta", metavar="P", help="Compare at this probability of the exact count (with -D).")
@click.option("-D", "--noise-bound", "D", metavar="N", help="Noise bound of the mechanisms that have one.")
@click.option(
    "--sensitivity", default="1", show_default=True, metavar="d", help="By how much one person can change a count."
)
@click.option(
    "--largest-count", default="100", show_default=True, metavar="N", help="For mechanisms on 0..N: the end N."
)
@click.option(
    "-m", "--mechanism", "mechanisms", multiple=True, metavar="NAME", help="Only this one (may repeat; default: all)."
)
@click.option(
    "--sort",
    metavar="KEY",
    help="epsilon, delta, eta, variance, mean_absolute_error, within_3 or worst_error; default: what is measured.",
)
@plot_option("Also draw it: a file that ends in .svg, .png or .html.")
@JSON
def compare(mechanisms: tuple[str, ...], plot: str | None, as_json: bool, **terms: Any) -> None:
    """Compare ours with the mechanisms of the literature, each measured by the same exact code.

    \b
    Give                          and compare
      epsilon, delta                the noise that each needs for this guarantee
      epsilon, variance             the delta that each has at this variance (or: delta, variance: the epsilon)
      epsilon, eta, D               the delta that each has at this eta and bound (or: delta, eta, D: the epsilon)

    \b
    Mechanisms: countveil, countveil-signed, countveil-variance (signed, least variance), paper, discrete-gaussian,
    discrete-gaussian-parameter (its parameter, not its variance, is V), geometric, truncated-geometric,
    clamped-geometric, folded-geometric, explicit-fair, staircase (sensitivity above 1), rounded-laplace, p-table
    (maximum entropy, zero frozen).

    \b
    Examples:
      countveil compare --epsilon 1 --delta 1e-6
      countveil compare --epsilon 2.18 --variance 0.266 -D 6 --sort eta
      countveil compare --epsilon 1 --eta 0.4 -D 8 -m countveil -m paper -m truncated-geometric
      countveil compare --epsilon 1 --delta 1e-6 --plot comparison.svg
    """
    from countveil.comparison import compare as library_compare

    found = library_compare(**terms, mechanisms=mechanisms or None, progress=partial(steps, message="comparing"))
    if plot is not None:
        found.plot(plot)
        click.echo(f"picture saved to {plot}", err=True)
    if as_json:
        print_json(found.describe())
    else:
        _print(found.describe())


def _print(found: Mapping[str, Any]) -> None:
    from rich.text import Text

    names = ("epsilon", "delta", "variance", "eta", "D")
    given = ", ".join(f"{name} {found[name]}" for name in names if found[name] is not None)

    style: dict[str, Any] = {"left": 1, "no_wrap": True, "pad_edge": False, "collapse_padding": True}
    heads = (_measured(found), "eta", "variance", "E|Z|", "|Z|<=3", "worst")
    noise = make_table("mechanism", *heads, title=f"At the same {found['shared']}: {given}", **style)
    biases = ("bias at 0", "at 1", "at 2", "at 5", "below zero")
    small = make_table("mechanism", *biases, title="What happens to small counts", **style)
    for row in found["rows"]:
        name = Text(row["name"], style="bold" if row["mechanism"].startswith("countveil") else "")
        measured = row[_measured(found)]
        noise.add_row(
            name,
            "none" if measured is None else _nearly_zero(measured),
            short(row["eta"]),
            short(row["variance"]),
            short(row["mean_absolute_error"], 3),
            short(row["within_3"]),
            "-" if row["worst_error"] is None else str(row["worst_error"]),
        )
        below = "never" if row["never_negative"] else "can be"
        small.add_row(name, *(_bias(row["bias_at"].get(n)) for n in ("0", "1", "2", "5")), below)
    print_rich(noise)
    print_rich(small)
    print_notes(_remarks(found))


def _measured(found: Mapping[str, Any]) -> str:
    return "epsilon" if found["epsilon"] is None else "delta"


def _nearly_zero(text: str) -> str:
    """Deltas that are nothing but cut-off tails are shown as such."""
    return "~0" if float(text) < 1e-25 else short(text, 4, "up")


def _bias(text: str | None) -> str:
    if text is None:
        return "-"
    return "0" if text == "0" else f"{float(text):.2g}" if abs(float(text)) >= 1e-4 else "~0"


def _remarks(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"sorted by {found['sorted_by']}; delta is certified on integer weights, for every dataset (add or remove one "
        f"person, sensitivity {found['sensitivity']})"
    )
    if any(row["worst_error"] is None for row in found["rows"]):
        yield (
            "worst -: unbounded noise; it is cut off where 2^-100 of it is left, and that is added to its delta (~0: "
            "nothing else)"
        )
    if any(row["mechanism"] == "explicit-fair" for row in found["rows"]):
        yield (
            f"explicit fair is for counts 0..{found['largest_count']} (--largest-count), which bounds its error; "
            "figures are for the middle"
        )
    if found["shared"] == "variance":
        yield "ours has the least delta within the variance and may use less of it; D is as large as helps, or as given"
    if found["shared"] == "guarantee":
        yield "countveil and countveil signed have the largest eta, countveil variance the least variance"
    for item in found["left_out"]:
        yield f"left out: {item['mechanism']} ({item['reason']})"
