"""Exact numbers: decimal input, bounds on e^epsilon, decimals with a stated direction of rounding,
and exact convolution of integer sequences.

Everything here is integers and Fractions. An irrational number is never approximated silently: it
is a pair (lower, upper) of Fractions that enclose it, and the caller chooses the safe side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from fractions import Fraction
from functools import lru_cache

from countveil.errors import ParameterError

Number = int | str | float | Decimal | Fraction

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_RATIO = re.compile(r"[+-]?\d+/\d+\Z", re.ASCII)
_MAX_TEXT = 100
_MAX_EXPONENT = 400
LARGE_PRODUCT = 200_000
"""For products of at least this many bytes, Decimals multiply faster than ints."""


def number(argument: str, given: object, allowed: str = "a finite decimal number") -> Fraction:
    """The exact value of a decimal text, int, Fraction or Decimal; a float is read as its shortest decimal.

    >>> number("epsilon", "1e-6")
    Fraction(1, 1000000)
    >>> number("epsilon", 1.1)
    Fraction(11, 10)
    """
    if isinstance(given, bool) or not isinstance(given, int | str | float | Decimal | Fraction):
        kind = getattr(getattr(given, "dtype", None), "kind", "")
        if not (hasattr(given, "item") and getattr(given, "ndim", None) == 0 and kind in "iuf"):  # a numpy number
            raise ParameterError(argument, given, allowed)
        given = given.item()
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise ParameterError(argument, given, allowed)
    if isinstance(given, Fraction):
        return given
    if isinstance(given, int):
        return Fraction(given)
    text = given.strip() if isinstance(given, str) else str(given)
    if len(text) <= _MAX_TEXT:
        if _RATIO.match(text) and int(text.split("/")[1]) != 0:
            return Fraction(text)
        match = _DECIMAL.match(text)
        if match and abs(int((match.group(3) or "e0")[1:])) <= _MAX_EXPONENT:
            return Fraction(text)
    raise ParameterError(argument, given, allowed)


def integer(argument: str, given: object, low: int, high: int, hint: str = "") -> int:
    """An integer in [low, high]; accepts texts and integral numbers such as 2.0, refuses 2.5."""
    allowed = f"a whole number from {low} to {high}"
    value = number(argument, given, allowed)
    if value.denominator != 1 or not low <= value <= high:
        raise ParameterError(argument, given, allowed, hint)
    return int(value)


@lru_cache(maxsize=1024)
def exp_bounds(x: Fraction, bits: int = 160) -> tuple[Fraction, Fraction]:
    """Fractions lower <= e^x <= upper, each within a relative 2^-bits of e^x.

    **Guarantee.** Every step of the lower bound rounds down and every step of the upper bound rounds
    up: Taylor's series of x / 2^s (all terms positive, remainder bounded by twice the next term), then s
    squarings. The bounds for a negative x are the reciprocals of the opposite bounds for -x.

    >>> low, high = exp_bounds(Fraction(1))
    >>> float(low), high - low < Fraction(1, 2**150)
    (2.718281828459045, True)
    """
    if x == 0:
        return Fraction(1), Fraction(1)
    if x < 0:
        low, high = exp_bounds(-x, bits)
        return 1 / high, 1 / low
    halvings = max(0, (x.numerator // x.denominator).bit_length()) + 8
    scale = bits + 2 * halvings + 32
    one = 1 << scale
    top, bottom = x.numerator, x.denominator << halvings
    low_term = high_term = low_sum = high_sum = one
    step = 0
    while high_term > 1:
        step += 1
        low_term = low_term * top // (bottom * step)
        high_term = -(-high_term * top // (bottom * step))
        low_sum += low_term
        high_sum += high_term
    high_sum += 2 * high_term
    for _ in range(halvings):
        low_sum = low_sum * low_sum >> scale
        high_sum = -(-high_sum * high_sum >> scale)
    spare = max(0, low_sum.bit_length() - bits - 16)
    low_sum, high_sum = low_sum >> spare, -(-high_sum >> spare)
    return Fraction(low_sum << spare, one), Fraction(high_sum << spare, one)


def log_upper(order: Fraction, digits: int = 15) -> Fraction:
    """A short decimal epsilon with e^epsilon >= order: the natural logarithm of `order`, rounded up.

    **Guarantee.** Even the proved lower bound of e^epsilon is at least `order`.
    """
    guess = Decimal(order.numerator) / Decimal(order.denominator)
    epsilon = Fraction(decimal_text(Fraction(guess.ln()), digits))
    unit = Fraction(1, 10 ** max(0, digits - 1 - _exponent(epsilon))) if epsilon else Fraction(1, 10**digits)
    while exp_bounds(epsilon)[0] < order:
        epsilon += unit
    return epsilon


def decimal_text(x: Fraction, digits: int = 15, rounding: str = "nearest") -> str:
    """x as a decimal text of `digits` significant digits, rounded "up", "down" or to "nearest".

    >>> decimal_text(Fraction(1, 3)), decimal_text(Fraction(1, 3), 3, "up"), decimal_text(Fraction(1, 2))
    ('0.333333333333333', '0.334', '0.5')
    """
    if x == 0:
        return "0"
    if x < 0:
        opposite = {"up": "down", "down": "up", "nearest": "nearest"}[rounding]
        return "-" + decimal_text(-x, digits, opposite)
    exponent = _exponent(x)
    shift = digits - 1 - exponent
    scaled = x * 10**shift if shift >= 0 else x / 10**-shift
    whole = math.ceil(scaled) if rounding == "up" else math.floor(scaled) if rounding == "down" else round(scaled)
    figures = str(whole)
    exponent = len(figures) - 1 - shift  # rounding up may have carried
    figures = figures.rstrip("0")
    if exponent < -4 or exponent >= 21:
        point = "." if len(figures) > 1 else ""
        return f"{figures[0]}{point}{figures[1:]}e{exponent:+d}".replace("e+", "e")
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + figures
    figures = figures.ljust(exponent + 1, "0")
    return figures[: exponent + 1] + ("." + figures[exponent + 1 :] if figures[exponent + 1 :] else "")


def _exponent(x: Fraction) -> int:
    """The integer e with 10^e <= |x| < 10^(e+1)."""
    x = abs(x)
    guess = math.floor((x.numerator.bit_length() - x.denominator.bit_length()) * math.log10(2))
    while _power10(guess) > x:
        guess -= 1
    while _power10(guess + 1) <= x:
        guess += 1
    return guess


def _power10(e: int) -> Fraction:
    return Fraction(10**e) if e >= 0 else Fraction(1, 10**-e)


def convolve(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The exact convolution c[k] = sum_i left[i] * right[k - i] of non-negative integers.

    All entries of a sequence are packed into one large integer, and the two integers are multiplied (Kronecker's
    substitution). Each entry gets a slot wide enough for any coefficient of the result, so no carry reaches the next
    slot. Very large products are computed with Decimals: Python multiplies these exactly too, but by number-theoretic
    transforms, which are faster than its product of large ints.

    >>> convolve([1, 2, 3], [1, 1])
    [1, 3, 5, 3]
    """
    length = len(left) + len(right) - 1
    (left, before), (right, after) = _trim(left), _trim(right)
    if not left or not right:
        return [0] * max(0, length)
    largest, slots = max(left) * max(right) * min(len(left), len(right)), len(left) + len(right) - 1
    width = largest.bit_length() // 8 + 1
    start = before + after
    if width * slots > LARGE_PRODUCT:
        entries = _convolve_decimals(left, right, len(str(largest)))
        return [0] * start + entries + [0] * (length - start - slots)
    packed = [
        int.from_bytes(b"".join(value.to_bytes(width, "little") for value in side), "little") for side in (left, right)
    ]
    product = (packed[0] * packed[1]).to_bytes(width * slots, "little")
    entries = [int.from_bytes(product[i : i + width], "little") for i in range(0, width * slots, width)]
    return [0] * start + entries + [0] * (length - start - slots)


def _convolve_decimals(left: Sequence[int], right: Sequence[int], width: int) -> list[int]:
    """The convolution of two sequences by one exact product of two Decimals, in which each entry has `width` digits."""
    exact = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
    first, second = (Decimal("".join(f"{value:0{width}d}" for value in reversed(side))) for side in (left, right))
    slots = len(left) + len(right) - 1
    digits = str(exact.multiply(first, second)).zfill(width * slots)
    return [int(digits[i - width : i]) for i in range(width * slots, 0, -width)]


def _trim(values: Sequence[int]) -> tuple[Sequence[int], int]:
    """The values without the zeros at both ends, and the number of zeros removed at the beginning."""
    inside = [i for i, value in enumerate(values) if value]
    return (values[inside[0] : inside[-1] + 1], inside[0]) if inside else ((), 0)
