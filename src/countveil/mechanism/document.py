"""Mechanism files: integer weights, the claims made for them, and a content hash.

Loading trusts no claim. The laws are rebuilt from the weights, everything is measured again, and a file
whose hash or claims do not fit its weights is refused. Claims are compared in the safe direction: a file may
claim a larger delta than it has, never a smaller one. Loading returns the parts of a mechanism, from
which `countveil.mechanism.mechanism` makes the Mechanism.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

from countveil.errors import CertificateError
from countveil.files.durable_files import open_output
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.remap import Remap, Row
from countveil.mechanism.certificate import Certificate, Policy, Terms, measure
from countveil.numeric.exact_numbers import decimal_text, number

FORMAT = "countveil-mechanism"
VERSION = 1
LARGEST_FILE = 256 * 1024 * 1024
LARGEST_LAW = 400_000
LARGEST_BITS = 128
LARGEST_SENSITIVITY = 1000
POLICIES = get_args(Policy)
METHODS = ("paper", "optimal", "program", "remap", "gaussian")
_DIGITS = 20
Parts = tuple[Laws, Certificate, Terms]
"""The parts of a mechanism: laws, the certificate measured on them, and the terms they are measured under."""
_MEMBERS = ("format", "version", "policy", "method", "counts", "columns", "claims", "notes", "hash")


def save(text: str, path: str | Path) -> None:
    """Write a mechanism file, which appears only when complete; devices and pipes are written to directly."""
    with open_output(path) as file:
        file.write(text.encode())


def load(path: str | Path) -> Parts:
    """Read a mechanism file, rebuild its laws and measure them; raises CertificateError if a claim is false."""
    try:
        size = os.path.getsize(path)
        text = "" if size > LARGEST_FILE else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}); give the path of a mechanism.json"
        ) from None
    except (ValueError, TypeError):
        raise CertificateError(f"{path}: not a text file; give the path of a mechanism.json") from None
    if size > LARGEST_FILE:
        raise CertificateError(
            f"{path}: larger than {LARGEST_FILE} bytes, so not a mechanism file; give the path of a mechanism.json"
        )
    try:
        return from_text(text)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None


def to_text(body: Mapping[str, Any], content_hash: str) -> str:
    """The text of a mechanism file: the JSON of `body`, with the content hash added."""
    return json.dumps({**body, "hash": content_hash}, indent=1) + "\n"


def from_text(text: str) -> Parts:
    """The parts of a mechanism from the text of its file: rebuilt, measured, and compared with the claims."""
    try:
        document = json.loads(text, object_pairs_hook=_no_duplicates)
        json.dumps(document, ensure_ascii=False).encode()  # refuses lone surrogates
        return rebuild(document)
    except CertificateError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise CertificateError(f"not a valid mechanism file ({_one_line(error)})") from None


def content(
    laws: Laws,
    certificate: Certificate,
    policy: str,
    method: str,
    D: int,
    counts: tuple[int, int | None],
    notes: tuple[str, ...],
) -> dict[str, Any]:
    """Everything that is sampled or claimed, as plain JSON values: the body of a mechanism file, without its hash."""
    low, high = counts
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy,
        "method": method,
        "counts": {"low": low, "high": high},
        "columns": _laws_to_json(laws),
        "claims": claims(certificate, D),
        "notes": list(notes),
    }


def claims(certificate: Certificate, D: int) -> dict[str, Any]:
    """The certificate as JSON values: probabilities and errors as texts, with delta and bias_below rounded up.

    The other figures are rounded to the nearest.
    """
    c = certificate
    return {
        "epsilon": str(c.epsilon),
        "sensitivity": c.sensitivity,
        "delta": decimal_text(c.delta, _DIGITS, "up"),
        "D": D,
        "worst_error": c.worst_error,
        "eta": decimal_text(c.eta, _DIGITS),
        "eta_from": c.eta_from,
        "eta_to": c.eta_to,
        "unbiased_from": c.unbiased_from,
        "unbiased_to": c.unbiased_to,
        "bias_below": decimal_text(c.bias_below, _DIGITS, "up"),
        "variance": decimal_text(c.variance, _DIGITS),
        "never_negative": c.never_negative,
        "bits": c.bits,
    }


def rebuild(document: Mapping[str, Any]) -> Parts:
    """The parts of a mechanism from its parsed file; raises CertificateError if the hash or any claim is wrong."""
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise CertificateError(f"not a file of format {FORMAT} version {VERSION}; write it with `countveil design`")
    _check_members("the file", document, _MEMBERS)
    _check_members("counts", document["counts"], ("low", "high"))
    stated = document["claims"]
    if document["policy"] not in POLICIES or document["method"] not in METHODS:
        raise CertificateError(
            f"policy {_one_line(document['policy'])} or method {_one_line(document['method'])} is unknown; "
            f"the policies are {', '.join(POLICIES)}, and the methods are {', '.join(METHODS)}"
        )
    counts = (_integer(document["counts"]["low"]), _optional(document["counts"]["high"]))
    epsilon = number("epsilon", stated["epsilon"])
    if not 0 <= epsilon <= 100 or not 1 <= _integer(stated["sensitivity"]) <= LARGEST_SENSITIVITY:
        allowed = f"an epsilon from 0 to 100 and a sensitivity from 1 to {LARGEST_SENSITIVITY}"
        raise CertificateError(f"the claims must have {allowed}")
    terms = Terms(
        epsilon=epsilon,
        policy=str(document["policy"]),
        method=str(document["method"]),
        D=_integer(stated["D"]),
        sensitivity=_integer(stated["sensitivity"]),
        counts=counts,
        notes=tuple(str(note) for note in document["notes"]),
    )
    laws = _parse_laws(document["columns"])
    certificate = measure(laws, terms.epsilon, terms.sensitivity, terms.counts)
    _check(stated, certificate, terms)
    body = {key: value for key, value in document.items() if key != "hash"}
    if document["hash"] != hash_content(body):
        raise CertificateError("the content does not have the stated hash; the file was changed after it was made")
    return laws, certificate, terms


def _check(stated: Mapping[str, Any], c: Certificate, terms: Terms) -> None:
    """Compare every claim of a file with the measured certificate; refuse false, unknown and missing claims."""
    known = claims(c, terms.D)
    _check_members("claims", stated, known)
    if set(stated) != set(known):
        raise CertificateError("the file lacks the claims " + ", ".join(sorted(set(known) - set(stated))))
    if terms.policy == "nonnegative" and not c.never_negative:
        raise CertificateError("the file has policy nonnegative, but its weights allow negative releases")

    def at_least(name: str, measured: Fraction | int) -> None:
        if number(name, stated[name]) < measured:
            shown = decimal_text(Fraction(measured), 12, "up")
            raise CertificateError(f"the file claims {name} {stated[name]}, but its weights have {shown}")

    def same(name: str, measured: object) -> None:
        if stated[name] != measured:
            raise CertificateError(f"the file claims {name} {stated[name]}, but its weights have {measured}")

    at_least("delta", c.delta)
    at_least("D", c.noise_bound)
    at_least("worst_error", c.worst_error)
    at_least("bias_below", c.bias_below)
    at_least("eta_from", c.eta_from)
    if stated["unbiased_from"] is not None:
        if c.unbiased_from is None:
            raise CertificateError(
                f"the file claims zero bias from {stated['unbiased_from']} on, but its weights are biased"
            )
        at_least("unbiased_from", c.unbiased_from)
    same("eta_to", c.eta_to)
    same("unbiased_to", c.unbiased_to)
    same("eta", decimal_text(c.eta, _DIGITS))
    same("variance", decimal_text(c.variance, _DIGITS))
    same("bits", c.bits)
    if stated["never_negative"] and not c.never_negative:
        raise CertificateError("the file claims that no release is negative, but its weights allow negative releases")


# Laws as JSON and back


def _laws_to_json(laws: Laws) -> dict[str, Any]:
    if isinstance(laws, Remap):
        return {
            "kind": "remap",
            "source": _law(laws.source),
            "map_bits": laws.map_bits,
            "negative": _row(laws.negative),
            "rows": [_row(row) for row in laws.rows],
            "n0": laws.n0,
            "D": laws.D,
        }
    if isinstance(laws, LawsByCount):
        return {
            "kind": "columns",
            "low": laws.lo,
            "high": laws.hi,
            "small": [_law(law) for law in laws.small],
            "stationary": _law(laws.stationary),
            "top": [_law(law) for law in laws.top],
        }
    raise TypeError(f"laws must be LawsByCount or Remap, not {type(laws).__name__}")


def _parse_laws(stored: Mapping[str, Any]) -> Laws:
    parsers: dict[str, Callable[[Mapping[str, Any]], Laws]] = {"remap": _parse_remap, "columns": _parse_laws_by_count}
    return parsers[stored["kind"]](stored)


def _parse_laws_by_count(stored: Mapping[str, Any]) -> LawsByCount:
    _check_members("columns", stored, ("kind", "low", "high", "small", "stationary", "top"))
    return LawsByCount(
        stationary=_parse_law(stored["stationary"]),
        small=tuple(_parse_law(law) for law in stored["small"]),
        lo=_integer(stored["low"]),
        hi=_optional(stored["high"]),
        top=tuple(_parse_law(law) for law in stored["top"]),
    )


def _parse_remap(stored: Mapping[str, Any]) -> Remap:
    _check_members("columns", stored, ("kind", "source", "map_bits", "negative", "rows", "n0", "D"))
    if not 1 <= _integer(stored["map_bits"]) <= LARGEST_BITS or abs(_integer(stored["n0"])) > LARGEST_LAW:
        raise CertificateError(f"map_bits must be 1 to {LARGEST_BITS}, and n0 at most {LARGEST_LAW} in absolute value")
    return Remap(
        source=_parse_law(stored["source"]),
        negative=_parse_row(stored["negative"]),
        rows=tuple(_parse_row(row) for row in stored["rows"]),
        map_bits=_integer(stored["map_bits"]),
        n0=_integer(stored["n0"]),
        D=_integer(stored["D"]),
    )


def _law(law: Law) -> dict[str, Any]:
    return {"left": law.left, "bits": law.bits, "weights": [str(w) for w in law.weights]}


def _parse_law(stored: Mapping[str, Any]) -> Law:
    _check_members("a law", stored, ("left", "bits", "weights"))
    bits = _integer(stored["bits"])
    if not 1 <= bits <= LARGEST_BITS:
        raise CertificateError(f"a law has bits = {bits}; allowed are 1 to {LARGEST_BITS}")
    left, weights = _integer(stored["left"]), stored["weights"]
    if len(weights) > LARGEST_LAW or abs(left) > LARGEST_LAW:
        raise CertificateError(
            f'a law has {len(weights)} weights and "left" {left} (its least noise is {-left}); '
            f'allowed are at most {LARGEST_LAW} weights, and "left" from -{LARGEST_LAW} to {LARGEST_LAW}'
        )
    return Law(tuple(_weight(w) for w in weights), left, bits)


def _row(row: Row) -> list[list[Any]]:
    return [[y, str(weight)] for y, weight in row]


def _parse_row(stored: list[Any]) -> Row:
    return tuple((_integer(y), _weight(weight)) for y, weight in stored)


def _check_members(where: str, stored: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse members that this version does not know, because an ignored member might state a limit."""
    unknown = sorted(set(stored) - set(known))
    if unknown:
        shown = _one_line(", ".join(unknown))
        raise CertificateError(f"{where} has unknown members: {shown}; leave them out")


def _weight(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 80:
        raise CertificateError(
            f'the weight {_one_line(repr(text))} is not allowed; write a whole number as text, such as "12"'
        )
    return int(text)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CertificateError(f"a whole number is needed where the file has {_one_line(repr(value))}")
    return value


def _optional(value: object) -> int | None:
    return None if value is None else _integer(value)


def hash_content(body: Mapping[str, Any]) -> str:
    """The SHA-256 hash of a mechanism file's body, written as canonical JSON."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise CertificateError(f"the member {_one_line(repr(name))} occurs twice in an object; keep one of the two")
        members[name] = value
    return members


def _one_line(words: object) -> str:
    text = " ".join(str(words).split()) or type(words).__name__
    return text[:120]
