"""The part of the load that has schedules: it defines them, and reads how far they got before it removes them.

Half are intervals, half are calendars with seconds, all spread over their period. Most make up for all that they
missed; some only for the last time or for none, and some skip a time while the last occurrence is not done.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.codes import TEMPORARY
from tests.chaos.history import History
from tests.chaos.load.participant import Fields, Participant
from tests.chaos.load.wire import NotAnswered, NotSent, Wire

_DAY_S = 86_400
_AT_ONCE = 100
_PAUSE_S = 0.1
_PATIENCE_S = 60.0
_RULES: dict[int, Fields] = {
    7: {"catch_up": "last"},
    8: {"catch_up": "none"},
    9: {"catch_up": "last", "overlap": "skip"},
}
"""Of one schedule in ten each; the others catch up on all."""


@dataclass(frozen=True)
class Timetable:
    """How many schedules there are. `periods`: their intervals, in seconds, each a divisor of 60; they take turns."""

    schedules: int
    periods: tuple[int, ...] = (60,)


@dataclass(frozen=True)
class Agenda:
    """A schedule, and its times: every so many seconds, counted from a unix time."""

    command: Fields
    every: int
    start: float

    def times(self, begin: float, end: float) -> list[float]:
        """Its times from one until before another, in unix seconds."""
        every_ms, start_ms = self.every * 1000, round(self.start * 1000)
        first = -(-(round(begin * 1000) - start_ms) // every_ms)
        last = -(-(round(end * 1000) - start_ms) // every_ms)
        return [(start_ms + turn * every_ms) / 1000 for turn in range(first, last)]


def agendas(table: Timetable, topics: Sequence[str], options: Fields) -> list[Agenda]:
    """The schedules of a run."""
    day = float(time.time() // _DAY_S * _DAY_S)
    found = []
    for number in range(table.schedules):
        every = table.periods[number % len(table.periods)]
        place_s = number * every / table.schedules  # within the period
        rules = {"catch_up": "all", "overlap": "allow"} | _RULES.get(number // len(table.periods) % 10, {})
        command = {
            "name": f"schedule-{number}",
            "topic": topics[number % len(topics)],
            "body": number,
            **options,
            **rules,
        }
        if number % 2:
            second = int(place_s)
            seconds = ",".join(map(str, range(second, 60, every)))
            found.append(Agenda(command | {"cron": f"{seconds} * * * * *"}, every, day + second))
        else:
            start = round(day + place_s, 3)
            found.append(Agenda(command | {"every": every, "start": start}, every, start))
    return found


class Scheduler(Participant):
    """Defines schedules, each again and again, which changes nothing. Once told to stop, it waits until each has come
    to the present, and removes it."""

    def __init__(
        self, name: str, history: History, wire: Wire, chance: random.Random, plans: Sequence[Agenda], durability: str
    ) -> None:
        super().__init__(name, history, wire, chance)
        self._plans = {plan.command["name"]: plan for plan in plans}
        self._durability = durability
        self._first: dict[str, float] = {}
        self.ids: list[str] = []
        """Of all occurrences that may be there, once it has ended."""

    async def run(self, stop: asyncio.Event) -> None:
        plans = list(self._plans.values())
        for place in range(0, len(plans), _AT_ONCE):
            await self._define(plans[place : place + _AT_ONCE])
        while not stop.is_set():
            await self._define([self.chance.choice(plans)])
            await asyncio.sleep(_PAUSE_S)
        await self._present(time.time())
        names = list(self._plans)
        for place in range(0, len(names), _AT_ONCE):
            await self._final([{"command": "unschedule", "name": name} for name in names[place : place + _AT_ONCE]])
        for name, first in self._first.items():
            times = self._plans[name].times(first, time.time())
            self.ids += [f"{name}@{round(each * 1000)}" for each in times]

    async def _define(self, plans: Sequence[Agenda]) -> None:
        kept = ("topic", "body", "catch_up", "overlap")
        ops = []
        for plan in plans:
            told = {name: plan.command[name] for name in kept} | {"every": plan.every, "start": plan.start}
            ops.append(self._history.invoke(self.name, "schedule", id=plan.command["name"], **told))
        answers = await self._final(
            [{"command": "schedule", "durability": self._durability, **plan.command} for plan in plans]
        )
        for op, plan, answer in zip(ops, plans, answers, strict=True):
            name = plan.command["name"]
            if answer["success"]:
                self._first.setdefault(name, answer["next"])
                told = {"due": answer["next"], "result": answer["result"], "durability": answer.get("durability")}
                self._history.complete(self.name, "ok", "schedule", op, id=name, **told)
            else:
                self._history.complete(self.name, "fail", "schedule", op, id=name, code=answer["code"])

    async def _present(self, moment: float) -> None:
        """Record the next time of each schedule, as soon as all are after a moment, or else as they were seen last."""
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            op = self._history.invoke(self.name, "schedules")
            reached = await self._listing()
            is_late = len(reached) < len(self._plans) or any(each <= moment for each in reached.values())
            if not is_late or asyncio.get_running_loop().time() > end:
                break
            self._history.complete(self.name, "ok", "schedules", op)
            await asyncio.sleep(_PAUSE_S)
        for name, due in reached.items():
            self._history.complete(self.name, "ok", "schedules", op, id=name, due=due)

    async def _listing(self) -> dict[str, float]:
        found: dict[str, float] = {}
        cursor: Fields = {}
        while True:
            (answer,) = await self._final([{"command": "schedules", "body": False, **cursor}])
            assert answer["success"], answer
            found |= {each["name"]: each["next"][0] for each in answer["schedules"] if each["next"]}
            if answer["cursor"] is None:
                return found
            cursor = {"cursor": answer["cursor"]}

    async def _final(self, commands: Sequence[Fields]) -> list[Fields]:
        """Ask until each command has a final answer. What is asked here may be done twice."""
        last: list[Fields] = [{}] * len(commands)
        todo = list(range(len(commands)))
        while todo:
            try:
                answers = await self._wire.exchange([commands[place] for place in todo])
            except (NotSent, NotAnswered):
                answers = [{"success": False, "code": "NOT_ANSWERED"}] * len(todo)
            for place, answer in zip(todo, answers, strict=True):
                last[place] = answer
            todo = [place for place in todo if last[place].get("code") in TEMPORARY]
            if todo:
                self._wire.give_up()
                await asyncio.sleep(_PAUSE_S)
        return last
