"""Who has signed in. Sessions are kept in memory only: a restart of the console ends them all.

After sign-in, a browser has only the session's secret, not the token; the console keeps only the digest of the secret.
With single sign-on, a person whom a proxy has signed in acts with the token of their group, and under their own name.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web
from jobqueue_client.access import Access

from jobqueue.cli.client import Client, Refusal
from jobqueue.console.guard import User
from jobqueue.console.options import Options
from jobqueue.console.questions import Questions
from jobqueue.console.visit import Person

IDLE_S = 1800.0
LONGEST_S = 43_200.0
MOST = 1000
_SECRET_BYTES = 32
_SWEPT_EVERY_S = 30.0
_WRONG = 5  # wrong tokens within `_WITHIN_S`
_WITHIN_S = 60.0
_MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class Session:
    """`client`: sends the person's token; `bearer`: what the service said about the token; `key`: the token's digest,
    so that people with the same token share answers."""

    client: Client
    bearer: Mapping[str, Any]
    key: str
    begun: float
    used: float


def digest(secret: str) -> str:
    """The digest that is kept instead of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Sessions:
    """`clock`: returns monotonic seconds. `ended`: called with the key of a token that no session uses any longer."""

    def __init__(self, ended: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._ended = ended
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._sessions)

    async def begin(self, client: Client, bearer: Mapping[str, Any], key: str) -> str:
        """Begin a session; returns its secret. If the sessions are too many, the one unused for longest ends."""
        await self._sweep()
        if len(self._sessions) >= MOST:
            await self._end(min(self._sessions, key=lambda name: self._sessions[name].used))
        secret, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
        self._sessions[digest(secret)] = Session(client, bearer, key, now, now)
        return secret

    async def find(self, secret: str | None, *, is_use: bool) -> Session | None:
        """The session with a secret, or None if it has ended. `is_use`: True if a person makes the request, not a page
        that refreshes itself."""
        if self._clock() - self._swept >= _SWEPT_EVERY_S:
            await self._sweep()
        session = self._sessions.get(digest(secret)) if secret else None
        if session is None or self._is_over(session):
            return None
        if is_use:
            session.used = self._clock()
        return session

    async def end(self, secret: str | None) -> None:
        """End the session with a secret, if it exists."""
        if secret:
            await self._end(digest(secret))

    async def close(self) -> None:
        """End all sessions."""
        for name in [*self._sessions]:
            await self._end(name)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used >= IDLE_S or now - session.begun >= LONGEST_S

    async def _sweep(self) -> None:
        self._swept = self._clock()
        for name in [name for name, session in self._sessions.items() if self._is_over(session)]:
            await self._end(name)

    async def _end(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is None:
            return
        if all(other.key != session.key for other in self._sessions.values()):
            self._ended(session.key)
        await session.client.__aexit__(None, None, None)


class Attempts:
    """Limits how often an address may send a wrong token: five times a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, deque[float]] = {}

    def begin(self, address: str) -> bool:
        """Return True if the address may try now. The attempt counts at once, so that concurrent attempts count too."""
        times = self._wrong.setdefault(address, deque())
        while times and self._clock() - times[0] >= _WITHIN_S:
            times.popleft()
        if len(times) >= _WRONG:
            return False
        times.append(self._clock())
        if len(self._wrong) > _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        return True

    def succeed(self, address: str) -> None:
        """Do not count the last attempt: its token was valid, or could not be checked."""
        times = self._wrong.get(address)
        if times:
            times.pop()


log = structlog.get_logger()

_ASKED_WITHIN_S = 1.0
_NAMES_ACTORS = ("admin", "actor")


class SignOn:
    """The roles. A person in several has the first in the settings. Call `open` before use, and `close` at the end."""

    def __init__(self, options: Options, questions: Questions) -> None:
        self._roles = {group: Client(options.url, Access(token, options.tls)) for group, token in options.roles.items()}
        self._may_act = not options.read_only
        self._questions = questions

    async def open(self) -> None:
        for client in self._roles.values():
            await client.__aenter__()

    async def close(self) -> None:
        for client in self._roles.values():
            await client.__aexit__(None, None, None)

    async def person(self, user: User, address: str) -> Person:
        """The Person for a user. Raises HTTPForbidden for a user without a role, and Away."""
        group = next((each for each in self._roles if each in user.groups), None)
        if group is None:
            log.warning("session.refused", status=403, user=user.name, address=address)
            raise web.HTTPForbidden(reason=f"{user.name} is in no group that has a role here")
        client, key = self._roles[group], f"role {group}"
        bearer = await self._bearer(client, key, group)
        return Person(acting(client, bearer, user.name), key, bearer, self._may_act, is_open=False, user=user.name)

    async def _bearer(self, client: Client, key: str, group: str) -> Mapping[str, Any]:
        try:
            return (await self._questions.ask(client, key, _ASKED_WITHIN_S, "whoami", {})).fields
        except Refusal as refusal:
            if refusal.answer.fields.get("code") != "UNAUTHORIZED":
                raise
        raise web.HTTPForbidden(reason=f"the service does not know the token of the group {group}, or it has ended")


def acting(client: Client, bearer: Mapping[str, Any], person: str) -> Client:
    """A client that names the acting person if the service accepts that from its token; an open service always does."""
    is_believed = bool(bearer.get("open")) or any(right in bearer.get("rights", ()) for right in _NAMES_ACTORS)
    return client.acting_as(person) if is_believed else client
