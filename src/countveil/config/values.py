"""Checks single values of the configuration. An error names the key, what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from countveil.errors import ConfigError, ParameterError, shorten
from countveil.numeric.exact_numbers import number


def check_names(entry: Mapping[str, object], known: Collection[str], key: str) -> None:
    unknown = sorted(set(entry) - set(known))
    if unknown:
        raise ConfigError(f"{key}{shorten(unknown[0])}", f"unknown key; allowed are {', '.join(sorted(known))}")


def require(entry: Mapping[str, object], name: str, key: str, hint: str = "") -> object:
    if name not in entry:
        raise ConfigError(f"{key}.{name}", f"is required{'; ' + hint if hint else ''}")
    return entry[name]


def read_table(value: object, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"got {shorten(value)}, allowed is a table")
    return value


def read_text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ConfigError(key, f"got {shorten(value)}, allowed is text")
    return value


def read_optional(value: object, key: str) -> str | None:
    return None if value is None else read_text(value, key)


def read_count(value: object, key: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(key, f"got {shorten(value)}, allowed is a whole number from 1 to {most}")
    return value


def read_flag(entry: Mapping[str, object], name: str, key: str) -> bool:
    """Read a setting that is true or false; it is false if it is missing."""
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{key}.{name}", f"got {shorten(value)}, allowed is true or false")
    return value


def read_choice(value: object, key: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(key, f"got {shorten(value)}, allowed are {', '.join(allowed)}")
    return value


def read_decimal(value: object, key: str, least: str, most: str) -> str:
    """Read a privacy parameter, check that it lies from `least` to `most`, and keep it as decimal text."""
    allowed = f'a decimal in quotes from "{least}" to "{most}"'
    if not isinstance(value, str):
        raise ConfigError(key, f"got {shorten(value)}, allowed is {allowed}")
    try:
        exact = number(key, value)
    except ParameterError:
        exact = Fraction(-1)
    if not Fraction(least) <= exact <= Fraction(most):
        raise ConfigError(key, f"got {shorten(value)}, allowed is {allowed}")
    return value.strip()
