"""Every picture has titles on its axes and survives unusual mechanisms; every format is a valid file."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import countveil as cv
from countveil.errors import ParameterError
from countveil.plots import plot
from countveil.plots.comparison import comparison_chart, law_rows
from countveil.plots.page import PICTURES, fine_print, headline, mechanism_page
from countveil.plots.save import check, save
from countveil.plots.theme import WORDS_WIDE, title

DESIGNS: dict[str, dict[str, Any]] = {
    "signed": {"epsilon": "1", "delta": "1e-5", "policy": "signed"},
    "floor": {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
    "remap": {"epsilon": "0.2", "delta": "1e-6", "method": "remap"},
    "promise": {"epsilon": "1", "eta": "0.5", "D": 2, "counts": "1:3", "objective": "singleton"},
    "nearly exact": {"epsilon": "5", "eta": "0.98", "D": 3},
    "wide": {"epsilon": "0.01", "delta": "1e-6", "policy": "signed"},
    "epsilon 0": {"epsilon": "0", "eta": "0.1", "D": 20, "policy": "signed"},
    "sensitivity": {"epsilon": "1", "delta": "1e-3", "sensitivity": 2, "policy": "signed"},
}


@pytest.fixture(scope="module", params=DESIGNS)
def mechanism(request: pytest.FixtureRequest) -> cv.Mechanism:
    return cv.design(**DESIGNS[request.param])


@pytest.fixture(scope="module")
def signed() -> cv.Mechanism:
    return cv.design(**DESIGNS["signed"])


def encodings(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The encodings of a picture and of all its layers."""
    if "encoding" in spec:
        yield spec["encoding"]
    for layer in spec.get("layer", []):
        yield from encodings(layer)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.__name__)
def test_axes_have_titles(picture: Any, mechanism: cv.Mechanism) -> None:
    spec = picture(mechanism).to_dict()
    for axis in ("x", "y"):
        titles = {found[axis].get("title") for found in encodings(spec) if axis in found} - {None}
        assert len(titles) == 1, f"{axis} of {picture.__name__}"
        assert len(titles.pop()) > 8
    assert spec["title"]["text"]
    lines = spec["title"]["subtitle"]
    assert len(lines) == 2, "titles of a row of pictures begin at the same height"
    assert max(map(len, lines)) <= WORDS_WIDE


def test_the_page_has_all_pictures(mechanism: cv.Mechanism) -> None:
    spec = mechanism_page(mechanism).to_dict()
    assert len(spec["concat"]) == 6
    assert spec["columns"] == 2
    assert len({picture["title"]["text"] for picture in spec["concat"]}) == 6
    line = headline(mechanism)
    for name in ("epsilon", "delta", "eta", "D = "):
        assert name in line
    small = fine_print(mechanism)
    assert mechanism.policy in small
    assert mechanism.method in small
    assert mechanism.hash[:12] in small


# Files


def test_svg(mechanism: cv.Mechanism, tmp_path: Path) -> None:
    plot(mechanism, tmp_path / "page.svg")
    root = ElementTree.parse(tmp_path / "page.svg").getroot()
    assert root.tag.endswith("svg")
    text = " ".join("".join(part.itertext()) for part in root.iter() if part.tag.endswith("text"))
    assert "What an attacker can learn" in text
    assert headline(mechanism) in text
    for wrong in ("NaN", "undefined", "Infinity", "null"):
        assert wrong not in text
    assert not re.search(r'd="[^"]*(NaN|Infinity)', (tmp_path / "page.svg").read_text())


def test_png_is_drawn_at_twice_the_size(signed: cv.Mechanism, tmp_path: Path) -> None:
    plot(signed, str(tmp_path / "page.PNG"))
    content = (tmp_path / "page.PNG").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.rstrip().endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", content[16:24])
    assert width > 1800
    assert height > 2000


