"""Pictures are whole XML whatever they draw, and say in words what they show."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import countveil as cv
from countveil.service.page import agency, explore, pictures

CASES = [
    {"epsilon": "1", "delta": "1e-6"},
    {"epsilon": "0.1", "delta": "1e-9"},
    {"epsilon": "8", "delta": "1e-3", "policy": "signed"},
    {"epsilon": "1", "eta": "0.5", "D": "2", "policy": "signed"},
    {"epsilon": "0.7", "delta": "1e-6", "policy": "floor"},
    {"epsilon": "2", "delta": "1e-6", "answers": "3"},
]


def whole(picture: str) -> str:
    ElementTree.fromstring(picture)
    ElementTree.fromstring(pictures.standalone(picture))
    assert "nan" not in picture
    assert "style=" not in picture
    return picture


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_every_picture_of_a_design(fields: dict[str, str]) -> None:
    found = explore.shown(fields)
    facts = found["facts"]
    assert f"±{facts['D']}" in whole(
        pictures.noise(found["noise"], facts["D"], facts["typical_margin"], facts["eta_percent"])
    )
    whole(pictures.heat(found["small"]))
    whole(pictures.useful(found["useful"], facts["useful_from"]))
    followed = explore.followed(fields)
    whole(pictures.curve(followed["curve"], followed["certified"]))
    half = followed["suspicion"]["half"]
    assert f"{100 * half:.3g} %" in whole(pictures.suspicion(followed["suspicion"]["order"], half))
    beside = explore.beside(fields)["rows"]
    assert beside[0]["name"] == "countveil"
    assert {row["name"] for row in beside} == {"countveil", "discrete Gaussian", "geometric"}
    whole(pictures.bars([(row["name"], row["variance"]) for row in beside], "variance"))


def test_the_facts_are_the_library_s() -> None:
    m = cv.design(epsilon="1", delta="1e-6", method="remap")
    facts = explore.shown(CASES[0])["facts"]
    assert (facts["hash"], facts["D"], facts["margin_95"]) == (m.hash, m.D, m.margin_95)
    plan = cv.plan(epsilon="2", delta="1e-6", answers=3)
    assert explore.shown(CASES[5])["facts"]["hash"] == plan.mechanism.hash


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_the_python_line_makes_the_same(fields: dict[str, str]) -> None:
    found = explore.shown(fields)
    names: dict[str, object] = {}
    exec(found["python"], names)
    assert names["mechanism"].hash == found["facts"]["hash"]  # type: ignore[attr-defined]


def test_what_cannot_be_said_of_several_answers() -> None:
    for fields in ({"answers": "5", "epsilon": "1"}, {"answers": "5", "epsilon": "1", "delta": "1e-6", "D": "9"}):
        with pytest.raises(cv.RequestError, match="for several answers"):
            explore.shown(fields)


def test_words_of_statistical_offices() -> None:
    found = agency.shown(agency.cleaned({}))
    assert found["facts"]["D"] == 5
    assert float(found["facts"]["variance"]) <= 2
    whole(pictures.noise(found["noise"], 5, 3, found["facts"]["last_stay"]))
    whole(pictures.heat(found["small"]))


@pytest.mark.parametrize(
    "rows",
    [[(0, 0, 0)], [(5, 0, 9), (10**15, 10**15 - 3, 10**15 + 3)], [(-3, -9, 2), (4, -2, 9)]],
)
def test_answers_of_any_size(rows: list[tuple[int, int, int]]) -> None:
    labels = ["<b>&" for _ in rows]
    assert "&lt;b&gt;" in whole(pictures.answers(labels, rows, [False] * len(rows)))
