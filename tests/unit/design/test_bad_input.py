"""Bad input gets one line that names the argument, the given value and the allowed ones, in library and command."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import countveil as cv

GOOD = {"epsilon": "1", "eta": "0.4", "D": 5, "policy": "signed"}
BAD_NUMBERS = [
    "-1",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e-400",
    "1e400",
    "",
    "abc",
    "1,5",
    "0x1",
    "１",
    "1_0",
    "1e999999999",
]
BAD_OBJECTS = [True, False, [1], (1,), {"a": 1}, None.__class__, object(), float("nan"), float("inf"), b"1"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "countveil", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argument", ["epsilon", "delta", "eta"])
@pytest.mark.parametrize(
    "given", BAD_NUMBERS + BAD_OBJECTS, ids=lambda given: "an object" if type(given) is object else repr(given)
)
def test_bad_numbers_are_refused_by_the_library(argument: str, given: object) -> None:
    request = {"epsilon": "1", "delta": "1e-6", "policy": "signed"} if argument == "delta" else GOOD
    with pytest.raises(cv.ParameterError) as caught:
        cv.design(**{**request, argument: given})  # type: ignore[arg-type]
    assert caught.value.argument == argument
    message = str(caught.value)
    assert message.startswith(f"{argument}: got ")
    assert "allowed is" in message
    assert "\n" not in message
    assert len(message) < 250


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("delta", 0),
        ("delta", "0"),
        ("delta", "1"),
        ("delta", "2"),
        ("epsilon", "101"),
        ("epsilon", "1e-9"),
        ("eta", 0),
        ("eta", 1),
        ("eta", "1.5"),
        ("D", 0),
        ("D", -3),
        ("D", 10**9),
        ("D", 2.5),
        ("D", "2.5"),
        ("D", True),
        ("D", "many"),
        ("D", [3]),
        ("bits", 65),
        ("bits", "sixty"),
        ("sensitivity", 0),
        ("sensitivity", 1.5),
        ("max_variance", "-1"),
        ("max_variance", "nan"),
        ("policy", "none"),
        ("method", "magic"),
        ("objective", "both"),
        ("unbiased_from", -1),
        ("counts", "5"),
        ("counts", "9:3"),
        ("counts", "a:b"),
        ("counts", "1:2:3"),
        ("counts", 7),
        ("cap", "yes"),
    ],
)
def test_values_out_of_range_are_refused_by_the_library(argument: str, given: object) -> None:
    request = {"epsilon": "1", "delta": "1e-6", "policy": "signed"} if argument == "delta" else GOOD
    with pytest.raises(cv.ParameterError) as caught:
        cv.design(**{**request, argument: given})  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["--epsilon", "--eta", "-D"])
@pytest.mark.parametrize("given", ["-1", "nan", "inf", "1e-400", "true", "[1]", ""])
def test_bad_numbers_are_refused_on_the_command_line(option: str, given: str) -> None:
    arguments = {"--epsilon": "1", "--eta": "0.4", "-D": "5", option: given}
    flat = [word for pair in arguments.items() for word in pair]
    done = run("design", *flat, "--policy", "signed")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"countveil: {option.strip('-')}: got ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", "1"),
        ("--epsilon", "1", "--delta", "1e-6", "--eta", "0.4", "-D", "9"),
        ("--epsilon", "1", "--delta", "0"),
        ("--epsilon", "1", "--delta", "1e-6", "--eta", "0.9", "--policy", "signed"),
        ("--epsilon", "1", "--delta", "1e-6", "-D", "3", "--policy", "signed"),
        ("--epsilon", "1", "--eta", "0.4", "-D", "10", "--method", "paper"),
        ("--epsilon", "1.1", "--eta", "0.01", "-D", "6", "--method", "paper", "--policy", "signed"),
        ("--epsilon", "1", "--eta", "0.4", "-D", "10", "--cap"),
        ("--epsilon", "1.5", "--delta", "1e-9", "--counts", "0:10", "--policy", "floor"),
        ("--epsilon", "1.5", "--delta", "1e-2", "--eta", "0.3", "--counts", "0:3", "--policy", "floor"),
        ("--epsilon", "1", "--eta", "0.5", "-D", "2", "--counts", "0:2", "--policy", "floor"),
        ("--epsilon", "1", "--eta", "0.4", "-D", "10", "--nonsense"),
        ("--epsilon",),
        ("--epsilon", "1", "--delta", "1e-6", "-o", "/nonexistent/folder/m.json", "--policy", "signed"),
    ],
    ids=" ".join,
)
def test_bad_requests_are_refused_on_the_command_line(arguments: tuple[str, ...]) -> None:
    done = run("design", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("countveil: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_float_stands_for_its_shortest_decimal() -> None:
    assert cv.design(epsilon=1.1, eta=0.5, D=8, policy="signed").hash == (
        cv.design(epsilon="1.1", eta="0.5", D=8, policy="signed").hash
    )


def test_margin_accepts_a_level_as_text_or_number_and_refuses_others() -> None:
    law = cv.design(**GOOD).law(9)  # type: ignore[arg-type]
    assert law.margin("0.95") == law.margin(0.95) == law.margin(Fraction(95, 100))
    assert law.margin("1") == law.worst_error
    for level in ("95", 1.5, -1, "nan", True, None, "most"):
        with pytest.raises(cv.ParameterError, match=r"level: got .*, allowed is a probability"):
            law.margin(level)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "count",
    [-1, 2.5, "many", True, None, 2**63, 10**30],
    ids=lambda given: "an object" if type(given) is object else repr(given),
)
def test_bad_counts_are_not_released(count: object) -> None:
    m = cv.design(**GOOD)  # type: ignore[arg-type]
    with pytest.raises(cv.ParameterError, match="count: got"):
        m.release(count)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["missing.json", "folder", "binary", "empty", "list", "text", "deep"])
def test_files_without_a_mechanism_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    bodies = {"binary": b"\xff\xfe\x00", "empty": b"", "list": b"[]", "text": b'{"format": 1}', "deep": b"[" * 100_000}
    if name == "folder":
        path.mkdir()
    elif name in bodies:
        path.write_bytes(bodies[name])
    done = run("certify", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"countveil: {path}: ")
    assert done.stderr.count("\n") == 1
    assert json.dumps(done.stderr)
