"""Grants: what one token lets its bearer do, as far as the request says; the scripts judge the rest.

A grant is made from the record of a token and holds no verdict that could outlive it: when the record changes, another
grant takes its place. The actor is who is behind a request or a command, for the log of actions.
"""

from __future__ import annotations

import asyncio
import getpass
import random
import socket
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from buckets.errors import JobQueueError, Unavailable
from buckets.topics.within import is_pattern, reaches
from jobqueue.access import tokens
from jobqueue.access.tokens import ACTOR, Record
from jobqueue.errors import BadField, BadRequest, Forbidden, TooFast, Unauthorized
from jobqueue.schema import inner, params

_VERDICTS: dict[type[Any], str] = {Forbidden: "forbidden", TooFast: "too_fast"}
_MOST_VERDICTS = 100
_REFUSAL_S = 0.1  # that it takes at most to refuse a whole request by the rate
_TOO_MANY_WAITS = "the token has as many waiting pops as it may have"


class Quota(Protocol):
    """The rate of a token in this process: see jobqueue/access/rates.py."""

    counts_bytes: bool
    """Whether the bytes of bodies count, or only commands."""

    def spend(self, count: int, size: int = 0) -> bool:
        """Spend permits that are at hand; False: nothing is spent."""

    def refund(self, count: int, size: int = 0) -> None:
        """Give back what was spent."""

    def owe(self, count: int) -> None:
        """Count commands that are never refused."""

    async def take(self, sizes: Sequence[int]) -> tuple[int, float]:
        """Spend permits for the first of commands, given by the bytes that each brings, as far as they go; returns for
        how many, and in how many seconds there may be more."""


