"""The paper's five figures computed again, and two that it lacks.

Each curve has up to three versions: as the paper plots it, the exact delta of the same law, and the optimum. Points are
exact or certified numbers and need no altair; `countveil.plots.figures` draws them.

    reproduction  the paper's five, by name:
        noise: P(Z = z) of the paper's law and of the discrete Gaussian at epsilon 2.18, eta 0.8, D 6
        epsilon: delta against epsilon at eta 0.5
        eta-1.1, eta-2.2: delta against eta at that epsilon
        gaussian: (epsilon, delta) against the discrete Gaussian at eta 0.5, D 6
    failure       where the paper's theorem fails, and how far its delta is from the truth
    zero_bias     what zero bias from a count n0 on costs in eta
    composition   what k answers cost together, and the variance that a budget needs for them
    curves        the three deltas of one (epsilon, eta, D)
    points        the points of a figure: exact values, as rows and as CSV

The figure composition is computed only on request, because it takes about 20 seconds. It answers a question that the
paper leaves open.

The source of the paper gives parameters and captions but no pictures: the ranges of the axes and the values of D other
than 4, 6 and 8 are chosen here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from countveil.errors import ParameterError
from countveil.files.durable_files import open_output
from countveil.paper_figures.points import Figure

__all__ = ["MORE", "NAMES", "Figure", "figure", "write_figures"]

NAMES = ("noise", "epsilon", "eta-1.1", "eta-2.2", "gaussian", "failure", "zero-bias")
MORE = ("composition",)
"""Figures that are computed only on request."""
FORMATS = ("svg", "png", "csv")

Progress = Callable[[Sequence[str]], Iterable[str]]


def figure(name: str) -> Figure:
    """Compute the points of the figure with this name.

    >>> noise = figure("noise")
    >>> [noise.text(p, "probability")[:7] for p in noise.select(series="paper")][:4]
    ['0.8', '0.08987', '0.00960', '0.00052']
    """
    from countveil.paper_figures import composition, failure, reproduction, zero_bias

    makers: dict[str, Callable[[], Figure]] = {
        "noise": reproduction.noise,
        "epsilon": reproduction.against_epsilon,
        "eta-1.1": lambda: reproduction.against_eta("1.1"),
        "eta-2.2": lambda: reproduction.against_eta("2.2"),
        "gaussian": reproduction.against_gaussian,
        "failure": failure.failure,
        "zero-bias": zero_bias.zero_bias,
        "composition": composition.composition,
    }
    if name not in makers:
        raise ParameterError("figure", name, "one of " + ", ".join(makers))
    return makers[name]()


def write_figures(
    out: str | Path, *, only: Sequence[str] | None = None, progress: Progress = iter
) -> list[tuple[Figure, list[Path]]]:
    """Compute figures and write each as SVG, PNG and CSV into a folder.

    The folder is created, and existing files are replaced. `only` names the figures; the default is NAMES. A
    wrong name, a missing extra or an unusable folder is refused before anything is computed.
    """
    from countveil.plots.chart_files import check, save
    from countveil.plots.composition import composition_chart
    from countveil.plots.figures import chart

    names = _choose_figures(only)
    check(Path(os.sep) / "figure.svg")  # check the extra before the folder is created
    folder = _folder(out)
    written = []
    for name in progress(names):
        computed = figure(name)
        paths = [folder / f"{name}.{ending}" for ending in FORMATS]
        picture = composition_chart(computed.points) if name in MORE else chart(name, computed.points)
        for path in paths[:2]:
            save(picture, path)
        with open_output(paths[2]) as file:
            file.write(computed.csv().encode())
        written.append((computed, paths))
    return written


def _choose_figures(only: Sequence[str] | None) -> list[str]:
    known = (*NAMES, *MORE)
    for name in only or ():
        if name not in known:
            raise ParameterError("figure", name, "one of " + ", ".join(known))
    return [name for name in known if name in only] if only else list(NAMES)


def _folder(out: str | Path) -> Path:
    allowed = "a folder that can be written"
    if not str(out):
        raise ParameterError("out", out, allowed)
    try:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ParameterError("out", str(out), f"{allowed} ({error.strerror or type(error).__name__})") from None
    except ValueError:
        raise ParameterError("out", str(out), allowed) from None
    if not writable:
        raise ParameterError("out", str(out), f"{allowed} (Permission denied)")
    return folder
