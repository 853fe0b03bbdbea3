"""jobqueue.access.issuing: tokens are created, revoked and rotated by one rule, however many ask at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from buckets.access import Entry, Tokens
from buckets.errors import AlreadyExists, JobQueueError, NotFound, WrongState
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.access.issuing import Issuing
from jobqueue.access.tokens import DEFAULT_LIFE_S, KEPT_S, Record, Token, as_json
from jobqueue.errors import BadField, Forbidden
from tests.jobqueue.access.tables import create
from tests.kit.redis_server import RedisServer


@pytest.fixture
def issuing(live_pool: Pool) -> Issuing:
    return Issuing(Tokens(live_pool))


async def test_a_token_is_kept_as_its_digest_and_nowhere_in_redis(redis: Redis, issuing: Issuing) -> None:
    issued = await create(issuing, "orders", topics=["order-*"])
    record = (await issuing.find(issued.record.id)).record
    assert record == issued.record
    assert record.digest == issued.token.digest
    assert (record.name, record.rights, record.topics, record.created_by) == (
        *("orders", ("produce",), ("order-*",), "the test"),
    )
    kept = b"".join(await redis.read("HGETALL", "{jq:0}:tokens"))
    assert issued.token.text.encode() not in kept
    assert issued.token.text[12:55].encode() not in kept
    assert issued.token.text not in repr(issued)


async def test_a_token_ends_after_90_days_unless_another_end_is_named(issuing: Issuing) -> None:
    now = time.time()
    usual = (await create(issuing, "usual")).record.expires
    assert usual is not None and abs(usual - now - DEFAULT_LIFE_S) < 60
    assert (await create(issuing, "lasting", expires="never")).record.expires is None
    assert (await create(issuing, "dated", expires="2032-01-01T00:00:00Z")).record.expires == 1_956_528_000


async def test_a_burst_is_the_rate_and_at_least_ten(issuing: Issuing) -> None:
    assert (await create(issuing, "a", rate=500)).record.burst == 500
    assert (await create(issuing, "b", rate=2)).record.burst == 10
    assert (await create(issuing, "c", rate=2, burst=3)).record.burst == 3
    assert (await create(issuing, "d")).record.burst is None


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": ""}, "name must be 1 to 40 characters"),
        ({"name": "a b"}, "name must be 1 to 40 characters"),
        ({"name": "a\n"}, "name must be 1 to 40 characters"),
        ({"name": "x" * 41}, "name must be 1 to 40 characters"),
        ({"rights": []}, "rights must be a list of produce"),
        ({"rights": ["prodce"]}, "did you mean produce"),
        ({"rights": None}, "rights is missing"),
        ({"topics": ["a b"]}, "topics must be a list of up to 100"),
        ({"topics": ["x"] * 101}, "topics must be a list of up to 100"),
        ({"rate": 0}, "rate must be an integer from 1 to 1000000"),
        ({"rate": 1_000_001}, "rate must be an integer from 1 to 1000000"),
        ({"burst": 10}, "burst needs a rate"),
        ({"bytes": 0}, "bytes must be an integer from 1"),
        ({"waits": "many"}, "waits must be an integer from 1"),
        ({"expires": 1.0}, "not in the past"),
        ({"expires": 1e11}, "at most 10 years ahead"),
        ({"expires": "2032-01-01T00:00:00"}, "with its offset"),
        ({"expires": "soon"}, "or never"),
        ({"certificate": "a b"}, "without blanks"),
        ({"rights": ["look", "clock"]}, "only a test service"),
        ({"rights": ["reset"]}, "only a test service"),
        ({"ratee": 5}, "no field ratee; did you mean rate"),
    ],
)
async def test_a_wrong_field_is_named_with_what_it_may_be(issuing: Issuing, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadField) as refused:
        await create(issuing, **({"name": "a"} | fields))
    assert told in refused.value.message
    assert refused.value.field == next(iter(fields))
    assert not await issuing.all()


async def test_of_many_who_ask_for_a_name_at_once_one_gets_it(redis_server: RedisServer, issuing: Issuing) -> None:
    connections = [Redis(redis_server.url) for _ in range(8)]
    pools = [await Pool.open(connection) for connection in connections]
    wishes = [create(Issuing(Tokens(pool)), "orders") for pool in pools]
    results = await asyncio.gather(*wishes, return_exceptions=True)
    assert sum(isinstance(each, AlreadyExists) for each in results) == 7
    assert [known.record.name for known in await issuing.all()] == ["orders"]
    others = [create(Issuing(Tokens(pool)), f"other{number}") for number, pool in enumerate(pools)]
    await asyncio.gather(*others)
    assert len(await issuing.all()) == 9
    for pool, connection in zip(pools, connections, strict=True):
        await pool.close()
        await connection.close()


async def test_a_name_and_a_certificate_are_free_again_when_their_token_has_ended(issuing: Issuing) -> None:
    first = await create(issuing, "a", certificate="orders.shop")
    with pytest.raises(AlreadyExists, match="named a"):
        await create(issuing, "a")
    with pytest.raises(AlreadyExists, match="certificate"):
        await create(issuing, "b", certificate="orders.shop")
    await issuing.revoke(first.record.id)
    await create(issuing, "a", certificate="orders.shop")


async def test_a_revoked_token_is_remembered_for_a_week(live_pool: Pool, issuing: Issuing) -> None:
    issued = await create(issuing, "a")
    revoked = await issuing.revoke(issued.record.id)
    assert revoked.revoked
    assert await issuing.revoke(issued.record.id) == revoked
    old = msgspec.structs.replace(revoked, revoked=time.time() - KEPT_S - 1, changed=revoked.changed + 1)
    await Tokens(live_pool).write([Entry(old.id, old.changed, as_json(old))])
    assert not await issuing.all()
    with pytest.raises(NotFound):
        await issuing.revoke(old.id)
    await create(issuing, "b")
    assert old.id not in (await Tokens(live_pool).read()).records


async def test_what_has_ended_is_not_rotated(issuing: Issuing) -> None:
    issued = await create(issuing, "a")
    await issuing.revoke(issued.record.id)
    with pytest.raises(WrongState):
        await issuing.rotate(issued.record.id)
    with pytest.raises(NotFound):
        await issuing.rotate("00000000")


async def test_a_rotation_changes_the_secret_and_nothing_else(issuing: Issuing) -> None:
    old = await create(issuing, "a", rate=5)
    new = await issuing.rotate(old.record.id, 60)
    assert (new.token.id, new.record.digest, new.record.previous) == (
        *(old.token.id, new.token.digest, old.token.digest),
    )
    assert new.record.changed > old.record.changed
    unlike = {name for name in Record.__struct_fields__ if getattr(new.record, name) != getattr(old.record, name)}
    assert unlike == {"digest", "previous", "previous_until", "changed"}


async def test_a_token_of_the_file_is_listed_and_changed_there_only(live_pool: Pool) -> None:
    record = Record(id="filed000", name="filed", digest="0" * 64, rights=("look",), created=1.0, changed=0)
    issuing = Issuing(Tokens(live_pool), lambda: [record])
    assert [(known.record, known.in_file) for known in await issuing.all()] == [(record, True)]
    with pytest.raises(WrongState, match="is defined in tokens_file"):
        await issuing.revoke("filed000")
    with pytest.raises(AlreadyExists, match="named filed"):
        await create(issuing, "filed")


async def test_what_is_objected_is_not_done(issuing: Issuing) -> None:
    def never(record: Record) -> JobQueueError:
        return Forbidden(record.name)

    with pytest.raises(Forbidden):
        await issuing.create({"name": "a", "rights": ["look"]}, "", never)
    issued = await create(issuing, "a")
    for change in (issuing.revoke(issued.record.id, never), issuing.rotate(issued.record.id, 0, never)):
        with pytest.raises(Forbidden):
            await change
    assert [known.record for known in await issuing.all()] == [issued.record]


async def test_a_write_whose_answer_is_lost_is_done_once(live_pool: Pool, issuing: Issuing) -> None:
    """The client repeats the script, which finds that the version is another one now; the change is judged again."""
    tokens = Tokens(live_pool)
    write, calls = tokens.write, 0

    async def write_twice(*args: Any, **named: Any) -> bool:
        nonlocal calls
        calls += 1
        done = await write(*args, **named)
        return done and calls > 1

    tokens.write = write_twice  # type: ignore[method-assign]
    issued = await create(Issuing(tokens), "a")
    assert calls == 2
    assert [known.record.digest for known in await issuing.all()] == [Token(issued.token.text).digest]
