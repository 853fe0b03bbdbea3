"""The queue in plain Python, written from protocol.md and design.md: what the scripts must do.

Of a schedule it takes the times from the same planner as the pool does; what becomes of them is its own.

It knows no index, no record and no entry that could be stale. A list here holds only ids that may be popped.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from buckets.job import DEFAULT_RETENTION_MS, Cause, NewJob, State, Verb
from buckets.keys import shard_of
from buckets.pool.limits import Limit
from buckets.pool.pop_search import Offer
from buckets.topics.topics import RANGES
from tests.buckets.schedules.scheduled import after, copies_of, times_of

DAY_MS = 86_400_000
TOMBSTONES = (State.FINISHED, State.DELETED)
FEW = 4  # so few ready jobs are looked at one by one
Answer = tuple[str, ...] | tuple[str, str | None, int]
Arrow = tuple[State | None, State]
Told = tuple[str, Verb, int, int, int]
"""An event: id, verb, state before and after, `next` before."""


def jitter_ms(delay_ms: int, job_id: str, step: int) -> int:
    """What a step of the default ladder adds to its delay."""
    digest = hashlib.sha1(f"{job_id}:{step}".encode(), usedforsecurity=False).hexdigest()
    return delay_ms * int(digest[:4], 16) // 655_360


def _matches(topic: str, pattern: str) -> bool:
    """Whether a topic matches a pattern of `*` and `?`."""
    if not pattern or not topic:
        return not topic and not pattern.strip("*")
    if pattern[0] == "*":
        return _matches(topic, pattern[1:]) or _matches(topic[1:], pattern)
    return pattern[0] in ("?", topic[0]) and _matches(topic[1:], pattern[1:])


@dataclass
class Life:
    """One life of a job, from its add to the end of its tombstone."""

    new: NewJob
    state: State
    created: int
    due: int
    next: int  # delayed: when it is due; reserved: end of the lease; ready: since when; dead: when; tombstone: until
    lease: int = 0  # of the newest delivery, of an earlier life too
    attempts: int = 0
    deliveries: int = 0
    step: int = 0
    ttr: int = 0  # of the newest lease
    worker: str | None = None
    reason: str | None = None
    cause: Cause = Cause.NONE
    note: bytes = b""
    keeps_body: bool = False
    bucket: int = 0  # observed, not decided here
    hourly: bool = False
    number: int = 0  # of its newest entry in a ready list
    order: int = 0  # how many jobs of the topic were created or replaced before
    holds: bool = False  # its key
    since: int | None = None  # `next` as a command found it; None: it is as it was

    def ttl_over(self, now_ms: int) -> bool:
        return self.new.ttl_ms is not None and self.due + self.new.ttl_ms <= now_ms

    def is_within(self, within: str) -> bool:
        """Whether its topic is one of those that a caller may reach."""
        conditions = within.split("\n") if within else []
        return all(any(_matches(self.new.topic, pattern) for pattern in each.split()) for each in conditions)

    def look_at(self) -> int | None:
        """When the bucket's timer has to look at it."""
        if self.state in (State.DELAYED, State.RESERVED):
            return self.next
        if self.state is State.READY and self.new.ttl_ms is not None:
            return self.due + self.new.ttl_ms
        return None

    def is_bound(self) -> bool:
        """Whether it holds its key or waits for it."""
        if not self.new.key or (self.new.ttr_ms == 0 and not self.new.key_gap_us):
            return False
        returned = self.state is State.DELAYED and self.deliveries > 0
        return self.state in (State.READY, State.RESERVED) or returned

    def is_plain(self) -> bool:
        """Whether it is delayed, was never popped, and its timer has nothing to decide."""
        unusual = self.lease or self.keeps_body or self.new.ttl_ms is not None or self.new.key
        return self.state is State.DELAYED and not unusual

    def has_optional(self) -> bool:
        new = self.new
        fields = (new.backoff_ms, new.headers, new.tags, self.note, new.key)
        return bool(new.retention_ms != DEFAULT_RETENTION_MS or any(fields))

    def has_body(self) -> bool:
        return self.state not in TOMBSTONES or self.keeps_body

    def facts(self) -> dict[str, Any]:
        """The facts that must be read of it, by the names of Job."""
        facts: dict[str, Any] = {
            **{name: getattr(self.new, name) for name in ("id", "topic", "priority", "tries")},
            **{name: getattr(self, name) for name in ("state", "created", "due", "next", "lease", "ttr", "cause")},
            **{name: getattr(self, name) for name in ("attempts", "deliveries", "step")},
        }
        lease_ended = self.cause is Cause.LEASE and self.state in (State.DELAYED, State.READY, State.DEAD)
        if self.state is State.DEAD and lease_ended:
            facts["cause"] = Cause.TRIES
        if not self.has_body():
            return facts | {"body": b""}
        own = {"body": self.new.body, "ttl": self.new.ttl_ms, "retention": self.new.retention_ms}
        more = {name: getattr(self, name) for name in ("worker", "reason", "note")}
        more["reason"] = "lease ended" if lease_ended else self.reason
        facts |= own | more | {"backoff": self.new.backoff_ms}
        return facts if self.state in TOMBSTONES else facts | {"own_ttr": self.new.ttr_ms}


@dataclass
class Recurring:
    """A schedule. Times are ms since the epoch."""

    said: dict[str, Any]
    """Its definition, as tests/buckets/schedules/scheduled.py has it."""
    start: int
    next: int  # 0: never
    entry: int  # when its timer meets it; 0: never
    last: int = 0
    made: set[str] = field(default_factory=set)
    bucket: int = 0  # observed, not decided here


@dataclass
class Look:
    """What a pop finds: the jobs, the entries that it drops, the last topic of each shard that it searched, and in
    how many us the first of the paused topics is open."""

    ids: list[str] = field(default_factory=list)
    passed: list[tuple[tuple[int, str, int], str]] = field(default_factory=list)
    lasts: list[tuple[int, str | None]] = field(default_factory=list)
    opens_us: int | None = None
    ttr_ms: int | None = None  # that the pop asks for
    room: dict[str, Room] = field(default_factory=dict)  # of the topics with limits


