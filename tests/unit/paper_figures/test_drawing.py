"""Figures as files: axes have titles, every series is in the legend, SVG and PNG are sound, the page shows them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from countveil.errors import ParameterError
from countveil.paper_figures import NAMES, figure, write_figures
from countveil.plots.figures import CHARTS, chart

PAGE = Path(__file__).parents[3] / "docs" / "paper.md"


def layers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A chart and all its panels and layers."""
    yield spec
    for part in (*spec.get("hconcat", ()), *spec.get("layer", ())):
        yield from layers(part)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    write_figures(out)
    return out


def test_every_figure_has_a_chart() -> None:
    assert tuple(CHARTS) == NAMES
    with pytest.raises(ParameterError, match="one of noise"):
        chart("six", [])


@pytest.mark.slow  # draws every figure
def test_every_figure_is_written_in_every_format(folder: Path) -> None:
    expected = {f"{name}.{ending}" for name in NAMES for ending in ("svg", "png", "csv")}
    assert set(os.listdir(folder)) == expected


@pytest.mark.slow  # computes whole figures
@pytest.mark.parametrize("name", NAMES)
def test_axes_have_titles_and_series_have_legends(name: str) -> None:
    spec = chart(name, figure(name).points).to_dict()
    encodings = [layer["encoding"] for layer in layers(spec) if "encoding" in layer]
    for axis in ("x", "y"):
        titles = {encoding[axis]["title"] for encoding in encodings if encoding.get(axis, {}).get("title")} - {" "}
        assert 1 <= len(titles) <= 2
        assert all(len(title) > 8 for title in titles)
    assert any(encoding.get("shape", {}).get("legend") for encoding in encodings), "distinguishable without colour"
    for encoding in encodings:
        for channel in ("color", "shape"):
            if channel in encoding:
                scale = encoding[channel]["scale"]
                assert len(set(map(str, scale["range"]))) >= len(scale["domain"]) - 1  # one curve is split in two
                assert all(re.search("paper|optimum|Gaussian|epsilon|D =", words) for words in scale["domain"])
    assert any("log" in str(encoding.get("y", {}).get("scale")) for encoding in encodings)


@pytest.mark.slow  # draws every figure
@pytest.mark.parametrize("name", NAMES)
def test_svg_and_png_are_valid(name: str, folder: Path) -> None:
    text = (folder / f"{name}.svg").read_text(encoding="utf-8")
    assert len(text) < 200_000
    words = " ".join(
        "".join(part.itertext()) for part in ElementTree.fromstring(text).iter() if part.tag.endswith("text")
    )
    assert "10⁻" in words, "log axes are labelled by powers of ten"
    for wrong in ("NaN", "undefined", "Infinity", "null"):
        assert wrong not in words
        assert not re.search(rf'd="[^"]*{wrong}', text)
    content = (folder / f"{name}.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width > 1200
    assert height > 800
    assert len(content) > 50_000


@pytest.mark.slow  # draws every figure
def test_the_paper_is_flagged_where_its_theorem_fails(folder: Path) -> None:
    for name in ("eta-1.1", "eta-2.2"):
        assert "where its theorem fails" in (folder / f"{name}.svg").read_text(encoding="utf-8")
    assert "where its theorem fails" not in (folder / "epsilon.svg").read_text(encoding="utf-8")


def test_the_delta_axis_of_the_gaussian_figure_starts_below_every_curve() -> None:
    computed = figure("gaussian")
    spec = chart("gaussian", computed.points).to_dict()
    (low,) = {layer["encoding"]["y"]["scale"]["domain"][0] for layer in layers(spec) if "encoding" in layer}
    assert low < min(point["delta"] for point in computed.points)


@pytest.mark.slow  # draws every figure
def test_eta_from_laws_tied_together_is_labelled_as_a_lower_bound(folder: Path) -> None:
    words = " ".join(ElementTree.parse(folder / "zero-bias.svg").getroot().itertext())
    assert "at least the shown value" in words
    assert "at least the shown value" in " ".join(PAGE.read_text(encoding="utf-8").split())
    assert re.search(r"^epsilon 0.5,.*,at least$", (folder / "zero-bias.csv").read_text(), re.MULTILINE)


@pytest.mark.slow  # draws every figure
@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_current_figure(name: str, folder: Path) -> None:
    assert f"](figures/{name}.svg)" in PAGE.read_text(encoding="utf-8")
    shown = PAGE.parent / "figures" / f"{name}.svg"
    assert shown.stat().st_size < 200_000

    def texts(path: Path) -> list[str]:
        return ["".join(part.itertext()) for part in ElementTree.parse(path).iter() if part.tag.endswith("text")]

    assert texts(shown) == texts(folder / f"{name}.svg"), "copy the SVGs of `countveil figures` to docs/figures"
