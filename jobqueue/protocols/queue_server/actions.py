"""The actions: what each does, and what its answer adds to its request.

An answer echoes the request. Echoed members stay as they came: a member is decoded only where an action needs it, so a
number that is too large to be decoded here comes back digit by digit.

A produce becomes an add: its times are seconds since the epoch, and the job is delivered again every `retry` s until
its `ttl`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec import Raw

from buckets import Job, State, Stats
from jobqueue.access.grants import GRANT
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import QueueServer
from jobqueue.engine.numbered import id_of
from jobqueue.errors import BadField, BadJson, TooLarge, Unauthorized
from jobqueue.protocols import Dialect
from jobqueue.schema import inner, params
from jobqueue.schema.fields import DAY_S, TEN_YEARS_S
from jobqueue.wires import parameters
from jobqueue.wires.parameters import given_text, stored_text

Plus = dict[str, Any]
"""The members that an answer adds to its request."""

FIELD_ERROR, TIME_ERROR, SYSTEM_ERROR = "field error", "time error", "system error"
INVALID_ACTION, NOT_SUPPORTED = "invalid action", "not support"
TOO_LARGE, FORBIDDEN = "too large", "forbidden"

_NEVER_ECHOED = ("token", "code", "reason", "detail")
_FOR_KNOWING = ("action", "queue", "seq")
_SHORT = 2_000  # bytes
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")


class Refused(BadField):
    """A request that cannot be carried out. `reason`: queue_server's word for the failure."""

    def __init__(self, reason: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail, field=field)
        self.reason = reason


def refusal(reason: str, detail: str) -> Plus:
    """The members that the answer to a refused request adds."""
    return {"code": -1, "reason": reason, "detail": detail}


class Request:
    """The members of a request. If two have the same name, the last one counts."""

    def __init__(self, raw: bytes) -> None:
        """Raises BadJson if `raw` is not an object."""
        self._members = _read(raw)

    def text(self, name: str) -> str | None:
        """A string, or None if it is absent. Raises Refused for anything else, and for a lone surrogate."""
        raw = self._given(name)
        if raw is None:
            return None
        try:
            return _TEXT.decode(raw)
        except msgspec.DecodeError:
            raise Refused(FIELD_ERROR, f"{name} is a string of whole characters", name) from None

    def needed(self, name: str) -> str:
        """A string that must be there. Raises Refused."""
        text = self.text(name)
        if text is None:
            raise Refused(FIELD_ERROR, f"{name} is missing", name)
        return text

    def integer(self, name: str) -> int | None:
        """An integer, also from an integral number such as `3.0` or from a string of digits; None if it is absent.
        Raises Refused for anything else."""
        raw = self._given(name)
        if raw is None:
            return None
        word = raw.removeprefix(b'"').removesuffix(b'"').decode()
        if _INTEGER.fullmatch(word):
            return int(word)
        number = float(word) if not raw.startswith(b'"') and _NUMBER.fullmatch(word) else 0.5
        if not number.is_integer() or abs(number) >= 1e18:
            raise Refused(FIELD_ERROR, f"{name} is an integer", name)
        return int(number)

    def seconds(self, name: str, most: int) -> float:
        """A number of seconds up to `most`, or 0 if it is absent. Raises Refused for anything else."""
        word = (self._given(name) or b"0").decode()
        seconds = float(word) if _NUMBER.fullmatch(word) else -1.0
        if not 0 <= seconds <= most:
            raise Refused(FIELD_ERROR, f"{name} is a number of seconds from 0 to {most}", name)
        return seconds

    def answer(self, less: Iterable[str], plus: Plus) -> bytes:
        """The answer: the request without the members `less` and with the members `plus`."""
        gone = {*_NEVER_ECHOED, *less, *plus}
        parts = [b"%b:%b" % (_echo_name(name), _echo(raw)) for name, raw in self._members.items() if name not in gone]
        return b"{" + b",".join([*parts, orjson.dumps(plus)[1:-1]]) + b"}"

    def short_answer(self, plus: Plus) -> bytes:
        """An answer that repeats only the members by which a client recognises the answer to its request."""
        gone = [name for name, raw in self._members.items() if name not in _FOR_KNOWING or len(raw) > _SHORT]
        return self.answer(gone, plus)

    def _given(self, name: str) -> bytes | None:
        """A member as it came, or None if it is absent or null."""
        raw = self._members.get(name)
        return None if raw == b"null" else raw


