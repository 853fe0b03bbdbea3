"""The arguments and replies of add.lua, and the replies of finish.lua.

Jobs are passed in groups, each of which is added whole or not at all. Adjacent jobs that share everything except id,
time and body are sent as a run, so that the shared part is sent once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from buckets.errors import JobQueueError
from buckets.job import STATE_WORDS, NewJob
from buckets.meter import Meter
from buckets.record import pack_front
from buckets.redis.client import judge
from buckets.redis.link import ErrorReply
from buckets.scripts import Value

_NEW = {"created", "replaced"}
"""The results for jobs that began a life."""
_RESULTS = {word.encode(): word for word in ("created", "existing", "replaced", "moved", "dead", "cancelled")}
_NEW_REPLIES = {word.encode() for word in _NEW}

# All of a job except its id, its time and its body.
_KIND = attrgetter(
    *("topic", "ttr_ms", "priority", "tries", "backoff_ms", "ttl_ms", "retention_ms", "headers", "tags"),
    *("if_exists", "most_pending", "note", "keeps_body", "is_copy", "key", "key_concurrency", "key_gap_us"),
)
_MOST_KINDS = 256  # remembered, each of at most 4 KB
_TIME_LIMIT_MS = 1 << 48  # a time has 6 bytes in the record


class Added(NamedTuple):
    """The result of adding a job: created, existing, replaced or moved (to another time); in a group also dead or
    cancelled (deleted), if the job was and stays so. Then the job's state, and when it is due (ms)."""

    result: str
    state: str
    due: int


def may_be_repeated(job: NewJob) -> bool:
    """Whether adding the job twice does no harm. The second `reject` would find the job that the first one created;
    with renew, replace, later or sooner, or without a tombstone, the job might run twice."""
    return job.if_exists == "keep" and job.retention_ms > 0


class Shape(NamedTuple):
    """The part that similar jobs share."""

    how: str  # keep, reject, renew, replace, later or sooner: what to do if the id exists
    most_pending: int  # in a shard; 0 for no limit
    front: bytes  # the record up to the body
    repeatable: bool  # whether adding the job twice does no harm
    topic: str


class Prepared(NamedTuple):
    """A job as it is sent."""

    shape: Shape
    id: str
    when: str  # ms since the epoch, or "+" and ms from now
    body: bytes


class Preparing:
    """Prepares jobs for the script, before they are joined with the jobs of other callers."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._shapes: dict[Any, Shape] = {}

    def job(self, job: NewJob) -> Prepared:
        """Prepare a job. Raises ValueError, OverflowError or struct.error for a number that does not fit into the
        record."""
        if not (0 <= job.due_ms < _TIME_LIMIT_MS and 0 <= job.delay_ms < _TIME_LIMIT_MS):
            raise ValueError("a time of a new job is before 1970, or too late for a record")
        when = str(job.due_ms) if job.due_ms else f"+{job.delay_ms}"
        return Prepared(self.shape(job), job.id, when, job.body)

    def shape(self, job: NewJob) -> Shape:
        """The part that is the same for all jobs that differ from this one only in id, time and body."""
        kind = _KIND(job)
        shape = self._shapes.get(kind)
        if shape is None:
            if len(self._shapes) >= _MOST_KINDS:
                self._shapes.clear()
            most = self._most_pending(job)
            shape = self._shapes[kind] = Shape(job.if_exists, most, pack_front(job), may_be_repeated(job), job.topic)
        return shape

    def _most_pending(self, job: NewJob) -> int:
        """A shard's part of the limit: ids are spread evenly over the shards."""
        return -(-job.most_pending // self._shards)


def pack_groups(groups: Iterable[Sequence[Prepared]]) -> list[Value]:
    """The script's arguments for groups of jobs (see `jobs` in add.lua)."""
    rest: list[Value] = []
    before: Shape | None = None
    more_before = False
    at = jobs = 0
    for group in groups:
        last = group[-1]
        for job in group:
            shape, job_id, when, body = job
            more = job is not last  # another job of its group follows
            if shape is not before or more is not more_before:
                if jobs:
                    rest[at] = jobs
                before, more_before, at, jobs = shape, more, len(rest), 0
                rest += (0, shape.how, shape.most_pending, int(more), shape.front)
            jobs += 1
            rest += (job_id, when, body)
    rest[at] = jobs
    return rest


def _added(entry: Sequence[Any]) -> list[Added]:
    result, state, *times = entry
    words = _RESULTS[result], STATE_WORDS[state]
    if len(times) == 2:
        return [Added(*words, times[1])] * times[0]
    added: list[Added] = []
    for jobs, due in zip(times[::2], times[1::2], strict=True):
        added += [Added(*words, due)] * jobs
    return added


def read_results(reply: Iterable[Any]) -> list[Any]:
    """The result of each group: an Added for a group of one job, a list of Added for a larger group, or the error."""
    results: list[Any] = []
    for entry in reply:
        if isinstance(entry, JobQueueError):
            results.append(entry)
        elif isinstance(entry[0], list):
            results.append([added for each in entry for added in _added(each)])
        else:
            results += _added(entry)
    return results


def new_in_runs(jobs: Sequence[Prepared], reply: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """How many of some jobs, each a group of its own, began a life, as (topic, jobs) for each part of the script's
    reply."""
    at = 0
    for entry in reply:
        if type(entry) is list:
            number = sum(entry[2::2])
            if entry[0] in _NEW_REPLIES:
                yield jobs[at].shape.topic, number
            at += number
        else:
            at += 1


def new_jobs(groups: Iterable[Sequence[Prepared]], results: Iterable[Any]) -> Counter[str]:
    """How many jobs of some groups began a life, by topic. `results`: as returned by `read_results`."""
    number: Counter[str] = Counter()
    for group, result in zip(groups, results, strict=True):
        if not isinstance(result, JobQueueError):
            each = [result] if isinstance(result, Added) else result
            number.update(job.shape.topic for job, added in zip(group, each, strict=True) if added.result in _NEW)
    return number


def read_finished(meter: Meter, reply: list[Any]) -> list[Any]:
    """The new state of each job, or its error. Reports to `meter` how many jobs of each topic were finished."""
    numbers = reply[0]
    for at in range(0, len(numbers), 2):
        meter.finished(numbers[at].decode("utf-8", "replace"), numbers[at + 1])
    return [
        STATE_WORDS[state] if type(state) is bytes else judge(state) if isinstance(state, ErrorReply) else state
        for state in reply[1:]
    ]
