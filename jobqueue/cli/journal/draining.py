"""`jobqueue journal run` and `walk`: the processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import click
import prometheus_client
import structlog

from buckets.errors import JobQueueError, Unavailable
from buckets.events.switch import read_events
from buckets.namespace import join
from buckets.shards import Shards
from jobqueue import logs, settings
from jobqueue.errors import SettingsError
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.options import Options
from jobqueue.journal.reading.running import Drain, NotCommitted
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.url import Refused, address, without_password
from jobqueue.process import loop_factory
from jobqueue.redis_server.data_directory import running_at
from jobqueue.redis_server.fitness import redis_at
from jobqueue.settings import Settings

log = structlog.get_logger()

DONE, LEFT, NOT_BEGUN = 0, 1, 2
_AGAIN_S, _LOOK_S = 0.5, 0.1
_LEAST_TIMEOUT_S = 3.0  # a read waits for a second
_NEW_OBJECTS = 100_000  # before the cycle collector runs: a batch makes many, and no cycles


class CannotBegin(Exception):
    """In words."""


def chosen_of(config: str | None, given: Mapping[str, Any]) -> Settings:
    """The settings, with a journal. Raises CannotBegin."""
    names = ("redis", "redis_file", "data", "namespace", "journal", "journal_file")
    try:
        chosen = settings.load({name: given[name] for name in names}, config)
        if not chosen.journal:
            raise CannotBegin("the journal is not named: give --to, --to-file or JOBQUEUE_JOURNAL")
        address(chosen.journal)
    except (SettingsError, Refused) as error:
        raise CannotBegin(str(error)) from None
    return chosen


def carry_out(work: Callable[[], Any]) -> int:
    """Run a command; the exit code."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return int(runner.run(work()))
    except (CannotBegin, Refused) as error:
        click.echo(f"Error: {error}", err=True)
    except JobQueueError as error:
        click.echo(f"Error: {error.message}", err=True)
    return NOT_BEGUN


def run(config: str | None, given: Mapping[str, Any]) -> int:
    """`journal run`; the exit code."""
    logs.set_up("info", given["log_format"])

    async def work() -> int:
        chosen = chosen_of(config, given)
        periods = Periods(given["keep_events"], given["keep_jobs"], given["keep_minutes"])
        figures = Figures()
        if given["metrics_port"]:
            _answer_scrapes(given["metrics_port"], figures)
        options = Options(
            source=given["source"] or chosen.namespace,
            batch=given["batch"],
            linger_s=given["linger"],
            bodies=given["bodies"] == "all",
            events=given["events"],
        )
        stop = stopped_by_signals()
        async with joined(chosen, stop) as shards:
            return DONE if shards is None else await drain(shards, chosen, options, figures, stop, periods)

    return carry_out(work)


def _answer_scrapes(port: int, figures: Figures) -> None:
    try:
        prometheus_client.start_http_server(port, registry=figures.registry)
    except OSError as error:
        raise CannotBegin(f"--metrics-port {port}: {error.strerror}") from None


def stopped_by_signals() -> asyncio.Event:
    """Set by SIGTERM and SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(LEFT)  # what was begun comes again, and is known by its place
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, request_stop)
    return stop


@contextlib.asynccontextmanager
async def joined(chosen: Settings, stop: asyncio.Event) -> AsyncIterator[Shards | None]:
    """The namespace of a service, as soon as its Redis answers; None: it is to stop. Raises JobQueueError."""
    redis = redis_at(chosen.redis or running_at(Path(chosen.data)), chosen.redis_timeout_s)
    try:
        while not stop.is_set():
            try:
                numbers = await join(redis, chosen.namespace)
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)
                continue
            yield Shards(redis, chosen.namespace, *numbers)
            return
        yield None
    finally:
        await redis.close()


async def drain(
    shards: Shards,
    chosen: Settings,
    options: Options,
    figures: Figures,
    stop: asyncio.Event,
    periods: Periods | None = None,
) -> int:
    """Drain until `stop` is set; the exit code. Raises Refused, JobQueueError."""
    gc.set_threshold(_NEW_OBJECTS)
    sql = Sql(chosen.journal)
    if not await _before(stop, sql.open()):
        return DONE
    url, timeout_s = chosen.redis or running_at(Path(chosen.data)), max(_LEAST_TIMEOUT_S, chosen.redis_timeout_s)
    log.info("journal.opened", journal=without_password(chosen.journal), source=options.source)
    try:
        await Drain(shards, sql, options, figures, lambda: redis_at(url, timeout_s), periods).run(stop)
    except NotCommitted:
        return LEFT
    finally:
        await sql.close()
    return DONE


async def _before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do something unless `stop` is set before its end; whether it was done."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return False
    await working
    return True


def walk(config: str | None, given: Mapping[str, Any]) -> int:
    """`journal walk`; the exit code."""
    logs.set_up("error", "text")

    async def work() -> int:
        chosen = chosen_of(config, given)
        options, stop = Options(source=given["source"] or chosen.namespace), stopped_by_signals()
        async with joined(chosen, stop) as shards:
            if shards is None:
                return LEFT
            await _refuse_off(shards)
            sql = Sql(chosen.journal)
            if not await _before(stop, sql.open()):
                return LEFT
            walked = asyncio.create_task(_walked(shards, sql, options.source, stop))
            try:
                await drain(shards, chosen, options, Figures(), stop)
            finally:
                done = walked.done()
                walked.cancel()
                await asyncio.gather(walked, return_exceptions=True)
                await sql.close()
            click.echo("all records are in the journal" if done else "stopped before the end of the walk")
            return DONE if done else LEFT

    return carry_out(work)


async def _refuse_off(shards: Shards) -> None:
    """Raise CannotBegin where events are off: nobody would come to the end of a walk there."""
    for shard in range(len(shards.keys)):
        if (await read_events(shards, shard)).switch is None:
            raise CannotBegin(f"events are off in shard {shard}; `jobqueue journal on` switches them on")


async def _walked(shards: Shards, sql: Sql, source: str, stop: asyncio.Event) -> None:
    """Ask for a walk of each shard, wait for their ends, and stop."""
    every = range(len(shards.keys))
    for shard in every:
        await sql.ask_for_walk(source, shard, await shards.now_us())
    while not all([await sql.is_walked(source, shard) for shard in every]):  # noqa: ASYNC110 - others may walk
        await asyncio.sleep(_LOOK_S)
    stop.set()
