"""Who is logged in: a cookie that names the key's public identifier, signed with a secret of this run of the service.

The key itself is read once, when someone logs in, and kept nowhere: not in the cookie, not in a page, not in an
address. Revoking the key, or restarting the service, ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from countveil.keys import Key

COOKIE = "countveil"
SECONDS = 12 * 3600
LONGEST = 2000


class LoginNeededError(Exception):
    """The page is for who is logged in; `to` is where to go then, if not to where this was asked."""

    def __init__(self, to: str = "") -> None:
        super().__init__()
        self.to = to


def local(address: str) -> str:
    """An address on this page to go to after logging in; anything else is the first page."""
    return address if _plain(address) else "/ask"


def wanted(request: Request) -> str:
    """Where a request wants to go, to come back to: with what it asked for, if that was in its address and is short."""
    path, query = request.url.path, request.url.query
    whole = f"{path}?{query}" if query and request.method in ("GET", "HEAD") else path
    return whole if _plain(whole) else path


def typed(sql: str) -> str:
    """The page to ask with what was typed into it, if an address can hold that; a key never goes into one."""
    address = "/ask?" + urlencode({"sql": sql})
    return address if sql and "cvk_" not in sql.lower() and _plain(address) else "/ask"


def _plain(address: str) -> bool:
    here = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return here and len(address) < LONGEST


def signed(request: Request, id: str, until: int) -> str:
    return hmac.new(request.app.state.secret.encode(), f"{id}.{until}".encode(), hashlib.sha256).hexdigest()


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
    """A form of ours sent this, and no other site: cookies alone do not prove it in every browser.

    Pages without an origin (sandboxed frames, files) say "null": they are not ours either.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
