"""jobqueue.health.service: what a running service finds wrong with itself."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from msgspec import Raw

from buckets import Pool, Redis
from buckets.job import NewJob
from jobqueue.dialect_settings import Dialects, Lmstfy
from jobqueue.health import jobs
from jobqueue.health import service as module
from jobqueue.health.service import Health
from jobqueue.schema import params
from jobqueue.settings import Loaded, Settings
from tests.buckets.instances import sign
from tests.jobqueue.test_commands import answers, engine_on
from tests.kit.redis_server import RedisServer


class Service:
    """A service as far as its health is concerned."""

    def __init__(self, pool: Pool, **given: Any) -> None:
        self.engine = engine_on(pool)
        self.loaded = Loaded(Settings(**given), dict.fromkeys(given, "file"))
        self.checks = {"redis": True, "timers": True}
        self.health = Health(self.engine, pool, lambda: self.loaded, lambda: self.checks)
        self.engine.examines = self.health

    async def found(self, within: str = "") -> dict[str, list[tuple[str, str]]]:
        """Levels and words by subject."""
        found: dict[str, list[tuple[str, str]]] = {}
        for each in (await self.health.examine(within))["findings"]:
            found.setdefault(each["subject"], []).append((each["level"], each["words"]))
        return found


@pytest.fixture
def service(live_pool: Pool) -> Service:
    return Service(live_pool)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept."""
    monkeypatch.setattr(module, "_KEPT_S", 0.0)


async def die(pool: Pool, *topics: str) -> None:
    """A dead letter in each topic."""
    for topic in topics:
        await pool.add([NewJob(f"{topic}:dead", topic, b"1")])
        (job,) = (await pool.pop([topic])).jobs
        await pool.bury(job.id, job.lease, f"because of {topic}")


async def test_a_service_without_trouble_is_well(service: Service, live_pool: Pool) -> None:
    await sign(live_pool, "aa")
    found = await service.found()
    assert found["settings"] == [("ok", "all have their defaults")]
    assert found["access"] == [("ok", "open to every program on this machine, and to no other machine")]
    assert found["service"] == [("ok", "ready")]
    ((level, words),) = found["clock"]
    assert level == "ok" and re.fullmatch(r"the clocks of this host and of Redis are \d+ ms apart", words)
    assert found["namespace jq"][0] == ("ok", "format 2, shards: 1, buckets: 8")
    assert found["jobs"] == [("ok", "topics: 0; none waits for workers, is full, or has dead letters")]
    assert {"redis", "workers", "events", "instances"} <= found.keys()
    assert not any(level == "bad" for told in found.values() for level, _ in told)


async def test_what_fails_at_readyz_is_bad(service: Service) -> None:
    service.checks["timers"] = False
    assert (await service.found())["service"] == [("bad", "not ready; failed checks: timers")]


async def test_settings_are_named_and_no_value_that_may_be_secret_is_told(live_pool: Pool) -> None:
    dialects = Dialects(lmstfy=Lmstfy(path="/lmstfy", token="marked-one"))  # noqa: S106 - is none
    service = Service(
        live_pool, redis="redis://user:marked-two@h/0", journal="postgresql://u:marked-three@h/j", protocols=dialects
    )
    found = await service.found()
    assert found["settings"] == [("ok", "journal, protocols, redis set, the others have their defaults")]
    assert found["protocols.lmstfy"] == [("ok", "at /lmstfy")]
    assert "marked" not in json.dumps(found)


