"""The answer to explain: see `schema.answers`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.schema.answer_fields import Described, Id, Yes


class Standing(Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a job stands; points in time are in unix seconds."""

    state: Annotated[
        Literal["delayed", "ready", "reserved", "dead", "finished", "deleted", "aside", "unreadable", "gone"],
        Meta(
            description="its state; aside: its record could not be read and was set aside; unreadable: it cannot be "
            "read; gone: only the journal knows it, and not how it ended"
        ),
    ]
    topic: Annotated[str | None, Meta(description="its topic; null: not known")]
    life: Annotated[float | None, Meta(description="when the life that is explained was created; of all, the last")]
    lives: Annotated[list[float], Meta(description="when the known lives of the job were created")]
    now: Annotated[float | None, Meta(description="Redis's time; null: it was not asked")]
    until: Annotated[float | None, Meta(description="until when the journal knows; null: none was read")]
    job: Annotated[Described | None, Meta(description="as `get` shows it, without its body; null: Redis has no record")]
    trace_id: Annotated[str, Meta(description="the trace in which it was added: see docs/tracing.md")] | UnsetType = (
        UNSET
    )
    shard: Annotated[int, Meta(description="the shard that holds it")] | UnsetType = UNSET
    bucket: Annotated[int, Meta(description="delayed or reserved: the bucket that has its time")] | UnsetType = UNSET
    timer: (
        Annotated[str | None, Meta(description="and the instance that runs the timer of that bucket; null: none does")]
        | UnsetType
    ) = UNSET
    listed: Annotated[bool | None, Meta(description="and whether that bucket lists it")] | UnsetType = UNSET
    late: (
        Annotated[float, Meta(description="if its time has come and it was not moved: for how many seconds")]
        | UnsetType
    ) = UNSET
    behind: (
        Annotated[int | None, Meta(description="and how many jobs of the bucket are due with it or before, itself too")]
        | UnsetType
    ) = UNSET
    paused: Annotated[bool, Meta(description="delayed or ready: whether its topic is paused")] | UnsetType = UNSET
    paused_until: Annotated[float, Meta(description="and until when; left out: until it is resumed")] | UnsetType = (
        UNSET
    )
    before: (
        Annotated[int, Meta(description="ready: how many jobs of its priority are before it, counted up to 10,000")]
        | UnsetType
    ) = UNSET
    above: Annotated[int | None, Meta(description="and how many of higher priorities")] | UnsetType = UNSET
    ahead: (
        Annotated[int, Meta(description="ready, but its key is busy: how many jobs of the key are before it")]
        | UnsetType
    ) = UNSET
    holder: Annotated[str | None, Meta(description="and the job that has the key, or one of them")] | UnsetType = UNSET
    opens_at: (
        Annotated[float, Meta(description="and when the rate of the key allows its next delivery")] | UnsetType
    ) = UNSET
    waiting: Annotated[int | None, Meta(description="and how many pops of its topic wait")] | UnsetType = UNSET
    last_delivery: (
        Annotated[
            float | None,
            Meta(
                description="and when the minute began in which a job of its topic was delivered last; null: in none "
                "of a day, or no journal was read"
            ),
        ]
        | UnsetType
    ) = UNSET
    limited: (
        Annotated[Literal["rate", "concurrency"], Meta(description="and the limit of its topic that keeps it back")]
        | UnsetType
    ) = UNSET
    deleted_at: Annotated[float, Meta(description="dead: when it will be deleted for its age")] | UnsetType = UNSET
    newer: Annotated[int | None, Meta(description="and how many dead letters of its topic died later")] | UnsetType = (
        UNSET
    )
    max_dead: (
        Annotated[int | None, Meta(description="and of how many only the newest are kept; null: no limit")] | UnsetType
    ) = UNSET
    reasons: Annotated[
        list[str], Meta(description="ready: what is known of why it waits, beside the sentence, for people")
    ]
    notes: Annotated[list[str], Meta(description="what is missing from this answer, as sentences for people")]


class Line(Struct, forbid_unknown_fields=True, kw_only=True):
    """What happened to a job at one time; spans are in seconds."""

    at: Annotated[float, Meta(description="when, in unix seconds, by Redis's clock")]
    what: Annotated[
        str, Meta(description="added, fell due, delivered, lease over, finished, gap, …, as in the view `jq_timeline`")
    ]
    how: Annotated[str, Meta(description="how and why, in words")]
    who: Annotated[str, Meta(description="who did it: the worker, the actor or the instance")]
    life: Annotated[float, Meta(description="the life that it belongs to: when that was created")]
    late: Annotated[float, Meta(description="how long after its time a timer moved the job")] | UnsetType = UNSET
    waited: Annotated[float, Meta(description="for how long it had been ready")] | UnsetType = UNSET
    worked: Annotated[float, Meta(description="for how long a worker had had it")] | UnsetType = UNSET
    backed_off: Annotated[float, Meta(description="for how long it had been in back-off")] | UnsetType = UNSET
    worker: Annotated[str, Meta(description="a delivery: to which worker")] | UnsetType = UNSET
    attempt: Annotated[int, Meta(description="and how many deliveries counted, this one included")] | UnsetType = UNSET
    forgotten: (
        Annotated[
            bool,
            Meta(
                description="true if Redis has forgotten it, else left out; what a failover took back is in no sum, "
                "what happened before Redis was emptied is",
                extra_json_schema={"const": True},
            ),
        ]
        | UnsetType
    ) = UNSET


class Sums(Struct, forbid_unknown_fields=True, kw_only=True):
    """The sums of a timeline, in seconds."""

    late: Annotated[float | None, Meta(description="of one life: how long after its due time it was first delivered")]
    timers_late: Annotated[float, Meta(description="how long after their time timers moved it, in all")]
    waited: Annotated[float, Meta(description="how long it was ready before its deliveries")]
    worked: Annotated[float, Meta(description="how long workers had it")]
    backed_off: Annotated[float, Meta(description="how long it was in back-off")]
    deliveries: Annotated[int, Meta(description="how often it was delivered")]


class Explained(Struct, forbid_unknown_fields=True, kw_only=True):
    """The answer to explain."""

    success: Yes
    id: Id
    sentence: Annotated[str, Meta(description="where the job is and why, for people")]
    facts: Annotated[Standing, Meta(description="the same as facts, for programs")]
    timeline: Annotated[list[Line] | None, Meta(description="what happened to it, in order; null: no journal was read")]
    sums: Annotated[
        Sums | None,
        Meta(description="the sums of the timeline; null without one, or where the journal does not keep all events"),
    ]
    since: Annotated[
        float | None, Meta(description="the journal has nothing older; null: no journal was read, or it is empty")
    ]
