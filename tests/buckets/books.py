"""The books: the pool's records, checked against every index and every count in Redis."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from buckets.job import LIVE, Job, State, Tag
from buckets.keys import Keys
from buckets.layout import SCHEDULE
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from buckets.schedules.record import Schedule, unpack_schedule
from tests.kit.everything import Stored, everything

_KEEPS_BODY = 0x08  # the flag of a record whose tombstone keeps the body
_HOURLY = 0x20  # the flag of a record whose due time is counted by the hour


def _most(job: Job) -> int:
    """How many jobs of its key may run at a time; 0 for any number."""
    return int.from_bytes(job.optional[Tag.KEY][:2], "big") if job.own_ttr else 0


def _gap_us(job: Job) -> int:
    """The least time between the deliveries of its key."""
    return int.from_bytes(job.optional[Tag.KEY][2:6], "big")


def _order(job: Job) -> int:
    """How many jobs of the topic were created or replaced before."""
    return int.from_bytes(job.optional[Tag.KEY][6:10], "big")


def _blocked_entry(job: Job) -> str:
    return f"{job.key}@{job.due:015d}{job.created:015d}{_order(job):010d}:{job.id}"


class Books:
    """Everything in one shard."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.jobs: dict[str, Job] = {}
        self.bins: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        self.ready: dict[tuple[int, str], list[str]] = {}
        self.zsets: dict[str, dict[str, int]] = {}
        self.by_key: dict[str, list[str]] = {}
        self.hashes: dict[str, dict[bytes, int]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.have_occurrences: set[str] = set()

    def read(self, stored_keys: Mapping[bytes, Stored]) -> None:
        for raw_name, stored in stored_keys.items():
            name = raw_name.decode("utf-8", "replace")
            if not name.startswith(self.keys.tag) or name in (self.keys.meta, self.keys.aside, self.keys.topics):
                continue
            family, _, rest = name[len(self.keys.tag) :].partition(":")
            if family == "p":
                continue
            if family == "j":
                self._record(rest, stored.value)
                assert (stored.ends_in_ms == -1) == (self.jobs[rest].state in LIVE), rest
            elif family in ("kh", "kb"):
                self.by_key[f"{family}:{rest}"] = [entry.decode() for entry in stored.value[::2]]
                assert set(stored.value[1::2]) == {b"0"}, name
            elif family in ("b", "s", "d"):
                pairs = zip(stored.value[::2], stored.value[1::2], strict=True)
                self.zsets[f"{family}:{rest}"] = {member.decode(): int(score) for member, score in pairs}
            elif family == "o":
                self.have_occurrences.add(rest)
            elif family == "schedules":
                self.schedules = {
                    name.decode(): unpack_schedule(name.decode(), raw)
                    for name, raw in zip(stored.value[::2], stored.value[1::2], strict=True)
                }
            elif family == "r":
                priority, _, topic = rest.partition(":")
                self.ready[int(priority), topic] = [entry.decode("utf-8", "replace") for entry in stored.value]
            elif family in ("c", "h"):
                pairs = zip(stored.value[::2], stored.value[1::2], strict=True)
                self.hashes[f"{family}:{rest}"] = {field: int(value) for field, value in pairs}
            elif family not in (
                *("lock", "p", "l", "e", "roll", "cards", "w"),
                *("fence", "seq", "alias", "tokens", "actions", "rate", "f", "figured", "ops", "op"),
            ):
                raise AssertionError(f"what is {name}?")

    def _record(self, job_id: str, raw: bytes) -> None:
        job = unpack(job_id, raw)
        self.jobs[job_id] = job
        assert job.state in LIVE or raw[2] & _KEEPS_BODY or not (job.body or job.optional), job_id
        if job.state is State.DELAYED:
            hourly = raw[2] & _HOURLY
            name = f"h{job.next // 3_600_000}" if hourly else f"m{job.next // 60_000}"
            self.bins[job.topic][name.encode()] += 1

    def blocked(self, job: Job) -> bool:
        """Whether a ready job waits for its key."""
        return job.key is not None and _blocked_entry(job) in self.by_key.get(f"kb:{job.topic}", ())

    def check(self, now_ms: int) -> None:
        self._check_keys()
        self._check_schedules(now_ms)
        self._check_slices()
        self._check_zsets()
        self._check_ready(now_ms)
        self._check_counts()
        bins = {f"h:{topic}": dict(bins) for topic, bins in self.bins.items()}
        assert {name: hash_ for name, hash_ in self.hashes.items() if name[0] == "h"} == bins

    def _check_schedules(self, now_ms: int) -> None:
        """Each schedule with a next time has one entry, which brings its timer then, or has brought it and will again
        within a second. (`_check_zsets` does not see them any more.)"""
        entries = {
            (name, entry[1:]): self.zsets[name].pop(entry)
            for name in list(self.zsets)
            for entry in list(self.zsets[name])
            if entry.startswith(SCHEDULE)
        }
        self.zsets = {name: found for name, found in self.zsets.items() if found}
        wanted = {(f"b:{each.bucket}", each.name): each.next for each in self.schedules.values() if each.next}
        assert entries.keys() == wanted.keys()
        for which, at in entries.items():
            assert at == wanted[which] or (wanted[which] <= now_ms and at <= now_ms + 1000), which
        assert self.have_occurrences <= self.schedules.keys()

    def _check_slices(self) -> None:
        """Each slice has a bound, and what the bound allows; then its jobs count as those of its bucket's set."""
        found = {name: self.zsets.pop(name) for name in list(self.zsets) if name.startswith("s:")}
        for name in [name for name in found if name.count(":") == 1]:
            bounds = sorted(found.pop(name), key=str.encode)
            for bound, after in zip(bounds, [*bounds[1:], "~"], strict=True):
                entries = found.pop(f"{name}:{bound}")
                assert 0 < len(entries) <= 128
                assert all(
                    bound.encode() <= f"{at:015d}{each}".encode() < after.encode() for each, at in entries.items()
                )
                home = self.zsets.setdefault(f"b:{name[2:]}", {})
                assert not home.keys() & entries.keys()
                assert all(self.jobs[each].state is State.DELAYED for each in entries)
                home |= entries
        assert not found, "slices without bounds"

    def _check_keys(self) -> None:
        """Each key has its holders, at most as many as it may have, and a job is blocked only if there is no room."""
        paces = self._check_paces()
        holders: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        blocked: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            if job.key is None or (job.own_ttr == 0 and not _gap_us(job)):
                continue
            if job.state is State.READY and self.blocked(job):
                blocked[job.topic, job.key].append(job)
            elif job.state in (State.READY, State.RESERVED) or (job.state is State.DELAYED and job.deliveries):
                holders[job.topic, job.key].append(job.id)
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for (topic, key), ids in holders.items():
            wanted[f"kh:{topic}"] += [f"{key}@{each}" for each in ids]
        for (topic, key), jobs in blocked.items():
            wanted[f"kb:{topic}"] += map(_blocked_entry, jobs)
            first = min(jobs, key=lambda job: (job.due, job.created, _order(job)))
            is_busy = 0 < _most(first) <= len(holders[topic, key])
            is_paced = _gap_us(first) and (topic, key) in paces
            assert is_busy or is_paced, f"{first.id} is blocked, and {key} is not busy"
        assert {name: sorted(found) for name, found in self.by_key.items() if found} == {
            name: sorted(each) for name, each in wanted.items()
        }

    def _check_paces(self) -> set[tuple[str, str]]:
        """The keys with a rate that have a job in the list, or that must wait; these have an entry in a bucket."""
        entries = {each for name in self.zsets for each in self.zsets[name] if each.startswith("|")}
        for found in self.zsets.values():
            for each in entries & found.keys():
                del found[each]
        self.zsets = {name: found for name, found in self.zsets.items() if found}
        paces = set()
        for name in [name for name in self.by_key if name.startswith("kh:")]:
            for entry in [each for each in self.by_key[name] if "@|" in each]:
                self.by_key[name].remove(entry)
                topic, (key, _, pace) = name[3:], entry.partition("@|")
                paces.add((topic, key))
                if pace.startswith(":"):
                    assert self.jobs[pace[1:]].state is State.READY and f"{key}@{pace[1:]}" in self.by_key[name], entry
                else:
                    assert f"|{topic}@{key}" in entries, entry
        return paces

    def _check_zsets(self) -> None:
        expected: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for job in self.jobs.values():
            if job.state in (State.DELAYED, State.RESERVED):
                expected[f"b:{job.bucket}"][job.id] = job.next
            elif job.state is State.READY and job.ttl is not None:
                expected[f"b:{job.bucket}"][job.id] = job.due + job.ttl
            elif job.state is State.DEAD:
                expected[f"d:{job.topic}"][job.id] = job.next
        assert self.zsets == expected

    def _check_ready(self, now_ms: int) -> None:
        """Each ready job has one valid entry; a job whose ttl is over may have lost it to a pop."""
        entries = Counter(
            (priority, topic, entry) for (priority, topic), entries in self.ready.items() for entry in entries
        )
        for job in self.jobs.values():
            found = entries[job.priority, job.topic, f"{job.number}:{job.id}"]
            if job.state is State.READY and self.blocked(job):
                assert found == 0, f"{job.id} is blocked and has an entry"
            elif job.state is State.READY:
                over = job.ttl is not None and job.due + job.ttl <= now_ms
                assert found == 1 or (over and found == 0), f"{job.id} has {found} entries"
            elif job.state is State.RESERVED:
                assert found == 0, f"the entry of {job.id} was left behind"

    def _counted(self, job: Job) -> str:
        return "blocked" if job.state is State.READY and self.blocked(job) else job.state.word

    def _check_counts(self) -> None:
        live = Counter((job.topic, self._counted(job)) for job in self.jobs.values() if job.state in LIVE)
        words = [*(state.word for state in LIVE), "blocked"]
        topics = {job.topic for job in self.jobs.values()} | {n[2:] for n in self.hashes if n[0] == "c"}
        for topic in topics:
            # A tombstone may outlive its topic.
            counts = Counter({field.decode(): n for field, n in self.hashes.get(f"c:{topic}", {}).items()})
            for word in words:
                assert counts[word] == live[topic, word], f"{topic}: {word}"
            alive = sum(counts[word] for word in words)
            assert counts["created"] + counts["replaced"] == alive + counts["finished"] + counts["deleted"], topic
            if counts["ready"] == 0:
                assert not any(of == topic for _, of in self.ready), f"{topic} has ready lists and no ready job"


async def check_books(redis: Redis, pool: Pool) -> None:
    """Fail unless each live job is in exactly the indexes of its state and all counts agree with a scan."""
    seconds, us = map(int, await redis.read("TIME"))
    now_us = int(pool.clock.now() or seconds * 1_000_000 + us)
    stored = await everything(redis)
    for keys in pool.keys:
        books = Books(keys)
        books.read(stored)
        books.check(now_us // 1000)
