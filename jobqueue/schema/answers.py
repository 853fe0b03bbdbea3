"""The answers to commands: one struct for each form, with the meaning of its fields.

None of it runs when a command is answered. The reference and the OpenAPI description are made from it, and tests
compare real answers with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.errors import STATUS

_Yes = Annotated[bool, Meta(description="true", extra_json_schema={"const": True})]
_No = Annotated[bool, Meta(description="false", extra_json_schema={"const": False})]
_Id = Annotated[str, Meta(description="the job's id")]
_PoppedId = Annotated[str, Meta(description="the job's id; null if there is none")]
_Topic = Annotated[str, Meta(description="the topic")]
_State = Literal["delayed", "ready", "reserved", "dead", "finished", "deleted"]
_NewState = Annotated[_State, Meta(description="its state now")]
_Due = Annotated[float, Meta(description="when it is due, in unix seconds")]
_Durability = Annotated[
    Literal["local", "replicated", "fsynced"],
    Meta(description="if the command asked for one, or the setting is not local: the level that was reached"),
]
_Headers = Annotated[dict[str, str] | None, Meta(description="as in add")]
_Cursor = Annotated[str | None, Meta(description="pass it to the next call; null: there is no more")]
_Counts = Annotated[dict[str, int], Meta(description="how many jobs are delayed, ready, reserved and dead")]
_Lease = Annotated[int, Meta(description="the lease of its newest delivery")]


_FALSE = {"const": False}
_Unknown = (
    Annotated[bool, Meta(description="false if the topic does not exist, else left out", extra_json_schema=_FALSE)]
    | UnsetType
)
_AnyUnknown = (
    Annotated[bool, Meta(description="false if no such topic exists, else left out", extra_json_schema=_FALSE)]
    | UnsetType
)
_IsPaused = Annotated[bool, Meta(description="true if the topic is paused, else left out")] | UnsetType
_PausedUntil = (
    Annotated[float | None, Meta(description="if it is paused: until when; null: until it is resumed")] | UnsetType
)
_Pauses = (
    Annotated[
        dict[str, float | None],
        Meta(description="without a job: the topics that are paused, and until when; null: until it is resumed"),
    ]
    | UnsetType
)


class Refusal(Struct, forbid_unknown_fields=True):
    """The answer to a command that was refused and has changed nothing."""

    success: _No
    error: Annotated[str, Meta(description="what is wrong, as a sentence for people")]
    code: Annotated[
        str, Meta(description="what is wrong, as a word for programs", extra_json_schema={"enum": [*STATUS]})
    ]
    id: Annotated[str | None, Meta(description="the id that the command named")] | UnsetType = UNSET
    field: Annotated[str, Meta(description="the field at fault")] | UnsetType = UNSET
    state: Annotated[_State, Meta(description="the state of the job")] | UnsetType = UNSET
    right: Annotated[str, Meta(description="the right that the token lacks")] | UnsetType = UNSET
    topic: Annotated[str, Meta(description="the topic that the token does not reach")] | UnsetType = UNSET
    retry_after: Annotated[int, Meta(description="seconds after which to try again")] | UnsetType = UNSET


class Added(Struct, forbid_unknown_fields=True):
    """The answer to add."""

    success: _Yes
    id: Annotated[str, Meta(description="the job's id, given or generated")]
    state: _NewState
    due: _Due
    result: Annotated[
        Literal["created", "existing", "replaced"],
        Meta(description="whether the job was created, existed already, or replaced one"),
    ]
    durability: _Durability | UnsetType = UNSET


class Copy(Struct, forbid_unknown_fields=True):
    """One of the jobs made by an add to a virtual topic."""

    topic: _Topic
    id: _Id
    state: _NewState
    due: _Due
    result: Annotated[
        Literal["created", "existing", "replaced", "cancelled"],
        Meta(description="as for one job; cancelled: this one was deleted, and stays so"),
    ]


class AddedCopies(Struct, forbid_unknown_fields=True):
    """The answer to add to a virtual topic."""

    success: _Yes
    id: Annotated[str | None, Meta(description="the id that the command named")]
    topic: Annotated[str, Meta(description="for a virtual topic: its name")]
    jobs: Annotated[
        list[Copy], Meta(description="for a virtual topic: `topic`, `id`, `state`, `due` and `result` of each job")
    ]
    durability: _Durability | UnsetType = UNSET


class HandedOut(Struct, forbid_unknown_fields=True):
    """A job as a worker receives it."""

    id: _PoppedId
    value: Annotated[Any, Meta(description="the body, byte for byte as it was sent")]
    state: Annotated[Literal["reserved", "finished"], Meta(description="reserved, or finished if its ttr is 0")]
    topic: _Topic
    lease: Annotated[int, Meta(description="the number of this delivery, for finish, touch, release and bury")]
    attempt: Annotated[int, Meta(description="the deliveries that count, including this one")]
    tries: Annotated[int, Meta(description="the maximum number of deliveries that count; 0: no limit")]
    due: Annotated[float, Meta(description="when it was due, in unix seconds")]
    ttr: Annotated[float, Meta(description="seconds until it is delivered again")]
    headers: _Headers
    ready: (
        Annotated[float, Meta(description="if it was delivered before: when it became ready again, in unix seconds")]
        | UnsetType
    ) = UNSET


class Popped(HandedOut, forbid_unknown_fields=True, kw_only=True):
    """The answer to a pop that got a job."""

    success: _Yes


class NothingPopped(Struct, forbid_unknown_fields=True):
    """The answer to a pop that found no job."""

    success: _Yes
    id: Annotated[None, Meta(description="null: no job is ready")]
    value: None
    known: _AnyUnknown = UNSET
    paused: _Pauses = UNSET


class PoppedJobs(Struct, forbid_unknown_fields=True):
    """The answer to a pop with `count`."""

    success: _Yes
    jobs: Annotated[
        list[HandedOut], Meta(description="with `count`: the jobs, each with the fields above; may be empty")
    ]
    known: _AnyUnknown = UNSET
    paused: _Pauses = UNSET


class Finished(Struct, forbid_unknown_fields=True):
    """The answer to finish."""

    success: _Yes
    id: _Id
    state: Annotated[Literal["finished"], Meta(description="finished")]
    durability: _Durability | UnsetType = UNSET


class Deleted(Struct, forbid_unknown_fields=True):
    """The answer to delete."""

    success: _Yes
    id: _Id
    state: Annotated[Literal["deleted"], Meta(description="deleted")]
    was: Annotated[
        Literal["delayed", "ready", "reserved", "dead", "deleted"], Meta(description="its state before the delete")
    ]
    durability: _Durability | UnsetType = UNSET


class Touched(Struct, forbid_unknown_fields=True):
    """The answer to touch."""

    success: _Yes
    id: _Id
    state: Annotated[Literal["reserved"], Meta(description="reserved")]
    until: Annotated[float, Meta(description="the end of the lease, in unix seconds")]


class Moved(Struct, forbid_unknown_fields=True):
    """The answer to release and run."""

    success: _Yes
    id: _Id
    state: _NewState
    due: _Due


class Updated(Moved, forbid_unknown_fields=True):
    """The answer to update."""

    durability: _Durability | UnsetType = UNSET


class Buried(Struct, forbid_unknown_fields=True):
    """The answer to bury."""

    success: _Yes
    id: _Id
    state: Annotated[Literal["dead"], Meta(description="dead")]


class Left(Struct, forbid_unknown_fields=True):
    """The answer to leave."""

    success: _Yes
    worker: Annotated[str, Meta(description="the worker whose pops end")]


class KickedJob(Struct, forbid_unknown_fields=True):
    """The answer to kick of a job."""

    success: _Yes
    id: _Id
    state: Annotated[Literal["ready"], Meta(description="ready")]
    count: Annotated[int, Meta(description="how many jobs were made ready")]


class KickedTopic(Struct, forbid_unknown_fields=True):
    """The answer to kick of a topic."""

    success: _Yes
    topic: _Topic
    count: Annotated[int, Meta(description="how many jobs were made ready")]


class Described(Struct, forbid_unknown_fields=True, kw_only=True):
    """All of a job, in the fields of add; points in time are in unix seconds."""

    id: _Id
    state: Annotated[_State, Meta(description="its state")]
    topic: _Topic
    value: (
        Annotated[
            Any,
            Meta(
                description="the body, byte for byte as it was sent; null once the job has ended; not there without "
                "bodies"
            ),
        ]
        | UnsetType
    ) = UNSET
    created: Annotated[float, Meta(description="when it was added, in unix seconds")]
    due: _Due
    priority: Annotated[int, Meta(description="as in add")]
    ttr: Annotated[float, Meta(description="as in add")]
    ttl: Annotated[float | None, Meta(description="as in add")]
    retention: Annotated[float, Meta(description="as in add")]
    tries: Annotated[int, Meta(description="as in add")]
    attempt: Annotated[int, Meta(description="the deliveries so far that count")]
    deliveries: Annotated[int, Meta(description="all deliveries so far")]
    backoff: Annotated[list[float], Meta(description="as in add")]
    headers: _Headers
    tags: Annotated[list[str] | None, Meta(description="as in add")]
    lease: _Lease | UnsetType = UNSET
    worker: Annotated[str | None, Meta(description="the worker that had it last")] | UnsetType = UNSET
    reason: (
        Annotated[
            str | None,
            Meta(description="the reason given by the last release or bury; `lease ended` if its last lease did"),
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


class Known(Described, forbid_unknown_fields=True, kw_only=True):
    """The answer to get."""

    success: _Yes
    paused: _IsPaused = UNSET
    paused_until: _PausedUntil = UNSET


class Figures(Struct, forbid_unknown_fields=True):
    """The answer to stats."""

    success: _Yes
    topic: Annotated[str | None, Meta(description="the topic; null for all topics together")]
    counts: _Counts
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
    known: _Unknown = UNSET
    paused: _IsPaused = UNSET
    paused_until: _PausedUntil = UNSET


class Page(Struct, forbid_unknown_fields=True):
    """The answer to peek."""

    success: _Yes
    topic: _Topic
    jobs: Annotated[list[Described], Meta(description="each as `get` shows it")]
    cursor: _Cursor
    known: _Unknown = UNSET


class Listed(Struct, forbid_unknown_fields=True):
    """A topic in a listing."""

    topic: _Topic
    counts: _Counts
    oldest_ready_s: Annotated[
        float | None, Meta(description="for how many seconds its oldest ready job has been ready; null: none is known")
    ]
    workers: Annotated[int, Meta(description="how many workers poll it, of those that `workers` lists")]
    paused: Annotated[bool, Meta(description="whether its pops find nothing")]
    paused_until: _PausedUntil = UNSET
    max_pending: (
        Annotated[int, Meta(description="if it has a limit of delayed and ready jobs: the limit")] | UnsetType
    ) = UNSET
    max_dead: Annotated[int, Meta(description="if it has a limit of dead letters: the limit")] | UnsetType = UNSET


class Listing(Struct, forbid_unknown_fields=True):
    """The answer to topics."""

    success: _Yes
    topics: Annotated[
        list[Listed],
        Meta(
            description="each with `topic`, its `counts` by state, `oldest_ready_s`, `workers` that poll it, `paused`, "
            "`paused_until` if it is, and `max_pending` and `max_dead` if it has such limits"
        ),
    ]
    cursor: _Cursor


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

    success: _Yes
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

    success: _Yes
    topic: _Topic
    until: Annotated[float | None, Meta(description="until when, in unix seconds; null: until it is resumed")]
    known: _Unknown = UNSET


class Resumed(Struct, forbid_unknown_fields=True):
    """The answer to resume."""

    success: _Yes
    topic: _Topic
    was_paused: Annotated[bool, Meta(description="whether it was paused")]
    known: _Unknown = UNSET


class Purged(Struct, forbid_unknown_fields=True):
    """The answer to purge."""

    success: _Yes
    topic: _Topic
    count: Annotated[int, Meta(description="how many jobs were deleted")]
    cursor: _Cursor
    known: _Unknown = UNSET


class LoggedAction(Struct, forbid_unknown_fields=True):
    """An action in the log of actions."""

    at: Annotated[float, Meta(description="when it began, in unix seconds")]
    actor: Annotated[
        str,
        Meta(
            description="the name of the token; behind a slash, the person that `X-Jobqueue-Actor` named; for "
            "`jobqueue token` over Redis, the user and the machine; `-`: not known"
        ),
    ]
    action: Annotated[
        str, Meta(description="the command, of `token` with its `action`; `reload` for settings that were read again")
    ]
    outcome: Annotated[str, Meta(description="OK, the code of its error, or `not known`: it was cut off")]
    done: Annotated[
        int, Meta(description="how many jobs, topics, tokens or settings it changed; of a purge, those of this request")
    ]
    request: Annotated[str, Meta(description="the id of the request, if there was one")] | UnsetType = UNSET
    token: Annotated[str, Meta(description="the id of the token, if there was one")] | UnsetType = UNSET
    topic: Annotated[str, Meta(description="the topic, if the command named one")] | UnsetType = UNSET
    id: Annotated[str | int, Meta(description="the job or token, if the command named one")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="as in the command")] | UnsetType = UNSET
    state: Annotated[str, Meta(description="as in the command")] | UnsetType = UNSET
    count: Annotated[int, Meta(description="as in the command")] | UnsetType = UNSET
    seconds: Annotated[float, Meta(description="as in the command")] | UnsetType = UNSET
    within: Annotated[str, Meta(description="how topics begin, for a dialect's command")] | UnsetType = UNSET
    changed: Annotated[list[str], Meta(description="the settings that changed")] | UnsetType = UNSET
    address: Annotated[str, Meta(description="the client's address and port")] | UnsetType = UNSET


class ActionLog(Struct, forbid_unknown_fields=True):
    """The answer to actions."""

    success: _Yes
    actions: Annotated[list[LoggedAction], Meta(description="the newest first; about the last 5,000 are kept")]
    cursor: _Cursor


class _TokenFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is kept of a token; points in time are in unix seconds."""

    id: Annotated[str, Meta(description="its 8 characters that are no secret")]
    name: Annotated[str, Meta(description="as in create")]
    state: Annotated[Literal["live", "expired", "revoked"], Meta(description="whether it holds")]
    source: Annotated[Literal["redis", "file"], Meta(description="where its record stands")]
    rights: Annotated[list[str], Meta(description="as in create")]
    topics: Annotated[list[str], Meta(description="as in create; none: all topics")]
    created: Annotated[float, Meta(description="when it was created; 0: not known")]
    created_by: Annotated[str, Meta(description="by whom")]
    expires: Annotated[float | None, Meta(description="when it ends; null: never")]
    used: Annotated[int | None, Meta(description="the minute of its last use; null: none is known")]
    rate: Annotated[int | None, Meta(description="as in create")]
    burst: Annotated[int | None, Meta(description="as in create")]
    bytes: Annotated[int | None, Meta(description="as in create")]
    waits: Annotated[int | None, Meta(description="as in create")]
    own_ids: Annotated[bool, Meta(description="as in create")]
    certificate: Annotated[str | None, Meta(description="as in create")]
    old_until: (
        Annotated[float, Meta(description="if its secret was exchanged: until when the old one holds, too")] | UnsetType
    ) = UNSET


