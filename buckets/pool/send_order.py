"""When a batch has left for Redis, so that what is asked for next comes behind it."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType

from buckets.keys import shard_of
from buckets.redis.link import Sent
from buckets.shards import Item, OneScript, Shards

_LOOK_S = 0.1  # between two looks whether the server of a shard is away


class SendOrder:
    """Calls `sent` once, when the scripts for some items are on the connections of all their shards. `with` it, the
    items may be handed in; afterwards `sent` is not called any more.

    A shard whose server is away while another one can be asked counts as sent: a pop asks no such shard either, so it
    cannot get ahead of anything there. Items that need several scripts of one shard never count as sent, as a script
    that Redis refuses for now is sent again.
    """

    def __init__(self, shards: Shards, items: list[Item], sent: Sent) -> None:
        """Marks the last item of each shard, in `items`."""
        self._shards = shards
        self._sent = sent
        self._unsent: set[int] = set()
        self._next: asyncio.TimerHandle | None = None
        if OneScript().take(items):
            last = {shard_of(item.id, len(shards.keys)): index for index, item in enumerate(items)}
            self._unsent.update(last)
            for shard, index in last.items():
                items[index] = items[index]._replace(sent=partial(self._mark, shard))

    def __enter__(self) -> SendOrder:
        if len(self._shards.keys) > 1:
            self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsent.clear()
        if self._next:
            self._next.cancel()

    def _mark(self, shard: int) -> None:
        if shard in self._unsent:
            self._unsent.discard(shard)
            if not self._unsent:
                self._sent()

    def _look(self) -> None:
        for shard in [each for each in self._unsent if self._shards.is_passed_over(each)]:
            self._mark(shard)
        if self._unsent:
            self._next = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
