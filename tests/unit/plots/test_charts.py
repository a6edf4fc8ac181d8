"""Every picture has titles on its axes and survives unusual mechanisms; every format is a valid file."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import countveil as cv
from countveil.comparison.table import ComparisonRow
from countveil.errors import ParameterError
from countveil.laws.law import Law
from countveil.plots import plot
from countveil.plots.chart_files import check, save
from countveil.plots.comparison import comparison_chart, law_rows
from countveil.plots.page import PICTURES, fine_print, headline, mechanism_page
from countveil.plots.theme import WORDS_WIDE, title

DESIGNS: dict[str, dict[str, Any]] = {
    "signed": {"epsilon": "1", "delta": "1e-5", "policy": "signed"},
    "floor": {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
    "remap": {"epsilon": "0.2", "delta": "1e-6", "method": "remap"},
    "promise": {"epsilon": "1", "eta": "0.5", "D": 2, "counts": "1:3", "objective": "singleton"},
    "nearly exact": {"epsilon": "5", "eta": "0.98", "D": 3},
    "wide": {"epsilon": "0.01", "delta": "1e-6", "policy": "signed"},
    "wide map": {"epsilon": "0.01", "delta": "1e-6"},
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


@pytest.mark.slow  # draws pictures
@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.__name__)
def test_axes_have_titles(picture: Any, mechanism: cv.Mechanism) -> None:
    spec = picture(mechanism).to_dict()
    for axis in ("x", "y"):
        titles = {encoding[axis].get("title") for encoding in encodings(spec) if axis in encoding} - {None}
        assert len(titles) == 1, f"{axis} of {picture.__name__}"
        assert len(titles.pop()) > 8
    assert spec["title"]["text"]
    lines = spec["title"]["subtitle"]
    assert len(lines) == 2, "titles of a row of pictures begin at the same height"
    assert max(map(len, lines)) <= WORDS_WIDE


@pytest.mark.slow  # draws pictures
def test_the_page_has_all_six_pictures_and_the_facts(mechanism: cv.Mechanism) -> None:
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


@pytest.mark.slow  # draws pictures
def test_svg_is_valid_and_has_all_texts(mechanism: cv.Mechanism, tmp_path: Path) -> None:
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


@pytest.mark.slow  # draws pictures
def test_a_picture_as_html_needs_no_network(signed: cv.Mechanism, tmp_path: Path) -> None:
    plot(signed, tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What happens to small counts" in content
    assert not re.search(r"<script[^>]*\bsrc=", content)
    assert not re.search(r"<link\b", content)
    assert not re.search(r"@import|\bimport\s*\(?['\"]https?:", content)
    assert '"editor":false' in content.replace(" ", "")


@pytest.mark.parametrize("name", ["page.pdf", "page", ".svg", "page.svg.txt", ""])
def test_other_file_endings_are_refused(name: str, signed: cv.Mechanism, tmp_path: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"plot: got .*, allowed is a name that ends in \.svg, \.png or \.html"
    ) as e:
        check(tmp_path / name if name else name)
    assert "\n" not in str(e.value)
    with pytest.raises(ParameterError):
        plot(signed, tmp_path / name if name else name)
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be_written_are_refused(signed: cv.Mechanism, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").write_text("")
    chart = PICTURES[0](signed)
    for path in (tmp_path / "folder.svg", tmp_path / "missing" / "a.svg", tmp_path / "file" / "a.png", "a\0.svg"):
        with pytest.raises(ParameterError, match=r"a path that can be written|the path of a file") as error:
            save(chart, path)
        assert "\n" not in str(error.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.svg"]


@pytest.mark.slow  # draws pictures
def test_on_a_full_disk_the_old_picture_is_kept(signed: cv.Mechanism, tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk."""
    code = """
import resource, signal, sys, countveil as cv
from countveil.plots.noise import noise_chart
from countveil.plots.chart_files import save
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
    code = "import sys, countveil.plots.page, countveil.plots.chart_files, countveil.plots.comparison; "
    code += "print([name for name in ('altair', 'vl_convert', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Comparisons


def law_of(half: Sequence[int], bits: int) -> Law:
    """A symmetric law from the weights of 0, 1, 2, ..."""
    return Law((*half[:0:-1], *half), len(half) - 1, bits)


def geometric(reach: int, shrink: Fraction = Fraction(1, 2)) -> Law:
    """Weights that shrink by a factor per step, over 2**200."""
    half = [int((1 << 198) * shrink**i * (1 - shrink)) for i in range(1, reach + 1)]
    return law_of([(1 << 200) - 2 * sum(half), *half], 200)


def compared(**changes: Any) -> dict[str, Any]:
    row = ComparisonRow(
        mechanism="signed",
        name="signed",
        epsilon=Fraction(1),
        delta=Fraction(1, 10**6),
        eta=Fraction(1, 2),
        variance=Fraction(3, 2),
        mean_absolute_error=Fraction(7, 10),
        within_3=Fraction(97, 100),
        worst_error=2,
        bias_at={},
        never_negative=False,
        parameters={},
        notes=(),
        law=law_of((8, 3, 1), 4),
    )
    return {**vars(row), **changes}


def drawn(spec: Any) -> list[Any]:
    """Every text in a chart."""
    if isinstance(spec, dict):
        return [text for value in spec.values() for text in drawn(value)]
    if isinstance(spec, list):
        return [text for value in spec for text in drawn(value)]
    return [spec]


def test_the_rows_of_a_drawn_law_are_sorted_and_without_zeros() -> None:
    rows = law_rows(law_of((8, 3, 1, 0), 4))
    assert [row["z"] for row in rows] == [-2, -1, 0, 1, 2]
    assert sum(row["p"] for row in rows) == 1


def test_a_drawn_law_ends_where_its_probability_falls_to_the_floor() -> None:
    rows = law_rows(law_of((10, 0, 2, 1), 4), floor=1 / 12)
    assert [row["z"] for row in rows] == [-2, -1, 0, 1, 2]
    assert [row["p"] for row in rows] == [0.125, 1 / 12, 0.625, 1 / 12, 0.125], "gaps are no deeper than the floor"


def test_a_wide_law_is_drawn_by_the_largest_probability_of_each_step() -> None:
    law = Law((1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 12), 5, 4)
    assert [(row["z"], 16 * row["p"]) for row in law_rows(law, 0.01, step=5)] == [(-5, 1), (0, 2), (5, 12)]


def panels(chart: Any, side: int) -> list[dict[str, Any]]:
    """The laws (side 0) or the bars (side 1) of a comparison, each with its rows as `rows`."""
    spec = chart.to_dict()
    charts = [line["hconcat"][side] for line in spec["vconcat"]]
    for panel in charts:
        data = panel["data"] if "data" in panel else panel["layer"][-1]["data"]
        panel["rows"] = data["values"] if "values" in data else spec["datasets"][data["name"]]
    return charts


def test_laws_are_drawn_down_to_a_probability_of_1e_9() -> None:
    """The axis of the noise ends where the probability is about 1e-9, not at a fixed noise of 40."""
    law = geometric(400, Fraction(3, 4))
    (panel,) = panels(comparison_chart([compared(law=law)]), 0)
    shown = {row["z"]: row["p"] for row in panel["rows"]}
    assert set(shown) == {z for z, w in law.items() if w / law.total > 1e-9}
    assert max(shown) > 60
    assert all(shown[z] == w / law.total for z, w in law.items() if z in shown)
    low, high = panel["encoding"]["x"]["scale"]["domain"]
    assert low < min(shown) < max(shown) < high
    assert panel["mark"]["type"] == "bar"


@pytest.mark.slow  # draws pictures
def test_very_wide_laws_are_drawn_as_areas() -> None:
    law = geometric(9000, Fraction(199, 200))
    charts = panels(comparison_chart([compared(law=law), compared()]), 0)
    for panel, at in zip(charts, (law, compared()["law"]), strict=True):
        assert panel["mark"]["type"] == "area"
        values = panel["rows"]
        assert len(values) <= 381
        least = min(row["floor"] for row in values)
        assert 1e-12 < least <= 1e-9
        assert max(row["p"] for row in values) == max(at.weights) / at.total
    reach = max(row["z"] for row in charts[0]["rows"])
    assert law.weight(reach + 30) / law.total < least < law.weight(reach - 30) / law.total


def test_deltas_of_cut_off_tails_have_no_bar() -> None:
    """A delta that comes only from cut-off tails has no bar and does not extend the axis."""
    deltas = [Fraction(33, 10**57), Fraction(33, 10**31), Fraction(0), Fraction("5.704e-5"), Fraction("0.6081")]
    chart = comparison_chart([compared(delta=delta) for delta in deltas], basis="variance")
    bars = []
    for panel in panels(chart, 1):
        layers = panel["layer"]
        (row,) = panel["rows"]
        bars.append((row["text"], any(layer["mark"]["type"] == "bar" for layer in layers)))
        assert layers[-1]["encoding"]["x"]["scale"]["domain"][0] >= 1e-6
    assert bars == [("~0", False), ("~0", False), ("~0", False), ("5.704e-5", True), ("0.6081", True)]
    assert comparison_chart([compared(delta=Fraction(0))], basis="variance").to_dict(), "nothing but dust"


@pytest.mark.parametrize("deltas", [("2e-9", "3e-8"), ("1e-9", "1e-8"), ("1e-20", "0.5")], ids=str)
def test_small_axis_labels_use_scientific_notation(deltas: tuple[str, str], tmp_path: Path) -> None:
    law = geometric(4000, Fraction(99, 100))
    rows = [compared(delta=Fraction(delta), law=law) for delta in deltas]
    save(comparison_chart(rows, basis="variance"), tmp_path / "comparison.svg")
    root = ElementTree.parse(tmp_path / "comparison.svg").getroot()
    labels = ["".join(part.itertext()) for part in root.iter() if part.tag.endswith("text")]
    assert any(re.fullmatch(r"\de-\d+", label) for label in labels)
    assert not [label for label in labels if label.startswith("0.0000")]


def test_a_comparison_is_drawn_from_its_rows(tmp_path: Path) -> None:
    comparison = cv.compare(epsilon="1", variance="100", mechanisms=["geometric", "discrete-gaussian"])
    comparison.plot(tmp_path / "comparison.svg")
    text = (tmp_path / "comparison.svg").read_text()
    assert "100" in text, "the noise goes further than 40"
    assert "at the same variance" in text


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        ({}, "variance (people²)"),
        ({"basis": "variance"}, "delta"),
        ({"basis": "eta"}, "delta"),
        ({"basis": "eta and D", "figure": "epsilon"}, "epsilon"),
    ],
)
def test_the_chart_of_a_comparison_keeps_the_order_of_rows_and_shows_the_compared_figure(
    options: dict[str, Any], figure: str, tmp_path: Path
) -> None:
    rows = [
        compared(),
        compared(name="geometric", delta=Fraction(0), worst_error=None, variance=Fraction("1.84"), never_negative=True),
        compared(name="discrete Gaussian", variance=Fraction("17.9"), delta=Fraction("0.0154"), epsilon=None),
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


def test_invalid_comparisons_are_refused() -> None:
    with pytest.raises(ParameterError, match="basis: got colour"):
        comparison_chart([compared()], basis="colour")
    with pytest.raises(ParameterError, match="figure: got eta"):
        comparison_chart([compared()], figure="eta")
    with pytest.raises(ParameterError, match="at least one"):
        comparison_chart([])


def test_a_comparison_of_one_mechanism_can_be_drawn() -> None:
    assert comparison_chart([compared(law=Law((1,), 0, 0), variance=Fraction(0), eta=Fraction(1))]).to_dict()


def test_subtitles_are_wrapped_and_padded_to_two_lines() -> None:
    lines = title("a", "word " * 40).to_dict()["subtitle"]
    assert all(len(line) <= WORDS_WIDE for line in lines)
    assert title("a", "short").to_dict()["subtitle"] == ["short", " "]
