"""The ports of a process, and what holds for a dialect on them: paths, tokens, networks, refusals, the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
from aiohttp.http_parser import HttpRequestParserPy
from yarl import URL

from buckets import Redis
from buckets.errors import Unfit
from jobqueue.app import Service
from jobqueue.dialect_settings import Dialects, Lmstfy, Mykit, QueueServer
from jobqueue.protocols import DIALECTS
from jobqueue.settings import Loaded, Settings
from tests.jobqueue.small_dialects import HTTP, SOCKET
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

ELSEWHERE = ("192.0.2.0/24",)
TOKEN = "s3cret+/ü"  # noqa: S105 - of these tests


@pytest.fixture(autouse=True)
def small_dialects(monkeypatch: pytest.MonkeyPatch, redis: Redis) -> None:
    """They take the places of two real ones; Redis is empty."""
    monkeypatch.setitem(DIALECTS, "lmstfy", HTTP)
    monkeypatch.setitem(DIALECTS, "queue_server", SOCKET)


@contextlib.asynccontextmanager
async def serving(server: RedisServer, grace_s: float = 1, **dialects: Any) -> AsyncIterator[Service]:
    settings = Settings(port=0, redis=server.url, grace_s=grace_s, protocols=Dialects(**dialects))
    async with Service(settings) as service:
        yield service


class Answer(msgspec.Struct):
    status: int
    text: str
    headers: Any


async def ask(url: str, path: str, method: str = "GET", **options: Any) -> Answer:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, URL(url + path, encoded=True), **options) as response,
    ):
        return Answer(response.status, await response.text(), response.headers)


def own(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def test_a_dialect_has_its_own_port_with_health_checks_and_nothing_else_of_ours(
    redis_server: RedisServer,
) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)) as service:
        for path in ("/healthz", "/readyz"):
            assert (await ask(own(port), path)).text == (await ask(service.url, path)).text
        for path in ("/command", "/metrics", "/openapi.json", "/"):
            assert (await ask(own(port), path)).text == f'["GET","{path}","",""]'
        for method in ("PUT", "DELETE", "POST", "OPTIONS"):
            assert (await ask(own(port), "/x", method, data=b"1")).text == f'["{method}","/x","","1"]'
        assert (await ask(own(port), "/x", "HEAD")).status == 200
        native = await ask(own(port), "/command", "POST", json={"command": "stats"})
        assert native.text.startswith('["POST","/command"')
        assert (await ask(service.url, "/x")).status == 404


async def test_a_dialect_may_also_be_below_a_path_of_the_services_port(redis_server: RedisServer) -> None:
    async with serving(redis_server, lmstfy=Lmstfy(path="/lm/v1")) as service:
        for path, below in (("/lm/v1", "/"), ("/lm/v1/", "/"), ("/lm/v1/a//b/?x=1", "/a/b/"), ("//lm//v1//a", "/a")):
            assert (await ask(service.url, path)).text.startswith(f'["GET","{below}"')
        for path in ("/lm", "/lm/v10", "/lm/v2/a", "/healthzz"):
            refused = await ask(service.url, path)
            assert refused.status == 404 and '"NO_SUCH_PATH"' in refused.text
        assert (await ask(service.url, "/lm/v1/add", "POST", data=b"7")).status == 201


async def test_the_longest_path_that_a_request_is_below_has_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DIALECTS, "mykit", HTTP)
    for one, other in (("/", "/a"), ("/a", "/")):
        async with serving(redis_server, mykit=Mykit(path=one), lmstfy=Lmstfy(path=other)) as service:
            assert (await ask(service.url, "/a/b")).text == '["GET","/b","",""]'
            assert (await ask(service.url, "/ab")).text == '["GET","/ab","",""]'


async def test_a_connection_too_many_may_only_ask_for_health(redis_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=redis_server.url, max_connections=1, protocols=Dialects(lmstfy=Lmstfy(port=port, path="/lm"))
    )
    async with Service(settings) as service, aiohttp.ClientSession() as session:
        async with session.get(own(port) + "/healthz") as response:  # keeps its connection
            assert response.status == 200
        for url, path in ((own(port), "/x"), (service.url, "/lm/x")):
            refused = await ask(url, path)
            assert (refused.status, refused.text) == (503, "refused: NO_ROOM /x")
        assert (await ask(own(port), "/healthz")).status == 200


async def test_at_the_root_of_the_services_port_it_hides_no_page_of_the_services_own(redis_server: RedisServer) -> None:
    async with serving(redis_server, lmstfy=Lmstfy(path="/")) as service:
        assert '"service":"jobqueue"' in (await ask(service.url, "/")).text
        assert "jobqueue_commands_total" in (await ask(service.url, "/metrics")).text
        assert '"METHOD_NOT_ALLOWED"' in (await ask(service.url, "/command", "PUT")).text
        assert (await ask(service.url, "/api/x")).text == '["GET","/api/x","",""]'


async def test_path_and_query_reach_it_as_they_came(redis_server: RedisServer) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)):
        answer = await ask(own(port), "/a%2Fb%20c//d?x=%41&y=+&token=t&&z", "DELETE", data=b"ignored")
        assert answer.text == '["DELETE","/a%2Fb%20c/d","x=%41&y=+&&z","ignored"]'
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://elsewhere//x?y HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b'["GET","/x","y",""]')
        writer.close()
        await writer.wait_closed()


async def test_a_path_that_is_not_utf_8_is_one_that_nobody_has(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiohttp.web_protocol.HttpRequestParser", HttpRequestParserPy)  # the other refuses it itself
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /\xff\xc3\xa9/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.readuntil('["GET","/\ufffdé/x","",""]'.encode())
        writer.close()
        await writer.wait_closed()


async def test_requests_have_ids_and_no_redirects(redis_server: RedisServer) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)):
        answer = await ask(own(port), "/add", "POST", data=b"1", headers={"X-Request-Id": "mine"})
        assert answer.headers["X-Request-Id"] == "mine" and answer.headers["Server"] == "jobqueue"
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert (await ask(own(port), "/x")).headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/x", {}, 401),
        ("/x", {"Authorization": f"Bearer {TOKEN}"}, 200),
        ("/x", {"Authorization": f"bearer  {TOKEN}"}, 200),
        ("/x", {"Authorization": f"Basic {TOKEN}"}, 401),
        ("/x", {"Authorization": "Bearer s3cret"}, 401),
        ("/x", {"X-Token": TOKEN}, 200),
        ("/x", {"X-Token": f"pool:{TOKEN}"}, 200),
        ("/x?token=s3cret%2B/%C3%BC", {}, 200),
        ("/x?token=s3cret+/%C3%BC", {}, 401),
        ("/x?token=", {}, 401),
        ("/~s3cret%2B%2F%C3%BC/x", {}, 200),
        ("/~s3cret+%2F%C3%BC/x", {}, 200),
        ("/~s3cret/x", {}, 401),
        ("/open", {}, 200),
    ],
)
async def test_a_token_comes_in_a_header_the_query_or_the_path(
    redis_server: RedisServer, path: str, headers: dict[str, str], status: int
) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port, token=TOKEN)):
        answer = await ask(own(port), path, headers=headers)
    words = {401: "refused: UNAUTHORIZED /x", 200: f'["GET","{path.partition("?")[0][-2:]}","",""]'}
    assert answer.status == status
    assert path == "/open" or answer.text == words[status]


async def test_a_token_is_in_no_log_metric_or_refusal(redis_server: RedisServer) -> None:
    port = free_port()
    with structlog.testing.capture_logs() as lines:
        async with serving(redis_server, lmstfy=Lmstfy(port=port, token="hush")) as service:  # noqa: S106
            answers = [await ask(own(port), path) for path in ("/~hush/fail", "/fail?token=hush", "/~whisper/x")]
            answers.append(await ask(service.url, "/metrics"))
    assert [answer.status for answer in answers] == [500, 500, 401, 200]
    said = "".join(answer.text for answer in answers) + str(lines)
    assert "hush" not in said and "whisper" not in said and "customer" not in answers[0].text
    assert 'jobqueue_commands_total{code="INTERNAL",command="unreadable",protocol="lmstfy"} 2.0' in answers[3].text
    assert [line["status"] for line in lines if line["event"] == "request.failed"] == [500, 500]


async def test_only_the_allowed_networks_get_through(redis_server: RedisServer) -> None:
    port, other = free_port(), free_port()
    dialects: dict[str, Any] = {
        "lmstfy": Lmstfy(port=port, path="/lm", allow=ELSEWHERE),
        "queue_server": QueueServer(port=other, allow=ELSEWHERE),
    }
    async with serving(redis_server, **dialects) as service:
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await ask(own(port), "/healthz")
        refused = await ask(service.url, "/lm/x")
        assert (refused.status, refused.text) == (403, "refused: FORBIDDEN /x")
        assert (await ask(service.url, "/healthz")).status == 200
        assert await datagram(other, b"x", answers=False) is None


async def test_options_are_reloaded_but_not_where_it_listens(redis_server: RedisServer) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)) as service:
        later = Dialects(lmstfy=Lmstfy(port=1, path="/now", token=TOKEN), queue_server=QueueServer(port=2))
        service.reload(Loaded(Settings(port=0, redis=redis_server.url, protocols=later), {}))
        assert (await ask(own(port), "/x")).status == 401
        assert (await ask(service.url, "/now/x", headers={"X-Token": TOKEN})).status == 200
        service.reload(Loaded(Settings(protocols=Dialects(lmstfy=Lmstfy(port=port, allow=ELSEWHERE))), {}))
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await ask(own(port), "/healthz")


async def test_a_request_that_is_too_large_is_refused_in_the_dialects_form(
    redis_server: RedisServer,
) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=redis_server.url, max_request_bytes=1024, protocols=Dialects(lmstfy=Lmstfy(port=port))
    )
    async with Service(settings):
        large = await ask(own(port), "/add", "POST", data=b"1" * 1025)
        assert (large.status, large.text) == (413, "refused: TOO_LARGE /add")


async def test_a_body_that_is_damaged_is_refused_in_the_dialects_form(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiohttp.web_protocol.HttpRequestParser", HttpRequestParserPy)  # the other refuses it itself
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /add HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        await reader.readuntil(b"100 Continue\r\n\r\n")  # the request has begun
        writer.write(b"no chunk\r\n")
        assert await reader.readuntil(b"refused: BAD_JSON /add")
        writer.close()
        await writer.wait_closed()


@functools.cache
def encoded(size: int, encoding: str) -> bytes:
    """Zeros, as small as the encoding makes them; bytes that are none, where this library cannot write it."""
    kinds = {"gzip": 31, "deflate": 15}
    if encoding not in kinds:
        return bytes(1000)
    squeezer = zlib.compressobj(9, wbits=kinds[encoding])
    return squeezer.compress(bytes(size)) + squeezer.flush()


async def flood(port: int, path: str, fields: str, body: bytes, times: int = 5) -> tuple[float, set[bytes]]:
    """Send a request some times, each on a connection of its own, until it is closed. Returns the seconds of CPU that
    this took, and the status lines."""
    began, statuses = time.process_time(), set()
    for _ in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n".encode() + body)
        statuses.add((await reader.read()).partition(b"\r\n")[0])
        writer.close()
    return time.process_time() - began, statuses


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip"])
async def test_no_body_is_inflated_on_any_port_and_path(redis_server: RedisServer, encoding: str) -> None:
    body = encoded(200 << 20, encoding.lower().partition(",")[0].removeprefix("x-"))
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)) as service:
        native = int(service.url.rpartition(":")[2])
        for target, path in ((native, "/command"), (native, "/nowhere"), (native, "/healthz"), (port, "/add")):
            for length, data in (
                (f"Content-Length: {len(body)}\r\n", body),
                ("Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
            ):
                plain, _ = await flood(target, path, length, data)
                taken, statuses = await flood(target, path, f"{length}Content-Encoding: {encoding}\r\n", data)
                assert statuses == {b"HTTP/1.1 415 Unsupported Media Type"}
                assert taken < 10 * plain + 0.1, (path, length)  # inflated, they take a second and more


async def test_the_bodies_of_refused_requests_are_let_go_of_at_once(redis_server: RedisServer) -> None:
    """Not only when the collector runs, which is rarely."""
    times, body = 30, bytes(240_000)
    async with serving(redis_server) as service:
        port = int(service.url.rpartition(":")[2])
        fields = f"Content-Length: {len(body)}\r\nContent-Encoding: gzip\r\n"
        await flood(port, "/command", fields, body)
        gc.disable()
        tracemalloc.start()
        try:
            await flood(port, "/command", fields, body, times)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < times * len(body) / 4


@pytest.mark.parametrize("is_dialect", [False, True])
async def test_a_body_that_goes_on_and_on_after_its_refusal_is_cut_off(
    redis_server: RedisServer, *, is_dialect: bool
) -> None:
    """One of a usual size is read to its end, so that the client gets its answer."""
    own_port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=own_port, token=TOKEN)) as service:
        port = own_port if is_dialect else int(service.url.rpartition(":")[2])
        for size, is_cut_off in ((2_000_000, False), (100_000_000, True)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 4")  # no such path, or no token
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < size:
                    writer.write(bytes(100_000))
                    sent += 100_000
                    await writer.drain()
            assert (sent < size) == is_cut_off
            if not is_cut_off:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await reader.readuntil(b"HTTP/1.1 200 OK\r\n")
            writer.close()


async def test_the_job_of_a_client_that_hung_up_goes_to_the_next(redis_server: RedisServer) -> None:
    port = free_port()
    async with serving(redis_server, lmstfy=Lmstfy(port=port)):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /pop?5 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.05)  # so that it waits; should it not yet, the test passes all the same
        writer.close()
        await writer.wait_closed()
        added = await ask(own(port), "/add", "POST", data=b"1")
        assert (await ask(own(port), "/pop?5")).text == added.text


async def datagram(port: int, data: bytes, *, answers: bool = True) -> bytes | None:
    """What comes back for a datagram; None: nothing, where nothing should."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.setblocking(False)
        await loop.sock_connect(end, ("127.0.0.1", port))
        await loop.sock_sendall(end, data)
        try:
            async with asyncio.timeout(10 if answers else 0.2):
                return await loop.sock_recv(end, 100)
        except TimeoutError:
            return None


