"""lmstfy's protocol: paths below `/api/<namespace>/<queue>`, request bodies stored as they are, and jobs returned as
JSON with their data in base64. docs/protocols/lmstfy.md is for its users.

Each refusal of a request is a BadRequest whose message the client gets as `error`.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import orjson
from msgspec import Raw

from buckets import Job, Tag
from buckets.job import LIVE
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import Lmstfy
from jobqueue.errors import STATUS, BadField, BadJson, NoSuchPath, TooFast, Unauthorized
from jobqueue.protocols import HttpDialect, Reply, Request
from jobqueue.schema import inner, params
from jobqueue.schema.fields import DAY_S, LONGEST_NAME, TEN_YEARS_S, is_name
from jobqueue.wires import parameters
from jobqueue.wires.parameters import Parameters

_NO_LIMIT = 65_535  # tries: the most that a job of lmstfy can have
_API_NOT_FOUND = "api not found"
_NO_SUCH_API = {"NO_SUCH_PATH", "METHOD_NOT_ALLOWED"}


def _json(status: int, **members: Any) -> Reply:
    """An answer with these members."""
    return Reply(status, orjson.dumps(members))


def _array(jobs: list[Answer]) -> Reply:
    """Several jobs."""
    return Reply(200, orjson.dumps(jobs))


def _nothing() -> Reply:
    """The reply to a success without content."""
    return Reply(204, b"")


def _failed(answer: Answer) -> Reply:
    """The reply that reports an error."""
    if answer["code"] == Unauthorized.code:  # a wait outlived its token, or a size was asked for without one
        return _unauthorized(missing=False)
    status, error = STATUS[answer["code"]], answer["error"]
    if answer["code"] in _NO_SUCH_API:
        status, error = 404, _API_NOT_FOUND
    elif status not in (400, 403, 413) and answer["code"] != TooFast.code:  # lmstfy, too, has 429 for its rate
        status = 500
    return Reply(status, orjson.dumps({"error": error}), answer.get("retry_after"))


def _unauthorized(missing: bool) -> Reply:
    """The reply to a request without a token, or with a wrong one."""
    return _json(401, error="token not found" if missing else "invalid token")


def _shown(each: Job, prefix: str, namespace: str, now_ms: int) -> Answer:
    """The members of a job, which are the same in all replies."""
    return {
        "namespace": namespace,
        "queue": each.topic.removeprefix(f"{prefix}{namespace}/"),
        "job_id": parameters.tilde(each.id),
        "data": base64.b64encode(parameters.given_bytes(each)).decode(),
        "ttl": 0 if each.ttl is None else max(math.ceil((each.due + each.ttl - now_ms) / 1000), 1),
        "elapsed_ms": max(now_ms - each.created, 0),
        "remain_tries": max(each.tries - each.attempts, 0) if each.tries else _NO_LIMIT,
        "attributes": _attributes_of(each),
    }


def _attributes_of(each: Job) -> dict[str, str] | None:
    raw = each.optional.get(Tag.HEADERS)
    headers: dict[str, str] = orjson.loads(raw) if raw else {}
    if headers.get(parameters.ENCODING) == parameters.BASE64:  # added by us, for `data`
        del headers[parameters.ENCODING]
    return headers or None


_NAME = re.compile(r"[-_A-Za-z0-9]{1,255}")
_NUMBER = re.compile(r"[0-9]{1,19}")
_UINT32 = 2**32 - 1
_UINT16 = 2**16 - 1
_INT64 = 2**63 - 1
_MOST_JOBS = 64  # in a bulk
_MOST_POPPED = 100
_MOST_QUEUES = 100  # in a consume; a pop accepts no more topics
_LONGEST_WAIT_S = 600
_ATTRIBUTE = "job-attr-"
_MOST_ATTRIBUTES = 16
_LONGEST_ATTRIBUTE = (32, 128)  # its name and its value; anything longer is cut off
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class Call(NamedTuple):
    """What a request asks for."""

    name: str
    """The method, and what follows the queue in the path, such as `GET deadletter size`; empty if the path is none of
    lmstfy's."""
    namespace: str
    queue: str
    job: str
    """The job's id as the client sent it, or empty if the path has none."""


class Publishing(NamedTuple):
    """The options of new jobs."""

    delay: int
    ttl: float | None
    """Seconds from the due time, or None for no limit."""
    tries: int
    attributes: dict[str, str]


