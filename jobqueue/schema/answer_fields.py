"""Fields that several answers have."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, UnsetType

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
        Literal["rate", "concurrency"],
        Meta(description="without a job: the limit of a topic that keeps its ready jobs back"),
    ]
    | UnsetType
)
RetryAfter = (
    Annotated[
        float,
        Meta(
            description="and in how many seconds it may be worth asking again; of `concurrency` nobody knows, and it "
            "is 1. A pop that waits gets its job when the limit opens"
        ),
    ]
    | UnsetType
)
