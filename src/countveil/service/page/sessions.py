"""Who is logged in: a cookie that names the key's public identifier, signed with a secret of this run of the service.

The key itself is read once, when someone logs in, and kept nowhere: not in the cookie, not in a page, not in an
address. Revoking the key, or restarting the service, ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from countveil.keys import Key

COOKIE = "countveil"
SECONDS = 12 * 3600


class LoginNeededError(Exception):
    """The page is for who is logged in."""


def local(address: str) -> str:
    """An address on this page to go to after logging in; anything else is the first page."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and len(address) < 2000 else "/ask"


def signed(request: Request, id: str, until: int) -> str:
    secret = request.app.state.settings.secret.encode()
    return hmac.new(secret, f"{id}.{until}".encode(), hashlib.sha256).hexdigest()


def begin(request: Request, response: Response, key: Key) -> None:
    """Put the cookie on a response."""
    until = int(time.time()) + SECONDS
    response.set_cookie(
        COOKIE,
        f"{key.id}.{until}.{signed(request, key.id, until)}",
        max_age=SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.app.state.settings.secure,
    )


def end(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def current(request: Request) -> Key | None:
    """The key of whoever is logged in, if it is still a right one."""
    id, _, rest = request.cookies.get(COOKIE, "").partition(".")
    until, _, signature = rest.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12:
        return None
    if not hmac.compare_digest(signature.encode(), signed(request, id, int(until)).encode()):
        return None
    if int(until) < time.time():
        return None
    key: Key | None = request.app.state.keyring.active(id)
    return key


def own_page(request: Request) -> bool:
    """A form of ours sent this, and no other site: cookies alone do not prove it in every browser."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin == "null" or urlsplit(origin).netloc == request.headers.get("host", "")
