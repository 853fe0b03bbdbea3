"""The proxy does to a connection what its weather says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets.errors import Unavailable
from buckets.redis.client import Redis
from tests.kit.proxy import BACK, BOTH, FAIR, THERE, Proxy, Weather, to
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, until


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(to(str(redis_server.socket))) as proxy:
        yield proxy


@pytest.fixture
async def behind(request: pytest.FixtureRequest, proxy: Proxy, redis: Redis) -> AsyncIterator[Redis]:
    """The tests' Redis, seen through the proxy. The parameter is how many seconds an answer may take."""
    connection = Redis(proxy.url, timeout_s=getattr(request, "param", PATIENCE_S))
    assert await connection.read("PING") == b"PONG"
    yield connection
    await connection.close()


async def test_in_fair_weather_all_arrives(behind: Redis) -> None:
    body = bytes(range(256)) * 10_000
    await behind.read("SET", "a", body)
    assert await behind.read("GET", "a") == body


async def test_latency_delays_each_direction_and_keeps_the_order(proxy: Proxy, behind: Redis) -> None:
    loop = asyncio.get_running_loop()
    proxy.set(Weather(latency_s=0.05))
    begun = loop.time()
    told = await asyncio.gather(*(behind.read("ECHO", str(each)) for each in range(50)))
    assert told == [str(each).encode() for each in range(50)]
    assert loop.time() - begun >= 0.1


async def test_what_is_sent_into_a_cut_arrives_when_it_is_over(proxy: Proxy, behind: Redis, redis: Redis) -> None:
    proxy.set(Weather(cut=BOTH))
    asked = asyncio.create_task(behind.read("SET", "a", "1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.shield(asked)
    assert await redis.read("EXISTS", "a") == 0
    proxy.set(FAIR)
    assert await asked == b"OK"


@pytest.mark.parametrize("behind", [1], indirect=True)
async def test_a_cut_of_the_way_back_hides_what_was_done(proxy: Proxy, behind: Redis, redis: Redis) -> None:
    proxy.set(Weather(cut=(BACK,)))
    with pytest.raises(Unavailable):
        await behind.read("SET", "a", "1")
    assert await redis.read("EXISTS", "a") == 1


async def test_a_connection_made_during_a_cut_hears_nothing(proxy: Proxy) -> None:
    proxy.set(Weather(cut=(THERE,)))
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", proxy.port)
    outgoing.write(b"PING\r\n")
    heard = asyncio.create_task(incoming.read(100))
    await until(lambda: proxy.connections == 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.shield(heard)
    proxy.set(FAIR)
    assert await heard == b"+PONG\r\n"
    outgoing.close()


async def test_resets_end_connections_and_nothing_else(proxy: Proxy, behind: Redis) -> None:
    proxy.set(Weather(resets=0.05))
    for _ in range(100):
        assert await behind.read("PING") == b"PONG"
    assert proxy.resets > 0 and proxy.connections > 1


async def test_slices_arrive_whole_in_the_end(proxy: Proxy, behind: Redis) -> None:
    proxy.set(Weather(slice_bytes=3, slice_s=0.001))
    assert await behind.read("ECHO", "x" * 100) == b"x" * 100


@pytest.mark.parametrize("behind", [1], indirect=True)
async def test_weather_of_others_does_no_harm(proxy: Proxy, behind: Redis) -> None:
    proxy.set(Weather(cut=BOTH), of=("127.0.0.9",))
    assert await behind.read("PING") == b"PONG"
    proxy.set(Weather(cut=BOTH), of=("127.0.0.1",))
    with pytest.raises(Unavailable):
        await behind.read("PING")


async def test_a_server_that_is_gone_closes_the_connection() -> None:
    async with Proxy(to("/nowhere")) as proxy:
        incoming, outgoing = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await incoming.read() == b""
        outgoing.close()
