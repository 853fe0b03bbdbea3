"""The relay: takes rows of an outbox, sends them as commands in batches, and settles each by its answer.

A row is deleted once the service has answered it. A repetition, after the answer or the database was lost, is harmless:
an add finds its job or its tombstone, which is kept for at least a day. A row that the service refuses for good keeps
the refusal in its column `error`, and holds up the later rows of its id only. Everything else is tried again: a row by
itself, all rows of a topic that is full, or everything if the service is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import prometheus_client
import structlog
from jobqueue_client import AsyncClient, JobQueueError, Refused, Unreachable
from jobqueue_client.calls import encode
from prometheus_client import CollectorRegistry, Gauge

from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused as Unusable
from jobqueue.logs import Sparing
from jobqueue.outbox.source import MOST, Found, Row, Source

log = structlog.get_logger()

RETENTION_S = 86_400
"""How long an ended job is remembered at least, so that a repeated add does not make it again."""
_LOOK_S = 0.2
_MOST_BYTES = 512 << 10  # of commands in a request, which proxies let through; one row always fits
_LONGEST = 16 << 20  # characters of a body and its options: a request cannot be longer
_TOO_LONG = f"its body and options have more than {_LONGEST:,} characters"
_MOST_PAGES = 100  # that are read for rows that are not being put off
_FIGURES_S = 5.0
_PASS_S, _GRACE_S = 60.0, 10.0
_SHORTEST_S, _LONGEST_S = 1.0, 60.0  # the pauses after a refusal for now, each twice as long as the one before
_REASON = 1000  # characters
# Refusals that say that the command has been carried out, now or before, or that it has come too late.
_DONE = {
    "add": ("ALREADY_EXISTS", "TOO_LATE"),
    "update": ("NOT_FOUND", "WRONG_STATE", "TOO_LATE"),
    "delete": ("NOT_FOUND", "WRONG_STATE"),
}
# Refusals that pass, or that an operator has to do something about. Of all rows, of a topic's, of one row:
_OF_ALL = ("UNAVAILABLE", "SHUTTING_DOWN", "NO_ROOM", "UNAUTHORIZED")
_OF_TOPIC = ("TOPIC_FULL", "TOO_FAST", "FORBIDDEN")
_OF_ROW = ("RESERVED", "INTERNAL")
# Refusals of a whole request that may be the fault of one of its commands.
_OF_REQUEST = ("TOO_LARGE", "TOO_MANY", "BAD_JSON", "INTERNAL")


class BadRow(Exception):
    """A row that is not a command."""


class Figures:
    """The metrics of a relay, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        rows = ("jobqueue_outbox_rows_total", "rows by what became of them", ("action", "outcome"))
        self.rows = prometheus_client.Counter(*rows, registry=self.registry)
        self.behind_s = self._gauge("behind_seconds", "the age of the oldest row that may go")
        self.refused = self._gauge("refused_rows", "rows that the service has refused, and that hold up their ids")
        self.up = self._gauge("up", "1: the database and the service answer, as far as they were asked")
        self.up.set(1)

    def serve(self, host: str, port: int) -> None:
        """Answer scrapes. Raises OSError."""
        prometheus_client.start_http_server(port, host, registry=self.registry)

    def _gauge(self, name: str, means: str) -> Gauge:
        return Gauge(f"jobqueue_outbox_{name}", means, registry=self.registry)


def command_of(row: Row) -> dict[str, Any]:
    """The command of a row. Raises BadRow."""
    if row.action not in _DONE:
        raise BadRow(f"action must be one of {', '.join(_DONE)}")
    options: dict[str, Any] = _parsed("options", row.options, {})
    if not isinstance(options, dict):
        raise BadRow("options must be a JSON object")
    own: dict[str, Any] = {"command": row.action, "id": row.id}
    if row.topic is not None:
        own["topic"] = row.topic
    if row.due is not None:
        own["at"] = row.due
    if row.body is not None and row.action != "delete":
        own["body"] = _parsed("body", row.body, None)
    elif row.action == "add" and options.get("if_exists") not in ("later", "sooner"):
        own["body"] = None
    if row.action == "add" and options.get("retention") is None:
        own["retention"] = RETENTION_S
    return options | own


