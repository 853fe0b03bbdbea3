"""The life of some jobs in which each command and each script gets its turn; the same every time.

It retries what was not answered, like a client, and assumes that a pop whose answer was lost holds a job for a TTR.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from tests.chaos.codes import TEMPORARY
from tests.chaos.history import Event, History
from tests.chaos.judges.final_counts import LIVE
from tests.chaos.load.load import TOPICS
from tests.chaos.load.participant import Fields, Participant
from tests.chaos.load.wire import NotAnswered, NotSent, Wire

TTR_S = 0.4
_PAUSE_S = 0.01
_RETENTION_S = 3600.0
_FAR_S = 3600.0
_KEY = "customer:7"
_HISTORY = {"add", "pop", "finish", "delete", "touch", "release", "bury"}
(PLAIN, BATCH, COPIES, SLOW, DELAYED, TRIED, PAUSED, PURGED, CHANGED, LAPSED) = TOPICS[:10]
MORE_COPIES, KEYED = TOPICS[10:12]
VIRTUAL = "both"
VIRTUAL_TOPICS = {VIRTUAL: (COPIES, MORE_COPIES)}
CALLED = ("run:1",)
"""Jobs that are made due before the due time of their add."""

Handle = Callable[[Fields], Awaitable[bool]]


class ScriptedLife(Participant):
    """`run` plays it once, on an empty queue."""

    def __init__(self, name: str, history: History, wire: Wire) -> None:
        super().__init__(name, history, wire, random.Random(0))
        self.ids: list[str] = []
        self.errors: list[Fields] = []
        """Answers that neither a fault nor a retry explains."""

    async def run(self) -> None:
        for part in (
            # Reads come early: later there are more topics, and a life for each command that reads one.
            *(self._plain, self._looks, self._batches, self._copies, self._endings, self._delayed, self._tries),
            *(self._paused, self._keyed, self._purged, self._changed, self._lapsed, self._vanish),
        ):
            await part()

    async def drain(self, until: asyncio.Event) -> None:
        """Finish everything that is or becomes ready."""
        while not until.is_set():
            (answer,) = await self.ask({"command": "pop", "topics": TOPICS, "count": 10, "wait": 0.2})
            for job in answer.get("jobs", ()):
                await self._finish(job)
            if not answer["success"]:
                await asyncio.sleep(_PAUSE_S)

    async def _tell(self, *commands: Fields) -> list[Fields]:
        """Ask until each command has a final answer. If the history lacks the first try, the answer may be that it was
        done already.
        """
        answers = await self._repeat(list(commands))
        for command, answer in zip(commands, answers, strict=True):
            if not answer["success"] and command["command"] not in _HISTORY and "state" not in answer:
                self.errors.append(answer)
        return answers

    async def _repeat(self, commands: list[Fields]) -> list[Fields]:
        last: list[Fields] = [{}] * len(commands)
        todo = list(range(len(commands)))
        while todo:
            asked = [commands[place] for place in todo]
            kept = all(command["command"] in _HISTORY for command in asked)
            answers = await (self.ask(*asked) if kept else self._ask_unrecorded(asked))
            for place, answer in zip(todo, answers, strict=True):
                last[place] = answer
            todo = [place for place in todo if last[place].get("code") in TEMPORARY]
            if todo:
                await asyncio.sleep(_PAUSE_S)
        return last

    async def _ask_unrecorded(self, commands: Sequence[Fields]) -> list[Fields]:
        try:
            return await self._wire.exchange(list(commands))
        except (NotSent, NotAnswered):
            return [{"success": False, "code": "NOT_ANSWERED"}] * len(commands)

    def _job(self, topic: str, number: int = 1, *, name: str = "", **fields: object) -> Fields:
        job = f"{name or topic}:{number}"
        self.ids.append(job)
        told = {"command": "add", "topic": topic, "id": job, "delay": 0, "ttr": TTR_S, "tries": 0, "body": number}
        return told | {"retention": _RETENTION_S} | fields

    def _job_with_key(self, topic: str, number: int, **fields: object) -> Fields:
        return self._job(topic, number, name=f"{_KEY}@{topic}", key=_KEY, **fields)

    async def _handled(self, topic: str, handle: Handle, number: int = 1, **fields: object) -> None:
        """Pop until this many jobs of a topic were handled; `handle` returns whether one was."""
        while number > 0:
            pop = {"command": "pop", "topic": topic, "count": number, "wait": 1.0, **fields}
            (answer,) = await self._tell(pop)
            for job in answer.get("jobs", ()):
                number -= await handle(job)
            if not answer.get("jobs") and not await self._is_pending(topic):
                return  # `handle` did more than its answer showed

    async def _is_pending(self, topic: str) -> bool:
        (answer,) = await self._tell({"command": "stats", "topic": topic})
        return any(answer["counts"].get(state) for state in LIVE)

    async def _finish(self, job: Fields) -> bool:
        (answer,) = await self._tell({"command": "finish", "id": job["id"], "lease": job["lease"]})
        return bool(answer["success"])

    async def _plain(self) -> None:
        """add, pop, touch, finish; and a repeated add, which finds the tombstone."""
        add = self._job(PLAIN)
        await self._tell(add)

        async def work(job: Fields) -> bool:
            await self._tell({"command": "touch", "id": job["id"], "lease": job["lease"], "ttr": TTR_S})
            return await self._finish(job)

        await self._handled(PLAIN, work)
        await self._tell(add)
        await self._tell(self._job(PLAIN, 3, durability="replicated"))
        await self._handled(PLAIN, self._finish)

    async def _batches(self) -> None:
        """An array of adds, then a worker's usual request: finishes and the next pop."""
        await self._tell(*(self._job(BATCH, each, priority=each % 3) for each in range(1, 7)))
        (answer,) = await self._tell({"command": "pop", "topic": BATCH, "count": 3, "wait": 1.0})
        finishes = [{"command": "finish", "id": job["id"], "lease": job["lease"]} for job in answer.get("jobs", ())]
        *_, popped = await self.ask(*finishes, {"command": "pop", "topic": BATCH, "count": 2, "wait": 0})
        done = len(finishes) + sum([await self._finish(job) for job in popped.get("jobs", ())])
        await self._handled(BATCH, self._finish, 6 - done)

    async def _copies(self) -> None:
        """A virtual topic: all of its jobs or none. The history has an add for each."""
        ids = [f"copy@{topic}" for topic in VIRTUAL_TOPICS[VIRTUAL]]
        self.ids += ids
        told = {"delay": 0, "ttr": TTR_S, "tries": 0, "body": 1}
        add = {"command": "add", "topic": VIRTUAL, "id": "copy", "retention": _RETENTION_S, **told}
        ops = [
            self._history.invoke(self.name, "add", id=each, topic=topic, **told)
            for each, topic in zip(ids, VIRTUAL_TOPICS[VIRTUAL], strict=True)
        ]
        (answer,) = await self._repeat_unrecorded(add)
        for op, each in zip(ops, answer["jobs"], strict=True):
            fields = {name: each[name] for name in ("id", "topic", "state", "due", "result")}
            self._history.complete(self.name, "ok", "add", op, **fields)
        for topic in VIRTUAL_TOPICS[VIRTUAL]:
            await self._handled(topic, self._finish)

    async def _repeat_unrecorded(self, command: Fields) -> list[Fields]:
        while True:
            answers = await self._ask_unrecorded([command])
            if answers[0].get("code") not in TEMPORARY:
                return answers
            await asyncio.sleep(_PAUSE_S)

    async def _endings(self) -> None:
        """release, bury and finish jobs of one pop; delete a reserved and a delayed one."""
        await self._tell(*(self._job(SLOW, each) for each in range(1, 5)))
        done: set[str] = set()

        async def work(job: Fields) -> bool:
            lease = {"id": job["id"], "lease": job["lease"]}
            match job["value"]:
                case 1 if "released" not in done:
                    (answer,) = await self._tell({"command": "release", "delay": 0.02, **lease})
                    if answer.get("state") in ("delayed", "ready"):
                        done.add("released")
                    return False
                case 2:
                    (answer,) = await self._tell({"command": "bury", "reason": "unfit", **lease})
                    return bool(answer.get("state") == "dead")
                case 3:
                    (answer,) = await self._tell({"command": "delete", "id": job["id"]})
                    return bool(answer["success"])
            return await self._finish(job)

        await self._handled(SLOW, work, 4)
        await self._tell(self._job(SLOW, 5, delay=_FAR_S))
        await self._tell({"command": "delete", "id": f"{SLOW}:5"})

    async def _delayed(self) -> None:
        """Jobs that fall due while a pop waits, in each bucket."""
        await self._tell(*(self._job(DELAYED, each, delay=0.05 + each / 100) for each in range(1, 5)))
        await self._handled(DELAYED, self._finish, 4)

    async def _tries(self) -> None:
        """A lease that expires, and its job comes again; and one whose tries are then used up."""
        await self._tell(self._job(TRIED, 1, ttr=0.1), self._job(TRIED, 2, ttr=0.1, tries=1))
        await self._tell({"command": "pop", "topic": TRIED, "count": 2, "wait": 1.0})  # and it is never heard of again
        await self._handled(TRIED, self._finish)

    async def _paused(self) -> None:
        await self._tell(self._job(PAUSED))
        await self._tell({"command": "pause", "topic": PAUSED})
        await self._tell({"command": "pop", "topic": PAUSED, "count": 1})
        await self._tell({"command": "resume", "topic": PAUSED})
        await self._handled(PAUSED, self._finish)

    async def _keyed(self) -> None:
        """Jobs of a key, of which the first comes back once, and a look at those that wait."""
        await self._tell(*(self._job_with_key(KEYED, each) for each in range(1, 4)))
        await self._tell({"command": "peek", "topic": KEYED, "state": "ready"})

        async def work(job: Fields) -> bool:
            if job["value"] == 1 and job["attempt"] == 1:
                await self._tell({"command": "release", "delay": 0.02, "id": job["id"], "lease": job["lease"]})
                return False
            return await self._finish(job)

        await self._handled(KEYED, work, 3)

    async def _purged(self) -> None:
        """purge ready jobs, of which one waits for its key, and delayed ones. The history has a delete for each."""
        jobs = [self._job_with_key(PURGED, each, delay=_FAR_S if each > 2 else 0) for each in range(1, 5)]
        await self._tell(*jobs)
        ops = [self._history.invoke(self.name, "delete", id=job["id"]) for job in jobs]
        cursor: str | None = ""
        while cursor is not None:
            (answer,) = await self._tell({"command": "purge", "topic": PURGED} | ({"cursor": cursor} if cursor else {}))
            cursor = answer["cursor"]
        for op, job in zip(ops, jobs, strict=True):
            self._history.complete(self.name, "ok", "delete", op, id=job["id"], state="deleted")

    async def _changed(self) -> None:
        """update time, priority and body; run."""
        await self._tell(self._job(CHANGED, 1, delay=0.02))
        await self._tell({"command": "update", "id": f"{CHANGED}:1", "delay": _FAR_S})
        await self._tell({"command": "update", "id": f"{CHANGED}:1", "delay": 0.1, "priority": 7})
        await self._tell(self._job(CHANGED, 2, delay=0.1, body=0))
        await self._tell({"command": "update", "id": f"{CHANGED}:2", "body": 0})
        await self._tell(self._job(CHANGED, 1, name="run", delay=_FAR_S))
        await self._tell({"command": "run", "id": CALLED[0]})
        await self._handled(CHANGED, self._finish, 3)

    async def _lapsed(self) -> None:
        """Jobs that nobody pops within their ttl die, and are kicked: one by id, the others by topic."""
        await self._tell(*(self._job(LAPSED, each, ttl=0.1) for each in range(1, 4)))
        last, state = f"{LAPSED}:3", ""
        while state != "dead":
            await asyncio.sleep(TTR_S / 4)
            (answer,) = await self._tell({"command": "get", "id": last})
            state = answer["state"]
        await self._tell({"command": "kick", "id": f"{LAPSED}:1"})
        await self._tell({"command": "kick", "topic": LAPSED, "count": 10})

    async def _looks(self) -> None:
        """Commands that change nothing."""
        for command in ("stats", "topics"):
            await self._tell({"command": command})
        await self._tell({"command": "peek", "topic": PLAIN, "state": "ready"})
        await self._tell({"command": "peek", "topic": PLAIN, "state": "dead"})
        await self._tell({"command": "get", "id": f"{PLAIN}:1"})
        await self._tell({"command": "leave", "worker": "nobody"})

    async def _vanish(self) -> None:
        """A client that hangs up while it waits; the next one gets what comes then."""
        wire = Wire([self._wire.url])
        gone = Participant("gone", self._history, wire, self.chance)
        waiting = asyncio.create_task(gone.ask({"command": "pop", "topic": PLAIN, "count": 1, "wait": 5}))
        await asyncio.sleep(_PAUSE_S)
        adding = asyncio.create_task(self._tell(self._job(PLAIN, 2)))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await adding
        await self._handled(PLAIN, self._finish)


def without_calls(events: Sequence[Event]) -> list[Event]:
    """The history for a checker that does not know `run`: the adds of such jobs give no due time."""
    for event in events:
        if event.command == "add" and event.id in CALLED:
            event.due = None
            event.delay = None if event.delay is None else 0
    return list(events)
