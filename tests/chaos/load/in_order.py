"""The part of the load that shows in which order jobs are handed out: topics with one producer and one consumer each.

The producer sends one request after another, and the consumer has one job at a time, so that both know an order that
the checker (judges/order.py) can compare. Bursts make jobs wait behind others: with two priorities, ready at once or a
moment later, and some released by their consumer.
"""

from __future__ import annotations

import asyncio
import random

from tests.chaos.history import History
from tests.chaos.load.participant import Fields, Participant
from tests.chaos.load.wire import Wire

IN_ORDER = ("in-order-0", "in-order-1")
"""The topics. On a Cluster each is in one shard, because its ids are the same up to their first `@`: order is promised
only within a shard.
"""
_PRIORITIES = (4, 4, 4, 6)
_DELAY_S = 0.02
_SEEN_S = 0.03  # after which it should be ready
_HANDLED_S = 0.008  # so that a job waits behind it
_GIVEN_BACK = 0.1  # share of the jobs


class OrderedProducer(Participant):
    """Adds jobs in bursts until told to stop. `lasting`: fields of all its jobs."""

    def __init__(
        self, topic: str, name: str, history: History, wire: Wire, chance: random.Random, lasting: Fields
    ) -> None:
        super().__init__(name, history, wire, chance)
        self._topic = topic
        self._lasting = lasting
        self.ids: list[str] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            late = self._job(_DELAY_S)
            await self.insist(late, *(self._job() for _ in range(self.chance.choice((0, 3, 8)))))
            await asyncio.sleep(_SEEN_S)
            await self.ask({"command": "get", "id": late["id"]})  # by then it is known to be ready, if it is
            await self.insist(*(self._job() for _ in range(2)))
            await asyncio.sleep(self.chance.uniform(0, 1))

    def _job(self, delay_s: float = 0.0) -> Fields:
        number = len(self.ids)
        self.ids.append(f"{self._topic}@{number}")
        priority = self.chance.choice(_PRIORITIES)
        job = {"command": "add", "topic": self._topic, "id": self.ids[-1], "delay": delay_s, "priority": priority}
        return job | self._lasting | {"tries": 0, "body": number}


class OrderedConsumer(Participant):
    """Pops one job, and the next once that is dealt with, until told to stop."""

    def __init__(self, topic: str, name: str, history: History, wire: Wire, chance: random.Random) -> None:
        super().__init__(name, history, wire, chance)
        self._topic = topic
        self.careful = False
        """From now on, release nothing, so that the queue drains."""

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            (answer,) = await self.ask({"command": "pop", "topic": self._topic, "wait": 0.5})
            if answer.get("id"):
                await asyncio.sleep(_HANDLED_S)
                await self._end(answer)
            elif not answer["success"]:
                await asyncio.sleep(self.chance.uniform(0, 0.1))

    async def _end(self, job: Fields) -> None:
        word: Fields = {"id": job["id"], "lease": job["lease"]}
        if not self.careful and self.chance.random() < _GIVEN_BACK:
            word |= {"command": "release", "delay": 0, "attempt": self.chance.random() < 0.5}
        else:
            word |= {"command": "finish"}
        await self.insist(word, for_s=10)
