"""Which addresses a callback may connect to."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from ipaddress import ip_network

import pytest
from yarl import URL

from jobqueue.sinks.webhook.addresses import BAD_ADDRESS, BAD_HOST, BAD_PORT, Guard, NotAllowed, Resolver
from jobqueue.sinks.webhook.caller import Caller, HostSlots, NoConnection

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.9.9"),  # noqa: S104
    *("192.168.1.1", "100.64.0.1", "100.127.255.255", "100.100.100.200", "192.0.0.192", "192.88.99.1", "198.18.0.1"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *(
        "168.63.129.16",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%1",
        "2600::1%1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
    *(
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "3fff::1",
        "100::1",
        "5f00::1",
    ),
    *("localhost", "", "2130706433", "0x7f.1", "127.1", "017700000001", "127.0.0.01", "1.1.1.1 ", "１.1.1.1"),  # noqa: RUF001
]
ALLOWED = [
    *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "223.1.1.1"),
    *("2606:4700::1111", "2a00::1", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"),
]


def allows(guard: Guard, address: str, port: int = 443) -> bool:
    try:
        guard.check(address, port)
    except NotAllowed:
        return False
    return True


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused(address: str) -> None:
    guard = Guard()
    assert not allows(guard, address)
    with pytest.raises(NotAllowed):
        guard.socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)))


@pytest.mark.parametrize("address", ALLOWED)
def test_what_is_public_is_allowed(address: str) -> None:
    assert allows(Guard(), address)


def test_a_network_that_is_allowed_is_allowed_in_all_its_forms_and_no_more() -> None:
    guard = Guard([ip_network("10.1.0.0/16"), ip_network("fd00:1::/32"), ip_network("64:ff9b::a09:0/112")])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00:1::5", "64:ff9b::a09:1", "1.1.1.1"):
        assert allows(guard, address), address
    for address in ("10.2.0.1", "::ffff:10.2.0.1", "10.9.0.1", "fd00:2::1", "127.0.0.1"):
        assert not allows(guard, address), address


async def test_a_name_of_this_machine_is_refused_and_one_of_nobody_is_not_found() -> None:
    resolver = Resolver(Guard())
    for name in ("localhost", "LOCALHOST", "0x7f.1", "0177.1"):
        with pytest.raises(NotAllowed):
            await resolver.resolve(name, 80, socket.AF_UNSPEC)
    for name in ("a" * 64 + ".example", "a..b"):
        with pytest.raises(OSError) as told:
            await resolver.resolve(name, 80, socket.AF_UNSPEC)
        assert not isinstance(told.value, NotAllowed)
    allowing = Resolver(Guard([ip_network("127.0.0.0/8")]))
    assert {found["host"] for found in await allowing.resolve("localhost", 80, socket.AF_UNSPEC)} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("ports", "address", "allowed"),
    [
        ((), "1.1.1.1", {80, 443}),
        ((), "::ffff:1.1.1.1", {80, 443}),
        ((), "10.1.2.3", {22, 80, 443, 6379, 8443}),
        ((), "::ffff:10.1.2.3", {22, 80, 443, 6379, 8443}),
        ((8443,), "1.1.1.1", {8443}),
        ((8443, 22), "10.1.2.3", {8443, 22}),
        ((8443,), "10.2.0.1", set()),
    ],
)
def test_ports_are_the_usual_ones_but_in_a_network_that_is_allowed_or_just_those_that_are_listed(
    ports: tuple[int, ...], address: str, allowed: set[int]
) -> None:
    guard = Guard([ip_network("10.1.0.0/16")], ports)
    assert {port for port in (22, 80, 443, 6379, 8443) if allows(guard, address, port)} == allowed


def test_a_refusal_says_which_flag_would_allow_it() -> None:
    for address, port, reason in (("10.0.0.1", 22, BAD_ADDRESS), ("1.1.1.1", 22, BAD_PORT), ("x", 80, BAD_ADDRESS)):
        with pytest.raises(NotAllowed) as told:
            Guard().check(address, port)
        assert told.value.reason == reason


@pytest.mark.parametrize(
    ("pattern", "named", "others"),
    [
        ("shop.example", {"shop.example"}, {"a.shop.example", "shop.example.evil", "xshop.example", "shopxexample"}),
        (
            "*.Shop.example",
            {"a.shop.example", "a.b.shop.example"},
            {"shop.example", "ashop.example", "a.shop.exam"},
        ),
        ("10.0.0.?", {"10.0.0.1"}, {"10.0.0.12", "10.0.0."}),
        ("*", {"a", "::1"}, set()),
    ],
)
def test_with_patterns_of_hosts_only_those_are_called(pattern: str, named: set[str], others: set[str]) -> None:
    guard = Guard(hosts=["nobody", pattern])
    for host in named:
        guard.check_host(host)
    for host in others:
        with pytest.raises(NotAllowed, match=re.escape(BAD_HOST)):
            guard.check_host(host)
    Guard().check_host("anybody")


async def test_a_name_is_refused_by_its_port_only_where_its_address_would_do() -> None:
    resolver = Resolver(Guard([ip_network("127.0.0.0/8")], [80]))
    for port, reason in ((80, None), (81, BAD_PORT)):
        try:
            await resolver.resolve("localhost", port, socket.AF_INET)
            assert reason is None
        except NotAllowed as error:
            assert error.reason == reason


@pytest.mark.parametrize(
    ("hosts", "is_reached"),
    [(("127.0.0.2", "127.0.0.1"), True), (("127.0.0.1", "127.0.0.2"), True), (("127.0.0.2", "127.0.0.3"), False)],
)
async def test_a_name_is_reached_if_one_of_its_addresses_answers(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...], *, is_reached: bool
) -> None:
    async def resolve(*_: object) -> list[dict[str, str]]:
        return [{"host": host} for host in hosts]

    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    url = URL(f"http://several.test:{server.sockets[0].getsockname()[1]}")
    async with server, Caller(Guard([ip_network("127.0.0.0/8")]), HostSlots(1, 1), 5.0, 3.0, None) as caller:
        monkeypatch.setattr(caller._resolver, "resolve", resolve)
        with contextlib.nullcontext() if is_reached else pytest.raises(NoConnection):
            await caller.reach(url)
