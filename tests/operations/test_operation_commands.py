"""`jobqueue operation` as people and scripts run it, against a real service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="client")
async def one_client(redis_server: RedisServer) -> AsyncIterator[Client]:
    """A client of a service that the tests share; each has a topic of its own."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        yield client


@pytest.fixture(name="shell")
def one_shell(client: Client) -> Shell:
    return Shell(client.url)


async def fill(client: Client, topic: str, number: int, **fields: object) -> None:
    await client.batch(
        [{"command": "add", "topic": topic, "id": f"{topic}:{each}", "body": 1, **fields} for each in range(number)]
    )


async def counts(client: Client, topic: str) -> dict[str, int]:
    found = (await client.ask("stats", topic=topic))["counts"]
    return {state: number for state, number in found.items() if number}


async def test_a_script_plans_starts_and_waits(client: Client, shell: Shell) -> None:
    await fill(client, "scripted", 30, delay=3600)
    plan = await shell.run(
        *("operation", "plan", "reschedule", "--topic", "scripted", "--shift", "-30m", "--created-from", "1h")
    )
    assert (plan.code, plan.err, plan.json["state"], plan.json["count"]) == (0, "", "planned", 30)
    assert plan.json["shift"] == -1800
    name = plan.json["operation"]
    refused = await shell.run("operation", "start", name, "--expect", "29")
    assert (refused.code, refused.json["code"]) == (1, "WRONG_STATE")
    assert "the plan has 30 jobs, not 29" in refused.err
    unasked = await shell.run("operation", "start", name)
    assert (unasked.code, unasked.out) == (2, "") and "--expect is missing" in unasked.err
    started = await shell.run("operation", "start", name, "--expect", "30", "--rate", "500", "--wait")
    assert (started.code, started.err) == (0, "")
    assert (started.json["state"], started.json["done"], started.json["skipped"]) == ("done", 30, 0)
    job = await client.ask("get", id="scripted:7")
    assert job["due"] - job["created"] == pytest.approx(1800, abs=1)
    found = await shell.run("operation", "get", name)
    assert (found.code, found.json["state"], found.json["rate"]) == (0, "done", 500)
    assert name in {each["operation"] for each in (await shell.run("operation", "list")).json["operations"]}


async def test_a_paused_one_stays_until_it_is_resumed_or_cancelled(client: Client, shell: Shell) -> None:
    await fill(client, "halted", 100, delay=3600)
    plan = (await shell.run("operation", "plan", "run", "--topic", "halted")).json
    await shell.run("operation", "start", plan["operation"], "--expect", "100", "--rate", "5")
    paused = await shell.run("operation", "pause", plan["operation"])
    assert (paused.code, paused.json["state"]) == (0, "paused")
    resumed = await shell.run("operation", "resume", plan["operation"])
    assert (resumed.code, resumed.json["state"]) in ((0, "waiting"), (0, "running"))
    cancelled = await shell.run("operation", "cancel", plan["operation"])
    assert (cancelled.code, cancelled.json["state"]) == (0, "cancelled")
    waited = await shell.run("operation", "get", plan["operation"], "--wait")
    assert (waited.code, waited.json["state"]) == (1, "cancelled")
    again = await shell.run("operation", "resume", plan["operation"])
    assert again.code == 1 and "an operation that is cancelled cannot be resumed (WRONG_STATE)" in again.err
    assert (await counts(client, "halted"))["delayed"] > 50


async def test_what_cannot_be_is_told_in_a_sentence(shell: Shell) -> None:
    wrong = [
        (["plan", "kick"], 1, "a kick needs filter.topic, which is * for all"),
        (["plan", "kick", "--topic", "t", "--state", "ready"], 1, "filter.state must be dead"),
        (["plan", "reschedule", "--topic", "t"], 1, "takes either shift or at"),
        (["plan", "reschedule", "--topic", "t", "--shift", "soon"], 2, "'soon' is not a duration"),
        (["plan", "delete", "--topic", "t", "--died-from", "when"], 2, "'when' is not a time"),
        (["plan", "drop", "--topic", "t"], 2, "'drop' is not one of"),
        (["start", "0123456789ab", "--expect", "1"], 1, "no such operation"),
        (["get", "nonsense"], 1, "operation must be 12 digits of 0-9 a-f"),
    ]
    for arguments, code, words in wrong:
        ran = await shell.run("operation", *arguments)
        assert ran.code == code and words in ran.err, (arguments, ran)


