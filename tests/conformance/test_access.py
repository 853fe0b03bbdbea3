"""Every client against a service that asks for tokens; what it does with refusals and exchanges is in the scenario."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.participants import Driver, Line, Participant, Worker
from tests.kit.guarded import Guarded, guarded
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="guarded")
async def one_service() -> AsyncIterator[Guarded]:
    """A service that asks for tokens, shared by the tests."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name)) as service:
            yield service


def worker_of(participant: Participant, guarded: Guarded, topic: str) -> Worker:
    """A worker with the token in the file."""
    return Worker(participant, guarded.url, {"topics": [topic], "token_file": str(guarded.file)})


async def test_whoami_shows_what_the_token_may_do_and_the_rest_is_forbidden(
    participant: Participant, guarded: Guarded
) -> None:
    issued = await guarded.token("produce", topics=["mail-*"], rate=50)
    async with Driver(participant, "client", guarded.url, {"token": issued.token.text}) as client:
        told = (await client.ask("whoami", {}))["ok"]
        assert not told["open"]
        assert (told["id"], told["rights"], told["topics"], told["rate"]) == (
            *(issued.record.id, ["produce"], ["mail-*"]),
            50,
        )
        assert "ok" in await client.ask("add", {"topic": "mail-a", "body": 1})
        for call, topic, right in (("pop", "mail-a", "consume"), ("add", "orders", None)):
            told = (await client.ask(call, {"topic": topic, "body": 1} if call == "add" else {"topic": topic}))["error"]
            assert (told["class"], told["status"], told["right"]) == ("Forbidden", 403, right)


async def test_a_token_makes_exchanges_and_ends_another_one(participant: Participant, guarded: Guarded) -> None:
    issued = await guarded.token("admin")
    name = f"made-{participant.name}"
    async with Driver(participant, "client", guarded.url, {"token": issued.token.text}) as client:

        async def ask(action: str, **fields: Any) -> Line:
            line = await client.ask("token", {"action": action, **fields})
            assert "ok" in line, line
            told: Line = line["ok"]
            return told

        made = await ask("create", name=name, rights=["produce"], topics=["mail-*"])
        assert made["token"].startswith(f"jqt_{made['id']}")
        assert name in [each["name"] for each in (await ask("list"))["tokens"]]
        assert (await ask("test", id=made["id"], right="add", topic="mail-a"))["allowed"]
        assert not (await ask("test", id=made["id"], right="pop"))["allowed"]
        assert (await ask("rotate", id=made["id"], keep=60))["token"] != made["token"]
        assert "token" not in await ask("show", id=made["id"])
        assert (await ask("revoke", id=made["id"]))["state"] == "revoked"


async def test_a_worker_whose_token_ends_while_it_waits_goes_on_with_the_next_one(
    participant: Participant, guarded: Guarded
) -> None:
    topic = f"waits-{participant.name}"
    issued = await guarded.token("produce", "consume", topics=[topic])
    async with worker_of(participant, guarded, topic) as worker:
        await worker.event("worker.started")
        await until(lambda: guarded.service.parked(1))
        await guarded.issuing.revoke(issued.record.id)
        await worker.event("service.lost")
        next_one = await guarded.token("produce", "consume", topics=[topic])
        await worker.event("service.back")
        async with Driver(participant, "client", guarded.url, {"token": next_one.token.text}) as client:
            added = (await client.ask("add", {"topic": topic, "body": {"do": "return"}}))["ok"]
        await worker.event("job.finished", added["id"])
        assert await worker.stop() == 0


async def test_a_lease_is_kept_alive_though_the_token_is_exchanged_meanwhile(
    participant: Participant, guarded: Guarded
) -> None:
    topic = f"leases-{participant.name}"
    issued = await guarded.token("produce", "consume", topics=[topic])
    async with worker_of(participant, guarded, topic) as worker:
        async with Driver(participant, "client", guarded.url, {"token": issued.token.text}) as client:
            body = {"do": "sleep", "seconds": 3}
            added = (await client.ask("add", {"topic": topic, "body": body, "ttr": 1}))["ok"]
        await worker.handler("started", added["id"])
        newer = await guarded.issuing.rotate(issued.record.id)
        guarded.file.write_text(newer.token.text)
        await worker.event("job.finished", added["id"])
        assert not [line for line in worker.lines if line.get("event") in ("job.lost", "job.expired")]
        assert await worker.stop() == 0
