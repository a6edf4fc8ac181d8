"""`countveil audit`: run the sampler and look for a contradiction to the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from countveil.cli.output import JSON, Command, busy, print_json, short

if TYPE_CHECKING:
    from rich.console import Console

    from countveil.auditing import Audit


@click.command(cls=Command)
@click.option("-m", "--mechanism", "path", required=True, metavar="FILE", help="A saved mechanism.")
@click.option("--draws", default="1000000", show_default=True, metavar="N", help="Draws at each count.")
@JSON
def audit(path: str, draws: str, as_json: bool) -> None:
    """Draw many times at neighbouring counts; exit code 1 if what is seen refutes what is claimed.

    An audit can only refute. That the claim holds is shown by `countveil certify`.

    \b
    Examples:
      countveil audit -m mechanism.json
      countveil audit -m mechanism.json --draws 5000000 --json
    """
    from countveil.auditing import audit as run
    from countveil.exact import integer
    from countveil.mechanism import Mechanism

    times = integer("draws", draws, 1000, 20_000_000)
    mechanism = Mechanism.load(path)
    with busy(f"drawing {times:,} times at each count"):
        found = run(mechanism, times)
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "refuted": found.refuted,
                "draws": found.draws,
                "pair": list(found.pair),
                "epsilon_claimed": short(str(mechanism.epsilon), 15),
                "delta_claimed": mechanism.describe()["delta"],
                "epsilon_lower": None if found.epsilon_lower == float("-inf") else f"{found.epsilon_lower:.6f}",
                "fits": [
                    {
                        "n": fit.n,
                        "p_value": f"{fit.p_value:.6g}",
                        "observed": {str(z): k for z, k in fit.observed.items()},
                    }
                    for fit in found.fits
                ],
            }
        )
    else:
        _show(found)
    if found.refuted:
        raise click.exceptions.Exit(1)


def _show(found: Audit) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    n, m = found.pair
    seen = "nothing" if found.epsilon_lower == float("-inf") else f"{found.epsilon_lower:.4f}"
    console.print(
        f"[bold]privacy[/bold]  counts {n} and {m}, {found.draws:,} draws each: at delta {found.delta_claimed:.3g} "
    )
    console.print(f"         epsilon is at least {seen} (claimed {found.epsilon_claimed:g}); confidence 1 - 1e-6")
    for fit in found.fits:
        console.print(f"[bold]weights[/bold]  n = {fit.n}: chi-square p-value {fit.p_value:.3g}")
    _plot(console, found)
    verdict = "REFUTED: what is drawn is not what is claimed" if found.refuted else "nothing speaks against the claim"
    console.print(f"[bold]{verdict}[/bold]")


def _plot(console: Console, found: Audit, width: int = 34) -> None:
    """Observed (bars) and expected (marks) noise at the first audited count of the pair, on a square-root scale."""
    fit = next(f for f in found.fits if f.n == found.pair[0])
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
