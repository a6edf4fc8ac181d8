"""`countveil audit`: run the sampler and test its draws against the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from countveil.cli.output import JSON, Command, clip, print_json, show_spinner

if TYPE_CHECKING:
    from rich.console import Console

    from countveil.mechanism.sampler_audit import SamplerAudit


@click.command(cls=Command, short_help="Test the sampler's draws against the certificate.")
@click.option("-m", "--mechanism", "path", required=True, metavar="FILE", help="A saved mechanism.")
@click.option("--draws", default="1000000", show_default=True, metavar="N", help="Draws at each count.")
@JSON
def audit(path: str, draws: str, as_json: bool) -> None:
    """Draw many times at neighbouring counts; exit with code 1 if the draws refute the certificate.

    An audit can refute a certificate but never prove it; `countveil certify` proves it.

    \b
    Examples:
      countveil audit -m mechanism.json
      countveil audit -m mechanism.json --draws 5000000 --json
    """
    from countveil.mechanism.mechanism import Mechanism
    from countveil.mechanism.sampler_audit import audit as audit_sampler
    from countveil.numeric.exact_numbers import integer

    times = integer("draws", draws, 1000, 20_000_000)
    mechanism = Mechanism.load(path)
    with show_spinner(f"drawing {times:,} times at each count"):
        result = audit_sampler(mechanism, times)
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "refuted": result.is_refuted,
                "draws": result.draws,
                "pair": list(result.pair),
                "epsilon_claimed": clip(str(mechanism.epsilon), 15),
                "delta_claimed": mechanism.describe()["delta"],
                "epsilon_lower": None if result.epsilon_lower == float("-inf") else f"{result.epsilon_lower:.6f}",
                "fits": [
                    {
                        "n": fit.n,
                        "p_value": f"{fit.p_value:.6g}",
                        "observed": {str(z): k for z, k in fit.observed.items()},
                    }
                    for fit in result.fits
                ],
            }
        )
    else:
        _print(result)
    if result.is_refuted:
        raise click.exceptions.Exit(1)


def _print(result: SamplerAudit) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    n, m = result.pair
    bound = "nothing" if result.epsilon_lower == float("-inf") else f"{result.epsilon_lower:.4f}"
    console.print(
        f"[bold]privacy[/bold]  counts {n} and {m}, {result.draws:,} draws each: at delta {result.delta_claimed:.3g} "
    )
    console.print(f"         epsilon is at least {bound} (claimed {result.epsilon_claimed:g}); confidence 1 - 1e-6")
    for fit in result.fits:
        console.print(f"[bold]weights[/bold]  n = {fit.n}: chi-square p-value {fit.p_value:.3g}")
    _plot(console, result)
    verdict = (
        "REFUTED: the draws contradict the certificate"
        if result.is_refuted
        else "the draws do not contradict the certificate"
    )
    console.print(f"[bold]{verdict}[/bold]")


def _plot(console: Console, result: SamplerAudit, width: int = 34) -> None:
    """Plot the noise at the pair's first count on a square-root scale: observed as bars, expected as marks."""
    fit = next(f for f in result.fits if f.n == result.pair[0])
    peak = max(fit.expected.values()) ** 0.5
    console.print(f"\n noise at n = {fit.n}: observed (bar) and expected (|), square-root scale")
    for z in sorted(fit.expected):
        if fit.expected[z] < 0.5:
            continue
        bar = round(width * fit.observed.get(z, 0) ** 0.5 / peak)
        mark = min(width, round(width * fit.expected[z] ** 0.5 / peak))
        cells = ["█"] * min(bar, width) + [" "] * (width - min(bar, width) + 1)
        cells[mark] = "|"
        console.print(f" {z:+4d} {''.join(cells)} {fit.observed.get(z, 0):>12,} / {fit.expected[z]:>14,.1f}")
    console.print()
