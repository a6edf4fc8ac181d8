"""The picture of a price list draws the numbers of the list and marks the planned number of answers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

import countveil as cv
from countveil.errors import ParameterError, RequestError
from countveil.plots.chart_files import save
from countveil.plots.prices import DEVIATION, MARGIN, plan_chart, price_rows, prices_chart


def price(answers: int, variance: str, margin: int, *, chosen: bool = False) -> dict[str, object]:
    return {"answers": answers, "variance": variance, "margin_95": margin, "eta": "0.1", "D": 40, "chosen": chosen}


LIST = [price(1, "0.0625", 0), price(10, "20.25", 9, chosen=True), price(1000, "2500", 97)]


def drawn(spec: Any) -> list[Any]:
    """Every value in a chart."""
    if isinstance(spec, dict):
        return [text for value in spec.values() for text in drawn(value)]
    if isinstance(spec, list):
        return [text for value in spec for text in drawn(value)]
    return [spec]


def test_the_rows_of_a_price_list_are_errors_in_people() -> None:
    rows = price_rows(LIST)
    people = {(row["series"], row["answers"]): row["people"] for row in rows}
    assert people == {
        (DEVIATION, 1): 0.25,
        (MARGIN, 10): 9,
        (DEVIATION, 10): 4.5,
        (MARGIN, 1000): 97,
        (DEVIATION, 1000): 50,
    }, "a margin of 0 has no place on a log scale"


def test_the_planned_number_of_answers_is_marked() -> None:
    spec = prices_chart(LIST, "epsilon 3, delta 1e-6").to_dict()
    texts = [text for text in drawn(spec) if isinstance(text, str)]
    assert "planned: 10" in texts
    words = " ".join(spec["title"]["subtitle"])
    assert "10 answers within epsilon 3, delta 1e-6" in words
    assert "standard deviation 4.5" in words
    assert "The margin is 0 where it is not drawn." in words
    other = prices_chart([dict(row, chosen=False) for row in LIST]).to_dict()
    assert not [text for text in drawn(other) if str(text).startswith("planned")]


def test_axes_are_logarithmic_and_lines_differ_without_colour() -> None:
    spec = prices_chart(LIST).to_dict()
    line = spec["layer"][0]["encoding"]
    for axis, low, high in (("x", 1, 1000), ("y", 0.25, 97)):
        assert line[axis]["scale"]["type"] == "log"
        first, last = line[axis]["scale"]["domain"]
        assert first < low < high < last
        assert "log scale" in line[axis]["title"]
    dashes = {str(layer["mark"]["strokeDash"]) for layer in spec["layer"][:2]}
    assert len(dashes) == 2, "distinguishable without colour"
    assert len(set(spec["layer"][2]["encoding"]["shape"]["scale"]["range"])) == 2


@pytest.mark.parametrize("rows", [LIST, LIST[:1], LIST[1:2], LIST[2:]], ids=lambda rows: str(len(rows)))
def test_every_price_list_can_be_drawn(rows: list[dict[str, object]], tmp_path: Path) -> None:
    save(prices_chart(rows), tmp_path / "prices.svg")
    text = (tmp_path / "prices.svg").read_text()
    ElementTree.fromstring(text)
    assert not re.search(r'd="[^"]*(NaN|Infinity)', text)
    assert "NaN" not in text
    assert "undefined" not in text


def test_an_empty_price_list_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least one price"):
        prices_chart([])


def test_the_chart_of_a_plan_names_its_budget(tmp_path: Path) -> None:
    ask = SimpleNamespace(epsilon=Fraction(5, 2), delta=Fraction(1, 10**6))
    plan = cast("Any", SimpleNamespace(ask=ask, price_list=tuple(LIST), grades=(None,)))
    save(plan_chart(plan), tmp_path / "prices.svg")
    words = " ".join(ElementTree.parse(tmp_path / "prices.svg").getroot().itertext())
    assert "epsilon 2.5, delta 1e-6" in words
    plan.grades = (None, None)
    with pytest.raises(RequestError, match="draw the mechanism of a grade"):
        plan_chart(plan)


@pytest.mark.slow
def test_rows_equal_the_price_list_of_a_real_plan() -> None:
    plan = cv.plan(epsilon="3", delta="1e-6", answers=3, policy="signed", prices=True)
    rows = price_rows(plan.price_list)
    margins = [row["people"] for row in rows if row["series"] == MARGIN]
    assert margins == sorted(margins)
    for row in plan.price_list:
        (deviation,) = [r["people"] for r in rows if r["series"] == DEVIATION and r["answers"] == row["answers"]]
        assert deviation == math.sqrt(float(str(row["variance"])))
    assert prices_chart(plan.price_list).to_dict()
