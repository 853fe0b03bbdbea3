"""A token with topics in the dialects: its clients change nothing outside of them, and learn of nothing there.

Each request is made twice: about a topic out of reach and jobs in it, and about a topic and jobs that nobody knows.
Both answers are the same but for the names.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import pytest_asyncio

from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.ports import free_ports

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ("lmstfy", "camellia", "mykit", "queue_server", "beanstalkd")
BODY = "a body that is nobody else's business"
HIDDEN, NOWHERE = "ns/bills", "ns/pills"
OWN = "ns/mails"
STATES = ("delayed", "ready", "reserved", "dead", "finished")
_MADE = re.compile(r'[0-9a-f]{32}|"timestamp":[^,]*|"(?:trans_id|max_id)":[0-9]+')
Ask = Callable[[str, str], Awaitable[str]]
"""Makes a request about a topic and a job, and returns what the client sees."""


class Scene:
    """A service with all dialects, a token that reaches the topic OWN, and jobs in another one."""

    def __init__(self, service: Guarded, ports: dict[str, int], session: aiohttp.ClientSession) -> None:
        self.service = service
        self.ports = ports
        self.session = session
        self.wide: Issued
        self.narrow: Issued

    async def open(self) -> None:
        self.wide = await self.service.token("admin")
        rights = ("produce", "consume", "look", "bodies", "operate")
        self.narrow = await self.service.token(*rights, name="narrow", topics=["ns/mail*"])
        for state in STATES:
            await self.put(state)

    async def put(self, state: str) -> None:
        """A job in the state, out of reach; its id is how camellia calls it."""
        job_id = f"{HIDDEN}:{state}"
        far = {"delay": 50_000} if state == "delayed" else {}
        await self.native("add", topic=HIDDEN, id=job_id, body=BODY, ttr=50_000, retention=50_000, **far)
        if state in ("reserved", "dead", "finished"):
            await self.native("pop", id=job_id)
        if state in ("dead", "finished"):
            await self.native("bury" if state == "dead" else "finish", id=job_id)

    async def native(self, command: str, **fields: Any) -> Any:
        """The answer to a native command of somebody who may do everything."""
        _, answer = await self.service.ask(self.wide, {"command": command, **fields})
        assert answer["success"], answer
        return answer

    async def hidden(self, *ids: str) -> list[Any]:
        """All that is out of reach."""
        known = [await self.native("get", id=job_id) for job_id in (*(f"{HIDDEN}:{state}" for state in STATES), *ids)]
        stats = await self.native("stats", topic=HIDDEN)
        return [*known, stats["counts"], stats["totals"]]

    async def http(self, dialect: str, method: str, path: str, **options: Any) -> str:
        """Status and text of the answer to a request with the narrow token."""
        url = f"http://127.0.0.1:{self.ports[dialect]}{path}"
        async with self.session.request(method, url, headers=bearer(self.narrow), **options) as answer:
            return f"{answer.status} {await answer.text()}"

    async def check(self, ask: Ask, known: str, unknown: str = "unknown") -> None:
        """A request changes and tells nothing, whatever job it names."""
        before = await self.hidden()
        told = await ask(HIDDEN, known)
        assert BODY not in told
        assert await self.hidden() == before
        untold = await ask(NOWHERE, unknown)
        assert _plain(told, HIDDEN, known) == _plain(untold, NOWHERE, unknown)

    async def check_all(self, ask: Ask) -> None:
        """The same for jobs in all states."""
        for state in STATES:
            await self.check(ask, f"{HIDDEN}:{state}", f"{NOWHERE}:{state}")


def _plain(told: str, topic: str, job: str) -> str:
    """What is told, without names, made ids and the time."""
    for each, word in ((job, "JOB"), (topic, "TOPIC"), (topic.partition("/")[2], "QUEUE")):
        told = told.replace(each, word)
    return _MADE.sub("", told)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    more = {"mykit": "clear_all = true", "beanstalkd": 'act_as = "narrow"', "camellia": "long_polling_s = 0"}
    tables = [f"[protocols.{name}]\nport = {port}\n{more.get(name, '')}" for name, port in ports.items()]
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        async with guarded(Path(folder), settings="\n".join(tables)) as service, aiohttp.ClientSession() as session:
            opened = Scene(service, ports, session)
            await opened.open()
            yield opened


# lmstfy.


@pytest.mark.parametrize(
    ("method", "tail"),
    [
        *(("PUT", ""), ("GET", ""), ("GET", "/peek"), ("GET", "/size"), ("DELETE", ""), ("GET", "/deadletter")),
        *(("GET", "/deadletter/size"), ("PUT", "/deadletter?limit=9"), ("DELETE", "/deadletter?limit=9")),
    ],
)
async def test_lmstfy_refuses_other_queues(scene: Scene, method: str, tail: str) -> None:
    async def ask(topic: str, job: str) -> str:
        told = await scene.http("lmstfy", method, f"/api/{topic}{tail}", data=b"x" if method == "PUT" else None)
        assert told.startswith("403 "), told
        return told

    await scene.check(ask, "whichever")


async def test_lmstfy_consumes_from_no_queue_if_one_is_out_of_reach(scene: Scene) -> None:
    async def ask(topic: str, job: str) -> str:
        return await scene.http("lmstfy", "GET", f"/api/ns/mails,{topic.removeprefix('ns/')}?count=2")

    await scene.check(ask, "whichever")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
@pytest.mark.parametrize("queue", ["", OWN])
async def test_lmstfy_knows_no_job_of_other_queues(scene: Scene, method: str, queue: str) -> None:
    async def ask(topic: str, job: str) -> str:
        job = job.replace("/", "~2F").replace(":", "~3A")
        told = await scene.http("lmstfy", method, f"/api/{queue or topic}/job/{job}")
        return told.replace(job, "JOB")

    await scene.check_all(ask)


async def test_lmstfy_serves_the_queues_within_reach(scene: Scene) -> None:
    assert (await scene.http("lmstfy", "PUT", f"/api/{OWN}/job/none", data=b"x")).startswith("201 ")
    assert '"size":' in await scene.http("lmstfy", "GET", f"/api/{OWN}/size")
    told = await scene.http("lmstfy", "GET", f"/api/{OWN}?ttr=50")
    job_id = json.loads(told[4:])["job_id"]
    assert (await scene.http("lmstfy", "GET", f"/api/{OWN}/job/{job_id}")).startswith("200 ")
    assert (await scene.http("lmstfy", "DELETE", f"/api/{OWN}/job/{job_id}")).startswith("204 ")


# camellia.


async def camellia(scene: Scene, operation: str, **form: Any) -> str:
    path = f"/camellia/delayQueue/{operation}"
    if operation.startswith(("getTopic", "getMonitor")):
        return await scene.http("camellia", "GET", f"{path}?{urlencode(form)}")
    return await scene.http("camellia", "POST", path, data=form)


@pytest.mark.parametrize("operation", ["sendMsg", "pullMsg", "longPollingMsg", "getTopicInfo"])
async def test_camellia_refuses_other_topics(scene: Scene, operation: str) -> None:
    async def ask(topic: str, job: str) -> str:
        told = await camellia(scene, operation, topic=topic, msg="x", msgId=job)
        assert '"code":200' not in told
        return told

    await scene.check(ask, "ready")


@pytest.mark.parametrize("operation", ["ackMsg", "deleteMsg", "getMsg"])
@pytest.mark.parametrize("fields", [{}, {"ack": "false"}])
async def test_camellia_knows_no_message_of_other_topics(scene: Scene, operation: str, fields: dict[str, str]) -> None:
    async def by_its_topic(topic: str, job: str) -> str:
        return await camellia(scene, operation, topic=topic, msgId=job.rpartition(":")[2], **fields)

    async def by_an_own_one(topic: str, job: str) -> str:
        return await camellia(scene, operation, topic=OWN, msgId=f"%{job}", **fields)

    await scene.check_all(by_its_topic)
    await scene.check_all(by_an_own_one)


async def test_camellia_lists_the_topics_within_reach(scene: Scene) -> None:
    assert '"code":200' in await camellia(scene, "sendMsg", topic=OWN, msg="x", msgId="1", delayMillis=0)
    for operation in ("getTopicInfoList", "getMonitorString"):
        told = await camellia(scene, operation)
        assert OWN in told and HIDDEN not in told
    assert '"msgId":"1"' in await camellia(scene, "pullMsg", topic=OWN, batch=1000)
    assert '"msgId":"1"' in await camellia(scene, "getMsg", topic=OWN, msgId="1")
    await camellia(scene, "ackMsg", topic=OWN, msgId="1")
    assert '"status":4' in await camellia(scene, "getMsg", topic=OWN, msgId="1")


# mykit.


async def test_mykit_pushes_to_no_other_topic(scene: Scene) -> None:
    async def ask(topic: str, job: str) -> str:
        told = await scene.http("mykit", "POST", "/push", json={"topic": topic, "id": job, "body": "x"})
        assert '"success":false' in told
        return told

    await scene.check_all(ask)


async def test_mykit_replaces_no_job_of_another_topic(scene: Scene) -> None:
    for state in STATES:
        before = await scene.hidden()
        push = {"topic": OWN, "id": f"{HIDDEN}:{state}", "body": "x"}
        told = await scene.http("mykit", "POST", "/push", json=push)
        assert 'a job with this id already exists"' in told
        assert await scene.hidden() == before


@pytest.mark.parametrize("path", ["/delete", "/finish", "/reStoreJob"])
async def test_mykit_knows_no_job_of_another_topic(scene: Scene, path: str) -> None:
    async def ask(topic: str, job: str) -> str:
        return await scene.http("mykit", "GET", f"{path}?{urlencode({'jobId': job})}")

    await scene.check_all(ask)


async def test_mykit_clears_the_topics_within_reach(scene: Scene) -> None:
    assert '"success":true' in await scene.http("mykit", "POST", "/push", json={"topic": OWN, "id": "1", "body": "x"})
    before = await scene.hidden()
    assert '"success":true' in await scene.http("mykit", "GET", "/clearAll")
    assert await scene.hidden() == before
    counts = (await scene.native("stats", topic=OWN))["counts"]
    assert set(counts.values()) == {0}


# queue_server.


async def exchanged(scene: Scene, issued: Issued, **members: Any) -> dict[str, Any]:
    """The answer to a request by TCP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.ports["queue_server"])
    writer.write(json.dumps({**members, "token": issued.token.text}).encode())
    told = await reader.read(100_000)
    writer.close()
    answer: dict[str, Any] = json.loads(told)
    return answer


