"""A visit: one request by a person who may look, and what its page needs to answer the request.

A `Note` is an action's message to the next page, which shows it once. `look_back` and `look_aside` return past figures,
or say why none exist if that is not the visitor's fault.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from jobqueue.cli.client import Client, Refusal
from jobqueue.console import formatting
from jobqueue.console.options import Options
from jobqueue.console.questions import Away, Questions, Seen
from jobqueue.console.rendering import Links, Templates

_KEPT_S = 120.0
_MOST = 1000


class Note(NamedTuple):
    """A sentence; `kind` is done or failed."""

    text: str
    kind: str


class Notes:
    """Notes by names that nobody can guess."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._notes: dict[str, tuple[float, Note]] = {}

    def leave(self, note: Note) -> str:
        """Keep a note for two minutes; returns its name."""
        while len(self._notes) >= _MOST:
            del self._notes[next(iter(self._notes))]
        name = secrets.token_urlsafe(16)
        self._notes[name] = self._clock(), note
        return name

    def take(self, name: str) -> Note | None:
        """Return and remove a note, or return None if it is unknown or expired."""
        left, note = self._notes.pop(name, (0.0, None))
        return note if self._clock() - left < _KEPT_S else None


ASKED_WITHIN_S = 1.6
"""How long a page waits for all its answers together: pages respond within 2 s."""
REFRESH_S = 2


class BadQuery(Exception):
    """A URL parameter or a form field is invalid; the message is a sentence."""

    def __init__(self, name: str, allowed: str) -> None:
        self.name = name
        super().__init__(f"{name} must be {allowed}")


@dataclass(frozen=True)
class Place:
    """The objects that all visits share."""

    options: Options
    links: Links
    templates: Templates
    questions: Questions
    notes: Notes


@dataclass(frozen=True)
class Person:
    """The person who looks. `bearer`: the answer to `whoami`; `may_act`: whether the console itself allows actions;
    `is_open`: True if the service needs no tokens; `user`: the name with which a proxy has signed the person in."""

    client: Client
    key: str
    bearer: Mapping[str, Any]
    may_act: bool
    is_open: bool
    user: str = ""

    def may(self, command: str) -> bool:
        """Whether the service accepts a command from this person, as far as `whoami` says."""
        commands = self.bearer.get("commands")
        return commands is None or command in commands

    def acts(self, *commands: str) -> bool:
        """Whether to offer an action that sends one of these commands."""
        return self.may_act and any(map(self.may, commands))

    def lacks(self, *commands: str) -> list[str]:
        """Which of these commands are not offered because the token lacks the right."""
        return [command for command in commands if self.may_act and not self.may(command)]


