"""A job as `get`, `peek` and `explain` show it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.schema.answer_fields import Due, Headers, Id, Lease, State, Topic


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
