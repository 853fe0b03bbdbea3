"""The log of actions: who did what, and what came of it, once in the log of the service and once for `actions`."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from jobqueue.access.issuing import Issued
from jobqueue.access.tokens import PREFIX
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.service import ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Entry = dict[str, Any]
_LATER_S = 3600


class Desk:
    """What an operator does at a service, and what the logs say of it."""

    def __init__(self, service: Guarded, issued: Issued, prefix: str = "t") -> None:
        self.service = service
        self.issued = issued
        self._prefix = prefix
        self._requests = 0

    async def do(self, command: str, *, who: Issued | None = None, person: str | None = None, **fields: Any) -> Entry:
        """The answer to a command, which has the id of its request beside its own fields."""
        self._requests += 1
        request = f"{self._prefix}-{self._requests}"
        headers = {"X-Request-Id": request} | ({} if person is None else {"X-Jobqueue-Actor": person})
        _, answer = await self.service.ask(who or self.issued, {"command": command, **fields}, **headers)
        return {**answer, "request": request}

    async def listed(self, **fields: Any) -> list[Entry]:
        """All actions, page by page."""
        pages = [await self.do("actions", **fields)]
        while pages[-1]["cursor"]:
            pages.append(await self.do("actions", **fields, cursor=pages[-1]["cursor"]))
            assert pages[-1]["actions"]
        return [action for page in pages for action in page["actions"]]

    async def logged(self, request: str) -> Entry | None:
        """What both logs say of a request, which must be the same."""
        shown = [entry for entry in await self.listed() if entry.get("request") == request]
        lines = [line for line in done(self.service) if line.get("request") == request]
        assert len(shown) == len(lines) <= 1
        if not shown:
            return None
        entry, line = shown[0], lines[0]
        assert entry | {"code": entry["outcome"], "done": entry["done"]} == line | {
            "at": entry["at"],
            "outcome": line["code"],
        }
        assert entry["address"].startswith("127.0.0.1:")
        return {name: value for name, value in entry.items() if name not in ("at", "request", "address")}


def done(service: Guarded) -> list[Entry]:
    """The actions in the log of a service."""
    lines = [json.loads(line) for line in service.log.splitlines() if '"action.done"' in line]
    return [{name: value for name, value in line.items() if name not in _OF_LINES} for line in lines]


_OF_LINES = ("time", "level", "event", "process")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="desk")
async def one_desk() -> AsyncIterator[Desk]:
    """A service that the tests share, and its admin."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name)) as service:
            yield Desk(service, await service.token("admin", name="chief"))


async def reserved(desk: Desk, topic: str) -> str:
    """The id of a new job that a worker has."""
    await desk.do("add", topic=topic, body=1)
    return str((await desk.do("pop", topic=topic))["id"])


async def dead(desk: Desk, topic: str) -> str:
    """The id of a new dead letter."""
    job_id = await reserved(desk, topic)
    await desk.do("bury", id=job_id)
    return job_id


async def delayed(desk: Desk, topic: str) -> str:
    """The id of a new job that is due much later."""
    return str((await desk.do("add", topic=topic, body=1, delay=_LATER_S))["id"])


async def test_what_changes_many_jobs_or_a_topic_is_logged_with_who_did_it_and_what_came_of_it(desk: Desk) -> None:
    who = {"actor": "chief", "token": desk.issued.record.id, "outcome": "OK"}
    buried, _, _, later = await dead(desk, "a"), await dead(desk, "a"), await dead(desk, "a"), await delayed(desk, "a")
    kicked = await desk.do("kick", id=buried)
    assert await desk.logged(kicked["request"]) == {**who, "action": "kick", "id": buried, "done": 1}
    kicked = await desk.do("kick", topic="a", count=5)
    assert await desk.logged(kicked["request"]) == {**who, "action": "kick", "topic": "a", "count": 5, "done": 2}
    run = await desk.do("run", id=later)
    assert await desk.logged(run["request"]) == {**who, "action": "run", "id": later, "done": 1}
    paused = await desk.do("pause", topic="a", seconds=60)
    assert await desk.logged(paused["request"]) == {**who, "action": "pause", "topic": "a", "seconds": 60, "done": 1}
    resumed, again = await desk.do("resume", topic="a"), await desk.do("resume", topic="a")
    assert await desk.logged(resumed["request"]) == {**who, "action": "resume", "topic": "a", "done": 1}
    assert await desk.logged(again["request"]) == {**who, "action": "resume", "topic": "a", "done": 0}
    purged = await desk.do("purge", topic="a", state="ready")
    assert await desk.logged(purged["request"]) == {**who, "action": "purge", "topic": "a", "state": "ready", "done": 4}


