"""Reads golden vectors, which independent programs in vectors/makers have made."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.json").read_text())["cases"]


def ident(case: dict[str, Any]) -> str:
    keys = ("kind", "objective", "epsilon", "eta", "D", "n0", "M", "N", "sensitivity", "symmetric")
    return "-".join(f"{key}={case[key]}" for key in keys if key in case)


def close(measured: Fraction, expected: str, relative: str = "1e-8") -> bool:
    target = Fraction(expected)
    return abs(measured - target) <= Fraction(relative) * abs(target)
