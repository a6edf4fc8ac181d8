"""API keys: who may ask, in which role, and for how many answers.

A key is `cvk_` + a public identifier + `_` + a secret of 256 random bits. The file holds the SHA-256 of the secret, so
whoever reads the file has no key; a secret of that size needs no slow hash. A key is looked up by its identifier and
compared in constant time, against a hash of nothing if there is no such key: a refusal takes as long as an acceptance.

The file is replaced whole, under a lock; a server that is running reads it again when it has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from countveil.durable_files import open_private, replace_private
from countveil.errors import ConfigError, ParameterError, RequestError, shortened
from countveil.exact import integer
from countveil.sampling.entropy import token

ROLES = ("analyst", "curator")
PREFIX = "cvk_"
SHAPE = re.compile(r"cvk_([0-9a-z]{10})_([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True)
class Key:
    """One key. `answers` is how many answers of a pool its holder may pay for; None is all that the pool has."""

    name: str
    role: str
    answers: int | None
    id: str
    sha256: str
    created: str
    revoked: str | None = None


class Keyring:
    """The keys of a service, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, Key] = {}

    def keys(self) -> list[Key]:
        """Every key, revoked ones too, oldest first."""
        with self._lock:
            self._refresh()
            return list(self._keys.values())

    def recognised(self, given: str) -> Key | None:
        """The key that was given, if it is one and not revoked."""
        match = SHAPE.fullmatch(given)
        with self._lock:
            self._refresh()
            known = self._keys.get(match[1]) if match else None
        right = hmac.compare_digest(_hash(match[2] if match else ""), known.sha256 if known else _NOBODY)
        return known if known is not None and right and known.revoked is None else None

    def active(self, id: str) -> Key | None:
        """The key of this public identifier, unless it is revoked."""
        with self._lock:
            self._refresh()
            known = self._keys.get(id)
        return known if known is not None and known.revoked is None else None

    def add(self, name: str, role: str = "analyst", answers: int | str | None = None) -> tuple[Key, str]:
        """A new key and its text, which is shown once and kept nowhere."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError("name", name, "1 to 64 letters, digits and . _ @ -, beginning with a letter or digit")
        if role not in ROLES:
            raise ParameterError("role", role, "analyst or curator")
        if name == "curator" and role != "curator":
            raise ParameterError("name", name, "another name: the command line asks as curator")
        most = None if answers is None else integer("answers", answers, 1, 10**6)
        with self._changing() as keys:
            if any(key.name == name and key.revoked is None for key in keys.values()):
                raise RequestError(f"{name} has a key; revoke it first: countveil keys revoke {name}")
            secret, id = token(32), token(5)
            key = Key(name, role, most, id, _hash(secret), _now())
            keys[id] = key
        return key, f"{PREFIX}{id}_{secret}"

    def revoke(self, name: str) -> Key:
        """Refuse a key from now on. What was charged under its name stays charged."""
        with self._changing() as keys:
            for key in keys.values():
                if key.name == name and key.revoked is None:
                    keys[key.id] = replace(key, revoked=_now())
                    return keys[key.id]
            raise RequestError(f"{shortened(name)} has no key; see: countveil keys list")

    # -- the file ----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the file again if it changed. No file, no keys; a damaged file, no service."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen == self._seen:
                return
            self._keys = _read(self.path.read_bytes(), self.path)
            self._seen = seen
        except FileNotFoundError:
            self._seen, self._keys = None, {}
        except OSError:
            raise ConfigError("service.keys", f"{self.path.name} cannot be read; check its permissions") from None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Key]]:
        with self._lock, self._alone():
            self._seen = None
            self._refresh()
            keys = dict(self._keys)
            yield keys
            body = {"format": "countveil-keys", "version": 1, "keys": [asdict(key) for key in keys.values()]}
            try:  # durable: a key that was refused is not accepted again after a power failure
                replace_private(self.path, json.dumps(body, indent=1).encode())
            except OSError as error:
                raise _unwritten(self.path, error) from None
            self._seen = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            lock = open_private(self.path.with_name(f".{self.path.name}.lock"))
        except OSError as error:
            raise _unwritten(self.path, error) from None
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
            if key.answers is not None and (type(key.answers) is not int or key.answers < 1):
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
    """An identifier and a hash in the shape of a key, which has as many digits."""
    return PREFIX + key.id + "_" + key.sha256


def _unwritten(path: Path, error: OSError) -> ConfigError:
    return ConfigError("service.keys", f"{path.name} cannot be written ({error.strerror})")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
