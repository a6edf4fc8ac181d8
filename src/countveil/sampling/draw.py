"""Exact draws: one uniform integer of a law's bits decides the noise, without rejection or rounding."""

from __future__ import annotations

from collections.abc import Callable

from countveil.columns import ColumnFamily
from countveil.law import Law
from countveil.sampling import entropy

Uniform = Callable[[int], int]


def noise(law: Law, uniform: Uniform = entropy.uniform) -> int:
    """One draw of Z: every z is the answer for exactly weight(z) of the 2**bits integers.

    >>> [noise(Law((1, 2, 1), 1, 2), lambda bits, u=u: u) for u in range(4)]
    [-1, 0, 0, 1]
    """
    remaining = uniform(law.bits)
    for z, weight in law.items():
        remaining -= weight
        if remaining < 0:
            return z
    raise ValueError("the uniform integer is outside the law's range")


def release(family: ColumnFamily, n: int, uniform: Uniform = entropy.uniform) -> int:
    """Y = n + Z for one count."""
    return n + noise(family.column(n), uniform)
