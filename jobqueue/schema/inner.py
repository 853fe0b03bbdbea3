"""The commands that only dialects use: native ones with more options, and a few that the native protocol lacks.

Units, ranges and meanings are those of the native fields. These commands are not checked again: a dialect keeps to the
ranges, and answers requests outside of them itself. If an answer differs from the native one, the struct says so: jobs
are returned as the engine read them. For the options that dialects have with all commands, see `Commands.answer`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct

from jobqueue.schema import params


class Add(params.Add, tag="add"):
    """With `numbered`, the id is made from the next number of the counter, which the answer has as `number`; no id is
    given then. A number that is taken is skipped. The answers are the native ones; that of an add to a virtual topic
    has `jobs`, whose ids are `#<number>@<topic>`."""

    note: bytes = b""
    """Up to 64 bytes that are stored with the job and returned with it."""
    keeps_body: bool = False
    """True if the job's tombstone keeps the body."""
    numbered: bool = False


class Pop(params.Pop, tag="pop"):
    """Answers `jobs` (a list of Job, also for one) and, with `numbered`, `numbers`: the number of each. With `id`,
    `jobs` is empty where the job's topic has reached a limit. A `wait` may be of any length, also `math.inf`. It ends
    early when the worker leaves or the service stops."""

    by_priority: bool = False
    """Jobs of the highest priority in any of the topics come first; among equals, in the order of topics. With several
    shards, this order applies only within each shard."""
    numbered: Literal["", "jobs", "copies"] = ""
    """Return a number for each job: its own; with `copies`, also the number of a copy `#<n>@<topic>`; for any other
    job, a new number, which is an alias of the job."""


class Finish(params.Finish, tag="finish"):
    """With `settles`, a job that was never delivered is deleted instead of NOT_RESERVED, and one that was deleted
    before stays so; the answer's `state` says which."""

    settles: bool = False


class Delete(params.Delete, tag="delete"):
    """A job in one of the states to spare is RESERVED or WRONG_STATE."""

    spares: tuple[str, ...] = ()


class Release(params.Release, tag="release"):
    """May replace the note (None: it stays) and the priority. Its `state` is dead where its tries were used up."""

    note: bytes | None = None
    priority: int | None = None


class Bury(params.Bury, tag="bury"):
    """May replace the note."""

    note: bytes | None = None


class Get(Struct):
    """Answers `job`: a Job, or a tombstone."""

    id: str
    body: bool = True
    """Whether its body is shown: a token needs the right `bodies` for that."""


class Peek(Struct):
    """Answers `jobs`: up to `count` jobs of a topic in a state, in the order of the native peek; `numbers` as Pop."""

    topic: str
    state: Literal["delayed", "ready", "reserved", "dead"]
    count: int = 1
    numbered: Literal["", "jobs", "copies"] = ""
    body: bool = True
    """As in Get."""


class Stats(Struct):
    """Answers `figures` (buckets.Stats), `known`: whether the topic exists, and `paused_until`: ms since the epoch, 0
    until it is resumed, None if it is not paused. Without a topic: the sums of all topics that begin with `prefix`."""

    topic: str | None = None
    prefix: str = ""
    each: bool = False
    """If True, answers `topics` instead: the figures of each topic, by name."""
    waits: int = 0
    """For how many of a topic's first ready jobs (in each shard) `waits_ms` of the figures says how long they have
    waited. With `each`, the figures have no due times then."""


class Names(Struct):
    """Answers `names`: those of all topics that begin with `prefix`. It costs little, whatever their number."""

    prefix: str = ""


class Counter(Struct):
    """Answers `number`: the last number that a process took (each takes 64 at a time); 0 before the first."""


class Purge(Struct):
    """Delete jobs: of a topic, or of all topics that begin with `prefix`; in one state, or in all. Answers `count`;
    it ends when all are gone that existed when it began; later ones stay."""

    topic: str | None = None
    prefix: str = ""
    state: Literal["delayed", "ready", "reserved", "dead"] | None = None


class Restore(Struct):
    """Bring jobs back that Redis does not know, from the journal: one by its id, as a new life if it has ended; or all
    of the topics within. Answers `count`. NOT_FOUND for an id that the journal does not have; BAD_FIELD where the
    service has no journal; UNAVAILABLE where that cannot be read, or does not get on."""

    id: str | None = None
    skips_overdue: bool = False
    """True to leave out jobs whose time has passed; otherwise they are ready at once."""


Inner = Add | Pop | Finish | Delete | Release | Bury | Get | Peek | Stats | Names | Counter | Purge | Restore
BY_NAME: dict[str, type[Any]] = {each.__name__.lower(): each for each in get_args(Inner)}
