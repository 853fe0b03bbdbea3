"""Operations as Redis keeps them: planned, read, and brought from one state to another.

The record of an operation is a hash of shard 0, `{ns:0}:op:<id>`, whose fields have the names of `FIELDS`; `asked` and
`samples` are JSON, the others text. How far it is in a shard is in the hash of the same name of that shard: `position`,
and the numbers `moved` and `changed`, which the script that changes its jobs writes with them. Whoever carries an
operation out reports how far it is; the answer says whether to go on.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from buckets.errors import JobQueueError, WrongState
from buckets.job import LIVE, State
from buckets.pool.pool import Pool
from buckets.scripts import Value

Kind = Literal["kick", "delete", "run", "reschedule", "find"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STATES_OF: dict[Kind, tuple[State, ...]] = {
    "kick": (State.DEAD,),
    "delete": LIVE,
    "run": (State.DELAYED,),
    "reschedule": (State.DELAYED,),
    "find": LIVE,
}
"""The states of the jobs that each kind takes."""

PLANNING, PLANNED, WAITING, RUNNING = "planning", "planned", "waiting", "running"
PAUSED, DONE, CANCELLED, FAILED = "paused", "done", "cancelled", "failed"
ACTIVE = (PLANNING, WAITING, RUNNING)
"""The states in which there is something to do."""
PAUSABLE = (WAITING, RUNNING)
UNENDED = (PLANNING, PLANNED, WAITING, RUNNING, PAUSED)
"""The states in which it can be cancelled."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs. Times are ms since the epoch, each a first and a last one; what is empty or None matches any job.
    `topic` is a pattern of `*` and `?`, `reason` a part of the text in any case, `due` when a delayed job falls due
    next."""

    topic: str = ""
    state: State | None = None
    cause: str = ""
    reason: str = ""
    prefix: str = ""
    tag: str = ""
    died_from: int | None = None
    died_to: int | None = None
    due_from: int | None = None
    due_to: int | None = None
    created_from: int | None = None
    created_to: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing but topics and states, of which the counts are known."""
        return self == Filter(topic=self.topic, state=self.state)


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to be done. Of a reschedule: `shift_ms` (later, or earlier if it is negative), or `at_ms`
    since the epoch with `spread_ms`, within which each job gets its time by a hash of its id."""

    kind: Kind
    filter: Filter
    begun: int
    """ms since the epoch: jobs that were added, delivered or died later are left alone."""
    within: str = ""
    """The topics that the asker reaches (see topics/within.py)."""
    by: str = ""
    """The actor; empty: not known."""
    shift_ms: int | None = None
    at_ms: int | None = None
    spread_ms: int = 0

    @property
    def states(self) -> tuple[State, ...]:
        """Of the jobs that it takes."""
        return (self.filter.state,) if self.filter.state else STATES_OF[self.kind]

    @property
    def goes_back(self) -> bool:
        """Whether it takes the latest jobs first: those that it makes later are then behind it, and not met again."""
        return self.shift_ms is not None and self.shift_ms > 0


@dataclass(slots=True)
class Operation:
    """An operation as its record says. Times are ms since the epoch, 0: not yet."""

    id: str
    asked: Asked
    state: str = PLANNING
    planned: int = 0
    started: int = 0
    ended: int = 0
    count: int = 0
    """Jobs that matched when it was planned; while it is being planned, so far."""
    exact: bool = True
    """Whether they were counted, not estimated."""
    looked: int = 0
    """Entries of indexes, or keys of a find by prefix, that were looked at."""
    samples: list[str] = field(default_factory=list)
    """Ids of some that matched; of a find, of all."""
    done: int = 0
    skipped: int = 0
    """Jobs that matched and were not changed: they were no longer as they had been."""
    rate: int = 0
    """Jobs a second, at most."""
    speed: float = 0.0
    """Jobs a second, lately."""
    slowed: bool = False
    """Whether the rate is halved, as other jobs came late."""
    started_by: str = ""
    error: str = ""
    """Why it failed, as a sentence."""

    @property
    def is_search(self) -> bool:
        """Whether it looks at the keys of all jobs, as it knows only the beginning of their ids."""
        return self.asked.kind == "find" and not self.asked.filter.topic


FIELDS = ("state", *(name for name in Operation.__dataclass_fields__ if name not in ("id", "state")))
"""The fields of a record."""


def write(**values: Any) -> list[str]:
    """Fields of a record with their values, one after the other."""
    return [text for name, value in values.items() for text in (name, _text(value))]


def _text(value: Any) -> str:
    if isinstance(value, Asked):
        return json.dumps(asdict(value))
    if isinstance(value, list):
        return json.dumps(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


def read(operation: str, fields: Mapping[str, str]) -> Operation | None:
    """The operation of a record, or None where it is not one of ours."""
    try:
        asked = _asked(json.loads(fields["asked"]))
        known = {name: fields[name] for name in FIELDS if name in fields and name != "asked"}
        return Operation(operation, asked, **{name: _READ[name](text) for name, text in known.items()})
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _asked(found: dict[str, Any]) -> Asked:
    given = dict(found.pop("filter"))
    state = given.pop("state")
    return Asked(filter=Filter(state=None if state is None else State(state), **given), **found)


def _flag(text: str) -> bool:
    return text == "1"


_READ: dict[str, Callable[[str], Any]] = {
    "state": str,
    "planned": int,
    "started": int,
    "ended": int,
    "count": int,
    "exact": _flag,
    "looked": int,
    "samples": json.loads,
    "done": int,
    "skipped": int,
    "rate": int,
    "speed": float,
    "slowed": _flag,
    "started_by": str,
    "error": str,
}


MOST = 1000
"""Operations that are kept."""
PLAN_MS = 15 * 60_000
"""How long a plan can be started."""
KEPT_MS = 30 * 86_400_000
"""How long the others are kept, after they changed last."""
_POSITION_MS = 400 * 86_400_000  # longer than any operation: who finds no position begins the shard again
_UNFINISHED_MS = 3_600_000  # that a plan may take
_BRIEF = tuple(name for name in FIELDS if name != "samples")


class Progress(NamedTuple):
    """How far an operation is in a shard: its position there (empty: at the beginning), and how many jobs it has
    changed, and found changed by others."""

    position: str
    done: int
    skipped: int


class Operations:
    """The operations of a namespace."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def plan(self, asked: Asked) -> Operation:
        """Keep an operation that is to be planned, from now on; a search is to be carried out at once. Raises
        WrongState, NoRoom."""
        asked = replace(asked, begun=await self.pool.newest_ms())
        is_find = asked.kind == "find"
        operation = Operation(
            secrets.token_hex(6),
            asked,
            state=RUNNING if is_find else PLANNING,
            planned=asked.begun,
            started=asked.begun if is_find else 0,
            started_by=asked.by if is_find else "",
        )
        fields = write(**{name: getattr(operation, name) for name in FIELDS})
        kept = await self.pool.call(
            "plan_operation",
            0,
            fields,
            now=self.pool.clock.now(),
            operation=operation.id,
            most=MOST,
            lasts=KEPT_MS if is_find else _UNFINISHED_MS,
        )
        if not kept:
            raise WrongState(f"there are {MOST} operations that have not ended")
        return operation

    async def get(self, operation: str) -> Operation | None:
        """All that is known of an operation, or None."""
        key = self.pool.keys[0].operation(operation)
        try:
            values = await self.pool.redis.read("HMGET", key, *FIELDS)
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return None
        return read(operation, _texts(dict(zip(FIELDS, values, strict=True))))

    async def page(self, states: Sequence[str] = (), count: int = MOST) -> list[Operation]:
        """Operations in some states, or all, the newest first, without their samples."""
        found = await self.pool.call("read_operations", 0, _BRIEF, states=_between_blanks(states), count=count)
        pairs = [(name.decode(), dict(zip(rest[::2], rest[1::2], strict=True))) for name, *rest in found]
        operations = [read(name, _texts({key.decode(): value for key, value in each.items()})) for name, each in pairs]
        return [each for each in operations if each is not None]

    async def start(self, operation: str, rate: int, by: str) -> str:
        """Let a plan be carried out, `rate` jobs a second at most. Returns the state that it was in; only a planned one
        is started."""
        now = await self.pool.now_ms()
        return await self.change(operation, [PLANNED], KEPT_MS, state=WAITING, started=now, rate=rate, started_by=by)

    async def pause(self, operation: str) -> str:
        """Halt an operation. Returns the state that it was in; only one that waits or runs is paused."""
        return await self.change(operation, PAUSABLE, KEPT_MS, state=PAUSED, speed=0.0)

    async def resume(self, operation: str) -> str:
        """Go on with an operation. Returns the state that it was in; only a paused one goes on."""
        return await self.change(operation, [PAUSED], KEPT_MS, state=WAITING)

    async def cancel(self, operation: str) -> str:
        """End an operation as far as it is. Returns the state that it was in; only one that has not ended ends."""
        now = await self.pool.now_ms()
        return await self.change(operation, UNENDED, KEPT_MS, state=CANCELLED, ended=now, speed=0.0)

    async def change(self, operation: str, states: Sequence[str], lasts: int = KEPT_MS, **values: Any) -> str:
        """Change fields of an operation, if it is in one of some states; it is kept for `lasts` ms from now on. Returns
        the state that it was in, empty if it is not known."""
        state: bytes = await self.pool.call(
            "change_operation",
            0,
            write(**values),
            operation=operation,
            states=_between_blanks(states),
            lasts=lasts,
        )
        return state.decode()

    async def progress(self, operation: str, shard: int) -> Progress:
        """How far an operation is in a shard."""
        key = self.pool.keys[shard].operation(operation)
        position, done, skipped = await self.pool.redis.read("HMGET", key, "position", "moved", "changed")
        return Progress((position or b"").decode(), int(done or 0), int(skipped or 0))

    async def apply(
        self, operation: Operation, shard: int, before: str, after: str, jobs: Sequence[Value]
    ) -> tuple[int, int] | None:
        """Do to jobs of a shard what an operation does, and go on from a position to another one. `jobs`: for each its
        id, its header and its new due time. Returns how many jobs of the shard were changed so far, and found changed;
        None if another instance has gone on from there."""
        numbers = await self.pool.call(
            "apply_operation",
            shard,
            jobs,
            now=self.pool.clock.now(),
            operation=operation.id,
            kind=operation.asked.kind,
            before=before,
            after=after,
            lasts=_POSITION_MS,
        )
        return (int(numbers[0]), int(numbers[1])) if numbers else None


