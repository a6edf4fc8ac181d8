"""A mechanism: laws for every count together with the certificate measured on them.

Mechanisms are made here and nowhere else, and they are frozen: what is sampled is what was certified. Designers propose
probabilities; `certify` rounds them to integer weights over 2^64, 2^96 or 2^128, the least width at which rounding
changes delta by less than a relative 1e-8, and measures the certificate on those weights. A proposal can be poor; a
certificate cannot be wrong about the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.display.cards import Card, Drawable, draw_bars
from countveil.errors import InfeasibleError, ParameterError, warn_deprecated
from countveil.laws import privacy
from countveil.laws.law import Law, Laws
from countveil.laws.remap import CountProfile
from countveil.mechanism import document
from countveil.mechanism.certificate import LEVEL_95, Certificate, Terms, margin_95, measure, profile
from countveil.numeric.exact_numbers import Number, decimal_text, exp_bounds, integer, log_upper, number

if TYPE_CHECKING:
    from countveil.sampling.sampler import Sampler

LARGEST_COUNT = 2**63 - 1
SHOWN_NOISE = 20
WIDTHS = (64, 96, 128)
_REFERENCE = 192
_TOLERANCE = Fraction(1, 10**8)

Build = Callable[[int], Laws]
"""A function that rounds a proposal to laws; its argument is the number of bits: the weights sum to 2^bits."""


@dataclass(frozen=True, repr=False)
class Mechanism(Drawable):
    """A certified way to release counts: Y = n + Z, where the noise Z is drawn from the law of the true count n."""

    laws: Laws
    certificate: Certificate
    policy: str
    method: str
    D: int
    counts: tuple[int, int | None] = (0, None)
    delta_paper_bound: Fraction | None = None
    notes: tuple[str, ...] = ()
    prices: tuple[dict[str, object], ...] = ()
    details: dict[str, object] | None = None

    def _line(self) -> str:
        c = self.certificate
        return (
            f"epsilon={decimal_text(c.epsilon)} delta={decimal_text(c.delta, 6, 'up')} "
            f"eta={decimal_text(c.eta, 6)} D={self.D} policy={self.policy} method={self.method}"
        )

    def _card(self) -> Card:
        c, law = self.certificate, self.law(self.certificate.typical)
        facts = {"policy, method": f"{self.policy}, {self.method}", **c.facts, "95 % margin": self.margin_95}
        reach = min(self.D, max(3, 2 * law.margin(LEVEL_95)))
        heights = [law.weight(z) / law.total for z in range(-reach, reach + 1)]
        within = [abs(z) <= c.typical_margin_95 for z in range(-reach, reach + 1)]
        picture = draw_bars(heights, "P(Z = z) of a typical count; darker: 95 %", within, (f"z = {-reach}", f"{reach}"))
        return Card("Mechanism", {**facts, "hash": self.hash[:12]}, picture)

    @property
    def epsilon(self) -> Fraction:
        return self.certificate.epsilon

    @property
    def delta(self) -> Fraction:
        """The certified delta at `epsilon`: an upper bound that holds for every dataset."""
        return self.certificate.delta

    @property
    def eta(self) -> Fraction:
        return self.certificate.eta

    @property
    def unbiased_from(self) -> int | None:
        return self.certificate.unbiased_from

    def law(self, n: int) -> Law:
        """The law of the noise Z = Y - n for the true count n; Y is the released count.

        Args:
            n: The true count.

        Returns:
            The law, as integer weights.

        Raises:
            ParameterError: n is not a count.

        >>> import countveil as cv
        >>> law = cv.design(epsilon="1", eta="0.5", D=3, policy="signed").law(7)
        >>> law.left, len(law.weights)
        (3, 7)
        """
        return self.laws.law(integer("n", n, 0, LARGEST_COUNT))

    def column(self, n: int) -> Law:
        """The old name of `law`, which works for one more release."""
        warn_deprecated("Mechanism.column", "Mechanism.law")
        return self.law(n)

    @property
    def family(self) -> Laws:
        """The old name of `laws`, which works for one more release."""
        warn_deprecated("Mechanism.family", "Mechanism.laws")
        return self.laws

    def delta_at(self, epsilon: Number) -> Fraction:
        """The exact delta at any epsilon, even at a negative one. **Guarantee.** Rounded up, never down.

        Args:
            epsilon: From -700 to 700.

        Returns:
            An upper bound of delta(epsilon) that holds for every dataset.

        Raises:
            ParameterError: epsilon is not in this range.

        >>> import countveil as cv
        >>> m = cv.design(epsilon="1", eta="0.5", D=3, policy="signed")
        >>> m.delta_at("1") == m.delta, m.delta_at("2") < m.delta
        (True, True)
        """
        value = number("epsilon", epsilon, "a finite decimal number from -700 to 700")
        if abs(value) > 700:
            raise ParameterError("epsilon", epsilon, "a finite decimal number from -700 to 700")
        order, _ = exp_bounds(value)
        return privacy.delta(self.laws, order, self.certificate.sensitivity).value

    def epsilon_at(self, delta: Number) -> Fraction | None:
        """The least epsilon >= 0 at which the mechanism's delta is at most the given one. **Guarantee.** Rounded up.

        Args:
            delta: Above 0 and below 1.

        Returns:
            The epsilon, or None if the mechanism's delta is above the given one at every epsilon.

        Raises:
            ParameterError: delta is not in this range.

        >>> import countveil as cv
        >>> m = cv.design(epsilon="1", eta="0.5", D=3, policy="signed")
        >>> float(m.epsilon_at(m.delta)) <= 1.0001, m.epsilon_at("1e-12") is None
        (True, True)
        """
        target = number("delta", delta, "a decimal number in (0, 1)")
        if not 0 < target < 1:
            raise ParameterError("delta", delta, "a decimal number in (0, 1)")
        order = privacy.epsilon_order(self.laws, target, self.certificate.sensitivity)
        return None if order is None else log_upper(order)

    def profile(self) -> list[CountProfile]:
        """The exact bias, P(Y = n | n) and mean squared error of promised counts n, one for each different law.

        Returns:
            The profiles of all promised counts up to the stationary one, and of the last ones with laws of their own.

        >>> import countveil as cv
        >>> m = cv.design(epsilon="1", eta="0.5", D=3, policy="signed")
        >>> [profile.bias for profile in m.profile()][:1]
        [Fraction(0, 1)]
        """
        return profile(self.laws, self.counts)

    @cached_property
    def most_biased(self) -> tuple[CountProfile, CountProfile]:
        """The profiles of least (most negative) and of largest bias; of equal biases, that of the smallest count."""
        rows = self.profile()
        return min(rows, key=lambda row: row.bias), max(rows, key=lambda row: row.bias)

    @property
    def largest_count(self) -> int:
        """The largest count whose release always fits into 64 bits."""
        return LARGEST_COUNT - self.certificate.worst_error

    def release(self, counts: Any) -> Any:
        """Noisy counts. Every call is a separate release, with a fresh noise key that is used once and discarded.

        Args:
            counts: A true count, or a list, a numpy array, or a pandas, polars or pyarrow column of true counts.

        Returns:
            The released counts: an int for an int, else the same kind of list, array or column.

        Raises:
            ParameterError: A count is negative or too large.

        >>> import countveil as cv
        >>> y = cv.design(epsilon="1", eta="0.5", D=3).release(1234)
        >>> 1231 <= y <= 1237
        True
        """
        from countveil.sampling import count_arrays  # loads numpy

        if isinstance(counts, count_arrays.SINGLE):
            return count_arrays.release_one(self.laws, integer("count", counts, 0, self.largest_count))
        return count_arrays.release(self.sampler, counts, self.largest_count)

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler of the mechanism's laws. Its guide tables are built once, when it is first used."""
        from countveil.sampling.sampler import sampler  # loads numpy

        return sampler(self.laws)

    @cached_property
    def margin_95(self) -> int:
        """The least m with P(|Y - n| <= m | n) >= 95 % for every promised count n; it does not depend on the data."""
        return margin_95(self.laws, self.counts)

    def bounds(self, y: Any) -> tuple[Any, Any]:
        """The least and the largest true count that can be behind a released count y. They depend only on y.

        Args:
            y: A released count, or a numpy array of released counts.

        Returns:
            The two ends; arrays for an array.

        Raises:
            ParameterError: y is not a released count.

        >>> import countveil as cv
        >>> cv.design(epsilon="1", eta="0.5", D=3, policy="signed").bounds(10)
        (8, 12)
        """
        import numpy as np

        reach, (low, high) = self.certificate.worst_error, self.counts
        if not isinstance(y, np.ndarray):
            value = integer("y", y, -LARGEST_COUNT, LARGEST_COUNT)
            least, most = max(value - reach, low), max(value + reach, low)
            return (least, most) if high is None else (min(least, high), min(most, high))
        if y.dtype.kind not in "iu" or (
            len(y) and not -LARGEST_COUNT + reach <= int(y.min()) <= int(y.max()) <= LARGEST_COUNT
        ):
            raise ParameterError("y", f"an array of {y.dtype}", "released counts: whole numbers that fit 64 bits")
        values = y.astype(np.int64)
        lower = np.maximum(values - reach, low)
        upper = np.maximum(np.minimum(values, LARGEST_COUNT - reach) + reach, low)  # without a wrap at 2^63
        return (lower, upper) if high is None else (np.minimum(lower, high), np.minimum(upper, high))

    @cached_property
    def hash(self) -> str:
        """The SHA-256 hash of everything that is sampled or claimed, in hexadecimal."""
        return document.hash_content(self._content())

    def to_text(self) -> str:
        """The text of the mechanism's file: JSON with its weights, its certificate and its hash."""
        return document.to_text(self._content(), self.hash)

    def save(self, path: str | Path) -> None:
        """Write the mechanism with its certificate as JSON.

        Args:
            path: The file; it appears only when it is complete.

        Raises:
            ParameterError: The file cannot be written.

        >>> import countveil as cv
        >>> cv.design(epsilon="1", eta="0.5", D=3).save("/dev/null")
        """
        document.save(self.to_text(), path)

    @staticmethod
    def from_text(text: str) -> Mechanism:
        """The mechanism in the text of a mechanism file; raises CertificateError if a claim is false."""
        return _make(*document.from_text(text))

    @staticmethod
    def load(path: str | Path) -> Mechanism:
        """Read a mechanism file; every claim is measured again on the weights.

        Args:
            path: A file that `save` or `countveil design` wrote.

        Returns:
            The mechanism.

        Raises:
            CertificateError: The file cannot be read, is malformed, or claims what its weights do not have.

        >>> Mechanism.load("none.json")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        countveil.errors.CertificateError: none.json: cannot be read (No such file or directory); give the path of a ...
        """
        return _make(*document.load(path))

    def _content(self) -> dict[str, Any]:
        """Everything that is sampled or claimed, as JSON values: the body of the mechanism's file without the hash."""
        return document.content(self.laws, self.certificate, self.policy, self.method, self.D, self.counts, self.notes)

    def describe(self) -> dict[str, object]:
        """The design as plain JSON values; probabilities are decimal texts.

        Returns:
            What `countveil design --json` prints.

        >>> import countveil as cv
        >>> cv.design(epsilon="1", eta="0.5", D=3, policy="signed").describe()["eta"]
        '0.5'
        """
        c = self.certificate
        low, high = self.counts
        return {
            "schema_version": 1,
            "epsilon": decimal_text(c.epsilon, rounding="up"),
            "delta": decimal_text(c.delta, rounding="up"),
            "delta_singleton": None if c.delta_singleton is None else decimal_text(c.delta_singleton),
            "delta_paper_bound": None if self.delta_paper_bound is None else decimal_text(self.delta_paper_bound),
            "eta": decimal_text(c.eta),
            "eta_from": c.eta_from,
            "eta_to": c.eta_to,
            "D": self.D,
            "policy": self.policy,
            "method": self.method,
            "sensitivity": c.sensitivity,
            "counts": {"low": low, "high": high},
            "unbiased_from": c.unbiased_from,
            "unbiased_to": c.unbiased_to,
            "nearly_unbiased_from": c.nearly_unbiased_from,
            "bias_below": decimal_text(c.bias_below, rounding="up"),
            "variance": decimal_text(c.variance),
            "within_3": decimal_text(c.within_3),
            "margin_95": self.margin_95,
            "typical_margin_95": c.typical_margin_95,
            "worst_error": c.worst_error,
            "never_negative": c.never_negative,
            "stationary_from": c.stationary_from,
            "bits": c.bits,
            "mse_at": {str(n): decimal_text(v) for n, v in c.mse_at.items()},
            "bias_at": {str(n): decimal_text(v) for n, v in c.bias_at.items()},
            "exact_at": {str(n): decimal_text(v) for n, v in c.exact_at.items()},
            "worst_pair": list(c.worst_pair),
            "law": self._typical_law(),
            **(self.details or {}),
            "price_list": list(self.prices),
            "notes": list(self.notes),
            "hash": self.hash,
        }

    def _typical_law(self) -> dict[str, str]:
        """P(Z = z) at a typical count, as decimal texts, for noise z from -20 to 20 at most."""
        law = self.laws.law(self.certificate.typical)
        return {str(z): decimal_text(Fraction(w, law.total)) for z, w in law.items() if w and abs(z) <= SHOWN_NOISE}


