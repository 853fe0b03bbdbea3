"""Who has signed in. A session is kept in memory only: a restart of the console ends all.

A browser has the session's secret, and never the token again; of the secret the console keeps only the digest.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobqueue.cli.client import Client

IDLE_S = 1800.0
LONGEST_S = 43_200.0
MOST = 1000
_SECRET_BYTES = 32
_SWEPT_EVERY_S = 30.0
_WRONG = 5  # tokens
_WITHIN_S = 60.0
_MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class Session:
    """`client` shows the person's token; `bearer`: what the service said of it; `key`: its digest, so that those who
    show the same token share answers."""

    client: Client
    bearer: Mapping[str, Any]
    key: str
    begun: float
    used: float


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Sessions:
    """`clock`: seconds that only go forward. `ended` hears the key of a token that nobody shows any more."""

    def __init__(self, ended: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._ended = ended
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._sessions)

    async def begin(self, client: Client, bearer: Mapping[str, Any], key: str) -> str:
        """A new session; its secret. Where there are too many, the one unused longest ends."""
        await self._sweep()
        if len(self._sessions) >= MOST:
            await self._end(min(self._sessions, key=lambda name: self._sessions[name].used))
        secret, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
        self._sessions[digest(secret)] = Session(client, bearer, key, now, now)
        return secret

    async def find(self, secret: str | None, *, is_use: bool) -> Session | None:
        """The session of a secret, if it has not ended. `is_use`: a person asks, not a page that refreshes itself."""
        if self._clock() - self._swept >= _SWEPT_EVERY_S:
            await self._sweep()
        session = self._sessions.get(digest(secret)) if secret else None
        if session is None or self._is_over(session):
            return None
        if is_use:
            session.used = self._clock()
        return session

    async def end(self, secret: str | None) -> None:
        """End the session of a secret, if there is one."""
        if secret:
            await self._end(digest(secret))

    async def close(self) -> None:
        """End all."""
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
    """Bounds how often an address may show a wrong token: five times a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, deque[float]] = {}

    def begin(self, address: str) -> bool:
        """Whether the address may try now. It counts at once, so that tries at the same time count, too."""
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
        """The last try was a valid token, or nobody could judge it."""
        times = self._wrong.get(address)
        if times:
            times.pop()