def _between_blanks(states: Sequence[str]) -> str:
    return f" {' '.join(states)} " if states else ""


def _texts(values: Mapping[str, bytes | None]) -> dict[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in values.items() if value is not None}


_EVERY_S = 0.5


class Halted(Exception):
    """The operation is not to be carried out here any more: it was paused or cancelled, or another instance goes on."""


class Reporter:
    """Reports on an operation that this process carries out. Each call raises Halted where it is not to go on."""

    def __init__(self, operations: Operations, operation: Operation) -> None:
        self._operations = operations
        self._operation = operation
        self._due = asyncio.get_running_loop().time() + _EVERY_S

    async def begin(self, state: str) -> None:
        """Bring it to the state in which it is carried out."""
        await self._bring_to(state, KEPT_MS)

    async def report(self) -> None:
        """Write what is known of it, unless that was done in the last half second."""
        now = asyncio.get_running_loop().time()
        if now >= self._due:
            self._due = now + _EVERY_S
            await self._write(KEPT_MS)

    async def add_up(self) -> None:
        """Write the numbers of one that was halted by somebody: jobs may have been changed since the last report."""
        numbers = {"done": self._operation.done, "skipped": self._operation.skipped}
        await self._operations.change(self._operation.id, [PAUSED, CANCELLED], **numbers)

    async def end(self, state: str, lasts: int = KEPT_MS) -> None:
        """Bring it to its next state, which is kept for `lasts` ms."""
        self._operation.ended = 0 if state == PLANNED else await self._operations.pool.now_ms()
        await self._bring_to(state, lasts)

    async def _bring_to(self, state: str, lasts: int) -> None:
        await self._write(lasts, state=state)
        self._operation.state = state

    async def _write(self, lasts: int, **state: str) -> None:
        known = self._operation
        was = await self._operations.change(
            known.id,
            [known.state],
            lasts,
            **state,
            count=known.count,
            exact=known.exact,
            looked=known.looked,
            samples=known.samples,
            done=known.done,
            skipped=known.skipped,
            speed=round(known.speed, 1),
            slowed=known.slowed,
            ended=known.ended,
        )
        if was != known.state:
            raise Halted
