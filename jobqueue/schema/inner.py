"""The commands as dialects give them: those of the native protocol with more options, and a few that it does not have.

Units, ranges and meanings are those of the native fields. Nobody checks these commands again: a dialect keeps to the
ranges, and answers what is outside of them itself. Where an answer differs from the native one, the struct says so:
jobs are given as the engine read them.

A job is named by its id, or by a number: `#<n>`; where `within` is one topic, then `#<n>@<topic>`; then the alias.
Where none of them is found, or the job is not within: NOT_FOUND.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct

from jobqueue.schema import params

Name = str | int
"""An id, or a number of the namespace's counter."""


class Add(params.Add, tag="add"):
    """With `numbered`, the id is made from the next number of the counter, which the answer has as `number`; no id is
    given then. A number that is taken is skipped. The answers are the native ones; that of an add to a virtual topic
    has `jobs`, whose ids are `#<number>@<topic>`."""

    note: bytes = b""
    """Up to 64 bytes that are kept with the job and given with it."""
    keeps_body: bool = False
    """Its tombstone keeps the body."""
    numbered: bool = False
    within: str = ""
    """As in Take: ALREADY_EXISTS for the id of a job elsewhere."""


class Pop(params.Pop, tag="pop"):
    """Answers `jobs` (a list of Job, also for one) and, with `numbered`, `numbers`: the number of each. A `wait` may be
    of any length, also `math.inf`. It ends early when the worker leaves or the service stops."""

    by_priority: bool = False
    """Jobs of the highest priority in any of the topics come first; among equals, in the order of topics. With several
    shards that holds within each."""
    numbered: Literal["", "jobs", "copies"] = ""
    """Give each job a number: its own; for `copies` also that of `#<n>@<topic>`; else a new one, and an alias."""


class Take(Struct):
    """Reserve one job by its name: a delayed, ready or dead one. Answers `job`; None: its topic has
    reached a limit. RESERVED, NOT_FOUND, WRONG_STATE."""

    id: Name
    ttr: float | None = None
    worker: str | None = None
    within: str = ""
    """The topic that the job must be in, or, with a `*` at its end, how its topic must begin; empty: any."""


class Finish(Struct):
    """As the native one. With `settles`, a job that was never delivered is deleted instead of NOT_RESERVED, and one
    that was deleted before stays so; the answer's `state` says which."""

    id: Name
    lease: int | None = None
    within: str = ""
    settles: bool = False


class Delete(Struct):
    """As the native one. A job in one of the states to spare is RESERVED or WRONG_STATE."""

    id: Name
    within: str = ""
    spares: tuple[str, ...] = ()


class Touch(Struct):
    """As the native one."""

    id: Name
    lease: int | None = None
    ttr: float | None = None
    within: str = ""


class Release(Struct):
    """As the native one; may replace the note (None: it stays) and the priority. Its `state` is dead where its tries
    were used up."""

    id: Name
    lease: int | None = None
    delay: float | None = None
    attempt: bool | None = None
    reason: str | None = None
    note: bytes | None = None
    priority: int | None = None
    within: str = ""


class Bury(Struct):
    """As the native one; may replace the note."""

    id: Name
    lease: int | None = None
    reason: str | None = None
    note: bytes | None = None
    within: str = ""


class Kick(Struct):
    """Make one dead job ready. (Those of a topic: the native kick.)"""

    id: Name
    within: str = ""


class Run(Struct):
    """Make a delayed job due now."""

    id: Name
    within: str = ""


class Get(Struct):
    """Answers `job`: a Job, or a tombstone."""

    id: Name
    within: str = ""
    body: bool = True
    """Whether its body is shown: a token needs the right `bodies` for that."""


class Peek(Struct):
    """Answers `jobs`: up to `count` jobs of a topic in a state, in the order of the native peek; `numbers` as Pop."""

    topic: str
    state: Literal["delayed", "ready", "reserved", "dead"]
    count: int = 1
    numbered: Literal["", "jobs", "copies"] = ""
    body: bool = True
    """As of Get."""


class Stats(Struct):
    """Answers `figures` (buckets.Stats), `known`: whether the topic exists, and `paused_until`: ms since the epoch, 0
    until it is resumed, None if it is not paused. Without a topic: the sums of all topics that begin with `within`,
    with or without a `*` at its end."""

    topic: str | None = None
    within: str = ""
    each: bool = False
    """Answers `topics` instead: the figures of each of them, by name."""
    waits: int = 0
    """`waits_ms` of the figures says how long so many of a topic's first ready jobs (in each shard) have waited; those
    of each topic have no due times then."""


class Names(Struct):
    """Answers `names`: those of all topics that begin with `within`. It costs little, whatever their number."""

    within: str = ""


class Counter(Struct):
    """Answers `number`: the last number that a process took (each takes 64 at a time); 0 before the first."""


class Purge(Struct):
    """Delete jobs: of a topic, or of all topics that begin with `within`; in one state, or in all. Answers `count`;
    it ends when all are gone that existed when it began; later ones stay."""

    topic: str | None = None
    within: str = ""
    state: Literal["delayed", "ready", "reserved", "dead"] | None = None


class Restore(Struct):
    """Bring jobs back that Redis does not know, from the journal: one by its id, as a new life if it has ended; or all
    of the topics within. Answers `count`. NOT_FOUND for an id that the journal does not have; BAD_FIELD where the
    service has no journal; UNAVAILABLE where that cannot be read, or does not get on."""

    id: str | None = None
    within: str = ""
    skips_overdue: bool = False
    """Jobs whose time has passed stay away, instead of being ready at once."""


Inner = (
    Add
    | Pop
    | Take
    | Finish
    | Delete
    | Touch
    | Release
    | Bury
    | Kick
    | Run
    | Get
    | Peek
    | Stats
    | Names
    | Counter
    | Purge
    | Restore
)
BY_NAME: dict[str, type[Any]] = {each.__name__.lower(): each for each in get_args(Inner)}
