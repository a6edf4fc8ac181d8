"""Lines and cards: short, complete, without colours of their own, and with every text escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import countveil as cv
from countveil import ptables
from countveil.display.cards import MOST_LETTERS, MOST_ROWS, Card, Markup, Shown, draw_bars, draw_interval, render
from tests.support.curated import QUICK, config_text, with_plan, write_rows, written

HOSTILE = "<script>alert('x')</script>&\"'"


class Page(HTMLParser):
    """The tags and the text of a page; every tag that is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.words, self.open = list[str](), "", list[str]()
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One object of every kind that has a card."""
    folder = tmp_path_factory.mktemp("hostile")
    write_rows(folder / "people.csv", ["person", "region"], [(i, HOSTILE) for i in range(30)])
    columns = f"region = [{', '.join(repr(word) for word in ('North', 'South'))}, '''{HOSTILE}''']\n"
    with cv.Curator.open(with_plan(written(folder, config_text(columns=columns, budget=QUICK)))) as curator:
        table, dry_run = curator.count(by="region"), curator.dry_run(by="region")
        budget, dataset = curator.budget()[0], curator.datasets()[0]
        question = curator.question(by="region", where=cv.col("region") == HOSTILE)
    m = cv.design(epsilon="1", eta="0.5", D=3, policy="signed")
    tree = cv.Tree.from_columns({"town": [HOSTILE, "Ash"], "sex": ["f", "m"]}, [["town"]])
    result = cv.reconcile(tree, {"town": [7, 5]}, m)
    audit = ptables.audit(ptables.design(D=5, V=3, js=1, objective="delta").table, epsilons=["1"])
    plan = cv.plan(epsilon="10", delta="0.01", answers=2, policy="signed")
    comparison = cv.compare(epsilon="1", delta="1e-6", mechanisms=["geometric", "countveil-signed"])
    return {
        "mechanism": m,
        "certificate": m.certificate,
        "law": m.law(1),
        "laws": m.laws,
        "comparison": comparison,
        "plan": plan,
        "composition": cv.compose(m, 3),
        "table": table,
        "total": table.total(),
        "dry run": dry_run,
        "budget": budget,
        "receipt": table.receipt,
        "dataset": dataset,
        "question": question,
        "reconciliation": result,
        "reconciled": result["town"],
        "sums": result.margin("town", [0, 1]),
        "audit": audit,
        "ptable": audit.table,
    }


def test_every_object_has_a_repr_of_one_short_line(shown: dict[str, Any]) -> None:
    for name, thing in shown.items():
        assert 10 < len(repr(thing)) <= MOST_LETTERS + 40, name
        assert "\n" not in repr(thing), name


def test_every_card_is_well_formed_and_escaped_and_sets_no_colours(shown: dict[str, Any]) -> None:
    for name, thing in shown.items():
        html = thing._repr_html_()
        page = Page(html)
        assert "script" not in page.tags, name
        assert not re.findall(r"#[0-9a-f]{3,8}\b|rgb\(|url\(|https?://", html), name
        assert len(html) < 12_000, name
    for name in ("table", "reconciled"):
        assert HOSTILE in Page(shown[name]._repr_html_()).words, name


def test_cards_state_what_was_measured(shown: dict[str, Any]) -> None:
    m, table = shown["mechanism"], shown["table"]
    words = Page(m._repr_html_()).words
    assert m.hash[:12] in words
    assert "50 % of releases" in words
    assert "svg" in Page(m._repr_html_()).tags
    words = Page(table._repr_html_()).words
    for count, low, high in zip(table.released, table.low, table.high, strict=True):
        assert f"{count:,}" in words
        assert f"{low:,} to {high:,}" in words
    assert table.receipt.id in words
    margin = f"at most ±{table.margin_95} for any count in 95 % of releases, never more than {table.worst_error} off"
    assert margin in words
    assert margin in Page(shown["dry run"]._repr_html_()).words
    total = table.total()
    assert repr(total) == f"<Total {total.value} ±{total.margin_95}, the sum of {total.cells} cells>"
    assert f"{shown['plan'].certified.upper:.6g}" in Page(shown["plan"]._repr_html_()).words
    assert "geometric" in Page(shown["comparison"]._repr_html_()).words


def test_long_tables_are_cut_and_say_so() -> None:
    card = Card("many", head=("cell", "count"), rows=((i, i * 1000) for i in range(10**6)), size=10**6)
    page = Page(render(card))
    assert page.tags.count("tr") == MOST_ROWS + 1
    assert f"{10**6 - MOST_ROWS:,} more rows" in page.words


def test_long_texts_are_cut() -> None:
    class Long(Shown):
        def _line(self) -> str:
            return "x" * 10**5

    assert len(repr(Long())) < MOST_LETTERS + 10
    assert len(Long()._repr_html_()) < 1000


def test_every_text_but_markup_is_escaped() -> None:
    html = render(Card("t", {"text": "<i>", "markup": Markup("<i>x</i>")}))
    assert html.count("<i>") == 1
    assert "&lt;i&gt;" in html


@pytest.mark.parametrize(("low", "value", "high", "end"), [(0, 0, 0, 0), (-5, -2, 3, 3), (0, 10**18, 10**18, 10**18)])
def test_intervals_are_drawn_for_any_counts(low: int, value: int, high: int, end: int) -> None:
    picture = draw_interval(low, value, high, end)
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([-0-9.]+)"', picture)]
    assert len(widths) == 4
    assert all(0 <= width <= 400 for width in widths)


def test_bars_have_the_heights_of_their_values() -> None:
    picture = draw_bars([1, 2, 0], "bars <", (True, False, True), ("a", "b"))
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([0-9.]+)"', picture)]
    assert heights[:3] == [36, 72, 0]
    assert "bars &lt;" in picture


def test_the_probabilities_of_a_law_are_numpy_arrays() -> None:
    law = cv.design(epsilon="1", delta="1e-6", policy="signed").law(5)
    z, p = law.pmf()
    assert (z.dtype.kind, p.dtype) == ("i", np.float64)
    assert z.tolist() == list(range(-law.left, law.right + 1))
    assert p.tolist() == [float(law.probability(int(each))) for each in z]


@pytest.mark.slow  # seven charts, each computed and rendered
def test_plots_show_inline_as_svg_and_can_be_saved(shown: dict[str, Any], tmp_path: Path) -> None:
    drawn = [name for name, thing in shown.items() if hasattr(thing, "plot")]
    assert drawn == ["mechanism", "comparison", "plan", "composition", "table", "audit"]
    for name in drawn:
        chart = shown[name].plot(tmp_path / f"{name}.svg")
        assert isinstance(chart, cv.Chart)
        bundle = chart._repr_mimebundle_()
        assert list(bundle) == ["image/svg+xml"]
        inline, saved = (
            " ".join(ElementTree.fromstring(text).itertext())
            for text in (bundle["image/svg+xml"], (tmp_path / f"{name}.svg").read_text())
        )
        assert inline == saved
        assert "<script" not in bundle["image/svg+xml"]
    assert "Released counts by region" in shown["table"].plot()._repr_mimebundle_()["image/svg+xml"]


def test_plotting_an_object_without_a_picture_is_refused() -> None:
    with pytest.raises(cv.ParameterError, match="plot: got int, allowed is a mechanism, comparison"):
        cv.plot(3)
