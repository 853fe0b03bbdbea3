"""`jobqueue fsck` as an operator runs it, beside a real service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from buckets import Redis
from tests.acceptance.load import Load
from tests.kit import forked
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess


async def fsck(*flags: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
    return await forked.ran(("fsck", *flags), environment)


async def fsck_json(*flags: str) -> tuple[int, Any]:
    code, output, complaint = await fsck("--json", *flags)
    assert complaint == ""
    return code, json.loads(output)


async def test_a_lost_ready_list_is_told_then_mended_and_the_jobs_are_popped(
    redis_server: RedisServer, redis: Redis
) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        for number in range(7):
            await client.ask("add", topic="t", id=f"job{number}", body="my secret body")
        assert await fsck(*flags) == (0, "7 jobs and tombstones in 1 topics: all is well\n", "")
        await redis.read("DEL", "{jq:0}:r:4:t")
        code, output, _ = await fsck(*flags)
        assert code == 1
        assert "a ready job is missing from its ready list" in " ".join(output.split()) and "job" in output
        assert "7 faults are left; --repair repairs them" in output
        assert "secret" not in output
        assert (await client.ask("pop", topic="t"))["id"] is None
        code, report = await fsck_json("--repair", *flags)
        assert code == 0
        found = report["findings"]["unlisted"]
        assert (found["found"], found["repaired"], len(found["samples"])) == (7, 7, 5)
        assert (report["jobs"], report["topics"], report["faults_left"]) == (7, 1, 0)
        assert (await fsck_json(*flags))[1]["findings"] == {}
        popped = await client.ask("pop", topic="t", count=9)
        assert {job["id"] for job in popped["jobs"]} == {f"job{number}" for number in range(7)}


async def test_a_schedule_that_lost_its_entry_is_told_and_mended(redis_server: RedisServer, redis: Redis) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.ask("schedule", name="daily", topic="t", cron="0 3 * * *", body="my secret body")
    await redis.read("DEL", *(f"{{jq:0}}:b:{bucket}" for bucket in range(8)))  # a service that runs would mend this
    code, output, _ = await fsck(*flags)
    assert code == 1 and "~daily" in output and "secret" not in output
    assert "0 jobs and tombstones in 0 topics and 1 schedules: 1 faults are left" in output
    code, report = await fsck_json("--repair", *flags)
    assert (code, report["schedules"], report["findings"]["unscheduled"]["repaired"]) == (0, 1, 1)
    assert (await fsck_json(*flags))[1]["findings"] == {}


async def test_a_busy_service_has_no_faults_and_loses_nothing_to_a_repair(
    redis_server: RedisServer, redis: Redis
) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as service:
        load = Load([service.url])
        async with load.running():
            for _ in range(2):
                code, report = await fsck_json("--repair", *flags)
                assert (code, report["findings"]) == (0, {})
        load.check()
    code, report = await fsck_json(*flags)
    assert (code, report["findings"], report["counts_unverified"]) == (0, {}, [])
    assert report["jobs"] > 100


async def test_a_service_that_refuses_its_settings_starts_after_a_repair(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", body=1)
    await redis.read("DEL", "{jq:0}:meta")
    await redis.read("SET", "{jq:0}:meta", "of another program")
    refusal = await ServiceProcess(*flags, log=tmp_path / "log").refusal()
    assert "{jq:0}:meta is not a hash: another program wrote it" in refusal and "jobqueue fsck --repair" in refusal
    code, report = await fsck_json("--repair", *flags)
    assert (code, report["set_aside"]) == (0, 1)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        assert (await client.ask("pop", topic="t"))["id"] == "a"


async def test_the_redis_that_comes_along_is_found_in_its_data_directory(tmp_path: Path) -> None:
    code, _, complaint = await fsck("--data", str(tmp_path))
    assert code == 2
    assert "no embedded Redis runs on the data directory" in complaint
    far = tmp_path / ("x" * 100)  # too long for a socket: it is elsewhere, and noted
    for data in (tmp_path / "near", far):
        async with ServiceProcess("--data", str(data)) as service, Client(service.url) as client:
            await client.ask("add", topic="t", id="a", body=1)
            assert (await fsck_json("--data", str(data)))[1]["jobs"] == 1


async def test_what_cannot_be_checked_is_neither_good_nor_faulty(redis_server: RedisServer, redis: Redis) -> None:
    code, _, complaint = await fsck("--redis", "unix:///nowhere/redis.sock")
    assert code == 2 and "Error: " in complaint
    await redis.read("HSET", "{jq:0}:meta", "format", "3", "shards", "1", "buckets", "8", "hash", "crc32")
    code, _, complaint = await fsck("--redis", redis_server.url)
    assert code == 2 and "another version" in complaint
    code, output, _ = await fsck("--redis", redis_server.url, "--namespace", "other")
    assert (code, output) == (0, "0 jobs and tombstones in 0 topics: all is well\n")
