"""The paper's closed form and what its law really has (makes paper.json).

All in mpmath with enough digits that 60 survive the cancellations (E^D ones included):
* delta_k, C_k, k, delta_star and alpha from their defining sums in the paper;
* `condition`: alpha_1 <= E*C + B*delta_star, where the closed form is right;
* `singleton_up`/`singleton_down`: largest p(y|n) - E p(y|n+1), and p(y|n+1) - E p(y|n), over
  every y (0 at least), by brute force on the two columns;
* `exact_up`/`exact_down`: sum_y max(0, ...) of the same differences; `singleton` and `exact`
  are the larger of the two directions;
* variance, P(|Z| <= 3), paper_bound = min(1, (2D+1) delta_star).
Lists (delta_k for k = 1..D+1, C_k for k = 1..D, alpha_1..alpha_D) are given for D <= 20 only.
A difference that is zero in exact arithmetic (a tight constraint) comes out as rounding noise
at this precision; it is far below the digits written.

Run: python vectors/makers/paper.py
"""

from common import decimal, write
from mpmath import mp, mpf

POINTS = [
    ("2.18", "0.8", 6),
    ("1.1", "0.01", 6),
    ("0.5", "0.05", 6),
    ("0.1", "0.04", 100),
    ("1.1", "0.5", 8),
    ("2.2", "0.8", 8),
    ("1.5", "0.5", 6),
    ("0.5", "0.2", 12),
    ("1.0", "0.4", 20),
    ("1.5", "0.5", 8),
    ("1.11", "0.5", 8),
    ("1.1", "0.5", 4),
    ("1.1", "0.7", 6),
    ("2.2", "0.9", 6),
    ("1", "0.462", 14),
    ("1", "0.44", 14),
    ("0", "0.5", 4),
    ("0", "0.05", 5),
    ("0", "0.9", 10),
    ("3", "0.99", 5),
    ("0.2", "0.3", 30),
    ("1.1", "0.5", 1),
    ("2", "0.1", 1),
    ("4", "0.001", 3),
    ("0.7", "0.35", 2),
    ("5", "0.97", 7),
    ("20", "0.9", 500),
    ("0.001", "0.0004", 20000),
]


def closed_form(E, eta, D):
    """(delta_k list, C_k list, k, delta_star, alpha list), every sum from its definition."""
    B, C = 2 / (1 - eta), 2 * eta / (1 - eta)
    power = [mpf(1)]
    for _ in range(D):
        power.append(power[-1] * E)
    plain = weighted = falling = mpf(0)  # sum_{j<k} E^j, sum_{j<k} (j+1) E^j, sum_{j<k} (k-j) E^j
    deltas, crossovers = [], []
    for k in range(1, D + 1):
        weighted += k * power[k - 1]
        plain += power[k - 1]
        falling += plain  # (k-j) grows by one for every j < k
        deltas.append((C * plain - power[k]) / (B * weighted))
        crossovers.append((plain + power[k]) / falling)
    deltas.append(1 / (B * falling))
    inside = [
        k for k in range(1, D + 2) if (k == 1 or crossovers[k - 2] >= C) and (k == D + 1 or crossovers[k - 1] < C)
    ]
    assert len(inside) == 1
    k = inside[0]
    delta = deltas[k - 1]
    assert delta == max(deltas)
    alpha = [mpf(0)] * D
    if k == D + 1:
        partial = mpf(0)
        for length, j in enumerate(range(D, 0, -1)):  # sum_{l=0..D-j} E^l
            partial += power[length]
            alpha[j - 1] = B * delta * partial
    else:
        previous = C
        for j in range(k):
            previous = alpha[j] = (previous - B * delta) / E
    return deltas, crossovers, k, delta, alpha


def measure(p, D, E):
    """Both directions over two neighbouring columns; p maps z to its probability."""
    n, zero = D, mpf(0)
    outputs = range(n - D, n + 1 + D + 1)
    column = [p.get(y - n, zero) for y in outputs]
    neighbour = [p.get(y - n - 1, zero) for y in outputs]
    up = [max(zero, a - E * b) for a, b in zip(column, neighbour, strict=True)]
    down = [max(zero, b - E * a) for a, b in zip(column, neighbour, strict=True)]
    return max(up), max(down), mp.fsum(up), mp.fsum(down)


def case(epsilon, eta_text, D):
    mp.dps = 120 + int(2 * D * float(epsilon) / 2.302585)
    E, eta = mp.exp(mpf(epsilon)), mpf(eta_text)
    deltas, crossovers, k, delta, alpha = closed_form(E, eta, D)
    assert abs(sum(alpha) - 1) < mpf(10) ** -80 and min(alpha) > -(mpf(10) ** -80)
    B, C = 2 / (1 - eta), 2 * eta / (1 - eta)
    p = {0: eta}
    for i, a in enumerate(alpha, start=1):
        p[i] = p[-i] = a * (1 - eta) / 2
    up, down, exact_up, exact_down = measure(p, D, E)
    out = {
        "epsilon": epsilon,
        "eta": eta_text,
        "D": str(D),
        "k": str(k),
        "delta_star": decimal(delta, 40),
        "condition": bool(alpha[0] <= E * C + B * delta),
        "singleton": decimal(max(up, down), 40),
        "singleton_up": decimal(up, 40),
        "singleton_down": decimal(down, 40),
        "exact": decimal(max(exact_up, exact_down), 40),
        "exact_up": decimal(exact_up, 40),
        "exact_down": decimal(exact_down, 40),
        "variance": decimal(mp.fsum(z * z * w for z, w in p.items()), 40),
        "within_3": decimal(mp.fsum(w for z, w in p.items() if abs(z) <= 3), 40),
        "paper_bound": decimal(min(mpf(1), (2 * D + 1) * delta), 40),
    }
    if D <= 20:
        out["delta_k"] = [decimal(d, 40) for d in deltas]
        out["C_k"] = [decimal(c, 40) for c in crossovers]
        out["alpha"] = [decimal(a, 40) for a in alpha]
    return out


def main():
    cases = [case(*point) for point in POINTS]
    mp.dps = 60
    write(
        "paper.json",
        "The paper's closed form for n >= D, and the true singleton and exact delta of its law.",
        "python vectors/makers/paper.py: mpmath from the defining sums; the law's deltas by brute "
        "force over y on two neighbouring columns, both directions.",
        cases,
    )


if __name__ == "__main__":
    main()