def _read(raw: bytes) -> dict[str, bytes]:
    try:
        text = raw.decode()
        return {name: bytes(value).strip() for name, value in _MEMBERS.decode(raw).items()}
    except UnicodeDecodeError:
        raise BadJson("a request is UTF-8") from None
    except RecursionError:
        raise BadJson("a request is nested too deeply") from None
    except msgspec.DecodeError:
        return _read_halves(text)


def _read_halves(text: str) -> dict[str, bytes]:
    """The members of an object whose strings may hold lone surrogates (`\\ud83d` alone)."""
    try:
        members = json.loads(text)
        if isinstance(members, dict):
            return {name: json.dumps(value, allow_nan=False).encode() for name, value in members.items()}
    except (ValueError, RecursionError):
        pass
    raise BadJson("a request is a JSON object")


def _echo_name(name: str) -> bytes:
    try:
        return orjson.dumps(name)
    except orjson.JSONEncodeError:  # a lone surrogate
        return json.dumps(name).encode()


def _echo(raw: bytes) -> bytes:
    """A member as answers show it: a string has no unnecessary escapes."""
    if raw.startswith(b'"') and b"\\" in raw:
        try:
            return orjson.dumps(_TEXT.decode(raw))
        except msgspec.DecodeError:
            pass  # a lone surrogate
    return raw


_TTL_S = 3600  # after the delay
_MOST_TRIES = 65_535
_LATEST = 100_000_000_000  # seconds since the epoch
_NOTE = b"ttl "  # comes before the seconds: other dialects leave notes too


class Times(NamedTuple):
    """Seconds since the epoch."""

    due: int | None
    """When the job is due, or None for at once."""
    ttl: int


def new_job(request: Request, topic: str, max_body_bytes: int, now_s: float) -> inner.Add:
    """The add for a produce. `now_s`: the time by Redis's clock. Raises Refused."""
    body = _body(request.needed("data"), max_body_bytes)
    retry = request.integer("retry") or 0
    if retry < 0:
        raise Refused(FIELD_ERROR, "retry is 0 (at most once) or the seconds after which it comes again", "retry")
    now = int(now_s)
    times = _times(request, now)
    add = inner.Add(topic=topic, body=Raw(body), ttr=0.0, tries=1, retention=0.0, numbered=True)
    if times.due is not None:
        add.at = float(times.due)
    if retry:
        add.ttr = float(min(retry, DAY_S))
        add.tries = _tries(times.ttl - max(times.due or 0, now), retry)
        add.note = _NOTE + b"%d" % times.ttl
    return add


def is_last(job: Job) -> bool:
    """Whether the next delivery of a popped job would come after its ttl."""
    if job.state is not State.RESERVED or not job.note.startswith(_NOTE):
        return False
    return job.next >= int(job.note.removeprefix(_NOTE)) * 1000


def _body(data: str, max_body_bytes: int) -> bytes:
    try:
        return stored_text(data, max_body_bytes)
    except TooLarge as error:
        raise Refused(FIELD_ERROR, error.message, "data") from None


def _times(request: Request, now: int) -> Times:
    delay, ttl = request.integer("delay"), request.integer("ttl")
    due = now if delay is None else delay
    ends = due + _TTL_S if ttl is None else ttl
    if due > ends:
        raise Refused(TIME_ERROR, "ttl is before delay" if delay is not None else "ttl is in the past", "ttl")
    if due > now + TEN_YEARS_S or ends > _LATEST:
        raise Refused(FIELD_ERROR, "delay and ttl are seconds since the epoch, and delay is within ten years", "delay")
    return Times(None if delay is None else max(due, 0), max(ends, 0))


