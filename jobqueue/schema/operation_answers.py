"""The answers to the command `operation`: see `schema.answers`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.schema.answer_fields import Yes

Kind = Annotated[Literal["kick", "delete", "run", "reschedule", "find"], Meta(description="as in the plan")]
OperationState = Annotated[
    Literal["planning", "planned", "waiting", "running", "paused", "done", "cancelled", "failed"],
    Meta(
        description="planning: the jobs are being counted; planned: it can be started for 15 minutes; waiting: another "
        "one of this kind is running"
    ),
]
Samples = Annotated[list[str], Meta(description="ids of up to 20 jobs that matched; of a find, of up to 1,000")]
Count = Annotated[
    int, Meta(description="how many jobs matched when it was planned; of a find, found; until then, so far")
]
Exact = Annotated[
    bool,
    Meta(
        description="whether they were counted; if not, `count` is an estimate, as there are over a million entries to "
        "look at, or a find ended at 1,000 jobs"
    ),
]
Looked = Annotated[
    int | None,
    Meta(
        description="entries of indexes that were looked at, or keys, about, of a find by prefix alone; null for a "
        "token that does not reach all topics"
    ),
]
Filter = Annotated[dict[str, Any], Meta(description="as in the plan, times in unix seconds")]


class _OperationFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is known of an operation; points in time are in unix seconds."""

    operation: Annotated[str, Meta(description="its id, which is that of its plan")]
    kind: Kind
    state: OperationState
    filter: Filter
    count: Count
    exact: Exact
    looked: Looked
    done: Annotated[int, Meta(description="jobs that were changed so far; of a find, found")]
    skipped: Annotated[
        int,
        Meta(
            description="jobs that matched when it was planned and were not changed, as they had changed meanwhile; "
            "complete when it is done"
        ),
    ]
    rate: Annotated[int | None, Meta(description="as in start; null until then")]
    speed: Annotated[float, Meta(description="jobs a second, lately")]
    slowed: Annotated[
        bool,
        Meta(description="whether it runs at half of `rate`, as over one in a hundred jobs came more than 25 ms late"),
    ]
    left: Annotated[float | None, Meta(description="seconds until it is done, at this speed; null: not known")]
    begun: Annotated[
        float, Meta(description="when it was planned: jobs that were added, delivered or died later stay as they are")
    ]
    by: Annotated[str, Meta(description="who planned it, as in the log of actions; empty: not known")]
    started: Annotated[float | None, Meta(description="when it was started")]
    started_by: Annotated[str, Meta(description="who started it")]
    ended: Annotated[float | None, Meta(description="when it was done, cancelled or failed")]
    shift: Annotated[float, Meta(description="as in the plan")] | UnsetType = UNSET
    at: Annotated[float, Meta(description="as in the plan")] | UnsetType = UNSET
    spread: Annotated[float, Meta(description="as in the plan")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="why it failed, as a sentence")] | UnsetType = UNSET


class OperationShown(_OperationFields, forbid_unknown_fields=True, kw_only=True):
    """The answer to operation with start, pause, resume, cancel or get."""

    success: Yes
    samples: Samples


class OperationPlanned(_OperationFields, forbid_unknown_fields=True, kw_only=True):
    """The answer to operation with plan."""

    success: Yes
    plan: Annotated[str, Meta(description="the id of the plan, to start it by")]
    samples: Samples


class OperationListed(_OperationFields, forbid_unknown_fields=True, kw_only=True):
    """An operation in a listing."""


class OperationList(Struct, forbid_unknown_fields=True):
    """The answer to operation with list."""

    success: Yes
    operations: Annotated[list[OperationListed], Meta(description="the newest 100, the newest first")]


class SearchBegun(Struct, forbid_unknown_fields=True):
    """The answer to find without a topic."""

    success: Yes
    operation: Annotated[str, Meta(description="the find that goes on in the background; operation with get lists it")]
