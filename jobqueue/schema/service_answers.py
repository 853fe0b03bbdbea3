"""The answers to the commands about the service itself, and to the command `operation`: see `schema.answers`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.schema.answer_fields import Topic, Yes


class ListedInstance(Struct, forbid_unknown_fields=True):
    """A process of the service. What it has not told is null."""

    instance: Annotated[str | None, Meta(description="its name, as `workers` gives it")]
    host: Annotated[str | None, Meta(description="the host that it runs on")]
    pid: Annotated[int | None, Meta(description="its process id there")]
    worker: Annotated[int | None, Meta(description="its number, if its service has several processes; else null")]
    version: Annotated[str | None, Meta(description="its version")]
    started: Annotated[float | None, Meta(description="when it started, in unix seconds")]
    signed: Annotated[float, Meta(description="when it last signed the list of instances, in unix seconds")]
    timers: Annotated[
        dict[str, list[int]] | None, Meta(description="the timers that it holds: by shard the numbers of their buckets")
    ]
    parked: Annotated[int, Meta(description="how many pops wait at it")]


class InstanceList(Struct, forbid_unknown_fields=True):
    """The answer to instances."""

    success: Yes
    instances: Annotated[
        list[ListedInstance],
        Meta(
            description="each with `instance`, `host`, `pid`, `worker`, `version`, `started`, `signed`, `timers` and "
            "`parked`"
        ),
    ]
    shards: Annotated[int, Meta(description="the number of shards")]
    buckets: Annotated[int, Meta(description="how many buckets a shard has, and so timers")]


class FindingShown(Struct, forbid_unknown_fields=True):
    """A finding about the service."""

    level: Annotated[Literal["ok", "warn", "bad"], Meta(description="bad: it does not work, or will lose jobs")]
    subject: Annotated[str, Meta(description="what it is about, such as `redis` or `topic example-close-order`")]
    words: Annotated[str, Meta(description="what was found, as a sentence for people")]


class Examined(Struct, forbid_unknown_fields=True):
    """The answer to health."""

    success: Yes
    at: Annotated[float, Meta(description="when it was looked, in unix seconds")]
    findings: Annotated[
        list[FindingShown],
        Meta(description="each with its `level` (ok, warn or bad), its `subject` and the `words` for it"),
    ]


class ShownSetting(Struct, forbid_unknown_fields=True):
    """A setting in force."""

    name: Annotated[str, Meta(description="its name; of a dialect `protocols.<dialect>.<name>`")]
    value: Annotated[Any, Meta(description="its value; of a secret `set` or `not set`")]
    source: Annotated[Literal["default", "file", "environment", "flag"], Meta(description="where the value came from")]


class Policy(Struct, forbid_unknown_fields=True):
    """What holds for the jobs of a topic that has settings of its own."""

    topic: Topic
    ttr_s: Annotated[float, Meta(description="as in the settings")]
    tries: Annotated[int, Meta(description="as in the settings")]
    backoff_s: Annotated[list[float], Meta(description="as in the settings")]
    ttl_s: Annotated[float | None, Meta(description="as in the settings; null: none")]
    retention_s: Annotated[float, Meta(description="as in the settings")]
    priority: Annotated[int, Meta(description="as in the settings")]
    max_pending: Annotated[int, Meta(description="as in the settings; 0: no limit")]
    max_dead: Annotated[int, Meta(description="as in the settings; 0: no limit")]
    dead_age_s: Annotated[float, Meta(description="as in the settings")]
    rate: Annotated[float | None, Meta(description="as in the settings; null: no limit")]
    concurrency: Annotated[int | None, Meta(description="as in the settings; null: no limit")]
    per_key: Annotated[dict[str, float | None], Meta(description="`concurrency` and `rate`, as in the settings")]
    own: Annotated[list[str], Meta(description="which of these the topic sets itself; the others are defaults")]


class SettingList(Struct, forbid_unknown_fields=True):
    """The answer to settings."""

    success: Yes
    settings: Annotated[
        list[ShownSetting],
        Meta(description="each with its `name`, its `value`, and as `source` default, file, environment or flag"),
    ]
    policies: Annotated[
        list[Policy],
        Meta(
            description="of each topic with settings of its own: what holds for it, by the names of the settings, and "
            "which of these are its `own`"
        ),
    ]
    virtual_topics: Annotated[
        dict[str, list[str]], Meta(description="the virtual topics, each with those that get its jobs")
    ]


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