def _parsed(name: str, given: str | None, absent: Any) -> Any:
    if given is None:
        return absent
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        raise BadRow(f"{name} is not JSON") from None


class Pauses:
    """What is put off after refusals, by any key, and for how long: each time twice as long as the time before."""

    def __init__(self) -> None:
        self._until: dict[Any, tuple[float, float]] = {}  # the end of a pause and its length, by the monotonic clock

    def begin(self, key: Any, at_least_s: float | None) -> None:
        """Put a key off."""
        _, before_s = self._until.get(key, (0.0, 0.0))
        pause_s = min(_LONGEST_S, max(2 * before_s, _SHORTEST_S, at_least_s or 0.0))
        self._until[key] = time.monotonic() + pause_s, pause_s

    def end(self, key: Any) -> None:
        """A key is no longer refused."""
        self._until.pop(key, None)

    def has(self, key: Any) -> bool:
        """Whether a key is put off now."""
        return key in self._until and self._until[key][0] > time.monotonic()

    def keys(self) -> list[Any]:
        """The keys that are put off now. What was not refused again for a while is forgotten."""
        now = time.monotonic()
        self._until = {key: each for key, each in self._until.items() if each[0] + _LONGEST_S > now}
        return [key for key, (until, _) in self._until.items() if until > now]


