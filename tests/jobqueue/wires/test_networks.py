"""The networks that may use a dialect."""

from __future__ import annotations

import pytest

from jobqueue.wires.stream import allows

LOCAL = ("127.0.0.0/8", "::1/128")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
def test_this_host_is_let_in_by_the_default(host: str) -> None:
    assert allows(LOCAL, (host, 4000))


def test_others_are_not(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["10.0.0.1", "128.0.0.1", "::2", "::ffff:10.0.0.1", "fe80::1%eth0", "", "localhost"]
    for host in cases:
        with subtests.test(host=host):
            assert not allows(LOCAL, (host, 4000))


@pytest.mark.parametrize("peer", [None, "", b"", "/run/socket", ()])
def test_a_peer_without_an_ip_address_is_not(peer: object) -> None:
    assert not allows(("0.0.0.0/0", "::/0"), peer)


def test_a_network_may_be_one_address_or_all() -> None:
    assert allows(("10.0.0.7",), ("10.0.0.7", 1)) and not allows(("10.0.0.7",), ("10.0.0.8", 1))
    assert allows(("0.0.0.0/0",), ("192.0.2.1", 1)) and not allows(("0.0.0.0/0",), ("2001:db8::1", 1))
    assert allows(("::/0",), ("2001:db8::1", 1, 0, 0))
    assert not allows((), ("127.0.0.1", 1))