class Consuming(NamedTuple):
    """The options of a consume."""

    ttr: float
    wait: int
    most: int


def _call(request: Request) -> Call:
    """What a request asks for."""
    top, *parts = request.path.split("/")[1:]
    if top != "api" or len(parts) < 2 or not all(parts) or parts[2:] == ["job"]:
        return Call("", "", "", "")
    namespace, queue, *tail = map(unquote, parts)
    job = tail.pop() if tail[:1] == ["job"] and len(tail) == 2 else ""
    return Call(" ".join((request.method, *tail)), namespace, queue, job)


def _topic(prefix: str, namespace: str, queue: str) -> str:
    """The topic of a queue. Raises BadField."""
    if not _NAME.fullmatch(namespace):
        raise BadField("the namespace must have 1 to 255 characters of A-Z a-z 0-9 - _")
    if not _NAME.fullmatch(queue) or queue.startswith("_"):
        raise BadField("a queue must have 1 to 255 characters of A-Z a-z 0-9 - _ and not begin with _")
    name = f"{prefix}{namespace}/{queue}"
    if not parameters.fits(name):
        raise BadField(f"the namespace and the queue are too long; together at most {LONGEST_NAME} characters")
    return name


def _topics(prefix: str, namespace: str, queues: str) -> list[str]:
    """The topics of a comma-separated list of queues, each once. Raises BadField."""
    found = dict.fromkeys(_topic(prefix, namespace, queue) for queue in queues.split(",") if queue)
    if not found:
        raise BadField("invalid queue name(s)")
    if len(found) > _MOST_QUEUES:
        raise BadField(f"too many queues; at most {_MOST_QUEUES} are allowed")
    return list(found)


def _publishing(request: Request, options: Lmstfy) -> Publishing:
    """The options of new jobs in a request. Raises BadField."""
    query = Parameters(request.query)
    delay = _number(query, "delay", 0, _UINT32)
    if delay > TEN_YEARS_S:
        raise BadField("invalid delay: it is longer than 10 years")
    ttl = _number(query, "ttl", options.ttl_s, _UINT32)
    if 0 < ttl < delay:
        raise BadField("ttl is shorter than delay")
    tries = int(_number(query, "tries", options.tries, _UINT16))
    if tries == 0:
        raise BadField("tries shouldn't be zero")
    left = max(min(ttl - delay, TEN_YEARS_S), 0.001)
    return Publishing(int(delay), left if ttl else None, tries, _attributes(request))


def _consuming(request: Request, options: Lmstfy) -> Consuming:
    """The options of a consume in a request. Raises BadField."""
    query = Parameters(request.query)
    ttr = min(_number(query, "ttr", options.ttr_s, _UINT32, least=1), DAY_S)
    wait = min(_number(query, "timeout", 0, _UINT32), _LONGEST_WAIT_S)
    return Consuming(ttr, int(wait), int(_number(query, "count", 1, _MOST_POPPED, least=1)))


def _limit(request: Request) -> int:
    """How many dead letters a request is about. Its `ttl` is checked but not used: the ttl of each job begins again.
    Raises BadField."""
    query = Parameters(request.query)
    _number(query, "ttl", 0, _INT64)
    return int(_number(query, "limit", 1, _INT64, least=1))


def _elements(body: bytes) -> list[bytes]:
    """The jobs of a bulk, each as its own text in the array. Raises BadJson, BadField."""
    try:
        jobs = _ELEMENTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadJson("request body should be an array of objects") from None
    if not jobs:
        raise BadField("no jobs")
    if len(jobs) > _MOST_JOBS:
        raise BadField("too many jobs")
    return list(map(bytes, jobs))