class Grant:
    """What the bearer of a token may do."""

    def __init__(
        self,
        record: Record,
        owner: str,
        quota: Quota | None = None,
        may_wait: Callable[[Grant], bool] | None = None,
    ) -> None:
        """`owner`: who its waiting pops belong to; `may_wait`: whether one more of them may wait, where their number is
        limited."""
        names = tokens.commands_of(record.rights)
        self.record = record
        self.owner = owner
        self.name = record.name
        self.token_id = record.id
        self.within = " ".join(record.topics)
        """The topics that it reaches, as scripts take them; empty: all."""
        self.everything = False
        """Whether nothing needs to be asked."""
        self.sees_bodies = tokens.BODIES in record.rights or tokens.ADMIN in record.rights
        self.counts = {"ok": 0, "forbidden": 0, "too_fast": 0}
        """The commands that it was asked for, by verdict, until they are counted elsewhere."""
        self.requests = 0
        """The requests that it has let in."""
        self.later: Grant | None = None
        """The one in its place, once the record of its token was changed."""
        self.has_ended = False
        """Whether its token is gone."""
        self.noted = self.told = 0
        """Of these requests, those that are known to the table of tokens, and to the metrics."""
        self._rights = frozenset(record.rights)
        self._names = names
        self._kinds = tokens.kinds_of(names)
        self._quota = quota
        self._may_wait = may_wait
        self._own_ids = record.own_ids
        self._is_narrow = bool(self.within) or record.own_ids
        self._asks_more = self._is_narrow or may_wait is not None or quota is not None
        self._verdicts: dict[str, bool] = {}  # on topics

    def may(self, right: str) -> bool:
        """Whether it has a right, or may give a command."""
        return right in self._names or right in self._rights or tokens.ADMIN in self._rights

    def reaches(self, topic: str) -> bool:
        """Whether it may act on a topic."""
        verdict = self._verdicts.get(topic)
        if verdict is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[topic] = reaches(self.within, topic)
        return verdict

    def current(self) -> Grant:
        """What the token may do now, while a request goes on. Raises Unauthorized when it has ended."""
        grant = self
        while grant.later is not None:
            grant = grant.later
        if grant.has_ended:
            raise Unauthorized()
        return grant

    def check_wait(self, command: Any) -> None:
        """Raises the reason why a pop that was let in may not begin to wait after all: what was before it in its
        request took time."""
        fault = self.current().fault(command)
        if fault is not None:
            raise fault
        if self._may_wait is not None and not self._has_a_wait_left(command):
            raise TooFast(_TOO_MANY_WAITS)

    def admits(self, commands: Sequence[Any]) -> bool:
        """Whether plain commands may be carried out as they are; their permits are spent then. False is only a doubt:
        `checked` settles it."""
        kinds = self._kinds
        for command in commands:
            if type(command) not in kinds:
                return False
        if self._asks_more and not self._admits_by_contents(commands):
            return False
        self.counts["ok"] += len(commands)
        return True

    def _admits_by_contents(self, commands: Sequence[Any]) -> bool:
        """What is asked of tokens with topics, ids of their own, waits or rates."""
        if self._is_narrow:
            for command in commands:
                if not self._is_plain(command):
                    return False
        if self._may_wait is not None and not all(map(self._has_a_wait_left, commands)):
            return False
        return self._quota is None or self._spend(commands, self._quota)

    def _is_plain(self, command: Any) -> bool:
        """Whether all that there is to ask about an add, a finish or a pop is known from the request."""
        kind = type(command)
        if kind is params.Add and not self._own_ids:
            return self.reaches(command.topic)
        return kind is not params.Finish and self._fault_in_scope(command) is None

    def _spend(self, commands: Sequence[Any], quota: Quota) -> bool:
        free = 0
        for command in commands:
            if type(command) is params.Finish:
                free += 1
        if not quota.spend(len(commands) - free, _size(commands) if quota.counts_bytes else 0):
            return False
        if free:
            quota.owe(free)
        return True

    def take_back(self, commands: Sequence[Any]) -> None:
        """Commands that were admitted are not carried out after all, but checked again."""
        self.counts["ok"] -= len(commands)
        if self._quota is not None:
            free = sum(type(command) is params.Finish for command in commands)
            self._quota.refund(len(commands) - free, _size(commands))
            self._quota.owe(-free)

    async def checked(self, commands: Sequence[Any]) -> list[Any]:
        """The commands, with an error in the place of each that is refused."""
        checked = [self._checked(command) for command in commands]
        if self._quota is not None:
            checked = await self._in_time(checked, self._quota)
        if self._may_wait is not None:
            over = [at for at, command in enumerate(checked) if not self._has_a_wait_left(command)]
            checked = _with_errors(checked, over, lambda: TooFast(_TOO_MANY_WAITS))
        for command in checked:
            verdict = _VERDICTS.get(type(command), "ok")
            self.counts[verdict] += 1
        return checked

    def _has_a_wait_left(self, command: Any) -> bool:
        """Whether a pop that may wait is not one too many; True for all other commands."""
        return not isinstance(command, params.Pop) or not command.wait or bool(self._may_wait and self._may_wait(self))

    def _checked(self, command: Any) -> Any:
        if isinstance(command, BadRequest):
            return command
        fault = self.fault(command)
        if fault is None:
            return command
        return _in_place_of(command, fault)

    async def _in_time(self, commands: list[Any], quota: Quota) -> list[Any]:
        """With an error for those that the rate refuses: from the first on, so that the order holds, all that it may
        refuse. Where nobody can say whether there are permits, that is the error.

        A request of which nothing is carried out is answered late: a client that asks again at once would keep this
        process busy with refusals, and others waiting."""
        asked = [at for at, command in enumerate(commands) if not isinstance(command, JobQueueError)]
        free = [at for at in asked if tokens.name_of(commands[at]) in tokens.SPARED]
        quota.owe(len(free))
        metered = sorted({*asked} - {*free})
        try:
            done, after_s = await quota.take([_size((commands[at],)) for at in metered])
        except Unavailable:
            return _with_errors(commands, metered, Unavailable)
        if metered and not done and not free:
            await asyncio.sleep(random.uniform(0.5, 1) * _REFUSAL_S)
        return _with_errors(commands, metered[done:], lambda: TooFast(retry_after=after_s))

    def fault(self, command: Any) -> JobQueueError | None:
        """Why a command is refused, as far as the request tells."""
        if type(command) not in self._kinds:
            return self._lacking(command)
        if not self.sees_bodies and _asks_for_bodies(command):
            return Forbidden("the token may not see the bodies of jobs", right=tokens.BODIES)
        return self._fault_in_scope(command) if self._is_narrow else None

    def _lacking(self, command: Any) -> Forbidden | None:
        name = tokens.name_of(command)
        settles = isinstance(command, inner.Finish) and command.settles
        if settles and "delete" in self._names:  # of a job that was never delivered
            return self._fault_in_scope(command)
        right = tokens.right_for(name)
        return Forbidden(f"the token lacks the right {right}, which {name} needs", right=right)

    def _fault_in_scope(self, command: Any) -> Forbidden | None:
        for topic in _topics_of(command):
            if not self.reaches(topic):
                return Forbidden(f"the token does not reach the topic {topic}", topic=topic)
        if self._own_ids and isinstance(command, params.Add) and not _is_own(command.id, command.topic):
            return Forbidden(f"with this token, an id must begin with {command.topic}:")
        if self._own_ids and isinstance(command, params.Schedule) and not _is_own(command.name, command.topic):
            return Forbidden(f"with this token, a name must begin with {command.topic}:")
        return None


