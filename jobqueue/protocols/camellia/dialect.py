"""camellia's delay queue server: which path is which operation, and the reply to each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple

from buckets import Job, State
from jobqueue.access.grants import GRANT, OPEN
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import Camellia
from jobqueue.errors import BadField, MethodNotAllowed, NoSuchPath
from jobqueue.protocols import HttpDialect, Reply, Request, Tools
from jobqueue.protocols.camellia import requests
from jobqueue.protocols.camellia.monitor import Minute, Monitor, Totals
from jobqueue.protocols.camellia.requests import text
from jobqueue.protocols.camellia.space import Message, Space
from jobqueue.schema import inner, params
from jobqueue.wires.parameters import Parameters, is_form

_PAUSE_S = 1.0  # before a long poll is refused: the SDK polls again at once
_NOTHING_TO_ACK = ("NOT_FOUND", "NOT_RESERVED", "WRONG_STATE")
_NOTHING_TO_DELETE = ("NOT_FOUND", "WRONG_STATE")
_TAKEN = {"code": "TAKEN", "error": "msgId is that of a job in another topic, or of one that just ended"}
_POLL = "/longPollingMsg"
_HEALTH = "/camellia/health/"
_STATUS = {
    "BAD_FIELD": HTTPStatus.BAD_REQUEST,
    "BAD_HTTP": HTTPStatus.BAD_REQUEST,
    "BAD_JSON": HTTPStatus.BAD_REQUEST,
    "UNAUTHORIZED": HTTPStatus.UNAUTHORIZED,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "NO_SUCH_PATH": HTTPStatus.NOT_FOUND,
    "METHOD_NOT_ALLOWED": HTTPStatus.METHOD_NOT_ALLOWED,
}
"""The HTTP status of requests that are refused before they reach the queue, by the code of the error."""


class Call(NamedTuple):
    """A request: the space of its topics and ids, and its parameters."""

    space: Space
    parameters: Parameters


class CamelliaDialect(HttpDialect[Camellia]):
    """camellia's delay queue server."""

    def __init__(self, tools: Tools, options: Camellia) -> None:
        super().__init__(tools, options)
        self._monitors: dict[str, Monitor] = {}

    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        space, group, name = self._place(request.path)
        if group == "health" and name in ("status", "check"):
            return requests.health(is_up=name == "check" or self.tools.is_ready())
        operation = _OPERATIONS.get(name) if group == "delayQueue" else None
        if operation is None:
            raise NoSuchPath("no such path")
        if request.method != operation.method:
            raise MethodNotAllowed(f"this path takes {operation.method}")
        return await operation.answer(self, Call(space, _parameters(request)), reserved)

    def refuse(self, error: Exception, request: Request) -> Reply:
        answer = self.tools.commands.refuse(error)
        if answer["code"] in _STATUS:
            return requests.spring(_STATUS[answer["code"]], request.path, answer["error"])
        if _HEALTH in request.path:
            return requests.health(is_up=request.path.endswith("/check"))
        return requests.failed(answer)

    def pause_s(self, request: Request) -> float:
        return _PAUSE_S if request.path.endswith(_POLL) else 0.0

    def is_open(self, request: Request) -> bool:
        """Returns True for the health paths."""
        return _HEALTH in request.path

    def drain(self) -> None:
        for monitor in self._monitors.values():
            monitor.stop()

    def _place(self, path: str) -> tuple[Space, str, str]:
        """The space that a path belongs to, its group, and its last segment. Raises NoSuchPath."""
        front, root, rest = path.partition("/camellia/")
        namespace, (group, _, name) = front[1:], rest.partition("/")
        prefixes = {"": self.options.prefix, **self.options.namespaces}
        if not root or namespace not in prefixes:
            raise NoSuchPath("no such path")
        return Space(prefixes[namespace]), group, name

    async def _send(self, call: Call, reserved: list[Job]) -> Reply:
        command = requests.add(call.parameters, call.space, self.options, self.tools.settings.max_body_bytes)
        answer = await self.ask(command, within="" if isinstance(command, BadField) else command.topic)
        if answer.get("code") == "ALREADY_EXISTS":
            answer |= _TAKEN
        if isinstance(command, BadField) or not answer["success"]:
            return requests.failed(answer, delayMsg=None)
        theirs = {"topic": call.space.their_topic(command.topic), "msgId": call.space.sent_id(command.id or "")}
        if "jobs" in answer:  # an add to a virtual topic: the reply shows the first copy
            answer = answer["jobs"][0]
        if answer["result"] == "existing":
            return await self._existing(call, theirs, answer["id"], answer.get("topic", command.topic))
        sent = requests.sent(command, theirs, text(call.parameters, "msg"), answer)
        return requests.json(requests.SUCCESS, msg="success", delayMsg=sent)

    async def _existing(self, call: Call, theirs: dict[str, str], job_id: str, topic: str) -> Reply:
        """The reply to a repeated message: it shows the existing message, which stays as it is."""
        answer = await self.ask(inner.Get(id=job_id), within=topic)
        if answer["success"]:
            shown = requests.job(answer["job"], call.space) | theirs
            return requests.json(requests.SUCCESS, msg="success", delayMsg=shown)
        if answer["code"] == "FORBIDDEN":  # the token may send, but not look
            return requests.json(requests.SUCCESS, msg="success", delayMsg=theirs)
        if answer["code"] == "NOT_FOUND":
            answer |= _TAKEN
        return requests.failed(answer, delayMsg=None)

    async def _pull(self, call: Call, reserved: list[Job]) -> Reply:
        return _pulled(await self._pop(call, reserved, 0), call.space)

    async def _poll(self, call: Call, reserved: list[Job]) -> Reply:
        wait = requests.wait(call.parameters, self.options)
        answer = await self._pop(call, reserved, wait)
        if not answer["success"]:
            await asyncio.sleep(min(_PAUSE_S, wait))
        return _pulled(answer, call.space)

    async def _pop(self, call: Call, reserved: list[Job], wait: float) -> Answer:
        return await self.ask(requests.pop(call.parameters, call.space, self.options, wait), reserved)

    async def _ack(self, call: Call, reserved: list[Job]) -> Reply:
        message = requests.message(call.parameters, call.space)
        if call.parameters.truth("ack") is False:
            answer = await self._ask_about(message, lambda job_id: params.Release(id=job_id, delay=0))
        else:
            answer = await self._ask_about(message, lambda job_id: inner.Finish(id=job_id, settles=True))
        if answer["success"] or answer["code"] in _NOTHING_TO_ACK:
            return requests.json(requests.SUCCESS, msg="success")
        return requests.failed(answer)

    async def _delete(self, call: Call, reserved: list[Job]) -> Reply:
        message = requests.message(call.parameters, call.space)
        call.parameters.truth("release")
        answer = await self._ask_about(message, lambda job_id: inner.Delete(id=job_id, spares=("dead",)))
        if answer["success"] and answer["was"] != State.DELETED.word:
            return requests.json(requests.SUCCESS, msg="success")
        if answer["success"] or answer["code"] in _NOTHING_TO_DELETE:
            return requests.json(requests.NOT_FOUND, msg=None)
        return requests.failed(answer)

    async def _get(self, call: Call, reserved: list[Job]) -> Reply:
        message = requests.message(call.parameters, call.space)
        answer = await self._ask_about(message, lambda job_id: inner.Get(id=job_id))
        if not isinstance(message, BadField):
            self._monitor(call.space).count_get(message.topic)
        if answer["success"]:
            return requests.json(requests.SUCCESS, msg="success", delayMsg=requests.job(answer["job"], call.space))
        if answer["code"] == "NOT_FOUND":
            return requests.json(requests.NOT_FOUND, msg=None, delayMsg=None)
        return requests.failed(answer, delayMsg=None)

    async def _ask_about(
        self, message: Message | BadField, command: Callable[[str], inner.Inner | params.Command]
    ) -> Answer:
        """The answer to a command on a message. `command`: makes the command from the id of the job."""
        if isinstance(message, BadField):
            return await self.ask(message)
        return await self.ask(command(message.id), within=message.topic)

    async def _topic_info(self, call: Call, reserved: list[Job]) -> Reply:
        theirs = text(call.parameters, "topic")
        topic = call.space.topic(theirs)
        answer = await self.ask(topic if isinstance(topic, BadField) else inner.Stats(topic=topic))
        if not answer["success"]:
            return requests.failed(answer, data=None)
        return requests.json(requests.SUCCESS, data=requests.topic_info(theirs, answer["figures"]))

    async def _topic_infos(self, call: Call, reserved: list[Job]) -> Reply:
        figures = await requests.figures(self.ask, call.space)
        if isinstance(figures, requests.Failure):
            return requests.failed(figures.answer, data=None)
        return requests.json(requests.SUCCESS, data=requests.listed(figures, call.space))

    async def _monitor_data(self, call: Call, reserved: list[Job]) -> Reply:
        seen = await self.ask(inner.Names(prefix=call.space.prefix))
        if not seen["success"]:
            return requests.failed(seen, data=None)
        minute = self._minute(call.space, seen["names"])
        data = {
            "requestStatsList": minute.requests,
            "pullMsgTimeGapStatsList": minute.pulled,
            "readyQueueTimeGapStatsList": minute.ready,
        }
        return requests.json(requests.SUCCESS, data=data)

    async def _monitor_string(self, call: Call, reserved: list[Job]) -> Reply:
        figures = await requests.figures(self.ask, call.space)
        if isinstance(figures, requests.Failure):
            return requests.failed(figures.answer)
        minute = self._minute(call.space, figures)
        sizes, ranges = requests.rows(requests.listed(figures, call.space))
        return requests.as_text(
            requestStats=minute.requests,
            pullMsgTimeGapStats=minute.pulled,
            readyQueueTimeGapStats=minute.ready,
            topicInfoStats=sizes,
            waitingQueueStats=ranges,
        )

    def _minute(self, space: Space, seen: Iterable[str]) -> Minute:
        """The last whole minute of the topics that the asker may see."""
        return self._monitor(space).last().only({space.their_topic(topic) for topic in seen})

    def _monitor(self, space: Space) -> Monitor:
        if space.prefix not in self._monitors:
            ears = self.tools.commands.metrics.ears
            self._monitors[space.prefix] = Monitor(space, lambda: self._totals(space), ears)
        return self._monitors[space.prefix]

    async def _totals(self, space: Space) -> Totals | None:
        """The totals of all topics. Later, each client is shown only the rows that it may see."""
        GRANT.set(OPEN)  # in the task of the monitor
        figures = await requests.figures(self.ask, space)
        if isinstance(figures, requests.Failure):
            return None
        return {topic: each.totals for topic, each in figures.items()}


