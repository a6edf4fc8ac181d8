"""The root finder: the least x at which nothing is lacking, within its limits."""

from __future__ import annotations

import math

import pytest

from countveil.search import NoRootError, find_root


@pytest.mark.parametrize("guess", [-3.0, 0.0, 0.69, 0.7, 5.0])
@pytest.mark.parametrize("root", [-2.5, 0.0, 0.7])
def test_the_root_is_found_from_both_sides(guess: float, root: float) -> None:
    found = find_root(lambda x: math.exp(-x) - math.exp(-root), guess, close=1e-12)
    assert root - 1e-12 <= found <= root + 1e-8


def test_nothing_is_lacking_at_what_is_found() -> None:
    """Also at a jump, which no line meets."""
    found = find_root(lambda x: 1.0 if x < 1 / 3 else -2.0, 0.0)
    assert 1 / 3 <= found <= 1 / 3 + 1e-4


def test_the_lower_limit_is_found_where_nothing_is_lacking_at_it() -> None:
    assert find_root(lambda x: -1.0, 3.0, limits=(0.5, 9.0)) == 0.5
    assert find_root(lambda x: 1 - x, 3.0, limits=(2.0, 9.0)) == 2.0


def test_what_has_no_root_is_said() -> None:
    for options in ({}, {"limits": (0.0, 2.0)}):
        with pytest.raises(NoRootError):
            find_root(lambda x: 1.0, 1.0, **options)  # type: ignore[arg-type]
    with pytest.raises(NoRootError):
        find_root(lambda x: -1.0, 1.0)
