"""Charts as files: SVG, PNG at twice the size, or one HTML page that needs no network.

A regular file appears only when it is complete. `check` reports what can be known before anything is computed: a wrong
file ending, a missing extra, a missing folder.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from countveil.errors import MissingExtraError, ParameterError
from countveil.files.durable_files import open_output
from countveil.plots import altair as alt, theme

PNG_SCALE = 2
EXTRA = (("altair", "altair"), ("vl_convert", "vl-convert-python"))
"""Modules and packages of the extra `plots`."""


class Chart:
    """A picture that a notebook shows inline, as SVG: without scripts, and without network."""

    def __init__(self, chart: alt.TopLevelMixin) -> None:
        self.altair = chart

    def __repr__(self) -> str:
        return f"<Chart {type(self.altair).__name__}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": _render(_specification(self.altair), ".svg").decode()}

    def save(self, path: str | Path) -> None:
        """Write the picture to a file that ends in .svg, .png or .html; an HTML page needs no network either."""
        save(self.altair, path)


def check(path: str | Path | None) -> None:
    """Raise the errors of `save` that do not depend on the chart."""
    for name, package in () if path is not None else EXTRA:
        _require(name, package)
    if path is None:
        return
    try:
        suffix = Path(path).suffix.lower()
        target = Path(os.path.realpath(path))
        folder, is_folder = target.parent.is_dir(), target.is_dir()
    except (ValueError, TypeError):
        raise ParameterError("plot", path, "the path of a file") from None
    if suffix not in (".svg", ".png", ".html"):
        raise ParameterError("plot", str(path), "a name that ends in .svg, .png or .html")
    for name, package in EXTRA:
        _require(name, package)
    if not folder:
        raise ParameterError("plot", str(path), "a path that can be written (the folder does not exist)")
    if is_folder:
        raise ParameterError("plot", str(path), "a path that can be written (this is a folder)")


def _require(name: str, package: str) -> None:
    try:
        import_module(name)
    except ImportError:
        raise MissingExtraError(package, "plots") from None


def save(chart: alt.TopLevelMixin, path: str | Path) -> None:
    """Write a chart, in the common theme, in the format that the file ending names."""
    check(path)
    content = _render(_specification(chart), Path(path).suffix.lower())
    with open_output(path) as file:
        file.write(content)


def _specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as a Vega-Lite specification with the theme.

    The menu of an HTML page offers nothing that sends data elsewhere.
    """
    spec: dict[str, Any] = chart.to_dict()
    menu = {"export": True, "source": False, "compiled": False, "editor": False}
    return {**spec, "config": theme.CONFIG, "usermeta": {"embedOptions": {"actions": menu}}}


def _render(spec: dict[str, Any], suffix: str) -> bytes:
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.split(".")[:2])  # the Vega-Lite that altair writes, as vl-convert names it
    if suffix == ".svg":
        return vl_convert.vegalite_to_svg(spec, vl_version=version).encode()
    if suffix == ".png":
        return vl_convert.vegalite_to_png(spec, vl_version=version, scale=PNG_SCALE)
    return vl_convert.vegalite_to_html(spec, vl_version=version, bundle=True).encode()
