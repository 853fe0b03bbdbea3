"""How new jobs travel to add.lua, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from buckets.errors import JobQueueError
from buckets.job import STATE_WORDS, NewJob
from buckets.scripts import Value

_RESULTS = {word.encode(): word for word in ("created", "existing", "replaced")}

# All of a job but its id, its time and its body. Jobs that come together mostly share it, so it travels once.
_KIND = attrgetter(
    *("topic", "ttr_ms", "priority", "tries", "backoff_ms", "ttl_ms", "retention_ms", "headers", "tags"),
    *("if_exists", "most_pending"),
)
_MOST_KINDS = 256  # of 4 KB at most that are remembered
_LONGEST_MS = 1 << 48  # a time has 6 bytes in the record


class Added(NamedTuple):
    """What became of a job handed in: created, existing or replaced; its state; when it is due (ms)."""

    result: str
    state: str
    due: int


def may_be_repeated(job: NewJob) -> bool:
    """Told twice, `reject` would find the job that it made itself, and `replace` might run it twice, as would any that
    leaves no tombstone."""
    return job.if_exists == "keep" and job.retention_ms > 0


class Shape(NamedTuple):
    """What jobs of one kind share on their way: what to do where the id is there, and the record up to the body."""

    how: str
    front: bytes


class Prepared(NamedTuple):
    """A job as it travels."""

    shape: Shape
    id: str
    when: str
    body: bytes


class Preparing:
    """Makes jobs ready for the script, each before it is joined with those of others."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._shapes: dict[Any, Shape] = {}

    def job(self, job: NewJob) -> Prepared:
        """Raises ValueError, OverflowError or struct.error for a number that has no room in the record."""
        if not (0 <= job.due_ms < _LONGEST_MS and 0 <= job.delay_ms < _LONGEST_MS):
            raise ValueError("a time of a new job lies before 1970, or beyond all that a record holds")
        kind = _KIND(job)
        shape = self._shapes.get(kind)
        if shape is None:
            if len(self._shapes) >= _MOST_KINDS:
                self._shapes.clear()
            shape = self._shapes[kind] = Shape(self._how(job), job.front())
        # ms since the epoch, or from now
        return Prepared(shape, job.id, str(job.due_ms) if job.due_ms else f"+{job.delay_ms}", job.body)

    def _how(self, job: NewJob) -> str:
        """Ids are spread evenly over the shards, and so is the bound of a topic."""
        return job.if_exists + (str(-(-job.most_pending // self._shards)) if job.most_pending else "")


def pack_groups(groups: Iterable[Sequence[Prepared]]) -> list[Value]:
    """What the script takes for groups of jobs, in which like jobs that stand together are one run."""
    rest: list[Value] = []
    before: Shape | None = None
    more_before = False
    at = jobs = 0
    for group in groups:
        last = group[-1]
        for job in group:
            shape, job_id, when, body = job
            more = job is not last  # the next one is of the same group
            if shape is not before or more is not more_before:
                if jobs:
                    rest[at] = jobs
                before, more_before, at, jobs = shape, more, len(rest), 0
                rest += (0, f"{shape.how}+" if more else shape.how, shape.front)
            jobs += 1
            rest += (job_id, when, body)
    rest[at] = jobs
    return rest


def _added(entry: Sequence[Any]) -> list[Added]:
    result, state, *times = entry
    words = _RESULTS[result], STATE_WORDS[state]
    told: list[Added] = []
    for jobs, due in zip(times[::2], times[1::2], strict=True):
        told += [Added(*words, due)] * jobs
    return told


def read_results(reply: Iterable[Any]) -> list[Any]:
    """What became of each group: for one of one job an Added, else a list of them; or the error."""
    told: list[Any] = []
    for entry in reply:
        if isinstance(entry, JobQueueError):
            told.append(entry)
        elif isinstance(entry[0], list):
            told.append([added for each in entry for added in _added(each)])
        else:
            told += _added(entry)
    return told
