"""A gate between the service and Redis: counts the commands that pass, and can strike at one of them.

A point is a command (for a script, its name), its number among those of its kind, and whether the strike comes before
it (Redis never receives it) or after it (Redis has done it, and its answer is dropped). Each kind is counted
separately, because beats and timers come at times of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, Self

import hiredis

from buckets.scripts import SCRIPTS

BEFORE = "before"
AFTER = "after"
_SCRIPTS = {script.sha: script.name for script in SCRIPTS.values()}
_TEXTS = {script.text: script.name for script in SCRIPTS.values()}
_LISTENING = ("SUBSCRIBE", "SSUBSCRIBE")
_CHUNK = 1 << 16


class Point(NamedTuple):
    """Where to strike."""

    command: str
    number: int  # from 1
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.command} {self.number}"


class Gate:
    """The service connects to `url`, and what it asks goes to the server at the Unix socket `target`. Use with `async
    with`."""

    def __init__(self, target: str, path: str) -> None:
        self.url = f"unix://{path}"
        self.passed: Counter[str] = Counter()
        """How many of each kind have passed since `arm`."""
        self.struck = False
        self.open = False
        """While set, commands are not counted."""
        self._target = target
        self._path = path
        self._point: Point | None = None
        self._strike: Callable[[], None] | None = None
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        tasks = list(self._open)
        self._hang_up()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def arm(self, point: Point | None, strike: Callable[[], None] | None = None) -> None:
        """Restart the counts. At the point, call `strike`, which ends the service, and then end all its connections;
        without `strike`, end only the connection that the command came over.
        """
        self.passed.clear()
        self.struck = self.open = False
        self._point, self._strike = point, strike

    def _hang_up(self) -> None:
        for writers in self._open.values():
            for writer in writers:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        writers = self._open[task] = [writer]
        try:
            answers, server = await asyncio.open_unix_connection(self._target)
            writers.append(server)
            await self._pass_on(reader, writer, answers, server)
        except (OSError, EOFError):
            pass  # one end is gone, so the other goes too
        finally:
            del self._open[task]
            for each in writers:
                each.transport.abort()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        """Pass on commands one by one, each with its answer, until the point is reached or one end hangs up."""
        async for raw, words in _commands(reader):
            kind = _kind(words)
            when = None if self.open else self._counted(kind)
            if when == BEFORE:
                return self._hit()
            server.write(raw)
            answer = await _answer(answers)
            if when == AFTER:
                return self._hit()
            writer.write(answer)
            if kind in _LISTENING:
                return await _both(_copy(reader, server), _copy(answers, writer))
        return None

    def _counted(self, kind: str) -> str | None:
        """When to strike, if this command is the point."""
        self.passed[kind] += 1
        point = self._point
        reached = point and not self.struck and (point.command, point.number) == (kind, self.passed[kind])
        return point.when if point and reached else None

    def _hit(self) -> None:
        self.struck = True
        if self._strike:
            self._strike()
            self._hang_up()


def _kind(words: list[bytes]) -> str:
    name = words[0].decode().upper()
    if name == "EVALSHA":
        return _SCRIPTS[words[1].decode()]
    if name == "EVAL":
        return _TEXTS[words[1].decode()]
    return name


async def _commands(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, list[bytes]]]:
    """Commands as raw bytes, with their words. Raises EOFError when the service hangs up."""
    while True:
        head = await reader.readuntil(b"\r\n")
        raw, words = [head], []
        for _ in range(int(head[1:])):
            size = await reader.readuntil(b"\r\n")
            word = await reader.readexactly(int(size[1:]) + 2)
            raw += [size, word]
            words.append(word[:-2])
        yield b"".join(raw), words


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """One answer as raw bytes. Nothing unsolicited may follow it."""
    replies: Any = hiredis.Reader()
    raw = b""
    while True:
        data = await reader.read(_CHUNK)
        if not data:
            raise EOFError
        raw += data
        replies.feed(data)
        if replies.gets() is not False:
            return raw


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)


async def _both(*ways: Any) -> None:
    """Run both until one of them ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await task
