"""A participant of a load: sends one request after another, and records what it asked and heard.

It retries like the clients do (clients/*/retry): what may safely be done twice is sent again until it is answered.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.chaos.codes import TEMPORARY, UNKNOWN
from tests.chaos.history import History
from tests.chaos.load.wire import NotAnswered, NotSent, Wire

_TOLD = ("state", "result", "durability", "code", "due", "until", "lease", "attempt", "tries", "counts", "totals")
_ASKED = ("id", "topic", "key", "lease", "delay", "ttr", "ttl", "priority", "tries", "body", "durability")

Fields = dict[str, Any]


class Participant:
    """`name` goes into the history; `chance` makes all its random choices."""

    def __init__(self, name: str, history: History, wire: Wire, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self._history = history
        self._wire = wire

    async def ask(self, *commands: Fields) -> list[Fields]:
        """Ask once. An answer that did not arrive has the code NOT_SENT or NOT_ANSWERED."""
        ops = [self._invoke(command) for command in commands]
        wait_s = float(commands[-1].get("wait", 0))
        try:
            answers = await self._wire.exchange(list(commands), wait_s)
        except NotSent:
            answers = [{"success": False, "code": "NOT_SENT"}] * len(commands)
        except NotAnswered:
            answers = [{"success": False, "code": "NOT_ANSWERED"}] * len(commands)
        for op, command, answer in zip(ops, commands, answers, strict=True):
            self._complete(op, command, answer)
        if any(answer.get("code") in ("UNAVAILABLE", "SHUTTING_DOWN") for answer in answers):
            self._wire.give_up()
        return answers

    async def insist(self, *commands: Fields, for_s: float = 60.0) -> list[Fields]:
        """Ask until each command has a final answer, or the time is over. Returns the last answers."""
        last: list[Fields] = [{}] * len(commands)
        todo = list(range(len(commands)))
        end = asyncio.get_running_loop().time() + for_s
        for repetition in range(1, 1000):
            answers = await self.ask(*(commands[place] for place in todo))
            for place, answer in zip(todo, answers, strict=True):
                last[place] = answer
            todo = [place for place in todo if last[place].get("code") in TEMPORARY]
            if not todo or asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(self.chance.uniform(0, min(0.5, 0.05 * 2**repetition)))
        return last

    def _invoke(self, command: Fields) -> int:
        fields = {name: command[name] for name in _ASKED if name in command}
        if "attempt" in command:
            fields["attempt"] = int(command["attempt"])
        return self._history.invoke(self.name, command["command"], url=self._wire.url, **fields)

    def _complete(self, op: int, command: Fields, answer: Fields) -> None:
        name = command["command"]
        if not answer["success"]:
            kind = "info" if answer["code"] in UNKNOWN else "fail"
            told = {"id": command.get("id"), "code": answer["code"], "state": answer.get("state")}
            self._history.complete(self.name, kind, name, op, **told)
            return
        for job in answer.get("jobs", [answer]) or [{}]:
            told = {field: job[field] for field in _TOLD if field in job}
            if name == "stats":
                del told["due"]  # it is a histogram there
            told["id"], told["topic"] = job.get("id", command.get("id")), job.get("topic", command.get("topic"))
            told |= _extras(command, job)
            self._history.complete(self.name, "ok", name, op, **told)


def _extras(command: Fields, answer: Fields) -> Fields:
    """Event fields that follow from an answer: the body, the TTR, and Redis's clock when the command was done."""
    match command["command"]:
        case "pop" if answer.get("id"):
            told = {name: answer[name] for name in ("ttr", "created")}
            return told | {"body": answer["value"], "redis": answer["lease"] / 1e6}
        case "add" if answer["result"] == "created":
            return {"redis": answer["due"] - command["delay"]}
        case "touch":
            return {"redis": answer["until"] - command["ttr"]}
        case _:
            return {}
