"""Authentication: the API key in the Authorization header, its role, and its rate limit.

Every key has its own rate limit, and so has every address that sends no key: no client can use up the limit of another.
A refusal is the same whether the key is missing, malformed, unknown or revoked.
"""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request

from countveil.errors import ProblemKind
from countveil.service.api_keys import Key
from countveil.service.problem_json import Problem
from countveil.service.rate_limits import name_client

_NEEDED = "send a key that the curator gave you: Authorization: Bearer cvk_..."
ANYONE = Key("anyone", "analyst", None, "", "", "")
"""Stands for the holder of a request without a key, where such requests are allowed."""


def read_key(request: Request) -> Key | None:
    """The valid API key of a request; None if it has none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = request.app.state.keyring.recognise(given.strip() if scheme.lower() == "bearer" else "")
    return key if isinstance(key, Key) else None


async def require_holder(request: Request) -> Key:
    """Require a valid key within its rate limit. A request counts once, however often this function is called."""
    known: Key | None = getattr(request.state, "key", None)
    if known is None:
        key = read_key(request)
        if key is None:
            raise Problem(ProblemKind.UNAUTHORIZED, _NEEDED, {"WWW-Authenticate": 'Bearer realm="countveil"'})
        request.state.key = known = limit_key(request, key)
    return known


async def require_curator(request: Request) -> Key:
    """Require a key with the role of a curator."""
    key = await require_holder(request)
    if key.role != "curator":
        raise Problem(ProblemKind.FORBIDDEN, "only curators may do this; use the key of a curator")
    return key


async def require_designer(request: Request) -> Key:
    """Require a valid key, unless designs are open to anyone."""
    known, opened = getattr(request.state, "key", None), request.app.state.settings.open_design
    if known is None and opened and "authorization" not in request.headers:
        limit_client(request, "page")
        request.state.key = ANYONE
    return await require_holder(request)


WHO = (require_holder, require_curator, require_designer)
"""What routes can require of a request. It is checked before the body is read, and without waiting for anything."""


def limit_key(request: Request, key: Key) -> Key:
    """Return the key; refuse the request if the key has exceeded its rate limit."""
    request.state.who, request.state.client = key.name, key.id
    _check_wait(request.app.state.key_rates.take(key.id))
    return key


def limit_client(request: Request, what: Literal["page", "login"]) -> None:
    """Refuse a request without a key if its client has exceeded its rate limit. Log-ins have a limit of their own."""
    request.state.who = ANYONE.name
    peer, forwarded = request.client, request.headers.getlist("x-forwarded-for")
    client = request.state.client = name_client(peer.host if peer else "", forwarded, request.app.state.proxies)
    _check_wait(request.app.state.client_rates.take(f"{what} {client}"))


def _check_wait(wait: float) -> None:
    if wait:
        seconds = max(1, int(wait + 0.999))
        raise Problem(ProblemKind.TOO_MANY_REQUESTS, f"ask again in {seconds} s", {"Retry-After": str(seconds)})
