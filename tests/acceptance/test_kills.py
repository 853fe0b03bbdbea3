"""Kill -9, at any moment: the service, its Redis, a worker. What was acknowledged is delivered, and never early."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from buckets import Redis
from tests.acceptance.load import Load
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

KILLS = int(os.environ.get("TEST_KILLS", "5"))


async def server_pid(redis: Redis) -> int:
    info: bytes = await redis.read("INFO", "server")
    fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return int(fields["process_id"])


async def test_a_service_killed_again_and_again_under_load_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(KILLS)
    log = tmp_path / "service.log"
    service = ServiceProcess("--data", str(tmp_path / "data"), log=log)
    await service.start()
    load = Load([service.url])
    try:
        async with load.running():
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.1, 0.6))
                await service.kill()
                service = await ServiceProcess("--data", str(tmp_path / "data"), port=service.port, log=log).start()
        load.check()
    finally:
        await service.stop()
    assert "Traceback" not in log.read_text()


async def test_the_embedded_redis_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "service.log"
    async with ServiceProcess("--data", str(data), log=log) as service, Client(service.url) as client:
        redis = Redis(f"unix://{data}/redis.sock")
        await client.ask("add", topic="t", id="before", delay=0.5, body=1)
        await until(lambda: synced(redis))
        os.kill(await server_pid(redis), signal.SIGKILL)
        assert (await client.insist("add", topic="t", id="after", body=2))["success"]
        got = {(await client.insist("pop", topic="t", wait=10))["id"] for _ in range(2)}
        assert got == {"before", "after"}
        await redis.close()


async def test_killing_service_and_redis_together_costs_at_most_the_last_two_seconds(tmp_path: Path) -> None:
    flags, log = ("--data", str(tmp_path / "data")), tmp_path / "service.log"
    service = ServiceProcess(*flags, log=log)
    await service.start()
    redis = Redis(f"unix://{tmp_path}/data/redis.sock")
    load = Load([service.url])
    try:
        async with load.running():
            await asyncio.sleep(4)
            pid = await server_pid(redis)
            await service.kill()
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            service = await ServiceProcess(*flags, port=service.port, log=log).start()
            load.forgive(killed_at - 2, killed_at)
            await asyncio.sleep(1)
        # A worker may finish what Redis has forgotten, its add or only its pop.
        load.refused = [each for each in load.refused if each["code"] not in ("NOT_FOUND", "NOT_RESERVED")]
        load.check()
    finally:
        await redis.close()
        await service.stop()


async def synced(redis: Redis) -> bool:
    """Whether the append-only file holds all that was acknowledged, on disk."""
    info = (await redis.read("INFO", "persistence")).decode()
    return "aof_pending_bio_fsync:0" in info and "aof_buffer_length:0" in info


async def test_data_survive_a_stop_and_a_start(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"))
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", delay=1, body="kept")
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        assert (await client.ask("pop", topic="t", wait=10))["value"] == "kept"


async def test_a_second_service_on_the_same_directory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with ServiceProcess("--data", data):
        said = await ServiceProcess("--data", data, log=tmp_path / "second.log").refusal()
    assert f"already runs on the data directory {data}" in said and len(said.splitlines()) == 1


async def test_an_occupied_port_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service:
        flags = ("--data", str(tmp_path / "other"))
        said = await ServiceProcess(*flags, port=service.port, log=tmp_path / "second.log").refusal()
    assert said.splitlines()[-1].startswith(f"Error: port {service.port} is in use; by whom: ")
    assert not (tmp_path / "other").exists()  # no Redis was started


async def test_a_worker_killed_with_jobs_in_hand_costs_one_ttr(redis_server: RedisServer, redis: Any) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await client.batch(
            [{"command": "add", "topic": "t", "id": str(each), "ttr": 0.5, "body": each} for each in range(10)]
        )
        taken = await client.ask("pop", topic="t", count=10)  # and it is never heard of again
        again: list[dict[str, Any]] = []
        while len(again) < 10:
            again += (await client.ask("pop", topic="t", count=10, wait=10))["jobs"]
        first = {job["id"]: job["lease"] for job in taken["jobs"]}
        for job in again:
            assert job["attempt"] == 2
            assert job["lease"] - first[job["id"]] >= 500_000  # µs: not before its TTR
        assert (await client.ask("finish", id="0", lease=first["0"]))["code"] == "STALE_LEASE"


WORKER = """
import json, sys, urllib.error, urllib.request

def ask(**fields):
    request = urllib.request.Request(sys.argv[1] + "/command", json.dumps(fields).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)

job = ask(command="pop", topic="t", wait=20)
print(json.dumps(job), flush=True)
sys.stdin.readline()  # the work
for command in ("touch", "release", "bury", "finish"):
    try:
        answer = ask(command=command, id=job["id"], lease=job["lease"])
    except urllib.error.HTTPError as error:
        answer = json.load(error)
    print(json.dumps(answer), flush=True)
"""


async def worker(url: str) -> asyncio.subprocess.Process:
    """A process that pops a job, works until it is told to end, and then sends every command that a worker may."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, url, stdin=pipe, stdout=pipe)


async def said(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout
    async with asyncio.timeout(30):
        return json.loads(await process.stdout.readline())


async def test_a_worker_that_slept_past_its_ttr_cannot_end_the_job_of_the_next(
    redis_server: RedisServer, redis: Any
) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", ttr=0.5, body=1)
        first = await worker(service.url)
        try:
            old = await said(first)
            first.send_signal(signal.SIGSTOP)
            assert first.stdin
            first.stdin.write(b"\n")  # its work is done in the moment in which it wakes
            second = await client.ask("pop", topic="t", wait=20, ttr=60)
            assert (second["id"], second["attempt"]) == ("a", 2)
            assert second["lease"] - old["lease"] >= 500_000  # µs
            before = await client.ask("get", id="a")
            first.send_signal(signal.SIGCONT)
            for _ in range(4):
                answer = await said(first)
                assert (answer["success"], answer["code"], answer["state"]) == (False, "STALE_LEASE", "reserved")
            assert await client.ask("get", id="a") == before
            assert (await client.ask("finish", id="a", lease=second["lease"]))["state"] == "finished"
            assert await first.wait() == 0
        finally:
            if first.returncode is None:
                first.kill()


async def test_redis_gone_for_a_while_needs_no_restart(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    redis = RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    redis.start()
    try:
        async with ServiceProcess("--redis", redis.url, port=free_port()) as service:
            load = Load([service.url])
            async with load.running():
                for away_s in (0.2, 1.0, 0.2):
                    await asyncio.sleep(0.7)
                    redis.kill()
                    await asyncio.sleep(away_s)
                    redis.start()
                await asyncio.sleep(0.7)
            load.check()
    finally:
        redis.kill()


async def test_forgotten_scripts_are_loaded_again_under_load(redis_server: RedisServer, redis: Redis) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service:
        load = Load([service.url])
        async with load.running():
            for _ in range(30):
                await redis.read("SCRIPT", "FLUSH")
                await asyncio.sleep(0.1)
        load.check()
