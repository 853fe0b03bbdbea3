"""jobqueue.access.token_table: every process knows which tokens are live, whatever is lost on the way."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from buckets.access import Entry, Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.access import token_table
from jobqueue.access import token_table as table_module
from jobqueue.access.issuing import Issuing
from jobqueue.access.tokens import MOST, Record, Token, as_json, as_table
from tests.jobqueue.access.tables import create, knows, process
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

KEY = "{jq:0}:tokens"


@pytest.fixture
def issuing(live_pool: Pool) -> Issuing:
    return Issuing(Tokens(live_pool))


async def test_a_new_token_and_its_end_are_heard_by_all(redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url) as one, process(redis_server.url) as other:
        issued = await create(issuing, "a")
        await until(lambda: knows(one, issued) and knows(other, issued))
        assert one.of_name("a") == one.live()[0] == issued.record
        await issuing.revoke(issued.record.id)
        await until(lambda: not knows(one, issued) and not knows(other, issued))
        ended = one.ended(bytes.fromhex(issued.token.digest))
        assert ended and ended.revoked
        assert one.of_name("a") is None


async def test_a_revocation_is_noticed_by_the_roll_when_the_bell_is_lost(
    redis_server: RedisServer, issuing: Issuing
) -> None:
    async with process(redis_server.url, hears=False) as table:
        issued = await create(issuing, "a")
        await until(lambda: knows(table, issued))
        await issuing.revoke(issued.record.id)
        await until(lambda: not knows(table, issued))


async def test_a_revocation_is_heard_without_the_roll(redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url, signs=False) as table:
        issued = await create(issuing, "a")
        await until(lambda: knows(table, issued))
        await issuing.revoke(issued.record.id)
        await until(lambda: not knows(table, issued))


async def test_a_revocation_survives_a_failover_that_forgot_it(
    redis: Redis, redis_server: RedisServer, issuing: Issuing
) -> None:
    async with process(redis_server.url) as table:
        issued = await create(issuing, "a")
        before = await redis.read("DUMP", KEY)
        await issuing.revoke(issued.record.id)
        later = await create(issuing, "b")
        await until(lambda: not knows(table, issued) and knows(table, later))
        await redis.read("RESTORE", KEY, 0, before, "REPLACE")

        async def is_restored() -> bool:
            return [bool(known.record.revoked) for known in await issuing.all()] == [True, False]

        await until(is_restored)
        assert not knows(table, issued)
        assert knows(table, later)


async def test_an_emptied_redis_gets_its_tokens_back(redis: Redis, redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url) as table:
        issued = [await create(issuing, f"t{number}") for number in range(3)]
        await issuing.revoke(issued[0].record.id)
        await until(lambda: [knows(table, each) for each in issued] == [False, True, True])
        version = await redis.read("HGET", KEY, "!version")
        changes: list[None] = []
        table.on_change.append(lambda: changes.append(None))
        await redis.read("FLUSHALL")

        async def are_back() -> bool:
            return bool(await redis.read("HLEN", KEY) == 4)

        await until(are_back)
        assert [knows(table, each) for each in issued] == [False, True, True]
        assert int(await redis.read("HGET", KEY, "!version")) > int(version)
        assert not changes  # the tokens held all the time


async def test_who_has_not_heard_of_redis_for_an_hour_does_not_know_better(
    redis: Redis, redis_server: RedisServer, issuing: Issuing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(redis_server.url) as table:
        issued = await create(issuing, "a")
        await until(lambda: knows(table, issued))
        monkeypatch.setattr(table_module, "TRUSTED_S", 0.0)
        await redis.read("DEL", KEY)
        await until(lambda: not knows(table, issued))
        assert await redis.read("EXISTS", KEY) == 0


async def test_a_token_ends_by_itself_when_it_expires(redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url) as table:
        issued = await create(issuing, "a", expires=time.time() + 1)
        lasting = await create(issuing, "b", expires="never")
        changes: list[int] = []
        table.on_change.append(lambda: changes.append(len(table.live())))
        await until(lambda: knows(table, issued) and knows(table, lasting))
        await until(lambda: not knows(table, issued))
        assert changes[-1] == 1
        assert knows(table, lasting)
        ended = table.ended(bytes.fromhex(issued.token.digest))
        assert ended and not ended.revoked


async def test_a_token_expires_while_redis_is_away_too(own_server: RedisServer) -> None:
    async with process(own_server.url) as table:
        redis = Redis(own_server.url)
        issuing = Issuing(Tokens(await Pool.open(redis)))
        issued = await create(issuing, "a", expires=time.time() + 2)
        lasting = await create(issuing, "b")
        await until(lambda: knows(table, issued) and knows(table, lasting))
        await redis.close()
        own_server.kill()
        await until(lambda: table.is_stale and not knows(table, issued))
        assert knows(table, lasting)


async def test_after_a_rotation_the_old_secret_holds_for_its_time(redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url) as table:
        old = await create(issuing, "a")
        new = await issuing.rotate(old.record.id, 1.0)
        await until(lambda: knows(table, new))
        assert knows(table, old)
        await until(lambda: not knows(table, old))
        assert knows(table, new)
        newest = await issuing.rotate(old.record.id)
        await until(lambda: knows(table, newest))
        assert not knows(table, new)


async def test_a_table_that_is_confirmed_by_the_roll_is_not_stale(
    redis_server: RedisServer, issuing: Issuing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "STALE_S", 0.7)  # the roll is read twice a second
    async with process(redis_server.url) as told, process(redis_server.url, signs=False) as untold:
        await until(lambda: told.was_read and untold.was_read)
        await until(lambda: untold.is_stale and not told.is_stale)


async def test_what_is_as_it_was_is_the_same_record(redis_server: RedisServer, issuing: Issuing) -> None:
    """So a look at the table tells which tokens were changed."""
    async with process(redis_server.url) as table:
        first = await create(issuing, "a")
        await until(lambda: knows(table, first))
        before = table.of_name("a")
        second = await create(issuing, "b")
        await until(lambda: knows(table, second))
        assert table.of_name("a") is before


async def test_what_was_used_is_reported_at_the_latest_when_the_process_ends(
    redis_server: RedisServer, issuing: Issuing
) -> None:
    issued, idle = await create(issuing, "a"), await create(issuing, "b")
    async with process(redis_server.url) as table:
        await until(lambda: knows(table, issued))
        table.note_used(issued.record.id)
    used = (await issuing.find(issued.record.id)).used
    assert used and used % 60 == 0 and 0 <= time.time() - used < 120
    assert (await issuing.find(idle.record.id)).used is None


async def test_use_is_reported_from_time_to_time(
    redis_server: RedisServer, issuing: Issuing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "USES_S", 0.1)
    issued = await create(issuing, "a")
    async with process(redis_server.url) as table:
        await until(lambda: knows(table, issued))
        table.note_used(issued.record.id)

        async def is_reported() -> bool:
            table.heard()
            return (await issuing.find(issued.record.id)).used is not None

        await until(is_reported)


async def test_a_token_is_found_by_the_name_in_a_certificate(redis_server: RedisServer, issuing: Issuing) -> None:
    async with process(redis_server.url) as table:
        await create(issuing, "a", certificate="spiffe://shop/orders")
        await until(lambda: table.of_certificate("spiffe://shop/orders") is not None)
        assert table.of_certificate("spiffe://shop") is None


async def test_a_record_that_cannot_be_read_gives_nothing_and_harms_no_other(
    redis: Redis, redis_server: RedisServer, issuing: Issuing
) -> None:
    issued = await create(issuing, "a")
    broken = ["{", "[]", '{"id":"x"}', as_json(msgspec.structs.replace(issued.record, digest="x" * 64)).decode()]
    for number, text in enumerate(broken):
        await redis.read("HSET", KEY, f"0000000{number}", text)
    async with process(redis_server.url) as table:
        await until(lambda: knows(table, issued))
        assert table.live() == [issued.record]


async def test_what_a_later_version_wrote_besides_is_no_fault(redis: Redis, redis_server: RedisServer) -> None:
    record = Record(id="later000", name="a", digest="0" * 64, rights=("fly",), created=1.0, changed=1)
    later = msgspec.json.decode(as_json(record)) | {"networks": ["10.0.0.0/8"]}
    await redis.read("HSET", KEY, "later000", msgspec.json.encode(later))
    async with process(redis_server.url) as table:
        await until(lambda: table.of_name("a") is not None)


async def test_ten_thousand_tokens_are_known_and_no_more_are_made(
    live_pool: Pool, redis_server: RedisServer, issuing: Issuing
) -> None:
    now = time.time()
    records = [
        Record(
            id=f"{number:08}",
            name=f"t{number}",
            digest=f"{number:064x}",
            rights=("add",),
            created=now,
            changed=number + 1,
        )
        for number in range(MOST)
    ]
    await Tokens(live_pool).write([Entry(each.id, each.changed, as_json(each)) for each in records])
    async with process(redis_server.url) as table:
        await until(lambda: len(table.live()) == MOST)
        with pytest.raises(Exception, match="10,000 tokens"):
            await create(issuing, "more")
        await issuing.revoke("00000007")
        await until(lambda: len(table.live()) == MOST - 1)
        assert (await create(issuing, "more")).record.name == "more"


def in_file(name: str, token_id: str = "") -> tuple[Token, str]:
    token = Token.make(token_id)
    record = Record(id=token.id, name=name, digest=token.digest, rights=("look",), created=1.0, changed=0)
    return token, as_table(record)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter times between looks at a file, and for which it is to be the same."""
    monkeypatch.setattr(table_module, "FILE_S", 0.05)
    for module in (table_module, token_table):
        monkeypatch.setattr(module, "SAME_S", 0.05)


