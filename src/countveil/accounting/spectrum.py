"""The Fourier transform of the law of a sum: the product of the transforms of all its terms, every error bounded.

The transform f of a law has, at each of N frequencies, a complex value of absolute value at most 1; k equal terms
contribute f^k. The product of many different transforms is soon next to nothing at nearly all frequencies, whatever the
remaining terms are. At these frequencies it is set to 0, and its bound is counted as error. At the few frequencies
left, the other transforms are not computed by fast Fourier transforms, but as sums over their own grid points, for many
terms together.

**Rounding**, with u = 2^-53. A computed transform g is off by at most F: 8 u (log2 N + 1) for a fast Fourier transform,
and 2 u (B + R/B + 16) for a sum over R points in blocks of B. g^k is computed as e^(k ln|g|) (g/|g|)^k. The quotient
has a relative error of at most 4 u, a complex product one of sqrt(5) u (Brent, Percival and Zimmermann 2007). So
squaring turns a relative error e into one of at most 2e + sqrt(5) u + e^2. The k-th power, computed by repeated
squaring and at most one product for each square, has a relative error of at most (1 + 10 u)^k - 1; the product of n
terms adds sqrt(5) u for each. The sum s of the n logarithms, each times k, is off by at most (n + 4) u sum |k ln|g||.
For a, b >= 1, (a - 1) + (b - 1) <= ab - 1; with 88 u <= F, the errors of transforms and of powers together are at most
A - prod |g|^k, where A is prod (|g| + 2F)^k times e to the power of that error of s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from countveil.accounting.privacy_loss import Floats

Complex = npt.NDArray[np.complex128]
Integers = npt.NDArray[np.int64]

UNIT = 2.0**-53
SMALLEST_LOG = -745.0
"""The logarithm of the smallest float."""
GROWTH = 1e-6
"""For x below this, ln(1 + x) is replaced by x, which is larger."""
FEW = 8
"""If a sum has at most this many terms, the transform of each is computed at all frequencies."""
NEGLIGIBLE = -62.0
"""The product of transforms is set to 0 where its logarithm is below this: there it is less than rounding errors."""
BLOCK, BATCH = 512, 64
"""The number of grid points in a block of a sum, and of terms in a product of matrices."""


@dataclass(frozen=True, eq=False)
class Term:
    """The law of one term on the grid, and the number k of terms that have this law.

    `p` are the probabilities of the grid points `position`, which ascend.
    """

    position: Integers
    p: Floats
    k: int

    @property
    def span(self) -> int:
        """The number of grid points from the first to the last, both included."""
        return int(self.position[-1]) - int(self.position[0]) + 1

    @property
    def spread(self) -> float:
        """The variance of the sum of the k terms, in grid steps squared."""
        mean = float((self.p * self.position).sum())
        return self.k * float((self.p * (self.position - mean) ** 2).sum())


def sum_law(terms: Sequence[Term], size: int, *, bounded: bool = True) -> tuple[Floats, float]:
    """The law of the sum of all terms modulo `size`, and (if `bounded`) the largest error of a probability."""
    product = _Product(terms, size, bounded)
    if len(terms) <= FEW:
        for term in terms:
            product.multiply(product.transform(term), term.k, product.fast)
        return product.invert()
    rest = sorted(terms, key=lambda term: term.spread, reverse=True)
    ordered = False
    while rest:
        product.drop(sum(term.k for term in rest))
        if not len(product.frequency):
            break
        batch = rest[:BATCH]
        if 4 * len(product.frequency) * max(term.span for term in batch) > size * len(batch):
            term = rest.pop(0)
            product.multiply(product.transform(term), term.k, product.fast)
        elif not ordered:
            rest.sort(key=lambda term: term.span, reverse=True)  # a batch shares the points of its widest term
            ordered = True
        else:
            for term, f in zip(batch, product.sums(batch), strict=True):
                product.multiply(f, term.k, product.slow)
            rest = rest[BATCH:]
    return product.invert()


class _Product:
    """The product of the transforms so far, at the frequencies that matter.

    It is kept in polar form. `units` are complex numbers of absolute value 1, `log_size` are the logarithms of the
    absolute values, and `log_most` are upper bounds of `log_size`.
    """

    def __init__(self, terms: Sequence[Term], size: int, bounded: bool) -> None:
        self.terms, self.size, self.bounded = len(terms), size, bounded
        self.frequency: Integers = np.arange(size // 2 + 1)
        self.units: Complex = np.ones(size // 2 + 1, dtype=np.complex128)
        self.log_size = np.zeros(size // 2 + 1)
        self.log_most = np.zeros(size // 2 + 1)
        self.fast = 8 * UNIT * (math.log2(size) + 1)
        self.slow = max(self.fast, 2 * UNIT * (BLOCK + max(term.span for term in terms) / BLOCK + 16))

    def transform(self, term: Term) -> Complex:
        """The transform of one term, by a fast Fourier transform at all frequencies."""
        circle = np.zeros(self.size)
        np.add.at(circle, term.position % self.size, term.p)
        f: Complex = np.fft.rfft(circle)
        return f if len(self.frequency) == len(f) else f[self.frequency]

    def sums(self, batch: Sequence[Term]) -> Complex:
        """The transforms of several terms, each as a sum over the term's own grid points."""
        width = max(term.span for term in batch)
        p = np.zeros((len(batch), width))
        for row, term in zip(p, batch, strict=True):
            row[term.position - term.position[0]] = term.p
        total = np.zeros((len(batch), len(self.frequency)), dtype=np.complex128)
        for start in range(0, width, BLOCK):
            block = np.ascontiguousarray(p[:, start : start + BLOCK])
            cosine, sine = self._waves(np.arange(start, start + block.shape[1]))
            total.real += np.einsum("tr,rj->tj", block, cosine)
            total.imag += np.einsum("tr,rj->tj", block, sine)
        cosine, sine = self._waves(np.array([int(term.position[0]) for term in batch]))
        return total * (cosine + 1j * sine)

    def _waves(self, points: Integers) -> tuple[Floats, Floats]:
        """The real and imaginary parts of e^(-2 pi i j x / N) for the points x and the frequencies j.

        The angle is reduced exactly, to at most half a turn.
        """
        turns = points[:, None] % self.size * self.frequency % self.size
        angle = np.where(turns > self.size // 2, turns - self.size, turns) * (-2 * math.pi / self.size)
        return np.cos(angle), np.sin(angle)

    def multiply(self, f: Complex, k: int, error: float) -> None:
        """Multiply the product by f^k, where the computed transform f is off by at most `error`."""
        length = np.maximum(np.abs(f), 1e-300)
        logs = np.log(length)
        self.units *= _unit_power(f / length, k)
        self.log_size += k * logs
        if self.bounded or self.terms > FEW:
            self.log_most += k * (logs + _log_growth(length, 2 * error))

    def drop(self, rest: int) -> None:
        """Drop the frequencies at which the product is negligible, and stays so when it gets `rest` more factors.

        Each factor is a transform, whose absolute value is at most 1 + 2F, where F is its error.
        """
        kept = self.log_most + rest * 2 * self.slow > NEGLIGIBLE
        if kept.sum() < 0.9 * len(kept):
            self.frequency, self.units = self.frequency[kept], self.units[kept]
            self.log_size, self.log_most = self.log_size[kept], self.log_most[kept]

    def invert(self) -> tuple[Floats, float]:
        """The law whose transform is the product, and a bound on the error of each probability.

        That error is at most the mean of the errors of the transform over all frequencies.
        """
        product = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        product[self.frequency] = self.units * np.exp(np.maximum(self.log_size, SMALLEST_LOG))
        law: Floats = np.fft.irfft(product, self.size)
        if not self.bounded:
            return law, math.inf
        log_most = self.log_most + (self.terms + 4) * UNIT * np.abs(self.log_size)
        most = np.exp(np.maximum(log_most, SMALLEST_LOG))
        off = np.maximum(0.0, -np.expm1(np.minimum(0.0, self.log_size - log_most))) * most + self.fast * most
        dropped = (len(product) - len(self.frequency)) * 2 * math.exp(NEGLIGIBLE)
        return law, 2 * (float(off.sum()) + dropped) / self.size


def _unit_power(unit: Complex, k: int) -> Complex:
    """unit^k for complex numbers of absolute value 1 (or 0), by repeated squaring."""
    power = np.ones_like(unit)
    while True:
        if k & 1:
            power *= unit
        k >>= 1
        if not k:
            return power
        unit = unit * unit


def _log_growth(length: Floats, more: float) -> Floats:
    """An upper bound of ln(1 + more/length).

    Where more/length is small, which is nearly everywhere, the bound is more/length itself: that saves a logarithm.
    """
    ratio = more / length
    large = ratio > GROWTH
    ratio[large] = np.log1p(ratio[large])
    return ratio
