"""The paper's closed form for counts n >= D: the symmetric law of least *singleton* delta, and where it fails.

With E = e^epsilon, eta_bar = 1 - eta, B = 2/eta_bar, C = 2 eta/eta_bar, and p(±i) = alpha_i eta_bar/2:

- lower bounds of type I   delta_k = (C sum_{j<k} E^j - E^k) / (B sum_{j<k} (j+1) E^j), k = 1..D
- lower bound of type II   delta_{D+1} = 1 / (B sum_{j<D} (D-j) E^j)
- crossovers               C_k = sum_{j<=k} E^j / sum_{j<k} (k-j) E^j, strictly decreasing
- the least singleton delta, delta* = delta_k for the k with C_k < C <= C_{k-1} (C_0 = inf, C_{D+1} = 0); the law with
  the `alpha` computed here attains it.

The theorem compares p(±1) with p(0) in one direction only. It holds while p(1) <= E eta + delta*, that is alpha_1 <= E
C + B delta*; for smaller eta the law has a larger delta than the paper states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from countveil.laws.rounding import PRECISE, decimal, exp
from countveil.numeric.exact_numbers import decimal_text


@dataclass(frozen=True)
class ClosedForm:
    """The paper's law of least singleton delta for epsilon, eta and D.

    `half[i]` is P(Z = i), and `delta_star` the least singleton delta; the module's docstring defines k and `alpha`.
    `holds` says whether the paper's theorem is true at these parameters.
    """

    k: int
    delta_star: Decimal
    alpha: tuple[Decimal, ...]
    half: tuple[Decimal, ...]
    holds: bool

    @property
    def stated_delta(self) -> Fraction:
        """The delta that the paper states, min(1, (2D+1) delta*), whether its theorem holds or not."""
        return min(Fraction(1), (2 * len(self.half) - 1) * Fraction(self.delta_star))


def closed_form(epsilon: Fraction, eta: Fraction, D: int) -> ClosedForm:
    """The paper's law for these parameters, and whether the paper's theorem holds for them."""
    with localcontext(PRECISE):
        E, B, C = _constants(epsilon, eta)
        for at in _sums(E, D):
            if C * at.triangular > at.powers + at.power:  # C > C_k; the k before had C <= C_{k-1}
                k = at.k
                break
        else:
            k = D + 1
        if k == D + 1:
            delta_star = 1 / (B * at.triangular)
            alpha = [B * delta_star]
            for _ in range(D - 1):
                alpha.append(E * alpha[-1] + B * delta_star)
            alpha.reverse()
        else:
            delta_star = (C * at.powers - E**k) / (B * at.weighted)
            alpha = [(C - B * delta_star) / E]
            for _ in range(k - 1):
                alpha.append((alpha[-1] - B * delta_star) / E)
            alpha += [Decimal(0)] * (D - k)
        half = (decimal(eta), *(a / B for a in alpha))
        return ClosedForm(k, delta_star, tuple(alpha), half, alpha[0] <= E * C + B * delta_star)


def stated_delta(epsilon: Fraction, eta: Fraction, D: int, sensitivity: int) -> Fraction | None:
    """The delta that the paper states for its law, which is not certified.

    None if the paper's theorem does not hold at these parameters, or if the sensitivity is above 1.
    """
    form = closed_form(epsilon, eta, D) if sensitivity == 1 else None
    return form.stated_delta if form is not None and form.holds else None


def lower_bounds(epsilon: Fraction, eta: Fraction, D: int) -> list[Decimal]:
    """The paper's lower bounds on the singleton delta: delta_1, ..., delta_D (type I) and delta_{D+1} (type II)."""
    with localcontext(PRECISE):
        E, B, C = _constants(epsilon, eta)
        sums = list(_sums(E, D))
        first = [(C * at.powers - E**at.k) / (B * at.weighted) for at in sums]
        return [*first, 1 / (B * sums[-1].triangular)]


def crossovers(epsilon: Fraction, D: int) -> list[Decimal]:
    """The paper's crossovers C_1, ..., C_D, which decide which of its lower bounds is the largest."""
    with localcontext(PRECISE):
        return [(at.powers + at.power) / at.triangular for at in _sums(exp(epsilon), D)]


def _constants(epsilon: Fraction, eta: Fraction) -> tuple[Decimal, Decimal, Decimal]:
    eta_bar = 1 - decimal(eta)
    return exp(epsilon), 2 / eta_bar, 2 * decimal(eta) / eta_bar


class _Sums(NamedTuple):
    """Sums of powers of E for one k.

    `power` is E^k, `powers` is sum_{j<k} E^j, `weighted` is sum_{j<k} (j+1) E^j, `triangular` is sum_{j<k} (k-j) E^j.
    """

    k: int
    power: Decimal
    powers: Decimal
    weighted: Decimal
    triangular: Decimal


def _sums(E: Decimal, D: int) -> Iterator[_Sums]:
    """The sums of powers of E for k = 1, ..., D."""
    power = Decimal(1)
    powers = weighted = triangular = Decimal(0)
    for k in range(1, D + 1):
        powers += power
        weighted += k * power
        triangular += powers
        power *= E
        yield _Sums(k, power, powers, weighted, triangular)


def parts(epsilon: Fraction, eta: Fraction, D: int) -> dict[str, object]:
    """All parts of the paper's closed form, as decimal texts, and its comparison with the discrete Gaussian.

    The comparison follows the paper. It takes the discrete Gaussian p(z), proportional to exp(-z^2 / (2 s2)), with the
    *parameter* s2 set to the variance of the paper's law. It then asks which epsilon this Gaussian needs for the
    paper's condition at the steepest single step, p(1) <= E p(2) + delta*.
    """
    form = closed_form(epsilon, eta, D)
    shown = min(D, 50)
    with localcontext(PRECISE):
        _, B, C = _constants(epsilon, eta)
        s2 = sum((2 * i * i * p for i, p in enumerate(form.half)), Decimal(0))
    with localcontext(prec=30):
        step = (-1 / (2 * s2)).exp()  # p(z) ~ step^(z^2)
        total, power, odd = Decimal(1), Decimal(1), step
        while power > Decimal("1e-30"):
            power *= odd  # step^(z^2), by odd differences
            odd *= step * step
            total += 2 * power
        first, second = step / total, step**4 / total
        needed = ((first - form.delta_star) / second).ln() if first > form.delta_star else Decimal(0)
        return {
            "k": form.k,
            "delta_star": _text(form.delta_star),
            "B": _text(B),
            "C": _text(C),
            "C_k": [_text(c) for c in crossovers(epsilon, shown)],
            "delta_k": [_text(d) for d in lower_bounds(epsilon, eta, D)] if shown >= D else None,
            "alpha": [_text(a) for a in form.alpha[:shown]],
            "discrete_gaussian": {
                "parameter": _text(s2),
                "p1": _text(first),
                "p2": _text(second),
                "ratio": _text(first / second),
                "epsilon_needed": _text(needed),
            },
        }


def _text(x: Decimal) -> str:
    return decimal_text(Fraction(x))
