"""The pool against the model: random commands and times, every answer compared, and the books at the end of each run.

TEST_MODEL_STEPS sets how many steps there are (2,000 without it, 10,000 in the group faults), TEST_MODEL_SEED
repeats a run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import pytest
import uvloop
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.events.codec import Event, read_all
from buckets.job import LIVE, MOVES, Job, NewJob, State, Tag, Verb
from buckets.keys import Keys, shard_of
from buckets.layout import SCHEDULE
from buckets.namespace import SLICES_MS, Numbers, found
from buckets.pool.codec import Added
from buckets.pool.limits import Limit
from buckets.pool.pool import Moved, Pool
from buckets.pool.pop_search import Offer
from buckets.record import OPTIONAL, unpack_optional
from buckets.redis.client import Redis
from buckets.topics.topics import Bounds, Topic, Topics
from buckets.topics.walk import Position, Purged, Walk
from tests.buckets.books import check_books
from tests.buckets.events.switched import switch_on
from tests.buckets.jobs import delete, finish
from tests.buckets.model import Answer, Arrow, Model
from tests.buckets.schedules.scheduled import Scheduled
from tests.buckets.topics.walks import peeked
from tests.kit.redis_server import RedisServer

STEPS = int(os.environ.get("TEST_MODEL_STEPS", "2000"))
RUNS, STEPS_A_RUN = 50, 50  # for one seed

IDS = ["a", "b", "c", "d", "e@1", "e@2", "order:1"]
TOPICS = ["t", "u:1"]
T = TypeVar("T")

ids = st.sampled_from(IDS)
# Half of the jobs are simple, so that they share one list, follow each other there and replace each other.
plain_jobs = st.builds(
    NewJob,
    ids,
    st.just("t"),
    st.just(b"plain"),
    delay_ms=st.sampled_from([0, 0, 0, 1_000]),
    ttr_ms=st.just(1_000),
    retention_ms=st.sampled_from([60_000, 0]),
    if_exists=st.sampled_from(["replace", "keep", "renew", "later", "sooner"]),
)
odd_jobs = st.builds(
    NewJob,
    ids,
    st.sampled_from(TOPICS),
    st.sampled_from([b"", b"1", b"x" * 90]),
    delay_ms=st.sampled_from([0, 0, 1, 1_000, 60_000, 3_600_000, 86_400_000, 86_400_001, 200_000_000]),
    ttr_ms=st.sampled_from([0, 100, 1_000, 60_000]),
    priority=st.sampled_from([4, 4, 0, 9]),
    tries=st.sampled_from([0, 1, 2, 16]),
    backoff_ms=st.sampled_from([(), (), (5_000,), (0, 1_000, 90_000_000)]),
    ttl_ms=st.sampled_from([None, None, 1, 1_500, 60_000, 86_400_000]),
    retention_ms=st.sampled_from([0, 60_000, 3_600_000]),  # Redis expires it by its own clock: no run takes that long
    if_exists=st.sampled_from(["keep", "replace", "replace", "renew", "reject", "later", "later", "sooner"]),
    most_pending=st.sampled_from([0, 0, 0, 1, 2]),
    note=st.sampled_from([b"", b"", b"n", bytes(64)]),
    key=st.sampled_from(["", "", "k"]),
    key_concurrency=st.sampled_from([1, 1, 2, 0]),
    keeps_body=st.booleans(),
    is_copy=st.booleans(),
)
# Of few keys, so that they wait for each other.
keyed_jobs = st.builds(
    NewJob,
    ids,
    st.just("t"),
    st.just(b"keyed"),
    delay_ms=st.sampled_from([0, 0, 0, 1_000]),
    ttr_ms=st.sampled_from([1_000, 1_000, 60_000, 0]),
    priority=st.sampled_from([4, 4, 9]),
    tries=st.sampled_from([0, 2]),
    backoff_ms=st.sampled_from([(), (1_000,)]),
    ttl_ms=st.sampled_from([None, None, None, 1_500]),
    if_exists=st.sampled_from(["replace", "keep", "renew", "sooner"]),
    key=st.sampled_from(["k", "k", "k", "key:2"]),
    key_concurrency=st.sampled_from([1, 1, 2]),
    key_gap_us=st.sampled_from([0, 0, 0, 700_000]),
)
new_jobs = st.one_of(plain_jobs, keyed_jobs, odd_jobs)
# One job, or one job in each topic with ids that are equal up to their `@`.
groups = st.one_of(
    new_jobs.map(lambda new: [new]),
    st.tuples(odd_jobs, odd_jobs).map(
        lambda pair: [dataclasses.replace(pair[n], id=f"e@{n + 1}", topic=TOPICS[n]) for n in (0, 1)]
    ),
)
names = st.sampled_from(["s", "order"])
definitions = st.fixed_dictionaries(
    {
        "every_ms": st.sampled_from([5_000, 60_000, 3_600_000]),
        "catch_up": st.sampled_from(["last", "all", "none"]),
        "caught_up": st.just(2),
        "topic": st.sampled_from(TOPICS),
        "copies": st.sampled_from([[], [], TOPICS]),
        "skips": st.booleans(),
        "jitter_ms": st.sampled_from([0, 0, 700]),
        "most": st.sampled_from([0, 0, 1, 2, 4]),
        "paused": st.sampled_from([False, False, False, True]),
        "body": st.sampled_from(["", "b"]),
        "fields": st.fixed_dictionaries(
            {
                "ttr_ms": st.sampled_from([0, 1_000, 60_000]),
                "tries": st.sampled_from([0, 1, 16]),
                "ttl_ms": st.sampled_from([None, None, 1_500, 60_000]),
                "retention_ms": st.sampled_from([0, 60_000]),
            }
        ),
    }
)
# Ahead of the held clock, or behind it, in ms; 0: the delay counts.
ats = st.sampled_from([0, 0, 0, 1, -1, 700, 86_400_000])
limits = st.sampled_from(
    [
        *({}, {}, {}),
        {"t": Limit(rate=3.0), "u:1": Limit(concurrency=1)},
        {"t": Limit(rate=1000.0, concurrency=2), "u:1": Limit(rate=0.5)},
    ]
)
leases = st.sampled_from(["none", "none", "newest", "newest", "first", "of nobody"])
offers = st.lists(
    st.builds(
        Offer,
        st.sampled_from([("t",), ("u:1",), ("t", "u:1"), ("none", "u:1", "t")]),
        st.lists(
            st.tuples(st.sampled_from([1, 2]), st.sampled_from(["", "", "w", "a longer name"])), min_size=1, max_size=2
        ),
    ),
    max_size=3,
)
# Every second one was recently with this worker: the others are mostly not reserved.
some_id = st.one_of(ids, st.sampled_from([-1, -1, -2]))
some_topic = st.sampled_from(TOPICS)
some_state = st.sampled_from([None, *LIVE])
reasons = st.sampled_from(["", "", "why", "a longer reason: " + "ü" * 40])
notes = st.sampled_from([None, None, b"", b"later", bytes(64)])
withins = st.sampled_from(
    [
        "",
        "",
        "",
        "",
        "t",
        "u:1",
        "u:*",
        "t*",
        "*",
        "x*",
        "?",
        "*1",
        "u?1 x",
        "x t",
        "x u:2",
        "*\nt",
        "t u*\nu:1",
        "t\nu:1",
    ]
)
# In us; the others go to the next event of a timer, and to the last moment before it.
spans = st.sampled_from([1, 999, 1_000, 1_000, 1_000_000, 1_000_000, 60_000_000, 3_600_000_000, 90_000_000_000])


def answer_of(result: Added | Moved | str | JobQueueError) -> Answer:
    """An answer of the pool, in the form of the model's."""
    if isinstance(result, JobQueueError):
        return (result.code,) if result.state is None else (result.code, result.state)
    if isinstance(result, Moved):
        return result.state, None, result.due
    return (result.result, result.state, result.due) if isinstance(result, Added) else (result,)


