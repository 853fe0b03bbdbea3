"""`jobqueue restore`: the run, its progress, and its report in words and as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from buckets.access import OF, Actions
from buckets.errors import JobQueueError, Unavailable
from buckets.events.restoring import Restoring
from buckets.job import State
from buckets.namespace import join
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue import logs, settings
from jobqueue.access.grants import operator
from jobqueue.cli import humanize
from jobqueue.commands.answers import NOT_KNOWN
from jobqueue.errors import SettingsError
from jobqueue.journal.database import open_engine
from jobqueue.journal.reading.entries import Options
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.running import Drain, NotCommitted
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.restoring import lost
from jobqueue.journal.restoring.forgotten import Forgotten
from jobqueue.journal.restoring.reading import PENDING, Choice, NotBegun, Progress, Reading, Report, Stopped, Sums
from jobqueue.journal.restoring.restore import Restore, carry_out
from jobqueue.journal.restoring.runs import Run, check, check_source
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused
from jobqueue.redis_server.data_directory import running_at
from jobqueue.redis_server.opening import redis_at
from jobqueue.settings import Settings

_OF_THE_PUT = {
    "schedules": "schedules",
    "tombstones": "tombstones",
    "overdue": "overdue",
    "buried": "overdue, as dead letters",
    "expired": "dead, as their ttl is over",
}
_NOT_PUT = {
    "known": "known to Redis, which keeps what it has",
    "ended": "ended meanwhile",
    "over": "revoked or expired",
    "held": "had ended, but another worker has them by now",
    "absent": "did not live then",
    "skipped": "overdue, not brought back",
}
_LEFT = {
    "without_body": "without a body in the journal",
    "unsure": "may have ended while the journal missed events",
    "changed": "have another body since",
    "unreadable": "cannot be read",
    "unknown": "known to neither Redis nor the journal",
    "taken": "have the name or the certificate of another live token",
}
_OLDER = "are in Redis as they were before their last moves, which it forgot"


def sentences(sums: Sums, *, applies: bool) -> Iterator[str]:
    """The sums in words."""
    counts = sums.counts
    done = "came back" if applies else "would come back"
    yield f"{counts['looked']:,} looked at, {counts['put']:,} {done}{_parts(counts, _OF_THE_PUT)}"
    for token_id, name in (sums.tokens or {}).items():
        yield f"{token_id}  {name}"
    if counts["ended_again"]:
        yield f"{counts['ended_again']:,} {'ended' if applies else 'would end'} again"
    for name, words in _NOT_PUT.items():
        if counts[name]:
            yield f"{counts[name]:,} {words}"
    if counts["older"]:
        yield f"{counts['older']:,} {_OLDER}: {_some(sums.named['older'], counts['older'])}"
    for name, words in _LEFT.items():
        if counts[name]:
            yield f"left: {counts[name]:,} {words}: {_some(sums.named[name], counts[name])}"


def _parts(counts: Any, names: dict[str, str]) -> str:
    parts = [f"{counts[name]:,} {words}" for name, words in names.items() if counts[name]]
    return f" ({', '.join(parts)})" if parts else ""


def _some(ids: list[str], number: int) -> str:
    shown = ", ".join(ids[:5])
    return f"{shown}, …" if number > 5 else shown


def as_json(sums: Sums, run: int | None, stopped: str) -> dict[str, Any]:
    """The sums as JSON. `left` and `older` list ids; `tokens`, in a run that restores tokens, lists their ids and
    names."""
    counts = {name: number for name, number in sums.counts.items() if number}
    left = {name: ids for name, ids in sums.named.items() if name in _LEFT}
    older = sums.named.get("older", [])
    told: dict[str, Any] = {"run": run, "counts": counts, "left": left, "older": older, "stopped": stopped or None}
    if sums.tokens is not None:
        told["tokens"] = [{"id": token_id, "name": name} for token_id, name in sums.tokens.items()]
    return told


DONE, LEFT, NOT_BEGUN = 0, 1, 2
_SETTINGS = ("redis", "redis_file", "data", "namespace", "journal", "journal_file")
_LEAST_TIMEOUT_S = 3.0  # a reader waits for a second
_TELL_S = 1.0


_SHOWN = {
    **{"looked": "looked at", "put": "put", "known": "known", "ended": "ended"},
    "without_body": "without a body",
}


def progress() -> Report:
    """Returns a function that reports how far a run is: one line a second, on a terminal only."""
    told = float("-inf")

    def report(how_far: Progress) -> None:
        nonlocal told
        now = time.monotonic()
        if sys.stderr.isatty() and now - told >= _TELL_S:
            told, counts = now, how_far.sums.counts
            words = ", ".join(f"{word} {counts[name]:,}" for name, word in _SHOWN.items())
            click.echo(f"{words}, of {max(how_far.total, counts['looked']):,}", err=True)

    return report


@dataclass
class _Work:
    """One call of the command."""

    given: Mapping[str, Any]
    reading: Reading
    pool: Pool
    sums: Sums
    report: Report
    number: int | None = None
    """The number of the run, or None if no run has begun, as with --dry-run."""
    _entry: str = ""
    _done_before: int = 0

    @property
    def _done(self) -> int:
        return self.sums.counts["put"] + self.sums.counts["ended_again"]

    async def begin(self, run: Run, does: str) -> Run:
        """Begin a run, and note it in the log of actions before it changes anything. Raises JobQueueError."""
        self.number, self._done_before = run.number, self._done
        topic, ids = self.given["topic"], self.given["ids"]
        about = {"topic": topic, "id": ids[0] if len(ids) == 1 else None, "count": len(ids) if len(ids) > 1 else None}
        entry = {"actor": operator(), "action": does, "name": run.actor}
        entry |= {name: value for name, value in about.items() if value}
        (self._entry,) = await Actions(self.pool).note([entry])
        return run

    async def end(self, code: str) -> None:
        """Note the outcome of the run, if one began."""
        if self._entry:
            with contextlib.suppress(JobQueueError):  # then it looks like an action whose service was killed
                await Actions(self.pool).note([{OF: self._entry, "code": code, "done": self._done - self._done_before}])


def restore(config: str | None, given: Mapping[str, Any]) -> int:
    """Carry out the command, print the result, and return the exit code."""
    logs.set_up("error", "text")
    try:
        return asyncio.run(_restore(config, given))
    except (SettingsError, Refused, Away, NotBegun, Stopped) as error:
        click.echo(f"Error: {humanize.clean(str(error))}", err=True)
    except JobQueueError as error:
        click.echo(f"Error: {error.message}", err=True)
    return NOT_BEGUN


async def _restore(config: str | None, given: Mapping[str, Any]) -> int:
    chosen = settings.load({name: given[name] for name in _SETTINGS}, config)
    if not chosen.journal:
        raise NotBegun("the journal is not named: give --from, --from-file or JOBQUEUE_JOURNAL")
    url = chosen.redis or running_at(Path(chosen.data))
    async with _opened(chosen, url, given["source"] or chosen.namespace) as (reading, pool):
        await check_source(reading)
        work = _Work(given, reading, pool, Sums(), progress())
        code = NOT_KNOWN
        try:
            stopped = await _beside(_drained(chosen, url, reading.source, pool, given["stale"]), work)
            code = code if stopped else "OK"
        finally:
            await work.end(code)
    _tell(work, stopped)
    return LEFT if stopped or work.sums.left else DONE


@contextlib.asynccontextmanager
async def _opened(chosen: Settings, url: str, source: str) -> AsyncIterator[tuple[Reading, Pool]]:
    """The journal and the namespace, both of which must exist already. Raises Refused, Away, JobQueueError."""
    async with contextlib.AsyncExitStack() as stack:
        engine = await open_engine(chosen.journal)
        stack.push_async_callback(engine.dispose)
        redis: Redis = redis_at(url, chosen.redis_timeout_s)
        stack.push_async_callback(redis.close)
        try:
            pool = Pool(redis, chosen.namespace, *await join(redis, chosen.namespace))
        except Unavailable as error:
            raise Unavailable(redis.trouble or error.message) from None
        stack.push_async_callback(pool.close)
        yield Reading(engine, source), pool


@contextlib.asynccontextmanager
async def _drained(
    chosen: Settings, url: str, source: str, pool: Pool, stale: bool
) -> AsyncIterator[asyncio.Task[None]]:
    """Drain events into the journal while the context is open, unless a `journal run` does so or `stale` is set."""
    stop, sql = asyncio.Event(), Sql(chosen.journal)

    async def drain() -> None:
        if stale:
            await stop.wait()
            return
        await sql.open()
        timeout_s = max(_LEAST_TIMEOUT_S, chosen.redis_timeout_s)
        await Drain(pool, sql, Options(source), Figures(), lambda: redis_at(url, timeout_s)).run(stop)

    draining = asyncio.create_task(drain())
    try:
        yield draining
    finally:
        stop.set()
        with contextlib.suppress(NotCommitted, JobQueueError):  # entries that were not written are delivered again
            await draining
        await sql.close()


async def _beside(drained: contextlib.AbstractAsyncContextManager[asyncio.Task[None]], work: _Work) -> str:
    """Do the work while the journal is drained. Returns the reason why the work stopped, or an empty string if it was
    done. Raises the error that kept it from beginning."""
    async with drained as draining:
        working = asyncio.create_task(_MODES[_mode(work.given)](work))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            draining.result()  # raises if another reader of the source reads another Redis
        try:
            working.result()
        except asyncio.CancelledError:
            return "it was interrupted"
        except Stopped as error:
            return str(error)
        return ""


def _mode(given: Mapping[str, Any]) -> str:
    return next((mode for mode in ("resume", "forgotten", "ended", "tokens") if given[mode]), "chosen")


async def _chosen(work: _Work) -> Sums:
    choice = _choice(work.given)
    await check(work.reading, choice)
    run = None if work.given["dry"] else await _begun(work, choice, "restore")
    return await _run(work, choice, run).carry_out(None, work.sums)


async def _resumed(work: _Work) -> Sums:
    run, found = await Run.last(work.reading, work.pool)
    await check(work.reading, found.choice)
    work.sums = found.sums
    await work.begin(run, "restore")
    return await _run(work, found.choice, run).carry_out(found.cursor, work.sums)


async def _begun(work: _Work, choice: Choice, kind: str) -> Run:
    does = kind if kind == "restore" else f"restore {kind}"
    return await work.begin(await Run.begin(work.reading, work.pool, choice, kind), does)


def _run(work: _Work, choice: Choice, run: Run | None) -> Restore:
    restoring = Restoring(work.pool, run.actor if run else "")
    rate, stale = work.given["rate"], work.given["stale"]
    return Restore(work.reading, restoring, choice, run, rate=rate, stale=stale, report=work.report)


async def _forgotten(work: _Work) -> Sums:
    run = await _begun(work, Choice(), "forgotten") if work.given["applies"] else None
    actor, stale = run.actor if run else "", work.given["stale"]
    healing = Forgotten(work.reading, work.pool, actor, stale=stale, report=work.report)
    work.sums = healing.sums
    await healing.carry_out()
    if run:
        await run.end(work.sums)
    return work.sums


async def _ended(work: _Work) -> Sums:
    """Restore jobs that ended as new ones. Restore other jobs as they were, if Redis has lost them."""
    choice = _choice(work.given)
    run = None if work.given["dry"] else await _begun(work, choice, "ended")
    stale, rate = work.given["stale"], work.given["rate"]
    await carry_out(work.reading, work.pool, choice.ids, run, work.sums, stale=stale, rate=rate, report=work.report)
    return work.sums


async def _tokens(work: _Work) -> Sums:
    run = None if work.given["dry"] else await _begun(work, Choice(), "tokens")
    await lost.bring_back_tokens(work.reading, work.pool, run, work.sums, stale=work.given["stale"])
    return work.sums


_MODES: dict[str, Callable[[_Work], Coroutine[Any, Any, Sums]]] = {
    **{"chosen": _chosen, "resume": _resumed, "forgotten": _forgotten, "ended": _ended, "tokens": _tokens},
}


def _choice(given: Mapping[str, Any]) -> Choice:
    states = [state for state in PENDING if given["states"] is None or state.word in given["states"]]
    return Choice(
        ids=tuple(dict.fromkeys(given["ids"])),
        topics=given["topic"] or "*",
        states=(*map(int, states), *((int(State.DEAD),) if given["dead"] else ())),
        overdue=given["overdue"] or "run",
        spread_s=float(given["spread"] or 0),
        as_of=None if given["as_of"] is None else round(given["as_of"] * 1e6),
    )


def _tell(work: _Work, stopped: str) -> None:
    applies = work.number is not None
    if work.given["as_json"]:
        click.echo(json.dumps(as_json(work.sums, work.number, stopped)))
        return
    for sentence in sentences(work.sums, applies=applies):
        click.echo(humanize.clean(sentence))
    if stopped:
        hint = "--resume goes on" if _mode(work.given) in ("chosen", "resume") and applies else "it may be repeated"
        click.echo(f"Error: it stopped: {humanize.clean(stopped)}; {hint}", err=True)
