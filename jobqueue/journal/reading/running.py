"""A process that drains: a loop for each shard whose lock it gets, the deletion of old rows, and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog

from buckets.errors import JobQueueError
from buckets.events.stream import Stream
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading import totals
from jobqueue.journal.reading.entries import Options, Writer
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.shard import ShardReader
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.tokens import TokenReader
from jobqueue.journal.reading.walk import Walk

log = structlog.get_logger()

_NEW_OBJECTS = 100_000  # before the cycle collector runs: a batch creates many objects and no cycles
_POUR_S = 0.1  # the longest age of shared metrics
_ADD_UP_S = 60.0
_KEEP_S = 1.0  # between steps that find nothing more to do
LEAST_TIMEOUT_S = 3.0
"""The shortest timeout of a client that waits for entries, one second at a time."""
STOPPED_S = 10.0
"""How long the batch under way may take once the process must stop."""


class NotCommitted(Exception):
    """The batch under way was not written in time."""


class Drain:
    """Drains all shards of a namespace into a journal. `reading` creates a client on which a shard waits for entries.
    `periods`: how long rows are kept, or None if someone else deletes them."""

    def __init__(
        self,
        shards: Shards,
        sql: Sql,
        options: Options,
        figures: Figures,
        reading: Callable[[], Redis],
        periods: Periods | None = None,
    ) -> None:
        self._shards, self._sql, self._figures, self._periods = shards, sql, figures, periods
        self._clients = [reading() for _ in shards.keys]
        self._streams = [Stream(shards, shard, client) for shard, client in enumerate(self._clients)]
        self._source = options.source
        self.readers = [self._reader(shard, stream, sql, options) for shard, stream in enumerate(self._streams)]

    def _reader(self, shard: int, stream: Stream, sql: Sql, options: Options) -> ShardReader:
        writer = Writer(sql, self._shards, shard, options, self._figures)
        walk = Walk(self._shards, shard, stream, sql, options)
        tokens = TokenReader(self._shards, sql, options.source) if shard == 0 else None
        return ShardReader(stream, shard, sql, writer, walk, options, self._figures, tokens)

    async def run(self, stop: asyncio.Event) -> None:
        """Drain until `stop` is set. Raises Unfit, and NotCommitted if stopping took too long."""
        async with AsyncExitStack() as stack:
            for client in self._clients:
                stack.push_async_callback(client.close)
            beside = [asyncio.create_task(each) for each in (self._pour(), self._keep(), self._add_up())]
            stack.push_async_callback(_ended, *beside)
            tasks = [asyncio.create_task(reader.run(), name="journal reader") for reader in self.readers]
            stack.push_async_callback(_ended, *tasks)
            stopping = asyncio.create_task(stop.wait())
            stack.push_async_callback(_ended, stopping)
            done, _ = await asyncio.wait({*tasks, *beside, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()  # these tasks only end by themselves with an error
            await self._stop(tasks)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        for reader in self.readers:
            reader.stop()
        try:
            async with asyncio.timeout(STOPPED_S):
                await asyncio.gather(*tasks)
        except TimeoutError:
            raise NotCommitted from None
        finally:
            self._figures.pour()

    async def _pour(self) -> None:
        while True:
            self._figures.pour()
            await asyncio.sleep(_POUR_S)

    async def _keep(self) -> None:
        """Delete what is too old, without a pause while there is more: more rows may expire in a second than a step
        deletes."""
        while True:
            has_more = False
            with contextlib.suppress(JobQueueError):
                if self._periods:
                    has_more = await self._sql.keep(self._periods, await self._shards.now_ms())
            await asyncio.sleep(0 if has_more else _KEEP_S)

    async def _add_up(self) -> None:
        """Renew the totals from which events are added up, when that is due."""
        begun = [asyncio.create_task(reader.begins.wait()) for reader in self.readers]
        try:
            while True:
                await asyncio.wait(begun, timeout=_ADD_UP_S, return_when=asyncio.FIRST_COMPLETED)
                for at, reader in enumerate(self.readers):
                    if begun[at].done():
                        reader.begins.clear()
                        begun[at] = asyncio.create_task(reader.begins.wait())
                with contextlib.suppress(JobQueueError):
                    if await self._is_to_add_up():
                        await totals.renew(self._streams, self._sql, self._source)
        finally:
            await _ended(*begun)

    async def _is_to_add_up(self) -> bool:
        if not any(reader.lock.is_held for reader in self.readers):
            return False
        return await totals.is_due(self._sql, self._source, await self._shards.now_us())


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def drain(
    shards: Shards,
    url: str,
    options: Options,
    figures: Figures,
    reading: Callable[[], Redis],
    stop: asyncio.Event,
    periods: Periods | None = None,
) -> bool:
    """Open a journal and drain into it until `stop` is set. Returns False if the batch under way was not written in
    time. Raises Refused, Unfit."""
    gc.set_threshold(_NEW_OBJECTS)
    sql = Sql(url)
    if not await unless(stop, sql.open()):
        return True
    try:
        await Drain(shards, sql, options, figures, reading, periods).run(stop)
    except NotCommitted:
        return False
    finally:
        await sql.close()
    return True


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends or `stop` is set. Returns True if it was done."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _ended(stopping)
    if not working.done():
        await _ended(working)
        return False
    await working
    return True
