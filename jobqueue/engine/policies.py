"""The policies of topics: the defaults of their jobs, their bounds, and which topics are virtual."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from buckets import Bounds, Limit
from jobqueue.schema.params import ms
from jobqueue.settings import Settings, TopicSettings

_AT_ONCE = (0,)  # how a job keeps the empty ladder: without any, the default one would hold


def ladder(delays_s: Iterable[float]) -> tuple[int, ...]:
    """The back-off of a job that was given one, in ms."""
    return tuple(map(ms, delays_s)) or _AT_ONCE


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults of a topic's jobs, and how many may be pending (`max_pending`; 0: any number). Times in ms."""

    ttr_ms: int
    tries: int
    backoff_ms: tuple[int, ...]
    ttl_ms: int | None
    retention_ms: int
    priority: int
    max_pending: int


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
        """Of the topics that have any."""
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
        )

    def of(self, topic: str) -> Policy:
        """The policy of a topic."""
        return self._by_topic.get(topic, self._other)

    def targets(self, topic: str) -> tuple[str, ...]:
        """The topics that each get a job when one is added to a virtual topic; empty for any other topic."""
        return self._settings.virtual_topics.get(topic, ())

    def fault(self, shards: int) -> str:
        """Why they cannot hold for a namespace of so many shards; empty: they can."""
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
