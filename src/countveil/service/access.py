"""Who asks? A key in the Authorization header, its role, and how often it may ask.

Every refusal for want of a right key is the same, whether the key is missing, malformed, unknown or revoked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from starlette.requests import Request

from countveil.keys import Key
from countveil.service.problems import FORBIDDEN, TOO_MANY, UNAUTHORIZED, Problem

_NEEDED = "send a key that the curator gave you: Authorization: Bearer cvk_..."
ANYONE = Key("anyone", "analyst", None, "", "", "")
"""Who asks without a key, where that is allowed."""
ENTERING = Key("anyone", "analyst", None, "login", "", "")
"""Who logs in: counted apart, so that nobody who explores keeps others out."""


class Rates:
    """How often each name may ask: `rate` a minute, up to ten seconds' worth at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._most = rate / 60, max(1.0, rate / 6)
        self._clock, self._lock = clock, threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """0 if it may ask now, otherwise the seconds until it may."""
        now = self._clock()
        with self._lock:
            left, since = self._left.get(name, (self._most, now))
            left = min(self._most, left + (now - since) * self._per_second)
            if left < 1:
                self._left[name] = (left, now)
                return (1 - left) / self._per_second
            self._left[name] = (left - 1, now)
            return 0.0


def key_of(request: Request) -> Key | None:
    """The key that a request carries, if it is a right one."""
    word, _, given = request.headers.get("authorization", "").partition(" ")
    found = request.app.state.keyring.recognised(given.strip() if word.lower() == "bearer" else "")
    return found if isinstance(found, Key) else None


async def holder(request: Request) -> Key:
    """Whoever has a right key, and has not asked too often. A request is counted once, however often this is asked."""
    known: Key | None = getattr(request.state, "key", None)
    if known is None:
        key = key_of(request)
        if key is None:
            raise Problem(UNAUTHORIZED, _NEEDED, {"WWW-Authenticate": 'Bearer realm="countveil"'})
        request.state.key = known = limited(request, key)
    return known


async def curator(request: Request) -> Key:
    """A holder in the role of a curator."""
    key = await holder(request)
    if key.role != "curator":
        raise Problem(FORBIDDEN, "this is for curators")
    return key


async def designer(request: Request) -> Key:
    """Anyone, where designs are open; otherwise a holder."""
    if request.app.state.settings.open_design and "authorization" not in request.headers:
        request.state.key = getattr(request.state, "key", None) or limited(request, ANYONE)
    return await holder(request)


WHO = (holder, curator, designer)
"""What a route can need; it is settled before anything else of a request is read. None of it waits, so none of it
takes a thread from those who do."""


def limited(request: Request, key: Key) -> Key:
    """The same key, if it has not asked too often."""
    request.state.who = key.name
    wait = request.app.state.rates.take(key.id)
    if wait:
        seconds = max(1, int(wait + 0.999))
        raise Problem(TOO_MANY, f"ask again in {seconds} s", {"Retry-After": str(seconds)})
    return key
