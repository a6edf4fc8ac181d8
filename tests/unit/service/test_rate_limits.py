"""Clients by address, also behind proxies, and their rate limits."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from countveil.service.rate_limits import Rates, name_client

PROXIES = tuple(ip_network(each) for each in ("10.0.0.0/24", "2001:db8:ffff::/64"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_64_bit_network_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (name_client(one, (), ()) == name_client(other, (), ())) is same


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.9", ["198.51.100.1"], "192.0.2.9"),  # anyone can send the header; only a listed proxy is trusted
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["6.6.6.6, 192.0.2.1"], "192.0.2.1"),  # values of the client come before those of the proxy
        ("10.0.0.1", ["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["6.6.6.6, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),  # two listed proxies
        ("10.0.0.1", ["10.0.0.3, 192.0.2.1"], "192.0.2.1"),  # a client that claims to be a proxy
        ("10.0.0.1", ["10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("2001:db8:ffff::1", ["[2001:db8::1]:443"], "20010db800000000/64"),
        ("2001:db8:fffe::1", ["192.0.2.1"], "20010db8fffe0000/64"),
        ("a socket", ["192.0.2.1"], "a socket"),
    ],
)
def test_behind_a_proxy_the_client_is_the_last_hop_that_a_listed_proxy_added(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert name_client(peer, forwarded, PROXIES) == client


def test_requests_from_many_addresses_neither_renew_nor_use_up_the_limit_of_one() -> None:
    rates = Rates(600, lambda: 0.0)
    assert [rates.take("a") for _ in range(101)] == [0.0] * 100 + [0.1]
    size = len(rates._left)
    for i in range(40_000):
        rates.take(f"address {i}")
    assert rates.take("a") > 0, "the bucket of an address is not evicted for others"
    assert len(rates._left) == size, "the table does not grow"
    assert [rates.take(f"new {i}") for i in range(1000)] == [0.0] * 1000
