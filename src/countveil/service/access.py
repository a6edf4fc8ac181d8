"""Who asks? A key in the Authorization header, its role, and how often it may ask.

Keys are limited each by itself; who has none is limited by address, so that nobody is kept out by others.
Every refusal for want of a right key is the same, whether the key is missing, malformed, unknown or revoked.
"""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request

from countveil.keys import Key
from countveil.problem_kinds import Kind
from countveil.service.clients import name_client
from countveil.service.problems import Problem

_NEEDED = "send a key that the curator gave you: Authorization: Bearer cvk_..."
ANYONE = Key("anyone", "analyst", None, "", "", "")
"""Who asks without a key, where that is allowed."""


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
            raise Problem(Kind.UNAUTHORIZED, _NEEDED, {"WWW-Authenticate": 'Bearer realm="countveil"'})
        request.state.key = known = limited(request, key)
    return known


async def curator(request: Request) -> Key:
    """A holder in the role of a curator."""
    key = await holder(request)
    if key.role != "curator":
        raise Problem(Kind.FORBIDDEN, "this is for curators")
    return key


async def designer(request: Request) -> Key:
    """Anyone, where designs are open; otherwise a holder."""
    known, opened = getattr(request.state, "key", None), request.app.state.settings.open_design
    if known is None and opened and "authorization" not in request.headers:
        limit_client(request, "page")
        request.state.key = ANYONE
    return await holder(request)


WHO = (holder, curator, designer)
"""What a route can need; it is settled before anything else of a request is read. None of it waits, so none of it
takes a thread from those who do."""


def limited(request: Request, key: Key) -> Key:
    """The same key, if it has not asked too often."""
    request.state.who, request.state.client = key.name, key.id
    _check_wait(request.app.state.key_rates.take(key.id))
    return key


def limit_client(request: Request, what: Literal["page", "login"]) -> None:
    """Refuse a client without a key that has asked too often. Log-ins are counted apart from the other pages."""
    request.state.who = ANYONE.name
    peer, forwarded = request.client, request.headers.getlist("x-forwarded-for")
    client = request.state.client = name_client(peer.host if peer else "", forwarded, request.app.state.proxies)
    _check_wait(request.app.state.client_rates.take(f"{what} {client}"))


def _check_wait(wait: float) -> None:
    if wait:
        seconds = max(1, int(wait + 0.999))
        raise Problem(Kind.TOO_MANY_REQUESTS, f"ask again in {seconds} s", {"Retry-After": str(seconds)})
