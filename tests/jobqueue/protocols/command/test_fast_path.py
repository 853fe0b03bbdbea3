"""The fast path of the native protocol: what it takes, and what becomes of its requests when something goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from buckets import FSYNCED, Added, NewJob, Pool, Popped, Redis
from buckets.errors import JobQueueError
from jobqueue.access.grants import OPEN
from jobqueue.engine.new_jobs import Policies
from jobqueue.protocols import Reply
from jobqueue.protocols.command import in_flight
from jobqueue.protocols.command.protocol import CommandProtocol
from jobqueue.schema.params import Add
from jobqueue.settings import Settings, TopicSettings
from tests.buckets.jobs import add, get
from tests.buckets.redis.links import link_of
from tests.jobqueue.protocols.command.sites import MINE, Client, Site
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

ADD: dict[str, Any] = {"command": "add", "topic": "t", "body": {"a": 1}}
POP: dict[str, Any] = {"command": "pop", "topic": "t"}
WAIT = POP | {"wait": 60}


def finish(*ids: str) -> list[dict[str, Any]]:
    return [{"command": "finish", "id": job_id} for job_id in ids]


@pytest.fixture
async def site(live_pool: Pool) -> Site:
    await live_pool.redis.read("PING")
    return Site(live_pool)


async def popped(pool: Pool, *ids: str) -> None:
    """Jobs that a worker has."""
    await pool.add([NewJob(job_id, "t", b"1") for job_id in ids])
    assert len((await pool.pop(["t"], len(ids))).jobs) == len(ids)


async def asked(site: Site, content: Any) -> Any:
    return json.loads((await site.ask(orjson.dumps(content))).body)


async def is_ready(pool: Pool, job_id: str) -> bool:
    return (await get(pool, job_id)).state.word == "ready"


PLAIN = [
    ADD,
    ADD
    | {"delay": 1, "id": "a", "ttr": 5, "priority": 1, "tries": 1, "ttl": 9, "retention": 0, "if_exists": "replace"},
    ADD | {"at": "2026-11-23T09:00:00+01:00"},
    ADD | {"TTR": 5},
    ADD | {"body": "ü\\u0041" + "x" * 9000},
    POP,
    POP | {"count": 200, "worker": "w", "ttr": 5},
    {"command": "pop", "topics": ["a", "b"]},
    POP | {"wait": 0.001},
    finish("a")[0],
    [ADD],
    [ADD | {"id": f"{number}"} for number in range(200)],
    finish(*map(str, range(200))),
    [POP],
    [*finish("a", "b"), POP | {"wait": 0.001}],
]
OTHERS = [
    ADD | {"headers": {"a": "b"}},
    ADD | {"tags": ["a"]},
    ADD | {"backoff": [1]},
    ADD | {"durability": "local"},
    ADD | {"delay": 1, "at": 1},
    ADD | {"ttr": 0.05},
    ADD | {"at": 1e11},
    ADD | {"topic": "both"},
    ADD | {"topic": "no name"},
    ADD | {"id": "ü"},
    ADD | {"body": "x" * 300_000},
    finish("a")[0] | {"durability": "local"},
    finish("no name")[0],
    POP | {"id": "a"},
    POP | {"count": 201},
    {"command": "pop"},
    {"command": "stats"},
    [],
    [ADD | {"id": "a"}, ADD | {"id": "a"}],
    [ADD] * 201,
    [ADD, finish("a")[0]],
    [POP, POP],
    [ADD, POP],
    [*finish("a"), POP | {"count": 201}],
    [ADD] * 2000,
]
RAW = [b"", b"  ", b"x", b"{", b"[", b'{"command":"add","topic":"t","body":"\xff"}', b"[" * 5000]


async def test_a_plain_request_takes_the_fast_path(subtests: pytest.Subtests, live_pool: Pool) -> None:
    await live_pool.redis.read("PING")
    for content in PLAIN:
        with subtests.test(content=content):
            site = Site(live_pool)
            site.engine.policies = Policies(Settings(virtual_topics={"both": ("t", "u")}))
            reply = await site.ask(orjson.dumps(content))
            assert reply.body
            assert (site.fast, site.complete) == (1, 0)


async def test_any_other_takes_the_complete_path_as_if_it_had_not_been_read(
    subtests: pytest.Subtests, live_pool: Pool
) -> None:
    await live_pool.redis.read("PING")
    for data in (*map(orjson.dumps, OTHERS), *RAW):
        with subtests.test(data=data):
            site = Site(live_pool)
            site.engine.policies = Policies(Settings(virtual_topics={"both": ("t", "u")}))
            assert (await site.ask(data)).body
            assert (site.fast, site.complete) == (0, 1)
            assert sum(site.counted().values()) in (1, 2, 200, 201), "each command counts once"


async def test_no_command_takes_the_fast_path_while_commands_are_logged(
    live_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        site = Site(live_pool)
    await site.ask(orjson.dumps(ADD))
    assert site.complete == 1


async def test_changes_that_are_to_be_durable_by_default_take_the_complete_path(live_pool: Pool) -> None:
    await live_pool.redis.read("PING")
    site = Site(live_pool, durability=FSYNCED)
    for content in (ADD, finish("a")[0], [*finish("a"), POP]):
        await site.ask(orjson.dumps(content))
    assert site.complete == 3
    await site.ask(orjson.dumps(POP))
    assert site.fast == 1


async def test_several_shards_have_the_fast_path_too(redis: Redis) -> None:
    pool = await Pool.open(redis, shards=2)
    site = Site(pool)
    adds = [ADD | {"id": job_id} for job_id in "abcd"]
    for content in (ADD, adds, POP, [POP | {"command": "pop", "wait": 1}], finish("a")):
        await site.ask(orjson.dumps(content))
    assert (site.fast, site.complete) == (5, 0)
    await pool.close()


async def test_an_add_obeys_the_policies_of_the_moment(site: Site) -> None:
    """SIGHUP replaces them: neither defaults nor bounds nor virtual topics of the old ones remain."""
    await asked(site, ADD | {"id": "a"})
    site.engine.policies = Policies(Settings(topics={"t": TopicSettings(ttr_s=7, max_pending=2)}))
    await asked(site, ADD | {"id": "b"})
    assert (await asked(site, ADD | {"id": "c"}))["code"] == "TOPIC_FULL"
    site.engine.policies = Policies(Settings(virtual_topics={"t": ("x", "y")}))
    assert len((await asked(site, ADD | {"id": "d"}))["jobs"]) == 2
    assert [(await get(site.pool, job_id)).ttr for job_id in "ab"] == [60_000, 7_000]


async def test_an_add_whose_script_redis_has_forgotten_keeps_its_id(site: Site) -> None:
    """The complete path does what the lanes could not."""
    await site.pool.redis.read("SCRIPT", "FLUSH")
    client = site.begin(orjson.dumps([ADD, ADD | {"id": "b"}]))
    answers = json.loads((await client.reply()).body)
    assert [each["result"] for each in answers] == ["created", "created"]
    figures = (await asked(site, {"command": "stats", "topic": "t"}))["totals"]
    assert figures["created"] == 2
    assert client.task
    assert site.counted()["native", "add", "OK"] == 2


async def test_finishes_and_a_pop_whose_scripts_redis_has_forgotten_are_carried_out_in_order(site: Site) -> None:
    await popped(site.pool, "a")
    await site.pool.release("a")
    for wait in (0, 0.01):
        await site.pool.redis.read("SCRIPT", "FLUSH")
        first, found = await asked(site, [*finish("a"), POP | {"wait": wait}])
        assert (first["state"], found["id"]) == ("finished", None)
        assert site.pollers._leases == {}
    assert all(not poller.waiting for poller in site.pollers._pollers.values())


async def test_a_pop_whose_finishes_are_repeated_begins_anew_with_them(site: Site) -> None:
    """Both of them waiting, the first would take a job that nobody gets."""
    await popped(site.pool, "a")
    await site.pool.redis.read("SCRIPT", "FLUSH")
    client = site.begin(orjson.dumps([*finish("a"), WAIT]))
    await until(lambda: client.task is not None and site.waiting.parked > 0)
    assert [poller.waiting for poller in site.pollers._pollers.values()] == [1]
    await add(site.pool, "b")
    site.waiting.ring("t", 1)
    assert [each["id"] for each in json.loads((await client.reply()).body)] == ["a", "b"]
    assert site.waiting.parked == 0


async def test_finishes_are_done_while_the_pop_behind_them_waits(site: Site) -> None:
    await popped(site.pool, "a")
    client = site.begin(orjson.dumps([*finish("a"), WAIT]))
    await until(lambda: site.waiting.parked == 1)
    assert (await get(site.pool, "a")).state.word == "finished"
    assert not client.is_answered
    assert site.timed() == {("native", "finish"): 1}
    await add(site.pool, "b")
    site.waiting.ring("t", 1)
    ended, found = json.loads((await client.reply()).body)
    assert (ended["state"], found["id"]) == ("finished", "b")
    assert site.timed()["native", "pop_waiting"] == 1


@pytest.mark.parametrize("content", [POP, POP | {"count": 2}, WAIT, [*finish("nobody"), POP], [*finish("x"), WAIT]])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 9])
async def test_the_jobs_of_a_client_that_leaves_go_back(site: Site, content: Any, turns: int) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a")
    client = site.begin(orjson.dumps(content))
    for _ in range(turns):
        await site.pool.redis.read("PING") if turns > 5 else await asyncio.sleep(0)
    if not client.is_answered:
        client.leave()
        await asyncio.wait([client.task] if client.task else [asyncio.create_task(asyncio.sleep(0))])
        await site.pool.close()  # which waits for what is under way
        job = await get(site.pool, "a")
        assert (job.state.word, job.attempts) == ("ready", 0)
        assert site.waiting.parked == 0
        assert all(not poller.waiting for poller in site.pollers._pollers.values())
        assert not client.is_answered


@pytest.mark.parametrize("content", [POP, WAIT, [*finish("nobody"), POP], [*finish("x"), POP]])
async def test_the_jobs_of_a_client_that_hung_up_unnoticed_go_back(site: Site, content: Any) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a")
    client = site.begin(orjson.dumps(content))
    client.hangs_up = True
    await until(lambda: "a" in site.pollers._leases)
    await until(lambda: is_ready(site.pool, "a"))
    assert not client.is_answered


class Unread(Client):
    """A client that does not read: what is written to it stays here."""

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        assert has_jobs
        await asyncio.Event().wait()


@pytest.mark.parametrize("content", [POP, [*finish("x"), WAIT]])
async def test_the_jobs_of_a_client_that_has_not_taken_an_earlier_answer_go_back(site: Site, content: Any) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a")
    client = Unread()
    client.is_behind = True
    client.in_flight = site.web.begin(orjson.dumps(content), MINE, client)
    await until(lambda: client.task is not None)
    await asyncio.sleep(0)
    client.leave()
    await until(lambda: is_ready(site.pool, "a"))


@pytest.mark.parametrize("content", [POP, [*finish("x"), WAIT]])
async def test_the_jobs_of_a_long_answer_that_its_client_never_reads_go_back(site: Site, content: Any) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a", body=orjson.dumps("b" * 40_000))
    client = Unread()
    client.in_flight = site.web.begin(orjson.dumps(content), MINE, client)
    await until(lambda: client.task is not None)
    await asyncio.sleep(0)
    client.leave()
    await until(lambda: is_ready(site.pool, "a"))
    reply = await site.ask(orjson.dumps(POP))
    assert orjson.loads(reply.body)["value"] == "b" * 40_000


async def test_a_waiting_pop_whose_client_leaves_takes_no_job(site: Site) -> None:
    client = site.begin(orjson.dumps(WAIT))
    await until(lambda: site.waiting.parked == 1)
    client.leave()
    assert site.waiting.parked == 0
    assert site.pollers._pollers == {}, "it is not listed any more"
    await add(site.pool, "a")
    site.waiting.ring("t", 1)
    assert (await asked(site, POP))["id"] == "a"


async def test_a_worker_is_listed_while_it_waits_and_while_it_has_a_job(site: Site) -> None:
    await asked(site, ADD | {"id": "a"})
    await asked(site, POP | {"worker": "w"})
    assert site.polling() == [("w", ["t"], 0, 1)]
    await asked(site, finish("a")[0])
    assert site.polling() == [("w", ["t"], 0, 0)]
    client = site.begin(orjson.dumps(WAIT | {"worker": "w"}))
    assert site.polling() == [("w", ["t"], 1, 0)]
    await until(lambda: site.waiting.parked == 1)
    await asked(site, {"command": "leave", "worker": "w"})
    assert json.loads((await client.reply()).body)["id"] is None


async def test_a_pop_that_waits_is_answered_when_the_service_stops(site: Site) -> None:
    client = site.begin(orjson.dumps(WAIT))
    await until(lambda: site.waiting.parked == 1)
    site.waiting.close()
    assert json.loads((await client.reply()).body)["id"] is None


@asynccontextmanager
async def opened_site(server: RedisServer) -> AsyncIterator[Site]:
    """A service of its own on a Redis, for which it waits 1.5 s."""
    redis = Redis(server.url, timeout_s=1.5)
    pool = await Pool.open(redis)
    try:
        yield Site(pool)
    finally:
        await pool.close()
        await redis.close()


@pytest.fixture
async def own_site(own_server: RedisServer) -> AsyncIterator[Site]:
    async with opened_site(own_server) as site:
        yield site


EACH: list[Any] = [ADD, finish("a")[0], POP, [ADD, ADD], [*finish("a"), POP], [*finish("a"), POP | {"wait": 0.3}]]


async def test_without_redis_each_command_is_unavailable(subtests: pytest.Subtests, own_server: RedisServer) -> None:
    """Killed while the requests are under way, and before others came."""
    async with AsyncExitStack() as opened:
        sites = [await opened.enter_async_context(opened_site(own_server)) for _ in EACH]
        links = [await link_of(site.pool.redis) for site in sites]
        clients = [site.begin(orjson.dumps(content)) for site, content in zip(sites, EACH, strict=True)]
        own_server.kill()
        amid = await asyncio.gather(*(client.reply() for client in clients))
        await until(lambda: all(link.lost for link in links))
        after = await asyncio.gather(
            *(site.ask(orjson.dumps(content)) for site, content in zip(sites, EACH, strict=True))
        )
        for site, content, *replies in zip(sites, EACH, amid, after, strict=True):
            with subtests.test(content=content):
                for reply in replies:
                    answers = json.loads(reply.body)
                    if isinstance(answers, list):
                        assert {each.get("code") for each in answers} <= {"UNAVAILABLE", None}
                    elif reply.status != 200:
                        assert (reply.status, answers["code"], reply.retry_after) == (503, "UNAVAILABLE", 1)
                assert b"UNAVAILABLE" in replies[1].body
                assert sum(site.counted().values()) == 2 * (len(content) if isinstance(content, list) else 1)


async def test_a_full_redis_refuses_adds_but_no_finish_and_no_pop(own_site: Site) -> None:
    await popped(own_site.pool, "a")
    await own_site.pool.redis.read("CONFIG", "SET", "maxmemory", "1")
    reply = await own_site.ask(orjson.dumps(ADD))
    assert (reply.status, json.loads(reply.body)["code"], reply.retry_after) == (503, "NO_ROOM", 1)
    first, found = await asked(own_site, [*finish("a"), POP])
    assert (first["state"], found["id"]) == ("finished", None)
    assert own_site.fast == 2


async def test_an_add_waits_for_a_redis_that_is_read_only_for_a_moment(own_site: Site) -> None:
    await own_site.pool.redis.read("REPLICAOF", "127.0.0.1", "1")
    client = own_site.begin(orjson.dumps(ADD | {"id": "a"}))
    await until(lambda: client.task is not None)
    await own_site.pool.redis.read("REPLICAOF", "NO", "ONE")
    assert json.loads((await client.reply()).body)["result"] == "created"


async def test_an_error_that_nobody_expects_is_internal_and_logged(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.begin(orjson.dumps(ADD))
    flight: Any = client.in_flight
    flight.take(JobQueueError("WRONGTYPE"))
    reply = await client.reply()
    assert (reply.status, json.loads(reply.body)["code"]) == (500, "INTERNAL")
    assert site.counted()["native", "add", "INTERNAL"] == 1


def fails(*arguments: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("content", [POP, WAIT, POP | {"count": 2}, [*finish("x"), POP], [*finish("x"), WAIT]])
async def test_a_bug_where_an_answer_is_written_is_internal_and_the_jobs_go_back(
    site: Site, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a")
    monkeypatch.setattr(in_flight, "popped", fails)
    answers = await asked(site, content)
    last = answers[-1] if isinstance(answers, list) else answers
    assert (last["success"], last["code"]) == (False, "INTERNAL")
    if isinstance(answers, list):
        assert answers[0]["state"] == "finished"
    await until(lambda: is_ready(site.pool, "a"))
    assert site.counted()["native", "pop", "INTERNAL"] == 1


@pytest.mark.parametrize("content", [POP, [*finish("nobody"), POP]])
async def test_the_jobs_of_a_reply_that_cannot_be_made_go_back(
    site: Site, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(site.pool, "a")
    monkeypatch.setattr(CommandProtocol, "render", fails)
    with pytest.raises(ZeroDivisionError):
        await site.ask_completely(orjson.dumps(content))
    await until(lambda: is_ready(site.pool, "a"))


async def test_an_add_that_takes_the_complete_path_has_no_id_that_its_client_did_not_give(site: Site) -> None:
    """With a token that must begin its ids with a topic, it would be refused."""
    data = orjson.dumps([ADD, ADD | {"headers": {"a": "b"}}])
    found = site.web._fast_path.begin(data, "", Client(), OPEN)
    assert isinstance(found, tuple)
    assert [command.id for command in found[0] if isinstance(command, Add)] == [None, None]


async def test_a_bug_where_changes_are_answered_is_internal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await popped(site.pool, "x")
    await add(site.pool, "a")
    client = site.begin(orjson.dumps([ADD, ADD]))
    flight: Any = client.in_flight
    flight.take([])  # two were asked for
    assert [each["code"] for each in json.loads((await client.reply()).body)] == ["INTERNAL"] * 2
    monkeypatch.setattr(in_flight, "finished", fails)
    first, found = await asked(site, [*finish("x"), POP])
    assert (first["code"], found["id"]) == ("INTERNAL", "a")


async def test_jobs_that_come_before_the_finishes_are_answered_go_back_when_their_client_leaves(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a new link to Redis is faster than the last answers of the old one."""
    await popped(site.pool, "x")
    await add(site.pool, "a")
    monkeypatch.setattr(site.engine.by_callback, "finish", lambda ends, done: True)
    client = site.begin(orjson.dumps([*finish("x"), POP]))
    await until(lambda: "a" in site.pollers._leases)
    client.leave()
    await until(lambda: is_ready(site.pool, "a"))


def test_results_are_told_apart_by_their_types() -> None:
    assert type(Added("created", "ready", 1)) is Added
    assert type(Popped()) is Popped
