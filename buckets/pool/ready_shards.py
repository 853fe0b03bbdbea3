"""Which shards may have ready jobs: which shards a pop asks, in which order, and for which topics.

The jobs of a topic are spread over all shards, and a pop that asked every shard would cost a script each. So a process
remembers for each topic the shards whose bell announced jobs (marks) and the shards that it is unsure of (doubts): all
shards for a topic that is new here, a shard that it does not hear, and all shards once a second, since messages may be
lost. A shard that has answered that it has no jobs is in neither.

Pops and messages travel on different connections. So both get a stamp from a rising counter: a reply clears only the
marks and doubts from before its pop was sent, not later ones.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence

MOST_TOPICS = 10_000  # remembered; the least recently popped are dropped, and count as new when popped again
_SWEEP_S = 1.0


class _Topic:
    """A topic's marks and doubts: shards with their stamps, the shard that was asked longest ago first."""

    __slots__ = ("doubts", "marks", "stirred", "sweep", "sweep_at")

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.doubts: dict[int, int] = {}
        self.stirred = 0  # up to this stamp, stirred shards are among the doubts
        self.sweep = 0  # the stamp of the last sweep
        self.sweep_at = 0.0  # and its time, s

    def mark_doubts(self, last: int) -> None:
        """Let shards with doubts up to this stamp take turns with the marked ones."""
        for shard in [shard for shard, stamp in self.doubts.items() if stamp <= last]:
            self.marks.setdefault(shard, self.doubts.pop(shard))


class ReadyShards:
    """What one process knows of the shards of a namespace; it knows nothing of a shard until `stands` is called for
    it."""

    def __init__(self, shards: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: a monotonic clock in seconds, for the sweep."""
        self._now = now
        self._stamps = itertools.count(random.randrange(1, shards + 1))  # processes begin at different shards
        self._stands = [False] * shards
        self._stirs = [0] * shards  # when jobs of any topic may have become ready in the shard
        self._last_stir = 0
        self._topics: dict[str, _Topic] = {}  # the most recently used last

    def stands(self, shard: int) -> None:
        """The shard's subscription is established; its earlier messages are unknown."""
        self._stands[shard] = True
        self.stir(shard)

    def lost(self, shard: int) -> None:
        """The shard's subscription is lost."""
        self._stands[shard] = False
        self.stir(shard)

    def stir(self, shard: int) -> None:
        """Jobs of some topic may be ready in the shard."""
        self._stirs[shard] = self._last_stir = next(self._stamps)

    def stir_topic(self, shard: int, topic: str) -> None:
        """Jobs of the topic may be ready in the shard; if waiting pops must be woken for them, the bell rings."""
        known = self._topics.get(topic)
        if known:
            known.doubts[shard] = next(self._stamps)

    def heard(self, shard: int, topic: str) -> None:
        """The shard's bell announced ready jobs of the topic."""
        known = self._topics.get(topic)
        if known and self._stands[shard]:
            known.marks[shard] = next(self._stamps)

    def expected(self, topic: str) -> bool:
        """Whether a pop that waits for the topic has a reason to look."""
        known = self._topics.get(topic)
        return not known or bool(known.marks) or not all(self._stands)

    def places(self, topics: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """The shards to ask in turn, until the pop has enough, and the topics to ask each shard for. Topics keep their
        order if it is known where their jobs are; the other topics are asked for together."""
        for is_marked, run in itertools.groupby(topics, lambda topic: bool(self._known(topic).marks)):
            some = list(run)
            if is_marked:
                for topic in some:
                    known = self._known(topic)
                    for shard in known.marks | known.doubts:
                        yield shard, (topic,)
            else:
                together: dict[int, list[str]] = {}
                for topic in some:
                    for shard in self._known(topic).doubts:
                        together.setdefault(shard, []).append(topic)
                yield from list(together.items())

    def places_together(self, topics: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """As `places`, but each shard is asked once, for all topics."""
        known = [self._known(topic) for topic in topics]
        marks = [shard for each in known for shard in each.marks]
        doubts = [shard for each in known for shard in each.doubts]
        for shard in dict.fromkeys(marks + doubts):
            yield shard, topics

    def _known(self, topic: str) -> _Topic:
        known = self._topics.pop(topic, None) or self._new()
        self._topics[topic] = known
        if known.stirred < self._last_stir:
            for shard, stir in enumerate(self._stirs):
                if stir > known.stirred:
                    known.doubts[shard] = max(known.doubts.get(shard, 0), stir)
            known.stirred = self._last_stir
        if self._now() - known.sweep_at >= _SWEEP_S:
            self._sweep(known)
        return known

    def _new(self) -> _Topic:
        if len(self._topics) >= MOST_TOPICS:
            del self._topics[next(iter(self._topics))]
        known = _Topic()
        self._sweep(known)
        return known

    def _sweep(self, known: _Topic) -> None:
        """Add all shards to the doubts. A shard that was not asked since the last sweep, because others had enough
        jobs, gets its turn now."""
        if known.marks:
            known.mark_doubts(known.sweep)
        known.sweep, known.sweep_at = next(self._stamps), self._now()
        for turn in range(len(self._stands)):
            shard = (known.sweep + turn) % len(self._stands)
            if shard not in known.marks:
                known.doubts.setdefault(shard, known.sweep)

    def asked(self, shard: int, topics: Sequence[str]) -> int:
        """A pop of these topics is sent to the shard, so the next pop asks other shards first; returns the pop's
        stamp."""
        for topic in topics:
            known = self._topics.get(topic)
            if known:
                for shards in (known.marks, known.doubts):
                    if shard in shards:
                        shards[shard] = shards.pop(shard)
        return next(self._stamps)

    def emptied(self, shard: int, topics: Sequence[str], stamp: int) -> None:
        """The pop with this stamp found no ready jobs of these topics in the shard, or took the last ones."""
        for topic in topics:
            known = self._topics.get(topic)
            if known is None:
                continue
            for shards in (known.marks, known.doubts):
                if shards.get(shard, stamp) < stamp:
                    del shards[shard]
            if not self._stands[shard]:
                known.doubts.setdefault(shard, stamp)

    def left(self, shard: int, topic: str, jobs: int, stamp: int) -> None:
        """The pop with this stamp found jobs of the topic in the shard, and left `jobs` ready ones there."""
        known = self._topics.get(topic)
        if not jobs:
            self.emptied(shard, (topic,), stamp)
        elif known and shard not in known.marks and self._stands[shard]:
            at = known.doubts.pop(shard, stamp)
            known.mark_doubts(stamp)
            known.marks[shard] = at  # after those that were not asked
