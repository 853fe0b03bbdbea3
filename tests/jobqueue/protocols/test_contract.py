"""The contract of the protocols: what holds for each of them."""

from __future__ import annotations

import pytest

from buckets import Durable, Notifier, Pollers, Pool, Topics, Waiting, Walk
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.engine.policies import Policies
from jobqueue.errors import BadJson, NoSuchPath, ShuttingDown
from jobqueue.metrics.process import Metrics
from jobqueue.protocols import NATIVE, PROTOCOLS, Protocol, load
from jobqueue.settings import Settings


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest, live_pool: Pool) -> Protocol[object]:
    """Each of the table."""
    settings = Settings()
    engine = Engine(
        *(live_pool, Topics(live_pool), Walk(live_pool), Waiting(live_pool, Notifier(live_pool))),
        Pollers(live_pool, Notifier(live_pool), "ab"),
        Policies(settings),
        Durable(live_pool, 1, 1),
    )
    return load(request.param)(Commands(engine, Metrics(), 5.0), settings)


async def test_it_has_a_path(protocol: Protocol[object]) -> None:
    assert protocol.path.startswith("/") and not protocol.path.endswith("/")


async def test_no_two_have_one_path() -> None:
    assert len({load(name).path for name in PROTOCOLS}) == len(PROTOCOLS)
    assert NATIVE in PROTOCOLS


@pytest.mark.parametrize("error", [BadJson("not this"), NoSuchPath(), ShuttingDown(), RuntimeError("a customer's")])
async def test_it_renders_an_error_in_its_own_form(protocol: Protocol[object], error: Exception) -> None:
    reply = protocol.refuse(error)
    assert 200 <= reply.status < 600
    assert reply.body and reply.content_type
    assert b"customer" not in reply.body


@pytest.mark.parametrize("data", [b"", b"\xff", b"[", b"nonsense", b"0" * 100, b"\0" * 10])
async def test_it_answers_bytes_of_any_kind(protocol: Protocol[object], data: bytes) -> None:
    reply = await protocol.handle(data, [])
    assert reply.body and reply.status < 500
