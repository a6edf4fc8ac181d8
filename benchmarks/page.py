"""How long Explore takes to answer a slider, in a real browser: from the slider's event to the new view.

    python benchmarks/page.py [--quick] [--save]

1. Never-negative noise by remap, and 2. signed noise in closed form: the slider of epsilon is moved, the page asks
   `countveil serve`, the new view is in place; every move is to a place where nothing is remembered from before. The
   time is the browser's own and has the 30 ms in it that the page waits for a hand to rest. Between moves the pictures
   that follow are waited for.
3. The same while the slider is moved on at once, so that what was begun for the last move is still under way.
4. Moves to places that were seen before.

The browser, the service and its helper share the machine. `--save` writes the output, with date and machine, to
benchmarks/results/page.txt.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import sys
import tempfile
from datetime import date
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Browser, Page

from tests.support.browsing import launched, opened, slide, until
from tests.support.served import Served

HERE = Path(__file__).parent
PAGE: list[str] = []
LAWS = (("never negative, remap", "nonnegative"), ("signed, closed form", "signed"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 moves for each figure instead of 40")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/page.txt")
    options = parser.parse_args()
    moves = 10 if options.quick else 40
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        say(
            f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"Chromium {browser.version}"
        )
        busy = os.getloadavg()[0]
        if busy > 0.5:
            say(f"Other work was running (load average {busy:.1f}): times are too long; run again when quiet.")
        say("From the slider's event to the new view, in ms; epsilon from 0.2 to 5 at delta 1e-6")
        say()
        served = Served(Path(folder))
        try:
            for name, policy in LAWS:
                measured(browser, served, name, policy, moves)
        finally:
            served.stop()
    if options.save:
        (HERE / "results" / "page.txt").write_text("\n".join(PAGE) + "\n")


def measured(browser: Browser, served: Served, name: str, policy: str, moves: int) -> None:
    context = opened(browser)
    page = context.new_page()
    page.goto(f"{served.url}/explore?epsilon=1&delta=1e-6&policy={policy}")
    slide(page, "epsilon", 500)  # the helper is awake
    followed(page)
    fresh = places(2 * moves)
    calm = [moved(page, at, wait=True) for at in fresh[:moves]]
    hasty = [moved(page, at, wait=False) for at in fresh[moves:]]
    again = [moved(page, at, wait=False) for at in fresh[: moves // 2]]
    context.close()
    reached = statistics.median(calm)
    say(f"  {name:22s} {figures(calm)}   (goal at most 100 ms: {'reached' if reached <= 100 else 'missed'})")
    say(f"  {'':22s} {figures(hasty)}   moved on at once")
    say(f"  {'':22s} {figures(again)}   seen before")


def places(count: int) -> list[int]:
    """Places of the slider, each with a number of its own: half below 1, half above, in turn."""
    low = [Fraction(20 + 80 * i // (count // 2), 100) for i in range(count // 2)]
    high = [Fraction(10 + 40 * i // (count // 2), 10) for i in range(count // 2)]
    return [place(value) for pair in zip(low, high, strict=True) for value in pair]


def place(epsilon: Fraction) -> int:
    """Where the slider from 0.05 to 10 stands for a number."""
    return round(1000 * math.log(epsilon / Fraction(5, 100)) / math.log(200))


def moved(page: Page, at: int, wait: bool) -> float:
    slide(page, "epsilon", at)
    took = float(page.evaluate("window.sliderTook"))
    if wait:
        followed(page)
    return took


def followed(page: Page) -> None:
    until(page, "!document.querySelector('#more')")


def figures(times: list[float]) -> str:
    ordered = sorted(times)
    high = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"median {statistics.median(ordered):4.0f}   p90 {high:4.0f}   most {ordered[-1]:4.0f}   of {len(ordered)}"


def say(line: str = "") -> None:
    print(line, flush=True)
    PAGE.append(line)


if __name__ == "__main__":
    main()
