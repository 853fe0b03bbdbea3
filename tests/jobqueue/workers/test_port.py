"""A port belongs to one service and its workers."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobqueue.web.port import check_free, url_of
from jobqueue.workers.supervisor import _holder, held
from tests.kit.ports import free_port, free_ports


def listening(port: int, *options: int) -> socket.socket:
    """As a worker does it, and as any other program does."""
    listener = socket.socket()
    for option in (socket.SO_REUSEADDR, *options):
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


async def test_workers_may_listen_on_a_port_that_is_held_and_nobody_else() -> None:
    async with held("127.0.0.1", 0) as (host, port):
        assert host == "127.0.0.1"
        with pytest.raises(OSError, match="in use"):
            listening(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, port)).close()
        with listening(port, socket.SO_REUSEPORT), listening(port, socket.SO_REUSEPORT):
            socket.create_connection((host, port)).close()
            for other in ("127.0.0.1", "0.0.0.0", ""):  # noqa: S104 - it is refused
                with pytest.raises(OSError, match="already in use"):
                    async with held(other, port):
                        pass
    listening(port).close()


async def test_what_the_last_service_left_of_its_connections_is_no_hindrance() -> None:
    port = free_port()
    with listening(port) as last:
        client = socket.create_connection(("127.0.0.1", port))
        last.accept()[0].close()  # the side that closes first keeps the connection for a minute
        client.close()
    async with held("127.0.0.1", port) as address:
        assert url_of(address) == f"http://127.0.0.1:{port}"


async def test_a_port_that_a_killed_service_still_has_for_a_moment_is_waited_for() -> None:
    port = free_port()
    asyncio.get_running_loop().call_later(0.05, listening(port).close)
    await check_free("127.0.0.1", port)


def test_of_many_who_take_a_port_at_the_same_time_one_gets_it() -> None:
    threads, rounds = 8, 50
    ports = free_ports(rounds)
    together = threading.Barrier(threads)

    def take_all() -> list[socket.socket | None]:
        got = []
        for port in ports:
            together.wait()
            try:
                got.append(_holder(socket.AF_INET, ("127.0.0.1", port)))
            except OSError:
                got.append(None)
        return got

    with ThreadPoolExecutor(threads) as pool:
        all_got = [future.result() for future in [pool.submit(take_all) for _ in range(threads)]]
    winners = [sum(got is not None for got in each) for each in zip(*all_got, strict=True)]
    for got in all_got:
        for each in got:
            if each:
                each.close()
    assert winners == [1] * rounds


async def test_a_host_of_several_addresses_has_one_number_at_all_of_them() -> None:
    async with held("", 0) as address:
        port = address[1]
        with pytest.raises(OSError, match="in use"):
            listening(port)
    assert url_of(("::1", 8000, 0, 0)) == "http://[::1]:8000"


async def test_an_address_that_is_not_ours_is_refused_at_once() -> None:
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        async with held("192.0.2.1", 0):
            pass