@dataclass
class Visit:
    """One request. Pages ask questions with `ask`, and end with `page`. `name`: the page's name, as in its path;
    `form`: the fields that a POST has sent, or None."""

    place: Place
    name: str
    request: web.Request
    person: Person
    form: Mapping[str, Any] | None = None
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    _deadline: float = field(default_factory=lambda: time.monotonic() + ASKED_WITHIN_S)
    _troubles: list[Seen] = field(default_factory=list)

    async def see(self, command: str, **fields: Any) -> Seen:
        """An answer, at most a second old if the service answers. Raises Refusal, Away."""
        left = self._deadline - time.monotonic()
        seen = await self.place.questions.ask(self.person.client, self.person.key, left, command, fields)
        if seen.trouble:
            self._troubles.append(seen)
        return seen

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """The fields of an answer. Raises as `see` does."""
        return (await self.see(command, **fields)).fields

    async def pages(self, command: str, most: int, **fields: Any) -> tuple[list[dict[str, Any]], str | None]:
        """Up to `most` pages of an answer, starting at the cursor in `fields`, as far as time allows; and the cursor
        after them."""
        found, cursor = [await self.ask(command, **fields)], None
        while (cursor := found[-1]["cursor"]) and len(found) < most and time.monotonic() < self._deadline - 0.3:
            found.append(await self.ask(command, **fields | {"cursor": cursor}))
        return found, cursor

    def text(self, name: str, longest: int = 255) -> str:
        """A parameter as text without surrounding blanks, or empty if it is missing. Raises BadQuery."""
        value = self.request.query.get(name, "").strip()
        if len(value) > longest:
            raise BadQuery(name, f"at most {longest} characters")
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """A parameter that is one of `allowed`, or the first of them if it is missing. Raises BadQuery."""
        value = self.request.query.get(name) or allowed[0]
        if value not in allowed:
            raise BadQuery(name, f"one of {', '.join(allowed)}")
        return value

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """A parameter that is an integer within a range. Raises BadQuery."""
        value = self.request.query.get(name, "").strip() or str(default)
        number = int(value) if value.isdecimal() and len(value) < 10 else least - 1
        if not least <= number <= most:
            raise BadQuery(name, f"an integer from {least} to {most}")
        return number

    def moment(self, name: str) -> float | None:
        """A parameter that is a time, in unix seconds, or None if it is missing. Raises BadQuery."""
        typed = self.text(name, 60)
        try:
            return formatting.moment(typed) if typed else None
        except ValueError:
            raise BadQuery(name, formatting.MOMENTS) from None

    @property
    def here(self) -> str:
        """The address of this page, without the note that it shows once."""
        query = {name: value for name, value in self.request.query.items() if name != "note"}
        return self.place.links.to(self.name, **query)

    def page(
        self,
        name: str,
        title: str,
        *,
        status: int = 200,
        refresh: bool = True,
        every_s: int = REFRESH_S,
        **content: Any,
    ) -> web.Response:
        """The response: the whole page, or only the parts that change if the request is a refresh. The page refreshes
        itself every `every_s` seconds, unless `refresh` is False."""
        is_refresh = "HX-Request" in self.request.headers
        everything = {
            "title": title,
            "nonce": self.nonce,
            "person": self.person,
            "here": self.here,
            "at": self.name,
            "is_known": bool(self.person.key) or self.person.is_open,
            "refresh": every_s if refresh else 0,
            "trouble": self._trouble(),
            "note": None if is_refresh else self.place.notes.take(self.request.query.get("note", "")),
            **content,
        }
        text = self.place.templates.render(name, "live" if is_refresh else "page", **everything)
        return web.Response(status=status, body=text.encode(), content_type="text/html", charset="utf-8")

    def _trouble(self) -> dict[str, Any] | None:
        """Why the page is not up to date, and the age of its oldest part; None if it is up to date."""
        if not self._troubles:
            return None
        oldest = max(self._troubles, key=lambda seen: seen.age_s)
        return {"why": oldest.trouble, "age_s": oldest.age_s}


async def together(*asked: Any) -> list[Any]:
    """The answers to questions that are asked concurrently. Raises the first error once all have ended."""
    results = await asyncio.gather(*asked, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)


class _Value(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"")


def body_of(raw: bytes) -> str | None:
    """The body in an answer, exactly as received, or None if the answer has no body."""
    text = bytes(msgspec.json.decode(raw, type=_Value).value).decode()
    return text or None


class Past(NamedTuple):
    """The answer to `figures`; or sentences that say why there is nothing to show, and how to change that."""

    found: dict[str, Any] | None
    why_not: str


async def look_back(visit: Visit, topic: str = "", **period: float) -> Past:
    """The figures of a topic, or of all topics, by minute: of the last hour, or from `since` until `until` (unix
    seconds). Raises Away, and Refusal if the question is wrong or not allowed."""
    of_topic = {"topic": topic} if topic else {}
    try:
        return Past(await visit.ask("figures", **of_topic, **period), "")
    except Refusal as refusal:
        return Past(None, _why_not(refusal))


async def look_aside(visit: Visit, topic: str = "", **period: float) -> Past:
    """Like `look_back`, for a page about something else, which is shown without figures if they take too long."""
    try:
        return await look_back(visit, topic, **period)
    except Away as error:
        return Past(None, str(error))


def _why_not(refusal: Refusal) -> str:
    """Why there are no figures. Raises the refusal if the question is wrong, or the token may not ask it."""
    fields = refusal.answer.fields
    code, field = fields.get("code"), fields.get("field")
    if code == "FORBIDDEN" and "right" not in fields and "topic" not in fields:
        return "Your token reaches some topics only: name one of them to see its figures."
    if code != "BAD_FIELD" or field not in (None, "since", "topic"):
        raise refusal
    sentence = str(fields.get("error"))
    more = " With history_hours = 48, the last two days are shown here." if field is None else ""
    return f"{sentence[:1].upper()}{sentence[1:]}.{more}"
