"""Loading a mechanism file refuses every claim that its weights do not have."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import countveil as cv

DESIGNS = {
    "signed": {"epsilon": "1", "delta": "1e-6", "policy": "signed"},
    "floor": {"epsilon": "1", "delta": "1e-6", "policy": "floor"},
    "remap": {"epsilon": "1", "delta": "1e-6", "method": "remap"},
    "program": {"epsilon": "1", "eta": "0.4", "D": 4, "method": "program"},
    "capped": {"epsilon": "1", "eta": "0.4", "D": 3, "counts": "0:40", "cap": True, "method": "program"},
}


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the hash of its content, which an attacker can always compute."""
    body = {key: value for key, value in document.items() if key != "hash"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {**body, "hash": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.parametrize("name", DESIGNS)
def test_a_saved_mechanism_loads_unchanged(tmp_path: Path, name: str) -> None:
    m = cv.design(**DESIGNS[name])  # type: ignore[arg-type]
    path = tmp_path / "m.json"
    m.save(path)
    again = cv.Mechanism.load(path)
    assert again.hash == m.hash
    assert again.certificate == m.certificate
    assert again.laws == m.laws
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def smaller_delta(d: dict[str, Any]) -> None:
    d["claims"]["delta"] = "1e-9"


def larger_eta(d: dict[str, Any]) -> None:
    d["claims"]["eta"] = "0.9"


def smaller_bound(d: dict[str, Any]) -> None:
    d["claims"]["D"] = 1
    d["claims"]["worst_error"] = 1


def smaller_epsilon(d: dict[str, Any]) -> None:
    d["claims"]["epsilon"] = "1/2"


def larger_sensitivity(d: dict[str, Any]) -> None:
    d["claims"]["sensitivity"] = 2


def smaller_bias(d: dict[str, Any]) -> None:
    d["claims"]["bias_below"] = "-1"


def one_unit_moved(d: dict[str, Any]) -> None:
    """Move one unit of the stationary law by one z, so that the mean is no longer zero."""
    law = d["columns"].get("source") or d["columns"]["stationary"]
    middle = law["left"]
    law["weights"][middle + 1] = str(int(law["weights"][middle + 1]) + 1)
    law["weights"][middle - 1] = str(int(law["weights"][middle - 1]) - 1)


def weight_lost(d: dict[str, Any]) -> None:
    law = d["columns"].get("source") or d["columns"]["stationary"]
    law["weights"][0] = "0"


def negative_weight(d: dict[str, Any]) -> None:
    law = d["columns"].get("source") or d["columns"]["stationary"]
    law["weights"][0] = "-1"


def float_weight(d: dict[str, Any]) -> None:
    law = d["columns"].get("source") or d["columns"]["stationary"]
    law["weights"][0] = 1.5


def infinite_delta(d: dict[str, Any]) -> None:
    d["claims"]["delta"] = "NaN"


def unknown_kind(d: dict[str, Any]) -> None:
    d["columns"]["kind"] = "trust me"


def clamped_to_zero(d: dict[str, Any]) -> None:
    """Treat every count as 0, although larger counts are promised."""
    if d["columns"]["kind"] == "columns":
        d["columns"]["high"] = 0
        d["columns"]["small"] = d["columns"]["top"] = []
    else:
        d["columns"]["n0"] = 0


def renamed_policy(d: dict[str, Any]) -> None:
    d["policy"] = "pure"


def claims_more(d: dict[str, Any]) -> None:
    d["claims"]["pure_epsilon"] = True


def endless_law(d: dict[str, Any]) -> None:
    law = d["columns"].get("source") or d["columns"]["stationary"]
    law["left"] = 10**12


def endless_promise(d: dict[str, Any]) -> None:
    d["counts"]["low"] = -(10**9)


def smaller_error(d: dict[str, Any]) -> None:
    d["claims"]["worst_error"] -= 1


def earlier_eta(d: dict[str, Any]) -> None:
    d["claims"]["eta_from"] -= 1


def longer_range(d: dict[str, Any]) -> None:
    d["claims"]["unbiased_to"] = 10**6


def other_format(d: dict[str, Any]) -> None:
    d["version"] = 2


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(
    "forge",
    [
        smaller_delta,
        larger_eta,
        smaller_bound,
        smaller_epsilon,
        larger_sensitivity,
        smaller_bias,
        one_unit_moved,
        weight_lost,
        negative_weight,
        float_weight,
        infinite_delta,
        unknown_kind,
        clamped_to_zero,
        renamed_policy,
        claims_more,
        endless_law,
        endless_promise,
        smaller_error,
        earlier_eta,
        longer_range,
        other_format,
    ],
    ids=lambda f: f.__name__,
)
def test_mechanism_files_with_forged_claims_are_refused(
    tmp_path: Path, name: str, forge: Callable[[dict[str, Any]], None]
) -> None:
    path = tmp_path / "m.json"
    cv.design(**DESIGNS[name]).save(path)  # type: ignore[arg-type]
    document = json.loads(path.read_text())
    forge(document)
    path.write_text(json.dumps(sealed(document)))
    with pytest.raises(cv.CertificateError) as caught:
        cv.Mechanism.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["remap", "capped"])
def test_unknown_members_of_a_mechanism_file_are_refused_at_every_level(name: str) -> None:
    """They are refused even if the hash is right, because an unknown member may be a limit."""
    document = json.loads(cv.design(**DESIGNS[name]).to_text())  # type: ignore[arg-type]
    places = members(document)
    assert len(places) > {"remap": 4, "capped": 8}[name]
    for where in places:
        forged = json.loads(json.dumps(document))
        inner = forged
        for step in where:
            inner = inner[step]
        inner["valid_until"] = "2020-01-01"
        with pytest.raises(cv.CertificateError, match="unknown members: valid_until"):
            cv.Mechanism.from_text(json.dumps(sealed(forged)))


def members(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every object in a document."""
    found = [path] if isinstance(part, dict) else []
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    return found + [place for key, value in inner for place in members(value, (*path, key))]


def test_a_claimed_delta_may_exceed_the_measured_one(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    cv.design(**DESIGNS["signed"]).save(path)  # type: ignore[arg-type]
    document = json.loads(path.read_text())
    document["claims"]["delta"] = "0.01"
    path.write_text(json.dumps(sealed(document)))
    assert cv.Mechanism.load(path).delta < 1e-6


def test_a_mechanism_file_whose_content_does_not_fit_its_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    cv.design(**DESIGNS["signed"]).save(path)  # type: ignore[arg-type]
    document = json.loads(path.read_text())
    document["notes"] = ["this was not here"]
    path.write_text(json.dumps(document))
    with pytest.raises(cv.CertificateError, match="hash"):
        cv.Mechanism.load(path)


def test_a_signed_mechanism_cannot_pass_for_a_non_negative_one(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    cv.design(**DESIGNS["signed"]).save(path)  # type: ignore[arg-type]
    document = json.loads(path.read_text())
    document["policy"] = "nonnegative"
    path.write_text(json.dumps(sealed(document)))
    with pytest.raises(cv.CertificateError, match="negative"):
        cv.Mechanism.load(path)
    document["policy"], document["claims"]["never_negative"] = "signed", True
    path.write_text(json.dumps(sealed(document)))
    with pytest.raises(cv.CertificateError, match="negative"):
        cv.Mechanism.load(path)


def test_notes_of_a_file_are_shown_as_plain_text(tmp_path: Path) -> None:
    """Notes are shown as text, not as markup, and as not certified."""
    path = tmp_path / "m.json"
    cv.design(**DESIGNS["signed"]).save(path)  # type: ignore[arg-type]
    document = json.loads(path.read_text())
    document["notes"] = ["[/x] epsilon 0 [bold]"]
    path.write_text(json.dumps(sealed(document)))
    done = subprocess.run(
        [sys.executable, "-m", "countveil", "certify", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "not certified: [/x] epsilon 0 [bold]" in done.stdout
    path.write_text(path.read_text().replace("[/x] epsilon 0", "\\ud800"))
    with pytest.raises(cv.CertificateError):
        cv.Mechanism.load(path)


def test_a_save_that_fails_leaves_no_file_and_a_save_follows_links(tmp_path: Path) -> None:
    m = cv.design(**DESIGNS["signed"])  # type: ignore[arg-type]
    for bad in (tmp_path, "", tmp_path / "no" / "folder.json", "a\0b"):
        with pytest.raises(cv.ParameterError):
            m.save(bad)
    assert list(tmp_path.iterdir()) == []
    link, target = tmp_path / "link.json", tmp_path / "real.json"
    target.write_text("{}")
    link.symlink_to(target)
    m.save(link)
    assert link.is_symlink()
    assert cv.Mechanism.load(target).hash == m.hash
    m.save("/dev/null")


def test_duplicate_members_of_a_mechanism_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"format": "a", "format": "b"}')
    with pytest.raises(cv.CertificateError, match="twice"):
        cv.Mechanism.load(path)
