"""Each request of mykit-delay's clients with its answers, byte by byte."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.jobqueue.protocols.mykit.conftest import HTTP_CLIENT, REST_TEMPLATE, JavaClient
from tests.jobqueue.protocols.served import Response, Served


def wrapper(data: str | None, message: str | None = None, *, success: bool = True) -> bytes:
    """The bytes of an answer."""
    parts = {"success": success, "data": data, "code": 200 if success else 500}
    nothing = {"includes": None, "excludes": None, "onlyData": False, "callback": None}
    return json.dumps(parts | nothing | {"message": message}, ensure_ascii=False, separators=(",", ":")).encode()


def failed(response: Response, words: str) -> bool:
    """Whether it is a failure whose message has these words."""
    message = response.json["message"]
    assert words in message
    return (response.status, response.body) == (200, wrapper(None, message, success=False))


@pytest.mark.parametrize(
    "headers", [REST_TEMPLATE, HTTP_CLIENT, "Host: localhost", "Host: x\nContent-Type: text/plain"]
)
def test_a_push_answers_the_id_and_the_job_is_there(
    served: Served, client: JavaClient, topic: str, headers: str
) -> None:
    body = '{"body":"{\\"order\\":1001}","delay":0,"id":"%s:1","status":0,"topic":"%s","subtopic":"sub","ttl":12}'
    response = client.post((body % (topic, topic)).encode(), headers)
    assert (response.status, response.body) == (200, wrapper(f"{topic}:1"))
    assert response.headers["content-type"] == "application/json" and response.headers["x-request-id"]
    job = served.native("pop", topic=f"m.{topic}")
    assert (job["id"], job["value"], job["headers"]) == (f"m.{topic}:1", {"order": 1001}, {"subtopic": "sub"})


def test_an_id_is_made_of_topic_and_key(served: Served, client: JavaClient, topic: str) -> None:
    made = client.push(topic=topic, bizKey="10 01", body="x")["data"]
    assert made.startswith(f"{topic}:10 01:")
    assert served.native("pop", topic=f"m.{topic}")["headers"] == {"bizKey": "10 01"}
    assert client.get("/finish", jobId=made).body == wrapper(None)
    plain = client.push(topic=topic, bizKey=None, subtopic="", body="x")["data"]
    assert plain.count(":") == 1 and served.native("pop", topic=f"m.{topic}")["headers"] is None


@pytest.mark.parametrize(
    ("member", "value"),
    [('"text"', "text"), ("12.50", "12.50"), ("true", "true"), ("null", ""), ('"[1]"', [1]), ('"é\\n"', "é\n")],
)
def test_a_scalar_is_taken_as_its_text(
    served: Served, client: JavaClient, topic: str, member: str, value: object
) -> None:
    client.post(f'{{"topic":"{topic}","body":{member},"unknown":{{}},"buckedName":"b1"}}'.encode())
    assert served.native("pop", topic=f"m.{topic}")["value"] == value


@pytest.mark.parametrize("delay", ["60000", '"60000"', "60000.9", '" 60000 "', '"+60000"'])
def test_a_delay_may_be_a_string_and_its_fraction_is_cut_off(
    served: Served, client: JavaClient, topic: str, delay: str
) -> None:
    job_id = client.post(f'{{"topic":"{topic}","delay":{delay}}}'.encode()).json["data"]
    job = served.native("get", id=f"m.{job_id}")
    assert job["state"] == "delayed" and job["due"] - job["created"] == pytest.approx(60, abs=0.002)


def test_a_delay_counts_from_the_time_of_creation_where_that_is_given(
    served: Served, client: JavaClient, topic: str
) -> None:
    created = time.time_ns() // 1_000_000 - 1_000_000
    for delay, state in ((1_060_000, "delayed"), (900_000, "ready"), (-5, "ready")):
        job_id = client.push(topic=topic, createTime=created, delay=delay)["data"]
        assert served.native("get", id=f"m.{job_id}")["state"] == state
    for past in (1, -1, "-9223372036854775808"):
        job_id = client.push(topic=topic, createTime=past, delay=1)["data"]
        assert served.native("get", id=f"m.{job_id}")["state"] == "ready"
    due = served.native("peek", topic=f"m.{topic}", state="delayed")["jobs"][0]["due"]
    assert round(due * 1000) == created + 1_060_000
    for missing in (None, 0, ""):
        job_id = client.push(topic=topic, createTime=missing, delay=60_000)["data"]
        assert served.native("get", id=f"m.{job_id}")["state"] == "delayed"


def test_a_push_of_a_known_id_is_a_new_body_and_due_time(served: Served, client: JavaClient, topic: str) -> None:
    first = client.push(topic=topic, id=topic, delay=60_000, body="old")
    assert client.push(topic=topic, id=topic, delay=0, body="new", status=5) == first
    job = served.native("pop", topic=f"m.{topic}")
    assert job["value"] == "new"
    while_reserved = client.push(topic=topic, id=topic, delay=0, body="third")
    assert not while_reserved["success"] and "reserved" in while_reserved["message"]
    assert served.native("get", id=f"m.{topic}")["value"] == "new"


def test_a_job_is_deleted_once_and_the_message_says_so_later(served: Served, client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, delay=60_000, body="x")
    assert client.get("/delete", jobId=topic).body == wrapper(None)
    assert served.native("get", id=f"m.{topic}")["state"] == "deleted"
    assert client.get("/delete", jobId=topic).body == wrapper(None, "the job was deleted before")
    assert client.get("/delete", jobId="unknown").body == wrapper(None, "no such job")


def test_a_delete_of_a_finished_job_says_so(served: Served, client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, body="x")
    served.native("pop", topic=f"m.{topic}")
    assert client.get("/finish", jobId=topic).body == wrapper(None)
    deleted = client.get("/delete", jobId=topic).json
    assert deleted["success"] and deleted["data"] is None and deleted["message"]


def test_a_finish_needs_a_delivery(client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, body="x")
    assert failed(client.get("/finish", jobId=topic), "not reserved")
    assert failed(client.get("/finish", jobId="unknown"), "no such job")


def test_a_restored_job_is_a_dead_one_that_is_ready_again(served: Served, client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, body="x")
    assert client.get("/reStoreJob", jobId=topic).body == wrapper(None)
    served.native("pop", topic=f"m.{topic}")
    assert client.get("/reStoreJob", jobId=topic).body == wrapper(None)
    served.native("bury", id=f"m.{topic}")
    assert client.get("/reStoreJob", jobId=topic).body == wrapper(None)
    assert served.native("get", id=f"m.{topic}")["state"] == "ready"
    served.native("delete", id=f"m.{topic}")
    assert failed(client.get("/reStoreJob", jobId=topic), "")
    assert failed(client.get("/reStoreJob", jobId="unknown"), "no such job")


@pytest.mark.parametrize("query", [{}, {"expire": "true"}, {"expire": "false"}])
def test_without_a_journal_there_is_nothing_to_restore(client: JavaClient, query: dict[str, str]) -> None:
    assert failed(client.get("/reStore", **query), "no journal")


def test_all_is_cleared_below_the_prefix_and_nowhere_else(served: Served, client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, delay=60_000, body="x")
    served.native("add", topic="another", id="another", body=1)
    cleared: Any = client.get("/clearAll").json
    assert cleared["success"] and "deleted" in cleared["data"] and " ms" in cleared["data"]
    assert served.native("get", id=f"m.{topic}")["state"] == "deleted"
    assert served.native("get", id="another")["state"] == "ready"


def test_all_gets_may_be_posts(client: JavaClient, topic: str) -> None:
    client.push(topic=topic, id=topic, delay=60_000, body="x")
    form = "Host: localhost\nContent-Type: application/x-www-form-urlencoded"
    assert client.connection.ask("POST /delete", form, f"jobId={topic}".encode()).body == wrapper(None)
    by_query = client.connection.ask(f"POST /delete?jobId={topic}", "Host: localhost\nContent-Length: 0")
    assert by_query.body == wrapper(None, "the job was deleted before")
    client.connection.ask(f"GET /delete?jobId={topic}", "Host: localhost", b"ignored")


def test_a_job_of_another_prefix_is_out_of_reach(served: Served, client: JavaClient, topic: str) -> None:
    served.native("add", topic="elsewhere", id=f"m.{topic}", body=1)
    for path in ("/delete", "/finish", "/reStoreJob"):
        assert client.get(path, jobId=topic).json["message"] == "no such job"
    assert served.native("get", id=f"m.{topic}")["state"] == "ready"


def test_names_of_any_characters(served: Served, client: JavaClient, topic: str) -> None:
    name = f"{topic} 订单/100%"
    assert client.push(topic=name, id=name, body="x")["data"] == name
    found = served.native("topics", pattern=f"m.{topic}*")["topics"][0]["topic"]
    assert found == f"m.{topic}%20%E8%AE%A2%E5%8D%95/100%25"
    assert client.get("/delete", jobId=name).body == wrapper(None)
