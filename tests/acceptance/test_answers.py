"""Real answers against their structs: every field of an answer is declared, and every declared field occurs."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from buckets import Pool, Redis
from buckets.access import Tokens
from buckets.keys import Keys
from jobqueue.access.issuing import Issuing
from jobqueue.schema.access_answers import LoggedAction
from jobqueue.schema.answer_fields import Described
from jobqueue.schema.answers import ANSWERS, Copy, HandedOut, Listed, Refusal
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


class Seen:
    """Asks, compares each answer with the structs of its command, and remembers the keys that occurred."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.keys: defaultdict[type[Struct], set[str]] = defaultdict(set)

    async def ask(self, command: str, **fields: Any) -> Any:
        answer = await self.client.ask(command, **fields)
        shapes: Sequence[type[Struct]] = ANSWERS[command] if answer["success"] else (Refusal,)
        fitting = [shape for shape in shapes if _fits(answer, shape)]
        assert len(fitting) == 1, (command, answer)
        self._remember(answer, fitting[0])
        return answer

    def _remember(self, answer: dict[str, Any], shape: type[Struct]) -> None:
        self.keys[shape] |= answer.keys()
        for field in msgspec.structs.fields(shape):
            inner = [part for part in getattr(field.type, "__args__", ()) if hasattr(part, "__args__")]
            kinds = [kind for part in inner for kind in part.__args__ if _is_struct(kind)]
            for each in (answer[field.name] or ()) if kinds else ():
                self._remember(each, kinds[0])


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _fits(answer: Any, shape: type[Struct]) -> bool:
    try:
        msgspec.json.decode(json.dumps(answer), type=shape)
    except msgspec.ValidationError:
        return False
    return True


async def live(seen: Seen) -> None:
    """Jobs whose lives show each part of an answer."""
    options = {"headers": {"a": "b"}, "tags": ["x"], "ttl": 5000, "backoff": [9], "durability": "local"}
    await seen.ask("add", topic="t", id="a", body={"x": 1}, **options)
    await seen.ask("pop", topic="t", worker="w")
    await seen.ask("add", topic="lost", id="lost", body=1, ttr=0.1)
    await seen.ask("pop", topic="lost")

    async def is_lost() -> bool:
        return bool((await seen.ask("get", id="lost"))["state"] == "ready")

    await until(is_lost)
    await seen.ask("peek", topic="lost")
    await seen.ask("pop", topic="lost")
    await seen.ask("release", id="lost", delay=0)
    await seen.ask("pop", topic="lost", count=1)
    await seen.ask("leave", worker="w")
    await seen.ask("touch", id="a")
    await seen.ask("get", id="a")
    await seen.ask("release", id="a", reason="later")
    await seen.ask("update", id="a", delay=30, durability="local")
    await seen.ask("get", id="a")
    await seen.ask("run", id="a")
    await seen.ask("get", id="a")
    await seen.ask("pop", topics=["u", "t"], count=3)
    await seen.ask("bury", id="a", reason="poison")
    await seen.ask("get", id="a")
    await seen.ask("peek", topic="t", state="dead")
    await seen.ask("kick", id="a")
    await seen.ask("kick", topic="t")
    await seen.ask("pop", topic="t")
    await seen.ask("finish", id="a", durability="local")
    await seen.ask("delete", id="a")
    await seen.ask("get", id="a")


