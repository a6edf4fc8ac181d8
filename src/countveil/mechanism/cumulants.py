"""Cumulants of the error of a release, from which Chernoff's bound on the error of a sum of cells is computed.

For a real number t, K(t) is the largest ln E[exp(t (Y - n)) | n] over all promised counts n, where Y is the released
count. The values are floats. For a remap whose map never falls they are rounded outwards: the expectations of all
counts then come from one convolution, whose rounding error is bounded and added.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from countveil.laws.law import distinct_counts
from countveil.laws.remap import Remap
from countveil.mechanism.mechanism import Mechanism

Floats = NDArray[np.float64]
LARGEST_EXPONENT = 300.0
"""For a map that never falls, cumulants are computed for t * |Y - n| up to this, where exponentials stay finite."""
MOST_ORDERS = 17
"""For a map that never falls, cumulants are computed at no more than this many t at once; others are interpolated."""
_UNIT = 2.0**-53
_SLACK = 1e-12
"""A bound on the relative rounding error of a cumulant from all steps except the convolution."""


class Cumulants:
    """The cumulants K(t) of a mechanism, from the probabilities of every different law, one row for each."""

    def __init__(self, mechanism: Mechanism) -> None:
        laws, reach = mechanism.laws, mechanism.certificate.worst_error
        self.largest_order = math.inf
        # Counts from the promise up to lo are treated as lo: E exp(t Z) is largest at one of the two ends.
        counts = sorted({mechanism.counts[0], *distinct_counts(laws)})
        self._rows = np.zeros((len(counts), 2 * reach + 1))
        for i, n in enumerate(counts):
            law = laws.law(n)
            for z in range(max(-law.left, -reach), min(law.right, reach) + 1):
                self._rows[i, z + reach] = law.weights[z + law.left] / law.total
        self._errors = np.arange(-reach, reach + 1, dtype=np.float64)

    def at(self, t: float) -> float:
        """K(t): the largest ln E[exp(t (Y - n)) | n] over the promised counts n."""
        exponents = t * self._errors
        top = float(np.max(exponents))
        return top + math.log(float(np.max(self._rows @ np.exp(exponents - top))))

    def at_each(self, orders: Floats) -> Floats:
        """K(t), as defined in `at`, for every t in `orders`."""
        exponents = np.outer(orders, self._errors)
        top = exponents.max(axis=1)
        largest = (np.exp(exponents - top[:, None]) @ self._rows.T).max(axis=1)
        return np.asarray(top + np.log(largest))


class MappedCumulants:
    """The cumulants K(t) of a remap whose map f never falls, for |t| up to `largest_order`.

    To compute K(t) takes time about linear in the width of the law. Given the count n, E exp(t (f(n + Z) - n)) is the
    sum of three parts, none of which is negative: where n + Z < 0, f is 0; where n + Z is in 0..T, the part is an entry
    of a convolution; where n + Z > T, f changes nothing.
    """

    def __init__(self, laws: Remap, targets: tuple[int, ...], reach: int) -> None:
        law = laws.source
        self.largest_order = LARGEST_EXPONENT / reach
        self._left, self._T = law.left, laws.T
        self._errors = np.arange(-law.left, law.right + 1, dtype=np.float64)
        self._probabilities = np.array([weight / law.total for weight in law.weights])
        self._below = np.concatenate(([0.0], np.cumsum(self._probabilities)))[law.left :: -1]  # P(Z < -n), n = 0..left
        self._pulls = np.array([y - j for j, y in enumerate(targets)], dtype=np.float64)

    def at(self, t: float) -> float:
        """K(t), the largest ln E[exp(t (Y - n)) | n] over all counts n, rounded up."""
        left, T = self._left, self._T
        tilted = self._probabilities * np.exp(t * self._errors)
        above = np.cumsum(tilted[::-1])[::-1]  # above[i]: of all z from i - left on
        counts = np.arange(T + left + 1)
        expectations = np.zeros(len(counts))
        expectations[: left + 1] = self._below * np.exp(-t * counts[: left + 1])
        first = T + 1 - counts + left  # the slot of the least z with n + z > T
        inside = first < len(above)
        expectations[inside] += above[np.maximum(first[inside], 0)]
        mirrored = np.zeros(left + T + 1)  # tilted(-k) for k = -T..left
        some = tilted[: left + T + 1][::-1]
        mirrored[left + T + 1 - len(some) :] = some
        products, error = _convolve(np.exp(t * self._pulls), mirrored)
        expectations += products[T : T + len(counts)]
        largest = max(float(np.max(expectations)) + error, float(above[0]))  # above[0]: counts with n + Z > T
        return math.log(largest * (1 + _SLACK)) + _SLACK

    def at_each(self, orders: Floats) -> Floats:
        """K(t), as defined in `at`, for every t in `orders`, rounded up.

        For many t, K is computed at a few points only and interpolated by straight lines. K is convex, so these lines
        are never below it.
        """
        some = orders
        if len(orders) > MOST_ORDERS:
            some = np.linspace(min(0.0, float(orders.min())), max(0.0, float(orders.max())), MOST_ORDERS)
        heights = np.array([self.at(float(t)) for t in some])
        return heights if some is orders else np.interp(orders, some, heights)


def cumulants(mechanism: Mechanism) -> Cumulants | MappedCumulants:
    """The cumulants of a mechanism."""
    laws = mechanism.laws
    if isinstance(laws, Remap) and laws.targets is not None:
        return MappedCumulants(laws, laws.targets, mechanism.certificate.worst_error)
    return Cumulants(mechanism)


def _convolve(a: Floats, b: Floats) -> tuple[Floats, float]:
    """The convolution of two vectors by Fourier transforms, and a bound on the error of each of its numbers."""
    length = len(a) + len(b) - 1
    bits = max(1, (length - 1).bit_length())
    product = np.fft.irfft(np.fft.rfft(a, 1 << bits) * np.fft.rfft(b, 1 << bits), 1 << bits)[:length]
    error = 32 * bits * _UNIT * float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return product, error
