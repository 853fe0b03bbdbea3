"""All commands of the native protocol, for a Redis that may refuse what they need."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jobqueue_client import AsyncClient, Unauthorized

from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until
from tests.wires.serving import Wires


async def commands_of_jobs(wires: Wires) -> set[str]:
    """The native commands that need no token, and what they need timers for; returns their names."""
    said: set[str] = set()
    async with Client(wires.service.url) as client:

        async def ask(command: str, **fields: Any) -> Any:
            said.add(command)
            answer = await client.ask(command, **fields)
            assert answer["success"], (command, answer)
            return answer

        topic = "shop/orders"
        for durability in ("local", "replicated", "fsynced"):
            job = f"job-{durability}"
            await ask("add", topic=topic, id=job, body=1, delay=60, durability=durability)
            await ask("update", id=job, body={"longer": "x" * 500})
            await ask("explain", id=job)
            await ask("run", id=job)
            await ask("explain", id=job)
            lease = (await ask("pop", topic=topic, wait=10, worker="w"))["lease"]
            await ask("touch", id=job, lease=lease)
            await ask("release", id=job, lease=lease, delay=0.1)
            lease = (await ask("pop", topic=topic, wait=10))["lease"]
            await ask("finish", id=job, lease=lease, durability=durability)
            await ask("schedule", name=job, topic="ticks", body=1, every=1, durability=durability)
        assert (await ask("pop", topic="ticks", wait=20))["id"]
        await ask("schedules")
        for durability in ("local", "replicated", "fsynced"):
            await ask("unschedule", name=f"job-{durability}")
        await ask("add", topic="both", id="copied", body=1)
        await ask("add", topic=topic, id="buried", body=1, retention=5, priority=9)
        await ask("bury", id="buried", lease=(await ask("pop", topic=topic))["lease"])
        await ask("explain", id="buried")
        await ask("kick", topic=topic)
        await ask("bury", id="buried", lease=(await ask("pop", topic=topic))["lease"])
        await ask("kick", id="buried")
        for _ in range(2):
            last = await ask("add", topic=topic, body=1, key="customer:7")
        await ask("explain", id=last["id"])
        for state in ("delayed", "ready", "reserved", "dead"):
            await ask("peek", topic=topic, state=state)
            await ask("find", prefix="b", topic=topic, state=state)
        search = (await ask("find", prefix="b"))["operation"]
        assert (await ask("operation", do="get", operation=search))["kind"] == "find"
        plan = await ask("operation", do="plan", kind="run", filter={"topic": topic})
        await until(lambda: _is_planned(client, plan["plan"]))
        await ask("operation", do="start", plan=plan["plan"], expect=0)
        await ask("operation", do="list")
        for name in ("get", "delete"):
            await ask(name, id="buried")
        await ask("pause", topic=topic, seconds=60)
        for name in ("stats", "forecast", "figures", "resume", "purge"):
            await ask(name, topic=topic)
        for name in ("stats", "forecast", "figures", "topics", "workers", "instances", "health"):
            await ask(name)
        for name in ("whoami", "actions", "settings"):
            await ask(name)
        await ask("leave", worker="w")
    return said


async def _is_planned(client: Client, plan: str) -> bool:
    answer = await client.ask("operation", do="get", operation=plan)
    return bool(answer["state"] == "planned")


async def commands_of_tokens(url: str) -> set[str]:
    """Tokens are made on the command line and over a service with two workers, and jobs are added, popped and finished
    within the topics and the rate of one; returns the names of commands that only such a service carries out."""
    made = await Shell("").run("token", "create", "admin", "--may", "admin", "--rate", "1000", "--redis", url)
    assert made.code == 0, made
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        config = Path(folder) / "jobqueue.toml"
        config.write_text('access = "tokens"\n')
        async with (
            ServiceProcess("--redis", url, "--config", str(config), workers=2) as service,
            AsyncClient(service.url, token=made.out.strip()) as admin,
        ):
            await until(lambda: _is_known(admin))
            rights = ["produce", "consume", "operate", "look"]
            narrow = await admin.token("create", name="narrow", rights=rights, topics=["own-*"], rate=100)
            async with AsyncClient(service.url, token=narrow["token"]) as client:
                await until(lambda: _is_known(client))
                await _within_topics(client)
            await admin.token("rotate", id=narrow["id"], keep=60)
            await admin.token("revoke", id=narrow["id"])
            assert {each["name"] for each in (await admin.token("list"))["tokens"]} == {"admin", "narrow"}
            assert {each["action"] for each in (await admin.actions())["actions"]} >= {"pause", "token create"}
    return {"token"}


async def _is_known(client: AsyncClient) -> bool:
    try:
        return (await client.whoami())["success"]
    except Unauthorized:
        return False


async def _within_topics(client: AsyncClient) -> None:
    """What a script does within the topics of a token."""
    for name in ("own-a", "own-b", "own-c"):
        await client.add("own-1", 1, 60 if name == "own-c" else 0, id=name)
    await client.add("own-1", 2, id="own-a", if_exists="replace")
    await client.update("own-b", priority=9)
    job = await client.pop(["own-1", "own-2"], wait=1)
    assert job
    await client.touch(job)
    await client.finish(job)
    await client.delete("own-c")
    for command in (client.stats(), client.topics(), client.workers(), client.peek("own-1"), client.leave("w")):
        await command
    for job_id in ("own-a", "own-b", "own-c"):
        await client.explain(job_id)
    await client.pause("own-1")
    await client.resume("own-1")
    await client.purge("own-1")
