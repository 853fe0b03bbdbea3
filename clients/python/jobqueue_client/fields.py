"""The fields that the commands take by keyword. docs/protocol.md describes them.

None means that the field is not sent, except for a `body`. Durations are seconds or a timedelta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from jobqueue_client.times import Moment, Seconds

LiveState = Literal["delayed", "ready", "reserved", "dead"]
Durability = Literal["local", "replicated", "fsynced"]


class AddFields(TypedDict, total=False):
    id: str | None
    at: Moment | None
    ttr: Seconds | None
    priority: int | None
    tries: int | None
    backoff: Sequence[Seconds] | None
    ttl: Seconds | None
    retention: Seconds | None
    if_exists: Literal["keep", "renew", "reject", "replace"] | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    durability: Durability | None


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


class TopicsFields(TypedDict, total=False):
    pattern: str | None
    cursor: str | None


class PurgeFields(TypedDict, total=False):
    state: LiveState | None
    cursor: str | None


class ActionsFields(TypedDict, total=False):
    since: float | None
    """Unix seconds."""
    by: str | None
    """Only what this actor did."""
    cursor: str | None
    count: int | None


class TokenFields(TypedDict, total=False):
    """Which of them an action takes, docs/protocol.md says."""

    id: str | None
    """The 8 characters of the token that are no secret."""
    name: str | None
    rights: Sequence[str] | None
    topics: Sequence[str] | None
    """Patterns with `*` and `?`; none: all topics."""
    expires: float | str | None
    """Unix seconds, RFC 3339 text, or `never`; default: in 90 days."""
    rate: int | None
    """Commands a second."""
    burst: int | None
    bytes: int | None
    """Of bodies, a second."""
    waits: int | None
    own_ids: bool | None
    certificate: str | None
    keep: Seconds | None
    """For which the old secret holds, too."""
    right: str | None
    """What is tested: whether it may do this,"""
    topic: str | None
    """and reach this topic."""