def facts(job: Job, names: dict[str, Any]) -> dict[str, Any]:
    read = {name: getattr(job, name, None) for name in names if name != "worker"}
    return read | {"step": job.kind.step} | ({"worker": job.text(Tag.WORKER)} if "worker" in names else {})


FOR_EVER_MS = 10**12


class Comparison(RuleBasedStateMachine):
    """The pool and the model, side by side."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    redis: ClassVar[Redis]
    steps: ClassVar[int] = 0
    arrows: ClassVar[Counter[Arrow]] = Counter()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(
        shards=st.sampled_from([1, 1, 4]),
        buckets=st.sampled_from([1, 3]),
        limits=limits,
        slices_ms=st.sampled_from([0, 5_000, SLICES_MS]),
    )
    def open(self, shards: int, buckets: int, limits: dict[str, Limit], slices_ms: int) -> None:
        self.clock = HeldClock()
        self.run(self.redis.read("FLUSHALL"))
        self.run(found(self.redis, Keys("m", 0), Numbers(shards, buckets), slices_ms=slices_ms))
        self.pool = self.run(Pool.open(self.redis, "m", shards=shards, buckets=buckets, clock=self.clock))
        self.model = Model(shards, self.clock.now_us)
        self.scheduled = Scheduled(self.pool, self.clock)
        self.leases: defaultdict[str, list[int]] = defaultdict(list)
        self.pool.limits = self.model.limits = limits if shards == 1 else {}  # of several, some permits lapse
        self.deliveries: dict[str, list[int]] = {topic: [] for topic in self.model.limits}  # us
        self.handed_out: list[Job] = []
        self.purges: list[tuple[str, State | None, Position]] = []
        self.known: dict[str, tuple[bytes, bytes]] = {}  # optional fields and body, as events told them
        for keys in self.pool.keys:
            self.run(switch_on(self.redis, keys, touches=True))
        type(self).steps -= 1  # this is not a step

    @invariant()
    def time_goes_on(self) -> None:
        type(self).steps += 1
        self.model.settle_keys()
        self.compare_events()
        self.go(1)

    def compare_events(self) -> None:
        """What the scripts told since the last step is what the model did, in the order of each job's moves, and enough
        to know its record."""
        told: dict[str, list[Event]] = {}
        told_of: list[tuple[str, Verb]] = []
        for entries in self.run(self.read_events()):
            for _, fields in entries:
                for event in read_all(fields)[1]:
                    assert isinstance(event, Event)
                    if event.id.startswith(SCHEDULE):
                        told_of.append((event.id.removeprefix(SCHEDULE), Verb(event.verb)))
                    else:
                        told.setdefault(event.id, []).append(event)
        assert sorted(told_of) == sorted(self.model.told_of)
        self.model.told_of.clear()
        wanted: dict[str, list[Any]] = {}
        for job_id, *rest in self.model.told:
            wanted.setdefault(job_id, []).append(tuple(rest))
        self.model.told.clear()
        found = {job_id: [(e.verb, e.before, e.after, e.was) for e in events] for job_id, events in told.items()}
        assert {job_id: sorted(each) if not job_id else each for job_id, each in found.items()} == {
            job_id: sorted(each) if not job_id else each for job_id, each in wanted.items()
        }
        for job_id in told.keys() - {""}:
            self.compare_record(job_id, told[job_id])

    async def read_events(self) -> list[Any]:
        """The new events of each shard."""
        asked = [(("XRANGE", keys.events, "-", "+"), ("XTRIM", keys.events, "MAXLEN", "0")) for keys in self.pool.keys]
        return (await asyncio.gather(*(self.redis.read(*command) for pair in asked for command in pair)))[::2]

    def compare_record(self, job_id: str, events: list[Event]) -> None:
        """The record in Redis against what was told of it."""
        for event in events:
            begins = event.verb in (Verb.ADD, Verb.REPLACE)
            before = (b"", b"") if begins else self.known[job_id]
            options = event.options if event.options is not None else before[0] if event.has_options else b""
            rewritten = begins or event.verb == Verb.REWRITE
            self.known[job_id] = options, event.body or b"" if rewritten else before[1]
        job, last = self.run(self.pool.get(job_id)), events[-1]
        if job is None:
            assert last.after in (State.FINISHED, State.DELETED)
            return
        header = ("created", "due", "next", "priority", "bucket", "ttr", "tries", "number", "attempts", "deliveries")
        assert {name: getattr(last, name) for name in header} == {name: getattr(job, name) for name in header}
        assert (last.after, last.topic, last.cause, last.lease) == (job.state, job.topic, job.cause, job.lease)
        assert (last.step, last.has_options) == (job.kind.step, bool(job.raw[2] & OPTIONAL))
        options, body = self.known[job_id]
        if job.state in LIVE or last.keeps_body:
            assert (unpack_optional(options), body) == (job.optional, job.body)

    def go(self, us: int) -> None:
        self.clock.now_us += us
        self.model.now_us = self.clock.now_us

    def in_scripts(self, items: Sequence[T], id_of: Callable[[T], str]) -> Iterator[T]:
        """Items of a batch, as they go to scripts, of which none gets an id twice."""
        seen: defaultdict[int, set[str]] = defaultdict(set)
        for item in items:
            shard = shard_of(id_of(item), self.model.shards)
            if id_of(item) in seen[shard]:
                self.model.settle_keys(shard)
                seen[shard].clear()
            seen[shard].add(id_of(item))
            yield item

    def pass_scripts(self) -> None:
        """The time that the scripts since the last add took, as on every real clock: a new life's ready number begins
        with it, and must be beyond those of the life before."""
        self.go(10)

    def see(self, job_id: str, within: str = "") -> None:
        """Compare one job; the model learns its bucket."""
        job = self.run(self.pool.get(job_id, within))
        life = self.model.life(job_id)
        if life and not life.is_within(within):
            life = None
        if life is None or job is None:
            assert (job, life) == (None, None)
        else:
            expected = life.facts()
            assert facts(job, expected) == expected
            life.bucket = job.bucket

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=4), at=ats, within=withins)
    def add(self, jobs: list[NewJob], at: int, within: str = "") -> None:
        self.pass_scripts()
        if at:
            jobs[0].due_ms = self.model.now_ms + at
        answers = self.run(self.pool.add(jobs, within))
        assert [answer_of(answer) for answer in answers] == [
            self.model.add(new, within) for new in self.in_scripts(jobs, lambda new: new.id)
        ]
        self.model.settle_keys()
        for job_id in {new.id for new in jobs}:
            self.see(job_id)

    @rule(some=st.lists(groups, min_size=1, max_size=3), within=withins)
    def add_groups(self, some: list[list[NewJob]], within: str) -> None:
        self.pass_scripts()
        results = self.run(self.pool.add_groups(some, within))
        answers = [list(map(answer_of, each)) if isinstance(each, list) else [answer_of(each)] for each in results]
        assert answers == [
            self.model.add_group(group, within)
            for group in self.in_scripts(some, lambda group: group[0].id.partition("@")[0])
        ]
        self.model.settle_keys()
        for job_id in {new.id for group in some for new in group}:
            self.see(job_id)

    @rule(
        topics=st.sampled_from([["t"], ["u:1"], ["t", "u:1"], ["none", "u:1", "t"]]),
        count=st.sampled_from([1, 1, 2, 10]),
        ttr_ms=st.sampled_from([None, None, 0, 1_000, 7_000]),
        worker=st.sampled_from(["", "w", "a longer name"]),
        by_priority=st.booleans(),
    )
    def pop(self, topics: list[str], count: int, ttr_ms: int | None, worker: str, by_priority: bool = False) -> None:
        popped = self.run(self.pool.pop(topics, count, ttr_ms=ttr_ms, worker=worker, by_priority=by_priority))
        answer = [job.id for job in popped.jobs], popped.opens_us
        orders = itertools.permutations(range(self.model.shards))
        looks = [self.model.look(order, topics, count, by_priority, ttr_ms) for order in orders]
        likely = [look for look in looks if (look.ids, look.opens_us) == answer]
        assert likely, (answer, looks)
        look = likely[0]
        expected = self.model.pop(look, ttr_ms, worker)
        self.model.settle_keys()
        assert popped.left in map(self.model.left, likely)
        assert [facts(job, each) for job, each in zip(popped.jobs, expected, strict=True)] == expected
        assert {each[:2] for each in popped.limited} == self.model.limited(look)
        self.hand_out(popped.jobs)

    def hand_out(self, jobs: list[Job]) -> None:
        for topic, times in self.deliveries.items():
            times.extend([self.clock.now_us] * sum(job.topic == topic for job in jobs))
            self.check_limit(self.model.limits[topic], times, topic)
        for job in jobs:
            self.model.lives[job.id].bucket = job.bucket
            self.leases[job.id].append(job.lease)
        self.handed_out += jobs

    def check_limit(self, limit: Limit, times: list[int], topic: str) -> None:
        """What the limits promise, whatever the model thinks of it: in the second that ends now, and now."""
        last_second = [time for time in times if time > self.clock.now_us - 1_000_000]
        assert not limit.rate or len(last_second) <= limit.rate + max(1, limit.rate / 100)
        reserved = self.run(Topics(self.pool).counts(topic))["reserved"]
        assert not limit.concurrency or reserved <= limit.concurrency

    @rule(new=new_jobs, count=st.sampled_from([1, 1, 2]), worker=st.sampled_from(["", "w"]), again=st.booleans())
    def deliver(self, new: NewJob, count: int, worker: str, again: bool) -> None:
        """Add a job and pop; by chance alone, few steps would be deliveries. `again`: it comes back and is popped."""
        new.delay_ms, new.if_exists = 0, "replace"
        self.add([new], 0)
        self.pop([new.topic], count, None, worker)
        if again:
            self.advance_to_what_is_next(0, True)
            self.pop([new.topic], count, None, "")

    @rule(
        new=new_jobs,
        then=st.sampled_from(["touch", "release", "later", "bury", "delete"]),
        which=leases,
        at_last=st.sampled_from(["nothing", "nothing", "kick", "finish", "delete", "update", "run", "replace"]),
    )
    def deliver_and(self, new: NewJob, then: str, which: str, at_last: str) -> None:
        """The whole life of a job: to a worker, what the worker does with it, and what follows."""
        self.deliver(new, 1, "w", False)
        steps: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "touch": lambda: self.touch(new.id, which, 7_000),
            "release": lambda: self.release(new.id, which, None, True, "why"),
            "later": lambda: self.release(new.id, which, 1_000, False, ""),
            "bury": lambda: self.bury(new.id, which, "why"),
            "delete": lambda: self.delete([new.id]),
            "kick": lambda: self.kick([new.id], ""),
            "finish": lambda: self.finish([(new.id, "newest")]),
            "update": lambda: self.update(new.id, None, 0, 9, 1_500, b"new"),
            "run": lambda: self.run_now(new.id),
            "replace": lambda: self.add([dataclasses.replace(new, delay_ms=1_000)], 0),
        }
        steps[then]()
        steps[at_last]()

    @rule(
        some=some_id,
        ttr_ms=st.sampled_from([None, None, 0, 7_000]),
        worker=st.sampled_from(["", "w"]),
        within=withins,
    )
    def take(self, some: str | int, ttr_ms: int | None, worker: str, within: str) -> None:
        job_id = self.one(some)
        taking = self.pool.take(job_id, ttr_ms=ttr_ms, worker=worker, within=within)
        expected = self.model.take(job_id, ttr_ms, worker, within)
        try:
            job = self.run(taking)
        except JobQueueError as error:
            assert answer_of(error) == expected
            self.see(job_id)
            return
        assert isinstance(expected, dict)
        assert facts(job, expected) == expected
        self.hand_out([job])

    @precondition(lambda self: any(life.state is State.DEAD for life in self.model.lives.values()))
    @rule(ttr_ms=st.sampled_from([None, 0]), worker=st.sampled_from(["", "w"]))
    def take_dead(self, ttr_ms: int | None, worker: str) -> None:
        """By chance alone, hardly a job that is taken would be dead."""
        dead = next(job_id for job_id, life in self.model.lives.items() if life.state is State.DEAD)
        self.take(dead, ttr_ms, worker, "")

    @precondition(lambda self: self.handed_out)
    @rule(last=st.sampled_from([1, 2, 3, 8]), some=st.booleans())
    def unpop(self, last: int, some: bool) -> None:
        """Some of the last deliveries, in order; some are long over."""
        jobs = self.handed_out[-last:]
        jobs = jobs[:1] if some else jobs
        self.run(self.pool.unpop(jobs))
        for job in reversed(jobs):
            self.model.unpop(job.id, job.lease)
        self.model.settle_keys(front=True)

    @rule(jobs=st.lists(st.tuples(some_id, leases), min_size=1, max_size=3), within=withins)
    def finish(self, jobs: list[tuple[str | int, str]], within: str = "") -> None:
        shown = [(job_id, self.lease(job_id, which)) for some, which in jobs for job_id in (self.one(some),)]
        answers = self.run(self.pool.finish(shown, within=within))
        assert [answer_of(answer) for answer in answers] == [
            self.model.finish(*job, within) for job in self.in_scripts(shown, lambda job: job[0])
        ]

    @rule(some=some_id, which=leases, within=withins, settles=st.booleans())
    def finish_within(self, some: str | int, which: str, within: str, settles: bool) -> None:
        job_id = self.one(some)
        lease = self.lease(job_id, which)
        end = self.model.settle if settles else self.model.finish
        work = finish(self.pool, job_id, lease, within, settles=settles)
        self.same(job_id, work, end(job_id, lease, within))

    @rule(some=some_id, within=withins, spares=st.lists(st.sampled_from(State), max_size=3))
    def delete_within(self, some: str | int, within: str, spares: list[State]) -> None:
        job_id = self.one(some)
        work = delete(self.pool, job_id, within, spares)
        self.same(job_id, work, self.model.delete(job_id, within, spares))

    def lease(self, job_id: str, which: str) -> int | None:
        known = self.leases[job_id] or [12]
        return {"none": None, "newest": known[-1], "first": known[0], "of nobody": 7}[which]

    @rule(some=st.lists(ids, min_size=1, max_size=2), within=withins)
    def delete(self, some: list[str], within: str = "") -> None:
        answers = self.run(self.pool.delete(some, within))
        assert [answer_of(answer) for answer in answers] == [
            self.model.delete(job_id, within) for job_id in self.in_scripts(some, str)
        ]

    def one(self, some: str | int) -> str:
        if isinstance(some, str):
            return some
        return self.handed_out[some].id if len(self.handed_out) >= -some else IDS[0]

    def same(self, job_id: str, work: Coroutine[Any, Any, Moved | str], expected: Answer) -> None:
        """Compare the answer, and the job afterwards."""
        try:
            answer = answer_of(self.run(work))
        except JobQueueError as error:
            answer = answer_of(error)
        assert answer == expected
        self.model.settle_keys()
        self.see(job_id)

    @rule(some=some_id, which=leases, ttr_ms=st.sampled_from([None, None, 500, 7_000]), within=withins)
    def touch(self, some: str | int, which: str, ttr_ms: int | None, within: str = "") -> None:
        job_id = self.one(some)
        lease = self.lease(job_id, which)

        async def work() -> Moved:
            return Moved("reserved", await self.pool.touch(job_id, lease, ttr_ms, within))

        self.same(job_id, work(), self.model.touch(job_id, lease, ttr_ms, within))

    @rule(
        some=some_id,
        which=leases,
        delay_ms=st.sampled_from([None, None, None, 0, 1_000, 90_000_000]),
        counts=st.booleans(),
        reason=reasons,
        ladder_ms=st.sampled_from([(), (1_000, 60_000), (0, 86_400_000)]),
        note=notes,
        priority=st.sampled_from([None, None, 0, 4, 9]),
        within=withins,
    )
    def release(
        self,
        some: str | int,
        which: str,
        delay_ms: int | None,
        counts: bool,
        reason: str,
        ladder_ms: tuple[int, ...] = (),
        note: bytes | None = None,
        priority: int | None = None,
        within: str = "",
    ) -> None:
        job_id = self.one(some)
        lease = self.lease(job_id, which)
        more = {"note": note, "priority": priority, "within": within}
        fields: dict[str, Any] = {
            "delay_ms": delay_ms,
            "counts": counts,
            "reason": reason,
            "ladder_ms": ladder_ms,
        } | more
        self.same(job_id, self.pool.release(job_id, lease, **fields), self.model.release(job_id, lease, **fields))

    @rule(some=some_id, which=leases, reason=reasons, note=notes, within=withins)
    def bury(self, some: str | int, which: str, reason: str, note: bytes | None = None, within: str = "") -> None:
        job_id = self.one(some)
        lease = self.lease(job_id, which)
        self.same(
            job_id,
            self.pool.bury(job_id, lease, reason, note, within),
            self.model.bury(job_id, lease, reason, note, within),
        )

    @rule(some=st.lists(some_id, min_size=1, max_size=3), within=withins)
    def kick(self, some: list[str | int], within: str) -> None:
        kicked = [self.one(each) for each in some]
        answers = self.run(self.pool.kick(kicked, within))
        assert [answer_of(answer) for answer in answers] == [
            self.model.kick(job_id, within) for job_id in self.in_scripts(kicked, str)
        ]

    @rule(topic=st.sampled_from(TOPICS), count=st.sampled_from([1, 2, 1000]))
    def kick_topic(self, topic: str, count: int) -> None:
        assert self.run(Topics(self.pool).kick(topic, count)) == self.model.kick_topic(topic, count)

    @rule(job_id=ids, within=withins)
    def run_now(self, job_id: str, within: str = "") -> None:
        async def work() -> Moved:
            return Moved("ready", await self.pool.run(job_id, within))

        self.same(job_id, work(), self.model.run(job_id, within))

    @rule(
        job_id=ids,
        delay_ms=st.sampled_from([None, None, None, 0, 1, 1_000, 86_400_001]),
        at=ats,
        priority=st.sampled_from([None, None, 4, 0, 9]),
        ttl_ms=st.sampled_from([None, None, None, 1, 1_500, 60_000]),
        body=st.sampled_from([None, None, b"", b"new", b"y" * 200]),
        within=withins,
    )
    def update(
        self,
        job_id: str,
        delay_ms: int | None,
        at: int,
        priority: int | None,
        ttl_ms: int | None,
        body: bytes | None,
        within: str = "",
    ) -> None:
        due_ms = self.model.now_ms + at if at else None
        changes: dict[str, Any] = {"delay_ms": delay_ms, "priority": priority, "ttl_ms": ttl_ms, "body": body}
        work = self.pool.update(job_id, due_ms=due_ms, within=within, **changes)
        self.same(job_id, work, self.model.update(job_id, due_ms=due_ms, within=within, **changes))

    @rule(us=spans)
    def advance(self, us: int) -> None:
        self.go(us)

    @rule(early_us=st.sampled_from([0, 0, 1, 1000]), tick=st.booleans())
    def advance_to_what_is_next(self, early_us: int, tick: bool) -> None:
        """To the moment of the next event, or just before it, when nothing may move."""
        times = [at for life in self.model.lives.values() if (at := life.look_at()) is not None]
        times += [schedule.entry for schedule in self.model.schedules.values()]
        times += self.model.pace_entries.values()
        ahead = [at * 1000 - self.model.now_us for at in times if at * 1000 > self.model.now_us]
        self.go(max(0, min(ahead, default=0) - early_us))
        if tick:
            self.due()

    @rule(name=names, said=definitions)
    def schedule(self, name: str, said: dict[str, Any]) -> None:
        assert self.run(self.scheduled.define(name, **said)) == self.model.schedule(name, said)
        self.model.schedules[name].bucket = self.run(self.scheduled.record(name)).bucket
        self.see_schedule(name)

    @precondition(lambda self: self.model.schedules)
    @rule(new=odd_jobs)
    def schedule_again(self, new: NewJob) -> None:
        """The same definition; and a foreign job with the id of its next occurrence."""
        name, schedule = next(iter(self.model.schedules.items()))
        self.schedule(name, schedule.said)
        if schedule.next and not schedule.said["copies"]:
            self.add([dataclasses.replace(new, id=f"{name}@{schedule.next}")], 0)

    @rule(name=names)
    def unschedule(self, name: str) -> None:
        seen = self.run(self.scheduled.schedules.see(name)).schedule
        live = self.run(self.scheduled.schedules.undefine(seen)) if seen else None
        assert live == self.model.unschedule(name)

    @rule(
        name=names,
        said=definitions,
        us=st.sampled_from([0, 0, 1_000_000, 8_000_000, 60_000_000, 7_200_000_000]),
        times=st.sampled_from([1, 2]),
    )
    def let_it_occur(self, name: str, said: dict[str, Any], us: int, times: int) -> None:
        """By chance alone, few schedules would last until their times."""
        if name not in self.model.schedules:
            self.schedule(name, said)
        for _ in range(times):
            self.go(max(self.model.schedules[name].next * 1_000 - self.model.now_us, 0) + us)
            self.due()

    def see_schedule(self, name: str) -> None:
        """Compare the record and the entry of a schedule."""
        schedule, record = self.model.schedules[name], self.run(self.scheduled.record(name))
        assert (record.start, record.next, record.last) == (schedule.start, schedule.next, schedule.last)
        assert json.loads(record.definition) == schedule.said
        assert (self.run(self.scheduled.entry(name)) or 0) == schedule.entry

    def occur(self, shard: int, bucket: int, met: list[str]) -> None:
        """What a process does for the schedules that a timer has met."""
        for name in met:
            self.run(self.scheduled.occurrences.make(shard, bucket, [name]))
            for job_id in self.model.occur(name):
                self.see(job_id)
            self.see_schedule(name)

    @rule(some=offers)
    def due(self, some: Sequence[Offer] = ()) -> None:
        """What the timers do, for pops that wait too; those of topics with limits are offered to no timer."""
        some = [offer for offer in some if self.model.limits.keys().isdisjoint(offer.topics)]
        for shard in range(self.model.shards):
            for bucket in range(self.pool.buckets):
                met: list[str] = []
                moved, wait_us, handed = self.run(self.pool.due(shard, bucket, some, met))
                *answer, expected = self.model.due(shard, bucket, some)
                self.model.settle_keys()
                assert ([moved, wait_us, set(met)], list(map(len, handed))) == (answer, list(map(len, expected)))
                self.occur(shard, bucket, met)
                for job, each in zip(itertools.chain(*handed), itertools.chain(*expected), strict=True):
                    assert facts(job, each) == each
                self.hand_out(list(itertools.chain(*handed)))
        for job_id in IDS:
            self.see(job_id)

    @rule(page=st.sampled_from([1, 100]), whole=st.booleans())
    def slice(self, page: int, whole: bool) -> None:
        """What no command shows: far jobs move into slices."""
        for shard, bucket in itertools.product(range(self.model.shards), range(self.pool.buckets)):
            skip = 0
            while any(told := self.run(self.pool.slice(shard, bucket, skip, page))) and whole:
                skip += told[1]

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=3), some=offers)
    def deliver_when_due(self, jobs: list[NewJob], some: list[Offer]) -> None:
        """By chance alone, few jobs would be due while pops wait for them."""
        self.add([dataclasses.replace(new, delay_ms=5) for new in jobs], 0)
        self.go(6_000)
        self.due(some)

    @rule(job_id=ids, within=withins)
    def get(self, job_id: str, within: str) -> None:
        self.see(job_id, within)

    @rule(topic=st.sampled_from([*TOPICS, None]))
    def stats(self, topic: str | None) -> None:
        stats = self.run(Topics(self.pool).stats(topic))
        assert Counter(stats.counts) == self.model.counts(topic)
        assert Counter(stats.totals) == self.model.total(topic)
        assert stats.oldest_ready_ms == self.model.oldest_ready_ms(topic) or self.is_crowded()
        assert stats.due == self.model.histogram(topic)

    def is_crowded(self) -> bool:
        """Whether some list has too many stale entries before the first live one for its age to be known."""
        keys = self.run(self.redis.read("KEYS", "*:r:*"))
        return any(self.run(self.redis.read("LLEN", key)) > 20 for key in keys)

    @rule(topic=some_topic, state=some_state, count=st.sampled_from([1, 2, 100]))
    def peek(self, topic: str, state: State | None, count: int) -> None:
        jobs = self.run(peeked(self.pool, state, topic, count=count))
        assert [job.id for job in jobs] == self.model.peek(topic, state)
        for job in jobs:
            expected = self.model.lives[job.id].facts()
            assert facts(job, expected) == expected

    @rule(topic=some_topic, state=some_state, at_once=st.booleans())
    def purge(self, topic: str, state: State | None, at_once: bool) -> None:
        """Begin a purge now; when it continues, jobs created since then must stay."""
        purged = self.run(Walk(self.pool).purge(topic, state, seconds=0))
        assert purged.count == 0 and purged.next is not None
        self.purges.append((topic, state, purged.next))
        if at_once:
            self.go_on_purging()

    @precondition(lambda self: self.purges)
    @rule()
    def go_on_purging(self) -> None:
        topic, state, place = self.purges.pop(0)
        purged = self.run(Walk(self.pool).purge(topic, state, place, seconds=60))
        assert purged == Purged(self.model.purge(topic, state, place.begun))
        for job_id in IDS:
            self.see(job_id)

    @rule(
        topic=some_topic, span_ms=st.sampled_from([None, 60_000, 60_000, 3_600_000]), stays=st.sampled_from([0, 0, 1])
    )
    def pause(self, topic: str, span_ms: int | None, stays: int) -> None:
        assert self.run(Topics(self.pool).pause(topic, span_ms)) == self.model.pause(topic, span_ms)
        if not stays:
            self.pop([topic], 1, None, "")
            self.resume(topic)

    @rule(topic=some_topic)
    def resume(self, topic: str) -> None:
        self.forget_pauses()
        was_paused = self.model.paused.pop(topic, None) is not None
        if was_paused:
            self.model.tell_topic(Verb.RESUME, 0)
        assert self.run(Topics(self.pool).resume(topic)) == was_paused

    def forget_pauses(self) -> None:
        """As Redis does when they are over, though by its own clock, not ours."""
        for topic in self.model.over():
            del self.model.paused[topic]
            for keys in self.pool.keys:
                self.run(self.redis.read("DEL", keys.paused(topic)))

    @rule(
        topic=some_topic,
        age_ms=st.sampled_from([FOR_EVER_MS, 0, 1_000, 60_000]),
        most=st.sampled_from([0, 0, 1, 4]),
    )
    def bound(self, topic: str, age_ms: int, most: int) -> None:
        def bounds_of(name: str) -> Bounds:
            return Bounds(age_ms, most) if name == topic else Bounds(FOR_EVER_MS)

        for shard in range(self.model.shards):
            dealt = self.run(Topics(self.pool).bound(shard, bounds_of))
            assert dealt == self.model.bound(shard, topic, age_ms, most)
        for job_id in IDS:
            self.see(job_id)

    @rule(idle_ms=st.sampled_from([0, 1, 60_000, 3_600_000]))
    def forget(self, idle_ms: int) -> None:
        self.forget_pauses()
        for shard in range(self.model.shards):
            assert self.run(Topics(self.pool).forget(shard, idle_ms)) == self.model.forget(shard, idle_ms)

    @rule()
    def topics(self) -> None:
        found, place = list[Topic](), (0, 0)
        for _ in self.pool.keys:
            some, *behind = self.run(Topics(self.pool).page("*", *place))
            found += some
            place = (behind[0], behind[1])
        assert place == (0, 0)
        assert len(found) == len({topic.name for topic in found})
        assert {topic.name: (Counter(topic.counts), topic.paused_until) for topic in found} == self.model.topics()

    def teardown(self) -> None:
        if hasattr(self, "handed_out"):
            for topic in TOPICS:
                self.stats(topic)
            for job_id in {*IDS, *self.model.lives}:
                self.see(job_id)
            for name in self.model.schedules:
                self.see_schedule(name)
            self.run(check_books(self.redis, self.pool))
            self.run(self.pool.close())
            type(self).arrows += self.model.arrows


@pytest.mark.timeout(1200)  # of itself it takes two minutes
def test_the_pool_does_what_the_model_does(redis_server: RedisServer) -> None:
    long = "TEST_MODEL_STEPS" in os.environ
    number = int(os.environ.get("TEST_MODEL_SEED", random.randrange(2**32) if long else 1))
    profile = settings(
        max_examples=RUNS,
        stateful_step_count=STEPS_A_RUN,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        Comparison.loop = runner.get_loop()
        Comparison.redis = Redis(redis_server.url)
        Comparison.steps = 0
        try:
            while Comparison.steps < STEPS:
                print(f"TEST_MODEL_SEED={number}")
                run_state_machine_as_test(seed(number)(Comparison), settings=profile)
                number += 1
        finally:
            runner.run(Comparison.redis.close())
    print(dict(Comparison.arrows))
    wanted = {arrow for arrow, moves in MOVES.items() if moves != {"import"}}  # which comes from another Redis
    assert STEPS < 10_000 or Comparison.arrows.keys() == wanted  # otherwise they were the wrong steps