def _number(query: Parameters, name: str, default: float, most: int, least: int = 0) -> float:
    text = query.text(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise BadField(f"invalid {name}")
    return int(text)


def _attributes(request: Request) -> dict[str, str]:
    if request.headers.get("Enable-Job-Version", "").upper() != "YES":
        return {}
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        if name.lower().startswith(_ATTRIBUTE) and value:
            longest_name, longest = _LONGEST_ATTRIBUTE
            found.setdefault(name[len(_ATTRIBUTE) :][:longest_name].lower(), value[:longest])
    if len(found) > _MOST_ATTRIBUTES:
        raise BadField(f"too many attributes, cannot exceed {_MOST_ATTRIBUTES}")
    if parameters.ENCODING in found:
        raise BadField(f"an attribute cannot have the name {parameters.ENCODING}")
    _check_text("".join(map("".join, found.items())))
    return found


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadField("attributes must be UTF-8") from None


_OPEN = ("GET size", "GET deadletter size")
_PAGE = 100  # dead letters that are looked at together
_NOT_DEAD = ("delayed", "ready", "reserved")
_NONE_TO_END = ("NOT_FOUND", "WRONG_STATE", "RESERVED")


class LmstfyDialect(HttpDialect[Lmstfy]):
    """lmstfy."""

    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        call = _call(request)
        if call.name == "GET":
            return await self._consume(request, call, reserved)
        if call.name not in _ACTIONS:
            raise NoSuchPath
        topic = _topic(self.options.prefix, call.namespace, call.queue)
        return await _ACTIONS[call.name](self, request, call, topic)

    def refuse(self, error: Exception, request: Request) -> Reply:
        answer = self.tools.commands.refuse(error)
        if isinstance(error, Unauthorized):
            return _unauthorized(error.missing)
        return _failed(answer)

    def is_open(self, request: Request) -> bool:
        """Returns True for the two calls that return a size."""
        return _call(request).name in _OPEN

    def token_in(self, given: str) -> str:
        """The token without the name of a Redis and a colon, which clients of lmstfy may send before it."""
        is_alone = given.count(":") == self.options.token.count(":")
        return given if is_alone else given.partition(":")[2]

    async def _publish(self, request: Request, call: Call, topic: str) -> Reply:
        added = await self._add(request, self._publishing(request), topic, [request.body])
        if isinstance(added, Reply):
            return added
        return _json(201, msg="published", job_id=added[0])

    async def _publish_bulk(self, request: Request, call: Call, topic: str) -> Reply:
        publishing = self._publishing(request)
        added = await self._add(request, publishing, topic, _elements(request.body))
        if isinstance(added, Reply):
            return added
        return _json(201, msg="published", job_ids=added)

    async def _republish(self, request: Request, call: Call, topic: str) -> Reply:
        """Add the new job before the old one ends."""
        reply = await self._publish(request, call, topic)
        if reply.status != 201:
            return reply
        settled = await self._delete(request, call, topic)
        return reply if settled.status == 204 else settled

    def _publishing(self, request: Request) -> Publishing:
        return _publishing(request, self.options)

    async def _add(
        self, request: Request, publishing: Publishing, topic: str, datas: Sequence[bytes]
    ) -> list[str] | Reply:
        """Add jobs. Returns their ids, or the reply that reports the first failure."""
        adds = [self._new(publishing, topic, data) for data in datas]
        added = await self.tools.commands.answer(adds, [])
        failure = next((each for each in added if not each["success"]), None)
        return _failed(failure) if failure else [each["id"] for each in added]

    def _new(self, publishing: Publishing, topic: str, data: bytes) -> inner.Add:
        body, headers = parameters.stored_bytes(data, self.tools.settings.max_body_bytes)
        return inner.Add(
            topic=topic,
            body=Raw(body),
            delay=publishing.delay,
            ttl=publishing.ttl,
            tries=publishing.tries,
            headers=publishing.attributes | headers,
        )

    async def _consume(self, request: Request, call: Call, reserved: list[Job]) -> Reply:
        topics = _topics(self.options.prefix, call.namespace, call.queue)
        ttr, wait, most = _consuming(request, self.options)
        answer = await self.ask(inner.Pop(topics=topics, ttr=ttr, wait=wait, count=most), reserved)
        if not answer["success"]:
            return _failed(answer)
        jobs = [{"msg": "new job"} | self._shown(job, call, job.next - job.ttr) for job in answer["jobs"]]
        if not jobs:
            return _json(404, msg="no job available")
        return _array(jobs) if most > 1 else _json(200, **jobs[0])

    async def _delete(self, request: Request, call: Call, topic: str) -> Reply:
        """A job that does not exist, or has ended, counts as deleted."""
        job = parameters.without_tilde(call.job)
        if not is_name(job):
            return _nothing()
        answer = await self.ask(inner.Finish(id=job, settles=True), within=topic)
        return _nothing() if _is_done(answer) else _failed(answer)

    async def _peek(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(inner.Peek(topic=topic, state="ready"))
        if not answer["success"]:
            return _failed(answer)
        if not answer["jobs"]:
            return _json(404, error="the queue is empty")
        return self._look(answer["jobs"][0], call)

    async def _peek_job(self, request: Request, call: Call, topic: str) -> Reply:
        job = parameters.without_tilde(call.job)
        answer: Answer = {"success": False, "code": "NOT_FOUND"}
        if is_name(job):
            answer = await self.ask(inner.Get(id=job), within=topic)
        if answer["success"] and answer["job"].state in LIVE:
            return self._look(answer["job"], call)
        if answer["success"] or answer["code"] == "NOT_FOUND":
            return _json(404, error="job not found")
        return _failed(answer)

    def _look(self, job: Job, call: Call) -> Reply:
        return _json(200, **self._shown(job, call, int(self.tools.redis_s() * 1000)))

    def _shown(self, job: Job, call: Call, now_ms: int) -> Answer:
        return _shown(job, self.options.prefix, call.namespace, now_ms)

    async def _size(self, request: Request, call: Call, topic: str) -> Reply:
        return await self._count(call, topic, "ready")

    async def _dead_size(self, request: Request, call: Call, topic: str) -> Reply:
        return await self._count(call, topic, "dead")

    async def _count(self, call: Call, topic: str, state: str) -> Reply:
        answer = await self.ask(inner.Stats(topic=topic))
        if not answer["success"]:
            return _failed(answer)
        size = answer["figures"].counts[state]
        return _json(200, namespace=call.namespace, queue=call.queue, size=size)

    async def _dead(self, request: Request, call: Call, topic: str) -> Reply:
        stats = await self.ask(inner.Stats(topic=topic))
        first = await self.ask(inner.Peek(topic=topic, state="dead", body=False))
        for answer in (stats, first):
            if not answer["success"]:
                return _failed(answer)
        head = parameters.tilde(first["jobs"][0].id) if first["jobs"] else ""
        size = stats["figures"].counts["dead"]
        shown = {"deadletter_size": size, "deadletter_head": head}
        return _json(200, namespace=call.namespace, queue=call.queue, **shown)

    async def _respawn(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(params.Kick(topic=topic, count=_limit(request)))
        if not answer["success"]:
            return _failed(answer)
        return _json(200, msg="respawned", count=answer["count"])

    async def _delete_dead(self, request: Request, call: Call, topic: str) -> Reply:
        """Delete the first dead letters, except jobs that are no longer dead."""
        left = _limit(request)
        while left > 0:
            page = await self.ask(inner.Peek(topic=topic, state="dead", count=min(left, _PAGE), body=False))
            if not page["success"]:
                return _failed(page)
            if not page["jobs"]:
                break
            deletes = [inner.Delete(id=job.id, spares=_NOT_DEAD) for job in page["jobs"]]
            for deleted in await self.tools.commands.answer(deletes, [], within=topic):
                if not _is_done(deleted):
                    return _failed(deleted)
            left -= len(page["jobs"])
        return _nothing()

    async def _destroy(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(inner.Purge(topic=topic, state="ready"))
        return _nothing() if answer["success"] else _failed(answer)


def _is_done(answer: Answer) -> bool:
    """Whether a job was ended, or there was none to end."""
    return answer["success"] or answer["code"] in _NONE_TO_END


_Action = Callable[[LmstfyDialect, Request, Call, str], Awaitable[Reply]]
_ACTIONS: dict[str, _Action] = {
    "PUT": LmstfyDialect._publish,
    "PUT bulk": LmstfyDialect._publish_bulk,
    "PUT job": LmstfyDialect._republish,
    "DELETE job": LmstfyDialect._delete,
    "GET peek": LmstfyDialect._peek,
    "GET job": LmstfyDialect._peek_job,
    "GET size": LmstfyDialect._size,
    "GET deadletter size": LmstfyDialect._dead_size,
    "DELETE": LmstfyDialect._destroy,
    "GET deadletter": LmstfyDialect._dead,
    "PUT deadletter": LmstfyDialect._respawn,
    "DELETE deadletter": LmstfyDialect._delete_dead,
}
"""The function that answers each call, except the consume, which has several queues."""
