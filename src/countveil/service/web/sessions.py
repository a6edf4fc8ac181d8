"""Log-in sessions: a cookie with the key's public identifier, signed with a secret of this run of the service.

The key itself is read once, at log-in. It is stored nowhere: not in the cookie, a page or an address. Revoking the key
ends its sessions, and restarting the service ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from countveil.service.api_keys import Key

COOKIE = "countveil"
SECONDS = 12 * 3600
LONGEST = 2000


class LoginNeededError(Exception):
    """The page requires a log-in. `to` is the address to continue at; by default it is the address of the request."""

    def __init__(self, to: str = "") -> None:
        super().__init__()
        self.to = to


def local_address(address: str) -> str:
    """The address to go to after logging in: `address` if it is on this site, otherwise the page to ask."""
    return address if _is_plain(address) else "/ask"


def return_address(request: Request) -> str:
    """The address to return to after logging in: that of the request, including its query if the query is short."""
    path, query = request.url.path, request.url.query
    whole = f"{path}?{query}" if query and request.method in ("GET", "HEAD") else path
    return whole if _is_plain(whole) else path


def ask_address(sql: str) -> str:
    """The address of the page to ask with this SQL filled in, unless the SQL is too long or contains a key."""
    address = "/ask?" + urlencode({"sql": sql})
    return address if sql and "cvk_" not in sql.lower() and _is_plain(address) else "/ask"


def _is_plain(address: str) -> bool:
    here = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return here and len(address) < LONGEST


def sign(request: Request, id: str, until: int) -> str:
    return hmac.new(request.app.state.secret.encode(), f"{id}.{until}".encode(), hashlib.sha256).hexdigest()


def begin(request: Request, response: Response, key: Key) -> None:
    """Set the session cookie on a response."""
    until = int(time.time()) + SECONDS
    response.set_cookie(
        COOKIE,
        f"{key.id}.{until}.{sign(request, key.id, until)}",
        max_age=SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.app.state.settings.secure,
    )


def end(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def current_key(request: Request) -> Key | None:
    """The key of the session; None if there is no valid session or the key was revoked."""
    id, _, rest = request.cookies.get(COOKIE, "").partition(".")
    until, _, signature = rest.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12:
        return None
    if not hmac.compare_digest(signature.encode(), sign(request, id, int(until)).encode()):
        return None
    if int(until) < time.time():
        return None
    key: Key | None = request.app.state.keyring.find_active(id)
    return key


def is_own_page(request: Request) -> bool:
    """Whether a page of this site has sent the form. In some browsers, cookies alone do not prove that.

    Pages without an origin (sandboxed frames, files) send "null" as their origin and are not of this site either.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
