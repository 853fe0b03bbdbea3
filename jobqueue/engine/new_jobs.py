"""New jobs: their ids, and the `NewJob` that an add becomes under the policy of its topic.

A policy has the defaults of a topic's jobs and their bounds; some topics are virtual. An add to a virtual topic becomes
a job in each of its topics, in all of them or in none. Each of these jobs is marked as a copy: in topics that its
caller does not reach, an add to a virtual topic touches only such copies.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import orjson

from buckets import Added, Bounds, Limit, NewJob, later_ms
from buckets.errors import JobQueueError
from jobqueue.errors import BadField
from jobqueue.schema import inner, params
from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.schema.params import ms
from jobqueue.settings import Settings, TopicSettings

_AT_ONCE = (0,)  # how a job stores an empty ladder: with none at all, the default one would apply


def ladder(delays_s: Iterable[float]) -> tuple[int, ...]:
    """The back-off of a job with these delays, in ms."""
    return tuple(map(ms, delays_s)) or _AT_ONCE


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults of a topic's jobs, and how many may be pending (`max_pending`; 0 for any number). Times in ms."""

    ttr_ms: int
    tries: int
    backoff_ms: tuple[int, ...]
    ttl_ms: int | None
    retention_ms: int
    priority: int
    max_pending: int
    key_concurrency: int
    key_gap_us: int


class Policies:
    """The policies of the settings. Replaced as a whole when the settings are reloaded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_topic = {name: self._policy(topic) for name, topic in settings.topics.items()}
        self._other = self._policy(TopicSettings())
        self.limits = {
            name: Limit(topic.rate or 0.0, topic.concurrency or 0)
            for name, topic in settings.topics.items()
            if topic.rate or topic.concurrency
        }
        """The limits of the topics that have any."""
        self.has_virtual = bool(settings.virtual_topics)
        self.default_backoff_ms = tuple(map(ms, settings.default_backoff_s))

    def _policy(self, topic: TopicSettings) -> Policy:
        settings = self._settings
        return Policy(
            ttr_ms=ms(settings.default_ttr_s if topic.ttr_s is None else topic.ttr_s),
            tries=settings.default_tries if topic.tries is None else topic.tries,
            backoff_ms=() if topic.backoff_s is None else ladder(topic.backoff_s),
            ttl_ms=None if topic.ttl_s is None else ms(topic.ttl_s),
            retention_ms=ms(settings.default_retention_s if topic.retention_s is None else topic.retention_s),
            priority=settings.default_priority if topic.priority is None else topic.priority,
            max_pending=topic.max_pending,
            key_concurrency=topic.per_key.concurrency,
            key_gap_us=round(1_000_000 / topic.per_key.rate) if topic.per_key.rate else 0,
        )

    def of(self, topic: str) -> Policy:
        """The policy of a topic."""
        return self._by_topic.get(topic, self._other)

    def targets(self, topic: str) -> tuple[str, ...]:
        """The topics that each get a job when one is added to a virtual topic; empty for any other topic."""
        return self._settings.virtual_topics.get(topic, ())

    def fault(self, shards: int) -> str:
        """Why these policies cannot apply to a namespace of so many shards, or an empty string if they can."""
        counted = next((topic for topic, limit in self.limits.items() if limit.concurrency), None)
        if counted is None or shards == 1:
            return ""
        return (
            f"topics.{counted}.concurrency needs a namespace of one shard, in which all jobs of the topic are counted;"
            f" this one has {shards}"
        )

    def bounds(self, topic: str) -> Bounds:
        """How many dead letters of a topic are kept, and for how long."""
        chosen = self._settings.topics.get(topic, TopicSettings())
        age_s = self._settings.default_dead_age_s if chosen.dead_age_s is None else chosen.dead_age_s
        return Bounds(int(age_s * 1000), chosen.max_dead)


def new_id(key: str | None = None) -> str:
    """A unique id of 32 hexadecimal digits, after `<key>@` if there is a key. Ids sort by the millisecond in which they
    were made."""
    made = f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
    return made if key is None else f"{key}@{made}"


def spread_ms(command: params.Add) -> int:
    """By how much `spread` delays a job, derived from the id of the add, so that a repeated add results in the same
    time. The jobs of an add to a virtual topic stay together, because they share its id."""
    return later_ms(command.id or "", ms(command.spread or 0))


def new_job(policies: Policies, command: params.Add, job_id: str, topic: str) -> NewJob:
    """The job that an add asks for, in this topic, with the topic's defaults where the command gives no value."""
    policy = policies.of(topic)
    job = NewJob(  # by position: keywords for fifteen arguments cost a third of the time that an add spends here
        job_id,
        topic,
        bytes(command.body),
        ms(command.delay) if command.delay else 0,
        0 if command.at is None else max(params.at_ms(command.at), 1),
        policy.ttr_ms if command.ttr is None else ms(command.ttr),
        policy.priority if command.priority is None else command.priority,
        policy.tries if command.tries is None else command.tries,
        policy.backoff_ms if command.backoff is None else ladder(command.backoff),
        policy.ttl_ms if command.ttl is None else ms(command.ttl),
        policy.retention_ms if command.retention is None else ms(command.retention),
        orjson.dumps(command.headers) if command.headers else b"",
        orjson.dumps(command.tags) if command.tags else b"",
        command.if_exists or "keep",
        policy.max_pending,
    )
    if command.spread:
        if job.due_ms:
            job.due_ms += spread_ms(command)
        else:
            job.delay_ms += spread_ms(command)
    if command.key is not None:
        job.key, job.key_concurrency, job.key_gap_us = command.key, policy.key_concurrency, policy.key_gap_us
    if type(command) is inner.Add:
        job.note, job.keeps_body = command.note, command.keeps_body
    return job


