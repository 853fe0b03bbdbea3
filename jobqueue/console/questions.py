"""The questions that pages ask the service: each at most once a second, however many people look at its answer.

Nothing is asked unless somebody looks. While the service does not answer, the last answer is shown with its age. A
question that takes longer than a page waits stays open, and the next page that asks it gets the answer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from jobqueue.cli.client import Answer, Client, Refusal, Unreachable

_FRESH_S = 1.0
_FRESH_FOR_S = {"figures": 10.0, "health": 5.0, "settings": 5.0}
"""How long an answer counts as fresh, for answers that change less often."""
_KEPT_S = 600.0
_MOST = 500
_MOST_BYTES = 32 << 20
_AWAY = ("UNAVAILABLE", "SHUTTING_DOWN", "INTERNAL", "TOO_FAST")
"""Refusals that say nothing about the question: a later one may be answered."""


class Away(Exception):
    """The service has not answered, and there is no earlier answer; the message is a sentence."""


class Seen(NamedTuple):
    """An answer and its age. `trouble`: why a newer answer is missing, or empty if none was due."""

    answer: Answer
    age_s: float
    trouble: str

    @property
    def fields(self) -> dict[str, Any]:
        return self.answer.fields


@dataclass(slots=True)
class _Entry:
    begun: float = -math.inf
    task: asyncio.Task[None] | None = None
    answer: Answer | None = None
    answered: float = 0.0
    refusal: Refusal | None = None
    trouble: str = field(default="")


class Questions:
    """`clock`: returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._asking: set[asyncio.Task[None]] = set()

    async def ask(self, client: Client, key: str, within_s: float, command: str, fields: Mapping[str, Any]) -> Seen:
        """An answer that is at most a second old (see above for exceptions), or the last answer if no newer one arrives
        within `within_s`. `key`: people with the same key share answers. Raises Refusal, and Away."""
        entry = self._entry((key, msgspec.json.encode([command, fields], order="deterministic")))
        now = self._clock()
        if entry.task is None and now - entry.begun >= _fresh_s(entry, command):
            entry.begun = now
            entry.task = asyncio.create_task(self._put(entry, client, command, fields))
            self._asking.add(entry.task)
            entry.task.add_done_callback(self._asking.discard)
        if entry.task:
            await asyncio.wait({entry.task}, timeout=max(0.0, within_s))
        trouble = entry.trouble
        if entry.task and not entry.task.done():
            trouble = "the service has not answered yet"
        elif entry.refusal:
            raise entry.refusal
        if entry.answer is None:
            raise Away(trouble)
        return Seen(entry.answer, self._clock() - entry.answered, trouble)

    async def close(self) -> None:
        """Cancel all open questions."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def stale(self) -> None:
        """Mark every answer as outdated after a change, so that the next page asks again at once."""
        for entry in self._entries.values():
            entry.begun, entry.task = -math.inf, None

    def forget(self, key: str) -> None:
        """Drop the answers for this key."""
        for name in [name for name in self._entries if name[0] == key]:
            del self._entries[name]

    def _entry(self, name: tuple[str, bytes]) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry()
            self._drop_old()
        self._entries.move_to_end(name)
        return entry

    def _drop_old(self) -> None:
        """Drop the entries unused for longest while they are too many, too large together, or too old."""
        held = sum(len(each.answer.raw) for each in self._entries.values() if each.answer)
        while len(self._entries) > 1:
            name, entry = next(iter(self._entries.items()))
            is_old = self._clock() - entry.begun >= _KEPT_S
            if len(self._entries) <= _MOST and held <= _MOST_BYTES and not is_old:
                return
            held -= len(entry.answer.raw) if entry.answer else 0
            del self._entries[name]

    async def _put(self, entry: _Entry, client: Client, command: str, fields: Mapping[str, Any]) -> None:
        """Ask, and keep the result unless `stale` or a newer question came in between."""
        answer, refusal, trouble = await _outcome(client, command, fields)
        if entry.task is not asyncio.current_task():
            return
        entry.task, entry.refusal, entry.trouble = None, refusal, trouble
        if answer:
            entry.answer, entry.answered = answer, self._clock()
        elif refusal:
            entry.answer = None


def _fresh_s(entry: _Entry, command: str) -> float:
    """How many seconds must pass before a question is asked again."""
    return _FRESH_FOR_S.get(command, _FRESH_S) if (entry.answer or entry.refusal) and not entry.trouble else _FRESH_S


async def _outcome(
    client: Client, command: str, fields: Mapping[str, Any]
) -> tuple[Answer | None, Refusal | None, str]:
    try:
        return await client.ask(command, **fields), None, ""
    except Refusal as error:
        code = error.answer.fields.get("code")
        return (None, None, str(error.answer.fields.get("error"))) if code in _AWAY else (None, error, "")
    except Unreachable as error:
        return None, None, str(error)
    except RuntimeError:  # aiohttp's, for a client that is closed: whoever asked has signed out
        return None, None, "the session has ended"
