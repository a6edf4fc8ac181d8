"""Who the client of a request is, and how many requests it may send.

A client is an address: an IPv4 address, or a /64 network of IPv6, which is what one customer of a provider has. Behind
a listed proxy, the client is the address from which the proxy got the request.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from countveil.sampling.randomness import token

ROWS, WIDTH = 4, 1 << 14
_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]+)?|([^:]*):[0-9]+")


class Rates:
    """Rate limits by name, in a table of fixed size: `rate` requests a minute, at most ten seconds' worth of them at
    once.

    The table has several rows of token buckets. Each name has one bucket in every row, at a position that depends on a
    secret of this process, and may send a request while the fullest of its buckets has a token. No bucket is ever
    removed, so sending requests from many addresses gives nobody a fresh bucket. Two names limit each other only if
    they share their buckets in all rows.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._most = rate / 60, max(1.0, rate / 6)
        self._clock, self._lock, self._secret = clock, threading.Lock(), token(32).encode()
        self._left = array("d", [self._most]) * (ROWS * WIDTH)
        self._since = array("d", [clock()]) * (ROWS * WIDTH)

    def take(self, name: str) -> float:
        """Take a token for a request and return 0; if there is none, return the seconds until there is one."""
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
    """The client behind a connection from the address `peer`.

    `forwarded` has the values of the X-Forwarded-For headers, to which every proxy appends the address of its client.
    They are read from the end, as long as a listed proxy has appended them; the values before that can be invented by
    anyone.
    """
    address, hops = _parse_address(peer), ",".join(forwarded).split(",")
    while address is not None and hops and any(address in network for network in proxies):
        before = _parse_address(hops.pop())
        if before is None:
            break
        address = before
    if isinstance(address, IPv6Address):
        return f"{int(address) >> 64:x}/64"
    return peer if address is None else str(address)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address with or without a port; None if the text is not an address."""
    text = text.strip()
    port = _PORT.fullmatch(text)
    try:
        address = ip_address((port[1] or port[2]) if port else text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