def new_copy(policies: Policies, command: params.Add, job_id: str, topic: str) -> NewJob:
    """Like `new_job`, for one of the topics of the virtual topic that the add names."""
    job = new_job(policies, command, job_id, topic)
    job.is_copy = True
    return job


# The arguments of `NewJob` above, in their order.
assert [field.name for field in fields(NewJob)] == [
    *("id", "topic", "body", "delay_ms", "due_ms", "ttr_ms", "priority", "tries", "backoff_ms", "ttl_ms"),
    *("retention_ms", "headers", "tags", "if_exists", "most_pending", "note", "keeps_body", "is_copy"),
    *("key", "key_concurrency", "key_gap_us"),
]


AddGroups = Callable[
    [Sequence[params.Add], Sequence[Sequence[NewJob]]], Awaitable[Sequence[list[Added] | JobQueueError]]
]
"""Adds the group of jobs of each command, all jobs of a group or none."""


class Copy(NamedTuple):
    """A job in one of the topics of a virtual topic, and the result of adding it."""

    job: NewJob
    added: Added


async def fan_out(
    policies: Policies, commands: Sequence[params.Add], add_groups: AddGroups
) -> list[Added | list[Copy] | JobQueueError]:
    """Carry out adds, some of which go to virtual topics. Returns the copies for a virtual topic, otherwise the job
    added, or the error. All commands must have ids."""
    results: list[Added | list[Copy] | JobQueueError] = []
    groups: dict[int, list[NewJob]] = {}  # by the index of the command
    for index, command in enumerate(commands):
        try:
            groups[index] = _group(policies, command, command.id or "")
            results.append([])
        except JobQueueError as error:
            results.append(error)
    outcomes = await add_groups([commands[index] for index in groups], list(groups.values()))
    for (index, group), added in zip(groups.items(), outcomes, strict=True):
        if isinstance(added, JobQueueError):
            results[index] = added
        elif is_virtual(policies, commands[index]):
            results[index] = [Copy(*each) for each in zip(group, added, strict=True)]
        else:
            results[index] = added[0]
    return results


def is_virtual(policies: Policies, command: params.Add) -> bool:
    """Whether the topic of an add is virtual."""
    return bool(policies.targets(command.topic))


def _group(policies: Policies, command: params.Add, job_id: str) -> list[NewJob]:
    """The jobs that an add becomes: one, or one in each topic of a virtual topic. Raises BadField."""
    targets = policies.targets(command.topic)
    if not targets:
        return [new_job(policies, command, job_id, command.topic)]
    jobs = [new_copy(policies, command, f"{job_id}@{topic}", topic) for topic in targets]
    longest = max(len(job.id) for job in jobs)
    if longest > LONGEST_NAME:
        message = f"id would have {longest} characters with `@` and its topic; at most {LONGEST_NAME} are allowed"
        raise BadField(message, field="id")
    return jobs
