"""The answers to the commands about the service itself: see `schema.answers`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

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
