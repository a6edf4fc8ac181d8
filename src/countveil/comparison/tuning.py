"""Finding the member of a one-parameter family that meets the shared terms with the least noise.

Floats only steer the search. The parameter found is a short decimal, and that it has enough noise is checked exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from countveil.comparison.basis import Basis
from countveil.errors import InfeasibleError
from countveil.exact import decimal_text
from countveil.families.member import Member
from countveil.search import NoRootError, find_root

DIGITS = 12
_CLOSE = 1e-11
_WIDEST = 60.0
"""Logarithms of ratios beyond this are as good as infinite."""


def tuned(
    basis: Basis, member: Callable[[Fraction], Member], limits: tuple[float, float], guess: float, what: str
) -> Member:
    """The member of least noise with enough of it; `member` is noisier the larger its argument, within `limits`.

    Where even the least noise within the limits is enough, that is what is returned.
    """
    first, last = math.log(limits[0]), math.log(limits[1])
    try:
        x = find_root(
            lambda x: _lack(basis, member(_short(x))),
            min(max(math.log(guess), first), last),
            limits=(first, last),
            step=0.25,
            widest=math.inf,
            tolerance=_CLOSE,
            close=1e-13,
        )
    except NoRootError:
        raise InfeasibleError(
            f"even the widest {what} noise there is here has too little of it", "change the terms"
        ) from None
    for _ in range(60):
        found = member(_short(x))
        if basis.noisy_enough(found):
            return found
        x += _CLOSE
    raise InfeasibleError(f"no {what} noise has these terms", "change the terms")


def _lack(basis: Basis, member: Member) -> float:
    """The logarithm of the ratio by which noise is lacking; positive if more is needed."""
    first, second = basis.judge(member)
    if not first or not second:
        return _WIDEST if first else -_WIDEST
    ratio = first / second
    log = math.log(ratio.numerator) - math.log(ratio.denominator)
    return max(-_WIDEST, min(_WIDEST, log)) or (1e-16 if ratio > 1 else 0.0)


def _short(log: float) -> Fraction:
    return Fraction(decimal_text(Fraction(math.exp(log)), DIGITS, "up"))
