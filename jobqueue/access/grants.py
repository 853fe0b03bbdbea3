"""Grants: what a token allows its bearer to do, as far as the request alone shows; the scripts check the rest.

A grant is made from the record of a token and keeps no verdict that could outlive the record: when the record changes,
a new grant replaces the old one. The actor, in the log of actions, is the person or program behind a request or a
command.
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
_REFUSAL_S = 0.1  # the longest delay before a whole request is refused because of the rate
_TOO_MANY_WAITS = "the token has as many waiting pops as it may have"


class Quota(Protocol):
    """The rate of a token in this process: see jobqueue/access/rates.py."""

    counts_bytes: bool
    """True if the bytes of bodies count, too; False if only commands do."""

    def spend(self, count: int, size: int = 0) -> bool:
        """Spend permits that are available now. Returns False, and spends nothing, if there are too few."""

    def refund(self, count: int, size: int = 0) -> None:
        """Return permits that were spent."""

    def owe(self, count: int) -> None:
        """Count commands that are never refused."""

    async def take(self, sizes: Sequence[int]) -> tuple[int, float]:
        """Spend permits for as many of the first commands as possible. `sizes`: the bytes of each command's body.
        Returns for how many commands permits were spent, and in how many seconds there may be more."""


class Grant:
    """What the bearer of a token may do."""

    def __init__(
        self,
        record: Record,
        owner: str,
        quota: Quota | None = None,
        may_wait: Callable[[Grant], bool] | None = None,
    ) -> None:
        """`owner`: the owner of the token's waiting pops; `may_wait`: returns whether one more pop may wait, or None if
        their number is not limited."""
        names = tokens.commands_of(record.rights)
        self.record = record
        self.owner = owner
        self.name = record.name
        self.token_id = record.id
        self.within = " ".join(record.topics)
        """The patterns of the topics that the token reaches, as scripts read them, or empty for all topics."""
        self.everything = False
        """True if everything is allowed, without any check."""
        self.sees_bodies = tokens.BODIES in record.rights or tokens.ADMIN in record.rights
        self.counts = {"ok": 0, "forbidden": 0, "too_fast": 0}
        """How many commands were checked, by verdict, since the metrics last counted them."""
        self.requests = 0
        """How many requests this grant has admitted."""
        self.later: Grant | None = None
        """The grant that replaced this one because the record of the token was changed, or None."""
        self.has_ended = False
        """Whether the token has expired or was revoked."""
        self.noted = self.told = 0
        """How many of `requests` were reported to the table of tokens, and to the metrics."""
        self._rights = frozenset(record.rights)
        self._names = names
        self._kinds = tokens.kinds_of(names)
        self._quota = quota
        self._may_wait = may_wait
        self._own_ids = record.own_ids
        self._is_narrow = bool(self.within) or record.own_ids
        self._asks_more = self._is_narrow or may_wait is not None or quota is not None
        self._verdicts: dict[str, bool] = {}  # by topic

    def may(self, right: str) -> bool:
        """Whether the token has a right, or may use a command."""
        return right in self._names or right in self._rights or tokens.ADMIN in self._rights

    def reaches(self, topic: str) -> bool:
        """Whether the token may act on a topic."""
        verdict = self._verdicts.get(topic)
        if verdict is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[topic] = reaches(self.within, topic)
        return verdict

    def current(self) -> Grant:
        """The newest grant of the token, which may have replaced this one during a request. Raises Unauthorized if the
        token has ended."""
        grant = self
        while grant.later is not None:
            grant = grant.later
        if grant.has_ended:
            raise Unauthorized()
        return grant

    def check_wait(self, command: Any) -> None:
        """Check an admitted pop again before it waits, because the commands before it in its request took time. Raises
        the reason if it may not wait."""
        fault = self.current().fault(command)
        if fault is not None:
            raise fault
        if self._may_wait is not None and not self._has_a_wait_left(command):
            raise TooFast(_TOO_MANY_WAITS)

    def admits(self, commands: Sequence[Any]) -> bool:
        """Returns True, and spends their permits, if plain commands may be carried out as they are. False is not final:
        `checked` decides."""
        kinds = self._kinds
        for command in commands:
            if type(command) not in kinds:
                return False
        if self._asks_more and not self._admits_by_contents(commands):
            return False
        self.counts["ok"] += len(commands)
        return True

    def _admits_by_contents(self, commands: Sequence[Any]) -> bool:
        """The checks for tokens with `topics`, `own_ids`, `waits` or rates."""
        if self._is_narrow:
            for command in commands:
                if not self._is_plain(command):
                    return False
        if self._may_wait is not None and not all(map(self._has_a_wait_left, commands)):
            return False
        return self._quota is None or self._spend(commands, self._quota)

    def _is_plain(self, command: Any) -> bool:
        """Whether the request alone shows that an add, a finish or a pop is within the token's scope."""
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
        """Undo `admits` for commands that are not carried out, but checked again."""
        self.counts["ok"] -= len(commands)
        if self._quota is not None:
            free = sum(type(command) is params.Finish for command in commands)
            self._quota.refund(len(commands) - free, _size(commands))
            self._quota.owe(-free)

    async def checked(self, commands: Sequence[Any]) -> list[Any]:
        """The commands, with an error in place of each one that is refused."""
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
        """Returns False for a pop that wants to wait when the token has no waiting pop left, otherwise True."""
        return not isinstance(command, params.Pop) or not command.wait or bool(self._may_wait and self._may_wait(self))

    def _checked(self, command: Any) -> Any:
        if isinstance(command, BadRequest):
            return command
        fault = self.fault(command)
        if fault is None:
            return command
        return _in_place_of(command, fault)

    async def _in_time(self, commands: list[Any], quota: Quota) -> list[Any]:
        """The commands, with an error in place of each one that the rate refuses. After the first refused command, all
        others that the rate may refuse are refused, too, to preserve the order. If Redis cannot say whether there are
        permits, the error is Unavailable.

        A request of which nothing is carried out is answered late: otherwise a client that retries at once would keep
        this process busy with refusals, and other clients waiting.
        """
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
        """Why a command is refused, as far as the request alone shows, or None."""
        if type(command) not in self._kinds:
            return self._lacking(command)
        if not self.sees_bodies and _asks_for_bodies(command):
            return Forbidden("the token may not see the bodies of jobs", right=tokens.BODIES)
        return self._fault_in_scope(command) if self._is_narrow else None

    def _lacking(self, command: Any) -> Forbidden | None:
        name = tokens.name_of(command)
        settles = isinstance(command, inner.Finish) and command.settles
        if settles and "delete" in self._names:  # it deletes a job that was never delivered
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
    """The grant of every request to a service without tokens."""

    def __init__(self) -> None:
        super().__init__(Record(id="", name="", digest="", rights=(tokens.ADMIN,), created=0, changed=0), "")
        self.everything = True