def _parameters(request: Request) -> Parameters:
    if request.method == "POST" and is_form(request.headers.get("Content-Type", "")):
        return Parameters(request.query, request.body)
    return Parameters(request.query)


def _pulled(answer: Answer, space: Space) -> Reply:
    if not answer["success"]:
        return requests.failed(answer, delayMsgList=None)
    return requests.json(requests.SUCCESS, msg=None, delayMsgList=[requests.job(job, space) for job in answer["jobs"]])


class Operation(NamedTuple):
    """A path: the method that it accepts, and the function that answers."""

    method: str
    answer: Callable[[CamelliaDialect, Call, list[Job]], Awaitable[Reply]]


_OPERATIONS = {
    "sendMsg": Operation("POST", CamelliaDialect._send),
    "pullMsg": Operation("POST", CamelliaDialect._pull),
    "longPollingMsg": Operation("POST", CamelliaDialect._poll),
    "ackMsg": Operation("POST", CamelliaDialect._ack),
    "deleteMsg": Operation("POST", CamelliaDialect._delete),
    "getMsg": Operation("POST", CamelliaDialect._get),
    "getTopicInfo": Operation("GET", CamelliaDialect._topic_info),
    "getTopicInfoList": Operation("GET", CamelliaDialect._topic_infos),
    "getMonitorData": Operation("GET", CamelliaDialect._monitor_data),
    "getMonitorString": Operation("GET", CamelliaDialect._monitor_string),
}
"""The paths below `/camellia/delayQueue/`."""
