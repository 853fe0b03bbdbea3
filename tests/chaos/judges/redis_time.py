"""Which of two events came first on Redis's clock, where the times of sending and hearing do not decide."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tests.chaos.history import Event
from tests.chaos.judges.lives import Act, Delivery


class RedisTime:
    """The commands whose answers reported Redis's time, by the time at which they were sent."""

    def __init__(self, events: Iterable[Event]) -> None:
        sent: dict[tuple[str, int], float] = {}
        told: list[tuple[float, float]] = []
        for event in events:
            if event.kind == "invoke":
                sent[event.process, event.op] = event.at
            elif event.kind == "ok" and event.redis is not None:
                told.append((sent[event.process, event.op], event.redis))
        told.sort()
        self._sent = [at for at, _ in told]
        self._redis = [redis for _, redis in told]

    def is_after(self, delivery: Delivery, act: Act) -> bool:
        """Whether a delivery certainly came after an act whose answer was heard.

        It did if its pop was sent after that; and if its lease is above the time of something else that was sent after
        that. (Redis's clock must not go back: a pop that waited across such a jump is judged wrongly.)
        """
        if act.answer is None:
            return False
        if delivery.invoke.at > act.answer.at:
            return True
        place = bisect_left(self._sent, act.answer.at)
        later = place < len(self._sent) and delivery.lease / 1e6 > self._redis[place]
        return later and delivery.answer.at > act.answer.at
