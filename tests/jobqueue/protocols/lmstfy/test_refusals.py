"""What is refused, in lmstfy's words."""

from __future__ import annotations

import itertools

import pytest

from jobqueue.protocols import lmstfy
from tests.jobqueue.protocols.lmstfy.conftest import GoClient
from tests.jobqueue.protocols.served import Served


def test_parameters_of_a_publish(subtests: pytest.Subtests, client: GoClient, queue: str) -> None:
    cases: list[tuple[str, str]] = [
        ("delay=x", "invalid delay"),
        ("delay=", "invalid delay"),
        ("delay=-1", "invalid delay"),
        ("delay=1.5", "invalid delay"),
        ("delay=4294967296", "invalid delay"),
        ("delay=" + "9" * 5000, "invalid delay"),
        ("delay=400000000&ttl=0", "invalid delay: it is longer than 10 years"),
        ("ttl=x", "invalid ttl"),
        ("delay=9&ttl=8", "ttl is shorter than delay"),
        ("tries=x", "invalid tries"),
        ("tries=65536", "invalid tries"),
        ("tries=0", "tries shouldn't be zero"),
    ]
    for query, error in cases:
        with subtests.test(query=query, error=error):
            for path in (queue, f"{queue}/bulk", f"{queue}/job/x"):
                response = client.connection.ask(f"PUT /api/ns/{path}?{query}", "Host: localhost\nX-Token: tok", b"[1]")
                assert (response.status, response.json) == (400, {"error": error})
            assert client.ask("GET", f"{queue}/size").json["size"] == 0


def test_parameters_of_a_consume(subtests: pytest.Subtests, client: GoClient, queue: str) -> None:
    cases: list[str] = ["ttr=0", "ttr=x", "timeout=x", "timeout=-1", "count=0", "count=101", "count="]
    for query in cases:
        with subtests.test(query=query):
            response = client.connection.ask(f"GET /api/ns/{queue}?{query}", "Host: localhost\nX-Token: tok")
            assert (response.status, response.json) == (400, {"error": f"invalid {query.partition('=')[0]}"})


def test_the_limit_of_dead_letters(subtests: pytest.Subtests, client: GoClient, queue: str) -> None:
    queries = ["limit=0", "limit=x", "limit=9223372036854775808", "limit=-1"]
    for method, query in itertools.product(("PUT", "DELETE"), queries):
        with subtests.test(method=method, query=query):
            response = client.connection.ask(
                f"{method} /api/ns/{queue}/deadletter?{query}", "Host: localhost\nX-Token: tok\nContent-Length: 0"
            )
            assert (response.status, response.json) == (400, {"error": "invalid limit"})


def test_names(subtests: pytest.Subtests, client: GoClient) -> None:
    paths = ["ns/_q", "ns/q!", "ns/q.x", "n.s/q", "ns/" + "q" * 256, "ns/%C3%A9", "ns/q%2Fx"]
    requests = ["PUT {}", "GET {}", "DELETE {}", "GET {}/size", "GET {}/peek", "GET a/b,{}"]
    for path, request_of in itertools.product(paths, requests):
        with subtests.test(path=path, request_of=request_of):
            method, _, form = request_of.partition(" ")
            target = path.replace("/", "/b,", 1) if form == "a/b,{}" else form.format(path)
            response = client.connection.ask(
                f"{method} /api/{target}", "Host: localhost\nX-Token: tok\nContent-Length: 0"
            )
            assert response.status == 400 and list(response.json) == ["error"]


def test_names_that_are_too_long_together(client: GoClient) -> None:
    response = client.connection.ask(
        f"PUT /api/{'n' * 200}/{'q' * 200}", "Host: localhost\nX-Token: tok\nContent-Length: 0"
    )
    assert response.status == 400 and "at most 255" in response.json["error"]


def test_several_queues_where_one_is_meant(client: GoClient) -> None:
    assert client.ask("PUT", "a,b", b"x").status == 400
    assert client.ask("GET", ",").status == 400
    many = ",".join(f"q{number}" for number in range(101))
    assert client.ask("GET", many).json == {"error": "too many queues; at most 100 are allowed"}


def test_a_bulk_that_is_none(subtests: pytest.Subtests, client: GoClient, queue: str) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"", "request body should be an array of objects"),
        (b'{"a":1}', "request body should be an array of objects"),
        (b"[1,", "request body should be an array of objects"),
        (b"[" * 5000, "request body should be an array of objects"),
        (b"[]", "no jobs"),
        (b"[" + b"1," * 64 + b"1]", "too many jobs"),
    ]
    for body, error in cases:
        with subtests.test(body=body, error=error):
            response = client.ask("PUT", f"{queue}/bulk", body)
            assert (response.status, response.json) == (400, {"error": error})


