"""The answers to commands, as received. docs/protocol.md describes them; times are unix seconds.

Made by `make docs` from the structs of the service; its names are chosen in jobqueue/reference/client_types.py.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from jobqueue_client.fields import LiveState

State = Literal["delayed", "ready", "reserved", "dead", "finished", "deleted"]
Counts = dict[LiveState, int]
Answer = dict[str, Any]
"""Any answer, as in the results of a batch."""


class AddedJob(TypedDict):
    """One of the jobs made by an add to a virtual topic."""

    topic: str
    id: str
    state: State
    due: float
    result: Literal["dead", "cancelled", "created", "existing", "moved", "replaced"]


class Added(TypedDict):
    """The answer to add."""

    success: bool
    id: str
    state: State
    due: float
    result: Literal["created", "existing", "moved", "replaced"]
    durability: NotRequired[Literal["fsynced", "local", "replicated"]]
    topic: NotRequired[str]
    jobs: NotRequired[list[AddedJob]]


class Scheduled(TypedDict):
    """The answer to schedule."""

    success: bool
    name: str
    result: Literal["created", "existing", "replaced"]
    next: float | None
    durability: NotRequired[Literal["fsynced", "local", "replicated"]]


class Unscheduled(TypedDict):
    """The answer to unschedule."""

    success: bool
    name: str
    live: int


class ScheduleRow(TypedDict):
    """A schedule in a listing. Options of its occurrences that it does not give are left out."""

    name: str
    topic: str
    next: list[float]
    last: float | None
    catch_up: Literal["all", "last", "none"]
    overlap: Literal["allow", "skip"]
    paused: bool
    value: NotRequired[Any]
    every: NotRequired[float]
    start: NotRequired[float]
    cron: NotRequired[str]
    zone: NotRequired[str]
    jitter: NotRequired[float]
    ttr: NotRequired[float]
    priority: NotRequired[int]
    tries: NotRequired[int]
    backoff: NotRequired[list[float]]
    ttl: NotRequired[float]
    retention: NotRequired[float]
    headers: NotRequired[dict[str, str]]
    tags: NotRequired[list[str]]


class ScheduleList(TypedDict):
    """The answer to schedules."""

    success: bool
    schedules: list[ScheduleRow]
    cursor: str | None


class Settled(TypedDict):
    """The answer to finish, delete or bury."""

    success: bool
    id: str
    state: Literal["dead", "finished", "deleted"]
    durability: NotRequired[Literal["fsynced", "local", "replicated"]]
    was: NotRequired[Literal["delayed", "ready", "reserved", "dead", "deleted"]]


class Touched(TypedDict):
    """The answer to touch."""

    success: bool
    id: str
    state: Literal["reserved"]
    until: float


class Timed(TypedDict):
    """The answer to release and run or update."""

    success: bool
    id: str
    state: State
    due: float
    durability: NotRequired[Literal["fsynced", "local", "replicated"]]


class Kicked(TypedDict):
    """The answer to kick of a job."""

    success: bool
    id: str
    state: Literal["ready"]
    count: int


class TopicKicked(TypedDict):
    """The answer to kick of a topic."""

    success: bool
    topic: str
    count: int


class Details(TypedDict):
    """All of a job, in the fields of add; points in time are in unix seconds."""

    id: str
    state: State
    topic: str
    size: NotRequired[int]
    value: NotRequired[Any]
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
    key: NotRequired[str]
    headers: dict[str, str] | None
    tags: list[str] | None
    lease: NotRequired[int]
    worker: NotRequired[str | None]
    reason: NotRequired[str | None]
    ended: NotRequired[float]
    cause: NotRequired[Literal["buried", "tries", "ttl"]]
    until: NotRequired[float]
    ready_since: NotRequired[float]
    reserved_until: NotRequired[float]
    dead_since: NotRequired[float]
    success: NotRequired[bool]
    paused: NotRequired[bool]
    paused_until: NotRequired[float | None]


class Standing(TypedDict):
    """Where a job stands; points in time are in unix seconds."""

    state: Literal["delayed", "ready", "reserved", "dead", "finished", "deleted", "aside", "gone", "unreadable"]
    topic: str | None
    life: float | None
    lives: list[float]
    now: float | None
    until: float | None
    job: Details | None
    trace_id: NotRequired[str]
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
    ahead: NotRequired[int]
    holder: NotRequired[str | None]
    opens_at: NotRequired[float]
    waiting: NotRequired[int | None]
    last_delivery: NotRequired[float | None]
    limited: NotRequired[Literal["concurrency", "rate"]]
    deleted_at: NotRequired[float]
    newer: NotRequired[int | None]
    max_dead: NotRequired[int | None]
    reasons: list[str]
    notes: list[str]


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
    """The sums of a timeline, in seconds."""

    late: float | None
    timers_late: float
    waited: float
    worked: float
    backed_off: float
    deliveries: int


class Explained(TypedDict):
    """The answer to explain."""

    success: bool
    id: str
    sentence: str
    facts: Standing
    timeline: list[TimelineLine] | None
    sums: TimelineSums | None
    since: float | None


class Peeked(TypedDict):
    """The answer to peek."""

    success: bool
    topic: str
    jobs: list[Details]
    cursor: str | None
    known: NotRequired[Literal[False]]


class Found(TypedDict):
    """The answer to find."""

    success: bool
    topic: str
    jobs: list[Details]
    looked: int
    cursor: str | None
    known: NotRequired[Literal[False]]


class SearchBegun(TypedDict):
    """The answer to find without a topic."""

    success: bool
    operation: str


class TopicRow(TypedDict):
    """A topic in a listing."""

    topic: str
    counts: Counts
    oldest_ready_s: float | None
    workers: int
    paused: bool
    paused_until: NotRequired[float | None]
    blocked: NotRequired[int]
    max_pending: NotRequired[int]
    max_dead: NotRequired[int]
    rate: NotRequired[float]
    concurrency: NotRequired[int]


class Topics(TypedDict):
    """The answer to topics."""

    success: bool
    topics: list[TopicRow]
    cursor: str | None


class WorkerRow(TypedDict):
    """A worker and the topics that it polls through an instance."""

    worker: str
    topics: list[str]
    instance: str
    client: str
    since: float
    state: Literal["blocked", "busy", "idle", "parked"]
    jobs: int
    last_pop: float
    blocked: NotRequired[str]


class Workers(TypedDict):
    """The answer to workers."""

    success: bool
    workers: list[WorkerRow]
    others: dict[str, int]


class InstanceRow(TypedDict):
    """A process of the service. What it has not told is null."""

    instance: str | None
    host: str | None
    pid: int | None
    worker: int | None
    version: str | None
    started: float | None
    signed: float
    timers: dict[str, list[int]] | None
    parked: int


class Instances(TypedDict):
    """The answer to instances."""

    success: bool
    instances: list[InstanceRow]
    shards: int
    buckets: int


class Finding(TypedDict):
    """A finding about the service."""

    level: Literal["bad", "ok", "warn"]
    subject: str
    words: str


class Health(TypedDict):
    """The answer to health."""

    success: bool
    at: float
    findings: list[Finding]


class Stats(TypedDict):
    """The answer to stats."""

    success: bool
    topic: str | None
    counts: Counts
    totals: dict[str, int]
    oldest_ready: float | None
    due: dict[str, int]
    shards: int
    blocked: NotRequired[int]
    newest_dead: NotRequired[dict[str, Any]]
    known: NotRequired[Literal[False]]
    paused: NotRequired[bool]
    paused_until: NotRequired[float | None]


class ForecastBin(TypedDict):
    """A span of time in a forecast."""

    begin: float
    width: int
    jobs: int
    scheduled: int


class LargestTopic(TypedDict):
    """A topic in a forecast."""

    topic: str
    jobs: int


class Forecast(TypedDict):
    """The answer to forecast."""

    success: bool
    topic: str | None
    bins: list[ForecastBin]
    total: int
    later: int
    scheduled_until: float | None
    topics: int
    left_out: int
    largest: list[LargestTopic]


class Setting(TypedDict):
    """A setting in force."""

    name: str
    value: Any
    source: Literal["default", "environment", "file", "flag"]


class Policy(TypedDict):
    """What holds for the jobs of a topic that has settings of its own."""

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
    per_key: dict[str, float | None]
    own: list[str]


class SettingsShown(TypedDict):
    """The answer to settings."""

    success: bool
    settings: list[Setting]
    policies: list[Policy]
    virtual_topics: dict[str, list[str]]


class Lateness(TypedDict):
    """How late some jobs were."""

    counts: list[int]
    p50: float
    p99: float


class FiguresBin(TypedDict):
    """A span of time in figures."""

    begin: float
    adds: int
    deliveries: int
    finishes: int
    deaths: dict[str, int]
    due_to_ready: Lateness | None
    due_to_delivered: Lateness | None
    refusals: NotRequired[dict[str, int]]


class Figures(TypedDict):
    """The answer to figures."""

    success: bool
    topic: str | None
    since: float
    until: float
    step: int
    bounds: list[float]
    bins: list[FiguresBin]
    total: FiguresBin
    parked: int


class Paused(TypedDict):
    """The answer to pause."""

    success: bool
    topic: str
    until: float | None
    known: NotRequired[Literal[False]]


class Resumed(TypedDict):
    """The answer to resume."""

    success: bool
    topic: str
    was_paused: bool
    known: NotRequired[Literal[False]]


class Left(TypedDict):
    """The answer to leave."""

    success: bool
    worker: str


class Purged(TypedDict):
    """The answer to purge."""

    success: bool
    topic: str
    count: int
    cursor: str | None
    known: NotRequired[Literal[False]]


class LoggedAction(TypedDict):
    """An action in the log of actions."""

    at: float
    actor: str
    action: str
    outcome: str
    done: int
    request: NotRequired[str]
    token: NotRequired[str]
    topic: NotRequired[str]
    id: NotRequired[str | int]
    name: NotRequired[str]
    state: NotRequired[str]
    count: NotRequired[int]
    seconds: NotRequired[float]
    operation: NotRequired[str]
    kind: NotRequired[str]
    jobs: NotRequired[int]
    filter: NotRequired[dict[str, Any]]
    within: NotRequired[str]
    changed: NotRequired[list[str]]
    address: NotRequired[str]


class Actions(TypedDict):
    """The answer to actions."""

    success: bool
    actions: list[LoggedAction]
    cursor: str | None


class TokenRecord(TypedDict):
    """A token in a listing."""

    id: str
    name: str
    state: Literal["expired", "live", "revoked"]
    source: Literal["file", "redis"]
    rights: list[str]
    topics: list[str]
    created: float
    created_by: str
    expires: float | None
    used: int | None
    rate: int | None
    burst: int | None
    bytes: int | None
    waits: int | None
    own_ids: bool
    certificate: str | None
    old_until: NotRequired[float]
    revoked: NotRequired[float]


class TokenTold(TypedDict):
    """The answer to token with create or rotate or token with show or revoke."""

    id: str
    name: str
    state: Literal["expired", "live", "revoked"]
    source: Literal["file", "redis"]
    rights: list[str]
    topics: list[str]
    created: float
    created_by: str
    expires: float | None
    used: int | None
    rate: int | None
    burst: int | None
    bytes: int | None
    waits: int | None
    own_ids: bool
    certificate: str | None
    old_until: NotRequired[float]
    success: bool
    token: NotRequired[str]
    revoked: NotRequired[float]
    tokens: NotRequired[list[TokenRecord]]
    allowed: NotRequired[bool]
    why: NotRequired[str | None]


class OperationRow(TypedDict):
    """An operation in a listing."""

    operation: str
    kind: Literal["delete", "find", "kick", "reschedule", "run"]
    state: Literal["cancelled", "done", "failed", "paused", "planned", "planning", "running", "waiting"]
    filter: dict[str, Any]
    count: int
    exact: bool
    looked: int | None
    done: int
    skipped: int
    rate: int | None
    speed: float
    slowed: bool
    left: float | None
    begun: float
    by: str
    started: float | None
    started_by: str
    ended: float | None
    shift: NotRequired[float]
    at: NotRequired[float]
    spread: NotRequired[float]
    error: NotRequired[str]


class OperationTold(TypedDict):
    """The answer to operation with plan or operation with start, pause, resume, cancel or get."""

    operation: str
    kind: Literal["delete", "find", "kick", "reschedule", "run"]
    state: Literal["cancelled", "done", "failed", "paused", "planned", "planning", "running", "waiting"]
    filter: dict[str, Any]
    count: int
    exact: bool
    looked: int | None
    done: int
    skipped: int
    rate: int | None
    speed: float
    slowed: bool
    left: float | None
    begun: float
    by: str
    started: float | None
    started_by: str
    ended: float | None
    shift: NotRequired[float]
    at: NotRequired[float]
    spread: NotRequired[float]
    error: NotRequired[str]
    success: bool
    plan: NotRequired[str]
    samples: list[str]
    operations: NotRequired[list[OperationRow]]


class Identity(TypedDict):
    """The answer to whoami."""

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
