"""beanstalkd: text lines over TCP."""

from __future__ import annotations

import math
from typing import Any

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.drivers.stream import PATIENCE_S


class Beanstalkd(Driver):
    NAME = "beanstalkd"
    HOLDS = True
    SETTLES = False

    def __init__(self, port: int, *, ttr_s: float = 60.0, within_s: float = PATIENCE_S) -> None:
        super().__init__(port, ttr_s=ttr_s, within_s=within_s)
        self._used = self._watched = "default"

    async def say(self, line: str, data: bytes | None = None) -> bytes:
        """The line that answers a command."""
        await self._stream.send(line.encode() + b"\r\n" + (b"" if data is None else data + b"\r\n"))
        return await self._stream.line()

    async def expect(self, line: str, start: bytes) -> bytes:
        answer = await self.say(line)
        if not answer.startswith(start):
            raise RefusedError(line, answer)
        return answer

    async def document(self, line: str) -> dict[str, str] | None:
        """What a command of statistics answers, None for NOT_FOUND."""
        answer = await self.say(line)
        if answer == b"NOT_FOUND":
            return None
        word, length = answer.split()
        assert word == b"OK", answer
        text = (await self._stream.exactly(int(length) + 2)).decode()
        pairs = (each.partition(": ") for each in text.splitlines() if ": " in each)
        return {name: value.strip('"') for name, _, value in pairs}

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        if self._used != topic:
            await self.expect(f"use {topic}", b"USING")
            self._used = topic
        answer = await self.say(f"put 1024 {int(delay_s)} {math.ceil(self.ttr_s)} {len(body)}", body)
        if not answer.startswith(b"INSERTED "):
            raise RefusedError(answer)
        return Added(int(answer.split()[1]), due)

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        if self._watched != topic:
            await self.expect(f"watch {topic}", b"WATCHING")
            await self.expect(f"ignore {self._watched}", b"WATCHING")
            self._watched = topic
        answer = await self.say(f"reserve-with-timeout {math.ceil(wait_s)}")
        if answer in (b"TIMED_OUT", b"DEADLINE_SOON"):
            return None
        return await self._reserved(topic, answer)

    async def _reserved(self, topic: str, answer: bytes) -> Taken:
        words = answer.split()
        if words[0] != b"RESERVED":
            raise RefusedError(answer)
        body = await self._stream.exactly(int(words[2]) + 2)
        assert body.endswith(b"\r\n"), body
        return Taken(topic, int(words[1]), body[:-2])

    async def _finish(self, job: Taken) -> bool:
        return await self.say(f"delete {job.name}") == b"DELETED"

    async def _cancel(self, topic: str, name: Any) -> bool:
        return await self.say(f"delete {name}") == b"DELETED"

    async def _is_there(self, topic: str, name: Any) -> bool:
        return await self.document(f"stats-job {name}") is not None

    async def refusals(self, topic: str) -> None:
        for line, said in (
            ("put 1024 0 60 x", b"BAD_FORMAT"),
            (f"put {2**64} 0 60 1", b"BAD_FORMAT"),
            ("reserve-with-timeout -1", b"BAD_FORMAT"),
            ("delete 999999", b"NOT_FOUND"),
            ("release 999999 0 0", b"NOT_FOUND"),
            ("bury 999999 0", b"NOT_FOUND"),
            ("touch 999999", b"NOT_FOUND"),
            ("reserve-job 999999", b"NOT_FOUND"),
            (f"use {'x' * 201}", b"BAD_FORMAT"),
            ("PUT 1 0 60 1", b"UNKNOWN_COMMAND"),
        ):
            assert await self.say(line) == said, line
        assert await self.say("put 1024 0 60 1", b"too long") == b"EXPECTED_CRLF"
        # What follows the data that were announced is read as commands, as theirs does.
        while await self.say("list-tube-used") != f"USING {self._used}".encode():
            pass
        await self.close()

    async def close(self) -> None:
        self._used = self._watched = "default"
        await super().close()
