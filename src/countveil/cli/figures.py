"""`countveil figures`: draw the paper's figures, with our mechanisms added."""

from __future__ import annotations

from functools import partial

import click

from countveil.cli.output import JSON, Command, print_json, show_progress


@click.command(cls=Command, short_help="Draw the paper's figures, with our mechanisms added.")
@click.option("--out", required=True, metavar="DIR", help="The folder for the files; created if it does not exist.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only this figure (may repeat; default: all but composition)."
)
@JSON
def figures(out: str, only: tuple[str, ...], as_json: bool) -> None:
    """Reproduce the paper's five figures, and draw two that it lacks, each as SVG, PNG and CSV.

    Where it applies there are three curves: the one in the paper, the exact delta of the same law, and our optimum.

    \b
    Figures:
      noise       P(Z = z) and the discrete Gaussian at epsilon 2.18, eta 0.8, D 6
      epsilon     delta against epsilon at eta 0.5
      eta-1.1     delta against eta at epsilon 1.1
      eta-2.2     delta against eta at epsilon 2.2
      gaussian    (epsilon, delta) against the discrete Gaussian at eta 0.5, D 6
      failure     where the paper's theorem fails, and by how much
      zero-bias   what zero bias from a count n0 on costs in eta
      composition many answers: exact, basic and advanced composition; ours, geometric and Gaussian (only with --only)

    \b
    Examples:
      countveil figures --out figures
      countveil figures --out figures --only failure --only zero-bias --json
    """
    from countveil.paper_figures import write_figures

    written = write_figures(out, only=only or None, progress=partial(show_progress, message="drawing"))
    if as_json:
        entries = [
            {
                "name": figure.name,
                "title": figure.title,
                "files": [str(path) for path in paths],
                "points": len(figure.points),
                "facts": figure.facts,
            }
            for figure, paths in written
        ]
        print_json({"schema_version": 1, "figures": entries})
        return
    for figure, paths in written:
        endings = ", ".join(path.suffix.removeprefix(".") for path in paths[1:])
        click.echo(f"{paths[0]} ({endings}): {figure.title}")
