"""Designing mechanisms: from a question about epsilon, delta, eta and D to a certified Mechanism."""

from __future__ import annotations

from countveil.design.request import parse
from countveil.exact import Number
from countveil.mechanism import Mechanism


def nonnegative(signed: Mechanism, *, unbiased_from: int | None = None, max_bias: Number | None = None) -> Mechanism:
    """The signed mechanism followed by a fixed random map to 0, 1, 2, ...: the same epsilon and delta.

    The bias is at most `max_bias` for every n >= `unbiased_from`, and then the mean squared error is least. Without
    `max_bias` it is 1e-8, or as little as leaves every count's error below 5/4 of the variance; without `unbiased_from`
    that begins at about one and a half standard deviations.

    >>> signed = design(epsilon="0.2", delta="1e-6", policy="signed")
    >>> m = nonnegative(signed, unbiased_from=8)
    >>> m.certificate.never_negative, m.certificate.nearly_unbiased_from, m.delta == signed.delta
    (True, 8, True)
    """
    from countveil.design import unsigned

    return unsigned.nonnegative(signed, unbiased_from=unbiased_from, max_bias=max_bias)


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
    from countveil.design.dispatch import dispatch

    return dispatch(
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