async def numbered(scene: Scene, **members: Any) -> int:
    """The number of a new job out of reach."""
    members |= {"data": BODY, "retry": 50_000, "ttl": 4_100_000_000}
    produced = await exchanged(scene, scene.wide, action=1, queue=HIDDEN, **members)
    assert produced["code"] == 0, produced
    return int(produced["msg_id"])


async def test_queue_server_refuses_other_queues(scene: Scene) -> None:
    await numbered(scene)
    for members in ({"action": 1, "data": "x"}, {"action": 2}, {"action": 4}):

        async def ask(topic: str, job: str, members: dict[str, Any] = members) -> str:
            answer = await exchanged(scene, scene.narrow, queue=topic, **members)
            assert answer["code"] == -1, answer
            return json.dumps(answer)

        await scene.check(ask, "whichever")


async def test_queue_server_confirms_no_job_of_another_queue(scene: Scene) -> None:
    number = await numbered(scene)
    for queue in ("", OWN):

        async def ask(topic: str, job: str, queue: str = queue) -> str:
            answer = await exchanged(scene, scene.narrow, action=3, queue=queue or topic, msg_id=int(job))
            return json.dumps(answer)

        await scene.check(ask, str(number), "2000000000")
        assert (await scene.native("get", id=f"#{number}"))["state"] == "ready"


