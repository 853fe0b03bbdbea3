"""lmstfy's protocol: `/api/<namespace>/<queue>`, bodies as they are, jobs as JSON with their data in base64."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw

from buckets import Job
from buckets.job import LIVE
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import Lmstfy
from jobqueue.errors import NoSuchPath, Unauthorized
from jobqueue.protocols import HttpDialect, Reply, Request
from jobqueue.protocols.lmstfy import answers, requests
from jobqueue.protocols.lmstfy.requests import Call, Publishing
from jobqueue.schema import inner, params
from jobqueue.schema.fields import is_name
from jobqueue.wires import parameters

_OPEN = ("GET size", "GET deadletter size")
_PAGE = 100  # dead letters that are looked at together
_NOT_DEAD = ("delayed", "ready", "reserved")
_NONE_TO_END = ("NOT_FOUND", "WRONG_STATE", "RESERVED")


class LmstfyDialect(HttpDialect[Lmstfy]):
    """lmstfy."""

    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        call = requests.call(request)
        if call.name == "GET":
            return await self._consume(request, call, reserved)
        if call.name not in _ACTIONS:
            raise NoSuchPath
        topic = requests.topic(self.options.prefix, call.namespace, call.queue)
        return await _ACTIONS[call.name](self, request, call, topic)

    def refuse(self, error: Exception, request: Request) -> Reply:
        answer = self.tools.commands.refuse(error)
        if isinstance(error, Unauthorized):
            return answers.unauthorized(error.missing)
        return answers.failed(answer)

    def is_open(self, request: Request) -> bool:
        """The sizes are."""
        return requests.call(request).name in _OPEN

    def token_in(self, given: str) -> str:
        """Theirs may have the name of a Redis before it, and a colon."""
        is_alone = given.count(":") == self.options.token.count(":")
        return given if is_alone else given.partition(":")[2]

    async def _publish(self, request: Request, call: Call, topic: str) -> Reply:
        added = await self._add(request, self._publishing(request), topic, [request.body])
        if isinstance(added, Reply):
            return added
        return answers.json(201, msg="published", job_id=added[0])

    async def _publish_bulk(self, request: Request, call: Call, topic: str) -> Reply:
        publishing = self._publishing(request)
        added = await self._add(request, publishing, topic, requests.elements(request.body))
        if isinstance(added, Reply):
            return added
        return answers.json(201, msg="published", job_ids=added)

    async def _republish(self, request: Request, call: Call, topic: str) -> Reply:
        """The new job is there before the old one ends."""
        reply = await self._publish(request, call, topic)
        if reply.status != 201:
            return reply
        settled = await self._delete(request, call, topic)
        return reply if settled.status == 204 else settled

    def _publishing(self, request: Request) -> Publishing:
        return requests.publishing(request, self.options)

    async def _add(
        self, request: Request, publishing: Publishing, topic: str, datas: Sequence[bytes]
    ) -> list[str] | Reply:
        """The ids of new jobs."""
        adds = [self._new(publishing, topic, data) for data in datas]
        added = await self.tools.commands.answer(adds, [])
        failure = next((each for each in added if not each["success"]), None)
        return answers.failed(failure) if failure else [each["id"] for each in added]

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
        topics = requests.topics(self.options.prefix, call.namespace, call.queue)
        ttr, wait, most = requests.consuming(request, self.options)
        answer = await self.ask(inner.Pop(topics=topics, ttr=ttr, wait=wait, count=most), reserved)
        if not answer["success"]:
            return answers.failed(answer)
        jobs = [{"msg": "new job"} | self._shown(job, call, job.next - job.ttr) for job in answer["jobs"]]
        if not jobs:
            return answers.json(404, msg="no job available")
        return answers.array(jobs) if most > 1 else answers.json(200, **jobs[0])

    async def _delete(self, request: Request, call: Call, topic: str) -> Reply:
        """What is not there, or has ended, is as good as deleted."""
        job = parameters.without_tilde(call.job)
        if not is_name(job):
            return answers.nothing()
        answer = await self.ask(inner.Finish(id=job, within=topic, settles=True))
        return answers.nothing() if _is_done(answer) else answers.failed(answer)

    async def _peek(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(inner.Peek(topic=topic, state="ready"))
        if not answer["success"]:
            return answers.failed(answer)
        if not answer["jobs"]:
            return answers.json(404, error="the queue is empty")
        return self._look(answer["jobs"][0], call)

    async def _peek_job(self, request: Request, call: Call, topic: str) -> Reply:
        job = parameters.without_tilde(call.job)
        answer: Answer = {"success": False, "code": "NOT_FOUND"}
        if is_name(job):
            answer = await self.ask(inner.Get(id=job, within=topic))
        if answer["success"] and answer["job"].state in LIVE:
            return self._look(answer["job"], call)
        if answer["success"] or answer["code"] == "NOT_FOUND":
            return answers.json(404, error="job not found")
        return answers.failed(answer)

    def _look(self, job: Job, call: Call) -> Reply:
        return answers.json(200, **self._shown(job, call, int(self.tools.redis_s() * 1000)))

    def _shown(self, job: Job, call: Call, now_ms: int) -> Answer:
        return answers.job(job, self.options.prefix, call.namespace, now_ms)

    async def _size(self, request: Request, call: Call, topic: str) -> Reply:
        return await self._count(call, topic, "ready")

    async def _dead_size(self, request: Request, call: Call, topic: str) -> Reply:
        return await self._count(call, topic, "dead")

    async def _count(self, call: Call, topic: str, state: str) -> Reply:
        answer = await self.ask(inner.Stats(topic=topic))
        if not answer["success"]:
            return answers.failed(answer)
        size = answer["figures"].counts[state]
        return answers.json(200, namespace=call.namespace, queue=call.queue, size=size)

    async def _dead(self, request: Request, call: Call, topic: str) -> Reply:
        stats = await self.ask(inner.Stats(topic=topic))
        first = await self.ask(inner.Peek(topic=topic, state="dead", body=False))
        for answer in (stats, first):
            if not answer["success"]:
                return answers.failed(answer)
        head = parameters.tilde(first["jobs"][0].id) if first["jobs"] else ""
        size = stats["figures"].counts["dead"]
        shown = {"deadletter_size": size, "deadletter_head": head}
        return answers.json(200, namespace=call.namespace, queue=call.queue, **shown)

    async def _respawn(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(params.Kick(topic=topic, count=requests.limit(request)))
        if not answer["success"]:
            return answers.failed(answer)
        return answers.json(200, msg="respawned", count=answer["count"])

    async def _delete_dead(self, request: Request, call: Call, topic: str) -> Reply:
        """The first dead ones, as long as they are dead."""
        left = requests.limit(request)
        while left > 0:
            page = await self.ask(inner.Peek(topic=topic, state="dead", count=min(left, _PAGE), body=False))
            if not page["success"]:
                return answers.failed(page)
            if not page["jobs"]:
                break
            deletes = [inner.Delete(id=job.id, within=topic, spares=_NOT_DEAD) for job in page["jobs"]]
            for deleted in await self.tools.commands.answer(deletes, []):
                if not _is_done(deleted):
                    return answers.failed(deleted)
            left -= len(page["jobs"])
        return answers.nothing()

    async def _destroy(self, request: Request, call: Call, topic: str) -> Reply:
        answer = await self.ask(inner.Purge(topic=topic, state="ready"))
        return answers.nothing() if answer["success"] else answers.failed(answer)


def _is_done(answer: Answer) -> bool:
    """Whether a job ended, or there was none to end."""
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
"""What is done for each call but the consume, which has several queues."""