def certify(build: Build, terms: Terms) -> Mechanism:
    """Round a proposal to integer weights, measure them, and return the Mechanism."""
    bits = terms.bits or enough_bits(build, terms.epsilon, terms.sensitivity)
    return bind(build(bits), terms)


def bind(laws: Laws, terms: Terms) -> Mechanism:
    """Measure laws that are integer weights already, and return the Mechanism of these laws."""
    return _make(laws, measure(laws, terms.epsilon, terms.sensitivity, terms.counts), terms)


def _make(laws: Laws, certificate: Certificate, terms: Terms) -> Mechanism:
    """The Mechanism made of laws, the certificate measured on them, and the terms they were measured for."""
    t = terms
    return Mechanism(
        laws, certificate, t.policy, t.method, t.D, t.counts, t.delta_paper_bound, t.notes, t.prices, t.details
    )


def annotate(mechanism: Mechanism, *notes: str, prices: tuple[dict[str, object], ...] = ()) -> Mechanism:
    """A copy of the mechanism with more notes; `prices`, if given, replaces its price list."""
    return replace(mechanism, notes=mechanism.notes + notes, prices=prices or mechanism.prices)


def enough_bits(build: Build, epsilon: Fraction, sensitivity: int) -> int:
    """The least of 64, 96 and 128 bits at which rounding changes delta by less than a relative 1e-8; else 128."""
    order, _ = exp_bounds(epsilon)
    reference = privacy.delta(build(_REFERENCE), order, sensitivity).value
    for bits in WIDTHS:
        try:
            value = privacy.delta(build(bits), order, sensitivity).value
        except InfeasibleError:
            continue
        if abs(value - reference) <= _TOLERANCE * reference:
            return bits
    return WIDTHS[-1]
