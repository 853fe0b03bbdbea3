"""What each action does, and what its answer has that its request had not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from buckets import Job, Stats
from jobqueue.access.grants import GRANT
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import QueueServer
from jobqueue.errors import Unauthorized
from jobqueue.protocols import Dialect
from jobqueue.protocols.queue_server.produce import is_last, new_job
from jobqueue.protocols.queue_server.request import (
    FIELD_ERROR,
    FORBIDDEN,
    INVALID_ACTION,
    NOT_SUPPORTED,
    SYSTEM_ERROR,
    TOO_LARGE,
    Plus,
    Refused,
    Request,
    refusal,
)
from jobqueue.schema import inner
from jobqueue.wires import parameters
from jobqueue.wires.parameters import given_text

MOST_DATAGRAM = 60_000  # bytes of an answer by UDP

_MOST_WAIT_S = 60
_LOOKED_AT = 16  # ready jobs that the congestion is judged by
_MOST_OVERDUE_S = 255
_ROOM = 1_000  # bytes of an answer besides what it repeats and what it hands out
_OK: Plus = {"code": 0}
_LESS = {1: ("data", "delay", "ttl", "retry", "msg_id"), 2: ("wait", "data", "msg_id")}
"""Members of a request that its answer has not, or only as its own."""
_BAD_INPUT = ("BAD_FIELD", "TOO_LARGE")
_NOT_DONE = ("TOPIC_FULL", "NO_ROOM", "UNAVAILABLE", "SHUTTING_DOWN", "INTERNAL", "FORBIDDEN", "UNAUTHORIZED")
"""Of a confirmation; any other code means that there is nothing left to confirm."""


@dataclass(slots=True)
class Asker:
    """The client of a request, as far as answers depend on it."""

    reached: Callable[[], tuple[str, int]]
    """The host and port that it has sent to."""
    host: str = ""
    """Its address."""
    by_datagram: bool = False
    check: Callable[[], None] = lambda: None
    """Raises ConnectionError when it is known to be gone."""
    reserved: list[Job] = field(default_factory=list)
    """Receives the jobs that go back if the answer reaches nobody."""


class Actions:
    """The actions of queue_server."""

    def __init__(self, dialect: Dialect[QueueServer]) -> None:
        self._dialect = dialect
        self._actions: dict[int | None, Callable[[Request, Asker], Awaitable[Plus]]] = {
            1: self._produce,
            2: self._consume,
            3: self._confirm,
            **dict.fromkeys((4, 104), self._monitor),
            **dict.fromkeys((5, 6), _not_supported),
            **dict.fromkeys((7, 107), self._list),
            8: self._leader,
        }

    async def answer(self, request: Request, asker: Asker) -> bytes:
        """The answer to a request. Raises ConnectionError when the client is gone."""
        try:
            number = _action(request)
            self._check(request, number, asker)
            plus = await self._actions[number](request, asker)
        except ConnectionError:
            raise
        except Exception as error:
            refused = self._dialect.tools.commands.refuse(error)
            plus = refusal(error.reason if isinstance(error, Refused) else SYSTEM_ERROR, refused["error"])
        answer = request.answer(_less(request), plus)
        if asker.by_datagram and len(answer) > MOST_DATAGRAM:
            return request.short_answer(refusal(TOO_LARGE, f"an answer by UDP has at most {MOST_DATAGRAM} bytes"))
        return answer

    def _check(self, request: Request, number: int | None, asker: Asker) -> None:
        """Raises Refused for what is not even begun with."""
        try:
            GRANT.set(self._dialect.tools.entry.dialect_grant(_token(request), self._dialect.options, asker.host))
        except Unauthorized:
            raise Refused(FORBIDDEN, "the member token is missing or wrong", "token") from None
        if number not in self._actions:
            raise Refused(INVALID_ACTION, "action is 1 to 4, 7, 8, 104 or 107", "action")
        if asker.by_datagram and len(request.answer(_less(request), _OK)) > MOST_DATAGRAM - _ROOM:
            raise Refused(TOO_LARGE, f"an answer by UDP has at most {MOST_DATAGRAM} bytes and repeats the request")

    def _topic(self, request: Request) -> str:
        """Raises Refused."""
        queue = request.needed("queue")
        topic = self._dialect.options.prefix + parameters.escaped(queue)
        if not queue or not parameters.fits(topic):
            raise Refused(
                FIELD_ERROR, "queue has a name of 1 to 255 characters, those that are escaped as three", "queue"
            )
        return topic

    async def _produce(self, request: Request, asker: Asker) -> Plus:
        topic, tools = self._topic(request), self._dialect.tools
        added = await self._dialect.ask(new_job(request, topic, tools.settings.max_body_bytes, tools.redis_s()))
        return {"msg_id": added["number"], **_OK} if added["success"] else _failed(added)

    async def _consume(self, request: Request, asker: Asker) -> Plus:
        topic = self._topic(request)
        wait = 0.0 if asker.by_datagram else request.seconds("wait", _MOST_WAIT_S)
        while True:
            popped = await self._dialect.ask(
                inner.Pop(topic=topic, wait=wait or None, numbered="copies"), asker.reserved
            )
            if not popped["success"]:
                return _failed(popped)
            if not popped["jobs"]:
                return _OK
            job: Job = popped["jobs"][0]
            plus = {"msg_id": popped["numbers"][0], "data": given_text(job), **_OK}
            if not asker.by_datagram or len(request.answer(_less(request), plus)) <= MOST_DATAGRAM:
                if is_last(job):
                    asker.check()
                    await self._bury(job, "ttl", asker)
                return plus
            if not await self._bury(job, "too large for UDP", asker):
                return refusal(TOO_LARGE, "a job that is delivered at most once was too large for UDP")

    async def _bury(self, job: Job, reason: str, asker: Asker) -> bool:
        """Whether a popped job is a dead letter now; one that was to be delivered at most once cannot be."""
        buried = await self._dialect.ask(inner.Bury(id=job.id, lease=job.lease, reason=reason))
        if buried["success"]:
            asker.reserved.remove(job)
        return bool(buried["success"])

    async def _confirm(self, request: Request, asker: Asker) -> Plus:
        topic, number = self._topic(request), request.integer("msg_id")
        if number is None:
            return _OK
        settled = await self._dialect.ask(inner.Finish(id=number, within=topic, settles=True))
        return _failed(settled) if settled.get("code") in _NOT_DONE else _OK

    async def _monitor(self, request: Request, asker: Asker) -> Plus:
        topic = self._topic(request)
        stats = await self._dialect.ask(inner.Stats(topic=topic, waits=_LOOKED_AT))
        if not stats["success"]:
            return _failed(stats)
        counter = await self._dialect.ask(inner.Counter())
        if not counter["success"]:
            return _failed(counter)
        figures, last = stats["figures"], counter["number"]
        size, wait = _size(figures.counts), _congestion(figures)
        return {"size": size, "max_id": last, "wait_status": wait, **self._node(last), **_OK}

    async def _list(self, request: Request, asker: Asker) -> Plus:
        pattern = request.text("pattern") or ""
        prefix = self._dialect.options.prefix
        topics = await self._dialect.ask(inner.Stats(within=prefix, each=True, waits=_LOOKED_AT))
        if not topics["success"]:
            return _failed(topics)
        counter = await self._dialect.ask(inner.Counter())
        if not counter["success"]:
            return _failed(counter)
        listed = [(parameters.plain(topic.removeprefix(prefix)), each) for topic, each in topics["topics"].items()]
        queues = [
            {"size": _size(figures.counts), "wait_status": _congestion(figures), "name": name}
            for name, figures in listed
            if pattern in name
        ]
        return {"queue_count": len(queues), "queue_list": queues, **self._node(counter["number"]), **_OK}

    async def _leader(self, request: Request, asker: Asker) -> Plus:
        host, port = asker.reached()
        node_id, advertise = self._dialect.options.node_id, self._dialect.options.advertise
        return {"leader_node_id": node_id, "leader_host": advertise or host, "leader_port": port, **_OK}

    def _node(self, last: int) -> Plus:
        node_id = self._dialect.options.node_id
        return {"leader_node_id": node_id, "node_id": node_id, "trans_id": last}


def hands_out(request: Request) -> bool:
    """Whether a request asks for a job."""
    return _action(request) == 2


async def _not_supported(request: Request, asker: Asker) -> Plus:
    raise Refused(NOT_SUPPORTED, "each instance leads; there are no votes and no nodes", "action")


def _congestion(figures: Stats) -> int:
    """How long the first ready jobs of a topic have waited, in whole seconds together."""
    return sum(min(_MOST_OVERDUE_S, wait // 1000) for wait in figures.waits_ms[:_LOOKED_AT])


def _action(request: Request) -> int | None:
    """The number of the action; None where it is none."""
    try:
        return request.integer("action")
    except Refused:
        return None


def _less(request: Request) -> Iterable[str]:
    return _LESS.get(_action(request) or 0, ())


def _token(request: Request) -> str | None:
    try:
        return request.text("token") or None
    except Refused:
        return ""


def _failed(answer: Answer) -> Plus:
    """What the answer has when a command failed."""
    return refusal(FIELD_ERROR if answer["code"] in _BAD_INPUT else SYSTEM_ERROR, answer["error"])


def _size(counts: dict[str, int]) -> int:
    return sum(counts.get(state, 0) for state in ("delayed", "ready", "reserved"))
