"""The answers to commands, exactly as received. docs/protocol.md describes the fields; times are unix seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NotRequired, TypedDict

from jobqueue_client.fields import LiveState

State = Literal["delayed", "ready", "reserved", "dead", "finished", "deleted"]
Counts = dict[LiveState, int]
Loads = Callable[[bytes], Any]
"""Reads JSON. Raises ValueError or RecursionError for what is none."""
Answer = dict[str, Any]
"""Any answer, as in the results of a batch."""


class Added(TypedDict):
    success: bool
    id: str
    state: State
    due: float
    result: Literal["created", "existing", "replaced"]
    durability: NotRequired[str]
    topic: NotRequired[str]
    """For a virtual topic only, with `jobs`, which replaces `state`, `due` and `result`."""
    jobs: NotRequired[list[Answer]]


class Settled(TypedDict):
    """The answer to finish, delete and bury."""

    success: bool
    id: str
    state: State
    was: NotRequired[State]
    """Of a delete: the state before it."""
    durability: NotRequired[str]


class Touched(TypedDict):
    success: bool
    id: str
    state: State
    until: float


class Timed(TypedDict):
    """The answer to release, run and update."""

    success: bool
    id: str
    state: State
    due: float
    durability: NotRequired[str]


class Kicked(TypedDict):
    success: bool
    id: str
    state: State
    count: NotRequired[int]


class TopicKicked(TypedDict):
    success: bool
    topic: str
    count: int


class Details(TypedDict):
    """The answer to get, and a job in the answer to peek."""

    success: NotRequired[bool]
    id: str
    state: State
    topic: str
    value: Any
    created: float
    due: float
    priority: int
    ttr: float
    ttl: float | None
    retention: float
    tries: int
    attempt: int
    deliveries: int
    backoff: list[float]
    headers: dict[str, str] | None
    tags: list[str] | None
    lease: int | None
    worker: str | None
    reason: str | None
    cause: NotRequired[str]
    until: NotRequired[float]
    ready_since: NotRequired[float]
    reserved_until: NotRequired[float]
    dead_since: NotRequired[float]
    ended: NotRequired[float]
    """When the last lease ended, if it was not used in time; `reason` is then "lease ended"."""
    paused: NotRequired[bool]
    paused_until: NotRequired[float | None]


class Standing(TypedDict):
    """Where a job stands. What its state does not ask for is left out."""

    state: Literal["delayed", "ready", "reserved", "dead", "finished", "deleted", "aside", "unreadable", "gone"]
    topic: str | None
    life: float | None
    lives: list[float]
    now: float | None
    until: float | None
    job: Details | None
    """Without `value`."""
    shard: NotRequired[int]
    bucket: NotRequired[int]
    timer: NotRequired[str | None]
    listed: NotRequired[bool | None]
    late: NotRequired[float]
    behind: NotRequired[int | None]
    paused: NotRequired[bool]
    paused_until: NotRequired[float]
    before: NotRequired[int]
    above: NotRequired[int | None]
    waiting: NotRequired[int | None]
    last_delivery: NotRequired[float | None]
    deleted_at: NotRequired[float]
    newer: NotRequired[int | None]
    max_dead: NotRequired[int | None]
    notes: list[str]
    """What is missing from the answer, as sentences for people."""


class TimelineLine(TypedDict):
    """What happened to a job at one time; spans are in seconds."""

    at: float
    what: str
    how: str
    who: str
    life: float
    late: NotRequired[float]
    waited: NotRequired[float]
    worked: NotRequired[float]
    backed_off: NotRequired[float]
    worker: NotRequired[str]
    attempt: NotRequired[int]
    forgotten: NotRequired[bool]


class TimelineSums(TypedDict):
    late: float | None
    timers_late: float
    waited: float
    worked: float
    backed_off: float
    deliveries: int


class Explained(TypedDict):
    success: bool
    id: str
    sentence: str
    facts: Standing
    timeline: list[TimelineLine] | None
    """None: the service has no journal, or could not read it."""
    sums: TimelineSums | None
    since: float | None


class Peeked(TypedDict):
    success: bool
    topic: str
    known: NotRequired[Literal[False]]
    jobs: list[Details]
    cursor: str | None


class TopicRow(TypedDict):
    topic: str
    counts: Counts
    paused: bool
    paused_until: NotRequired[float | None]
    oldest_ready_s: NotRequired[float | None]
    workers: NotRequired[int]
    """How many workers poll it."""
    max_pending: NotRequired[int]
    max_dead: NotRequired[int]


class Topics(TypedDict):
    success: bool
    topics: list[TopicRow]
    cursor: str | None


class WorkerRow(TypedDict):
    worker: str
    topics: list[str]
    instance: str
    client: str
    since: float
    state: Literal["parked", "busy", "idle"]
    jobs: int
    last_pop: float


class Workers(TypedDict):
    success: bool
    workers: list[WorkerRow]
    others: dict[str, int]


class Stats(TypedDict):
    success: bool
    topic: str | None
    known: NotRequired[Literal[False]]
    counts: Counts
    totals: dict[str, int]
    oldest_ready: float | None
    due: dict[str, int]
    shards: int
    newest_dead: NotRequired[dict[str, Any]]
    """Of a topic with dead letters: `id`, `cause`, `reason` and `dead_since` of the last one."""
    paused: NotRequired[bool]
    paused_until: NotRequired[float | None]


class Paused(TypedDict):
    success: bool
    topic: str
    known: NotRequired[Literal[False]]
    until: float | None


class Resumed(TypedDict):
    success: bool
    topic: str
    known: NotRequired[Literal[False]]
    was_paused: bool


class Left(TypedDict):
    success: bool
    worker: str


class Purged(TypedDict):
    success: bool
    topic: str
    known: NotRequired[Literal[False]]
    count: int
    cursor: str | None


class LoggedAction(TypedDict):
    """What somebody did. `outcome`: OK, the code of its error, or `not known`."""

    at: float
    actor: str
    action: str
    outcome: str
    done: int
    request: str
    token: NotRequired[str]
    topic: NotRequired[str]
    id: NotRequired[str | int]
    state: NotRequired[str]
    count: NotRequired[int]
    seconds: NotRequired[float]
    within: NotRequired[str]
    address: NotRequired[str]


class Actions(TypedDict):
    success: bool
    actions: list[LoggedAction]
    cursor: str | None


class TokenRecord(TypedDict):
    """What is kept of a token. Times are unix seconds."""

    id: str
    name: str
    state: Literal["live", "expired", "revoked"]
    source: Literal["redis", "file"]
    rights: list[str]
    topics: list[str]
    created: float
    created_by: str
    expires: float | None
    used: float | None
    rate: int | None
    burst: int | None
    bytes: int | None
    waits: int | None
    own_ids: bool
    certificate: str | None
    revoked: NotRequired[float]
    old_until: NotRequired[float]
    """Once its secret was exchanged: until when the old one holds, too."""


class TokenTold(TokenRecord):
    """The answer to the actions of `token`, by which of them it has what."""

    success: bool
    token: NotRequired[str]
    """Of create and rotate: the token, which is shown this once."""
    tokens: NotRequired[list[TokenRecord]]
    """Of list, which has no other field."""
    allowed: NotRequired[bool]
    """Of test, which has `id` and `why` besides."""
    why: NotRequired[str | None]


class Identity(TypedDict):
    """With `open`, the service asks for no tokens, and the rest is left out."""

    success: bool
    open: bool
    id: NotRequired[str]
    name: NotRequired[str]
    rights: NotRequired[list[str]]
    topics: NotRequired[list[str]]
    expires: NotRequired[float | None]
    rate: NotRequired[int | None]
    burst: NotRequired[int | None]
    bytes: NotRequired[int | None]
    waits: NotRequired[int | None]
    own_ids: NotRequired[bool]


def loads(data: bytes) -> Any:
    """What answers are read with unless a client has another one."""
    return json.loads(data, parse_int=_integer)


def _integer(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # Python reads at most 4,300 digits; one such body must not hide the jobs beside it
        return float(text)
