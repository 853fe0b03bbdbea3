"""Greedy clients in processes of their own: each connection asks again as soon as it is answered, whatever it is told.

`python -m tests.access.rates.greedy` is such a process: it reads its task from standard input, and prints an Outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec

from jobqueue.access.issuing import Issued

_AGAIN_S = 0.05  # before a connection that broke is made anew
_PATIENCE_S = 30.0


class Task(msgspec.Struct):
    """What a process does."""

    ports: list[int]
    """Each connection begins with one of them in turn, and goes on to the next when it breaks."""
    token: str
    seconds: float
    connections: int
    pause_s: float
    """Between a refusal and the next request."""
    niceness: int
    """By which it lets others go first: a flood comes from another machine."""


class Outcome(msgspec.Struct):
    """What became of all requests."""

    taken: list[float]
    """When each success was answered, by time.monotonic, in order."""
    refused: int
    """By the rate."""
    others: dict[int, int]
    """Other answers, by status."""
    broken: int
    """Connections that broke."""


async def ask(ports: Sequence[int], issued: Issued, seconds: float, **options: Any) -> Outcome:
    """Ask for so many seconds, from several processes together. `options`: processes, connections (of each process),
    pause_s, niceness."""
    defaults = {"processes": 2, "connections": 8, "pause_s": 0.0, "niceness": 0}
    processes, *rest = (defaults | options).values()
    task = Task([*ports], issued.token.text, seconds, *rest)
    outcomes = await asyncio.gather(*(_process(task) for _ in range(processes)))
    return Outcome(
        sorted(each for outcome in outcomes for each in outcome.taken),
        sum(outcome.refused for outcome in outcomes),
        dict(sum((Counter(outcome.others) for outcome in outcomes), Counter())),
        sum(outcome.broken for outcome in outcomes),
    )


async def _process(task: Task) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.access.rates.greedy"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(task.seconds + _PATIENCE_S):
            told, _ = await process.communicate(msgspec.json.encode(task))
    finally:
        if process.returncode is None:
            process.kill()
    return msgspec.json.decode(told, type=Outcome)


class _Client:
    """The connections of this process."""

    def __init__(self, task: Task) -> None:
        body = json.dumps({"command": "add", "topic": "greedy", "body": 1})
        self._request = (
            f"POST /command HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {task.token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        self._task = task
        self._end = time.monotonic() + task.seconds
        self.outcome = Outcome([], 0, {}, 0)

    async def run(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._task.seconds):
                await asyncio.gather(*(self._connection(number) for number in range(self._task.connections)))

    async def _connection(self, number: int) -> None:
        ports = self._task.ports
        while True:
            try:
                await self._ask_on(ports[number % len(ports)])
            except (OSError, asyncio.IncompleteReadError):
                self.outcome.broken += 1
                number += 1
                await asyncio.sleep(_AGAIN_S)

    async def _ask_on(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(self._request)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
                await self._note(int(head.split()[1]))
        finally:
            writer.close()

    async def _note(self, status: int) -> None:
        if status == HTTPStatus.OK:
            self.outcome.taken.append(time.monotonic())
        elif status == HTTPStatus.TOO_MANY_REQUESTS:
            self.outcome.refused += 1
            await asyncio.sleep(self._task.pause_s)
        else:
            self.outcome.others[status] = self.outcome.others.get(status, 0) + 1


async def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    os.nice(task.niceness)
    client = _Client(task)
    await client.run()
    sys.stdout.buffer.write(msgspec.json.encode(client.outcome))


if __name__ == "__main__":
    asyncio.run(main())
