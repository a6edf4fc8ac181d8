"""How narrow and how fast composition is, and how good plans are.

    python benchmarks/accounting.py [--quick] [--save]

1. The delta of k = 100, 10^4, 10^6 answers of mechanisms that the planner made: bracket and time, and those of
   dp-accounting on the same laws in the same run, at its default discretisation and at a finer one. Its bracket is
   between its optimistic and its pessimistic estimate; both have to be computed.
2. The variance of a plan (policy signed, certified) against the least variance at which the geometric law and the
   discrete Gaussian, both unbounded, meet the same guarantee. Theirs are tuned without any safety margin: the geometric
   one by its binomial sum, the Gaussian one by our *lower* bound, what is cut off at 2^-100 left out.

3. Two grades, one of weight 16: the weighted variance of a plan (signed, certified) against separate budgets for each
   grade, whose epsilons and deltas add up (basic composition), the best of nine splits of epsilon, half of delta each.
4. The time of a plan of ten answers for people with many rows in many cells, policy nonnegative.
5. Composition of different laws: bracket and time, and dp-accounting's on the same laws.

Times are processor seconds, because other work on the machine stretches elapsed ones; 3 and 4 show both.

`--save` writes the output, with date and machine, to benchmarks/results/accounting.txt.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from countveil.accounting import compose
from countveil.accounting.composition import Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.errors import CountveilError
from countveil.laws.law import Law
from countveil.literature.gaussian import discrete_gaussian
from countveil.mechanism.mechanism import Mechanism
from countveil.planning import Grade, plan

BUDGETS = (("1", "1e-6"), ("3", "1e-6"), ("5", "1e-9"))
ANSWERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MANY = (100, 10_000, 1_000_000)
INTERVALS = (1e-4, 1e-5)
GRADES = ((("3", "1e-6"), (1, 20)), (("1", "1e-6"), (4, 8)), (("5", "1e-9"), (10, 100)))
"""Budgets, and the numbers of fine answers of weight 16 and of standard ones."""
PEOPLE = ((1, 1), (10, 5), (20, 40), (100, 100), (1000, 10))
"""Rows of a person in a cell, and cells of a person."""
DIFFERENT = (2, 10, 100)
EPSILONS = {2: 4.0863, 10: 3.8486, 100: 3.798}
"""Where the delta of so many different laws is near 1e-6."""
LIMIT = 60.0
"""Seconds, not of the processor, that dp-accounting may take for one bracket."""
GOAL = 10
"""Seconds for a plan."""
PAGE: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one budget and k up to 100")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/accounting.txt")
    options = parser.parse_args()
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "dp-accounting"))
    say(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}")
    busy = os.getloadavg()[0]
    if busy > 0.3:
        say(f"Other work was running (load average {busy:.1f}): processor times are somewhat too long.")
    say()
    brackets(("3", "1e-6"), MANY[:1] if options.quick else MANY)
    plans(BUDGETS[1:2] if options.quick else BUDGETS, ANSWERS[:7] if options.quick else ANSWERS)
    grades(GRADES[:1] if options.quick else GRADES)
    people(PEOPLE[:3] if options.quick else PEOPLE)
    different(DIFFERENT[:2] if options.quick else DIFFERENT)
    if options.save:
        target = Path(__file__).parent / "results" / "accounting.txt"
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(PAGE) + "\n")


# 1. Brackets


def brackets(budget: tuple[str, str], many: tuple[int, ...]) -> None:
    epsilon, delta = budget
    say(
        f"1. delta({epsilon}) of k answers of the plan for ({epsilon}, {delta}): bracket (upper - lower)/estimate, time"
    )
    say("          k  who                          lower            upper     bracket      time")
    for k in many:
        m = plan(epsilon=epsilon, delta=delta, answers=k, policy="signed").mechanism
        started = time.process_time()
        found = compose(m, k).delta(float(epsilon))
        taken = time.process_time() - started
        allowed = 0.01 if k <= 10_000 else 0.1
        verdict = f"goal {100 * allowed:.0f} %, 1 s: {'met' if found.width <= allowed and taken <= 1 else 'MISSED'}"
        say(row(k, "countveil", found.lower, found.upper, taken, verdict))
        for interval in INTERVALS:
            name = f"dp-accounting {interval:g}"
            theirs = limited(m.law(10**9), k, float(epsilon), interval)
            say(f"  {k:9,d}  {name:22s} {theirs}" if isinstance(theirs, str) else row(k, name, *theirs))
    say()


def row(k: int, name: str, lower: float, upper: float, taken: float, verdict: str = "") -> str:
    width = f"{200 * (upper - lower) / (upper + lower):8.3f} %" if upper > 0 else "        -"
    return f"  {k:9,d}  {name:22s} {lower:14.8e}   {upper:14.8e}  {width}  {taken:7.3f} s   {verdict}".rstrip()


def limited(law: Law, k: int, epsilon: float, interval: float) -> tuple[float, float, float] | str:
    """Optimistic, pessimistic and seconds, in a process that is ended when it takes too long."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=theirs_alone, args=(law, k, epsilon, interval, there))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(LIMIT) else f"stopped after {LIMIT:.0f} s"
    except EOFError:
        return "failed (out of memory?)"
    finally:
        process.kill()
        process.join()


