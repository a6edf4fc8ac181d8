"""Designing mechanisms: from a question about epsilon, delta, eta and D to a certified Mechanism."""

from __future__ import annotations

from countveil.design.request import parse
from countveil.exact import Number
from countveil.mechanism import Mechanism


def design(
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    eta: Number | None = None,
    D: int | None = None,
    policy: str = "nonnegative",
    unbiased_from: int | None = None,
    method: str = "auto",
    objective: str = "delta",
    max_variance: Number | None = None,
    sensitivity: int = 1,
    counts: str | tuple[int, int | None] | None = None,
    cap: bool = False,
    bits: int | None = None,
) -> Mechanism:
    """The best certified mechanism for what is given of epsilon, delta, eta and D.

    Numbers are exact: decimal texts, ints, Fractions; a float stands for its shortest decimal.

    >>> m = design(epsilon="2.18", eta="0.8", D=6, policy="signed", method="paper")
    >>> print(m.describe()["delta"], m.describe()["delta_paper_bound"])
    0.0153693741279118 0.0643216812955984
    """
    from countveil.design.answer import answer

    return answer(
        parse(
            epsilon=epsilon,
            delta=delta,
            eta=eta,
            D=D,
            policy=policy,
            unbiased_from=unbiased_from,
            method=method,
            objective=objective,
            max_variance=max_variance,
            sensitivity=sensitivity,
            counts=counts,
            cap=cap,
            bits=bits,
        )
    )
