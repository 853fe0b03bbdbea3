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
    """Left out where the client's own retry found the job dead: `existing`."""
    result: Literal["created", "existing", "replaced", "moved"]
    durability: NotRequired[str]
    topic: NotRequired[str]
    """For a virtual topic only, with `jobs`, which replaces `state`, `due` and `result`."""
    jobs: NotRequired[list[Answer]]


class Scheduled(TypedDict):
    success: bool
    name: str
    result: Literal["created", "existing", "replaced"]
    next: float | None
    """When its next occurrence is; None: it is paused, or has no more of them."""
    durability: NotRequired[str]


class Unscheduled(TypedDict):
    success: bool
    name: str
    live: int
    """How many of its occurrences are still delayed, ready, reserved or dead."""


class ScheduleRow(TypedDict):
    """A schedule. Options of its occurrences that it does not give are left out."""

    name: str
    topic: str
    every: NotRequired[float]
    start: NotRequired[float]
    cron: NotRequired[str]
    zone: NotRequired[str]
    jitter: NotRequired[float]
    catch_up: Literal["none", "last", "all"]
    overlap: Literal["allow", "skip"]
    paused: bool
    next: list[float]
    """Its next five times."""
    last: float | None
    """When the last occurrence that was made is."""
    value: NotRequired[Any]
    ttr: NotRequired[float]
    priority: NotRequired[int]
    tries: NotRequired[int]
    backoff: NotRequired[list[float]]
    ttl: NotRequired[float]
    retention: NotRequired[float]
    headers: NotRequired[dict[str, str]]
    tags: NotRequired[list[str]]


class ScheduleList(TypedDict):
    success: bool
    schedules: list[ScheduleRow]
    cursor: str | None


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
    size: int
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
    limited: NotRequired[Literal["rate", "concurrency"]]
    """The limit of its topic that keeps it back."""
    deleted_at: NotRequired[float]
    newer: NotRequired[int | None]
    max_dead: NotRequired[int | None]
    reasons: list[str]
    """Of a ready job: what is known of why it waits, beside the sentence, for people."""
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


class Found(TypedDict):
    success: bool
    topic: str
    known: NotRequired[Literal[False]]
    jobs: list[Details]
    looked: int
    """How many entries the search has looked at, of jobs of all topics, since its first page."""
    cursor: str | None


class SearchBegun(TypedDict):
    """Of a find without a topic."""

    success: bool
    operation: str
    """Lists what it has found, with get."""


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
    rate: NotRequired[float]
    concurrency: NotRequired[int]


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
    state: Literal["parked", "busy", "blocked", "idle"]
    jobs: int
    last_pop: float
    blocked: NotRequired[str]


class Workers(TypedDict):
    success: bool
    workers: list[WorkerRow]
    others: dict[str, int]


class InstanceRow(TypedDict):
    instance: str | None
    """As in `Workers`. What an instance has not told is None."""
    host: str | None
    pid: int | None
    worker: int | None
    version: str | None
    started: float | None
    signed: float
    timers: dict[str, list[int]] | None
    """By shard, the buckets whose timers it holds."""
    parked: int


class Instances(TypedDict):
    success: bool
    instances: list[InstanceRow]
    shards: int
    buckets: int


class Finding(TypedDict):
    level: Literal["ok", "warn", "bad"]
    subject: str
    words: str


class Health(TypedDict):
    success: bool
    at: float
    findings: list[Finding]


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


class ForecastBin(TypedDict):
    begin: float
    width: int
    """60 or 3,600 s."""
    jobs: int
    scheduled: int
    """What schedules are going to add; not among `jobs` yet."""


class LargestTopic(TypedDict):
    topic: str
    jobs: int


class Forecast(TypedDict):
    success: bool
    topic: str | None
    bins: list[ForecastBin]
    total: int
    later: int
    scheduled_until: float | None
    """Until when `scheduled` is counted; None: to the end."""
    topics: int
    left_out: int
    largest: list[LargestTopic]
    """The topics with most of these jobs, up to five."""


class Setting(TypedDict):
    name: str
    value: Any
    """Of a secret `set` or `not set`."""
    source: Literal["default", "file", "environment", "flag"]


class Policy(TypedDict):
    topic: str
    ttr_s: float
    tries: int
    backoff_s: list[float]
    ttl_s: float | None
    retention_s: float
    priority: int
    max_pending: int
    max_dead: int
    dead_age_s: float
    rate: float | None
    concurrency: int | None
    own: list[str]
    """Which of these the topic sets itself."""


class SettingsShown(TypedDict):
    success: bool
    settings: list[Setting]
    policies: list[Policy]
    virtual_topics: dict[str, list[str]]


class Lateness(TypedDict):
    counts: list[int]
    """How many jobs, by bucket: see `bounds` of the answer."""
    p50: float
    """Seconds."""
    p99: float


class FiguresBin(TypedDict):
    begin: float
    adds: int
    deliveries: int
    finishes: int
    deaths: dict[str, int]
    """By cause."""
    due_to_ready: Lateness | None
    due_to_delivered: Lateness | None
    refusals: NotRequired[dict[str, int]]
    """By what kind of code; only without a topic."""


class Figures(TypedDict):
    success: bool
    topic: str | None
    since: float
    until: float
    step: int
    bounds: list[float]
    """The upper ends of the buckets of lateness in seconds; the last bucket has none."""
    bins: list[FiguresBin]
    total: FiguresBin
    parked: int
    """Pops that wait now."""


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


class OperationRow(TypedDict):
    """An operation in a listing; points in time are unix seconds."""

    operation: str
    kind: Literal["kick", "delete", "run", "reschedule", "find"]
    state: Literal["planning", "planned", "waiting", "running", "paused", "done", "cancelled", "failed"]
    filter: dict[str, Any]
    count: int
    exact: bool
    looked: int | None
    """None for a token that does not reach all topics."""
    done: int
    skipped: int
    rate: int | None
    speed: float
    slowed: bool
    left: float | None
    """Seconds until it is done; None: not known."""
    begun: float
    by: str
    started: float | None
    started_by: str
    ended: float | None
    shift: NotRequired[float]
    at: NotRequired[float]
    spread: NotRequired[float]
    error: NotRequired[str]


class OperationTold(OperationRow):
    """The answer to `operation`, by what is done of which it has what."""

    success: bool
    plan: NotRequired[str]
    """Of a plan: its id, to start it by."""
    samples: NotRequired[list[str]]
    """Ids of up to 20 jobs that matched; of a find, of up to 1,000."""
    operations: NotRequired[list[OperationRow]]
    """Of list, which has no other field."""


class Identity(TypedDict):
    """With `open`, the service asks for no tokens, and the rest is left out."""

    success: bool
    open: bool
    id: NotRequired[str]
    name: NotRequired[str]
    rights: NotRequired[list[str]]
    commands: NotRequired[list[str]]
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