async def pages(seen: Seen) -> None:
    """Listings with jobs of all states, and topics with and without a pause."""
    for number in range(8):
        await seen.ask("add", topic="t", id=f"b{number}", body=1, delay=3600 * (number % 2))
    await seen.ask("pop", topic="t")
    await seen.ask("pop", topic="t")
    await seen.ask("bury", id="b0")
    await seen.ask("delete", id="b1", durability="local")
    answer = await seen.ask("peek", topic="t", count=1)
    while answer["cursor"]:
        answer = await seen.ask("peek", topic="t", count=1, cursor=answer["cursor"])
    await seen.ask("find", prefix="b", topic="t", count=1)
    await seen.ask("add", topic="slow", id="slow", body=1)
    await seen.ask("pop", topic="slow")
    await seen.ask("release", id="slow", delay=0)
    await seen.ask("pop", topic="slow")
    await seen.ask("pop", topic="slow", count=1)
    await seen.ask("explain", id="slow")
    options = {"ttr": 5, "priority": 1, "tries": 2, "backoff": [1], "ttl": 9, "retention": 7, "jitter": 3}
    more = {"headers": {"a": "b"}, "tags": ["x"], "durability": "local"}
    await seen.ask("schedule", name="each", topic="t", body=1, every=3600, **options, **more)
    await seen.ask("schedule", name="daily", topic="t", body=1, cron="0 9 * * *", zone="Europe/Berlin")
    await seen.ask("schedules")
    await seen.ask("forecast", topic="t")
    await seen.ask("instances")
    await seen.ask("health")
    await seen.ask("settings")

    await seen.ask("figures", topic="t")
    await seen.ask("figures")
    await seen.ask("unschedule", name="each")
    for command in ("pop", "stats", "peek", "resume", "purge", "pause"):
        await seen.ask(command, topic=f"no {command}".replace(" ", ":"))
    await seen.ask("find", prefix="b", topic="no:find")
    await seen.ask("pop", topic="nothing", count=1)
    await seen.ask("add", topic="once", body=1, ttr=0)
    assert (await seen.ask("pop", topic="once"))["ttr"] == 0
    await seen.ask("add", topic="u", body=1)
    await seen.ask("pause", topic="t")
    await seen.ask("pause", topic="u", seconds=60)
    await seen.ask("pop", topic="u")
    await seen.ask("pop", topic="u", count=1)
    await seen.ask("get", id="b7")
    for job_id in ("b0", "b1", "b2", "b5", "b7"):
        await seen.ask("explain", id=job_id)
    await seen.ask("topics")
    await seen.ask("pop", topic="u", worker="sink", blocked="connection refused")
    await seen.ask("workers")
    await seen.ask("stats", topic="t")
    await seen.ask("stats")
    await seen.ask("resume", topic="t")
    await seen.ask("purge", topic="t")
    await seen.ask("finish", id="b5")
    await seen.ask("pop", topic="t", worker=7)
    await seen.ask("add", topic="both", id="v", body=1, durability="local")


async def by_key(seen: Seen) -> None:
    """A job that waits for another of its key, and then for the rate of the key."""
    for number in range(2):
        await seen.ask("add", topic="keyed", id=f"k{number}", key="k", body=1)
    await seen.ask("pop", topic="keyed")
    await seen.ask("pop", id="k1")
    await seen.ask("get", id="k1")
    await seen.ask("peek", topic="keyed")
    await seen.ask("explain", id="k1")
    await seen.ask("finish", id="k0")
    await seen.ask("explain", id="k1")
    await seen.ask("stats", topic="keyed")
    await seen.ask("topics")


async def operations(seen: Seen, redis: RedisServer) -> None:
    """One that moves jobs, one that is cancelled, one that fails at a damaged topic, and a search."""
    later = {"kind": "reschedule", "filter": {"topic": "t", "prefix": "b", "due_from": 0}}
    plan = await seen.ask("operation", do="plan", **later, shift=5)

    async def is_in(state: str) -> bool:
        return bool((await seen.ask("operation", do="get", operation=plan["operation"]))["state"] == state)

    await until(lambda: is_in("planned"))
    await seen.ask("operation", do="start", plan=plan["plan"], expect=plan["count"])
    await until(lambda: is_in("done"))
    plan = await seen.ask("operation", do="plan", **later, at=time.time() + 9000, spread=60)
    await seen.ask("operation", do="cancel", operation=plan["operation"])
    connection = Redis(redis.url)
    await connection.read("SET", Keys("jq", 0).dead("damaged"), "a string")
    await connection.close()

    async def fails() -> bool:
        plan = await seen.ask("operation", do="plan", kind="kick", filter={"topic": "damaged", "died_from": 0})
        await seen.ask("operation", do="get", operation=plan["operation"])
        return bool(plan["state"] == "failed")

    await until(fails)
    await seen.ask("find", prefix="b")
    await seen.ask("operation", do="list")


