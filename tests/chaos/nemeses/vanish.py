"""Clients that vanish: while they wait, just before their answer, or in the middle of it.

Some close the connection properly (FIN), some reset it (RST). Nobody learns what they were given; the history says so.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from urllib.parse import urlsplit

import msgspec

from tests.chaos.load.load import TOPICS, TTR_S
from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage

CLIENTS = 20


class Vanish(Nemesis):
    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        self._number = 0

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("vanish"):
            await asyncio.gather(*(self._client(stage) for _ in range(CLIENTS)))

    async def _client(self, stage: Stage) -> None:
        """A client that asks and hangs up at a random moment within a tenth of a second."""
        self._number += 1
        number, client = self._number, f"vanish-{self._number}"
        if stage.chance.random() < 0.8:
            command = {"command": "pop", "topics": stage.chance.sample(TOPICS, 5), "count": 3, "wait": 30}
        else:
            command = {"command": "add", "topic": TOPICS[0], "id": f"vanish:{number}", "ttr": TTR_S}
            command |= {"tries": 0, "retention": 3600, "body": number, "delay": 0}
        name, told = command["command"], {each: command.get(each) for each in ("id", "topic", "body", "ttr", "delay")}
        op = stage.history.invoke(client, str(name), **told)
        answer = await self._hang_up(stage, msgspec.json.encode(command))
        stage.history.complete(client, "info", str(name), op, id=told["id"], state=answer)

    async def _hang_up(self, stage: Stage, body: bytes) -> str:
        """What arrived of the answer before the client hung up: nothing, or the beginning."""
        place = urlsplit(stage.chance.choice(stage.urls))
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
        except OSError:
            return "nothing"
        writer.write(b"POST /command HTTP/1.1\r\nHost: chaos\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        try:
            async with asyncio.timeout(stage.chance.uniform(0, 0.1)):
                seen = await reader.read(20)
        except (TimeoutError, OSError):
            pass
        if stage.chance.random() < 0.5:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
        writer.transport.abort()
        return "begun" if seen else "nothing"