def theirs_alone(law: Law, k: int, epsilon: float, interval: float, out: Connection) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    here = {z: math.log(w / law.total) for z, w in law.items() if w}
    there = {z + 1: p for z, p in here.items()}
    started = time.process_time()
    found = [
        pld.from_two_probability_mass_functions(
            there, here, pessimistic_estimate=pessimistic, value_discretization_interval=interval, symmetric=False
        )
        .self_compose(k)
        .get_delta_for_epsilon(epsilon)
        for pessimistic in (False, True)
    ]
    out.send((float(found[0]), float(found[1]), time.process_time() - started))


# 2. Plans


def plans(budgets: tuple[tuple[str, str], ...], answers: tuple[int, ...]) -> None:
    say("2. Variance for k answers within (epsilon, delta): ours (signed, certified) and what others need")
    say("  epsilon  delta      k          ours     geometric      Gaussian   ours/best       D   plan")
    lost = []
    for epsilon, delta in budgets:
        for k in answers:
            target = float(epsilon), float(delta), k
            best = [geometric_variance(*target), gaussian_variance(*target)]
            started = time.process_time()
            try:
                found = plan(epsilon=epsilon, delta=delta, answers=k, policy="signed")
            except CountveilError as problem:
                say(f"  {epsilon:>7}  {delta}  {k:5d}  {problem}")
                lost.append((epsilon, delta, k, math.inf))
                continue
            taken = time.process_time() - started
            assert found.certified.upper <= float(delta)
            ours = float(found.mechanism.certificate.variance)
            ratio = ours / min(best)
            if ratio >= 1:
                lost.append((epsilon, delta, k, ratio))
            say(
                f"  {epsilon:>7}  {delta}  {k:5d}  {ours:12.7g}  {best[0]:12.7g}  {best[1]:12.7g}  {ratio:.8f}"
                f"{'  ' if ratio < 1 else ' *'}{found.mechanism.D:6d}   {taken:.2f} s"
            )
    say()
    for epsilon, delta, k, ratio in lost:
        say(f"  NOT less than the best of both: ({epsilon}, {delta}), k = {k}: ratio - 1 = {ratio - 1:.3g}")
    say("  Less than both everywhere." if not lost else f"  {len(lost)} of {len(budgets) * len(answers)} are not less.")


# 3. Grades


def grades(settings: tuple[tuple[tuple[str, str], tuple[int, int]], ...]) -> None:
    say()
    say("3. Weighted variance of two grades, fine (weight 16) and standard: one plan, and separate budgets")
    say("  epsilon  delta   fine  standard   one plan   separate   saved      plan")
    for (epsilon, delta), (fine, standard) in settings:
        started, process = time.perf_counter(), time.process_time()
        made = plan(
            epsilon=epsilon,
            delta=delta,
            policy="signed",
            grades={"fine": Grade(fine, weight=16), "standard": Grade(standard)},
        )
        taken, used = time.perf_counter() - started, time.process_time() - process
        ours = weighted([(16, fine, made.grades[0].mechanism), (1, standard, made.grades[1].mechanism)])
        apart = min(separate((epsilon, delta), (fine, standard), Fraction(i, 40)) for i in range(4, 37, 4))
        say(
            f"  {epsilon:>7}  {delta}  {fine:5d}  {standard:8d}  {ours:9.1f}  {apart:9.1f}  {1 - ours / apart:6.1%}   "
            f"{taken:.2f} s ({used:.2f} s of processor time)"
        )


def separate(budget: tuple[str, str], answers: tuple[int, int], share: Fraction) -> float:
    """The weighted variance of two plans whose epsilons and deltas add up to the budget."""
    epsilon, delta = Fraction(budget[0]), Fraction(budget[1]) / 2
    parts = []
    for weight, k, part in ((16, answers[0], share), (1, answers[1], 1 - share)):
        made = plan(epsilon=epsilon * part, delta=delta, answers=k, policy="signed")
        parts.append((weight, k, made.mechanism))
    return weighted(parts)


def weighted(parts: list[tuple[int, int, Mechanism]]) -> float:
    return sum(weight * k * float(mechanism.certificate.variance) for weight, k, mechanism in parts)