async def test_queue_server_lists_and_serves_the_queues_within_reach(scene: Scene) -> None:
    produced = await exchanged(scene, scene.narrow, action=1, queue=OWN, data="x", retry=50)
    listed = await exchanged(scene, scene.narrow, action=7)
    assert [each["name"] for each in listed["queue_list"]] == [OWN]
    consumed = await exchanged(scene, scene.narrow, action=2, queue=OWN)
    assert consumed["msg_id"] == produced["msg_id"]
    assert (await exchanged(scene, scene.narrow, action=3, queue=OWN, msg_id=consumed["msg_id"]))["code"] == 0
    assert (await scene.native("stats", topic=OWN))["counts"]["reserved"] == 0


# beanstalkd, all of whose clients act as one token.


async def said(scene: Scene, *lines: str) -> str:
    """What beanstalkd's port answers to these lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.ports["beanstalkd"])
    writer.write("".join(f"{line}\r\n" for line in (*lines, "quit")).encode())
    told = await reader.read()
    writer.close()
    return told.decode()


@pytest.mark.parametrize(("state", "members"), [("ready", {}), ("delayed", {"delay": int(time.time()) + 50_000})])
async def test_beanstalkd_reaches_no_job_of_another_tube(scene: Scene, state: str, members: dict[str, int]) -> None:
    number = await numbered(scene, **members)
    for line in ("reserve-job", "delete", "peek", "kick-job", "stats-job", "touch"):

        async def ask(topic: str, job: str, line: str = line) -> str:
            return await said(scene, f"{line} {job}")

        await scene.check(ask, str(number), "2000000000")
        assert (await scene.native("get", id=f"#{number}"))["state"] == state


async def test_beanstalkd_adds_up_the_tubes_within_reach(scene: Scene) -> None:
    def sums(told: str) -> list[str]:
        return re.findall("(?:current-jobs|total-jobs|current-tubes).*", told)

    before = sums(await said(scene, "stats"))
    await numbered(scene)
    assert before and sums(await said(scene, "stats")) == before


async def test_beanstalkd_refuses_other_tubes(scene: Scene) -> None:
    await numbered(scene)
    watch = ("watch {}", "ignore default", "reserve-with-timeout 0")
    uses = (("use {}", line) for line in ("put 1 0 9 1\r\nx", "peek-ready", "peek-delayed", "peek-buried", "kick 9"))
    for lines in (watch, ("stats-tube {}",), ("pause-tube {} 9",), *uses):

        async def ask(topic: str, job: str, lines: tuple[str, ...] = lines) -> str:
            return await said(scene, *(line.format(topic) for line in lines))

        await scene.check(ask, "whichever")
    assert HIDDEN not in await said(scene, "list-tubes")


async def test_beanstalkd_serves_the_tubes_within_reach(scene: Scene) -> None:
    told = await said(
        scene, f"use {OWN}", "put 1 0 9 1\r\nx", f"watch {OWN}", "ignore default", "reserve-with-timeout 0"
    )
    assert "INSERTED" in told and "RESERVED" in told
    assert f"- {OWN}" in await said(scene, "list-tubes")