async def test_a_change_of_tokens_is_logged_with_the_id_of_the_token_and_never_with_the_token(desk: Desk) -> None:
    who = {"actor": "chief", "token": desk.issued.record.id, "outcome": "OK", "done": 1}
    made = await desk.do("token", action="create", name="made", rights=["produce"])
    assert await desk.logged(made["request"]) == {**who, "action": "token create", "name": "made", "id": made["id"]}
    for action in ("rotate", "revoke"):
        changed = await desk.do("token", action=action, id=made["id"])
        assert await desk.logged(changed["request"]) == {**who, "action": f"token {action}", "id": made["id"]}
    assert PREFIX not in json.dumps(await desk.listed()) + desk.service.log


async def test_what_programs_do_all_day_is_logged_only_where_a_person_does_it(desk: Desk) -> None:
    doing: list[tuple[str, Any, Entry]] = [
        ("delete", delayed, {}),
        ("update", delayed, {"delay": 5000}),
        ("release", reserved, {}),
        ("bury", reserved, {}),
    ]
    for command, made, fields in doing:
        answer = await desk.do(command, id=await made(desk, "b"), **fields)
        assert answer["success"] and await desk.logged(answer["request"]) is None
        job_id = await made(desk, "b")
        answer = await desk.do(command, id=job_id, person="Zoë Müller", **fields)
        assert await desk.logged(answer["request"]) == {
            **{"actor": "chief/Zoë Müller", "token": desk.issued.record.id, "action": command, "id": job_id},
            **{"outcome": "OK", "done": 1},
        }
    silent: list[tuple[str, Entry]] = [
        ("add", {"topic": "b", "body": 1}),
        ("pop", {"topic": "b"}),
        ("touch", {"id": await reserved(desk, "b")}),
        ("finish", {"id": await reserved(desk, "b")}),
        ("get", {"id": job_id}),
        ("stats", {"topic": "b"}),
        ("token", {"action": "list"}),
        ("token", {"action": "show", "id": desk.issued.record.id}),
    ]
    for command, fields in silent:
        answer = await desk.do(command, person="zoe", **fields)
        assert answer["success"] and await desk.logged(answer["request"]) is None


async def test_a_schedule_that_a_person_defines_or_removes_is_logged_by_its_name(desk: Desk) -> None:
    new: Entry = {"name": "nightly", "topic": "b", "body": 1, "every": 3600}
    who = {"actor": "chief/zoe", "token": desk.issued.record.id, "outcome": "OK", "done": 1, "name": "nightly"}
    removal: Entry = {"name": "nightly"}
    for command, fields, topic in (("schedule", new, {"topic": "b"}), ("unschedule", removal, {})):
        answer = await desk.do(command, person="zoe", **fields)
        assert await desk.logged(answer["request"]) == {**who, "action": command, **topic}
    answer = await desk.do("schedule", **new)
    assert answer["success"] and await desk.logged(answer["request"]) is None


async def test_each_delete_of_an_array_by_a_person_has_an_entry(desk: Desk) -> None:
    ids = [await delayed(desk, "c") for _ in range(3)]
    headers = {"X-Jobqueue-Actor": "zoe", "X-Request-Id": "many"}
    commands = [{"command": "delete", "id": job_id} for job_id in (*ids, "unknown", ids[0])]
    await desk.service.ask(desk.issued, commands, **headers)
    shown = [entry for entry in reversed(await desk.listed()) if entry.get("request") == "many"]
    assert [(entry["id"], entry["outcome"], entry["done"]) for entry in shown] == [
        *((job_id, "OK", 1) for job_id in ids),
        ("unknown", "NOT_FOUND", 0),
        (ids[0], "OK", 0),
    ]
    assert [line["id"] for line in done(desk.service) if line.get("request") == "many"] == [*ids, "unknown", ids[0]]


