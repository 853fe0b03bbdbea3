"""What is refused, by mykit-delay's own code or by the framework before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobqueue.protocols.mykit.conftest import REST_TEMPLATE, JavaClient
from tests.jobqueue.protocols.served import Response, Served

_PAGE = ["timestamp", "status", "error", "message", "path"]


def refused(response: Response, status: int, error: str, path: str) -> bool:
    """Whether it is the framework's page."""
    page = response.json
    assert list(page) == _PAGE and page["message"]
    return (response.status, page["status"], page["error"], page["path"]) == (status, status, error, path)


def test_a_job_that_is_not_allowed(subtests: pytest.Subtests, client: JavaClient) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"{}", "there is no topic"),
        (b'{"topic":"","body":"x"}', "there is no topic"),
        (b'{"topic":null}', "there is no topic"),
        (b'{"topic":"t","status":1}', "must be 0 or 5, not 1"),
        (b'{"topic":"t","delay":315360000001}', "10 years"),
        (b'{"topic":"t","createTime":9999999999999999}', "10 years"),
        (b'{"topic":"' + b"t" * 254 + b'"}', "at most 255"),
        (b'{"topic":"t","id":"' + "é".encode() * 50 + b'"}', "at most 255"),
        (b'{"topic":"t","bizKey":"' + b"k" * 129 + b'"}', "bizKey has 129 characters"),
        (b'{"topic":"t","subtopic":"' + b"k" * 129 + b'"}', "subtopic has 129 characters"),
        (b'{"topic":"t","body":"' + b"x" * 300_000 + b'"}', "are allowed"),
    ]
    for body, words in cases:
        with subtests.test(body=body, words=words):
            response = client.post(body)
            answer = response.json
            assert response.status == 200 and words in answer["message"]
            assert (answer["success"], answer["data"], answer["code"]) == (False, None, 500)


def test_a_body_that_cannot_be_read(subtests: pytest.Subtests, client: JavaClient) -> None:
    cases: list[bytes] = [
        *(b"", b"not JSON", b"[]", b"null", b'"x"', b'{"topic":"t"', b'{"topic":"t"} x', b"\xff", b'{"topic":"\xff"}'),
        *(b'{"topic":{}}', b'{"topic":"t","body":{"a":1}}', b'{"topic":"t","body":[1]}', b'{"topic":"\\ud800"}'),
        *(b'{"topic":"t","delay":"x"}', b'{"topic":"t","delay":true}', b'{"topic":"t","createTime":{}}'),
        *(b'{"topic":"t","status":"x"}', b'{"topic":"t","ttl":"x"}', b"[" * 100_000, b'{"topic":' + b"[" * 100_000),
    ]
    for body in cases:
        with subtests.test(body=body):
            lines = REST_TEMPLATE if body else f"{REST_TEMPLATE}\nContent-Length: 0"
            assert refused(client.post(body, lines), 400, "Bad Request", "/push")


def test_no_id(subtests: pytest.Subtests, client: JavaClient) -> None:
    cases: list[str] = ["/delete", "/finish", "/delete?jobId=", "/finish?jobId=", "/reStoreJob?jobId="]
    for path in cases:
        with subtests.test(path=path):
            answer = client.get(path).json
            assert (answer["success"], answer["message"]) == (False, "there is no jobId")


def test_no_id_to_restore(client: JavaClient) -> None:
    assert refused(client.get("/reStoreJob"), 400, "Bad Request", "/reStoreJob")
    assert refused(client.get("/reStoreJob?JobId=x"), 400, "Bad Request", "/reStoreJob")


@pytest.mark.parametrize("query", ["jobId=%FF", "jobId=" + "x" * 300])
def test_an_id_that_is_none(client: JavaClient, query: str) -> None:
    response = client.get(f"/delete?{query}")
    assert response.status == 200 and not response.json["success"]


def test_an_unknown_path(subtests: pytest.Subtests, client: JavaClient) -> None:
    cases: list[str] = ["/", "/pull", "/admin/x", "/push/x", "/get/topic", "/%C3%A9"]
    for path in cases:
        with subtests.test(path=path):
            assert refused(client.get(path), 404, "Not Found", path)


def test_a_method_that_a_path_does_not_take(subtests: pytest.Subtests, client: JavaClient) -> None:
    cases: list[str] = ["GET /push", "PUT /push", "DELETE /delete", "PUT /clearAll"]
    for first in cases:
        with subtests.test(first=first):
            response = client.connection.ask(first, "Host: localhost\nContent-Length: 0")
            assert refused(response, 405, "Method Not Allowed", first.partition(" ")[2])


def test_a_full_topic(client: JavaClient) -> None:
    client.push(topic="full", body="x")
    answer = client.push(topic="full", body="x")
    assert (answer["success"], answer["code"]) == (False, 500) and "limit of pending jobs" in answer["message"]


@pytest.fixture(scope="module")
def closed() -> Iterator[Served]:
    """A service with a token, where nothing can be cleared."""
    with Served('[protocols.mykit]\nport = PORT\ntoken = "tok"\n').running() as served:
        yield served


def test_a_token_is_asked_for(closed: Served) -> None:
    with closed.connect() as connection:
        for target in ("/clearAll", "/~wrong/clearAll", "/clearAll?token=wrong"):
            response = connection.ask(f"GET {target}", "Host: localhost")
            assert refused(response, 401, "Unauthorized", "/clearAll")
        assert connection.ask("GET /~tok/clearAll", "Host: localhost").status == 200


def test_nothing_is_cleared_unless_the_settings_allow_it(closed: Served) -> None:
    closed.native("add", topic="t", id="a", body=1)
    with closed.connect() as connection:
        answer = connection.ask("GET /clearAll", "Host: localhost\nX-Token: tok").json
    assert not answer["success"] and "clear_all" in answer["message"]
    assert closed.native("get", id="a")["state"] == "ready"


def test_a_push_with_the_id_of_a_job_beyond_the_prefix_leaves_it_as_it_is(
    client: JavaClient, served: Served, topic: str
) -> None:
    served.native("add", topic=f"other-{topic}", id=f"m.{topic}", body="theirs", delay=900)
    before = served.native("get", id=f"m.{topic}", body=True)
    assert not client.push(topic=topic, id=topic, body="mine")["success"]
    assert served.native("get", id=f"m.{topic}", body=True) == before
