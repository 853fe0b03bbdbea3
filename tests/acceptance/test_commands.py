"""The native protocol from outside: what users send and what comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


async def test_the_four_commands_work_as_the_protocol_writes_them(client: Client) -> None:
    job = {"topic": "order-close", "id": "order-close:1001", "delay": 0, "TTR": 60, "body": {"order": 1001}}
    added = await client.ask("add", **job)
    assert (added["success"], added["id"], added["state"], added["result"]) == (
        True,
        "order-close:1001",
        "ready",
        "created",
    )
    popped = await client.ask("pop", topic="order-close")
    assert (popped["id"], popped["value"], popped["attempt"], popped["ttr"]) == (
        "order-close:1001",
        {"order": 1001},
        1,
        60,
    )
    assert (await client.ask("finish", id="order-close:1001"))["state"] == "finished"
    again = await client.ask("delete", id="order-close:1001")
    assert (again["code"], again["state"]) == ("WRONG_STATE", "finished")
    assert (await client.ask("pop", topic="order-close"))["id"] is None


async def test_delete_answers_deleted_and_the_state_before(client: Client) -> None:
    for state, delay in (("delayed", 60), ("ready", 0)):
        await client.ask("add", topic="t", id=state, delay=delay, body=1)
        assert await client.ask("delete", id=state) == {"success": True, "id": state, "state": "deleted", "was": state}
    again = await client.ask("delete", id="ready", durability="local")
    assert again == {"success": True, "id": "ready", "state": "deleted", "was": "deleted", "durability": "local"}


async def test_a_cancelled_id_is_refused_until_it_is_renewed(client: Client) -> None:
    await client.ask("add", topic="t", id="a", delay=60, body=1)
    await client.ask("delete", id="a")
    refused = await client.ask("add", topic="t", id="a", delay=60, body=1)
    assert (refused["code"], refused["state"]) == ("ALREADY_EXISTS", "deleted")
    assert "renew or replace" in refused["error"]
    for result in ("replaced", "existing"):
        answer = await client.ask("add", topic="t", id="a", delay=60, body=2, if_exists="renew")
        assert (answer["result"], answer["state"]) == (result, "delayed")


async def test_a_reminder_moves_with_every_change_and_keeps_its_body(client: Client) -> None:
    async def remind(**fields: Any) -> Any:
        return await client.ask("add", topic="remind", id="remind:cart-7", delay=600, if_exists="later", **fields)

    added = await remind(body={"cart": 7})
    assert (added["result"], added["state"]) == ("created", "delayed")
    await asyncio.sleep(0.002)  # in the same millisecond it would not be later
    moved = await remind()
    assert (moved["result"], moved["state"]) == ("moved", "delayed") and moved["due"] > added["due"]
    told = await client.ask("get", id="remind:cart-7")
    assert (told["value"], told["due"], told["created"]) == ({"cart": 7}, moved["due"], round(added["due"] - 600, 3))
    kept = await client.ask("add", topic="remind", id="remind:cart-7", delay=60, if_exists="later", body=1)
    assert (kept["result"], kept["due"]) == ("existing", moved["due"])
    sooner = await client.ask("add", topic="remind", id="remind:cart-7", if_exists="sooner", body=1)
    assert (sooner["result"], sooner["state"]) == ("moved", "ready")
    late = await remind()
    assert (late["code"], late["state"]) == ("TOO_LATE", "ready")
    assert (await client.ask("pop", topic="remind"))["value"] == 1
    held = await remind(body=2)
    assert (held["code"], held["state"]) == ("RESERVED", "reserved")
    await client.ask("finish", id="remind:cart-7")
    nothing = await remind()
    assert (nothing["code"], nothing["field"]) == ("BAD_FIELD", "body")
    assert nothing["error"] == "body is missing, and there is no job whose body could stay"
    assert (await remind(body=2))["result"] == "replaced"


@pytest.mark.parametrize("fields", [{}, {"if_exists": "keep"}, {"if_exists": "replace"}, {"if_exists": None}])
async def test_an_add_that_cannot_keep_a_body_needs_one(client: Client, fields: dict[str, Any]) -> None:
    refused = await client.ask("add", topic="t", id="a", **fields)
    assert {name: refused[name] for name in ("code", "field", "error", "id")} == {
        "code": "BAD_FIELD",
        "field": "body",
        "error": "body is missing",
        "id": "a",
    }


async def test_a_herd_is_spread_and_each_job_has_its_moment_whoever_adds_it(client: Client) -> None:
    now = (await client.ask("add", topic="t", body=1))["due"]
    at = int(now) + 3_650 * 86_400 - 60  # with the spread that is beyond ten years
    adds: list[dict[str, Any]] = [
        {"command": "add", "topic": "poll", "id": f"poll:{number}", "body": 1, "at": at, "spread": 3600}
        for number in range(200)
    ]
    moments = {answer["id"]: answer["due"] for answer in await client.batch(adds)}
    assert at <= min(moments.values()) < at + 400 and at + 3200 < max(moments.values()) <= at + 3600
    for again in ({"if_exists": "replace"}, {"tags": ["takes the complete path"], "if_exists": "replace"}):
        assert {each["id"]: each["due"] for each in await client.batch([add | again for add in adds])} == moments
    for how in ("later", "sooner"):  # no move: it is the same moment
        assert (await client.ask(**adds[7] | {"if_exists": how}))["result"] == "existing"
    assert (await client.ask("add", topic="poll", body=1, spread=3600))["state"] == "delayed"  # without an id, too


async def test_a_lease_that_ended_is_told_with_its_time_and_worker(client: Client) -> None:
    await client.ask("add", topic="t", id="a", ttr=0.2, body=1)
    first = await client.ask("pop", topic="t", worker="w")
    assert "ready" not in first
    await until(lambda: is_ready(client, "a"))
    told = await client.ask("get", id="a")
    assert (told["state"], told["reason"], told["worker"], told.get("cause")) == ("ready", "lease ended", "w", None)
    assert first["lease"] / 1e6 + 0.2 <= told["ended"] == told["ready_since"]
    again = await client.ask("pop", topic="t")
    assert (again["attempt"], again["due"], again["ready"]) == (2, first["due"], told["ended"])
    told = await client.ask("get", id="a")
    assert told["reason"] is None and "ended" not in told


async def is_ready(client: Client, job_id: str) -> bool:
    return bool((await client.ask("get", id=job_id))["state"] == "ready")


async def test_a_body_comes_back_byte_for_byte(client: Client) -> None:
    for body in (
        '"ü"',
        '"\\u00fc \\ud83d\\ude00"',
        '{"a" : [1, 2.50, 1e3, null],"a":0}',
        '"' + "x" * 200_000 + '"',
        "9007199254740993",
        '""',
        "null",
    ):
        add = f'{{"command":"add","topic":"t","id":"b","if_exists":"replace","body":{body}}}'
        raw = f'[{add},{{"command":"pop","topic":"t"}}]'
        async with client._session.post(client.url + "/command", data=raw.encode()) as response:  # type: ignore[union-attr]
            text = (await response.read()).decode()
        assert f'"value":{body},' in text
        await client.ask("finish", id="b")


async def test_an_array_is_answered_in_order_and_one_bad_member_spoils_nothing(client: Client) -> None:
    answers = await client.batch(
        [
            {"command": "add", "topic": "t", "id": "a", "body": 1},
            {"command": "add", "topic": "t t", "id": "b", "body": 1},
            {"command": "pop", "topic": "t"},
            {"command": "finish", "id": "a"},
            {"command": "pop", "topic": "t", "count": 5},
            {"command": "get", "id": "nobody"},
        ]
    )
    assert [answer["success"] for answer in answers] == [True, False, True, True, True, False]
    assert (answers[1]["code"], answers[1]["field"], answers[1]["id"]) == ("BAD_FIELD", "topic", "b")
    assert (answers[2]["id"], answers[3]["state"], answers[4]["jobs"]) == ("a", "finished", [])
    assert answers[5]["code"] == "NOT_FOUND"


async def test_get_shows_all_that_a_job_was_given(client: Client) -> None:
    given: dict[str, Any] = {
        "topic": "t", "id": "g", "delay": 100, "ttr": 5, "priority": 7, "tries": 3, "backoff": [15, 15, 30, 180],
        "ttl": 1000, "retention": 5, "headers": {"trace": "ü"}, "tags": ["a", "b"],
    }  # fmt: skip
    added = await client.ask("add", body={"x": 1}, **given)
    job = await client.ask("get", id="g")
    for name, value in given.items():
        if name != "delay":
            assert job[name] == value, name
    assert (job["value"], job["state"], job["attempt"], job["deliveries"]) == ({"x": 1}, "delayed", 0, 0)
    assert job["due"] == added["due"] == job["until"]


async def test_stats_count_what_was_done(client: Client) -> None:
    await client.batch(
        [{"command": "add", "topic": "t", "id": str(n), "delay": 3600 * (n > 2), "body": n} for n in range(5)]
    )
    await client.ask("pop", topic="t")
    await client.ask("delete", id="4")
    stats = await client.ask("stats", topic="t")
    assert stats["counts"] == {"delayed": 1, "ready": 2, "reserved": 1, "dead": 0}
    assert stats["totals"] == {"created": 5, "deleted": 1, "delivered": 1}
    assert stats["due"]["under_1h"] + stats["due"]["under_6h"] == 1
    assert stats["oldest_ready"] >= 0
    assert (await client.ask("stats"))["counts"] == stats["counts"]


async def reserved(client: Client, job_id: str = "a", **fields: Any) -> Any:
    """A reserved job; returns the answer to its pop."""
    await client.ask("add", **{"topic": "t", "id": job_id, "body": {"of": job_id}, "if_exists": "replace", **fields})
    return await client.ask("pop", topic=fields.get("topic", "t"))


async def check_refusal(client: Client, status: int, code: str, state: str | None, command: str, **fields: Any) -> None:
    got, answer = await client.post(json.dumps({"command": command, **fields}).encode())
    assert (got, answer["success"], answer["id"], answer["code"], answer.get("state")) == (
        status,
        False,
        fields["id"],
        code,
        state,
    )
    assert answer["error"] and "value" not in answer


async def test_touch_restarts_the_lease(client: Client) -> None:
    popped = await reserved(client, ttr=5)
    status, answer = await client.post(b'{"command":"touch","id":"a","TTR":100.0001,"lease":%d}' % popped["lease"])
    assert status == 200
    until = answer.pop("until")
    assert answer == {"success": True, "id": "a", "state": "reserved"}
    assert until == (await client.ask("get", id="a"))["reserved_until"] > popped["lease"] / 1e6 + 100
    again = await client.ask("touch", id="a")
    assert popped["lease"] / 1e6 + 5 <= again["until"] < until
    await check_refusal(client, 409, "STALE_LEASE", "reserved", "touch", id="a", lease=popped["lease"] - 1)
    await client.ask("finish", id="a")
    await check_refusal(client, 409, "NOT_RESERVED", "finished", "touch", id="a")
    await check_refusal(client, 404, "NOT_FOUND", None, "touch", id="nobody")


async def test_release_gives_a_job_back_at_once_or_later_or_by_its_ladder(client: Client) -> None:
    popped = await reserved(client, backoff=[15, 15, 30, 180], tries=2)
    status, answer = await client.post(
        json.dumps({"command": "release", "id": "a", "lease": popped["lease"], "delay": 0, "attempt": False}).encode()
    )
    due = answer.pop("due")
    assert (status, answer) == (200, {"success": True, "id": "a", "state": "ready"})
    assert due >= popped["due"]
    second = await client.ask("pop", topic="t")
    assert (second["attempt"], second["value"]) == (1, {"of": "a"})
    await check_refusal(client, 409, "STALE_LEASE", "reserved", "release", id="a", lease=popped["lease"])
    answer = await client.ask("release", id="a", reason="not paid")
    assert answer["state"] == "delayed" and answer["due"] >= second["lease"] / 1e6 + 15
    job = await client.ask("get", id="a")
    assert (job["until"], job["reason"], job["attempt"], job["deliveries"]) == (answer["due"], "not paid", 1, 2)
    await check_refusal(client, 409, "NOT_RESERVED", "delayed", "release", id="a")
    await client.ask("run", id="a")
    assert (await client.ask("pop", topic="t"))["attempt"] == 2
    assert (await client.ask("release", id="a", delay=1))["state"] == "dead"
    job = await client.ask("get", id="a")
    assert (job["cause"], job["value"]) == ("tries", {"of": "a"})
    await check_refusal(client, 404, "NOT_FOUND", None, "release", id="nobody")


async def test_bury_makes_a_dead_letter_and_kick_makes_it_ready_again(client: Client) -> None:
    popped = await reserved(client)
    await check_refusal(client, 409, "STALE_LEASE", "reserved", "bury", id="a", lease=1)
    answer = await client.ask("bury", id="a", lease=popped["lease"], reason="poison")
    assert answer == {"success": True, "id": "a", "state": "dead"}
    job = await client.ask("get", id="a")
    assert (job["state"], job["cause"], job["reason"], job["value"]) == ("dead", "buried", "poison", {"of": "a"})
    await check_refusal(client, 409, "NOT_RESERVED", "dead", "bury", id="a")
    assert await client.ask("kick", id="a") == {"success": True, "id": "a", "state": "ready", "count": 1}
    await check_refusal(client, 409, "WRONG_STATE", "ready", "kick", id="a")
    await check_refusal(client, 404, "NOT_FOUND", None, "kick", id="nobody")
    await check_refusal(client, 404, "NOT_FOUND", None, "bury", id="nobody")
    job = await client.ask("get", id="a")
    assert job["attempt"] == 0 and "cause" not in job and job["due"] == job["ready_since"]
    assert (await client.ask("pop", topic="t"))["attempt"] == 1


async def test_kick_of_a_topic_takes_one_or_up_to_count_and_the_oldest_first(client: Client) -> None:
    for job_id in "cab":
        await reserved(client, job_id)
        await client.ask("bury", id=job_id)
    assert await client.ask("kick", topic="t") == {"success": True, "topic": "t", "count": 1}
    assert await client.ask("kick", topic="t", count=1000) == {"success": True, "topic": "t", "count": 2}
    assert await client.ask("kick", topic="t", count=1) == {"success": True, "topic": "t", "count": 0}
    assert await client.ask("kick", topic="nothing") == {"success": True, "topic": "nothing", "count": 0}
    jobs = (await client.ask("pop", topic="t", count=9))["jobs"]
    assert sorted(job["id"] for job in jobs) == ["a", "b", "c"] and jobs[0]["id"] == "c"


async def test_run_makes_a_delayed_job_due_now_and_a_waiting_pop_gets_it(client: Client) -> None:
    added = await client.ask("add", topic="t", id="a", delay=3600, body=1)
    answers = await client.batch([{"command": "run", "id": "a"}, {"command": "pop", "topic": "t", "wait": 5}])
    due = answers[0].pop("due")
    assert answers[0] == {"success": True, "id": "a", "state": "ready"}
    assert (answers[1]["id"], answers[1]["due"]) == ("a", due) and due < added["due"] - 3500
    await check_refusal(client, 409, "RESERVED", "reserved", "run", id="a")
    await client.ask("release", id="a", delay=0)
    await check_refusal(client, 409, "TOO_LATE", "ready", "run", id="a")
    await client.ask("finish", id="a")
    await check_refusal(client, 409, "WRONG_STATE", "finished", "run", id="a")
    await check_refusal(client, 404, "NOT_FOUND", None, "run", id="nobody")


async def test_a_pop_that_waits_is_woken_by_run_release_kick_and_update(client: Client) -> None:
    for command in ({"command": "run"}, {"command": "update", "delay": 0}, {"command": "update", "delay": 0.05}):
        await client.ask("add", topic="t", id="a", delay=3600, body=1, if_exists="replace")
        waiting = asyncio.create_task(client.ask("pop", topic="t", wait=30))
        await client.batch([{**command, "id": "a"}])
        assert (await waiting)["id"] == "a"
        await client.ask("finish", id="a")
    await reserved(client)
    for commands in ([{"command": "release", "delay": 0}], [{"command": "bury"}, {"command": "kick"}]):
        waiting = asyncio.create_task(client.ask("pop", topic="t", wait=30))
        await client.batch([{**command, "id": "a"} for command in commands])
        assert (await waiting)["id"] == "a"


async def test_update_changes_what_it_is_given(client: Client) -> None:
    added = await client.ask("add", topic="t", id="a", delay=3600, body=1, tags=["x"])
    status, answer = await client.post(
        b'{"command":"update","id":"a","delay":7200,"priority":9,"ttl":60,"body":{"n" : 2.50},"durability":"local"}'
    )
    due = answer.pop("due")
    assert (status, answer) == (200, {"success": True, "id": "a", "state": "delayed", "durability": "local"})
    assert 3590 < due - added["due"] < 3610
    job = await client.ask("get", id="a")
    assert (job["due"], job["priority"], job["ttl"], job["value"], job["tags"]) == (due, 9, 60, {"n": 2.5}, ["x"])
    at = "2030-01-01T00:00:00.0001+01:00"
    assert (await client.ask("update", id="a", at=at))["due"] == 1893452400.001
    ready = await client.ask("update", id="a", at=0)
    assert ready["state"] == "ready" and abs(ready["due"] - added["due"] + 3600) < 60


async def test_a_ready_job_is_updated_but_for_its_time_and_others_are_not(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    for time in ({"delay": 5}, {"delay": 0}, {"at": 0}):
        await check_refusal(client, 409, "TOO_LATE", "ready", "update", id="a", body=2, **time)
    assert (await client.ask("update", id="a", body="x" * 200_000))["state"] == "ready"
    popped = await client.ask("pop", topic="t")
    assert popped["value"] == "x" * 200_000
    await check_refusal(client, 409, "RESERVED", "reserved", "update", id="a", delay=5)
    await client.ask("bury", id="a")
    await check_refusal(client, 409, "WRONG_STATE", "dead", "update", id="a", priority=5)
    await client.ask("delete", id="a")
    await check_refusal(client, 404, "NOT_FOUND", "deleted", "update", id="a", body=1)
    await check_refusal(client, 404, "NOT_FOUND", None, "update", id="nobody", body=1)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ({"command": "kick", "id": "a"}, "only a dead job can be kicked; this one is finished"),
        ({"command": "run", "id": "a"}, "only a delayed job can be run; this one is finished"),
        (
            {"command": "update", "id": "a", "ttl": 1},
            "only a delayed or ready job can be updated; this one is finished",
        ),
        ({"command": "delete", "id": "a"}, "the job is finished"),
    ],
)
async def test_the_refusal_of_a_state_says_which_states_are_right(
    client: Client, command: dict[str, Any], sentence: str
) -> None:
    await reserved(client)
    await client.ask("finish", id="a")
    _, alone = await client.post(json.dumps(command).encode())
    for answer in (alone, *await client.batch([command, command])):
        assert (answer["code"], answer["state"], answer["error"]) == ("WRONG_STATE", "finished", sentence)


async def test_a_null_of_an_optional_field_changes_nothing_but_a_null_body_is_a_body(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1, delay=3600, ttl=60)
    before = await client.ask("get", id="a")
    assert (await client.ask("update", id="a", delay=None, at=None, priority=4, ttl=None))["success"]
    assert await client.ask("get", id="a") == before
    await client.ask("update", id="a", body=None)
    assert await client.ask("get", id="a") == {**before, "value": None, "size": 4}
    await client.ask("run", id="a")
    popped = await client.ask("pop", topic="t")
    assert (await client.ask("touch", id="a", lease=None, ttr=None, TTR=None))["success"]
    answer = await client.ask("release", id="a", lease=None, delay=None, attempt=None, reason=None)
    assert (popped["attempt"], answer["state"]) == (1, "delayed")
    assert (await client.ask("get", id="a"))["attempt"] == 1


async def test_commands_of_all_kinds_in_one_array_act_one_after_the_other(client: Client) -> None:
    kinds = ["touch", "release", "run", "update", "bury", "kick"]
    answers = await client.batch(
        [
            {"command": "add", "topic": "t", "id": "a", "body": 1},
            {"command": "pop", "topic": "t"},
            *({"command": kind, "id": "a", **({"priority": 4} if kind == "update" else {})} for kind in kinds),
            {"command": "release", "id": "a", "reason": 7},
            {"command": "pop", "topic": "t"},
        ]
    )
    outcomes = [(answer.get("code"), answer.get("state")) for answer in answers]
    assert outcomes == [
        (None, "ready"),
        (None, "reserved"),
        (None, "reserved"),
        (None, "delayed"),
        (None, "ready"),
        (None, "ready"),
        ("NOT_RESERVED", "ready"),
        ("WRONG_STATE", "ready"),
        ("BAD_FIELD", None),
        (None, "reserved"),
    ]


REFUSED = {
    "not JSON": (b"add a job please", 400, "BAD_JSON", None),
    "an empty body": (b"", 400, "BAD_JSON", None),
    "not UTF-8": (b'{"command":"add","topic":"t","body":"\xff"}', 400, "BAD_JSON", None),
    "a number": (b"3", 400, "BAD_JSON", None),
    "an empty list": (b"[]", 400, "TOO_MANY", None),
    "a list of 1,001": (json.dumps([{"command": "stats"}] * 1001).encode(), 400, "TOO_MANY", None),
    "deep nesting": (
        b'{"command":"add","topic":"t","body":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        400,
        "BAD_JSON",
        None,
    ),
    "a deep list": (b"[" * 100_000, 400, "BAD_JSON", None),
    "a lone surrogate": (b'{"command":"add","topic":"t","body":"\\ud800"}', 400, "BAD_JSON", None),
    "a wrong type": (b'{"command":"add","topic":"t","delay":"30","body":1}', 400, "BAD_FIELD", "delay"),
    "a topic that is a number": (b'{"command":"add","topic":7,"body":1}', 400, "BAD_FIELD", "topic"),
    "a delay that is true": (b'{"command":"add","topic":"t","delay":true,"body":1}', 400, "BAD_FIELD", "delay"),
    "NaN": (b'{"command":"add","topic":"t","delay":NaN,"body":1}', 400, "BAD_FIELD", "delay"),
    "a number beyond all numbers": (b'{"command":"add","topic":"t","delay":1e999,"body":1}', 400, "BAD_FIELD", "delay"),
    "a negative delay": (b'{"command":"add","topic":"t","delay":-1,"body":1}', 400, "BAD_FIELD", "delay"),
    "a delay of 11 years": (b'{"command":"add","topic":"t","delay":346896000,"body":1}', 400, "BAD_FIELD", "delay"),
    "a time without its offset": (
        b'{"command":"add","topic":"t","at":"2030-01-01T00:00:00","body":1}',
        400,
        "BAD_FIELD",
        "at",
    ),
    "a time in 100 years": (b'{"command":"add","topic":"t","at":4951238400,"body":1}', 400, "BAD_FIELD", "at"),
    "a time beyond all times": (b'{"command":"add","topic":"t","at":1e308,"body":1}', 400, "BAD_FIELD", "at"),
    "a number in the body that nobody can read": (
        b'{"command":"add","topic":"t","body":[1e999]}',
        400,
        "BAD_FIELD",
        "body",
    ),
    "a field with a dash": (
        b'{"command":"add","topic":"t","if-exists":"keep","body":1}',
        400,
        "UNKNOWN_FIELD",
        "if-exists",
    ),
    "a header of 200 characters": (
        b'{"command":"add","topic":"t","headers":{"' + b"h" * 200 + b'":"1"},"body":1}',
        400,
        "BAD_FIELD",
        "headers",
    ),
    "a list of 200,000 bad ones": (b"[" + b"{}," * 199_999 + b"{}]", 400, "TOO_MANY", None),
    "delay and at": (b'{"command":"add","topic":"t","at":1,"delay":1,"body":1}', 400, "BAD_FIELD", "at"),
    "ttr and TTR": (b'{"command":"add","topic":"t","ttr":1,"TTR":1,"body":1}', 400, "BAD_FIELD", "ttr"),
    "a ttr of 10 ms": (b'{"command":"add","topic":"t","TTR":0.01,"body":1}', 400, "BAD_FIELD", "ttr"),
    "a body of 10 MB": (
        b'{"command":"add","topic":"t","id":"big","body":"' + b"x" * 10_000_000 + b'"}',
        413,
        "TOO_LARGE",
        "body",
    ),
    "a request of 17 MB": (
        b'{"command":"add","topic":"t","body":"' + b"x" * 17_000_000 + b'"}',
        413,
        "TOO_LARGE",
        None,
    ),
    "no body": (b'{"command":"add","topic":"t"}', 400, "BAD_FIELD", "body"),
    "an id with spaces": (b'{"command":"add","topic":"t","id":"a b","body":1}', 400, "BAD_FIELD", "id"),
    "an id with a newline at its end": (b'{"command":"add","topic":"t","id":"a\\n","body":1}', 400, "BAD_FIELD", "id"),
    "a topic of 300 characters": (
        b'{"command":"add","topic":"' + b"t" * 300 + b'","body":1}',
        400,
        "BAD_FIELD",
        "topic",
    ),
    "a topic that is a Redis key": (b'{"command":"add","topic":"{jq:0}:meta","body":1}', 400, "BAD_FIELD", "topic"),
    "no command": (b'{"topic":"t","body":1}', 400, "BAD_FIELD", "command"),
    "an unknown command": (b'{"command":"ad","topic":"t","body":1}', 400, "UNKNOWN_COMMAND", "command"),
    "a misspelt field": (b'{"command":"add","topic":"t","dealy":30,"body":1}', 400, "UNKNOWN_FIELD", "dealy"),
    "priority 10": (b'{"command":"add","topic":"t","priority":10,"body":1}', 400, "BAD_FIELD", "priority"),
    "a ladder of 33 steps": (
        json.dumps({"command": "add", "topic": "t", "backoff": [1] * 33, "body": 1}).encode(),
        400,
        "BAD_FIELD",
        "backoff",
    ),
    "a header that is a number": (
        b'{"command":"add","topic":"t","headers":{"a":1},"body":1}',
        400,
        "BAD_FIELD",
        "headers",
    ),
    "pop without a topic": (b'{"command":"pop"}', 400, "BAD_FIELD", "topic"),
    "pop of 1,001 jobs": (b'{"command":"pop","topic":"t","count":1001}', 400, "BAD_FIELD", "count"),
    "a wait of 61 s": (b'{"command":"pop","topic":"t","wait":61}', 400, "BAD_FIELD", "wait"),
    "touch without an id": (b'{"command":"touch"}', 400, "BAD_FIELD", "id"),
    "a touch of 0 s": (b'{"command":"touch","id":"a","ttr":0}', 400, "BAD_FIELD", "ttr"),
    "a touch of 10 ms": (b'{"command":"touch","id":"a","TTR":0.01}', 400, "BAD_FIELD", "TTR"),
    "a touch of 25 h": (b'{"command":"touch","id":"a","ttr":90000}', 400, "BAD_FIELD", "ttr"),
    "a touch with ttr and TTR": (b'{"command":"touch","id":"a","ttr":1,"TTR":1}', 400, "BAD_FIELD", "ttr"),
    "a touch with a delay": (b'{"command":"touch","id":"a","delay":1}', 400, "UNKNOWN_FIELD", "delay"),
    "a lease that is text": (b'{"command":"touch","id":"a","lease":"7"}', 400, "BAD_FIELD", "lease"),
    "a lease that is not an integer": (b'{"command":"release","id":"a","lease":7.5}', 400, "BAD_FIELD", "lease"),
    "a release in the past": (b'{"command":"release","id":"a","delay":-1}', 400, "BAD_FIELD", "delay"),
    "a release at a time": (b'{"command":"release","id":"a","at":1}', 400, "UNKNOWN_FIELD", "at"),
    "an attempt that is a number": (b'{"command":"release","id":"a","attempt":0}', 400, "BAD_FIELD", "attempt"),
    "a reason that is a number": (b'{"command":"release","id":"a","reason":7}', 400, "BAD_FIELD", "reason"),
    "a reason of 1,001 characters": (
        b'{"command":"bury","id":"a","reason":"' + b"x" * 1001 + b'"}',
        400,
        "BAD_FIELD",
        "reason",
    ),
    "a negative lease": (b'{"command":"bury","id":"a","lease":-1}', 400, "BAD_FIELD", "lease"),
    "bury of a topic": (b'{"command":"bury","topic":"t"}', 400, "UNKNOWN_FIELD", "topic"),
    "leave without a worker": (b'{"command":"leave"}', 400, "BAD_FIELD", "worker"),
    "leave of null": (b'{"command":"leave","worker":null}', 400, "BAD_FIELD", "worker"),
    "leave of a worker without a name": (b'{"command":"leave","worker":""}', 400, "BAD_FIELD", "worker"),
    "leave of a worker that is a number": (b'{"command":"leave","worker":7}', 400, "BAD_FIELD", "worker"),
    "a worker of 129 characters": (
        b'{"command":"leave","worker":"' + b"w" * 129 + b'"}',
        400,
        "BAD_FIELD",
        "worker",
    ),
    "leave of a topic": (b'{"command":"leave","worker":"w","topic":"t"}', 400, "UNKNOWN_FIELD", "topic"),
    "kick of nothing": (b'{"command":"kick"}', 400, "BAD_FIELD", "id"),
    "kick of a job and a topic": (b'{"command":"kick","id":"a","topic":"t"}', 400, "BAD_FIELD", "id"),
    "kick of 0 jobs": (b'{"command":"kick","topic":"t","count":0}', 400, "BAD_FIELD", "count"),
    "kick of 1,001 jobs": (b'{"command":"kick","topic":"t","count":1001}', 400, "BAD_FIELD", "count"),
    "kick of a bad topic": (b'{"command":"kick","topic":"t t"}', 400, "BAD_FIELD", "topic"),
    "run without an id": (b'{"command":"run"}', 400, "BAD_FIELD", "id"),
    "run of a list": (b'{"command":"run","id":["a"]}', 400, "BAD_FIELD", "id"),
    "run with a delay": (b'{"command":"run","id":"a","delay":1}', 400, "UNKNOWN_FIELD", "delay"),
    "update without an id": (b'{"command":"update","delay":1}', 400, "BAD_FIELD", "id"),
    "update to delay and at": (b'{"command":"update","id":"a","delay":1,"at":1}', 400, "BAD_FIELD", "at"),
    "update to a time in 100 years": (b'{"command":"update","id":"a","at":4951238400}', 400, "BAD_FIELD", "at"),
    "update to priority 10": (b'{"command":"update","id":"a","priority":10}', 400, "BAD_FIELD", "priority"),
    "update to a ttl of 0": (b'{"command":"update","id":"a","ttl":0}', 400, "BAD_FIELD", "ttl"),
    "update of the topic": (b'{"command":"update","id":"a","topic":"u"}', 400, "UNKNOWN_FIELD", "topic"),
    "update of the tries": (b'{"command":"update","id":"a","tries":3}', 400, "UNKNOWN_FIELD", "tries"),
    "update to a body of 300 kB": (
        b'{"command":"update","id":"a","body":"' + b"x" * 300_000 + b'"}',
        413,
        "TOO_LARGE",
        "body",
    ),
    "update to a lone surrogate": (b'{"command":"update","id":"a","body":"\\ud800"}', 400, "BAD_JSON", None),
    "update that is durable as gold": (
        b'{"command":"update","id":"a","durability":"gold"}',
        400,
        "BAD_FIELD",
        "durability",
    ),
    "a lease of 2^53": (b'{"command":"finish","id":"a","lease":9007199254740992}', 400, "BAD_FIELD", "lease"),
}


async def test_bad_input_is_reported_by_code_and_field_and_changes_nothing(client: Client) -> None:
    for what, (data, status, code, field) in REFUSED.items():
        got, answer = await client.post(data)
        assert (got, answer["code"], answer.get("field")) == (status, code, field), what
        assert answer["success"] is False and "Traceback" not in answer["error"], what
        assert len(answer["error"]) < 300, what
        good, _ = await client.post(b'{"command":"pop","topic":"t"}')
        assert good == 200, what
    assert (await client.ask("topics"))["topics"] == []
    assert not any((await client.ask("stats"))["totals"].values())


async def test_an_encoded_body_is_refused(client: Client) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /command HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    writer.write(head + b"no gzip here")
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 415 ") and b'"code":"BAD_HTTP"' in said and b"Content-Encoding" in said
    assert (await client.ask("pop", topic="t"))["success"]


async def test_a_misspelt_field_names_the_nearest_known_one(client: Client) -> None:
    answer = await client.ask("add", topic="t", dealy=30, body=1)
    assert "did you mean 'delay'?" in answer["error"]


async def test_only_the_last_command_of_an_array_may_wait(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    answers = await client.batch(
        [{"command": "pop", "topic": "u", "wait": 5}, {"command": "pop", "topic": "t", "wait": 5}]
    )
    assert (answers[0]["code"], answers[0]["field"], answers[1]["id"]) == ("BAD_FIELD", "wait", "a")


async def test_null_means_the_same_as_no_field(client: Client) -> None:
    answer = await client.ask("add", topic="t", id=None, delay=None, at=None, ttr=None, backoff=None, body=None)
    assert answer["success"] and len(answer["id"]) == 32
    assert (await client.ask("pop", topic="t", topics=None, count=None))["value"] is None


async def test_an_unknown_path_is_refused_in_json(client: Client) -> None:
    session = client._session
    assert session
    for method, path, status, code in (
        ("GET", "/command", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/nowhere", 404, "NO_SUCH_PATH"),  # not NOT_FOUND, or with a wrong URL no job would seem to exist
    ):
        async with session.request(method, client.url + path) as response:
            answer = await response.json()
            assert (response.status, answer["success"], answer["code"]) == (status, False, code)


@pytest.mark.parametrize(
    "junk",
    [
        b"add a job please\r\n\r\n",
        b"POST /command HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_are_refused_in_json(client: Client, junk: bytes) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(junk)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ") or head.startswith(b"HTTP/1.0 400 ")
    assert json.loads(body)["code"] == "BAD_HTTP"


async def test_an_unknown_expectation_is_refused_in_json(client: Client) -> None:
    session = client._session
    assert session
    for expectation, status, code in (("100-continue", 200, None), ("a miracle", 400, "BAD_HTTP")):
        headers = {"Expect": expectation}
        async with session.post(client.url + "/command", data=b'{"command":"stats"}', headers=headers) as response:
            assert (response.status, (await response.json()).get("code")) == (status, code)


async def test_the_request_id_comes_back(client: Client) -> None:
    session = client._session
    assert session
    data = b'{"command":"stats"}'
    async with session.post(client.url + "/command", data=data, headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
    async with session.post(client.url + "/command", data=data) as response:
        assert response.headers["X-Request-Id"]


async def test_a_command_that_fails_takes_nothing_from_the_one_before_it(redis_server: RedisServer, redis: Any) -> None:
    """A pop, then a listing that fails: the popped job stays with its worker."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", body=1)
        await redis.read("SET", "{jq:0}:t", "no sorted set")
        answers = await client.batch([{"command": "pop", "topic": "t"}, {"command": "topics"}])
    assert (answers[0]["id"], answers[1]["code"]) == ("a", "INTERNAL")


async def test_the_root_lists_the_paths_that_answer(client: Client) -> None:
    listed = json.loads(await page(client, "/"))
    assert listed["commands"] == "/command"
    assert listed["paths"] == ["/healthz", "/readyz", "/metrics", "/openapi.json"]
    for path in listed["paths"]:
        assert await page(client, path)
    assert await page(client, "/healthz") == b'{"status":"up"}'


async def page(client: Client, path: str) -> bytes:
    async with client._session.get(client.url + path) as response:  # type: ignore[union-attr]
        assert response.status == 200
        return await response.read()


@pytest.mark.parametrize(
    ("method", "path", "data"),
    [
        ("POST", "/command", b'{"command":"stats"}'),
        ("POST", "/command", b"no JSON"),
        ("POST", "/command?by=aiohttp", b'{"command":"stats"}'),
        ("GET", "/", None),
        ("GET", "/metrics", None),
        ("GET", "/nowhere", None),
        ("PUT", "/command", None),
    ],
)
async def test_no_answer_says_with_what_the_service_is_made(
    client: Client, method: str, path: str, data: bytes | None
) -> None:
    async with client._session.request(method, client.url + path, data=data) as response:  # type: ignore[union-attr]
        assert response.headers["Server"] == "jobqueue"
