"""Fields that several answers have, and a job as `get`, `peek` and `explain` show it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Yes = Annotated[bool, Meta(description="true", extra_json_schema={"const": True})]
No = Annotated[bool, Meta(description="false", extra_json_schema={"const": False})]
Id = Annotated[str, Meta(description="the job's id")]
PoppedId = Annotated[str, Meta(description="the job's id; null if there is none")]
Topic = Annotated[str, Meta(description="the topic")]
ScheduleName = Annotated[str, Meta(description="the name of the schedule")]
NextTime = Annotated[
    float | None,
    Meta(description="when its next occurrence is, in unix seconds; null: it is paused, or has no more of them"),
]
State = Literal["delayed", "ready", "reserved", "dead", "finished", "deleted"]
NewState = Annotated[State, Meta(description="its state now")]
Due = Annotated[float, Meta(description="when it is due, in unix seconds")]
Durability = Annotated[
    Literal["local", "replicated", "fsynced"],
    Meta(description="if the command asked for one, or the setting is not local: the level that was reached"),
]
Headers = Annotated[dict[str, str] | None, Meta(description="as in add")]
Cursor = Annotated[str | None, Meta(description="pass it to the next call; null: there is no more")]
Counts = Annotated[dict[str, int], Meta(description="how many jobs are delayed, ready, reserved and dead")]
Blocked = (
    Annotated[int, Meta(description="how many of the ready jobs wait for others of their key; left out for none")]
    | UnsetType
)
Lease = Annotated[int, Meta(description="the lease of its newest delivery")]
_FALSE = {"const": False}
Unknown = (
    Annotated[bool, Meta(description="false if the topic does not exist, else left out", extra_json_schema=_FALSE)]
    | UnsetType
)
AnyUnknown = (
    Annotated[bool, Meta(description="false if no such topic exists, else left out", extra_json_schema=_FALSE)]
    | UnsetType
)
IsPaused = Annotated[bool, Meta(description="true if the topic is paused, else left out")] | UnsetType
PausedUntil = (
    Annotated[float | None, Meta(description="if it is paused: until when; null: until it is resumed")] | UnsetType
)
Pauses = (
    Annotated[
        dict[str, float | None],
        Meta(description="without a job: the topics that are paused, and until when; null: until it is resumed"),
    ]
    | UnsetType
)
Limited = (
    Annotated[
        Literal["rate", "concurrency", "per_key"],
        Meta(
            description="without a job: the limit of a topic that keeps its ready jobs back; `per_key`: that of the "
            "key of the job that the pop names"
        ),
    ]
    | UnsetType
)
RetryAfter = (
    Annotated[
        float,
        Meta(
            description="and in how many seconds it may be worth asking again; of `concurrency` and `per_key` nobody "
            "knows, and it is 1. A pop that waits gets its job when the limit opens"
        ),
    ]
    | UnsetType
)


class Described(Struct, forbid_unknown_fields=True, kw_only=True):
    """All of a job, in the fields of add; points in time are in unix seconds."""

    id: Id
    state: Annotated[State, Meta(description="its state")]
    topic: Topic
    size: (
        Annotated[int, Meta(description="the bytes of the body, with `body` false too; not in explain")] | UnsetType
    ) = UNSET
    value: (
        Annotated[
            Any,
            Meta(
                description="the body, byte for byte as it was sent; null once the job has ended; not with `body` false"
            ),
        ]
        | UnsetType
    ) = UNSET
    created: Annotated[float, Meta(description="when it was added, in unix seconds")]
    due: Due
    priority: Annotated[int, Meta(description="as in add")]
    ttr: Annotated[float, Meta(description="as in add")]
    ttl: Annotated[float | None, Meta(description="as in add")]
    retention: Annotated[float, Meta(description="as in add")]
    tries: Annotated[int, Meta(description="as in add")]
    attempt: Annotated[int, Meta(description="the deliveries so far that count")]
    deliveries: Annotated[int, Meta(description="all deliveries so far")]
    backoff: Annotated[list[float], Meta(description="as in add")]
    key: Annotated[str, Meta(description="as in add")] | UnsetType = UNSET
    headers: Headers
    tags: Annotated[list[str] | None, Meta(description="as in add")]
    lease: Lease | UnsetType = UNSET
    worker: Annotated[str | None, Meta(description="the worker that had it last")] | UnsetType = UNSET
    reason: (
        Annotated[
            str | None,
            Meta(
                description="the reason given by the last release or bury; `lease ended` if its last lease did, "
                "which may be what it died of"
            ),
        ]
        | UnsetType
    ) = UNSET
    ended: Annotated[float, Meta(description="if its last lease ended: when")] | UnsetType = UNSET
    cause: Annotated[Literal["tries", "ttl", "buried"], Meta(description="why it died")] | UnsetType = UNSET
    until: (
        Annotated[float, Meta(description="delayed: when it is due next; ended: until when it is remembered")]
        | UnsetType
    ) = UNSET
    ready_since: Annotated[float, Meta(description="since when it has been ready")] | UnsetType = UNSET
    reserved_until: Annotated[float, Meta(description="when its lease ends")] | UnsetType = UNSET
    dead_since: Annotated[float, Meta(description="since when it has been dead")] | UnsetType = UNSET
