"""Tokens come back that Redis lost; one that it has, that was revoked or that has expired stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import update

from buckets.access import Entry, Stored, Tokens
from buckets.events.switch import switch_off
from buckets.pool.pool import Pool
from jobqueue.access.issuing import Issuing
from jobqueue.access.tokens import KEPT_S, as_json
from jobqueue.journal.restoring import lost
from jobqueue.journal.restoring.reading import Choice, Stopped, Sums
from jobqueue.journal.restoring.runs import Run
from jobqueue.journal.tables import position
from tests.buckets.jobs import add
from tests.jobqueue.access.records import record
from tests.jobqueue.access.tables import create, knows, process
from tests.jobqueue.journal.restoring.lost import World
from tests.jobqueue.journal.restoring.test_command import Command
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


def expired(token_id: str, name: str) -> Entry:
    return entry(token_id, name, expires=1_600_000_000.0)


def entry(token_id: str, name: str, changed: int = 1, **fields: Any) -> Entry:
    """A record of a token on its way to Redis."""
    made = record("produce", id=token_id, name=name, digest=token_id.encode().hex() * 4, changed=changed, **fields)
    return Entry(token_id, changed, as_json(made))


async def in_redis(world: World) -> dict[str, bytes]:
    return (await Tokens(world.pool).read()).records


async def restored(world: World, *, dry: bool = False, stale: bool = False) -> Sums:
    sums = Sums()
    run = None if dry else await Run.begin(world.reading, world.pool, Choice(), "tokens")
    await lost.bring_back_tokens(world.reading, world.pool, run, sums, stale=stale)
    return sums


async def test_live_tokens_come_back_as_they_were(each_world: World, redis_server: RedisServer) -> None:
    world = each_world
    issuing = Issuing(Tokens(world.pool))
    plain = await create(issuing, "plain", expires="never")
    rotated = await create(issuing, "rotated", topics=["a", "b.*"], rate=5, certificate="spiffe://a/b")
    newer = await issuing.rotate(rotated.record.id, keep_s=600.0)
    revoked = await create(issuing, "revoked")
    await issuing.revoke(revoked.record.id)
    await Tokens(world.pool).write([expired("eeeeeeee", "expired")])
    before = await in_redis(world)
    await world.drained()
    await world.lose()
    counts = {"looked": 4, "put": 2, "over": 2}
    names = {plain.record.id: "plain", rotated.record.id: "rotated"}
    would = await restored(world, dry=True)
    assert (would.counts, would.tokens, await in_redis(world)) == (counts, names, {})
    async with process(redis_server.url) as table:
        await until(lambda: table.was_read)
        sums = await restored(world)
        await until(lambda: all(knows(table, each) for each in (plain, newer, rotated)))
    assert (sums.counts, sums.tokens, sums.left) == (counts, names, 0)
    assert await in_redis(world) == {token_id: before[token_id] for token_id in names}
    again = await restored(world)
    assert (again.counts, again.tokens) == ({"looked": 4, "known": 2, "over": 2, "put": 0}, {})


async def test_a_token_that_redis_has_stays_as_it_is(world: World) -> None:
    await Tokens(world.pool).write([entry("aaaaaaaa", "a"), entry("bbbbbbbb", "b")])
    await world.drained()
    await world.lose()
    revoked = entry("aaaaaaaa", "a", changed=2, revoked=1_700_000_000.0)
    await Tokens(world.pool).write([revoked])  # as an instance writes back that knew it
    sums = await restored(world)
    assert (sums.counts, sums.tokens) == ({"looked": 2, "known": 1, "put": 1}, {"bbbbbbbb": "b"})
    assert (await in_redis(world))["aaaaaaaa"] == revoked.record


async def test_tokens_come_back_though_events_are_off(world: World) -> None:
    await Tokens(world.pool).write([entry("aaaaaaaa", "a")])
    await world.drained()
    await world.lose()
    await switch_off(world.pool, 0)
    assert (await restored(world)).tokens == {"aaaaaaaa": "a"}


async def test_no_name_and_no_certificate_is_given_twice(world: World) -> None:
    lost = [entry("aaaaaaaa", "a"), entry("bbbbbbbb", "b", certificate="CN=x"), entry("cccccccc", "c")]
    await Tokens(world.pool).write(lost)
    await world.drained()
    await world.lose()
    new = [entry("dddddddd", "a"), entry("eeeeeeee", "e", certificate="CN=x")]
    await Tokens(world.pool).write([*new, entry("ffffffff", "c", revoked=1_700_000_000.0)])
    sums = await restored(world)
    assert (sums.named, sums.tokens) == ({"taken": ["aaaaaaaa", "bbbbbbbb"]}, {"cccccccc": "c"})


async def test_what_may_have_been_revoked_unread_does_not_come_back(world: World) -> None:
    await Tokens(world.pool).write([entry("aaaaaaaa", "a")])
    await world.drained()
    await world.lose()
    earlier = update(position).values(time=position.c.time - (KEPT_S + 60) * 1_000_000)
    await world.reading.run(earlier)
    # The reader of this test goes on meanwhile, and its next position is a new one.
    missing = lost._LostTokens(await lost._token_rows(world.reading), 0)
    assert missing.judge(await Tokens(world.pool).read()) == []
    sums = Sums()
    missing.tell(sums)
    assert (sums.named, sums.left) == ({"unsure": ["aaaaaaaa"]}, 1)


async def test_changes_meanwhile_are_judged_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await Tokens(world.pool).write([entry("aaaaaaaa", "a"), entry("bbbbbbbb", "b")])
    await world.drained()
    await world.lose()
    others = [[entry("bbbbbbbb", "b", changed=9, revoked=1.0)], [entry("cccccccc", "c")]]

    class Changed(Tokens):
        async def read(self) -> Stored:
            stored = await super().read()
            if others:
                await self.write(others.pop(0))
            return stored

    monkeypatch.setattr(lost, "Tokens", Changed)
    sums = await restored(world)
    assert (sums.counts["known"], sums.tokens) == (1, {"aaaaaaaa": "a"})
    others += [[entry(f"x{number:07}", "x", changed=number)] for number in range(1, 100)]
    await world.pool.redis.read("HDEL", world.pool.keys[0].tag + "tokens", "aaaaaaaa")
    with pytest.raises(Stopped, match="others change tokens"):
        await restored(world)


async def test_the_command_lists_what_comes_back(
    world: World, live_pool: Pool, redis_server: RedisServer, sqlite_url: str
) -> None:
    restore = Command(redis_server.url, sqlite_url)
    await add(live_pool, "job")
    lost = [entry("aaaaaaaa", "a"), entry("bbbbbbbb", "b"), expired("cccccccc", "c")]
    await Tokens(live_pool).write(lost)
    await world.drained()
    await world.lose()
    await Tokens(live_pool).write([entry("dddddddd", "b")])
    await world.drained()
    told = "4 looked at, 1 {} back\naaaaaaaa  a\n1 known to Redis, which keeps what it has\n1 revoked or expired\n"
    left = "left: 1 have the name or the certificate of another live token: bbbbbbbb\n"
    assert await restore("--tokens", "--dry-run") == (1, told.format("would come") + left, "")
    assert await in_redis(world) == {"dddddddd": entry("dddddddd", "b").record}
    code, out, err = await restore("--all")
    assert (code, out, "aaaaaaaa" in await in_redis(world)) == (0, "1 looked at, 1 came back (1 overdue)\n", False), err
    assert await restore("--tokens") == (1, told.format("came") + left, "")
    code, out, _ = await restore("--tokens", "--json")
    assert json.loads(out) == {
        **{"run": 3, "counts": {"looked": 4, "known": 2, "over": 1, "taken": 1}, "left": {"taken": ["bbbbbbbb"]}},
        **{"older": [], "stopped": None, "tokens": []},
    }