class Relay:
    """Hands the rows of a source on, until stopped."""

    def __init__(self, source: Source, client: AsyncClient, figures: Figures) -> None:
        """`client`: one that does not repeat commands by itself."""
        self._source, self._client, self._figures = source, client, figures
        self._stopping = asyncio.Event()
        self._topics, self._rows = Pauses(), Pauses()
        self._refusals = Sparing("outbox.row_refused")
        self._delays = Sparing("outbox.row_put_off")
        self._sums: Counter[str] = Counter()
        self._looked_at = 0.0
        self._trouble = ""  # why nothing can be handed on now

    def stop(self) -> None:
        """Take no more rows. Those that were sent are settled, unless that takes more than ten seconds."""
        self._stopping.set()
        self._source.written.set()

    async def run(self) -> None:
        """Work until stopped. Raises Refused of the journal if the outbox cannot be used when it begins."""
        try:
            await self._source.open()
        except Away as error:
            self._note_down(error)
            await self._source.close()
        log.info("outbox.started")
        work = asyncio.create_task(self._work())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({work}, timeout=_GRACE_S)
        finally:
            work.cancel()
            stopped.cancel()
            ended = await asyncio.gather(work, return_exceptions=True)
            await self._source.close()
            self._source.release()
            log.info("outbox.stopped", **self._sums)
        if isinstance(ended[0], Exception):
            raise ended[0]

    async def _work(self) -> None:
        pause_s = 0.0
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(_PASS_S):
                    if not self._source.is_open:
                        await self._source.open()
                    is_idle = await self._pass()
            # What was usable at the beginning is so again, sooner or later.
            except (Away, Unusable, JobQueueError, TimeoutError) as error:
                pause_s = min(_LONGEST_S / 10, max(2 * pause_s, _LOOK_S))
                self._note_down(error)
                if not isinstance(error, JobQueueError):
                    await self._source.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._stopping.wait()
                continue
            pause_s = 0.0
            self._note_up()
            if is_idle:
                await self._wait_for_rows()

    def _note_down(self, error: Exception) -> None:
        reason = str(error) or "the database does not answer"
        if reason != self._trouble:
            log.warning("outbox.down", reason=reason)
        self._trouble = reason
        self._figures.up.set(0)

    def _note_up(self) -> None:
        if self._trouble:
            log.info("outbox.up")
        self._trouble = ""
        self._figures.up.set(1)

    async def _wait_for_rows(self) -> None:
        """Wait until the database reports rows, or it is time to look."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._source.written.wait()
        if not self._stopping.is_set():
            self._source.written.clear()

    async def _pass(self) -> bool:
        """Hand on up to a thousand rows. Returns True if there was nothing to do. Raises Refused of the journal, Away,
        JobQueueError."""
        await self._show()
        closed = self._topics.keys()
        async with self._source.held(closed) as slots:
            numbers = await self._found(slots, closed) if slots else []
            for part in numbers:
                await self._hand_on(await self._source.read(part))
            return not numbers

    async def _show(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _FIGURES_S:
            self._looked_at = now
            behind_s, refused = await self._source.standing()
            self._figures.behind_s.set(behind_s)
            self._figures.refused.set(refused)

    async def _found(self, slots: Sequence[int], closed: Sequence[str]) -> list[list[int]]:
        """The numbers of the rows to hand on, for one request after the other. Rows that are too long are refused."""
        put_off = frozenset(self._rows.keys())
        parts: list[list[int]] = []
        count = size = after = 0
        for _ in range(_MOST_PAGES):
            page = await self._source.find(slots, closed, after)
            too_long = [row for row in page if row.size > _LONGEST]
            await self._source.settle([], [self._refused(row, _TOO_LONG, "TOO_LARGE") for row in too_long])
            for row in page:
                if row.size <= _LONGEST and row.number not in put_off:
                    if not parts or size + row.size > _MOST_BYTES:
                        parts.append([])
                        size = 0
                    parts[-1].append(row.number)
                    count, size = count + 1, size + row.size
            if len(page) < MOST or count >= MOST:
                break
            after = page[-1].number
        return parts

    async def _hand_on(self, rows: Sequence[Row]) -> None:
        """Send rows and settle them. Raises Refused of the journal, Away, and the refusals of all rows."""
        commands: list[dict[str, Any]] = []
        sent: list[Row] = []
        done: list[int] = []
        refused: list[tuple[int, str]] = []
        for row in rows:
            try:
                command = command_of(row)
                encode(command)
            except (BadRow, ValueError, RecursionError) as bad:  # such as a number that JSON cannot carry
                refused.append(self._refused(row, str(bad), "BAD_ROW"))
            else:
                commands.append(command)
                sent.append(row)
        away: JobQueueError | None = None
        for row, result in zip(sent, await self._answers(commands), strict=True):
            code = result.code if isinstance(result, Refused) else ""
            if not isinstance(result, JobQueueError) or code in _DONE[row.action]:
                done.append(self._done(row, "known" if code else "handed_on"))
            elif code in _OF_ALL or isinstance(result, Unreachable):
                away = result
            elif code in _OF_TOPIC and row.topic is not None:
                self._put_off(self._topics, row.topic, row, result)
            elif code in (*_OF_TOPIC, *_OF_ROW):
                self._put_off(self._rows, row.number, row, result)
            else:
                refused.append(self._refused(row, str(result), code))
        await self._source.settle(done, refused)
        if away is not None:
            raise away

    async def _answers(self, commands: Sequence[dict[str, Any]]) -> Sequence[Any]:
        """The answer or error of each command. Raises JobQueueError if the request as a whole is refused or not
        answered, and not because of one command."""
        if not commands:
            return []
        try:
            return await self._client.batch(commands)
        except Refused as error:
            if error.code not in _OF_REQUEST:
                raise
            if len(commands) == 1:
                return [error]
        half = len(commands) // 2
        return [*await self._answers(commands[:half]), *await self._answers(commands[half:])]

    def _done(self, row: Row, outcome: str) -> int:
        self._sums[outcome] += 1
        self._figures.rows.labels(row.action, outcome).inc()
        self._rows.end(row.number)
        if row.topic is not None:
            self._topics.end(row.topic)
        return row.number

    def _put_off(self, pauses: Pauses, key: Any, row: Row, error: JobQueueError) -> None:
        self._figures.rows.labels(row.action, "put_off").inc()
        code = getattr(error, "code", "")
        self._delays.note((code, row.topic), code=code, action=row.action, topic=row.topic, reason=str(error)[:_REASON])
        if not pauses.has(key):  # others of the same batch have the same refusal
            pauses.begin(key, error.retry_after)

    def _refused(self, row: Row | Found, reason: str, code: str) -> tuple[int, str]:
        self._sums["refused"] += 1
        self._figures.rows.labels(row.action, "refused").inc()
        self._refusals.note(code, number=row.number, id=row.id, action=row.action, code=code, reason=reason[:_REASON])
        return row.number, reason[:_REASON]