async def test_a_redis_that_may_drop_jobs_is_bad(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    service = Service(await Pool.open(redis))
    await redis.read("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    told = (await service.found())["redis"]
    assert [level for level, _ in told] == ["ok", "bad"]
    assert "silently drops jobs" in told[1][1]
    await redis.close()


async def test_a_redis_that_is_away_is_a_finding_and_no_failure(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=0.2)
    service = Service(await Pool.open(redis))
    own_server.kill()
    found = await service.found()
    assert found["redis"][-1][0] == "bad" and found["redis"][-1][1].startswith("it cannot be used: ")
    assert found["service"] == [("ok", "ready")]
    assert "jobs" not in found
    await redis.close()


async def test_waiting_jobs_dead_letters_and_pauses_are_told_for_topics_within_reach_alone(
    service: Service, live_pool: Pool
) -> None:
    await die(live_pool, "mine", "theirs")
    await live_pool.add([NewJob(f"{topic}:1", topic, b"1") for topic in ("mine", "theirs")])
    await service.engine.pause(params.Pause(topic="mine"))
    found = await service.found("mine")
    assert [level for level, _ in found["topic mine"]] == ["warn", "warn"]
    assert found["topic mine"][0][1].startswith("paused until it is resumed; 1 job ready")
    assert "mine:dead (buried, because of mine)" in found["topic mine"][1][1]
    assert "theirs" not in json.dumps(found)
    assert {"topic mine", "topic theirs"} <= (await service.found()).keys()


async def test_a_schedule_that_should_have_added_a_job_is_told_where_it_is_in_reach(
    service: Service, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [params.Schedule(name=f"s-{t}", topic=t, every=1.0, body=Raw(b"1")) for t in ("mine", "theirs")]
    assert all(answer["success"] for answer in await answers(service.engine, *commands))
    assert "schedules" not in await service.found()
    monkeypatch.setattr(jobs, "SCHEDULE_LATE_S", -60.0)
    ((level, words),) = (await service.found("mine"))["schedules"]
    assert (level, words.partition(" should have added a job")[0]) == ("warn", "s-mine")
    service.health._seen.clear()
    ((_, words),) = (await service.found())["schedules"]
    assert ", and 1 more should have added a job" in words


async def test_findings_are_kept_for_five_seconds_and_viewers_at_the_same_time_cost_one_look(
    service: Service, live_pool: Pool, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(service.found() for _ in range(10)))
    assert await infos(redis) == 2  # of one look: to describe, and to judge
    await die(live_pool, "t")
    for _ in range(10):
        assert "topic t" not in await service.found()
    assert await infos(redis) == 3  # the one above
    for seen in service.health._seen.copy():
        service.health._seen[seen] = service.health._seen[seen]._replace(at=-5.0)
    assert "topic t" in await service.found()


async def infos(redis: Redis) -> int:
    """How often INFO was asked for before."""
    stats = (await redis.read("INFO", "commandstats")).decode()
    (line,) = [each for each in stats.splitlines() if each.startswith("cmdstat_info:")] or [""]
    return int(line.partition("calls=")[2].partition(",")[0] or 0)


@pytest.mark.usefixtures("at_once")
async def test_a_backlog_that_grows_from_one_look_to_the_next_is_told(
    service: Service, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_ALONE_S", 0.0)
    await live_pool.add([NewJob("a", "t", b"1")])
    assert not any("grows" in words for _, words in (await service.found())["topic t"])
    await live_pool.add([NewJob(each, "t", b"1") for each in "bcd"])
    assert any("the backlog grows, by " in words for _, words in (await service.found())["topic t"])
    assert not any("grows" in words for _, words in (await service.found())["topic t"])


@pytest.mark.usefixtures("at_once")
async def test_no_more_than_some_topics_are_looked_at_and_it_says_so(
    service: Service, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_PAGES", 1)
    await live_pool.add([NewJob(str(n), f"t{n}", b"1", delay_ms=60_000) for n in range(500)])
    ((level, words),) = (await service.found())["topics"]
    assert (level, words.endswith("that were looked at")) == ("ok", True)


@pytest.mark.usefixtures("at_once")
async def test_instances_of_different_versions_are_warned_of(service: Service, live_pool: Pool, redis: Redis) -> None:
    card = {"host": "h", "pid": 1, "worker": None, "name": "h:1", "started": 1, "timers": {"0": [*range(8)]}}
    await sign(live_pool, "aa")
    await redis.read("HSET", "{jq:0}:cards", "aa", json.dumps(card | {"version": "1.0"}))
    assert (await service.found())["instances"] == [("ok", "running: 1, of version 1.0")]
    await sign(live_pool, "bb")
    assert (await service.found())["instances"] == [
        ("warn", "different versions run: 1.0 (1), not known (1): jobqueue instances")
    ]
    await redis.read("HSET", "{jq:0}:cards", "aa", json.dumps(card | {"version": "1.0", "timers": {"0": [1]}}))
    await redis.read("HSET", "{jq:0}:cards", "bb", json.dumps(card | {"version": "1.0", "timers": {}}))
    told = (await service.found())["instances"]
    assert told[1] == ("warn", "timers that none holds at the moment: 7 of 8: jobqueue instances")


async def test_the_command_answers_with_level_subject_and_words(service: Service) -> None:
    (answer,) = await answers(service.engine, params.Health())
    assert answer["success"] and answer["at"] > 0
    assert all(each.keys() == {"level", "subject", "words"} for each in answer["findings"])
