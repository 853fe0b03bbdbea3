"""How new jobs travel to add.lua, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from buckets.errors import JobQueueError
from buckets.job import NewJob, State
from buckets.scripts import Value

_RESULTS = {word.encode(): word for word in ("created", "existing", "replaced")}
_STATES = {state.word.encode(): state.word for state in State}

# All of a job but its id, its time and its body. Jobs that come together mostly share it, so it travels once.
_KIND = attrgetter(
    *("topic", "ttr_ms", "priority", "tries", "backoff_ms", "ttl_ms", "retention_ms", "headers", "tags"),
    *("if_exists", "most_pending"),
)


class Added(NamedTuple):
    """What became of a job handed in: created, existing or replaced; its state; when it is due (ms)."""

    result: str
    state: str
    due: int


def may_be_repeated(job: NewJob) -> bool:
    """Told twice, `reject` would find the job that it made itself, and `replace` might run it twice, as would any that
    leaves no tombstone."""
    return job.if_exists == "keep" and job.retention_ms > 0


def _how(job: NewJob, shards: int, more: bool) -> str:
    """What to do with a job whose id is there, and with a full topic. Ids are spread evenly over the shards, and so is
    the bound of a topic. `more`: the next job is of the same group."""
    most = str(-(-job.most_pending // shards)) if job.most_pending else ""
    return f"{job.if_exists}{most}{'+' if more else ''}"


def pack_groups(groups: Iterable[Sequence[NewJob]], shards: int) -> list[Value]:
    """What the script takes for groups of jobs, in which like jobs that stand together are one run."""
    rest: list[Value] = []
    kind: Any = None
    at = jobs = 0
    for group in groups:
        last = group[-1]
        for job in group:
            own = (job is last, _KIND(job))
            if own != kind:
                if jobs:
                    rest[at] = jobs
                kind, at, jobs = own, len(rest), 0
                rest += (0, _how(job, shards, job is not last), job.front())
            jobs += 1
            # ms since the epoch, or from now
            rest += (job.id, str(job.due_ms) if job.due_ms else f"+{job.delay_ms}", job.body)
    rest[at] = jobs
    return rest


def _added(entry: Sequence[Any]) -> list[Added]:
    result, state, *times = entry
    words = _RESULTS[result], _STATES[state]
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
