"""RabbitMQ of Debian, which may be only unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aio_pika
import aiormq.exceptions

from tests.kit.brokers import Broker, Received
from tests.kit.ports import free_ports
from tests.kit.program import Missing


class RabbitMq(Broker):
    """`more`: lines of its configuration; `plugins`: what is enabled."""

    kind = "amqp"
    is_kept = True
    plugins: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.port, self._dist, self._epmd, *self.others = free_ports(4)
        self.more: list[str] = []
        self._kept: list[Received] = []
        self._node = f"jq{self.port}@localhost"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def scripts(self) -> Path:
        """The folder of its programs. Raises Missing."""
        program = shutil.which("rabbitmq-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None or shutil.which("erl") is None:
            raise Missing("rabbitmq-server")
        prefix = Path(program).parent.parent
        return next((prefix / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*")) / "sbin"

    def command(self) -> list[str]:
        scripts = self.scripts()
        plain = [f"listeners.tcp.1 = 127.0.0.1:{self.port}", "loopback_users = none", "log.console = false"]
        (self.folder / "rabbitmq.conf").write_text("\n".join([*plain, *self.more]) + "\n")
        (self.folder / "plugins").write_text(f"[{','.join(self.plugins)}].\n")
        variables = (f"{name}={value}" for name, value in self._environment().items())
        return ["env", *variables, str(scripts / "rabbitmq-server")]

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            **{"HOME": str(folder), "RABBITMQ_NODENAME": self._node, "RABBITMQ_CONF_ENV_FILE": "/dev/null"},
            **{"RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf", "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins"},
            **{"RABBITMQ_MNESIA_BASE": f"{folder}/data", "RABBITMQ_LOG_BASE": f"{folder}/log-files"},
            **{"RABBITMQ_DIST_PORT": str(self._dist), "ERL_EPMD_PORT": str(self._epmd)},
        }

    async def control(self, *arguments: str) -> None:
        """`rabbitmqctl`."""
        environment = {**os.environ, **self._environment()}
        program = [str(self.scripts() / "rabbitmqctl"), "-n", self._node, *arguments]
        await asyncio.to_thread(subprocess.run, program, env=environment, check=True, capture_output=True, timeout=60)

    def remove(self) -> None:
        if epmd := shutil.which("epmd"):
            command = [epmd, "-port", str(self._epmd), "-relaxed_command_check", "-kill"]
            subprocess.run(command, capture_output=True, check=False, timeout=20)
        super().remove()

    async def connection(self) -> aio_pika.abc.AbstractConnection:
        return await aio_pika.connect(self.url, timeout=5)

    async def answers(self) -> bool:
        try:
            connection = await self.connection()
            await connection.close()
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError):
            return False
        return True

    async def clear(self) -> None:
        """What `prepare` has made stays: what was declared less than two seconds before a kill may be lost."""
        connection = await self.connection()
        async with connection, connection.channel() as channel:
            for name in ("full", "a/b:c"):
                await channel.queue_delete(name)
            with contextlib.suppress(aiormq.exceptions.ChannelNotFoundEntity):
                await (await channel.declare_queue("jobs", passive=True)).purge()
        self._kept.clear()

    async def forget(self) -> None:
        """Remove what `prepare` has made."""
        connection = await self.connection()
        async with connection, connection.channel() as channel:
            await channel.exchange_delete("jobs")
            await channel.queue_delete("jobs")

    async def prepare(self, topics: list[str]) -> None:
        connection = await self.connection()
        async with connection, connection.channel() as channel:
            exchange = await channel.declare_exchange("jobs", aio_pika.ExchangeType.TOPIC, durable=True)
            queue = await channel.declare_queue("jobs", durable=True)
            await queue.bind(exchange, "#")

    def table(self) -> dict[str, Any]:
        return {"kind": "amqp", "url": self.url, "exchange": "jobs"}

    async def received(self) -> list[Received]:
        """What the queue has is taken out, and kept here."""
        connection = await self.connection()
        async with connection, connection.channel() as channel:
            queue = await channel.declare_queue("jobs", passive=True)
            left = queue.declaration_result.message_count or 0
            async with queue.iterator(timeout=20) as messages:
                while left:
                    message = await anext(messages)
                    self._kept.append(self.told(message))
                    left -= 1
                    if not left:
                        await message.ack(multiple=True)  # what came beyond goes back
        return list(self._kept)

    def told(self, message: aio_pika.abc.AbstractIncomingMessage) -> Received:
        """A message as the suite sees it."""
        headers = {name: str(value) for name, value in message.headers.items()}
        return Received(message.message_id or "", headers, message.body)
