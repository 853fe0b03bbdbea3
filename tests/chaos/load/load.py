"""The load: producers and consumers over HTTP, on one or more services.

Jobs of 20 topics have delays of 0 to 3 s and a TTR of 2 s. In one topic some have one of a few keys. Some jobs are
deleted. Of those that are popped, most are finished; others are touched first, released, buried, or abandoned as by a
handler that died. All of it follows from the seed, except for what races decide.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.chaos.history import History
from tests.chaos.load.in_order import IN_ORDER, OrderedConsumer, OrderedProducer
from tests.chaos.load.participant import Fields, Participant
from tests.chaos.load.scheduling import Scheduler, Timetable, agendas
from tests.chaos.load.wire import Wire

TOPICS = [f"topic-{number}" for number in range(20)]
TTR_S = 2.0
LONGEST_DELAY_S = 3.0
RETENTION_S = 7200.0
"""Longer than any run, so that ended jobs are remembered until the final reads."""
_DELETED = 0.04  # of the jobs
_KEYED = 0.15  # of the jobs, all in one topic
_TOPIC_OF_KEYS = TOPICS[0]
_KEYS = [f"key-{number}" for number in range(8)]
_SEEN_S = 0.05  # after which a due job should be ready
_LIMITED = 0.1  # share of the jobs with three tries; the others have no limit
_WAYS = {"die": 2, "late": 2, "release": 5, "bury": 1, "touch": 3, "dawdle": 2, "finish": 85}
"""What handlers do, in percent; `die` never answers, `late` answers around the end of its lease."""
_WAYS_AGAIN = _WAYS | {"late": 40, "finish": 47}
"""The same for jobs that were delivered before, so that two holders of one job meet."""
_LATE_WORDS: list[Fields] = [
    {"command": "finish"},
    {"command": "touch", "ttr": TTR_S},
    {"command": "release", "delay": 0.1},
]
_DAWDLE_S = 0.2


@dataclass(frozen=True)
class Work:
    """How much load: `rate` jobs per second from `producers`; the durability classes are requested in turn."""

    rate: float = 150.0
    producers: int = 3
    consumers: int = 8
    durabilities: tuple[str, ...] = ("local",)
    in_order: tuple[str, ...] = IN_ORDER  # topics with one producer and one consumer
    timetable: Timetable | None = None


class Producer(Participant):
    """Adds jobs until told to stop, deletes some, and looks whether those with a key are ready once they are due."""

    def __init__(self, name: str, history: History, wire: Wire, chance: random.Random, work: Work) -> None:
        super().__init__(name, history, wire, chance)
        self._work = work
        self._pause_s = work.producers / work.rate  # a job
        self._later: list[tuple[float, Fields]] = []  # loop time, and the command to send then
        self.ids: list[str] = []

    async def run(self, stop: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        while not stop.is_set():
            jobs = [self._job() for _ in range(self.chance.choice((1, 1, 1, 5)))]
            next_at = clock() + len(jobs) * self._pause_s
            for job, answer in zip(jobs, await self.insist(*jobs), strict=True):
                if answer["success"]:
                    self._plan(job, clock())
            await self._send_due(clock())
            await asyncio.sleep(max(0.0, next_at - clock()))
        await self._send_due(float("inf"))

    def _job(self) -> Fields:
        number = len(self.ids)
        key = self.chance.choice(_KEYS) if self.chance.random() < _KEYED else None
        self.ids.append(f"{key}@{self.name}:{number}" if key else f"{self.name}:{number}")
        delay = 0 if self.chance.random() < 0.2 else round(self.chance.uniform(0, LONGEST_DELAY_S), 3)
        tries = 3 if self.chance.random() < _LIMITED else 0
        topic = {"topic": _TOPIC_OF_KEYS, "key": key} if key else {"topic": self.chance.choice(TOPICS)}
        job = {"command": "add", "id": self.ids[-1], "delay": delay} | topic
        durability = self._work.durabilities[number % len(self._work.durabilities)]
        return job | {"ttr": TTR_S, "tries": tries, "retention": RETENTION_S, "body": number, "durability": durability}

    def _plan(self, job: Fields, now: float) -> None:
        """Plan what comes of a job that was added."""
        if self.chance.random() < _DELETED:
            word = {"command": "delete", "id": job["id"], "durability": self._work.durabilities[0]}
            self._later.append((now + self.chance.uniform(0, LONGEST_DELAY_S), word))
        if "key" in job:
            self._later.append((now + job["delay"] + _SEEN_S, {"command": "get", "id": job["id"]}))

    async def _send_due(self, until: float) -> None:
        """Send the planned commands that are due."""
        words = [word for at, word in self._later if at <= until]
        self._later = [(at, word) for at, word in self._later if at > until]
        if words:
            await self.insist(*words)


class Consumer(Participant):
    """Pops until told to stop, and treats each job as chance decides."""

    def __init__(self, name: str, history: History, wire: Wire, chance: random.Random, work: Work) -> None:
        super().__init__(name, history, wire, chance)
        self._work = work
        self._late: list[tuple[float, Fields]] = []  # loop time, and the command to send then
        self.careful = False
        """From now on, finish each job at once, so that the queue drains."""

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._come_late(asyncio.get_running_loop().time())
            topics = self.chance.sample(TOPICS, len(TOPICS))
            pop = {"command": "pop", "topics": topics, "count": self.chance.choice((1, 5)), "wait": 0.5}
            (answer,) = await self.ask(pop)
            for job in answer.get("jobs", ()):
                await self._handle(job)
            if not answer["success"]:
                await asyncio.sleep(self.chance.uniform(0, 0.1))

    async def _handle(self, job: Fields) -> None:
        lease: Fields = {"id": job["id"], "lease": job["lease"]}
        match self._way(job):
            case "die":
                return
            case "late":
                at = asyncio.get_running_loop().time() + self.chance.uniform(0.5, 1.5) * TTR_S
                self._late.append((at, lease | self.chance.choice(_LATE_WORDS)))
                return
            case "release":
                counts, delay = self.chance.random() < 0.5, round(self.chance.uniform(0, 1), 3)
                await self.insist(lease | {"command": "release", "delay": delay, "attempt": counts}, for_s=TTR_S)
                return
            case "bury":
                await self.insist(lease | {"command": "bury"}, for_s=TTR_S)
                return
            case "touch":
                await self.insist(lease | {"command": "touch", "ttr": TTR_S}, for_s=TTR_S)
            case "dawdle":
                await asyncio.sleep(_DAWDLE_S)
        durability = self._work.durabilities[job["value"] % len(self._work.durabilities)]
        await self.insist(lease | {"command": "finish", "durability": durability}, for_s=10)

    def _way(self, job: Fields) -> str:
        """The behaviour of the handler of a job."""
        if self.careful:
            return "finish"
        ways = _WAYS if job["attempt"] == 1 else _WAYS_AGAIN
        return self.chance.choices(list(ways), list(ways.values()))[0]

    async def _come_late(self, now: float) -> None:
        """Send the late commands that are due."""
        words = [word for at, word in self._late if at <= now]
        self._late = [(at, word) for at, word in self._late if at > now]
        if words:
            await self.insist(*words, for_s=TTR_S)


class Load:
    """Producers and consumers in one process, each on its own connection."""

    def __init__(self, history: History, urls: list[str], seed: int, work: Work, name: str = "") -> None:
        number = work.producers + work.consumers + 2 * len(work.in_order) + bool(work.timetable)
        self._wires = [Wire(urls, first) for first in range(number)]
        wires = iter(self._wires)

        def chance(who: str) -> random.Random:
            return random.Random(f"{seed} {who}")

        producers = [f"{name}p{number}" for number in range(work.producers)]
        consumers = [f"{name}c{number}" for number in range(work.consumers)]
        lasting = {"ttr": TTR_S, "retention": RETENTION_S}
        timetables = [agendas(work.timetable, TOPICS, lasting)] if work.timetable else []
        self.producers: list[Producer | OrderedProducer | Scheduler] = [
            *(Producer(who, history, next(wires), chance(who), work) for who in producers),
            *(
                OrderedProducer(topic, who := f"{topic}-p", history, next(wires), chance(who), lasting)
                for topic in work.in_order
            ),
            *(
                Scheduler(who := "scheduler", history, next(wires), chance(who), plans, work.durabilities[-1])
                for plans in timetables
            ),
        ]
        self.consumers: list[Consumer | OrderedConsumer] = [
            *(Consumer(who, history, next(wires), chance(who), work) for who in consumers),
            *(
                OrderedConsumer(topic, who := f"{topic}-c", history, next(wires), chance(who))
                for topic in work.in_order
            ),
        ]

    @property
    def ids(self) -> list[str]:
        """The ids of all jobs that anyone tried to add."""
        return [job for producer in self.producers for job in producer.ids]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        """Run the load while the block runs. Yields a function that stops the producers and then makes the consumers
        careful."""
        enough, stop = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for consumer in self.consumers:
                group.create_task(consumer.run(stop))
            makers = [group.create_task(producer.run(enough)) for producer in self.producers]

            async def end_adds() -> None:
                enough.set()
                await asyncio.wait(makers)
                for consumer in self.consumers:
                    consumer.careful = True

            try:
                yield end_adds
            finally:
                enough.set()
                stop.set()
        for wire in self._wires:
            wire.give_up()
