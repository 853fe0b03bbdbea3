"""NATS with JetStream."""

from __future__ import annotations

import shutil
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.kit.brokers import Broker, Received
from tests.kit.ports import free_port
from tests.kit.program import Missing


async def _silent(error: Exception) -> None:
    pass


class NatsServer(Broker):
    kind = "nats"
    most_body = 1 << 20
    drops_repetitions = True

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.more: list[str] = []
        """More of its options."""

    def command(self) -> list[str]:
        program = shutil.which("nats-server")
        if program is None:
            raise Missing("nats-server")
        return [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "data"), *self.more]

    async def client(self, login: str = "") -> Client:
        """`login`: user and password, as a URL has them."""
        client = Client()
        try:
            await client.connect(f"nats://{login}127.0.0.1:{self.port}", allow_reconnect=False, error_cb=_silent)
        except BaseException:
            await client.close()
            raise
        return client

    async def answers(self) -> bool:
        try:
            client = await self.client()
            await client.jetstream().account_info()
            await client.close()
        except (OSError, nats.errors.Error) as error:
            return "authorization" in str(error).lower()  # it asks for a password that is not given here
        return True

    async def prepare(self, topics: list[str]) -> None:
        client = await self.client()
        await client.jetstream().add_stream(name="jobs", subjects=["jobs.>"])
        await client.close()

    def table(self) -> dict[str, Any]:
        return {"kind": "nats", "url": f"nats://127.0.0.1:{self.port}"}

    async def received(self) -> list[Received]:
        client = await self.client()
        stream = client.jetstream()
        left = (await stream.stream_info("jobs")).state.messages
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        reader = await stream.pull_subscribe("jobs.>", config=config, stream="jobs")
        found: list[Received] = []
        while len(found) < left:
            for message in await reader.fetch(min(500, left - len(found)), timeout=20):
                headers = dict(message.headers or {})
                found.append(Received(headers.pop("Nats-Msg-Id"), headers, message.data))
        await client.close()
        return found
