"""The processes of `jobqueue journal run` and `jobqueue journal walk`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import click
import prometheus_client

from buckets.errors import JobQueueError, Unavailable
from buckets.events.switch import read_events
from buckets.namespace import join
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue import logs, settings
from jobqueue.errors import SettingsError
from jobqueue.journal.database import open_engine
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading.entries import Options
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.running import LEAST_TIMEOUT_S, drain, unless
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused, address
from jobqueue.loops import stop_on_signals
from jobqueue.process import loop_factory
from jobqueue.redis_server.data_directory import running_at
from jobqueue.redis_server.opening import redis_at
from jobqueue.settings import Settings

DONE, LEFT, NOT_BEGUN = 0, 1, 2
_AGAIN_S, _LOOK_S = 0.5, 0.1


class CannotBegin(Exception):
    """A command cannot begin; the message says why."""


def chosen_of(config: str | None, given: Mapping[str, Any]) -> Settings:
    """The settings, which must name a journal. Raises CannotBegin."""
    names = ("redis", "redis_file", "data", "namespace", "journal", "journal_file")
    try:
        chosen = settings.load({name: given[name] for name in names}, config)
        if not chosen.journal:
            raise CannotBegin("the journal is not named: give --to, --to-file or JOBQUEUE_JOURNAL")
        address(chosen.journal)
    except (SettingsError, Refused) as error:
        raise CannotBegin(str(error)) from None
    return chosen


async def refuse_none(url: str) -> None:
    """Raise Refused if there is no journal, or CannotBegin if it does not answer: only `run` creates a journal, and
    waits for its database."""
    try:
        await (await open_engine(url)).dispose()
    except Away as error:
        raise CannotBegin(f"the journal cannot be reached: {error}") from None


def carry_out(work: Callable[[], Any]) -> int:
    """Run a command, and return the exit code."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return int(runner.run(work()))
    except (CannotBegin, Refused) as error:
        click.echo(f"Error: {error}", err=True)
    except JobQueueError as error:
        click.echo(f"Error: {error.message}", err=True)
    return NOT_BEGUN


def run(config: str | None, given: Mapping[str, Any]) -> int:
    """Run `journal run`, and return the exit code."""
    logs.set_up("info", given["log_format"])

    async def work() -> int:
        chosen = chosen_of(config, given)
        periods = Periods(given["keep_events"], given["keep_jobs"], given["keep_minutes"])
        figures = Figures()
        if given["metrics_port"]:
            _answer_scrapes(given["metrics_host"], given["metrics_port"], figures)
        options = Options(
            source=given["source"] or chosen.namespace,
            batch=given["batch"],
            linger_s=given["linger"],
            bodies={"all": True, "none": False}.get(given["bodies"]),
            events=given["events"],
        )
        stop = stopped_by_signals()
        async with joined(chosen, stop) as shards:
            if shards is None:
                return DONE
            written = await drain(shards, chosen.journal, options, figures, _reading(chosen), stop, periods)
            return DONE if written else LEFT

    return carry_out(work)


def _answer_scrapes(host: str, port: int, figures: Figures) -> None:
    try:
        prometheus_client.start_http_server(port, host, registry=figures.registry)
    except OSError as error:
        raise CannotBegin(f"--metrics-host {host} --metrics-port {port}: {error.strerror}") from None


def stopped_by_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once."""
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(LEFT)  # unfinished entries are delivered again, and recognized by their place
        stop.set()

    stop_on_signals(request_stop)
    return stop


@contextlib.asynccontextmanager
async def joined(chosen: Settings, stop: asyncio.Event) -> AsyncIterator[Shards | None]:
    """The namespace of a service, once its Redis answers, or None if `stop` is set before. Raises JobQueueError."""
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


def _reading(chosen: Settings) -> Callable[[], Redis]:
    """Returns a function that makes the Redis clients with which shards wait for entries."""
    url, timeout_s = chosen.redis or running_at(Path(chosen.data)), max(LEAST_TIMEOUT_S, chosen.redis_timeout_s)
    return lambda: redis_at(url, timeout_s)


def walk(config: str | None, given: Mapping[str, Any]) -> int:
    """Run `journal walk`, and return the exit code."""
    logs.set_up("error", "text")

    async def work() -> int:
        chosen = chosen_of(config, given)
        options, stop = Options(source=given["source"] or chosen.namespace), stopped_by_signals()
        async with joined(chosen, stop) as shards:
            if shards is None:
                return LEFT
            await _refuse_off(shards)
            await refuse_none(chosen.journal)
            sql = Sql(chosen.journal)
            if not await unless(stop, sql.open()):
                return LEFT
            walked = asyncio.create_task(_walked(shards, sql, options.source, stop))
            try:
                await drain(shards, chosen.journal, options, Figures(), _reading(chosen), stop)
            finally:
                done = walked.done()
                walked.cancel()
                await asyncio.gather(walked, return_exceptions=True)
                await sql.close()
            click.echo("all records are in the journal" if done else "stopped before the end of the walk")
            return DONE if done else LEFT

    return carry_out(work)


async def _refuse_off(shards: Shards) -> None:
    """Raise CannotBegin if events are off in a shard: a walk would never end there."""
    for shard in range(len(shards.keys)):
        if (await read_events(shards, shard)).switch is None:
            raise CannotBegin(f"events are off in shard {shard}; `jobqueue journal on` switches them on")


async def _walked(shards: Shards, sql: Sql, source: str, stop: asyncio.Event) -> None:
    """Request a walk of each shard, wait until all walks have ended, and set `stop`."""
    every = range(len(shards.keys))
    for shard in every:
        await sql.ask_for_walk(source, shard, await shards.now_us())
    while not all([await sql.is_walked(source, shard) for shard in every]):  # noqa: ASYNC110 - others may walk
        await asyncio.sleep(_LOOK_S)
    stop.set()