def test_html_needs_no_network(signed: cv.Mechanism, tmp_path: Path) -> None:
    plot(signed, tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What happens to small counts" in content
    assert not re.search(r"<script[^>]*\bsrc=", content)
    assert not re.search(r"<link\b", content)
    assert not re.search(r"@import|\bimport\s*\(?['\"]https?:", content)
    assert '"editor":false' in content.replace(" ", "")


@pytest.mark.parametrize("name", ["page.pdf", "page", ".svg", "page.svg.txt", ""])
def test_other_endings_are_refused(name: str, signed: cv.Mechanism, tmp_path: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"plot: got .*, allowed is a name that ends in \.svg, \.png or \.html"
    ) as e:
        check(tmp_path / name if name else name)
    assert "\n" not in str(e.value)
    with pytest.raises(ParameterError):
        plot(signed, tmp_path / name if name else name)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(signed: cv.Mechanism, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").write_text("")
    chart = PICTURES[0](signed)
    for path in (tmp_path / "folder.svg", tmp_path / "missing" / "a.svg", tmp_path / "file" / "a.png", "a\0.svg"):
        with pytest.raises(ParameterError, match=r"a path that can be written|the path of a file") as error:
            save(chart, path)
        assert "\n" not in str(error.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.svg"]


def test_a_full_disk_leaves_the_old_file(signed: cv.Mechanism, tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk."""
    code = """
import resource, signal, sys, countveil as cv
from countveil.plots.noise import noise_chart
from countveil.plots.save import save
chart = noise_chart(cv.design(epsilon="1", eta="0.4", D=5, policy="signed"))
save(chart, sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    save(chart, sys.argv[1])
except cv.ParameterError as error:
    print(error)
"""
    target = tmp_path / "page.svg"
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True)
    assert "a path that can be written (File too large)" in done.stdout
    ElementTree.parse(target)
    assert [p.name for p in tmp_path.iterdir()] == ["page.svg"]


def test_importing_plots_does_not_import_altair() -> None:
    code = "import sys, countveil.plots.page, countveil.plots.save, countveil.plots.comparison; "
    code += "print([name for name in ('altair', 'vl_convert', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Comparisons


def compared(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "mechanism": "signed",
        "epsilon": "1",
        "delta": "1e-6",
        "eta": "0.5",
        "variance": "1.5",
        "mean_absolute_error": "0.7",
        "within_3": "0.97",
        "worst_error": 2,
        "never_negative": False,
        "law": {"2": "0.05", "-1": "0.2", "0": "0.5", "1": "0.2", "-2": "0.05", "3": "0"},
    }
    return {**row, **changes}


def drawn(spec: Any) -> list[Any]:
    """Every text that a chart holds."""
    if isinstance(spec, dict):
        return [text for value in spec.values() for text in drawn(value)]
    if isinstance(spec, list):
        return [text for value in spec for text in drawn(value)]
    return [spec]


def test_laws_are_sorted_and_without_zeros() -> None:
    rows = law_rows(compared())
    assert [row["z"] for row in rows] == [-2, -1, 0, 1, 2]
    assert sum(row["p"] for row in rows) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        ({}, "variance (people²)"),
        ({"basis": "variance"}, "delta"),
        ({"basis": "eta"}, "delta"),
        ({"basis": "eta and D", "figure": "epsilon"}, "epsilon"),
    ],
)
def test_comparison(options: dict[str, Any], figure: str, tmp_path: Path) -> None:
    rows = [
        compared(),
        compared(mechanism="geometric", delta="0", worst_error=None, variance="1.84", never_negative=True),
        compared(mechanism="gaussian", name="discrete Gaussian", variance="17.9", delta="0.0154", epsilon=None),
    ]
    chart = comparison_chart(rows, **options)
    texts = drawn(chart.to_dict())
    names = [text for text in texts if text in {"signed", "geometric", "discrete Gaussian"}]
    assert names == ["signed", "geometric", "discrete Gaussian"], "sorted as given"
    assert any(str(text).startswith(figure) for text in texts)
    assert "exact 50 %; within ±3 97 %; error unbounded; never negative" in texts
    save(chart, tmp_path / "comparison.svg")
    ElementTree.parse(tmp_path / "comparison.svg")
    assert "NaN" not in (tmp_path / "comparison.svg").read_text()


def test_comparisons_that_make_no_sense() -> None:
    with pytest.raises(ParameterError, match="basis: got colour"):
        comparison_chart([compared()], basis="colour")
    with pytest.raises(ParameterError, match="figure: got eta"):
        comparison_chart([compared()], figure="eta")
    with pytest.raises(ParameterError, match="at least one"):
        comparison_chart([])


def test_one_mechanism_is_enough() -> None:
    assert comparison_chart([compared(law={"0": "1"}, variance="0", eta="1")]).to_dict()


def test_subtitles_fill_their_lines() -> None:
    lines = title("a", "word " * 40).to_dict()["subtitle"]
    assert all(len(line) <= WORDS_WIDE for line in lines)
    assert title("a", "short").to_dict()["subtitle"] == ["short", " "]
