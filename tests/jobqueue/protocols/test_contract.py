"""The contracts of the native protocol and of the dialects: what holds for each of them."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import structlog

from buckets import Durable, Notifier, Pollers, Pool, Topics, Waiting, Walk
from jobqueue.access.connections import ConnectionLimits
from jobqueue.commands.carrying_out import Commands
from jobqueue.dialect_settings import KINDS, HttpDialectSettings
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.errors import BadJson, BadRequest, Forbidden, NoSuchPath, ShuttingDown, TooLarge, Unauthorized
from jobqueue.metrics.process import Metrics
from jobqueue.protocols import (
    DIALECTS,
    Dialect,
    HttpDialect,
    Request,
    SocketDialect,
    Tools,
    load_dialect,
)
from jobqueue.protocols.command.protocol import CommandProtocol
from jobqueue.settings import Settings
from tests.jobqueue.entries import open_entry


def engine_of(pool: Pool) -> Engine:
    return Engine(
        *(pool, Topics(pool), Walk(pool), Waiting(pool, Notifier(pool))),
        Pollers(pool, Notifier(pool), "ab"),
        Policies(Settings()),
        Durable(pool, 1, 1),
    )


@pytest.fixture
def protocol(live_pool: Pool) -> CommandProtocol:
    return CommandProtocol(Commands(engine_of(live_pool), Metrics(), 5.0), Settings())


def dialect(name: str, pool: Pool, **options: Any) -> Dialect[Any]:
    """A dialect of the table."""
    engine = engine_of(pool)
    tools = Tools(
        Commands(engine, Metrics(), 5.0, name),
        Settings(),
        ConnectionLimits(30, 100),
        engine.give_back,
        open_entry(),
        lambda: True,
        time.time,
    )
    return load_dialect(name)(tools, KINDS[name](**options))


HTTP = [name for name, kind in KINDS.items() if issubclass(kind, HttpDialectSettings)]
ASKED = Request("POST", "/nowhere", "", {}, b"")


@pytest.mark.parametrize("error", [BadJson("not this"), NoSuchPath(), ShuttingDown(), RuntimeError("a customer's")])
async def test_the_native_protocol_renders_an_error(protocol: CommandProtocol, error: Exception) -> None:
    reply = protocol.refuse(error)
    assert 200 <= reply.status < 600
    assert reply.body and reply.content_type
    assert b"customer" not in reply.body


@pytest.mark.parametrize("data", [b"", b"\xff", b"[", b"nonsense", b"0" * 100, b"\0" * 10])
async def test_the_native_protocol_answers_bytes_of_any_kind(protocol: CommandProtocol, data: bytes) -> None:
    reply = await protocol.handle(data, [])
    assert reply.body and reply.status < 500


async def test_each_dialect_has_settings_and_is_over_http_or_on_sockets_as_they_are(live_pool: Pool) -> None:
    assert DIALECTS.keys() == KINDS.keys()
    for name in DIALECTS:
        assert isinstance(dialect(name, live_pool), HttpDialect if name in HTTP else SocketDialect)
        has_datagrams = name not in HTTP and "udp" in KINDS[name].__struct_fields__
        made = dialect(name, live_pool)
        assert not isinstance(made, SocketDialect) or (made.datagrams() is not None) is has_datagrams


@pytest.mark.parametrize("name", HTTP)
async def test_a_dialect_over_http_refuses_in_its_own_form(
    subtests: pytest.Subtests, live_pool: Pool, name: str
) -> None:
    cases: list[tuple[Exception, int | None]] = [
        (Unauthorized(missing=True), 401),
        (Unauthorized(missing=False), 401),
        (Forbidden(), 403),
        (TooLarge("the request is too large"), None),
        (BadJson("the request's body is damaged"), None),
        (ShuttingDown(), None),
        (RuntimeError("a customer's"), None),
    ]
    for error, status in cases:
        with subtests.test(error=error, status=status):
            made = dialect(name, live_pool)
            assert isinstance(made, HttpDialect)
            reply = made.refuse(error, ASKED)
            assert reply.status == status or (status is None and 200 <= reply.status < 600)
            assert reply.body and reply.content_type
            assert b"customer" not in reply.body


@pytest.mark.parametrize("name", HTTP)
async def test_a_dialect_over_http_counts_what_it_refuses_and_logs_what_nobody_expected(
    live_pool: Pool, name: str
) -> None:
    made = dialect(name, live_pool)
    assert isinstance(made, HttpDialect)
    with structlog.testing.capture_logs() as lines:
        for error in (Unauthorized(missing=False), RuntimeError("a bug")):
            made.refuse(error, ASKED)
    assert [line["event"] for line in lines] == ["command.failed"]
    metrics = made.tools.commands.metrics
    metrics.pour(0)
    for code in ("UNAUTHORIZED", "INTERNAL"):
        labels = {"protocol": name, "command": "unreadable", "code": code}
        assert metrics.registry.get_sample_value("jobqueue_commands_total", labels) == 1


@pytest.mark.parametrize("name", HTTP)
async def test_a_dialect_over_http_answers_requests_of_any_kind(
    subtests: pytest.Subtests, live_pool: Pool, name: str
) -> None:
    cases: list[str] = ["/", "/%", "/%FF", "/%ED%A0%80/x", "/~", "/api/a/b", "/a;b=1", "/" + "x" * 3000]
    for path in cases:
        with subtests.test(path=path):
            made = dialect(name, live_pool)
            assert isinstance(made, HttpDialect)
            for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
                for query, body in (
                    ("", b""),
                    ("a", b"\xff"),
                    ("%FF=%&&=", b"a=%zz"),
                    ("token", b"{"),
                    ("a=1&a=2", b"\0"),
                ):
                    asked = Request(method, path, query, {"Content-Type": "text/html"}, body)
                    try:
                        reply = await made.handle(asked, [])
                    except BadRequest as error:  # it catches nothing itself
                        reply = made.refuse(error, asked)
                    assert reply.status < 500 and reply.content_type


def test_a_dialect_that_is_off_is_not_imported() -> None:
    source = "import sys, jobqueue.app; print([name for name in sys.modules if name.startswith('jobqueue.protocols.')])"
    printed = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert "command" in printed and not any(name in printed for name in DIALECTS)
