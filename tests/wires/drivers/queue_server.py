"""queue_server: JSON objects over TCP, or a datagram each."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from typing import Any, ClassVar

from tests.wires.drivers import Added, Driver, RefusedError, Taken

_AN_HOUR = 3600
_AGAIN_S = 2.0


class QueueServer(Driver):
    NAME = "queue_server"

    async def ask(self, action: int | None, **members: Any) -> Any:
        """The answer to a request; all that the answer should repeat is checked."""
        seq = random.randrange(1 << 31)
        asked = {"action": action, **members, "seq": seq}
        answer = await self._exchange(json.dumps(asked, ensure_ascii=False).encode(), seq)
        assert answer["seq"] == seq and answer["action"] == action, answer
        return answer

    async def _exchange(self, request: bytes, seq: int) -> Any:
        await self._stream.send(request)
        text = b""
        while True:
            text += await self._stream.some()
            try:
                return json.loads(text)
            except ValueError:
                continue

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        at = math.ceil(due)
        asked = {"delay": at, "ttl": at + _AN_HOUR} if delay_s else {"ttl": int(time.time()) + _AN_HOUR}
        answer = await self.ask(1, queue=topic, data=body.decode(), retry=math.ceil(self.ttr_s), **asked)
        if answer["code"] != 0:
            raise RefusedError(answer)
        assert "data" not in answer
        return Added(answer["msg_id"], float(at) if delay_s else due)

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        answer = await self.ask(2, queue=topic, **({"wait": math.ceil(wait_s)} if wait_s else {}))
        if answer["code"] != 0:
            raise RefusedError(answer)
        return Taken(topic, answer["msg_id"], answer["data"].encode()) if "msg_id" in answer else None

    async def _finish(self, job: Taken) -> bool:
        return await self._cancel(job.topic, job.name)

    async def _cancel(self, topic: str, name: Any) -> bool:
        answer = await self.ask(3, queue=topic, msg_id=name)
        if answer["code"] != 0:
            raise RefusedError(answer)
        return True

    async def _is_there(self, topic: str, name: Any) -> bool:
        return bool((await self.ask(4, queue=topic))["size"])

    async def refusals(self, topic: str) -> None:
        now = int(time.time())
        for action, members, reason in (
            (1, {"data": "x"}, "field error"),
            (1, {"queue": topic}, "field error"),
            (1, {"queue": topic, "data": 1}, "field error"),
            (1, {"queue": topic, "data": "x", "retry": -1}, "field error"),
            (1, {"queue": topic, "data": "x", "delay": "soon"}, "field error"),
            (1, {"queue": topic, "data": "x", "delay": now + 9, "ttl": now + 8}, "time error"),
            (1, {"queue": topic, "data": "x", "ttl": now - 9}, "time error"),
            (1, {"queue": "x" * 300, "data": "x"}, "field error"),
            (5, {"queue": topic}, "not support"),
            (9, {"queue": topic}, "invalid action"),
        ):
            answer = await self.ask(action, **members)
            assert (answer["code"], answer["reason"]) == (-1, reason), (action, members, answer)


class QueueServerDatagrams(QueueServer):
    """By UDP. An answer that is lost is asked for again."""

    NAME: ClassVar[str] = "queue_server by UDP"
    WAITS = False
    _ends: tuple[asyncio.DatagramTransport, asyncio.Queue[bytes]] | None = None

    async def _exchange(self, request: bytes, seq: int) -> Any:
        while True:
            transport, answers = await self._socket()
            transport.sendto(request)
            try:
                async with asyncio.timeout(_AGAIN_S):
                    while True:
                        answer = json.loads(await answers.get())
                        if answer.get("seq") == seq:
                            return answer
            except TimeoutError:
                continue

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        """Ask again and again: a datagram cannot wait."""
        end = time.monotonic() + wait_s
        while (found := await super()._pop(topic, 0)) is None and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found

    async def _socket(self) -> tuple[asyncio.DatagramTransport, asyncio.Queue[bytes]]:
        if self._ends is None:
            answers: asyncio.Queue[bytes] = asyncio.Queue()
            loop = asyncio.get_running_loop()
            where = ("127.0.0.1", self.port)
            transport, _ = await loop.create_datagram_endpoint(lambda: _Answers(answers), remote_addr=where)
            self._ends = transport, answers
        return self._ends

    async def close(self) -> None:
        if self._ends is not None:
            self._ends[0].close()
            self._ends = None


class _Answers(asyncio.DatagramProtocol):
    def __init__(self, answers: asyncio.Queue[bytes]) -> None:
        self._answers = answers

    def datagram_received(self, data: bytes, address: object) -> None:
        self._answers.put_nowait(data)