async def tokens(seen: Seen) -> None:
    """What a service with tokens says to an admin."""
    limits = {"rate": 5, "burst": 10, "bytes": 100, "waits": 2, "own_ids": True, "certificate": "orders.shop"}
    fields = {"name": "a", "rights": ["look"], "topics": ["t*"]}
    token = await seen.ask("token", action="create", **fields, **limits)
    await seen.ask("token", action="rotate", id=token["id"], keep=60)
    await seen.ask("token", action="show", id=token["id"])
    await seen.ask("token", action="test", id=token["id"], right="get", topic="t")
    await seen.ask("token", action="list")
    await seen.ask("token", action="revoke", id=token["id"])
    await seen.ask("token", action="list")
    await seen.ask("actions")
    await seen.ask("whoami")


async def narrow(seen: Seen) -> None:
    """What it says to one who may add to the topic t."""
    await seen.ask("whoami")
    await seen.ask("add", topic="other", body=1)
    await seen.ask("pop", topic="t")


async def issued(redis: RedisServer, service: ServiceProcess, **fields: Any) -> str:
    """A new token that the service knows."""
    connection = Redis(redis.url)
    token = (await Issuing(Tokens(await Pool.open(connection))).create(fields, "the test")).token.text
    await connection.close()
    async with Client(service.url, token) as client:

        async def is_known() -> bool:
            return bool((await client.ask("whoami"))["success"])

        await until(is_known)
    return token


async def test_answers_have_what_is_declared_and_nothing_else(tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(
        '[virtual_topics]\nboth = ["t", "u"]\n[topics.t]\nmax_pending = 100\nmax_dead = 100\n'
        "[topics.slow]\nrate = 0.01\nconcurrency = 9\n[topics.keyed]\nper_key = {rate = 0.01}\n"
    )
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        async with (
            ServiceProcess("--redis", redis.url, "--config", str(config)) as service,
            Client(service.url) as client,
        ):
            seen = Seen(client)
            await live(seen)
            await pages(seen)
            await by_key(seen)
            await operations(seen, redis)
            await seen.ask("whoami")
        config.write_text('access = "tokens"\n')
        async with ServiceProcess("--redis", redis.url, "--config", str(config)) as service:
            for name, rights, talk in (("all", ["admin"], tokens), ("few", ["produce"], narrow)):
                token = await issued(redis, service, name=name, rights=rights, topics=["t"] * (name == "few"))
                async with Client(service.url, token) as client:
                    seen.client = client
                    await talk(seen)
            async with Client(service.url, token) as client:
                seen.client = client
                redis.kill()
                await seen.ask("add", topic="t", body=1)  # UNAVAILABLE
    declared = {shape for shapes in ANSWERS.values() for shape in shapes}
    assert declared | {Copy, HandedOut, Described, Listed, Refusal} <= seen.keys.keys()
    assert seen.keys.pop(LoggedAction) < set(LoggedAction.__struct_fields__)  # one has what its command named
    for shape, keys in seen.keys.items():
        assert keys == set(shape.__struct_fields__), shape


async def test_one_job_is_popped_by_its_id_from_any_state_but_a_reserved_or_ended_one(client: Client) -> None:
    job = "t%3A1:%E2%82%AC"
    await client.ask("add", topic="%2At", id=job, body={"a": 1}, delay=3600)
    await client.ask("pause", topic="%2At")
    popped = await client.ask("pop", id=job, ttr=30, worker="w")
    assert (popped["id"], popped["topic"], popped["value"]) == (job, "%2At", {"a": 1})
    assert (popped["state"], popped["ttr"], popped["attempt"]) == ("reserved", 30, 1)
    refused = await client.ask("pop", id=job)
    assert (refused["code"], refused["state"], refused["id"]) == ("RESERVED", "reserved", job)
    await client.ask("bury", id=job, lease=popped["lease"])
    again = await client.ask("pop", id=job)
    assert again["lease"] > popped["lease"]
    assert (await client.ask("finish", id=job, lease=again["lease"]))["success"]
    assert (await client.ask("pop", id=job))["code"] == "WRONG_STATE"
    assert (await client.ask("pop", id="nobody"))["code"] == "NOT_FOUND"
    assert [each["topic"] for each in (await client.ask("topics", pattern="%2A*"))["topics"]] == ["%2At"]
