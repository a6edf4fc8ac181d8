"""Where the paper's theorem fails, and how far its stated delta is from the exact delta there.

In the notation of the paper, E = e^epsilon, B = 2/eta_bar, C = 2 eta/eta_bar with eta_bar = 1 - eta, P(Z = i) =
alpha_i/B, delta* is the stated singleton delta, and C_D the last crossover. The theorem needs alpha_1 <= E C + B
delta*. Where C > C_D this always holds: alpha_1 = (C - B delta*)/E < E C. Where C <= C_D, alpha_1 = S_D B delta* with
S_k = sum_{j<k} E^j and B delta* = 1/sum_{j<D} (D-j) E^j, so the theorem fails exactly for

    C = 2 eta/eta_bar < S_{D-1} / sum_{j<D} (D-j) E^j,

which is less than C_D. The set of failing eta is therefore an interval (0, eta_0(epsilon)), empty for D = 1. The curves
are nevertheless found by bisection on `closed_form(...).holds`; tests compare them with this formula.

From eta_0 up to the knee (while eta <= E P(Z = 1)), the exact delta of the law is D delta* + max(0, P(Z = 1) - E eta),
which is at most (D+1) delta*.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from countveil.design import paper
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import bisect
from countveil.paper_figures.curves import exact_delta, round_law, three
from countveil.paper_figures.points import Figure, Point, as_written, point_of

BOUNDS = (2, 6, 100)
SHOWN_D = 6
EPSILONS = ("0.5", "1.1", "2.2")
STEPS = 40
LARGEST = Fraction(1, 4)
"""The paper's theorem can fail only for a smaller eta.

It fails where C < S_{D-1} / (S_1 + ... + S_D) in the notation of the module's docstring; this is below 1/2, so eta <
1/5.
"""


def boundary(epsilon: Fraction, D: int) -> Fraction:
    """The eta below which the paper's theorem fails at this epsilon and D, to about a relative 2**-40."""
    return _least_eta(lambda eta: paper.closed_form(epsilon, eta, D).holds)


def false_below(epsilon: Fraction, D: int) -> Fraction | None:
    """The eta below which the paper's law is not even (epsilon, (2D+1) delta*)-private, or None if there is none."""

    def is_true(eta: Fraction) -> bool:
        form = paper.closed_form(epsilon, eta, D)
        return exact_delta(round_law(form.half), epsilon) <= form.stated_delta

    return None if is_true(Fraction(1, 10**6)) else _least_eta(is_true)


def _least_eta(holds: Callable[[Fraction], bool]) -> Fraction:
    return bisect(holds, Fraction(0), LARGEST, steps=STEPS)[1]


def failure() -> Figure:
    """The points of the figure: boundaries for several D, and for D = 6 the true delta divided by the stated one."""
    points: list[Point] = []

    def add(series: str, D: int, epsilon: Fraction, eta: Fraction, **truth: Fraction) -> None:
        points.append(point_of(COLUMNS, series, D=D, epsilon=epsilon, eta=eta, **truth))

    grid = [Fraction(i, 50) for i in range(1, 20)] + [Fraction(i, 20) for i in range(8, 30)]
    grid += [Fraction(i, 10) for i in range(15, 41)]
    for D in BOUNDS:
        for epsilon in grid:
            add("theorem fails below", D, epsilon, boundary(epsilon, D))
    for epsilon in grid:
        eta = false_below(epsilon, SHOWN_D)
        if eta is not None:
            add("stated delta false below", SHOWN_D, epsilon, eta)
    for text in EPSILONS:
        epsilon = Fraction(text)
        for eta in sorted({Fraction(i, 200) for i in range(1, 31)} | {Fraction(1, 1000), *_edge(epsilon)}):
            add("ratio", SHOWN_D, epsilon, eta, **_truth(epsilon, eta, SHOWN_D))
    at = _truth(Fraction("1.1"), Fraction("0.01"), SHOWN_D)
    facts = {
        "D_6_epsilon_1.1_eta_0.01_stated": decimal_text(at["stated"]),
        "D_6_epsilon_1.1_eta_0.01_exact": decimal_text(at["exact"], rounding="up"),
        "D_6_epsilon_1.1_theorem_fails_below": decimal_text(boundary(Fraction("1.1"), SHOWN_D)),
        "D_6_epsilon_1.1_stated_delta_false_below": decimal_text(false_below(Fraction("1.1"), SHOWN_D) or Fraction(0)),
    }
    title = "Where the paper's theorem fails, and by how much"
    return Figure("failure", title, COLUMNS, tuple(points), facts)


COLUMNS = ("series", "D", "epsilon", "eta", "stated", "exact", "ratio")


def _edge(epsilon: Fraction) -> list[Fraction]:
    """The eta at which the theorem begins to hold, and some eta just below it, rounded as in the CSV.

    There the ratio of the true delta to the stated one falls steeply.
    """
    edge = boundary(epsilon, SHOWN_D)
    return [as_written(edge * (1 - Fraction(1, 2**i))) for i in range(4, 16)] + [as_written(edge, "up")]


def _truth(epsilon: Fraction, eta: Fraction, D: int) -> dict[str, Fraction]:
    curves = three(epsilon, eta, D)
    return {"stated": curves.stated, "exact": curves.exact, "ratio": curves.exact / curves.stated}