async def test_what_fails_is_logged_with_its_code_and_what_is_refused_is_not(desk: Desk) -> None:
    failed = await desk.do("kick", id="nobody")
    assert await desk.logged(failed["request"]) == {
        **{"actor": "chief", "token": desk.issued.record.id, "action": "kick", "id": "nobody"},
        **{"outcome": "NOT_FOUND", "done": 0},
    }
    narrow = await desk.service.token("operate", topics=["narrow"])
    refusals: list[tuple[str, Entry]] = [
        ("purge", {"topic": "wide"}),
        ("token", {"action": "create", "name": "mine", "rights": ["admin"]}),
        ("kick", {"topic": "narrow", "count": -1}),
    ]
    for command, fields in refusals:
        refused = await desk.do(command, who=narrow, **fields)
        assert not refused["success"]
        assert await desk.logged(refused["request"]) is None


async def test_who_may_not_name_a_person_does_nothing_by_naming_one(desk: Desk) -> None:
    worker = await desk.service.token("produce", "operate")
    later = await delayed(desk, "d")
    for command, fields in [("delete", {"id": later}), ("pause", {"topic": "d"}), ("whoami", {})]:
        refused = await desk.do(command, who=worker, person="chief", **fields)
        assert (refused["code"], refused["right"]) == ("FORBIDDEN", "actor")
        assert await desk.logged(refused["request"]) is None
    assert (await desk.do("get", id=later))["state"] == "delayed"
    assert not (await desk.do("resume", topic="d"))["was_paused"]


