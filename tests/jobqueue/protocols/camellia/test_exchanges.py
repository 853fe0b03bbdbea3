"""camellia's exact exchanges: the bytes that its clients send, and those that they get."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog

from buckets import Pool
from buckets.errors import Unavailable
from jobqueue.errors import ShuttingDown, TooLarge, Unauthorized
from jobqueue.protocols import Request
from jobqueue.settings import Settings, TopicSettings
from tests.jobqueue.protocols.camellia.conftest import Make, Server

NOW = 1_800_000_007_654
PATH = "/camellia/delayQueue/"
MEMBERS = ["topic", "msgId", "msg", "produceTime", "triggerTime", "expireTime", "maxRetry", "retry", "status"]


async def test_a_message_is_sent_as_the_java_sdk_sends_it(camellia: Server) -> None:
    reply = await camellia.post(
        PATH + "sendMsg",
        b"msg=%7B%22x%22%3A%22%C3%A9+%26%22%7D&maxRetry=-1&delayMillis=1500&topic=%E8%AE%A2%E5%8D%95+a&ttlMillis=-1"
        b"&msgId=id%2B1%2F2",
    )
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.body.decode() == (
        '{"code":200,"msg":"success","delayMsg":{"topic":"订单 a","msgId":"id+1/2","msg":"{\\"x\\":\\"é &\\"}",'
        f'"produceTime":{NOW},"triggerTime":{NOW + 1500},"expireTime":{NOW + 1500 + 3_600_000},'
        '"maxRetry":10,"retry":0,"status":1}}'
    )


async def test_a_message_is_pulled_acked_and_read(camellia: Server) -> None:
    await camellia.send(msgId="m", msg="hello", ttlMillis=1000, maxRetry=2)
    shown = f'"topic":"t","msgId":"m","msg":"hello","produceTime":{NOW},"triggerTime":{NOW},"expireTime":{NOW + 1000}'
    pulled = await camellia.post(PATH + "pullMsg", b"topic=t&batch=1&ackTimeoutMillis=30000")
    assert pulled.body.decode() == (
        f'{{"code":200,"msg":null,"delayMsgList":[{{{shown},"maxRetry":2,"retry":1,"status":3}}]}}'
    )
    acked = await camellia.post(PATH + "ackMsg", b"topic=t&msgId=m&ack=true")
    assert acked.body == b'{"code":200,"msg":"success"}'
    read = await camellia.post(PATH + "getMsg", b"topic=t&msgId=m")
    assert read.body.decode() == (
        f'{{"code":200,"msg":"success","delayMsg":{{{shown},"maxRetry":2,"retry":1,"status":4}}}}'
    )


@pytest.mark.parametrize("operation", ["pullMsg", "longPollingMsg"])
async def test_an_empty_queue_gives_an_empty_list(camellia: Server, operation: str) -> None:
    reply = await camellia.post(PATH + operation, b"topic=t&longPollingTimeoutMillis=1")
    assert reply.body == b'{"code":200,"msg":null,"delayMsgList":[]}'


async def test_what_is_not_there_is_404(camellia: Server) -> None:
    deleted = await camellia.post(PATH + "deleteMsg", b"topic=t&msgId=m")
    assert deleted.body == b'{"code":404,"msg":null}'
    read = await camellia.post(PATH + "getMsg", b"topic=t&msgId=m")
    assert read.body == b'{"code":404,"msg":null,"delayMsg":null}'


async def test_parameters_may_stand_in_the_query_and_the_first_of_a_name_counts(camellia: Server) -> None:
    reply = await camellia.post(PATH + "sendMsg", b"topic=second&msg=x&more=1", query="topic=first&delayMillis=+%2B5+")
    message = json.loads(reply.body)["delayMsg"]
    assert message["topic"] == "first" and message["triggerTime"] - message["produceTime"] == 5


async def test_a_parameter_that_is_missing_or_cannot_be_read_is_http_400(
    subtests: pytest.Subtests, camellia: Server
) -> None:
    cases: list[tuple[str, str, str]] = [
        ("sendMsg", "msg=x&delayMillis=0", "topic is required"),
        ("sendMsg", "topic=t&delayMillis=0", "msg is required"),
        ("sendMsg", "topic=t&msg=x", "delayMillis is required"),
        ("sendMsg", "topic=t&msg=x&delayMillis=", "delayMillis is required"),
        ("sendMsg", "topic=t&msg=x&delayMillis=soon", "delayMillis must be an integer"),
        ("sendMsg", "topic=t&msg=x&delayMillis=0&ttlMillis=1.5", "ttlMillis must be an integer"),
        ("sendMsg", "topic=t&msg=x&delayMillis=0&maxRetry=2147483648", "maxRetry must be an integer"),
        ("sendMsg", "topic=%ff&msg=x&delayMillis=0", "topic is not UTF-8"),
        ("pullMsg", "", "topic is required"),
        ("pullMsg", "topic=t&batch=many", "batch must be an integer"),
        ("pullMsg", "topic=t&ackTimeoutMillis=x", "ackTimeoutMillis must be an integer"),
        ("longPollingMsg", "topic=t&longPollingTimeoutMillis=x", "longPollingTimeoutMillis must be an integer"),
        ("ackMsg", "topic=t", "msgId is required"),
        ("ackMsg", "topic=t&msgId=m&ack=maybe", "ack must be true or false"),
        ("deleteMsg", "msgId=m", "topic is required"),
        ("deleteMsg", "topic=t&msgId=m&release=maybe", "release must be true or false"),
        ("getMsg", "topic=t", "msgId is required"),
    ]
    for operation, form, why in cases:
        with subtests.test(operation=operation, form=form, why=why):
            reply = await camellia.post(PATH + operation, form.encode())
            page = json.loads(reply.body)
            assert list(page) == ["timestamp", "status", "error", "path", "message"]
            assert (reply.status, page["status"], page["error"], page["path"]) == (
                400,
                400,
                "Bad Request",
                PATH + operation,
            )
            assert page["message"].startswith(why)


async def test_other_paths_and_methods_are_refused_as_spring_does(subtests: pytest.Subtests, camellia: Server) -> None:
    cases: list[tuple[str, str, int, str]] = [
        ("GET", PATH + "sendMsg", 405, "Method Not Allowed"),
        ("PUT", PATH + "ackMsg", 405, "Method Not Allowed"),
        ("POST", PATH + "getTopicInfo", 405, "Method Not Allowed"),
        ("POST", PATH + "sendMessage", 404, "Not Found"),
        ("GET", "/", 404, "Not Found"),
        ("GET", "/camellia/delayQueue", 404, "Not Found"),
        ("GET", "/camellia/health/offline", 404, "Not Found"),
        ("POST", "/im/camellia/delayQueue/sendMsg", 404, "Not Found"),
        ("GET", "/camellia/delayQueue/getTopicInfo", 400, "Bad Request"),
    ]
    for method, path, status, error in cases:
        with subtests.test(method=method, path=path, status=status, error=error):
            reply = await camellia.exchange(Request(method, path, "", {}, b""))
            page = json.loads(reply.body)
            assert (reply.status, page["status"], page["error"], page["path"]) == (status, status, error, path)


async def test_what_the_queue_refuses_is_http_200_with_code_400_and_a_sentence(
    subtests: pytest.Subtests, camellia: Server
) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("sendMsg", {"topic": ""}, {"delayMsg": None}),
        ("sendMsg", {"msg": ""}, {"delayMsg": None}),
        ("sendMsg", {"msgId": "%m"}, {"delayMsg": None}),
        ("sendMsg", {"msgId": "%"}, {"delayMsg": None}),
        ("sendMsg", {"delayMillis": 315_360_000_001}, {"delayMsg": None}),
        ("sendMsg", {"topic": "t" * 256}, {"delayMsg": None}),
        ("sendMsg", {"topic": "订" * 29}, {"delayMsg": None}),
        ("sendMsg", {"msgId": "m" * 254}, {"delayMsg": None}),
        ("pullMsg", {"topic": ""}, {"delayMsgList": None}),
        ("pullMsg", {"topic": "t" * 256}, {"delayMsgList": None}),
        ("longPollingMsg", {"topic": "", "longPollingTimeoutMillis": 1}, {"delayMsgList": None}),
        ("ackMsg", {"topic": ""}, {}),
        ("ackMsg", {"msgId": ""}, {}),
        ("deleteMsg", {"topic": ""}, {}),
        ("deleteMsg", {"msgId": ""}, {}),
        ("getMsg", {"msgId": ""}, {"delayMsg": None}),
        ("getMsg", {"msgId": "%订单"}, {"delayMsg": None}),
        ("getTopicInfo", {"topic": ""}, {"data": None}),
    ]
    for operation, parameters, rest in cases:
        with subtests.test(operation=operation, parameters=parameters, rest=rest):
            form: dict[str, Any] = {"topic": "t", "msg": "x", "delayMillis": 0, "msgId": "m"}
            answer = await camellia.ask(operation, **(form | parameters))
            assert answer.pop("code") == 400 and answer.pop("msg") and answer == rest
            assert await camellia.pull() == []


async def test_a_body_that_is_too_long_is_code_400(make: Make) -> None:
    server = make(Settings(max_body_bytes=64))
    answer = await server.ask("sendMsg", topic="t", msg="x" * 63, delayMillis=0)
    assert answer["code"] == 400 and answer["msg"] == "body has 65 bytes; at most 64 are allowed"
    assert (await server.send(msg="x" * 62))["msg"] == "x" * 62


@pytest.mark.parametrize("error", [ShuttingDown(), Unavailable("Redis is away"), RuntimeError("a customer's secret")])
async def test_a_server_error_is_http_200_with_code_500_and_a_sentence(camellia: Server, error: Exception) -> None:
    reply = camellia.dialect.refuse(error, Request("POST", PATH + "pullMsg", "", {}, b""))
    answer = json.loads(reply.body)
    assert reply.status == 200 and answer["code"] == 500 and answer["msg"] and "customer" not in answer["msg"]


async def test_an_error_is_logged_and_counted(camellia: Server) -> None:
    with structlog.testing.capture_logs() as logs:
        for error in (RuntimeError("a bug"), Unauthorized(missing=True)):
            camellia.dialect.refuse(error, Request("POST", PATH + "pullMsg", "", {}, b""))
    assert [entry["event"] for entry in logs] == ["command.failed"]
    camellia.metrics.pour(0)
    for code in ("INTERNAL", "UNAUTHORIZED"):
        labels = {"protocol": "camellia", "command": "unreadable", "code": code}
        assert camellia.metrics.registry.get_sample_value("jobqueue_commands_total", labels) == 1


async def test_a_request_that_is_too_large_is_code_400(camellia: Server) -> None:
    reply = camellia.dialect.refuse(TooLarge(), Request("POST", PATH + "sendMsg", "", {}, b""))
    assert reply.status == 200 and json.loads(reply.body)["code"] == 400


async def test_a_full_topic_is_code_500(make: Make) -> None:
    server = make(Settings(topics={"t": TopicSettings(max_pending=1)}))
    await server.send()
    answer = await server.ask("sendMsg", topic="t", msg="x", delayMillis=0)
    assert answer["code"] == 500 and answer["msg"] and answer["delayMsg"] is None


async def test_a_long_poll_that_fails_waits_before_it_is_answered(
    camellia: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("jobqueue.protocols.camellia.dialect.asyncio.sleep", sleep)
    await camellia.ask("longPollingMsg", topic="", longPollingTimeoutMillis=300)
    await camellia.ask("longPollingMsg", topic="")
    await camellia.ask("pullMsg", topic="")
    assert waits == [0.3, 1.0]


async def test_a_form_is_read_only_from_a_form(camellia: Server) -> None:
    form = b"topic=t&msg=x&delayMillis=0"
    assert (await camellia.post(PATH + "sendMsg", form, content_type="application/json")).status == 400
    assert (await camellia.post(PATH + "sendMsg", form, content_type="")).status == 200


async def test_health_says_whether_the_service_can_work(camellia: Server) -> None:
    for method in ("GET", "POST", "HEAD"):
        for name in ("status", "check"):
            reply = await camellia.exchange(Request(method, f"/camellia/health/{name}", "", {}, b""))
            assert (reply.status, reply.body) == (200, b'{"code":200}')
    camellia.is_ready = False
    reply = await camellia.get("/camellia/health/status")
    assert (reply.status, reply.body) == (500, b'{"code":500}')
    assert (await camellia.get("/camellia/health/check")).status == 200


async def test_health_while_the_service_stops(camellia: Server) -> None:
    for name, status in (("status", 500), ("check", 200)):
        request = Request("GET", f"/camellia/health/{name}", "", {}, b"")
        assert camellia.dialect.refuse(ShuttingDown(), request).status == status
        assert camellia.dialect.is_open(request)
    assert not camellia.dialect.is_open(Request("POST", PATH + "pullMsg", "", {}, b""))


async def test_a_message_always_has_its_nine_members(camellia: Server, pool: Pool) -> None:
    sent = await camellia.send(msgId="m")
    (pulled,) = await camellia.pull()
    read = await camellia.read("m")
    assert list(sent) == list(pulled) == list(read) == MEMBERS
