from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.errors import ParameterError
from countveil.literature.fair import explicit_fair
from countveil.numeric.exact_numbers import exp_bounds


@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 10, 31, 60])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "3.5"])
def test_every_law_is_fair_and_exactly_private(N: int, epsilon: str) -> None:
    member = explicit_fair(epsilon, N)
    laws = [member.laws.law(n) for n in range(N + 1)]
    assert len({law.eta for law in laws}) == 1
    assert len({tuple(sorted(law.weights)) for law in laws}) == 1
    assert all(law.least >= -n and n + law.greatest <= N for n, law in enumerate(laws))
    assert all(law.weights == other.weights[::-1] for law, other in zip(laws, reversed(laws), strict=True))
    assert member.delta(exp_bounds(Fraction(epsilon))[0]) <= Fraction(1, 2**150)
    assert member.delta(exp_bounds(Fraction(epsilon) * 9 / 10)[0]) > Fraction(1, 1000)
    assert member.counts == (0, N)
    a = 1 / exp_bounds(Fraction(epsilon))[0]
    total = 1 + 2 * sum(a**k for k in range(1, N // 2 + 1)) + (a ** ((N + 1) // 2) if N % 2 else 0)
    assert abs(laws[0].eta * total - 1) < Fraction(1, 2**140)


@pytest.mark.parametrize("N", [0, -1, 1001, "many", None, 1.5])
def test_a_bad_N_is_refused(N: object) -> None:
    with pytest.raises(ParameterError, match="N: got"):
        explicit_fair(1, N)  # type: ignore[arg-type]
