"""API keys: their holders, roles and limits of answers.

A key is `cvk_` + a public identifier + `_` + a secret of 256 random bits. The file stores the SHA-256 of the secret, so
the file reveals no key; a secret of that size needs no slow hash. A key is looked up by its identifier, and the hash
of its secret is compared in constant time. If there is no such key, a fixed hash is compared instead, so that a refusal
takes as long as an acceptance.

The file is replaced as a whole, under a lock. A running server reads it again when it has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from countveil.errors import ConfigError, ParameterError, RequestError, shorten
from countveil.files.durable_files import open_private, replace_private
from countveil.ledger import Most
from countveil.numeric.exact_numbers import integer
from countveil.planning.grades import check_name
from countveil.sampling.randomness import token

ROLES = ("analyst", "curator")
PREFIX = "cvk_"
SHAPE = re.compile(r"cvk_([0-9a-z]{10})_([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True)
class Key:
    """One API key, without its secret.

    `answers` limits how many answers of a pool its holder may pay for: a number for all grades together, or a number
    for each named grade. None means no limit.
    """

    name: str
    role: str
    answers: Most | None
    id: str
    sha256: str
    created: str
    revoked: str | None = None


class Keyring:
    """The keys of a service, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file_state: tuple[int, int, int] | None = None
        self._keys: dict[str, Key] = {}

    def keys(self) -> list[Key]:
        """All keys, revoked ones too, oldest first."""
        with self._lock:
            self._refresh()
            return list(self._keys.values())

    def recognise(self, given: str) -> Key | None:
        """The key with this text; None if the key is unknown or revoked."""
        match = SHAPE.fullmatch(given)
        with self._lock:
            self._refresh()
            known = self._keys.get(match[1]) if match else None
        right = hmac.compare_digest(_hash(match[2] if match else ""), known.sha256 if known else _NOBODY)
        return known if known is not None and right and known.revoked is None else None

    def find_active(self, id: str) -> Key | None:
        """The key with this public identifier; None if it is unknown or revoked."""
        with self._lock:
            self._refresh()
            known = self._keys.get(id)
        return known if known is not None and known.revoked is None else None

    def add(self, name: str, role: str = "analyst", answers: str | Most | None = None) -> tuple[Key, str]:
        """Create a key. Returns the key and its secret text, which is stored nowhere.

        `answers` limits what the holder may pay for: a number, or numbers by grade.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError("name", name, "1 to 64 letters, digits and . _ @ -, beginning with a letter or digit")
        if role not in ROLES:
            raise ParameterError("role", role, "analyst or curator")
        if name == "curator" and role != "curator":
            raise ParameterError(
                "name",
                name,
                "another name: the command line asks as curator, so only the key of a curator may have this name",
            )
        most: Most | None
        if isinstance(answers, Mapping):
            most = {check_name(name): integer("answers", many, 1, 10**6) for name, many in answers.items()}
        else:
            most = None if answers is None else integer("answers", answers, 1, 10**6)
        with self._change_keys() as keys:
            if any(key.name == name and key.revoked is None for key in keys.values()):
                raise RequestError(f"{name} has a key; revoke it first: countveil keys revoke {name}")
            secret, id = token(32), token(5)
            key = Key(name, role, most, id, _hash(secret), _now())
            keys[id] = key
        return key, f"{PREFIX}{id}_{secret}"

    def revoke(self, name: str) -> Key:
        """Revoke the key of this name. Answers that it paid for stay charged."""
        with self._change_keys() as keys:
            for key in keys.values():
                if key.name == name and key.revoked is None:
                    keys[key.id] = replace(key, revoked=_now())
                    return keys[key.id]
            raise RequestError(f"{shorten(name)} has no key; see: countveil keys list")

    # -- the file ----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the file again if it has changed. Without a file there are no keys; a damaged file is an error."""
        try:
            status = self.path.stat()
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if state == self._file_state:
                return
            if not stat.S_ISREG(status.st_mode):
                raise OSError("a pipe or a device could be endless")
            self._keys = _read(self.path.read_bytes(), self.path)
            self._file_state = state
        except FileNotFoundError:
            self._file_state, self._keys = None, {}
        except OSError:
            raise ConfigError("service.keys", f"{self.path.name} cannot be read; check its permissions") from None

    @contextmanager
    def _change_keys(self) -> Iterator[dict[str, Key]]:
        with self._lock, self._lock_file():
            self._file_state = None
            self._refresh()
            keys = dict(self._keys)
            yield keys
            body = {"format": "countveil-keys", "version": 1, "keys": [asdict(key) for key in keys.values()]}
            try:  # durable: a revoked key must stay revoked after a power failure
                replace_private(self.path, json.dumps(body, indent=1).encode())
            except OSError as error:
                raise _write_error(self.path, error) from None
            self._file_state = None

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        try:
            lock = open_private(self.path.with_name(f".{self.path.name}.lock"))
        except OSError as error:
            raise _write_error(self.path, error) from None
        with open(lock, "rb"):
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read(content: bytes, path: Path) -> dict[str, Key]:
    try:
        body: Any = json.loads(content)
        if (body["format"], body["version"]) != ("countveil-keys", 1):
            raise ValueError
        keys = [Key(**entry) for entry in body["keys"]]
        for key in keys:
            if key.role not in ROLES or not _NAME.fullmatch(key.name) or not SHAPE.fullmatch(_shape(key)):
                raise ValueError
            limits = [*key.answers.values()] if isinstance(key.answers, dict) else [key.answers]
            if key.answers is not None and not all(type(limit) is int and limit > 0 for limit in limits):
                raise ValueError
            datetime.fromisoformat(key.created)
            if key.revoked is not None:
                datetime.fromisoformat(key.revoked)
        if len({key.id for key in keys}) != len(keys):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError("service.keys", f"{path.name} is not a file of keys, or it is damaged") from None
    return {key.id: key for key in keys}


def _shape(key: Key) -> str:
    """A key's identifier and hash, joined like the text of a key, so that the same pattern checks both."""
    return PREFIX + key.id + "_" + key.sha256


def _write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError("service.keys", f"{path.name} cannot be written ({error.strerror})")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