def test_data_that_are_too_large(client: GoClient, queue: str) -> None:
    for path, body in ((queue, b"x" * 300_000), (f"{queue}/bulk", b'["' + b"x" * 300_000 + b'"]')):
        response = client.ask("PUT", path, body)
        assert response.status == 413 and "are allowed" in response.json["error"]
    assert client.ask("PUT", queue, b"x" * 2_000_000).status == 413


def test_attributes(client: GoClient, queue: str) -> None:
    many = client.ask("PUT", queue, b"x", {f"a{number}": "1" for number in range(17)})
    assert (many.status, many.json) == (400, {"error": "too many attributes, cannot exceed 16"})
    ours = client.ask("PUT", queue, b"x", {"content-encoding": "base64"})
    assert (ours.status, ours.json) == (400, {"error": "an attribute cannot have the name content-encoding"})


def test_an_unknown_path_or_method(subtests: pytest.Subtests, client: GoClient) -> None:
    cases: list[str] = [
        *(
            "GET /",
            "GET /api",
            "GET /api/ns",
            "PUT /api/ns/",
            "GET /api/ns/q/",
            "GET /api/ns/q/job",
            "GET /api/ns/q/job/",
        ),
        *("POST /api/ns/q", "PUT /api/ns/q/peek", "GET /api/ns/q/bulk", "GET /api/ns/q/job/x/y", "GET /apis/ns/q"),
        *("DELETE /api/ns/q/size", "GET /api/ns/q/deadletter/x", "PATCH /api/ns/q", "GET /token/ns", "GET /command"),
    ]
    for first in cases:
        with subtests.test(first=first):
            response = client.connection.ask(first, "Host: localhost\nX-Token: tok\nContent-Length: 0")
            assert (response.status, response.body) == (404, b'{"error":"api not found"}')


def test_a_missing_or_wrong_token(subtests: pytest.Subtests, client: GoClient) -> None:
    cases: list[str] = ["PUT /api/ns/q", "GET /api/ns/q", "GET /api/ns/q/job/size", "DELETE /api/ns/q"]
    for first in cases:
        with subtests.test(first=first):
            missing = client.connection.ask(first, "Host: localhost\nContent-Length: 0")
            assert (missing.status, missing.body) == (401, b'{"error":"token not found"}')
            for lines in ("X-Token: no", "X-Token: pool:no", "X-Token: tok:no"):
                wrong = client.connection.ask(first, f"Host: localhost\n{lines}\nContent-Length: 0")
                assert (wrong.status, wrong.body) == (401, b'{"error":"invalid token"}')


def test_where_a_token_may_be_and_what_needs_none(subtests: pytest.Subtests, client: GoClient) -> None:
    cases: list[tuple[str, str]] = [
        ("/api/ns/q/peek", "X-Token: tok"),
        ("/api/ns/q/peek", "X-Token: pool:tok"),
        ("/api/ns/q/peek", "Authorization: Bearer tok"),
        ("/api/ns/q/peek?token=tok", "A: b"),
        ("/api/ns/q/peek?token=default:tok", "A: b"),
        ("/~tok/api/ns/q/peek", "A: b"),
        ("/api/ns/q/size", "A: b"),
        ("/api/ns/q/deadletter/size", "X-Token: no"),
    ]
    for target, header in cases:
        with subtests.test(target=target, header=header):
            assert client.connection.ask(f"GET {target}", f"Host: localhost\n{header}").status in (200, 404)


def test_a_rate_that_is_used_up_says_when_to_come_back() -> None:
    reply = lmstfy._failed(
        {"success": False, "code": "TOO_FAST", "error": "the token's rate is used up", "retry_after": 3}
    )
    assert (reply.status, reply.retry_after) == (429, 3)


def test_a_full_topic_is_their_server_error(served: Served, client: GoClient) -> None:
    client.publish("full", b"x")
    response = client.ask("PUT", "full", b"x")
    assert response.status == 500 and "limit of pending jobs" in response.json["error"]
    old = client.consume("full").json["job_id"]
    client.publish("full", b"x")
    assert client.ask("PUT", f"full/job/{old}", b"y").status == 500
    assert served.native("get", id=old)["state"] == "reserved"


def test_a_token_with_a_colon_may_have_the_name_of_a_redis_before_it() -> None:
    with Served('[protocols.lmstfy]\nport = PORT\ntoken = "a:b"\n').running() as served, served.connect() as other:
        for given, status in (("a:b", 404), ("default:a:b", 404), ("b", 401), ("a:a:a:b", 401)):
            assert other.ask("GET /api/ns/q", f"Host: localhost\nX-Token: {given}").status == status, given