def _tries(span: int, retry: int) -> int:
    """How many times a job can be delivered at most; 0 means no limit."""
    tries = max(1, -(-span // retry))
    return 0 if tries > _MOST_TRIES else tries


MOST_DATAGRAM = 60_000  # bytes of an answer by UDP

_MOST_WAIT_S = 60
_LOOKED_AT = 16  # ready jobs that the congestion is judged by
_MOST_OVERDUE_S = 255
_ROOM = 1_000  # bytes of an answer besides the repeated members and the data of a job
_OK: Plus = {"code": 0}
_LESS = {1: ("data", "delay", "ttl", "retry", "msg_id"), 2: ("wait", "data", "msg_id")}
"""For each action, the members of a request that its answer leaves out or sets itself."""
_BAD_INPUT = ("BAD_FIELD", "TOO_LARGE")
_NOT_DONE = ("TOPIC_FULL", "NO_ROOM", "UNAVAILABLE", "SHUTTING_DOWN", "INTERNAL", "FORBIDDEN", "UNAUTHORIZED")
"""The codes with which a confirmation fails; any other code means that there is nothing left to confirm."""


@dataclass(slots=True)
class Asker:
    """The client of a request, as far as answers depend on it."""

    reached: Callable[[], tuple[str, int]]
    """The host and port that it sent the request to."""
    host: str = ""
    """Its address."""
    by_datagram: bool = False
    check: Callable[[], None] = lambda: None
    """Raises ConnectionError if the client is known to be gone."""
    reserved: list[Job] = field(default_factory=list)
    """Receives the jobs that must be returned if the answer does not reach the client."""


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
        """Raises Refused for a request that must not even be begun."""
        try:
            GRANT.set(self._dialect.tools.entry.dialect_grant(_token(request), self._dialect.options, asker.host))
        except Unauthorized:
            raise Refused(FORBIDDEN, "the member token is missing or wrong", "token") from None
        if number not in self._actions:
            raise Refused(INVALID_ACTION, "action is 1 to 4, 7, 8, 104 or 107", "action")
        if asker.by_datagram and len(request.answer(_less(request), _OK)) > MOST_DATAGRAM - _ROOM:
            raise Refused(TOO_LARGE, f"an answer by UDP has at most {MOST_DATAGRAM} bytes and repeats the request")

    def _topic(self, request: Request) -> str:
        """The topic of the queue that a request names. Raises Refused."""
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
        """Bury a popped job. Returns False if it was not buried: a job that is delivered at most once cannot be."""
        buried = await self._dialect.ask(params.Bury(id=job.id, lease=job.lease, reason=reason))
        if buried["success"]:
            asker.reserved.remove(job)
        return bool(buried["success"])

    async def _confirm(self, request: Request, asker: Asker) -> Plus:
        topic, number = self._topic(request), request.integer("msg_id")
        if number is None:
            return _OK
        settled = await self._dialect.ask(inner.Finish(id=id_of(number), settles=True), within=topic, by_number=True)
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
        topics = await self._dialect.ask(inner.Stats(prefix=prefix, each=True, waits=_LOOKED_AT))
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
    """The sum of the whole seconds that each of the first ready jobs of a topic has waited."""
    return sum(min(_MOST_OVERDUE_S, wait // 1000) for wait in figures.waits_ms[:_LOOKED_AT])


def _action(request: Request) -> int | None:
    """The number of the action, or None if it is missing or not an integer."""
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
    """The members that the answer adds when a command failed."""
    return refusal(FIELD_ERROR if answer["code"] in _BAD_INPUT else SYSTEM_ERROR, answer["error"])


def _size(counts: dict[str, int]) -> int:
    return sum(counts.get(state, 0) for state in ("delayed", "ready", "reserved"))