async def test_a_name_that_is_not_utf_8_is_refused(desk: Desk) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.service.service.port)
    body = b'{"command":"pause","topic":"g"}'
    token = bearer(desk.issued)["Authorization"].encode()
    writer.write(b"POST /command HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + token + b"\r\n")
    writer.write(b"X-Jobqueue-Actor: \xff\xfe\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    await writer.wait_closed()
    assert not (await desk.do("resume", topic="g"))["was_paused"]


async def test_pages_are_full_up_to_the_end_and_the_newest_come_first(desk: Desk) -> None:
    for number in range(12):
        await desk.do("resume", topic="h", person=f"person-{number % 3}")
    everything = await desk.listed()
    times = [entry["at"] for entry in everything]
    assert times == sorted(times, reverse=True)
    for count in (1, 5, len(everything), len(everything) + 1):
        assert await desk.listed(count=count) == everything
    first = await desk.do("actions", count=5)
    assert len(first["actions"]) == 5
    assert await desk.listed(since=everything[3]["at"]) == [
        entry for entry in everything if entry["at"] >= everything[3]["at"]
    ]
    mine = await desk.listed(by="chief/person-1", count=1)
    assert len(mine) == 4 and {entry["actor"] for entry in mine} == {"chief/person-1"}
    assert await desk.listed(by="nobody") == []


@pytest.mark.parametrize("cursor", ["x", "WyIxIl0", "WyJhLWIiXQ", "WyI5OTk5OTk5OTk5OTk5OTk5OTk5OTktMSJd"])
async def test_a_cursor_that_was_not_given_is_refused(desk: Desk, cursor: str) -> None:
    answer = await desk.do("actions", cursor=cursor)
    assert (answer["code"], answer["field"]) == ("BAD_FIELD", "cursor")


async def test_actions_are_for_admins(desk: Desk) -> None:
    operator = await desk.service.token("operate", "look", "produce", "consume")
    assert (await desk.do("actions", who=operator))["code"] == "FORBIDDEN"


async def test_an_admin_of_some_topics_sees_full_pages_of_what_was_done_there(desk: Desk) -> None:
    narrow = await desk.service.token("admin", topics=["narrow-*"])
    for topic in ("narrow-1", "wide", "narrow-2", "wide", "narrow-3"):
        await desk.do("pause", topic=topic)
    shown: list[Entry] = []
    cursor: Entry = {}
    while not shown or cursor["cursor"]:
        page = await desk.do("actions", who=narrow, count=1, **cursor)
        shown += page["actions"]
        cursor = {"cursor": page["cursor"]}
        assert len(page["actions"]) == 1
    assert [entry["topic"] for entry in shown] == ["narrow-3", "narrow-2", "narrow-1"]


async def test_the_command_line_lists_actions_and_its_own_changes_of_tokens(desk: Desk) -> None:
    shell = Shell(desk.service.url, JOBQUEUE_TOKEN=desk.issued.token.text)
    where = ("--redis", desk.service.redis_url)
    made = await shell.run("token", "create", "typed", "--may", "look", *where)
    assert made.code == 0 and made.err.count("\n") == 1
    token_id = made.out.removeprefix(PREFIX)[:8]
    assert (await shell.run("token", "revoke", token_id, *where)).code == 0
    assert (await shell.run("token", "list", *where)).code == 0
    assert (await shell.run("token", "rotate", token_id, *where)).code == 1
    listed = (await shell.run("actions", "--count", "3")).json["actions"]
    shown = [(each["action"], each.get("name"), each["id"], each["outcome"]) for each in listed]
    assert shown == [
        ("token rotate", None, token_id, "WRONG_STATE"),
        ("token revoke", None, token_id, "OK"),
        ("token create", "typed", token_id, "OK"),
    ]
    assert all("@" in each["actor"] and "token" not in each and "request" not in each for each in listed)
    assert len((await shell.run("actions", "--all")).json["actions"]) == len(await desk.listed())


async def test_at_maxmemory_a_purge_and_a_delete_pass_and_are_logged(desk: Desk) -> None:
    later = [await delayed(desk, "full") for _ in range(3)]
    await desk.service.redis.read("CONFIG", "SET", "maxmemory", "1mb")
    try:
        assert (await desk.do("add", topic="full", body=1))["code"] == "NO_ROOM"
        deleted = await desk.do("delete", id=later[0], person="zoe")
        purged = await desk.do("purge", topic="full")
    finally:
        await desk.service.redis.read("CONFIG", "SET", "maxmemory", "0")
    shown = [await desk.logged(answer["request"]) for answer in (deleted, purged)]
    assert [(entry["action"], entry["outcome"], entry["done"]) for entry in shown if entry] == [
        ("delete", "OK", 1),
        ("purge", "OK", 2),
    ]


async def test_without_redis_no_action_begins(desk: Desk) -> None:
    later = await delayed(desk, "away")
    await desk.service.redis.read("ACL", "SETUSER", "default", "-xadd")  # nothing else is missing
    try:
        assert not (await desk.do("run", id=later))["success"]
        assert not (await desk.do("purge", topic="away"))["success"]
    finally:
        await desk.service.redis.read("ACL", "SETUSER", "default", "+@all")
    assert (await desk.do("get", id=later))["state"] == "delayed"


@pytest.mark.parametrize("workers", [1, 2])
async def test_settings_that_are_read_again_are_one_action_of_the_service(tmp_path: Path, workers: int) -> None:
    config = tmp_path / "jobqueue.toml"
    async with guarded(tmp_path, settings="default_ttr_s = 1\n", workers=workers) as service:
        desk = Desk(service, await service.token("admin"))
        await until(lambda: "service.started" in service.log)  # all processes have

        async def outcomes() -> list[str]:
            return [entry["outcome"] for entry in await desk.listed()]

        for number in (1, 2, 3):  # a process that logged it, too, would have done so by the end
            config.write_text(config.read_text().replace(f"ttr_s = {number}", f"ttr_s = {number + 1}"))
            service.service.signal(signal.SIGHUP)
            await until(lambda: service.log.count('"settings.reloaded"') == number)  # noqa: B023 - in this round

            async def is_logged(number: int = number) -> bool:
                return await outcomes() == ["OK"] * number

            await until(is_logged)
        config.write_text("nonsense")
        service.service.signal(signal.SIGHUP)
        await until(lambda: "settings.refused" in service.log)
        entries = await desk.listed()
        assert [{**entry, "at": 0} for entry in entries] == [
            {
                **{"at": 0, "actor": "-", "action": "reload", "changed": ["default_ttr_s"]},
                **{"outcome": "OK", "done": 1},
            }
        ] * 3
        assert len(done(service)) == 3


async def test_where_no_tokens_are_asked_for_the_header_alone_is_the_actor(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    flags = ("--redis", desk.service.redis_url, "--namespace", "open")
    async with ServiceProcess(*flags, log=log) as service, aiohttp.ClientSession() as session:

        async def ask(command: str, **headers: str) -> Entry:
            body = {"command": command} | ({} if command == "actions" else {"topic": "t"})
            async with session.post(f"{service.url}/command", json=body, headers=headers) as answer:
                asked: Entry = await answer.json()
                return asked

        assert (await ask("pause", **{"X-Jobqueue-Actor": "x" * 200}))["success"]
        assert (await ask("resume"))["success"]
        assert (await ask("purge", **{"X-Jobqueue-Actor": "x" * 201}))["code"] == "BAD_FIELD"
        shown = [(each["action"], each["actor"]) for each in (await ask("actions"))["actions"]]
        assert shown == [("resume", "-"), ("pause", "x" * 200)]
