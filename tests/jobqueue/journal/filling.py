"""Journals for tests of those who read them, filled row by row, without a reader of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert

from buckets.job import State, Verb
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.tables import event, job, position
from jobqueue.journal.url import address

DAY_MS = 86_400_000
DAY = 1_795_219_200_000 // DAY_MS * DAY_MS
"""The beginning of 2026-11-21 (UTC), in ms."""
_BATCH = 1000
_first: list[bytes] = []
"""The file of an empty journal, once there was one."""

Values = dict[str, Any]


def event_of(ms: int, verb: Verb, before: int, after: int, **more: Any) -> Values:
    """An event at a time, of one job of shard 0, but for what is given."""
    return {
        **{"ms": ms, "source": "jq", "shard": 0, "seq": None, "n": 0, "branch": 0},
        **{"id": "order:1", "life": ms, "topic": "order-close", "verb": int(verb), "at": ms * 1000},
        **{"state_before": int(before), "state_after": int(after), "was": 0, "due": ms, "next": ms},
        **{"priority": 4, "cause": 0, "attempts": 0, "deliveries": 0, "lease": 0},
        **{"instance": "shop1:812:0", "actor": "", "worker": None, "reason": None, "checksum": 0},
        **more,
    }


def life_of(ms: int, job_id: str, late_ms: int = 3, worked_ms: int = 700, **more: Any) -> list[Values]:
    """The four events of a job: added at a time, due a second later, delivered so late, and finished."""
    due, popped = ms + 1000, ms + 1000 + late_ms
    same = {"id": job_id, "life": ms, "due": due, **more}
    reserved = {"attempts": 1, "deliveries": 1, "lease": popped * 1000}
    end = popped + worked_ms
    return [
        event_of(ms, Verb.ADD, 0, State.DELAYED, **{**same, "next": due}),
        event_of(due, Verb.DUE, State.DELAYED, State.READY, **{**same, "was": due, "next": due}),
        event_of(popped, Verb.POP, State.READY, State.RESERVED, **same, was=due, next=popped + 60_000, **reserved)
        | {"worker": "billing-1"},
        event_of(end, Verb.FINISH, State.RESERVED, State.FINISHED, **same, was=popped + 60_000, next=end, **reserved),
    ]


def job_of(of: Values, **more: Any) -> Values:
    """The row of a job as this event has left it."""
    of = {**of, "seq": of["seq"] or 0}
    names = {column.name for column in job.columns} & of.keys()
    ended = of["at"] if of["state_after"] in (State.FINISHED, State.DELETED) else None
    return {
        **{name: of[name] for name in names},
        **{"state": of["state_after"], "ttr": 60_000, "tries": 16, "step": 0, "keeps_body": 0, "options": b""},
        **{"body": '{"a":1}', "body_kept": 1, "ended": ended, **more},
    }


def position_of(ms: int, shard: int = 0, **more: Any) -> Values:
    """A shard that is drained to a time."""
    return {
        **{"source": "jq", "shard": shard, "epoch": 0, "ms": ms, "seq": 0, "entries": 1, "stream": "word"},
        **{"since": 0, "time": ms * 1000},
        **more,
    }


async def found(url: str) -> None:
    """Make an empty journal, unless there is one. In SQLite all are copies of the first."""
    path = Path(address(url).path) if url.startswith("sqlite:") else None
    if path and _is_there(path):
        return
    await (await open_store(url)).close()
    if path:
        _first.append(_content(path))


def _is_there(path: Path) -> bool:
    """Return True if there is a file, if need be a copy of the first journal."""
    if _first and not path.exists():
        path.write_bytes(_first[0])
    return path.exists()


def _content(path: Path) -> bytes:
    return path.read_bytes()


async def fill(url: str, **rows: Iterable[Values]) -> None:
    """Add rows to a journal, by table: `events`, `jobs` and `positions`; these replace those of their shard."""
    engine = await open_engine(url)
    async with engine.begin() as connection:
        for name, table in (("events", event), ("jobs", job)):
            given = list(rows.get(name, ()))
            for at in range(0, len(given), _BATCH):
                await connection.execute(insert(table), _numbered(table, given[at : at + _BATCH], at))
        for each in rows.get("positions", ()):
            await connection.execute(position.delete().where(position.c.shard == each["shard"]))
            await connection.execute(insert(position), each)
    await engine.dispose()


def _numbered(table: Table, rows: Sequence[Values], first: int) -> list[Values]:
    """Rows as they are; of events, those that give no `seq` of their own have their number as one."""
    if table is not event:
        return list(rows)
    return [{**row, "seq": number if row["seq"] is None else row["seq"]} for number, row in enumerate(rows, first)]