async def test_a_dialect_of_its_own_sockets_has_tcp_and_udp(redis_server: RedisServer) -> None:
    port = free_port()
    async with serving(redis_server, queue_server=QueueServer(port=port)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert await datagram(port, b"hello") == b"hello"
        writer.close()
        await writer.wait_closed()
    async with serving(redis_server, queue_server=QueueServer(port=port, udp=False)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", port))


async def test_at_the_end_connections_are_drained_and_then_have_their_grace(redis_server: RedisServer) -> None:
    http, other = free_port(), free_port()
    dialects: dict[str, Any] = {"lmstfy": Lmstfy(port=http), "queue_server": QueueServer(port=other)}
    reader = writer = waiting = None
    async with serving(redis_server, 30, **dialects):
        reader, writer = await asyncio.open_connection("127.0.0.1", other)
        writer.write(b".")
        assert await reader.readexactly(1) == b"."
        waiting = asyncio.create_task(ask(own(http), "/pop?30"))
        await asyncio.sleep(0.05)
        ended = asyncio.create_task(_last_words(reader, writer, other))
    assert (await ended) == b"bye"
    answer = await waiting
    assert (answer.text, answer.headers["Connection"]) == ("nothing", "close")


async def _last_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> bytes:
    """What the connection gets when the service stops; then it is closed, and no other is taken."""
    words = await reader.readexactly(3)
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()
    return words


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
async def test_a_port_in_use_is_named_with_its_protocol(redis_server: RedisServer, kind: int) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        with pytest.raises(Unfit, match=f"the port {port} of protocols.queue_server is in use"):
            async with serving(redis_server, queue_server=QueueServer(port=port)):
                pass