# 4. People with many rows


def people(sizes: tuple[tuple[int, int], ...]) -> None:
    say()
    say(f"4. Time of a plan of 10 answers for (3, 1e-6), policy nonnegative; goal {GOAL} s of processor time each")
    say("     rows x cells        D    variance      time   processor time")
    for rows, cells in sizes:
        started, process = time.perf_counter(), time.process_time()
        made = plan(epsilon="3", delta="1e-6", answers=10, sensitivity=rows, cells=cells).mechanism
        taken, used = time.perf_counter() - started, time.process_time() - process
        variance = float(made.certificate.variance)
        verdict = "met" if used <= GOAL else "MISSED"
        say(f"  {rows:7d} x {cells:5d}  {made.D:7d}  {variance:10.4g}  {taken:6.2f} s  {used:6.2f} s   {verdict}")


# 5. Different laws


def different(numbers: tuple[int, ...]) -> None:
    say()
    say("5. delta near 1e-6 of 10 answers each of so many different laws: bracket and time")
    say("       laws  who                          lower            upper     bracket      time")
    for number in numbers:
        laws = [discrete_gaussian(12 * number + 8 * i).laws for i in range(number)]
        started = time.process_time()
        found = Composition([(answer_of(law, 1), 10) for law in laws]).delta(EPSILONS[number])
        say(row(number, "countveil", found.lower, found.upper, time.process_time() - started))
        for interval in INTERVALS[:1]:
            theirs = theirs_together([law.stationary for law in laws], EPSILONS[number], interval)
            agree = found.lower <= theirs[1] and theirs[0] <= found.upper
            name = f"dp-accounting {interval:g}"
            say(row(number, name, *theirs, "brackets overlap" if agree else "brackets are APART"))


def theirs_together(laws: list[Law], epsilon: float, interval: float) -> tuple[float, float, float]:
    from dp_accounting.pld import privacy_loss_distribution as pld

    started = time.process_time()
    found = []
    for pessimistic in (False, True):
        whole = None
        for law in laws:
            here = {z: math.log(w / law.total) for z, w in law.items() if w}
            one = pld.from_two_probability_mass_functions(
                {z + 1: p for z, p in here.items()},
                here,
                pessimistic_estimate=pessimistic,
                value_discretization_interval=interval,
                symmetric=False,
            ).self_compose(10)
            whole = one if whole is None else whole.compose(one)
        found.append(float(whole.get_delta_for_epsilon(epsilon)) if whole is not None else 0.0)
    return found[0], found[1], time.process_time() - started


def geometric_variance(epsilon: float, delta: float, k: int) -> float:
    """2a/(1-a)^2 at the largest e0 whose k answers have delta(epsilon) <= delta: a binomial sum over losses +-e0."""
    j = np.arange(k + 1)
    ways = gammaln(k + 1) - gammaln(j + 1) - gammaln(k - j + 1)

    def lack(e0: float) -> float:
        loss = (2 * j - k) * e0
        kept = loss > epsilon
        log_p = ways - j * np.log1p(np.exp(-e0)) - (k - j) * np.log1p(np.exp(e0))
        return float(np.exp(log_p[kept]) @ -np.expm1(epsilon - loss[kept])) - delta

    low, high = epsilon / k, 2 * epsilon / k
    while lack(high) < 0:
        low, high = high, 2 * high
    e0 = brentq(lack, low, high, xtol=1e-14 * high, rtol=1e-14)
    return 0.5 / math.sinh(e0 / 2) ** 2


def gaussian_variance(epsilon: float, delta: float, k: int) -> float:
    """The variance at the least s2 whose k answers have a lower bound of delta(epsilon) that is at most delta."""

    def lack(log_s2: float) -> float:
        s2 = round(math.exp(log_s2), 12)
        base = 1 / (2 * s2)  # losses are odd multiples of this: on such a grid lower and upper bound are one
        deviation = 1 / math.sqrt(s2)
        step = base / math.ceil(base / (deviation / 150)) if base > deviation / 150 else base
        found = Composition([(answer_of(discrete_gaussian(s2).laws, 1), k)], chosen_step=step)
        return math.log(max(found.lower(epsilon), 1e-300) / delta)

    guess = math.log(k * 18 / epsilon**2 * (math.log(1 / delta) / 14) + 0.05)
    low, high = guess, guess
    while lack(high) > 0:
        low, high = high, high + 0.3
    while low == high or lack(low) < 0:
        low -= 0.3
    root = brentq(lack, low, high, xtol=1e-9)
    return float(discrete_gaussian(round(math.exp(root), 12)).laws.stationary.variance)


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


if __name__ == "__main__":
    main()
