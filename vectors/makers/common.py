"""Shared by the makers: e^epsilon as a rational, decimal output, writing a vector file."""

import json
import pathlib
from fractions import Fraction

import mpmath

VECTORS = pathlib.Path(__file__).resolve().parent.parent


def exp_fraction(epsilon, digits=60):
    """e^epsilon for a decimal string, rounded down to `digits` decimals, as a Fraction."""
    if Fraction(epsilon) == 0:
        return Fraction(1)
    with mpmath.workdps(digits + 30):
        return Fraction(int(mpmath.floor(mpmath.exp(mpmath.mpf(epsilon)) * 10**digits)), 10**digits)


def decimal(value, digits=30):
    """A Fraction or mpf as a decimal string with `digits` significant digits."""
    with mpmath.workdps(digits + 20):
        if isinstance(value, Fraction):
            value = mpmath.mpf(value.numerator) / value.denominator
        return mpmath.nstr(+value, digits, strip_zeros=True)


def write(name, purpose, made_by, cases, **more):
    """Write vectors/NAME with sorted layout that never depends on the run."""
    document = {"purpose": purpose, "made_by": made_by, **more, "cases": cases}
    text = json.dumps(document, indent=1) + "\n"
    (VECTORS / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(cases)} cases")
