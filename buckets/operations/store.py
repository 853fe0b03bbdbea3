"""Operations as Redis keeps them: planned, read, and brought from one state to another.

The record of an operation is a hash of shard 0, `{ns:0}:op:<id>`, whose fields have the names of `FIELDS`; `asked` and
`samples` are JSON, the others text. Its progress in a shard is in the hash with the same name in that shard:
`position`, and the numbers `moved` and `changed`, which the script that changes the jobs writes in the same step. The
process that carries out an operation reports its progress; the reply says whether to continue.
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
"""The states of the jobs that each kind of operation changes or finds."""

PLANNING, PLANNED, WAITING, RUNNING = "planning", "planned", "waiting", "running"
PAUSED, DONE, CANCELLED, FAILED = "paused", "done", "cancelled", "failed"
ACTIVE = (PLANNING, WAITING, RUNNING)
"""The states in which a process must work on an operation."""
PAUSABLE = (WAITING, RUNNING)
UNENDED = (PLANNING, PLANNED, WAITING, RUNNING, PAUSED)
"""The states in which an operation can be cancelled."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs an operation is for. Times are in ms since the epoch, each pair a first and a last one; a field that
    is empty or None matches any job. `topic` is a pattern with `*` and `?`, `reason` a part of the reason, ignoring
    case; `due` is when a delayed job falls due next."""

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
        """Whether the filter has only a topic and a state, for which Redis keeps counts."""
        return self == Filter(topic=self.topic, state=self.state)


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operation should do. For a reschedule: `shift_ms` (later, or earlier if negative), or `at_ms` since the
    epoch with `spread_ms`, within which each job gets its time from a hash of its id."""

    kind: Kind
    filter: Filter
    begun: int
    """ms since the epoch: jobs that were added, delivered or died after this are left alone."""
    within: str = ""
    """The topics that the caller may reach (see topics/within.py)."""
    by: str = ""
    """The actor, or empty if unknown."""
    shift_ms: int | None = None
    at_ms: int | None = None
    spread_ms: int = 0

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the jobs that the operation is for."""
        return (self.filter.state,) if self.filter.state else STATES_OF[self.kind]

    @property
    def goes_back(self) -> bool:
        """Whether the operation starts with the latest jobs, so that it does not meet jobs again after moving them to
        later times."""
        return self.shift_ms is not None and self.shift_ms > 0


@dataclass(slots=True)
class Operation:
    """An operation as in its record. Times are in ms since the epoch, or 0 for not yet."""

    id: str
    asked: Asked
    state: str = PLANNING
    planned: int = 0
    started: int = 0
    ended: int = 0
    count: int = 0
    """Jobs that matched when it was planned, or that have matched so far while it is being planned."""
    exact: bool = True
    """True if `count` was counted, False if it was estimated."""
    looked: int = 0
    """How many index entries were looked at, or keys for a find by prefix."""
    samples: list[str] = field(default_factory=list)
    """The ids of some jobs that matched; for a find, of all."""
    done: int = 0
    skipped: int = 0
    """Jobs that matched but were not changed, because they had changed meanwhile."""
    rate: int = 0
    """The most jobs a second."""
    speed: float = 0.0
    """The recent speed, in jobs a second."""
    slowed: bool = False
    """Whether the rate is halved because other jobs are late."""
    started_by: str = ""
    error: str = ""
    """Why the operation failed, as a sentence."""

    @property
    def is_search(self) -> bool:
        """Whether the operation looks at the keys of all jobs, because its filter has no topic."""
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
    """The operation of a record, or None if the record is not one of ours."""
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
"""The most operations that are kept."""
PLAN_MS = 15 * 60_000
"""How long a plan can be started."""
KEPT_MS = 30 * 86_400_000
"""How long other operations are kept after their last change."""
_POSITION_MS = 400 * 86_400_000  # longer than any operation: without a position, the shard would be started over
_UNFINISHED_MS = 3_600_000  # the time that a plan may take
_BRIEF = tuple(name for name in FIELDS if name != "samples")


class Progress(NamedTuple):
    """How far an operation is in a shard: its position there (empty for the beginning), how many jobs it has changed,
    and how many it has skipped because they had changed meanwhile."""

    position: str
    done: int
    skipped: int


class Operations:
    """The operations of a namespace."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def plan(self, asked: Asked) -> Operation:
        """Store a new operation, to be planned; a search starts at once. Raises WrongState, NoRoom."""
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
        """An operation, or None if it is unknown."""
        key = self.pool.keys[0].operation(operation)
        try:
            values = await self.pool.redis.read("HMGET", key, *FIELDS)
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return None
        return read(operation, _texts(dict(zip(FIELDS, values, strict=True))))

    async def page(self, states: Sequence[str] = (), count: int = MOST) -> list[Operation]:
        """Operations in some states, or in any state, the newest first, without their samples."""
        found = await self.pool.call("read_operations", 0, _BRIEF, states=_between_blanks(states), count=count)
        pairs = [(name.decode(), dict(zip(rest[::2], rest[1::2], strict=True))) for name, *rest in found]
        operations = [read(name, _texts({key.decode(): value for key, value in each.items()})) for name, each in pairs]
        return [each for each in operations if each is not None]

    async def start(self, operation: str, rate: int, by: str) -> str:
        """Start a planned operation, with at most `rate` jobs a second. Returns the previous state; does nothing unless
        that is planned."""
        now = await self.pool.now_ms()
        return await self.change(operation, [PLANNED], KEPT_MS, state=WAITING, started=now, rate=rate, started_by=by)

    async def pause(self, operation: str) -> str:
        """Pause an operation. Returns the previous state; does nothing unless that is waiting or running."""
        return await self.change(operation, PAUSABLE, KEPT_MS, state=PAUSED, speed=0.0)

    async def resume(self, operation: str) -> str:
        """Resume an operation. Returns the previous state; does nothing unless that is paused."""
        return await self.change(operation, [PAUSED], KEPT_MS, state=WAITING)

    async def cancel(self, operation: str) -> str:
        """End an operation where it is now. Returns the previous state; does nothing if the operation has already
        ended."""
        now = await self.pool.now_ms()
        return await self.change(operation, UNENDED, KEPT_MS, state=CANCELLED, ended=now, speed=0.0)

    async def change(self, operation: str, states: Sequence[str], lasts: int = KEPT_MS, **values: Any) -> str:
        """Change fields of an operation if it is in one of some states; it is then kept for `lasts` ms from now.
        Returns the previous state, or an empty string if the operation is unknown."""
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
        """Apply an operation to jobs of a shard, and advance its position from `before` to `after`. `jobs`: the id,
        header and new due time of each job. Returns how many jobs of the shard were changed and skipped so far, or None
        if another instance has already continued from `before`."""
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
    """This process must stop carrying out the operation: it was paused or cancelled, or another instance continues
    it."""


class Reporter:
    """Reports on an operation that this process carries out. Each call raises Halted if the process must stop."""

    def __init__(self, operations: Operations, operation: Operation) -> None:
        self._operations = operations
        self._operation = operation
        self._due = asyncio.get_running_loop().time() + _EVERY_S

    async def begin(self, state: str) -> None:
        """Set the state in which the operation is carried out."""
        await self._bring_to(state, KEPT_MS)

    async def report(self) -> None:
        """Write the progress of the operation, unless it was written in the last half second."""
        now = asyncio.get_running_loop().time()
        if now >= self._due:
            self._due = now + _EVERY_S
            await self._write(KEPT_MS)

    async def add_up(self) -> None:
        """Write the numbers of an operation that was paused or cancelled: jobs may have been changed since the last
        report."""
        numbers = {"done": self._operation.done, "skipped": self._operation.skipped}
        await self._operations.change(self._operation.id, [PAUSED, CANCELLED], **numbers)

    async def end(self, state: str, lasts: int = KEPT_MS) -> None:
        """Set the next state of the operation, which is kept for `lasts` ms."""
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
