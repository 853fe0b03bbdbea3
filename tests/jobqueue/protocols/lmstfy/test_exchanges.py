"""Each request of lmstfy's clients with its answers, byte by byte."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.jobqueue.protocols.lmstfy.conftest import GoClient
from tests.jobqueue.protocols.served import Served, eventually

MEMBERS = ["msg", "namespace", "queue", "job_id", "data", "ttl", "elapsed_ms", "remain_tries", "attributes"]


def data_of(job: Any) -> bytes:
    return base64.b64decode(job["data"], validate=True)


def test_a_session_goes_as_with_theirs(client: GoClient, queue: str) -> None:
    published = client.ask("PUT", queue, b"hello", ttl=0, tries=1, delay=0)
    job_id = published.json["job_id"]
    assert published.status == 201
    assert published.body == b'{"msg":"published","job_id":"%s"}' % job_id.encode()
    assert published.headers["content-type"] == "application/json"
    consumed = client.ask("GET", queue, ttr=5, timeout=1, freeze_tries="false")
    elapsed = consumed.json["elapsed_ms"]
    assert consumed.status == 200 and elapsed >= 0
    assert consumed.body.decode() == (
        f'{{"msg":"new job","namespace":"ns","queue":"{queue}","job_id":"{job_id}","data":"aGVsbG8=","ttl":0,'
        f'"elapsed_ms":{elapsed},"remain_tries":0,"attributes":null}}'
    )
    acked = client.ask("DELETE", f"{queue}/job/{job_id}")
    assert (acked.status, acked.body) == (204, b"")
    assert client.ask("GET", f"{queue}/job/{job_id}").body == b'{"error":"job not found"}'


def test_every_answer_has_a_request_id(client: GoClient, queue: str) -> None:
    asked = [("PUT", queue), ("GET", queue), ("GET", queue), ("DELETE", f"{queue}/job/x"), ("GET", f"{queue}/x/y")]
    responses = [client.ask(*each) for each in asked]
    assert [response.status for response in responses] == [201, 200, 404, 204, 404]
    assert all(response.headers["x-request-id"] for response in responses)


def test_a_native_job_is_consumed_by_its_own_id_in_their_spelling(served: Served, client: GoClient, queue: str) -> None:
    job_id = f"{queue}/a#b@c=d:1"
    served.native("add", topic=f"l.ns/{queue}", id=job_id, body={"x": 1}, tries=0, headers={"trace": "t1"})
    job = client.consume(queue).json
    assert job["job_id"] == f"{queue}~2Fa~23b~40c~3Dd~3A1"
    assert (data_of(job), job["remain_tries"], job["attributes"]) == (b'{"x": 1}', 65_535, {"trace": "t1"})
    assert client.ask("DELETE", f"{queue}/job/{job['job_id']}").status == 204
    assert served.native("get", id=job_id)["state"] == "finished"


def test_jobs_come_when_their_delay_is_over(client: GoClient, queue: str) -> None:
    client.publish(queue, b"later", delay=1)
    assert client.consume(queue).status == 404
    job = client.consume(queue, timeout=20).json
    assert data_of(job) == b"later" and job["elapsed_ms"] >= 1000


def test_a_consume_without_a_job_says_so(client: GoClient, queue: str) -> None:
    response = client.consume(queue, timeout=1)
    assert (response.status, response.body) == (404, b'{"msg":"no job available"}')


def test_ttl_and_tries_are_shown_as_what_is_left(client: GoClient, queue: str) -> None:
    client.publish(queue, b"x", ttl=10, tries=3)
    job = client.consume(queue).json
    assert (job["ttl"], job["remain_tries"]) == (10, 2)


def test_the_defaults_are_those_of_the_settings(client: GoClient, queue: str) -> None:
    client.ask("PUT", queue, b"x")
    job = client.ask("GET", queue).json
    assert (job["ttl"], job["remain_tries"]) == (86_400, 0)


def test_one_delivery_by_default_then_the_dead_letters(served: Served, client: GoClient, queue: str) -> None:
    job_id = client.publish(queue, b"x")
    client.consume(queue, ttr=1)
    eventually(lambda: served.native("get", id=job_id)["state"] == "dead")
    seen = client.ask("GET", f"{queue}/deadletter").body.decode()
    assert seen == f'{{"namespace":"ns","queue":"{queue}","deadletter_size":1,"deadletter_head":"{job_id}"}}'
    size = client.ask("GET", f"{queue}/deadletter/size").body.decode()
    assert size == f'{{"namespace":"ns","queue":"{queue}","size":1}}'
    assert client.ask("PUT", f"{queue}/deadletter", limit=2, ttl=120).body == b'{"msg":"respawned","count":1}'
    assert client.consume(queue).json["job_id"] == job_id


def test_dead_letters_are_deleted_in_their_order(served: Served, client: GoClient, queue: str) -> None:
    ids = [client.publish(queue, b"x") for _ in range(3)]
    for job_id in ids:
        client.consume(queue)
        assert served.native("bury", id=job_id)["success"]
    assert client.ask("DELETE", f"{queue}/deadletter").status == 204
    assert client.ask("GET", f"{queue}/deadletter").json["deadletter_head"] == ids[1]
    assert client.ask("DELETE", f"{queue}/deadletter", limit=9).status == 204
    gone = client.ask("GET", f"{queue}/deadletter").json
    assert (gone["deadletter_size"], gone["deadletter_head"]) == (0, "")


def test_several_jobs_are_consumed_as_an_array(client: GoClient, queue: str) -> None:
    ids = [client.publish(queue, b"x") for _ in range(4)]
    first = client.ask("GET", queue, ttr=60, timeout=3, count=3).json
    assert [job["job_id"] for job in first] == ids[:3] and list(first[0]) == MEMBERS
    assert [job["job_id"] for job in client.ask("GET", queue, ttr=60, timeout=3, count=3).json] == ids[3:]
    empty = client.ask("GET", queue, ttr=60, count=3)
    assert (empty.status, empty.body) == (404, b'{"msg":"no job available"}')


def test_queues_are_consumed_in_their_order(client: GoClient, queue: str) -> None:
    one, two = f"{queue}-1", f"{queue}-2"
    client.publish(one, b"1")
    client.publish(two, b"2")
    job = client.consume(f"{two},{one}").json
    assert (job["queue"], data_of(job)) == (two, b"2")
    assert client.consume(f"{two},,{one},{one}").json["queue"] == one


def test_a_bulk_keeps_the_text_of_each_element(client: GoClient, queue: str) -> None:
    texts = ['"hello msg"', "123456", '{"msg": "ok"}', '["foo","bar"]', "true", "null", '"é\\n"']
    response = client.ask("PUT", f"{queue}/bulk", f"[{', '.join(texts)}]".encode(), ttl=10, tries=1, delay=0)
    assert response.status == 201 and list(response.json) == ["msg", "job_ids"]
    jobs = client.ask("GET", queue, count=100).json
    assert {job["job_id"]: data_of(job).decode() for job in jobs} == dict(
        zip(response.json["job_ids"], texts, strict=True)
    )


def test_attributes_go_with_the_job(client: GoClient, queue: str) -> None:
    given = {"hello": "world", "foo": "bar", "x" * 40: "v" * 200}
    client.ask("PUT", queue, b"\xff", given, ttl=10, tries=10, delay=0)
    job = client.consume(queue).json
    assert job["attributes"] == {"hello": "world", "foo": "bar", "x" * 32: "v" * 128}
    assert data_of(job) == b"\xff"


def test_attributes_count_only_with_the_header_that_enables_them(client: GoClient, queue: str) -> None:
    lines = "Host: localhost\nX-Token: tok\nJob-Attr-A: 1"
    client.connection.ask(f"PUT /api/ns/{queue}", lines, b"x")
    assert client.consume(queue).json["attributes"] is None


def test_a_republished_job_is_a_new_one_and_the_old_one_ends(served: Served, client: GoClient, queue: str) -> None:
    old = client.publish(queue, b"x")
    client.consume(queue)
    response = client.ask("PUT", f"{queue}/job/{old}", b"y", ttl=10, tries=1, delay=0)
    new = response.json["job_id"]
    assert response.status == 201 and new != old
    assert served.native("get", id=old)["state"] == "finished"
    job = client.consume(queue).json
    assert (job["job_id"], data_of(job), job["ttl"]) == (new, b"y", 10)


def test_a_refused_republish_leaves_the_old_job(served: Served, client: GoClient, queue: str) -> None:
    old = client.publish(queue, b"x")
    assert client.ask("PUT", f"{queue}/job/{old}", b"y", tries=0).status == 400
    assert served.native("get", id=old)["state"] == "ready"


def test_a_job_that_was_not_delivered_is_cancelled(served: Served, client: GoClient, queue: str) -> None:
    job_id = client.publish(queue, b"x", delay=60)
    assert client.ask("DELETE", f"{queue}/job/{job_id}").status == 204
    assert served.native("get", id=job_id)["state"] == "deleted"


@pytest.mark.parametrize("job_id", ["unknown", "not~a~name", "%FF", "a" * 300])
def test_an_ack_of_an_unknown_job_succeeds(client: GoClient, queue: str, job_id: str) -> None:
    response = client.ask("DELETE", f"{queue}/job/{job_id}")
    assert (response.status, response.body) == (204, b"")
    assert client.ask("GET", f"{queue}/job/{job_id}").body == b'{"error":"job not found"}'


def test_an_ack_ends_no_job_of_another_queue(served: Served, client: GoClient, queue: str) -> None:
    job_id = client.publish(queue, b"x")
    client.consume(queue)
    assert client.ask("DELETE", f"{queue}-2/job/{job_id}").status == 204
    assert served.native("get", id=job_id)["state"] == "reserved"
    assert client.ask("GET", f"{queue}-2/job/{job_id}").status == 404


def test_the_first_ready_job_is_seen_without_taking_it(client: GoClient, queue: str) -> None:
    empty = client.ask("GET", f"{queue}/peek")
    assert (empty.status, empty.body) == (404, b'{"error":"the queue is empty"}')
    first = client.publish(queue, b"1")
    client.publish(queue, b"2")
    seen = client.ask("GET", f"{queue}/peek").json
    assert (seen["job_id"], data_of(seen), list(seen)) == (first, b"1", MEMBERS[1:])
    assert client.ask("GET", f"{queue}/job/{first}").json["remain_tries"] == 1
    assert client.ask("GET", f"{queue}/size").body.decode() == f'{{"namespace":"ns","queue":"{queue}","size":2}}'


def test_a_queue_is_destroyed_to_its_ready_jobs(served: Served, client: GoClient, queue: str) -> None:
    ready, later = client.publish(queue, b"x"), client.publish(queue, b"x", delay=60)
    response = client.ask("DELETE", queue)
    assert (response.status, response.body) == (204, b"")
    assert [served.native("get", id=job_id)["state"] for job_id in (ready, later)] == ["deleted", "delayed"]


def test_a_job_of_a_virtual_queue_is_one_in_each(client: GoClient) -> None:
    job_id = client.publish("both", b"x")
    for side in ("left", "right"):
        job = client.consume(side).json
        assert job["job_id"] == f"{job_id}~40l.ns~2F{side}"
        assert client.ask("DELETE", f"{side}/job/{job['job_id']}").status == 204


def test_a_body_with_a_get_or_a_delete_is_ignored(client: GoClient, queue: str) -> None:
    client.publish(queue, b"x")
    lines = "Host: localhost\nX-Token: tok"
    assert client.connection.ask(f"GET /api/ns/{queue}", lines, b"left over").status == 200
    assert client.connection.ask(f"DELETE /api/ns/{queue}", lines, b"left over").status == 204


def test_what_curl_in_php_sends(client: GoClient, queue: str) -> None:
    """One handle for all requests: a later one repeats the body of the last, and a large one waits to be asked for."""
    lines = "Host: 127.0.0.1:7777\nAccept: */*\nX-Token:tok\nContent-Type: application/x-www-form-urlencoded"
    publish = f"PUT /api/ns/{queue}?ttl=10&tries=3&delay=0"
    asked = client.connection.ask(publish, f"{lines}\nExpect: 100-continue", b"x=1&timeout=60")
    assert (asked.status, client.connection.receive().status) == (100, 201)
    job = client.connection.ask(f"GET /api/ns/{queue}?Array", lines, b"x=1&timeout=60").json
    assert (data_of(job), job["ttl"], job["remain_tries"]) == (b"x=1&timeout=60", 10, 2)
    assert client.connection.ask(f"GET /api/ns/{queue}?ttr=5", lines, b"x=1&timeout=60").status == 404


def test_the_same_below_the_path_on_the_service_s_own_port(served: Served, queue: str) -> None:
    lines = "Host: localhost\nX-Token: tok"
    with served.connect(served.port) as connection:
        assert connection.ask(f"PUT /theirs//api/ns/{queue}", lines, b"x").status == 201
        assert data_of(connection.ask(f"GET /theirs/api/ns/{queue}", lines).json) == b"x"


def test_what_is_kept_says_the_names_as_they_are(served: Served, client: GoClient, queue: str) -> None:
    job_id = client.publish(queue, json.dumps({"a": 1}).encode(), delay=5, ttl=60, tries=2)
    job = served.native("get", id=job_id)
    assert (job["topic"], job["ttl"], job["tries"]) == (f"l.ns/{queue}", 55, 2)
