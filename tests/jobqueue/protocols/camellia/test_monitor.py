"""The minutes of camellia's monitor data."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from jobqueue.access.grants import OPEN, Grant
from jobqueue.access.tokens import Record
from jobqueue.protocols.camellia import monitor
from tests.jobqueue.protocols.camellia.conftest import Make, Server
from tests.kit.waiting import until

EMPTY: dict[str, list[Any]] = {"requestStatsList": [], "pullMsgTimeGapStatsList": [], "readyQueueTimeGapStatsList": []}


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Ends the minute, instead of the time."""
    ends = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == 60
        await ends.wait()
        ends.clear()

    monkeypatch.setattr(monitor, "sleep", sleep)
    return ends


async def until_data(camellia: Server, namespace: str = "") -> dict[str, Any]:
    """The rows of the first minute that has any."""
    while True:
        data: dict[str, Any] = (await camellia.ask("getMonitorData", namespace))["data"]
        if any(data.values()):
            return data
        await asyncio.sleep(0.01)


async def begun(camellia: Server) -> None:
    """The first minute has begun."""
    assert (await camellia.ask("getMonitorData"))["data"] == EMPTY
    await until(lambda: bool(camellia.metrics.ears))


async def test_the_rows_of_a_minute_are_those_of_its_requests(camellia: Server, minutes: asyncio.Event) -> None:
    await camellia.send(msgId="before")
    await begun(camellia)
    for msg_id in ("a", "b", "c"):
        await camellia.send(msgId=msg_id, delayMillis=10)
    await camellia.pass_ms(15)
    await camellia.pull(batch=4, ackTimeoutMillis=100)
    await camellia.ask("ackMsg", topic="t", msgId="a", ack="true")
    await camellia.ask("deleteMsg", topic="t", msgId="c")
    for msg_id in ("a", "b"):
        await camellia.read(msg_id)
    minutes.set()
    data = await until_data(camellia)
    assert data == {
        "requestStatsList": [
            {
                "topic": "t",
                "sendMsg": 3,
                "pullMsg": 4,
                "deleteMsg": 1,
                "ackMsg": 1,
                "getMsg": 2,
                "triggerMsgReady": 3,
                "triggerMsgEndLife": 0,
                "triggerMsgTimeout": 0,
            }
        ],
        "pullMsgTimeGapStatsList": [{"topic": "t", "count": 4, "avg": 7.5, "max": 15}],
        "readyQueueTimeGapStatsList": [{"topic": "t", "count": 3, "avg": 5.0, "max": 5}],
    }
    camellia.dialect.drain()


async def test_a_redelivery_and_a_death_are_counted(camellia: Server, minutes: asyncio.Event) -> None:
    await begun(camellia)
    await camellia.send(msgId="m", maxRetry=1)
    for _ in range(2):
        await camellia.pull(ackTimeoutMillis=100)
        await camellia.pass_ms(100)
    minutes.set()
    (row,) = (await until_data(camellia))["requestStatsList"]
    assert (row["triggerMsgTimeout"], row["triggerMsgEndLife"]) == (1, 1)
    camellia.dialect.drain()


async def test_the_string_has_the_same_and_the_topics(camellia: Server, minutes: asyncio.Event) -> None:
    await begun(camellia)
    await camellia.send(delayMillis=1000)
    minutes.set()
    data = await until_data(camellia)
    reply = await camellia.get("/camellia/delayQueue/getMonitorString")
    assert reply.content_type.startswith("text/plain")
    page = json.loads(reply.body)
    assert list(page) == [
        *("requestStats", "pullMsgTimeGapStats", "readyQueueTimeGapStats", "topicInfoStats", "waitingQueueStats")
    ]
    assert page["requestStats"] == data["requestStatsList"]
    sizes = {"topic": "t", "waitingQueueSize": 1, "ackQueueSize": 0, "readyQueueSize": 0}
    assert page["topicInfoStats"] == [sizes]
    (waiting,) = page["waitingQueueStats"]
    assert waiting["topic"] == "t" and waiting["sizeOf0To1min"] == 1 and len(waiting) == 10
    camellia.dialect.drain()


async def test_a_namespace_sees_its_own_topics_only(make: Make, minutes: asyncio.Event) -> None:
    server = make(namespaces={"im": "im."}, prefix="p.")
    await begun(server)
    await server.send(topic="t")
    await server.ask("sendMsg", "/im", topic="t", msg="x", delayMillis=0)
    minutes.set()
    (row,) = (await until_data(server))["requestStatsList"]
    assert (row["topic"], row["sendMsg"]) == ("t", 1)
    assert (await server.ask("getMonitorData", "/im"))["data"] == EMPTY  # its first minute begins
    server.dialect.drain()


async def test_a_token_sees_the_rows_of_its_topics_whoever_asked_first(
    camellia: Server, minutes: asyncio.Event
) -> None:
    def granted(*rights: str, topics: tuple[str, ...]) -> Grant:
        return Grant(Record(id=topics[0], name="", digest="", rights=rights, topics=topics, created=0, changed=0), "")

    for topic in ("mail", "bill"):  # so that they are known
        await camellia.send(topic=topic, msgId="before")
    one, other = (granted("look", topics=(topic,)) for topic in ("mail", "bill"))
    camellia.grant = one
    await begun(camellia)
    camellia.grant = OPEN
    for topic in ("mail", "bill"):
        await camellia.send(topic=topic, delayMillis=10)
    await camellia.pass_ms(15)
    for topic in ("mail", "bill"):
        await camellia.pull(topic=topic)
        await camellia.read("before", topic)
    minutes.set()
    for grant, topic in ((one, "mail"), (other, "bill")):
        camellia.grant = grant
        data = await until_data(camellia)
        assert {name: [row["topic"] for row in rows] for name, rows in data.items()} == {
            part: [topic] for part in EMPTY
        }
        rows = (await camellia.get("/camellia/delayQueue/getMonitorString")).body.decode()
        assert {"mail", "bill"} & {*re.findall(r"mail|bill", rows)} == {topic}
    camellia.grant = granted("produce", topics=("mail",))
    assert (await camellia.ask("getMonitorData"))["data"] is None


async def test_the_minutes_stop_when_nobody_has_asked_for_ten(
    camellia: Server, minutes: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(camellia)
    await camellia.send()
    minutes.set()
    await until_data(camellia)
    monkeypatch.setattr(monitor, "_IDLE_S", -1.0)
    minutes.set()
    await until(lambda: not camellia.metrics.ears)
    monkeypatch.undo()
    assert (await camellia.ask("getMonitorData"))["data"] == EMPTY
    camellia.dialect.drain()


async def test_nothing_is_watched_before_somebody_asks_and_after_the_end(camellia: Server) -> None:
    await camellia.read("m")
    assert camellia.metrics.ears == []
    await begun(camellia)
    camellia.dialect.drain()
    await until(lambda: not camellia.metrics.ears)
