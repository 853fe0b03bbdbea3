"""The commands: one typed struct each, with the body left as it came.

The allowed values of each field are in `fields`; a default here is in words for people, or the name of a setting.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from jobqueue.errors import BadField
from jobqueue.schema import fields
from jobqueue.schema.fields import Default, Field
from jobqueue.schema.mistakes import mistake

_MS = 1000
_NEEDED = "required; with `if_exists` later or sooner: the old one"
_BACKOFF = "after a release the setting `default_backoff_s`; after a lease that expired, ready at once"


class _Kind(Struct, tag_field="command", forbid_unknown_fields=True, gc=False):
    """What all commands are to msgspec. None can be part of a reference cycle, so the collector need not track them."""


class Add(_Kind, tag="add"):
    """Keep a job until it is due."""

    topic: fields.NewTopic
    body: Annotated[fields.Body, Default(_NEEDED)] = msgspec.field(default_factory=Raw)  # empty: none was given
    id: Annotated[fields.NewId | None, Default("made, ordered by time")] = None
    delay: Annotated[fields.Delay | None, Default("0")] = None
    at: fields.At | None = None
    spread: Annotated[fields.Spread | None, Default("0")] = None
    ttr: Annotated[fields.Ttr | None, Default("default_ttr_s")] = None
    TTR: fields.UpperTtr | None = None
    priority: Annotated[fields.Priority | None, Default("default_priority")] = None
    tries: Annotated[fields.Tries | None, Default("default_tries")] = None
    backoff: Annotated[fields.Backoff | None, Default(_BACKOFF)] = None
    ttl: Annotated[fields.Ttl | None, Default("none")] = None
    retention: Annotated[fields.Retention | None, Default("default_retention_s")] = None
    if_exists: Annotated[fields.IfExists | None, Default("keep")] = None
    key: fields.Key | None = None
    headers: fields.Headers | None = None
    tags: fields.Tags | None = None
    durability: Annotated[fields.Durability | None, Default("the setting `durability`")] = None


class Schedule(_Kind, tag="schedule"):
    """Add a job again and again, by an interval or a calendar."""

    name: fields.NewScheduleName
    topic: fields.ScheduleTopic
    body: fields.ScheduleBody
    every: fields.Every | None = None
    cron: fields.Cron | None = None
    zone: Annotated[fields.Zone | None, Default("UTC")] = None
    start: Annotated[fields.Start | None, Default("now")] = None
    jitter: Annotated[fields.Jitter | None, Default("0")] = None
    catch_up: Annotated[fields.CatchUp | None, Default("last")] = None
    overlap: Annotated[fields.Overlap | None, Default("allow")] = None
    paused: Annotated[fields.IsPaused | None, Default("false")] = None
    ttr: Annotated[fields.Ttr | None, Default("default_ttr_s")] = None
    TTR: fields.UpperTtr | None = None
    priority: Annotated[fields.Priority | None, Default("default_priority")] = None
    tries: Annotated[fields.Tries | None, Default("default_tries")] = None
    backoff: Annotated[fields.Backoff | None, Default(_BACKOFF)] = None
    ttl: Annotated[fields.Ttl | None, Default("none")] = None
    retention: Annotated[fields.Retention | None, Default("default_retention_s")] = None
    headers: fields.Headers | None = None
    tags: fields.Tags | None = None
    durability: Annotated[fields.Durability | None, Default("the setting `durability`")] = None


class Unschedule(_Kind, tag="unschedule"):
    """Remove a schedule."""

    name: fields.ScheduleName


class Schedules(_Kind, tag="schedules"):
    """List schedules with their next times."""

    pattern: Annotated[fields.SchedulePattern | None, Default("*")] = None
    cursor: fields.Cursor | None = None
    body: Annotated[fields.ShowsScheduleBody | None, Default("true, as far as the token lets see bodies")] = None


class Pop(_Kind, tag="pop"):
    """Reserve the next ready jobs, or one job by its id."""

    topic: fields.PoppedTopic | None = None
    topics: fields.PoppedTopics | None = None
    id: fields.PoppedId | None = None
    count: Annotated[fields.Count | None, Default("one job, without a list")] = None
    wait: Annotated[fields.Wait | None, Default("0")] = None
    ttr: Annotated[fields.PopTtr | None, Default("the job's")] = None
    TTR: fields.UpperTtr | None = None
    worker: fields.Worker | None = None
    blocked: fields.Blocked | None = None


class Finish(_Kind, tag="finish"):
    """Report that a job is done."""

    id: fields.Id
    lease: fields.Lease | None = None
    durability: Annotated[fields.Durability | None, Default("the setting `durability`")] = None


class Delete(_Kind, tag="delete"):
    """Cancel a job in any live state."""

    id: fields.Id
    durability: Annotated[fields.Durability | None, Default("the setting `durability`")] = None


class Touch(_Kind, tag="touch"):
    """Renew the lease of a reserved job."""

    id: fields.Id
    lease: fields.Lease | None = None
    ttr: Annotated[fields.TouchTtr | None, Default("as long as before")] = None
    TTR: fields.UpperTouchTtr | None = None


class Release(_Kind, tag="release"):
    """Give a reserved job back."""

    id: fields.Id
    lease: fields.Lease | None = None
    delay: Annotated[fields.Delay | None, Default("the next step of the back-off")] = None
    attempt: Annotated[fields.Attempt | None, Default("true")] = None
    reason: fields.Reason | None = None


class Bury(_Kind, tag="bury"):
    """Move a reserved job to the dead letters now."""

    id: fields.Id
    lease: fields.Lease | None = None
    reason: fields.Reason | None = None


class Leave(_Kind, tag="leave"):
    """End the waiting pops of a worker now."""

    worker: fields.LeavingWorker


class Kick(_Kind, tag="kick"):
    """Make dead letters ready again."""

    id: fields.KickedId | None = None
    topic: fields.KickedTopic | None = None
    count: Annotated[fields.KickCount | None, Default("1")] = None


class Run(_Kind, tag="run"):
    """Make a delayed job due now."""

    id: fields.Id


class Update(_Kind, tag="update"):
    """Change a delayed or ready job."""

    id: fields.Id
    delay: fields.Delay | None = None
    at: fields.At | None = None
    body: fields.NewBody = msgspec.field(default_factory=Raw)  # empty: none was given
    priority: fields.Priority | None = None
    ttl: fields.Ttl | None = None
    durability: Annotated[fields.Durability | None, Default("the setting `durability`")] = None


class Get(_Kind, tag="get"):
    """Show everything about a job."""

    id: fields.Id
    body: Annotated[fields.ShowsBody | None, Default("true, as far as the token lets see bodies")] = None


class Explain(_Kind, tag="explain"):
    """Explain where a job stands, and what happened to it."""

    id: fields.Id
    life: Annotated[fields.Life | None, Default("the newest")] = None


class Stats(_Kind, tag="stats"):
    """Show the figures of a topic, or of all topics."""

    topic: fields.StatsTopic | None = None


class Forecast(_Kind, tag="forecast"):
    """Show how many jobs fall due when."""

    topic: fields.ForecastTopic | None = None
    hours: Annotated[fields.Hours | None, Default("24")] = None


class Past(_Kind, tag="figures"):
    """Show rates and lateness over time."""

    topic: fields.FiguresTopic | None = None
    since: Annotated[fields.FiguresSince | None, Default("an hour before `until`")] = None
    until: Annotated[fields.FiguresUntil | None, Default("now")] = None
    step: Annotated[fields.Step | None, Default("60")] = None


class Peek(_Kind, tag="peek"):
    """Look at jobs without reserving them."""

    topic: fields.Topic
    state: Annotated[fields.State | None, Default("all")] = None
    cursor: fields.Cursor | None = None
    count: Annotated[fields.PeekCount | None, Default("100")] = None
    shard: Annotated[fields.Shard | None, Default("all")] = None
    body: Annotated[fields.ShowsBody | None, Default("true, as far as the token lets see bodies")] = None
    from_: fields.From | None = msgspec.field(default=None, name="from")


class Find(_Kind, tag="find"):
    """Search a topic for jobs by the beginning of their ids."""

    prefix: fields.Prefix
    topic: fields.FindTopic | None = None
    state: Annotated[fields.State | None, Default("all")] = None
    cursor: fields.Cursor | None = None
    count: Annotated[fields.PeekCount | None, Default("100")] = None


class Topics(_Kind, tag="topics"):
    """List topics with their counts."""

    pattern: Annotated[fields.Pattern | None, Default("*")] = None
    cursor: fields.Cursor | None = None


class Workers(_Kind, tag="workers"):
    """List the workers that poll."""

    topic: fields.WorkersTopic | None = None


class Instances(_Kind, tag="instances"):
    """List the processes of the service."""


class Health(_Kind, tag="health"):
    """Show what is wrong with the service, or may become so."""


class Pause(_Kind, tag="pause"):
    """Stop handing out the jobs of a topic."""

    topic: fields.Topic
    seconds: Annotated[fields.Seconds | None, Default("until it is resumed")] = None


class Resume(_Kind, tag="resume"):
    """End the pause of a topic."""

    topic: fields.Topic


class Purge(_Kind, tag="purge"):
    """Delete the jobs of a topic."""

    topic: fields.Topic
    state: Annotated[fields.State | None, Default("all")] = None
    cursor: fields.Cursor | None = None


class Actions(_Kind, tag="actions"):
    """List what people and operators did."""

    since: fields.Since | None = None
    by: fields.Actor | None = None
    cursor: fields.Cursor | None = None
    count: Annotated[fields.PeekCount | None, Default("100")] = None


class Settings(_Kind, tag="settings"):
    """Show the settings in force, and where they came from."""


class Filter(Struct, forbid_unknown_fields=True, gc=False):
    """Which jobs an operation takes: those that match all that is given."""

    topic: fields.FilterTopic | None = None
    state: fields.State | None = None
    prefix: fields.Prefix | None = None
    cause: fields.FilterCause | None = None
    reason: fields.FilterReason | None = None
    tag: fields.FilterTag | None = None
    died_from: fields.FilterDiedFrom | None = None
    died_to: fields.FilterDiedTo | None = None
    due_from: fields.FilterDueFrom | None = None
    due_to: fields.FilterDueTo | None = None
    created_from: fields.FilterCreatedFrom | None = None
    created_to: fields.FilterCreatedTo | None = None


FILTER = Filter.__struct_fields__
"""What a filter may ask for."""
_Filter = Annotated[
    Filter,
    fields.must_be(f"an object with some of {', '.join(FILTER)}"),
    Meta(description="plan: which jobs, those that match all that it has"),
]


class Operation(_Kind, tag="operation"):
    """Change all jobs that match a filter, in the background."""

    do: fields.OperationAction
    kind: fields.OperationKind | None = None
    filter: _Filter | None = None
    shift: fields.OperationShift | None = None
    at: fields.OperationAt | None = None
    spread: Annotated[fields.OperationSpread | None, Default("0")] = None
    plan: fields.PlanId | None = None
    expect: fields.OperationExpect | None = None
    rate: Annotated[fields.OperationRate | None, Default("1000")] = None
    operation: fields.OperationId | None = None


class Token(_Kind, tag="token"):
    """Create, list, revoke and rotate tokens."""

    action: fields.TokenAction
    id: fields.TokenId | None = None
    name: fields.TokenName | None = None
    rights: fields.TokenRights | None = None
    topics: Annotated[fields.TokenTopics | None, Default("all topics")] = None
    expires: Annotated[fields.TokenExpires | None, Default("in 90 days, or with the token of the request")] = None
    rate: Annotated[fields.TokenRate | None, Default("no limit")] = None
    burst: Annotated[fields.TokenBurst | None, Default("the rate, at least 10")] = None
    bytes: Annotated[fields.TokenBytes | None, Default("no limit")] = None
    waits: Annotated[fields.TokenWaits | None, Default("no limit")] = None
    own_ids: Annotated[fields.TokenOwnIds | None, Default("false")] = None
    certificate: Annotated[fields.TokenCertificate | None, Default("none")] = None
    keep: Annotated[fields.TokenKeep | None, Default("0")] = None
    right: fields.TestedRight | None = None
    topic: fields.TestedTopic | None = None


class Whoami(_Kind, tag="whoami"):
    """Show what the token of the request may do."""


class Clock(_Kind, tag="clock"):
    """Advance the clock of a test service."""

    advance: Annotated[fields.Advance | None, Default("0")] = None


class Reset(_Kind, tag="reset"):
    """Forget everything that a test service knows."""


Command = (
    Add
    | Schedule
    | Unschedule
    | Schedules
    | Pop
    | Finish
    | Delete
    | Touch
    | Release
    | Bury
    | Leave
    | Kick
    | Run
    | Update
    | Get
    | Explain
    | Stats
    | Forecast
    | Past
    | Peek
    | Find
    | Topics
    | Workers
    | Instances
    | Health
    | Pause
    | Resume
    | Purge
    | Operation
    | Actions
    | Settings
    | Token
    | Whoami
)
BY_NAME: dict[str, type[Struct]] = {str(each.__struct_config__.tag): each for each in get_args(Command)}
OF_TESTS: dict[str, type[Struct]] = {"clock": Clock, "reset": Reset}
"""The additional commands that only a test service (`jobqueue serve --test`) has."""
FIELDS: dict[str, dict[str, Field]] = {
    name: {field.name: field for field in fields.fields_of(kind)} for name, kind in BY_NAME.items()
}
"""The fields of each command."""
_EXPECTED = {name: field.expected for each in reversed(FIELDS.values()) for name, field in each.items()}
_EXPECTED["command"] = "a string"
PARTS = {"operation": [field._replace(name=f"filter.{field.name}") for field in fields.fields_of(Filter)]}
"""The inner fields of those fields that are objects."""
_EXPECTED |= {field.name: field.expected for each in PARTS.values() for field in each}


def must_be(field: str, command: object = None) -> str:
    """What a field of a command must be, in words; if `command` is unknown or does not have the field, what it must be
    in the first command that has it. Raises KeyError if no command has it."""
    own = FIELDS.get(command, {}) if isinstance(command, str) else {}
    name = field.lower()
    return f"must be {own[name].expected if name in own else _EXPECTED[name]}"


def is_field(name: str) -> bool:
    """Whether any command has a field of this name, in upper or lower case."""
    return name.lower() in _EXPECTED


def bad_value(field: str, command: object = None, value: object = None) -> BadField:
    """The refusal of a field whose value is not allowed. With the `value`, it says what is probably wrong with it."""
    words = must_be(field, command)
    return BadField(f"{field} {words}{mistake(field.lower(), words.removeprefix('must be '), value)}", field=field)


def ms(seconds: float) -> int:
    """Seconds in milliseconds, rounded up. (The inner rounding removes the error of the binary fraction: 16.1 s are
    16,100 ms.)"""
    whole = int(seconds)
    return whole * _MS if whole == seconds else math.ceil(round(seconds * _MS, 4))


def ms_or_none(seconds: float | None) -> int | None:
    """Like `ms`, or None if there is no value."""
    return None if seconds is None else ms(seconds)


def at_ms(when: float | datetime) -> int:
    """An absolute time in milliseconds since the epoch, rounded up."""
    return ms(when if isinstance(when, float) else when.timestamp())
