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
    Blocked,
    Counts,
    Cursor,
    Described,
    Due,
    Durability,
    Headers,
    Id,
    IsPaused,
    Limited,
    NewState,
    NextTime,
    No,
    PausedUntil,
    Pauses,
    PoppedId,
    RetryAfter,
    ScheduleName,
    State,
    Topic,
    Unknown,
    Yes,
)
from jobqueue.schema.explain_answers import Explained
from jobqueue.schema.service_answers import (
    Examined,
    InstanceList,
    OperationList,
    OperationPlanned,
    OperationShown,
    SearchBegun,
    SettingList,
)


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
        Literal["created", "existing", "replaced", "moved"],
        Meta(description="whether the job was created, existed already, replaced one, or was moved to another time"),
    ]
    durability: Durability | UnsetType = UNSET


class Copy(Struct, forbid_unknown_fields=True):
    """One of the jobs made by an add to a virtual topic."""

    topic: Topic
    id: Id
    state: NewState
    due: Due
    result: Annotated[
        Literal["created", "existing", "replaced", "moved", "dead", "cancelled"],
        Meta(description="as for one job; dead: this one is dead, cancelled: it was deleted, and it stays so"),
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


class Scheduled(Struct, forbid_unknown_fields=True):
    """The answer to schedule."""

    success: Yes
    name: ScheduleName
    result: Annotated[
        Literal["created", "existing", "replaced"],
        Meta(
            description="whether the schedule is new, existed already with the same definition, or had another one "
            "until now"
        ),
    ]
    next: NextTime
    durability: Durability | UnsetType = UNSET


class Unscheduled(Struct, forbid_unknown_fields=True):
    """The answer to unschedule."""

    success: Yes
    name: ScheduleName
    live: Annotated[int, Meta(description="how many of its occurrences are still delayed, ready, reserved or dead")]


class DescribedSchedule(Struct, forbid_unknown_fields=True):
    """A schedule in a listing. Options of its occurrences that it does not give are left out."""

    name: ScheduleName
    topic: Topic
    next: Annotated[
        list[float], Meta(description="its next five times, in unix seconds; none where it is paused or has ended")
    ]
    last: Annotated[
        float | None, Meta(description="when the last occurrence that was made is, in unix seconds; null: none was")
    ]
    catch_up: Annotated[Literal["none", "last", "all"], Meta(description="as it was given, or its default")]
    overlap: Annotated[Literal["allow", "skip"], Meta(description="as it was given, or its default")]
    paused: Annotated[bool, Meta(description="whether it has no occurrences")]
    value: Annotated[Any, Meta(description="the body of its occurrences")] | UnsetType = UNSET
    every: Annotated[float, Meta(description="its interval in seconds")] | UnsetType = UNSET
    start: Annotated[float, Meta(description="where its interval counts from, in unix seconds")] | UnsetType = UNSET
    cron: Annotated[str, Meta(description="its calendar")] | UnsetType = UNSET
    zone: Annotated[str, Meta(description="the time zone of its calendar")] | UnsetType = UNSET
    jitter: Annotated[float, Meta(description="as it was given")] | UnsetType = UNSET
    ttr: Annotated[float, Meta(description="as it was given")] | UnsetType = UNSET
    priority: Annotated[int, Meta(description="as it was given")] | UnsetType = UNSET
    tries: Annotated[int, Meta(description="as it was given")] | UnsetType = UNSET
    backoff: Annotated[list[float], Meta(description="as it was given")] | UnsetType = UNSET
    ttl: Annotated[float, Meta(description="as it was given")] | UnsetType = UNSET
    retention: Annotated[float, Meta(description="as it was given")] | UnsetType = UNSET
    headers: Annotated[dict[str, str], Meta(description="as they were given")] | UnsetType = UNSET
    tags: Annotated[list[str], Meta(description="as they were given")] | UnsetType = UNSET


class ScheduleList(Struct, forbid_unknown_fields=True):
    """The answer to schedules."""

    success: Yes
    schedules: Annotated[
        list[DescribedSchedule],
        Meta(
            description="each with `name`, `topic`, `every` or `cron` and `zone`, its `next` five times, the `last` "
            "one, its options, and its body as `value`"
        ),
    ]
    cursor: Cursor


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
    limited: Limited = UNSET
    retry_after: RetryAfter = UNSET


class PoppedJobs(Struct, forbid_unknown_fields=True):
    """The answer to a pop with `count`."""

    success: Yes
    jobs: Annotated[
        list[HandedOut], Meta(description="with `count`: the jobs, each with the fields above; may be empty")
    ]
    known: AnyUnknown = UNSET
    paused: Pauses = UNSET
    limited: Limited = UNSET
    retry_after: RetryAfter = UNSET


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
    oldest_ready: Annotated[
        float | None,
        Meta(description="for how many seconds the oldest ready job has been ready; `blocked` ones do not count"),
    ]
    due: Annotated[
        dict[str, int],
        Meta(
            description="pending jobs by how soon they are due: when their minute begins (their hour, if added over a "
            "day ahead), so the bins of `forecast` add up to the same"
        ),
    ]
    shards: Annotated[int, Meta(description="the number of shards that hold the jobs")]
    blocked: Blocked = UNSET
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


class ForecastBin(Struct, forbid_unknown_fields=True):
    """A span of time in a forecast."""

    begin: Annotated[float, Meta(description="when it begins, in unix seconds")]
    width: Annotated[int, Meta(description="its length in seconds: 60, or 3600 for jobs that are known to the hour")]
    jobs: Annotated[int, Meta(description="how many delayed jobs fall due in it, exactly; those in back-off too")]
    scheduled: Annotated[int, Meta(description="how many jobs schedules are going to add in it")]


class LargestTopic(Struct, forbid_unknown_fields=True):
    """A topic in a forecast."""

    topic: Annotated[str, Meta(description="its name")]
    jobs: Annotated[int, Meta(description="how many of the jobs in all bins are its own, without scheduled ones")]


class Outlook(Struct, forbid_unknown_fields=True):
    """The answer to forecast."""

    success: Yes
    topic: Annotated[str | None, Meta(description="the topic; null: all topics")]
    bins: Annotated[
        list[ForecastBin],
        Meta(
            description="each with `begin`, `width` in seconds, `jobs`, and, not yet among those, `scheduled`; empty "
            "ones are left out"
        ),
    ]
    total: Annotated[int, Meta(description="the jobs in all bins")]
    later: Annotated[int, Meta(description="the delayed jobs that are due later")]
    scheduled_until: Annotated[
        float | None,
        Meta(
            description="until when what schedules add is counted, in unix seconds, as that ends after 20,000 "
            "occurrences; null: to the end"
        ),
    ]
    topics: Annotated[int, Meta(description="how many topics were added up")]
    left_out: Annotated[
        int, Meta(description="how many were not, as no more than the 2,000 that were used last are added up")
    ]
    largest: Annotated[
        list[LargestTopic],
        Meta(description="the topics with most of these jobs, up to five, each with `topic` and `jobs`"),
    ]


class Lateness(Struct, forbid_unknown_fields=True):
    """How late some jobs were."""

    counts: Annotated[list[int], Meta(description="how many jobs, by bucket: see `bounds` of the answer")]
    p50: Annotated[
        float, Meta(description="the median in seconds, as good as the buckets allow; at most the last bound")
    ]
    p99: Annotated[float, Meta(description="likewise, what 99 of 100 jobs did not exceed")]


class FiguresBin(Struct, forbid_unknown_fields=True):
    """A span of time in figures."""

    begin: Annotated[
        float, Meta(description="when it begins, in unix seconds: a multiple of `step`; of `total`, `since`")
    ]
    adds: Annotated[int, Meta(description="jobs added, those that replaced others too")]
    deliveries: Annotated[int, Meta(description="jobs handed out, again too")]
    finishes: Annotated[int, Meta(description="jobs finished")]
    deaths: Annotated[dict[str, int], Meta(description="jobs that became dead letters, by cause: tries, ttl, buried")]
    due_to_ready: Annotated[
        Lateness | None,
        Meta(
            description="from a job's due time, or the end of its lease, until a timer made it ready; null: no job was"
        ),
    ]
    due_to_delivered: Annotated[
        Lateness | None, Meta(description="from a job's due time until its first delivery; null: there was none")
    ]
    refusals: (
        Annotated[
            dict[str, int],
            Meta(
                description="commands refused, by what kind of code: request (it is malformed), access, state (of the "
                "job), limit, unavailable, internal; left out for a topic"
            ),
        ]
        | UnsetType
    ) = UNSET


class PastFigures(Struct, forbid_unknown_fields=True):
    """The answer to figures."""

    success: Yes
    topic: Annotated[str | None, Meta(description="the topic; null: all topics")]
    since: Annotated[float, Meta(description="where the figures begin, in unix seconds: a whole minute")]
    until: Annotated[float, Meta(description="where they end, in unix seconds: a whole minute, which may not be over")]
    step: Annotated[int, Meta(description="the width of a bin in seconds")]
    bounds: Annotated[
        list[float],
        Meta(
            description="the upper ends of the buckets of lateness in seconds; one more bucket has what was later than "
            "the last of them"
        ),
    ]
    bins: Annotated[
        list[FiguresBin],
        Meta(
            description="each with `begin`, `adds`, `deliveries`, `finishes`, `deaths`, `due_to_ready`, "
            "`due_to_delivered` and, without a topic, `refusals`; those in which nothing happened are left out"
        ),
    ]
    total: Annotated[FiguresBin, Meta(description="all bins together, from `since` to `until`")]
    parked: Annotated[
        int, Meta(description="pops that wait now; of a topic, those of the workers that `workers` lists")
    ]


class Page(Struct, forbid_unknown_fields=True):
    """The answer to peek."""

    success: Yes
    topic: Topic
    jobs: Annotated[list[Described], Meta(description="each as `get` shows it")]
    cursor: Cursor
    known: Unknown = UNSET


class Search(Struct, forbid_unknown_fields=True):
    """The answer to find."""

    success: Yes
    topic: Topic
    jobs: Annotated[list[Described], Meta(description="each as `get` shows it, without its body")]
    looked: Annotated[
        int, Meta(description="how many entries the search has looked at, of jobs of all topics, since its first page")
    ]
    cursor: Cursor
    known: Unknown = UNSET


class Listed(Struct, forbid_unknown_fields=True):
    """A topic in a listing."""

    topic: Topic
    counts: Counts
    oldest_ready_s: Annotated[
        float | None,
        Meta(description="as `oldest_ready` of stats; null: none is known"),
    ]
    workers: Annotated[int, Meta(description="how many workers poll it, of those that `workers` lists")]
    paused: Annotated[bool, Meta(description="whether its pops find nothing")]
    paused_until: PausedUntil = UNSET
    blocked: Blocked = UNSET
    max_pending: (
        Annotated[int, Meta(description="if it has a limit of delayed and ready jobs: the limit")] | UnsetType
    ) = UNSET
    max_dead: Annotated[int, Meta(description="if it has a limit of dead letters: the limit")] | UnsetType = UNSET
    rate: Annotated[float, Meta(description="if it has a limit of deliveries a second: the limit")] | UnsetType = UNSET
    concurrency: Annotated[int, Meta(description="if it has a limit of reserved jobs: the limit")] | UnsetType = UNSET


class Listing(Struct, forbid_unknown_fields=True):
    """The answer to topics."""

    success: Yes
    topics: Annotated[
        list[Listed],
        Meta(
            description="each with `topic`, its `counts` by state, `oldest_ready_s`, `workers` that poll it, `paused`, "
            "`paused_until` if it is, and `max_pending`, `max_dead`, `rate` and `concurrency` if it has such limits"
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
        Literal["parked", "busy", "blocked", "idle"],
        Meta(
            description="parked: a pop of it is waiting; busy: none is, and it has jobs in hand; blocked: it takes no "
            "job now, as its last pop said; idle: none of these"
        ),
    ]
    jobs: Annotated[int, Meta(description="jobs in hand: delivered through this instance, their leases still hold")]
    last_pop: Annotated[float, Meta(description="when its newest pop began, in unix seconds")]
    blocked: Annotated[str, Meta(description="why it is `blocked`")] | UnsetType = UNSET


class WorkerList(Struct, forbid_unknown_fields=True):
    """The answer to workers."""

    success: Yes
    workers: Annotated[
        list[Polling],
        Meta(
            description="each with `worker`, `topics`, `instance`, `client`, `since`, `state`, `jobs` in hand, "
            "`last_pop`, and why it is `blocked` if it is"
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
    "schedule": (Scheduled,),
    "unschedule": (Unscheduled,),
    "schedules": (ScheduleList,),
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
    "forecast": (Outlook,),
    "figures": (PastFigures,),
    "peek": (Page,),
    "find": (Search, SearchBegun),
    "topics": (Listing,),
    "workers": (WorkerList,),
    "instances": (InstanceList,),
    "health": (Examined,),
    "pause": (Paused,),
    "resume": (Resumed,),
    "purge": (Purged,),
    "operation": (OperationPlanned, OperationShown, OperationList),
    "actions": (ActionLog,),
    "settings": (SettingList,),
    "token": (TokenIssued, TokenShown, TokenList, TokenTested),
    "whoami": (Bearer,),
}
