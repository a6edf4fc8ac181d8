"""Which client asks, and how often it may.

A client is an address: an IPv4 address, or a /64 of IPv6, which is what one customer of a network has. Behind a listed
proxy it is the address that the proxy says it was asked from.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from countveil.sampling.entropy import token

ROWS, WIDTH = 4, 1 << 14
_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]+)?|([^:]*):[0-9]+")


class Rates:
    """How often each name may ask: `rate` a minute, up to ten seconds' worth at once. The table has a fixed size.

    Each name has a bucket of tokens in every row, at a place that a secret of this process determines, and may ask
    while the fullest of them has a token. Nothing is forgotten to make room, so asking from many addresses gives none
    of them a new bucket; and two names limit each other only if they share their buckets in all rows.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._most = rate / 60, max(1.0, rate / 6)
        self._clock, self._lock, self._secret = clock, threading.Lock(), token(32).encode()
        self._left = array("d", [self._most]) * (ROWS * WIDTH)
        self._since = array("d", [clock()]) * (ROWS * WIDTH)

    def take(self, name: str) -> float:
        """0 if it may ask now, otherwise the seconds until it may."""
        now, places = self._clock(), self._places(name)
        with self._lock:
            left = [min(self._most, self._left[i] + (now - self._since[i]) * self._per_second) for i in places]
            fullest = max(left)
            if fullest < 1:
                return (1 - fullest) / self._per_second
            for i, tokens in zip(places, left, strict=True):
                self._left[i], self._since[i] = min(tokens, fullest - 1), now
            return 0.0

    def _places(self, name: str) -> list[int]:
        digest = hashlib.blake2b(name.encode(), key=self._secret, digest_size=2 * ROWS).digest()
        return [row * WIDTH + int.from_bytes(digest[2 * row : 2 * row + 2]) % WIDTH for row in range(ROWS)]


def name_client(peer: str, forwarded: Iterable[str], proxies: Iterable[IPv4Network | IPv6Network]) -> str:
    """The client behind a connection from `peer`.

    `forwarded` are the values of X-Forwarded-For, to which every proxy adds whom it was asked by. They are read from
    the end for as long as a listed proxy said them: what stands before that, anyone can have made up.
    """
    found, hops = _address(peer), ",".join(forwarded).split(",")
    while found is not None and hops and any(found in network for network in proxies):
        before = _address(hops.pop())
        if before is None:
            break
        found = before
    if isinstance(found, IPv6Address):
        return f"{int(found) >> 64:x}/64"
    return peer if found is None else str(found)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address that a text is, with or without a port."""
    text = text.strip()
    port = _PORT.fullmatch(text)
    try:
        found = ip_address((port[1] or port[2]) if port else text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
