"""Where ready jobs may be: which shards a pop asks, in which order, and for which topics.

The jobs of a topic lie in all shards, and a pop that asked each of them would cost a script a shard. So a process
remembers, by topic, the shards that said on their bell that they have some (marks), and those of which it does not know
(doubts): all of them for a topic that is new here, a shard that it does not hear, and all once a second, as a message
may be lost. A shard that answered that it has none is neither.

A pop and the bell travel on different connections. So both have a stamp, a number that rises: an answer takes away only
what was known when its pop left, and not what was heard meanwhile.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence

MOST_TOPICS = 10_000  # remembered; those that were not asked for the longest go, and are new when they come again
_SWEEP_S = 1.0


class _Topic:
    """Shards with the stamps of when they came to be here, those first that were asked the longest ago."""

    __slots__ = ("doubts", "marks", "stirred", "sweep", "sweep_at")

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.doubts: dict[int, int] = {}
        self.stirred = 0  # the stirs up to this stamp are in the doubts
        self.sweep = 0  # the stamp of the last sweep
        self.sweep_at = 0.0  # and its time, s

    def mark_doubts(self, last: int) -> None:
        """Those that were doubted up to that stamp take turns with the marked ones."""
        for shard in [shard for shard, stamp in self.doubts.items() if stamp <= last]:
            self.marks.setdefault(shard, self.doubts.pop(shard))


class ReadyShards:
    """What one process knows of the shards of a namespace: nothing of one until `stands` is called for it."""

    def __init__(self, shards: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds, for the sweep."""
        self._now = now
        self._stamps = itertools.count(random.randrange(1, shards + 1))  # each process begins elsewhere
        self._stands = [False] * shards
        self._stirs = [0] * shards  # when something may have come to the shard, nobody knows for which topic
        self._last_stir = 0
        self._topics: dict[str, _Topic] = {}  # the one used last at the end

    def stands(self, shard: int) -> None:
        """The shard is heard from now on; what it said before is not known."""
        self._stands[shard] = True
        self.stir(shard)

    def lost(self, shard: int) -> None:
        """The shard is not heard any more."""
        self._stands[shard] = False
        self.stir(shard)

    def stir(self, shard: int) -> None:
        """Jobs of some topic may be ready in the shard."""
        self._stirs[shard] = self._last_stir = next(self._stamps)

    def stir_topic(self, shard: int, topic: str) -> None:
        """Jobs of the topic may be ready in the shard, which tells by itself if there is someone to be woken for it."""
        known = self._topics.get(topic)
        if known:
            known.doubts[shard] = next(self._stamps)

    def heard(self, shard: int, topic: str) -> None:
        """The shard has ready jobs of the topic."""
        known = self._topics.get(topic)
        if known and self._stands[shard]:
            known.marks[shard] = next(self._stamps)

    def expected(self, topic: str) -> bool:
        """Whether one who waits for the topic has a reason to look."""
        known = self._topics.get(topic)
        return not known or bool(known.marks) or not all(self._stands)

    def places(self, topics: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """Which shards to ask for which topics, one after the other, until there is enough. The topics keep their order
        so far as is known where their jobs are; those of which nothing is known are asked for together."""
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
        """Doubt all shards. One that was not asked since the sweep before, as others had enough, has its turn now."""
        if known.marks:
            known.mark_doubts(known.sweep)
        known.sweep, known.sweep_at = next(self._stamps), self._now()
        for turn in range(len(self._stands)):
            shard = (known.sweep + turn) % len(self._stands)
            if shard not in known.marks:
                known.doubts.setdefault(shard, known.sweep)

    def asked(self, shard: int, topics: Sequence[str]) -> int:
        """A pop leaves now, and others shall ask other shards first; its stamp."""
        for topic in topics:
            known = self._topics.get(topic)
            if known:
                for place in (known.marks, known.doubts):
                    if shard in place:
                        place[shard] = place.pop(shard)
        return next(self._stamps)

    def emptied(self, shard: int, topics: Sequence[str], stamp: int) -> None:
        """The pop that left at `stamp` found, or left, no more ready jobs of these topics in the shard."""
        for topic in topics:
            known = self._topics.get(topic)
            if known is None:
                continue
            for place in (known.marks, known.doubts):
                if place.get(shard, stamp) < stamp:
                    del place[shard]
            if not self._stands[shard]:
                known.doubts.setdefault(shard, stamp)

    def left(self, shard: int, topic: str, jobs: int, stamp: int) -> None:
        """The pop that left at `stamp` found jobs of the topic in the shard, and left so many ready ones."""
        known = self._topics.get(topic)
        if not jobs:
            self.emptied(shard, (topic,), stamp)
        elif known and shard not in known.marks and self._stands[shard]:
            at = known.doubts.pop(shard, stamp)
            known.mark_doubts(stamp)
            known.marks[shard] = at  # behind those that were not asked
