"""Servers of STOMP: RabbitMQ with its plugin, and ActiveMQ of Debian, which may be only unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import aio_pika
import stompman

from tests.kit.brokers import Broker, Received
from tests.kit.brokers.rabbitmq import RabbitMq
from tests.kit.ports import free_port
from tests.kit.program import Missing


class RabbitMqStomp(RabbitMq):
    kind = "stomp"
    plugins = ("rabbitmq_stomp",)

    def __init__(self) -> None:
        super().__init__()
        self.stomp = free_port()
        self.more = [f"stomp.listeners.tcp.1 = 127.0.0.1:{self.stomp}"]

    async def answers(self) -> bool:
        if not await super().answers():
            return False
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.stomp)
            writer.close()
            return True
        return False

    async def prepare(self, topics: list[str]) -> None:
        connection = await self.connection()
        async with connection, connection.channel() as channel:
            await channel.declare_queue("jobs", durable=True)

    def table(self) -> dict[str, Any]:
        return {"kind": "stomp", "url": f"stomp://guest:guest@127.0.0.1:{self.stomp}"}

    def told(self, message: aio_pika.abc.AbstractIncomingMessage) -> Received:
        found = super().told(message)
        return Received(found.headers["jobqueue-key"], found.headers, found.body)


class ActiveMq(Broker):
    kind = "stomp"
    is_kept = True

    def __init__(self) -> None:
        super().__init__()
        self.stomp = free_port()
        self._kept: list[Received] = []

    def command(self) -> list[str]:
        program = Path(shutil.which("activemq") or "/usr/bin/activemq")
        folders = [program.parent.parent / "share/java", Path("/usr/share/java")]
        java = shutil.which("java")
        if java is None or not any(list(folder.glob("activemq-broker*.jar")) for folder in folders):
            raise Missing("activemq")
        paths = os.pathsep.join(f"{folder}/*" for folder in folders)
        where = f"broker:(stomp://127.0.0.1:{self.stomp})?brokerName=t&useJmx=false&dataDirectory={self.folder}/data"
        quick = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # it does not live long
        return [java, *quick, "-cp", paths, "org.apache.activemq.console.Main", "start", where]

    async def answers(self) -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.stomp)
            writer.close()
            return True
        return False

    async def clear(self) -> None:
        await self.received()
        self._kept.clear()

    async def prepare(self, topics: list[str]) -> None:
        """Queues come into being with their first message."""

    def table(self) -> dict[str, Any]:
        return {"kind": "stomp", "url": f"stomp://127.0.0.1:{self.stomp}"}

    async def received(self) -> list[Received]:
        """What the queue has is taken out, and kept here."""
        server = stompman.ConnectionParameters("127.0.0.1", self.stomp, "", "")
        last = asyncio.get_running_loop().time()

        async def note(frame: stompman.MessageFrame) -> None:
            nonlocal last
            last = asyncio.get_running_loop().time()
            headers = {name: str(value) for name, value in frame.headers.items()}
            self._kept.append(Received(headers["jobqueue-key"], headers, frame.body))

        async with stompman.Client([server]) as client:
            subscription = await client.subscribe(
                "/queue/jobs", note, on_suppressed_exception=lambda *_: None, headers={"activemq.prefetchSize": "1000"}
            )
            while asyncio.get_running_loop().time() - last < 1.5:  # noqa: ASYNC110 - nothing tells that it is empty
                await asyncio.sleep(0.05)
            await subscription.unsubscribe()
        return list(self._kept)