class _Nobody(Grant):
    """The grant of a request without a token."""

    def __init__(self) -> None:
        super().__init__(Record(id="", name="", digest="", rights=(), created=0, changed=0), "")
        self._kinds = frozenset()

    def fault(self, command: Any) -> JobQueueError:
        return Unauthorized(missing=True)


OPEN: Grant = _Open()
"""Allows everything."""
NOBODY: Grant = _Nobody()
"""Allows nothing: for requests that were not admitted, and for public pages."""
GRANT: ContextVar[Grant] = ContextVar("grant", default=NOBODY)
"""The grant of the current request, set by the code that admits the request."""


def _with_errors(commands: list[Any], places: Sequence[int], error: Callable[[], JobQueueError]) -> list[Any]:
    """The commands, with errors at some places."""
    for at in places:
        commands[at] = _in_place_of(commands[at], error())
    return commands


def _in_place_of(command: Any, error: JobQueueError) -> JobQueueError:
    error.job_id = getattr(command, "id", None)
    error.refused = type(command)
    return error


def _topics_of(command: Any) -> Sequence[str]:
    """The topics that a command names and that must be checked here. (Those of the command `token` are checked when the
    token is issued; a pattern in the filter of an operation selects only jobs within reach.)"""
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
    """The bytes of the bodies in commands."""
    return sum(len(bytes(command.body)) for command in commands if isinstance(command, _BRINGING))


HEADER = "X-Jobqueue-Actor"
NO_NAME = "-"
_LONGEST = 200  # bytes, with the name of the token

USER: ContextVar[str] = ContextVar("user", default="")
"""The person named by the current request, or empty if it names none."""


def named(headers: Sequence[str], grant: Grant) -> str:
    """The person that a request names, or empty if it names none. Raises Forbidden if its token may not name one, and
    BadField."""
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
    """The actor of a CLI command that accesses Redis directly: the user and the machine."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user without a name
        return socket.gethostname()


def actor_of(grant: Grant, user: str) -> str:
    """The actor as text: the name of the token, and the person that the request names."""
    if user:
        return f"{grant.name}/{user}" if grant.name else user
    return grant.name or NO_NAME
