"""The delta of many answers together, from the definition (makes accounting.json).

All outcomes of k answers are summed, grouped by how often each loss occurs, in mpmath at 60 digits.
* `geometric`: p(z) ~ a^|z|, a = e^-e0, has the losses +e0 (z <= 0, probability 1/(1+a)) and -e0: a
  binomial sum.
* `truncated`: the same on -D..D: one more loss, infinite, of probability p(-D).
* `gaussian`: p(z) ~ exp(-z^2/(2 s2)) has the loss (1 - 2z)/(2 s2), so that of k answers depends on
  T = Z_1 + ... + Z_k alone: the law of T by convolution, tails below 1e-60 left out.
* `weights`: any law of integer weights over 2^bits on -left..: a multinomial sum over its losses, for a
  person added, a person removed, and (`replace`) both at once.
* `columns`: counts 0, 1, ..., the weights of Y for each; k answers of which i are about one pair of
  neighbouring counts and k - i about another: the worst i. `same` has the worst with i = k only.

Run: python vectors/makers/accounting.py
"""

from itertools import combinations_with_replacement, pairwise

from common import decimal, write
from mpmath import mp, mpf

mp.dps = 60
NEGLIGIBLE = mpf(10) ** -60


def excess(p, loss, epsilon):
    return p * -mp.expm1(epsilon - loss) if loss > epsilon else mpf(0)


def binomial_delta(k, size, up, down, infinite, epsilon):
    """Losses +size (probability up), -size (down) and infinity."""
    found = 1 - (1 - infinite) ** k
    for j in range(k + 1):
        loss = (2 * j - k) * size
        if loss > epsilon:
            found += excess(mp.binomial(k, j) * up**j * down ** (k - j), loss, epsilon)
    return found


def geometric(e0, k, epsilon):
    a = mp.exp(-mpf(e0))
    return binomial_delta(k, mpf(e0), 1 / (1 + a), a / (1 + a), mpf(0), epsilon)


def truncated(e0, D, k, epsilon):
    a = mp.exp(-mpf(e0))
    total = mp.fsum(a ** abs(z) for z in range(-D, D + 1))
    up = mp.fsum(a ** abs(z) for z in range(-D + 1, 1)) / total
    down = mp.fsum(a**z for z in range(1, D + 1)) / total
    return binomial_delta(k, mpf(e0), up, down, a**D / total, epsilon)


def convolved(a, b):
    """Laws as (least, list)."""
    out = [mpf(0)] * (len(a[1]) + len(b[1]) - 1)
    for i, x in enumerate(a[1]):
        for j, y in enumerate(b[1], i):
            out[j] += x * y
    low, high = 0, len(out)
    while out[low] < NEGLIGIBLE:
        low += 1
    while out[high - 1] < NEGLIGIBLE:
        high -= 1
    return a[0] + b[0] + low, out[low:high]


def gaussian_sum(s2, k):
    """The law of Z_1 + ... + Z_k."""
    reach = int(mp.sqrt(2 * mpf(s2) * 145)) + 2
    half = [mp.exp(-mpf(z * z) / (2 * mpf(s2))) for z in range(-reach, reach + 1)]
    one = (-reach, [w / mp.fsum(half) for w in half])
    found = None
    while k:
        if k & 1:
            found = one if found is None else convolved(found, one)
        k >>= 1
        if k:
            one = convolved(one, one)
    return found


def gaussian(law, s2, k, epsilon):
    low, p = law
    return mp.fsum(excess(w, (k - 2 * t) / (2 * mpf(s2)), epsilon) for t, w in enumerate(p, low))


def losses_of(p, q):
    """[(loss, probability)], probability of an infinite loss: of the outcomes of p against those of q."""
    total = sum(p.values())
    finite, infinite = {}, 0
    for y, w in p.items():
        if w and q.get(y):
            ratio = mpf(w) / q[y] * sum(q.values()) / total
            finite[ratio] = finite.get(ratio, 0) + w
        elif w:
            infinite += w
    return [(mp.log(r), mpf(w) / total) for r, w in finite.items()], mpf(infinite) / total


def sums(parts):
    """[(loss, probability)] of all answers of [(pair, k), ...] together, and the probability of an infinite one."""
    found, certain = [(mpf(0), mpf(1))], mpf(1)
    for (finite, infinite), k in parts:
        certain *= (1 - infinite) ** k
        once = []
        for choice in combinations_with_replacement(range(len(finite)), k):
            counts = [choice.count(i) for i in range(len(finite))]
            ways = mp.factorial(k)
            for c in counts:
                ways /= mp.factorial(c)
            once.append(
                (
                    mp.fsum(c * loss for c, (loss, _) in zip(counts, finite, strict=True)),
                    mp.fprod([ways, *(p**c for c, (_, p) in zip(counts, finite, strict=True))]),
                )
            )
        found = [(a + b, x * y) for a, x in found for b, y in once]
    return found, 1 - certain