async def test_a_person_is_asked_before_jobs_are_changed(client: Client, shell: Shell) -> None:
    await fill(client, "few", 3)
    shown = await shell.shown("operation", "plan", "delete", "--topic", "few", "--state", "ready")
    facts = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.splitlines() if line}
    name = facts["operation"]
    assert (facts["kind"], facts["state"], facts["jobs"]) == ("delete", "planned", "3")
    assert facts["which"] == "topic few, state ready" and set(facts["such"].split()[1:]) == {"few:0", "few:1", "few:2"}
    assert f"jobqueue operation start {name} --expect 3" in shown and "export" not in shown
    async with shell.terminal("operation", "start", name) as terminal:
        await terminal.see(r"Delete 3 jobs \(topic few, state ready\)\? \[y/N\]")
        terminal.type("n\n")
        assert await terminal.end() == 1
    assert await counts(client, "few") == {"ready": 3}
    async with shell.terminal("operation", "start", name, "--wait") as terminal:
        await terminal.see(r"\? \[y/N\]")
        terminal.type("y\n")
        assert await terminal.end() == 0
        assert "done" in terminal.text
    assert await counts(client, "few") == {}
    assert name in await shell.shown("operation", "list")


async def test_the_number_of_many_jobs_is_typed_and_a_deletion_names_the_export(client: Client, shell: Shell) -> None:
    for part in range(2):
        await client.batch([{"command": "add", "topic": "many", "id": f"m{part}-{n}", "body": 1} for n in range(600)])
    shown = await shell.shown("operation", "plan", "delete", "--topic", "many")
    assert "to export the jobs first: jobqueue peek many --all --json > jobs.jsonl" in shown
    name = shown.split()[1]
    async with shell.terminal("operation", "start", name) as terminal:
        await terminal.see(r"Delete 1,200 jobs \(topic many\): type how many")
        terminal.type("120\n")
        assert await terminal.end() == 1
        assert "the plan has 1200 jobs, not 120" in terminal.text
    assert await counts(client, "many") == {"ready": 1200}
    async with shell.terminal("operation", "start", name, "--rate", "20000", "--wait") as terminal:
        await terminal.see("type how many")
        terminal.type("1200\n")
        assert await terminal.end() == 0
    assert await counts(client, "many") == {}


async def test_a_find_without_a_topic_lists_the_ids(client: Client, shell: Shell) -> None:
    await fill(client, "sought", 5)
    found = await shell.run("find", "sought:")
    assert (found.code, found.err, found.json["state"]) == (0, "", "done")
    assert found.json["samples"] == [f"sought:{number}" for number in range(5)]
    assert (await shell.shown("find", "sought:")).split() == found.json["samples"]
    assert await shell.shown("find", "nobody:") == "no job matches: prefix nobody:\n"
    ran = await shell.run("find", "sought:", "--all")
    assert ran.code == 2 and "go with --topic" in ran.err
    planned = await shell.run("operation", "plan", "find", "--topic", "sou*", "--prefix", "sought:3")
    assert (planned.code, planned.json["samples"]) == (0, ["sought:3"])


async def test_actions_show_who_started_what(client: Client, shell: Shell) -> None:
    await fill(client, "noted", 2, delay=3600)
    plan = (await shell.run("operation", "plan", "run", "--topic", "noted")).json["operation"]
    await shell.run("operation", "start", plan, "--expect", "2", "--wait")
    await until(lambda: _is_done(client, plan))
    row = next(line for line in (await shell.shown("actions")).splitlines() if plan in line)
    assert "operation start" in row and "run" in row


async def _is_done(client: Client, operation: str) -> bool:
    return bool((await client.ask("operation", do="get", operation=operation))["state"] == "done")
