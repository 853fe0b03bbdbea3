"""The commands as they come in: one typed struct each, with the body left as it travelled.

jobqueue/protocols/command/reading.py reads them; what each field may be stands in jobqueue/schema/fields.py.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import get_args

import msgspec
from msgspec import Raw, Struct

from jobqueue.schema import fields

_MS = 1000


class _Kind(Struct, tag_field="command", forbid_unknown_fields=True, gc=False):
    """What all commands are to msgspec. None holds anything that could hold it, so the collector need not look."""


class Add(_Kind, tag="add"):
    """Keep a job until it is due."""

    topic: fields.NewTopic
    body: fields.Body
    id: fields.NewId | None = None
    delay: fields.Delay | None = None
    at: fields.At | None = None
    ttr: fields.Ttr | None = None
    TTR: fields.UpperTtr | None = None
    priority: fields.Priority | None = None
    tries: fields.Tries | None = None
    backoff: fields.Backoff | None = None
    ttl: fields.Ttl | None = None
    retention: fields.Retention | None = None
    if_exists: fields.IfExists | None = None
    headers: fields.Headers | None = None
    tags: fields.Tags | None = None
    durability: fields.Durability | None = None


class Pop(_Kind, tag="pop"):
    """Reserve the next ready jobs."""

    topic: fields.PoppedTopic | None = None
    topics: fields.PoppedTopics | None = None
    count: fields.Count | None = None
    wait: fields.Wait | None = None
    ttr: fields.PopTtr | None = None
    TTR: fields.UpperTtr | None = None
    worker: fields.Worker | None = None


class Finish(_Kind, tag="finish"):
    """The job is done."""

    id: fields.Id
    lease: fields.Lease | None = None
    durability: fields.Durability | None = None


class Delete(_Kind, tag="delete"):
    """Cancel a job in any live state."""

    id: fields.Id
    durability: fields.Durability | None = None


class Touch(_Kind, tag="touch"):
    """The lease runs anew from now."""

    id: fields.Id
    lease: fields.Lease | None = None
    ttr: fields.TouchTtr | None = None
    TTR: fields.UpperTouchTtr | None = None


class Release(_Kind, tag="release"):
    """Give a job back."""

    id: fields.Id
    lease: fields.Lease | None = None
    delay: fields.ReleaseDelay | None = None
    attempt: fields.Attempt | None = None
    reason: fields.Reason | None = None


class Bury(_Kind, tag="bury"):
    """To the dead letters now."""

    id: fields.Id
    lease: fields.Lease | None = None
    reason: fields.Reason | None = None


class Leave(_Kind, tag="leave"):
    """The waiting pops of a worker end now."""

    worker: fields.LeavingWorker


class Kick(_Kind, tag="kick"):
    """Dead letters are ready again."""

    id: fields.KickedId | None = None
    topic: fields.KickedTopic | None = None
    count: fields.KickCount | None = None


class Run(_Kind, tag="run"):
    """A delayed job is due now."""

    id: fields.Id


class Update(_Kind, tag="update"):
    """Change a job that is delayed or ready."""

    id: fields.Id
    delay: fields.Delay | None = None
    at: fields.At | None = None
    body: fields.NewBody = msgspec.field(default_factory=Raw)  # empty: none was given
    priority: fields.Priority | None = None
    ttl: fields.Ttl | None = None
    durability: fields.Durability | None = None


class Get(_Kind, tag="get"):
    """Look a job up."""

    id: fields.Id


class Stats(_Kind, tag="stats"):
    """The figures of a topic, or of all."""

    topic: fields.StatsTopic | None = None


class Peek(_Kind, tag="peek"):
    """Look at jobs without reserving them."""

    topic: fields.Topic
    state: fields.State | None = None
    cursor: fields.Cursor | None = None
    count: fields.PeekCount | None = None
    shard: fields.Shard | None = None


class Topics(_Kind, tag="topics"):
    """Names and counts of topics."""

    pattern: fields.Pattern | None = None
    cursor: fields.Cursor | None = None


class Pause(_Kind, tag="pause"):
    """Pops of a topic find nothing."""

    topic: fields.Topic
    seconds: fields.Seconds | None = None


class Resume(_Kind, tag="resume"):
    """End the pause of a topic."""

    topic: fields.Topic


class Purge(_Kind, tag="purge"):
    """Delete the jobs of a topic."""

    topic: fields.Topic
    state: fields.State | None = None
    cursor: fields.Cursor | None = None


Command = (
    Add
    | Pop
    | Finish
    | Delete
    | Touch
    | Release
    | Bury
    | Leave
    | Kick
    | Run
    | Update
    | Get
    | Stats
    | Peek
    | Topics
    | Pause
    | Resume
    | Purge
)
BY_NAME: dict[str, type[Struct]] = {str(each.__struct_config__.tag): each for each in get_args(Command)}


def ms(seconds: float) -> int:
    """Seconds of the wire in milliseconds, what is finer rounded up. (The inner rounding takes away what the
    binary fraction added: 16.1 s are 16,100 ms.)"""
    whole = int(seconds)
    return whole * _MS if whole == seconds else math.ceil(round(seconds * _MS, 4))


def at_ms(when: float | datetime) -> int:
    """An absolute time of the wire in milliseconds since the epoch, rounded up."""
    return ms(when if isinstance(when, float) else when.timestamp())