def delta_of(parts, epsilons):
    law, infinite = sums(parts)
    return [infinite + mp.fsum(excess(p, loss, mpf(e)) for loss, p in law) for e in epsilons]


def shifted(law, by):
    return {y + by: w for y, w in law.items()}


def closed_cases():
    for e0, ks in (("0.1", (2, 10, 30, 1000)), ("0.5", (1, 5, 30)), ("1.1", (3, 10)), ("0.003", (10_000,))):
        for k in ks:
            spread = mpf(e0) * mp.sqrt(k)
            epsilons = ["-0.3", "0", *(mp.nstr(k * mpf(e0) * mp.tanh(mpf(e0) / 2) + x * spread, 8) for x in (1, 4, 7))]
            deltas = [[e, decimal(geometric(e0, k, mpf(e)))] for e in epsilons]
            yield {"kind": "geometric", "epsilon": e0, "k": k, "deltas": deltas}
    for e0, D, k in (("1", 14, 10), ("0.5", 40, 30), ("0.3", 20, 100), ("0.2", 150, 1000), ("1", 36, 4)):
        epsilons = ["-1", "0", "1", "3", "12"]
        deltas = [[e, decimal(truncated(e0, D, k, mpf(e)))] for e in epsilons]
        yield {"kind": "truncated", "epsilon": e0, "D": D, "k": k, "deltas": deltas}


def gaussian_cases():
    for s2, k in (("0.5", 3), ("2", 10), ("8", 30), ("24", 10), ("72", 30), ("100", 7)):
        law = gaussian_sum(s2, k)
        mean, spread = k / (2 * mpf(s2)), mp.sqrt(k / mpf(s2))
        epsilons = ["-0.5", "0", *(mp.nstr(mean + x * spread, 8) for x in (1, 3, 5, 7.5))]
        yield {
            "kind": "gaussian",
            "s2": s2,
            "k": k,
            "deltas": [[e, decimal(gaussian(law, s2, k, mpf(e)))] for e in epsilons],
        }


def weight_cases():
    for weights, left, bits, k in (
        ((60, 240, 420, 230, 74), 2, 10, 20),
        ((1, 3, 12), 1, 4, 30),
        ((5, 200, 600, 200, 18, 1), 2, 10, 12),
        ((1, 2**27, 2**30 - 2**27 - 2**28 - 2, 2**28, 1), 2, 30, 12),
        ((1, 2**48, 2**50 - 2**48 - 2, 1), 2, 50, 6),
    ):
        law = {z - left: w for z, w in enumerate(weights)}
        assert sum(weights) == 1 << bits
        up, down = losses_of(law, shifted(law, 1)), losses_of(shifted(law, 1), law)
        epsilons = ["-2", "0", "1", "4", "9", "20"]
        few = 5
        case = {"kind": "weights", "weights": [str(w) for w in weights], "left": left, "bits": bits, "k": k}
        for name, parts in (
            ("add", [(up, k)]),
            ("remove", [(down, k)]),
            ("replace", [(up, few), (down, few)]),
        ):
            found = delta_of(parts, epsilons)
            case[name] = [[e, decimal(d)] for e, d in zip(epsilons, found, strict=True)]
        yield {**case, "replaced": few}


def column_cases():
    for columns, k in (
        (((0, 10, 6), (3, 1, 12), (1, 10, 5)), 2),
        (((0, 10, 6), (3, 1, 12), (1, 10, 5)), 7),
        (((20, 9, 3), (9, 14, 9), (2, 10, 20)), 12),
    ):
        laws = [dict(enumerate(column)) for column in columns]
        steps = list(pairwise(laws))
        ways = [[losses_of(a, b) for a, b in steps], [losses_of(b, a) for a, b in steps]]
        epsilons = ["0", "0.8", "1.6094379", "3", "6"]
        mixed, same = [mpf(0)] * len(epsilons), [mpf(0)] * len(epsilons)
        for first, second in ways:
            for i in range(k + 1):
                found = delta_of([(first, i), (second, k - i)], epsilons)
                mixed = [max(x, y) for x, y in zip(mixed, found, strict=True)]
                if i in (0, k):
                    same = [max(x, y) for x, y in zip(same, found, strict=True)]
        yield {
            "kind": "columns",
            "columns": [list(c) for c in columns],
            "bits": sum(columns[0]).bit_length() - 1,
            "k": k,
            "deltas": [[e, decimal(d)] for e, d in zip(epsilons, mixed, strict=True)],
            "same": [[e, decimal(d)] for e, d in zip(epsilons, same, strict=True)],
        }


def main():
    cases = [*closed_cases(), *gaussian_cases(), *weight_cases(), *column_cases()]
    write(
        "accounting.json",
        "The delta of k answers together, at several epsilons, summed from the definition.",
        "python vectors/makers/accounting.py: mpmath at 60 digits; binomial and multinomial sums, and convolution for "
        "the discrete Gaussian.",
        cases,
    )


if __name__ == "__main__":
    main()
