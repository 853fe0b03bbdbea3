"""What people see of a service of several processes: `instances`, `health`, `settings`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp

from buckets import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


async def instances(client: Client) -> list[dict[str, Any]]:
    answer = await client.ask("instances")
    assert answer["success"], answer
    found: list[dict[str, Any]] = answer["instances"]
    return found


def timers(instance: dict[str, Any]) -> int:
    return sum(map(len, (instance["timers"] or {}).values()))


async def shares(client: Client) -> list[int]:
    return sorted(timers(each) for each in await instances(client))


async def test_a_killed_process_disappears_and_another_has_its_timers(redis_server: RedisServer, redis: Redis) -> None:
    async with (
        ServiceProcess("--redis", redis_server.url) as first,
        ServiceProcess("--redis", redis_server.url) as second,
        Client(second.url) as client,
    ):

        async def are(*numbers: int) -> bool:
            return await shares(client) == [*numbers]

        assert first.process and second.process
        both, one = {first.process.pid, second.process.pid}, second.process.pid

        async def only_one_is_left() -> bool:
            found = {each["pid"]: each["worker"] for each in await instances(client)}
            return found == {one: None} and len(await redis.read("HGETALL", _CARDS)) == 2

        async def both_are_there() -> bool:
            return {each["pid"] for each in await instances(client)} == both

        await until(lambda: are(4, 4))
        await until(both_are_there)
        await first.kill()
        await until(lambda: are(8))
        await until(only_one_is_left)


async def test_each_worker_is_listed_with_its_number_and_a_killed_one_is_replaced(
    redis_server: RedisServer, redis: Redis
) -> None:
    async with ServiceProcess("--redis", redis_server.url, workers=2) as service:

        async def by_worker() -> dict[int, dict[str, Any]]:
            """Over a connection of its own, as that of a killed worker breaks."""
            with contextlib.suppress(aiohttp.ClientError):
                async with Client(service.url) as client:
                    return {each["worker"]: each for each in await instances(client)}
            return {}

        async def both(*others_than: int) -> bool:
            found = await by_worker()
            have_all = sorted(map(timers, found.values())) == [4, 4]
            return found.keys() == {1, 2} and have_all and found[1]["pid"] not in others_than

        await until(both)
        before = await by_worker()
        os.kill(before[1]["pid"], signal.SIGKILL)
        await until(lambda: both(before[1]["pid"]))
        after = await by_worker()
        assert after[2]["pid"] == before[2]["pid"]
        assert after[1]["started"] > before[1]["started"]


async def test_pops_that_wait_are_counted_at_their_instance(redis_server: RedisServer, redis: Redis) -> None:
    async with (
        ServiceProcess("--redis", redis_server.url) as first,
        ServiceProcess("--redis", redis_server.url) as second,
        Client(first.url) as here,
        Client(second.url) as there,
    ):
        parked = [asyncio.create_task(there.ask("pop", topic="t", wait=60, worker="w")) for _ in range(3)]
        await until(lambda: second.parked(3))
        assert second.process

        pid = second.process.pid

        async def are_told() -> bool:
            return {each["pid"]: each["parked"] for each in await instances(here)}.get(pid) == 3

        await until(are_told)
        await here.ask("leave", worker="w")
        await asyncio.gather(*parked)


async def test_instances_of_other_versions_are_listed_and_stand_out(redis_server: RedisServer, redis: Redis) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await until(lambda: redis.read("EXISTS", _CARDS))
        card = json.loads((await redis.read("HGETALL", _CARDS))[1])
        other = json.dumps(card | {"version": "0.0.9", "name": "other:1"})
        signing = asyncio.create_task(sign_as(redis, {"aa": "", "bb": other}))

        async def are_three() -> bool:
            versions = [each["version"] for each in await instances(client)]
            return len(versions) == 3 and versions[-1] is None and {*versions} == {card["version"], "0.0.9", None}

        async def stand_out() -> bool:
            shown = await Shell(service.url).shown("instances")
            return f"different versions run: 0.0.9 (1), {card['version']} (1), not known (1)" in shown

        await until(are_three)
        await until(stand_out)
        signing.cancel()


async def test_each_worker_tells_the_reloaded_settings_and_where_they_came_from(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("default_tries = 2\ngrace_s = 5\n[topics.old]\ntries = 1\n")

    async def told(url: str) -> tuple[int, dict[str, Any], list[str]]:
        """What a process says, over a connection of its own: its pid is not in the answer."""
        async with Client(url) as client:
            answer = await client.ask("settings")
        assert answer["success"], answer
        known = {each["name"]: (each["value"], each["source"]) for each in answer["settings"]}
        return known["default_tries"][0], known, [each["topic"] for each in answer["policies"]]

    flags = ("--redis", redis_server.url, "--config", str(config), "--namespace", "jq")
    async with ServiceProcess(*flags, workers=2) as service:
        tries, known, topics = await told(service.url)
        assert (tries, topics) == (2, ["old"])
        assert (known["redis"], known["namespace"]) == (("set", "flag"), ("jq", "flag"))
        assert (known["grace_s"], known["default_ttr_s"]) == ((5.0, "file"), (60.0, "default"))
        config.write_text("default_ttr_s = 7\ngrace_s = 6\n[topics.new]\ntries = 1\n")
        service.signal(signal.SIGHUP)

        async def all_have_reloaded() -> bool:
            seen = [await told(service.url) for _ in range(20)]
            return all(topics == ["new"] for _, _, topics in seen)

        await until(all_have_reloaded)
        tries, known, _ = await told(service.url)
        assert (tries, known["default_tries"]) == (16, (16, "default"))
        assert known["default_ttr_s"] == (7.0, "file")
        assert known["grace_s"] == (5.0, "file")  # it needs a restart


async def test_health_tells_more_than_an_outsider_sees_and_its_exit_code_says_whether_something_is_bad(
    redis_server: RedisServer, redis: Redis
) -> None:
    async with ServiceProcess("--redis", redis_server.url, workers=2) as service, Client(service.url) as client:
        await client.ask("add", topic="t", body=1)
        await client.ask("bury", id=(await client.ask("pop", topic="t"))["id"], reason="why not")
        shell = Shell(service.url)
        shown = await shell.shown("health")
        assert "ok   service: ready" in shown and "why not" in shown.replace("\n", "")
        assert {"redis", "access", "instances", "clock"} <= {line.split()[1].rstrip(":") for line in shown.splitlines()}
        assert (await shell.run("health")).code == 0
        await redis.read("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            await until(lambda: _is_bad(shell))
        finally:
            await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def _is_bad(shell: Shell) -> bool:
    ran = await shell.run("health")
    levels = {each["subject"]: each["level"] for each in ran.json["findings"]}
    return (ran.code, levels["redis"]) == (1, "bad")


_CARDS = "{jq:0}:cards"


async def sign_as(redis: Redis, cards: dict[str, str]) -> None:
    """Sign the list for instances that do not run, without end, with the cards of those that have one."""
    while True:
        seconds, us = map(int, await redis.read("TIME"))
        for token, card in cards.items():
            await redis.read("ZADD", "{jq:0}:roll", seconds * 1000 + us // 1000, token)
            if card:
                await redis.read("HSET", _CARDS, token, card)
        await asyncio.sleep(0.05)
