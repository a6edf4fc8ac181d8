"""The audit accepts the sampler as it is and refutes planted bugs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import countveil as cv
from countveil.cli import main
from countveil.mechanism.sampler_audit import SamplerAudit, audit, beta_regularised, clopper_pearson_lower, gamma_upper
from countveil.sampling.randomness import NoiseKey
from countveil.sampling.sampler import Sampler

Counts = NDArray[np.int64]


@pytest.mark.parametrize("a", [0.5, 3, 40, 5000])
@pytest.mark.parametrize("b", [0.5, 2, 300, 100_000])
def test_the_beta_function_agrees_with_scipy(a: float, b: float) -> None:
    for x in (1e-6, 0.01, 0.3, 0.5, 0.9, 0.999):
        assert math.isclose(beta_regularised(x, a, b), stats.beta.cdf(x, a, b), rel_tol=1e-7, abs_tol=1e-12)


@pytest.mark.parametrize("a", [0.5, 2, 17, 300])
def test_the_gamma_function_agrees_with_scipy(a: float) -> None:
    for x in (0.01, 0.5, a / 2, a, 2 * a, 5 * a + 10):
        assert math.isclose(gamma_upper(a, x), stats.gamma.sf(x, a), rel_tol=1e-7, abs_tol=1e-14)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (10, 10), (300, 1000), (999_000, 1_000_000)])
def test_the_clopper_pearson_bound_agrees_with_scipy(k: int, n: int) -> None:
    expected = 0.0 if k == 0 else stats.beta.ppf(1e-7, k, n - k + 1)
    assert math.isclose(clopper_pearson_lower(k, n, 1e-7), expected, rel_tol=1e-6, abs_tol=1e-12)


MECHANISMS = {
    "signed": cv.design(epsilon="1", delta="1e-4", policy="signed"),
    "program": cv.design(epsilon="1", eta="0.4", D=6, method="program"),
    "remap": cv.design(epsilon="1", delta="1e-4", method="remap"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_running_sampler_is_not_refuted(name: str) -> None:
    found = audit(MECHANISMS[name], 200_000)
    assert not found.is_refuted
    assert 0.8 <= found.epsilon_lower <= 1, "the bound comes close to what is claimed"


def bugs(m: cv.Mechanism) -> dict[str, Callable[[Counts], Counts]]:
    """Samplers with planted bugs, by a description of the bug."""

    def good(counts: Counts) -> Counts:
        return m.sampler.release(counts, NoiseKey())

    return {
        "noise halved": lambda n: n + (good(n) - n) // 2,
        "noise forgotten once in thirty": lambda n: np.where(np.arange(len(n)) % 30 == 0, n, good(n)),
        "column of the next count": lambda n: good(n + 1) - 1,
        "shifted by one": lambda n: good(n) + 1,
        "no noise for large counts": lambda n: np.where(n > 1000, n, good(n)),
        "every second cell repeats its neighbour": lambda n: n + np.repeat((good(n) - n)[::2], 2)[: len(n)],
        "the same noise in every release": lambda n: m.sampler.release(n, NoiseKey(bytes(32))),
        "cut at D - 4": lambda n: n + np.clip(good(n) - n, -(m.D - 4), m.D - 4),
    }


@pytest.mark.parametrize("bug", list(bugs(MECHANISMS["program"])))
def test_samplers_with_planted_bugs_are_refuted(bug: str) -> None:
    m = MECHANISMS["program"]
    assert audit(m, 200_000, release=bugs(m)[bug]).is_refuted


def test_a_mechanism_that_claims_too_little_epsilon_is_refuted() -> None:
    """The draws are right for the true epsilon; the bound on privacy alone refutes the smaller claim."""
    m = MECHANISMS["signed"]
    lying = replace(m, certificate=replace(m.certificate, epsilon=m.epsilon / 2))
    found = audit(lying, 200_000)
    assert found.epsilon_lower > float(lying.epsilon)
    assert found.is_refuted
    assert isinstance(found, SamplerAudit)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "countveil", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow  # a million draws
def test_the_command_accepts_a_sound_sampler_and_refuses_bad_numbers_of_draws(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    MECHANISMS["remap"].save(path)
    done = run("audit", "-m", str(path), "--draws", "100000")
    assert done.returncode == 0, done.stderr
    assert "the draws do not contradict the certificate" in done.stdout
    done = run("audit", "-m", str(path), "--draws", "100000", "--json")
    result = json.loads(done.stdout)
    assert result["refuted"] is False
    assert 0 < float(result["epsilon_lower"]) <= 1
    for bad in ("10", "many", "-5", "1e12"):
        done = run("audit", "-m", str(path), "--draws", bad)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_the_command_exits_with_1_if_the_sampler_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sampler is replaced by one that halves the noise."""
    path = tmp_path / "m.json"
    MECHANISMS["signed"].save(path)
    sound = Sampler.release

    def broken(self: Sampler, counts: Counts, bits: NoiseKey, **options: Any) -> Counts:
        return counts + (sound(self, counts, bits, **options) - counts) // 2

    monkeypatch.setattr(Sampler, "release", broken)
    monkeypatch.setattr(sys, "argv", ["countveil", "audit", "-m", str(path), "--draws", "50000"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 1
    assert "REFUTED" in capsys.readouterr().out
