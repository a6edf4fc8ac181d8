"""Pictures are valid XML for every design, and their titles say what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from fractions import Fraction

import pytest

import countveil as cv
from countveil.mechanism.sum_bias import bias_of_sum
from countveil.numeric.exact_numbers import decimal_text
from countveil.service.web import agency, explore_page, pictures

CASES = [
    {"epsilon": "1", "delta": "1e-6"},
    {"epsilon": "0.1", "delta": "1e-9"},
    {"epsilon": "8", "delta": "1e-3", "policy": "signed"},
    {"epsilon": "1", "eta": "0.5", "D": "2", "policy": "signed"},
    {"epsilon": "0.7", "delta": "1e-6", "policy": "floor"},
    {"epsilon": "2", "delta": "1e-6", "answers": "3"},
]


def check_xml(picture: str) -> str:
    ElementTree.fromstring(picture)
    ElementTree.fromstring(pictures.standalone(picture))
    assert "nan" not in picture
    assert "style=" not in picture
    return picture


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_every_picture_of_a_design_is_valid_xml(fields: dict[str, str]) -> None:
    view = explore_page.make_view(fields)
    facts = view["facts"]
    assert f"±{facts['D']}" in check_xml(
        pictures.noise(view["noise"], facts["D"], facts["typical_margin_95"], facts["eta_percent"])
    )
    check_xml(pictures.heat(view["small"]))
    check_xml(pictures.useful(view["useful"], facts["useful_from"]))
    followed = explore_page.make_guarantee(fields)
    check_xml(pictures.curve(followed["curve"], followed["certified"]))
    half = followed["suspicion"]["half"]
    words = f"50 % can become {decimal_text(100 * Fraction(half), 3, 'up')} %"
    drawn = check_xml(pictures.suspicion(followed["suspicion"]["order"], half))
    assert f"{words}</text>" in drawn
    assert "at most, in 99 % of releases</text>" in drawn
    beside = explore_page.compare_others(fields)["rows"]
    assert beside[0]["name"] == "countveil"
    assert {row["name"] for row in beside} == {"countveil", "discrete Gaussian", "geometric"}
    check_xml(pictures.bars([(row["name"], row["variance"]) for row in beside], "variance"))


@pytest.mark.slow  # designs in a process of its own
def test_the_facts_of_a_view_equal_those_of_the_library() -> None:
    m = cv.design(epsilon="1", delta="1e-6", method="remap")
    facts = explore_page.make_view(CASES[0])["facts"]
    assert (facts["hash"], facts["D"], facts["margin_95"]) == (m.hash, m.D, m.margin_95)
    plan = cv.plan(epsilon="2", delta="1e-6", answers=3)
    assert explore_page.make_view(CASES[5])["facts"]["hash"] == plan.mechanism.hash


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_the_shown_python_code_makes_the_same_mechanism(fields: dict[str, str]) -> None:
    view = explore_page.make_view(fields)
    names: dict[str, object] = {}
    exec(view["python"], names)
    assert names["mechanism"].hash == view["facts"]["hash"]  # type: ignore[attr-defined]


def test_incomplete_or_extra_parameters_for_several_answers_are_refused() -> None:
    for fields in ({"answers": "5", "epsilon": "1"}, {"answers": "5", "epsilon": "1", "delta": "1e-6", "D": "9"}):
        with pytest.raises(cv.RequestError, match="for several answers"):
            explore_page.make_view(fields)


def test_the_view_for_statistical_offices_keeps_to_D_and_the_variance() -> None:
    view = agency.make_view(agency.DEFAULTS)
    assert view["facts"]["D"] == 5
    assert float(view["facts"]["variance"]) <= 2
    check_xml(pictures.noise(view["noise"], 5, 3, view["facts"]["last_stay"]))
    check_xml(pictures.heat(view["small"]))


@pytest.mark.parametrize(
    "rows",
    [[(0, 0, 0)], [(5, 0, 9), (10**15, 10**15 - 3, 10**15 + 3)], [(-3, -9, 2), (4, -2, 9)]],
)
def test_counts_of_any_size_are_drawn(rows: list[tuple[int, int, int]]) -> None:
    labels = [("<b>&",) for _ in rows]
    assert "&lt;b&gt;" in check_xml(pictures.answers(labels, rows, [False] * len(rows)))


def test_long_labels_are_shortened_to_fit_and_still_differ() -> None:
    long = "Landkreis mit einem sehr langen Namen, Bezirk"
    labels = [(f"{long} {i}", f"{sex} and so on and so on") for i in range(3) for sex in ("female", "male")]
    labels += [("W" * 40, "M" * 40, "x" * 40), tuple("key number" for _ in range(30)), ("人口" * 30,), ("all",)]
    picture = check_xml(pictures.answers(labels, [(5, 1, 9)] * len(labels), [False] * len(labels)))
    names = re.findall(
        r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="end">(?:<title>([^<]*)</title>)?([^<]*)<', picture
    )
    assert [title or short for _, title, short in names] == [" · ".join(keys) for keys in labels]
    assert len({short for _, _, short in names}) == len(labels), "no two are the same"
    assert all(short.count(" · ") == len(keys) - 1 for (_, _, short), keys in zip(names[:7], labels, strict=False))
    for x, _, short in names:
        assert float(x) - pictures._wide(short) >= 0
        assert float(x) < pictures.WIDTH / 2
    narrow = pictures.answers([("a",)], [(5, 1, 9)], [False])
    assert 'x="52.0"' in narrow, "no more room than is needed"


def test_the_numbers_in_the_heat_map_have_enough_contrast() -> None:
    """At least 4.5 to 1, in the light and the dark theme and in a separate file."""

    def light(colour: str, opacity: float = 1.0, below: str = "000000") -> float:
        mixed = [
            (opacity * int(a, 16) + (1 - opacity) * int(b, 16)) / 255
            for a, b in zip(re.findall("..", colour), re.findall("..", below), strict=True)
        ]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in mixed]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    themes = (("14508c", "ffffff", "1b2530"), ("2f74bd", "1a2129", "e6eaef"), ("14508c", "ffffff", "111111"))
    shades = [pictures._shade(i / 1000) for i in range(1, 1001)]
    assert shades == sorted(shades)
    for cell, card, ink in themes:
        for opacity, dark in shades:
            pair = sorted((light(cell, opacity, card), light("ffffff" if dark else ink)))
            assert pair[1] / pair[0] >= 4.5, (cell, opacity, dark)


def test_a_probability_below_one_is_never_shown_as_100_percent() -> None:
    facts = explore_page.make_view({"epsilon": "12", "delta": "1e-3", "policy": "signed"})["facts"]
    m = cv.design(epsilon="12", delta="1e-3", policy="signed")
    assert Fraction(facts["eta_percent"]) <= 100 * m.certificate.eta
    assert facts["eta_percent"] != "100"
    sentences = explore_page.sentences({**facts, "eta_from": 1, "useful_from": 1})
    assert sentences[1].endswith(", from 1 person on.”")
    assert any("Cells of 1 person or more" in sentence for sentence in sentences)
    assert explore_page.sentences({**facts, "eta_from": 2})[1].endswith(", from 2 people on.”")


def test_sums_are_called_honest_only_if_they_are_unbiased() -> None:
    """Regression: the sum of 48,000 cells with many zeros was a quarter too high, and the page called it honest."""
    for fields in CASES:
        sentences = " ".join(explore_page.make_view(fields)["sentences"])
        m = explore_page.make_mechanism(fields).mechanism
        assert bias_of_sum(m, 1000).sentence in sentences
        assert ("stay honest" in sentences) == (m.certificate.bias_below == 0) == (fields.get("policy") == "signed")
        assert (
            ("too high on average" in sentences)
            == ("ask for the total" in sentences)
            == (fields.get("policy") != "signed")
        )


def test_a_large_n0_is_kept_or_refused() -> None:
    for n0 in ("800", "1000"):
        facts = explore_page.make_view({"epsilon": "1", "delta": "1e-6", "n0": n0})["facts"]
        assert facts["unbiased_from"] <= int(n0)
    with pytest.raises(cv.ParameterError, match="n0"):
        explore_page.make_view({"epsilon": "1", "delta": "1e-6", "n0": "2000"})
    mechanism = cv.design(epsilon="1", delta="1e-6", method="remap", unbiased_from=2000)
    assert mechanism.certificate.unbiased_from is not None


def test_p_tables_are_offered_only_if_they_can_be_made() -> None:
    for policy in ("nonnegative", "floor", "signed"):
        fields = {"epsilon": "1", "delta": "1e-6", "policy": policy}
        if explore_page.make_view(fields)["facts"]["ptable"]:
            assert explore_page.render_ptable(fields)["text"]
        else:
            with pytest.raises(cv.RequestError):
                explore_page.render_ptable(fields)