async def test_the_tokens_of_a_file_are_live_and_follow_it(
    redis_server: RedisServer, issuing: Issuing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    path = tmp_path / "tokens.toml"
    (first, one), (second, two) = in_file("one"), in_file("two")
    path.write_text(one)
    issued = await create(issuing, "a")
    async with process(redis_server.url, file=str(path)) as table:
        await until(lambda: knows(table, issued) and table.of_digest(bytes.fromhex(first.digest)) is not None)
        path.write_text(one + two)
        await until(lambda: table.of_digest(bytes.fromhex(second.digest)) is not None)
        path.write_text(two)
        await until(lambda: table.of_digest(bytes.fromhex(first.digest)) is None)
        assert knows(table, issued)
        assert [record.name for record in table.filed] == ["two"]


async def test_a_bad_file_changes_nothing_and_is_logged(
    redis_server: RedisServer,
    issuing: Issuing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    quick(monkeypatch)
    path = tmp_path / "tokens.toml"
    first, one = in_file("one")
    path.write_text(one)
    issued = await create(issuing, "a")
    doubled = in_file("b", issued.record.id)[1]
    named = in_file("a")[1]
    async with process(redis_server.url, file=str(path)) as table:
        await until(lambda: len(table.live()) == 2)
        for bad, told in ((one + "x", "TOML"), (one + doubled, issued.record.id), (one + named, "there twice")):
            path.write_text(bad)
            logged = ""

            def is_logged(told: str = told) -> bool:
                nonlocal logged
                logged += "".join(capfd.readouterr())
                return "tokens.refused" in logged and told in logged

            await until(is_logged)
            assert sorted(record.name for record in table.live()) == ["a", "one"]
            assert first.text not in logged
        path.unlink()
        await until(lambda: "cannot be read" in capfd.readouterr().out)
        path.write_text("")
        await until(lambda: "it has no token, and had some before" in capfd.readouterr().out)
        assert len(table.live()) == 2
        path.write_text(one + in_file("two")[1])
        await until(lambda: len(table.live()) == 3)


async def test_a_file_is_read_again_when_that_is_asked_for(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(in_file("one")[1])
    async with process(redis_server.url, file=str(path)) as table:
        await until(lambda: table.of_name("one") is not None)
        path.write_text(in_file("two")[1])
        table.reload_file()
        await until(lambda: table.of_name("two") is not None)
        assert table.of_name("one") is None
