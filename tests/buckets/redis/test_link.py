"""buckets.redis.link: a connection whose other side is slow, silent, or not a Redis."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from buckets.errors import JobQueueError, Unanswered, Unavailable
from buckets.redis.client import Redis
from buckets.redis.link import ErrorReply
from tests.buckets.redis.links import known_link, link_of, server_of
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, until

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(path: Path, talk: Talk) -> AsyncIterator[Redis]:
    """A program that listens on a socket, and a client whose URL leads to it."""
    talks: list[asyncio.Task[None] | None] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            await talk(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_unix_server(take, path):
        redis = Redis(f"unix://{path}", timeout_s=1.0)
        yield redis
        await redis.close()
        await asyncio.gather(*[each for each in talks if each])


@contextlib.asynccontextmanager
async def speaking(folder: Path, talk: Talk) -> AsyncIterator[Redis]:
    """As `serving`, for a program that answers redis-py's handshake as Redis does, and then runs `talk`."""
    handshake = len(await said_at_first(folder / "first.sock"))

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(handshake):
            await read_command(reader)
            writer.write(b"+OK\r\n")
        await talk(reader, writer)

    async with serving(folder / "x.sock", take) as redis:
        yield redis


async def said_at_first(path: Path) -> list[list[bytes]]:
    """The commands with which this version of redis-py begins."""
    commands: list[list[bytes]] = []

    async def agree(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            commands.append(await read_command(reader))
            writer.write(b"+OK\r\n")

    async with serving(path, agree) as redis:
        assert await redis.read("PING") == b"OK"
    return commands[:-1]


async def read_command(reader: asyncio.StreamReader) -> list[bytes]:
    number = int((await reader.readline())[1:])
    words = []
    for _ in range(number):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


async def test_errors_stand_where_answers_would_and_those_behind_them_come_to_their_callers(redis: Redis) -> None:
    asked = [("ECHO", "a"), ("NONE",), ("ECHO", "b"), ("LPUSH", "x"), ("EVAL", "return {1, {err='WORD y'}}", 0)]
    answers: list[Any] = await asyncio.gather(*(redis.read(*command) for command in asked), return_exceptions=True)
    first, bad, second, short, nested = answers
    assert (first, second) == (b"a", b"b")
    assert isinstance(bad, JobQueueError)
    assert isinstance(short, JobQueueError)
    assert nested[0] == 1
    assert isinstance(nested[1], ErrorReply)
    assert str(nested[1]) == "WORD y"


async def test_an_answer_in_many_pieces_is_one_answer(redis: Redis) -> None:
    text = bytes(range(256)) * 20_000
    assert list(await asyncio.gather(redis.read("ECHO", text), redis.read("ECHO", "b"))) == [text, b"b"]


async def test_what_a_silent_redis_does_not_take_in_does_not_pile_up_with_us(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    await redis.read("PING")
    link = known_link(redis)
    assert link
    own_server.freeze()
    texts = [f"{n:03}".encode() * 100_000 for n in range(100)]
    asking = [asyncio.create_task(redis.read("ECHO", text)) for text in texts]
    await until(lambda: link.room is not None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert link._transport.get_write_buffer_size() < 4 << 20  # of 30 MB
    own_server.thaw()
    assert await asyncio.gather(*asking) == texts
    assert link.room is None
    await redis.close()


async def test_who_waits_for_room_is_told_when_the_connection_is_lost(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    await redis.read("PING")
    own_server.freeze()
    asking = [asyncio.create_task(redis.read("ECHO", b"x" * 500_000)) for _ in range(20)]
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in answers)
    own_server.thaw()
    await redis.close()


async def test_what_speaks_there_but_is_no_redis_is_hung_up_on(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with speaking(tmp_path, babble) as redis:
        with pytest.raises(Unavailable):
            await redis.read("PING")


async def test_a_word_that_nobody_asked_for_answers_nobody(tmp_path: Path) -> None:
    """Redis says why it hangs up; taken for an answer, that would go to the first caller."""
    connected, begun = asyncio.Event(), []

    async def grumble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(writer)
        if len(begun) == 1:
            await connected.wait()
            writer.write(b"-ERR go away\r\n")
            await reader.read()
        else:
            assert await read_command(reader) == [b"PING"]
            writer.write(b"+PONG\r\n")
            await reader.read()

    async with speaking(tmp_path, grumble) as redis:
        link = await link_of(redis)
        connected.set()
        await until(lambda: link.lost)
        assert await redis.read("PING") == b"PONG"


async def test_what_is_asked_of_a_lost_connection_is_unanswered(redis: Redis) -> None:
    await redis.read("PING")
    link = known_link(redis)
    assert link
    link.lose()
    with pytest.raises(Unanswered):
        await link.ask(("PING",))


async def test_a_subscription_that_redis_refuses_says_so(redis: Redis, redis_server: RedisServer) -> None:
    await redis.read("ACL", "SETUSER", "deaf", "on", ">x", "+@all", "-ssubscribe", "~*")
    deaf = Redis(redis_server.url.replace("unix://", "unix://deaf:x@"))
    with pytest.raises(Unavailable, match="the subscription is lost: NOPERM"):
        await deaf.listen("one", lambda said: None, lambda: None)
    await redis.read("ACL", "DELUSER", "deaf")
    await deaf.close()


async def test_an_error_of_who_hears_ends_the_subscription_and_is_raised(redis: Redis) -> None:
    begun = asyncio.Event()

    def fail(said: str) -> None:
        raise LookupError(said)

    listening = asyncio.create_task(redis.listen("one", fail, begun.set))
    await begun.wait()
    await redis.read("SPUBLISH", "one", "a")
    with pytest.raises(LookupError):
        await listening


async def test_the_sockets_are_closed_when_close_returns(redis_server: RedisServer) -> None:
    redis = Redis(redis_server.url)
    begun = asyncio.Event()
    listening = asyncio.create_task(redis.listen("one", lambda said: None, begun.set))
    await begun.wait()
    wires = [await link_of(redis), (await server_of(redis))._ear]
    sockets = [wire._transport.get_extra_info("socket") for wire in wires if wire]
    assert [each.fileno() >= 0 for each in sockets] == [True, True]
    await redis.close()
    assert [each.fileno() for each in sockets] == [-1, -1]
    await asyncio.gather(listening, return_exceptions=True)