@dataclass
class Room:
    """What the limits of a topic leave to a pop: deliveries, and how many of them may have a lease."""

    permits: float
    places: float

    @property
    def spent(self) -> str | None:
        """The limit that is reached."""
        if self.places < 1:
            return "concurrency"
        return "rate" if self.permits < 1 else None


class Model:
    def __init__(self, shards: int, now_us: int) -> None:
        self.shards = shards
        self.now_us = now_us
        self.lives: dict[str, Life] = {}
        self.schedules: dict[str, Recurring] = {}
        self.told_of: list[tuple[str, Verb]] = []  # the events of schedules, in their order
        self.ready: defaultdict[tuple[int, str, int], list[str]] = defaultdict(list)
        self.totals: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)  # by shard and topic
        self.used: dict[tuple[int, str], int] = {}  # the last use of a topic, to about ten seconds
        self.paused: dict[str, int] = {}  # the end of the pause; 0: until it is resumed
        self.limits: dict[str, Limit] = {}
        self.full_at: dict[str, int] = {}  # us: when a topic's rate has all its permits
        self.arrows: Counter[Arrow] = Counter()  # the moves that happened
        self.verb = Verb.ADD  # of the command that runs
        self.told: list[Told] = []  # the events of the moves, in their order
        # The keys that the script met, by shard and topic, and whether there may be room for another job.
        self.met: dict[tuple[int, str, str], bool] = {}
        self.pace: dict[tuple[int, str, str], str | int] = {}  # the job in the list, or when the next delivery may be
        self.pace_entries: dict[tuple[int, int, str, str], int] = {}  # by shard, bucket, topic and key

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def ahead(self, ms: int) -> int:
        """The time in `ms` milliseconds, rounded up: nothing is early."""
        return -(-self.now_us // 1000) + ms

    def life(self, job_id: str) -> Life | None:
        life = self.lives.get(job_id)
        if life and life.state in TOMBSTONES and life.next <= self.now_ms:
            del self.lives[job_id]
            return None
        if life:
            life.since = life.next
        return life

    def _reached(self, job_id: str, within: str) -> Life | None:
        life = self.life(job_id)
        return life if life and life.is_within(within) else None

    def _shard(self, life: Life) -> int:
        return shard_of(life.new.id, self.shards)

    def _total(self, life: Life) -> Counter[str]:
        return self.totals[self._shard(life), life.new.topic]

    def _use(self, life: Life) -> None:
        key = self._shard(life), life.new.topic
        if self.now_ms - self.used.get(key, 0) > 10_000:
            self.used[key] = self.now_ms

    def _list(self, life: Life) -> list[str]:
        return self.ready[shard_of(life.new.id, self.shards), life.new.topic, life.new.priority]

    def _key_of(self, life: Life) -> tuple[int, str, str]:
        return self._shard(life), life.new.topic, life.new.key

    def _most(self, new: NewJob) -> int:
        """How many jobs of its key may run at a time; 0 for any number."""
        return new.key_concurrency if new.ttr_ms else 0

    def _is_paced(self, key: tuple[int, str, str]) -> bool:
        """Whether the rate of a key holds its next job back."""
        pace = self.pace.get(key, 0)
        return pace > self.now_ms if isinstance(pace, int) else True

    def _meet_key(self, life: Life, *, has_room: bool = False) -> None:
        if life.is_bound() or has_room:
            key = self._key_of(life)
            self.met[key] = self.met.get(key, False) or has_room or self.is_blocked(life)

    def is_blocked(self, life: Life) -> bool:
        """Whether it waits for its key."""
        return life.state is State.READY and life.is_bound() and not life.holds

    def settle_keys(self, only: int | None = None, *, front: bool = False) -> None:
        """What a script does at its end, in one shard or in all: the next jobs of the keys that it met get them.
        `front`: at the front of their lists."""
        met = {key: has_room for key, has_room in self.met.items() if only in (None, key[0])}
        for (shard, topic, key), has_room in met.items():
            del self.met[shard, topic, key]
            listed = self.lives.get(str(self.pace.get((shard, topic, key))))
            if listed and not (listed.state is State.READY and listed.holds):
                del self.pace[shard, topic, key]
            if not has_room:
                continue
            lives = [life for life in self.lives.values() if (life.new.topic, life.new.key) == (topic, key)]
            lives = [life for life in lives if self._shard(life) == shard]
            blocked = [life for life in lives if self.is_blocked(life)]
            for life in sorted(blocked, key=lambda life: (life.due, life.created, life.order)):
                if 0 < self._most(life.new) <= sum(each.holds for each in lives):
                    break
                if life.new.key_gap_us and self._is_paced((shard, topic, key)):
                    break
                if life.new.key_gap_us:
                    self.pace[shard, topic, key] = life.new.id
                life.holds = True
                entries = self._list(life)
                entries.insert(0 if front else len(entries), life.new.id)

    def _become(self, life: Life, state: State) -> None:
        self._leave(life)
        self.arrows[life.state, state] += 1
        was = life.next if life.since is None else life.since
        if self.verb is Verb.DUE and (life.state, state) == (
            State.DELAYED,
            State.RESERVED,
        ):  # it falls due, and is popped
            self._tell(life, Verb.DUE, State.DELAYED, State.READY, was)
            self._tell(life, Verb.POP, State.READY, state, self.now_ms)
        else:
            self._tell(life, self.verb, life.state, state, was)
        before, life.state, life.since = life.state, state, None
        held, loses_key = life.holds, before is not state and self._loses_key(life, before)
        life.holds = life.is_bound() and (held or state is State.RESERVED) and not loses_key
        self._meet_key(life, has_room=held and not life.holds)

    def _loses_key(self, life: Life, before: State) -> bool:
        """Whether a job that becomes ready does not keep its key: it comes back from a worker, others hold the key, or
        the key has a rate."""
        is_full = 0 < self._most(life.new) <= self._busy(life) - life.holds
        return life.state is State.READY and (before is State.RESERVED or is_full or life.new.key_gap_us > 0)

    def _busy(self, life: Life) -> int:
        """How many jobs hold the key of a job."""
        key = self._key_of(life)
        return sum(each.holds for each in self.lives.values() if self._key_of(each) == key)

    def _tell(self, life: Life, verb: Verb, before: int, after: int, was: int) -> None:
        self.told.append((life.new.id, verb, before, after, was))

    def tell_topic(self, verb: Verb, until: int) -> None:
        """Of a pause or a resume, which each shard tells."""
        self.told += [("", verb, 0, 0, until)] * self.shards

    def _leave(self, life: Life) -> None:
        self._meet_key(life)
        if life.state is State.READY and life.new.id in self._list(life):
            self._list(life).remove(life.new.id)

    def _to_delayed(self, life: Life, due: int) -> None:
        self._become(life, State.DELAYED)
        life.next = due
        life.hourly = due - self.now_ms > DAY_MS

    def _to_ready(self, life: Life, *, front: bool = False) -> None:
        self._become(life, State.READY)
        life.next = self.now_ms
        life.number = (life.number + 1) % 2**32
        if not self.is_blocked(life):
            self._list(life).insert(0 if front else len(self._list(life)), life.new.id)

    def _die(self, life: Life, cause: Cause, kept: Cause | None = None) -> None:
        self._become(life, State.DEAD)
        life.next, life.cause = self.now_ms, kept or cause
        self._total(life)[f"died_{cause.name.lower()}"] += 1

    def _entomb(self, life: Life, state: State) -> None:
        self._become(life, state)
        life.next = self.now_ms + life.new.retention_ms
        self._total(life)[state.word] += 1

    # Schedules.

    def schedule(self, name: str, said: dict[str, Any]) -> str:
        """Define a schedule: its first time is one interval from now."""
        old = self.schedules.get(name)
        if old and old.said == said:
            return "existing"
        next_ms = 0 if said["paused"] else self.now_ms + said["every_ms"]
        new = Recurring(said, self.now_ms, next_ms, next_ms)
        if old:
            new.last, new.made, new.bucket = old.last, old.made, old.bucket
        self.schedules[name] = new
        self.told_of.append((name, Verb.SCHEDULE))
        return "replaced" if old else "created"

    def unschedule(self, name: str) -> int | None:
        """Remove a schedule; returns how many of its occurrences are live, or None without one."""
        old = self.schedules.pop(name, None)
        if old is None:
            return None
        self.told_of.append((name, Verb.UNSCHEDULE))
        lives = [self.life(job_id) for job_id in old.made]
        return sum(life is not None and life.state not in TOMBSTONES for life in lives)

    def occur(self, name: str) -> list[str]:
        """Make the occurrences of a schedule that its timer has met; returns the ids of the jobs."""
        schedule, made = self.schedules[name], list[str]()
        wanted = times_of(schedule.said, schedule.next, self.now_ms)
        following = after(schedule.said, schedule.next, self.now_ms)
        for place, time in enumerate(wanted):
            copies = [replace(new, id=f"{name}@{time}{suffix}") for suffix, new in copies_of(schedule.said, name)]
            if schedule.said["skips"] and (made or self._overlaps(name, schedule)):
                continue
            old = next((life for new in copies if (life := self.life(new.id))), None)
            if old:  # it blocks this occurrence, or is it
                is_own = old.new.id in schedule.made and old.state not in TOMBSTONES
                schedule.last = time if is_own else schedule.last
                continue
            if any(self._is_full(new) for new in copies):
                following = time if place else schedule.next
                break
            for new in copies:
                self._make(new, time + schedule.said["jitter_ms"])
                made.append(new.id)
            schedule.last = time
        else:
            schedule.entry = following
        if following != schedule.next:
            self.told_of.append((name, Verb.OCCUR))
        schedule.next = following
        schedule.made |= set(made)
        return made

    def _overlaps(self, name: str, schedule: Recurring) -> bool:
        """Whether the last occurrence is not done."""
        suffixes = {"", *(suffix for suffix, _ in copies_of(schedule.said, name))}
        lives = [self.life(f"{name}@{schedule.last}{suffix}") for suffix in suffixes]
        return any(life and life.state in (State.DELAYED, State.READY, State.RESERVED) for life in lives)

    def _is_full(self, new: NewJob) -> bool:
        there = shard_of(new.id, self.shards), new.topic
        lives = [life for life in self.lives.values() if (self._shard(life), life.new.topic) == there]
        pending = [life for life in lives if life.state in (State.DELAYED, State.READY)]
        return 0 < new.most_pending <= len(pending) * self.shards

    def _make(self, new: NewJob, due: int) -> None:
        """Add an occurrence that is due then, even where that is over."""
        known, told = self.arrows.copy(), self.told.copy()
        life = Life(new, State.DELAYED, self.ahead(0) if due > self.now_ms else self.now_ms, due, due, ttr=new.ttr_ms)
        self.lives[new.id] = life
        if due <= self.now_ms:
            self._to_ready(life)
        else:
            self._to_delayed(life, due)
        self.arrows, self.told = known + Counter([(None, life.state)]), told
        self._tell(life, Verb.ADD, 0, life.state, 0)
        self._total(life)["created"] += 1
        self.used[self._shard(life), new.topic] = self.now_ms

    # The commands.

    def add_group(self, group: Sequence[NewJob], within: str = "") -> list[Answer]:
        """Add all, or none and return the first refusal. What is dead or deleted stays so, unless that is all of
        the group."""
        over = [self._is_over(new) and not self._is_hidden(new, within) for new in group]
        if all(over):
            states = {self.lives[new.id].state for new in group}
            return [("ALREADY_EXISTS", "dead" if State.DEAD in states else "deleted")]
        others = [new for new, stays in zip(group, over, strict=True) if not stays]
        refusal = next((refusal for new in others if (refusal := self._refusal(new, within))), None)
        if refusal:
            return [refusal]
        return [
            self._stays(self.lives[new.id]) if stays else self.add(new) for new, stays in zip(group, over, strict=True)
        ]

    def _is_over(self, new: NewJob) -> bool:
        """Whether an add that keeps what exists finds a job that will not run."""
        old = self.life(new.id)
        return bool(old and old.state in (State.DEAD, State.DELETED) and new.if_exists == "keep")

    def _stays(self, old: Life) -> Answer:
        return "dead" if old.state is State.DEAD else "cancelled", old.state.word, old.due

    def _is_kept(self, new: NewJob, old: Life) -> bool:
        live = old.state in (State.DELAYED, State.READY, State.RESERVED)
        return new.if_exists == "keep" or (new.if_exists == "renew" and live)

    def _is_hidden(self, new: NewJob, within: str) -> bool:
        """Whether the id is that of a job that the caller must not know of."""
        old = self.life(new.id)
        is_copy = bool(old and old.new.is_copy and new.is_copy and old.new.topic == new.topic)
        return bool(old and not old.is_within(within) and not is_copy)

    def _refusal(self, new: NewJob, within: str = "") -> Answer | None:
        if self._is_hidden(new, within):
            return ("ALREADY_EXISTS",)
        old = self.life(new.id)
        if new.if_exists in ("later", "sooner"):
            refusal = self._no_shift(new, old)
            if refusal or (old and old.state is State.DELAYED):
                return refusal
        if old and (new.if_exists == "reject" or self._is_over(new)):
            return "ALREADY_EXISTS", old.state.word
        if old and new.if_exists in ("replace", "later", "sooner") and old.state is State.RESERVED:
            return "RESERVED", "reserved"
        if (old and self._is_kept(new, old)) or not new.most_pending:
            return None
        pending = [life for life in self.lives.values() if life.state in (State.DELAYED, State.READY)]
        there = (shard_of(new.id, self.shards), new.topic)
        pending = [life for life in pending if (self._shard(life), life.new.topic) == there and life is not old]
        takes_its_place = old and old.new.topic == new.topic and old.state in (State.DELAYED, State.READY)
        full = len(pending) >= -(-new.most_pending // self.shards) and not takes_its_place
        return ("TOPIC_FULL",) if full else None

    def _no_shift(self, new: NewJob, old: Life | None) -> Answer | None:
        """Why an add that moves a delayed job in one direction finds none, and none that may begin a new life."""
        if old and old.new.topic != new.topic:
            return "ALREADY_EXISTS", old.state.word
        if old and old.state is State.READY:
            return "TOO_LATE", "ready"
        return None if new.body or (old and old.has_body()) else ("NO_BODY",)

    def _shift(self, new: NewJob, old: Life) -> Answer:
        """Move a delayed job in one direction only."""
        due = max(self.now_ms, new.due_ms or (self.ahead(new.delay_ms) if new.delay_ms else 0))
        if due == old.next or (due > old.next) is not (new.if_exists == "later"):
            return "existing", old.state.word, old.due
        self.verb = Verb.REWRITE if new.body else Verb.UPDATE
        old.new = replace(old.new, body=new.body or old.new.body)
        old.cause, old.due, old.next = Cause.NONE, due, due
        if due <= self.now_ms:
            self._to_ready(old)
        else:
            self._to_delayed(old, due)
        self._use(old)
        return "moved", old.state.word, due

    def add(self, new: NewJob, within: str = "") -> Answer:
        old = self.life(new.id)
        refusal = self._refusal(new, within)
        if refusal:
            return refusal
        if new.if_exists in ("later", "sooner"):
            if old and old.state is State.DELAYED:
                return self._shift(new, old)
            new = replace(new, body=new.body or (old.new.body if old else b""))
        if old and self._is_kept(new, old):
            return "existing", old.state.word, old.due
        if old and old.state not in TOMBSTONES:
            self._leave(old)
            self._meet_key(old, has_room=old.holds)
            self._total(old)["deleted"] += 1
            self._use(old)
        due = max(self.now_ms, new.due_ms or (self.ahead(new.delay_ms) if new.delay_ms else 0))
        was = old.state if old and old.state not in TOMBSTONES else None
        known, told, verb = self.arrows.copy(), self.told.copy(), Verb.REPLACE if was else Verb.ADD
        created = self.now_ms if due <= self.now_ms else self.ahead(0)  # the delay counts from there
        later = max(old.created + 1 - created, 0) if old else 0  # it names the life
        created += later
        due += later if due > self.now_ms and not new.due_ms else 0
        life = Life(new, State.DELAYED, created, due, due, ttr=new.ttr_ms, lease=old.lease if old else 0)
        life.note, life.keeps_body = new.note, new.keeps_body
        life.number = old.number if old else self.now_us % 2**32
        life.order = self._total(life)["created"] + self._total(life)["replaced"]
        self.lives[new.id] = life
        if due <= self.now_ms:
            self._to_ready(life)
        else:
            self._to_delayed(life, due)
        self.arrows, self.told = known + Counter([(was, life.state)]), told
        self._tell(life, verb, was or 0, life.state, old.next if old and was else 0)
        result = "replaced" if old else "created"
        self._total(life)[result] += 1
        self._use(life)
        return result, life.state.word, due

    def look(
        self,
        shards: Sequence[int],
        topics: Sequence[str],
        count: int,
        by_priority: bool,
        ttr_ms: int | None = None,
    ) -> Look:
        """What a pop finds that asks the shards in this order; nothing is changed."""
        look = Look(ttr_ms=ttr_ms)
        # Where a topic has limits, the pauses of all are known before the search.
        for topic in topics if self.limits.keys() & set(topics) else ():
            if not self._is_paused(topic, look) and topic in self.limits:
                look.room[topic] = self._room(topic, ttr_ms)
        look_in_shard = self._look_by_priority if by_priority else self._look_in_shard
        for shard in shards:
            if len(look.ids) < count:
                look_in_shard(shard, topics, count, look)
        return look

    def _look_by_priority(self, shard: int, topics: Sequence[str], count: int, look: Look) -> None:
        there = [topic for topic in topics if not self._is_paused(topic, look)]
        last = there[-1] if there else None
        for priority, topic in itertools.product(range(9, -1, -1), there):
            before = len(look.ids)
            self._look_in_list((shard, topic, priority), count, look)
            if before < len(look.ids) == count:
                last = topic
        look.lasts.append((shard, last))

    def _look_in_shard(self, shard: int, topics: Sequence[str], count: int, look: Look) -> None:
        last = None
        for topic in topics:
            if len(look.ids) == count or self._is_paused(topic, look):
                continue
            last = topic
            for priority in range(9, -1, -1):
                self._look_in_list((shard, topic, priority), count, look)
        look.lasts.append((shard, last))

    def _room(self, topic: str, ttr_ms: int | None) -> Room:
        limit = self.limits[topic]
        reserved = self.counts(topic)[State.RESERVED.word]
        places = limit.concurrency - reserved if limit.concurrency and ttr_ms != 0 else math.inf
        return Room(self._permits(topic), places)

    def _missing(self, topic: str) -> float:
        limit = self.limits[topic]
        left_us = max(self.full_at.get(topic, 0) - self.now_us, 0)
        return min(left_us * limit.rate / 1e6, limit.burst)

    def _permits(self, topic: str) -> float:
        limit = self.limits[topic]
        return math.floor(limit.burst - self._missing(topic)) if limit.rate else math.inf

    def _spend(self, topic: str, jobs: int) -> None:
        """Jobs of a topic were delivered."""
        limit = self.limits.get(topic)
        if limit and limit.rate and jobs:
            self.full_at[topic] = self.now_us + math.ceil((self._missing(topic) + jobs) * 1e6 / limit.rate)

    def limited(self, look: Look) -> set[tuple[str, str]]:
        """The topics whose limits keep ready jobs back from a pop that was carried out."""
        found = ((topic, room.spent) for topic, room in look.room.items())
        ready = {
            topic
            for _, topic, _ in self.ready
            if any(self._counts_as_ready(life, 0, topic) for life in self.lives.values())
        }
        return {(topic, limit) for topic, limit in found if limit and topic in ready}

    def left(self, look: Look) -> int:
        """How many jobs a pop, once carried out, has left in the last topic of each shard."""
        return sum(self._counts_as_ready(life, *last) for last in look.lasts for life in self.lives.values())

    def _is_paused(self, topic: str, look: Look) -> bool:
        until = self.paused.get(topic)
        if until is None or 0 < until <= self.now_ms:
            return False
        if until:
            opens_us = until * 1000 - self.now_us
            look.opens_us = opens_us if look.opens_us is None else min(look.opens_us, opens_us)
        return True

    def _look_in_list(self, key: tuple[int, str, int], count: int, look: Look) -> None:
        for job_id in self.ready[key]:
            room = look.room.get(key[1])
            if len(look.ids) == count or (room and room.spent):
                return
            look.passed.append((key, job_id))
            if not self.lives[job_id].ttl_over(self.now_ms):
                look.ids.append(job_id)
                if room:
                    ttr_ms = self.lives[job_id].new.ttr_ms if look.ttr_ms is None else look.ttr_ms
                    room.permits, room.places = room.permits - 1, room.places - bool(ttr_ms)

    def _counts_as_ready(self, life: Life, shard: int, topic: str | None) -> bool:
        at = (life.state, shard_of(life.new.id, self.shards), life.new.topic)
        return not self.is_blocked(life) and at == (State.READY, shard, topic)

    def pop(self, look: Look, ttr_ms: int | None, worker: str) -> list[dict[str, Any]]:
        """Deliver what was found; returns the facts of the jobs as the worker gets them."""
        self.verb = Verb.POP
        for key, job_id in look.passed:
            self.ready[key].remove(job_id)
        delivered = Counter(self.lives[job_id].new.topic for job_id in look.ids)
        for topic, jobs in delivered.items():
            self._spend(topic, jobs)
        return [self._deliver(self.lives[job_id], ttr_ms, worker) for job_id in look.ids]

    def take(self, job_id: str, ttr_ms: int | None, worker: str, within: str) -> dict[str, Any] | Answer:
        self.verb = Verb.TAKE
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        refusals = {State.RESERVED: "RESERVED", State.FINISHED: "WRONG_STATE", State.DELETED: "NOT_FOUND"}
        if life.state in refusals:
            return refusals[life.state], life.state.word
        topic = life.new.topic
        if topic in self.limits and self._room(topic, ttr_ms).spent:
            return ("LIMITED",)
        key = self._key_of(life)
        if life.new.key_gap_us and self.pace.get(key) != job_id and self._is_paced(key):
            return ("LIMITED",)
        if life.new.key and not life.holds and 0 < self._most(life.new) <= self._busy(life):
            return ("LIMITED",)
        self._spend(topic, 1)
        if life.state is State.DEAD:
            life.attempts = life.step = 0
        if life.state is not State.READY:
            life.due = life.next = self.now_ms
        life.number = (life.number + 1) % 2**32
        return self._deliver(life, ttr_ms, worker)

    def _deliver(self, life: Life, ttr_ms: int | None, worker: str) -> dict[str, Any]:
        life.attempts += 1
        life.deliveries += 1
        life.cause = Cause.NONE
        ready = {"ready_again": life.next if life.deliveries > 1 else None}
        life.lease = max(life.lease + 1, self.now_us)
        life.ttr = life.new.ttr_ms if ttr_ms is None else ttr_ms
        if life.new.key_gap_us:
            at = -(-(self.now_us + life.new.key_gap_us) // 1000)
            shard, topic, key = self._key_of(life)
            self.pace[shard, topic, key] = self.pace_entries[shard, life.bucket, topic, key] = at
        self._total(life)["delivered"] += 1
        if life.deliveries > 1:
            self._total(life)["redelivered"] += 1
        if life.ttr == 0:
            self._entomb(life, State.FINISHED)
            return life.facts() | {"body": life.new.body} | ready
        life.worker = worker or life.worker
        self._become(life, State.RESERVED)
        life.next = self.ahead(life.ttr)
        return life.facts() | ready

    def unpop(self, job_id: str, lease: int) -> None:
        self.verb = Verb.UNPOP
        life = self.life(job_id)
        if life and life.state is State.RESERVED and life.lease == lease:
            self._total(life)["delivered"] -= 1
            self._total(life)["undone"] += 1
            if life.deliveries > 1:
                self._total(life)["redelivered"] -= 1
            life.attempts -= 1
            life.deliveries -= 1
            self._to_ready(life, front=True)

    def finish(self, job_id: str, lease: int | None, within: str = "") -> Answer:
        self.verb = Verb.FINISH
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        if life.state is State.FINISHED:
            return ("finished",)
        if life.state is State.DELETED:
            return "NOT_FOUND", "deleted"
        if life.deliveries == 0:
            return "NOT_RESERVED", life.state.word
        if lease is not None and lease != life.lease:
            return "STALE_LEASE", life.state.word
        self._entomb(life, State.FINISHED)
        return ("finished",)

    def settle(self, job_id: str, lease: int | None, within: str) -> Answer:
        """Finish, or where that is refused because nobody ever had the job, delete."""
        answer = self.finish(job_id, lease, within)
        if answer[0] == "NOT_RESERVED":
            self.delete(job_id)
        return ("deleted",) if answer[0] == "NOT_RESERVED" or answer[1:] == ("deleted",) else answer

    def delete(self, job_id: str, within: str = "", spares: Sequence[State] = ()) -> Answer:
        self.verb = Verb.DELETE
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        was = life.state
        if was in spares:
            return "RESERVED" if was is State.RESERVED else "WRONG_STATE", was.word
        if was is State.FINISHED:
            return "WRONG_STATE", "finished"
        if was is not State.DELETED:
            self._entomb(life, State.DELETED)
        return (was.word,)

    def _leased(self, job_id: str, lease: int | None, within: str) -> Life | Answer:
        """The job that a worker refers to, or why it is refused."""
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        if life.state is State.DELETED:
            return "NOT_FOUND", "deleted"
        if life.deliveries and lease not in (None, life.lease):
            return "STALE_LEASE", life.state.word
        return life if life.state is State.RESERVED else ("NOT_RESERVED", life.state.word)

    def touch(self, job_id: str, lease: int | None, ttr_ms: int | None, within: str) -> Answer:
        self.verb = Verb.TOUCH
        life = self._leased(job_id, lease, within)
        if not isinstance(life, Life):
            return life
        self._become(life, State.RESERVED)
        life.next = self.ahead(life.ttr if ttr_ms is None else ttr_ms)
        return "reserved", None, life.next

    def release(
        self,
        job_id: str,
        lease: int | None,
        delay_ms: int | None,
        counts: bool,
        reason: str,
        ladder_ms: Sequence[int],
        note: bytes | None,
        priority: int | None,
        within: str,
    ) -> Answer:
        self.verb = Verb.RELEASE
        life = self._leased(job_id, lease, within)
        if not isinstance(life, Life):
            return life
        life.reason = reason or life.reason
        life.note = life.note if note is None else note
        life.new = life.new if priority is None else replace(life.new, priority=priority)
        life.attempts -= not counts
        self._return(life, delay_ms, ladder_ms)
        return life.state.word, None, life.next

    def bury(self, job_id: str, lease: int | None, reason: str, note: bytes | None, within: str) -> Answer:
        self.verb = Verb.BURY
        life = self._leased(job_id, lease, within)
        if not isinstance(life, Life):
            return life
        life.reason = reason or life.reason
        life.note = life.note if note is None else note
        self._die(life, Cause.BURIED)
        return ("dead",)

    def kick(self, job_id: str, within: str = "") -> Answer:
        self.verb = Verb.KICK
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        if life.state is not State.DEAD:
            return "NOT_FOUND" if life.state is State.DELETED else "WRONG_STATE", life.state.word
        life.attempts, life.step, life.cause, life.due = 0, 0, Cause.NONE, self.now_ms
        self._to_ready(life)
        return ("ready",)

    def kick_topic(self, topic: str, count: int) -> int:
        """In each shard, the oldest dead letters first."""
        dead = [life for life in self.lives.values() if (life.state, life.new.topic) == (State.DEAD, topic)]
        dead.sort(key=lambda life: (shard_of(life.new.id, self.shards), life.next, life.new.id))
        for life in dead[:count]:
            self.kick(life.new.id)
        return len(dead[:count])

    def _pending(self, job_id: str, timed: bool, within: str = "") -> Life | Answer:
        """A job that is not reserved and, if its time is to be changed, has not fired; or why it is refused."""
        life = self._reached(job_id, within)
        if life is None:
            return ("NOT_FOUND",)
        if timed and life.state is State.READY:
            return "TOO_LATE", "ready"
        if life.state in (State.DELAYED, State.READY):
            return life
        code = {State.DELETED: "NOT_FOUND", State.RESERVED: "RESERVED"}.get(life.state, "WRONG_STATE")
        return code, life.state.word

    def run(self, job_id: str, within: str) -> Answer:
        self.verb = Verb.RUN
        life = self._pending(job_id, timed=True, within=within)
        if not isinstance(life, Life):
            return life
        life.due, life.cause = self.now_ms, Cause.NONE
        self._to_ready(life)
        return "ready", None, life.due

    def update(
        self,
        job_id: str,
        delay_ms: int | None,
        due_ms: int | None,
        priority: int | None,
        ttl_ms: int | None,
        body: bytes | None,
        within: str = "",
    ) -> Answer:
        self.verb = Verb.UPDATE if body is None else Verb.REWRITE
        timed = delay_ms is not None or due_ms is not None
        life = self._pending(job_id, timed, within)
        if not isinstance(life, Life):
            return life
        old, revived = life.new, ttl_ms is not None and life.ttl_over(self.now_ms)
        changes = {"priority": priority, "ttl_ms": ttl_ms, "body": body}
        new = replace(old, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]  # the names fit
        if life.state is State.READY:
            self._change_ready(life, new, revived or new.priority != old.priority)
            return "ready", None, life.due
        life.new = new
        if timed:
            life.cause = Cause.NONE
            ahead = self.ahead(delay_ms) if delay_ms else self.now_ms
            life.due = life.next = max(ahead if due_ms is None else due_ms, self.now_ms)
        if timed and life.due == self.now_ms:
            self._to_ready(life)
        else:
            self._to_delayed(life, life.next)
        return life.state.word, None, life.due

    def _change_ready(self, life: Life, new: NewJob, to_the_back: bool) -> None:
        self.arrows[State.READY, State.READY] += 1
        if not to_the_back:
            self._tell(life, self.verb, life.state, life.state, life.next)
        if to_the_back:
            self._leave(life)
        life.new = new
        if to_the_back:
            life.cause = Cause.NONE
            self._to_ready(life)

    def due(
        self, shard: int, bucket: int, offers: Sequence[Offer] = ()
    ) -> tuple[int, int, set[str], list[list[dict[str, Any]]]]:
        """Do what the timer of a bucket does now, for pops that wait too; the schedules that it meets and the facts of
        the pops' jobs come last."""
        self.verb = Verb.DUE
        events = [(at, life.new.id) for life in self.in_bucket(shard, bucket) if (at := life.look_at()) is not None]
        now = [self.lives[job_id] for _, job_id in sorted(event for event in events if event[0] <= self.now_ms)]
        blocked: set[str] = set()  # topics whose first job is left to a pop
        paces = [(at, key) for key, at in self.pace_entries.items() if key[:2] == (shard, bucket) and at <= self.now_ms]
        plain = all(life.is_plain() for life in now) and not paces
        handed = [self._hand_out(shard, now, offer, blocked) if plain else [] for offer in offers]
        moments: list[tuple[int, str, tuple[str, str] | None]]
        moments = [(at, f"|{topic}@{key}", (topic, key)) for at, (_, _, topic, key) in paces]
        moments += [(life.look_at() or 0, life.new.id, None) for life in now]
        for _, job_id, paced in sorted(moments, key=lambda each: each[:2]):
            if paced:
                self._meet_pace(shard, bucket, *paced)
            elif (life := self.lives[job_id]).state is not State.RESERVED or life.next <= self.now_ms:
                self._event(life)
        met = self._meet(shard, bucket)
        ahead = [at for life in self.in_bucket(shard, bucket) if (at := life.look_at()) is not None]
        ahead += [each.entry for _, each in self._scheduled(shard, bucket)]
        ahead += [at for key, at in self.pace_entries.items() if key[:2] == (shard, bucket)]
        return len(now) + len(paces) + len(met), max(0, min(ahead) * 1000 - self.now_us) if ahead else -1, met, handed

    def _meet_pace(self, shard: int, bucket: int, topic: str, key: str) -> None:
        """The timer of a bucket meets the entry of a key with a rate."""
        del self.pace_entries[shard, bucket, topic, key]
        pace = self.pace.get((shard, topic, key))
        self.met.setdefault((shard, topic, key), False)
        if isinstance(pace, int) and pace > self.now_ms:
            self.pace_entries[shard, bucket, topic, key] = pace
        elif isinstance(pace, int):
            del self.pace[shard, topic, key]
            self.met[shard, topic, key] = True

    def _scheduled(self, shard: int, bucket: int) -> list[tuple[str, Recurring]]:
        """The schedules with an entry in a bucket."""
        found = [each for each in self.schedules.items() if each[1].entry and each[1].bucket == bucket]
        return [(name, each) for name, each in found if shard_of(name, self.shards) == shard]

    def _meet(self, shard: int, bucket: int) -> set[str]:
        """The schedules whose time has come; they are met again in a second, if nobody makes their occurrences."""
        met = {name: each for name, each in self._scheduled(shard, bucket) if each.entry <= self.now_ms}
        for each in met.values():
            each.entry = self.now_ms + 1_000
        return set(met)

    def _hand_out(self, shard: int, due: Sequence[Life], offer: Offer, blocked: set[str]) -> list[dict[str, Any]]:
        """Deliver due jobs straight to pops that wait."""
        workers = [worker for jobs, worker in offer.workers for _ in range(jobs)]
        handed: list[dict[str, Any]] = []
        for topic in offer.topics:
            if self._is_paused(topic, Look()):
                continue
            if topic in blocked or any(self._counts_as_ready(life, shard, topic) for life in self.lives.values()):
                break
            waiting = [life for life in due if life.state is State.DELAYED and life.new.topic == topic]
            for life in sorted(waiting, key=lambda life: -life.new.priority):
                if len(handed) == len(workers):
                    return handed
                if life.new.ttr_ms == 0 or (workers[len(handed)] and life.has_optional()):
                    blocked.add(topic)
                    return handed
                handed.append(self._deliver(life, None, workers[len(handed)]))
        return handed

    def in_bucket(self, shard: int, bucket: int) -> list[Life]:
        lives = [life for job_id, life in self.lives.items() if shard_of(job_id, self.shards) == shard]
        return [life for life in lives if life.bucket == bucket]

    def _event(self, life: Life) -> None:
        if life.ttl_over(self.now_ms):
            self._die(life, Cause.TTL)
        elif life.state is State.DELAYED:
            self._to_ready(life)
        else:
            life.cause = Cause.LEASE
            self._return(life, None)

    def _return(self, life: Life, delay_ms: int | None, default: Sequence[int] | None = None) -> None:
        """A lease ends without a finish: the next step of the back-off ladder, unless a delay is given. Only a release
        has a default ladder."""
        ladder = life.new.backoff_ms or default
        if life.ttl_over(self.now_ms):
            self._die(life, Cause.TTL)
        elif life.new.tries and life.attempts >= life.new.tries:
            self._die(life, Cause.TRIES, Cause.LEASE if life.cause is Cause.LEASE else Cause.TRIES)
        else:
            if delay_ms is None and ladder is not None:
                delay_ms = ladder[min(life.step, len(ladder) - 1)] if ladder else 0
                if not life.new.backoff_ms:
                    delay_ms += jitter_ms(delay_ms, life.new.id, life.step)
                life.step += 1
            if delay_ms:
                self._to_delayed(life, self.ahead(delay_ms))
            else:
                self._to_ready(life)

    # Operations on a whole topic.

    def pause(self, topic: str, span_ms: int | None) -> int:
        self.paused[topic] = 0 if span_ms is None else self.ahead(span_ms)
        self.tell_topic(Verb.PAUSE, self.paused[topic])
        for shard in range(self.shards):
            self.used[shard, topic] = self.now_ms
        return self.paused[topic]

    def over(self) -> list[str]:
        """Topics whose pause is over: Redis forgets it, but by its own clock."""
        return [topic for topic, until in self.paused.items() if 0 < until <= self.now_ms]

    def purge(self, topic: str, state: State | None, begun_ms: int) -> int:
        """Delete what existed when it began, in its states. A ready job that no pop would find is left to its timer,
        which has to bury it."""
        self.verb = Verb.PURGE
        found = [self.lives[job_id] for job_id in self.peek(topic, state)]
        found = [life for life in found if life.created <= begun_ms]
        for life in found:
            life.keeps_body = False  # it makes room
            self._entomb(life, State.DELETED)
        return len(found)

    def bound(self, shard: int, topic: str, age_ms: int, most: int) -> int:
        """Delete the oldest, one by one, until the others are within the bounds."""
        self.verb = Verb.TRIM
        dead = [self.lives[job_id] for job_id in self.peek(topic, State.DEAD)]
        dead = [life for life in dead if self._shard(life) == shard]
        over = len(dead) - -(-most // self.shards) if most else 0
        dealt = [life for rank, life in enumerate(dead, 1) if rank <= over or life.next + age_ms <= self.now_ms]
        for life in dealt:
            life.keeps_body = False  # it makes room
            self._entomb(life, State.DELETED)
        return len(dealt)

    def forget(self, shard: int, idle_ms: int) -> int:
        idle = [key for key, at in self.used.items() if key[0] == shard and at <= self.now_ms - idle_ms]
        live = {(self._shard(life), life.new.topic) for life in self.lives.values() if life.state not in TOMBSTONES}
        for key in idle:
            if key in live or key[1] in self.paused:
                self.used[key] = self.now_ms
            else:
                del self.used[key]
                self.totals.pop(key, None)
        return sum(key not in self.used for key in idle)

    # Queries.

    def peek(self, topic: str, state: State | None) -> list[str]:
        """The ids in order."""
        states = [state] if state else [State.DELAYED, State.READY, State.RESERVED, State.DEAD]
        return [job_id for each in states for job_id in self._in_state(topic, each)]

    def _in_state(self, topic: str, state: State) -> list[str]:
        if state is State.READY:
            found: list[str] = []
            for shard in range(self.shards):
                found += [each for priority in range(9, -1, -1) for each in self.ready[shard, topic, priority]]
                lives = [life for life in self.lives.values() if (self._shard(life), life.new.topic) == (shard, topic)]
                lives = [life for life in lives if self.is_blocked(life)]
                lives.sort(key=lambda life: (life.new.key, life.due, life.created, life.order))
                found += [life.new.id for life in lives]
            return found
        lives = [life for life in self.lives.values() if (life.state, life.new.topic) == (state, topic)]
        lives.sort(
            key=lambda life: (self._shard(life), life.next, state is not State.DEAD and life.bucket, life.new.id)
        )
        return [life.new.id for life in lives]

    def topics(self) -> dict[str, tuple[Counter[str], int | None]]:
        """The known topics, with their counts and the ends of their pauses."""
        over = self.over()
        return {
            topic: (self.counts(topic), None if topic in over else self.paused.get(topic)) for _, topic in self.used
        }

    def counts(self, topic: str | None) -> Counter[str]:
        lives = [life for life in self.lives.values() if topic in (None, life.new.topic)]
        return Counter(life.state.word for life in lives if life.state not in TOMBSTONES)

    def total(self, topic: str | None) -> Counter[str]:
        each = [Counter(totals) for (_, name), totals in self.totals.items() if topic in (None, name)]
        return sum(each, Counter())

    def oldest_ready_ms(self, topic: str | None) -> int | None:
        """The job that has waited the longest at the front of a list; of few jobs of a topic in a shard, all are looked
        at."""
        lists = defaultdict[tuple[int, str], list[list[str]]](list)
        for (shard, name, _), ids in self.ready.items():
            if ids and topic in (None, name):
                lists[shard, name].append(ids)
        looked = [ids[: None if sum(map(len, some)) <= FEW else 1] for some in lists.values() for ids in some]
        return max((self.now_ms - self.lives[job_id].next for ids in looked for job_id in ids), default=None)

    def histogram(self, topic: str | None) -> dict[str, int]:
        """Pending jobs by the range in which the minute (or hour) of their due time begins."""
        found = {name: 0 for name, _ in RANGES}
        for life in self.lives.values():
            if life.state is State.DELAYED and topic in (None, life.new.topic):
                bin_ms = 3_600_000 if life.hourly else 60_000
                ahead = life.next // bin_ms * bin_ms - self.now_ms
                found[next(name for name, end in RANGES if end is None or ahead < end * 1000)] += 1
        return found
