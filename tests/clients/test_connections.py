"""What the Python clients say when nobody listens, and what is left of an asyncio client that was closed."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest
from jobqueue_client import AsyncClient, Client, Unreachable

from tests.kit.ports import free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_called_that(host: str) -> None:
    url = f"http://{host}:{free_port()}"
    with Client(url, retry_for_s=0) as client, pytest.raises(Unreachable) as sync:
        client.stats()
    async with AsyncClient(url, retry_for_s=0) as aclient:
        with pytest.raises(Unreachable) as raised:
            await aclient.stats()
    assert str(sync.value) == str(raised.value) == f"{url}: connection refused"


async def test_an_unknown_host_is_called_that() -> None:
    url = "http://nobody.invalid"
    async with AsyncClient(url, retry_for_s=0) as client:
        with pytest.raises(Unreachable, match=r"^http://nobody.invalid: \w+") as raised:
            await client.stats()
    assert "ssl" not in str(raised.value) and "[" not in str(raised.value)


async def test_an_asyncio_client_that_was_closed_refuses_and_leaves_no_session() -> None:
    client = AsyncClient(f"http://127.0.0.1:{free_port()}", retry_for_s=0)
    async with client:
        with pytest.raises(Unreachable):
            await client.stats()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.stats()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_client_for_asyncio_refuses_a_second_event_loop_and_says_why() -> None:
    async def ask() -> None:
        await client.stats()

    client = AsyncClient(f"http://127.0.0.1:{free_port()}", retry_for_s=0)
    with pytest.raises(Unreachable):
        asyncio.run(ask())
    with pytest.raises(RuntimeError, match="create one in each"):
        asyncio.run(ask())
    asyncio.run(client.close())