class _Open(Grant):
    """The grant of a service without tokens, which nothing is asked of."""

    def __init__(self) -> None:
        super().__init__(Record(id="", name="", digest="", rights=(tokens.ADMIN,), created=0, changed=0), "")
        self.everything = True


class _Nobody(Grant):
    """The grant of who showed no token."""

    def __init__(self) -> None:
        super().__init__(Record(id="", name="", digest="", rights=(), created=0, changed=0), "")
        self._kinds = frozenset()

    def fault(self, command: Any) -> JobQueueError:
        return Unauthorized(missing=True)


OPEN: Grant = _Open()
"""Lets everybody do everything."""
NOBODY: Grant = _Nobody()
"""Lets nobody do anything: whoever was not let in, at a page for all."""
GRANT: ContextVar[Grant] = ContextVar("grant", default=NOBODY)
"""The grant of the request that is being answered. Whoever lets a request in sets it."""


def _with_errors(commands: list[Any], places: Sequence[int], error: Callable[[], JobQueueError]) -> list[Any]:
    """Commands with errors in some places."""
    for at in places:
        commands[at] = _in_place_of(commands[at], error())
    return commands


def _in_place_of(command: Any, error: JobQueueError) -> JobQueueError:
    error.job_id = getattr(command, "id", None)
    error.refused = type(command)
    return error


def _topics_of(command: Any) -> Sequence[str]:
    """The topics that a command names. (A token's are given, which is judged where that is done; a pattern in the
    filter of an operation takes what is in reach.)"""
    if isinstance(command, params.Token):
        return []
    if isinstance(command, params.Operation):
        wanted = command.filter.topic if command.filter else None
        return [] if wanted is None or is_pattern(wanted) else [wanted]
    topics = getattr(command, "topics", None)
    if topics is not None:
        return list(topics)
    topic = getattr(command, "topic", None)
    return [] if topic is None else [topic]


def _is_own(name: str | None, topic: str) -> bool:
    return name is None or name.startswith(f"{topic}:")


def _asks_for_bodies(command: Any) -> bool:
    return bool(getattr(command, "body", False)) if isinstance(command, tokens.SHOWING) else False


_BRINGING = (params.Add, params.Update, params.Schedule)


def _size(commands: Sequence[Any]) -> int:
    """Bytes of the bodies that commands bring."""
    return sum(len(bytes(command.body)) for command in commands if isinstance(command, _BRINGING))


HEADER = "X-Jobqueue-Actor"
NO_NAME = "-"
_LONGEST = 200  # bytes, with the name of the token

USER: ContextVar[str] = ContextVar("user", default="")
"""The person whom the request that is being answered names; empty: it names none."""


def named(headers: Sequence[str], grant: Grant) -> str:
    """The person whom a request names. Raises Forbidden where its token may not do that, and BadField."""
    if not headers:
        return ""
    if not grant.may(ACTOR):
        raise Forbidden(f"the token lacks the right {ACTOR}, which {HEADER} needs", right=ACTOR)
    header = headers[0]
    if len(headers) > 1 or not header or not header.isprintable() or len(actor_of(grant, header).encode()) > _LONGEST:
        words = f"printable UTF-8, of at most {_LONGEST} bytes with the token's name and a slash before it"
        raise BadField(f"{HEADER} must be there once, and be {words}", field=HEADER)
    return header


def operator() -> str:
    """Who gives a command that asks Redis itself: the user and the machine."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user without a name
        return socket.gethostname()


def actor_of(grant: Grant, user: str) -> str:
    """The actor, in words: the name of the token, and the person whom the request names."""
    if user:
        return f"{grant.name}/{user}" if grant.name else user
    return grant.name or NO_NAME