class TokenRecord(_TokenFields, forbid_unknown_fields=True, kw_only=True):
    """A token in a listing."""

    revoked: Annotated[float, Meta(description="if it was revoked: when")] | UnsetType = UNSET


class TokenShown(TokenRecord, forbid_unknown_fields=True, kw_only=True):
    """The answer to token with show or revoke."""

    success: _Yes


class TokenIssued(_TokenFields, forbid_unknown_fields=True, kw_only=True):
    """The answer to token with create or rotate."""

    success: _Yes
    token: Annotated[str, Meta(description="the token, which is shown this once")]


class TokenList(Struct, forbid_unknown_fields=True):
    """The answer to token with list."""

    success: _Yes
    tokens: Annotated[list[TokenRecord], Meta(description="each as show has it; ended ones for 7 days")]


class TokenTested(Struct, forbid_unknown_fields=True):
    """The answer to token with test."""

    success: _Yes
    id: Annotated[str, Meta(description="the token")]
    allowed: Annotated[bool, Meta(description="whether it may do that")]
    why: Annotated[str | None, Meta(description="if not: why, as a sentence for people")]


class Bearer(Struct, forbid_unknown_fields=True):
    """The answer to whoami."""

    success: _Yes
    open: Annotated[bool, Meta(description="whether the service asks for no tokens; then the rest is left out")]
    id: Annotated[str, Meta(description="the token, by its 8 characters that are no secret")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="its name")] | UnsetType = UNSET
    rights: Annotated[list[str], Meta(description="what it may do")] | UnsetType = UNSET
    topics: Annotated[list[str], Meta(description="the topics that it reaches; none: all")] | UnsetType = UNSET
    expires: Annotated[float | None, Meta(description="when it ends; null: never")] | UnsetType = UNSET
    rate: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    burst: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    bytes: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    waits: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    own_ids: Annotated[bool, Meta(description="as of token")] | UnsetType = UNSET


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
