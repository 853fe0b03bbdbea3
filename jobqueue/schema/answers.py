"""The answers to commands: one struct for each form, with the meaning of its fields.

None of it runs when a command is answered. The reference and the OpenAPI description are made from it, and tests
compare real answers with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.errors import STATUS
from jobqueue.schema.access_answers import ActionLog, Bearer, TokenIssued, TokenList, TokenShown, TokenTested
from jobqueue.schema.answer_fields import (
    AnyUnknown,
    Counts,
    Cursor,
    Due,
    Durability,
    Headers,
    Id,
    IsPaused,
    NewState,
    No,
    PausedUntil,
    Pauses,
    PoppedId,
    State,
    Topic,
    Unknown,
    Yes,
)
from jobqueue.schema.described import Described
from jobqueue.schema.explain_answers import Explained


class Refusal(Struct, forbid_unknown_fields=True):
    """The answer to a command that was refused and has changed nothing."""

    success: No
    error: Annotated[str, Meta(description="what is wrong, as a sentence for people")]
    code: Annotated[
        str, Meta(description="what is wrong, as a word for programs", extra_json_schema={"enum": [*STATUS]})
    ]
    id: Annotated[str | None, Meta(description="the id that the command named")] | UnsetType = UNSET
    field: Annotated[str, Meta(description="the field at fault")] | UnsetType = UNSET
    state: Annotated[State, Meta(description="the state of the job")] | UnsetType = UNSET
    right: Annotated[str, Meta(description="the right that the token lacks")] | UnsetType = UNSET
    topic: Annotated[str, Meta(description="the topic that the token does not reach")] | UnsetType = UNSET
    retry_after: Annotated[int, Meta(description="seconds after which to try again")] | UnsetType = UNSET


class Added(Struct, forbid_unknown_fields=True):
    """The answer to add."""

    success: Yes
    id: Annotated[str, Meta(description="the job's id, given or generated")]
    state: NewState
    due: Due
    result: Annotated[
        Literal["created", "existing", "replaced"],
        Meta(description="whether the job was created, existed already, or replaced one"),
    ]
    durability: Durability | UnsetType = UNSET


class Copy(Struct, forbid_unknown_fields=True):
    """One of the jobs made by an add to a virtual topic."""

    topic: Topic
    id: Id
    state: NewState
    due: Due
    result: Annotated[
        Literal["created", "existing", "replaced", "cancelled"],
        Meta(description="as for one job; cancelled: this one was deleted, and stays so"),
    ]


class AddedCopies(Struct, forbid_unknown_fields=True):
    """The answer to add to a virtual topic."""

    success: Yes
    id: Annotated[str | None, Meta(description="the id that the command named")]
    topic: Annotated[str, Meta(description="for a virtual topic: its name")]
    jobs: Annotated[
        list[Copy], Meta(description="for a virtual topic: `topic`, `id`, `state`, `due` and `result` of each job")
    ]
    durability: Durability | UnsetType = UNSET


class HandedOut(Struct, forbid_unknown_fields=True):
    """A job as a worker receives it."""

    id: PoppedId
    value: Annotated[Any, Meta(description="the body, byte for byte as it was sent")]
    state: Annotated[Literal["reserved", "finished"], Meta(description="reserved, or finished if its ttr is 0")]
    topic: Topic
    lease: Annotated[int, Meta(description="the number of this delivery, for finish, touch, release and bury")]
    attempt: Annotated[int, Meta(description="the deliveries that count, including this one")]
    tries: Annotated[int, Meta(description="the maximum number of deliveries that count; 0: no limit")]
    due: Annotated[float, Meta(description="when it was due, in unix seconds")]
    ttr: Annotated[float, Meta(description="seconds until it is delivered again")]
    headers: Headers
    created: Annotated[float, Meta(description="when it was added, in unix seconds; with its id, this names its life")]
    ready: (
        Annotated[float, Meta(description="if it was delivered before: when it became ready again, in unix seconds")]
        | UnsetType
    ) = UNSET


class Popped(HandedOut, forbid_unknown_fields=True, kw_only=True):
    """The answer to a pop that got a job."""

    success: Yes


class NothingPopped(Struct, forbid_unknown_fields=True):
    """The answer to a pop that found no job."""

    success: Yes
    id: Annotated[None, Meta(description="null: no job is ready")]
    value: None
    known: AnyUnknown = UNSET
    paused: Pauses = UNSET


class PoppedJobs(Struct, forbid_unknown_fields=True):
    """The answer to a pop with `count`."""

    success: Yes
    jobs: Annotated[
        list[HandedOut], Meta(description="with `count`: the jobs, each with the fields above; may be empty")
    ]
    known: AnyUnknown = UNSET
    paused: Pauses = UNSET


class Finished(Struct, forbid_unknown_fields=True):
    """The answer to finish."""

    success: Yes
    id: Id
    state: Annotated[Literal["finished"], Meta(description="finished")]
    durability: Durability | UnsetType = UNSET


class Deleted(Struct, forbid_unknown_fields=True):
    """The answer to delete."""

    success: Yes
    id: Id
    state: Annotated[Literal["deleted"], Meta(description="deleted")]
    was: Annotated[
        Literal["delayed", "ready", "reserved", "dead", "deleted"], Meta(description="its state before the delete")
    ]
    durability: Durability | UnsetType = UNSET


class Touched(Struct, forbid_unknown_fields=True):
    """The answer to touch."""

    success: Yes
    id: Id
    state: Annotated[Literal["reserved"], Meta(description="reserved")]
    until: Annotated[float, Meta(description="the end of the lease, in unix seconds")]


class Moved(Struct, forbid_unknown_fields=True):
    """The answer to release and run."""

    success: Yes
    id: Id
    state: NewState
    due: Due


class Updated(Moved, forbid_unknown_fields=True):
    """The answer to update."""

    durability: Durability | UnsetType = UNSET


class Buried(Struct, forbid_unknown_fields=True):
    """The answer to bury."""

    success: Yes
    id: Id
    state: Annotated[Literal["dead"], Meta(description="dead")]


class Left(Struct, forbid_unknown_fields=True):
    """The answer to leave."""

    success: Yes
    worker: Annotated[str, Meta(description="the worker whose pops end")]


class KickedJob(Struct, forbid_unknown_fields=True):
    """The answer to kick of a job."""

    success: Yes
    id: Id
    state: Annotated[Literal["ready"], Meta(description="ready")]
    count: Annotated[int, Meta(description="how many jobs were made ready")]


class KickedTopic(Struct, forbid_unknown_fields=True):
    """The answer to kick of a topic."""

    success: Yes
    topic: Topic
    count: Annotated[int, Meta(description="how many jobs were made ready")]


class Known(Described, forbid_unknown_fields=True, kw_only=True):
    """The answer to get."""

    success: Yes
    paused: IsPaused = UNSET
    paused_until: PausedUntil = UNSET


class Figures(Struct, forbid_unknown_fields=True):
    """The answer to stats."""

    success: Yes
    topic: Annotated[str | None, Meta(description="the topic; null for all topics together")]
    counts: Counts
    totals: Annotated[
        dict[str, int], Meta(description="how many there have ever been: created, delivered, finished, …")
    ]
    oldest_ready: Annotated[float | None, Meta(description="for how many seconds the oldest ready job has been ready")]
    due: Annotated[
        dict[str, int],
        Meta(description="pending jobs by how soon they are due, to the minute (or hour, if added over a day ahead)"),
    ]
    shards: Annotated[int, Meta(description="the number of shards that hold the jobs")]
    newest_dead: (
        Annotated[
            dict[str, Any],
            Meta(
                description="of a topic with dead letters, the one that died last: its `id`, `cause`, `reason` and "
                "`dead_since`"
            ),
        ]
        | UnsetType
    ) = UNSET
    known: Unknown = UNSET
    paused: IsPaused = UNSET
    paused_until: PausedUntil = UNSET


class Page(Struct, forbid_unknown_fields=True):
    """The answer to peek."""

    success: Yes
    topic: Topic
    jobs: Annotated[list[Described], Meta(description="each as `get` shows it")]
    cursor: Cursor
    known: Unknown = UNSET


class Listed(Struct, forbid_unknown_fields=True):
    """A topic in a listing."""

    topic: Topic
    counts: Counts
    oldest_ready_s: Annotated[
        float | None, Meta(description="for how many seconds its oldest ready job has been ready; null: none is known")
    ]
    workers: Annotated[int, Meta(description="how many workers poll it, of those that `workers` lists")]
    paused: Annotated[bool, Meta(description="whether its pops find nothing")]
    paused_until: PausedUntil = UNSET
    max_pending: (
        Annotated[int, Meta(description="if it has a limit of delayed and ready jobs: the limit")] | UnsetType
    ) = UNSET
    max_dead: Annotated[int, Meta(description="if it has a limit of dead letters: the limit")] | UnsetType = UNSET


class Listing(Struct, forbid_unknown_fields=True):
    """The answer to topics."""

    success: Yes
    topics: Annotated[
        list[Listed],
        Meta(
            description="each with `topic`, its `counts` by state, `oldest_ready_s`, `workers` that poll it, `paused`, "
            "`paused_until` if it is, and `max_pending` and `max_dead` if it has such limits"
        ),
    ]
    cursor: Cursor


class Polling(Struct, forbid_unknown_fields=True):
    """A worker and the topics that it polls through an instance."""

    worker: Annotated[str, Meta(description="its name; of a worker whose pops give none, its client's address")]
    topics: Annotated[list[str], Meta(description="the topics that its pops ask for")]
    instance: Annotated[str, Meta(description="the instance: host, port and, where several processes share it, number")]
    client: Annotated[str, Meta(description="the network address that its newest pop came from, perhaps a proxy's")]
    since: Annotated[float, Meta(description="since when it has polled here, in unix seconds")]
    state: Annotated[
        Literal["parked", "busy", "idle"],
        Meta(description="parked: a pop of it is waiting; busy: none is, and it has jobs in hand; idle: neither"),
    ]
    jobs: Annotated[int, Meta(description="jobs in hand: delivered through this instance, their leases still hold")]
    last_pop: Annotated[float, Meta(description="when its newest pop began, in unix seconds")]


class WorkerList(Struct, forbid_unknown_fields=True):
    """The answer to workers."""

    success: Yes
    workers: Annotated[
        list[Polling],
        Meta(
            description="each with `worker`, `topics`, `instance`, `client`, `since`, `state`, `jobs` in hand, "
            "`last_pop`"
        ),
    ]
    others: Annotated[
        dict[str, int],
        Meta(description="of the workers beyond those: how many of their pops are `parked`, and their `jobs` in hand"),
    ]


class Paused(Struct, forbid_unknown_fields=True):
    """The answer to pause."""

    success: Yes
    topic: Topic
    until: Annotated[float | None, Meta(description="until when, in unix seconds; null: until it is resumed")]
    known: Unknown = UNSET


class Resumed(Struct, forbid_unknown_fields=True):
    """The answer to resume."""

    success: Yes
    topic: Topic
    was_paused: Annotated[bool, Meta(description="whether it was paused")]
    known: Unknown = UNSET


class Purged(Struct, forbid_unknown_fields=True):
    """The answer to purge."""

    success: Yes
    topic: Topic
    count: Annotated[int, Meta(description="how many jobs were deleted")]
    cursor: Cursor
    known: Unknown = UNSET


ANSWERS: dict[str, tuple[type[Struct], ...]] = {  # by command: its answer is one of these if it is carried out
    "add": (Added, AddedCopies),
    "pop": (Popped, NothingPopped, PoppedJobs),
    "finish": (Finished,),
    "delete": (Deleted,),
    "touch": (Touched,),
    "release": (Moved,),
    "bury": (Buried,),
    "leave": (Left,),
    "kick": (KickedJob, KickedTopic),
    "run": (Moved,),
    "update": (Updated,),
    "get": (Known,),
    "explain": (Explained,),
    "stats": (Figures,),
    "peek": (Page,),
    "topics": (Listing,),
    "workers": (WorkerList,),
    "pause": (Paused,),
    "resume": (Resumed,),
    "purge": (Purged,),
    "actions": (ActionLog,),
    "token": (TokenIssued, TokenShown, TokenList, TokenTested),
    "whoami": (Bearer,),
}
