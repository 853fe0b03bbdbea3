"""The fields that the commands accept by keyword. docs/protocol.md describes them.

A field that is None is not sent, except `body`. Durations are seconds or a timedelta; points in time are a datetime,
unix seconds or RFC 3339 text. `plain` converts both to the form of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

Seconds = float | timedelta
Moment = datetime | float | str
_LADDER = re.compile(r"\s*\d+(\.\d+)?\s*(,\s*\d+(\.\d+)?\s*)*", re.ASCII)


def seconds(value: Seconds) -> float:
    """A duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def moment(value: Moment) -> float | str:
    """A point in time as unix seconds or RFC 3339 text. Raises ValueError for a naive datetime."""
    if not isinstance(value, datetime):
        return value
    if value.utcoffset() is None:
        raise ValueError("a point in time needs a datetime with a time zone; this one is naive")
    return value.astimezone(UTC).isoformat()  # its own offset may have seconds, which RFC 3339 does not allow


def _ladder(values: Any) -> Any:
    """A back-off in seconds; text such as `15,30`, as on the command line and in Spark, becomes a list."""
    if isinstance(values, str) and _LADDER.fullmatch(values):
        return [float(each) for each in values.split(",")]
    return [seconds(value) for value in values] if isinstance(values, list | tuple) else values


_FILTERED = ("died_from", "died_to", "due_from", "due_to", "created_from", "created_to")


def _filter(given: Any) -> Any:
    """The filter of an operation in the protocol's form, without the members that are None."""
    if not isinstance(given, Mapping):
        return given
    return {name: moment(value) if name in _FILTERED else value for name, value in given.items() if value is not None}


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "at": moment,
    "from": moment,
    "start": moment,
    "since": moment,
    "until": moment,
    "backoff": _ladder,
    "filter": _filter,
    **dict.fromkeys(
        ("delay", "spread", "ttr", "TTR", "ttl", "retention", "wait", "seconds", "every", "jitter", "shift"), seconds
    ),
}


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A command's fields with their times in the protocol's form."""
    return {name: _PLAIN[name](value) if name in _PLAIN else value for name, value in fields.items()}


LiveState = Literal["delayed", "ready", "reserved", "dead"]
Durability = Literal["local", "replicated", "fsynced"]


class AddFields(TypedDict, total=False):
    id: str | None
    at: Moment | None
    spread: Seconds | None
    ttr: Seconds | None
    priority: int | None  # 0 to 9; 9 comes first
    tries: int | None
    backoff: Sequence[Seconds] | str | None  # `15,30` is [15, 30]
    ttl: Seconds | None
    retention: Seconds | None
    if_exists: Literal["keep", "renew", "reject", "replace", "later", "sooner"] | None
    key: str | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    durability: Durability | None


class ScheduleFields(TypedDict, total=False):
    every: Seconds | None
    """Either this or `cron`."""
    cron: str | None
    zone: str | None
    """The time zone of `cron`, such as Europe/Berlin; None for UTC."""
    start: Moment | None
    """The time from which `every` counts; None for now."""
    jitter: Seconds | None
    catch_up: Literal["none", "last", "all"] | None
    overlap: Literal["allow", "skip"] | None
    paused: bool | None
    ttr: Seconds | None
    priority: int | None
    tries: int | None
    backoff: Sequence[Seconds] | str | None
    ttl: Seconds | None
    retention: Seconds | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    durability: Durability | None


class SchedulesFields(TypedDict, total=False):
    pattern: str | None
    cursor: str | None


class PopFields(TypedDict, total=False):
    wait: Seconds | None
    ttr: Seconds | None
    worker: str | None


class FinishFields(TypedDict, total=False):
    lease: int | None
    durability: Durability | None


class TouchFields(TypedDict, total=False):
    lease: int | None
    ttr: Seconds | None


class ReleaseFields(TypedDict, total=False):
    lease: int | None
    delay: Seconds | None
    attempt: bool | None
    reason: str | None


class BuryFields(TypedDict, total=False):
    lease: int | None
    reason: str | None


class DeleteFields(TypedDict, total=False):
    durability: Durability | None


class UpdateFields(TypedDict, total=False):
    delay: Seconds | None
    at: Moment | None
    body: Any
    """The new body; None sets it to JSON's null."""
    priority: int | None
    ttl: Seconds | None
    durability: Durability | None


class PeekFields(TypedDict, total=False):
    state: LiveState | None
    cursor: str | None
    count: int | None
    shard: int | None
    body: bool | None
    """False to leave out the bodies of the jobs."""
    from_: Moment | None
    """Only jobs that fall due, lose their lease or died at this time or later; needs a `state` other than ready."""


class FindFields(TypedDict, total=False):
    state: LiveState | None
    cursor: str | None
    count: int | None


class TopicsFields(TypedDict, total=False):
    pattern: str | None
    cursor: str | None


class FiguresFields(TypedDict, total=False):
    topic: str | None
    since: Moment | None
    """At most 48 hours ago, unless the service keeps figures for a different time; at most 2 hours ago with a topic."""
    until: Moment | None
    step: int | None
    """The width of a bin in seconds, a multiple of 60."""


class PurgeFields(TypedDict, total=False):
    state: LiveState | None
    cursor: str | None


class Filter(TypedDict, total=False):
    """Selects the jobs of an operation: those that match every member given."""

    topic: str | None
    """A topic, or a pattern with `*` and `?`."""
    state: LiveState | None
    prefix: str | None
    """The beginning of the ids."""
    cause: Literal["tries", "ttl", "buried"] | None
    """Why a job died; matches only dead letters."""
    reason: str | None
    """A part of the reason."""
    tag: str | None
    died_from: Moment | None
    died_to: Moment | None
    due_from: Moment | None
    due_to: Moment | None
    created_from: Moment | None
    created_to: Moment | None


class OperationFields(TypedDict, total=False):
    """docs/protocol.md says which fields each `do` accepts."""

    kind: Literal["kick", "delete", "run", "reschedule", "find"] | None
    filter: Filter | None
    shift: Seconds | None
    """For a reschedule: how much later the jobs become due; below 0 for earlier."""
    at: Moment | None
    """For a reschedule: when the jobs become due, instead of `shift`."""
    spread: Seconds | None
    plan: str | None
    """For a start: the id of the plan."""
    expect: int | None
    """For a start: the `count` of the plan."""
    rate: int | None
    """Jobs per second."""
    operation: str | None
    """The id of the operation, which is the id of its plan."""


class ActionsFields(TypedDict, total=False):
    since: float | None
    """Unix seconds."""
    by: str | None
    """Only what this actor did."""
    cursor: str | None
    count: int | None


class TokenFields(TypedDict, total=False):
    """docs/protocol.md says which fields each action accepts."""

    id: str | None
    """The 8 characters of the token that are not secret."""
    name: str | None
    rights: Sequence[str] | None
    topics: Sequence[str] | None
    """Patterns with `*` and `?`; None for all topics."""
    expires: float | str | None
    """Unix seconds, RFC 3339 text, or `never`; by default in 90 days."""
    rate: int | None
    """Commands per second."""
    burst: int | None
    bytes: int | None
    """Bytes of bodies per second."""
    waits: int | None
    own_ids: bool | None
    certificate: str | None
    keep: Seconds | None
    """How long the old secret stays valid too."""
    right: str | None
    """For a test: the right, or the name of the command, to test."""
    topic: str | None
    """For a test: the topic that the token must be able to access."""
