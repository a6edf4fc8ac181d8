"""The remap of the unbounded two-sided geometric law to non-negative outputs (makes remap.json).

With a = e^-epsilon, q(z) = (1-a)/(1+a) a^|z| and Y' = n + Z, the map sends every negative y' to 0
and pulls y' = 1..n0 down by g(j) in the mean, where sum_j a^-j g(j) = a/(1-a)^2, 0 <= g(j) <= j.
* `needed_n0`: the least n0 for which such g exist (g(j) = j reaches the right side).
* `pull_down`: one choice of g: the smallest counts are pulled first, each by sending j to 0 with
  probability g(j)/j. For n0 = 1 it is the only choice: 1 goes to 0 with probability a^2/(1-a)^2.
* For that map, from the definition, at n = 0..5: P(Y=0|n), P(Y=n|n), bias and mean squared
  error, as sums over Y' = -L..L with L so large that the rest is below 1e-80; for n >= n0 the
  bias is zero. `mse_limit` is the variance 2a/(1-a)^2 of Z, the limit for large n.
At a = 1/2 (epsilon = ln 2) the same quantities are exact: all sums over the two tails in closed
form, in Fractions.

Run: python vectors/makers/remap.py
"""

from fractions import Fraction

from common import decimal, write
from mpmath import mp, mpf

EPSILONS = ["1", "0.5", "0.7", "0.6931471805599453", "0.3", "0.2", "0.1", "1.5", "2", "4"]


def pull_downs(a):
    """Fill sum_j a^-j g(j) = a/(1-a)^2 from j = 1 on; works for mpf and Fraction."""
    left, g, j = a / (1 - a) ** 2, [], 0
    while left > 0:
        j += 1
        g.append(min(left * a**j, a**0 * j))
        left = left - g[-1] / a**j if g[-1] == j else 0
    return g


def column(a, n, g, reach):
    """{y: P(Y=y|n)} by pushing every y' = -reach..reach through the map, tails ignored."""
    out = {}
    for y1 in range(-reach, reach + 1):
        weight = (1 - a) / (1 + a) * a ** abs(y1 - n)
        down = g[y1 - 1] / y1 if 1 <= y1 <= len(g) else 0
        if y1 < 0:
            out[0] = out.get(0, 0) + weight
        else:
            out[0] = out.get(0, 0) + weight * down
            out[y1] = out.get(y1, 0) + weight * (1 - down)
    return out


def half_column(n, g):
    """Bias and mean squared error at a = 1/2, exactly: q(z) = 2^-|z| / 3.

    Below zero: P(Y' < 0) = 2^-n / 3. Above m = max(n, len(g)): with t = y' - m = 1, 2, ...
    weight 2^-(m-n) 2^-t / 3, where sum 2^-t = 1, sum t 2^-t = 2, sum t^2 2^-t = 6.
    """
    a, m = Fraction(1, 2), max(n, len(g))
    law = {0: a**n / 3}
    for y1 in range(m + 1):
        weight = a ** abs(y1 - n) / 3
        down = g[y1 - 1] / y1 if 1 <= y1 <= len(g) else Fraction(0)
        law[0] += weight * down
        law[y1] = law.get(y1, Fraction(0)) + weight * (1 - down)
    tail, shift = a ** (m - n) / 3, m - n
    assert sum(law.values()) + tail == 1
    bias = sum((y - n) * w for y, w in law.items()) + tail * (shift + 2)
    mse = sum((y - n) ** 2 * w for y, w in law.items()) + tail * (shift**2 + 4 * shift + 6)
    return law, bias, mse


def main():
    mp.dps = 100
    cases = []
    for epsilon in EPSILONS:
        a = mp.exp(-mpf(epsilon))
        g = pull_downs(a)
        reach = int(250 / float(epsilon)) + 10
        laws = [column(a, n, g, reach) for n in range(6)]
        bias = [mp.fsum((y - n) * w for y, w in law.items()) for n, law in enumerate(laws)]
        mse = [mp.fsum((y - n) ** 2 * w for y, w in law.items()) for n, law in enumerate(laws)]
        assert all(abs(mp.fsum(law.values()) - 1) < mpf(10) ** -80 for law in laws)
        assert all(abs(b) < mpf(10) ** -80 for b in bias[len(g) :])
        cases.append(
            {
                "epsilon": epsilon,
                "eta_signed": decimal((1 - a) / (1 + a)),
                "needed_n0": str(len(g)),
                "pull_down": [decimal(x) for x in g],
                "right_side": decimal(a / (1 - a) ** 2),
                "P_zero": [decimal(law[0]) for law in laws],
                "P_exact": [decimal(law[n]) for n, law in enumerate(laws)],
                "bias": ["0" if n >= len(g) else decimal(b) for n, b in enumerate(bias)],
                "mse": [decimal(x) for x in mse],
                "mse_limit": decimal(2 * a / (1 - a) ** 2),
            }
        )
    g = pull_downs(Fraction(1, 2))
    exact = [half_column(n, g) for n in range(6)]
    assert len(g) == 1
    assert all(b == 0 for _, b, _ in exact[1:])
    cases.append(
        {
            "epsilon": "ln 2",
            "a": "1/2",
            "eta_signed": "1/3",
            "needed_n0": str(len(g)),
            "pull_down": [str(x) for x in g],
            "right_side": "2",
            "P_zero": [str(law[0]) for law, _, _ in exact],
            "P_exact": [str(law[n]) for n, (law, _, _) in enumerate(exact)],
            "bias": [str(b) for _, b, _ in exact],
            "mse": [str(m) for _, _, m in exact],
            "mse_limit": "4",
        }
    )
    write(
        "remap.json",
        "The two-sided geometric law remapped to non-negative outputs: unbiased from n0 on.",
        "python vectors/makers/remap.py: sums from the definition in mpmath; Fractions at epsilon = ln 2 "
        "(given as ratios).",
        cases,
    )


if __name__ == "__main__":
    main()
